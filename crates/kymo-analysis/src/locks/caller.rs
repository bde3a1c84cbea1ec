//! Callers of locks: the stack of a wait without the functions that are the lock.

use std::sync::Arc;

use kymo_events::RecordedEvent;
use kymo_model::Misc;
use rustc_hash::FxHashMap;

use super::lock_row::{LockCaller, LockFrame};

/// Functions of locks and of the scheduler: those that the kernel keeps in `.sched.text` and
/// `.spinlock.text`, which perf leaves out by their addresses. Recordings of other formats have
/// no addresses of sections; a `*` ends what names begin with.
const LOCK_FUNCTIONS: [&str; 53] = [
    "__schedule",
    "schedule*",
    "preempt_schedule*",
    "io_schedule*",
    "__cond_resched",
    "yield",
    "yield_to",
    "__wait_on_bit*",
    "out_of_line_wait_on_bit*",
    "bit_wait*",
    "__wait_for_common",
    "wait_for_completion*",
    "__mutex_*",
    "mutex_*",
    "__ww_mutex_*",
    "ww_mutex_*",
    "__down",
    "__down_*",
    "down",
    "down_*",
    "up",
    "__up",
    "rwsem_down_*",
    "percpu_down_write",
    "__percpu_down_read",
    "rt_mutex_*",
    "__rt_mutex_*",
    "try_to_take_rt_mutex",
    "task_blocks_on_rt_mutex",
    "remove_waiter",
    "mark_wakeup_next_waiter",
    "rtlock_*",
    "rt_spin_*",
    "rt_read_*",
    "rt_write_*",
    "console_conditional_schedule",
    "do_nanosleep",
    "hrtimer_nanosleep_restart",
    "usleep_range_state",
    "ldsem_down_*",
    "_raw_spin_lock*",
    "_raw_spin_trylock*",
    "_raw_spin_unlock*",
    "_raw_read_*",
    "_raw_write_*",
    "__raw_callee_save___pv_*",
    "native_queued_spin_*",
    "__pv_queued_spin_*",
    "queued_*_lock_slowpath",
    "resilient_*",
    "__traceiter_contention_*",
    "trace_contention_*",
    "trace_event_raw_event_contention_*",
];

/// Whether a function of the kernel is part of a lock.
pub(super) fn is_lock_function(name: &str) -> bool {
    // Parts that the compiler split off are the function.
    let name = name.split('.').next().unwrap_or(name);
    LOCK_FUNCTIONS.iter().any(|pattern| match pattern.split_once('*') {
        Some((begin, end)) => name.starts_with(begin) && name.ends_with(end),
        None => name == *pattern,
    })
}

/// The frames of an event's stack, innermost first.
fn frames(event: &RecordedEvent<'_>, max: usize) -> Vec<LockFrame> {
    let chain = event.call_chain();
    if chain.is_empty() {
        let stack = event.stack();
        let kernel = stack.kernel.iter().take(max).map(|ip| LockFrame {
            ip: *ip,
            symbol: event.kernel_symbol(*ip),
            kernel: true,
        });
        return kernel.collect();
    }
    let mut frames = Vec::new();
    event.with_symbols(&mut |symbols| {
        frames.extend(chain.iter().take(max).map(|frame| LockFrame {
            ip: frame.address.ip,
            symbol: frame.shown.symbol.map(|s| (symbols.name(s).to_owned(), frame.shown.offset)),
            kernel: frame.address.mode == Misc::KERNEL,
        }));
    });
    frames
}

/// Distinct stacks whose caller is remembered; more start the memory over.
const MOST_KNOWN: usize = 1 << 16;

/// Frame of a stack: address, symbol by number, whether it is of the kernel.
type FrameKey = (u64, u32, bool);

/// Finds callers: of each distinct stack once.
#[derive(Debug, Default)]
pub(super) struct CallerFinder {
    known: FxHashMap<Box<[FrameKey]>, Arc<LockCaller>>,
    stack: Vec<FrameKey>,
}

impl CallerFinder {
    /// Returns the waiter: the stack of an event without its first `skip` frames and without locks.
    /// `skip` and `max` must be the same in all calls.
    pub(super) fn find(
        &mut self,
        event: &RecordedEvent<'_>,
        skip: usize,
        max: usize,
    ) -> Arc<LockCaller> {
        let chain = event.call_chain();
        self.stack.clear();
        if chain.is_empty() {
            let stack = event.stack();
            self.stack.extend(stack.kernel.iter().take(max).map(|ip| (*ip, u32::MAX, true)));
        }
        self.stack.extend(chain.iter().take(max).map(|frame| {
            let symbol = frame.shown.symbol.map_or(u32::MAX, |s| s.0);
            (frame.address.ip, symbol, frame.address.mode == Misc::KERNEL)
        }));
        if let Some(known) = self.known.get(self.stack.as_slice()) {
            return Arc::clone(known);
        }
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        let caller = Arc::new(find_caller(event, skip, max));
        self.known.insert(self.stack.as_slice().into(), Arc::clone(&caller));
        caller
    }
}

fn find_caller(event: &RecordedEvent<'_>, skip: usize, max: usize) -> LockCaller {
    let frames = frames(event, max);
    let outside = |f: &&LockFrame| {
        !f.kernel || f.symbol.as_ref().is_none_or(|(name, _)| !is_lock_function(name))
    };
    let outer: Vec<&LockFrame> = frames.iter().skip(skip).filter(outside).collect();
    let name = outer.iter().find(|f| f.symbol.is_some()).map(|f| f.text());
    let key = outer.iter().map(|f| f.ip).collect();
    LockCaller { name: name.unwrap_or_else(|| "Unknown".to_owned()), key, frames }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_distinguished_by_their_callers() {
        for name in
            ["_raw_spin_lock", "__mutex_lock.constprop.0", "queued_read_lock_slowpath", "down"]
        {
            assert!(is_lock_function(name), "{name}");
        }
        for name in [
            "try_to_wake_up",
            "downgrade_task",
            "update_rq_clock",
            "pipe_read",
            "upload",
            "_raw_spin_rq_lock_irqsave",
        ] {
            assert!(!is_lock_function(name), "{name}");
        }
    }
}
