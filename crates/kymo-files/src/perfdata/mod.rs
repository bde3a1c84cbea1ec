//! perf.data: a header, the attributes of the events, records, and feature
//! sections that describe the machine. The file form has a table of contents
//! and is seekable; the pipe form carries everything as records.

pub mod feature;
pub mod read;
pub mod rewrite;
pub mod schedstat;
pub mod stat;
pub mod write;

pub use feature::Feature;
pub use read::{
    Batch, BuildIdEntry, Damage, Entry, EventDesc, Features, FileMapping, GroupDesc, PerfData,
    PerfDataReadError, PerfDataReadStats, RecordOrder, RingRecords, TracingData,
};

/// First eight bytes of a version 1 file, in either byte order.
pub const MAGIC_V1: [u8; 8] = *b"PERFFILE";
/// First eight bytes of a version 2 file written by a little-endian machine;
/// a big-endian machine writes them in reverse.
pub const MAGIC_V2: [u8; 8] = *b"PERFILE2";
