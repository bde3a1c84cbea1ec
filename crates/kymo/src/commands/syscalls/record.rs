//! `kymo syscalls record`: entries and exits of system calls into a perf.data, or into a
//! trace.dat.

use std::process::ExitCode;

use kymo_analysis::syscalls::{SYSCALL_EVENTS, SYSCALL_WAIT_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo syscalls record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records raw_syscalls:sys_enter and sys_exit system-wide, and, for the causes of waits, sched_switch,
sched_waking and sched_wakeup_new. The overhead of a trace.dat is about a third of that of a
perf.data.

EXAMPLES
  kymo syscalls record -- ./program
  kymo syscalls record -g --timeout 5000
  kymo syscalls record -o x.dat -- ./program")]
pub(super) struct Args {
    /// Do not record scheduler events: only counts and durations
    #[arg(long)]
    no_waits: bool,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

/// Events of system calls, and those that tell what they waited for.
pub(super) fn events(waits: bool) -> RecordedEvents {
    let waits = SYSCALL_WAIT_EVENTS.into_iter().filter(|_| waits);
    RecordedEvents::of("kymo syscalls record").require(SYSCALL_EVENTS).prefer(waits)
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    record_events(&args.recording, &events(!args.no_waits))
}
