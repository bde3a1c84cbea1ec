//! Reading perf.data of either form, version and byte order, from a file or a pipe, in chunks:
//! memory does not grow with the file.
//!
//! Nothing in the file is trusted: sizes, offsets and counts are checked against what is there.
//! Damage ends the reading at the damaged place, after everything before it was delivered, and is
//! reported in [`PerfDataReadStats::damaged`].

mod block;
mod deferred_chains;
mod event_ids;
mod feature_section;
mod features;
mod header;
mod input;
mod loss_watch;
mod names;
mod order;
mod ring_records;
mod stream;
mod tracing;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_model::{Attr, Endian, LossWindows, RawRecord, RecordKind};

use crate::RecordingBytes;

pub use crate::damage::Damage;
pub use feature_section::{
    BpfFunction, Capabilities, ClockData, CompressionInfo, CpuCache, CpuPlace, CpuTopology,
    FeatureSection, HybridPmu, MemTopology, NumaNodeMemory, RecordedBpfProgram,
};
pub use features::{BuildIdEntry, DescribedEvent, Features, GroupDesc};
pub(crate) use header::file_in_directory;
pub use order::Batch;
pub use ring_records::RingRecords;
pub use tracing::TracingData;

/// An event of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventDesc {
    /// As perf names it, modifiers included: `cpu-clock:u`, `sched:sched_switch`.
    pub name: String,
    /// Attributes the event was opened with.
    pub attr: Attr,
    /// The ids its records carry.
    pub ids: Vec<u64>,
    /// Unit of its values, where the PMU states one.
    pub unit: String,
    /// Factor to the unit, where the PMU states one.
    pub scale: Option<f64>,
}

/// In which order records are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOrder {
    /// As they lie in the file.
    File,
    /// By time, as far as the file's round marks allow; records without a time
    /// come as early as they are read. Equal times keep the file's order.
    Time,
}

/// One record, handed to the sink of [`PerfData::for_each`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The record.
    pub raw: RawRecord<'a>,
    /// Index of its event in `events`. For records that are not of one event
    /// it is 0.
    pub event: usize,
    /// All events known when the record was read. Never empty for kernel records.
    pub events: &'a [EventDesc],
    /// All feature sections known when the record was read.
    pub features: &'a Features,
    /// Its time, where it carries one.
    pub time: Option<u64>,
    /// Offset in the file; for a compressed record, that of its compressed container.
    pub offset: u64,
}

impl<'a> Entry<'a> {
    /// The event of the record; `None` only for records of perf itself read
    /// before any event is known.
    pub fn desc(&self) -> Option<&'a EventDesc> {
        self.events.get(self.event)
    }
}

/// Counts of what was read, and of what can make a result wrong.
#[derive(Clone, Debug, Default)]
pub struct PerfDataReadStats {
    /// Records, containers of compressed ones excluded.
    pub records: u64,
    /// Containers of compressed records: COMPRESSED, COMPRESSED2.
    pub compressed: [u64; 2],
    /// Samples among them.
    pub samples: u64,
    /// Bytes read of the file.
    pub bytes: u64,
    /// Records that found a ring full, as LOST records say.
    pub lost: u64,
    /// LOST records.
    pub lost_chunks: u64,
    /// Samples of each event that found a ring full, as the recorder read from the
    /// kernel's counters at its end: LOST_SAMPLES records without a time.
    pub lost_samples: u64,
    /// Samples that the hardware lost before they reached a ring: LOST_SAMPLES records
    /// of the kernel, which have the time of the loss.
    pub lost_in_hardware: u64,
    /// THROTTLE records.
    pub throttled: u64,
    /// Records of kinds this code does not know, by kind.
    pub unknown_kinds: BTreeMap<u32, u64>,
    /// Samples whose id belongs to no event.
    pub unknown_ids: u64,
    /// Records too short for the fields their event promises.
    pub malformed: u64,
    /// Records delivered after a later one, because the file's round marks lie.
    pub out_of_order: u64,
    /// Times the reorder queue reached its limit and was half emptied without
    /// knowing that nothing earlier follows.
    pub forced_flushes: u64,
    /// Samples whose user stack was to be recorded later, and was not.
    pub missing_user_stacks: u64,
    /// The recorder did not finish the file: its header says so, or states no size.
    pub unfinished: bool,
    /// AUX area bytes passed over.
    pub aux_bytes: u64,
    /// AUX records: pieces of the trace data of hardware.
    pub aux_records: u64,
    /// Those of them whose trace data are cut short, because the buffer was full.
    pub aux_truncated: u64,
    /// Errors that the recorder met in trace data: AUXTRACE_ERROR records.
    pub aux_errors: u64,
    /// Tracer that made the trace data, by the number of the AUXTRACE_INFO record.
    pub aux_kind: Option<u32>,
    /// Bytes at the end of the last compressed record that are no whole record.
    pub cut_compressed: u64,
    /// Position and reason of an early end of reading.
    pub damaged: Option<Damage>,
}

