//! `kymo trace` without events: system calls with their arguments, results and
//! durations, in the manner of strace but without stopping the program.
//!
//! `kymo-render` makes the lines; what they say of the tasks' memory and descriptors is
//! asked (`traced_tasks.rs`) as soon as a call was read from the ring.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kymo_analysis::syscalls::CallWaits;
use kymo_format::EventFormat;
use kymo_kernel::blocked::BlockedThreads;
use kymo_kernel::bpf::BpfError;
use kymo_kernel::ftrace::{Item, Selection, TraceDir};
use kymo_kernel::tracefs::Tracefs;
use kymo_kernel::{process, target};
use kymo_model::glob::is_glob;
use kymo_model::{Note, NoteKind};
use kymo_programs::{CallTexts, ReadTasks};
use kymo_record::ftrace::{LiveCapture, LiveEnd, LivePace, TraceEvent};
use kymo_render::syscalls::{
    COMPAT_CALLS, SummaryGrouping, SummaryStyle, SyscallFormats, SyscallLines, SyscallStyle,
    WaitFormats, all_syscalls, compat_numbers, near_syscalls, syscall_class, syscall_classes,
    syscall_number, syscalls_matching,
};
use kymo_view::Ledger;
use kymo_view::syscalls::call_time_words;
use kymo_view::units::{Span, shown};

use super::live_output::{is_coloured, note_lost};
use super::perf_form::{kernel_enums, perf_trace_options};
use super::traced_tasks::TracedTasks;
use super::{Args, close, follow};
use crate::commands::tracing;

/// Flags for system calls.
#[derive(clap::Args)]
pub(super) struct CallArgs {
    /// Show only a table of calls, errors and times at the end
    ///
    /// Includes the slowest calls and their waits.
    #[arg(short = 's', long, conflicts_with = "output")]
    summary: bool,
    /// Show calls, and the table at the end
    #[arg(short = 'S', long, conflicts_with = "output")]
    with_summary: bool,
    /// Show the number of errors by code in the table
    #[arg(long, conflicts_with = "output")]
    errno_summary: bool,
    /// Tables of -s and -S: total, or one per thread or cgroup
    #[arg(long, value_name = "MODE", conflicts_with = "output")]
    summary_mode: Option<TableMode>,
    /// Maximum number of rows of a table
    #[arg(long, value_name = "N", conflicts_with = "output")]
    max_summary: Option<usize>,
    /// Show the start time of each call, in seconds of the trace clock
    #[arg(short = 't', long, visible_alias = "time", conflicts_with = "output")]
    times: bool,
    /// Only these system calls (globs, `%file`; `!` inverts)
    ///
    /// `*` and `?` match parts of names; `%file`, `%network`, … are strace's classes; `!` before
    /// the first name selects all other calls.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "output")]
    pub(super) calls: Vec<String>,
    /// Show only calls of at least MS milliseconds
    #[arg(long, value_name = "MS", value_parser = milliseconds, conflicts_with = "output")]
    duration: Option<Duration>,
    /// Show only calls that failed
    #[arg(long, conflicts_with = "output")]
    failure: bool,
    /// Number of bytes of a buffer or string argument to show
    #[arg(long, value_name = "N", default_value_t = 32, conflicts_with = "output",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=8190))]
    string_limit: usize,
    /// Show the CPU on which a call returned
    #[arg(long, conflicts_with = "output")]
    show_cpu: bool,
    /// Exclude system calls of these threads
    #[arg(long, value_name = "PIDS", value_delimiter = ',', conflicts_with = "output")]
    pub(super) filter_pids: Vec<u32>,
}

/// Grouping of the calls in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TableMode {
    /// All.
    Total,
    /// One table per thread.
    Thread,
    /// One table per cgroup.
    Cgroup,
}

impl CallArgs {
    /// Whether tables are of cgroups, which samples tell.
    pub(super) fn has_cgroups(&self) -> bool {
        self.summary_mode == Some(TableMode::Cgroup)
    }

