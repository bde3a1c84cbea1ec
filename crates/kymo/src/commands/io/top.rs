//! `kymo io top`: requests by process and device.

use std::process::ExitCode;

use kymo_analysis::block_io::BlockTable;
use kymo_view::block_io::{BlockColumn, BlockTop};

use super::super::analysis::stdout;
use super::super::live::LiveArgs;
use super::ReadArgs;

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
    /// Sort by this: total, count, bytes, queue, device, max
    #[arg(short = 's', long, value_name = "KEY", default_value = "total")]
    sort: BlockColumn,
    /// Rows at most
    #[arg(short = 'E', long, value_name = "N", default_value_t = 20)]
    entries: usize,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let Some(live) = args.live.take() else { return show(&args) };
    super::record::with_events(|events| {
        live.pass_on(events, false, |pipe| {
            args.read.analysis.set_live(pipe);
            show(&args)
        })
    })
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open()?;
    let table = BlockTable::count(&source, &args.read.config(&source)?)?;
    let ledger = super::ledger(&source, &table.read);
    let names = super::device_names(&source);
    let view = BlockTop {
        table: &table,
        names: &names,
        sort: args.sort,
        entries: args.entries,
        recording: source.name().to_owned(),
    };
    let mut out = stdout();
    match args.read.analysis.json {
        true => view.write_json(&mut out, &ledger)?,
        false => view.write_text(&mut out, &ledger)?,
    }
    args.read.analysis.close(out, &source, &table.read.summary, &ledger)
}
