//! Reading trace.dat of versions 6 and 7 and either byte order. Memory does
//! not grow with the file: each CPU's pages are seen through a window.
//!
//! Nothing in the file is believed: sizes, offsets and counts are checked
//! against what is there. A table or page that is damaged costs what is in it;
//! the rest is read, and [`TraceDat::damage`] and [`TraceDatReadStats::damaged`] tell.

mod clock;
mod header;
mod machine;
mod merge;
mod options;
mod pages;
mod section_reader;
mod sections;
mod span;
mod text;

use std::path::Path;

use kymo_format::ring::{Missed, PageLayout, RingError};
use kymo_model::Endian;

use super::{Compression, TraceDatOptions};
use crate::Machine;
use crate::RecordingBytes;
pub use crate::damage::Damage;
pub use merge::TraceDatSelect;
pub(crate) use merge::Walk;

use clock::Clock;

/// More CPUs than Linux can have.
const MAX_CPUS: u32 = 1 << 14;
/// The most instances.
const MAX_BUFFERS: usize = 4096;
/// The most runs of pages, over all instances: each takes a window.
const MAX_RUNS: usize = 1 << 15;
/// The most options.
const MAX_OPTIONS: usize = 1 << 17;
/// The most damaged places that are kept; all are counted.
const MAX_DAMAGE: usize = 16;

/// An instance: the rings of one set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Its name; empty for the top instance.
    pub name: String,
    /// The clock of its times; empty where the file does not say.
    pub clock: String,
    /// Bytes of a ring page.
    pub page_size: u32,
    /// Pages of each CPU.
    pub cpus: Vec<CpuData>,
    /// Whether they are in compressed chunks.
    pub compressed: bool,
    /// Offset and size of the text of the kernel's `trace` file, which stands
    /// instead of pages in a recording of a latency tracer.
    pub text: Option<(u64, u64)>,
}

impl Buffer {
    fn new(name: String, page_size: u32) -> Buffer {
        Buffer { name, page_size, ..Buffer::default() }
    }
}

/// The pages of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuData {
    /// The CPU.
    pub cpu: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// One event, handed to the sink of [`TraceDat::for_each`].
#[derive(Clone, Copy)]
pub struct TraceDatEvent<'a> {
    /// Index of its instance in [`TraceDat::buffers`].
    pub buffer: usize,
    /// The CPU whose ring it was in.
    pub cpu: u32,
    /// Its time, corrected as the file asks.
    pub time: u64,
    /// The event from `common_type` on.
    pub payload: &'a [u8],
    /// Loss on this CPU before the event.
    pub missed: Option<Missed>,
    stream: &'a pages::Stream,
}

impl TraceDatEvent<'_> {
    /// Offset in the file; in a compressed one, that of its chunk.
    pub fn offset(&self) -> u64 {
        self.stream.offset()
    }
}

/// Counts of what was read, and of what can make a result wrong.
#[derive(Clone, Debug, Default)]
pub struct TraceDatReadStats {
    /// Events delivered.
    pub events: u64,
    /// Pages walked.
    pub pages: u64,
    /// Places where events were lost.
    pub lost_places: u64,
    /// Events lost there, as far as the ring counted them.
    pub lost: u64,
    /// Those of the places that are before the first event of a CPU.
    pub lost_before: u64,
    /// Places without a count.
    pub lost_unknown: u64,
    /// The first damaged places.
    pub damaged: Vec<Damage>,
    /// All damaged places.
    pub damaged_places: u64,
}

impl TraceDatReadStats {
    fn damage(&mut self, offset: u64, what: String) {
        self.damaged_places += 1;
        if self.damaged.len() < MAX_DAMAGE {
            self.damaged.push(Damage { offset, what });
        }
    }
}

