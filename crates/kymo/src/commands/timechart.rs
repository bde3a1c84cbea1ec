//! `kymo timechart`: CPUs and tasks over time as an SVG.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Subcommand;
use kymo_analysis::tasks::{SCHED_EVENTS, SchedSelection, sched_notes};
use kymo_analysis::timechart::{Timechart, TimechartConfig};
use kymo_model::{NoteKind, counted};
use kymo_view::Ledger;
use kymo_view::timechart::TimechartDrawing;

use super::analysis::AnalysisArgs;
use super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};
use super::output;
use crate::args::symbols::SymbolArgs;
use crate::called_name::CalledName;
use crate::exit;

/// Parts of the width in which short runs are added up.
const PARTS: usize = 2000;

/// Flags of `kymo timechart`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Draws a lane for each CPU, then one for each of the tasks that ran longest. Blue: running; orange:
runnable; gray: blocked; green lines: wake-ups between these tasks. `kymo view` shows an interactive
version.

EXAMPLES
  kymo timechart record -- make -j4
  kymo timechart -o chart.svg"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    read: AnalysisArgs,
    /// File to write; `-`: standard output
    #[arg(short, long, value_name = "FILE", default_value = "output.svg")]
    output: PathBuf,
    /// Width of the lanes in pixels
    #[arg(short, long, value_name = "PIXELS", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(100..=20_000))]
    width: u32,
    /// Maximum number of tasks to show
    #[arg(short = 'n', long, value_name = "N", default_value_t = 15,
          value_parser = clap::value_parser!(u32).range(..=1000))]
    proc_num: u32,
    /// Only these processes
    #[arg(short, long, value_name = "PIDS", value_delimiter = ',')]
    process: Vec<u32>,
}

#[derive(Subcommand)]
enum Action {
    /// Record scheduler events of the whole machine
    Record(Box<EventRecordingArgs>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Some(Action::Record(recording)) => {
            let required = "sched:sched_switch";
            let others = SCHED_EVENTS.into_iter().filter(|name| *name != required);
            let events = RecordedEvents::of("kymo timechart record").require([required]);
            record_events(recording, &events.prefer(others))
        }
        None => draw(&args),
    }
}

fn draw(args: &Args) -> anyhow::Result<ExitCode> {
    if args.read.json {
        bail!("a chart is an SVG: `kymo sched timehist --json` has the runs");
    }
    let source = args.read.open(&SymbolArgs::default())?;
    if source.is_piped() {
        bail!("a recording is read twice for a chart: name a file with -i");
    }
    let events = args.read.selection(&source, &args.process, &[])?;
    let config = TimechartConfig {
        selection: SchedSelection { events },
        tasks: args.proc_num as usize,
        parts: PARTS,
    };
    let chart = Timechart::read(&source, &config)?;
    let notes = chart.read.summary.notes(&source).into_iter();
    let notes = notes.chain(sched_notes(&chart.read, "kymo timechart record"));
    let mut ledger = Ledger::from_notes(notes);
    if chart.more_tasks > 0 {
        let what = counted(chart.more_tasks as u64, "task has", "tasks have");
        let advice = "--proc-num shows more".to_owned();
        ledger.tell(NoteKind::Scope, format!("{what} no lane"), Some(advice));
    }
    if chart.more_wakeups > 0 {
        let what = counted(chart.more_wakeups, "wake-up is", "wake-ups are");
        ledger.tell(NoteKind::Scope, format!("{what} not drawn"), None);
    }
    let drawing =
        TimechartDrawing { chart: &chart, width: f64::from(args.width), recording: source.name() };
    let replaces = args.read.force || CalledName::get() == CalledName::Perf;
    output::write(Some(&args.output), replaces, &mut |out| drawing.write(out))?;
    say!("{}", ledger.to_text(""));
    let damaged = chart.read.summary.is_damaged(&source);
    let damage = damaged.then_some("damaged; what can be read is drawn");
    Ok(exit::status(source.name(), damage, &ledger, args.read.strict))
}
