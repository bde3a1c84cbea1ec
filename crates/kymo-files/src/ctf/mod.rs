//! CTF 1.8, the Common Trace Format: streams of packets whose layout a metadata
//! text describes. LTTng, babeltrace2 and barectf write it; a directory is a trace.
//!
//! [`types`] is what the metadata say, as data: [`read`] makes it of TSDL,
//! [`mod@write`] prints it as TSDL.

mod align;
mod anchor;
mod attributes;
pub mod read;
pub mod types;
pub mod write;

/// Name in the environment of a trace that its recorder (kymo) has not finished.
pub const UNFINISHED: &str = "kymo_unfinished";

pub use anchor::Anchor;
pub use attributes::CodeMapping;
pub use read::{Ctf, CtfReadError, CtfReadStats};
pub use types::{ClockOrigin, Metadata};
