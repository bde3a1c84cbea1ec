//! Numbers that perf derives from counts and prints behind them: CPUs utilized, rates,
//! instructions per cycle, miss ratios.

use kymo_model::{CountRow, CountState, EventType, Metric, MetricKind, hw, hw_cache};

/// Derives the metrics of all rows, which cover `elapsed_ns` nanoseconds.
pub(super) fn derive(rows: &mut [CountRow], elapsed_ns: f64) {
    // What would be derived if everything had been counted.
    let counted = |r: &CountRow| CountRow { state: CountState::Counted, value: 1.0, ..r.clone() };
    let all: Vec<CountRow> = rows.iter().map(counted).collect();
    let kinds: Vec<Option<MetricKind>> =
        all.iter().map(|row| metric(&all, row, 1.0).map(|m| m.kind)).collect();
    let metrics: Vec<Option<Metric>> =
        rows.iter().map(|row| metric(rows, row, elapsed_ns)).collect();
    for ((row, kind), metric) in rows.iter_mut().zip(kinds).zip(metrics) {
        (row.metric_kind, row.metric) = (kind, metric);
    }
}

fn plain(kind: MetricKind, value: f64) -> Metric {
    Metric { kind, value, more: None }
}

/// The metric of a row, given all of them.
fn metric(rows: &[CountRow], row: &CountRow, elapsed_ns: f64) -> Option<Metric> {
    let (kind, config) = row.event?;
    if row.state != CountState::Counted {
        return None;
    }
    if row.is_clock() {
        return (elapsed_ns > 0.0).then(|| plain(MetricKind::CpusUtilized, row.value / elapsed_ns));
    }
    if kind == EventType::HARDWARE {
        let special = of_hardware(rows, row, config);
        // Cycles and instructions have no rate beside their own number.
        if special.is_some() || matches!(config, hw::INSTRUCTIONS | hw::CPU_CYCLES) {
            return special;
        }
    }
    if kind == EventType::HW_CACHE
        && let Some(metric) = of_cache(rows, row, config)
    {
        return Some(metric);
    }
    Some(plain(MetricKind::Rate, 1e9 * row.value / clock(rows, row)?))
}

fn of_hardware(rows: &[CountRow], row: &CountRow, config: u64) -> Option<Metric> {
    let other = |config| peer(rows, row, EventType::HARDWARE, config);
    let percent_of = |kind, config| other(config).map(|all| plain(kind, 100.0 * row.value / all));
    match config {
        hw::INSTRUCTIONS => {
            let cycles = other(hw::CPU_CYCLES)?;
            Some(Metric {
                kind: MetricKind::InstructionsPerCycle,
                value: row.value / cycles,
                more: stalled(rows, row).map(Box::new),
            })
        }
        hw::CPU_CYCLES => clock(rows, row).map(|ns| plain(MetricKind::Gigahertz, row.value / ns)),
        hw::BRANCH_MISSES => percent_of(MetricKind::OfBranches, hw::BRANCH_INSTRUCTIONS),
        hw::CACHE_MISSES => percent_of(MetricKind::OfCacheReferences, hw::CACHE_REFERENCES),
        hw::STALLED_CYCLES_FRONTEND => percent_of(MetricKind::FrontendIdle, hw::CPU_CYCLES),
        hw::STALLED_CYCLES_BACKEND => percent_of(MetricKind::BackendIdle, hw::CPU_CYCLES),
        _ => None,
    }
}

/// The worse of the two ends of the pipeline, for each instruction of `row`.
fn stalled(rows: &[CountRow], row: &CountRow) -> Option<Metric> {
    let ends = [hw::STALLED_CYCLES_FRONTEND, hw::STALLED_CYCLES_BACKEND];
    let stalls = ends.into_iter().filter_map(|end| peer(rows, row, EventType::HARDWARE, end));
    let worst = stalls.max_by(f64::total_cmp)?;
    (row.value > 0.0).then(|| plain(MetricKind::StalledPerInstruction, worst / row.value))
}

