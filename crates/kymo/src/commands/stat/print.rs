//! Rows as lines of text, CSV or JSON, laid out as perf lays them out.

use std::fmt::Write as _;

use super::metric_only;
use super::metrics::{Metric, metric};
use super::rows::{Aggregate, Key, Row, State};

/// In which form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text { thousands: bool },
    Csv(String),
    Json,
}

/// What all lines of one reading share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) form: &'a Form,
    pub(super) by: Aggregate,
    /// Seconds since the start, when printing intervals.
    pub(super) interval: Option<f64>,
    /// The lines that sum up after intervals.
    pub(super) summary: bool,
    /// Only what is derived.
    pub(super) metric_only: bool,
    /// Nanoseconds that the reading covers.
    pub(super) elapsed_ns: f64,
}

/// All lines.
pub(super) fn lines(rows: &[Row], reading: Reading<'_>) -> String {
    if reading.metric_only {
        return metric_only::lines(rows, reading);
    }
    let mut out = String::new();
    let unit_width = rows.iter().map(|r| r.unit.len()).max().unwrap_or(0).max(4);
    for (i, row) in rows.iter().enumerate() {
        let metric = metric(rows, i, reading.elapsed_ns);
        match reading.form {
            Form::Text { thousands } => {
                text(&mut out, row, metric.as_ref(), reading, unit_width, *thousands);
            }
            Form::Csv(sep) => csv(&mut out, row, metric.as_ref(), reading, sep),
            Form::Json => json(&mut out, row, metric.as_ref(), reading),
        }
        out.push('\n');
    }
    out
}

/// The line above the columns of interval text.
pub(super) fn interval_header(by: Aggregate) -> &'static str {
    match by {
        Aggregate::Global => "#           time             counts unit events\n",
        Aggregate::Cpu => "#           time CPU                    counts unit events\n",
        Aggregate::Core => "#           time core            cpus             counts unit events\n",
        Aggregate::Die => "#           time die          cpus             counts unit events\n",
        Aggregate::Socket => "#           time socket cpus             counts unit events\n",
        Aggregate::Node => "#           time node   cpus             counts unit events\n",
        Aggregate::Thread => {
            "#           time             comm-pid                  counts unit events\n"
        }
    }
}

// `write!` to a String cannot fail.

fn text(
    out: &mut String,
    row: &Row,
    metric: Option<&Metric>,
    reading: Reading<'_>,
    unit_width: usize,
    thousands: bool,
) {
    text_prefix(out, row, reading);
    let (value, name_width) = match row.state {
        State::Counted => {
            let value = row.value * row.scale;
            let text = if row.scale.fract() != 0.0 {
                format!("{value:.2}")
            } else {
                format!("{value:.0}")
            };
            (if thousands { grouped(&text) } else { text }, 32)
        }
        State::NotCounted => ("<not counted>".to_owned(), 25),
        State::NotSupported => ("<not supported>".to_owned(), 25),
    };
    let _ = write!(out, "{value:>18} {:<unit_width$} {:<name_width$}", row.unit, row.name);
    if let Some(cgroup) = &row.cgroup {
        let _ = write!(out, " {cgroup}");
    }
    match metric {
        Some(m) => {
            let width = 34usize.saturating_sub(3 + m.text.len());
            let _ = write!(out, " # {} {:<width$}", m.text, m.unit);
        }
        None => {
            let _ = write!(out, "{:35}", "");
        }
    }
    if let Some(more) = metric.and_then(|m| m.more.as_deref()) {
        out.push('\n');
        text_prefix(out, row, reading);
        let _ = write!(out, "{:49} # {} {}", "", more.text, more.unit);
    }
    if row.state != State::Counted {
        return;
    }
    if let Some(noise) = row.noise.filter(|n| *n != 0.0) {
        let _ = write!(out, "  ( +-{noise:6.2}% )");
    }
    if row.running != row.enabled {
        let _ = write!(out, "  ({:.2}%)", row.share());
    }
}

fn csv(out: &mut String, row: &Row, metric: Option<&Metric>, reading: Reading<'_>, sep: &str) {
    csv_prefix(out, row, reading, sep);
    let value = row.value * row.scale;
    let _ = match row.state {
        State::Counted if row.scale.fract() != 0.0 => write!(out, "{value:.2}"),
        State::Counted => write!(out, "{value:.0}"),
        State::NotCounted => write!(out, "<not counted>"),
        State::NotSupported => write!(out, "<not supported>"),
    };
    let _ = write!(out, "{sep}{}{sep}{}{sep}", row.unit, row.name);
    if let Some(cgroup) = &row.cgroup {
        let _ = write!(out, "{cgroup}{sep}");
    }
    if let Some(noise) = row.noise {
        let _ = write!(out, "{noise:.2}%{sep}");
    }
    let _ = write!(out, "{:.0}{sep}{:.2}{sep}", row.running, row.share());
    let _ = match metric {
        Some(m) => write!(out, "{}{sep}{}", m.csv(), m.unit),
        None => write!(out, "{sep}"),
    };
    if let Some(more) = metric.and_then(|m| m.more.as_deref()) {
        out.push('\n');
        csv_prefix(out, row, reading, sep);
        let _ = write!(out, "{}{}{sep}{}", sep.repeat(4), more.csv(), more.unit);
    }
}

