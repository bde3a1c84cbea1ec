//! `kymo syscalls report`: calls, errors and times, and the slowest calls.

use std::process::ExitCode;

use kymo_analysis::syscalls::{
    CallNames, SyscallConfig, SyscallTable, count_syscalls, syscall_notes,
};
use kymo_format::EventFormat;
use kymo_kernel::tracefs::Tracefs;
use kymo_render::syscalls::{errno_name, slowest_arguments, syscall_name, syscall_names};
use kymo_view::Ledger;
use kymo_view::syscalls::{SummaryMode, SyscallView};

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::LiveArgs;
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{MainTable, TableArgs, sort_by};

/// Flags of `kymo syscalls report`.
#[derive(clap::Args)]
#[command(mut_arg("sort", sort_by("total, calls, errors, avg, p99, max", "total")))]
#[command(after_help = "\
Columns are those of perf trace -s plus median and 99th percentile (which exceed the exact value by
at most 1/16) and, with sched_switch, the blocked and runnable time. As in perf, stddev is the
standard error of the mean, in percent. Options for times, CPUs and tasks select calls by their end.
System call numbers are resolved for this machine's architecture.

EXAMPLES
  kymo syscalls report -i perf.data
  kymo syscalls report --summary-mode thread --errno-summary
  kymo syscalls report --calls fsync,fdatasync --slowest 20
  kymo syscalls report --json | jq '.calls[] | {syscall, p99_ns}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Tables: total (all threads) or thread (one per thread, like perf trace -s)
    #[arg(long, value_name = "MODE", default_value = "total")]
    summary_mode: SummaryMode,
    /// Show the number of errors by code
    #[arg(long)]
    errno_summary: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Only these system calls
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    calls: Vec<String>,
    /// Maximum number of slowest calls to show [default: 5; 3 on a terminal]
    #[arg(long, value_name = "N")]
    slowest: Option<usize>,
    /// Show only failed calls among the slowest
    #[arg(long)]
    failed: bool,
    /// Maximum number of threads to show, with --summary-mode total [default: 10; 5 on a terminal]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Show quantiles and a histogram
    #[arg(long)]
    histogram: bool,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(short = 't', long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
}

/// The slowest calls that can be asked for.
const MOST_SLOWEST: usize = 100_000;

const CALLS: MainTable = MainTable {
    answer: "syscalls",
    table: "calls",
    alike: &["threads.calls"],
    aliases: &[
        ("total", "total_ns"),
        ("calls", "count"),
        ("errors", "errors"),
        ("avg", "average_ns"),
        ("p99", "p99_ns"),
        ("max", "max_ns"),
    ],
};

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(&CALLS)?;
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live, &args.pid, &args.tid)?;
    let events = super::record::events(true);
    show_live(&live, &events, false, args, |args| &mut args.read, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let source = args.read.open(&args.symbols)?;
    let architecture = source.architecture();
    let is_screen = args.read.screen_rows().is_some();
    let config = SyscallConfig {
        selection: args.read.selection(&source, &args.pid, &args.tid)?,
        calls: args.calls.clone(),
        slowest: args.slowest.unwrap_or(if is_screen { 2 } else { 5 }).min(MOST_SLOWEST),
        failed_only: args.failed,
        name_of: architecture.as_deref().map_or(syscall_name, syscall_names),
    };
    let table = count_syscalls(&source, &config)?;
    let notes = table.summary.notes(&source).into_iter().chain(syscall_notes(&table));
    let ledger = Ledger::from_notes(notes);
    let arguments = argument_texts(&table, architecture.as_deref());
    let names = CallNames { errno: errno_name, arguments: &arguments };
    let mut answer = table.answer(names, args.table.wants_details(args.histogram));
    let mut out = stdout();
    args.table.write(
        &mut out,
        (&mut answer, &CALLS),
        (args.read.json, &ledger),
        |answer, out| {
            let view = SyscallView {
                answer,
                slowest: &table.slowest,
                most: args.table.most(args.read.screen_rows().map(|rows| rows / 3)),
                columns: args.read.screen_columns(),
                mode: args.summary_mode,
                threads: args.threads.unwrap_or(if is_screen { 4 } else { 10 }),
                histogram: args.histogram,
                errno_summary: args.errno_summary,
                units: args.read.units(),
                recording: source.arguments().to_owned(),
            };
            view.write_text(out, &ledger)
        },
    )?;
    args.read.close(out, &source, &table.summary, &ledger)
}

/// Arguments of the slowest calls. Where a recording has only words, this machine's tracefs
/// describes them, if its calls have the same numbers.
pub(crate) fn argument_texts(table: &SyscallTable, architecture: Option<&str>) -> Vec<String> {
    let tracefs = Tracefs::open().ok();
    slowest_arguments(table, architecture, |name: &str| {
        EventFormat::parse(&tracefs.as_ref()?.event_format("syscalls", name).ok()?).ok()
    })
}
