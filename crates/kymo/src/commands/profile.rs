//! `kymo profile`: record a command, processes or the machine and say what the time went to,
//! for someone who has never profiled. A recording into a temporary file (or `-o`, or one that
//! was made before), then one pass over it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use kymo_analysis::offcpu::{OffCpuCause, WakerInfo, count_recorded_waits};
use kymo_analysis::profile::{EventProfile, LoadOptions, Profile};
use kymo_events::EventSource;
use kymo_kernel::clock::monotonic_ns;
use kymo_kernel::events::{Catalog, EventSpec, paranoid};
use kymo_kernel::process::program_of;
use kymo_kernel::system::SystemRoot;
use kymo_kernel::target;
use kymo_model::{Note, NoteKind};
use kymo_record::{CallGraph, Output, RecordOptions, RecordSummary, Target, record};
use kymo_symbols::unwind::keeps_frame_pointers;
use kymo_view::profile_page::{CommandRun, ProfileTimes, build_page, page_ledger};
use rustc_hash::FxHashMap;

use super::page_command::become_view;
use super::scratch::ScratchDirectory;
use crate::args::symbols::DebuginfodArgs;
use crate::args::values::{call_graph, millis};
use crate::exit;

/// Flags of `kymo profile`.
#[derive(clap::Args)]
#[command(after_help = "\
EXAMPLES
  kymo profile -- gzip -9 -c /usr/bin/perl > /dev/null
  kymo profile -p 1234 --timeout 5000    a process and its children, for five seconds
  kymo profile -a                        the machine, until Ctrl-C
  kymo profile --cgroup system.slice/postgresql.service --timeout 10000
  kymo profile -i perf.data              what `kymo profile -o perf.data` recorded")]
pub(crate) struct Args {
    /// Keep the recording in FILE (perf.data format) for `kymo report` and `kymo script`
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show a recording that `kymo profile -o` made, and record nothing
    #[arg(short, long, value_name = "FILE",
          conflicts_with_all = ["output", "pid", "cgroup", "all_cpus", "timeout", "command"])]
    input: Option<PathBuf>,

    /// These processes with their threads and all that descend from them, until they end or
    /// Ctrl-C
    #[arg(short, long, value_name = "PID,…", conflicts_with_all = ["all_cpus", "command"])]
    pid: Option<String>,

    /// The processes that are in this cgroup, or in one below it, and all that descend from them
    /// (a path below the cgroup mount)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "all_cpus", "command"])]
    cgroup: Option<String>,

    /// All processes that run, until Ctrl-C or the end of the command
    #[arg(short, long)]
    all_cpus: bool,

    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,

    /// Samples per second and CPU; 4000, or 1000 where dwarf is chosen by itself
    #[arg(short = 'F', long = "freq", value_name = "N")]
    freq: Option<u64>,

    /// How to record call chains: fp (frame pointers), dwarf[,BYTES] (copies of the stack, for
    /// programs without frame pointers). Without it, what the program needs, and fp with -a
    #[arg(long, value_name = "MODE", value_parser = call_graph)]
    call_graph: Option<CallGraph>,

    /// Leave aside what the command waits for: cheaper where it often does
    #[arg(long)]
    cpu_only: bool,

    /// Number of functions to show
    #[arg(short = 'n', long = "top", value_name = "N", default_value_t = 15)]
    top: usize,

    #[command(flatten)]
    servers: DebuginfodArgs,

    /// Show the recording as a page, too (`kymo view`), until Ctrl-C; -o keeps it for that
    #[arg(long)]
    view: bool,

    /// Exit with status 3 when anything limits the trust in the result
    #[arg(long)]
    strict: bool,

    /// The command and its arguments
    #[arg(required_unless_present_any = ["pid", "cgroup", "all_cpus", "input"], trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Samples a second.
const FREQUENCY: u64 = 4000;
/// The same where stacks are copied though nobody asked for it.
const COPY_FREQUENCY: u64 = 1000;
/// Bytes of a copy.
const COPY_BYTES: u32 = 8192;

