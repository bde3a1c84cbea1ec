//! `kymo lock report` and `kymo lock info`: locks and threads of a recording.

use std::process::ExitCode;

use kymo_analysis::locks::{
    ContentionConfig, ContentionTable, LOCKDEP_EVENTS, LockGroup, count_contention, count_lockdep,
};
use kymo_events::EventSource;
use kymo_view::locks::{ContentionView, LockColumn, LockReportView};

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::event_recording::has_event;
use super::super::live::LiveArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo lock report`.
#[derive(clap::Args)]
#[command(after_help = "\
A row for each lock: of kernels with lock debugging (lockdep) every lock that was taken, by its
class. Of others only those that were waited for, named by who did first: acquired is how often a
wait ended.

EXAMPLES
  kymo lock report -k wait_total -E 10
  kymo lock report -t")]
pub(super) struct ReportArgs {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// A row for each task
    #[arg(short = 't', long)]
    threads: bool,
    /// One row for the locks of one class, or those that one caller waited for first
    #[arg(short = 'c', long, conflicts_with = "threads")]
    combine_locks: bool,
    /// Sort by this: acquired, contended, avg_wait, wait_total, wait_max, wait_min
    #[arg(short = 'k', long, value_name = "KEY", default_value = "acquired")]
    key: LockColumn,
    /// Columns
    #[arg(
        short = 'F',
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "acquired,contended,avg_wait,wait_total,wait_max,wait_min"
    )]
    field: Vec<LockColumn>,
    /// Rows at most
    #[arg(short = 'E', long, value_name = "N")]
    entries: Option<usize>,
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
    match source.is_piped() {
        true => has_event(LOCKDEP_EVENTS[0]) && source.name().is_empty(),
        false => source.classes().iter().any(|c| c.is_named(LOCKDEP_EVENTS[0])),
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
        max_stack: 8,
        ..ContentionConfig::default()
    };
    let table = match has_lockdep(&source) {
        true => count_lockdep(&source, &config)?,
        false => count_contention(&source, &config)?,
    };
    Ok((source, table, group))
}

pub(super) fn run_report(mut args: ReportArgs) -> anyhow::Result<ExitCode> {
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
    let entries = args.entries.or(args.read.screen_rows()).unwrap_or(usize::MAX);
    let mut out = stdout();
    if args.read.json {
        let view = ContentionView {
            table: &table,
            group,
            columns: Vec::new(),
            key: args.key,
            entries,
            stacks: false,
            pairs: 0,
            separator: None,
            recording: String::new(),
        };
        view.write_json(&mut out)?;
    } else {
        let view = LockReportView {
            table: &table,
            tasks: args.threads,
            columns: args.field.clone(),
            key: args.key,
            entries,
        };
        view.write_text(&mut out, &ledger)?;
    }
    args.read.close(out, &source, &table.summary, &ledger)
}

pub(super) fn run_info(args: &InfoArgs) -> anyhow::Result<ExitCode> {
    let tasks = args.threads || !args.map;
    let (source, table, _) = count(&args.read, tasks)?;
    let mut ledger = super::ledger(&source, &table);
    super::note_lockdep(&table, &mut ledger);
    let mut out = stdout();
    let view = LockReportView {
        table: &table,
        tasks,
        columns: Vec::new(),
        key: LockColumn::Contended,
        entries: usize::MAX,
    };
    match args.read.json {
        true => view.write_info_json(&mut out)?,
        false => view.write_info(&mut out, &ledger)?,
    }
    args.read.close(out, &source, &table.summary, &ledger)
}
