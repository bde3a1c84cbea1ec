//! Readers and writers of trace formats: perf.data in [`perfdata`],
//! trace.dat in [`tracedat`], CTF in [`ctf`], each with `read` and `write` that mirror each
//! other; [`Kind`] tells them apart by their first bytes.
//!
//! Nothing here interprets what the records mean: they are handed on as bytes
//! with their event and time.
#![forbid(unsafe_code)]

pub mod ctf;
mod damage;
mod kind;
pub mod perfdata;
pub mod tracedat;

pub use kind::Kind;
