//! The comparison as an answer: its facts, the table of changes, gates and runs that stand out.

use kymo_compare::{
    CallerChange, Change, FunctionRow, GateOutcome, GateResult, MeasureChanges, MeasureKind,
    RatioEstimate, StalledRun, Verdict,
};
use kymo_table::{Answer, AnswerSchema, ColumnSet};

use super::DiffReport;
use super::words::{outcome, verdict_code};

const KINDS: &[&str] = &["samples", "off-cpu", "count"];
const VERDICTS: &[&str] = &["more", "less", "new", "vanished", "no-change", "undecided"];
const OUTCOMES: &[&str] = &["passed", "failed", "undecided"];

/// The report as a row, so that its parts can be rows of tables.
struct ReportRow<'a>(&'a DiffReport);

/// Change of a quantity, of all or of a function.
struct ChangeRow<'a> {
    measure: &'a MeasureChanges,
    /// Function; `None` is the whole.
    function: Option<&'a FunctionRow>,
    /// `whole`, `self` or `total`.
    part: &'static str,
    change: Change,
}

/// Change that decided a gate.
struct ReasonRow {
    name: String,
    change: Change,
    outcome: GateOutcome,
}

impl DiffReport {
    /// The answer; the rows of `changes` are in the order of the text.
    pub fn answer(&self) -> Answer {
        Answer::of("diff", columns(), &ReportRow(self), &())
    }
}

/// Definition of the answer.
pub fn answer_schema() -> AnswerSchema {
    AnswerSchema::of("diff", "kymo diff --json", "", columns())
}

fn columns<'a>() -> ColumnSet<'a, ReportRow<'a>, ()> {
    ColumnSet::new()
        .measure("sentence", "the result in a sentence", |r: &ReportRow<'a>, (): &()| {
            r.0.sentence()
        })
        .measure("per", "unit of work: `run`, `second` or an event", |r, ()| r.0.per.clone())
        .measure("before.runs", "number of runs, or of blocks of one recording", |r, ()| {
            r.0.comparison.runs.0
        })
        .measure("before.files", "recordings", |r, ()| r.0.sides[0].clone())
        .measure("after.runs", "number of runs, or of blocks of one recording", |r, ()| {
            r.0.comparison.runs.1
        })
        .measure("after.files", "recordings", |r, ()| r.0.sides[1].clone())
        .measure("tested", "number of functions and quantities tested together", |r, ()| {
            r.0.comparison.tested
        })
        .table(
            "changes",
            "one row for each whole quantity and for each function, alone and with callees; \
             changes first",
            change_row_columns(),
            |r, (), each| {
                r.0.comparison.measures.iter().for_each(|measure| each_change(measure, each));
            },
        )
        .table("measures", "quantities", measure_columns(), |r, (), each| {
            r.0.comparison.measures.iter().for_each(each);
        })
        .table("gates", "bounds of `--gate`", gate_columns(), |r, (), each| {
            r.0.gates.iter().for_each(each);
        })
        .table("stalled", "outlier runs", stalled_columns(), |r, (), each| {
            r.0.comparison.stalled.iter().for_each(each);
        })
}

fn each_change<'a>(measure: &'a MeasureChanges, each: &mut dyn FnMut(&ChangeRow<'a>)) {
    each(&ChangeRow { measure, function: None, part: "whole", change: measure.whole });
    for row in &measure.rows {
        for (part, change) in [("self", row.own), ("total", row.total)] {
            if let Some(change) = change {
                each(&ChangeRow { measure, function: Some(row), part, change });
            }
        }
    }
}

fn change_row_columns<'a>() -> ColumnSet<'a, ChangeRow<'a>, ()> {
    let callers = ColumnSet::new()
        .key("function", "caller", |c: &CallerChange, (): &()| c.name.clone())
        .sum("before", "mean amount under this caller, per unit of work", |c, ()| c.before)
        .sum("after", "mean amount of the new side", |c, ()| c.after);
    ColumnSet::new()
        .key("kind", "kind of the quantity", |c: &ChangeRow<'a>, (): &()| kind(c.measure.kind))
        .of(KINDS)
        .key("quantity", "event, or name of the count", |c, ()| c.measure.name.clone())
        .measure("unit", "unit of its amounts: `nanoseconds`, `bytes`, `count`", |c, ()| {
            c.measure.unit
        })
        .key("part", "whole quantity, function alone, or function with callees", |c, ()| c.part)
        .of(&["whole", "self", "total"])
        .key(
            "function",
            "function, or row of the compared table; null: the whole quantity",
            |c, ()| c.function.map(|f| f.key.name.clone()),
        )
        .key("binary", "its binary", |c, ()| c.function.map(|f| f.key.binary.clone()))
        .inline(change_columns(), |c, ()| &c.change)
        .measure("inlined_on_one_side", "whether it is inlined on one side only", |c, ()| {
            c.function.is_some_and(|f| f.inlined_on_one_side)
        })
        .table(
            "callers",
            "callers of a changed function, in its `self` row, largest difference first",
            callers,
            |c, (), each| {
                let own = c.function.filter(|_| c.part == "self");
                own.into_iter().flat_map(|f| &f.callers).for_each(each);
            },
        )
}

