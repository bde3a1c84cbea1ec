//! `kymo lock record`: waits for locks with their stacks.

use std::process::ExitCode;

use kymo_analysis::locks::{CONTENTION_EVENTS, FUTEX_EVENTS, LOCKDEP_EVENTS, RELEASE_EVENT};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, has_event, record_events};

/// Flags of `kymo lock record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records lock:contention_begin and lock:contention_end of everybody on all CPUs, with their stacks:
by frame pointers, unless --call-graph says otherwise; with --futex entries and exits of futex(2)
instead, whose stacks are in a perf.data.

EXAMPLES
  kymo lock record -- make -j4
  kymo lock record -o x.dat --timeout 5000     a trace.dat: the cheaper way
  kymo lock record --wakers -- make -j4        and who released them
  kymo lock record --futex --call-graph dwarf -- ./server")]
pub(super) struct Args {
    /// Record waits of programs for futexes: locks and conditions in user space
    #[arg(long)]
    futex: bool,
    /// Record who wakes tasks, too, with stacks: `contention` shows who released a lock that was
    /// slept for. Each wake-up of the machine is an event more
    #[arg(long, conflicts_with = "futex")]
    wakers: bool,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.recording.graph |= args.recording.call_graph.is_none();
    if args.futex {
        return record_futexes(args.recording);
    }
    check()?;
    with_events(false, args.wakers, |events| record_events(&args.recording, events))
}

/// Whether the kernel has the events.
pub(super) fn check() -> anyhow::Result<()> {
    if !CONTENTION_EVENTS.iter().all(|e| has_event(e)) {
        let lockdep = LOCKDEP_EVENTS.iter().any(|e| has_event(e));
        let more =
            if lockdep { "; `kymo record -e 'lock:*' -a` records those of lockdep" } else { "" };
        anyhow::bail!(
            "this kernel has no lock:contention_begin: Linux 5.19 and later have it{more}"
        );
    }
    Ok(())
}

/// Hands over what is recorded: waits for locks of the kernel, or for futexes.
pub(super) fn with_events<T>(
    futex: bool,
    wakers: bool,
    use_them: impl FnOnce(&RecordedEvents<'_>) -> T,
) -> T {
    let mut required = if futex { FUTEX_EVENTS.to_vec() } else { CONTENTION_EVENTS.to_vec() };
    required.extend(wakers.then_some(RELEASE_EVENT));
    use_them(&RecordedEvents { command: "kymo lock record", required: &required, optional: &[] })
}

fn record_futexes(mut recording: EventRecordingArgs) -> anyhow::Result<ExitCode> {
    // The kernel's stack of a system call says nothing, and a trace.dat has no other.
    let is_trace_dat = recording.output.extension().is_some_and(|e| e == "dat");
    recording.graph &= !is_trace_dat;
    with_events(true, false, |events| record_events(&recording, events))
}
