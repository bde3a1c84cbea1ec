//! A run of a program in user space until its target, the user or itself ends it: its events are
//! opened as for a recording, and come out of the live event layer in the order of time.

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use kymo_bpf::{AttachTarget, ProgramEvent};
use kymo_events::live::LiveSamples;
use kymo_events::{EventSelection, RecordedEvent};
use kymo_kernel::clock::monotonic_ns;
use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::proc_maps;
use kymo_model::{Attr, AttrFlags, EventType, Note, NoteKind, SampleType, sw};
use kymo_programs::{
    EventPoint, InterpretedProgram, ProgramSinks, ProgramSummary, RunState, bpf_refusal,
};
use kymo_record::{CallGraph, CaptureSummary, PerfCapture, RecordOptions, Target};
use kymo_symbols::ResolverOptions;
use rustc_hash::FxHashMap;

use super::RunTarget;

/// Rings are read so often, or when one is half full.
const TICK: Duration = Duration::from_millis(50);
/// Names of tasks that were looked up are remembered up to this number.
const MOST_NAMES: usize = 1 << 16;

/// Target of the events to be opened.
pub(crate) struct RingScope {
    pub(crate) target: Target,
    /// The command of [`Target::Command`].
    pub(crate) command: Vec<std::ffi::OsString>,
    /// Data pages of each ring.
    pub(crate) pages: Option<usize>,
    /// A process that is watched alone, with the children it will have, where the kernel does
    /// not show all of the target to this user.
    pub(crate) at_least: Option<u32>,
    /// Option that makes the rings larger, if not `-m`.
    pub(crate) larger: Option<&'static str>,
}

impl RingScope {
    /// All of a target, in rings of the usual size.
    pub(crate) fn of(target: Target) -> RingScope {
        RingScope { target, command: Vec::new(), pages: None, at_least: None, larger: None }
    }
}

/// Reason why it does not run in the kernel.
#[derive(Clone, Debug)]
pub(crate) struct UserSpaceReason {
    text: String,
    is_refusal: bool,
}

impl UserSpaceReason {
    /// The user wanted it so.
    pub(crate) fn wanted() -> UserSpaceReason {
        UserSpaceReason { text: "--no-bpf".into(), is_refusal: false }
    }

    /// Returns the reason if the kernel refuses all BPF to this user.
    pub(crate) fn of_refusal() -> Option<UserSpaceReason> {
        let text = bpf_refusal()?.to_string();
        Some(UserSpaceReason { text, is_refusal: true })
    }

    /// Returns the reason if this user may run programs in the kernel, but not read the formats of
    /// the events that follow a command.
    pub(crate) fn of_formats() -> Option<UserSpaceReason> {
        let root = crate::commands::tracing::open();
        let format = root.ok().and_then(|fs| fs.event_format("sched", "sched_process_exit").ok());
        let text = "the formats of tracepoints cannot be read".to_owned();
        format.is_none().then_some(UserSpaceReason { text, is_refusal: true })
    }

    /// Says of a program that cannot run in user space why it does not run in the kernel.
    pub(crate) fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        match self.refusal() {
            Some(why) => anyhow::anyhow!("{error:#}, and no BPF program can run here: {why}"),
            None => anyhow::anyhow!("{error:#}"),
        }
    }

    /// The refusal, if it is one.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.is_refusal.then_some(self.text.as_str())
    }
}

/// A program whose events are open.
pub(crate) struct RingRun {
    program: InterpretedProgram,
    capture: PerfCapture,
    of_tasks: bool,
    is_system: bool,
    larger: Option<&'static str>,
    notes: Vec<Note>,
}

impl RingRun {
    /// Opens the events.
    pub(crate) fn open(program: InterpretedProgram, scope: RingScope) -> anyhow::Result<RingRun> {
        let needs = program.needs();
        let mut events = specs_of(program.points())?;
        let mut target = scope.target;
        if events.is_empty() {
            // BEGIN and intervals alone: something to wait for.
            let attr = Attr {
                kind: EventType::SOFTWARE,
                config: sw::DUMMY,
                flags: AttrFlags::EXCLUDE_KERNEL,
                ..Attr::default()
            };
            events.push(EventSpec::new("dummy:u", attr));
            target = Target::Threads(vec![std::process::id()]);
        }
        let mut options = RecordOptions {
            events,
            target,
            command: scope.command,
            period: Some(1),
            call_graph: needs.stacks.then_some(CallGraph::FramePointers),
            pages: scope.pages,
            ..RecordOptions::default()
        };
        options.contents.fields = SampleType::CPU;
        if needs.cgroup {
            options.contents.fields |= SampleType::CGROUP;
        }
        let mut notes = Vec::new();
        let capture = match (PerfCapture::open(&options), scope.at_least) {
            (Err(error), Some(pid)) if options.target == Target::System => {
                options.target = Target::Processes(vec![pid]);
                // Of two refusals the first is that of the request.
                let Ok(capture) = PerfCapture::open(&options) else { return Err(error.into()) };
                let error = anyhow::Error::from(error);
                let fact = format!("only process {pid} and its new children are seen: {error:#}");
                notes.push(Note::doubt(NoteKind::Scope, fact, None));
                capture
            }
            (opened, _) => opened?,
        };
        if capture.notes().iter().any(|note| note.kind == NoteKind::UserOnly)
            && let Some(point) = program.points().iter().find(|point| is_of_kernel(point))
        {
            anyhow::bail!(
                "{} happens in the kernel, of which this user sees nothing: run as root or with \
                 CAP_PERFMON, or set kernel.perf_event_paranoid to 1 or less",
                point.name
            );
        }
        let of_tasks = options.target == Target::Command || !notes.is_empty();
        let is_system = options.target == Target::System;
        Ok(RingRun { program, capture, of_tasks, is_system, larger: scope.larger, notes })
    }

