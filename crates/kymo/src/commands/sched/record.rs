//! `kymo sched record`: the scheduler's events of the machine into a perf.data, or into a
//! trace.dat.

use std::process::ExitCode;

use kymo_analysis::tasks::SCHED_EVENTS;

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Events that are recorded if the kernel has them: CONFIG_SCHEDSTATS.
const SCHEDSTATS: [&str; 3] =
    ["sched:sched_stat_wait", "sched:sched_stat_sleep", "sched:sched_stat_iowait"];

/// Flags of `kymo sched record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records sched_switch, sched_waking (or sched_wakeup), sched_wakeup_new, sched_migrate_task,
sched_process_fork, sched_stat_runtime and, if available, sched_stat_{wait,sleep,iowait},
system-wide.

EXAMPLES
  kymo sched record -- make -j4
  kymo sched record -g --timeout 5000          five seconds, with call chains
  kymo sched record -o x.dat -- ./program      a trace.dat, with lower overhead")]
pub(super) struct Args {
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    record_events(&args.recording, &events())
}

/// Events of the scheduler.
pub(super) fn events() -> RecordedEvents {
    RecordedEvents::of_tasks("kymo sched record", SCHED_EVENTS.into_iter().chain(SCHEDSTATS))
}