/// Events that tell what a command waits for, and who wakes it.
const WAIT_EVENTS: [&str; 3] = ["sched:sched_switch", WAKE_UP, "sched:sched_wakeup_new"];
const WAKE_UP: &str = "sched:sched_waking";

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let recording = args.input.clone().or_else(|| args.output.clone());
    if args.view && recording.is_none() {
        bail!("--view shows a recording that stays: name it with -o FILE");
    }
    let view = recording.filter(|_| args.view);
    let status = profile(args)?;
    match view {
        Some(recording) => match become_view(&recording, None, None)? {},
        None => Ok(status),
    }
}

fn profile(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.input {
        let stacks = StackChoice {
            mode: args.call_graph.unwrap_or(CallGraph::FramePointers),
            freq: args.freq.unwrap_or(FREQUENCY),
            note: None,
        };
        let run = CommandRun {
            attached: true,
            command: path.display().to_string(),
            ..run_facts(&stacks)
        };
        return show(&args, path, run, None);
    }
    let scratch = ScratchDirectory::new(args.output.is_none())?;
    let path = args.output.clone().unwrap_or_else(|| scratch.file());
    let options = options(&args, &path)?;
    let stacks = StackChoice::of(&args, &options);
    let options =
        RecordOptions { freq: Some(stacks.freq), call_graph: Some(stacks.mode), ..options };
    let before = blocked_before(&options)?;
    let summary = record(&options)?;
    // The clock of the recording.
    let end = monotonic_ns();
    let usage = summary.usage.unwrap_or_default();
    let run = CommandRun {
        command: title(&args, &options),
        elapsed: summary.elapsed,
        ended: summary.usage.is_some(),
        attached: options.target != Target::Command,
        user: usage.user,
        system: usage.system,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        notes: notes(&summary, &options).into_iter().chain(stacks.note.clone()).collect(),
        ..run_facts(&stacks)
    };
    let end = match run.attached {
        true => summary.began.saturating_add(summary.elapsed.as_nanos() as u64),
        false => end,
    };
    let live = LiveFacts { span: (summary.began, end), before };
    let code = show(&args, &path, run, Some(&live))?;
    Ok(match summary.exit {
        // The command's own status, unless `--strict` finds something to object to.
        Some(status) if status != 0 && options.target == Target::Command => ExitCode::from(status),
        _ => code,
    })
}

/// What to record.
fn options(args: &Args, path: &Path) -> anyhow::Result<RecordOptions> {
    let target = match (&args.pid, &args.cgroup) {
        (Some(pids), _) => Target::Processes(target::with_descendants(&target::parse_ids(pids)?)?),
        (_, Some(name)) => {
            let pids = target::processes_of_cgroup(name)?;
            if pids.is_empty() {
                bail!("no process is in the cgroup {name}");
            }
            Target::Processes(target::with_descendants(&pids)?)
        }
        _ if args.all_cpus => Target::System,
        _ => Target::Command,
    };
    Ok(RecordOptions {
        more_events: if args.cpu_only { Vec::new() } else { wait_events() },
        // Descendants that nobody named may end before they are opened.
        skip_gone: args.pid.is_some() || args.cgroup.is_some(),
        target,
        timeout: args.timeout,
        command: args.command.clone(),
        switch_events: true,
        output: Output::File { path: path.to_owned(), force: false },
        command_line: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RecordOptions::default()
    })
}

/// How stacks are recorded, and how often.
struct StackChoice {
    mode: CallGraph,
    freq: u64,
    /// Why, if nobody asked for it.
    note: Option<Note>,
}

impl StackChoice {
    /// What was asked for, or what the program needs.
    fn of(args: &Args, options: &RecordOptions) -> StackChoice {
        let without = match args.call_graph {
            None => without_frame_pointers(&options.target, &args.command),
            Some(_) => None,
        };
        let Some(program) = without else {
            let mode = args.call_graph.unwrap_or(CallGraph::FramePointers);
            return StackChoice { mode, freq: args.freq.unwrap_or(FREQUENCY), note: None };
        };
        let freq = args.freq.unwrap_or(COPY_FREQUENCY);
        let fact = format!(
            "{} keeps no frame pointers: stacks are copied (--call-graph dwarf), {freq} times a \
             second",
            program.display()
        );
        let advice = "--call-graph fp is cheaper, and loses callers";
        let note = Note::choice(NoteKind::Stacks, fact, Some(advice.to_owned()));
        StackChoice { mode: CallGraph::Dwarf(COPY_BYTES), freq, note: Some(note) }
    }
}

