//! `kymo kwork latency`: delays by kind, name and CPU.

use std::process::ExitCode;

use kymo_analysis::kwork::{KworkTable, KworkTimes};
use kymo_model::NoteKind;
use kymo_view::kwork::KworkReport;

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use crate::args::tables::{MainTable, TableArgs, sort_by};
use crate::called_name::CalledName;

/// Flags of `kymo kwork latency`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("avg, max, count", "avg,max,count")))]
#[command(after_help = "\
Softirqs are requested by softirq_raise and work items by workqueue_activate_work; interrupt
handlers have no such event. A delay starts at the first request since the previous start. A work
item may start on another CPU than that of its request.

EXAMPLES
  kymo kwork latency -i perf.data
  kymo kwork -k workqueue latency -s max
  kymo kwork latency --json | jq '.rows[] | {name, cpu, p99: .delay.p99_ns}'")]
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
}

const ROWS: MainTable = MainTable {
    answer: "kwork_report",
    table: "rows",
    alike: &[],
    aliases: &[
        ("runtime", "delay.total_ns"),
        ("avg", "delay.average_ns"),
        ("max", "delay.max_ns"),
        ("count", "delay.count"),
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
    if table.read.events > 0 && !table.read.machine.has_raises.contains(&true) {
        let fact = "there are neither softirq_raise nor workqueue_activate_work";
        ledger.note(NoteKind::Empty, fact, Some("record them: kymo kwork record".to_owned()));
    }
    if table.crowded > 0 {
        let fact = format!("{} work items and tasks have no row", table.crowded);
        ledger.note(NoteKind::Entries, fact, None);
    }
    let mut out = stdout();
    let details = args.table.wants_details(args.histogram);
    let mut answer = table.answer(KworkTimes::Delay, args.read.name.as_deref(), details);
    let analysis = &args.read.analysis;
    args.table.write(&mut out, (&mut answer, &ROWS), (analysis.json, &ledger), |answer, out| {
        let view = KworkReport {
            answer,
            times: KworkTimes::Delay,
            most: args.table.most(analysis.screen_rows()),
            summary: false,
            delayed: 0,
            histogram: args.histogram,
            style: CalledName::get().table_style(),
            units: analysis.units(),
            recording: source.arguments().to_owned(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
