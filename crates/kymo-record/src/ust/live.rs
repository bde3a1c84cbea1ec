//! The packets of a ring as its readers in files see them: for those who watch a program live.

use kymo_files::ctf::read::Ctf;

use super::error::UstError;
use super::metadata::metadata;
use super::program::Program;
use super::ring::RingReader;

/// What a reader must know of a program's packets, as far as the program has said by now: it is
/// what [`Drain`](super::Drain) writes into a trace's metadata.
///
/// # Errors
/// If what the program says of its events cannot be read as CTF.
pub fn live_trace(program: &Program, ring: &RingReader) -> Result<Ctf, UstError> {
    let config = kymo_ring::Config { uuid: ring.uuid(), ..*ring.config() };
    let clock = (config.clock, Vec::new());
    let words = metadata(program, &config, &clock, "");
    Ctf::in_memory(&program.comm(), words).map_err(|e| UstError::Events(e.to_string()))
}

/// `CLOCK_MONOTONIC` now, nanoseconds.
pub fn monotonic_now() -> u64 {
    kymo_kernel::clock::monotonic_ns()
}
