//! System calls out of perf rings, where more is asked for than the kernel's own rings hold:
//! stacks of calls, and faults of pages.
//!
//! Rings are opened as for a recording; `call_feed.rs` makes lines of what they hold, as of a
//! recording's events.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_events::live::LiveSamples;
use kymo_events::{EventSelection, RecordedEvent};
use kymo_kernel::blocked::BlockedThreads;
use kymo_kernel::events::{Catalog, EventSpec};
use kymo_model::{AttrFlags, Note, NoteKind, SampleType};
use kymo_record::{CallGraph, PerfCapture, RecordClock, RecordOptions, Target};
use kymo_render::syscalls::SyscallLines;
use kymo_symbols::ResolverOptions;
use kymo_view::Ledger;

use super::call_feed::CallFeed;
use super::live_output::is_coloured;
use super::syscalls;
use super::traced_tasks::TracedTasks;
use super::{Args, close};
use crate::args::switch::SwitchArgs;
use crate::args::values::call_graph;
use crate::commands::tracing;

/// Flags of what perf rings hold beside calls.
#[derive(clap::Args)]
pub(super) struct SampledArgs {
    /// Show the stack of each call: fp, or dwarf[,BYTES]
    ///
    /// fp: by frame pointers; dwarf: unwound from a copy of the stack.
    #[arg(long, value_name = "MODE", value_parser = call_graph, conflicts_with = "output")]
    call_graph: Option<CallGraph>,
    /// Include kernel functions at the end of the call [default mode: frame pointers]
    #[arg(long, conflicts_with = "output")]
    kernel_syscall_graph: bool,
    /// Maximum number of frames of a stack [default: 127]; implies --call-graph dwarf
    #[arg(long, value_name = "N", conflicts_with = "output",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) max_stack: Option<u16>,
    /// Show only calls and faults with at least N frames; implies --call-graph dwarf
    #[arg(long, value_name = "N", conflicts_with = "output")]
    pub(super) min_stack: Option<u16>,
    /// Show page faults with their locations and addresses: maj (from disk), min, or all
    #[arg(short = 'F', long, value_name = "KIND", conflicts_with = "output")]
    pf: Option<PageFaults>,
    /// Only this cgroup, on all CPUs
    #[arg(long, value_name = "NAME",
          conflicts_with_all = ["output", "pid", "uid", "input", "all_cpus"])]
    cgroup: Option<String>,
    /// Show the CPU time of tasks in tables (sched:sched_stat_runtime); with -s or -S
    #[arg(long, conflicts_with = "output")]
    pub(super) sched: bool,
    #[command(flatten)]
    pub(super) switch: SwitchArgs,
    /// Show only page faults, no system calls
    #[arg(long, requires = "pf")]
    no_syscalls: bool,
}

/// Selection of page faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PageFaults {
    /// Both.
    All,
    /// Major faults, which wait for a disk.
    Maj,
    /// The others.
    Min,
}

impl SampledArgs {
    /// The flag that takes perf rings, if one was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.call_graph.is_some(), "--call-graph"),
            (self.kernel_syscall_graph, "--kernel-syscall-graph"),
            (self.max_stack.is_some(), "--max-stack"),
            (self.min_stack.is_some(), "--min-stack"),
            (self.pf.is_some(), "--pf"),
            (self.cgroup.is_some(), "--cgroup"),
            (self.sched, "--sched"),
            (self.switch.is_given(), "--switch-on"),
        ];
        given.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
    }

    /// Whether the events of a cgroup are wanted, whatever its tasks.
    pub(super) fn is_of_cgroup(&self) -> bool {
        self.cgroup.is_some()
    }

    fn graph(&self) -> Option<CallGraph> {
        let limited = self.max_stack.is_some() || self.min_stack.is_some();
        match self.call_graph {
            None if limited => Some(CallGraph::Dwarf(8192)),
            None => self.kernel_syscall_graph.then_some(CallGraph::FramePointers),
            chosen => chosen,
        }
    }

    fn faults(&self) -> &'static [&'static str] {
        match self.pf {
            None => &[],
            Some(PageFaults::All) => &["major-faults", "minor-faults"],
            Some(PageFaults::Maj) => &["major-faults"],
            Some(PageFaults::Min) => &["minor-faults"],
        }
    }
}

