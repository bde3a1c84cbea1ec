//! `--metric-only`: a line for each part of the machine or program, a column
//! for each derived number. Counts, rates and times are left out, as in perf.

use std::fmt::Write as _;

use super::metrics::{Metric, metric};
use super::print::{Form, Reading, csv_prefix, json_prefix, quoted, text_prefix};
use super::rows::{Aggregate, Row, State};

/// Columns of text have perf's width.
const WIDTH: usize = 20;

/// Whether it says more than how often or how long.
fn wanted(m: &Metric) -> bool {
    !["/sec", "Hz", "CPUs utilized"].iter().any(|u| m.unit.contains(u))
}

/// The name of the column that the row's metric goes to, whether or not it was counted.
fn column(rows: &[Row], index: usize) -> Option<String> {
    // What would be derived if everything had been counted.
    let counted = |r: &Row| Row { state: State::Counted, value: 1.0, ..r.clone() };
    let all: Vec<Row> = rows.iter().map(counted).collect();
    let m = metric(&all, index, 1.0).filter(wanted)?;
    Some(match m.unit.starts_with("of all") {
        true => format!("{} {}", rows.get(index)?.name, m.unit),
        false => m.unit,
    })
}

/// The line that names the columns.
pub(super) fn header(rows: &[Row], reading: Reading<'_>) -> String {
    let Some(first) = rows.first() else { return "\n".into() };
    let of_first = (0..rows.len()).filter(|i| rows.get(*i).is_some_and(|r| r.key == first.key));
    let names: Vec<String> = of_first.filter_map(|i| column(rows, i)).collect();
    let mut out = String::new();
    match reading.form {
        Form::Json => return out,
        Form::Csv(sep) => {
            if reading.interval.is_some() {
                let _ = write!(out, " time{sep}");
            }
            let columns: &[&str] = match reading.by {
                Aggregate::Global => &[],
                Aggregate::Cpu => &["CPU"],
                Aggregate::Core => &["core", "cpus"],
                Aggregate::Die => &["die", "cpus"],
                Aggregate::Socket => &["socket", "cpus"],
                Aggregate::Node => &["node", "cpus"],
                Aggregate::Thread => &["comm-pid"],
            };
            columns.iter().for_each(|c| out.push_str(&format!("{c}{sep}")));
            names.iter().for_each(|n| out.push_str(&format!("{n}{sep}")));
        }
        Form::Text { .. } => {
            if reading.interval.is_some() {
                let all = super::print::interval_header(reading.by);
                out.push_str(all.split("counts").next().unwrap_or_default().trim_end());
                out.push(' ');
            } else {
                let width = match reading.by {
                    Aggregate::Global => 0,
                    Aggregate::Cpu | Aggregate::Node => 6,
                    Aggregate::Socket => 12,
                    Aggregate::Die => 18,
                    Aggregate::Core | Aggregate::Thread => 24,
                };
                let _ = write!(out, "{:width$}", "");
            }
            names.iter().for_each(|n| out.push_str(&format!("{n:>WIDTH$} ")));
        }
    }
    out.push('\n');
    out
}

/// The lines.
pub(super) fn lines(rows: &[Row], reading: Reading<'_>) -> String {
    let mut out = String::new();
    let mut at = 0;
    // Rows of one key may be apart: perf sorts by event where kymo does.
    let mut keys: Vec<&Row> = Vec::new();
    for r in rows {
        if !keys.iter().any(|k| k.key == r.key) {
            keys.push(r);
        }
    }
    for first in keys {
        let of_key = |i: &usize| rows.get(*i).is_some_and(|r| r.key == first.key);
        let indices: Vec<usize> = (0..rows.len()).filter(of_key).collect();
        match reading.form {
            Form::Text { .. } => text_prefix(&mut out, first, reading),
            Form::Csv(sep) => csv_prefix(&mut out, first, reading, sep),
            Form::Json => {
                out.push('{');
                json_prefix(&mut out, first, reading);
                out.push_str("\"metrics\" : {");
            }
        }
        let mut comma = "";
        for i in indices {
            let Some(name) = column(rows, i) else { continue };
            let value = metric(rows, i, reading.elapsed_ns);
            match reading.form {
                Form::Text { .. } => {
                    let text = value.map_or(String::new(), |m| m.text);
                    out.push_str(&format!("{text:>WIDTH$} "));
                }
                Form::Csv(sep) => {
                    out.push_str(&value.map_or(String::new(), |m| m.csv().to_owned()));
                    out.push_str(sep);
                }
                Form::Json => {
                    let number = value.map_or("null".into(), |m| format!("{:.6}", m.value));
                    out.push_str(&format!("{comma}{} : {number}", quoted(&name)));
                    comma = ", ";
                }
            }
        }
        if *reading.form == Form::Json {
            out.push_str("}}");
        }
        out.push('\n');
        at += 1;
    }
    if at == 0 {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stat::rows::Key;
    use kymo_model::{EventType, hw};

    fn row(config: u64, name: &str, value: f64) -> Row {
        Row {
            key: Key::All,
            name: name.into(),
            cgroup: None,
            event: Some((EventType::HARDWARE, config)),
            state: State::Counted,
            value,
            enabled: 1.0,
            running: 1.0,
            summed: 1,
            unit: String::new(),
            scale: 1.0,
            noise: None,
        }
    }

    fn check(form: Form, header_line: &str, line: &str) {
        let rows = [
            row(hw::CPU_CYCLES, "cycles", 1e6),
            row(hw::INSTRUCTIONS, "instructions", 5e5),
            row(hw::BRANCH_INSTRUCTIONS, "branches", 1e5),
            row(hw::BRANCH_MISSES, "branch-misses", 1e3),
        ];
        let reading = Reading {
            form: &form,
            by: Aggregate::Global,
            interval: None,
            summary: false,
            metric_only: true,
            elapsed_ns: 1e9,
        };
        assert_eq!(header(&rows, reading), header_line);
        assert_eq!(lines(&rows, reading), line);
    }

    #[test]
    fn only_what_is_derived_has_a_column() {
        check(
            Form::Text { thousands: false },
            "      insn per cycle branch-misses of all branches \n",
            "               0.50                 1.00% \n",
        );
        check(
            Form::Csv(",".into()),
            "insn per cycle,branch-misses of all branches,\n",
            "0.50,1.00,\n",
        );
        let json = "{\"metrics\" : {\"insn per cycle\" : 0.500000, \
                    \"branch-misses of all branches\" : 1.000000}}\n";
        check(Form::Json, "", json);
    }
}
