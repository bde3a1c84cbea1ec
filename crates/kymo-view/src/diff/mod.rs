//! A comparison of two sides: as a sentence and tables for people, JSON and CSV for programs,
//! Markdown for pull requests.

mod json;
mod markdown;
mod runs;
mod sentence;
mod text;
mod words;

use kymo_compare::{Comparison, GateOutcome, GateResult};

pub use runs::StackSums;

/// Result of `kymo diff`.
#[derive(Debug)]
pub struct DiffReport {
    /// The comparison.
    pub comparison: Comparison,
    /// Recordings before and after.
    pub sides: [Vec<String>; 2],
    /// Unit of work in words: `run`, `second`, `shop:sale`.
    pub per: String,
    /// Word for what stands for a run: `run`, `block`.
    pub run_word: &'static str,
    /// Gates and their outcomes.
    pub gates: Vec<GateResult>,
}

impl DiffReport {
    /// Outcome of all gates: failed if one failed, undecided if none failed and one is undecided.
    pub fn gate_outcome(&self) -> Option<GateOutcome> {
        self.gates.iter().map(|gate| gate.outcome).max()
    }
}
