//! Recordings into tracks, in one pass over their events.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_events::{
    ClassOrigin, EventPass, EventSelection, EventSource, LayoutMemo, PerfItem, ReadOptions,
    ReadSummary, RecordedEvent, SourceError,
};
use kymo_files::perfdata::Entry;
use kymo_model::{Note, NoteKind, NoteList, RecordKind, Sideband, counted};
use rustc_hash::FxHashMap;

use super::counters::{CounterTrack, Counters};
use super::cpu_work::{CpuWork, WorkTracks};
use super::density::TrackProgress;
use super::event_list::{EVENTS_PER_CHUNK, EventList, EventPlace, GrowingEvents};
use super::packed::{Columns, step_between, time_after};
use super::program_spans::ProgramSpans;
use super::span_track::{SpanTrack, TrackSpan};
use super::switch_list::{ListedChange, ListedSwitch, SwitchList};
use super::task_list::{TaskList, TrackTask};
use super::{
    DETAIL_SHIFT, OPEN, OTHER_WAIT, RUNNABLE, RUNNING, SLEEPING, UNCERTAIN, UNINTERRUPTIBLE,
};
use crate::losses::{LossWindows, MOST_CPUS};
use crate::offcpu::{IntervalCertainty, OffCpuConfig, OffCpuReader, TaskActivity, TaskInterval};
use crate::syscalls::{CallInfo, SyscallDecoder, SyscallEvent};
use crate::tasks::{
    SCHED_EVENTS, SchedRead, SchedSelection, SwitchOutState, TaskId, TaskMachine, TaskState,
    Transition,
};

/// Options of reading tracks.
#[derive(Clone, Debug)]
pub struct TrackConfig {
    /// Events outside these times are left out; the state at the start is known.
    pub selection: EventSelection,
    /// Names a system call by its number.
    pub name_of: fn(i64) -> Option<&'static str>,
    /// Bytes of fields' texts that are kept.
    pub text_limit: usize,
    /// Switches and wake-ups are also kept one by one.
    pub lists_switches: bool,
    /// Progress of the reading, for concurrent readers.
    pub progress: Option<Arc<TrackProgress>>,
}

/// Wake-ups that end waits.
#[derive(Clone, Debug, Default)]
pub struct WakeupList {
    /// For each: time since the one before (zigzag), who woke + 1, who was woken.
    pub columns: Columns<3>,
    /// Number of wake-ups.
    pub count: u64,
    before: u64,
}

/// A wake-up that ends a wait.
#[derive(Clone, Copy, Debug)]
pub struct TrackWakeup {
    /// Time relative to the start.
    pub time: u64,
    /// Number of the task that woke, where it is known.
    pub by: Option<u32>,
    /// Number of the task that was woken.
    pub task: u32,
}

impl WakeupList {
    /// The wake-ups.
    pub fn iter(&self) -> impl Iterator<Item = TrackWakeup> + '_ {
        let mut time = 0u64;
        self.columns.rows().map(move |[step, by, task]| {
            time = time_after(time, step);
            TrackWakeup { time, by: by.checked_sub(1).map(|by| by as u32), task: task as u32 }
        })
    }
}

/// Counts of events and values that are in no track.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackCounts {
    /// Events without a time.
    pub timeless: u64,
    /// Events of tasks beyond those that have tracks.
    pub crowded: u64,
    /// Exits of system calls whose entry is not in the recording.
    pub exits: u64,
    /// Entries of system calls whose exit is not in the recording, though later calls are.
    pub entries: u64,
    /// Events of programs that end a span whose begin is not in the recording.
    pub span_ends: u64,
    /// Spans that overlap others of their track.
    pub overlaps: u64,
    /// Values of counters that are left out.
    pub values: u64,
}

