//! `kymo io top`: requests by process, by file or by device.

use std::process::ExitCode;

use kymo_analysis::block_io::BlockTable;
use kymo_view::block_io::{BlockColumn, BlockGrouping, BlockNames, BlockTop};

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use super::file_names::KnownNames;

/// Flags of `kymo io top`.
#[derive(clap::Args)]
#[command(after_help = "\
A process is the one that made the request: pages that are written back later are those of a worker
of the kernel.

EXAMPLES
  kymo io top -i perf.data
  kymo io top -s bytes -E 20")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Rows are of this: process, file, device
    #[arg(long, value_name = "KEY", default_value = "process")]
    by: BlockGrouping,
    /// Sort by this: total, count, bytes, queue, device, max
    #[arg(short = 's', long, value_name = "KEY", default_value = "total")]
    sort: BlockColumn,
    /// Rows at most
    #[arg(short = 'E', long, value_name = "N", default_value_t = 20)]
    entries: usize,
    /// Look through the directories of the file systems for the names of inodes, for at most 10 s
    #[arg(long)]
    find: bool,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
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
    let view = BlockTop {
        table: &table,
        names,
        by: args.by,
        sort: args.sort,
        entries: args.entries,
        recording: source.arguments().to_owned(),
    };
    let mut out = stdout();
    match args.read.analysis.json {
        true => view.write_json(&mut out)?,
        false => view.write_text(&mut out, &ledger)?,
    }
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
