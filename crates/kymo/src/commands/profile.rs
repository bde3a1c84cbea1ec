//! `kymo profile`: record a command, processes or the machine and say what the time went to,
//! for someone who has never profiled. A recording into a temporary file (or `-o`, or one that
//! was made before), then one pass over it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kymo_analysis::offcpu::{
    OffCpuCause, OffCpuConfig, OffCpuTable, RecordedWaits, TaskTimesError, WaitScope, WakerInfo,
    count_off_cpu, count_recorded_waits, has_switch_records, off_cpu_notes,
};
use kymo_analysis::oncpu::{RecordingBegin, RecordingWindow};
use kymo_analysis::profile::{EventProfile, LoadOptions, Profile};
use kymo_analysis::tasks::SchedSelection;
use kymo_events::{EventSelection, EventSource, SourceError, notes_on_perf_data, parse_times};
use kymo_files::perfdata::PerfData;
use kymo_kernel::cpu_quota::QuotaWatch;
use kymo_kernel::output_file::{Existing, PRIVATE, WholeFile};
use kymo_kernel::target;
use kymo_model::{EventType, Note, NoteKind, counted, shell_word};
use kymo_record::{CallGraph, Output, RecordOptions, RecordSummary, Target};
use kymo_view::profile_page::{CommandRun, ProfileTarget, ProfileTimes, build_page, page_ledger};
use rustc_hash::FxHashMap;

use super::container_files;
use super::cpu_quotas::quota_notes;
use super::page_command::{become_view, is_page, write_page};
use super::profile_recording::{
    FREQUENCY, StackChoice, WAIT_EVENTS, record_within_limits, wait_events,
};
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
  kymo profile -a                        the whole machine, until Ctrl-C
  kymo profile --cgroup system.slice/postgresql.service --timeout 10000
  kymo profile -i perf.data              a recording made by `kymo profile -o perf.data`
  kymo profile -i trace.dat --comm server --time 10%-20%")]
pub(crate) struct Args {
    /// Keep the recording in FILE (a perf.data)
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show this recording instead of recording
    ///
    /// From `kymo profile -o`, or any perf.data, trace.dat or trace directory with the context
    /// switches of all CPUs (`kymo offcpu record`, `kymo sched record -g`, LTTng).
    #[arg(short, long, value_name = "FILE",
          conflicts_with_all = ["output", "all_cpus", "timeout", "command"])]
    input: Option<PathBuf>,

    /// Only this time range of -i: START,STOP in seconds or percent
    #[arg(long, value_name = "START,STOP", allow_hyphen_values = true, requires = "input")]
    time: Option<String>,

    /// Only these threads of -i
    #[arg(short = 't', long, value_name = "TIDS", value_delimiter = ',', requires = "input")]
    tid: Vec<u32>,

    /// Only tasks of -i with these names
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "input")]
    comm: Vec<String>,

    /// Only these CPUs of -i (`0,2-3`)
    #[arg(short = 'C', long, value_name = "LIST", requires = "input")]
    cpu: Option<String>,

    /// Print JSON (docs/json.md)
    #[arg(long)]
    json: bool,

    /// Profile these processes and their descendants
    ///
    /// Stops when they or the command end, or on Ctrl-C; with -i, shows only these processes.
    #[arg(short, long, value_name = "PID,…", conflicts_with = "all_cpus")]
    pid: Option<String>,

    /// Profile the processes of this cgroup and their descendants
    ///
    /// A path below the cgroup mount, with its descendants; with -i, the recording needs cgroups
    /// (`--all-cgroups`).
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "all_cpus"])]
    cgroup: Option<String>,

    /// Profile the whole machine until Ctrl-C or the end of the command
    #[arg(short, long)]
    all_cpus: bool,

    /// Stop after MS milliseconds
    #[arg(long, value_name = "MS", value_parser = millis)]
    timeout: Option<Duration>,

    /// Samples per second and CPU [default: 4000; 1000 with dwarf]
    #[arg(short = 'F', long = "freq", value_name = "N")]
    freq: Option<u64>,

    /// Call chain recording mode: fp, or dwarf[,BYTES]
    ///
    /// fp: frame pointers; dwarf: stack copies, for programs without frame pointers [default: the
    /// mode that the program needs; fp with -a].
    #[arg(long, value_name = "MODE", value_parser = call_graph)]
    call_graph: Option<CallGraph>,

    /// Do not record waits (less overhead for commands that block often)
    #[arg(long)]
    cpu_only: bool,

    /// Number of functions to show
    #[arg(short = 'n', long = "top", value_name = "N", default_value_t = 15)]
    top: usize,

    /// Show all sections: call trees, threads, waits with stacks, the hot path
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    servers: DebuginfodArgs,

    /// Also open the recording in the browser until Ctrl-C; with `-o PAGE.html`, write the page
    #[arg(long)]
    view: bool,

    /// The recording goes when the page is written.
    #[arg(skip)]
    is_for_page: bool,

    /// Exit with status 3 if there are warnings
    #[arg(long)]
    strict: bool,

    /// Command and arguments; with -a, -p and --cgroup it only sets the duration
    #[arg(required_unless_present_any = ["pid", "cgroup", "all_cpus", "input"], trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Lines of doubts on the first screen.
