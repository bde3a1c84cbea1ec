//! Selection of events, and the run: events of the kernel from perf rings, those of programs from
//! the rings that they share.

use std::ffi::OsString;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kymo_events::live::{LiveEvents, LiveItem, LiveSamples};
use kymo_events::{EventSelection, FilterExpr, RecordedEvent};
use kymo_kernel::events::Catalog;
use kymo_kernel::ftrace::own_name;
use kymo_kernel::probe_guard::{ProbeGuard, ProbeNamesLock};
use kymo_kernel::tracefs::Tracefs;
use kymo_model::{Note, Weight};
use kymo_probe::naming::TakenName;
use kymo_probe::{PlanOptions, ProbedTarget, ResolveOptions, event_names, plan_probes};
use kymo_record::ust::{
    ChannelOptions, ChannelWatch, LivePrograms, MountNamespace, ProgramNews, UstError,
    WatchOptions, parse_rules, sub_buffers,
};
use kymo_record::{CallGraph, PerfCapture, RecordOptions, Target};
use kymo_symbols::ResolverOptions;
use kymo_symbols::debug_files::SourceDirectories;

use crate::error::LiveError;
use crate::event::LiveEvent;

/// Rings are read so often, or when one is half full.
const TICK: Duration = Duration::from_millis(50);
/// Wait for a program's last events.
const FORGET: Duration = Duration::from_millis(20);
/// Pages of each ring of the kernel.
const PAGES: usize = 512;
/// The most places that one probe may give.
const MAX_PROBES: usize = 128;

/// Events that are asked for, and whose. Without a command and processes they are those of the
/// whole machine.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before `run`"]
pub struct Subscription {
    events: Vec<String>,
    probes: Vec<String>,
    /// With what they must fulfil.
    program_events: Vec<(String, Option<String>)>,
    filter: Option<String>,
    command: Vec<OsString>,
    processes: Vec<u32>,
    is_system_wide: bool,
    call_chains: bool,
    frequency: Option<u64>,
    ring_pages: Option<usize>,
    timeout: Option<Duration>,
}

/// Result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveSummary {
    /// Events that were handed out.
    pub events: u64,
    /// Records that were lost, as far as they could be counted: events and, of the kernel's rings,
    /// what it says of tasks beside them.
    pub lost: u64,
    /// Exit status of the command.
    pub exit_status: Option<u8>,
    /// Doubts and losses.
    pub notes: Vec<LiveNote>,
}

/// Something to be known of the events that came.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveNote {
    /// Stable word for its kind: `lost`, `clock` …, as in docs/trust.md.
    pub code: &'static str,
    /// The fact, with its figures.
    pub fact: String,
    /// The way out, where there is one.
    pub advice: Option<String>,
    /// Whether it lessens the trust in the result.
    pub is_doubt: bool,
}

impl LiveNote {
    fn of(note: Note) -> LiveNote {
        let Note { kind, fact, advice, weight } = note;
        LiveNote { code: kind.code(), fact, advice, is_doubt: weight == Weight::Doubt }
    }
}

impl fmt::Display for LiveNote {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.code, self.fact)
    }
}

impl Subscription {
    /// No event yet.
    pub fn new() -> Subscription {
        Subscription::default()
    }

    /// Adds events by name, as `kymo record -e` takes them: tracepoints (`sched:sched_switch`,
    /// `irq:*`), samples of counters and clocks (`cpu-clock`, `page-faults`).
    pub fn event(mut self, name: impl Into<String>) -> Subscription {
        self.events.push(name.into());
        self
    }

    /// Adds a probe for the time of the run, as `kymo record --probe` takes it: `vfs_read count`,
    /// or with a program's path before it `/usr/bin/x main argc`.
    pub fn probe(mut self, definition: impl Into<String>) -> Subscription {
        self.probes.push(definition.into());
        self
    }

    /// Adds tracepoints of programs that link `kymo-tracepoint`: `PROVIDER:NAME`, with `*` and `?`.
    pub fn program_event(mut self, name: impl Into<String>) -> Subscription {
        self.program_events.push((name.into(), None));
        self
    }