/// Misses of reads, in percent of all reads of the cache.
fn of_cache(rows: &[CountRow], row: &CountRow, config: u64) -> Option<Metric> {
    const READ_MISS: u64 = 0x100;
    /// L1d, L1i, LL, dTLB, iTLB.
    const CACHES: u64 = 5;
    let cache = config & 0xff;
    if config >> 8 != READ_MISS || cache >= CACHES {
        return None;
    }
    let all = peer(rows, row, EventType::HW_CACHE, hw_cache::config(cache, 0, 0))?;
    Some(plain(MetricKind::OfCacheAccesses(cache), 100.0 * row.value / all))
}

/// Rows that were counted together with `row`.
fn peers<'a>(rows: &'a [CountRow], row: &'a CountRow) -> impl Iterator<Item = &'a CountRow> {
    rows.iter().filter(move |r| {
        r.key == row.key && r.cgroup == row.cgroup && r.state == CountState::Counted
    })
}

/// The value of another event, where it is above 0.
fn peer(rows: &[CountRow], row: &CountRow, kind: EventType, config: u64) -> Option<f64> {
    let other = peers(rows, row).find(|r| r.event == Some((kind, config)));
    other.map(|r| r.value).filter(|value| *value > 0.0)
}

/// Nanoseconds by the clock events of the same key, their mean if several.
fn clock(rows: &[CountRow], row: &CountRow) -> Option<f64> {
    let (n, sum) = peers(rows, row)
        .filter(|r| r.is_clock())
        .fold((0.0, 0.0), |(n, sum), r| (n + 1.0, sum + r.value));
    (n > 0.0 && sum > 0.0).then(|| sum / n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::{CountKey, sw};

    fn row(kind: EventType, config: u64, value: f64) -> CountRow {
        CountRow {
            key: CountKey::All,
            name: String::new(),
            cgroup: None,
            event: Some((kind, config)),
            state: CountState::Counted,
            value,
            enabled: 1.0,
            running: 1.0,
            summed: 1,
            unit: String::new(),
            scale: 1.0,
            noise: None,
            metric: None,
            metric_kind: None,
        }
    }

    #[track_caller]
    fn check(rows: &[CountRow], index: usize, kind: MetricKind, value: f64) {
        let mut rows = rows.to_vec();
        derive(&mut rows, 2e9);
        let metric = rows[index].metric.as_ref().map(|m| (m.kind, m.value));
        assert_eq!(metric, Some((kind, value)));
        assert_eq!(rows[index].metric_kind, Some(kind));
    }

    #[test]
    fn numbers_are_derived_as_perf_does() {
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
        check(&rows, 0, MetricKind::CpusUtilized, 0.5);
        check(&rows, 1, MetricKind::Gigahertz, 3.0);
        check(&rows, 2, MetricKind::InstructionsPerCycle, 2.0);
        check(&rows, 3, MetricKind::Rate, 1e9);
        check(&rows, 4, MetricKind::OfBranches, 5.0);
        check(&rows, 5, MetricKind::Rate, 1500.0);
        check(&rows, 7, MetricKind::OfCacheAccesses(0), 10.0);
        let stalled = row(hw, hw::STALLED_CYCLES_BACKEND, 1.5e9);
        let mut with = [&rows[..], &[stalled]].concat();
        derive(&mut with, 2e9);
        let more = with[2].metric.as_ref().and_then(|m| m.more.as_ref()).unwrap();
        assert_eq!((more.kind, more.value), (MetricKind::StalledPerInstruction, 0.25));
    }

    #[test]
    fn what_was_not_counted_has_a_kind_but_no_number() {
        let hw = EventType::HARDWARE;
        let mut rows = [row(hw, hw::CPU_CYCLES, 3e9), row(hw, hw::INSTRUCTIONS, 0.0)];
        rows[1].state = CountState::NotSupported;
        derive(&mut rows, 2e9);
        assert_eq!(rows[1].metric, None);
        assert_eq!(rows[1].metric_kind, Some(MetricKind::InstructionsPerCycle));
    }
}
