//! Rows as fields for programs.

use std::fmt::Write as _;

use kymo_model::{Aggregation, CountKey, CountRow, CountState, UntrustedText};

use super::Reading;
use super::metric::MetricText;

// `write!` to a String cannot fail.

/// Appends a row.
pub(super) fn row(out: &mut String, row: &CountRow, reading: Reading<'_>, sep: &str) {
    prefix(out, row, reading, sep);
    let value = row.value * row.scale;
    let _ = match row.state {
        CountState::Counted if row.scale.fract() != 0.0 => write!(out, "{value:.2}"),
        CountState::Counted => write!(out, "{value:.0}"),
        CountState::NotCounted => write!(out, "<not counted>"),
        CountState::NotSupported => write!(out, "<not supported>"),
    };
    let name = UntrustedText::new(&row.name);
    let _ = write!(out, "{sep}{}{sep}{}{sep}", row.unit, name.to_csv_field(sep));
    if let Some(cgroup) = &row.cgroup {
        let cgroup = UntrustedText::new(cgroup).to_csv_field(sep);
        let _ = write!(out, "{cgroup}{sep}");
    }
    if let Some(noise) = row.noise {
        let _ = write!(out, "{noise:.2}%{sep}");
    }
    let _ = write!(out, "{:.0}{sep}{:.2}{sep}", row.running, row.share());
    let mut metrics = MetricText::of(row, &reading.style.metrics).into_iter();
    let _ = match metrics.next() {
        Some(m) => write!(out, "{}{sep}{}", m.csv(), m.unit),
        None => write!(out, "{sep}"),
    };
    for more in metrics {
        out.push('\n');
        prefix(out, row, reading, sep);
        let _ = write!(out, "{}{}{sep}{}", sep.repeat(4), more.csv(), more.unit);
    }
}

/// Appends when and where a row was counted.
pub(super) fn prefix(out: &mut String, row: &CountRow, reading: Reading<'_>, sep: &str) {
    if let Some(at) = reading.interval {
        let _ = write!(out, "{at:16.9}{sep}");
    } else if reading.is_marked_summary() {
        let _ = write!(out, "{:>16}{sep}", "summary");
    }
    let n = row.summed;
    let by = reading.style.by;
    let _ = match &row.key {
        CountKey::All if by == Aggregation::Global => Ok(()),
        CountKey::All if by.is_topology() => write!(out, "{sep}{n}{sep}"),
        CountKey::All => write!(out, "{sep}"),
        CountKey::Cpu(cpu) => write!(out, "CPU{cpu}{sep}"),
        CountKey::Core { socket, die, core } => {
            write!(out, "S{socket}-D{die}-C{core}{sep}{n}{sep}")
        }
        CountKey::Cluster { socket, die, cluster } => {
            write!(out, "S{socket}-D{die}-CLS{cluster}{sep}{n}{sep}")
        }
        CountKey::Cache { socket, die, level, first } => {
            write!(out, "S{socket}-D{die}-L{level}-ID{first}{sep}{n}{sep}")
        }
        CountKey::Die { socket, die } => write!(out, "S{socket}-D{die}{sep}{n}{sep}"),
        CountKey::Socket(socket) => write!(out, "S{socket}{sep}{n}{sep}"),
        CountKey::Node(node) => write!(out, "N{node}{sep}{n}{sep}"),
        CountKey::Thread { comm, tid } => {
            let task = format!("{comm}-{tid}");
            write!(out, "{}{sep}", UntrustedText::new(&task).to_csv_field(sep))
        }
    };
}
