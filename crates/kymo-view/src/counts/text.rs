//! Rows as columns for people.

use std::fmt::Write as _;

use kymo_model::{Aggregation, CountKey, CountRow, CountState};

use super::metric::MetricText;
use super::{MetricWords, Reading};

/// Widths that all lines of a reading share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widths {
    /// Width of the column of units.
    pub(super) unit: usize,
    /// Large numbers have separators of thousands.
    pub(super) thousands: bool,
}

/// The line above the columns of interval text.
pub(super) fn interval_header(by: Aggregation) -> &'static str {
    match by {
        Aggregation::Global => "#           time             counts unit events\n",
        Aggregation::Cpu => "#           time CPU                    counts unit events\n",
        Aggregation::Core => {
            "#           time core            cpus             counts unit events\n"
        }
        Aggregation::Cluster => {
            "#           time cluster              cpus             counts unit events\n"
        }
        Aggregation::Cache(_) => {
            "#           time cache                  cpus             counts unit events\n"
        }
        Aggregation::Die => "#           time die          cpus             counts unit events\n",
        Aggregation::Socket => "#           time socket cpus             counts unit events\n",
        Aggregation::Node => "#           time node   cpus             counts unit events\n",
        Aggregation::Thread => {
            "#           time             comm-pid                  counts unit events\n"
        }
    }
}

// `write!` to a String cannot fail.

/// Appends a row.
pub(super) fn row(out: &mut String, row: &CountRow, reading: Reading<'_>, widths: Widths) {
    prefix(out, row, reading);
    let (value, name_width) = value(row, widths.thousands);
    let unit_width = widths.unit;
    let _ = write!(out, "{value:>18} {:<unit_width$} {:<name_width$}", row.unit, row.name);
    if let Some(cgroup) = &row.cgroup {
        let _ = write!(out, " {cgroup}");
    }
    let words = &reading.style.metrics;
    // Of the number and what is said of it.
    let width = if *words == MetricWords::Unit { 34 } else { 37 };
    let mut metrics = MetricText::of(row, words).into_iter();
    match metrics.next() {
        Some(m) => {
            let rest = width - 3usize.saturating_add(m.text.len()).min(width);
            let _ = write!(out, " # {} {:<rest$}", m.text, m.unit);
        }
        None => {
            let _ = write!(out, "{:1$}", "", width + 1);
        }
    }
    for more in metrics {
        out.push('\n');
        prefix(out, row, reading);
        let _ = write!(out, "{:49} # {} {}", "", more.text, more.unit);
    }
    if row.state != CountState::Counted {
        return;
    }
    if let Some(noise) = row.noise.filter(|n| *n != 0.0) {
        let _ = write!(out, "  ( +-{noise:6.2}% )");
    }
    if row.running != row.enabled {
        let _ = write!(out, "  ({:.2}%)", row.share());
    }
}

/// The value, and the width of the name behind it.
fn value(row: &CountRow, thousands: bool) -> (String, usize) {
    let value = row.value * row.scale;
    let text = match row.state {
        CountState::NotCounted => return ("<not counted>".to_owned(), 25),
        CountState::NotSupported => return ("<not supported>".to_owned(), 25),
        CountState::Counted if row.scale.fract() != 0.0 => format!("{value:.2}"),
        CountState::Counted => format!("{value:.0}"),
    };
    (if thousands { grouped(&text) } else { text }, 32)
}

/// Appends when and where a row was counted.
pub(super) fn prefix(out: &mut String, row: &CountRow, reading: Reading<'_>) {
    if let Some(at) = reading.interval {
        let _ = write!(out, "{at:16.9} ");
    }
    let part = |out: &mut String, name: String, width: usize, cpus: usize| {
        let _ = write!(out, "{name:<width$}{:>4} ", row.summed, width = width + cpus - 4);
    };
    match &row.key {
        CountKey::All => {
            let _ = write!(out, "{:1$}", "", blank(reading.style.by));
        }
        CountKey::Cpu(cpu) => {
            let _ = write!(out, "CPU{cpu:<7} ");
        }
        CountKey::Core { socket, die, core } => {
            part(out, format!("S{socket}-D{die}-C{core}"), 16, 4);
        }
        CountKey::Cluster { socket, die, cluster } => {
            part(out, format!("S{socket}-D{die}-CLS{cluster}"), 16, 9);
        }
        CountKey::Cache { socket, die, level, first } => {
            part(out, format!("S{socket}-D{die}-L{level}-ID{first}"), 16, 11);
        }
        CountKey::Die { socket, die } => part(out, format!("S{socket}-D{die}"), 8, 9),
        CountKey::Socket(socket) => part(out, format!("S{socket}"), 6, 5),
        CountKey::Node(node) => part(out, format!("N{node}"), 6, 5),
        CountKey::Thread { comm, tid } => {
            let _ = write!(out, "{comm:>16}-{tid:<8} ");
        }
    }
}

/// Columns of a row that belongs nowhere.
fn blank(by: Aggregation) -> usize {
    match by {
        Aggregation::Global => 0,
        Aggregation::Cpu => 11,
        Aggregation::Socket | Aggregation::Node => 12,
        Aggregation::Die => 18,
        Aggregation::Cluster => 26,
        Aggregation::Cache(_) => 28,
        Aggregation::Core => 21,
        Aggregation::Thread => 26,
    }
}

/// Sets separators of thousands, as perf does in locales that have them.
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
