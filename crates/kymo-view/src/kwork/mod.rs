//! Output of `kymo kwork`: text laid out as perf's, and JSON (docs/json.md).

mod report;
mod timehist;
mod top;

pub use report::{KworkColumn, KworkReport, KworkReportKind};
pub use timehist::{KworkLineWriter, write_kwork_head};
pub use top::{TopColumn, TopView};

use kymo_analysis::kwork::KworkCounts;
use serde_json::{Value, json};

/// Rule of a table, as wide as perf's.
const RULE_WIDTH: usize = 128;

/// Halves without partner.
fn counts_json(c: &KworkCounts) -> Value {
    json!({
        "raises_only": c.raises,
        "entries_only": c.entries,
        "exits_only": c.exits,
        "unraised": c.unraised,
        "repeated_raises": c.repeated,
        "uncertain": c.touching_loss,
    })
}

/// perf's column for names is 30 wide, and its texts end before.
fn cut_name(name: &str) -> String {
    crate::units::shown(name.as_bytes()).chars().take(29).collect()
}
