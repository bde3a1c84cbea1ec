//! From cells to rows: summing by CPU, core, socket or thread, scaling what
//! shared a hardware counter, and the mean and spread of repeated runs.

use kymo_kernel::cpus::{self, Topology};
use kymo_kernel::events::{EventSpec, Source, Tool};
use kymo_kernel::process::Usage;
use kymo_kernel::target;
use kymo_model::{EventType, sw};

use super::counters::{Count, Counter, Counters};

/// What the rows are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Aggregate {
    #[default]
    Global,
    Cpu,
    Core,
    Die,
    Socket,
    Node,
    Thread,
}

impl Aggregate {
    /// By a part of the machine that has several CPUs, whose number is shown.
    pub(super) fn is_place(self) -> bool {
        matches!(self, Aggregate::Core | Aggregate::Die | Aggregate::Socket | Aggregate::Node)
    }
}

/// Which part of the machine or program a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    All,
    Cpu(u32),
    Core(Topology),
    Die(Topology),
    Socket(u32),
    Node(u32),
    Thread { comm: String, tid: u32 },
}

/// What is known of a row's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Counted,
    NotCounted,
    NotSupported,
}

/// One event of one key.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) cgroup: Option<String>,
    /// Type and config, for derived metrics; `None` if not the kernel's counter.
    pub(super) event: Option<(EventType, u64)>,
    pub(super) state: State,
    /// Scaled for multiplexing, in the kernel's unit.
    pub(super) value: f64,
    pub(super) enabled: f64,
    pub(super) running: f64,
    /// How many CPUs or threads were summed.
    pub(super) summed: usize,
    pub(super) unit: String,
    /// From the kernel's unit to `unit`.
    pub(super) scale: f64,
    /// Spread of the mean in percent, over several runs.
    pub(super) noise: Option<f64>,
}

impl Row {
    /// A clock of a task or CPU, in nanoseconds.
    pub(super) fn is_clock(&self) -> bool {
        matches!(self.event, Some((EventType::SOFTWARE, sw::CPU_CLOCK | sw::TASK_CLOCK)))
    }

    /// Percent of the time in which it was really counted.
    pub(super) fn share(&self) -> f64 {
        if self.enabled > 0.0 { 100.0 * self.running / self.enabled } else { 100.0 }
    }
}

/// What the tool itself knows of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    pub(super) elapsed_ns: u64,
    pub(super) usage: Usage,
}

/// The rows of a reading, in the order perf prints them.
pub(super) fn rows(counters: &Counters, by: Aggregate, scale: bool, own: Own) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for counter in &counters.list {
        let mut keyed = keys(counter, by);
        if keyed.is_empty() {
            keyed.push((Key::All, Vec::new()));
        }
        let start = rows.len();
        rows.extend(
            keyed.into_iter().map(|(key, counts)| row(counter, key, &counts, by, scale, own)),
        );
        if by == Aggregate::Thread {
            // The busiest thread first, as perf has it.
            if let Some(new) = rows.get_mut(start..) {
                new.sort_by(|a, b| b.value.total_cmp(&a.value));
            }
        }
    }
    if by.is_place() {
        rows.sort_by_key(|r| match r.key {
            Key::Core(t) => (t.socket, t.die, t.core),
            Key::Die(t) => (t.socket, t.die, 0),
            Key::Socket(s) => (s, 0, 0),
            Key::Node(n) => (n, 0, 0),
            _ => (u32::MAX, 0, 0),
        });
    }
    rows
}

fn keys(counter: &Counter, by: Aggregate) -> Vec<(Key, Vec<Count>)> {
    let mut keyed: Vec<(Key, Vec<Count>)> = Vec::new();
    for cell in &counter.cells {
        let key = match (by, cell.cpu, cell.tid) {
            (Aggregate::Cpu, Some(cpu), _) => Key::Cpu(cpu),
            (Aggregate::Core, Some(cpu), _) => Key::Core(cpus::topology(cpu)),
            (Aggregate::Die, Some(cpu), _) => Key::Die(Topology { core: 0, ..cpus::topology(cpu) }),
            (Aggregate::Socket, Some(cpu), _) => Key::Socket(cpus::topology(cpu).socket),
            (Aggregate::Node, Some(cpu), _) => Key::Node(cpus::node(cpu)),
            (Aggregate::Thread, _, Some(tid)) => {
                Key::Thread { comm: target::comm(tid).unwrap_or_else(|| "<gone>".into()), tid }
            }
            _ => Key::All,
        };
        match keyed.iter_mut().find(|(k, _)| *k == key) {
            Some((_, counts)) => counts.push(cell.count),
            None => keyed.push((key, vec![cell.count])),
        }
    }
    keyed
}