/// A program of those that are recorded whose code keeps no frame pointers, if there is one.
fn without_frame_pointers(target: &Target, command: &[OsString]) -> Option<PathBuf> {
    let programs: Vec<PathBuf> = match target {
        Target::Command => program_of(command.first()?).into_iter().collect(),
        Target::Processes(pids) => {
            let system = SystemRoot::machine();
            pids.iter().filter_map(|pid| system.executable_of(*pid).ok()).collect()
        }
        _ => Vec::new(),
    };
    let mut programs = programs.into_iter();
    programs.find(|program| keeps_frame_pointers(program) == Some(false))
}

/// What the page is headed with.
fn title(args: &Args, options: &RecordOptions) -> String {
    match &options.target {
        Target::Processes(pids) if args.cgroup.is_some() => format!(
            "cgroup {}: {}",
            args.cgroup.as_deref().unwrap_or_default(),
            super::counted(pids.len() as u64, "process", "processes")
        ),
        Target::Processes(pids) => {
            let named = args.pid.as_deref().unwrap_or_default();
            let names = named.split(',').map(|pid| {
                let comm = pid.trim().parse().ok().and_then(target::comm);
                comm.map_or_else(|| pid.to_owned(), |comm| format!("{comm} ({pid})"))
            });
            let names = names.collect::<Vec<_>>().join(", ");
            match pids.len() - named.split(',').count().min(pids.len()) {
                0 => names,
                more => format!("{names} and {}", super::counted(more as u64, "child", "children")),
            }
        }
        Target::System => "all processes of the machine".to_owned(),
        _ => {
            let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
            words.join(" ")
        }
    }
}

/// What blocks the threads that are there.
fn blocked_before(options: &RecordOptions) -> anyhow::Result<FxHashMap<u32, OffCpuCause>> {
    let tids = match &options.target {
        Target::Processes(pids) => target::threads_of_living(pids)?,
        _ => Vec::new(),
    };
    let cause = |tid: u32| {
        let (state, functions) = target::kernel_stack(tid)?;
        Some((tid, OffCpuCause::of_kernel_stack(state, &functions)?))
    };
    Ok(tids.into_iter().filter_map(cause).collect())
}

/// Facts of a recording that was made now.
struct LiveFacts {
    /// When it began and ended.
    span: (u64, u64),
    /// What blocked threads when it began.
    before: FxHashMap<u32, OffCpuCause>,
}

