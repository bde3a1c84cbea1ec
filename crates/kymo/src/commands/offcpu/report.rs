//! `kymo offcpu report`: where tasks were off CPU, and why.

use std::process::ExitCode;

use kymo_analysis::offcpu::{OffCpuConfig, count_off_cpu, off_cpu_notes};
use kymo_analysis::tasks::SchedSelection;
use kymo_view::Ledger;
use kymo_view::offcpu::OffCpuView;
use kymo_view::trust::note_chains;

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::LiveArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo offcpu report`.
#[derive(clap::Args)]
#[command(after_help = "\
A wait is the time between two runs of a task. Blocked is the part of it before its wake-up, by the
function of the kernel that it was in; waiting for a CPU is the part in which it could have run.
`blocked` alone: nothing tells on what. Waits count for the CPU on which the task goes on; --time
cuts them. Quantiles are at most a sixteenth above the truth.

EXAMPLES
  kymo offcpu report --comm server
  kymo offcpu report --pid 4711 --tasks --inverted
  kymo offcpu report --json | jq '.stacks[] | select(.cause == \"futex\") | {total_ns, stack}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(short = 't', long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Show the times of each task, too
    #[arg(long)]
    tasks: bool,
    /// Let stacks begin with the function that waits
    #[arg(short = 'G', long)]
    inverted: bool,
    /// Leave out branches of less than this share of the time off CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    percent_limit: f64,
    /// Lines of the tree at most
    #[arg(short = 'E', long, value_name = "N")]
    entries: Option<usize>,
    /// Number of stacks that are shown beside those of who woke the task
    #[arg(long, value_name = "N", default_value_t = 3)]
    pairs: usize,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live, &args.pid, &args.tid)?;
    let events = super::record::events();
    show_live(&live, &events, true, args, |args| &mut args.read, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&args.symbols)?;
    let selection = SchedSelection { events: args.read.selection(&source, &args.pid, &args.tid)? };
    let mut table =
        count_off_cpu(&source, &OffCpuConfig { selection: &selection, by_task: false })?;
    let notes = table.read.summary.notes(&source).into_iter().chain(off_cpu_notes(&table));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&table.read.summary, &mut ledger);
    let mut out = stdout();
    let mut view = OffCpuView {
        table: &mut table,
        inverted: args.inverted,
        percent_limit: args.percent_limit,
        lines: args.entries.or(args.read.screen_rows().map(|rows| 2 * rows)),
        pairs: args.pairs,
        tasks: args.tasks,
        units: args.read.units(),
        recording: source.arguments().to_owned(),
    };
    match args.read.json {
        true => view.write_json(&mut out)?,
        false => view.write_text(&mut out, &ledger)?,
    }
    args.read.close(out, &source, &table.read.summary, &ledger)
}
