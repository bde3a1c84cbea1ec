//! Counting system calls from their entry to their exit, by thread, and what they waited for
//! meanwhile, by the state machine of tasks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use kymo_events::{
    CommandWatch, EventSelection, EventSource, ReadOptions, ReadSummary, RecordedEvent,
    SourceError, TaskInfo,
};
use kymo_model::Note;
use rustc_hash::FxHashMap;

use super::decode::{CallArguments, CallId, CallInfo, SyscallDecoder, SyscallEvent};
use super::stats::SyscallStats;
use super::{SYSCALL_EVENTS, SYSCALL_WAIT_EVENTS};
use crate::losses::{LossWindows, MOST_CPUS, select_events};
use crate::offcpu::{OffCpuCause, StackRole, StackStore};
use crate::tasks::{
    EXIT_EVENT, SchedCounts, SchedDecoder, SwitchIn, SwitchOut, SwitchOutState, TaskMachine,
    Transition, WakeupContext,
};

/// Calls under way at a time.
const MAX_OPEN: usize = 1 << 18;
/// Threads with rows of their own; more are in one row together.
const MAX_TASKS: usize = 1 << 16;
/// Waits of a call that are distinguished by cause.
const MAX_BLOCKS: usize = 4;

/// Options of counting system calls.
#[derive(Clone, Debug)]
pub struct SyscallConfig {
    /// Selection of calls: by time and CPU at which they end, and their task.
    pub selection: EventSelection,
    /// Only calls with these names; all where it is empty.
    pub calls: Vec<String>,
    /// The slowest that are kept.
    pub slowest: usize,
    /// Show only failed calls among the slowest.
    pub failed_only: bool,
    /// Names a call by its number.
    pub name_of: fn(i64) -> Option<&'static str>,
}

/// Time that a call waited for one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBlock {
    /// Cause.
    pub cause: OffCpuCause,
    /// Nanoseconds.
    pub nanos: u64,
    /// Waker of the last of these waits: name, thread, and context of the wake-up.
    pub woken_by: Option<(Vec<u8>, u32, WakeupContext)>,
    /// Functions of the kernel in which it waited last, innermost first.
    pub stack: Vec<String>,
}

/// Waits of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallWaits {
    /// Waits, by cause, in the order of their first.
    pub blocks: Vec<CallBlock>,
    /// Nanoseconds in which it waited for a CPU.
    pub runnable: u64,
    /// Nanoseconds in which it waited or ran: when it came back to a CPU was not recorded.
    pub unknown: u64,
}

impl CallWaits {
    /// Nanoseconds in which it waited for something other than a CPU.
    pub fn blocked(&self) -> u64 {
        self.blocks.iter().fold(0, |sum, b| sum.saturating_add(b.nanos))
    }
}

/// A call among the slowest.
#[derive(Clone, Debug)]
pub struct SlowCall {
    /// Its begin.
    pub start: u64,
    /// Nanoseconds.
    pub duration: u64,
    /// CPU on which it ended.
    pub cpu: Option<u32>,
    /// Its task.
    pub task: TaskInfo,
    /// Call.
    pub call: CallId,
    /// Its arguments.
    pub arguments: CallArguments,
    /// Its result.
    pub result: i64,
    /// Waits of the call, where the recording has switches.
    pub waits: CallWaits,
}

/// Order among the slowest: the duration, then the earlier one, then when it was counted.
#[derive(Debug)]
struct SlowKey(u64, Reverse<u64>, Reverse<u64>, SlowCall);