    /// Checks flags that mean nothing without others.
    pub(super) fn check(&self, sched: bool) -> anyhow::Result<()> {
        let given = [
            (sched, "--sched"),
            (self.summary_mode.is_some(), "--summary-mode"),
            (self.max_summary.is_some(), "--max-summary"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given && !self.has_summary()) {
            Some((_, flag)) => bail!("{flag} is about tables: take -s or -S, too"),
            None => Ok(()),
        }
    }

    fn has_summary(&self) -> bool {
        self.summary || self.with_summary || self.errno_summary
    }

    /// The flag that is for system calls alone, if one was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.summary, "-s"),
            (self.with_summary, "-S"),
            (self.errno_summary, "--errno-summary"),
            (self.summary_mode.is_some(), "--summary-mode"),
            (self.max_summary.is_some(), "--max-summary"),
            (self.times, "-t"),
            (!self.calls.is_empty(), "--calls"),
            (self.duration.is_some(), "--duration"),
            (self.failure, "--failure"),
            (self.show_cpu, "--show-cpu"),
            (!self.filter_pids.is_empty(), "--filter-pids"),
        ];
        given.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
    }
}

/// Whether all of these are system calls, as the -e of perf and strace takes them.
pub(super) fn are_calls(names: &[String]) -> bool {
    let is_call = |word: &str| {
        syscall_number(word).is_some()
            // No event begins so.
            || word.starts_with('%')
            || are_many(word)
    };
    !names.is_empty() && words(names).1.all(is_call)
}

/// Whether a pattern or the bare name of a class is of system calls, and of no events.
fn are_many(word: &str) -> bool {
    let is_of_events = || {
        let tracefs = Tracefs::open().ok();
        let selection = Selection::parse(word).ok();
        tracefs.zip(selection).is_some_and(|(t, s)| TraceDir::top(&t).select(&s).is_ok())
    };
    let is_of_calls = if is_glob(word) {
        !syscalls_matching(word).is_empty()
    } else {
        syscall_class(word).is_some()
    };
    is_of_calls && !is_of_events()
}

/// Whether all other calls are meant, and the words that name calls: `trace=` before them is
/// strace's.
fn words(calls: &[String]) -> (bool, impl Iterator<Item = &str>) {
    let first = calls.first().map_or("", String::as_str);
    let named = first.strip_prefix("trace=").unwrap_or(first);
    let (are_others, first) = match named.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, named),
    };
    let others = calls.iter().skip(1).map(String::as_str);
    (are_others, calls.first().map(|_| first).into_iter().chain(others))
}