impl TrackCounts {
    /// Notes on what is in no track.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = NoteList::default();
        notes.counted(
            self.crowded,
            NoteKind::Entries,
            "event is of a task beyond those that have tracks",
            "events are of tasks beyond those that have tracks",
        );
        notes.counted(
            self.timeless,
            NoteKind::Malformed,
            "event without a time is left out",
            "events without a time are left out",
        );
        let mut tell = |n: u64, kind, one: &str, more: &str, advice: Option<&str>| {
            if n > 0 {
                notes.choice(kind, counted(n, one, more), advice);
            }
        };
        tell(
            self.exits,
            NoteKind::Unmatched,
            "system call has no recorded start and is left out",
            "system calls have no recorded start and are left out",
            None,
        );
        tell(
            self.entries,
            NoteKind::Unmatched,
            "system call has no recorded end and is left out",
            "system calls have no recorded end and are left out",
            None,
        );
        tell(
            self.span_ends,
            NoteKind::Unmatched,
            "event of a program ends a span whose start is not recorded",
            "events of programs end spans whose start is not recorded",
            None,
        );
        tell(
            self.values,
            NoteKind::Events,
            "value of a counter is left out",
            "values of counters are left out",
            Some("--time selects a part of the recording"),
        );
        notes.counted(
            self.overlaps,
            NoteKind::Order,
            "state of a task overlaps another one and is cut",
            "states of tasks overlap others and are cut",
        );
        notes.0
    }
}

/// A recording as tracks. Times count from `span.0`.
#[derive(Debug)]
pub struct TraceTracks {
    /// Times of the first and the last event; of a selection of times, its part of them.
    pub span: (u64, u64),
    /// For each CPU, who runs: numbers of tasks. Idle time is no span.
    pub cpus: Vec<SpanTrack>,
    /// For each CPU, when its running task is known, or that it is idle.
    pub known: Vec<SpanTrack>,
    /// For each CPU that has some, its interrupts and softirqs.
    pub work: Vec<CpuWork>,
    /// Names of interrupts and softirqs.
    pub work_names: Vec<String>,
    /// Names of programs' spans.
    pub span_names: Vec<String>,
    /// The tasks.
    pub tasks: Vec<TrackTask>,
    /// Numbers over time.
    pub counters: Vec<CounterTrack>,
    /// Parents of processes, as far as the recording has them.
    pub parents: BTreeMap<u32, u32>,
    /// System calls.
    pub calls: Vec<CallInfo>,
    /// Wake-ups.
    pub wakeups: WakeupList,
    /// Switches and wake-ups one by one, if the configuration keeps them.
    pub switches: SwitchList,
    /// The events.
    pub events: EventList,
    /// Spans in which events were lost.
    pub losses: Vec<(u64, u64)>,
    /// Whether events may have stacks: some are stacks, or of a trace that may have them in fields.
    pub may_have_stacks: bool,
    /// Counts of events and values that are in no track.
    pub counts: TrackCounts,
    /// Results of the scheduler's state machine and of the readers.
    pub sched: SchedRead,
}

