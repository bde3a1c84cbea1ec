//! `--metric-only`: a line for each part of the machine or program, a column
//! for each derived number. Counts, rates and times are left out, as in perf.

use std::fmt::Write as _;

use kymo_model::{Aggregation, CountRow, MetricKind};

use super::metric::{MetricText, NamedMetric, unit};
use super::{CountFormat, MetricWords, Reading, csv, json, text};

/// Columns of text have perf's width.
const WIDTH: usize = 20;

/// Name of the column that the row's metric goes to, whether or not it was counted. Numbers
/// that only say how often or how long have none.
fn column(row: &CountRow, words: &MetricWords) -> Option<String> {
    let kind = row.metric_kind?;
    if let MetricWords::Name(chosen) = words {
        let named = NamedMetric::of(row, kind)?;
        let is_chosen = |name: &String| name.eq_ignore_ascii_case(named.name);
        let shown = chosen.as_ref().is_none_or(|names| names.iter().any(is_chosen));
        return shown.then(|| named.title());
    }
    let unit = unit(kind);
    match kind {
        MetricKind::CpusUtilized | MetricKind::Rate | MetricKind::Gigahertz => None,
        // Of several events the unit alone would be the same.
        _ if unit.starts_with("of all") => Some(format!("{} {unit}", row.name)),
        _ => Some(unit.to_owned()),
    }
}

/// The line that names the columns.
pub(super) fn header(rows: &[CountRow], reading: Reading<'_>) -> String {
    let Some(first) = rows.first() else { return "\n".into() };
    let words = &reading.style.metrics;
    let names: Vec<String> =
        rows.iter().filter(|r| r.key == first.key).filter_map(|r| column(r, words)).collect();
    let mut out = String::new();
    match &reading.style.format {
        CountFormat::Json => return out,
        CountFormat::Csv(sep) => {
            if reading.interval.is_some() {
                let _ = write!(out, " time{sep}");
            }
            let columns = key_columns(reading.style.by);
            columns.iter().for_each(|c| out.push_str(&format!("{c}{sep}")));
            names.iter().for_each(|n| out.push_str(&format!("{n}{sep}")));
        }
        CountFormat::Text { .. } => {
            if reading.interval.is_some() {
                let all = text::interval_header(reading.style.by);
                out.push_str(all.split("counts").next().unwrap_or_default().trim_end());
                out.push(' ');
            } else {
                let _ = write!(out, "{:1$}", "", key_width(reading.style.by));
            }
            names.iter().for_each(|n| out.push_str(&format!("{n:>WIDTH$} ")));
        }
    }
    out.push('\n');
    out
}

/// Names of the CSV columns that tell the key.
fn key_columns(by: Aggregation) -> &'static [&'static str] {
    match by {
        Aggregation::Global => &[],
        Aggregation::Cpu => &["CPU"],
        Aggregation::Core => &["core", "cpus"],
        Aggregation::Cluster => &["cluster", "cpus"],
        Aggregation::Cache(_) => &["cache", "cpus"],
        Aggregation::Die => &["die", "cpus"],
        Aggregation::Socket => &["socket", "cpus"],
        Aggregation::Node => &["node", "cpus"],
        Aggregation::Thread => &["comm-pid"],
    }
}

/// Width of the columns of text that tell the key, as perf's header has it.
fn key_width(by: Aggregation) -> usize {
    match by {
        Aggregation::Global => 0,
        Aggregation::Cpu | Aggregation::Node => 6,
        Aggregation::Socket => 12,
        Aggregation::Die => 18,
        Aggregation::Cluster => 26,
        Aggregation::Cache(_) => 28,
        Aggregation::Core | Aggregation::Thread => 24,
    }
}

/// The lines.
pub(super) fn lines(rows: &[CountRow], reading: Reading<'_>) -> String {
    // Rows of one key may be apart: perf sorts by event where kymo does.
    let mut keys: Vec<&CountRow> = Vec::new();
    for row in rows {
        if !keys.iter().any(|k| k.key == row.key) {
            keys.push(row);
        }
    }
    let mut out = String::new();
    for first in &keys {
        line(&mut out, first, rows, reading);
    }
    if keys.is_empty() {
        out.push('\n');
    }
    out
}

/// Appends the line of the key of `first`.
fn line(out: &mut String, first: &CountRow, rows: &[CountRow], reading: Reading<'_>) {
    let is_json = reading.style.format == CountFormat::Json;
    match &reading.style.format {
        CountFormat::Text { .. } => text::prefix(out, first, reading),
        CountFormat::Csv(sep) => csv::prefix(out, first, reading, sep),
        CountFormat::Json => {
            out.push('{');
            json::prefix(out, first, reading);
            if reading.style.metrics == MetricWords::Unit {
                out.push_str("\"metrics\" : {");
            }
        }
    }
    let words = &reading.style.metrics;
    let mut comma = "";
    for row in rows.iter().filter(|r| r.key == first.key) {
        let Some(name) = column(row, words) else { continue };
        let metric = MetricText::of(row, words).into_iter().next();
        match &reading.style.format {
            CountFormat::Text { .. } => {
                let text = metric.map_or(String::new(), |m| m.text);
                // perf 7 widens columns with their names, perf 6 does not.
                let width = match words {
                    MetricWords::Unit => WIDTH,
                    MetricWords::Name(_) => WIDTH.max(name.len()),
                };
                out.push_str(&format!("{text:>width$} "));
            }
            CountFormat::Csv(sep) => {
                out.push_str(metric.as_ref().map_or("", MetricText::csv));
                out.push_str(sep);
            }
            CountFormat::Json => {
                let number = match (metric, words) {
                    (Some(m), MetricWords::Unit) => format!("{:.6}", m.value),
                    (Some(m), MetricWords::Name(_)) => format!("\"{}\"", m.csv()),
                    (None, MetricWords::Unit) => "null".into(),
                    (None, MetricWords::Name(_)) => "\"none\"".into(),
                };
                out.push_str(&format!("{comma}{} : {number}", json::quoted(&name)));
                comma = ", ";
            }
        }
    }
    out.push_str(match (is_json, words) {
        (true, MetricWords::Unit) => "}}\n",
        (true, MetricWords::Name(_)) => "}\n",
        (false, _) => "\n",
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{row, style};
    use super::*;

    fn check(format: CountFormat, header_line: &str, line: &str) {
        let rows = [
            row("cycles", 1e6, MetricKind::Gigahertz, 1.0),
            row("instructions", 5e5, MetricKind::InstructionsPerCycle, 0.5),
            row("branches", 1e5, MetricKind::Rate, 1e5),
            row("branch-misses", 1e3, MetricKind::OfBranches, 1.0),
        ];
        let style = style(format, true);
        let reading = Reading { style: &style, interval: None };
        assert_eq!(header(&rows, reading), header_line);
        assert_eq!(lines(&rows, reading), line);
    }

    #[test]
    fn only_what_is_derived_has_a_column() {
        check(
            CountFormat::Text { thousands: false },
            "      insn per cycle branch-misses of all branches \n",
            "               0.50                 1.00% \n",
        );
        check(
            CountFormat::Csv(",".into()),
            "insn per cycle,branch-misses of all branches,\n",
            "0.50,1.00,\n",
        );
        let json = "{\"metrics\" : {\"insn per cycle\" : 0.500000, \
                    \"branch-misses of all branches\" : 1.000000}}\n";
        check(CountFormat::Json, "", json);
    }
}
