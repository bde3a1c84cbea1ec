//! The sentence that begins the result: what changed, by how much, and what else could have been
//! seen.

use kymo_compare::{Change, FunctionRow, MeasureChanges, MeasureKind, Verdict};

use super::DiffReport;
use super::words::{change_words, needs, percent};
use crate::units::visible;

/// Functions that the sentence names.
const NAMED: usize = 3;
/// Share of the change of the elapsed time that explains it.
const MOST_OF_IT: f64 = 0.5;
/// Share of a quantity at which a function counts for what else could have been detected.
const LEAST_SHARE: f64 = 0.01;
/// Detectable change above which its size says little.
const DOUBLED: f64 = 1.0;
/// Words for such a change.
const UNSEEN: &str = "other functions with 1 % or more of it could have doubled undetected";

impl DiffReport {
    /// One sentence: what changed and by how much, or that nothing did.
    pub fn sentence(&self) -> String {
        let changes = self.changes();
        let (mut sentence, is_change) = if changes.is_empty() {
            self.without_functions()
        } else {
            let named = changes.iter().take(NAMED).map(|(measure, row)| {
                let change = row.own.map_or_else(String::new, |c| change_words(measure, &c));
                let of_column = match measure.kind {
                    MeasureKind::Count => format!(" ({})", measure.name),
                    _ => String::new(),
                };
                let name = visible(&row.key.name);
                format!("`{name}`{of_column} is {change}{}", caller_words(row))
            });
            let mut text = named.collect::<Vec<_>>().join("; ");
            if let Some(more) = changes.len().checked_sub(NAMED).filter(|n| *n > 0) {
                text += &format!("; {more} more changed");
            }
            (text, true)
        };
        let measure = changes.first().map(|(measure, _)| *measure);
        if let Some(detectable) = measure.and_then(detectable).filter(|_| is_change) {
            sentence += &if detectable > DOUBLED {
                format!("; {UNSEEN}")
            } else {
                let size = percent(detectable);
                format!(
                    "; nothing else with 1 % or more of it changed by more than the detectable {size}"
                )
            };
        }
        sentence.push('.');
        // Names stay as they are.
        if sentence.starts_with("the ") {
            sentence.replace_range(..1, "T");
        }
        sentence
    }

    /// Whether what changed on the CPU explains most of what the runs take longer or shorter. Waits
    /// that changed are then of threads that no task waited for.
    fn is_explained_by_cpu(&self) -> bool {
        let change = |wanted: &dyn Fn(&MeasureChanges) -> bool| {
            let measure = self.comparison.measures.iter().find(|m| wanted(m))?;
            Some(measure.whole.after - measure.whole.before)
        };
        let elapsed = change(&|m| m.kind == MeasureKind::Count && m.name == "elapsed");
        let on_cpu = change(&|m| m.kind == MeasureKind::Samples && m.unit == "nanoseconds");
        elapsed
            .zip(on_cpu)
            .is_some_and(|(elapsed, on_cpu)| elapsed != 0.0 && on_cpu / elapsed >= MOST_OF_IT)
    }

    /// Functions that changed, the largest change first: times before counts.
    pub(super) fn changes(&self) -> Vec<(&MeasureChanges, &FunctionRow)> {
        let all = self.comparison.measures.iter();
        let mut changes: Vec<(&MeasureChanges, &FunctionRow)> = all
            .flat_map(|m| m.rows.iter().map(move |row| (m, row)))
            .filter(|(_, row)| row.own.is_some_and(|c| c.verdict.is_change()))
            .collect();
        let cpu_first = self.is_explained_by_cpu();
        let size = |(measure, row): &(&MeasureChanges, &FunctionRow)| {
            let size = row.own.map_or(0.0, |c| (c.after - c.before).abs());
            let whole = measure.whole.before.max(measure.whole.after).max(f64::MIN_POSITIVE);
            let is_time = measure.unit == "nanoseconds";
            let is_cause = cpu_first && measure.kind == MeasureKind::Samples;
            ((is_time, is_cause), if is_time { size } else { size / whole })
        };
        changes.sort_by(|a, b| {
            let (one, two) = (size(a), size(b));
            two.0.cmp(&one.0).then(two.1.total_cmp(&one.1))
        });
        changes
    }

    /// The sentence where no function changed, and whether it states a change.
    fn without_functions(&self) -> (String, bool) {
        let measures = &self.comparison.measures;
        let changed: Vec<String> = measures
            .iter()
            .filter(|m| m.whole.verdict.is_change())
            .map(|m| format!("{} is {}", whole_word(m), change_words(m, &m.whole)))
            .collect();
        if !changed.is_empty() {
            let functions = measures.iter().any(|m| !m.rows.is_empty());
            let blame = if functions { "; no single function is to blame for it" } else { "" };
            return (format!("{}{blame}", changed.join("; ")), false);
        }
        let Some(first) = measures.first() else { return ("nothing was compared".into(), false) };
        match first.whole.verdict {
            Verdict::NoChange { within } => {
                let detectable = detectable(first).map_or_else(String::new, |d| {
                    let size = percent(d);
                    if d > DOUBLED {
                        return format!("; {UNSEEN}");
                    }
                    format!(", and no function with 1 % or more of it by the detectable {size}")
                });
                let word = whole_word(first);
                (
                    format!(
                        "No change: {word} did not change by more than {}{detectable}",
                        percent(within)
                    ),
                    false,
                )
            }
            Verdict::Undecided { more_runs } => {
                let interval = first.whole.estimate.map_or_else(String::new, |e| {
                    let (from, to) = (percent(e.low - 1.0), percent(e.high - 1.0));
                    format!(" (between {from} and {to})")
                });
                let word = whole_word(first);
                let needs = needs(more_runs, self.run_word);
                (format!("Undecided whether {word} changed{interval}{needs}"), false)
            }
            _ => ("No change".into(), false),
        }
    }
}

/// The largest change that functions of a quantity could have had unseen.
fn detectable(measure: &MeasureChanges) -> Option<f64> {
    let whole = measure.whole.before.max(measure.whole.after);
    let is_unchanged =
        |c: &Change| !c.verdict.is_change() && c.before.max(c.after) >= LEAST_SHARE * whole;
    let unchanged = measure.rows.iter().filter_map(|r| r.own).filter(is_unchanged);
    let sizes = unchanged.map(|c| c.estimate.map_or(f64::INFINITY, |e| e.detectable));
    sizes.reduce(f64::max)
}

/// Name of a quantity as a whole.
fn whole_word(measure: &MeasureChanges) -> String {
    match (measure.kind, measure.unit) {
        (MeasureKind::Samples, "nanoseconds") => "the time on CPU".to_owned(),
        (MeasureKind::OffCpu, _) => "the time off CPU".to_owned(),
        (MeasureKind::Count, _) if measure.name == "elapsed" => "the elapsed time".to_owned(),
        (MeasureKind::Count, _) if measure.rows.is_empty() => measure.name.clone(),
        _ => format!("the sum of {}", measure.name),
    }
}

/// `, called from x`, where one caller explains most of the change.
fn caller_words(row: &FunctionRow) -> String {
    let size = |before: f64, after: f64| (after - before).abs();
    let all: f64 = row.callers.iter().map(|c| size(c.before, c.after)).sum();
    match row.callers.first() {
        Some(first) if all > 0.0 && size(first.before, first.after) >= 0.5 * all => {
            format!(", called from `{}`", visible(&first.name))
        }
        _ => String::new(),
    }
}