const TRUST_LINES: usize = 5;

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    ensure!(
        args.output.as_ref().is_none_or(|path| path.as_os_str() != "-"),
        "-o -: profile reads its recording again and needs a file; `kymo record -o -` writes to a pipe"
    );
    if let Some(page) = args.output.clone().filter(|path| args.view && is_page(path)) {
        ensure!(!page.exists(), "{} already exists", page.display());
        let scratch = ScratchDirectory::new(true)?;
        (args.output, args.is_for_page) = (Some(scratch.file()), true);
        let status = profile(args)?;
        write_page(&scratch.file(), &page)?;
        return Ok(status);
    }
    // It is read as long as the page is shown.
    if args.view && args.input.is_none() {
        args.output.get_or_insert_with(|| "perf.data".into());
    }
    let recording = args.input.clone().or_else(|| args.output.clone());
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
            rate: 0,
            ..run_facts(&stacks)
        };
        return show(&args, path, run, None);
    }
    // `requires` of clap does not hold beside a command, which excludes --input.
    if args.time.is_some() || args.cpu.is_some() || !args.tid.is_empty() || !args.comm.is_empty() {
        bail!("--time, --cpu, --tid and --comm choose from a recording: kymo profile -i FILE");
    }
    // A device or a pipe cannot be read back: it receives a copy.
    let is_special = |p: &&PathBuf| p.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
    let device = args.output.as_ref().filter(is_special);
    let scratch = ScratchDirectory::new(args.output.is_none() || device.is_some())?;
    let path = match &args.output {
        Some(path) if device.is_none() => path.clone(),
        _ => scratch.file(),
    };
    let options = options(&args, &path)?;
    let stacks = StackChoice::of((args.call_graph, args.freq), &options.target, &args.command);
    let mut options =
        RecordOptions { freq: Some(stacks.freq), call_graph: Some(stacks.mode), ..options };
    let before = blocked_before(&options)?;
    let quotas = match &options.target {
        Target::Processes(pids) => QuotaWatch::of_tasks(pids),
        Target::System => QuotaWatch::of_machine(),
        // A command has the cgroup of kymo.
        _ => QuotaWatch::of_tasks(&[std::process::id()]),
    };
    let (mut summary, unnamed) = record_within_limits(&mut options)?;
    container_files::keep(&mut summary);
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
        target: live_target(&args, &options),
        hidden: std::mem::take(&mut summary.hidden_children),
        notes: {
            let own = stacks.note.clone().into_iter().chain(unnamed).chain(note_numbers());
            let own = own.chain(quota_notes(&quotas.throttled()));
            notes(&summary, &options).into_iter().chain(own).collect()
        },
        ..run_facts(&stacks)
    };
    // Later time is not recorded, whatever else happens then.
    let end = summary.began.saturating_add(summary.elapsed.as_nanos() as u64);
    let live = LiveFacts { span: (summary.began, end), before };
    let code = show(&args, &path, run, Some(&live))?;
    if let Some(device) = device {
        let copied = File::open(&path).and_then(|mut from| {
            let mut to = WholeFile::create(device, PRIVATE, Existing::Replace)?;
            std::io::copy(&mut from, to.file())?;
            to.finish()
        });
        copied.with_context(|| format!("cannot write {}", device.display()))?;
    }
    Ok(match summary.exit {
        // The command's own status, unless `--strict` finds something to object to.
        Some(status) if status != 0 && options.target == Target::Command => ExitCode::from(status),
        _ => code,
    })
}

