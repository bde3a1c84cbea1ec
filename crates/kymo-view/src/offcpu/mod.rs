//! Output of `kymo offcpu report`: where tasks were off CPU, as text.

mod pairs;
mod text;
mod tree;

pub(crate) use pairs::{waits, write_beside};

use kymo_analysis::offcpu::OffCpuTable;
use kymo_table::Answer;

use crate::units::TimeUnits;

/// Waits as they are shown.
pub struct OffCpuView<'a> {
    /// Counted waits.
    pub table: &'a mut OffCpuTable,
    /// Its answer.
    pub answer: &'a Answer,
    /// Stacks begin with the function that waits.
    pub inverted: bool,
    /// Branches of less than this share of all waits, in percent, are left out.
    pub percent_limit: f64,
    /// Lines of the tree at most.
    pub lines: Option<usize>,
    /// Stacks in a line each, instead of the tree.
    pub stack_lines: Option<usize>,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// Stacks that are shown beside those of their wakers.
    pub pairs: usize,
    /// Rows of the table of tasks at most; 0 for none.
    pub tasks: usize,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}