    /// Adds tracepoints of programs with a condition on their fields, which the program checks: an
    /// event that does not match takes no room.
    pub fn program_event_if(
        mut self,
        name: impl Into<String>,
        condition: impl Into<String>,
    ) -> Subscription {
        self.program_events.push((name.into(), Some(condition.into())));
        self
    }

    /// Hands out only events that fulfil a condition on their fields: `bytes > 4096 && comm ==
    /// "sh"`, as `kymo script --filter` takes it.
    pub fn filter(mut self, condition: impl Into<String>) -> Subscription {
        self.filter = Some(condition.into());
        self
    }

    /// Runs a command, and takes its events and those of its children, until it ends.
    pub fn command<I, S>(mut self, words: I) -> Subscription
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        self.command = words.into_iter().map(Into::into).collect();
        self
    }

    /// Takes the events of these processes and of children that they will have, until they end.
    /// Events of programs can be taken of up to four.
    pub fn processes(mut self, pids: impl IntoIterator<Item = u32>) -> Subscription {
        self.processes = pids.into_iter().collect();
        self
    }

    /// Takes the events of the whole machine while the command runs.
    pub fn system_wide(mut self) -> Subscription {
        self.is_system_wide = true;
        self
    }

    /// Takes call chains, by frame pointers.
    pub fn call_chains(mut self) -> Subscription {
        self.call_chains = true;
        self
    }

    /// Samples a second, of events that are sampled.
    pub fn frequency(mut self, hertz: u64) -> Subscription {
        self.frequency = Some(hertz);
        self
    }

    /// Pages of each ring of the kernel, a power of two: larger ones hold what comes while the
    /// handler is busy.
    pub fn ring_pages(mut self, pages: usize) -> Subscription {
        self.ring_pages = Some(pages);
        self
    }

    /// Ends after this time.
    pub fn timeout(mut self, time: Duration) -> Subscription {
        self.timeout = Some(time);
        self
    }

    /// Takes events until the command or the processes end, the time is over, SIGINT or SIGTERM
    /// comes, or `handler` breaks off. Events of the kernel come in the order of time, and so do
    /// those of programs; the two are not put into one order.
    ///
    /// # Errors
    /// If there are no such events, or the kernel refuses them.
    pub fn run<F>(self, mut handler: F) -> Result<LiveSummary, LiveError>
    where
        F: FnMut(&LiveEvent<'_, '_>) -> ControlFlow<()>,
    {
        self.run_dyn(&mut handler)
    }

    fn run_dyn(self, handler: Handler<'_>) -> Result<LiveSummary, LiveError> {
        if self.events.is_empty() && self.probes.is_empty() && self.program_events.is_empty() {
            return Err(LiveError::new("no event is requested"));
        }
        let probes = self.add_probes()?;
        let mut selection = EventSelection::default();
        let filter = self.filter.as_deref().map(FilterExpr::parse).transpose();
        selection.filter = filter.map_err(LiveError::of)?;
        let spawned = Arc::new(OnceLock::new());
        let options = self.options(probes.as_ref(), &spawned)?;
        let mut capture = PerfCapture::open(&options).map_err(LiveError::of)?;
        let mut samples =
            LiveSamples::new(&selection, capture.described(), &ResolverOptions::default());
        let mut existing = Vec::new();
        let tells = self.has_kernel_events();
        let told = capture.tell_existing(tells, &mut |record| existing.extend_from_slice(record));
        told.map_err(LiveError::of)?;
        samples.push(&existing, &[]);
        drop(existing);
        let programs = self.watch_programs(spawned.get().copied())?;
        let mut programs = programs.map(|watch| ProgramRings {
            watch,
            programs: LivePrograms::default(),
            live: LiveEvents::new(&selection, None),
        });
        let mut hand = HandOut { handler, events: 0 };
        capture.start().map_err(LiveError::of)?;
        let flow = until_the_end(&mut capture, &mut samples, programs.as_mut(), &mut hand);
        // What was switched on is switched off, also after an error.
        let stopped = capture.stop().map_err(LiveError::of);
        flow?;
        stopped?;
        let events = hand.events;
        let mut lost = samples.lost();
        let mut notes = capture.notes().to_vec();
        let finished = capture.finish();
        notes.extend(samples.into_summary().live_notes());
        if let Some(programs) = programs {
            let stats = programs.programs.stats();
            let parts = [stats.discarded, stats.overwritten_events, stats.without_ring];
            lost = parts.iter().fold(lost, |sum, part| sum.saturating_add(*part));
            let passed_over = [&programs.watch.notes(), programs.programs.passed_over()].concat();
            notes.extend(stats.notes(&passed_over));
        }
        // The events are closed; now the probes can go.
        if let Some(probes) = probes {
            probes.remove().map_err(LiveError::of)?;
        }
        let notes = notes.into_iter().map(LiveNote::of).collect();
        Ok(LiveSummary { events, lost, exit_status: finished.exit, notes })
    }

    fn has_kernel_events(&self) -> bool {
        !self.events.is_empty() || !self.probes.is_empty()
    }

    fn options(
        &self,
        probes: Option<&ProbeGuard>,
        spawned: &Arc<OnceLock<u32>>,
    ) -> Result<RecordOptions, LiveError> {
        let catalog = Catalog::open();
        let mut events = Vec::new();
        let of_probes = probes.map(ProbeGuard::events).unwrap_or_default();
        for name in self.events.iter().chain(&of_probes) {
            events.extend(catalog.parse(name).map_err(LiveError::of)?);
        }
        let is_system_wide =
            self.is_system_wide || (self.command.is_empty() && self.processes.is_empty());
        let mut target = match (is_system_wide, self.processes.as_slice()) {
            (true, _) => Target::System,
            (false, []) => Target::Command,
            (false, pids) => Target::Processes(pids.to_vec()),
        };
        if events.is_empty() {
            // For programs alone: an event whose end can be waited for, of no other process.
            events = catalog.parse("dummy:u").map_err(LiveError::of)?;
            if target == Target::System {
                target = Target::Threads(vec![std::process::id()]);
            }
        }
        Ok(RecordOptions {
            events,
            target,
            command: self.command.clone(),
            spawned: Some(Arc::clone(spawned)),
            freq: self.frequency,
            call_graph: self.call_chains.then_some(CallGraph::FramePointers),
            pages: Some(self.ring_pages.unwrap_or(PAGES)),
            timeout: self.timeout,
            build_ids: false,
            ..RecordOptions::default()
        })
    }

    /// Adds the probes; they go when the guard is dropped.
    fn add_probes(&self) -> Result<Option<ProbeGuard>, LiveError> {
        if self.probes.is_empty() {
            return Ok(None);
        }
        let tracefs = Tracefs::open().map_err(LiveError::of)?;
        let _lock = ProbeNamesLock::take().map_err(LiveError::of)?;
        let mut names = event_names(&tracefs, TakenName::Number).map_err(LiveError::of)?;
        let mut definitions = Vec::new();
        for definition in &self.probes {
            let text = definition.trim();
            let (exec, text) = match text.split_once(char::is_whitespace) {
                Some((path, rest)) if path.starts_with('/') => (Some(path.into()), rest.trim()),
                _ => (None, text),
            };
            let target = ProbedTarget { exec, ..ProbedTarget::default() };
            let resolve = ResolveOptions {
                no_inlines: false,
                max_probes: MAX_PROBES,
                sources: SourceDirectories::default(),
            };
            let options =
                PlanOptions { target: &target, resolve, force: false, costs: false, cached: None };
            let planned = plan_probes(&[text.to_owned()], &options, &tracefs, &mut names);
            definitions.extend(planned.map_err(LiveError::of)?.added().cloned());
        }
        ProbeGuard::add(&tracefs, definitions).map(Some).map_err(LiveError::of)
    }

    /// Switches the events of programs on. `command`: the process of the command.
    fn watch_programs(&self, command: Option<u32>) -> Result<Option<ChannelWatch>, LiveError> {
        if self.program_events.is_empty() {
            return Ok(None);
        }
        let mut rules = Vec::new();
        for (name, condition) in &self.program_events {
            let name = std::slice::from_ref(name);
            rules.extend(parse_rules(name, None, condition.as_deref()).map_err(LiveError::of)?);
        }
        let command = command.filter(|_| !self.is_system_wide);
        let pids = self.processes.clone();
        let mut limited = [command.unwrap_or(0), 0, 0, 0];
        for (place, pid) in limited.iter_mut().zip(&pids).filter(|_| command.is_none()) {
            *place = *pid;
        }
        if pids.len() > limited.len() {
            return Err(LiveError::new("events of programs can be taken of up to four processes"));
        }
        let (sub_buffer, sub_buffers) = sub_buffers(None);
        let options = WatchOptions {
            channel: ChannelOptions {
                session: own_name("live"),
                channel: "channel0".into(),
                rules,
                overwrite: false,
                sub_buffer,
                sub_buffers,
                pids: limited,
            },
            running: command.is_none() || !pids.is_empty(),
            pids,
        };
        let namespaces =
            if command.is_some() { vec![MountNamespace::here()] } else { MountNamespace::all() };
        ChannelWatch::start(&namespaces, &options).map(Some).map_err(LiveError::of)
    }
}

