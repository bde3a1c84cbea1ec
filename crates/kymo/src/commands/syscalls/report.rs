//! `kymo syscalls report`: calls, errors and times, and the slowest calls.

use std::process::ExitCode;

use kymo_analysis::syscalls::{
    CallNames, SlowCall, SyscallConfig, SyscallTable, count_syscalls, syscall_notes,
};
use kymo_format::EventFormat;
use kymo_kernel::tracefs::Tracefs;
use kymo_render::syscalls::{CallDescriptions, errno_name, syscall_name, syscall_names};
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
Columns are those of perf trace -s, with the median and the 99th percentile (at most a sixteenth
above the truth), and the time in which calls waited for something or for a CPU, where the recording
has sched_switch. stddev is perf's: the standard error of the mean, in percent. A call counts by the
time, CPU and task of its end. Numbers of calls are those of this machine's architecture.

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
    /// Tables: total (of all threads together) or thread (one for each, as perf trace -s)
    #[arg(long, value_name = "MODE", default_value = "total")]
    summary_mode: SummaryMode,
    /// Show how often which error came
    #[arg(long)]
    errno_summary: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Only these system calls
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    calls: Vec<String>,
    /// Slowest calls to show at most
    #[arg(long, value_name = "N", default_value_t = 5)]
    slowest: usize,
    /// Only calls that failed are among the slowest
    #[arg(long)]
    failed: bool,
    /// Threads to show at most, with --summary-mode total
    #[arg(long, value_name = "N", default_value_t = 10)]
    threads: usize,
    /// Show how times are spread, too: quantiles, and a row for each doubling
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
    let config = SyscallConfig {
        selection: args.read.selection(&source, &args.pid, &args.tid)?,
        calls: args.calls.clone(),
        slowest: args.slowest.min(MOST_SLOWEST),
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
                most: args.table.most(args.read.screen_rows().map(|rows| rows * 3 / 5)),
                mode: args.summary_mode,
                threads: args.threads,
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

/// Arguments of the slowest calls. Where a recording has words alone, this machine's tracefs
/// says what they are, if its calls have the same numbers.
fn argument_texts(table: &SyscallTable, architecture: Option<&str>) -> Vec<String> {
    let is_described = architecture.is_none_or(|name| name == std::env::consts::ARCH);
    let tracefs = Tracefs::open().ok();
    let mut described = CallDescriptions::new(|name: &str| {
        EventFormat::parse(&tracefs.as_ref()?.event_format("syscalls", name).ok()?).ok()
    });
    let mut text = |slow: &SlowCall| {
        let info = table.infos.get(slow.call.0 as usize)?;
        let words = &slow.arguments.words;
        let Some(count) = slow.arguments.count else {
            let number = info.number.filter(|_| is_described);
            let described = number.and_then(|number| described.arguments(number, words));
            return Some(described.unwrap_or_else(|| "…".to_owned()));
        };
        let value = |(n, word): (usize, &u64)| {
            let (name, is_address) = info.arguments.get(n)?;
            let text = slow.arguments.texts.iter().find(|(at, _)| *at == n);
            Some(match text {
                Some((_, text)) => format!("{name}={text:?}"),
                None if *is_address => format!("{name}={word:#x}"),
                None => format!("{name}={}", *word as i64),
            })
        };
        let values: Vec<String> = words.iter().take(count).enumerate().filter_map(value).collect();
        Some(values.join(", "))
    };
    table.slowest.iter().map(|slow| text(slow).unwrap_or_default()).collect()
}