/// Columns of a change.
fn change_columns<'a>() -> ColumnSet<'a, Change, ()> {
    let estimate = |get: fn(RatioEstimate) -> f64| {
        move |c: &Change, (): &()| c.estimate.map(get).filter(|value| value.is_finite())
    };
    ColumnSet::new()
        .measure("before", "median of the runs, per unit of work", |c: &Change, (): &()| c.before)
        .measure("after", "median of the new side", |c, ()| c.after)
        .measure(
            "is_mean",
            "whether `before` and `after` are means: most runs of a side have none",
            |c, ()| c.is_mean,
        )
        .measure("samples_before", "samples of all runs", |c, ()| c.samples.0)
        .measure("samples_after", "samples of all runs", |c, ()| c.samples.1)
        .measure("ratio", "ratio of after to before; null if not finite", estimate(|e| e.ratio))
        .measure("low", "lower end of its 95 % interval", estimate(|e| e.low))
        .measure("high", "upper end", estimate(|e| e.high))
        .measure(
            "detectable",
            "smallest relative change that is detected with a probability of 80 %",
            estimate(|e| e.detectable),
        )
        .measure("p", "p-value, adjusted for multiple tests", |c, ()| c.p)
        .measure("verdict", "verdict", |c, ()| verdict_code(c.verdict))
        .of(VERDICTS)
        .measure("within", "for `no-change`: bound of the change", |c, ()| match c.verdict {
            Verdict::NoChange { within } => Some(within),
            _ => None,
        })
        .measure("more_runs", "for `undecided`: additional runs needed per side", |c, ()| {
            match c.verdict {
                Verdict::Undecided { more_runs } => more_runs,
                _ => None,
            }
        })
}

fn measure_columns<'a>() -> ColumnSet<'a, MeasureChanges, ()> {
    ColumnSet::new()
        .key("kind", "kind of the quantity", |m: &MeasureChanges, (): &()| kind(m.kind))
        .of(KINDS)
        .key("quantity", "event, or name of the count", |m, ()| m.name.clone())
        .sum("functions_below_floor", "functions with too few samples to be tested", |m, ()| {
            m.below_floor
        })
        .measure("share_below_floor", "their share of both sides, 0 to 1", |m, ()| {
            m.below_floor_share
        })
}

fn gate_columns<'a>() -> ColumnSet<'a, GateResult, ()> {
    let because = ColumnSet::new()
        .key("name", "function or quantity", |r: &ReasonRow, (): &()| r.name.clone())
        .measure("outcome", "outcome for this change", |r, ()| outcome(r.outcome))
        .of(OUTCOMES)
        .inline(change_columns(), |r, ()| &r.change);
    ColumnSet::new()
        .key("gate", "the bound, as given", |g: &GateResult, (): &()| g.text.clone())
        .measure("outcome", "outcome", |g, ()| outcome(g.outcome))
        .of(OUTCOMES)
        .measure("more_runs", "additional runs needed per side", |g, ()| g.more_runs)
        .measure("reason", "reason if nothing was compared", |g, ()| g.reason.clone())
        .table("because", "changes that led to the outcome", because, |g, (), each| {
            for (name, change, outcome) in &g.because {
                each(&ReasonRow { name: name.clone(), change: *change, outcome: *outcome });
            }
        })
}

fn stalled_columns<'a>() -> ColumnSet<'a, StalledRun, ()> {
    ColumnSet::new()
        .key("name", "recording or block", |s: &StalledRun, (): &()| s.name.clone())
        .measure("times", "ratio to the median of its side", |s, ()| s.times)
}

fn kind(kind: MeasureKind) -> &'static str {
    match kind {
        MeasureKind::Samples => "samples",
        MeasureKind::OffCpu => "off-cpu",
        MeasureKind::Count => "count",
    }
}
