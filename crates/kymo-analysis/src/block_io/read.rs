//! Reading block requests of recordings, and the waits that their completions end.

use std::ops::ControlFlow;

use kymo_events::{EventSelection, EventSource, ReadOptions, ReadSummary, SourceError, TaskInfo};
use rustc_hash::FxHashMap;

use super::decode::{BlockDecoder, BlockDevice, BlockOp};
use super::file_decode::{FileDecoder, has_guards};
use super::machine::{BlockMachine, BlockRequest};
use super::owners::OwnerTracker;
use super::{BLOCK_EVENTS, BLOCK_FILE_EVENTS, BLOCK_MORE_EVENTS};
use crate::losses::{MOST_CPUS, select_events};
use crate::tasks::{
    SchedCounts, SchedDecoder, SwitchOutState, TaskMachine, Transition, WakeupContext,
};

/// Options of reading block requests.
#[derive(Clone, Debug, Default)]
pub struct BlockConfig {
    /// Selection of requests: by time and CPU of their completion, and the task that made them;
    /// waits by the task that waited.
    pub selection: EventSelection,
    /// Only requests of these devices; all where it is empty.
    pub devices: Vec<BlockDevice>,
    /// Events are those that `kymo io record` chooses: a pipe does not say before which it has.
    pub is_complete: bool,
}

/// A task's wait that the completion of a request ended.
#[derive(Clone, Copy, Debug)]
pub struct BlockWait {
    /// Task that waited.
    pub task: TaskInfo,
    /// Device of the request.
    pub device: BlockDevice,
    /// Operation of the request.
    pub op: BlockOp,
    /// Time at which the task left its CPU.
    pub from: u64,
    /// Time at which it was woken.
    pub to: u64,
}

/// Block requests of a recording.
#[derive(Debug)]
pub struct BlockRead {
    /// The machine as it was at the end.
    pub machine: BlockMachine,
    /// Scheduler events that do not match each other.
    pub sched: SchedCounts,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Whether there are events of bios, which tell what requests are for.
    pub has_owners: bool,
    /// Events that lack a field.
    pub malformed: u64,
    /// Requests that are counted.
    pub selected: u64,
    /// Requests that only the choice of tasks excludes.
    pub of_others: u64,
    /// Writes by workers of the kernel among these.
    pub written_back: u64,
    /// Summary of the readers.
    pub summary: ReadSummary,
}

/// Waits of tasks, as completions end them.
#[derive(Default)]
struct WaitWatch {
    /// By CPU: the request that was completed since its last switch.
    completed: Vec<Option<(BlockDevice, BlockOp)>>,
    /// By thread: what woke it.
    woken: FxHashMap<u32, (BlockDevice, BlockOp)>,
}

impl WaitWatch {
    fn complete(&mut self, cpu: Option<u32>, request: &BlockRequest) {
        let Some(cpu) = cpu.filter(|c| *c < MOST_CPUS) else { return };
        let at = cpu as usize;
        if self.completed.len() <= at {
            self.completed.resize(at + 1, None);
        }
        if let Some(slot) = self.completed.get_mut(at) {
            *slot = Some((request.device, request.op));
        }
    }

    fn step(&mut self, step: &Transition, cpu: u32, machine: &TaskMachine) -> Option<BlockWait> {
        match step {
            Transition::Wakeup { task, .. } => {
                let task = machine.tasks.get(*task)?;
                let completed = self.completed.get(cpu as usize).copied().flatten()?;
                if self.woken.len() < 1 << 18 {
                    self.woken.entry(task.tid).or_insert(completed);
                }
                None
            }
            Transition::Switch { next, .. } => {
                if let Some(slot) = self.completed.get_mut(cpu as usize) {
                    *slot = None;
                }
                let task = machine.tasks.get(next.task)?;
                let (device, op) = self.woken.remove(&task.tid)?;
                let wait = &next.wait;
                let (from, state) = wait.left?;
                // What waits for a device cannot be interrupted; completions are reported in
                // interrupts, in which timers also end other sleeps.
                let is_wait = state == SwitchOutState::Blocked(b'D')
                    && wait.woken.is_some_and(|w| w.context != WakeupContext::Task);
                let to = wait.runnable.filter(|to| is_wait && *to > from && !wait.touches_loss)?;
                let task = TaskInfo::new(task.info.pid, Some(task.tid), task.comm());
                Some(BlockWait { task, device, op, from, to })
            }
            _ => None,
        }
    }
}

