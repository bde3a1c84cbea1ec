//! `kymo why record`: switches and wake-ups with their stacks, and events of the user's choice.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use clap::Parser as _;
use kymo_analysis::critical_path::WORK_EVENTS;
use kymo_analysis::offcpu::OFF_CPU_EVENTS;
use kymo_record::{CallGraph, ChosenTasks};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};
use super::super::live::WatchArgs;

/// Flags of `kymo why record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records sched_switch, sched_waking (or sched_wakeup), sched_wakeup_new, sched_process_fork,
workqueue_queue_work and workqueue_execute_start system-wide, with stacks (by frame pointers, or as
set with --call-graph), and the events of -e, for spans.

EXAMPLES
  kymo why record -- ./server --once
  kymo why record --call-graph dwarf -- ./server --once
  kymo why record -e 'syscalls:sys_*_fsync' -- ./db
  kymo why record -o x.dat -- ./program     a trace.dat, with lower overhead")]
pub(super) struct Args {
    /// Additional events to record, for spans (repeatable, comma-separated)
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
    (file, spawned, chosen): (PathBuf, Arc<OnceLock<u32>>, ChosenTasks),
) -> anyhow::Result<ExitCode> {
    let flags = ["record".into(), "-q".into(), "-o".into(), file.into_os_string()];
    let flags = flags.into_iter().chain(watch.recording_flags());
    let mut recording = RecordingFlags::try_parse_from(flags)?.flags;
    recording.call_graph = call_graph;
    (recording.spawned, recording.chosen) = (Some(spawned), chosen);
    run(Args { events, recording })
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.recording.graph |= args.recording.call_graph.is_none();
    let events = RecordedEvents::of_tasks("kymo why record", OFF_CPU_EVENTS);
    record_events(&args.recording, &events.prefer(WORK_EVENTS).require(args.events))
}
