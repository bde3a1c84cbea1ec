//! Text of `kymo kwork`, in kymo's layout and in perf's.

mod report;
mod timehist;
mod top;

pub use report::KworkReport;
pub use timehist::{KworkLineWriter, write_kwork_head};
pub use top::TopView;

/// Rule of a table, as wide as perf's.
const RULE_WIDTH: usize = 128;

/// perf's column for names is 30 wide, and its texts end before.
fn cut_name(name: &str) -> String {
    crate::units::shown(name.as_bytes()).chars().take(29).collect()
}
