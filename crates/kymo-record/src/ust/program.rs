//! One traced program: its control file, its events, its slots.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use kymo_kernel::shared::{Access, SharedDir, SharedFile};
use kymo_ust::{
    CONTROL_HEADER, Control, EventFlags, EventRecord, SLOT, SLOTS, Slot, SlotState, slot_at,
};

use super::code_maps;
use super::counters;
use super::error::UstError;
use super::mount_namespace::UserDirectory;
use super::slots::Attached;

/// Most directories of one user that are looked at.
const MAX_PROGRAMS: usize = 4096;
/// Most bytes of an event table that are read.
const MAX_TABLE: u64 = 16 << 20;

/// Identity of a program: a process and the copy of the library in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProgramId {
    /// Process, as its own pid namespace has it.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Number of the copy of the library in it.
    pub instance: u32,
}

impl ProgramId {
    /// From a directory's name.
    pub fn parse(name: &OsStr) -> Option<ProgramId> {
        let mut parts = name.to_str()?.split('-');
        let id = ProgramId {
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
            instance: parts.next()?.parse().ok()?,
        };
        (parts.next().is_none() && id.to_string().as_str() == name).then_some(id)
    }
}

impl std::fmt::Display for ProgramId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.pid, self.start, self.instance)
    }
}

/// A ring that a program has made.
#[derive(Clone, Debug)]
pub struct RingFile {
    /// For which slot and generation.
    pub attached: Attached,
    /// The file.
    pub name: OsString,
    /// The name of the configuration it was made for, as far as that is known.
    pub config: String,
}

/// A program that is traced or could be.
#[derive(Debug)]
pub struct Program {
    id: ProgramId,
    uid: u32,
    dir: SharedDir,
    file: SharedFile,
    control: Control,
    events: Vec<EventRecord>,
    /// Reason why the event table was not read to its end.
    damage: Option<UstError>,
}

impl Program {
    /// The programs of a user, the living and the dead, and why others are passed over.
    pub fn all(user: &UserDirectory) -> (Vec<Program>, Vec<UstError>) {
        let (mut programs, mut refused) = (Vec::new(), Vec::new());
        let names = match user.dir.names(MAX_PROGRAMS) {
            Ok((names, _)) => names,
            Err(e) => return (programs, vec![e.into()]),
        };
        for name in names {
            let Some(id) = ProgramId::parse(&name) else { continue };
            match Program::open(user, id) {
                Ok(Some(program)) => programs.push(program),
                Ok(None) => {}
                Err(UstError::Shared(e)) if e.is_missing() => {}
                Err(e) => refused.push(e),
            }
        }
        (programs, refused)
    }

    /// A program; none if it has not finished its control file.
    ///
    /// # Errors
    /// If its files are not what they should be.
    pub fn open(user: &UserDirectory, id: ProgramId) -> Result<Option<Program>, UstError> {
        let dir = user.dir.dir(OsStr::new(&id.to_string()))?;
        let file = dir.file(OsStr::new("control"), Access::ReadWrite)?;
        let Some(control) = read_control(&file)? else { return Ok(None) };
        let told = (control.pid, control.start_time);
        if told != (id.pid, id.start) {
            let error = kymo_ust::UstFormatError::Field { name: "pid", value: control.pid.into() };
            return Err(format(&file, error));
        }
        let mut program =
            Program { id, uid: user.uid, dir, file, control, events: Vec::new(), damage: None };
        program.read_table()?;
        Ok(Some(program))
    }

    /// Reads again what events it has: libraries may have been loaded. Says whether
    /// there are more than before.
    ///
    /// # Errors
    /// If the control file is not what it should be any more.
    pub fn refresh(&mut self) -> Result<bool, UstError> {
        let Some(control) = read_control(&self.file)? else { return Ok(false) };
        if control.table_bytes == self.control.table_bytes {
            return Ok(false);
        }
        self.control = control;
        let before = self.events.len();
        self.read_table()?;
        Ok(self.events.len() > before)
    }

    fn read_table(&mut self) -> Result<(), UstError> {
        let size = self.control.table_bytes.min(MAX_TABLE);
        let mut bytes = vec![0; size as usize];
        self.file.read_at(u64::from(self.control.table), &mut bytes)?;
        let (mut events, error) = EventRecord::parse_table(&bytes);
        events.retain(|e| e.id < self.control.capacity);
        self.events = events;
        self.damage = error.map(|e| format(&self.file, e));
        Ok(())
    }

    /// Identity.
    pub fn id(&self) -> &ProgramId {
        &self.id
    }

