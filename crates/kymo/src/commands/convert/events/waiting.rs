//! Events of a trace.dat that wait for their stacks. A stack is an event of its own
//! behind the one it belongs to, with the same task, flags and preemption count; an
//! interrupt between the two may bring events and stacks of its own.

/// What an event and its stacks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) pid: i32,
    pub(super) flags: (u8, u8),
}

/// An event and the frames of its stacks, innermost first.
#[derive(Clone, Debug)]
pub(super) struct Waiting<E> {
    pub(super) context: Context,
    pub(super) event: E,
    pub(super) kernel: Vec<u32>,
    pub(super) user: Vec<u32>,
}

/// Task, soft interrupt, interrupt, NMI; the rest is for events that are nested
/// otherwise, as those of probes.
const DEEPEST: usize = 8;

/// The events of one CPU and instance that wait, those interrupted first.
#[derive(Clone, Debug)]
pub(super) struct Line<E> {
    waiting: Vec<Waiting<E>>,
}

impl<E> Default for Line<E> {
    fn default() -> Self {
        Line { waiting: Vec::new() }
    }
}

impl<E> Line<E> {
    /// Takes a stack; `false` where its event is not here.
    pub(super) fn stack(&mut self, context: Context, frames: Vec<u32>, user: bool) -> bool {
        let own = self.waiting.iter_mut().rev().find(|w| w.context == context);
        let Some(own) = own else { return false };
        let place = if user { &mut own.user } else { &mut own.kernel };
        if !place.is_empty() {
            return false;
        }
        *place = frames;
        true
    }

    /// An event comes: those of the same context are complete, and those that
    /// interrupted it. It waits itself if it is wanted.
    pub(super) fn event(
        &mut self,
        context: Context,
        event: Option<E>,
        mut complete: impl FnMut(Waiting<E>),
    ) {
        if let Some(from) = self.waiting.iter().position(|w| w.context == context) {
            self.waiting.drain(from..).for_each(&mut complete);
        }
        if self.waiting.len() == DEEPEST {
            complete(self.waiting.remove(0));
        }
        let made = |event| Waiting { context, event, kernel: Vec::new(), user: Vec::new() };
        self.waiting.extend(event.map(made));
    }

    /// No more comes.
    pub(super) fn end(self) -> impl Iterator<Item = Waiting<E>> {
        self.waiting.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Context = Context { pid: 7, flags: (0, 0) };
    const IRQ: Context = Context { pid: 7, flags: (8, 1) };

    #[test]
    fn an_interrupts_stack_is_not_that_of_what_it_interrupts() {
        let mut line = Line::default();
        let mut seen = Vec::new();
        let mut see = |w: Waiting<&'static str>| seen.push((w.event, w.kernel, w.user));
        line.event(TASK, Some("a"), &mut see);
        line.event(IRQ, Some("irq"), &mut see);
        assert!(line.stack(IRQ, vec![1], false));
        assert!(line.stack(TASK, vec![2], false));
        assert!(line.stack(TASK, vec![3], true));
        // Whose it would be has one.
        assert!(!line.stack(TASK, vec![4], false));
        line.event(TASK, None, &mut see);
        assert!(!line.stack(TASK, vec![5], false));
        assert_eq!(seen, [("a", vec![2], vec![3]), ("irq", vec![1], vec![])]);
        assert_eq!(line.end().count(), 0);
    }

    #[test]
    fn memory_has_a_bound() {
        let mut line = Line::default();
        let mut complete = 0;
        for pid in 0..100 {
            line.event(Context { pid, flags: (0, 0) }, Some(()), |_| complete += 1);
        }
        assert_eq!((complete, line.end().count()), (100 - DEEPEST, DEEPEST));
    }
}
