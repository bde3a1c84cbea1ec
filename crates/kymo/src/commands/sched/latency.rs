//! `kymo sched latency`: how long tasks waited for a CPU.

use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::tasks::{LatencyConfig, LatencyTable, SchedSelection};
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::sched::LatencyView;

use super::super::cpu_quotas::{may_be_of, quota_notes, unseen_quota_note, watch_quotas};
use super::super::live::{LiveArgs, WatchArgs};
use super::AnalysisArgs;
use super::live::{LiveOutcome, LiveStep, watch};
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{MainTable, TableArgs, sort_by};
use crate::called_name::CalledName;
use crate::exit;

/// Flags of `kymo sched latency`.
#[derive(clap::Args)]
#[command(mut_arg(
    "sort",
    sort_by("runtime, switch, avg, max, p99, migrations, pid", "avg,max,switch,runtime",)
))]
#[command(after_help = "\
Switches: the number of times a task got a CPU. Delays: the time from runnable to running, after a
wake-up, a preemption or a fork. Averages exclude waits whose start is not in the recording. -C and
--time select waits by their end. Quantiles exceed the exact value by at most 1/16.

With --live or a command, kymo analyzes the events of all CPUs as they happen and writes no file;
the ledger states the CPU time that this took. Waits that ended before kymo noticed a loss of events
are not marked as affected.

EXAMPLES
  kymo sched latency -i perf.data
  kymo sched latency -p --causes --sort p99
  kymo sched latency -a --timeout 10000
  kymo sched latency -p -- make -j4
  kymo sched latency --json | jq '.tasks[] | {comm, p99: .woken.p99_ns}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Show a row per task instead of per name
    #[arg(short = 'p', long)]
    pids: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Show delays by cause (wake-up, preemption, new), and migrations
    #[arg(long)]
    causes: bool,
    /// Show quantiles and a histogram
    #[arg(long)]
    histogram: bool,
    /// Only these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

const TASKS: MainTable = MainTable {
    answer: "sched_latency",
    table: "tasks",
    alike: &[],
    aliases: &[
        ("runtime", "runtime_ns"),
        ("switch", "switches"),
        ("avg", "delay.average_ns"),
        ("max", "delay.max_ns"),
        ("p99", "delay.p99_ns"),
        ("migrations", "migrations"),
        ("pid", "first_tid"),
    ],
};

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(&TASKS)?;
    let Some(live) = args.live.take() else {
        let first = args.read.files.first().filter(|file| args.pids && !file.exists());
        if let Some(pid) = first.and_then(|file| file.to_str()?.parse::<u32>().ok()) {
            bail!(
                "no recording {pid}: -p gives each task a row, as perf's; --pid {pid} chooses it"
            );
        }
        return show(&args);
    };
    args.read.watch(&live, &args.pid, &args.tid)?;
    run_live(&mut args, &live)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&SymbolArgs::default())?;
    let selection = SchedSelection { events: args.read.selection(&source, &args.pid, &args.tid)? };
    let config = LatencyConfig { selection: &selection, by_task: args.pids };
    let table = LatencyTable::count(&source, &config)?;
    let mut ledger = super::ledger(&source, &table.read);
    note(&table, &mut ledger);
    let longest = table.total.delay.max.map(|(delay, _)| delay);
    unseen_quota_note(longest, "kymo sched latency --live")
        .into_iter()
        .for_each(|n| ledger.push(n));
    let mut out = super::stdout();
    write(args, &table, Some(source.arguments().to_owned()), &ledger, &mut out)?;
    args.read.close(out, &source, &table.read.summary, &ledger)
}

/// Counts what happens until the end.
fn run_live(args: &mut Args, live: &WatchArgs) -> anyhow::Result<ExitCode> {
    let events = args.read.live_selection(&args.pid, &args.tid)?;
    let (args, selection) = (&*args, SchedSelection { events });
    let config = LatencyConfig { selection: &selection, by_task: args.pids };
    let mut outcome = LiveOutcome::of(&selection, args.read.chosen());
    let quotas = watch_quotas(&args.pid, &args.tid);
    let mut table = LatencyTable::count_live(&config, |sink| {
        watch(live, None, &mut outcome, &mut |step| match step {
            LiveStep::Event(event) => sink(event),
            LiveStep::RoundEnd => ControlFlow::Continue(()),
        })
    })?;
    outcome.notes.extend(args.read.live_notes(&selection.events));
    let throttled = quotas.throttled();
    outcome.notes.extend(quota_notes(&throttled));
    if let Some(longest) = &mut table.longest
        && may_be_of(&throttled, longest.tid)
    {
        longest.ran_before = None;
    }
    let exit = outcome.exit;
    let mut ledger = super::live_ledger(&table.read, outcome);
    note(&table, &mut ledger);
    let mut out = super::stdout();
    write(args, &table, None, &ledger, &mut out)?;
    out.flush()?;
    Ok(exit::of_command(exit, &ledger, args.read.strict))
}

fn note(table: &LatencyTable, ledger: &mut Ledger) {
    if !table.has_accounted && table.read.machine.counts.switches > 0 {
        let fact = "run times are those between switches: there is no sched_stat_runtime";
        ledger.tell(NoteKind::Events, fact, None);
    }
    if table.crowded > 0 {
        let fact = format!("{} ended tasks are in one row together", table.crowded);
        ledger.note(NoteKind::Entries, fact, Some("leave out -p".into()));
    }
}

fn write(
    args: &Args,
    table: &LatencyTable,
    recording: Option<String>,
    ledger: &Ledger,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let details = args.table.wants_details(args.histogram);
    let (read, mut answer) = (&args.read, table.answer(details));
    args.table.write(out, (&mut answer, &TASKS), (read.json, ledger), |answer, out| {
        let view = LatencyView {
            answer,
            most: args.table.most(read.screen_rows()),
            columns: read.screen_columns(),
            causes: args.causes,
            histogram: args.histogram,
            style: CalledName::get().table_style(),
            units: read.units(),
            recording,
        };
        view.write_text(out, ledger)
    })
}
