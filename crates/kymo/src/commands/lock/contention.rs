//! `kymo lock contention`: who waits for locks of the kernel.

use std::process::ExitCode;

use kymo_analysis::locks::{
    CONTENTION_EVENTS, ContentionConfig, FUTEX_EVENTS, LockGroup, RELEASE_EVENT, USUAL_STACK,
    count_contention, count_futexes, futex_notes,
};
use kymo_events::EventSource;
use kymo_render::syscalls::{syscall_name, syscall_names};
use kymo_view::Ledger;
use kymo_view::locks::{ContentionView, FutexView, LockField};
use kymo_view::trust::note_chains;

use super::super::analysis::{AnalysisArgs, show_live, stdout};
use super::super::live::LiveArgs;
use super::{LOCKS, entries, key};
use crate::args::symbols::SymbolArgs;
use crate::args::tables::{MainTable, TableArgs};

/// Flags of `kymo lock contention`.
#[derive(clap::Args)]
#[command(mut_arg("sort", |sort| key(
    sort,
    "contended, wait_total, wait_max, wait_min, avg_wait",
    "wait_total"
)))]
#[command(mut_arg("limit", entries))]
#[command(after_help = "\
Shows a row for each waiting stack, named after its first function that is not a lock function. perf
also skips the first three or four functions of a stack: --stack-skip 3 gives the rows of perf 6.1,
and --stack-skip 4 those of perf 6.3 and later. Options for times, CPUs and tasks select waits by
their start.

EXAMPLES
  kymo lock contention -i perf.data -E 10
  kymo lock contention -l -Y spinlock -k contended
  kymo lock contention --json | jq '.locks[] | select(.p99_ns > 1e5) | {caller, p99_ns}'")]
pub(super) struct Args {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Same as --live, for compatibility with perf
    #[arg(short = 'b', long, conflicts_with_all = ["input", "files", "time"])]
    use_bpf: bool,
    /// Read kernel symbols from this file, in the format of /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<std::path::PathBuf>,
    /// Read kernel symbols from this uncompressed kernel image
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<std::path::PathBuf>,
    /// Only these processes
    #[arg(short = 'p', long, value_name = "PIDS", value_delimiter = ',')]
    pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    tid: Vec<u32>,
    /// Show waits for futexes, with the stacks of waiters and wakers
    ///
    /// By address; needs `kymo lock record --futex`, or a recording of `raw_syscalls:*`.
    #[arg(long, conflicts_with_all = [
        "threads", "lock_addr", "field_separator", "type_filter", "lock_filter", "callstack_filter"
    ])]
    futex: bool,
    /// Number of waker stacks to show
    ///
    /// With --futex, or with a recording of `kymo lock record --wakers`.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pairs: usize,
    /// Show a row for each task
    #[arg(short = 't', long, conflicts_with = "lock_addr")]
    threads: bool,
    /// Show a row for each lock
    #[arg(short = 'l', long)]
    lock_addr: bool,
    #[command(flatten)]
    table: TableArgs,
    /// Columns: contended, acquired, wait_total, wait_max, wait_min, avg_wait
    #[arg(
        short = 'F',
        long,
        value_name = "FIELDS",
        value_delimiter = ',',
        default_value = "contended,wait_total,wait_max,avg_wait"
    )]
    field: Vec<LockField>,
    /// Show the stacks of rows
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Write CSV with this separator
    #[arg(short = 'x', long, value_name = "SEP", conflicts_with = "json")]
    field_separator: Option<String>,
    /// Only locks of these types: spinlock, mutex, rwsem, rwsem:R, …
    #[arg(short = 'Y', long, value_name = "TYPES", value_delimiter = ',')]
    type_filter: Vec<String>,
    /// Only these locks, by address or symbol
    #[arg(short = 'L', long, value_name = "LOCKS", value_delimiter = ',')]
    lock_filter: Vec<String>,
    /// Only waits with a matching function name in their stack
    #[arg(short = 'S', long, value_name = "NAMES", value_delimiter = ',')]
    callstack_filter: Vec<String>,
    /// Same as --cgroup, for compatibility with perf
    #[arg(short = 'G', long, value_name = "CGROUPS", value_delimiter = ',')]
    cgroup_filter: Vec<String>,
    /// Number of frames of each stack to inspect
    #[arg(long, value_name = "N", default_value_t = USUAL_STACK)]
    max_stack: usize,
    /// Number of frames to skip in each stack, before lock functions are skipped
    #[arg(long, value_name = "N", default_value_t = 0)]
    stack_skip: usize,
}