type Handler<'h> = &'h mut dyn FnMut(&LiveEvent<'_, '_>) -> ControlFlow<()>;

/// Receiver of the events.
struct HandOut<'h> {
    handler: Handler<'h>,
    events: u64,
}

impl HandOut<'_> {
    fn event(&mut self, event: &RecordedEvent<'_>) -> ControlFlow<()> {
        self.events += 1;
        (self.handler)(&LiveEvent::new(event))
    }
}

/// The rings of programs.
struct ProgramRings<'s> {
    watch: ChannelWatch,
    programs: LivePrograms,
    live: LiveEvents<'s>,
}

impl ProgramRings<'_> {
    /// Reads all rings once and hands out what is complete; all of it if it is the last time.
    fn round(
        &mut self,
        is_last: bool,
        hand: &mut HandOut<'_>,
    ) -> Result<ControlFlow<()>, UstError> {
        let ProgramRings { watch, programs, live } = self;
        programs.begin_round();
        watch.round(|channel, program| {
            programs.take(channel, program, &mut |number, news| match news {
                ProgramNews::Trace(trace) => live.set_program(number, trace),
                ProgramNews::Event { time, event } => live.push_program_event(number, time, event),
                ProgramNews::Mappings { .. } => {}
            })
        })?;
        let until = if is_last { u64::MAX } else { programs.horizon() };
        Ok(live.hand_out(until, &mut |item| match item {
            LiveItem::Event(event) => hand.event(event),
            LiveItem::Lost { .. } => ControlFlow::Continue(()),
        }))
    }
}

