//! Comparison of two sets of profiles: sums per run and function, a test that holds its rate of
//! false alarms over all functions, effects with intervals, verdicts and gates. No I/O.
//!
//! The unit is the run (or a block of time of one long recording). Each function's period-weighted
//! time per unit of work is one column of values. `max_t` tests all columns together with label
//! permutations, `effect` estimates ratios, `comparison` turns both into verdicts.
#![forbid(unsafe_code)]

mod baseline;
mod binaries;
mod blocks;
mod comparison;
mod effect;
mod gate;
mod max_t;
mod names;
mod random;
mod sums;
mod tree;

pub use baseline::{BaselineError, baseline_to_parquet, read_baseline};
pub use blocks::{BlockError, block_count};
pub use comparison::{
    CallerChange, Change, CompareError, CompareOptions, Comparison, FunctionRow, Measure,
    MeasureChanges, MeasureKind, StalledRun, Verdict,
};
pub use effect::RatioEstimate;
pub use gate::{Gate, GateOutcome, GateResult};
pub use names::normalize_name;
pub use sums::{FunctionKey, FunctionSum, RunSums, StackFrameKey};
pub use tree::{StackTree, TreeBranch};
