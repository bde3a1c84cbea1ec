//! Events of ftrace that wait for their stacks. A stack is an event of its own behind the one
//! it belongs to, with the same task, flags and preemption count; an interrupt between the two
//! may bring events and stacks of its own.

use crate::event::TaskInfo;

/// Common properties of an event and its stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FtraceContext {
    pub(super) tid: i32,
    pub(super) flags: (u8, u8),
}

/// An event whose stacks may follow.
#[derive(Default)]
pub(super) struct PendingEvent {
    pub(super) id: u16,
    pub(super) time: u64,
    pub(super) task: TaskInfo,
    /// Events lost before it.
    pub(super) lost: Option<u64>,
    pub(super) payload: Vec<u8>,
    pub(super) kernel: Vec<u64>,
    pub(super) user: Vec<u64>,
    /// Process that the addresses of the program are of.
    pub(super) user_process: Option<i32>,
}

/// Task, soft interrupt, interrupt, NMI; the rest is for events that are nested otherwise, as
/// those of probes.
const DEEPEST: usize = 8;

/// Events of one ring that wait for their stacks, those interrupted first.
pub(super) struct StackJoin<E> {
    waiting: Vec<(FtraceContext, E)>,
}

impl<E> Default for StackJoin<E> {
    fn default() -> Self {
        StackJoin { waiting: Vec::with_capacity(DEEPEST) }
    }
}

impl<E> StackJoin<E> {
    /// The event that a stack belongs to.
    #[inline]
    pub(super) fn owner(&mut self, context: FtraceContext) -> Option<&mut E> {
        let own = self.waiting.iter_mut().rev().find(|(of, _)| *of == context);
        own.map(|(_, event)| event)
    }

    /// Place of the event that is complete since one of this context came; those behind it,
    /// which interrupted it, are complete, too.
    #[inline]
    pub(super) fn complete_from(&self, context: FtraceContext) -> Option<usize> {
        self.waiting.iter().position(|(of, _)| *of == context)
    }

    /// Place of the first event of a task that waits.
    #[inline]
    pub(super) fn first_of_task(&self, tid: i32) -> Option<usize> {
        self.waiting.iter().position(|(of, _)| of.tid == tid)
    }

    /// Whether no more events may wait.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= DEEPEST
    }

    /// Adds an event, which was interrupted by none.
    #[inline]
    pub(super) fn push(&mut self, context: FtraceContext, event: E) {
        self.waiting.push((context, event));
    }

    /// Takes out the event at a place.
    #[inline]
    pub(super) fn take(&mut self, at: usize) -> Option<E> {
        (at < self.waiting.len()).then(|| self.waiting.remove(at).1)
    }

    /// Forgets the events from a place on: they are complete.
    #[inline]
    pub(super) fn truncate(&mut self, at: usize) {
        self.waiting.truncate(at);
    }

    /// The events that wait.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.waiting.iter_mut().map(|(_, event)| event)
    }
}

/// Events of one ring that wait, with all that they are.
#[derive(Default)]
pub(super) struct PendingRing {
    pub(super) join: StackJoin<PendingEvent>,
    /// Events that were handed out, whose memory is used again.
    free: Vec<PendingEvent>,
}

impl PendingRing {
    /// The event that a stack belongs to, if it has no such stack yet.
    pub(super) fn owner(
        &mut self,
        context: FtraceContext,
        is_user: bool,
    ) -> Option<&mut PendingEvent> {
        let own = self.join.owner(context)?;
        if is_user {
            own.user.is_empty().then_some(own)
        } else {
            own.kernel.is_empty().then_some(own)
        }
    }

    /// Time of the event that waits longest.
    pub(super) fn first_time(&mut self) -> Option<u64> {
        self.join.iter_mut().next().map(|e| e.time)
    }

    /// Keeps the memory of an event that was handed out.
    pub(super) fn recycle(&mut self, event: PendingEvent) {
        if self.free.len() < DEEPEST {
            self.free.push(event);
        }
    }

    /// An event without a stack and with this payload.
    pub(super) fn event(&mut self, payload: &[u8]) -> PendingEvent {
        let mut event = self.free.pop().unwrap_or_default();
        event.payload.clear();
        event.payload.extend_from_slice(payload);
        event.kernel.clear();
        event.user.clear();
        event.user_process = None;
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: FtraceContext = FtraceContext { tid: 7, flags: (0, 0) };
    const IRQ: FtraceContext = FtraceContext { tid: 7, flags: (8, 1) };

    fn push(ring: &mut PendingRing, context: FtraceContext, id: u16) {
        let event = PendingEvent { id, ..ring.event(&[]) };
        ring.join.push(context, event);
    }

    #[test]
    fn an_interrupts_stack_is_not_that_of_what_it_interrupts() {
        let mut ring = PendingRing::default();
        push(&mut ring, TASK, 1);
        push(&mut ring, IRQ, 2);
        ring.owner(IRQ, false).unwrap().kernel.push(1);
        ring.owner(TASK, false).unwrap().kernel.push(2);
        ring.owner(TASK, true).unwrap().user.push(3);
        // The event whose stack it would be has one.
        assert!(ring.owner(TASK, false).is_none());
        let from = ring.join.complete_from(TASK).unwrap();
        let first = ring.join.take(from).unwrap();
        assert_eq!((first.id, &*first.kernel, &*first.user), (1, &[2][..], &[3][..]));
        let second = ring.join.take(from).unwrap();
        assert_eq!((second.id, &*second.kernel), (2, &[1][..]));
        assert!(ring.join.take(from).is_none() && ring.join.complete_from(TASK).is_none());
        ring.recycle(second);
        push(&mut ring, TASK, 3);
        assert!(ring.owner(TASK, false).unwrap().kernel.is_empty());
    }

    #[test]
    fn memory_has_a_bound() {
        let mut ring = PendingRing::default();
        let mut complete = 0;
        for tid in 0..100 {
            complete += usize::from(ring.join.is_full() && ring.join.take(0).is_some());
            push(&mut ring, FtraceContext { tid, flags: (0, 0) }, 0);
        }
        let left = std::iter::from_fn(|| ring.join.take(0)).count();
        assert_eq!((complete, left), (100 - DEEPEST, DEEPEST));
    }
}