/// Prints the page of a recording.
fn show(
    args: &Args,
    path: &PathBuf,
    mut run: CommandRun,
    live: Option<&LiveFacts>,
) -> anyhow::Result<ExitCode> {
    let symbols = kymo_symbols::ResolverOptions {
        debuginfod: args.servers.client(),
        ..kymo_symbols::ResolverOptions::default()
    };
    let load = LoadOptions {
        symbols: symbols.clone(),
        off_intervals: !args.cpu_only,
        ..LoadOptions::default()
    };
    let mut profile = Profile::load(path, load)?;
    run.first_thread = profile.on_cpu.first_thread();
    let on_cpu = std::mem::take(&mut profile.on_cpu);
    let span = live.map(|live| live.span);
    let (begin, end) = span.or(on_cpu.seen()).unwrap_or_default();
    if span.is_none() {
        run.elapsed = Duration::from_nanos(end.saturating_sub(begin));
    }
    let (mut threads, mut intervals) = on_cpu.finish(begin, end);
    if args.all_cpus {
        // Who slept all the time is of no interest, and the idle task is nobody.
        threads.retain(|(tid, time)| *tid != 0 && time.on_cpu > 0);
        let ran: HashSet<u32> = threads.iter().map(|(tid, _)| *tid).collect();
        intervals.iter_mut().for_each(|all| all.retain(|tid, _| ran.contains(tid)));
    }
    let is_switch = |e: &EventProfile| e.desc.name == WAIT_EVENTS[0];
    let has_waits = profile.events.iter().any(is_switch);
    let waits = match intervals.filter(|_| has_waits) {
        Some(intervals) => {
            let source = EventSource::open(std::slice::from_ref(path), symbols)?;
            let nothing = FxHashMap::default();
            let before = live.map_or(&nothing, |live| &live.before);
            let mut waits = count_recorded_waits(&source, intervals, before)?;
            if args.input.is_none() {
                waits.wakers.iter_mut().for_each(name_waker);
            }
            Some(waits)
        }
        None => None,
    };
    let times = ProfileTimes::new(threads, waits);
    let page = build_page(&run, &profile, &times, args.top);
    let ledger = page_ledger(&run, &profile, &times);
    // Standard output is the command's: `kymo profile -- gzip -c FILE > FILE.gz`
    // must give the same file as without.
    let mut out: Box<dyn std::io::Write> = match args.command.is_empty() {
        true => Box::new(std::io::stdout().lock()),
        false => Box::new(std::io::stderr().lock()),
    };
    out.write_all(b"\n")?;
    out.write_all(page.to_text().as_bytes())?;
    if args.output.is_some() {
        writeln!(out, "\nThe recording is in {}: kymo report -i {0}", path.display())?;
    }
    if !ledger.is_empty() {
        write!(out, "\n{}", ledger.to_text(""))?;
    }
    out.flush()?;
    Ok(exit::of_command(None, &ledger, args.strict))
}

/// What the recording has to say, with advice that this command has flags for.
fn notes(summary: &RecordSummary, options: &RecordOptions) -> Vec<Note> {
    let mut notes = summary.ledger_notes(options);
    // The page says how many samples there are.
    notes.retain(|note| note.kind != NoteKind::Empty);
    for note in notes.iter_mut().filter(|note| note.kind == NoteKind::Lost) {
        note.advice = Some("record less: --cpu-only, a lower -F, --call-graph fp".to_owned());
    }
    notes
}

/// Adds to a task of another process, which the recording has no name for, the one it has now.
fn name_waker(waker: &mut WakerInfo) {
    let tid = std::str::from_utf8(&waker.comm).ok().and_then(|c| c.strip_prefix(':')?.parse().ok());
    let Some(tid) = tid else { return };
    let name = target::comm(tid).map_or_else(String::new, |name| format!(" (now {name})"));
    waker.comm = format!("task {tid}{name}").into_bytes();
}

/// The events of waits, if this user may record them.
fn wait_events() -> Vec<EventSpec> {
    let rights = paranoid();
    if !rights.privileged && rights.level.is_none_or(|level| level > -1) {
        return Vec::new();
    }
    let catalog = Catalog::open();
    let mut events: Vec<EventSpec> =
        WAIT_EVENTS.iter().flat_map(|name| catalog.parse(name).unwrap_or_default()).collect();
    for event in &mut events {
        event.terms.period = Some(1);
        // Whoever wakes the command may be of another process.
        event.terms.system_wide = event.name == WAKE_UP;
    }
    if events.len() == WAIT_EVENTS.len() { events } else { Vec::new() }
}

/// What is said of every run.
fn run_facts(stacks: &StackChoice) -> CommandRun {
    CommandRun {
        rate: stacks.freq,
        stack_reason: match stacks.mode {
            CallGraph::FramePointers => " (code built without frame pointers)",
            CallGraph::Dwarf(_) => " (code without unwinding information, or deeper than the copy)",
        },
        stack_advice: match stacks.mode {
            CallGraph::FramePointers => "kymo profile --call-graph dwarf -- COMMAND",
            CallGraph::Dwarf(_) => "a larger copy: --call-graph dwarf,32768",
        },
        ..CommandRun::default()
    }
}
