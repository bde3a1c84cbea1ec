//! Writing perf.data: the file form (header, attributes, the sections known
//! from the start, records as they come, the other sections) and the pipe form
//! (everything as records).
//!
//! Records go out as they lie in the ring: nothing here looks into them.
//!
//! **A killed writer leaves a whole file.** Readers look for the table of
//! sections right behind the data, which does not end while recording. So every
//! now and then a *mark* goes into the data: a FINISHED_ROUND record with a
//! table of sections behind its header. While the mark is the last one, its
//! header states no more than itself, and the file's header states that the data
//! ends behind that: there the table is. One of its sections says that more may
//! follow. Before the next mark the record is made as long as it is, so that the
//! table is its body, without a meaning, as in the finished file.

mod compress;
pub mod features;
pub mod synth;
mod tracing;
pub mod update;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;

use kymo_model::{Attr, RecordHeader, RecordKind};

pub use compress::{CompressedForm, Compressor};
pub use tracing::TracingBlob;

use super::{Feature, MAGIC_V2};

/// Size of the version 2 header.
const HEADER_SIZE: u64 = 104;
/// Size of the pipe form's header.
const PIPE_HEADER_SIZE: u64 = 16;
/// Size of the attribute before `config3` (`PERF_ATTR_SIZE_VER7`). Readers that
/// do not know `config3` refuse a file whose attributes are larger.
const ATTR_SIZE_VER7: usize = 128;
/// Small records are gathered up to this size.
const GATHER: usize = 1 << 16;

/// An event of the recording.
#[derive(Clone, Debug)]
pub struct EventMeta {
    /// Its name as it is to be shown.
    pub name: String,
    /// Attributes the event was opened with.
    pub attr: Attr,
    /// The ids of all its instances.
    pub ids: Vec<u64>,
    /// Unit of its scaled counts; empty for plain numbers.
    pub unit: String,
    /// From the count to the unit.
    pub scale: f64,
    /// The only CPUs it can be opened on.
    pub cpus: Option<Vec<u32>>,
}

impl Default for EventMeta {
    fn default() -> EventMeta {
        EventMeta {
            name: String::new(),
            attr: Attr::default(),
            ids: Vec::new(),
            unit: String::new(),
            scale: 1.0,
            cpus: None,
        }
    }
}

/// The size that the attributes of a file with these events have.
pub fn attr_size(events: &[EventMeta]) -> usize {
    if events.iter().all(|e| e.attr.config3 == 0) { ATTR_SIZE_VER7 } else { Attr::SIZE }
}

/// The attribute cut to `size`, which it also states.
fn attr_bytes(attr: &Attr, size: usize) -> Vec<u8> {
    let mut bytes = attr.to_bytes()[..size.min(Attr::SIZE)].to_vec();
    bytes[4..8].copy_from_slice(&(size as u32).to_ne_bytes());
    bytes
}

/// The sections that describe the recording, by number.
pub type FeatureSections = BTreeMap<Feature, Vec<u8>>;

/// Destination of the bytes.
enum Out {
    File(File),
    Pipe(Box<dyn Write + Send>),
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Out::File(_) => "File",
            Out::Pipe(_) => "Pipe",
        })
    }
}

/// A perf.data being written.
#[derive(Debug)]
pub struct PerfDataWriter {
    out: Out,
    events: Vec<EventMeta>,
    attrs_at: u64,
    data_at: u64,
    data: u64,
    /// The last mark: where it begins in the data, and its size with its table.
    marked: Option<(u64, u16)>,
    /// Sections that lie before the data: where, and what they say.
    early: BTreeMap<Feature, (u64, Vec<u8>)>,
    gathered: Vec<u8>,
    compressor: Option<Compressor>,
}

