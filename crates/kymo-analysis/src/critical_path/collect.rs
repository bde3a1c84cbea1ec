//! Reading recordings into the history, choosing whose path is wanted, and finding it.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use kymo_events::name_map::recorded_names;
use kymo_events::{
    BlockedThread, CommandWatch, EventSelection, EventSource, ReadOptions, RecordedEvent,
    SourceError,
};

use super::history::{RunHistory, TaskRun, WokenBy};
use super::path::{CriticalPath, PathSegment, PathTable, PathTask, PathTaskId, SpanStats};
use super::span::{EndedSpan, SpanExpr, SpanMatcher};
use super::stacks::add_stacks;
use super::wake_source::WakeSource;
use super::walk::{find_path, is_of_task};
use super::work_items::WORK_EVENTS;
use crate::losses::{LossWindows, MOST_CPUS};
use crate::offcpu::{OFF_CPU_EVENTS, OffCpuCause, StackRole, StackStore};
use crate::tasks::{
    EXIT_EVENT, SchedDecoder, SchedEvent, SchedRead, SwitchOut, SwitchOutState, TaskId,
    TaskMachine, TaskState, Transition, Wait, WaitCause, WakeupContext, WakeupKind,
};

/// Tasks whose path is computed.
#[derive(Clone, Debug)]
pub enum PathTarget {
    /// A thread.
    Thread(u32),
    /// The first thread of a process.
    Process(u32),
    /// Task with this name that lives longest.
    Comm(String),
    /// The recorded command.
    Command(CommandWatch),
    /// The task that ran longest, but for those of one process.
    Busiest(u32),
    /// The slowest spans of a program's events: those of the tasks that end them.
    Spans(Box<SpanExpr>, usize),
}

/// Options of computing critical paths.
#[derive(Debug)]
pub struct PathConfig {
    /// Tasks whose path is computed.
    pub target: PathTarget,
    /// Within this time.
    pub times: Option<(u64, u64)>,
}

/// Beginnings of the names of kernel threads that sleep interruptibly where they have no work: a
/// stack says whether they have; without one only the first is decided by its name.
const KERNEL_THREADS: [&[u8]; 8] =
    [b"ksoftirqd/", b"migration/", b"kswapd", b"kcompactd", b"jbd2/", b"irq/", b"rcu", b"iou-wrk-"];

/// A task that lives.
#[derive(Clone, Copy, Debug, Default)]
struct LiveTask {
    key: Option<PathTaskId>,
    left: Option<(u64, u32, SwitchOutState)>,
    /// The first wake-up since.
    woken: Option<WokenBy>,
    /// A wake-up that came while it still ran, and the same as one for the wait behind it.
    early: Option<WokenBy>,
    early_for_wait: Option<WokenBy>,
    /// It left its CPU as a kernel thread without work.
    is_idle: bool,
}

struct PathCollector<'a> {
    config: &'a PathConfig,
    losses: &'a LossWindows,
    history: RunHistory,
    /// By slot.
    live: Vec<LiveTask>,
    /// Running task by CPU.
    current: Vec<Option<PathTaskId>>,
    /// Wake-ups whose stack comes as an event of its own, by CPU.
    owners: Vec<Option<(TaskId, WokenBy)>>,
    stacks: StackStore,
    matcher: SpanMatcher,
    stats: SpanStats,
    /// The slowest spans so far.
    slowest: Vec<CriticalPath>,
    /// Task of the command whose path is wanted.
    command: Option<(u32, PathTaskId)>,
}

