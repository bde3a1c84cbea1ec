//! `kymo io latency`: queue and device times by device and operation.

use std::process::ExitCode;

use kymo_analysis::block_io::BlockTable;
use kymo_view::block_io::{BlockNames, LatencyHistograms};

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use super::file_names::KnownNames;

/// Flags of `kymo io latency`.
#[derive(clap::Args)]
#[command(after_help = "\
Quantiles are at most a sixteenth above the truth. Requests count by the time and CPU of their
completion and the task that made them, which for written-back pages is a worker of the kernel. Names
of devices are this machine's, if it made the recording.

EXAMPLES
  kymo io latency -i perf.data
  kymo io latency -d 254,0 --comm postgres
  kymo io latency --json | jq '.rows[] | {name, op, p99: .device_time.p99_ns}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Devices and operations to show at most
    #[arg(short = 'E', long, value_name = "N", default_value_t = 4)]
    entries: usize,
    /// Tasks that waited to show at most
    #[arg(long, value_name = "N", default_value_t = 10)]
    waiters: usize,
    /// Files to show at most
    #[arg(long = "files", value_name = "N", default_value_t = 5)]
    most_files: usize,
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
    let ledger = super::table_ledger(&source, &table, &known, false);
    let devices = super::device_names(&source);
    let files = |file| known.name(&table, file);
    let names = BlockNames { devices: &devices, files: &files };
    let view = LatencyHistograms {
        table: &table,
        names,
        entries: args.entries,
        waiters: args.waiters,
        files: args.most_files,
        recording: source.arguments().to_owned(),
    };
    let mut out = stdout();
    match args.read.analysis.json {
        true => view.write_json(&mut out)?,
        false => view.write_text(&mut out, &ledger)?,
    }
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
