//! Recordings into tracks, in one pass over their events.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, ReadOptions, ReadSummary, RecordedEvent, SourceError,
};

use super::event_list::{EventList, EventPlace};
use super::packed::push_number;
use super::span_track::{SpanTrack, TrackSpan};
use super::task_list::{TaskList, TrackTask};
use super::{
    OPEN, OTHER_WAIT, RUNNABLE, RUNNING, RUNNING_ON, SLEEPING, STATE_BITS, UNINTERRUPTIBLE,
};
use crate::losses::{LossWindows, MOST_CPUS};
use crate::syscalls::{CallInfo, SyscallDecoder, SyscallEvent};
use crate::tasks::{
    SchedRead, SchedReader, SchedStep, SwitchOutState, TaskId, TaskMachine, Transition,
};

/// What is read.
#[derive(Clone, Debug)]
pub struct TrackConfig {
    /// Events outside these times are left out; the state at the begin is known.
    pub selection: EventSelection,
    /// Names a system call by its number.
    pub name_of: fn(i64) -> Option<&'static str>,
    /// Bytes of fields' texts that are kept.
    pub text_limit: usize,
}

/// Wake-ups that end waits.
#[derive(Clone, Debug, Default)]
pub struct WakeupList {
    /// For each: time since the one before (zigzag), who woke + 1, who was woken.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub count: u64,
    before: u64,
}

/// What did not fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackCounts {
    /// Events without a time.
    pub timeless: u64,
    /// Events of tasks beyond those that have tracks.
    pub crowded: u64,
    /// Exits of system calls whose entry is not in the recording.
    pub exits: u64,
    /// Spans that overlap others of their track.
    pub overlaps: u64,
}

/// A recording as tracks. Times count from `span.0`.
#[derive(Debug)]
pub struct TraceTracks {
    /// Times of the first and the last event.
    pub span: (u64, u64),
    /// For each CPU, who runs: numbers of tasks. Idle time is no span.
    pub cpus: Vec<SpanTrack>,
    /// For each CPU, since when that is known.
    pub known: Vec<Option<u64>>,
    /// The tasks.
    pub tasks: Vec<TrackTask>,
    /// System calls.
    pub calls: Vec<CallInfo>,
    /// Wake-ups.
    pub wakeups: WakeupList,
    /// The events.
    pub events: EventList,
    /// Spans in which events were lost.
    pub losses: Vec<(u64, u64)>,
    /// What did not fit.
    pub counts: TrackCounts,
    /// What the state machine and the readers say.
    pub sched: SchedRead,
}

/// Reads recordings.
///
/// # Errors
/// If reading fails.
pub fn read_tracks(source: &EventSource, config: &TrackConfig) -> Result<TraceTracks, SourceError> {
    let mut sched = SchedReader::new(LossWindows::default());
    let mut tracking = Tracking::new(config);
    // What is before the times that are wanted makes the state at their begin.
    let everything = EventSelection::default();
    let summary = source.for_each(&everything, ReadOptions::default(), &mut |event| {
        let wanted = config.selection.wants_time(event.time);
        if let Some(time) = event.time
            && time > config.selection.until()
        {
            return ControlFlow::Continue(());
        }
        let task = tracking.arrive(event, wanted);
        let flow = sched.event(event, &mut |step, machine| {
            tracking.step(step, machine);
            ControlFlow::Continue(())
        });
        tracking.call(event, task);
        flow
    })?;
    Ok(tracking.finish(sched.finish(summary)))
}

struct Tracking<'c> {
    config: &'c TrackConfig,
    base: Option<u64>,
    last: u64,
    cpus: Vec<SpanTrack>,
    known: Vec<Option<u64>>,
    /// Who runs on each CPU, and since when.
    running: Vec<Option<(u32, u64)>>,
    cpu_event: Vec<u64>,
    tasks: TaskList,
    decoder: SyscallDecoder,
    wakeups: WakeupList,
    events: EventList,
    losses: Vec<(u64, u64)>,
    counts: TrackCounts,
}

