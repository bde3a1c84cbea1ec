//! `kymo kwork top`: shares of the CPUs' time.

use std::process::ExitCode;

use kymo_analysis::kwork::{CpuUsage, KworkConfig, KworkKind};
use kymo_model::NoteKind;
use kymo_view::kwork::{TopColumn, TopView};

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;

/// Flags of `kymo kwork top`.
#[derive(clap::Args)]
#[command(after_help = "\
Needs sched_switch beside events of interrupts and softirqs (kymo kwork -k
irq,softirq,workqueue,sched record). Run times are without interrupts and softirqs, which are in HELD UP;
%CPU is the share of its CPU, added up over CPUs. -n, --pid, --tid and --comm choose tasks; totals are of all.

EXAMPLES
  kymo kwork top -i perf.data
  kymo kwork top -s held -l 10")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Sort by these: rate, runtime, tid, held
    #[arg(
        short = 's',
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        default_value = "rate,runtime"
    )]
    sort: Vec<TopColumn>,
    /// Rows at most
    #[arg(short = 'l', long = "line", value_name = "N")]
    lines: Option<usize>,
}

pub(super) fn run(mut args: Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    let Some(live) = args.live.take() else { return show(&args, kinds) };
    args.read.watch(&live)?;
    let mut kinds_of = [kinds, &args.read.kwork].concat();
    if kinds_of.is_empty() {
        kinds_of = KworkKind::ALL.map(|kind| kind.name().to_owned()).to_vec();
    }
    kinds_of.push("sched".to_owned());
    let events = super::record::events(kinds_of)?;
    show_live(&live, &events, false, args, |args| &mut args.read.analysis, |args| show(args, kinds))
}

fn show(args: &Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    let source = args.read.analysis.open(&args.read.symbols)?;
    let config = KworkConfig { switches: true, ..args.read.config(&source, kinds)? };
    let mut usage = CpuUsage::count(&source, &config)?;
    if config.selection.has_task_conditions() {
        // The process of a thread is not in its switches.
        let s = &config.selection;
        usage.tasks.retain(|task| s.wants_task(None, Some(task.tid), &task.comm));
    }
    let mut ledger = super::ledger(&source, &usage.read);
    if !usage.has_switches {
        let advice = "record them: kymo kwork -k irq,softirq,workqueue,sched record";
        ledger.note(NoteKind::Empty, "there are no sched_switch events", Some(advice.to_owned()));
    }
    if usage.crowded > 0 {
        let fact = format!("{} runs of more tasks than are told apart", usage.crowded);
        ledger.note(NoteKind::Entries, fact, None);
    }
    let mut out = stdout();
    let view = TopView {
        usage: &usage,
        sort: args.sort.clone(),
        name: args.read.name.clone(),
        lines: args.lines,
    };
    match args.read.analysis.json {
        true => view.write_json(&mut out)?,
        false => view.write_text(&mut out, &ledger)?,
    }
    args.read.analysis.close(out, &source, &usage.read.summary, &ledger)
}
