//! Counters and histograms of one program: its file `counters`, read by offset. None of it is
//! believed: sizes are checked at the door, and what is read is bounded.

use std::ffi::OsStr;

use kymo_kernel::shared::{Access, SharedFile};
use kymo_kernel::system::SystemRoot;
use kymo_ust::{
    COUNTER_RECORD, CountedKey, CounterRecord, CounterValue, CountersHeader, UstFormatError,
};

use super::error::UstError;
use super::mount_namespace::UserDirectory;
use super::program::{Program, format};

/// The file, in a program's directory.
pub(super) const FILE: &str = "counters";
/// Directory of the files of counting tools, in a user's directory.
pub(super) const COUNTING: &str = "counting";
/// Most files of theirs that are looked at.
const MAX_COUNTING: usize = 64;
/// Most values of one program.
const MAX_VALUES: usize = 1 << 17;

/// A counter or histogram, and what it has come to since its program started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCounter {
    /// The program's record of it.
    pub record: CounterRecord,
    /// Value without a key; of a counter with keys, the sum under keys that found no room.
    pub value: CounterValue,
    /// Values by key.
    pub keys: Vec<(CountedKey, CounterValue)>,
}

/// The file of counters of a program.
#[derive(Debug)]
pub(super) struct CounterFile {
    file: SharedFile,
}

impl CounterFile {
    /// None: the program has none, or has not finished it.
    pub(super) fn open(program: &Program) -> Result<Option<CounterFile>, UstError> {
        let file = match program.dir().file(OsStr::new(FILE), Access::Read) {
            Ok(file) => CounterFile { file },
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // The magic number is written last.
        let mut magic = [0; 8];
        let read = file.file.read_some(0, &mut magic)?;
        Ok((read == magic.len() && magic != [0; 8]).then_some(file))
    }

    /// The head as it is now.
    pub(super) fn header(&self) -> Result<CountersHeader, UstError> {
        let mut head = [0; CountersHeader::BYTES];
        let size = self.file.size()?;
        let len = self.file.read_some(0, &mut head)?;
        let header = CountersHeader::parse(&head[..len], size).map_err(|e| self.wrong(e))?;
        if header.cpus > cpus_of_machine() {
            let name = "number of CPUs";
            return Err(self.wrong(UstFormatError::Field { name, value: header.cpus.into() }));
        }
        Ok(header)
    }

    /// Whether anything may have been counted.
    pub(super) fn has_counts(&self, header: &CountersHeader) -> bool {
        self.file.has_data(header.areas).unwrap_or(false)
    }

    /// All counters whose name `wanted` wants, with their values. Invalid ones are ignored and
    /// reported.
    pub(super) fn read(
        &self,
        header: &CountersHeader,
        wanted: impl Fn(&CounterRecord) -> bool,
    ) -> Result<(Vec<ProgramCounter>, Option<UstError>), UstError> {
        let mut counters = Vec::new();
        let mut damage = None;
        let mut left = MAX_VALUES;
        let mut bytes = [0; COUNTER_RECORD];
        for id in 0..header.counters {
            self.file.read_at(header.record_at(id), &mut bytes)?;
            let record = match CounterRecord::parse(&bytes, header) {
                Ok(record) => record,
                Err(e) => {
                    damage.get_or_insert_with(|| self.wrong(e));
                    continue;
                }
            };
            if wanted(&record) {
                counters.push(self.counter(header, record, &mut left)?);
            }
        }
        Ok((counters, damage))
    }

    /// The counters without what they have come to.
    pub(super) fn records(&self) -> Result<(Vec<CounterRecord>, Option<UstError>), UstError> {
        let header = self.header()?;
        let mut bytes = vec![0; header.counters as usize * COUNTER_RECORD];
        self.file.read_at(header.record_at(0), &mut bytes)?;
        let mut damage = None;
        let parse = |bytes| match CounterRecord::parse(bytes, &header) {
            Ok(record) => Some(record),
            Err(e) => {
                damage.get_or_insert_with(|| self.wrong(e));
                None
            }
        };
        Ok((bytes.chunks_exact(COUNTER_RECORD).filter_map(parse).collect(), damage))
    }

    fn counter(
        &self,
        header: &CountersHeader,
        record: CounterRecord,
        left: &mut usize,
    ) -> Result<ProgramCounter, UstError> {
        let size = record.kind.value_bytes() as usize;
        let mut keys = Vec::new();
        if record.keyed {
            let mut table = vec![0; record.table_bytes()];
            self.file.read_at(record.table.into(), &mut table)?;
            keys = record.keys(&table);
            keys.truncate(*left);
            *left -= keys.len();
        }
        let begin = record.key_values;
        // Up to the end of the last that has a key.
        let len = keys.iter().map(|(_, at)| (at - begin) as usize + size).max().unwrap_or(0);
        let (mut alone, mut keyed) = (vec![0; size], vec![0; len]);
        let mut value = CounterValue::zero(record.kind);
        let mut values = vec![value.clone(); keys.len()];
        for area in 0..header.area_count() {
            let area = header.area_at(area);
            self.file.read_at(area + u64::from(record.value), &mut alone)?;
            value.add_area(&alone);
            if keyed.is_empty() {
                continue;
            }
            self.file.read_at(area + u64::from(begin), &mut keyed)?;
            for ((_, at), value) in keys.iter().zip(&mut values) {
                value.add_area(&keyed[(at - begin) as usize..]);
            }
        }
        let keys = keys.into_iter().map(|(key, _)| key).zip(values).collect();
        Ok(ProgramCounter { record, value, keys })
    }

    fn wrong(&self, error: UstFormatError) -> UstError {
        format(&self.file, error)
    }
}

impl Program {
    /// Returns its counters and histograms, and the reason why some are ignored.
    ///
    /// # Errors
    /// If their file is not what it should be.
    pub fn counters(&self) -> Result<(Vec<CounterRecord>, Option<UstError>), UstError> {
        match CounterFile::open(self)? {
            Some(file) => file.records(),
            None => Ok((Vec::new(), None)),
        }
    }

    /// Whether a program that is dead stays for the sake of its counters: it was killed, or a
    /// counting tool has not seen its end. `me` is the name of a tool that does not matter.
    pub(super) fn keeps_counts(&self, user: &UserDirectory, me: Option<&OsStr>) -> bool {
        let Ok(Some(file)) = CounterFile::open(self) else { return false };
        let Ok(header) = file.header() else { return false };
        if header.ended { is_counted(user, me) } else { file.has_counts(&header) }
    }
}

/// Whether a tool counts the programs of a user.
fn is_counted(user: &UserDirectory, me: Option<&OsStr>) -> bool {
    let Ok(dir) = user.dir.dir(OsStr::new(COUNTING)) else { return false };
    let (names, _) = dir.names(MAX_COUNTING).unwrap_or_default();
    let is_held = |name: &OsStr| {
        let file = dir.file(name, Access::Read);
        file.is_ok_and(|file| file.is_held().unwrap_or(false))
    };
    let others = names.iter().filter(|name| Some(name.as_os_str()) != me);
    others.filter(|name| !name.as_encoded_bytes().starts_with(b".")).any(|name| is_held(name))
}

/// CPUs that programs of this machine can know of.
fn cpus_of_machine() -> u32 {
    static CPUS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CPUS.get_or_init(|| {
        let possible = SystemRoot::machine().possible_cpus().last().map(|last| last + 1);
        possible.unwrap_or_else(|| kymo_kernel::cpus::online().len() as u32)
    })
}
