//! `kymo sched map`: which task each CPU ran.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::tasks::{SchedSelection, read_sched};
use kymo_events::ReadOptions;
use kymo_model::NoteKind;
use kymo_view::sched::{MapWriter, MappedTasks};

use super::super::analysis::show_live;
use super::super::live::LiveArgs;
use super::AnalysisArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo sched map`.
#[derive(clap::Args)]
#[command(after_help = "\
One column per CPU with two letters for its running task, one line per switch; a * marks the CPU
that switches. The name of a task is printed when it first runs. A dot is an idle CPU.

EXAMPLES
  kymo sched map -i perf.data
  kymo sched map --compact --time 13225.1,13225.2
  kymo sched map --task-name postgres,walwriter")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Show only CPUs with switches, in the order of their first switch
    #[arg(long)]
    compact: bool,
    /// Show only tasks with these names
    ///
    /// Other tasks are shown as a dash.
    #[arg(long, value_name = "NAME[,…]", value_delimiter = ',')]
    task_name: Vec<String>,
    /// Match --task-name against any part of a name
    #[arg(long, requires = "task_name")]
    fuzzy_name: bool,
}

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch_machine(&live, &[], &[])?;
    let events = super::record::events();
    show_live(&live, &events, false, args, |args| &mut args.read, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.read.comm.is_empty() || args.read.names_cgroups() {
        bail!("a map shows whatever its CPUs run: --task-name, -C and --time choose");
    }
    let source = args.read.open(&SymbolArgs::default())?;
    let selection = SchedSelection { events: args.read.selection(&source, &[], &[])? };
    let mut out = super::stdout();
    let cpus = (!args.compact).then(|| source.cpu_count().unwrap_or(0));
    let style = (args.read.json, args.read.units());
    let tasks = MappedTasks { names: args.task_name.clone(), fuzzy: args.fuzzy_name };
    let mut writer = MapWriter::new(&mut out, (&selection, &tasks), cpus, style);
    let mut failed = Ok(());
    let read = read_sched(&source, ReadOptions::default(), |step, machine| {
        failed = writer.step(step, machine);
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    let has_lines = writer.has_lines();
    let mut ledger = super::ledger(&source, &read);
    if !has_lines && !args.task_name.is_empty() {
        let fact = format!("no switch is to or from {}", args.task_name.join(" or "));
        let advice = (!args.fuzzy_name).then(|| "--fuzzy-name takes parts of names".to_owned());
        ledger.note(NoteKind::Empty, fact, advice);
    }
    if !args.read.json && !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    args.read.close(out, &source, &read.summary, &ledger)
}
