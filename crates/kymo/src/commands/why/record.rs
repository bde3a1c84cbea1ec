//! `kymo why record`: switches and wake-ups with their stacks, and events of the user's choice.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use clap::Parser as _;
use kymo_analysis::critical_path::WORK_EVENTS;
use kymo_analysis::offcpu::OFF_CPU_EVENTS;
use kymo_record::CallGraph;

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, has_event, record_events};
use super::super::live::WatchArgs;

/// Flags of `kymo why record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records sched_switch, sched_waking (sched_wakeup where the kernel has no other), sched_wakeup_new,
sched_process_fork, workqueue_queue_work and workqueue_execute_start of everybody on all CPUs, with
their stacks: by frame pointers, unless --call-graph says otherwise; and the events of -e, for spans.

EXAMPLES
  kymo why record -- ./server --once
  kymo why record --call-graph dwarf -- ./server --once
  kymo why record -e 'syscalls:sys_*_fsync' -- ./db
  kymo why record -o x.dat -- ./program     a trace.dat: the cheaper way")]
pub(super) struct Args {
    /// Events to record, too, for spans (repeatable, comma-separated)
    #[arg(short = 'e', long = "event", value_name = "EVENTS", value_delimiter = ',')]
    events: Vec<String>,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

/// Flags of a recording, where they stand alone.
#[derive(clap::Parser)]
struct RecordingFlags {
    #[command(flatten)]
    flags: EventRecordingArgs,
}

/// Records what is to be watched into `file`.
pub(super) fn watched(
    events: Vec<String>,
    watch: &WatchArgs,
    call_graph: Option<CallGraph>,
    (file, spawned): (PathBuf, Arc<OnceLock<u32>>),
) -> anyhow::Result<ExitCode> {
    let flags = ["record".into(), "-q".into(), "-o".into(), file.into_os_string()];
    let flags = flags.into_iter().chain(watch.recording_flags());
    let mut recording = RecordingFlags::try_parse_from(flags)?.flags;
    recording.call_graph = call_graph;
    recording.spawned = Some(spawned);
    run(Args { events, recording })
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.recording.graph |= args.recording.call_graph.is_none();
    let has_waking = has_event("sched:sched_waking");
    let optional: Vec<&str> = OFF_CPU_EVENTS
        .into_iter()
        .filter(|name| *name != "sched:sched_switch")
        .filter(|name| *name != "sched:sched_wakeup" || !has_waking)
        .chain(WORK_EVENTS)
        .collect();
    let mut required = vec!["sched:sched_switch"];
    required.extend(args.events.iter().map(String::as_str));
    let events =
        RecordedEvents { command: "kymo why record", required: &required, optional: &optional };
    record_events(&args.recording, &events)
}
