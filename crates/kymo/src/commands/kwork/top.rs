//! `kymo kwork top`: shares of the CPUs' time.

use std::process::ExitCode;

use kymo_analysis::kwork::{CpuUsage, KworkConfig, KworkKind};
use kymo_model::NoteKind;
use kymo_view::kwork::TopView;

use super::super::analysis::{show_live, stdout};
use super::super::live::LiveArgs;
use super::ReadArgs;
use crate::args::tables::{MainTable, TableArgs, sort_by};
use crate::called_name::CalledName;

/// Flags of `kymo kwork top`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("rate, runtime, tid, held", "rate,runtime")))]
#[command(mut_arg("limit", |limit| limit.short('l').alias("line")))]
#[command(after_help = "\
Needs sched_switch in addition to interrupt and softirq events (kymo kwork -k
irq,softirq,workqueue,sched record). Run times exclude interrupts and softirqs, which are in HELD
UP. %CPU is the share of a CPU, summed over CPUs. -n, --pid, --tid and --comm select tasks; totals
cover all tasks.

EXAMPLES
  kymo kwork top -i perf.data
  kymo kwork top -s held -l 10")]
pub(super) struct Args {
    #[command(flatten)]
    read: ReadArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    table: TableArgs,
}

/// CPUs on a screen.
const SCREEN_CPUS: usize = 8;

const TASKS: MainTable = MainTable {
    answer: "kwork_top",
    table: "tasks",
    alike: &[],
    aliases: &[("rate", "usage_percent"), ("runtime", "runtime_ns"), ("held", "held_up_ns")],
};

pub(super) fn run(mut args: Args, kinds: &[String]) -> anyhow::Result<ExitCode> {
    args.table.check(&TASKS)?;
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
        let fact =
            format!("{} runs not attributed to their task (table limit reached)", usage.crowded);
        ledger.note(NoteKind::Entries, fact, None);
    }
    let mut out = stdout();
    let mut answer = usage.answer(args.read.name.as_deref());
    let is_json = args.read.analysis.json;
    args.table.write(&mut out, (&mut answer, &TASKS), (is_json, &ledger), |answer, out| {
        let rows = args.read.analysis.screen_rows();
        let view = TopView {
            answer,
            most: args.table.most(rows),
            most_cpus: rows.map_or(usize::MAX, |_| SCREEN_CPUS),
            style: CalledName::get().table_style(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.analysis.close(out, &source, &usage.read.summary, &ledger)
}
