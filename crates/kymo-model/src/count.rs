//! Counted events as rows of numbers: what a count gives and what is printed of it.

use crate::attr::{EventType, sw};

/// Division of a count into rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    /// Nothing: one row for each event.
    #[default]
    Global,
    /// CPU.
    Cpu,
    /// Physical core.
    Core,
    /// Cluster of cores.
    Cluster,
    /// Instance of a cache of this level; 0: of the last level.
    Cache(u8),
    /// Die.
    Die,
    /// Socket.
    Socket,
    /// Memory node.
    Node,
    /// Thread.
    Thread,
}

impl Aggregation {
    /// By a part of the machine that has several CPUs, whose number is shown.
    pub fn is_topology(self) -> bool {
        matches!(
            self,
            Aggregation::Core
                | Aggregation::Cluster
                | Aggregation::Cache(_)
                | Aggregation::Die
                | Aggregation::Socket
                | Aggregation::Node
        )
    }
}

/// Part of the machine or program that a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub enum CountKey {
    /// All of it.
    All,
    /// A CPU.
    Cpu(u32),
    /// A physical core.
    Core { socket: u32, die: u32, core: u32 },
    /// A cluster of cores.
    Cluster { socket: u32, die: u32, cluster: u32 },
    /// An instance of a cache, by the first CPU that it serves.
    Cache { socket: u32, die: u32, level: u8, first: u32 },
    /// A die.
    Die { socket: u32, die: u32 },
    /// A socket.
    Socket(u32),
    /// A memory node.
    Node(u32),
    /// A thread and its name.
    Thread { comm: String, tid: u32 },
}

/// Whether a row has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountState {
    /// It has.
    Counted,
    /// The event was never on a counter.
    NotCounted,
    /// The machine does not have the event.
    NotSupported,
}

/// One event of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct CountRow {
    /// Key of the row.
    pub key: CountKey,
    /// Name of the event.
    pub name: String,
    /// Name of the cgroup it was counted in.
    pub cgroup: Option<String>,
    /// Type and config, for metrics; none if it is not the kernel's counter.
    pub event: Option<(EventType, u64)>,
    /// Whether there is a value.
    pub state: CountState,
    /// Value in the kernel's unit, scaled for multiplexing.
    pub value: f64,
    /// Nanoseconds the event was enabled.
    pub enabled: f64,
    /// Nanoseconds the event was on a counter.
    pub running: f64,
    /// Number of CPUs or threads that were summed.
    pub summed: usize,
    /// Unit of the scaled value; empty for plain numbers.
    pub unit: String,
    /// Factor from the kernel's unit to `unit`.
    pub scale: f64,
    /// Standard error of the mean in percent, over several runs.
    pub noise: Option<f64>,
    /// Number derived from this value and others.
    pub metric: Option<Metric>,
    /// Kind of the metric that there would be if everything had been counted.
    pub metric_kind: Option<MetricKind>,
}

impl CountRow {
    /// A clock of a task or CPU, in nanoseconds.
    pub fn is_clock(&self) -> bool {
        matches!(self.event, Some((EventType::SOFTWARE, sw::CPU_CLOCK | sw::TASK_CLOCK)))
    }

    /// Percent of the time in which it was really counted.
    pub fn share(&self) -> f64 {
        if self.enabled > 0.0 { 100.0 * self.running / self.enabled } else { 100.0 }
    }
}

/// A number derived from counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Meaning of the value.
    pub kind: MetricKind,
    /// Value: a ratio, percent, GHz, or events in a second.
    pub value: f64,
    /// A second number of the same event.
    pub more: Option<Box<Metric>>,
}

/// Meaning of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// CPUs that were used on average.
    CpusUtilized,
    /// Events in a second of the clock.
    Rate,
    /// Billions of cycles in a second of the clock.
    Gigahertz,
    /// Instructions in a cycle.
    InstructionsPerCycle,
    /// Stalled cycles for each instruction.
    StalledPerInstruction,
    /// Percent of the cycles in which the frontend stalled.
    FrontendIdle,
    /// Percent of the cycles in which the backend stalled.
    BackendIdle,
    /// Percent of the branches that were mispredicted.
    OfBranches,
    /// Percent of the cache references that missed.
    OfCacheReferences,
    /// Percent of the accesses to a cache (`PERF_COUNT_HW_CACHE_*`) that missed.
    OfCacheAccesses(u64),
}
