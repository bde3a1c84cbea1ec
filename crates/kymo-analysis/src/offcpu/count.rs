//! Counting waits as events come.

use std::ops::ControlFlow;

use kymo_events::{
    BlockedThread, EventSource, ReadOptions, ReadSummary, RecordedEvent, SourceError,
};
use rustc_hash::FxHashMap;

use super::OFF_CPU_EVENTS;
use super::cause::OffCpuCause;
use super::first_waits::FirstWaits;
use super::intervals::{IntervalCertainty, TaskActivity, TaskInterval, certainty_of, parts};
use super::stack_store::{StackNode, StackRole, StackStore};
use super::table::{
    CauseStats, CellKey, LongestWait, OffCpuCell, OffCpuRow, OffCpuTable, WakerId, WakerInfo,
};
use super::task_slot::{PendingWait, TaskSlot};
use crate::losses::{LossWindows, MOST_CPUS, select_events};
use crate::tasks::{
    EXIT_EVENT, SchedDecoder, SchedEvent, SchedRead, SchedSelection, SchedTask, SwitchIn,
    SwitchOut, SwitchOutState, TaskId, TaskMachine, TaskState, Transition, WaitCause,
    WakeupContext, WakeupKind,
};

/// Tasks that ended and have rows of their own; more are counted in one.
const MAX_ENDED: usize = 100_000;
/// Stacks that are events of their own.
const KERNEL_STACK: &str = "ftrace:kernel_stack";
/// Wakers with their stacks.
const MAX_WAKERS: usize = 1 << 16;

/// Options of counting waits.
#[derive(Debug)]
pub struct OffCpuConfig<'a> {
    /// Selection of tasks and times; waits belong to the CPU on which the task continues.
    pub selection: &'a SchedSelection,
    /// Waits of each task by itself, too.
    pub by_task: bool,
}

/// Event whose stack comes as an event of its own, by CPU.
#[derive(Clone, Copy, Debug)]
enum StackOwner {
    Sleeper(TaskId, u64),
    /// With the name of who wakes.
    Waker(TaskId, WakeupContext),
}

pub(super) struct OffCpuCounting<'a> {
    pub(super) config: &'a OffCpuConfig<'a>,
    pub(super) losses: LossWindows,
    pub(super) first_waits: FirstWaits,
    /// By slot of the task.
    live: Vec<TaskSlot>,
    pub(super) ended: Vec<OffCpuRow>,
    pub(super) crowded: OffCpuRow,
    pub(super) causes: Vec<CauseStats>,
    pub(super) cells: FxHashMap<CellKey, OffCpuCell>,
    longest: Vec<LongestWait>,
    pub(super) stacks: StackStore,
    wakers: Vec<WakerInfo>,
    waker_ids: FxHashMap<WakerInfo, WakerId>,
    owners: Vec<Option<(StackOwner, Vec<u8>)>>,
    switches: (u64, u64),
    no_begin: u64,
    began_before: u64,
    unbalanced: u64,
    pub(super) merged: u64,
    /// Combinations of task, cause and stack.
    pub(super) task_cells: usize,
    /// Intervals one by one, where they are wanted.
    pub(super) intervals: Option<Vec<TaskInterval>>,
}

/// Counts the waits of recordings.
///
/// # Errors
/// If reading fails.
pub fn count_off_cpu(
    source: &EventSource,
    config: &OffCpuConfig<'_>,
) -> Result<OffCpuTable, SourceError> {
    let mut names = OFF_CPU_EVENTS.to_vec();
    // The ring of ftrace has stacks as events of their own, behind those they belong to. They
    // are not joined here: the order of time of all tasks counts.
    names.extend([KERNEL_STACK, EXIT_EVENT]);
    let mut reader = OffCpuReader::new(config, source.losses(), false);
    let options = ReadOptions::default();
    let mut is_first = true;
    let summary = source.for_each(&select_events(&names), options, &mut |event| {
        if std::mem::take(&mut is_first)
            && let Some((began, threads)) = source.blocked_at_start()
        {
            threads.iter().for_each(|thread| reader.note_blocked(thread, began, event));
        }
        reader.event(event);
        ControlFlow::Continue(())
    })?;
    let OffCpuReader { counting, mut machine, decoder, span } = reader;
    machine.finish();
    Ok(counting.finish(SchedRead { machine, summary, span, malformed: decoder.malformed }))
}

/// Counts waits of events as they are handed to it.
pub(crate) struct OffCpuReader<'a> {
    counting: OffCpuCounting<'a>,
    machine: TaskMachine,
    decoder: SchedDecoder,
    span: Option<(u64, u64)>,
}