    /// Probes.
    pub(crate) fn probes(&self) -> usize {
        self.program.attached
    }

    /// Whether output is that of bpftrace 0.17.
    pub(crate) fn is_old(&self) -> bool {
        self.program.is_old()
    }

    /// Says how many probes there are, in JSON.
    pub(crate) fn announce(&self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        self.program.announce(sinks)
    }

    /// Hands over events until the end; `end` is set to when that was.
    pub(crate) fn follow(
        self,
        target: &mut RunTarget,
        reason: &UserSpaceReason,
        sinks: &mut ProgramSinks<'_>,
        end: &Cell<Option<Instant>>,
    ) -> anyhow::Result<ProgramSummary> {
        let RingRun { mut program, mut capture, of_tasks, is_system, larger, mut notes } = self;
        let selection = EventSelection::default();
        let mut samples =
            LiveSamples::new(&selection, capture.described(), &ResolverOptions::default());
        let mut existing = Vec::new();
        capture.tell_existing(false, &mut |record| existing.extend_from_slice(record))?;
        samples.push(&existing, &[]);
        drop(existing);
        let needs = program.needs();
        if let Some(pid) = target.pid() {
            program.remember_owner(pid, !is_system);
        }
        let is_over = program.begin(sinks)? == RunState::Ended
            || !program.awaits_events() && target.child.is_none();
        let mut feed = EventFeed {
            program: &mut program,
            sinks,
            of_tasks,
            needs_chain: needs.stacks,
            needs_cgroup: needs.cgroup,
            chain: Vec::new(),
            names: FxHashMap::default(),
            events: 0,
            end,
            result: Ok(RunState::Busy),
        };
        let flow = if is_over {
            Ok(())
        } else {
            capture.start().map_err(anyhow::Error::from).and_then(|()| {
                target.release()?;
                feed.until_the_end(&mut capture, &mut samples, target)
            })
        };
        // What was switched on is switched off, also after an error.
        capture.stop()?;
        flow?;
        let events = feed.events;
        feed.result?;
        notes.extend_from_slice(capture.notes());
        target.interrupted(|command| capture.has_reached(command));
        let finished = capture.finish();
        let lost = samples.into_summary().live_notes();
        notes.extend(lost.into_iter().map(|note| match (larger, note.kind) {
            (Some(larger), NoteKind::Lost) => Note { advice: Some(larger.into()), ..note },
            _ => note,
        }));
        let mut summary = program.finish(sinks)?;
        notes.append(&mut summary.notes);
        notes.push(receipt(reason, events, &finished));
        Ok(ProgramSummary { notes, ..summary })
    }
}

/// Whether an event never happens in user mode. Those of single system calls do, as the kernel
/// sees it: their registers are the caller's.
fn is_of_kernel(point: &EventPoint) -> bool {
    match &point.target {
        AttachTarget::Tracepoint { category, .. } => category != "syscalls",
        _ => {
            point.attr.kind == EventType::SOFTWARE
                && [sw::CONTEXT_SWITCHES, sw::CPU_MIGRATIONS].contains(&point.attr.config)
        }
    }
}

/// Events as they are opened, in the order of their numbers.
fn specs_of(points: &[EventPoint]) -> anyhow::Result<Vec<EventSpec>> {
    let catalog = Catalog::open();
    let mut specs = Vec::with_capacity(points.len());
    for point in points {
        let mut spec = match &point.target {
            AttachTarget::Tracepoint { category, event } => {
                let found = catalog.parse(&format!("{category}:{event}"))?;
                let Some(spec) = found.into_iter().next() else {
                    anyhow::bail!("no such tracepoint: {category}:{event}")
                };
                spec
            }
            _ => EventSpec::new(point.name.clone(), point.attr.clone()),
        };
        spec.terms.period = Some(point.attr.sample_period);
        spec.filter = point.condition.clone();
        specs.push(spec);
    }
    Ok(specs)
}

