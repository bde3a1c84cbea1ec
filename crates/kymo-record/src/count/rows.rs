//! From counters to rows: summing by CPU, core, socket or thread, and scaling what
//! shared a hardware counter.

use kymo_kernel::cpus;
use kymo_kernel::events::{CounterSource, EventSpec, Tool};
use kymo_kernel::process::Usage;
use kymo_kernel::target;
use kymo_model::{Aggregation, CountKey, CountRow, CountState, EventType, sw};

use super::counters::{Count, Counter, Counters};
use crate::open::CounterPlace;

/// Options of making rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowOptions {
    /// Aggregation of the rows.
    pub(super) by: Aggregation,
    /// Counts of events that shared a hardware counter are scaled up.
    pub(super) scale: bool,
}

/// Times of a run, which the tool itself measures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunTimes {
    pub(super) elapsed_ns: u64,
    pub(super) usage: Usage,
}

/// Counts of one event, wherever they come from.
pub(super) struct EventCounts {
    pub(super) name: String,
    pub(super) cgroup: Option<String>,
    /// Type and config; none if it is not the kernel's counter.
    pub(super) event: Option<(EventType, u64)>,
    /// A value that the kernel's counters do not have, over the time of the reading.
    pub(super) tool: Option<(f64, f64)>,
    pub(super) supported: bool,
    pub(super) unit: String,
    pub(super) scale: f64,
    pub(super) counts: Vec<(CounterPlace, Count)>,
}

/// Rows of a reading, in the order perf prints them.
pub(super) fn rows(counters: &Counters, options: RowOptions, times: RunTimes) -> Vec<CountRow> {
    let counts = |counter: Counter<'_>| {
        let spec = counter.spec;
        let (unit, scale) = unit(spec);
        let is_perf = spec.source == CounterSource::Perf;
        let elapsed = times.elapsed_ns as f64;
        EventCounts {
            name: spec.name.clone(),
            cgroup: counter.cgroup.map(str::to_owned),
            event: is_perf.then_some((spec.attr.kind, spec.attr.config)),
            tool: tool_value(&counter, times).map(|value| (value, elapsed)),
            supported: counter.supported,
            unit,
            scale,
            counts: counter.counts().collect(),
        }
    };
    let counts: Vec<EventCounts> = counters.iter().map(counts).collect();
    event_rows(&counts, options, &key)
}

/// Maps a counter's place to the key of its row.
type PlaceKey<'a> = &'a dyn Fn(CounterPlace, Aggregation) -> CountKey;

/// Rows of these events.
pub(super) fn event_rows(
    events: &[EventCounts],
    options: RowOptions,
    place_key: PlaceKey<'_>,
) -> Vec<CountRow> {
    let mut rows: Vec<CountRow> = Vec::new();
    for event in events {
        let mut keyed = group_by_key(event, options.by, place_key);
        if keyed.is_empty() {
            keyed.push((CountKey::All, Vec::new()));
        }
        let row = |(key, counts): (CountKey, Vec<Count>)| row(event, key, &counts, options);
        let mut new: Vec<CountRow> = keyed.into_iter().map(row).collect();
        if options.by == Aggregation::Thread {
            // The busiest thread first, as perf has it.
            new.sort_by(|a, b| b.value.total_cmp(&a.value));
        }
        rows.append(&mut new);
    }
    if options.by.is_topology() {
        rows.sort_by_key(|r| match r.key {
            CountKey::Core { socket, die, core } => (socket, die, core),
            CountKey::Cluster { socket, die, cluster } => (socket, die, cluster),
            CountKey::Cache { socket, die, first, .. } => (socket, die, first),
            CountKey::Die { socket, die } => (socket, die, 0),
            CountKey::Socket(socket) => (socket, 0, 0),
            CountKey::Node(node) => (node, 0, 0),
            _ => (u32::MAX, 0, 0),
        });
    }
    rows
}

/// Counts of an event by what they are summed for, in the order of the places.
fn group_by_key(
    event: &EventCounts,
    by: Aggregation,
    place_key: PlaceKey<'_>,
) -> Vec<(CountKey, Vec<Count>)> {
    let mut keyed: Vec<(CountKey, Vec<Count>)> = Vec::new();
    for (place, count) in &event.counts {
        let key = place_key(*place, by);
        match keyed.iter_mut().find(|(k, _)| *k == key) {
            Some((_, counts)) => counts.push(*count),
            None => keyed.push((key, vec![*count])),
        }
    }
    keyed
}

