//! Rows as JSON objects, a line each, with the keys of perf stat -j.

use std::fmt::Write as _;

use kymo_model::{CountKey, CountRow, CountState};

use super::metric::MetricText;
use super::{MetricWords, Reading};

// `write!` to a String cannot fail.

/// Appends a row.
pub(super) fn row(out: &mut String, row: &CountRow, reading: Reading<'_>) {
    out.push('{');
    prefix(out, row, reading);
    let _ = match row.state {
        CountState::Counted => {
            write!(out, "\"counter-value\" : \"{:.6}\", ", row.value * row.scale)
        }
        CountState::NotCounted => write!(out, "\"counter-value\" : \"<not counted>\", "),
        CountState::NotSupported => write!(out, "\"counter-value\" : \"<not supported>\", "),
    };
    let _ = write!(out, "\"unit\" : {}, \"event\" : {}, ", quoted(&row.unit), quoted(&row.name));
    if let Some(cgroup) = &row.cgroup {
        let _ = write!(out, "\"cgroup\" : {}, ", quoted(cgroup));
    }
    if let Some(noise) = row.noise {
        let _ = write!(out, "\"variance\" : {noise:.2}, ");
    }
    let _ = write!(
        out,
        "\"event-runtime\" : {:.0}, \"pcnt-running\" : {:.2}",
        row.running,
        row.share()
    );
    let words = &reading.style.metrics;
    let mut metrics = MetricText::of(row, words).into_iter();
    match metrics.next() {
        Some(own) => metric(out, &own, words, ", "),
        // perf names none since it names metrics.
        None if *words == MetricWords::Unit => {
            out.push_str(", \"metric-value\" : 0.000000, \"metric-unit\" : \"\"");
        }
        None => {}
    }
    out.push('}');
    for more in metrics {
        out.push_str("\n{");
        prefix(out, row, reading);
        metric(out, &more, words, "");
        out.push('}');
    }
}

/// Appends a derived number. Beside a name perf has it as text.
fn metric(out: &mut String, metric: &MetricText, words: &MetricWords, separator: &str) {
    let (value, unit) = (metric.value, quoted(&metric.unit));
    let quote = if *words == MetricWords::Unit { "" } else { "\"" };
    let _ = write!(
        out,
        "{separator}\"metric-value\" : {quote}{value:.6}{quote}, \"metric-unit\" : {unit}"
    );
}

/// Appends when and where a row was counted, each with a comma behind it.
pub(super) fn prefix(out: &mut String, row: &CountRow, reading: Reading<'_>) {
    if let Some(at) = reading.interval {
        let _ = write!(out, "\"interval\" : {at:.9}, ");
    }
    let n = row.summed;
    let summed = match reading.style.metrics {
        MetricWords::Unit => "aggregate-number",
        MetricWords::Name(_) => "counters",
    };
    let part = |out: &mut String, kind: &str, name: String| {
        let _ = write!(out, "\"{kind}\" : \"{name}\", \"{summed}\" : {n}, ");
    };
    match &row.key {
        CountKey::All => {}
        CountKey::Cpu(cpu) => {
            let _ = write!(out, "\"cpu\" : \"{cpu}\", ");
        }
        CountKey::Core { socket, die, core } => {
            part(out, "core", format!("S{socket}-D{die}-C{core}"));
        }
        CountKey::Cluster { socket, die, cluster } => {
            part(out, "cluster", format!("S{socket}-D{die}-CLS{cluster}"));
        }
        CountKey::Cache { socket, die, level, first } => {
            part(out, "cache", format!("S{socket}-D{die}-L{level}-ID{first}"));
        }
        CountKey::Die { socket, die } => part(out, "die", format!("S{socket}-D{die}")),
        CountKey::Socket(socket) => part(out, "socket", format!("S{socket}")),
        CountKey::Node(node) => part(out, "node", format!("N{node}")),
        CountKey::Thread { comm, tid } => {
            let _ = write!(out, "\"thread\" : {}, ", quoted(&format!("{comm}-{tid}")));
        }
    }
}

/// Writes a text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