impl PerfDataWriter {
    /// Begins a file: header, ids, attributes and the sections known by now.
    pub fn file(
        file: File,
        events: Vec<EventMeta>,
        features: &FeatureSections,
    ) -> io::Result<PerfDataWriter> {
        let mut head = vec![0; HEADER_SIZE as usize];
        let mut entries = Vec::new();
        let size = attr_size(&events);
        for event in &events {
            let at = head.len() as u64;
            event.ids.iter().for_each(|id| head.extend(id.to_ne_bytes()));
            entries.extend(attr_bytes(&event.attr, size));
            entries.extend(at.to_ne_bytes());
            entries.extend((event.ids.len() as u64 * 8).to_ne_bytes());
        }
        let attrs_at = head.len() as u64;
        head.extend(entries);
        let mut early = BTreeMap::new();
        let mut growing = features.clone();
        growing.insert(Feature::UNFINISHED, GROWING.to_vec());
        for (feature, bytes) in &growing {
            early.insert(*feature, (head.len() as u64, bytes.clone()));
            head.extend_from_slice(bytes);
            head.resize(head.len().next_multiple_of(8), 0);
        }
        let data_at = head.len() as u64;
        let mut writer = PerfDataWriter {
            out: Out::File(file),
            events,
            attrs_at,
            data_at,
            data: 0,
            marked: None,
            early,
            gathered: Vec::new(),
            compressor: None,
        };
        let first = writer.header(0, [0; 4]);
        head[..first.len()].copy_from_slice(&first);
        writer.put(&[IoSlice::new(&head)])?;
        Ok(writer)
    }

    /// Begins a pipe: header, attributes, then the sections known by now and
    /// the tracing data, as records.
    pub fn pipe(
        out: Box<dyn Write + Send>,
        events: Vec<EventMeta>,
        features: &FeatureSections,
        tracing: Option<&[u8]>,
    ) -> io::Result<PerfDataWriter> {
        let mut head = MAGIC_V2_NATIVE.to_ne_bytes().to_vec();
        head.extend(PIPE_HEADER_SIZE.to_ne_bytes());
        let size = attr_size(&events);
        for event in &events {
            let mut body = attr_bytes(&event.attr, size);
            event.ids.iter().for_each(|id| body.extend(id.to_ne_bytes()));
            match synth::record(RecordKind::HEADER_ATTR, 0, &body) {
                Some(record) => head.extend(record),
                None => return Err(io::Error::other("an event has too many ids for a pipe")),
            }
        }
        // In a pipe the tracing data is a record of its own kind.
        for (feature, bytes) in features.iter().filter(|(f, _)| **f != Feature::TRACING_DATA) {
            // A section too large for a record is left out, as perf does.
            head.extend(feature_record(*feature, bytes).unwrap_or_default());
        }
        if let Some(blob) = tracing {
            let mut bytes = blob.to_vec();
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            head.extend(
                RecordHeader {
                    kind: RecordKind::HEADER_TRACING_DATA,
                    misc: Default::default(),
                    size: 12,
                }
                .to_bytes(),
            );
            head.extend((bytes.len() as u32).to_ne_bytes());
            head.extend(bytes);
        }
        let mut writer = PerfDataWriter {
            out: Out::Pipe(out),
            events,
            attrs_at: 0,
            data_at: 0,
            data: 0,
            marked: None,
            early: BTreeMap::new(),
            gathered: Vec::new(),
            compressor: None,
        };
        writer.put(&[IoSlice::new(&head)])?;
        Ok(writer)
    }

    /// From now on the spans are compressed at `level` (zstd's).
    pub fn compress(&mut self, level: i32, form: CompressedForm) -> io::Result<()> {
        self.compressor = Some(Compressor::new(level, form)?);
        Ok(())
    }

    /// The events.
    pub fn events(&self) -> &[EventMeta] {
        &self.events
    }

    /// Whether this is the pipe form.
    pub fn is_pipe(&self) -> bool {
        matches!(self.out, Out::Pipe(_))
    }

    /// Bytes of records so far.
    pub fn data_size(&self) -> u64 {
        self.data + self.gathered.len() as u64
    }

    /// Offset of the records in the file.
    pub fn data_offset(&self) -> u64 {
        self.data_at
    }

    /// Uncompressed bytes per compressed byte, where compressing.
    pub fn ratio(&self) -> Option<f64> {
        self.compressor.as_ref().map(Compressor::ratio)
    }

    /// Adds a record of our own making.
    pub fn record(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHER { self.flush() } else { Ok(()) }
    }