impl<'c> Tracking<'c> {
    fn new(config: &'c TrackConfig) -> Tracking<'c> {
        Tracking {
            config,
            base: None,
            last: 0,
            cpus: Vec::new(),
            known: Vec::new(),
            running: Vec::new(),
            cpu_event: Vec::new(),
            tasks: TaskList::default(),
            decoder: SyscallDecoder::new(config.name_of),
            wakeups: WakeupList::default(),
            events: EventList::default(),
            losses: Vec::new(),
            counts: TrackCounts::default(),
        }
    }

    /// Takes note of an event; answers its task.
    fn arrive(&mut self, event: &RecordedEvent<'_>, wanted: bool) -> Option<u32> {
        let Some(time) = event.time else {
            self.counts.timeless += 1;
            return None;
        };
        let task = self.tasks.find(event.task());
        if !wanted {
            return task;
        }
        let base = *self.base.get_or_insert(time);
        let time = time.saturating_sub(base);
        self.last = self.last.max(time);
        let cpu = event.cpu().filter(|c| *c < MOST_CPUS);
        if let Some(cpu) = cpu {
            self.grow(cpu);
            if let Some(before) = self.cpu_event.get_mut(cpu as usize) {
                if event.lost.is_some() {
                    self.losses.push(((*before).min(time), time));
                }
                *before = time;
            }
        }
        if let Some(task) = task.and_then(|t| self.tasks.get_mut(t)) {
            task.events += 1;
        }
        self.events.push(event, EventPlace { time, task, cpu }, self.config.text_limit);
        task
    }

    fn grow(&mut self, cpu: u32) {
        let count = cpu as usize + 1;
        if self.cpus.len() < count {
            self.cpus.resize_with(count, SpanTrack::default);
            self.known.resize(count, None);
            self.running.resize(count, None);
            self.cpu_event.resize(count, 0);
        }
    }

    /// A time as it counts from the begin; times before it are the begin.
    fn since_base(&self, time: u64) -> u64 {
        self.base.map_or(0, |base| time.saturating_sub(base))
    }

    fn number(&mut self, machine: &TaskMachine, id: TaskId) -> Option<u32> {
        self.tasks.find(&machine.tasks.get(id)?.info).or_else(|| {
            let task = machine.tasks.get(id)?;
            let info = kymo_events::TaskInfo::new(task.info.pid, Some(task.tid), task.comm());
            self.tasks.find(&info)
        })
    }

    fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) {
        self.grow(step.cpu);
        match step.transition {
            Transition::Switch { out, next } => {
                let is_known = out.since.is_some();
                let out_task = machine.tasks.get(out.task).map(|t| t.tid);
                let prev = self.number(machine, out.task);
                self.leave(step, prev, out.state, is_known);
                if let (Some(tid), SwitchOutState::Dead(_)) = (out_task, out.state) {
                    self.tasks.end(tid);
                }
                let next = self.number(machine, next.task);
                self.enter(step, next);
            }
            Transition::Wakeup { task, by, .. } => {
                let by = by.and_then(|by| self.number(machine, by));
                let Some(number) = self.number(machine, *task) else { return };
                let Some(woken) = self.tasks.get_mut(number) else { return };
                // The first one counts, of a task that does not run.
                if woken.woken.is_none() && woken.left.is_none_or(|(_, s)| !s.is_runnable()) {
                    woken.woken = Some(step.time);
                    self.wake(step.time, by, number);
                }
            }
            Transition::Migrate { .. } | Transition::Runtime { .. } => {}
        }
    }

    fn wake(&mut self, time: u64, by: Option<u32>, woken: u32) {
        if self.base.is_none_or(|base| base > time) {
            return;
        }
        let time = self.since_base(time);
        let list = &mut self.wakeups;
        let step = time.wrapping_sub(list.before) as i64;
        list.before = time;
        push_number(&mut list.bytes, ((step << 1) ^ (step >> 63)) as u64);
        push_number(&mut list.bytes, by.map_or(0, |by| u64::from(by) + 1));
        push_number(&mut list.bytes, woken.into());
        list.count += 1;
    }

    /// A task leaves a CPU.
    fn leave(
        &mut self,
        step: &SchedStep<'_, '_>,
        task: Option<u32>,
        state: SwitchOutState,
        is_known: bool,
    ) {
        let before = self.running.get_mut(step.cpu as usize).and_then(Option::take);
        if let (Some((runs, since)), Some(task)) = (before, task)
            && runs == task
            && is_known
        {
            self.ran((step.cpu, RUNNING), task, since, step.time);
        }
        let now = self.since_base(step.time);
        let Some(task) = task.and_then(|t| self.tasks.get_mut(t)) else { return };
        let is_dead = matches!(state, SwitchOutState::Dead(_));
        // The call that ends a task does not return.
        if is_dead && let Some((from, call)) = task.call.take() {
            task.calls.push(TrackSpan { from, to: now, code: call });
        }
        (task.left, task.woken) = ((!is_dead).then_some((step.time, state)), None);
    }

