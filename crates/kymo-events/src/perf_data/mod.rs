//! Events of perf.data: the formats of its tracepoints and their payloads.

mod payloads;

pub use payloads::{TracepointPayloads, note, payload_endian, recorded_constants};