/// Event with the time that a task ran.
pub(super) const RUNTIME: &str = "sched:sched_stat_runtime";
/// Rings are read so often, or when one is half full.
const TICK: Duration = Duration::from_millis(20);
/// Pages of each ring, without stacks and with copies of them.
const PAGES: usize = 1024;
const PAGES_OF_STACKS: usize = 4096;

/// Lines of the calls of a run.
type Lines = SyscallLines<TracedTasks>;

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(flag) = args.sampled.given().filter(|_| args.delay.is_some()) {
        bail!("-D is not for calls out of perf rings: leave it or {flag} away");
    }
    let system_wide = args.is_of_machine()?;
    let options = options(args, system_wide)?;
    let is_monotonic = options.clock == RecordClock::Monotonic;
    // Before the events are opened: what is attached first runs first.
    let (texts, refusal) =
        if args.sampled.no_syscalls { (None, None) } else { syscalls::texts(args, system_wide) };
    let mut capture = PerfCapture::open(&options)?;
    if let Some(texts) = &texts {
        syscalls::add_tasks(texts, args, options.spawned.as_ref().and_then(|pid| pid.get()))?;
    }
    let tracefs = tracing::open()?;
    let tasks = TracedTasks::of_samples(tracefs, texts);
    let style = syscalls::style(args, (is_coloured(), system_wide), is_monotonic);
    let only = syscalls::numbers(&args.call.calls)?;
    let lines = SyscallLines::new(None, tasks, style, None, args.count).with_calls(only);
    let mut lines = syscalls::with_perf_form(lines, args);
    lines.describe_calls();
    let selection = EventSelection::of_tasks(args.comm.clone(), Vec::new(), args.tid.clone());
    let symbols = ResolverOptions::default();
    let mut samples = LiveSamples::new(&selection, capture.described(), &symbols);
    let mut existing = Vec::new();
    capture.tell_existing(true, &mut |record| existing.extend_from_slice(record))?;
    samples.push(&existing, &[]);
    drop(existing);
    let mut ledger = Ledger::from_notes(capture.notes().to_vec());
    let blocked = if args.sampled.no_syscalls {
        BlockedThreads::default()
    } else {
        syscalls::blocked_targets(args)?
    };
    capture.start()?;
    syscalls::continue_calls(blocked, &mut lines);
    let mut feed = CallFeed::new(args);
    let result = until_the_end(&mut capture, &mut samples, &mut (&mut lines, &mut feed));
    capture.stop()?;
    result?;
    let finished = capture.finish();
    lines.finish();
    syscalls::flush(&mut lines.output)?;
    let lost = samples.lost();
    if lost > 0 {
        let advice = "larger rings (-m) or fewer events (-e, --pid) lose fewer".to_owned();
        let fact = format!("{lost} records were lost in full rings");
        ledger.push(Note::doubt(NoteKind::Lost, fact, Some(advice)));
    }
    lines.note(&mut |note| ledger.push(Note { advice: refusal.clone(), ..note }));
    if lines.inspected == 0 && !args.sampled.no_syscalls && !args.sampled.switch.is_given() {
        ledger.push(syscalls::note_silence(args)?);
    }
    Ok(close(args, &ledger, finished.exit))
}