/// Finds the critical paths that are asked for.
///
/// # Errors
/// If reading fails.
pub fn find_paths(source: &EventSource, config: &PathConfig) -> Result<PathTable, SourceError> {
    let losses = source.losses();
    let mut names = OFF_CPU_EVENTS.to_vec();
    names.extend(["ftrace:kernel_stack", EXIT_EVENT]);
    names.extend(WORK_EVENTS);
    let mut all: Vec<String> =
        names.iter().flat_map(|n| recorded_names(n)).map(str::to_owned).collect();
    if let PathTarget::Spans(expr, _) = &config.target {
        all.extend(expr.events().map(str::to_owned));
    }
    let mut select = EventSelection::default();
    // Names without globs are always a selection.
    let _ = select.set_events(&all);
    let mut collector = PathCollector::new(config, &losses);
    let mut machine = TaskMachine::new(losses.clone());
    let mut decoder = SchedDecoder::default();
    let mut span: Option<(u64, u64)> = None;
    let mut is_first = true;
    let summary = source.for_each(&select, ReadOptions::default(), &mut |event| {
        if std::mem::take(&mut is_first)
            && let Some((began, threads)) = source.blocked_at_start()
        {
            let began = event.time.map_or(began, |time| time.min(began));
            for thread in threads {
                collector.note_blocked(thread, began, (&mut machine, event));
            }
        }
        machine.note_loss(event);
        if event.class.is_stack {
            collector.take_stack(event);
            return ControlFlow::Continue(());
        }
        collector.see_span(event, &machine);
        collector.see_work(event, &machine);
        let Some(sched) = decoder.decode(event) else { return ControlFlow::Continue(()) };
        let (Some(time), Some(cpu)) = (event.time, event.cpu().filter(|c| *c < MOST_CPUS)) else {
            // The machine counts it.
            let _ = machine.apply(&sched, event);
            return ControlFlow::Continue(());
        };
        let (first, last) = span.unwrap_or((time, time));
        span = Some((first.min(time), last.max(time)));
        set(&mut collector.owners, cpu, None);
        if let Some(transition) = machine.apply(&sched, event) {
            collector.step(&transition, (&sched, event), (time, cpu), &machine);
        }
        match config.times {
            // Later events add nothing to the selected span.
            Some((_, until)) if time > until && collector.history.is_full() => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    })?;
    machine.finish();
    let read = SchedRead { machine, summary, span, malformed: decoder.malformed };
    let mut table = collector.finish(read);
    add_stacks(source, &mut table)?;
    Ok(table)
}

/// Sets an entry for a CPU.
fn set<T: Clone>(list: &mut Vec<Option<T>>, cpu: u32, value: Option<T>) {
    let at = cpu as usize;
    if list.len() <= at {
        list.resize(at + 1, None);
    }
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

impl<'a> PathCollector<'a> {
    fn new(config: &'a PathConfig, losses: &'a LossWindows) -> PathCollector<'a> {
        PathCollector {
            config,
            losses,
            history: RunHistory::default(),
            live: Vec::new(),
            current: Vec::new(),
            owners: Vec::new(),
            stacks: StackStore::default(),
            matcher: SpanMatcher::default(),
            stats: SpanStats::default(),
            slowest: Vec::new(),
            command: None,
        }
    }

    fn slot(&mut self, id: TaskId) -> Option<&mut LiveTask> {
        if self.live.len() <= id.index() {
            self.live.resize(id.index() + 1, LiveTask::default());
        }
        self.live.get_mut(id.index())
    }

    /// The task of a slot; idle tasks have none.
    fn key(&mut self, id: TaskId, machine: &TaskMachine, time: u64) -> Option<PathTaskId> {
        let task = machine.tasks.get(id).filter(|t| !t.is_idle())?;
        let key = match self.slot(id)?.key {
            Some(key) => key,
            None => {
                let (comm, pid) = (task.comm().to_vec(), task.info.pid);
                let new = PathTask {
                    comm,
                    tid: task.tid,
                    pid,
                    seen: (time, time),
                    ..PathTask::default()
                };
                let key = self.history.add_task(new)?;
                self.slot(id)?.key = Some(key);
                key
            }
        };
        let known = self.history.task_mut(key)?;
        known.seen.1 = known.seen.1.max(time);
        known.rename(task.comm());
        Some(key)
    }

    /// Takes note of a thread that is blocked when the events start, which is before `event`.
    fn note_blocked(
        &mut self,
        thread: &BlockedThread,
        began: u64,
        (machine, event): (&mut TaskMachine, &RecordedEvent<'_>),
    ) {
        let id = machine.note_blocked(thread, began, event);
        let Some(key) = id.and_then(|id| self.key(id, machine, began)) else { return };
        let (cause, _) = OffCpuCause::of_thread(thread);
        self.history.blocked.insert(key, (began, cause));
        if let Some(slot) = id.and_then(|id| self.slot(id)) {
            let state = SwitchOutState::Blocked(thread.state);
            slot.left = Some((began, thread.cpu.unwrap_or(0), state));
        }
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
                let key = self.key(out.task, machine, time);
                self.leave_unseen(cpu, key, time);
                if let Some(key) = key {
                    // The samples of a pid namespace have its numbers, fields the kernel's.
                    if let PathTarget::Command(command) = &self.config.target
                        && let Some(command) = command.found()
                        && self.command.is_none_or(|(tid, _)| tid != command.tid)
                        && event.task().tid == Some(command.tid)
                        && time >= command.began
                    {
                        self.command = Some((command.tid, key));
                    }
                    let is_idle = self.leaves_idle(event, out, machine);
                    self.switch_out((out.task, key), (out.state, is_idle), (time, cpu));
                }
                let key = self.key(next.task, machine, time);
                set(&mut self.current, cpu, key);
                if let Some(key) = key {
                    self.switch_in((next.task, key), &next.wait, (time, cpu));
                }
            }
            Transition::Wakeup { task, by, kind } => {
                let SchedEvent::Wakeup { context, .. } = sched else { return };
                let is_new = *kind == WakeupKind::New;
                self.wakeup((*task, *by), (*context, is_new), (event, time, cpu), machine);
            }
            Transition::Migrate { .. } | Transition::Runtime { .. } => {}
        }
        for id in machine.ended() {
            self.end(*id, machine);
        }
    }

    /// A CPU switches away from another task than it ran: that one left unseen.
    fn leave_unseen(&mut self, cpu: u32, out: Option<PathTaskId>, time: u64) {
        let before = self.current.get(cpu as usize).copied().flatten();
        let Some(before) = before.filter(|b| Some(*b) != out) else { return };
        if let Some(run) = self.history.last_run(before).filter(|r| r.end.is_none()) {
            (run.end, run.is_unseen) = (Some(time), true);
        }
    }

    /// Whether a kernel thread leaves its CPU for want of work.
    fn leaves_idle(
        &mut self,
        event: &RecordedEvent<'_>,
        out: &SwitchOut,
        machine: &TaskMachine,
    ) -> bool {
        let SwitchOutState::Blocked(letter) = out.state else { return false };
        let Some(task) = machine.tasks.get(out.task) else { return false };
        let (comm, is_idle_state) = (task.comm(), matches!(letter, b'I' | b'P'));
        if !is_idle_state && !KERNEL_THREADS.iter().any(|name| comm.starts_with(name)) {
            return false;
        }
        match self.stacks.kernel_stack(event) {
            Some(stack) => self.stacks.cause(Some(stack), out.state) == OffCpuCause::IdleWorker,
            None => is_idle_state || comm.starts_with(KERNEL_THREADS[0]),
        }
    }

    fn switch_out(
        &mut self,
        (id, key): (TaskId, PathTaskId),
        (state, is_idle): (SwitchOutState, bool),
        (time, cpu): (u64, u32),
    ) {
        let Some(slot) = self.slot(id) else { return };
        let before = std::mem::take(slot);
        *slot = LiveTask {
            key: before.key,
            left: Some((time, cpu, state)).filter(|_| !matches!(state, SwitchOutState::Dead(_))),
            early_for_wait: before.early,
            is_idle,
            ..LiveTask::default()
        };
        match self.history.last_run(key).filter(|r| r.end.is_none()) {
            Some(run) => run.end = Some(time),
            None => {
                // It got its CPU unseen, some time after it could run.
                let since = before.woken.map(|w| w.time).or(before.left.map(|l| l.0));
                self.history.push(TaskRun {
                    task: key,
                    left: before.left,
                    runnable: None,
                    cause: WaitCause::Unknown,
                    is_idle: before.is_idle,
                    woken: before.woken,
                    begin: Some(since.unwrap_or(time)),
                    end: Some(time),
                    cpu,
                    is_unseen: true,
                });
            }
        }
    }

    fn switch_in(&mut self, (id, key): (TaskId, PathTaskId), wait: &Wait, (time, cpu): (u64, u32)) {
        let Some(slot) = self.slot(id) else { return };
        let before = std::mem::take(slot);
        slot.key = before.key;
        if let Some(run) = self.history.last_run(key).filter(|r| r.end.is_none()) {
            let left = wait.left.map_or(time, |l| l.0);
            (run.end, run.is_unseen) = (Some(left), true);
        }
        let early = before.early_for_wait.filter(|_| wait.cause == WaitCause::Woken);
        self.history.push(TaskRun {
            task: key,
            left: before.left.filter(|l| wait.left.is_some_and(|w| w.0 == l.0)),
            runnable: wait.runnable,
            cause: wait.cause,
            is_idle: before.is_idle,
            woken: before.woken.or(early),
            begin: Some(time),
            end: None,
            cpu,
            is_unseen: false,
        });
    }

    fn wakeup(
        &mut self,
        (id, by): (TaskId, Option<TaskId>),
        (context, is_new): (WakeupContext, bool),
        (event, time, cpu): (&RecordedEvent<'_>, u64, u32),
        machine: &TaskMachine,
    ) {
        if self.key(id, machine, time).is_none() {
            return;
        }
        // The event names the task that ran; where a switch is missing the machine does not know.
        let told = match event.task().tid {
            Some(0) => None,
            Some(tid) => machine.tasks.by_tid(tid).or(by),
            None => by,
        };
        let waker = told.and_then(|by| self.key(by, machine, time));
        let is_running =
            machine.tasks.get(id).is_some_and(|t| matches!(t.state, TaskState::Running(_)));
        let Some(slot) = self.slot(id) else { return };
        if !is_running && slot.woken.is_some() {
            return;
        }
        let mut woken = WokenBy { task: waker, context, is_followed: false, time, cpu };
        woken.is_followed = waker.is_some() && (is_new || is_of_task(context));
        if context == WakeupContext::SoftIrq && waker.is_some() {
            // A task that sends to another one over the loopback device wakes it in a softirq.
            match self.stacks.add(event, StackRole::Waker) {
                Some(stack) => {
                    let names = self.stacks.names(stack);
                    woken.is_followed = WakeSource::of(context, &names, false) == WakeSource::Task;
                }
                None => set(&mut self.owners, cpu, Some((id, woken))),
            }
        }
        self.set_woken(id, woken, is_running);
    }

    fn set_woken(&mut self, id: TaskId, woken: WokenBy, is_running: bool) {
        let Some(slot) = self.slot(id) else { return };
        if is_running { slot.early = Some(woken) } else { slot.woken = Some(woken) }
    }

    /// Takes a stack that is an event of its own: it belongs to the event before it.
    fn take_stack(&mut self, event: &RecordedEvent<'_>) {
        let Some(cpu) = event.cpu() else { return };
        let Some((id, woken)) = self.owners.get_mut(cpu as usize).and_then(Option::take) else {
            return;
        };
        let Some(stack) = self.stacks.add(event, StackRole::Waker) else { return };
        let names = self.stacks.names(stack);
        let is_followed = WakeSource::of(woken.context, &names, false) == WakeSource::Task;
        let Some(slot) = self.slot(id) else { return };
        for kept in [&mut slot.woken, &mut slot.early].into_iter().flatten() {
            if *kept == woken {
                kept.is_followed = is_followed;
            }
        }
    }

    /// Takes note of work items: who queues them, and who executes them.
    fn see_work(&mut self, event: &RecordedEvent<'_>, machine: &TaskMachine) {
        let Some(work) = self.history.items.read(event) else { return };
        let (Some(time), Some(cpu), Some(tid)) = (event.time, event.cpu(), event.task().tid) else {
            return;
        };
        let id = machine.tasks.by_tid(tid);
        if let Some(key) = id.and_then(|id| self.key(id, machine, time)) {
            self.history.items.add(work, key, (time, cpu));
        }
    }

    fn see_span(&mut self, event: &RecordedEvent<'_>, machine: &TaskMachine) {
        let PathTarget::Spans(expr, count) = &self.config.target else { return };
        if !self
            .config
            .times
            .is_none_or(|(from, to)| event.time.is_some_and(|t| (from..=to).contains(&t)))
        {
            return;
        }
        let (_, ended) = self.matcher.event(expr, event);
        let Some(EndedSpan { from, to }) = ended else { return };
        self.stats.spans.add(to - from, from);
        let tid = event.task().tid;
        let slot = tid.and_then(|tid| machine.tasks.by_tid(tid));
        let Some(key) = slot.and_then(|id| self.key(id, machine, to)) else {
            self.stats.no_task += 1;
            return;
        };
        let is_among =
            self.slowest.len() < *count || self.slowest.iter().any(|path| path.nanos() < to - from);
        if !is_among {
            return;
        }
        self.slowest.push(find_path(&self.history, self.losses, key, (from, to)));
        self.slowest.sort_by_key(|path| (std::cmp::Reverse(path.nanos()), path.from));
        self.slowest.truncate(*count);
    }

    /// A task ended: nothing more comes of it.
    fn end(&mut self, id: TaskId, machine: &TaskMachine) {
        let Some(slot) = self.live.get_mut(id.index()) else { return };
        let key = std::mem::take(slot).key;
        self.rename(key, id, machine);
    }

    /// Takes the last name of a task.
    fn rename(&mut self, key: Option<PathTaskId>, id: TaskId, machine: &TaskMachine) {
        let told = machine.tasks.get(id);
        if let (Some(task), Some(told)) = (key.and_then(|k| self.history.task_mut(k)), told) {
            task.rename(told.comm());
            task.pid = told.info.pid.or(task.pid);
        }
    }

    fn finish(mut self, read: SchedRead) -> PathTable {
        let end = read.span.map_or(0, |s| s.1);
        for id in read.machine.tasks.iter().map(|(id, _)| id).collect::<Vec<_>>() {
            let Some(slot) = self.live.get(id.index()).copied() else { continue };
            self.rename(slot.key, id, &read.machine);
            let Some(key) = slot.key else { continue };
            if let Some(task) = self.history.task_mut(key) {
                task.seen.1 = task.seen.1.max(end);
            }
            if slot.left.is_some() || slot.woken.is_some() {
                self.history.push(unended(key, &slot));
            }
        }
        let mut alternatives = Vec::new();
        let paths = match &self.config.target {
            PathTarget::Spans(..) => std::mem::take(&mut self.slowest),
            target => {
                let mut fitting = self.fitting(target);
                if let PathTarget::Busiest(_) = target {
                    let ran = |(key, span): &_| Reverse(self.history.ran(*key, *span));
                    fitting.sort_by_cached_key(ran);
                }
                fitting.truncate(8);
                let first = fitting.first().copied();
                let others = fitting.iter().skip(1);
                alternatives = others.filter_map(|(key, _)| self.task(*key)).collect();
                let path = |(key, span)| find_path(&self.history, self.losses, key, span);
                first.map(path).into_iter().collect()
            }
        };
        let is_at_start = |segment: &PathSegment| {
            let known = self.history.blocked.get(&segment.task);
            known.is_some_and(|(since, _)| *since == segment.from)
        };
        let segments = paths.iter().flat_map(|path: &CriticalPath| &path.segments);
        let began_before = segments.filter(|segment| is_at_start(segment)).count() as u64;
        self.matcher.finish();
        let (no_end, no_begin, no_key) = self.matcher.unmatched;
        let stats = SpanStats { no_end, no_begin, no_key, ..self.stats };
        let is_spans = matches!(self.config.target, PathTarget::Spans(..));
        PathTable {
            paths,
            tasks: self.history.tasks,
            spans: is_spans.then_some(stats),
            alternatives,
            lines: Vec::new(),
            stacks: self.stacks,
            stacked: (0, 0),
            has_work_events: self.history.items.are_recorded,
            is_command_by_name: matches!(
                &self.config.target,
                PathTarget::Command(command) if command.found().is_some_and(|c| c.is_by_name)
            ),
            forgotten: self.history.forgotten,
            began_before,
            crowded: self.history.crowded,
            read,
        }
    }

    /// Tasks that fit a choice with the time that is wanted of them, the longest first.
    fn fitting(&self, target: &PathTarget) -> Vec<(PathTaskId, (u64, u64))> {
        // A process of the command's name counts only where no certain one was found.
        let command = self.command.filter(|(tid, _)| match target {
            PathTarget::Command(command) => command.found().is_some_and(|c| c.tid == *tid),
            _ => false,
        });
        let fits = |key: PathTaskId, task: &PathTask| match target {
            PathTarget::Thread(tid) => task.tid == *tid,
            PathTarget::Process(pid) => task.tid == *pid || task.pid == Some(*pid),
            PathTarget::Comm(comm) => task.had_name(comm.as_bytes()),
            PathTarget::Command(_) => command.is_some_and(|(_, of)| of == key),
            PathTarget::Busiest(without) => task.pid != Some(*without),
            PathTarget::Spans(..) => false,
        };
        let began = match target {
            PathTarget::Command(command) => command.found().map_or(0, |c| c.began),
            _ => 0,
        };
        let span = |task: &PathTask| {
            let (from, to) = self.config.times.unwrap_or((0, u64::MAX));
            (task.seen.0.max(from).max(began), task.seen.1.min(to))
        };
        let tasks = self.history.tasks.iter().enumerate();
        let tasks = tasks.map(|(n, task)| (PathTaskId(n as u32), task));
        let found = tasks.filter(|(key, task)| fits(*key, task));
        let found = found.map(|(key, task)| (key, span(task)));
        let mut found: Vec<_> = found.filter(|(_, (from, to))| from < to).collect();
        // Of a process its first thread, if that ran.
        let tid = |key: PathTaskId| self.history.tasks.get(key.0 as usize).map(|task| task.tid);
        let is_other = |key: PathTaskId| match target {
            PathTarget::Process(pid) => tid(key) != Some(*pid),
            _ => false,
        };
        found.sort_by_key(|(key, (from, to))| (is_other(*key), Reverse(to - from), *key));
        found
    }

    fn task(&self, key: PathTaskId) -> Option<PathTask> {
        self.history.tasks.get(key.0 as usize).cloned()
    }
}

/// The wait of a task that had not run again when the recording ended.
fn unended(key: PathTaskId, slot: &LiveTask) -> TaskRun {
    let is_preempted = slot.left.is_some_and(|l| l.2.is_runnable());
    let (runnable, cause) = match (slot.left, slot.woken, slot.early_for_wait) {
        (Some(left), ..) if is_preempted => (Some(left.0), WaitCause::Preempted),
        (_, Some(woken), _) => (Some(woken.time), WaitCause::Woken),
        (Some(left), None, Some(_)) => (Some(left.0), WaitCause::Woken),
        _ => (None, WaitCause::Unknown),
    };
    TaskRun {
        task: key,
        left: slot.left,
        runnable,
        cause,
        is_idle: slot.is_idle,
        woken: slot.woken.or(slot.early_for_wait),
        begin: None,
        end: None,
        cpu: slot.left.map_or(0, |l| l.1),
        is_unseen: false,
    }
}