impl PartialEq for SlowKey {
    fn eq(&self, other: &SlowKey) -> bool {
        (self.0, self.1, self.2) == (other.0, other.1, other.2)
    }
}
impl Eq for SlowKey {}
impl PartialOrd for SlowKey {
    fn partial_cmp(&self, other: &SlowKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for SlowKey {
    fn cmp(&self, other: &SlowKey) -> std::cmp::Ordering {
        (self.0, self.1, self.2).cmp(&(other.0, other.1, other.2))
    }
}

/// A thread, and its calls.
#[derive(Clone, Debug, Default)]
pub struct SyscallTask {
    /// Its last name.
    pub comm: Vec<u8>,
    /// Its thread; `None`: those that there was no room for.
    pub tid: Option<u32>,
    /// Its process, where known.
    pub pid: Option<u32>,
    /// Number of its events of system calls.
    pub events: u64,
    /// Its calls, the largest total first.
    pub calls: Vec<(CallId, SyscallStats)>,
}

/// System calls, and what did not fit together.
#[derive(Debug)]
pub struct SyscallTable {
    /// The calls that there are.
    pub infos: Vec<CallInfo>,
    /// All calls of all threads, the largest total first.
    pub calls: Vec<(CallId, SyscallStats)>,
    /// The threads, the one with the largest total first.
    pub tasks: Vec<SyscallTask>,
    /// The slowest calls.
    pub slowest: Vec<SlowCall>,
    /// Events of system calls.
    pub events: u64,
    /// Calls that were under way when the recording ended.
    pub open_at_end: u64,
    /// Entries whose exit is not in the recording.
    pub entries: u64,
    /// Exits whose entry is not in the recording.
    pub exits: u64,
    /// Calls in which events were lost.
    pub touching_loss: u64,
    /// Whether events were lost.
    pub has_losses: bool,
    /// Events without time, task or a field.
    pub malformed: u64,
    /// Note about numbers of calls whose width is not known.
    pub width_note: Option<Note>,
    /// Calls not attributed (table limit reached).
    pub crowded: u64,
    /// Scheduler events that do not match each other.
    pub sched: SchedCounts,
    /// Switches with a stack.
    pub stacked: u64,
    /// Times of the first and the last event of a system call.
    pub span: Option<(u64, u64)>,
    /// Summary of the readers.
    pub summary: ReadSummary,
}

impl SyscallTable {
    /// Name of a call.
    pub fn name(&self, call: CallId) -> &str {
        self.infos.get(call.0 as usize).map_or("", |info| &info.name)
    }
}

struct OpenCall {
    time: u64,
    call: CallId,
    /// Process of its thread, where known.
    process: Option<u32>,
    arguments: CallArguments,
    waits: CallWaits,
    /// Cause and stack of the current wait.
    leaves: Option<(OffCpuCause, Vec<String>)>,
    is_uncertain: bool,
}

struct SyscallCounting<'a> {
    config: &'a SyscallConfig,
    losses: LossWindows,
    decoder: SyscallDecoder,
    open: FxHashMap<u32, OpenCall>,
    tasks: Vec<SyscallTask>,
    rows: Vec<FxHashMap<CallId, SyscallStats>>,
    by_tid: FxHashMap<u32, usize>,
    slowest: BinaryHeap<Reverse<SlowKey>>,
    stacks: StackStore,
    /// By CPU: the thread that left it with the last event, and how.
    leavers: Vec<Option<(u32, SwitchOutState)>>,
    stacked: u64,
    counted: u64,
    events: u64,
    entries: u64,
    exits: u64,
    touching_loss: u64,
    malformed: u64,
    crowded: u64,
    span: Option<(u64, u64)>,
    /// The child that becomes the command is it by now.
    has_executed: bool,
    /// Name of that child before.
    name_before: Option<TaskInfo>,
    /// The search for the command of a perf.data, until it executes its program.
    command: Option<CommandWatch>,
    /// Process of the recorder, whose calls are nobody's work.
    recorder: Option<u32>,
}

/// Names of all events that are read.
fn event_names() -> Vec<&'static str> {
    let mut names = SYSCALL_EVENTS.to_vec();
    names.extend([
        "syscalls:sys_enter_*",
        "syscalls:sys_exit_*",
        "syscall_entry_*",
        "syscall_exit_*",
        "sched:sched_wakeup",
    ]);
    names.extend(SYSCALL_WAIT_EVENTS);
    names
}