impl PerfDataReadStats {
    /// Name of what made the trace data of the AUX area, by perf's numbers.
    pub fn aux_name(&self) -> &'static str {
        match self.aux_kind {
            Some(1) => "Intel PT",
            Some(2) => "Intel BTS",
            Some(3) => "CoreSight ETM",
            Some(4) => "Arm SPE",
            Some(5) => "s390 CPU-measurement",
            Some(6) => "HiSilicon PTT",
            _ => "hardware trace",
        }
    }

    /// Number of events that were lost; every command states this one. LOST records and
    /// the totals of LOST_SAMPLES tell of the same losses: the first know also of records
    /// that are no samples, the second also of what was lost after the last record that
    /// found room. The larger number is the one that misses less.
    pub fn lost_events(&self) -> u64 {
        self.lost.max(self.lost_samples).saturating_add(self.lost_in_hardware)
    }
}

/// A recording cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PerfDataReadError {
    #[error("{path}: {error}")]
    Open { path: String, error: std::io::Error },
    #[error("{path} is a directory: name the file in it that holds the recording")]
    Directory { path: String },
    #[error("no readable CTF trace: {why}")]
    BrokenTrace { why: String },
    #[error(
        "{path} was recorded by several threads (--threads), whose files are not put together: \
         record without"
    )]
    Threads { path: String },
    #[error("read at offset {offset}: {error}")]
    Io { offset: u64, error: std::io::Error },
    #[error("{path} is empty")]
    Empty { path: String },
    #[error("{path} is a trace.dat file, and a perf.data is needed here")]
    TraceDat { path: String },
    #[error(
        "{path} is not a perf.data file, a trace.dat file or a CTF trace: it begins with \
         \"{begin}\"{packed}"
    )]
    NotPerfData { path: String, begin: String, packed: String },
    #[error("{path}: header is cut short after {have} of {need} bytes")]
    ShortHeader { path: String, have: u64, need: u64 },
    #[error("{path}: header field {field} is {value}: {why}")]
    Header { path: String, field: &'static str, value: u64, why: &'static str },
    #[error("{path} is of the file form, which cannot be read from a pipe: name the file with -i")]
    NotSeekable { path: String },
    #[error("{path} has no events")]
    NoEvents { path: String },
    #[error("records were already read from this pipe")]
    Consumed,
    #[error("zstd decoder: {0}")]
    Zstd(std::io::Error),
}

/// A file that is mapped to memory, for reading.
pub trait FileMapping: std::fmt::Debug + Send + Sync {
    /// Its bytes, always the same ones.
    fn bytes(&self) -> &[u8];

    /// A part of them is not looked at any more, or not soon.
    fn forget(&self, part: &[u8]);

    /// Announces that a part of them, by indexes, is needed soon: bytes on a disk may be read
    /// meanwhile.
    fn expect(&self, part: Range<usize>);

    /// Whether the file became shorter since; what is gone then reads as zeros.
    fn was_cut(&self) -> bool;
}

/// An opened recording.
pub struct PerfData {
    name: String,
    input: input::Input,
    endian: Endian,
    version: u8,
    pipe: bool,
    data: header::DataRange,
    events: Arc<Vec<EventDesc>>,
    features: Arc<Features>,
    /// Damage outside of the records: a features table that lies.
    notes: Vec<String>,
    /// Events and sections are complete before the records are read.
    described: bool,
    /// Position at which a pass over a file of the pipe form ended early.
    cut_at: Option<Damage>,
    /// Times of the first and the last sample, once they were read.
    span: Option<Option<(u64, u64)>>,
    consumed: bool,
    /// Offset and size of the section table of a file that was being written, which lies among its
    /// records.
    table: Option<(u64, usize)>,
    /// Records of deferred call chains are handed on as they are.
    keeps_deferred_chains: bool,
    /// Receiver of losses, if one is set.
    losses: Option<LossWindows>,
}

impl PerfData {
    /// Opens a recording; `-` is the standard input.
    pub fn open(path: impl AsRef<Path>) -> Result<PerfData, PerfDataReadError> {
        header::open(path.as_ref())
    }