/// Returns the options of the recording.
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
        more_events: if args.cpu_only {
            Vec::new()
        } else {
            wait_events(&target, args.output.is_some())
        },
        // Descendants that were not named may end before they are opened.
        skip_gone: args.pid.is_some() || args.cgroup.is_some(),
        target,
        timeout: args.timeout,
        command: args.command.clone(),
        switch_events: true,
        output: Output::File { path: path.to_owned(), force: false },
        command_line: std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..RecordOptions::default()
    })
}

/// Title of the page.
fn title(args: &Args, options: &RecordOptions) -> String {
    match &options.target {
        Target::Processes(pids) if args.cgroup.is_some() => format!(
            "cgroup {}: {}",
            args.cgroup.as_deref().unwrap_or_default(),
            counted(pids.len() as u64, "process", "processes")
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
                more => format!("{names} and {}", counted(more as u64, "child", "children")),
            }
        }
        Target::System => "all processes of the machine".to_owned(),
        _ => {
            /// Characters of a command that are shown.
            const SHOWN: usize = 100;
            let words: Vec<_> = args.command.iter().map(|w| w.to_string_lossy()).collect();
            let line = words.join(" ").replace(char::is_control, " ");
            match line.char_indices().nth(SHOWN) {
                Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
                None => line,
            }
        }
    }
}

/// Processes that a suggested command names.
const MOST_PIDS: usize = 32;

/// Target as `kymo top` and other live commands name it.
fn live_target(args: &Args, options: &RecordOptions) -> ProfileTarget {
    match &options.target {
        // Other commands take no children where these are not named.
        Target::Processes(pids) if pids.len() <= MOST_PIDS => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            ProfileTarget::Processes(pids.join(","))
        }
        Target::Processes(_) => {
            args.pid.clone().map_or(ProfileTarget::Unknown, ProfileTarget::Processes)
        }
        Target::System => ProfileTarget::Machine,
        _ => {
            let words = args.command.iter().map(shell_word);
            ProfileTarget::Command(words.collect::<Vec<_>>().join(" "))
        }
    }
}

/// Selection of tasks and times of a recording.
fn selection(args: &Args, source: &EventSource) -> anyhow::Result<EventSelection> {
    if args.input.is_none() {
        return Ok(EventSelection::default());
    }
    let pids = args.pid.as_deref().map(target::parse_ids).transpose()?.unwrap_or_default();
    let mut events = EventSelection::of_tasks(args.comm.clone(), pids, args.tid.clone());
    if let Some(cpus) = &args.cpu {
        events.set_cpus(cpus)?;
    }
    if let Some(text) = &args.time {
        let span = if text.contains('%') { source.span()? } else { None };
        events.times = parse_times(text, span)?;
    }
    if let Some(name) = &args.cgroup {
        events.members = Some(source.tasks_of_cgroups(std::slice::from_ref(name))?);
    }
    Ok(events)
}