/// Reads recordings. Of trace.dat and CTF alone `beside` takes its events out of the same reading,
/// whose summary is the second one.
///
/// # Errors
/// If reading fails.
pub fn read_tracks(
    source: &EventSource,
    config: &TrackConfig,
    beside: Option<EventPass<'_>>,
) -> Result<(TraceTracks, Option<ReadSummary>), SourceError> {
    // Waits are what `kymo offcpu` counts, and cut where they are drawn.
    let everything = SchedSelection::default();
    let waits = OffCpuConfig { selection: &everything, by_task: false };
    let mut reader = OffCpuReader::new(&waits, source.losses(), true);
    let mut tracking = Tracking::new(config);
    // What is before the times that are wanted makes the state at their start, and what is after
    // them ends what continues at their end.
    let select = EventSelection::default();
    let mut intervals = Vec::new();
    let mut forks: Vec<(u32, u32)> = Vec::new();
    let mut exits: Vec<(u32, u64)> = Vec::new();
    // Threads of the records since the last event.
    let recorded = RefCell::new(Vec::new());
    let mut see = |event: &RecordedEvent<'_>| {
        for (tid, is_end) in recorded.borrow_mut().drain(..) {
            let machine = reader.machine_mut();
            if is_end { machine.note_end_of_recorded(tid) } else { machine.note_recorded(tid) }
        }
        let task = tracking.arrive(event);
        let uses = tracking.uses(event);
        if uses.states {
            let transition = reader.event(event);
            reader.take_intervals(&mut intervals);
            for interval in intervals.drain(..) {
                tracking.interval(&interval, reader.machine());
            }
            if let (Some(transition), Some(time)) = (&transition, event.time) {
                tracking.list_switch(transition, event, reader.machine());
                tracking.step(transition, time, reader.machine());
            }
            if reader.machine().counts.mismatched > 0 {
                tracking.doubt_first_waits();
            }
        }
        if uses.calls {
            tracking.call(event, task);
        }
        if uses.others {
            tracking.cpu_work(event);
            tracking.program_span(event, task);
            tracking.counter(event, task);
        }
        if !uses.is_known {
            tracking.learn_uses(event);
        }
        ControlFlow::Continue(())
    };
    let mut summary_beside = None;
    let options = ReadOptions::default();
    let summary = if source.is_one_perf_data() {
        source.for_each_with_records(&select, &mut |item| match item {
            PerfItem::Event(event) => see(event),
            PerfItem::Record(entry) => {
                if let Some(tid) = thread_of_switch_record(entry) {
                    recorded.borrow_mut().push((tid, false));
                }
                if matches!(entry.raw.kind, RecordKind::FORK | RecordKind::EXIT) {
                    match Sideband::parse(&entry.raw) {
                        Ok(Some(Sideband::Fork(t))) if t.pid != t.ppid => {
                            forks.push((t.pid, t.ppid));
                        }
                        Ok(Some(Sideband::Exit(t))) => {
                            exits.push((t.tid, t.time));
                            recorded.borrow_mut().push((t.tid, true));
                        }
                        _ => {}
                    }
                }
                ControlFlow::Continue(())
            }
        })?
    } else if let Some(beside) = beside.filter(|_| source.perf_count() == 0) {
        let own = EventPass { selection: &select, options, sink: &mut see };
        let beside = EventPass { sink: &mut *beside.sink, ..beside };
        let mut summaries = source.for_each_of_timeline(&mut [own, beside])?;
        summary_beside = summaries.pop();
        summaries.pop().unwrap_or_default()
    } else {
        source.for_each(&select, options, &mut see)?
    };
    for (tid, time) in exits {
        tracking.exits.insert(tid, tracking.since_base(time));
    }
    for interval in reader.open_intervals(tracking.end()) {
        tracking.interval(&interval, reader.machine());
    }
    if reader.machine().counts.mismatched > 0 {
        tracking.doubt_first_waits();
    }
    Ok((tracking.finish(reader.into_read(summary), forks), summary_beside))
}

/// Thread of a record that the kernel makes for the events of threads, and not for those of CPUs.
fn thread_of_switch_record(entry: &Entry<'_>) -> Option<u32> {
    let desc = entry.desc().filter(|_| entry.raw.kind == RecordKind::SWITCH)?;
    entry.raw.sample_id(&desc.attr).ok()?.tid.map(|(_, tid)| tid)
}

/// Parts of the tracks to which an event may belong.
#[derive(Clone, Copy, Debug)]
struct EventUses {
    states: bool,
    calls: bool,
    others: bool,
    is_known: bool,
}

impl EventUses {
    const ALL: EventUses = EventUses { states: true, calls: true, others: true, is_known: false };
}

struct Tracking<'c> {
    config: &'c TrackConfig,
    uses: LayoutMemo<EventUses>,
    /// Begin and end of what is wanted.
    limits: (u64, u64),
    /// Time 0 of the tracks: the first event, or the start of the selection.
    base: Option<u64>,
    /// Time of the latest event that is wanted, or before that.
    last: u64,
    cpus: Vec<SpanTrack>,
    known: Vec<SpanTrack>,
    /// The last span in which it is known who runs: what follows may continue it.
    known_last: Vec<(u64, u64)>,
    cpu_event: Vec<u64>,
    tasks: TaskList,
    decoder: SyscallDecoder,
    /// Whether a system call returned: a recording may have entries alone.
    has_returns: bool,
    work: WorkTracks,
    spans: ProgramSpans,
    counters: Counters,
    /// End time of threads by number; the last one of each.
    exits: FxHashMap<u32, u64>,
    wakeups: WakeupList,
    switches: SwitchList,
    events: GrowingEvents,
    losses: Vec<(u64, u64)>,
    /// First waits, by number of the task and begin, while no switch seems to be missing.
    first_waits: Vec<(u32, u64)>,
    may_have_stacks: bool,
    counts: TrackCounts,
}

