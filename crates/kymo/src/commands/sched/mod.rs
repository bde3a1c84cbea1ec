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
Recordings are perf.data (of perf sched record, too), trace.dat or directories of LTTng's kernel
traces. sched_switch is needed, sched_waking or sched_wakeup for delays after wake-ups,
sched_wakeup_new for those of new tasks. All CPUs have to be recorded: a task may be woken and go
on anywhere.

WORDS
  run time          on a CPU
  wait time         between two runs: asleep, preempted, or waiting for a CPU after a wake-up
  scheduling delay  the part of it in which the task could have run

EXAMPLES
  kymo sched record -- make -j4            everything that runs meanwhile, into perf.data
  kymo sched record -o x.dat -- make -j4   the same into a trace.dat, at a fraction of the cost
  kymo sched latency                       who waits longest for a CPU
  kymo sched latency -p --causes           by task; after wake-ups and preemptions apart
  kymo sched latency --live -- sleep 10    the same while it happens, without a recording
  kymo sched timehist --state -w           each run and the wait before it, and wake-ups
  kymo sched timehist --live -- sleep 1    each run while it happens
  kymo sched map                           what each CPU runs
  kymo sched stats -- make -j4             the scheduler's own counters meanwhile")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record the scheduler's events of the machine
    Record(Box<record::Args>),
    /// Show how long tasks waited for a CPU
    #[command(visible_alias = "lat")]
    Latency(latency::Args),
    /// Show each run of a task and the wait before it
    #[command(disable_version_flag = true)]
    Timehist(Box<timehist::Args>),
    /// Show which task each CPU ran
    Map(map::Args),
    /// Show what the scheduler counts itself: switches, wake-ups, load balancing
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

/// What the readers and the state machine have to say.
fn ledger(source: &EventSource, read: &SchedRead) -> Ledger {
    let notes =
        read.summary.notes(source).into_iter().chain(sched_notes(read, "kymo sched record"));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&read.summary, &mut ledger);
    ledger
}

/// The same of events that were taken while they happened.
fn live_ledger(read: &SchedRead, outcome: LiveOutcome) -> Ledger {
    let notes = read.summary.live_notes().into_iter().chain(sched_notes(read, "kymo sched record"));
    let mut ledger = Ledger::from_notes(notes.chain(outcome.notes));
    note_chains(&read.summary, &mut ledger);
    ledger
}