impl<'a> OffCpuReader<'a> {
    /// A reader of events whose source has these losses. `keeps_intervals`: each interval is kept
    /// until `take_intervals`.
    pub(crate) fn new(
        config: &'a OffCpuConfig<'a>,
        losses: LossWindows,
        keeps_intervals: bool,
    ) -> OffCpuReader<'a> {
        let machine = TaskMachine::new(losses.clone());
        let mut counting = OffCpuCounting::new(config, losses);
        counting.intervals = keeps_intervals.then(Vec::new);
        OffCpuReader { counting, machine, decoder: SchedDecoder::default(), span: None }
    }

    /// The state of tasks after the last event.
    pub(crate) fn machine(&self) -> &TaskMachine {
        &self.machine
    }

    /// The state of tasks, to take note of which are recorded.
    pub(crate) fn machine_mut(&mut self) -> &mut TaskMachine {
        &mut self.machine
    }

    /// Takes note of a thread that is blocked when the events start, which is before `event`.
    fn note_blocked(&mut self, thread: &BlockedThread, began: u64, event: &RecordedEvent<'_>) {
        let time = event.time.map_or(began, |time| time.min(began));
        let Some(id) = self.machine.note_blocked(thread, time, event) else { return };
        self.counting.note_blocked((id, thread), time, &self.machine);
    }

    /// Takes an event, of the scheduler or not; answers what it changed.
    pub(crate) fn event(&mut self, event: &RecordedEvent<'_>) -> Option<Transition> {
        self.machine.note_loss(event);
        if event.class.is_stack {
            if event.class.full_name == KERNEL_STACK {
                self.counting.take_stack(event);
            }
            return None;
        }
        let sched = self.decoder.decode(event)?;
        let (Some(time), Some(cpu)) = (event.time, event.cpu()) else {
            // The machine counts it.
            let _ = self.machine.apply(&sched, event);
            return None;
        };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        self.counting.set_owner(cpu, None);
        let transition = self.machine.apply(&sched, event)?;
        if self.machine.counts.mismatched > 0 {
            self.counting.decide(true);
        }
        self.counting.step(&transition, (&sched, event), (time, cpu), &self.machine);
        Some(transition)
    }

    /// Adds the intervals that ended since the last call.
    pub(crate) fn take_intervals(&mut self, to: &mut Vec<TaskInterval>) {
        if let Some(kept) = &mut self.counting.intervals {
            to.append(kept);
        }
    }

    /// The intervals that had not ended at a time, when nothing more comes.
    pub(crate) fn open_intervals(&mut self, end: u64) -> Vec<TaskInterval> {
        let alive: Vec<TaskId> = self.machine.tasks.iter().map(|(id, _)| id).collect();
        alive.into_iter().for_each(|id| self.counting.leave_open(id, end));
        let mut open = Vec::new();
        self.take_intervals(&mut open);
        for cpu in 0..self.machine.cpu_count() as u32 {
            if let Some((task, from)) = self.machine.running_since(cpu) {
                let (activity, certainty) = (TaskActivity::Running(cpu), IntervalCertainty::Open);
                open.push(TaskInterval { task, from, to: end, activity, certainty });
            }
        }
        open
    }

    /// The state of tasks at the end; `summary` is what the readers say.
    pub(crate) fn into_read(self, summary: ReadSummary) -> SchedRead {
        let OffCpuReader { mut machine, decoder, span, .. } = self;
        machine.finish();
        SchedRead { machine, summary, span, malformed: decoder.malformed }
    }
}

