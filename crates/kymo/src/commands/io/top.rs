//! `kymo io top`: requests by process, by file or by device.

use std::process::ExitCode;

use kymo_analysis::block_io::{BlockGrouping, BlockNames, BlockTable};
use kymo_view::block_io::BlockTop;

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use super::file_names::KnownNames;
use crate::args::tables::{MainTable, TableArgs, sort_by};

/// Flags of `kymo io top`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("total, count, bytes, queue, device, max", "total")))]
#[command(mut_arg("limit", |limit| super::entries(limit, "20")))]
#[command(after_help = "\
The process is the one that submitted the request; for writeback, that is a kernel worker. With a
command, only requests of its tasks count, or all with -a.

EXAMPLES
  kymo io top -i perf.data
  kymo io top -s bytes -E 20")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Group rows by process, file or device
    #[arg(long, value_name = "KEY", default_value = "process")]
    by: BlockGrouping,
    #[command(flatten)]
    table: TableArgs,
    /// Search file systems for the names of inodes, for up to 10 s
    #[arg(long)]
    find: bool,
}

/// The table of each grouping.
fn main_table(by: BlockGrouping) -> MainTable {
    MainTable {
        answer: "io_top",
        table: match by {
            BlockGrouping::Process => "processes",
            BlockGrouping::File => "files",
            BlockGrouping::Device => "devices",
        },
        alike: &[],
        aliases: &[
            ("total", "total.total_ns"),
            ("count", "count"),
            ("bytes", "bytes"),
            ("queue", "queue.total_ns"),
            ("device", "device_time.total_ns"),
            ("max", "total.max_ns"),
        ],
    }
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(&main_table(args.by))?;
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live)?;
    let events = super::record::events(true, true);
    show_live(&live, &events, false, args, |args| &mut args.read.analysis, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open()?;
    let table = BlockTable::count(&source, &args.read.config(&source)?)?;
    let known = KnownNames::look(&source, &table, args.find);
    let ledger = super::table_ledger(&source, &table, &known, args.by == BlockGrouping::File);
    let devices = super::device_names(&source);
    let files = |file| known.name(&table, file);
    let names = BlockNames { devices: &devices, files: &files };
    let is_json = args.read.analysis.json;
    let mut answer = table.top(names, args.by, !is_json);
    let of = main_table(args.by);
    let mut out = stdout();
    args.table.write(&mut out, (&mut answer, &of), (is_json, &ledger), |answer, out| {
        let view = BlockTop {
            table: &table,
            answer,
            names,
            by: args.by,
            entries: args.table.most(Some(20)),
            columns: args.read.analysis.screen_columns(),
            recording: source.arguments().to_owned(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