/// Numbers of system calls that are named, that patterns match, or that are in classes.
pub(super) fn numbers(calls: &[String]) -> anyhow::Result<Vec<i64>> {
    let mut numbers = Vec::new();
    let (are_others, words) = words(calls);
    for word in words {
        if let Some(name) = word.strip_prefix('%') {
            let Some(class) = syscall_class(name) else {
                let classes: Vec<String> = syscall_classes().collect();
                bail!(
                    "unknown class of system calls {word}; the classes are {}",
                    classes.join(", ")
                );
            };
            numbers.extend(class);
        } else if let Some(number) = syscall_number(word) {
            numbers.push(number);
        } else {
            let matching = if is_glob(word) {
                syscalls_matching(word)
            } else {
                syscall_class(word).unwrap_or_default()
            };
            if matching.is_empty() {
                let near = match near_syscalls(word) {
                    near if near.is_empty() => String::new(),
                    near => format!("; did you mean {}?", near.join(" or ")),
                };
                bail!("unknown system call {word:?}{near}");
            }
            numbers.extend(matching);
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    if are_others {
        let without = numbers;
        numbers = all_syscalls();
        numbers.retain(|number| without.binary_search(number).is_err());
        numbers.sort_unstable();
    }
    numbers.extend(compat_numbers(&numbers));
    Ok(numbers)
}

/// The condition that a call's number is one of these, which are in order. A filter may have a page
/// of text, so that consecutive numbers are written as a range.
fn number_condition(numbers: &[i64]) -> Option<String> {
    let ranges: Vec<String> = numbers
        .chunk_by(|before, after| after - before <= 1)
        .filter_map(|range| range.first().zip(range.last()))
        .map(|(first, last)| {
            if first == last {
                format!("id == {first}")
            } else {
                format!("(id >= {first} && id <= {last})")
            }
        })
        .collect();
    (!ranges.is_empty()).then(|| format!("({})", ranges.join(" || ")))
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().map(|ms| ms / 1000.0);
    let time = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| "not a number of milliseconds".into())
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Reading a call's arguments takes calls: a system-wide trace would trace itself without end.
    let system_wide = args.is_of_machine()?;
    let own = system_wide.then(std::process::id);
    let without: Vec<u32> = own.into_iter().chain(args.call.filter_pids.iter().copied()).collect();
    let mut events = events(&args.call.calls, &without)?;
    if args.call.has_summary() {
        events.extend(wait_events()?);
    }
    // Before the events are switched on: what is attached first runs first.
    let (texts, refusal) = texts(args, system_wide);
    // A table alone needs no memory of the tasks.
    let pace = if args.call.summary { LivePace::Tick } else { LivePace::AtOnce };
    let mut capture = follow::open(args, &events, pace)?;
    let mut ledger = Ledger::from_notes(capture.notes().to_vec());
    if let Some(texts) = &texts {
        add_tasks(texts, args, capture.child_id().as_ref())?;
    }
    let mut lines = lines(&capture, args, (is_coloured(), system_wide), texts)?;
    lines.describe_calls();
    let blocked = blocked_targets(args)?;
    // System-wide calls may have no end, and others want the processor too.
    if lines.inspects() && capture.has_tasks() {
        // Refused to who is not root: then more texts are read too late.
        let _ = process::hurry(1);
    }
    capture.start()?;
    continue_calls(blocked, &mut lines);
    let result = until_the_end(&mut capture, &mut lines);
    let (lost, code) = capture.end(result)?;
    lines.finish();
    write_slowest(&mut lines);
    flush(&mut lines.output)?;
    note_lost(&mut ledger, (lines.shown, lines.lost), lines.damaged, &lost);
    lines.note(&mut |note| ledger.push(Note { advice: refusal.clone(), ..note }));
    if lines.inspected == 0 {
        ledger.push(note_silence(args)?);
    }
    Ok(close(args, &ledger, code))
}

/// The threads of `-p` and `--tid` that are blocked before events come.
pub(super) fn blocked_targets(args: &Args) -> anyhow::Result<BlockedThreads> {
    let pids = args.pids()?;
    let threads = pids.iter().flat_map(|p| target::threads_of(*p).unwrap_or_default());
    let wanted = |tid: &u32| args.tid.is_empty() || args.tid.contains(tid);
    let threads: Vec<u32> = threads.filter(wanted).collect();
    let tids = if pids.is_empty() { &args.tid } else { &threads };
    Ok(BlockedThreads::of(tids))
}

/// Takes the calls that these threads are in, now that events come: of those that have run since,
/// events may tell already.
pub(super) fn continue_calls(mut blocked: BlockedThreads, lines: &mut Lines) {
    blocked.retain_unmoved();
    let now = u64::try_from(process::monotonic().as_nanos()).unwrap_or(u64::MAX);
    for thread in blocked.threads() {
        if let Some(call) = thread.call {
            lines.continued_call((thread.tid as i32, now), call.number, call.args);
        }
    }
}

/// Has the calls of the traced tasks read.
pub(super) fn add_tasks(texts: &CallTexts, args: &Args, child: Option<&u32>) -> anyhow::Result<()> {
    let threads = args.pids()?.into_iter().flat_map(|p| target::threads_of(p).unwrap_or_default());
    child.copied().into_iter().chain(threads).for_each(|tid| texts.add_task(tid));
    Ok(())
}

/// Note about a run without calls: names the tasks that were not traced.
pub(super) fn note_silence(args: &Args) -> anyhow::Result<Note> {
    let named = args.pids()?;
    let all = target::with_descendants(&named)?;
    let advice = (all.len() > named.len()).then(|| {
        let all: Vec<String> = all.iter().map(u32::to_string).collect();
        format!("it has children, which -p does not mean: -p {}", all.join(","))
    });
    Ok(Note::doubt(NoteKind::Empty, "no system call began or ended", advice))
}

/// Lines of the calls of a run.
type Lines = SyscallLines<TracedTasks>;

fn lines(
    capture: &LiveCapture,
    args: &Args,
    (colour, system_wide): (bool, bool),
    texts: Option<CallTexts>,
) -> anyhow::Result<Lines> {
    let dir = capture.dir();
    let format = |system: &str, name: &str| {
        let text = dir.tracefs().event_format(system, name)?;
        EventFormat::parse(&text).with_context(|| format!("{system}:{name}"))
    };
    let formats = SyscallFormats {
        enter: format("raw_syscalls", "sys_enter")?,
        exit: format("raw_syscalls", "sys_exit")?,
        exec: format("sched", "sched_process_exec")?,
        end: format("sched", "sched_process_exit")?,
    };
    let monotonic = dir.clocks()?.current == "mono";
    let style = style(args, (colour, system_wide), monotonic);
    let tasks = TracedTasks::running(dir.tracefs().clone(), texts);
    // After a delay it has become the command already.
    let child = capture.child_id().filter(|_| args.delay.is_none()).map(|pid| pid as i32);
    let only = numbers(&args.call.calls)?;
    let lines = SyscallLines::new(Some(formats), tasks, style, child, args.count).with_calls(only);
    let lines = with_perf_form(lines, args);
    if !args.call.has_summary() {
        return Ok(lines);
    }
    let [switch, waking] = WAIT_EVENTS.map(|name| format("sched", name));
    Ok(lines.with_waits(WaitFormats { switch: switch?, waking: waking? }))
}

/// Lines with names of the running kernel, of perf's form under its name.
pub(super) fn with_perf_form(lines: Lines, args: &Args) -> Lines {
    let lines = lines.with_enums(kernel_enums());
    match perf_trace_options(args) {
        Some(options) => lines.as_perf_trace(options),
        None => lines,
    }
}

/// Layout of the lines; `monotonic`: the trace's clock is.
pub(super) fn style(args: &Args, (colour, tasks): (bool, bool), monotonic: bool) -> SyscallStyle {
    SyscallStyle {
        lines: !args.call.summary,
        summary: args.call.has_summary(),
        tables: SummaryStyle {
            mode: match args.call.summary_mode {
                Some(TableMode::Thread) => SummaryGrouping::Thread,
                Some(TableMode::Cgroup) => SummaryGrouping::Cgroup,
                Some(TableMode::Total) | None => SummaryGrouping::Total,
            },
            by_error: args.call.errno_summary,
            max_rows: args.call.max_summary,
        },
        json: args.json,
        times: args.call.times,
        colour,
        least: args.call.duration.unwrap_or_default(),
        failures_only: args.call.failure,
        tasks,
        monotonic,
        string_limit: args.call.string_limit,
        cpus: args.call.show_cpu,
        is_recorded: args.input.is_some(),
    }
}

/// Writes the slowest calls with what they waited for.
fn write_slowest(lines: &mut Lines) {
    let slowest = lines.take_slowest();
    let out = &mut lines.output;
    for (n, call) in slowest.iter().enumerate() {
        if n == 0 {
            out.extend_from_slice(b"\nThe slowest calls\n");
        }
        let _ = write!(out, "{:>10}  [pid {:>5}] ", Span(call.duration).to_string(), call.tid);
        out.extend_from_slice(shown(&call.text).as_bytes());
        let words = if call.waits == CallWaits::default() {
            "running".to_owned()
        } else {
            call_time_words(&call.waits, call.duration)
        };
        let _ = writeln!(out, "\n{:>10}  {words}", "");
    }
}

/// Programs in the kernel that read what calls point to, or why it refuses them. Without them
/// texts are read from here, as far as they can be.
pub(super) fn texts(args: &Args, system_wide: bool) -> (Option<CallTexts>, Option<String>) {
    match start_texts(args, system_wide) {
        Ok(texts) => (texts, None),
        Err(e) => {
            let advice = e.advice().map_or(String::new(), |advice| format!(": {advice}"));
            let why = format!("programs in the kernel read them in time; it refuses: {e}{advice}");
            (None, Some(why))
        }
    }
}

fn start_texts(args: &Args, system_wide: bool) -> Result<Option<CallTexts>, BpfError> {
    let fork = tracing::open().ok().and_then(|tracefs| {
        EventFormat::parse(&tracefs.event_format("sched", "sched_process_fork").ok()?).ok()
    });
    // Their times are compared with those of events.
    let Some(fork) = fork.filter(|_| args.clock == "mono") else { return Ok(None) };
    let tasks = if system_wide {
        ReadTasks::AllBut(std::process::id())
    } else {
        ReadTasks::Added(Some(&fork).filter(|_| !args.no_inherit))
    };
    CallTexts::start(tasks)
}

/// Calls that make descriptors, or after which they stand for something else.
const DESCRIPTOR_CALLS: [&str; 27] = [
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "socket",
    "socketpair",
    "accept",
    "accept4",
    "pipe",
    "pipe2",
    "epoll_create1",
    "eventfd2",
    "memfd_create",
    "timerfd_create",
    "signalfd4",
    "inotify_init1",
    "pidfd_open",
    "execve",
    "unshare",
    "clone",
    "clone3",
];

/// Events of the scheduler that tell what calls wait for.
const WAIT_EVENTS: [&str; 2] = ["sched_switch", "sched_waking"];

fn wait_events() -> anyhow::Result<Vec<TraceEvent>> {
    let event = |name: &str| -> anyhow::Result<TraceEvent> {
        // The reader of the ring is woken by it, which would be another event.
        let is_waking = name == WAIT_EVENTS[1];
        let filter = is_waking.then(|| format!("pid != {}", std::process::id()));
        Ok(TraceEvent { selection: Selection::parse(&format!("sched:{name}"))?, filter })
    };
    WAIT_EVENTS.into_iter().map(event).collect()
}

/// Calls begin and end (`true`); programs and tasks do.
pub(super) const EVENTS: [(&str, bool); 4] = [
    ("raw_syscalls:sys_enter", true),
    ("raw_syscalls:sys_exit", true),
    ("sched:sched_process_exec", false),
    ("sched:sched_process_exit", false),
];

fn events(calls: &[String], without: &[u32]) -> anyhow::Result<Vec<TraceEvent>> {
    let filter = condition(calls, without)?;
    let event = |(name, of_calls): (&str, bool)| -> anyhow::Result<TraceEvent> {
        let filter = filter.clone().filter(|_| of_calls);
        Ok(TraceEvent { selection: Selection::parse(name)?, filter })
    };
    EVENTS.into_iter().map(event).collect()
}

/// The condition on events of calls: that they are these, and not of those tasks.
pub(super) fn condition(calls: &[String], without: &[u32]) -> anyhow::Result<Option<String>> {
    let mut numbers = numbers(calls)?;
    if !numbers.is_empty() {
        // What descriptors stand for is known only if all are seen that change it.
        numbers.extend(DESCRIPTOR_CALLS.iter().filter_map(|call| syscall_number(call)));
        // The kernel has numbers alone: of which ABI they are is known of each call.
        numbers.iter_mut().for_each(|number| *number %= COMPAT_CALLS);
        let compat = compat_numbers(&numbers);
        numbers.extend(compat.into_iter().map(|number| number - COMPAT_CALLS));
        numbers.sort_unstable();
        numbers.dedup();
    }
    let named = number_condition(&numbers);
    let others = without.iter().map(|pid| format!("common_pid != {pid}"));
    let both: Vec<String> = named.into_iter().chain(others).collect();
    Ok((!both.is_empty()).then(|| both.join(" && ")))
}

/// To be woken by each call finds its texts soonest and costs the traced program
/// most, so that it is granted so often in such a time.
const WAKES: u32 = 500;
const WINDOW: Duration = Duration::from_millis(100);
/// Beyond that the rings are looked at after so long.
const NAP: Duration = Duration::from_micros(100);
/// While calls come, output is written so often.
const FLUSH: Duration = Duration::from_millis(20);

fn until_the_end(capture: &mut LiveCapture, lines: &mut Lines) -> anyhow::Result<Option<LiveEnd>> {
    let mut end = None;
    let (mut flushed, mut window, mut wakes) = (Instant::now(), Instant::now(), 0);
    loop {
        let before = lines.inspected;
        let more = round(capture, lines, end.is_some())?;
        let now = Instant::now();
        let quiet = lines.inspected == before;
        if quiet || end.is_some() || lines.is_full() || now - flushed >= FLUSH {
            flush(&mut lines.output)?;
            lines.expire_names();
            flushed = now;
        }
        if lines.is_full() {
            return Ok(None);
        }
        if end.is_some() {
            if more {
                continue;
            }
            return Ok(end);
        }
        if now - window >= WINDOW {
            (window, wakes) = (now, 0);
        }
        wakes += u32::from(!quiet && !more);
        if wakes > WAKES && !quiet && !more {
            std::thread::sleep(NAP);
            continue;
        }
        end = capture.wait(more)?;
        if end.is_some() {
            capture.stop()?;
        }
    }
}

fn round(capture: &mut LiveCapture, lines: &mut Lines, last: bool) -> anyhow::Result<bool> {
    lines.begin_reading();
    let more = capture.read(&mut |time, payload| lines.inspect(time, payload))?;
    if !more {
        lines.end_reading();
    }
    capture.hand_out(last, &mut |item| {
        match item {
            Item::Event { cpu, time, payload } => lines.event(cpu, time, payload),
            Item::Lost { cpu, count } => lines.lost(cpu, count),
            Item::Damaged { .. } => lines.damaged += 1,
        }
        if lines.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(more)
}

pub(super) fn flush(out: &mut Vec<u8>) -> anyhow::Result<()> {
    if !out.is_empty() {
        let mut lines = crate::streams::stdout().lock();
        lines.write_all(out).and_then(|()| lines.flush())?;
        out.clear();
    }
    Ok(())
}