/// Note that the causes of blocks are not known, where the kernel's events have other numbers than
/// samples and processes.
fn note_numbers() -> Option<Note> {
    let fact = "switches and wake-ups have other numbers in this pid namespace than processes: \
                causes of waits and who ended them are not known";
    let advice = "start kymo in the first one (nsenter -t 1 -p, docker run --pid=host)".to_owned();
    (!target::has_kernel_pids()).then(|| Note::doubt(NoteKind::Scope, fact, Some(advice)))
}

/// Returns the causes for which existing threads are blocked.
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
    /// Start and end time.
    span: (u64, u64),
    /// Cause of the block of each thread when the recording began.
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
    let mut source =
        EventSource::open(std::slice::from_ref(path), symbols.clone())?.in_nanoseconds()?;
    if args.time.is_none() {
        source = source.beginning_together();
    }
    let selection = selection(args, &source)?;
    let has_records = has_switch_records(&source);
    if has_records && (!selection.times.is_empty() || selection.cpus().is_some()) {
        return Err(TaskTimesError::Cut.into());
    }
    let nothing = FxHashMap::default();
    let begin = match live.map(|live| live.span) {
        None => RecordingBegin::FirstRecord,
        Some((begin, _)) if run.attached => RecordingBegin::At(begin),
        Some((begin, end)) => RecordingBegin::FirstExec(begin, end),
    };
    let window = RecordingWindow { begin, end: live.map(|live| live.span.1) };
    // Of the machine its idle tasks are left out, and of chosen threads the others.
    let may_count = |tid: u32| {
        let is_chosen = args.tid.is_empty() || args.tid.contains(&tid);
        (tid != 0 || !args.all_cpus) && (is_chosen || args.input.is_none() || has_more_tasks(args))
    };
    let before = live.map_or(&nothing, |live| &live.before);
    let scope =
        WaitScope { window, before, may_count: &may_count, names: &selection, only_whole: false };
    let (mut profile, waits) = read(args, &source, (&selection, &symbols), scope)?;
    // Where waits are counted, the notes on the records come with them.
    if args.input.is_some()
        && waits.is_none()
        && let (Some(profile), Some(data)) = (&profile, source.perf(0))
    {
        run.notes.extend(notes_on_perf_data(&data, &profile.stats));
    }
    let mut times = match (&mut profile, waits) {
        (Some(profile), waits) if has_records => {
            let waits = match waits {
                Some(CountedWaits::Records(waits)) => Some(*waits),
                _ => None,
            };
            of_records(args, &source, (profile, waits, &selection), (&mut run, live))
        }
        (_, Some(CountedWaits::Events(table))) => of_events(&source, *table, &selection, &mut run),
        _ => {
            let span = source.span()?.or(profile.as_ref().and_then(|profile| profile.span));
            let span = span.and_then(|(from, to)| cut(&selection, from, to));
            if let (Some((from, to)), true) = (span, args.input.is_some()) {
                run.elapsed = Duration::from_nanos(to.saturating_sub(from));
            }
            ProfileTimes::default()
        }
    };
    run.notes.extend(selection.unmet_notes(|| source.extent()));
    if args.input.is_some() {
        note_damage(&source, &mut run.notes);
    }
    if args.input.is_some() {
        let file = shell_word(path.as_os_str());
        run.target = ProfileTarget::Recording(file, !has_records && times.waits.is_some());
    }
    for (tid, (_, pid)) in &mut times.names {
        *pid = pid.or_else(|| profile.as_ref().and_then(|p| p.machine.pid_of(*tid)));
    }
    // A recording of switches alone has no samples of code.
    let profile = profile.filter(|profile| {
        let is_code = |e: &EventProfile| e.desc.attr.kind != EventType::TRACEPOINT;
        profile.events.first().is_some_and(is_code)
    });
    if args.input.is_some() && profile.is_none() && times.waits.is_none() {
        bail!(
            "{} has neither samples nor switches of tasks: kymo profile -o FILE, kymo offcpu \
             record and kymo sched record -g make such",
            path.display()
        );
    }
    let page = build_page(&run, profile.as_ref(), &times, args.top);
    let ledger = page_ledger(&run, profile.as_ref(), &times);
    // Standard output is the command's: `kymo profile -- gzip -c FILE > FILE.gz`
    // must give the same file as without.
    let mut out: Box<dyn std::io::Write> = if args.command.is_empty() {
        if args.input.is_none() {
            crate::screen::set_live();
        }
        crate::screen::page_tables();
        Box::new(crate::streams::stdout().lock())
    } else {
        Box::new(crate::streams::stderr())
    };
    if args.json {
        writeln!(out, "{:#}", page.to_json(&ledger))?;
    } else {
        out.write_all(b"\n")?;
        let is_terminal = if args.command.is_empty() {
            kymo_kernel::terminal_output::output_is_terminal()
        } else {
            kymo_kernel::terminal_output::error_columns().is_some()
        };
        let text = if is_terminal && !args.verbose { page.to_screen() } else { page.to_text() };
        let text = if args.command.is_empty() { text } else { crate::screen::fitted(&text) };
        out.write_all(text.as_bytes())?;
        if args.output.as_ref() == Some(path) && !args.is_for_page {
            writeln!(out, "\nThe recording is in {}: kymo report -i {0}", path.display())?;
        }
        let trust = if is_terminal && !args.verbose {
            ledger.to_screen(TRUST_LINES, "-v")
        } else {
            ledger.to_text("")
        };
        if !trust.is_empty() {
            write!(out, "\n{trust}")?;
        }
    }
    out.flush()?;
    let status =
        if args.json && !args.command.is_empty() { exit::status_of_whole } else { exit::status };
    Ok(status(path.display(), None, &ledger, args.strict))
}