/// Reads requests, and hands each to `sink` when it is done; waits go to `waits`.
///
/// # Errors
/// If reading fails.
pub fn read_block_io(
    source: &EventSource,
    config: &BlockConfig,
    sink: &mut dyn FnMut(&BlockRequest, u32) -> bool,
    waits: &mut dyn FnMut(&BlockWait),
) -> Result<BlockRead, SourceError> {
    let mut names = BLOCK_EVENTS.to_vec();
    names.extend(BLOCK_MORE_EVENTS);
    names.extend(BLOCK_FILE_EVENTS);
    names.push("sched:sched_wakeup");
    let events = select_events(&names);
    let losses = source.losses();
    let is_complete = config.is_complete || has_guards(&source.classes());
    let owners = OwnerTracker::new(losses.clone(), is_complete);
    let mut machine = BlockMachine::new(losses.clone(), owners);
    let mut files = FileDecoder::default();
    let mut tasks = TaskMachine::new(losses);
    let (mut decoder, mut sched) = (BlockDecoder::default(), SchedDecoder::default());
    let mut watch = WaitWatch::default();
    let mut span: Option<(u64, u64)> = None;
    let s = &config.selection;
    let wants_task =
        |task: &TaskInfo| !s.has_task_conditions() || s.wants_task(task.pid, task.tid, task.comm());
    let (mut selected, mut of_others, mut written_back) = (0, 0, 0);
    let wants_device = |d: BlockDevice| config.devices.is_empty() || config.devices.contains(&d);
    let summary = source.for_each(&events, ReadOptions::default(), &mut |event| {
        if event.lost.is_some() {
            machine.owners.forget_tasks();
            tasks.note_loss(event);
        }
        if let Some(block) = decoder.decode(event) {
            if let Some(time) = event.time {
                let (first, last) = span.unwrap_or((time, time));
                span = Some((first.min(time), last.max(time)));
            }
            let Some(request) = machine.apply(&block, event) else {
                return ControlFlow::Continue(());
            };
            watch.complete(event.cpu(), &request);
            let is_wanted = s.wants_time(event.time)
                && s.wants_cpu(event.cpu())
                && wants_device(request.device);
            let is_of_others = is_wanted && !wants_task(&request.task);
            if is_of_others {
                let is_worker = request.task.comm().starts_with(b"kworker/");
                of_others += 1;
                written_back += u64::from(is_worker && request.op == BlockOp::Write);
                return ControlFlow::Continue(());
            }
            selected += u64::from(is_wanted);
            if is_wanted && !sink(&request, event.cpu().unwrap_or(0)) {
                return ControlFlow::Break(());
            }
        } else if let Some(told) = files.decode(event) {
            if let Some(time) = event.time {
                machine.owners.apply(told, event.task().tid, time);
            }
        } else if let Some(event_of_sched) = sched.decode(event) {
            let step = tasks.apply(&event_of_sched, event);
            let wait = step.zip(event.cpu()).and_then(|(step, cpu)| watch.step(&step, cpu, &tasks));
            if let Some(wait) = wait.filter(|w| {
                s.wants_time(Some(w.to)) && wants_device(w.device) && wants_task(&w.task)
            }) {
                waits(&wait);
            }
        }
        ControlFlow::Continue(())
    })?;
    machine.finish();
    tasks.finish();
    let malformed = decoder.malformed + files.malformed + sched.malformed;
    let has_owners = files.has_bios;
    let sched = tasks.counts;
    Ok(BlockRead {
        machine,
        sched,
        span,
        has_owners,
        malformed,
        selected,
        of_others,
        written_back,
        summary,
    })
}
