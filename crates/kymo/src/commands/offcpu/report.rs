//! `kymo offcpu report`: where tasks were off CPU, and why.

use std::process::ExitCode;

use kymo_analysis::offcpu::{
    OffCpuConfig, count_off_cpu, count_switch_records, off_cpu_notes, prefers_switch_records,
};
use kymo_analysis::tasks::SchedSelection;
use kymo_view::Ledger;
use kymo_view::offcpu::OffCpuView;
use kymo_view::trust::note_chains;

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::LiveArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{MainTable, TableArgs};

/// Flags of `kymo offcpu report`.
#[derive(clap::Args)]
#[command(mut_arg("sort", |sort| {
    sort.help("Sort keys of tasks: wall, running, waiting, blocked; or columns")
}))]
#[command(mut_arg("limit", |limit| limit.help("Maximum number of tasks to show")))]
#[command(after_help = "\
A wait is the time between two runs of a task. Its part before the wake-up is blocked time, with a
cause derived from the kernel function; the part after it is waiting for a CPU. `blocked` without a
cause: unknown. A wait counts for the CPU on which the task continues; --time truncates waits at its
limits. Quantiles exceed the exact value by at most 1/16.

Recordings of perf's `record --switch-events` have times of waits, but neither stacks nor wake-ups:
what is not `preempted` is `blocked`. Of a recording with events of sched_switch, too, those are
counted, unless the switch records cover more runs of tasks: the events then give stacks and causes.

EXAMPLES
  kymo offcpu report --comm server
  kymo offcpu report --pid 4711 --tasks --inverted
  kymo offcpu report --json | jq '.stacks[] | select(.cause == \"futex\") | {total_ns, stack}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(short = 't', long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    #[command(flatten)]
    table: TableArgs,
    /// Also show the times of each task
    #[arg(long)]
    tasks: bool,
    /// Start stacks with the function that waits
    #[arg(short = 'G', long)]
    inverted: bool,
    /// Hide branches below this percentage of the time off CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    percent_limit: f64,
    /// Maximum number of lines in the tree
    #[arg(short = 'E', long, value_name = "N")]
    entries: Option<usize>,
    /// Number of waiter and waker stack pairs to show [default: 3; none on a terminal]
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
}

const TASKS: MainTable = MainTable {
    answer: "offcpu",
    table: "tasks",
    alike: &[],
    aliases: &[
        ("wall", "wall_ns"),
        ("running", "running_ns"),
        ("waiting", "waiting_ns"),
        ("blocked", "blocked_ns"),
    ],
};

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(&TASKS)?;
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live, &args.pid, &args.tid)?;
    let events = super::record::events();
    show_live(&live, &events, true, args, |args| &mut args.read, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&args.symbols)?;
    let selection = SchedSelection { events: args.read.selection(&source, &args.pid, &args.tid)? };
    let (mut table, notes) = if prefers_switch_records(&source, &selection.events)? {
        count_switch_records(&source, &selection.events)?
    } else {
        let config = OffCpuConfig { selection: &selection, by_task: false };
        let table = count_off_cpu(&source, &config)?;
        let notes = off_cpu_notes(&table);
        (table, notes)
    };
    let mut ledger = Ledger::from_notes(table.read.summary.notes(&source).into_iter().chain(notes));
    note_chains(&table.read.summary, &mut ledger);
    let mut out = stdout();
    let mut answer = table.answer();
    let table_of_tasks = (&mut answer, &TASKS);
    args.table.write(&mut out, table_of_tasks, (args.read.json, &ledger), |answer, out| {
        let mut view = OffCpuView {
            table: &mut table,
            answer,
            inverted: args.inverted,
            percent_limit: args.percent_limit,
            lines: args.entries,
            stack_lines: (args.entries.is_none() && !args.inverted)
                .then(|| args.read.screen_rows().map(|rows| rows / 4))
                .flatten(),
            columns: args.read.screen_columns(),
            pairs: args.pairs.unwrap_or(if args.read.screen_rows().is_some() { 0 } else { 3 }),
            tasks: if args.tasks { args.table.most(None) } else { 0 },
            units: args.read.units(),
            recording: source.arguments().to_owned(),
        };
        view.write_text(out, &ledger)
    })?;
    args.read.close(out, &source, &table.read.summary, &ledger)
}
