//! The comparison for programs: JSON, and CSV with a line for each function and quantity.

use std::io::{self, Write};

use kymo_compare::{Change, FunctionRow, MeasureChanges, MeasureKind, Verdict};
use serde_json::{Value, json};

use super::DiffReport;
use super::words::{outcome, verdict_code};
use crate::Ledger;

impl DiffReport {
    /// JSON as docs/json.md describes it.
    pub fn to_json(&self, ledger: &Ledger) -> Value {
        let measures = self.comparison.measures.iter().map(|m| {
            json!({
                "kind": kind(m.kind),
                "name": m.name,
                "unit": m.unit,
                "whole": change(&m.whole),
                "functions": m.rows.iter().map(function).collect::<Vec<_>>(),
                "functions_below_floor": m.below_floor,
                "share_below_floor": m.below_floor_share,
            })
        });
        let gates = self.gates.iter().map(|gate| {
            let because = gate.because.iter().map(
                |(name, c, one)| json!({"name": name, "outcome": outcome(*one), "change": change(c)}),
            );
            json!({
                "gate": gate.text,
                "outcome": outcome(gate.outcome),
                "more_runs": gate.more_runs,
                "reason": gate.reason,
                "because": because.collect::<Vec<_>>(),
            })
        });
        let stalled = self.comparison.stalled.iter();
        json!({
            "version": 1,
            "sentence": self.sentence(),
            "per": self.per,
            "before": {"runs": self.comparison.runs.0, "files": self.sides[0]},
            "after": {"runs": self.comparison.runs.1, "files": self.sides[1]},
            "tested": self.comparison.tested,
            "measures": measures.collect::<Vec<_>>(),
            "gates": gates.collect::<Vec<_>>(),
            "stalled": stalled.map(|s| json!({"name": s.name, "times": s.times})).collect::<Vec<_>>(),
            "ledger": ledger.to_json(),
        })
    }

    /// CSV with a line of names of columns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "measure,unit,function,binary,part,before,after,samples_before,samples_after,ratio,low,high,p,verdict"
        )?;
        for m in &self.comparison.measures {
            csv_line(out, m, (&m.name, ""), ("whole", &m.whole))?;
            for row in &m.rows {
                let names = (&*row.key.name, &*row.key.binary);
                for (part, change) in [("self", row.own), ("total", row.total)] {
                    if let Some(change) = change {
                        csv_line(out, m, names, (part, &change))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn csv_line(
    out: &mut dyn Write,
    measure: &MeasureChanges,
    (name, binary): (&str, &str),
    (part, change): (&str, &Change),
) -> io::Result<()> {
    let (ratio, low, high) = match change.estimate {
        Some(e) => (finite(e.ratio), finite(e.low), finite(e.high)),
        None => Default::default(),
    };
    writeln!(
        out,
        "{},{},{},{},{part},{},{},{},{},{ratio},{low},{high},{},{}",
        quoted(&measure.name),
        measure.unit,
        quoted(name),
        quoted(binary),
        change.before,
        change.after,
        change.samples.0,
        change.samples.1,
        change.p,
        verdict_code(change.verdict),
    )
}

fn finite(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

/// A field as RFC 4180 writes it; control characters are escaped, so that a name is one line.
fn quoted(text: &str) -> String {
    let text = crate::units::visible(text);
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into_owned()
    }
}

fn kind(kind: MeasureKind) -> &'static str {
    match kind {
        MeasureKind::Samples => "samples",
        MeasureKind::OffCpu => "off-cpu",
        MeasureKind::Count => "count",
    }
}

fn function(row: &FunctionRow) -> Value {
    let callers = row.callers.iter();
    json!({
        "function": row.key.name,
        "binary": row.key.binary,
        "self": row.own.as_ref().map(change),
        "total": row.total.as_ref().map(change),
        "inlined_on_one_side": row.inlined_on_one_side,
        "callers": callers
            .map(|c| json!({"function": c.name, "before": c.before, "after": c.after}))
            .collect::<Vec<_>>(),
    })
}

fn change(change: &Change) -> Value {
    let estimate = change.estimate;
    let more_runs = match change.verdict {
        Verdict::Undecided { more_runs } => more_runs,
        _ => None,
    };
    let within = match change.verdict {
        Verdict::NoChange { within } => Some(within),
        _ => None,
    };
    json!({
        "before": change.before,
        "after": change.after,
        "samples_before": change.samples.0,
        "samples_after": change.samples.1,
        "ratio": estimate.map(|e| e.ratio),
        "low": estimate.map(|e| e.low),
        "high": estimate.map(|e| e.high),
        "detectable": estimate.map(|e| e.detectable),
        "p": change.p,
        "verdict": verdict_code(change.verdict),
        "within": within,
        "more_runs": more_runs,
    })
}
