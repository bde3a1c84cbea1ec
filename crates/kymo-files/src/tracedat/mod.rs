//! trace.dat: the pages of the kernel's ring buffer, one run of them for each
//! CPU, with all that is needed to read them on another machine. trace-cmd,
//! KernelShark and libtracecmd call it so; versions 6 and 7.
//!
//! `docs/formats/trace-dat.md` states the bytes.

mod codec;
mod facts;
mod ids;
pub mod read;
pub mod write;

pub use codec::Compression;
pub use facts::{CpuShift, FLIGHT_RECORDER, Guest, TimeShift, TraceDatOptions, TscToNsec};
pub use ids::{OptionId, SectionId};
pub use read::{
    Buffer, CpuData, Damage, TraceDat, TraceDatEvent, TraceDatReadError, TraceDatReadStats,
    TraceDatSelect,
};
pub use write::{BufferSpec, Format, TraceDatWriter, TraceFacts, WriteError};

/// First ten bytes of every file. The tracing data inside of a perf.data file
/// begin so too.
pub const MAGIC: [u8; 10] = *b"\x17\x08\x44tracing";
