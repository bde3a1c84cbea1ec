//! `kymo lock report` and `kymo lock info`: locks and threads of a recording.

use std::process::ExitCode;

use kymo_analysis::locks::{ContentionConfig, ContentionTable, LockGroup, count_contention};
use kymo_events::EventSource;
use kymo_view::locks::{ContentionView, LockColumn, LockReportView};

use super::super::analysis::{AnalysisArgs, stdout};
use super::super::live::LiveArgs;
use crate::args::symbols::SymbolArgs;

/// Flags of `kymo lock report`.
#[derive(clap::Args)]
#[command(after_help = "\
A row for each lock, named by who waited for it first. Of kernels without lock debugging, locks that
are taken without a wait are not counted: acquired is how often a wait ended.

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
    let table = count_contention(&source, &config)?;
    Ok((source, table, group))
}

pub(super) fn run_report(mut args: ReportArgs) -> anyhow::Result<ExitCode> {
    let Some(live) = args.live.take() else { return show_report(&args) };
    super::record::check()?;
    super::record::with_events(false, false, |events| {
        live.pass_on(events, true, |pipe| {
            args.read.set_live(pipe);
            show_report(&args)
        })
    })
}

fn show_report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let (source, table, group) = count(&args.read, args.threads)?;
    let mut ledger = super::ledger(&source, &table);
    super::note_lockdep(&source, &mut ledger);
    let entries = args.entries.unwrap_or(usize::MAX);
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
        };
        view.write_json(&mut out, &ledger)?;
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
    super::note_lockdep(&source, &mut ledger);
    let mut out = stdout();
    let view = LockReportView {
        table: &table,
        tasks,
        columns: Vec::new(),
        key: LockColumn::Contended,
        entries: usize::MAX,
    };
    match args.read.json {
        true => view.write_info_json(&mut out, &ledger)?,
        false => view.write_info(&mut out, &ledger)?,
    }
    args.read.close(out, &source, &table.summary, &ledger)
}
