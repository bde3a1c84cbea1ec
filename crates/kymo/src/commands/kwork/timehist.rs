//! `kymo kwork timehist`: each interrupt, softirq and work item.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::kwork::{KworkConfig, is_kwork_named, read_kwork};
use kymo_view::kwork::{KworkLineWriter, write_kwork_head};

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;

/// Flags of `kymo kwork timehist`.
#[derive(clap::Args)]
#[command(after_help = "\
Prints a line for each interrupt, softirq and work item when it ends: start and end, CPU of the
start, name, run time, and delay since its first request, if recorded. !lost: events were lost
during this interval.

EXAMPLES
  kymo kwork timehist -i perf.data --kwork softirq
  kymo kwork timehist -n virtio1-req.0
  kymo kwork timehist --json | jq 'select(.delay_ns > 1e6)'")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Show call chains of starts, if recorded (perf.data)
    #[arg(short = 'g', long)]
    call_graph: bool,
    /// Maximum number of functions per call chain
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_stack: usize,
}

pub(super) fn run(mut args: Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    let Some(live) = args.live.take() else { return show(&args, kinds) };
    args.read.watch(&live)?;
    let events = super::record::events([kinds, &args.read.kwork].concat())?;
    show_live(
        &live,
        &events,
        args.call_graph,
        args,
        |args| &mut args.read.analysis,
        |args| show(args, kinds),
    )
}

fn show(args: &Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    let read_args = &args.read.analysis;
    let source = read_args.open(&args.read.symbols)?;
    if args.call_graph && source.timeline().is_some() {
        bail!("-g: call chains are those of perf.data (kymo kwork record -g)");
    }
    let config = KworkConfig { stacks: args.call_graph, ..args.read.config(&source, kinds)? };
    let mut out = stdout();
    if !read_args.json {
        write_kwork_head(&mut out)?;
    }
    let mut writer = KworkLineWriter {
        out: &mut out,
        json: read_args.json,
        units: read_args.units(),
        max_stack: args.max_stack,
    };
    let mut failed = Ok(());
    let read = read_kwork(&source, &config, &mut |line| {
        if args.read.name.as_deref().is_none_or(|name| is_kwork_named(line.name, name)) {
            failed = writer.write(line);
        }
        failed.is_ok()
    })?;
    failed?;
    let ledger = super::ledger(&source, &read);
    if !read_args.json && !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    read_args.close(out, &source, &read.summary, &ledger)
}
