//! Events of ftrace that wait for their stacks. A stack is an event of its own behind the one
//! it belongs to, with the same task, flags and preemption count; an interrupt between the two
//! may bring events and stacks of its own.

use crate::event::TaskInfo;

/// What an event and its stacks have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FtraceContext {
    pub(super) tid: i32,
    pub(super) flags: (u8, u8),
}

/// An event whose stacks may follow.
#[derive(Default)]
pub(super) struct PendingEvent {
    pub(super) context: FtraceContext,
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

/// The events of one ring that wait, those interrupted first.
#[derive(Default)]
pub(super) struct PendingRing {
    waiting: Vec<PendingEvent>,
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
        let own = self.waiting.iter_mut().rev().find(|e| e.context == context)?;
        match is_user {
            true => own.user.is_empty().then_some(own),
            false => own.kernel.is_empty().then_some(own),
        }
    }

    /// Place of the event that is complete since one of this context came; those behind it,
    /// which interrupted it, are complete, too.
    pub(super) fn complete_from(&self, context: FtraceContext) -> Option<usize> {
        self.waiting.iter().position(|e| e.context == context)
    }

    /// Whether no more events may wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= DEEPEST
    }

    /// Takes out the event at a place.
    pub(super) fn take(&mut self, at: usize) -> Option<PendingEvent> {
        (at < self.waiting.len()).then(|| self.waiting.remove(at))
    }

    /// Time of the event that waits longest.
    pub(super) fn first_time(&self) -> Option<u64> {
        self.waiting.first().map(|e| e.time)
    }

    /// Keeps the memory of an event that was handed out.
    pub(super) fn recycle(&mut self, event: PendingEvent) {
        if self.free.len() < DEEPEST {
            self.free.push(event);
        }
    }

    /// Puts an event to those that wait, without a stack.
    pub(super) fn push(&mut self, payload: &[u8]) -> Option<&mut PendingEvent> {
        let mut event = self.free.pop().unwrap_or_default();
        event.payload.clear();
        event.payload.extend_from_slice(payload);
        event.kernel.clear();
        event.user.clear();
        event.user_process = None;
        self.waiting.push(event);
        self.waiting.last_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: FtraceContext = FtraceContext { tid: 7, flags: (0, 0) };
    const IRQ: FtraceContext = FtraceContext { tid: 7, flags: (8, 1) };

    fn push(ring: &mut PendingRing, context: FtraceContext, id: u16) {
        let event = ring.push(&[]).unwrap();
        (event.context, event.id) = (context, id);
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
        let from = ring.complete_from(TASK).unwrap();
        let first = ring.take(from).unwrap();
        assert_eq!((first.id, &*first.kernel, &*first.user), (1, &[2][..], &[3][..]));
        let second = ring.take(from).unwrap();
        assert_eq!((second.id, &*second.kernel), (2, &[1][..]));
        assert!(ring.take(from).is_none() && ring.complete_from(TASK).is_none());
        ring.recycle(second);
        push(&mut ring, TASK, 3);
        assert!(ring.owner(TASK, false).unwrap().kernel.is_empty());
    }

    #[test]
    fn memory_has_a_bound() {
        let mut ring = PendingRing::default();
        let mut complete = 0;
        for tid in 0..100 {
            complete += usize::from(ring.is_full() && ring.take(0).is_some());
            push(&mut ring, FtraceContext { tid, flags: (0, 0) }, 0);
        }
        let left = std::iter::from_fn(|| ring.take(0)).count();
        assert_eq!((complete, left), (100 - DEEPEST, DEEPEST));
    }
}
