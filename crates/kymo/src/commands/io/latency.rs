//! `kymo io latency`: queue and device times by device and operation.

use std::process::ExitCode;

use kymo_analysis::block_io::{BlockNames, BlockTable};
use kymo_view::block_io::LatencyHistograms;

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use super::file_names::KnownNames;
use crate::args::tables::{MainTable, TableArgs, sort_by};

/// Flags of `kymo io latency`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("total, count, bytes, queue, device, max", "total")))]
#[command(mut_arg("limit", |limit| super::entries(limit, "4")))]
#[command(after_help = "\
Quantiles exceed the exact value by at most 1/16. Options for times and CPUs select requests by
their completion, options for tasks by the submitting task (for writeback, a kernel worker). Device
names are shown for recordings of this machine.

EXAMPLES
  kymo io latency -i perf.data
  kymo io latency -d 254,0 --comm postgres
  kymo io latency --json | jq '.rows[] | {name, op, p99: .device_time.p99_ns}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    table: TableArgs,
    /// Maximum number of waiting tasks to show [default: 10; 3 on a terminal]
    #[arg(long, value_name = "N")]
    waiters: Option<usize>,
    /// Maximum number of files to show [default: 5; 3 on a terminal]
    #[arg(long = "files", value_name = "N")]
    most_files: Option<usize>,
    /// Search file systems for the names of inodes, for up to 10 s
    #[arg(long)]
    find: bool,
}

const ROWS: MainTable = MainTable {
    answer: "io_latency",
    table: "rows",
    alike: &[],
    aliases: &[
        ("total", "total.total_ns"),
        ("count", "count"),
        ("bytes", "bytes"),
        ("queue", "queue.total_ns"),
        ("device", "device_time.total_ns"),
        ("max", "total.max_ns"),
    ],
};

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(&ROWS)?;
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live)?;
    let events = super::record::events(true, true);
    show_live(&live, &events, false, args, |args| &mut args.read.analysis, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open()?;
    let table = BlockTable::count(&source, &args.read.config(&source)?)?;
    let known = KnownNames::look(&source, &table, args.find);
    let ledger = super::table_ledger(&source, &table, &known, false);
    let devices = super::device_names(&source);
    let files = |file| known.name(&table, file);
    let names = BlockNames { devices: &devices, files: &files };
    let is_json = args.read.analysis.json;
    let mut answer = table.latency(names, !is_json);
    let mut out = stdout();
    let is_screen = args.read.analysis.screen_rows().is_some();
    args.table.write(&mut out, (&mut answer, &ROWS), (is_json, &ledger), |answer, out| {
        let view = LatencyHistograms {
            table: &table,
            answer,
            names,
            entries: args.table.most(Some(if is_screen { 1 } else { 4 })),
            columns: args.read.analysis.screen_columns(),
            waiters: args.waiters.unwrap_or(if is_screen { 2 } else { 10 }),
            files: args.most_files.unwrap_or(if is_screen { 3 } else { 5 }),
            recording: source.arguments().to_owned(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
