//! `kymo lock`: who waits for locks; `record` chooses the events, the others read them out of
//! recordings of any format.

mod contention;
mod record;
mod report;

use std::process::ExitCode;

use clap::{Arg, Subcommand};
use kymo_analysis::locks::{ContentionTable, LockEvents, contention_notes};
use kymo_events::EventSource;
use kymo_model::NoteKind;
use kymo_view::Ledger;
use kymo_view::trust::note_chains;

use crate::args::tables::{MainTable, sort_by};

/// Flags of `kymo lock`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Waits for kernel locks (spinlocks, mutexes, semaphores) come from lock:contention_begin and
lock:contention_end (Linux 5.19 and later). Acquisitions without a wait come from lock:lock_acquire
and related events, which only kernels with lock debugging have (CONFIG_LOCK_STAT); if available,
they are recorded, too, and `kymo lock report` shows every lock.

EXAMPLES
  kymo lock record -- make -j4        waits for kernel locks while make runs
  kymo lock contention                by caller
  kymo lock contention -l -E 10       by lock: the ten with the longest waits
  kymo lock contention -t             by task
  kymo lock record --futex -- ./server; kymo lock contention --futex
                                      locks and condition variables of programs")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Record lock waits of the whole machine
    Record(Box<record::Args>),
    /// Show waits for kernel locks, by caller, task or lock
    #[command(visible_alias = "con")]
    Contention(Box<contention::Args>),
    /// Show how often locks were acquired and contended
    Report(Box<report::ReportArgs>),
    /// Show the threads and the locks of a recording
    Info(Box<report::InfoArgs>),
}

const LOCKS: MainTable = MainTable {
    answer: "lock_contention",
    table: "locks",
    alike: &[],
    aliases: &[
        ("acquired", "acquired"),
        ("contended", "contended"),
        ("wait_total", "total_ns"),
        ("wait_max", "max_ns"),
        ("wait_min", "min_ns"),
        ("avg_wait", "average_ns"),
    ],
};

/// perf's `-k`.
fn key(sort: Arg, keys: &'static str, default: &'static str) -> Arg {
    sort_by(keys, default)(sort).short('k').long("key").visible_alias("sort")
}

/// perf's `-E`.
fn entries(limit: Arg) -> Arg {
    limit.short('E').long("entries").visible_alias("limit")
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Record(args) => record::run(*args),
        Action::Contention(args) => contention::run(*args),
        Action::Report(args) => report::run_report(*args),
        Action::Info(args) => report::run_info(&args),
    }
}

/// Builds the ledger from the notes of the readers and the table.
fn ledger(source: &EventSource, table: &ContentionTable) -> Ledger {
    let notes = table.summary.notes(source).into_iter().chain(contention_notes(table, source));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&table.summary, &mut ledger);
    ledger
}

/// States what locks are counted where no event reports those that were taken without a wait.
fn note_lockdep(table: &ContentionTable, ledger: &mut Ledger) {
    if table.of == LockEvents::Lockdep || table.events == 0 {
        return;
    }
    let fact = "there is no lock:lock_acquire, which kernels without lock debugging do not have: \
                locks that were taken without a wait are not counted";
    ledger.tell(NoteKind::Events, fact, Some("kymo lock contention".to_owned()));
}