impl<'a> OffCpuCounting<'a> {
    fn new(config: &'a OffCpuConfig<'a>, losses: LossWindows) -> OffCpuCounting<'a> {
        OffCpuCounting {
            config,
            losses,
            first_waits: FirstWaits::default(),
            live: Vec::new(),
            ended: Vec::new(),
            crowded: OffCpuRow::default(),
            causes: vec![CauseStats::default(); OffCpuCause::ALL.len()],
            cells: FxHashMap::default(),
            longest: Vec::new(),
            stacks: StackStore::default(),
            wakers: Vec::new(),
            waker_ids: FxHashMap::default(),
            owners: Vec::new(),
            switches: (0, 0),
            no_begin: 0,
            began_before: 0,
            unbalanced: 0,
            merged: 0,
            task_cells: 0,
            intervals: None,
        }
    }

    #[inline]
    pub(super) fn slot(&mut self, id: TaskId) -> Option<&mut TaskSlot> {
        if self.live.len() <= id.index() {
            self.live.resize_with(id.index() + 1, TaskSlot::default);
        }
        self.live.get_mut(id.index())
    }

    fn wanted<'m>(&self, id: TaskId, machine: &'m TaskMachine) -> Option<&'m SchedTask> {
        let wants = |t: &&SchedTask| !t.is_idle() && self.config.selection.wants_task(t);
        machine.tasks.get(id).filter(wants)
    }

    /// The wait of a thread that began before the events counts from their start.
    fn note_blocked(
        &mut self,
        (id, thread): (TaskId, &BlockedThread),
        time: u64,
        machine: &TaskMachine,
    ) {
        if self.wanted(id, machine).is_none() {
            return;
        }
        let (cause, functions) = OffCpuCause::of_thread(thread);
        let stack = self.stacks.add_functions(functions);
        let state = SwitchOutState::Blocked(thread.state);
        self.see(id, time);
        let Some(slot) = self.slot(id) else { return };
        slot.pending =
            Some(PendingWait { left: time, state, cause, stack, woken: None, waker: None });
        self.began_before += 1;
    }

    fn step(
        &mut self,
        transition: &Transition,
        (sched, event): (&SchedEvent, &RecordedEvent<'_>),
        (time, cpu): (u64, u32),
        machine: &TaskMachine,
    ) {
        match transition {
            Transition::Switch { out, next } => {
                if self.wanted(out.task, machine).is_some() {
                    self.switch_out(out, event, (time, cpu));
                } else if let Some(since) = out.since {
                    self.keep_run(out, (since, time), cpu);
                }
                if let Some(task) = self.wanted(next.task, machine) {
                    self.switch_in(next, task, (time, cpu));
                }
            }
            Transition::Wakeup { task, by, kind } => {
                if let Some(woken) = self.wanted(*task, machine) {
                    if *kind == WakeupKind::Waking
                        && woken.state == TaskState::Runnable
                        && let Some(slot) = self.slot(*task)
                        && std::mem::replace(&mut slot.waking, true)
                    {
                        // It ran and slept meanwhile, unseen.
                        self.run_unseen(*task, time);
                    }
                    if woken.state == TaskState::Runnable
                        && let Some(slot) = self.slot(*task)
                        && slot.pending.is_none()
                    {
                        let is_new = *kind == WakeupKind::New;
                        let cause = if is_new { OffCpuCause::New } else { OffCpuCause::Woken };
                        slot.runnable_since.get_or_insert((cause, time));
                    }
                    let by = by.filter(|_| self.intervals.is_none());
                    let comm = by.and_then(|by| machine.tasks.get(by)).map(|t| t.comm().to_vec());
                    let context = match sched {
                        SchedEvent::Wakeup { context, .. } => *context,
                        _ => WakeupContext::Unknown,
                    };
                    // An interrupt comes upon anybody.
                    let comm = comm.filter(|_| !context.is_interrupt()).unwrap_or_default();
                    self.wakeup(*task, (comm, context), event, (time, cpu));
                }
            }
            Transition::Migrate { .. } | Transition::Runtime { .. } => {}
        }
        for id in machine.ended() {
            if let (Some(slot), Some(task)) =
                (self.live.get_mut(id.index()).map(std::mem::take), machine.tasks.get(*id))
            {
                self.keep(slot, (*id, task));
            }
        }
    }

    fn switch_out(&mut self, out: &SwitchOut, event: &RecordedEvent<'_>, at: (u64, u32)) {
        let (time, cpu) = at;
        self.switches.0 += 1;
        if out.since.is_none() {
            self.run_unseen(out.task, time);
        }
        if let Some((from, to)) = out.since.and_then(|since| self.part(since, time, cpu))
            && let Some(slot) = self.slot(out.task)
        {
            let counted =
                if out.touches_loss { &mut slot.row.uncertain } else { &mut slot.row.running };
            *counted = counted.saturating_add(to - from);
            slot.see(from);
            slot.see(to);
            self.keep_run(out, (from, to), cpu);
        }
        let stack = match self.intervals {
            // The kernel's functions tell the cause.
            Some(_) => self.stacks.kernel_stack(event),
            None => self.stacks.add(event, StackRole::Sleeper),
        };
        self.see(out.task, time);
        let cause = self.cause(out.state, stack);
        self.switches.1 += u64::from(stack.is_some());
        let Some(slot) = self.slot(out.task) else { return };
        let waker = slot.early_waker.take();
        slot.waking = false;
        slot.pending = match out.state {
            SwitchOutState::Dead(_) => None,
            state => Some(PendingWait { left: time, state, cause, stack, woken: None, waker }),
        };
        if stack.is_none() {
            self.set_owner(cpu, Some((StackOwner::Sleeper(out.task, time), Vec::new())));
        }
    }

    fn cause(&self, state: SwitchOutState, stack: Option<StackNode>) -> OffCpuCause {
        self.stacks.cause(stack, state)
    }

    fn wakeup(
        &mut self,
        task: TaskId,
        (comm, context): (Vec<u8>, WakeupContext),
        event: &RecordedEvent<'_>,
        (time, cpu): (u64, u32),
    ) {
        self.see(task, time);
        let Some(slot) = self.slot(task) else { return };
        if let Some(pending) = &mut slot.pending {
            // The first is the one that ended the block.
            if pending.woken.is_some() {
                return;
            }
            pending.woken = Some(time);
        }
        // Intervals do not record the waker, only whether there was one.
        if self.intervals.is_some() {
            let waker = self.waker(WakerInfo { comm: Vec::new(), context, stack: None });
            self.set_waker(task, waker);
            return;
        }
        let stack = self.stacks.add(event, waker_role(context));
        if stack.is_none() {
            self.set_owner(cpu, Some((StackOwner::Waker(task, context), comm.clone())));
        }
        let context = self.stacks.context(context, stack);
        let waker = self.waker(WakerInfo { comm, context, stack });
        self.set_waker(task, waker);
    }

    fn set_waker(&mut self, task: TaskId, waker: Option<WakerId>) {
        if let Some(slot) = self.slot(task) {
            match &mut slot.pending {
                Some(pending) => pending.waker = waker,
                None => slot.early_waker = waker,
            }
        }
    }

    fn waker(&mut self, info: WakerInfo) -> Option<WakerId> {
        if let Some(known) = self.waker_ids.get(&info) {
            return Some(*known);
        }
        if self.wakers.len() >= MAX_WAKERS {
            return None;
        }
        let id = WakerId(self.wakers.len() as u32);
        self.wakers.push(info.clone());
        self.waker_ids.insert(info, id);
        Some(id)
    }

    fn set_owner(&mut self, cpu: u32, owner: Option<(StackOwner, Vec<u8>)>) {
        let at = cpu as usize;
        if cpu < MOST_CPUS && self.owners.len() <= at {
            self.owners.resize(at + 1, None);
        }
        if let Some(slot) = self.owners.get_mut(at) {
            *slot = owner;
        }
    }

    /// Takes a stack that is an event of its own: it belongs to the event before it.
    fn take_stack(&mut self, event: &RecordedEvent<'_>) {
        let Some(cpu) = event.cpu() else { return };
        let Some(owner) = self.owners.get_mut(cpu as usize).and_then(Option::take) else { return };
        match owner {
            (StackOwner::Sleeper(task, left), _) => {
                let stack = self.stacks.add(event, StackRole::Sleeper);
                self.switches.1 += u64::from(stack.is_some());
                let state = self.live.get(task.index()).and_then(|s| s.pending).map(|p| p.state);
                let Some(state) = state else { return };
                let cause = self.cause(state, stack);
                if let Some(pending) = self.slot(task).and_then(|s| s.pending.as_mut())
                    && pending.left == left
                {
                    (pending.stack, pending.cause) = (stack, cause);
                }
            }
            (StackOwner::Waker(task, context), comm) => {
                let stack = self.stacks.add(event, waker_role(context));
                let context = self.stacks.context(context, stack);
                let waker = self.waker(WakerInfo { comm, context, stack });
                self.set_waker(task, waker);
            }
        }
    }

    fn switch_in(&mut self, next: &SwitchIn, task: &SchedTask, (time, cpu): (u64, u32)) {
        let pending = self.slot(next.task).and_then(|slot| {
            (slot.early_waker, slot.runnable_since, slot.waking) = (None, None, false);
            slot.pending.take()
        });
        self.see(next.task, time);
        let wait = &next.wait;
        let pending = pending.filter(|p| wait.left.is_some_and(|l| l.0 == p.left));
        let pending = pending.map(|p| {
            let cause = self.stacks.cause_at_end(p.cause, p.stack, time.saturating_sub(p.left));
            PendingWait { cause, ..p }
        });
        let certainty = match wait.left {
            // It may be of another task that the machine has taken for this one.
            None if !wait.touches_loss && !self.losses.is_empty() => IntervalCertainty::Uncertain,
            None if !wait.touches_loss => self.first_waits.certainty(),
            _ => certainty_of(wait.touches_loss),
        };
        let mut whole: Option<(OffCpuCause, u64, u64)> = None;
        let mut woken = None;
        for (cause, from, to) in parts(wait, pending.as_ref().map(|p| p.cause)) {
            let Some((from, to)) = self.part(from, to, cpu) else { continue };
            if to == from {
                continue;
            }
            self.count(next.task, cause, (from, to), pending.as_ref(), certainty);
            if certainty == IntervalCertainty::Undecided {
                self.keep_first((next.task, task), (cause, from, to));
            }
            whole = match whole {
                Some((first, begin, _)) => {
                    woken = (cause == OffCpuCause::Woken).then_some((cause, from, to)).or(woken);
                    Some((first, begin, to))
                }
                None => Some((cause, from, to)),
            };
        }
        let begins = wait.left.is_some() || wait.cause == WaitCause::New;
        self.no_begin += u64::from(!begins);
        // Threads without work delay no task, however long they wait for it.
        let whole = whole.filter(|w| !w.0.is_idle());
        for wait in whole.into_iter().chain(woken).filter(|_| certainty == IntervalCertainty::Seen)
        {
            self.keep_longest(wait, (task.comm(), task.tid));
        }
    }

    pub(super) fn keep_longest(
        &mut self,
        (cause, from, to): (OffCpuCause, u64, u64),
        (comm, tid): (&[u8], u32),
    ) {
        let known = self.longest.iter().position(|known| known.cause == cause);
        if known.and_then(|n| self.longest.get(n)).is_some_and(|l| to - from <= l.to - l.from) {
            return;
        }
        known.map(|n| self.longest.swap_remove(n));
        self.longest.push(LongestWait { cause, comm: comm.to_vec(), tid, from, to });
    }

    /// Gives a row its name and its place among those that change no more.
    fn keep(&mut self, slot: TaskSlot, (id, task): (TaskId, &SchedTask)) {
        if slot.seen.is_none() || task.is_idle() {
            return;
        }
        let row = slot.finish();
        let balanced = row.missing <= row.wall / 100;
        // Of some CPUs' times there is no sum.
        let all_cpus = self.config.selection.events.cpus().is_none();
        self.unbalanced += u64::from(!balanced && all_cpus);
        let row =
            OffCpuRow { comm: task.comm().to_vec(), tid: task.tid, pid: task.info.pid, ..row };
        let place = (self.ended.len() < MAX_ENDED).then_some(self.ended.len());
        self.move_first(id, place);
        if place.is_some() { self.ended.push(row) } else { self.crowded.merge(&row) }
    }

    fn finish(mut self, read: SchedRead) -> OffCpuTable {
        self.decide(false);
        let end = read.span.map_or(0, |s| s.1);
        let alive: Vec<TaskId> = read.machine.tasks.iter().map(|(id, _)| id).collect();
        for id in alive {
            self.leave_open(id, end);
            if let (Some(slot), Some(task)) =
                (self.live.get_mut(id.index()).map(std::mem::take), read.machine.tasks.get(id))
            {
                self.keep(slot, (id, task));
            }
        }
        let mut rows = self.ended;
        let crowded = self.crowded.tasks;
        if crowded > 0 {
            rows.push(OffCpuRow { comm: b"[ended tasks]".to_vec(), ..self.crowded });
        }
        rows.sort_by_key(|r| (std::cmp::Reverse(r.waiting.saturating_add(r.blocked)), r.tid));
        let mut total = OffCpuRow::default();
        rows.iter().for_each(|row| total.merge(row));
        let mut cells: Vec<_> = self.cells.into_iter().collect();
        cells.sort_by_key(|(key, cell)| {
            (std::cmp::Reverse(cell.total), key.0, key.1, key.2.map(|w| w.0))
        });
        self.longest.sort_by_key(|l| (std::cmp::Reverse(l.to - l.from), l.from));
        OffCpuTable {
            causes: OffCpuCause::ALL.into_iter().zip(self.causes).collect(),
            cells,
            rows,
            total,
            longest: self.longest,
            stacks: self.stacks,
            wakers: self.wakers,
            switches: self.switches,
            no_begin: self.no_begin,
            began_before: self.began_before,
            unbalanced: self.unbalanced,
            crowded,
            merged: self.merged,
            read,
        }
    }
}

pub(super) fn waker_role(context: WakeupContext) -> StackRole {
    if context.is_interrupt() { StackRole::Interrupt } else { StackRole::Waker }
}