/// Returns the options of opening the events.
fn options(args: &Args, system_wide: bool) -> anyhow::Result<RecordOptions> {
    let Some(clock) = RecordClock::parse(&args.clock) else {
        let all = RecordClock::ALL.map(RecordClock::name).join(", ");
        bail!("events of perf rings have no clock {}; there are {all}", args.clock);
    };
    let pids = args.pids()?;
    let stacks = args.sampled.graph().is_some();
    let pages = args.buffer_size.map(|bytes| (bytes / 4096).max(1).next_power_of_two() as usize);
    let default = if stacks { PAGES_OF_STACKS } else { PAGES };
    Ok(RecordOptions {
        events: specs(args, system_wide)?,
        target: match &args.sampled.cgroup {
            Some(name) => Target::Cgroups(vec![name.clone()]),
            None if system_wide => Target::System,
            None if pids.is_empty() => Target::Command,
            None => Target::Processes(pids),
        },
        command: args.command.clone(),
        spawned: Some(Default::default()),
        cpus: args.cpus()?,
        period: Some(1),
        inherit: !args.no_inherit,
        delay: args.delay,
        timeout: args.timeout,
        pages: Some(pages.unwrap_or(default)),
        clock,
        cgroup_records: args.call.has_cgroups(),
        // Data that faults are about lies in mappings without code.
        data_mappings: args.sampled.pf.is_some(),
        ..RecordOptions::default()
    })
}

/// Events, with the stacks that those have which lines are made of.
fn specs(args: &Args, system_wide: bool) -> anyhow::Result<Vec<EventSpec>> {
    let own = system_wide.then(std::process::id);
    let without: Vec<u32> = own.into_iter().chain(args.call.filter_pids.iter().copied()).collect();
    let condition = syscalls::condition(&args.call.calls, &without)?;
    let catalog = Catalog::open();
    let mut specs = Vec::new();
    for (event, of_calls) in syscalls::EVENTS {
        if of_calls && args.sampled.no_syscalls {
            continue;
        }
        for mut spec in catalog.parse(event)? {
            spec.filter = condition.clone().filter(|_| of_calls);
            if event.ends_with("sys_exit") {
                add_stacks(&args.sampled, &mut spec);
                if !args.sampled.kernel_syscall_graph {
                    spec.attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_KERNEL;
                }
            }
            specs.push(spec);
        }
    }
    if args.sampled.sched {
        specs.extend(catalog.parse(RUNTIME).context("--sched")?);
    }
    let switch = args.sampled.switch.switch();
    for event in [switch.on, switch.off].into_iter().flatten() {
        if !specs.iter().any(|spec| spec.name == event) {
            specs.extend(
                catalog.parse(&event).with_context(|| format!("--switch-on, -off {event}"))?,
            );
        }
    }
    for event in args.sampled.faults() {
        for mut spec in catalog.parse(event).with_context(|| format!("--pf: {event}"))? {
            spec.attr.sample_type |= SampleType::ADDR | SampleType::CPU;
            add_stacks(&args.sampled, &mut spec);
            specs.push(spec);
        }
    }
    Ok(specs)
}

fn add_stacks(args: &SampledArgs, spec: &mut EventSpec) {
    let Some(graph) = args.graph() else { return };
    let (mode, size) = match graph {
        CallGraph::FramePointers => ("fp", None),
        CallGraph::Dwarf(bytes) => ("dwarf", Some(u64::from(bytes))),
    };
    (spec.terms.call_graph, spec.terms.stack_size) = (Some(mode.to_owned()), size);
}

fn until_the_end(
    capture: &mut PerfCapture,
    samples: &mut LiveSamples<'_>,
    (lines, feed): &mut (&mut Lines, &mut CallFeed<'_>),
) -> anyhow::Result<()> {
    loop {
        let end = capture.wait(TICK)?;
        if end.is_some() {
            capture.stop()?;
        }
        capture.round(&mut |first, second| samples.push(first, second));
        let mut take = |event: &RecordedEvent<'_>| {
            feed.take(lines, event);
            if lines.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut flow = samples.end_round(&mut take);
        if end.is_some() && flow.is_continue() {
            flow = samples.finish(&mut take);
            if let Some(record) = capture.unreported_losses(samples.lost()) {
                samples.push(&record, &[]);
                flow = samples.finish(&mut take);
            }
        }
        lines.expire_names();
        syscalls::flush(&mut lines.output)?;
        if end.is_some() || flow.is_break() {
            return Ok(());
        }
    }
}
