//! Errors of recording.

use std::io;
use std::path::PathBuf;

use kymo_kernel::events::ParseError;
use kymo_kernel::perf_event::OpenError;
use kymo_kernel::perf_ring::MapError;
use kymo_kernel::process::SpawnError;
use kymo_kernel::target::TargetError;
use kymo_kernel::tracefs::TracefsError;
use kymo_model::schedstat::SchedStatsError;

/// A recording failed; what had been written is named where there is any.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum RecordError {
    #[error("cannot open event {event}")]
    Open { event: String, source: OpenError },
    #[error(
        "event {event} cannot be timed by the clock {clock}, which the kernel reads for software \
         events only; for this one there are {others}"
    )]
    RecordClock { event: String, clock: &'static str, others: String },
    #[error("event {0} cannot be sampled: it is not a perf event")]
    NotPerf(String),
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Event(#[from] ParseError),
    #[error("cannot read the format of tracepoint {event}")]
    Format { event: String, source: TracefsError },
    #[error("the kernel refuses the filter {filter:?} for {event}: {why}")]
    Filter { event: String, filter: String, why: String, source: io::Error },
    #[error("a filter needs a tracepoint before it, and {0} is none")]
    FilterTarget(String),
    #[error("{} exists and is not a recording; choose another name or use --force", .0.display())]
    NotARecording(PathBuf),
    #[error("cannot open {}", path.display())]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("cannot create {}", path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error(
        "cannot write {} ({kept} bytes of records were written before and can be read)",
        path.display()
    )]
    Write { path: PathBuf, source: io::Error, kept: u64 },
    #[error(
        "this kernel has no /proc/schedstat: it was built without CONFIG_SCHEDSTATS; kymo sched \
         record and kymo sched latency work with events instead"
    )]
    NoSchedStats,
    #[error("cannot switch the scheduler's counters on (sysctl kernel.sched_schedstats)")]
    SchedStatsSwitch(#[source] io::Error),
    #[error(transparent)]
    SchedStats(#[from] SchedStatsError),
    #[error("{what}")]
    System { what: &'static str, source: io::Error },
    #[error("nothing to record: give a command, -a, -p, -t, -u or -G")]
    Nothing,
    #[error("CPU {0} is not online")]
    Cpu(u32),
    #[error("{0}")]
    Usage(String),
}