    fn ran(&mut self, (cpu, state): (u32, u32), task: u32, since: u64, until: u64) {
        let (from, to) = (self.since_base(since), self.since_base(until));
        let Some(row) = self.tasks.get_mut(task).filter(|t| t.tid != 0) else { return };
        row.states.push(TrackSpan { from, to, code: state | cpu << STATE_BITS });
        if let Some(track) = self.cpus.get_mut(cpu as usize) {
            track.push(TrackSpan { from, to, code: task });
        }
    }

    /// A task gets a CPU: its wait is over.
    fn enter(&mut self, step: &SchedStep<'_, '_>, task: Option<u32>) {
        let at = step.cpu as usize;
        let now = self.since_base(step.time);
        self.known.get_mut(at).into_iter().for_each(|known| _ = known.get_or_insert(now));
        let Some(number) = task else { return };
        self.running.get_mut(at).into_iter().for_each(|r| *r = Some((number, step.time)));
        self.end_wait(number, step.time, true);
    }

    /// Draws the wait of a task until a time.
    fn end_wait(&mut self, number: u32, until: u64, runs: bool) {
        let (base, to) = (self.base.unwrap_or(0), self.since_base(until));
        let Some(task) = self.tasks.get_mut(number).filter(|t| t.tid != 0) else { return };
        let (left, woken) = (task.left.take(), task.woken.take());
        let since = |time: u64| time.saturating_sub(base);
        let open = if runs { 0 } else { OPEN };
        let mut from = woken.map_or(to, since);
        if let Some((left, state)) = left {
            let code = match state {
                s if s.is_runnable() => RUNNABLE,
                SwitchOutState::Blocked(b'S') => SLEEPING,
                SwitchOutState::Blocked(b'D') => UNINTERRUPTIBLE,
                _ => OTHER_WAIT,
            };
            // Without a wake-up nothing divides the wait.
            let ready = if code == RUNNABLE { to } else { from };
            // A wake-up ends what the task was blocked in, also if it does not run again.
            let over = if code != RUNNABLE && woken.is_some() { 0 } else { open };
            task.states.push(TrackSpan { from: since(left), to: ready, code: code | over });
            from = ready;
        }
        if from < to && (runs || woken.is_some()) {
            task.states.push(TrackSpan { from, to, code: RUNNABLE | open });
        }
    }

    /// System calls.
    fn call(&mut self, event: &RecordedEvent<'_>, task: Option<u32>) {
        let Some(time) = event.time else { return };
        let Some(decoded) = self.decoder.decode(event) else { return };
        let now = self.since_base(time);
        let Some(task) = task.and_then(|t| self.tasks.get_mut(t)) else { return };
        match decoded {
            SyscallEvent::Enter(call, _) => task.call = Some((now, call.0)),
            SyscallEvent::Exit(call, _) => match task.call.take() {
                Some((from, entered)) if entered == call.0 => {
                    task.calls.push(TrackSpan { from, to: now, code: call.0 });
                }
                _ => self.counts.exits += 1,
            },
        }
    }

    /// The end: what goes on then is drawn until then.
    fn finish(mut self, sched: SchedRead) -> TraceTracks {
        let end = self.base.unwrap_or(0).saturating_add(self.last);
        let running = std::mem::take(&mut self.running);
        for (cpu, (task, since)) in (0u32..).zip(running).filter_map(|(c, r)| Some((c, r?))) {
            self.ran((cpu, RUNNING_ON), task, since, end);
        }
        for number in 0..self.tasks.tasks.len() as u32 {
            self.end_wait(number, end, false);
        }
        for task in &mut self.tasks.tasks {
            if let Some((from, call)) = task.call.take() {
                task.calls.push(TrackSpan { from, to: self.last, code: call });
            }
            self.counts.overlaps += task.states.overlaps;
        }
        let base = self.base.unwrap_or(0);
        self.counts.crowded = self.tasks.crowded;
        TraceTracks {
            span: (base, base.saturating_add(self.last)),
            cpus: self.cpus,
            known: self.known,
            tasks: self.tasks.tasks,
            calls: self.decoder.calls,
            wakeups: self.wakeups,
            events: self.events,
            losses: LossWindows::new(self.losses).into_spans(),
            counts: self.counts,
            sched,
        }
    }
}

impl TraceTracks {
    /// What the readers say.
    pub fn summary(&self) -> &ReadSummary {
        &self.sched.summary
    }
}
