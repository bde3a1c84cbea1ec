//! Events of trace.dat and CTF on their way to other threads: copied together, with what the
//! feeding thread knows of them. Those of perf.data need no copy, their batches share the
//! memory of the file.

use kymo_files::ctf::read::{CtfEvent, Packed, Run};

use super::registry::Registry;
use crate::event::TaskInfo;
use crate::schema::LayoutId;

/// Events of a batch at most, and bytes of them or so.
const MOST: usize = 1024;
const MOST_BYTES: usize = 128 << 10;

/// Number of nothing: of no stack, no task.
pub(super) const NONE: u32 = u32::MAX;

/// An event of a batch.
#[derive(Clone, Copy)]
pub(super) struct BatchItem {
    pub(super) time: u64,
    pub(super) layout: LayoutId,
    /// Place of its task; `NONE`: its contexts tell.
    pub(super) task: u32,
    pub(super) body: ItemBody,
}

/// Location of the rest of an event.
#[derive(Clone, Copy)]
pub(super) enum ItemBody {
    /// In the payload of an event of the kernel.
    Ftrace(FtraceItem),
    /// In the body of an event of a program.
    Ctf(CtfItem),
    /// In the next batch, which may have its stack.
    Moved,
}

#[derive(Clone, Copy)]
pub(super) struct FtraceItem {
    /// Number of its recording.
    pub(super) kernel: u32,
    /// Index of its instance.
    pub(super) buffer: u32,
    pub(super) cpu: u32,
    at: u32,
    len: u32,
    /// Place of its stack.
    stack: u32,
}

#[derive(Clone, Copy)]
pub(super) struct CtfItem {
    pub(super) class: u32,
    pub(super) stream: u32,
    pub(super) trace: u32,
    pub(super) cpu: Option<u32>,
    pub(super) body: Packed,
}

/// A part of a stack; the process that addresses of a program are of.
#[derive(Clone, Copy)]
pub(super) enum StackPart {
    Kernel,
    User(Option<i32>),
}

/// Begin and end of addresses.
type AddressRange = (u32, u32);

/// Stack of an event, as places of addresses.
#[derive(Clone, Copy, Default)]
struct StackRanges {
    kernel: AddressRange,
    user: AddressRange,
    /// Process that the addresses of the program are of.
    process: Option<i32>,
}

/// Events that are worked on together.
pub(super) struct EventBatch<'f> {
    /// The layouts that its events have.
    pub(super) registry: Registry<'f>,
    pub(super) items: Vec<BatchItem>,
    pub(super) bytes: Vec<u8>,
    tasks: Vec<TaskInfo>,
    stacks: Vec<StackRanges>,
    addresses: Vec<u64>,
}

impl<'f> EventBatch<'f> {
    pub(super) fn new(registry: &Registry<'f>) -> EventBatch<'f> {
        EventBatch {
            registry: registry.clone(),
            items: Vec::with_capacity(MOST),
            bytes: Vec::new(),
            tasks: Vec::new(),
            stacks: Vec::new(),
            addresses: Vec::new(),
        }
    }

    /// Forgets its events, for others.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.bytes.clear();
        self.tasks.clear();
        self.stacks.clear();
        self.addresses.clear();
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MOST || self.bytes.len() + 8 * self.addresses.len() >= MOST_BYTES
    }

    /// Adds an event of the kernel; answers its place.
    #[inline]
    pub(super) fn push_ftrace(
        &mut self,
        (time, layout, task): (u64, LayoutId, u32),
        (kernel, buffer, cpu): (u32, u32, u32),
        payload: &[u8],
    ) -> u32 {
        let (at, len) = (self.bytes.len() as u32, payload.len() as u32);
        self.bytes.extend_from_slice(payload);
        let body = ItemBody::Ftrace(FtraceItem { kernel, buffer, cpu, at, len, stack: NONE });
        self.items.push(BatchItem { time, layout, task, body });
        self.items.len() as u32 - 1
    }

    /// Adds an event of a program.
    pub(super) fn push_ctf(&mut self, e: &CtfEvent<'_>, layout: LayoutId, task: u32) {
        let body = e.body.pack(&mut self.bytes);
        let CtfEvent { class, stream, trace, cpu, time, .. } = *e;
        let body = ItemBody::Ctf(CtfItem { class, stream, trace, cpu, body });
        self.items.push(BatchItem { time, layout, task, body });
    }

    /// Adds events of a program that come one after the other; `layout_of` returns the layout of a
    /// class, if its events are wanted.
    pub(super) fn push_run(
        &mut self,
        run: &Run<'_>,
        mut layout_of: impl FnMut(u32) -> Option<LayoutId>,
    ) {
        let (items, &Run { stream, trace, cpu, .. }) = (&mut self.items, run);
        run.pack(&mut self.bytes, |e, body| {
            let Some(layout) = layout_of(e.class) else { return };
            let body = ItemBody::Ctf(CtfItem { class: e.class, stream, trace, cpu, body });
            items.push(BatchItem { time: e.time, layout, task: NONE, body });
        });
    }

    /// Adds a task; answers its place.
    pub(super) fn push_task(&mut self, task: TaskInfo) -> u32 {
        self.tasks.push(task);
        self.tasks.len() as u32 - 1
    }