const FUTEXES: MainTable = MainTable {
    answer: "lock_futex",
    table: "futexes",
    alike: &[],
    aliases: &[
        ("contended", "count"),
        ("acquired", "count"),
        ("wait_total", "total_ns"),
        ("wait_max", "max_ns"),
        ("wait_min", "max_ns"),
        ("avg_wait", "average_ns"),
    ],
};

pub(super) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.table.check(if args.futex { &FUTEXES } else { &LOCKS })?;
    if args.use_bpf {
        args.live.choose();
    }
    args.read.cgroup.append(&mut args.cgroup_filter);
    let Some(live) = args.live.take() else { return show(&args) };
    args.read.watch(&live, &args.pid, &args.tid)?;
    if !args.futex {
        super::record::check()?;
    }
    let events = super::record::events(args.futex, false);
    show_live(&live, &events, true, args, |args| &mut args.read, show)
}

fn show(args: &Args) -> anyhow::Result<ExitCode> {
    let symbols = SymbolArgs {
        kallsyms: args.kallsyms.clone(),
        vmlinux: args.vmlinux.clone(),
        ..SymbolArgs::default()
    };
    let source = args.read.open(&symbols)?;
    if args.futex || has_futexes_alone(args, &source) {
        return run_futex(args, &source);
    }
    let group = match (args.threads, args.lock_addr) {
        (true, _) => LockGroup::Task,
        (_, true) => LockGroup::Address,
        _ => LockGroup::Caller,
    };
    let config = ContentionConfig {
        selection: args.read.selection(&source, &args.pid, &args.tid)?,
        group,
        stack_skip: args.stack_skip,
        max_stack: args.max_stack,
        types: args.type_filter.clone(),
        locks: args.lock_filter.clone(),
        functions: args.callstack_filter.clone(),
        pairs: args.pairs > 0 && has_wakers(&source),
    };
    let table = count_contention(&source, &config)?;
    let ledger = super::ledger(&source, &table);
    let mut out = stdout();
    let mut answer = table.answer(group);
    args.table.write(
        &mut out,
        (&mut answer, &LOCKS),
        (args.read.json, &ledger),
        |answer, out| {
            let view = ContentionView {
                answer,
                fields: &args.field,
                most: args.table.most(args.read.screen_rows()),
                stacks: args.verbose,
                pairs: args.pairs,
                separator: args.field_separator.as_deref(),
                recording: source.arguments().to_owned(),
            };
            view.write_text(out, &ledger)
        },
    )?;
    args.read.close(out, &source, &table.summary, &ledger)
}

/// Whether a recording has wakers; a pipe reports its events while it is read.
fn has_wakers(source: &EventSource) -> bool {
    source.is_piped() || source.classes().iter().any(|class| class.is_named(RELEASE_EVENT))
}

/// Whether there is nothing to show but futexes, and no question that they have no answer to.
fn has_futexes_alone(args: &Args, source: &EventSource) -> bool {
    let has = |names: &[&str]| {
        source.classes().iter().any(|class| names.iter().any(|name| class.is_named(name)))
    };
    let is_plain = !args.threads
        && !args.lock_addr
        && args.field_separator.is_none()
        && [&args.type_filter, &args.lock_filter, &args.callstack_filter]
            .iter()
            .all(|l| l.is_empty());
    is_plain && !source.is_piped() && has(&FUTEX_EVENTS[..1]) && !has(&CONTENTION_EVENTS)
}

fn run_futex(args: &Args, source: &EventSource) -> anyhow::Result<ExitCode> {
    let selection = args.read.selection(source, &args.pid, &args.tid)?;
    let architecture = source.architecture();
    let name_of: fn(i64) -> _ = architecture.as_deref().map_or(syscall_name, syscall_names);
    let table = count_futexes(source, &selection, name_of)?;
    let notes = table.summary.notes(source).into_iter().chain(futex_notes(&table));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&table.summary, &mut ledger);
    let mut answer = table.answer();
    let mut out = stdout();
    args.table.write(
        &mut out,
        (&mut answer, &FUTEXES),
        (args.read.json, &ledger),
        |answer, out| {
            let most = args.table.most(args.read.screen_rows());
            FutexView { answer, most, pairs: args.pairs }.write_text(out, &ledger)
        },
    )?;
    args.read.close(out, source, &table.summary, &ledger)
}
