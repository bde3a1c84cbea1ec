//! `kymo io timehist`: each request.

use std::io::Write as _;
use std::process::ExitCode;

use kymo_analysis::block_io::{BLOCK_FILE_EVENTS, BlockNames, FileName, read_block_io};
use kymo_view::block_io::{BlockLineWriter, write_block_head};

use super::super::analysis::stdout;
use super::ReadArgs;

/// Flags of `kymo io timehist`.
#[derive(clap::Args)]
#[command(after_help = "\
Prints a line for each completed request: time of its first event, device, operation, first sector,
bytes, queue time, device time, submitting task, and the inode, if it is certain. !lost: events were
lost during this interval.

EXAMPLES
  kymo io timehist -i perf.data
  kymo io timehist --json | jq 'select(.device_ns > 1e7)'")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let read_args = &args.read.analysis;
    let source = args.read.open()?;
    let config = args.read.config(&source)?;
    let devices = super::device_names(&source);
    let files = |_| FileName::default();
    let names = BlockNames { devices: &devices, files: &files };
    let bios = BLOCK_FILE_EVENTS.first();
    let has_owners = source.classes().iter().any(|c| bios.is_some_and(|name| c.is_named(name)));
    let mut out = stdout();
    if !read_args.json {
        write_block_head(&mut out)?;
    }
    let (json, units) = (read_args.json, read_args.units());
    let mut writer = BlockLineWriter { out: &mut out, json, units, names, has_owners };
    let mut failed = Ok(());
    let mut line = |request: &_, cpu| {
        failed = writer.write(request, cpu);
        failed.is_ok()
    };
    let read = read_block_io(&source, &config, &mut line, &mut |_| {})?;
    failed?;
    let ledger = super::ledger(&source, &read);
    if !json && !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    read_args.close(out, &source, &read.summary, &ledger)
}