/// A recording cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TraceDatReadError {
    #[error("{path}: {error}")]
    Open { path: String, error: std::io::Error },
    #[error("{path} is a directory: name the file in it that holds the recording")]
    Directory { path: String },
    #[error("{path} is not a file: a trace.dat can only be read from a file")]
    NotSeekable { path: String },
    #[error("{path} is empty")]
    Empty { path: String },
    #[error("{path} is not a trace.dat file: it begins with \"{begin}\"")]
    NotTraceDat { path: String, begin: String },
    #[error("{path}: {damage}")]
    Header { path: String, damage: Damage },
    #[error("read at offset {offset}: {error}")]
    Io { offset: u64, error: std::io::Error },
}

/// An opened recording.
#[derive(Debug)]
pub struct TraceDat {
    name: String,
    file: Option<RecordingBytes>,
    len: u64,
    version: u32,
    endian: Endian,
    long_size: u8,
    page_size: u32,
    compression: Compression,
    machine: Machine,
    options: TraceDatOptions,
    buffers: Vec<Buffer>,
    growing: bool,
    damage: Vec<Damage>,
    layout: Option<PageLayout>,
}

impl TraceDat {
    /// Opens a recording and reads all of it but the events.
    pub fn open(path: impl AsRef<Path>) -> Result<TraceDat, TraceDatReadError> {
        header::open(path.as_ref())
    }

    /// Opens bytes that are not in a file of that name; `name` is for messages.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_bytes(name: &str, bytes: RecordingBytes) -> Result<TraceDat, TraceDatReadError> {
        header::read(name.to_owned(), bytes)
    }

    /// Name of the recording in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// 6 or 7.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Byte order of the recording.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Bytes of a `long` of the recorded machine's programs.
    pub fn long_size(&self) -> u8 {
        self.long_size
    }

    /// Bytes of a page of the recorded machine.
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// The compression its header names.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Facts about the recorded machine that rendering needs.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Options of the file.
    pub fn options(&self) -> &TraceDatOptions {
        &self.options
    }

    /// The instances; the top one has no name.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Whether its recorder is at work or was killed: the section of the pages
    /// reaches beyond the file. Version 6 does not tell.
    pub fn is_growing(&self) -> bool {
        self.growing
    }

    /// Damage outside of the events.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no instance has any data.
    pub fn is_empty(&self) -> bool {
        self.buffers.iter().all(|b| b.text.is_none() && b.cpus.iter().all(|c| c.size == 0))
    }

    /// The file, for the text of [`Buffer::text`].
    pub fn file(&self) -> Option<&RecordingBytes> {
        self.file.as_ref()
    }

    /// Finishes the header once all tables were read: applies the limits.
    fn settle(&mut self) {
        let mut runs = 0;
        for b in &mut self.buffers {
            let room = MAX_RUNS - runs;
            if b.cpus.len() > room {
                let what = format!("instance {:?}: more than {MAX_RUNS} runs of pages", b.name);
                self.damage.push(Damage { offset: 0, what });
                b.cpus.truncate(room);
            }
            runs += b.cpus.len();
        }
        let more = self.damage.len().saturating_sub(MAX_DAMAGE);
        if more > 0 {
            self.damage.truncate(MAX_DAMAGE);
            self.damage.push(Damage { offset: 0, what: format!("{more} more damaged places") });
        }
        match PageLayout::parse(&self.machine.header_page, self.endian) {
            Ok(layout) => self.layout = Some(layout),
            Err(e) => self.damage.push(Damage {
                offset: 0,
                what: format!("{e}: pages are read as today's kernels lay them out"),
            }),
        }
        if let Some(clock) = self.options.clock().map(str::to_owned) {
            for b in self.buffers.iter_mut().filter(|b| b.clock.is_empty()) {
                b.clock.clone_from(&clock);
            }
        }
    }

    /// Layout of an instance's pages.
    fn layout_of(&self, buffer: &Buffer) -> Result<PageLayout, RingError> {
        match self.layout {
            Some(layout) => layout.with_page_size(buffer.page_size),
            None => PageLayout::new(self.endian, self.long_size, buffer.page_size),
        }
    }

    /// Whether times are not those of the ring: the file asks for corrections.
    pub fn corrects_times(&self) -> bool {
        self.clock() != Clock::default()
    }

    fn clock(&self) -> Clock {
        Clock::of(&self.options)
    }
}
