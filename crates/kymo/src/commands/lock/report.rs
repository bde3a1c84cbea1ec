//! `kymo lock report` and `kymo lock info`: locks and threads of a recording.

use std::process::ExitCode;

use kymo_analysis::locks::{
    ContentionConfig, ContentionTable, LOCKDEP_EVENTS, LockGroup, USUAL_STACK, count_contention,
    count_lockdep,
};
use kymo_events::EventSource;
use kymo_view::locks::{LockField, LockReportView, write_lock_info};

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::event_recording::has_event;
use super::super::live::LiveArgs;
use super::{LOCKS, entries, key};
use crate::args::symbols::SymbolArgs;
use crate::args::tables::TableArgs;

/// Flags of `kymo lock report`.
#[derive(clap::Args)]
#[command(mut_arg("sort", |sort| key(
    sort,
    "acquired, contended, avg_wait, wait_total, wait_max, wait_min",
    "acquired"
)))]
#[command(mut_arg("limit", entries))]
#[command(after_help = "\
Shows a row for each lock. With lock debugging (lockdep), these are all acquired locks, by class.
Without it, only contended locks, named after the first caller that waited; acquired is then the
number of waits that ended.

EXAMPLES
  kymo lock report -k wait_total -E 10
  kymo lock report -t")]
pub(super) struct ReportArgs {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Show a row for each task
    #[arg(short = 't', long)]
    threads: bool,
    /// One row per lock class, or per first caller
    #[arg(short = 'c', long, conflicts_with = "threads")]
    combine_locks: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Columns
    #[arg(
        short = 'F',
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "acquired,contended,avg_wait,wait_total,wait_max,wait_min"
    )]
    field: Vec<LockField>,
}

/// Flags of `kymo lock info`.
#[derive(clap::Args)]
pub(super) struct InfoArgs {
    #[command(flatten)]
    read: AnalysisArgs,
    /// Show the threads
    #[arg(short = 't', long, conflicts_with = "map")]
    threads: bool,
    /// Show the locks: address and name
    #[arg(short = 'm', long)]
    map: bool,
}

/// Whether there are events of every lock that was taken. What is read once cannot be asked; what
/// happens now, this kernel has or not.
fn has_lockdep(source: &EventSource) -> bool {
    if source.is_piped() {
        has_event(LOCKDEP_EVENTS[0]) && source.name().is_empty()
    } else {
        source.classes().iter().any(|c| c.is_named(LOCKDEP_EVENTS[0]))
    }
}

fn count(
    read: &AnalysisArgs,
    tasks: bool,
) -> anyhow::Result<(EventSource, ContentionTable, LockGroup)> {
    let source = read.open(&SymbolArgs::default())?;
    let group = if tasks { LockGroup::Task } else { LockGroup::Address };
    let config = ContentionConfig {
        selection: read.selection(&source, &[], &[])?,
        group,
        max_stack: USUAL_STACK,
        ..ContentionConfig::default()
    };
    let table = if has_lockdep(&source) {
        count_lockdep(&source, &config)?
    } else {
        count_contention(&source, &config)?
    };
    Ok((source, table, group))
}

pub(super) fn run_report(mut args: ReportArgs) -> anyhow::Result<ExitCode> {
    args.table.check(&LOCKS)?;
    let Some(live) = args.live.take() else { return show_report(&args) };
    args.read.watch(&live, &[], &[])?;
    super::record::check()?;
    let events = super::record::events(false, false);
    show_live(&live, &events, true, args, |args| &mut args.read, show_report)
}

fn show_report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let (source, mut table, group) = count(&args.read, args.threads)?;
    if args.combine_locks {
        table.combine_names();
    }
    let mut ledger = super::ledger(&source, &table);
    super::note_lockdep(&table, &mut ledger);
    let mut out = stdout();
    let mut answer = table.answer(group);
    args.table.write(
        &mut out,
        (&mut answer, &LOCKS),
        (args.read.json, &ledger),
        |answer, out| {
            let most = args.table.most(args.read.screen_rows());
            LockReportView { answer, of: table.of, fields: &args.field, most }
                .write_text(out, &ledger)
        },
    )?;
    args.read.close(out, &source, &table.summary, &ledger)
}

pub(super) fn run_info(args: &InfoArgs) -> anyhow::Result<ExitCode> {
    let tasks = args.threads || !args.map;
    let (source, table, _) = count(&args.read, tasks)?;
    let mut ledger = super::ledger(&source, &table);
    super::note_lockdep(&table, &mut ledger);
    let mut out = stdout();
    let answer = table.info(tasks);
    if args.read.json {
        answer.write_json(&mut out)?
    } else {
        write_lock_info(&mut out, &answer, &ledger)?
    }
    args.read.close(out, &source, &table.summary, &ledger)
}
