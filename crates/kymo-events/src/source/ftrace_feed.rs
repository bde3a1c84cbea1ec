//! Events of a trace.dat, put into batches for other threads. A stack, which is an event of
//! its own, goes to the event before it in its ring, in the batch where that lies.

use kymo_files::tracedat;

use super::event_batch::{EventBatch, NONE, StackPart};
use super::ftrace::{KernelContext, class_of, task};
use super::registry::Registry;
use super::stack_join::{FtraceContext, StackJoin};
use crate::schema::LayoutId;
use crate::trace_dat::{KnownEvent, TaskName};

/// Tasks that are remembered.
const TASKS: usize = 64;

/// Handling of the events of one number.
#[derive(Clone, Copy)]
struct EventPlan<'s> {
    layout: LayoutId,
    is_wanted: bool,
    /// Its format, if the event is more than itself: a stack, or one that says something of
    /// tasks.
    special: Option<&'s KnownEvent>,
    /// Entries and exits of functions have no stacks.
    is_graph: bool,
}

/// The events of a ring that may get a stack, by their places in the batch.
struct RingTails {
    ring: (usize, u32),
    join: StackJoin<u32>,
}

/// A task whose place in the batch is known.
#[derive(Clone, Copy)]
struct KnownTask {
    tid: i32,
    place: u32,
}

const NO_TASK: KnownTask = KnownTask { tid: 0, place: NONE };

/// A recording under way.
pub(super) struct KernelFeed<'s> {
    context: &'s KernelContext<'s>,
    /// Number among all recordings, and among those of the kernel.
    number: usize,
    kernel: u32,
    /// By number in `common_type`.
    plans: Vec<Option<EventPlan<'s>>>,
    /// State per ring that had an event; a machine has few.
    tails: Vec<RingTails>,
    tasks: [KnownTask; TASKS],
}