impl<'c> Tracking<'c> {
    fn new(config: &'c TrackConfig) -> Tracking<'c> {
        Tracking {
            config,
            uses: LayoutMemo::default(),
            limits: (config.selection.from(), config.selection.until()),
            base: None,
            last: 0,
            cpus: Vec::new(),
            known: Vec::new(),
            known_last: Vec::new(),
            cpu_event: Vec::new(),
            tasks: TaskList::default(),
            decoder: SyscallDecoder::new(config.name_of).without_arguments(),
            has_returns: false,
            work: WorkTracks::default(),
            spans: ProgramSpans::default(),
            counters: Counters::default(),
            exits: FxHashMap::default(),
            wakeups: WakeupList::default(),
            switches: SwitchList::default(),
            events: GrowingEvents::default(),
            losses: Vec::new(),
            first_waits: Vec::new(),
            may_have_stacks: false,
            counts: TrackCounts::default(),
        }
    }

    /// Takes note of an event; answers its task.
    fn arrive(&mut self, event: &RecordedEvent<'_>) -> Option<u32> {
        let Some(time) = event.time else {
            self.counts.timeless += 1;
            return None;
        };
        let cpu = event.cpu().filter(|c| *c < MOST_CPUS);
        self.base.get_or_insert(time.max(self.limits.0));
        self.last = self.last.max(time);
        if let Some(cpu) = cpu {
            self.grow(cpu);
            if let Some(before) = self.cpu_event.get_mut(cpu as usize) {
                let before = std::mem::replace(before, time).min(time);
                if event.lost.is_some() && time >= self.limits.0 && before <= self.limits.1 {
                    self.losses.push((self.since_base(before), self.since_base(time)));
                }
            }
        }
        let now = self.since_base(time);
        let task = self.tasks.find(event.task(), now);
        if !self.config.selection.wants_time(Some(time)) {
            return task;
        }
        if let Some(task) = task.and_then(|t| self.tasks.get_mut(t)) {
            task.events += 1;
        }
        self.events.push(event, EventPlace { time: now, task, cpu }, self.config.text_limit);
        if let Some(progress) = &self.config.progress
            && self.events.list.count.is_multiple_of(EVENTS_PER_CHUNK as u64)
        {
            let EventList { count, density, .. } = &self.events.list;
            progress.note((self.base.unwrap_or(0), self.last), *count, density);
        }
        task
    }

    /// Uses of an event: all, if it is the first of its layout, or reports losses.
    fn uses(&self, event: &RecordedEvent<'_>) -> EventUses {
        let known = self.uses.get(event.class.layout).copied();
        known.filter(|_| event.lost.is_none()).unwrap_or(EventUses::ALL)
    }

    /// Keeps what an event of this layout turned out to be of.
    fn learn_uses(&mut self, event: &RecordedEvent<'_>) {
        let layout = event.class.layout;
        self.may_have_stacks |= event.class.is_stack || event.class.ctf.is_some();
        if self.uses.get(layout).is_some() {
            return;
        }
        // What was not asked about it has not seen it: it is outside of what is drawn.
        let (Some(calls), Some(work), Some(counters)) =
            (self.decoder.takes(layout), self.work.takes(layout), self.counters.takes(layout))
        else {
            return;
        };
        let class = event.class;
        let others = class.origin == ClassOrigin::Program || work || counters;
        let is_sched = SCHED_EVENTS.iter().any(|name| class.is_named(name));
        let states = class.is_stack || is_sched;
        self.uses.insert(layout, EventUses { states, calls, others, is_known: true });
    }

    fn grow(&mut self, cpu: u32) {
        let count = cpu as usize + 1;
        if self.cpus.len() < count {
            self.cpus.resize_with(count, SpanTrack::default);
            self.known.resize_with(count, SpanTrack::default);
            self.known_last.resize(count, (0, 0));
            self.cpu_event.resize(count, 0);
        }
    }

    /// The end of what is drawn.
    fn end(&self) -> u64 {
        self.last.min(self.limits.1).max(self.base.unwrap_or(0))
    }

    /// A time relative to the start of the selection, limited to its start and end.
    fn since_base(&self, time: u64) -> u64 {
        self.base.map_or(0, |base| time.min(self.limits.1).saturating_sub(base))
    }

    fn number(&mut self, machine: &TaskMachine, id: TaskId) -> Option<u32> {
        let now = self.since_base(self.last);
        self.tasks.find(&machine.tasks.get(id)?.info, now).or_else(|| {
            let task = machine.tasks.get(id)?;
            let info = kymo_events::TaskInfo::new(task.info.pid, Some(task.tid), task.comm());
            self.tasks.find(&info, now)
        })
    }

    /// Draws what a task did, as far as it is wanted.
    fn interval(&mut self, interval: &TaskInterval, machine: &TaskMachine) {
        let Some(number) = self.number(machine, interval.task) else { return };
        let (from, mut to) = (self.since_base(interval.from), self.since_base(interval.to));
        let flag = match interval.certainty {
            IntervalCertainty::Seen => 0,
            IntervalCertainty::Undecided => {
                self.first_waits.push((number, from));
                0
            }
            IntervalCertainty::Uncertain => UNCERTAIN,
            IntervalCertainty::Open => OPEN,
        };
        let Some(task) = self.tasks.get_mut(number) else { return };
        // What a thread did last before it ended was recorded of itself alone.
        if flag == OPEN
            && let Some(exit) = self.exits.get(&task.tid).filter(|exit| **exit >= from)
        {
            to = to.min(*exit);
        }
        let code = match interval.activity {
            TaskActivity::Running(cpu) => {
                if let Some(track) = self.cpus.get_mut(cpu as usize)
                    && task.tid != 0
                {
                    track.push(TrackSpan { from, to, code: number });
                }
                if let Some(last) = self.known_last.get_mut(cpu as usize)
                    && let Some(track) = self.known.get_mut(cpu as usize)
                {
                    if last.1 != from {
                        track.push(TrackSpan { from: last.0, to: last.1, code: 0 });
                        last.0 = from;
                    }
                    last.1 = to;
                }
                RUNNING | flag | cpu << DETAIL_SHIFT
            }
            TaskActivity::Waiting(cause, state) => {
                let state = match state {
                    _ if cause.is_runnable() => RUNNABLE,
                    Some(SwitchOutState::Blocked(b'S')) => SLEEPING,
                    Some(SwitchOutState::Blocked(b'D')) => UNINTERRUPTIBLE,
                    _ => OTHER_WAIT,
                };
                state | flag | (cause as u32) << DETAIL_SHIFT
            }
        };
        if task.tid != 0 {
            task.states.push(TrackSpan { from, to, code });
        }
    }

    /// Switches are missing: in the first waits the tasks may have run unseen.
    fn doubt_first_waits(&mut self) {
        let mut waits = std::mem::take(&mut self.first_waits);
        waits.sort_unstable();
        for waits in waits.chunk_by(|a, b| a.0 == b.0) {
            let begins: Vec<u64> = waits.iter().map(|w| w.1).collect();
            let task = waits.first().and_then(|w| self.tasks.get_mut(w.0));
            task.into_iter().for_each(|task| task.states.mark(&begins, UNCERTAIN));
        }
    }

    /// Keeps a switch or wake-up as it was recorded.
    fn list_switch(
        &mut self,
        transition: &Transition,
        event: &RecordedEvent<'_>,
        machine: &TaskMachine,
    ) {
        let (Some(time), Some(cpu)) = (event.time, event.cpu()) else { return };
        if !self.config.lists_switches || !self.config.selection.wants_time(Some(time)) {
            return;
        }
        let change = match transition {
            Transition::Switch { out, next } => ListedChange::Switch {
                out: self.number(machine, out.task),
                state: out.state,
                has_start: out.since.is_some(),
                next: self.number(machine, next.task),
            },
            Transition::Wakeup { task, by, kind } => ListedChange::Wakeup {
                kind: *kind,
                task: self.number(machine, *task),
                by: by.and_then(|by| self.number(machine, by)),
            },
            Transition::Migrate { .. } | Transition::Runtime { .. } => return,
        };
        self.switches.push(&ListedSwitch { time: self.since_base(time), cpu, change });
    }

    fn step(&mut self, transition: &Transition, time: u64, machine: &TaskMachine) {
        match transition {
            Transition::Switch { out, next } => {
                if let Some(next) = self.number(machine, next.task)
                    && let Some(next) = self.tasks.get_mut(next)
                {
                    next.is_awake = true;
                }
                let number = self.number(machine, out.task);
                let now = self.since_base(time);
                let Some(task) = number.and_then(|t| self.tasks.get_mut(t)) else { return };
                task.is_awake = out.state.is_runnable();
                if matches!(out.state, SwitchOutState::Dead(_)) {
                    // The call that ends a task does not return.
                    if let Some((from, call)) = task.call.take() {
                        task.calls.push(TrackSpan { from, to: now, code: call });
                    }
                    if let Some(tid) = machine.tasks.get(out.task).map(|t| t.tid) {
                        self.exits.insert(tid, now);
                        self.tasks.end(tid);
                    }
                }
            }
            Transition::Wakeup { task, by, .. } => {
                let is_runnable =
                    machine.tasks.get(*task).is_some_and(|t| t.state == TaskState::Runnable);
                let by = by.and_then(|by| self.number(machine, by));
                let Some(number) = self.number(machine, *task) else { return };
                let Some(woken) = self.tasks.get_mut(number) else { return };
                // The first one counts, of a task that does not run.
                if is_runnable && !std::mem::replace(&mut woken.is_awake, true) {
                    self.wake(time, by, number);
                }
            }
            Transition::Migrate { .. } | Transition::Runtime { .. } => {}
        }
    }

    fn wake(&mut self, time: u64, by: Option<u32>, woken: u32) {
        if self.base.is_none_or(|base| base > time) || time > self.limits.1 {
            return;
        }
        let time = self.since_base(time);
        let list = &mut self.wakeups;
        let step = step_between(list.before, time);
        list.before = time;
        let by = by.map_or(0, |by| u64::from(by) + 1);
        list.columns.push([step, by, woken.into()]);
        list.count += 1;
    }

    /// System calls.
    fn call(&mut self, event: &RecordedEvent<'_>, task: Option<u32>) {
        let Some(time) = event.time else { return };
        let Some(decoded) = self.decoder.decode(event) else { return };
        let now = self.since_base(time);
        let Some(task) = task.and_then(|t| self.tasks.get_mut(t)) else { return };
        match decoded {
            SyscallEvent::Enter(call, _) => {
                let before = task.call.replace((now, call.0));
                self.counts.entries += u64::from(before.is_some());
            }
            SyscallEvent::Exit(call, _) => {
                self.has_returns = true;
                match task.call.take() {
                    Some((from, entered)) if entered == call.0 => {
                        task.calls.push(TrackSpan { from, to: now, code: call.0 });
                    }
                    _ => self.counts.exits += 1,
                }
            }
        }
    }

    /// Interrupts and softirqs.
    fn cpu_work(&mut self, event: &RecordedEvent<'_>) {
        if let (Some(time), Some(cpu)) = (event.time, event.cpu().filter(|c| *c < MOST_CPUS)) {
            self.work.event(event, self.since_base(time), cpu);
        }
    }

    /// Spans of programs.
    fn program_span(&mut self, event: &RecordedEvent<'_>, task: Option<u32>) {
        let (Some(time), ClassOrigin::Program) = (event.time, event.class.origin) else { return };
        if event.lost.is_some() {
            self.tasks.tasks.iter_mut().for_each(|t| t.spans.forget_open());
        }
        let now = self.since_base(time);
        if let Some(task) = task.and_then(|t| self.tasks.get_mut(t)) {
            self.spans.event(event, now, &mut task.spans);
        }
    }

    /// Numbers over time.
    fn counter(&mut self, event: &RecordedEvent<'_>, task: Option<u32>) {
        let Some(time) = event.time else { return };
        if self.config.selection.wants_time(Some(time)) {
            let pid = task.and_then(|t| self.tasks.get_mut(t)?.pid);
            self.counters.event(event, self.since_base(time), pid);
        }
    }

    /// The end: calls that go on then are drawn until then.
    fn finish(mut self, sched: SchedRead, mut forks: Vec<(u32, u32)>) -> TraceTracks {
        // Of kernels' own events a process is known where its thread is.
        for (_, task) in sched.machine.tasks.iter() {
            if let Some(parent) = task.parent
                && task.info.pid.is_none_or(|pid| pid == task.tid)
            {
                let of = self.tasks.tasks.iter().find(|t| t.tid == parent).and_then(|t| t.pid);
                forks.push((task.tid, of.unwrap_or(parent)));
            }
        }
        let mut parents = BTreeMap::new();
        for (pid, parent) in forks {
            // A number that was given twice is of two processes: whose child it is is not certain.
            let known = parents.entry(pid).or_insert(parent);
            if *known != parent {
                *known = pid;
            }
        }
        parents.retain(|pid, parent| pid != parent && *parent != 0);

        let (base, end) = (self.base.unwrap_or(0), self.end());
        for task in &mut self.tasks.tasks {
            let call = task.call.take();
            // Without returns in the recording no call is known to last.
            self.counts.entries += u64::from(call.is_some() && !self.has_returns);
            if let Some((from, call)) = call.filter(|_| self.has_returns) {
                let exit = self.exits.get(&task.tid).filter(|exit| **exit >= from);
                let to = exit.map_or(end - base, |exit| *exit);
                task.calls.push(TrackSpan { from, to, code: call });
            }
            task.spans.finish(end - base);
            task.states.columns.shrink_to_fit();
            task.calls.columns.shrink_to_fit();
            self.counts.span_ends += task.spans.unmatched;
            self.counts.overlaps += task.states.overlaps;
        }
        for (track, (from, to)) in self.known.iter_mut().zip(self.known_last) {
            track.push(TrackSpan { from, to, code: 0 });
        }
        self.counts.crowded = self.tasks.crowded;
        self.counts.values = self.counters.left_out;
        self.counters.tracks.iter_mut().for_each(|track| track.set_end(&self.exits));
        TraceTracks {
            span: (base, end),
            cpus: self.cpus,
            known: self.known,
            work: self.work.cpus,
            work_names: self.work.names,
            span_names: self.spans.names,
            tasks: self.tasks.tasks,
            counters: self.counters.tracks,
            parents,
            calls: self.decoder.calls,
            wakeups: self.wakeups,
            switches: self.switches,
            events: self.events.finish(),
            losses: LossWindows::new(self.losses).to_spans(),
            may_have_stacks: self.may_have_stacks,
            counts: self.counts,
            sched,
        }
    }
}

impl TraceTracks {
    /// All tracks of spans, in the order in which they are described: CPUs, their interrupts and
    /// softirqs where they have some, tasks.
    pub fn span_tracks(&self) -> Vec<&SpanTrack> {
        let mut all = Vec::new();
        self.cpus.iter().zip(&self.known).for_each(|(track, known)| all.extend([track, known]));
        let of_work = self.work.iter().flat_map(|w| [&w.interrupts, &w.softirqs]);
        all.extend(of_work.filter(|t| t.count > 0));
        for task in &self.tasks {
            all.extend([&task.states, &task.calls].into_iter().chain(&task.spans.tracks));
        }
        all
    }

    /// Summary of the readers.
    pub fn summary(&self) -> &ReadSummary {
        &self.sched.summary
    }
}