/// Counts the system calls of recordings.
///
/// # Errors
/// If reading fails.
pub fn count_syscalls(
    source: &EventSource,
    config: &SyscallConfig,
) -> Result<SyscallTable, SourceError> {
    let mut names = event_names();
    names.extend(["ftrace:kernel_stack", EXIT_EVENT]);
    let mut counting = SyscallCounting::new(config, source.losses());
    counting.command = source.watch_command(None);
    let mut sched = SchedDecoder::default();
    let mut machine = TaskMachine::new(source.losses());
    let selection = select_events(&names);
    let summary = source.for_each(&selection, ReadOptions::default(), &mut |event| {
        machine.note_loss(event);
        if event.class.is_stack {
            counting.take_stack(event);
        } else if let Some(sched) = sched.decode(event) {
            if let Some(transition) = machine.apply(&sched, event) {
                counting.step(&transition, event, &machine);
            }
        } else if let Some(call) = counting.decoder.decode(event) {
            let task = task_of(event, &machine);
            counting.call(call, event, task);
        }
        ControlFlow::Continue(())
    })?;
    machine.finish();
    Ok(counting.finish(machine.counts, sched.malformed, summary))
}

impl<'a> SyscallCounting<'a> {
    fn new(config: &'a SyscallConfig, losses: LossWindows) -> SyscallCounting<'a> {
        SyscallCounting {
            config,
            losses,
            decoder: SyscallDecoder::new(config.name_of),
            open: FxHashMap::default(),
            tasks: Vec::new(),
            rows: Vec::new(),
            by_tid: FxHashMap::default(),
            slowest: BinaryHeap::new(),
            stacks: StackStore::default(),
            leavers: Vec::new(),
            stacked: 0,
            counted: 0,
            events: 0,
            entries: 0,
            exits: 0,
            touching_loss: 0,
            malformed: 0,
            crowded: 0,
            span: None,
            has_executed: false,
            name_before: None,
            command: None,
            recorder: None,
        }
    }

    /// The recorder's child becomes the command: its calls before were not those of the command.
    fn forget_child(&mut self, tid: u32) {
        let command = self.command.as_ref().and_then(|watch| watch.found());
        let Some(command) = command.filter(|c| c.tid == tid && !c.is_by_name) else { return };
        (self.command, self.recorder) = (None, command.recorder);
        if let Some(row) = self.by_tid.get(&tid).copied() {
            self.rows.get_mut(row).into_iter().for_each(FxHashMap::clear);
            self.tasks.get_mut(row).into_iter().for_each(|task| task.events = 0);
        }
        self.slowest.retain(|Reverse(SlowKey(.., slow))| slow.task.tid != Some(tid));
    }

    fn call(&mut self, call: SyscallEvent, event: &RecordedEvent<'_>, task: TaskInfo) {
        self.events += 1;
        let (Some(time), Some(tid)) = (event.time, task.tid) else {
            self.malformed += 1;
            return;
        };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        match call {
            SyscallEvent::Enter(call, arguments) => {
                if self.open.len() >= MAX_OPEN && !self.open.contains_key(&tid) {
                    self.crowded += 1;
                    return;
                }
                let waits = CallWaits::default();
                let open = OpenCall {
                    time,
                    call,
                    process: task.pid,
                    arguments,
                    waits,
                    leaves: None,
                    is_uncertain: false,
                };
                // A thread is in one call at a time; some never return (rt_sigreturn, exit).
                self.entries += u64::from(self.open.insert(tid, open).is_some());
            }
            SyscallEvent::Exit(call, result) => {
                let mut begun = self.open.remove(&tid).filter(|open| open.call == call);
                if begun.is_none() && result == 0 && self.executes(call) {
                    // A thread that executes a program gets the number of its process.
                    begun = self.take_of_process(tid, call);
                }
                match begun {
                    Some(open) if open.time <= time => self.end(open, (result, time), event, &task),
                    _ => self.exits += 1,
                }
            }
        }
    }

    /// Whether a call executes a program.
    fn executes(&self, call: CallId) -> bool {
        let call = self.decoder.calls.get(call.0 as usize);
        call.is_some_and(|call| matches!(&*call.name, "execve" | "execveat"))
    }

    /// The call that another thread of a process has begun.
    fn take_of_process(&mut self, process: u32, call: CallId) -> Option<OpenCall> {
        let is_it =
            |(_, open): &(&u32, &OpenCall)| open.call == call && open.process == Some(process);
        let thread = *self.open.iter().find(is_it)?.0;
        self.open.remove(&thread)
    }

    fn end(
        &mut self,
        open: OpenCall,
        (result, time): (i64, u64),
        event: &RecordedEvent<'_>,
        task: &TaskInfo,
    ) {
        let s = &self.config.selection;
        let name = self.decoder.calls.get(open.call.0 as usize).map_or("", |c| &c.name);
        let is_wanted = s.wants_time(Some(time))
            && s.wants_cpu(event.cpu())
            && (self.config.calls.is_empty() || self.config.calls.iter().any(|c| c == name))
            && (!s.has_task_conditions() || s.wants_task(task.pid, task.tid, task.comm()));
        if !is_wanted {
            return;
        }
        if self.is_before_exec(open.call, result, task) {
            return;
        }
        if result == 0 && self.command.is_some() && self.executes(open.call) {
            task.tid.into_iter().for_each(|tid| self.forget_child(tid));
        }
        let Some(row) = self.row(task) else { return };
        let Some(stats) = self.rows.get_mut(row).map(|r| r.entry(open.call).or_default()) else {
            return;
        };
        if self.losses.touches(open.time, time) || open.is_uncertain {
            self.touching_loss += 1;
            stats.uncertain += 1;
            return;
        }
        let nanos = time - open.time;
        let error =
            (result < 0).then(|| i32::try_from(result.saturating_neg()).unwrap_or(i32::MAX));
        stats.add(nanos, open.time, error);
        stats.blocked = stats.blocked.saturating_add(open.waits.blocked());
        stats.runnable = stats.runnable.saturating_add(open.waits.runnable);
        self.counted += 1;
        let room = self.slowest.len() < self.config.slowest;
        let is_slower = || self.slowest.peek().is_some_and(|least| nanos > least.0.0);
        if (room || is_slower()) && (error.is_some() || !self.config.failed_only) {
            let slow = SlowCall {
                start: open.time,
                duration: nanos,
                cpu: event.cpu(),
                task: *task,
                call: open.call,
                arguments: open.arguments,
                result,
                waits: open.waits,
            };
            let key = SlowKey(nanos, Reverse(open.time), Reverse(self.counted), slow);
            self.slowest.push(Reverse(key));
            if self.slowest.len() > self.config.slowest {
                self.slowest.pop();
            }
        }
    }

    /// Whether a call was made by the recorder's child before it became the command: all up to the
    /// execve(2) that succeeds, or until its name changes.
    fn is_before_exec(&mut self, call: CallId, result: i64, task: &TaskInfo) -> bool {
        let tree = self.config.selection.tree.as_ref();
        let Some(is_gated) = tree.map(|tree| task.tid.is_some_and(|tid| tree.is_command(tid)))
        else {
            return false;
        };
        if !is_gated || self.has_executed {
            return false;
        }
        let name = self.decoder.calls.get(call.0 as usize).map_or("", |c| &c.name);
        let is_execve = matches!(name, "execve" | "execveat") && result == 0;
        let before =
            *self.name_before.get_or_insert_with(|| TaskInfo::new(None, None, task.comm()));
        self.has_executed = is_execve || before.comm() != task.comm();
        !self.has_executed
    }

    fn row(&mut self, task: &TaskInfo) -> Option<usize> {
        let tid = task.tid?;
        let (next, known) = (self.tasks.len(), self.by_tid.get(&tid).copied());
        let row = match known {
            Some(row) => row,
            None if next > MAX_TASKS => {
                self.crowded += 1;
                MAX_TASKS
            }
            None => {
                let is_others = next == MAX_TASKS;
                if !is_others {
                    self.by_tid.insert(tid, next);
                }
                let tid = Some(tid).filter(|_| !is_others);
                self.tasks.push(SyscallTask { tid, ..SyscallTask::default() });
                self.rows.push(FxHashMap::default());
                next
            }
        };
        let slot = self.tasks.get_mut(row)?;
        slot.events += 2;
        if slot.tid.is_none() {
            slot.comm = b"[others]".to_vec();
        } else {
            slot.pid = task.pid.or(slot.pid);
            if slot.comm != task.comm() {
                slot.comm = task.comm().to_vec();
            }
        }
        Some(row)
    }

    fn step(&mut self, step: &Transition, event: &RecordedEvent<'_>, machine: &TaskMachine) {
        let Transition::Switch { out, next } = step else { return };
        self.leave(out, event, machine);
        self.resume(next, machine);
    }

    /// A task leaves its CPU within a call.
    fn leave(&mut self, out: &SwitchOut, event: &RecordedEvent<'_>, machine: &TaskMachine) {
        let Some(cpu) = event.cpu().filter(|c| *c < MOST_CPUS) else { return };
        if self.leavers.len() <= cpu as usize {
            self.leavers.resize(cpu as usize + 1, None);
        }
        let tid = machine.tasks.get(out.task).map(|t| t.tid);
        let open = tid.and_then(|tid| Some((tid, self.open.get_mut(&tid)?)));
        let leaver = open.map(|(tid, open)| {
            open.is_uncertain |= out.touches_loss;
            open.leaves = None;
            (tid, out.state)
        });
        if let Some(slot) = self.leavers.get_mut(cpu as usize) {
            *slot = leaver;
        }
        // Samples have their stacks; those of ftrace come behind.
        if let Some((tid, state)) = leaver.filter(|(_, state)| !state.is_runnable()) {
            self.set_cause(tid, state, event);
        }
    }

    /// The stack of the last event of a CPU.
    fn take_stack(&mut self, event: &RecordedEvent<'_>) {
        let cpu = event.cpu().filter(|c| *c < MOST_CPUS);
        let leaver = cpu.and_then(|cpu| self.leavers.get_mut(cpu as usize)?.take());
        let Some((tid, state)) = leaver.filter(|(_, state)| !state.is_runnable()) else { return };
        if event.task().tid == Some(tid) {
            self.set_cause(tid, state, event);
        }
    }

    fn set_cause(&mut self, tid: u32, state: SwitchOutState, event: &RecordedEvent<'_>) {
        let stack = self.stacks.add(event, StackRole::Sleeper);
        self.stacked += u64::from(stack.is_some());
        let Some(open) = self.open.get_mut(&tid) else { return };
        let mut cause = self.stacks.cause(stack, state);
        if stack.is_none() && cause == OffCpuCause::Blocked {
            let name = self.decoder.calls.get(open.call.0 as usize).map_or("", |c| &c.name);
            cause = cause_of_call(name);
        }
        let kernel = stack.map(|stack| {
            let frames = self.stacks.frames(stack).take_while(|f| self.stacks.is_kernel(*f));
            frames.take(6).map(|f| self.stacks.frame_name(f).to_owned()).collect()
        });
        open.leaves = Some((cause, kernel.unwrap_or_default()));
    }

    /// A task continues within a call.
    fn resume(&mut self, next: &SwitchIn, machine: &TaskMachine) {
        let Some(task) = machine.tasks.get(next.task) else { return };
        let Some(open) = self.open.get_mut(&task.tid) else { return };
        let wait = &next.wait;
        open.is_uncertain |= wait.touches_loss;
        let leaves = open.leaves.take();
        // A task that continues within a call has left within it: if that was not seen, for
        // instance of a task whose first events are lost, what the call waited for is not known.
        let left = wait.left.filter(|(left, _)| *left >= open.time);
        let off = left.zip(wait.ended).and_then(|((left, _), ended)| ended.checked_sub(left));
        let (Some((left, state)), Some(off)) = (left, off) else {
            open.is_uncertain = true;
            return;
        };
        // Without a wake-up nothing divides the wait: it counts as one for what it blocked in.
        let delay = match wait.runnable {
            Some(runnable) if runnable >= left => wait.delay().unwrap_or(0),
            _ if state.is_runnable() => off,
            _ => 0,
        };
        open.waits.runnable = open.waits.runnable.saturating_add(delay);
        let nanos = off.saturating_sub(delay);
        if state.is_runnable() || nanos == 0 {
            return;
        }
        let (cause, stack) = leaves.unwrap_or((OffCpuCause::Blocked, Vec::new()));
        let waker = wait.woken.and_then(|w| {
            let by = w.by?;
            let comm = match by {
                0 => b"swapper".to_vec(),
                _ => match machine.tasks.find_thread(by) {
                    Some(task) => task.comm().to_vec(),
                    // It ended meanwhile.
                    None => {
                        let row = self.by_tid.get(&by).and_then(|row| self.tasks.get(*row));
                        row.map(|row| row.comm.clone()).unwrap_or_default()
                    }
                },
            };
            Some((comm, by, w.context))
        });
        let blocks = &mut open.waits.blocks;
        let full = blocks.len() >= MAX_BLOCKS;
        let last = blocks.len().saturating_sub(1);
        let known = blocks.iter().position(|b| b.cause == cause).or(full.then_some(last));
        match known.and_then(|at| blocks.get_mut(at)) {
            Some(block) => {
                block.nanos = block.nanos.saturating_add(nanos);
                block.woken_by = waker;
                block.stack = stack;
                // The last of them stands for all that are left.
                if block.cause != cause {
                    block.cause = OffCpuCause::Blocked;
                }
            }
            None => blocks.push(CallBlock { cause, nanos, woken_by: waker, stack }),
        }
    }

    fn finish(self, sched: SchedCounts, malformed: u64, summary: ReadSummary) -> SyscallTable {
        let by_total = |rows: FxHashMap<CallId, SyscallStats>| {
            let mut calls: Vec<(CallId, SyscallStats)> = rows.into_iter().collect();
            calls.sort_by_key(|(id, s)| (Reverse(s.durations.total), *id));
            calls
        };
        let mut all: FxHashMap<CallId, SyscallStats> = FxHashMap::default();
        let recorder = self.recorder;
        let is_recorder =
            |task: &SyscallTask| recorder.is_some() && task.pid.or(task.tid) == recorder;
        let rows = self.tasks.into_iter().zip(self.rows);
        let (mut tasks, rows): (Vec<_>, Vec<_>) =
            rows.filter(|(task, _)| !is_recorder(task)).unzip();
        for (task, rows) in tasks.iter_mut().zip(rows) {
            rows.iter().for_each(|(id, stats)| all.entry(*id).or_default().merge(stats));
            task.calls = by_total(rows);
        }
        let total = |t: &SyscallTask| t.calls.iter().map(|(_, s)| s.durations.total).sum::<u64>();
        tasks.sort_by_cached_key(|t| (Reverse(total(t)), t.tid));
        let slowest = self.slowest.into_sorted_vec().into_iter().map(|key| key.0.3);
        let is_of_others =
            |slow: &SlowCall| recorder.is_none() || slow.task.pid.or(slow.task.tid) != recorder;
        let slowest = slowest.filter(is_of_others).collect();
        let open_at_end = self.open.len() as u64;
        SyscallTable {
            width_note: self.decoder.width_note(),
            infos: self.decoder.calls,
            calls: by_total(all),
            tasks,
            slowest,
            events: self.events,
            open_at_end,
            entries: self.entries,
            exits: self.exits,
            touching_loss: self.touching_loss,
            has_losses: !self.losses.is_empty(),
            malformed: self.malformed + malformed + self.decoder.malformed,
            crowded: self.crowded,
            sched,
            stacked: self.stacked,
            span: self.span,
            summary,
        }
    }
}

/// The task of an event; that which its CPU runs where the event does not tell.
fn task_of(event: &RecordedEvent<'_>, machine: &TaskMachine) -> TaskInfo {
    let task = *event.task();
    if task.tid.is_some() {
        return task;
    }
    let running = event.cpu().and_then(|cpu| machine.tasks.get(machine.current(cpu)?));
    running.map_or(task, |t| TaskInfo::new(t.info.pid, Some(t.tid), t.comm()))
}

/// Cause of a call's wait by the nature of the call, where no stack shows it.
pub fn cause_of_call(name: &str) -> OffCpuCause {
    match name {
        "futex" | "futex_wait" | "futex_waitv" => OffCpuCause::Futex,
        "nanosleep" | "clock_nanosleep" => OffCpuCause::Sleep,
        "wait4" | "waitid" => OffCpuCause::Child,
        "poll" | "ppoll" | "select" | "pselect6" | "epoll_wait" | "epoll_pwait"
        | "epoll_pwait2" => OffCpuCause::Poll,
        _ => OffCpuCause::Blocked,
    }
}