/// Notes damage outside of the records of a recording, where its records have not reported it.
fn note_damage(source: &EventSource, notes: &mut Vec<Note>) {
    for data in (0..source.perf_count()).filter_map(|number| source.perf(number)) {
        for damage in data.notes() {
            let note = Note::doubt(NoteKind::Damaged, damage.clone(), None);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
}

/// Whether tasks are chosen by more than thread numbers.
fn has_more_tasks(args: &Args) -> bool {
    !args.comm.is_empty() || args.pid.is_some() || args.cgroup.is_some()
}

/// The part of a span of time that is selected.
fn cut(selection: &EventSelection, from: u64, to: u64) -> Option<(u64, u64)> {
    SchedSelection { events: selection.clone() }.cut(from, to)
}

/// Source of the tasks' waits.
enum CountedWaits<'a> {
    /// Waits from switch records, refined by events.
    Records(Box<RecordedWaits<'a>>),
    /// Waits from the switch events of all CPUs.
    Events(Box<OffCpuTable>),
}

/// Reads samples of code and waits of tasks, of whichever there are.
fn read<'a>(
    args: &Args,
    source: &EventSource,
    (selection, symbols): (&EventSelection, &kymo_symbols::ResolverOptions),
    scope: WaitScope<'a>,
) -> anyhow::Result<(Option<Profile>, Option<CountedWaits<'a>>)> {
    let samples = |data: &mut PerfData, batches| {
        let symbols = symbols.clone();
        let (selection, window) = (Some(selection), scope.window);
        let options = LoadOptions { symbols, selection, window, batches, ..LoadOptions::default() };
        Profile::read(data, options)
    };
    let has_waits = source.classes().iter().any(|class| class.is_named(WAIT_EVENTS[0]));
    if args.cpu_only || !has_waits {
        return Ok(match source.samples() {
            Ok(mut data) => (Some(samples(&mut data, None)?), None),
            Err(_) => (None, None),
        });
    }
    let events = SchedSelection { events: selection.clone() };
    let count = || -> Result<CountedWaits<'a>, SourceError> {
        if has_switch_records(source) {
            let waits = Box::new(count_recorded_waits(source, scope)?);
            return Ok(CountedWaits::Records(waits));
        }
        let config = OffCpuConfig { selection: &events, by_task: true };
        Ok(CountedWaits::Events(Box::new(count_off_cpu(source, &config)?)))
    };
    if !source.is_one_perf_data() {
        return Ok((None, Some(count()?)));
    }
    let mut data = source.reopen(0)?;
    let (waits, profile) = source.read_for_two(count, |batches| samples(&mut data, Some(batches)));
    let waits = waits?;
    Ok((Some(profile?), Some(waits)))
}