    /// Opens bytes that are not in a file of that name; `name` is for messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &str, bytes: RecordingBytes) -> Result<PerfData, PerfDataReadError> {
        header::read(name.to_owned(), input::InputFile::Bytes(bytes, 0))
    }

    /// Another reader of the same file; of a pipe there is none.
    ///
    /// # Errors
    /// If it cannot be read once more.
    pub fn reopen(&self) -> Result<PerfData, PerfDataReadError> {
        let bytes = self.input.file.bytes();
        let open_error = |error| PerfDataReadError::Open { path: self.name.clone(), error };
        header::read(self.name.clone(), input::InputFile::Bytes(bytes.map_err(open_error)?, 0))
    }

    /// Has samples handed on without the user part of their call chain, where that was recorded
    /// later, and the records with that part.
    pub fn keep_deferred_chains(&mut self) {
        self.keeps_deferred_chains = true;
    }

    /// Has spans in which events were lost put into `windows`, before records later than their
    /// start are handed on by time.
    pub fn watch_losses(&mut self, windows: LossWindows) {
        self.losses = Some(windows);
    }

    /// The path `perf script` and `perf report` read without `-i`: `perf.data`,
    /// or the standard input when that is a pipe.
    pub fn default_path() -> PathBuf {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let stdin_is_pipe = stdin
            .and_then(|stdin| stdin.metadata())
            .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_fifo(&m.file_type()));
        PathBuf::from(if stdin_is_pipe { "-" } else { "perf.data" })
    }

    /// Takes the records from memory that the file is mapped to, where `map` can do that: unused
    /// parts are neither read nor copied. Nothing changes for a pipe.
    pub fn map(&mut self, map: impl FnOnce(&File) -> Option<Arc<dyn FileMapping>>) {
        if !self.is_pipe()
            && let Some(map) = self.input.file.as_file().and_then(map)
        {
            self.input.map(map);
        }
    }

    /// The events. Complete for a file; of a pipe, those that were read so far.
    pub fn events(&self) -> &[EventDesc] {
        &self.events
    }

    /// The feature sections; of a pipe, those that were read so far.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Byte order of the recording.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Header version, 1 or 2.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Whether it can be read only once, and describes its events while it is read. A regular file
    /// of the pipe form is read as any other file.
    pub fn is_pipe(&self) -> bool {
        !self.described
    }

    /// Whether it has the pipe form: everything is a record.
    pub fn has_pipe_form(&self) -> bool {
        self.pipe
    }

    /// `(offset, size)` of the records as the header states them.
    pub fn data_range(&self) -> (u64, u64) {
        (self.data.offset, self.data.size)
    }

    /// Damage outside of the records, in words.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Damage that a command sees which shows events and sections only and reads no records.
    pub fn description_damage(&self) -> Vec<String> {
        let cut = self.cut_at.iter().map(ToString::to_string);
        self.notes.iter().cloned().chain(cut).collect()
    }

    /// Name of the recording in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the recorder did not finish the file, by what it says of itself.
    pub fn is_unfinished(&self) -> bool {
        let says_so = self.features.raw.contains_key(&crate::perfdata::Feature::UNFINISHED);
        says_so || (!self.pipe && self.data.size == 0)
    }

    /// Times of the first and the last sample. Where the recording does not state them, the records
    /// are read for it. Nothing for a pipe that does not state them, and without times.
    pub fn sample_span(&mut self) -> Result<Option<(u64, u64)>, PerfDataReadError> {
        // Recorders that cannot look back (`-B`, `-z`) state zeros.
        let stated = self.features.sample_time.filter(|(first, last)| 0 < *last && first <= last);
        if stated.is_some() || self.is_pipe() {
            return Ok(stated);
        }
        if let Some(span) = self.span {
            return Ok(span);
        }
        let mut span: Option<(u64, u64)> = None;
        self.for_each_batch(RecordOrder::File, &mut |batch| {
            if let Some((first, last)) = batch.sample_span() {
                let known = span.unwrap_or((first, last));
                span = Some((known.0.min(first), known.1.max(last)));
            }
            ControlFlow::Continue(())
        })?;
        self.span = Some(span);
        Ok(span)
    }

    /// Hands every record to `sink`. `Break` stops the reading without error;
    /// records not yet delivered are then dropped. Damage is not an error: it
    /// is in the statistics. A file can be read several times.
    pub fn for_each(
        &mut self,
        order: RecordOrder,
        sink: &mut dyn FnMut(&Entry<'_>) -> ControlFlow<()>,
    ) -> Result<PerfDataReadStats, PerfDataReadError> {
        self.for_each_batch(order, &mut |batch| batch.entries().try_for_each(|e| sink(&e)))
    }

    /// Like [`for_each`](Self::for_each), but hands over batches of records
    /// that can be sent to another thread and share the memory the file was read
    /// into, which is used again when the last of them is dropped.
    pub fn for_each_batch(
        &mut self,
        order: RecordOrder,
        sink: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> Result<PerfDataReadStats, PerfDataReadError> {
        stream::run(self, order, sink)
    }
}

/// Whether a kind is one this code knows the meaning of.
fn known(kind: RecordKind) -> bool {
    kind.name().is_some()
}
