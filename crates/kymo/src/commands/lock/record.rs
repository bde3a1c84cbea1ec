//! `kymo lock record`: waits for locks with their stacks.

use std::process::ExitCode;

use kymo_analysis::locks::{CONTENTION_EVENTS, LOCKDEP_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, has_event, record_events};

/// Flags of `kymo lock record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records lock:contention_begin and lock:contention_end of everybody on all CPUs, with their stacks:
by frame pointers, unless --call-graph says otherwise.

EXAMPLES
  kymo lock record -- make -j4
  kymo lock record -o x.dat --timeout 5000     a trace.dat: the cheaper way")]
pub(super) struct Args {
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.recording.graph |= args.recording.call_graph.is_none();
    if !CONTENTION_EVENTS.iter().all(|e| has_event(e)) {
        let lockdep = LOCKDEP_EVENTS.iter().any(|e| has_event(e));
        let more =
            if lockdep { "; `kymo record -e 'lock:*' -a` records those of lockdep" } else { "" };
        anyhow::bail!(
            "this kernel has no lock:contention_begin: Linux 5.19 and later have it{more}"
        );
    }
    let events =
        RecordedEvents { command: "kymo lock record", required: &CONTENTION_EVENTS, optional: &[] };
    record_events(&args.recording, &events)
}