/// Times of a recording with switch records of the tasks that it is of.
fn of_records(
    args: &Args,
    source: &EventSource,
    (profile, waits, selection): (&mut Profile, Option<RecordedWaits<'_>>, &EventSelection),
    (run, live): (&mut CommandRun, Option<&LiveFacts>),
) -> ProfileTimes {
    let mut waits = waits;
    let on_cpu = std::mem::take(&mut profile.on_cpu);
    let first = on_cpu.first_thread();
    run.first_thread = first.map(|(tid, _)| tid);
    let mut span = live.map(|live| live.span);
    // On a busy machine the command waits for a CPU before it begins.
    if let (Some((from, to)), Some((_, exec)), false) = (&mut span, first, run.attached) {
        *from = exec.clamp(*from, *to);
        run.elapsed = Duration::from_nanos(*to - *from);
    }
    let (begin, end) = span.or(on_cpu.seen()).unwrap_or_default();
    if span.is_none() {
        run.elapsed = Duration::from_nanos(end.saturating_sub(begin));
    }
    // Those of the waits know when threads were woken.
    let mut accounts = match &mut waits {
        Some(waits) => waits.accounts(end),
        None => on_cpu.finish(begin, end),
    };
    let threads = &mut accounts.threads;
    let machine = &profile.machine;
    // Threads without a wanted name have no account.
    let is_chosen = |tid: u32| selection.wants_numbers(machine.pid_of(tid), tid);
    if selection.has_task_conditions() {
        threads.retain(|(tid, _)| is_chosen(*tid));
    }
    // Threads that slept all the time are of no interest, nor is the idle task.
    if args.all_cpus {
        threads.retain(|(tid, time)| *tid != 0 && time.on_cpu > 0);
    }
    let Some(waits) = waits else { return ProfileTimes::new(accounts, None) };
    let wanted: HashSet<u32> = accounts.threads.iter().map(|(tid, _)| *tid).collect();
    let mut waits = waits.of_threads(end, &|tid| wanted.contains(&tid));
    match args.input.is_none() {
        true => waits.wakers.iter_mut().for_each(name_waker),
        // For a recording made now, the recorder reported it.
        false => run.notes.extend(waits.summary.notes(source)),
    }
    ProfileTimes::new(accounts, Some(waits))
}

/// Times of a recording with the switches of all CPUs.
fn of_events(
    source: &EventSource,
    table: OffCpuTable,
    selection: &EventSelection,
    run: &mut CommandRun,
) -> ProfileTimes {
    run.notes.extend(table.read.summary.notes(source));
    run.notes.extend(off_cpu_notes(&table));
    if let Some((from, to)) = table.read.span.and_then(|(from, to)| cut(selection, from, to)) {
        run.elapsed = Duration::from_nanos(to.saturating_sub(from));
    }
    ProfileTimes::of_events(table)
}

/// Returns the notes of the recording, with advice for options that this command has.
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

/// Facts that hold for every run.
fn run_facts(stacks: &StackChoice) -> CommandRun {
    CommandRun { rate: stacks.freq, ..CommandRun::default() }
}
