//! The comparison as text: sentence, gates, tables, callers, files.

use std::fmt::Write as _;

use kymo_compare::{Change, FunctionRow, MeasureChanges, MeasureKind};
use kymo_model::counted;

use super::DiffReport;
use super::words::{
    amount, change_words, heading, needs, outcome, percent, ratio_cells, verdict, without_interval,
};
use crate::units::visible;

/// Widest name of a function in a table.
const NAME_WIDTH: usize = 34;

/// Rows of a table of the text.
#[derive(Clone, Copy, Debug)]
pub struct RowLimit {
    /// Rows at most.
    pub most: usize,
    /// Whether functions that changed are shown beyond that.
    pub keeps_changes: bool,
}

impl DiffReport {
    /// Text with at most this number of functions for each quantity.
    pub fn to_text(&self, rows: RowLimit) -> String {
        let mut out = self.sentence();
        out.push('\n');
        self.write_gates(&mut out);
        for measure in &self.comparison.measures {
            self.write_measure(measure, rows, &mut out);
        }
        self.write_callers(&mut out);
        self.write_trees(&mut out);
        self.write_sides(&mut out);
        out
    }

    fn write_gates(&self, out: &mut String) {
        if self.gates.is_empty() {
            return;
        }
        out.push('\n');
        for gate in &self.gates {
            let reason =
                gate.reason.as_ref().map_or_else(String::new, |r| format!(": {}", visible(r)));
            let word = outcome(gate.outcome);
            let _ = writeln!(
                out,
                "{word:<9}  {}{}{reason}",
                visible(&gate.text),
                needs(gate.more_runs, self.run_word)
            );
            for (name, change, one) in gate.because.iter().filter(|b| b.2 == gate.outcome).take(3) {
                let size = change.estimate.map_or_else(
                    || without_interval(change.verdict).to_owned(),
                    |e| format!("{} to {}", percent(e.low - 1.0), percent(e.high - 1.0)),
                );
                let _ = writeln!(out, "           {}: {size} ({})", visible(name), outcome(*one));
            }
        }
    }

    fn write_measure(&self, measure: &MeasureChanges, limit: RowLimit, out: &mut String) {
        let (before, after) = self.comparison.runs;
        let word = self.run_word;
        let _ = writeln!(
            out,
            "\n{}: {} before, {after} after",
            heading((measure.kind, &measure.name, measure.unit), &self.per),
            counted(before as u64, word, &format!("{word}s")),
        );
        let (row_word, rows_word) = match measure.kind {
            MeasureKind::Count => ("Row", "rows"),
            _ => ("Function", "functions"),
        };
        let mut table = vec![
            [row_word, "Before", "After", "Ratio", "95% interval", "Verdict"].map(str::to_owned),
            self.cells("(all)", measure, Some(&measure.whole)),
        ];
        let own: Vec<&FunctionRow> = measure.rows.iter().filter(|r| r.own.is_some()).collect();
        let changed = own.iter().filter(|r| is_change(r.own)).count();
        let least = if limit.keeps_changes { changed } else { 0 };
        let (shown, hidden) = own.split_at(limit.most.max(least).min(own.len()));
        for row in shown {
            table.push(self.cells(&visible(&row.key.name), measure, row.own.as_ref()));
        }
        write_table(&table, out);
        let is_mean = |row: &&FunctionRow| row.own.is_some_and(|c| c.is_mean);
        if measure.whole.is_mean || shown.iter().any(is_mean) {
            let _ = writeln!(out, "  * mean: most {word}s of a side have nothing of it");
        }
        if !hidden.is_empty() {
            let unchanged =
                if hidden.iter().any(|r| is_change(r.own)) { "" } else { " without a change" };
            let count = hidden.len();
            let _ = writeln!(out, "  ... and {count} more {rows_word}{unchanged} (-v shows all)");
        }
        if measure.below_floor > 0 {
            let _ = writeln!(
                out,
                "  {} with too few samples for a test: {} of the total",
                counted(measure.below_floor as u64, "function", "functions"),
                percent(measure.below_floor_share)
            );
        }
        let mut with_callees: Vec<&FunctionRow> =
            measure.rows.iter().filter(|r| is_change(r.total) && r.total != r.own).collect();
        if with_callees.is_empty() {
            return;
        }
        let size = |row: &FunctionRow| row.total.map_or(0.0, |c| (c.after - c.before).abs());
        with_callees.sort_by(|a, b| size(b).total_cmp(&size(a)));
        out.push_str("\n  With callees:\n");
        let mut table = vec![
            ["Function", "Before", "After", "Ratio", "95% interval", "Verdict"].map(str::to_owned),
        ];
        for row in with_callees.iter().take(limit.most) {
            table.push(self.cells(&visible(&row.key.name), measure, row.total.as_ref()));
        }
        write_table(&table, out);
        if let Some(more) = with_callees.len().checked_sub(limit.most).filter(|n| *n > 0) {
            let _ = writeln!(out, "  ... and {more} more (-v shows all)");
        }
    }

    fn cells(&self, name: &str, measure: &MeasureChanges, change: Option<&Change>) -> [String; 6] {
        let Some(change) = change else { return Default::default() };
        let (ratio, interval) = ratio_cells(change.estimate);
        let mark = if change.is_mean { "*" } else { "" };
        [
            fitted(name),
            format!("{}{mark}", amount(change.before, measure.unit)),
            format!("{}{mark}", amount(change.after, measure.unit)),
            ratio,
            interval,
            verdict(measure, change, self.run_word),
        ]
    }

    /// Callers of functions that changed.
    fn write_callers(&self, out: &mut String) {
        /// Functions whose callers are shown.
        const SHOWN: usize = 5;
        for (measure, row) in self.changes().into_iter().take(SHOWN) {
            let Some(change) = row.own.filter(|_| row.callers.len() > 1) else { continue };
            let words = change_words(measure, &change);
            let _ = writeln!(out, "\nCallers of `{}`, {words}:", visible(&row.key.name));
            for caller in &row.callers {
                let _ = writeln!(
                    out,
                    "  {:<NAME_WIDTH$}  {:>10} before  {:>10} after",
                    fitted(&visible(&caller.name)),
                    amount(caller.before, measure.unit),
                    amount(caller.after, measure.unit)
                );
            }
        }
    }

    /// Files of both sides, which must not be taken for each other.
    fn write_sides(&self, out: &mut String) {
        /// Files that are named.
        const SHOWN: usize = 4;
        out.push('\n');
        for (title, files) in ["Before", "After"].iter().zip(&self.sides) {
            let mut names: Vec<String> =
                files.iter().take(SHOWN).map(|f| visible(f).into_owned()).collect();
            if files.len() > SHOWN {
                names.push(format!("... ({} in all)", files.len()));
            }
            let _ = writeln!(out, "{title:<7} {}", names.join(", "));
        }
    }
}

fn is_change(change: Option<Change>) -> bool {
    change.is_some_and(|c| c.verdict.is_change())
}

/// A name that fits its column; its end distinguishes functions least.
fn fitted(name: &str) -> String {
    if name.chars().count() <= NAME_WIDTH {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(NAME_WIDTH - 1).collect();
    short.push('…');
    short
}

/// Names and verdicts stand to the left, numbers to the right.
fn write_table(rows: &[[String; 6]], out: &mut String) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let mut line = String::from("  ");
        for ((at, cell), width) in row.iter().enumerate().zip(&widths) {
            let width = *width;
            let _ = match at {
                0 => write!(line, "{cell:<width$}"),
                5 => write!(line, "  {cell}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}
