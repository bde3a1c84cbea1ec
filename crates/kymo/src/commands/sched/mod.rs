//! `kymo sched`: who runs, who waits for a CPU and why; `record` chooses the events, the
//! others read them out of recordings of any format.

mod latency;
mod live;
mod map;
mod record;
mod stats;
mod timehist;

use std::process::ExitCode;

use clap::Subcommand;
use kymo_analysis::tasks::{SchedRead, sched_notes};
use kymo_events::EventSource;
use kymo_view::Ledger;
use kymo_view::trust::note_chains;

use self::live::LiveOutcome;
use super::analysis::{AnalysisArgs, stdout};

/// Flags of `kymo sched`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Reads perf.data (also from perf sched record), trace.dat, and directories of LTTng kernel traces.
They need sched_switch of all CPUs; delays after wake-ups also need sched_waking or sched_wakeup,
and those of new tasks sched_wakeup_new.

WORDS
  run time          time on a CPU
  wait time         time between two runs: blocked, preempted, or runnable after a wake-up
  scheduling delay  part of the wait time in which the task was runnable

EXAMPLES
  kymo sched record -- make -j4            the whole machine, into perf.data
  kymo sched record -o x.dat -- make -j4   the same into a trace.dat, with lower overhead
  kymo sched latency                       tasks that wait longest for a CPU
  kymo sched latency -p --causes           by task; wake-ups and preemptions separately
  kymo sched latency --live -- sleep 10    live, without a recording
  kymo sched timehist --state -w           each run, the wait before it, and wake-ups
  kymo sched timehist --live -- sleep 1    each run, live
  kymo sched map                           the running task of each CPU
  kymo sched stats -- make -j4             the scheduler's own counters")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record scheduler events of the whole machine
    Record(Box<record::Args>),
    /// Show how long tasks waited for a CPU
    #[command(visible_alias = "lat")]
    Latency(latency::Args),
    /// Show each run of a task and the wait before it
    #[command(disable_version_flag = true)]
    Timehist(Box<timehist::Args>),
    /// Show which task each CPU ran
    Map(map::Args),
    /// Show the scheduler's own counters: switches, wake-ups, load balancing
    Stats(Box<stats::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(&args),
        Action::Latency(args) => latency::run(args),
        Action::Timehist(args) => timehist::run(*args),
        Action::Map(args) => map::run(args),
        Action::Stats(args) => stats::run(&args),
    }
}

/// Builds the ledger from the notes of the readers and the state machine.
fn ledger(source: &EventSource, read: &SchedRead) -> Ledger {
    let notes =
        read.summary.notes(source).into_iter().chain(sched_notes(read, "kymo sched record"));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&read.summary, &mut ledger);
    ledger
}

/// Builds the ledger of a live capture.
fn live_ledger(read: &SchedRead, outcome: LiveOutcome) -> Ledger {
    let notes = read.summary.live_notes().into_iter().chain(sched_notes(read, "kymo sched record"));
    let mut ledger = Ledger::from_notes(notes.chain(outcome.notes));
    note_chains(&read.summary, &mut ledger);
    ledger
}
