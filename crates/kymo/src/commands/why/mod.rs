//! `kymo why`: the critical path of a task, of a time, or of spans of a program's events; `record`
//! chooses the events.

mod record;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use kymo_analysis::critical_path::{
    PathConfig, PathKind, PathSegment, PathTable, PathTarget, SpanExpr, find_paths, path_notes,
};
use kymo_events::{EventSelection, EventSource, RecordedExtent};
use kymo_kernel::cpu_quota::ThrottledCgroup;
use kymo_record::CallGraph;
use kymo_view::Ledger;
use kymo_view::critical_path::PathView;
use kymo_view::trust::note_chains;

use super::analysis::{AnalysisArgs, stdout};
use super::cpu_quotas::{quota_notes, unseen_quota_note, watch_quotas};
use super::live::{LiveArgs, WatchArgs};
use super::page_command::become_view;
use super::scratch::ScratchDirectory;
use crate::args::symbols::SymbolArgs;
use crate::args::values::call_graph;

/// Flags of `kymo why`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
kymo follows the path backwards from the end. Where the task ran or waited for a CPU, that time is
on the path. Where it was blocked, the path continues in the task that woke it. A wait that an
interrupt ended (timer, disk, network) is itself on the path. The parts of a path add up to its
duration.

Reads perf.data, trace.dat, and directories of LTTng kernel traces. They need sched_switch and
sched_waking of all CPUs, with stacks for the causes of blocking (`kymo offcpu record` records the
same events). Span events may come from another recording of the same machine.

Default: the recorded command; with -a, the task that ran longest.

EXAMPLES
  kymo why -- ./server --once                critical path of a command
  kymo why -p 4711 --timeout 5000            a process, for five seconds from now
  kymo why -a --timeout 5000                 the task that runs longest on this machine
  kymo why record -- ./server --once         record first,
  kymo why                                   then analyze
  kymo why --tid 4711 --time 12.5,12.9       thread 4711 in this time range
  kymo why --span 'shop:order -> shop:paid by id' --slowest 3 perf.data shop-trace/
                                             the slowest requests of a program
  kymo why record -e syscalls:sys_enter_fsync,syscalls:sys_exit_fsync -- ./db
  kymo why --span 'syscalls:sys_enter_fsync -> syscalls:sys_exit_fsync'"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    path: PathArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Record switches and wake-ups of the machine with their stacks
    Record(Box<record::Args>),
}

/// Flags of the path.
#[derive(clap::Args)]
struct PathArgs {
    #[command(flatten)]
    read: AnalysisArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Thread to analyze
    #[arg(short = 't', long, value_name = "TID", conflicts_with_all = ["pid", "comm", "span"])]
    tid: Option<u32>,
    /// Process to analyze (its first thread)
    #[arg(short = 'p', long, value_name = "PID", conflicts_with_all = ["comm", "span"])]
    pid: Option<u32>,
    /// Spans of a program's events: `A -> B by FIELD`
    #[arg(long, value_name = "SPAN", conflicts_with = "comm")]
    span: Option<String>,
    /// Number of slowest spans to show
    #[arg(long, value_name = "N", default_value_t = 5, requires = "span")]
    slowest: usize,
    /// Call chain recording mode of a live capture: fp, dwarf[,BYTES]
    #[arg(long, value_name = "MODE", value_parser = call_graph, conflicts_with_all = ["input", "files", "time"])]
    call_graph: Option<CallGraph>,
    #[command(flatten)]
    live: LiveArgs,
    /// Whether the default path is system-wide, not that of a command
    #[arg(skip)]
    is_of_machine: bool,
    /// Process of the command that was just recorded
    #[arg(skip)]
    child: Option<u32>,
    /// Cgroups whose CPU quota was used up meanwhile
    #[arg(skip)]
    throttled: Vec<ThrottledCgroup>,
    /// Also show the longest path in the browser (`kymo view`), until Ctrl-C
    #[arg(long, conflicts_with_all = ["live", "all_cpus", "timeout", "command"])]
    view: bool,
    /// Number of parts to show with their stacks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4)]
    parts: usize,
}

/// Most spans whose paths are kept.
const MOST_SPANS: usize = 1000;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Some(Action::Record(args)) => record::run(*args),
        None => {
            let mut path = args.path;
            match path.live.take() {
                Some(watch) => record_and_show(path, &watch),
                None => show(&path),
            }
        }
    }
}

/// A path is read several times: what is recorded goes through a file.
fn record_and_show(mut args: PathArgs, watch: &WatchArgs) -> anyhow::Result<ExitCode> {
    args.is_of_machine = watch.is_of_machine();
    args.read.watch_tasks(watch, args.pid.as_slice(), args.tid.as_slice())?;
    let span = args.span.as_deref().map(SpanExpr::parse).transpose()?;
    let events = span.map_or_else(Vec::new, |span| span.events().map(str::to_owned).to_vec());
    let directory = ScratchDirectory::new(true)?;
    let spawned = Arc::new(OnceLock::new());
    let quotas = watch_quotas(args.pid.as_slice(), args.tid.as_slice());
    let to = (directory.file(), Arc::clone(&spawned), args.read.chosen());
    let recorded = record::watched(events, watch, args.call_graph, to)?;
    args.child = spawned.get().copied();
    args.throttled = quotas.throttled();
    args.read.set_live(directory.file())?;
    // What is wrong with the path weighs more than how the command ended.
    let shown = show(&args)?;
    Ok(if shown == ExitCode::SUCCESS { recorded } else { shown })
}

