//! Numbers and verdicts in words.

use kymo_compare::{Change, GateOutcome, MeasureChanges, MeasureKind, RatioEstimate, Verdict};

use crate::units::{Grouped, Span};

/// An amount per unit of work.
pub(super) fn amount(value: f64, unit: &str) -> String {
    if unit == "bytes" {
        return format!("{} B", Grouped(value.round().max(0.0) as u64));
    }
    if unit == "nanoseconds" {
        return Span(value.round().max(0.0) as u64).to_string();
    }
    if value.fract() == 0.0 || value >= 100.0 {
        return Grouped(value.round().max(0.0) as u64).to_string();
    }
    format!("{value:.2}")
}

/// A relative size: `5.1 %`, `120 %`.
pub(super) fn percent(relative: f64) -> String {
    let percent = relative * 100.0;
    if !percent.is_finite() {
        "any size".to_owned()
    } else if percent.abs() < 9.95 {
        format!("{percent:.1} %")
    } else if percent.abs() < 9_999.5 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.0e} %")
    }
}

/// Interval of a relative size: `3.8 to 6.4 %`.
fn interval(from: f64, to: f64) -> String {
    match (from.is_finite(), to.is_finite()) {
        (true, true) => {}
        (true, false) => return format!("{} or more", percent(from)),
        (false, true) => return format!("up to {}", percent(to)),
        (false, false) => return "unbounded".to_owned(),
    }
    let (from, to) = (percent(from), percent(to));
    format!("{} to {to}", from.trim_end_matches(" %"))
}

/// Words for more and less of a quantity.
pub(super) fn directions(measure: &MeasureChanges) -> (&'static str, &'static str) {
    match (measure.kind, measure.unit) {
        (MeasureKind::Samples, "nanoseconds") => ("slower", "faster"),
        (MeasureKind::OffCpu, _) => ("longer off CPU", "shorter off CPU"),
        (_, "nanoseconds") => ("longer", "shorter"),
        _ => ("more", "fewer"),
    }
}

/// Size and direction of a change: `5.1 % slower (95 % interval 3.8 to 6.4 %)`.
pub(super) fn change_words(measure: &MeasureChanges, change: &Change) -> String {
    let (more, less) = directions(measure);
    let unit = measure.unit;
    let mean = if change.is_mean { ", on average" } else { "" };
    // Of runs of which half have nothing the ratio may be infinite.
    let estimate = change.estimate.filter(|e| e.ratio.is_finite() && e.ratio > 0.0);
    match (change.verdict, estimate) {
        (Verdict::New, _) => format!("new ({}{mean})", amount(change.after, unit)),
        (Verdict::Vanished, _) => format!("gone ({} before{mean})", amount(change.before, unit)),
        (_, Some(e)) if e.ratio >= 1.0 && change.verdict != Verdict::Less => {
            let size = if e.ratio >= 3.0 {
                let amount = if unit == "nanoseconds" { "time" } else { "amount" };
                format!("{:.1} times the {amount} before", e.ratio)
            } else {
                format!("{} {more}", percent(e.ratio - 1.0))
            };
            format!("{size} (95 % interval {})", interval(e.low - 1.0, e.high - 1.0))
        }
        (_, Some(e)) => {
            let (from, to) = (1.0 - e.high, 1.0 - e.low);
            format!("{} {less} (95 % interval {})", percent(1.0 - e.ratio), interval(from, to))
        }
        (verdict, None) => {
            let word = if verdict == Verdict::Less { less } else { more };
            let (before, after) = (amount(change.before, unit), amount(change.after, unit));
            format!("{word} ({before} before, {after} after{mean})")
        }
    }
}

/// Verdict in a cell.
pub(super) fn verdict(measure: &MeasureChanges, change: &Change, run_word: &str) -> String {
    let (more, less) = directions(measure);
    match change.verdict {
        Verdict::More => more.to_owned(),
        Verdict::Less => less.to_owned(),
        Verdict::New => "new".to_owned(),
        Verdict::Vanished => "vanished".to_owned(),
        Verdict::NoChange { within } => format!("no change within ±{}", percent(within)),
        Verdict::Undecided { more_runs } => format!("undecided{}", needs(more_runs, run_word)),
    }
}

/// `: needs 12 more runs`.
pub(super) fn needs(more_runs: Option<u64>, run_word: &str) -> String {
    match more_runs {
        None => String::new(),
        Some(1) => format!(": needs 1 more {run_word}"),
        Some(more) if more > 1_000 => format!(": needs over 1,000 more {run_word}s"),
        Some(more) => format!(": needs {more} more {run_word}s"),
    }
}

/// Size of a change without a ratio.
pub(super) fn without_interval(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::New => "new",
        Verdict::Vanished => "gone",
        _ => "no interval",
    }
}

/// Code of a verdict for programs.
pub(super) fn verdict_code(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::More => "more",
        Verdict::Less => "less",
        Verdict::New => "new",
        Verdict::Vanished => "vanished",
        Verdict::NoChange { .. } => "no-change",
        Verdict::Undecided { .. } => "undecided",
    }
}

/// Word for the outcome of a gate.
pub(super) fn outcome(outcome: GateOutcome) -> &'static str {
    match outcome {
        GateOutcome::Passed => "passed",
        GateOutcome::Failed => "failed",
        GateOutcome::Undecided => "undecided",
    }
}

/// `1.051`, and its interval.
pub(super) fn ratio_cells(estimate: Option<RatioEstimate>) -> (String, String) {
    let Some(e) = estimate else { return ("-".to_owned(), String::new()) };
    let number = |v: f64| if v.is_finite() { format!("{v:.3}") } else { "any".to_owned() };
    (number(e.ratio), format!("{} to {}", number(e.low), number(e.high)))
}

/// Name of a quantity with what it is per.
pub(super) fn heading((kind, name, unit): (MeasureKind, &str, &str), per: &str) -> String {
    match kind {
        MeasureKind::Samples if unit == "nanoseconds" => format!("Time on CPU per {per} ({name})"),
        MeasureKind::OffCpu => format!("Time off CPU per {per}"),
        MeasureKind::Samples | MeasureKind::Count => format!("{name} per {per}"),
    }
}