fn row(counter: &Counter, key: Key, counts: &[Count], by: Aggregate, scale: bool, own: Own) -> Row {
    let spec = &counter.wanted.spec;
    let (unit, factor) = unit(spec);
    let mut row = Row {
        key,
        name: spec.name.clone(),
        cgroup: counter.wanted.cgroup.as_ref().map(|c| c.name.clone()),
        event: (spec.source == Source::Perf).then_some((spec.attr.kind, spec.attr.config)),
        state: State::Counted,
        value: 0.0,
        enabled: 0.0,
        running: 0.0,
        summed: counts.len(),
        unit,
        scale: factor,
        noise: None,
    };
    let own_value = match &spec.source {
        Source::Perf => None,
        Source::Vmstat(_) => Some(counter.other as f64),
        Source::Tool(Tool::DurationTime) => Some(own.elapsed_ns as f64),
        Source::Tool(Tool::UserTime) => Some(own.usage.user.as_nanos() as f64),
        Source::Tool(Tool::SystemTime) => Some(own.usage.system.as_nanos() as f64),
    };
    if let Some(value) = own_value {
        (row.value, row.enabled, row.running) =
            (value, own.elapsed_ns as f64, own.elapsed_ns as f64);
        return row;
    }
    if !counter.supported {
        row.state = State::NotSupported;
        // perf stops summing at the first CPU that has nothing.
        row.summed = row.summed.min(1);
        return row;
    }
    let scaled = |c: &Count| {
        if scale && c.running > 0 && c.running < c.enabled {
            c.value as f64 * c.enabled as f64 / c.running as f64
        } else {
            c.value as f64
        }
    };
    if by == Aggregate::Global {
        let sum = counts.iter().fold(Count::default(), |a, c| Count {
            value: a.value + c.value,
            enabled: a.enabled + c.enabled,
            running: a.running + c.running,
        });
        (row.value, row.enabled, row.running) =
            (scaled(&sum), sum.enabled as f64, sum.running as f64);
    } else {
        row.value = counts.iter().map(scaled).sum();
        row.enabled = counts.iter().map(|c| c.enabled as f64).sum();
        row.running = counts.iter().map(|c| c.running as f64).sum();
        let idle = counts.iter().position(|c| c.running == 0 || c.enabled == 0);
        if let Some(at) = idle {
            (row.summed, row.running, row.enabled) = (at + 1, 0.0, 0.0);
        }
    }
    if row.running == 0.0 || row.enabled == 0.0 {
        row.state = State::NotCounted;
    }
    row
}

fn unit(spec: &EventSpec) -> (String, f64) {
    let clock = spec.source == Source::Perf
        && spec.attr.kind == EventType::SOFTWARE
        && matches!(spec.attr.config, sw::CPU_CLOCK | sw::TASK_CLOCK);
    match &spec.source {
        // A PMU's event has the unit that sysfs gives it; so in perf.
        _ if clock && spec.unit.is_empty() && spec.pmu.is_none() => ("msec".into(), 1e-6),
        Source::Tool(_) if spec.unit.is_empty() => ("ns".into(), 1.0),
        _ => (spec.unit.clone(), spec.scale),
    }
}

/// Mean and spread of a growing number of values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    pub(super) fn add(&mut self, value: f64) {
        self.n += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.n;
        self.squares += delta * (value - self.mean);
    }

    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// Standard error of the mean.
    pub(super) fn error(&self) -> f64 {
        if self.n < 2.0 { 0.0 } else { (self.squares / (self.n - 1.0) / self.n).sqrt() }
    }

    /// The same in percent of the mean.
    pub(super) fn percent(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { 100.0 * self.error() / self.mean }
    }
}

/// The rows of several runs, made one.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    runs: Vec<(Row, [Spread; 3])>,
}

impl Repeated {
    pub(super) fn add(&mut self, rows: Vec<Row>) {
        for row in rows {
            let same = |(r, _): &&mut (Row, _)| {
                r.key == row.key && r.name == row.name && r.cgroup == row.cgroup
            };
            let values = [row.value, row.enabled, row.running];
            let at = match self.runs.iter_mut().find(same) {
                Some(at) => at,
                None => {
                    self.runs.push((row.clone(), Default::default()));
                    let Some(last) = self.runs.last_mut() else { continue };
                    last
                }
            };
            at.1.iter_mut().zip(values).for_each(|(spread, value)| spread.add(value));
            if row.state == State::Counted {
                at.0.state = State::Counted;
            }
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        self.runs
            .iter()
            .map(|(row, [value, enabled, running])| Row {
                value: value.mean(),
                enabled: enabled.mean(),
                running: running.mean(),
                noise: Some(value.percent()),
                ..row.clone()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_the_standard_error_of_the_mean() {
        let mut s = Spread::default();
        assert_eq!((s.mean(), s.percent()), (0.0, 0.0));
        [2.0, 4.0, 6.0].iter().for_each(|&v| s.add(v));
        assert_eq!(s.mean(), 4.0);
        assert!((s.error() - (4.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}