/// Hands events to a program.
struct EventFeed<'r, 'w> {
    program: &'r mut InterpretedProgram,
    sinks: &'r mut ProgramSinks<'w>,
    /// Only of tasks that were opened, and of their children: the kernel also delivers an event to
    /// the task that it is about.
    of_tasks: bool,
    needs_chain: bool,
    needs_cgroup: bool,
    chain: Vec<u64>,
    /// Tasks that no record names.
    names: FxHashMap<u32, Vec<u8>>,
    events: u64,
    /// End of the events.
    end: &'r Cell<Option<Instant>>,
    result: io::Result<RunState>,
}

impl EventFeed<'_, '_> {
    fn until_the_end(
        &mut self,
        capture: &mut PerfCapture,
        samples: &mut LiveSamples<'_>,
        target: &mut RunTarget,
    ) -> anyhow::Result<()> {
        // All events before have been read, by the round before the last.
        let mut complete = 0;
        let mut ticks = 0u32;
        loop {
            let is_end = capture.wait(TICK)?.is_some() || target.has_ended()?;
            if is_end {
                capture.stop()?;
                self.end.set(Some(Instant::now()));
            }
            let now = monotonic_ns();
            capture.round(&mut |first, second| samples.push(first, second));
            if samples.end_round(&mut |event| self.take(event)).is_break() {
                return Ok(());
            }
            if self.program.pass_time(complete, self.sinks)? == RunState::Ended {
                return Ok(());
            }
            self.sinks.output.flush()?;
            if is_end {
                break;
            }
            complete = now;
            // Libraries come one by one in the first milliseconds.
            if let (Some(pid), true) = (target.pid(), ticks < 8 || ticks.is_multiple_of(4)) {
                self.program.remember_process(pid);
            }
            ticks = ticks.wrapping_add(1);
        }
        if samples.finish(&mut |event| self.take(event)).is_break() {
            return Ok(());
        }
        if let Some(record) = capture.unreported_losses(samples.lost()) {
            samples.push(&record, &[]);
            let _ = samples.finish(&mut |event| self.take(event));
        }
        Ok(())
    }

    fn take(&mut self, event: &RecordedEvent<'_>) -> ControlFlow<()> {
        let Some(number) = event.opened_number() else { return ControlFlow::Continue(()) };
        let task = *event.task();
        if self.of_tasks && !task.is_named {
            return ControlFlow::Continue(());
        }
        self.chain.clear();
        if self.needs_chain {
            event.append_chain_entries(&mut self.chain);
        }
        let (cpu, tid) = (event.cpu().unwrap_or(0), task.tid.unwrap_or(0));
        let comm = match (tid, task.is_named) {
            (0, _) => format!("swapper/{cpu}").into_bytes().into(),
            (_, true) => Cow::Borrowed(task.comm()),
            (_, false) => Cow::Borrowed(name_of(&mut self.names, tid)),
        };
        let cgroup = if self.needs_cgroup { event.cgroup_id().unwrap_or(0) } else { 0 };
        let event = ProgramEvent {
            record: event.record_bytes().unwrap_or_default(),
            time: event.time.unwrap_or(0),
            cpu,
            pid: task.pid.unwrap_or(0),
            tid,
            comm: &comm,
            chain: &self.chain,
            cgroup,
            owner: (0, 0),
        };
        self.events += 1;
        self.result = self.program.take(number, &event, self.sinks);
        match self.result {
            Ok(RunState::Ended) | Err(_) => ControlFlow::Break(()),
            Ok(_) => ControlFlow::Continue(()),
        }
    }
}

/// Name of a task that the rings did not name: it began while its CPU lost records.
fn name_of(names: &mut FxHashMap<u32, Vec<u8>>, tid: u32) -> &[u8] {
    if names.len() >= MOST_NAMES {
        names.clear();
    }
    names.entry(tid).or_insert_with(|| proc_maps::status(tid).unwrap_or_default().comm)
}

/// That it was done in user space, why, and what it took.
fn receipt(reason: &UserSpaceReason, events: u64, finished: &CaptureSummary) -> Note {
    let (used, elapsed) = (finished.used.as_secs_f64(), finished.elapsed.as_secs_f64());
    let mut fact = format!(
        "aggregated in user space ({}): {events} events; kymo itself used {used:.3} s of a CPU",
        reason.text
    );
    // A shorter time gives no meaningful rate.
    if elapsed > 0.001 {
        let (rate, share) = (events as f64 / elapsed, used * 100.0 / elapsed);
        fact += &format!(" in {elapsed:.3} s, {share:.1}%, with {rate:.0} events a second");
    }
    Note::choice(NoteKind::NoBpf, fact, None)
}
