//! `kymo lock record`: waits for locks with their stacks.

use std::process::ExitCode;

use kymo_analysis::locks::{CONTENTION_EVENTS, FUTEX_EVENTS, LOCKDEP_EVENTS, RELEASE_EVENT};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, has_event, record_events};

/// Flags of `kymo lock record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records lock:contention_begin and lock:contention_end system-wide, with stacks (by frame pointers,
or as set with --call-graph). On kernels with lock debugging also lock:lock_acquire and related
events, without stacks. With --futex, entries and exits of futex(2) instead; their stacks need a
perf.data.

EXAMPLES
  kymo lock record -- make -j4
  kymo lock record -o x.dat --timeout 5000     a trace.dat, with lower overhead
  kymo lock record --wakers -- make -j4        with the tasks that released them
  kymo lock record --futex --call-graph dwarf -- ./server")]
pub(super) struct Args {
    /// Record futex waits: locks and condition variables in user space
    #[arg(long)]
    futex: bool,
    /// Also record wakers with stacks, so that `contention` shows which task released a lock (one
    /// more event per wake-up)
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
    record_events(&args.recording, &events(false, args.wakers))
}

/// Whether the kernel has events of locks.
pub(super) fn check() -> anyhow::Result<()> {
    if !has_event(CONTENTION_EVENTS[0]) && !has_event(LOCKDEP_EVENTS[0]) {
        anyhow::bail!("this kernel has no lock:contention_begin: Linux 5.19 and later have it");
    }
    Ok(())
}

/// Events of waits for locks of the kernel, or for futexes. Every lock that is taken is too much for
/// a stack each.
pub(super) fn events(futex: bool, wakers: bool) -> RecordedEvents {
    let events = RecordedEvents::of("kymo lock record").require(wakers.then_some(RELEASE_EVENT));
    if futex {
        return events.require(FUTEX_EVENTS);
    }
    let lockdep = LOCKDEP_EVENTS.map(|name| format!("{name}/call-graph=no/"));
    events.prefer(CONTENTION_EVENTS).prefer(lockdep)
}

fn record_futexes(mut recording: EventRecordingArgs) -> anyhow::Result<ExitCode> {
    // The kernel's stack of a system call says nothing, and a trace.dat has no other.
    let is_trace_dat = recording.output.extension().is_some_and(|e| e == "dat");
    recording.graph &= !is_trace_dat;
    record_events(&recording, &events(true, false))
}
