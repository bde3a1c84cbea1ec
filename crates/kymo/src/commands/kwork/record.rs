//! `kymo kwork record`: events of interrupts, softirqs and work items into a perf.data, or into a
//! trace.dat.

use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::kwork::KworkKind;

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo kwork record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records irq_handler_{entry,exit}, softirq_{raise,entry,exit} and
workqueue_{activate_work,execute_start,execute_end} system-wide; `-k sched` adds sched_switch, which
`kymo kwork top` needs.

EXAMPLES
  kymo kwork record -- ./program
  kymo kwork -k irq,softirq,workqueue,sched record --timeout 5000
  kymo kwork record -o x.dat -- ./program")]
pub(super) struct Args {
    /// Kinds to record: irq, softirq, workqueue, sched [default: all but sched]
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kwork: Vec<String>,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(args: &Args, mut kinds: Vec<String>) -> anyhow::Result<ExitCode> {
    kinds.extend(args.kwork.iter().cloned());
    record_events(&args.recording, &events(kinds)?)
}

/// Events of these kinds, or of all but sched.
pub(super) fn events(mut kinds: Vec<String>) -> anyhow::Result<RecordedEvents> {
    if kinds.is_empty() {
        kinds.extend(KworkKind::ALL.map(|kind| kind.name().to_owned()));
    }
    let mut events = RecordedEvents::of("kymo kwork record");
    for kind in &kinds {
        events = match (kind.trim(), kind.trim().parse::<KworkKind>()) {
            ("sched", _) => events.require(["sched:sched_switch"]),
            (_, Ok(kind)) => events.require(kind.events().iter().copied()),
            (_, Err(why)) => bail!("{why}, and sched"),
        };
    }
    Ok(events)
}