    /// Its user, as it knows it.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn dir(&self) -> &SharedDir {
        &self.dir
    }

    pub(super) fn file(&self) -> &SharedFile {
        &self.file
    }

    /// The head of its control file.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Its name as the kernel has it.
    pub fn comm(&self) -> String {
        String::from_utf8_lossy(&self.control.comm).into_owned()
    }

    /// Its events, also those of libraries that it has unloaded.
    pub fn events(&self) -> &[EventRecord] {
        &self.events
    }

    /// The events that it can make now.
    pub fn present(&self) -> impl Iterator<Item = &EventRecord> {
        self.events.iter().filter(|e| e.flags.0 & EventFlags::GONE == 0)
    }

    /// Whether any of its events has a field that holds an address.
    pub fn has_addresses(&self) -> bool {
        let address = |f: &kymo_ust::FieldRecord| f.shape.kind == kymo_ust::FieldTag::Symbol;
        self.events.iter().any(|e| e.fields.iter().any(address))
    }

    /// Reason why its table of events was not read to the end.
    pub fn damage(&self) -> Option<&UstError> {
        self.damage.as_ref()
    }

    /// Whether it lives.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn is_alive(&self) -> Result<bool, UstError> {
        Ok(self.file.is_held()?)
    }

    /// Its slots.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn slots(&self) -> Result<Vec<Slot>, UstError> {
        let mut bytes = vec![0; SLOTS * SLOT];
        self.file.read_at(slot_at(0) as u64, &mut bytes)?;
        let slots = bytes.chunks_exact(SLOT).map(Slot::parse).collect::<Result<_, _>>();
        slots.map_err(|e| format(&self.file, e))
    }

    /// The ring files in its directory.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn rings(&self) -> Result<Vec<RingFile>, UstError> {
        let slots = self.slots()?;
        let (names, _) = self.dir.names(MAX_PROGRAMS)?;
        let parse = |name: OsString| {
            let (slot, generation) = name.to_str()?.strip_prefix("ring-")?.split_once('-')?;
            let slot = slot.parse().ok().filter(|s| *s < SLOTS)?;
            let attached = Attached { slot, generation: generation.parse().ok()? };
            // Freeing a slot removes its rings: the existing ones belong to this use.
            let used = slots.get(slot).filter(|s| s.state != SlotState::Free);
            let path = String::from_utf8_lossy(used.map_or(&b""[..], |s| &s.path));
            let config = path.rsplit_once('/').map_or(&*path, |(_, name)| name).to_owned();
            Some(RingFile { attached, name, config })
        };
        Ok(names.into_iter().filter_map(parse).collect())
    }

    /// Removes the ring files whose order `which` chooses, by name.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn remove_rings(&self, which: impl Fn(&str) -> bool) -> Result<(), UstError> {
        for ring in self.rings()? {
            if which(&ring.config) {
                self.remove_ring(&ring)?;
            }
        }
        Ok(())
    }

    /// Removes a ring file and gives its memory back, which a program that lives still
    /// maps. Nothing may be on for its slot any more.
    pub(super) fn remove_ring(&self, ring: &RingFile) -> Result<(), UstError> {
        let file = self.dir.file(&ring.name, Access::ReadWrite);
        self.dir.remove(&ring.name)?;
        // Whatever is odd about it, or the file system has no holes: its name is gone.
        if let Ok(file) = file {
            let _ = file.give_back();
        }
        Ok(())
    }

    /// Removes what a dead program has left, if no ring is left in it, and no counters that a tool
    /// may want to read.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove_if_empty(&self, user: &UserDirectory) -> Result<bool, UstError> {
        self.remove_counted(user, None)
    }

    /// Removes the directory for the counting tool `me`, which has read the program's counters, if
    /// no other needs it.
    pub(super) fn remove_counted(
        &self,
        user: &UserDirectory,
        me: Option<&OsStr>,
    ) -> Result<bool, UstError> {
        let is_wanted = || self.keeps_counts(user, me);
        if self.is_alive()? || !self.rings()?.is_empty() || is_wanted() {
            return Ok(false);
        }
        let pending = OsStr::new("pending");
        if let Ok(dir) = self.dir.dir(pending) {
            for name in dir.names(MAX_PROGRAMS)?.0 {
                dir.remove(&name)?;
            }
            self.dir.remove_dir(pending)?;
        }
        for name in self.dir.names(MAX_PROGRAMS)?.0 {
            let file = name.to_string_lossy();
            if file == code_maps::FILE || file.starts_with(code_maps::UNFINISHED) {
                self.dir.remove(&name)?;
            }
        }
        self.dir.remove(OsStr::new(counters::FILE))?;
        self.dir.remove(OsStr::new("control"))?;
        user.dir.remove_dir(OsStr::new(&self.id.to_string()))?;
        Ok(true)
    }

    /// Removes the counters of a program that is dead, and its directory if nothing else is in it.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn forget_counters(&self, user: &UserDirectory) -> Result<(), UstError> {
        if !self.is_alive()? {
            self.dir.remove(OsStr::new(counters::FILE))?;
            self.remove_if_empty(user)?;
        }
        Ok(())
    }
}

fn read_control(file: &SharedFile) -> Result<Option<Control>, UstError> {
    let size = file.size()?;
    let mut head = [0; 400];
    if size < CONTROL_HEADER as u64 || file.read_some(0, &mut head)? < head.len() {
        return Ok(None);
    }
    // The magic number is written last.
    if head[..8] == [0; 8] {
        return Ok(None);
    }
    Control::parse(&head, size).map(Some).map_err(|e| format(file, e))
}

pub(super) fn format(file: &SharedFile, error: kymo_ust::UstFormatError) -> UstError {
    UstError::Format { path: PathBuf::from(file.path()), error }
}