fn key(place: CounterPlace, by: Aggregation) -> CountKey {
    if let (Aggregation::Thread, Some(tid)) = (by, place.tid) {
        let comm = target::comm(tid).unwrap_or_else(|| "<gone>".into());
        return CountKey::Thread { comm, tid };
    }
    let Some(cpu) = place.cpu else { return CountKey::All };
    match by {
        Aggregation::Global | Aggregation::Thread => CountKey::All,
        Aggregation::Cpu => CountKey::Cpu(cpu),
        Aggregation::Node => CountKey::Node(cpus::node(cpu)),
        Aggregation::Core
        | Aggregation::Cluster
        | Aggregation::Cache(_)
        | Aggregation::Die
        | Aggregation::Socket => {
            let cpus::Topology { socket, die, cluster, core } = cpus::topology(cpu);
            match by {
                Aggregation::Core => CountKey::Core { socket, die, core },
                Aggregation::Cluster => CountKey::Cluster { socket, die, cluster },
                Aggregation::Cache(level) => {
                    // The caller has checked that there are such.
                    let (level, first) = cpus::cache(cpu, level).unwrap_or((level, cpu));
                    CountKey::Cache { socket, die, level, first }
                }
                Aggregation::Die => CountKey::Die { socket, die },
                _ => CountKey::Socket(socket),
            }
        }
    }
}

fn row(event: &EventCounts, key: CountKey, counts: &[Count], options: RowOptions) -> CountRow {
    let mut row = CountRow {
        key,
        name: event.name.clone(),
        cgroup: event.cgroup.clone(),
        event: event.event,
        state: CountState::Counted,
        value: 0.0,
        enabled: 0.0,
        running: 0.0,
        summed: counts.len(),
        unit: event.unit.clone(),
        scale: event.scale,
        noise: None,
        metric: None,
        metric_kind: None,
    };
    if let Some((value, elapsed)) = event.tool {
        (row.value, row.enabled, row.running) = (value, elapsed, elapsed);
        return row;
    }
    if !event.supported {
        row.state = CountState::NotSupported;
        // perf stops summing at the first CPU that has nothing.
        row.summed = row.summed.min(1);
        return row;
    }
    match options.by {
        Aggregation::Global => sum_at_once(&mut row, counts, options.scale),
        _ => sum_each(&mut row, counts, options.scale),
    }
    if row.running == 0.0 || row.enabled == 0.0 {
        row.state = CountState::NotCounted;
    }
    row
}

/// The value of an event that the kernel's counters do not have.
fn tool_value(counter: &Counter<'_>, times: RunTimes) -> Option<f64> {
    Some(match &counter.spec.source {
        CounterSource::Perf => return None,
        CounterSource::Vmstat(_) => counter.other as f64,
        CounterSource::Tool(Tool::DurationTime) => times.elapsed_ns as f64,
        CounterSource::Tool(Tool::UserTime) => times.usage.user.as_nanos() as f64,
        CounterSource::Tool(Tool::SystemTime) => times.usage.system.as_nanos() as f64,
    })
}

/// Sums counts, then scales the sum.
fn sum_at_once(row: &mut CountRow, counts: &[Count], scale: bool) {
    let sum = counts.iter().fold(Count::default(), |a, c| Count {
        value: a.value.wrapping_add(c.value),
        enabled: a.enabled.saturating_add(c.enabled),
        running: a.running.saturating_add(c.running),
    });
    row.value = sum.scaled(scale);
    (row.enabled, row.running) = (sum.enabled as f64, sum.running as f64);
}

/// Scales counts, then sums them.
fn sum_each(row: &mut CountRow, counts: &[Count], scale: bool) {
    row.value = counts.iter().map(|c| c.scaled(scale)).sum();
    row.enabled = counts.iter().map(|c| c.enabled as f64).sum();
    row.running = counts.iter().map(|c| c.running as f64).sum();
    // As in perf, one place where the event never ran makes the sum worth nothing.
    let idle = counts.iter().position(|c| c.running == 0 || c.enabled == 0);
    if let Some(at) = idle {
        (row.summed, row.running, row.enabled) = (at + 1, 0.0, 0.0);
    }
}

impl Count {
    /// The value as it would be if the event had been on a counter all the time.
    fn scaled(self, scale: bool) -> f64 {
        if scale && self.running > 0 && self.running < self.enabled {
            return self.value as f64 * self.enabled as f64 / self.running as f64;
        }
        self.value as f64
    }
}

/// Unit that an event is printed in, and the factor from the kernel's.
pub(super) fn unit(spec: &EventSpec) -> (String, f64) {
    let clock = spec.source == CounterSource::Perf
        && spec.attr.kind == EventType::SOFTWARE
        && matches!(spec.attr.config, sw::CPU_CLOCK | sw::TASK_CLOCK);
    match &spec.source {
        // A PMU's event has the unit that sysfs gives it; so in perf.
        _ if clock && spec.unit.is_empty() && spec.pmu.is_none() => ("msec".into(), 1e-6),
        CounterSource::Tool(_) if spec.unit.is_empty() => ("ns".into(), 1.0),
        _ => (spec.unit.clone(), spec.scale),
    }
}