fn show(args: &PathArgs) -> anyhow::Result<ExitCode> {
    if args.read.cpu.is_some() {
        bail!("--cpu does not apply to a path: it covers all CPUs");
    }
    if !args.read.cgroup.is_empty() {
        bail!("--cgroup does not apply to a path: it covers all tasks");
    }
    let source = args.read.open(&args.symbols)?;
    if source.is_piped() {
        bail!("a path is read several times, which a pipe cannot be: write it to a file");
    }
    let config = PathConfig { target: target(args, &source)?, times: times(args, &source)? };
    let table = find_paths(&source, &config)?;
    if let PathTarget::Command(command) = &config.target {
        command.found().context(WHICH_TASK)?;
    }
    let notes = table.read.summary.notes(&source).into_iter().chain(path_notes(&table));
    let mut ledger = Ledger::from_notes(notes);
    note_chains(&table.read.summary, &mut ledger);
    if table.paths.is_empty() && args.span.is_none() {
        note_tasks(args, &table, &mut ledger);
    }
    let unseen = unseen_quota_note(longest_wait(&table), "kymo why --live");
    let quotas =
        quota_notes(&args.throttled).into_iter().chain(unseen.filter(|_| !args.read.is_live()));
    quotas.for_each(|note| ledger.push(note));
    let mut out = stdout();
    if args.read.json {
        table.answer(source.arguments()).write_json(&mut out)?;
    } else {
        let view = PathView {
            table: &table,
            worst: args.parts,
            columns: args.read.screen_columns(),
            units: args.read.units(),
            recording: source.arguments().to_owned(),
        };
        view.write_text(&mut out, &ledger)?;
    }
    let status = args.read.close(out, &source, &table.read.summary, &ledger)?;
    if let Some(path) = table.paths.first().filter(|_| args.view) {
        let tid = table.task(path.task).map(|t| t.tid);
        match become_view(Path::new(source.name()), Some((path.from, path.to)), tid)? {}
    }
    Ok(if table.paths.is_empty() { ExitCode::FAILURE } else { status })
}

/// The longest wait for a CPU on a path, of those that no stack explains.
fn longest_wait(table: &PathTable) -> Option<u64> {
    let segments = table.paths.iter().flat_map(|path| &path.segments);
    let waits = segments.filter(|s| matches!(s.kind, PathKind::Waiting(_)) && s.stack.is_none());
    waits.map(PathSegment::nanos).max()
}

/// Notes which tasks there are where the chosen one is not.
fn note_tasks(args: &PathArgs, table: &PathTable, ledger: &mut Ledger) {
    let (pids, tids) = (args.pid.into_iter().collect(), args.tid.into_iter().collect());
    let events = EventSelection::of_tasks(args.read.comm.clone(), pids, tids);
    for task in &table.tasks {
        events.wants_task(task.pid, Some(task.tid), &task.comm);
    }
    let notes = events.unmet_notes(RecordedExtent::default);
    notes.into_iter().for_each(|note| ledger.push(note));
}

/// The one span of time.
fn times(args: &PathArgs, source: &EventSource) -> anyhow::Result<Option<(u64, u64)>> {
    let selection = args.read.selection(source, &[], &[])?;
    match selection.times.as_slice() {
        [] => Ok(None),
        [times] => Ok(Some(*times)),
        _ => bail!("a path has one --time START,STOP"),
    }
}

fn target(args: &PathArgs, source: &EventSource) -> anyhow::Result<PathTarget> {
    if let Some(span) = &args.span {
        let expr = SpanExpr::parse(span)?;
        let mut events = EventSelection::default();
        events.set_events(&expr.events().map(str::to_owned))?;
        source.check_events(&events)?;
        return Ok(PathTarget::Spans(Box::new(expr), args.slowest.clamp(1, MOST_SPANS)));
    }
    match (args.tid, args.pid, args.read.comm.as_slice()) {
        (Some(tid), ..) => Ok(PathTarget::Thread(tid)),
        (_, Some(pid), _) => Ok(PathTarget::Process(pid)),
        (_, _, [comm]) => Ok(PathTarget::Comm(comm.clone())),
        (_, _, []) if args.is_of_machine => Ok(PathTarget::Busiest(std::process::id())),
        (_, _, []) => recorded_command(source, args.child),
        _ => bail!("a path is of one task: name one --comm"),
    }
}

const WHICH_TASK: &str = "which task? name --tid, --pid or --comm (kymo offcpu report --tasks \
                          lists them), or a --span of events";

/// The command that was recorded.
fn recorded_command(source: &EventSource, child: Option<u32>) -> anyhow::Result<PathTarget> {
    Ok(PathTarget::Command(source.watch_command(child).context(WHICH_TASK)?))
}
