//! Readers and writers of trace file formats: today perf.data, in
//! [`perfdata`], with `read` and `write` that mirror each other.
//!
//! Nothing here interprets what the records mean: they are handed on as
//! [`kymo_model::RawRecord`]s with their event and time.
#![forbid(unsafe_code)]

pub mod perfdata;
pub mod tracedat;
