//! Words and widths of derived numbers.

use kymo_model::{Metric, MetricKind};

/// A derived number as it is printed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MetricText {
    pub(super) value: f64,
    /// As perf's text has it, blanks included.
    pub(super) text: String,
    pub(super) unit: &'static str,
}

impl MetricText {
    pub(super) fn new(metric: &Metric) -> MetricText {
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
        MetricText { value, text, unit }
    }

    /// The number as CSV has it: without blanks and signs of percent.
    pub(super) fn csv(&self) -> &str {
        self.text.trim_matches(|c: char| c == ' ' || c == '%')
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

/// What stands behind the number. Of rates it depends on their size.
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
            let m = MetricText::new(&Metric { kind, value, more: None });
            assert_eq!((m.text.as_str(), m.unit, m.csv()), (text, unit, csv));
        };
        check(MetricKind::CpusUtilized, 0.5, "   0.500", "CPUs utilized", "0.500");
        check(MetricKind::Gigahertz, 3.0, "   3.000", "GHz", "3.000");
        check(MetricKind::InstructionsPerCycle, 2.0, "   2.00 ", "insn per cycle", "2.00");
        check(MetricKind::Rate, 1e9, "1000.000", "M/sec", "1000.000");
        check(MetricKind::Rate, 1500.0, "   1.500", "K/sec", "1.500");
        check(MetricKind::OfBranches, 5.0, "   5.00%", "of all branches", "5.00");
    }
}
