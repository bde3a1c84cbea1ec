//! Work items of the kernel: who queued what a worker executes. A worker that is awake already
//! is not woken for an item, so that its wake-up does not tell whose work it does.

use kymo_events::{FieldId, LayoutMemo, RecordedClass, RecordedEvent};
use rustc_hash::FxHashMap;

use super::path::PathTaskId;

/// Events of work items: queued, and begun.
pub const WORK_EVENTS: [&str; 2] =
    ["workqueue:workqueue_queue_work", "workqueue:workqueue_execute_start"];

/// Items that wait, and items that were begun; where there are more, all are forgotten, and
/// paths go by wake-ups alone.
const MAX_ITEMS: usize = 1 << 17;

/// Bits of `common_flags`: interrupts, NMIs.
const INTERRUPTS: i64 = 0x08 | 0x10 | 0x40;

/// An item that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkItem {
    pub(super) begun: u64,
    pub(super) queued: u64,
    pub(super) by: PathTaskId,
}

#[derive(Clone, Copy, Debug)]
struct WorkFields {
    is_begin: bool,
    work: FieldId,
    flags: Option<FieldId>,
}

/// What an event tells of a work item: its address, and whether it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkEvent {
    pub(super) work: u64,
    pub(super) is_begin: bool,
    /// Whether the task of the event does it.
    pub(super) is_of_task: bool,
}

/// Items by worker, in the order of time.
#[derive(Debug, Default)]
pub(super) struct WorkItems {
    plans: LayoutMemo<Option<WorkFields>>,
    queued: FxHashMap<u64, (u64, PathTaskId)>,
    begun: FxHashMap<PathTaskId, Vec<WorkItem>>,
    count: usize,
}

impl WorkItems {
    /// Reads an event, if it is one of a work item.
    pub(super) fn read(&mut self, event: &RecordedEvent<'_>) -> Option<WorkEvent> {
        let plan = self.plans.get_or_make(event.class, fields_of).copied().flatten()?;
        let fields = event.fields();
        let flags = plan.flags.and_then(|f| fields.integer(f));
        Some(WorkEvent {
            work: fields.integer(plan.work)? as u64,
            is_begin: plan.is_begin,
            is_of_task: flags.is_none_or(|f| f & INTERRUPTS == 0),
        })
    }

    /// Takes note of an item that is queued, or begun by a worker.
    pub(super) fn add(&mut self, event: WorkEvent, task: PathTaskId, time: u64) {
        if self.count >= MAX_ITEMS || self.queued.len() >= MAX_ITEMS {
            self.begun.clear();
            self.queued.clear();
            self.count = 0;
        }
        if !event.is_begin {
            match event.is_of_task {
                true => self.queued.insert(event.work, (time, task)),
                // What queued it is not known.
                false => self.queued.remove(&event.work),
            };
        } else if let Some((queued, by)) = self.queued.remove(&event.work)
            && by != task
        {
            self.count += 1;
            self.begun.entry(task).or_default().push(WorkItem { begun: time, queued, by });
        }
    }

    /// The item that a worker began last before a time.
    pub(super) fn last_of(&self, worker: PathTaskId, time: u64) -> Option<WorkItem> {
        let items = self.begun.get(&worker)?;
        let end = items.partition_point(|i| i.begun <= time);
        items.get(end.checked_sub(1)?).copied()
    }
}

fn fields_of(class: &RecordedClass) -> Option<WorkFields> {
    let at = WORK_EVENTS.iter().position(|name| class.is_named(name))?;
    let flags = class.field("common_flags");
    Some(WorkFields { is_begin: at == 1, work: class.field("work")?, flags })
}
