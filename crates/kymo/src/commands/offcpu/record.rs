//! `kymo offcpu record`: switches and wake-ups with their stacks.

use std::process::ExitCode;

use kymo_analysis::critical_path::WORK_EVENTS;
use kymo_analysis::offcpu::OFF_CPU_EVENTS;

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo offcpu record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records sched_switch, sched_waking (or sched_wakeup), sched_wakeup_new, sched_process_fork,
workqueue_queue_work and workqueue_execute_start system-wide, with stacks (by frame pointers, or as
set with --call-graph).

EXAMPLES
  kymo offcpu record -- make -j4
  kymo offcpu record --call-graph dwarf,16384 -- ./program
  kymo offcpu record -o x.dat -- ./program     a trace.dat, with lower overhead")]
pub(super) struct Args {
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.recording.graph |= args.recording.call_graph.is_none();
    // `kymo why` reads these recordings, too.
    record_events(&args.recording, &events().prefer(WORK_EVENTS))
}

/// Switches and wake-ups.
pub(super) fn events() -> RecordedEvents {
    RecordedEvents::of_tasks("kymo offcpu record", OFF_CPU_EVENTS)
}