/// When and where a row was counted, as text.
pub(super) fn text_prefix(out: &mut String, row: &Row, reading: Reading<'_>) {
    if let Some(at) = reading.interval {
        let _ = write!(out, "{at:16.9} ");
    }
    let place = |out: &mut String, name: String, width: usize, cpus: usize| {
        let _ = write!(out, "{name:<width$}{:>4} ", row.summed, width = width + cpus - 4);
    };
    match (&row.key, reading.by) {
        (Key::All, Aggregate::Global) => {}
        (Key::Cpu(cpu), _) => {
            let _ = write!(out, "CPU{cpu:<7} ");
        }
        (Key::Core(t), _) => place(out, format!("S{}-D{}-C{}", t.socket, t.die, t.core), 16, 4),
        (Key::Die(t), _) => place(out, format!("S{}-D{}", t.socket, t.die), 8, 9),
        (Key::Socket(s), _) => place(out, format!("S{s}"), 6, 5),
        (Key::Node(n), _) => place(out, format!("N{n}"), 6, 5),
        (Key::Thread { comm, tid }, _) => {
            let _ = write!(out, "{comm:>16}-{tid:<8} ");
        }
        (Key::All, by) => {
            let _ = write!(out, "{:1$}", "", blank(by));
        }
    }
}

/// The columns of a row that belongs nowhere.
fn blank(by: Aggregate) -> usize {
    match by {
        Aggregate::Global => 0,
        Aggregate::Cpu => 11,
        Aggregate::Socket | Aggregate::Node => 12,
        Aggregate::Die => 18,
        Aggregate::Core => 21,
        Aggregate::Thread => 26,
    }
}

/// The same for CSV.
pub(super) fn csv_prefix(out: &mut String, row: &Row, reading: Reading<'_>, sep: &str) {
    if let Some(at) = reading.interval {
        let _ = write!(out, "{at:16.9}{sep}");
    } else if reading.summary {
        let _ = write!(out, "{:>16}{sep}", "summary");
    }
    let n = row.summed;
    let _ = match (&row.key, reading.by) {
        (Key::All, Aggregate::Global) => Ok(()),
        (Key::Cpu(cpu), _) => write!(out, "CPU{cpu}{sep}"),
        (Key::Core(t), _) => write!(out, "S{}-D{}-C{}{sep}{n}{sep}", t.socket, t.die, t.core),
        (Key::Die(t), _) => write!(out, "S{}-D{}{sep}{n}{sep}", t.socket, t.die),
        (Key::Socket(s), _) => write!(out, "S{s}{sep}{n}{sep}"),
        (Key::Node(node), _) => write!(out, "N{node}{sep}{n}{sep}"),
        (Key::Thread { comm, tid }, _) => write!(out, "{comm}-{tid}{sep}"),
        (Key::All, by) if by.is_place() => write!(out, "{sep}{n}{sep}"),
        (Key::All, _) => write!(out, "{sep}"),
    };
}

/// The same for JSON, each with a comma behind it.
pub(super) fn json_prefix(out: &mut String, row: &Row, reading: Reading<'_>) {
    if let Some(at) = reading.interval {
        let _ = write!(out, "\"interval\" : {at:.9}, ");
    }
    let n = row.summed;
    let _ = match &row.key {
        Key::All => Ok(()),
        Key::Cpu(cpu) => write!(out, "\"cpu\" : \"{cpu}\", "),
        Key::Core(t) => write!(
            out,
            "\"core\" : \"S{}-D{}-C{}\", \"aggregate-number\" : {n}, ",
            t.socket, t.die, t.core
        ),
        Key::Die(t) => {
            write!(out, "\"die\" : \"S{}-D{}\", \"aggregate-number\" : {n}, ", t.socket, t.die)
        }
        Key::Socket(s) => write!(out, "\"socket\" : \"S{s}\", \"aggregate-number\" : {n}, "),
        Key::Node(node) => write!(out, "\"node\" : \"N{node}\", \"aggregate-number\" : {n}, "),
        Key::Thread { comm, tid } => {
            write!(out, "\"thread\" : {}, ", quoted(&format!("{comm}-{tid}")))
        }
    };
}

/// As a JSON string.
pub(super) fn quoted(s: &str) -> String {
    serde_json::Value::from(s).to_string()
}

fn json(out: &mut String, row: &Row, metric: Option<&Metric>, reading: Reading<'_>) {
    out.push('{');
    json_prefix(out, row, reading);
    let _ = match row.state {
        State::Counted => write!(out, "\"counter-value\" : \"{:.6}\", ", row.value * row.scale),
        State::NotCounted => write!(out, "\"counter-value\" : \"<not counted>\", "),
        State::NotSupported => write!(out, "\"counter-value\" : \"<not supported>\", "),
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
        "\"event-runtime\" : {:.0}, \"pcnt-running\" : {:.2}, \"metric-value\" : {:.6}, \
         \"metric-unit\" : {}}}",
        row.running,
        row.share(),
        metric.map_or(0.0, |m| m.value),
        quoted(metric.map_or("", |m| &m.unit))
    );
    if let Some(more) = metric.and_then(|m| m.more.as_deref()) {
        out.push_str("\n{");
        json_prefix(out, row, reading);
        let unit = quoted(&more.unit);
        let _ = write!(out, "\"metric-value\" : {:.6}, \"metric-unit\" : {unit}}}", more.value);
    }
}

/// Thousands' separators, as perf sets them in locales that have them.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut out = String::from(sign);
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_from_the_right() {
        let cases =
            [("1", "1"), ("999", "999"), ("1000", "1,000"), ("-1234567.89", "-1,234,567.89")];
        for (plain, expected) in cases {
            assert_eq!(grouped(plain), expected);
        }
    }
}