    /// Adds the two spans of a ring, in one system call where possible.
    pub fn spans(&mut self, first: &[u8], second: &[u8]) -> io::Result<()> {
        if let Some(mut c) = self.compressor.take() {
            let done =
                c.push(first, &mut self.gathered).and_then(|()| c.push(second, &mut self.gathered));
            self.compressor = Some(c);
            done?;
            return self.flush();
        }
        let gathered = std::mem::take(&mut self.gathered);
        let done =
            self.put_data(&[IoSlice::new(&gathered), IoSlice::new(first), IoSlice::new(second)]);
        self.gathered = gathered;
        self.gathered.clear();
        done
    }

    /// Writes what was gathered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.spans_flush()
    }

    fn spans_flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered);
        let done = self.put_data(&[IoSlice::new(&gathered)]);
        self.gathered = gathered;
        self.gathered.clear();
        done
    }

    fn put_data(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut written = 0;
        let done = self.put_counted(slices, &mut written);
        // Also what was written before an error.
        self.data += written;
        done
    }

    fn put(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.put_counted(slices, &mut 0)
    }

    fn put_counted(&mut self, slices: &[IoSlice<'_>], written: &mut u64) -> io::Result<()> {
        let out: &mut dyn Write = match &mut self.out {
            Out::File(f) => f,
            Out::Pipe(p) => p,
        };
        let mut copies: Vec<IoSlice<'_>> =
            slices.iter().filter(|s| !s.is_empty()).copied().collect();
        let mut left = &mut copies[..];
        while !left.is_empty() {
            match out.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    *written += n as u64;
                    IoSlice::advance_slices(&mut left, n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn header(&self, data: u64, features: [u64; 4]) -> Vec<u8> {
        let mut h = MAGIC_V2_NATIVE.to_ne_bytes().to_vec();
        let entry = attr_size(&self.events) as u64 + 16;
        let words = [
            HEADER_SIZE,
            entry,
            self.attrs_at,
            self.events.len() as u64 * entry,
            self.data_at,
            data,
            0,
            0,
        ];
        words.iter().chain(&features).for_each(|w| h.extend(w.to_ne_bytes()));
        h
    }

    /// Makes what was written so far readable, should this process be killed: a
    /// mark goes behind it. Does nothing for pipes.
    pub fn mark(&mut self) -> io::Result<()> {
        if self.is_pipe() {
            return Ok(());
        }
        self.flush()?;
        let size = RecordHeader::SIZE + 16 * self.early.len();
        let size = u16::try_from(size).map_err(io::Error::other)?;
        let mut mark = round(RecordHeader::SIZE as u16).to_vec();
        let mut bits = [0u64; 4];
        for (feature, (at, bytes)) in &self.early {
            set_bit(&mut bits, *feature);
            mark.extend(at.to_ne_bytes());
            mark.extend((bytes.len() as u64).to_ne_bytes());
        }
        let at = self.data;
        self.put_data(&[IoSlice::new(&mark)])?;
        self.seal_mark()?;
        self.marked = Some((at, size));
        let header = self.header(at + RecordHeader::SIZE as u64, bits);
        match &self.out {
            Out::File(f) => f.write_all_at(&header, 0),
            Out::Pipe(_) => Ok(()),
        }
    }

    /// Makes the table of the last mark the body of its record: from then on the data is records
    /// from its start to its end.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn seal_mark(&mut self) -> io::Result<()> {
        match (self.marked.take(), &self.out) {
            (Some((at, size)), Out::File(f)) => f.write_all_at(&round(size), self.data_at + at),
            _ => Ok(()),
        }
    }

    /// Gives up after a write error (a full disk): cuts the records off behind
    /// a whole one, early enough that the sections fit where records were.
    /// Gives the bytes of records that are left.
    pub fn abandon(mut self, features: &FeatureSections) -> io::Result<u64> {
        self.gathered.clear();
        self.seal_mark()?;
        let Out::File(file) = &self.out else { return Ok(self.data) };
        if !file.metadata()?.is_file() {
            return Ok(0);
        }
        let features = &incomplete(features);
        let late = |(f, b): (&Feature, &Vec<u8>)| {
            if self.is_early(*f, b) { 16 } else { b.len() as u64 + 16 }
        };
        let need: u64 = features.iter().map(late).sum();
        let room = if need * 2 < self.data { need } else { 0 };
        let keep = whole_records(file, self.data_at, self.data - room)?;
        file.set_len(self.data_at + keep)?;
        self.data = keep;
        match room {
            // No size: the recording continues to the end of the file.
            0 => file.write_all_at(&self.header(0, [0; 4]), 0)?,
            _ => _ = self.finish(features)?,
        }
        Ok(keep)
    }

    /// Ends a file whose recording is known to be incomplete with its sections, one of which says
    /// so; in a pipe it is the last record. Gives the file's size.
    pub fn finish_incomplete(mut self, features: &FeatureSections) -> io::Result<u64> {
        if self.is_pipe() {
            self.record(&feature_record(Feature::UNFINISHED, UNFINISHED).unwrap_or_default())?;
        }
        self.finish(&incomplete(features))
    }

    fn is_early(&self, feature: Feature, bytes: &[u8]) -> bool {
        self.early.get(&feature).is_some_and(|(_, b)| b == bytes)
    }

    /// Ends the recording with its sections; gives the file's size.
    pub fn finish(mut self, features: &FeatureSections) -> io::Result<u64> {
        self.flush()?;
        self.seal_mark()?;
        let Out::File(file) = &self.out else {
            if let Out::Pipe(p) = &mut self.out {
                p.flush()?;
            }
            return Ok(self.data);
        };
        let mut bits = [0u64; 4];
        let table_at = self.data_at + self.data;
        let mut at = table_at + features.len() as u64 * 16;
        let (mut table, mut body) = (Vec::new(), Vec::new());
        for (feature, bytes) in features {
            set_bit(&mut bits, *feature);
            let early = self.early.get(feature).filter(|(_, b)| b == bytes);
            table.extend(early.map_or(at, |(early, _)| *early).to_ne_bytes());
            table.extend((bytes.len() as u64).to_ne_bytes());
            if early.is_none() {
                body.extend_from_slice(bytes);
                at += bytes.len() as u64;
            }
        }
        table.extend(body);
        file.write_all_at(&table, table_at)?;
        file.write_all_at(&self.header(self.data, bits), 0)?;
        Ok(table_at + table.len() as u64)
    }
}

/// Header of a mark's record.
fn round(size: u16) -> [u8; RecordHeader::SIZE] {
    RecordHeader { kind: RecordKind::FINISHED_ROUND, misc: Default::default(), size }.to_bytes()
}

/// Text of the section that says that a recording is incomplete.
const UNFINISHED: &[u8] = b"unfinished\0\0\0\0\0\0";

/// Record of a pipe that holds a section, if it fits. Not padded: perf takes what follows
/// CPU_TOPOLOGY for more of it.
fn feature_record(feature: Feature, bytes: &[u8]) -> Option<Vec<u8>> {
    let size = u16::try_from(RecordHeader::SIZE + 8 + bytes.len()).ok()?;
    let kind = RecordKind::HEADER_FEATURE;
    let mut record = RecordHeader { kind, misc: Default::default(), size }.to_bytes().to_vec();
    record.extend(u64::from(feature.0).to_ne_bytes());
    record.extend(bytes);
    Some(record)
}

/// The sections, with one that says that the recording is incomplete. perf passes over it, as over
/// all that it does not know.
fn incomplete(features: &FeatureSections) -> FeatureSections {
    let mut features = features.clone();
    features.insert(Feature::UNFINISHED, UNFINISHED.to_vec());
    features
}

fn set_bit(bits: &mut [u64; 4], feature: Feature) {
    if let Some(word) = bits.get_mut(feature.0 as usize / 64) {
        *word |= 1 << (feature.0 % 64);
    }
}

/// Number of bytes of `file` from `at`, up to `len`, that are complete records.
fn whole_records(file: &File, at: u64, len: u64) -> io::Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut done = 0;
    loop {
        let want = (len - done).min(buffer.len() as u64) as usize;
        let n = file.read_at(&mut buffer[..want], at + done)?;
        let mut walked = 0;
        while let Some([_, _, _, _, _, _, lo, hi]) = buffer[walked..n].first_chunk::<8>() {
            let size = usize::from(u16::from_ne_bytes([*lo, *hi]));
            if size < RecordHeader::SIZE || walked + size > n {
                break;
            }
            walked += size;
        }
        done += walked as u64;
        if walked == 0 {
            return Ok(done);
        }
    }
}

/// The section of a file that is being written; perf passes over it, as over all that it does not
/// know.
const GROWING: &[u8] = b"growing\0";

/// The magic as a number: writing it natively states the byte order.
const MAGIC_V2_NATIVE: u64 = u64::from_le_bytes(MAGIC_V2);

#[cfg(test)]
mod tests {
    use super::*;

    fn tempfile() -> File {
        let number = std::sync::atomic::AtomicU32::new(0);
        let unique = (std::process::id(), std::thread::current().id(), &raw const number);
        let path = std::env::temp_dir().join(format!("kymo-writer-{unique:?}"));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        file.unwrap()
    }

    #[test]
    fn a_file_has_its_parts_where_the_header_says() {
        let file = tempfile();
        let event = EventMeta { name: "cpu-clock".into(), ids: vec![7, 8], ..Default::default() };
        let none = FeatureSections::new();
        let mut w = PerfDataWriter::file(file.try_clone().unwrap(), vec![event], &none).unwrap();
        w.record(&synth::finished_round()).unwrap();
        w.spans(b"abcd", b"efgh").unwrap();
        assert_eq!(w.data_size(), 16);
        let features = FeatureSections::from([(Feature::HOSTNAME, features::string("vm"))]);
        let end = w.finish(&features).unwrap();
        let mut all = vec![0; end as usize];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(&all[..8], b"PERFILE2");
        let word = |at: usize| u64::from_le_bytes(*all[at..].first_chunk().unwrap());
        assert_eq!((word(8), word(16), word(24), word(32)), (104, 144, 120, 144));
        // Between the attributes and the data is the section of a file that grows.
        assert_eq!(&all[264..272], GROWING);
        assert_eq!((word(40), word(48), word(72)), (272, 16, 1 << 3));
        assert_eq!((word(104), word(112)), (7, 8));
        assert_eq!(&all[280..288], b"abcdefgh");
        let (at, len) = (word(288) as usize, word(296) as usize);
        assert_eq!((len, &all[at + 4..at + 7]), (68, &b"vm\0"[..]));
    }

    #[test]
    fn a_mark_is_a_record_and_a_table() {
        let file = tempfile();
        let features = FeatureSections::from([(Feature::ARCH, features::string("x86_64"))]);
        let event = EventMeta { ids: vec![7], ..Default::default() };
        let mut w =
            PerfDataWriter::file(file.try_clone().unwrap(), vec![event], &features).unwrap();
        w.record(&synth::finished_init()).unwrap();
        w.mark().unwrap();
        w.record(&synth::finished_round()).unwrap();
        w.flush().unwrap();
        drop(w);
        let mut all = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut all, 0).unwrap();
        let word = |at: usize| u64::from_ne_bytes(*all[at..].first_chunk().unwrap());
        let (data, size, bits) = (word(40) as usize, word(48) as usize, word(72));
        // The data ends behind the mark's record, where the table of sections is.
        assert_eq!((size, bits), (16, 1 << 6));
        assert_eq!(word(72 + 3 * 8), 1 << (250 - 192));
        let table = data + size;
        assert_eq!(all[table - 8..table], synth::finished_round());
        let section = |n: usize| {
            let at = word(table + 16 * n) as usize;
            &all[at..at + word(table + 16 * n + 8) as usize]
        };
        assert_eq!(section(0), features::string("x86_64"));
        assert_eq!(section(1), GROWING);
        assert_eq!(all[table + 32..], synth::finished_round());
    }

    #[test]
    fn the_table_of_a_mark_that_is_not_the_last_is_its_body() {
        let file = tempfile();
        let event = EventMeta { ids: vec![7], ..Default::default() };
        let none = FeatureSections::new();
        let mut w = PerfDataWriter::file(file.try_clone().unwrap(), vec![event], &none).unwrap();
        w.mark().unwrap();
        w.record(&synth::finished_init()).unwrap();
        w.mark().unwrap();
        let data = w.data_at as usize;
        let all = || {
            let mut all = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            all
        };
        let size = |at: usize| all()[data + at + 6];
        let word = |at: usize| u64::from_ne_bytes(*all()[at..].first_chunk().unwrap());
        // A mark with one section, the record, a mark.
        assert_eq!((size(0), size(24), size(32), word(48)), (24, 8, 8, 40));
        w.finish(&none).unwrap();
        assert_eq!((size(32), word(48), word(72), word(96)), (24, 56, 0, 0));
    }
}
