//! A comparison of two sides: as a sentence and tables for people, an answer for programs,
//! Markdown for pull requests.

mod columns;
mod markdown;
mod runs;
mod sentence;
mod text;
mod tree;
mod words;

use std::collections::HashMap;

use kymo_compare::{Comparison, FunctionKey, GateOutcome, GateResult, StackTree};
use kymo_table::Answer;

pub use columns::answer_schema;
pub use runs::StackSums;
pub use text::RowLimit;

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
    /// Call trees, where they were asked for.
    pub trees: Vec<StackTree>,
    /// Gates and their outcomes.
    pub gates: Vec<GateResult>,
}

impl DiffReport {
    /// Outcome of all gates: failed if one failed, undecided if none failed and one is undecided.
    pub fn gate_outcome(&self) -> Option<GateOutcome> {
        self.gates.iter().map(|gate| gate.outcome).max()
    }

    /// Orders the functions of each quantity as the answer's table of changes does.
    pub fn order_like(&mut self, answer: &Answer) {
        let mut ranks: HashMap<(String, FunctionKey), usize> = HashMap::new();
        for (rank, row) in answer.table("changes").rows().enumerate() {
            let text = |column: &str| {
                let bytes = row.cell(column).bytes().unwrap_or_default();
                String::from_utf8_lossy(bytes).into_owned()
            };
            let key = FunctionKey { name: text("function"), binary: text("binary") };
            let _ = ranks.entry((text("quantity"), key)).or_insert(rank);
        }
        for measure in &mut self.comparison.measures {
            let name = measure.name.clone();
            measure.rows.sort_by_cached_key(|row| {
                ranks.get(&(name.clone(), row.key.clone())).copied().unwrap_or(usize::MAX)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use kymo_compare::{
        CompareOptions, FunctionKey, Gate, Measure, MeasureKind, RunSums, StackFrameKey,
    };

    use super::*;
    use crate::Ledger;

    const ALL_ROWS: RowLimit = RowLimit { most: usize::MAX, keeps_changes: true };

    /// Eight runs of a side: `f`, called by `g`, has a multiple of 100 to 107 ms, `same` 300 ms and
    /// a little.
    fn side(factor: f64) -> Vec<RunSums> {
        let run = |n: u32| {
            let mut run = RunSums::new(format!("run {n}"), 1.0);
            let mut frame = |name: &str| StackFrameKey {
                function: run.function(FunctionKey::new(name, "a", false)),
                is_inlined: false,
            };
            let (f, g, same) = (frame("f"), frame("g"), frame("sa|me"));
            run.add_stack(&[f, g], (100.0 + f64::from(n)) * 1e6 * factor, 100);
            run.add_stack(&[same, g], (300.0 + f64::from(n * 5 % 8)) * 1e6, 300);
            run
        };
        (0..8).map(run).collect()
    }

    fn report(factor: f64, gates: &[&str]) -> DiffReport {
        report_of(side(1.0), side(factor), gates)
    }

    fn report_of(before: Vec<RunSums>, after: Vec<RunSums>, gates: &[&str]) -> DiffReport {
        let (kind, name, unit) = (MeasureKind::Samples, "cpu-clock".to_owned(), "nanoseconds");
        let measure = Measure { kind, name, unit, before, after };
        let comparison = Comparison::new(&[measure], &CompareOptions::default()).unwrap();
        let gates = gates.iter().map(|g| g.parse::<Gate>().unwrap().judge(&comparison));
        DiffReport {
            gates: gates.collect(),
            comparison,
            sides: [vec!["old.data".to_owned()], vec!["new.data".to_owned()]],
            per: "run".to_owned(),
            run_word: "run",
            trees: Vec::new(),
        }
    }

    #[test]
    fn the_sentence_names_the_function_its_size_and_its_caller() {
        let slower = report(2.0, &[]).sentence();
        assert!(slower.starts_with("`f` is 100 % slower (95 % interval "), "{slower}");
        assert!(slower.contains(", called from `g`; nothing else"), "{slower}");
        let faster = report(0.5, &[]).sentence();
        assert!(faster.starts_with("`f` is 50 % faster (95 % interval "), "{faster}");
        let alike = report(1.0, &[]).sentence();
        assert!(alike.starts_with("No change: the time on CPU did not change by more"), "{alike}");
    }

    /// A function that is new has no interval; one that half of the runs have has no detectable
    /// change of a size.
    #[test]
    fn what_has_no_size_is_stated_in_words() {
        let add = |run: &mut RunSums, name: &str, weight: f64| {
            let function = run.function(FunctionKey::new(name, "a", false));
            run.add_stack(&[StackFrameKey { function, is_inlined: false }], weight, 10);
        };
        let [mut before, mut after] = [side(1.0), side(1.0)];
        for runs in [&mut before, &mut after] {
            runs.iter_mut().step_by(2).for_each(|run| add(run, "rare", 20e6));
        }
        after.iter_mut().for_each(|run| add(run, "added", 50e6));
        let report = report_of(before, after, &["self:added < +5%"]);
        let sentence = report.sentence();
        assert!(sentence.starts_with("`added` is new (50.0 ms); "), "{sentence}");
        assert!(sentence.ends_with(" could have doubled undetected."), "{sentence}");
        let text = report.to_text(ALL_ROWS);
        assert!(text.contains("\n           added: new (failed)\n"), "{text}");
        let markdown = report.to_markdown(&Ledger::default());
        assert!(markdown.contains("| **failed** | `added` new |"), "{markdown}");
        // Half of the runs before have nothing of it, all have it after: the ratio is infinite.
        let [mut before, mut after] = [side(1.0), side(1.0)];
        before.iter_mut().step_by(2).for_each(|run| add(run, "rare", 20e6));
        after.iter_mut().for_each(|run| add(run, "rare", 90e6));
        let sentence = report_of(before, after, &[]).sentence();
        let expected = "`rare` is slower (10.0 ms before, 90.0 ms after); ";
        assert!(sentence.starts_with(expected), "{sentence}");
    }

    #[test]
    fn gates_files_and_tables_are_in_the_text() {
        let report = report(2.0, &["self:f < +5%", "total < +90%"]);
        assert_eq!(report.gate_outcome(), Some(GateOutcome::Failed));
        let text = report.to_text(ALL_ROWS);
        assert!(text.contains("\nfailed     self:f < +5%\n"), "{text}");
        assert!(text.contains("\npassed     total < +90%\n"), "{text}");
        assert!(text.contains("\nBefore  old.data\nAfter   new.data\n"), "{text}");
        let row = text.lines().find(|l| l.starts_with("  f ")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..6], ["f", "103.5", "ms", "207.0", "ms", "2.000"], "{row}");
        assert!(row.ends_with("slower"), "{row}");
        let markdown = report.to_markdown(&Ledger::default());
        assert!(markdown.contains("| `self:f < +5%` | **failed** | `f` "), "{markdown}");
        assert!(markdown.contains("| `sa\\|me` | "), "{markdown}");
    }

    #[test]
    fn a_csv_line_has_as_many_fields_as_the_head() {
        let mut out = Vec::new();
        report(2.0, &[]).answer().write_csv(&mut out, "changes", ",").unwrap();
        let text = String::from_utf8(out).unwrap();
        let fields: Vec<usize> = text.lines().map(|l| l.split(',').count()).collect();
        assert!(fields.len() > 5 && fields.iter().all(|n| *n == 21), "{text}");
        let expected =
            "\nsamples,cpu-clock,nanoseconds,self,f,a,103500000,207000000,false,800,800,2";
        assert!(text.contains(expected), "{text}");
    }
}
