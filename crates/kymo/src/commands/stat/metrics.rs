//! What perf derives from the counts and prints behind them: CPUs utilised,
//! rates, instructions per cycle, miss ratios.

use kymo_model::{EventType, hw, hw_cache};

use super::rows::{Row, State};

/// A derived number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    pub(super) value: f64,
    /// As perf's text has it, blanks included.
    pub(super) text: String,
    pub(super) unit: String,
    /// A second number of the same event, on a line of its own.
    pub(super) more: Option<Box<Metric>>,
}

impl Metric {
    fn plain(value: f64, unit: impl Into<String>) -> Metric {
        Metric { value, text: format!("{value:8.3}"), unit: unit.into(), more: None }
    }

    fn ratio(value: f64, unit: &str) -> Metric {
        Metric { value, text: format!("{value:7.2} "), unit: unit.into(), more: None }
    }

    fn percent(value: f64, unit: &str) -> Metric {
        Metric { value, text: format!("{value:7.2}%"), unit: unit.into(), more: None }
    }

    /// The number as CSV has it: without blanks and signs of percent.
    pub(super) fn csv(&self) -> &str {
        self.text.trim_matches(|c: char| c == ' ' || c == '%')
    }
}

/// What is derived for the row at `index`, given the others.
pub(super) fn metric(rows: &[Row], index: usize, elapsed_ns: f64) -> Option<Metric> {
    let row = rows.get(index)?;
    let event = row.event?;
    if row.state != State::Counted {
        return None;
    }
    if row.is_clock() {
        return (elapsed_ns > 0.0).then(|| Metric::plain(row.value / elapsed_ns, "CPUs utilized"));
    }
    let other = |kind: EventType, config: u64| {
        peers(rows, row).find(|r| r.event == Some((kind, config))).map(|r| r.value)
    };
    let hardware = |config| other(EventType::HARDWARE, config).filter(|v| *v > 0.0);
    // The worse of the two ends of the pipeline.
    let stalled = || {
        let ends = [hw::STALLED_CYCLES_FRONTEND, hw::STALLED_CYCLES_BACKEND];
        let worst = ends.into_iter().filter_map(hardware).max_by(f64::total_cmp)?;
        (row.value > 0.0).then(|| Metric::ratio(worst / row.value, "stalled cycles per insn"))
    };
    if event.0 == EventType::HARDWARE {
        let special = match event.1 {
            hw::INSTRUCTIONS => hardware(hw::CPU_CYCLES).map(|cycles| Metric {
                more: stalled().map(Box::new),
                ..Metric::ratio(row.value / cycles, "insn per cycle")
            }),
            hw::BRANCH_MISSES => hardware(hw::BRANCH_INSTRUCTIONS)
                .map(|all| Metric::percent(100.0 * row.value / all, "of all branches")),
            hw::CACHE_MISSES => hardware(hw::CACHE_REFERENCES)
                .map(|all| Metric::percent(100.0 * row.value / all, "of all cache refs")),
            hw::STALLED_CYCLES_FRONTEND => hardware(hw::CPU_CYCLES)
                .map(|cycles| Metric::percent(100.0 * row.value / cycles, "frontend cycles idle")),
            hw::STALLED_CYCLES_BACKEND => hardware(hw::CPU_CYCLES)
                .map(|cycles| Metric::percent(100.0 * row.value / cycles, "backend cycles idle")),
            hw::CPU_CYCLES => clock(rows, row).map(|ns| Metric::plain(row.value / ns, "GHz")),
            _ => None,
        };
        if special.is_some() || matches!(event.1, hw::INSTRUCTIONS | hw::CPU_CYCLES) {
            return special;
        }
    }
    if event.0 == EventType::HW_CACHE
        && event.1 >> 8 == 0x100
        && let Some(what) = cache_name(event.1 & 0xff)
        && let Some(all) = other(EventType::HW_CACHE, hw_cache::config(event.1 & 0xff, 0, 0))
        && all > 0.0
    {
        return Some(Metric::percent(100.0 * row.value / all, what));
    }
    let rate = 1e9 * row.value / clock(rows, row)?;
    let (rate, unit) = match rate {
        r if r > 1e9 => (r / 1e9, "G/sec"),
        r if r > 1e6 => (r / 1e6, "M/sec"),
        r if r > 1e3 => (r / 1e3, "K/sec"),
        r => (r, "/sec"),
    };
    Some(Metric::plain(rate, unit))
}

fn cache_name(cache: u64) -> Option<&'static str> {
    Some(match cache {
        0 => "of all L1-dcache accesses",
        1 => "of all L1-icache accesses",
        2 => "of all LL-cache accesses",
        3 => "of all dTLB cache accesses",
        4 => "of all iTLB cache accesses",
        _ => return None,
    })
}

fn peers<'a>(rows: &'a [Row], row: &'a Row) -> impl Iterator<Item = &'a Row> {
    rows.iter()
        .filter(move |r| r.key == row.key && r.cgroup == row.cgroup && r.state == State::Counted)
}

/// Nanoseconds by the clock events of the same key, their mean if several.
fn clock(rows: &[Row], row: &Row) -> Option<f64> {
    let (n, sum) = peers(rows, row)
        .filter(|r| r.is_clock())
        .fold((0.0, 0.0), |(n, sum), r| (n + 1.0, sum + r.value));
    (n > 0.0 && sum > 0.0).then(|| sum / n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::stat::rows::Key;
    use kymo_model::sw;

    fn row(kind: EventType, config: u64, value: f64) -> Row {
        Row {
            key: Key::All,
            name: String::new(),
            cgroup: None,
            event: Some((kind, config)),
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

    fn check(rows: &[Row], index: usize, text: &str, unit: &str) {
        let m = metric(rows, index, 2e9).unwrap();
        assert_eq!((m.text.as_str(), m.unit.as_str()), (text, unit));
    }

    #[test]
    fn perfs_numbers_in_perfs_widths() {
        let hw = EventType::HARDWARE;
        let rows = [
            row(EventType::SOFTWARE, sw::TASK_CLOCK, 1e9),
            row(hw, hw::CPU_CYCLES, 3e9),
            row(hw, hw::INSTRUCTIONS, 6e9),
            row(hw, hw::BRANCH_INSTRUCTIONS, 1e9),
            row(hw, hw::BRANCH_MISSES, 5e7),
            row(EventType::SOFTWARE, sw::PAGE_FAULTS, 1500.0),
            row(EventType::HW_CACHE, hw_cache::config(0, 0, 0), 100.0),
            row(EventType::HW_CACHE, hw_cache::config(0, 0, 1), 10.0),
        ];
        check(&rows, 0, "   0.500", "CPUs utilized");
        check(&rows, 1, "   3.000", "GHz");
        check(&rows, 2, "   2.00 ", "insn per cycle");
        check(&rows, 3, "1000.000", "M/sec");
        check(&rows, 4, "   5.00%", "of all branches");
        check(&rows, 5, "   1.500", "K/sec");
        assert_eq!(metric(&rows, 2, 2e9).unwrap().more, None);
        let stalled = row(hw, hw::STALLED_CYCLES_BACKEND, 1.5e9);
        let more = metric(&[&rows[..], &[stalled]].concat(), 2, 2e9).unwrap().more.unwrap();
        assert_eq!(
            (more.text.as_str(), more.unit.as_str()),
            ("   0.25 ", "stalled cycles per insn")
        );
        check(&rows, 7, "  10.00%", "of all L1-dcache accesses");
        assert_eq!(metric(&rows, 4, 1.0).unwrap().csv(), "5.00");
    }
}
