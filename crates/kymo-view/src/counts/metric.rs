//! Words and widths of derived numbers.

use kymo_model::{CountRow, EventType, Metric, MetricKind, hw, sw};

use super::MetricWords;

/// A derived number as it is printed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricText {
    pub(super) value: f64,
    /// As perf's text has it, blanks included.
    pub(super) text: String,
    pub(super) unit: String,
}

impl MetricText {
    /// The numbers derived of a row: its own, and one more at most.
    pub(super) fn of(row: &CountRow, words: &MetricWords) -> Vec<MetricText> {
        let own = row.metric.as_ref();
        let all = own.into_iter().chain(own.and_then(|metric| metric.more.as_deref()));
        match words {
            MetricWords::Unit => all.map(MetricText::with_unit).collect(),
            MetricWords::Name(chosen) => {
                all.filter_map(|metric| MetricText::with_name(row, metric, chosen)).collect()
            }
        }
    }

    fn with_unit(metric: &Metric) -> MetricText {
        let (value, unit) = match metric.kind {
            MetricKind::Rate => rate(metric.value),
            kind => (metric.value, unit(kind)),
        };
        let text = match metric.kind {
            MetricKind::CpusUtilized | MetricKind::Gigahertz | MetricKind::Rate => {
                format!("{value:8.3}")
            }
            MetricKind::InstructionsPerCycle | MetricKind::StalledPerInstruction => {
                format!("{value:7.2} ")
            }
            _ => format!("{value:7.2}%"),
        };
        MetricText { value, text, unit: unit.to_owned() }
    }

    fn with_name(row: &CountRow, metric: &Metric, chosen: &NameChoice) -> Option<MetricText> {
        let named = NamedMetric::of(row, metric.kind)?;
        let value = metric.value / named.divisor;
        let is_chosen = chosen
            .as_ref()
            .is_none_or(|names| names.iter().any(|name| name.eq_ignore_ascii_case(named.name)));
        is_chosen.then(|| MetricText { value, text: format!("{value:8.1}"), unit: named.title() })
    }

    /// The number as CSV has it: without blanks and signs of percent.
    pub(super) fn csv(&self) -> &str {
        self.text.trim_matches(|c: char| c == ' ' || c == '%')
    }
}

/// Names of metrics that are shown; none for all.
type NameChoice = Option<Vec<String>>;

/// A metric with the name that `-M` takes.
pub(super) struct NamedMetric {
    pub(super) unit: &'static str,
    pub(super) name: &'static str,
    /// Divisor from kymo's number to that in the unit.
    divisor: f64,
}

impl NamedMetric {
    /// The metric of this kind of a row, if it has a name.
    pub(super) fn of(row: &CountRow, kind: MetricKind) -> Option<NamedMetric> {
        let (unit, name, divisor) = match (kind, row.event?) {
            (MetricKind::CpusUtilized, _) => ("CPUs", "CPUs_utilized", 1.0),
            (MetricKind::Gigahertz, _) => ("GHz", "cycles_frequency", 1.0),
            (MetricKind::InstructionsPerCycle, _) => ("instructions", "insn_per_cycle", 1.0),
            (MetricKind::StalledPerInstruction, _) => {
                ("stalls", "stalled_cycles_per_instruction", 1.0)
            }
            (MetricKind::FrontendIdle, _) => ("%", "frontend_cycles_idle", 1.0),
            (MetricKind::BackendIdle, _) => ("%", "backend_cycles_idle", 1.0),
            (MetricKind::OfBranches, _) => ("%", "branch_miss_rate", 1.0),
            (MetricKind::OfCacheAccesses(0), _) => ("%", "l1d_miss_rate", 1.0),
            (MetricKind::OfCacheAccesses(1), _) => ("%", "l1i_miss_rate", 1.0),
            (MetricKind::OfCacheAccesses(2), _) => ("%", "llc_miss_rate", 1.0),
            (MetricKind::OfCacheAccesses(3), _) => ("%", "dtlb_miss_rate", 1.0),
            (MetricKind::OfCacheAccesses(4), _) => ("%", "itlb_miss_rate", 1.0),
            (MetricKind::Rate, (EventType::SOFTWARE, sw::CONTEXT_SWITCHES)) => {
                ("cs/sec", "cs_per_second", 1.0)
            }
            (MetricKind::Rate, (EventType::SOFTWARE, sw::CPU_MIGRATIONS)) => {
                ("migrations/sec", "migrations_per_second", 1.0)
            }
            (MetricKind::Rate, (EventType::SOFTWARE, sw::PAGE_FAULTS)) => {
                ("faults/sec", "page_faults_per_second", 1.0)
            }
            (MetricKind::Rate, (EventType::HARDWARE, hw::BRANCH_INSTRUCTIONS)) => {
                ("M/sec", "branch_frequency", 1e6)
            }
            _ => return None,
        };
        Some(NamedMetric { unit, name, divisor })
    }

    /// The unit and the name, as perf puts them together.
    pub(super) fn title(&self) -> String {
        format!("{}  {}", self.unit, self.name)
    }
}

/// A number of events in a second, and its unit.
fn rate(value: f64) -> (f64, &'static str) {
    match value {
        r if r > 1e9 => (r / 1e9, "G/sec"),
        r if r > 1e6 => (r / 1e6, "M/sec"),
        r if r > 1e3 => (r / 1e3, "K/sec"),
        r => (r, "/sec"),
    }
}

/// Unit after the number. That of rates depends on their size.
pub(super) fn unit(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::CpusUtilized => "CPUs utilized",
        MetricKind::Rate => "/sec",
        MetricKind::Gigahertz => "GHz",
        MetricKind::InstructionsPerCycle => "insn per cycle",
        MetricKind::StalledPerInstruction => "stalled cycles per insn",
        MetricKind::FrontendIdle => "frontend cycles idle",
        MetricKind::BackendIdle => "backend cycles idle",
        MetricKind::OfBranches => "of all branches",
        MetricKind::OfCacheReferences => "of all cache refs",
        MetricKind::OfCacheAccesses(0) => "of all L1-dcache accesses",
        MetricKind::OfCacheAccesses(1) => "of all L1-icache accesses",
        MetricKind::OfCacheAccesses(2) => "of all LL-cache accesses",
        MetricKind::OfCacheAccesses(3) => "of all dTLB cache accesses",
        MetricKind::OfCacheAccesses(4) => "of all iTLB cache accesses",
        MetricKind::OfCacheAccesses(_) => "of all cache accesses",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_perfs_widths() {
        let check = |kind: MetricKind, value: f64, text: &str, unit: &str, csv: &str| {
            let m = MetricText::with_unit(&Metric { kind, value, more: None });
            assert_eq!((m.text.as_str(), m.unit.as_str(), m.csv()), (text, unit, csv));
        };
        check(MetricKind::CpusUtilized, 0.5, "   0.500", "CPUs utilized", "0.500");
        check(MetricKind::Gigahertz, 3.0, "   3.000", "GHz", "3.000");
        check(MetricKind::InstructionsPerCycle, 2.0, "   2.00 ", "insn per cycle", "2.00");
        check(MetricKind::Rate, 1e9, "1000.000", "M/sec", "1000.000");
        check(MetricKind::Rate, 1500.0, "   1.500", "K/sec", "1.500");
        check(MetricKind::OfBranches, 5.0, "   5.00%", "of all branches", "5.00");
    }
}
