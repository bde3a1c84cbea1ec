//! The comparison as Markdown, for the comment on a pull request.

use std::fmt::Write as _;

use kymo_compare::{GateOutcome, MeasureChanges};

use super::DiffReport;
use super::words::{amount, heading, needs, outcome, ratio_cells, verdict, without_interval};
use crate::Ledger;
use crate::units::visible;

/// Functions in a table.
const ROWS: usize = 15;

impl DiffReport {
    /// Markdown with the sentence, the gates, the tables and the ledger.
    pub fn to_markdown(&self, ledger: &Ledger) -> String {
        let mut out = String::from("### kymo diff\n\n");
        let _ = writeln!(out, "{}\n", self.sentence());
        if !self.gates.is_empty() {
            out.push_str("| gate | outcome | because |\n|---|---|---|\n");
            for gate in &self.gates {
                let deciding = gate.because.iter().filter(|b| b.2 == gate.outcome).take(3);
                let because: Vec<String> = deciding
                    .map(|(name, change, _)| {
                        let size = match change.estimate {
                            Some(_) => ratio_cells(change.estimate).1,
                            None => without_interval(change.verdict).to_owned(),
                        };
                        format!("{} {size}", code(name))
                    })
                    .chain(gate.reason.iter().map(|r| cell(r)))
                    .collect();
                let word = outcome(gate.outcome);
                let word = if gate.outcome == GateOutcome::Failed {
                    format!("**{word}**")
                } else {
                    format!("{word}{}", needs(gate.more_runs, self.run_word))
                };
                let _ = writeln!(out, "| {} | {word} | {} |", code(&gate.text), because.join(", "));
            }
            out.push('\n');
        }
        for measure in &self.comparison.measures {
            self.write_markdown(measure, &mut out);
        }
        let (before, after) = self.comparison.runs;
        let _ = writeln!(
            out,
            "{before} {word}s before ({}), {after} after ({}).",
            files(&self.sides[0]),
            files(&self.sides[1]),
            word = self.run_word
        );
        for note in ledger.notes() {
            let _ = writeln!(out, "- {}: {}", note.kind, cell(&note.fact));
        }
        out
    }

    fn write_markdown(&self, measure: &MeasureChanges, out: &mut String) {
        let _ = writeln!(
            out,
            "{}\n",
            cell(&heading((measure.kind, &measure.name, measure.unit), &self.per))
        );
        out.push_str("| function | before | after | ratio | 95 % interval | verdict |\n");
        out.push_str("|---|--:|--:|--:|--:|---|\n");
        let rows = measure.rows.iter().filter_map(|r| Some((code(&r.key.name), r.own?)));
        let all = std::iter::once(("all".to_owned(), measure.whole));
        for (name, change) in all.chain(rows.take(ROWS)) {
            let (ratio, interval) = ratio_cells(change.estimate);
            let mean = if change.is_mean { " (mean)" } else { "" };
            let _ = writeln!(
                out,
                "| {name} | {}{mean} | {}{mean} | {ratio} | {interval} | {} |",
                amount(change.before, measure.unit),
                amount(change.after, measure.unit),
                verdict(measure, &change, self.run_word)
            );
        }
        out.push('\n');
    }
}

fn files(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => code(one),
        [first, .., last] => format!("{} to {}", code(first), code(last)),
    }
}

/// Text of a cell: names are foreign text, which must not become markup.
fn cell(text: &str) -> String {
    let mut safe = String::new();
    for c in visible(text).chars() {
        if "\\`*_{}[]<>|#!&@".contains(c) {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}

/// A name as code: a backtick would end it.
fn code(text: &str) -> String {
    let text = visible(text).replace('`', "'").replace('|', "\\|");
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_become_markup() {
        assert_eq!(code("a`b|c\nd"), "`a'b\\|c\\nd`");
        assert_eq!(cell("<b>@x"), "\\<b\\>\\@x");
    }
}
