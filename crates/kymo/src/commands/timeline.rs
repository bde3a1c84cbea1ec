//! What `script`, `report` and `list` of a trace.dat, of CTF traces and of both together
//! have in common: the ledger of what was read, how well the times agree, and the end.

use std::process::ExitCode;

use kymo_events::{is_damaged, notes_on_timeline};
use kymo_files::{Stats, Timeline};
use kymo_view::Ledger;

use crate::exit;

/// What could make a result of the recordings less than the truth.
pub(crate) fn ledger(timeline: &Timeline, stats: &Stats) -> Ledger {
    let mut ledger = Ledger::default();
    notes_on_timeline(timeline, stats).into_iter().for_each(|n| ledger.push(n));
    ledger
}

/// The exit status, after saying so if anything could not be read. `done`: what was made
/// of the rest.
pub(crate) fn end(
    timeline: &Timeline,
    stats: &Stats,
    (ledger, strict): (&Ledger, bool),
    done: &str,
) -> ExitCode {
    let damage = is_damaged(timeline, stats).then(|| format!("damaged; what can be read {done}"));
    exit::status(timeline.name(), damage.as_deref(), ledger, strict)
}
