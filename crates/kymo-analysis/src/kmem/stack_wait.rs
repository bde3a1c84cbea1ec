//! Allocations that wait for their stacks: ftrace records a stack as an event of its own behind
//! the one it belongs to, with the same task, flags and preemption count; what interrupts may
//! come in between, with stacks of its own.

use kymo_events::RecordedEvent;

use super::pages::PageAllocation;
use crate::losses::MOST_CPUS;

/// Allocations of a CPU that wait: task, soft interrupt, interrupt, NMI.
const DEEPEST: usize = 4;

/// Fields that an event shares with its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StackContext {
    tid: i64,
    flags: i64,
    preempt_count: i64,
}

impl StackContext {
    /// `None`: the event is of another format, which has stacks within events.
    fn of(event: &RecordedEvent<'_>) -> Option<StackContext> {
        let fields = event.fields();
        let field = |name: &str| fields.integer(event.class.field(name)?);
        Some(StackContext {
            tid: field("common_pid")?,
            flags: field("common_flags")?,
            preempt_count: field("common_preempt_count")?,
        })
    }
}

/// Allocations that wait, by CPU.
#[derive(Debug, Default)]
pub(super) struct StackWait {
    cpus: Vec<Vec<(StackContext, PageAllocation, u32)>>,
}

impl StackWait {
    /// An allocation was counted without a stack; `number` is its number.
    pub(super) fn push(&mut self, event: &RecordedEvent<'_>, a: PageAllocation, number: u32) {
        // Samples have their stacks.
        if event.class.attr.is_some() {
            return;
        }
        let (Some(cpu), Some(context)) =
            (event.cpu().filter(|c| *c < MOST_CPUS), StackContext::of(event))
        else {
            return;
        };
        let cpu = cpu as usize;
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, Vec::new);
        }
        let Some(waiting) = self.cpus.get_mut(cpu) else { return };
        // The one before of the same context has no stack, nor have those that interrupted it.
        if let Some(at) = waiting.iter().position(|(c, ..)| *c == context) {
            waiting.truncate(at);
        }
        if waiting.len() >= DEEPEST {
            waiting.remove(0);
        }
        waiting.push((context, a, number));
    }

    /// An event came whose stack may follow, or events were lost.
    #[inline]
    pub(super) fn pass(&mut self, event: &RecordedEvent<'_>) {
        let waiting = event.cpu().and_then(|cpu| self.cpus.get_mut(cpu as usize));
        let Some(waiting) = waiting.filter(|waiting| !waiting.is_empty()) else { return };
        let context = StackContext::of(event);
        let at = match event.lost {
            Some(_) => Some(0),
            None => waiting.iter().position(|(c, ..)| Some(*c) == context),
        };
        waiting.truncate(at.unwrap_or(waiting.len()));
    }

    /// The allocation that a stack belongs to, and its number.
    pub(super) fn take(&mut self, event: &RecordedEvent<'_>) -> Option<(PageAllocation, u32)> {
        if event.lost.is_some() {
            self.pass(event);
        }
        let waiting = self.cpus.get_mut(event.cpu()? as usize)?;
        if waiting.is_empty() {
            return None;
        }
        let context = StackContext::of(event)?;
        let at = waiting.iter().position(|(c, ..)| *c == context)?;
        let (_, a, number) = waiting.swap_remove(at);
        waiting.truncate(at);
        Some((a, number))
    }
}