fn until_the_end(
    capture: &mut PerfCapture,
    samples: &mut LiveSamples<'_>,
    mut programs: Option<&mut ProgramRings<'_>>,
    hand: &mut HandOut<'_>,
) -> Result<(), LiveError> {
    loop {
        let end = capture.wait(TICK).map_err(LiveError::of)?;
        if end.is_some() {
            capture.stop().map_err(LiveError::of)?;
        }
        capture.round(&mut |first, second| samples.push(first, second));
        if samples.end_round(&mut |event| hand.event(event)).is_break() {
            return Ok(());
        }
        if let Some(programs) = programs.as_deref_mut()
            && programs.round(false, hand).map_err(LiveError::of)?.is_break()
        {
            return Ok(());
        }
        if end.is_some() {
            break;
        }
    }
    if samples.finish(&mut |event| hand.event(event)).is_break() {
        return Ok(());
    }
    if let Some(record) = capture.unreported_losses(samples.lost()) {
        samples.push(&record, &[]);
        if samples.finish(&mut |event| hand.event(event)).is_break() {
            return Ok(());
        }
    }
    if let Some(programs) = programs {
        programs.watch.stop();
        std::thread::sleep(FORGET);
        let _ = programs.round(true, hand).map_err(LiveError::of)?;
    }
    Ok(())
}