impl<'s> KernelFeed<'s> {
    pub(super) fn new(
        context: &'s KernelContext<'s>,
        number: usize,
        kernel: usize,
    ) -> KernelFeed<'s> {
        let (plans, tails, tasks) = (Vec::new(), Vec::new(), [NO_TASK; TASKS]);
        KernelFeed { context, number, kernel: kernel as u32, plans, tails, tasks }
    }

    /// Adds an event to the batch, or to the one whose stack it is.
    #[inline]
    pub(super) fn event<'f>(
        &mut self,
        e: &tracedat::TraceDatEvent<'_>,
        registry: &mut Registry<'f>,
        batch: &mut EventBatch<'f>,
    ) {
        let formats = &self.context.formats;
        let id = formats.id(e.payload).unwrap_or(0);
        let tid = formats.pid(e.payload);
        let plan = match self.plans.get(usize::from(id)) {
            Some(Some(plan)) => *plan,
            _ => self.plan(id, registry),
        };
        let context = FtraceContext { tid, flags: formats.flags(e.payload) };
        if let Some(known) = plan.special.filter(|k| k.group.is_some()) {
            self.learn_group(known, (tid, e.payload));
        }
        let slot = self.slot((e.buffer, e.cpu));
        if !plan.is_graph && self.take_stack(slot, context, (e, plan.special), batch) {
            return;
        }
        let name = plan.special.and_then(|known| self.learn(known, (tid, e.payload)));
        if !plan.is_wanted {
            return;
        }
        let task = match name {
            // Only this event happens under it.
            Some(name) => {
                let pid = self.context.groups().borrow().get(tid);
                batch.push_task(task((pid, tid), Some(name)))
            }
            None => self.task(tid, batch),
        };
        let of = (self.kernel, e.buffer as u32, e.cpu);
        let item = batch.push_ftrace((e.time, plan.layout, task), of, e.payload);
        // A stack whose event is not there is an event of its own.
        let is_stack = |k: &KnownEvent| k.stack.is_some() || k.user_stack.is_some();
        if !plan.is_graph
            && !plan.special.is_some_and(is_stack)
            && let Some(tails) = self.tails.get_mut(slot)
        {
            if tails.join.is_full() {
                tails.join.take(0);
            }
            tails.join.push(context, item);
        }
    }

    /// Gives a stack to the event it belongs to. `false`: it is none, or its event is not
    /// there; then the event of the same context, and those that interrupted it, are complete.
    #[inline]
    fn take_stack(
        &mut self,
        slot: usize,
        context: FtraceContext,
        (e, special): (&tracedat::TraceDatEvent<'_>, Option<&KnownEvent>),
        batch: &mut EventBatch<'_>,
    ) -> bool {
        let Some(tails) = self.tails.get_mut(slot) else { return false };
        if e.missed.is_some() {
            // A stack behind lost events is not that of the one before them.
            tails.join.truncate(0);
        }
        if let Some(known) = special
            && let Some(item) = tails.join.owner(context).copied()
            && add_stack(known, e.payload, self.context, item, batch)
        {
            // It identifies the thread, which the event itself does not.
            if known.user_stack.is_some() {
                let task = self.task(context.tid, batch);
                batch.set_task(item, task);
            }
            return true;
        }
        if let Some(from) = tails.join.complete_from(context) {
            tails.join.truncate(from);
        }
        false
    }

    /// Place of a ring among those that had an event.
    #[inline]
    fn slot(&mut self, ring: (usize, u32)) -> usize {
        let known = self.tails.iter().position(|t| t.ring == ring);
        known.unwrap_or_else(|| {
            self.tails.push(RingTails { ring, join: StackJoin::default() });
            self.tails.len() - 1
        })
    }

    #[cold]
    fn plan(&mut self, id: u16, registry: &mut Registry<'_>) -> EventPlan<'s> {
        let class = class_of(&self.context.formats, id, (registry.next_layout(), self.number));
        let layout = registry.add(class).layout;
        let known = self.context.formats.get(id).ok();
        let is_special = |k: &&KnownEvent| {
            k.stack.is_some() || k.user_stack.is_some() || k.group.is_some() || k.states_names()
        };
        let special = known.filter(is_special);
        let is_graph = known.is_some_and(|k| k.graph.is_some());
        let is_wanted = registry.wants_layout(layout);
        let plan = EventPlan { layout, is_wanted, special, is_graph };
        let index = usize::from(id);
        self.plans.resize(self.plans.len().max(index + 1), None);
        if let Some(slot) = self.plans.get_mut(index) {
            *slot = Some(plan);
        }
        plan
    }

    /// Takes note of the process of a thread.
    fn learn_group(&mut self, known: &KnownEvent, event: (i32, &[u8])) {
        let mut groups = self.context.groups().borrow_mut();
        let tasks = &mut self.tasks;
        groups.learn(known, event, self.context.formats.endian, |tid, _| forget(tasks, tid));
    }

    /// Takes note of names of tasks; answers that of the event's own, where it has another one
    /// after it.
    fn learn(&mut self, known: &KnownEvent, event: (i32, &[u8])) -> Option<TaskName> {
        if !known.states_names() {
            return None;
        }
        let mut names = self.context.names().borrow_mut();
        let tasks = &mut self.tasks;
        names.learn(known, event, self.context.formats.endian, |change| forget(tasks, change.tid))
    }

    /// Place of a task in the batch, with the name it has now.
    #[inline]
    fn task(&mut self, tid: i32, batch: &mut EventBatch<'_>) -> u32 {
        let Some(known) = self.tasks.get_mut(tid as u32 as usize % TASKS) else { return NONE };
        if known.tid != tid || known.place == NONE {
            let name = self.context.names().borrow().find(tid);
            let pid = self.context.groups().borrow().get(tid);
            *known = KnownTask { tid, place: batch.push_task(task((pid, tid), name)) };
        }
        known.place
    }

    /// Takes what may still get a stack over into the next batch.
    pub(super) fn carry<'f>(&mut self, batch: &mut EventBatch<'f>, next: &mut EventBatch<'f>) {
        self.tasks = [NO_TASK; TASKS];
        for item in self.tails.iter_mut().flat_map(|tails| tails.join.iter_mut()) {
            *item = batch.move_to(*item, next).unwrap_or(NONE);
        }
    }
}

/// Something became known of a task.
fn forget(tasks: &mut [KnownTask; TASKS], tid: i32) {
    if let Some(known) = tasks.get_mut(tid as u32 as usize % TASKS) {
        *known = NO_TASK;
    }
}

/// Gives the stack that an event is to the event it belongs to; `false`: it is none, or that has
/// such a stack.
fn add_stack(
    known: &KnownEvent,
    payload: &[u8],
    context: &KernelContext<'_>,
    item: u32,
    batch: &mut EventBatch<'_>,
) -> bool {
    let endian = context.formats.endian;
    let (stack, part) = match (&known.stack, &known.user_stack) {
        (Some(stack), _) => (stack, StackPart::Kernel),
        (None, Some(stack)) => (stack, StackPart::User(stack.process(payload, endian))),
        (None, None) => return false,
    };
    if batch.has_stack(item, part) {
        return false;
    }
    let is_user = matches!(part, StackPart::User(_));
    batch.add_stack(item, part, stack.entries(payload, endian).take_while(|a| !is_user || *a != 0));
    true
}
