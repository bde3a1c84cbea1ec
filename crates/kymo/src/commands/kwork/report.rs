//! `kymo kwork report`: run times by kind, name and CPU.

use std::process::ExitCode;

use kymo_analysis::kwork::{KworkTable, KworkTimes};
use kymo_model::NoteKind;
use kymo_view::kwork::KworkReport;

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use crate::args::tables::{MainTable, TableArgs, sort_by};
use crate::called_name::CalledName;

/// Flags of `kymo kwork report`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("runtime, max, count", "runtime,max,count")))]
#[command(after_help = "\
Names follow perf: interrupts by name and number, (s) for softirqs, (w) for work functions. Run
times of softirqs include nested interrupts. A work item counts for the CPU on which it started.

EXAMPLES
  kymo kwork report -i perf.data
  kymo kwork -k irq,softirq report -s max -S
  kymo kwork report --json | jq '.held_up[0]'")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Show a row for each work item instead of each function
    #[arg(long)]
    per_work: bool,
    /// Show quantiles and a histogram
    #[arg(long)]
    histogram: bool,
    /// Also show a summary
    #[arg(short = 'S', long)]
    with_summary: bool,
    /// Maximum number of delayed tasks to show [default: 10; 5 on a terminal]
    #[arg(long, value_name = "N")]
    held_up: Option<usize>,
}

/// Rows on a screen that also shows the delayed tasks.
const SCREEN_ROWS: usize = 15;

const ROWS: MainTable = MainTable {
    answer: "kwork_report",
    table: "rows",
    alike: &[],
    aliases: &[
        ("runtime", "runtime.total_ns"),
        ("avg", "runtime.average_ns"),
        ("max", "runtime.max_ns"),
        ("count", "runtime.count"),
    ],
};

pub(super) fn run(mut args: Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    args.table.check(&ROWS)?;
    let Some(live) = args.live.take() else { return show(&args, kinds) };
    args.read.watch(&live)?;
    let events = super::record::events([kinds, &args.read.kwork].concat())?;
    show_live(&live, &events, false, args, |args| &mut args.read.analysis, |args| show(args, kinds))
}

fn show(args: &Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    let source = args.read.analysis.open(&args.read.symbols)?;
    let config = args.read.config(&source, kinds)?;
    let table = KworkTable::count(&source, &config, args.per_work)?;
    let mut ledger = super::ledger(&source, &table.read);
    if table.crowded > 0 {
        let fact = format!("{} work items and tasks have no row", table.crowded);
        ledger.note(NoteKind::Entries, fact, None);
    }
    let mut out = stdout();
    let details = args.table.wants_details(args.histogram);
    let mut answer = table.answer(KworkTimes::Runtime, args.read.name.as_deref(), details);
    let analysis = &args.read.analysis;
    let is_screen = analysis.screen_rows().is_some();
    args.table.write(&mut out, (&mut answer, &ROWS), (analysis.json, &ledger), |answer, out| {
        let view = KworkReport {
            answer,
            times: KworkTimes::Runtime,
            // A screen has room for both tables.
            most: args.table.most(is_screen.then_some(SCREEN_ROWS)),
            summary: args.with_summary,
            delayed: args.held_up.unwrap_or(if is_screen { 5 } else { 10 }),
            histogram: args.histogram,
            style: CalledName::get().table_style(),
            units: analysis.units(),
            recording: source.arguments().to_owned(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
