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
workqueue_{activate_work,execute_start,execute_end} of all CPUs; sched adds sched_switch, which
`kymo kwork top` needs.

EXAMPLES
  kymo kwork record -- ./program
  kymo kwork -k irq,softirq,workqueue,sched record --timeout 5000
  kymo kwork record -o x.dat -- ./program")]
pub(super) struct Args {
    /// Kinds to record: irq, softirq, workqueue (these without the flag), sched
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kwork: Vec<String>,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(args: &Args, mut kinds: Vec<String>) -> anyhow::Result<ExitCode> {
    kinds.extend(args.kwork.iter().cloned());
    with_events(kinds, |events| record_events(&args.recording, events))
}

/// Hands over what is recorded: events of these kinds, or of all but sched.
pub(super) fn with_events<T>(
    mut kinds: Vec<String>,
    use_them: impl FnOnce(&RecordedEvents<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if kinds.is_empty() {
        kinds.extend(KworkKind::ALL.map(|kind| kind.name().to_owned()));
    }
    let mut required: Vec<&str> = Vec::new();
    for kind in &kinds {
        match (kind.trim(), kind.trim().parse::<KworkKind>()) {
            ("sched", _) => required.push("sched:sched_switch"),
            (_, Ok(kind)) => required.extend(kind.events()),
            (_, Err(why)) => bail!("{why}, and sched"),
        }
    }
    use_them(&RecordedEvents { command: "kymo kwork record", required: &required, optional: &[] })
}