    /// Sets the task of an event.
    pub(super) fn set_task(&mut self, item: u32, task: u32) {
        if let Some(item) = self.items.get_mut(item as usize) {
            item.task = task;
        }
    }

    /// The task of an event, where the feeding thread knew it.
    #[inline]
    pub(super) fn task(&self, item: &BatchItem) -> Option<&TaskInfo> {
        self.tasks.get(item.task as usize)
    }

    /// The payload of an event.
    #[inline]
    pub(super) fn payload(&self, item: &FtraceItem) -> &[u8] {
        let at = item.at as usize;
        self.bytes.get(at..at + item.len as usize).unwrap_or(&[])
    }

    /// The stack of an event: addresses of the kernel, of the program, and whose these are.
    #[inline]
    pub(super) fn stack(&self, item: &FtraceItem) -> (&[u64], &[u64], Option<i32>) {
        match item.stack {
            NONE => (&[], &[], None),
            place => {
                let ranges = self.stacks.get(place as usize).copied().unwrap_or_default();
                (self.addresses(ranges.kernel), self.addresses(ranges.user), ranges.process)
            }
        }
    }

    /// Whether an event has a stack of the kernel, or of the program.
    pub(super) fn has_stack(&self, item: u32, part: StackPart) -> bool {
        let Some(ItemBody::Ftrace(item)) = self.items.get(item as usize).map(|i| i.body) else {
            return false;
        };
        let (kernel, user, _) = self.stack(&item);
        match part {
            StackPart::Kernel => !kernel.is_empty(),
            StackPart::User(_) => !user.is_empty(),
        }
    }

    fn addresses(&self, (from, to): AddressRange) -> &[u64] {
        self.addresses.get(from as usize..to as usize).unwrap_or(&[])
    }

    /// Gives an event a part of its stack.
    pub(super) fn add_stack(
        &mut self,
        item: u32,
        part: StackPart,
        addresses: impl Iterator<Item = u64>,
    ) {
        let Some(item) = self.items.get_mut(item as usize) else { return };
        let ItemBody::Ftrace(item) = &mut item.body else { return };
        if item.stack == NONE {
            item.stack = self.stacks.len() as u32;
            self.stacks.push(StackRanges::default());
        }
        let Some(ranges) = self.stacks.get_mut(item.stack as usize) else { return };
        let from = self.addresses.len() as u32;
        self.addresses.extend(addresses);
        let range = (from, self.addresses.len() as u32);
        match part {
            StackPart::Kernel => ranges.kernel = range,
            StackPart::User(process) => (ranges.user, ranges.process) = (range, process),
        }
    }

    /// Moves an event to another batch; answers its place there.
    pub(super) fn move_to(&mut self, place: u32, other: &mut EventBatch<'f>) -> Option<u32> {
        let item = *self.items.get(place as usize)?;
        let ItemBody::Ftrace(body) = item.body else { return None };
        let task = self.task(&item).map_or(NONE, |task| other.push_task(*task));
        let of = (body.kernel, body.buffer, body.cpu);
        let moved = other.push_ftrace((item.time, item.layout, task), of, self.payload(&body));
        let (kernel, user, process) = self.stack(&body);
        for (addresses, part) in [(kernel, StackPart::Kernel), (user, StackPart::User(process))] {
            if !addresses.is_empty() {
                other.add_stack(moved, part, addresses.iter().copied());
            }
        }
        self.items.get_mut(place as usize)?.body = ItemBody::Moved;
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::EventSelection;

    #[test]
    fn an_event_that_may_get_more_of_its_stack_moves_to_the_next_batch() {
        let everything = EventSelection::default();
        let registry = Registry::new(&everything);
        let mut batch = EventBatch::new(&registry);
        let task = batch.push_task(TaskInfo::new(None, Some(7), b"cat"));
        let mut push =
            |time, payload: &[u8]| batch.push_ftrace((time, LayoutId(0), task), (0, 0, 3), payload);
        let (first, second) = (push(10, b"one"), push(11, b"other"));
        let user = StackPart::User(Some(9));
        batch.add_stack(first, StackPart::Kernel, [1, 2].into_iter());
        batch.add_stack(second, StackPart::Kernel, [8].into_iter());
        assert!(batch.has_stack(first, StackPart::Kernel) && !batch.has_stack(first, user));
        let mut next = EventBatch::new(&registry);
        let moved = batch.move_to(first, &mut next).unwrap();
        next.add_stack(moved, user, [4, 5].into_iter());
        let item = next.items[moved as usize];
        let ItemBody::Ftrace(body) = item.body else { panic!("moved") };
        assert_eq!(next.stack(&body), (&[1, 2][..], &[4, 5][..], Some(9)));
        assert_eq!((next.payload(&body), item.time, body.cpu), (&b"one"[..], 10, 3));
        assert_eq!(next.task(&item).map(TaskInfo::comm), Some(&b"cat"[..]));
        assert!(matches!(batch.items[first as usize].body, ItemBody::Moved));
        assert_eq!(batch.move_to(first, &mut next), None);
    }
}
