//! Options of a count: events, target, time and repetitions.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::pmu::cpu_has_event;
use kymo_model::Aggregation;

use super::{CountError, CountFileOptions};
use crate::control::ControlSource;
use crate::open::Cgroup;

/// Target of a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountTarget {
    /// The command's and its children's.
    Command,
    /// Those of processes with all their threads.
    Processes(Vec<u32>),
    /// Those of threads.
    Threads(Vec<u32>),
    /// Those of every thread there is, each by itself.
    AllThreads,
    /// Those of CPUs.
    Machine,
}

/// One event to count.
#[derive(Clone, Debug)]
pub struct CountedEvent {
    /// The event.
    pub spec: EventSpec,
    /// The cgroup to count it in.
    pub cgroup: Option<Arc<Cgroup>>,
}

/// Start of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartDelay {
    /// With the command.
    #[default]
    None,
    /// So much later.
    For(Duration),
    /// Never.
    Never,
}

/// A whole count.
#[derive(Clone, Debug)]
pub struct CountOptions {
    /// Events.
    pub events: Vec<CountedEvent>,
    /// Whether they are the default set, not the user's choice.
    pub default_events: bool,
    /// Target of the count.
    pub target: CountTarget,
    /// The command to run, if any.
    pub command: Vec<OsString>,
    /// CPUs that the command may run on; none for those of its parent.
    pub pinned: Vec<u32>,
    /// CPUs; none for wherever the tasks run.
    pub cpus: Option<Vec<u32>>,
    /// Control channel that starts and stops the count, beside the command.
    pub control: Option<ControlSource>,
    /// Aggregation of the rows.
    pub by: Aggregation,
    /// Children of the tasks count too.
    pub inherit: bool,
    /// Counts of events that shared a hardware counter are scaled up.
    pub scale: bool,
    /// Number of runs of the command; 0 is indefinitely.
    pub runs: u32,
    /// Time between readings on the way.
    pub interval: Option<Duration>,
    /// Number of intervals to stop after.
    pub interval_count: Option<u64>,
    /// Whether the result after intervals sums them up.
    pub summary: bool,
    /// Time to stop after.
    pub timeout: Option<Duration>,
    /// Start of counting.
    pub delay: StartDelay,
    /// Write caches to disk before each run.
    pub sync: bool,
    /// A perf.data that the counts go into; the command then runs once.
    pub file: Option<CountFileOptions>,
}

/// Events that are counted when none are named: perf's choice, in its order. `detail` is
/// how often more were asked for (`-d`).
pub fn default_events(machine: bool, detail: u8) -> Result<Vec<EventSpec>, CountError> {
    let mut names = vec![
        if machine { "cpu-clock" } else { "task-clock" },
        "context-switches",
        "cpu-migrations",
        "page-faults",
        "cycles",
    ];
    let stalled = ["stalled-cycles-frontend", "stalled-cycles-backend"];
    names.extend(stalled.into_iter().filter(|name| cpu_has_event(name)));
    names.extend(["instructions", "branches", "branch-misses"]);
    let details: [&[&str]; 3] = [
        &["L1-dcache-loads", "L1-dcache-load-misses", "LLC-loads", "LLC-load-misses"],
        &[
            "L1-icache-loads",
            "L1-icache-load-misses",
            "dTLB-loads",
            "dTLB-load-misses",
            "iTLB-loads",
            "iTLB-load-misses",
        ],
        &["L1-dcache-prefetches", "L1-dcache-prefetch-misses"],
    ];
    names.extend(details.iter().take(detail.into()).copied().flatten());
    Ok(Catalog::open().parse(&names.join(","))?)
}

impl CountedEvent {
    /// Each event in one cgroup of `names` (`-G`): all in the only one, or each in its own.
    /// An empty name is for no cgroup.
    pub fn in_cgroups(
        specs: Vec<EventSpec>,
        names: &[&str],
    ) -> Result<Vec<CountedEvent>, CountError> {
        let open =
            |name: &&str| if name.is_empty() { Ok(None) } else { Cgroup::open(name).map(Some) };
        let cgroups = names.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let of_event = |n: usize| {
            let at = if cgroups.len() == 1 { 0 } else { n };
            cgroups.get(at).cloned().flatten()
        };
        let events = specs.into_iter().enumerate();
        Ok(events.map(|(n, spec)| CountedEvent { spec, cgroup: of_event(n) }).collect())
    }

    /// Every event in each cgroup of `names` (`--for-each-cgroup`).
    pub fn in_each_cgroup(
        specs: &[EventSpec],
        names: &[&str],
    ) -> Result<Vec<CountedEvent>, CountError> {
        let mut events = Vec::new();
        for (round, name) in (0u32..).zip(names.iter().filter(|name| !name.is_empty())) {
            let cgroup = Cgroup::open(name)?;
            events.extend(specs.iter().cloned().map(|mut spec| {
                // Groups of different cgroups are different groups.
                spec.group = spec.group.map(|g| g.wrapping_add(round.wrapping_mul(1 << 16)));
                CountedEvent { spec, cgroup: Some(Arc::clone(&cgroup)) }
            }));
        }
        Ok(events)
    }
}

impl From<EventSpec> for CountedEvent {
    fn from(spec: EventSpec) -> CountedEvent {
        CountedEvent { spec, cgroup: None }
    }
}
