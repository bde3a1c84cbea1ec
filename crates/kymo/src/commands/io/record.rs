//! `kymo io record`: events of block requests into a perf.data, or into a trace.dat.

use std::process::ExitCode;

use kymo_analysis::block_io::{BLOCK_EVENTS, BLOCK_MORE_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo io record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records block_rq_{insert,issue,requeue,merge,complete} and block_getrq of all devices, and
sched_switch, sched_waking and sched_wakeup_new, which tell who waited.

EXAMPLES
  kymo io record -- ./program
  kymo io record -o x.dat --timeout 5000")]
pub(super) struct Args {
    /// Leave out the events of the scheduler: who waited is not known then
    #[arg(long)]
    no_waits: bool,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

/// Hands over all that is recorded.
pub(super) fn with_events<T>(use_them: impl FnOnce(&RecordedEvents<'_>) -> T) -> T {
    use_them(&RecordedEvents {
        command: "kymo io record",
        required: &BLOCK_EVENTS,
        optional: &BLOCK_MORE_EVENTS,
    })
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let of_block = BLOCK_MORE_EVENTS.iter().position(|e| !e.starts_with("block:"));
    let optional = match (args.no_waits, of_block) {
        (true, Some(end)) => &BLOCK_MORE_EVENTS[..end],
        _ => &BLOCK_MORE_EVENTS[..],
    };
    let events = RecordedEvents { command: "kymo io record", required: &BLOCK_EVENTS, optional };
    record_events(&args.recording, &events)
}
