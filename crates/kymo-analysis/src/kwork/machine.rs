//! Work items from their raise to their end. Interrupts and softirqs stay on their CPU; an item of
//! a workqueue may be queued on one CPU, start on another one, and move with its worker to a third:
//! it is known by its address and its worker.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

use super::decode::{KworkEvent, KworkKind, KworkPhase};
use crate::losses::{LossWindows, MOST_CPUS};

/// Pieces that are open at a time.
const MOST_OPEN: usize = 1 << 17;

/// Owner of a work item (CPU of an interrupt or softirq, worker of a workqueue item) that is queued
/// only, so that it is not known yet.
const ANYWHERE: u32 = u32::MAX;

type OpenKey = (KworkKind, u32, u64);

/// Begin of a piece of work.
#[derive(Clone, Debug, Default)]
pub struct KworkStart {
    /// Time.
    pub time: u64,
    /// On which CPU.
    pub cpu: u32,
    /// Address of a work item's function.
    pub function: Option<u64>,
    /// Time of the first request, where the recording has it.
    pub raised: Option<u64>,
    /// Whether events were lost since.
    pub delay_touches_loss: bool,
    /// Functions of the stack, where they are wanted.
    pub stack: Vec<String>,
}

/// A piece of work that has ended.
#[derive(Clone, Debug)]
pub struct KworkInterval {
    /// Its begin.
    pub start: KworkStart,
    /// Its end.
    pub end: u64,
    /// Whether events were lost between.
    pub touches_loss: bool,
    /// Whether it held up the task that its CPU ran: interrupts within a softirq hold up the
    /// softirq, work items are tasks themselves.
    pub holds_up_task: bool,
}

/// Change that an event makes.
#[derive(Clone, Debug)]
pub enum KworkStep {
    /// A piece of work begins.
    Begin(KworkStart),
    /// One ends.
    End(KworkInterval),
}

/// Halves without partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KworkCounts {
    /// Raises after which nothing began.
    pub raises: u64,
    /// Begins without an end.
    pub entries: u64,
    /// Ends without a begin.
    pub exits: u64,
    /// Begins without a raise, of softirqs and work items.
    pub unraised: u64,
    /// Raises of what had been asked for already.
    pub repeated: u64,
    /// Intervals in which events were lost.
    pub touching_loss: u64,
    /// Events without time or CPU.
    pub unplaced: u64,
    /// Pieces that there was no room for.
    pub crowded: u64,
}

/// Interrupts and softirqs of a CPU that are nested.
const DEEPEST: usize = 8;

/// Open work items.
#[derive(Debug, Default)]
pub struct KworkMachine {
    raised: FxHashMap<OpenKey, u64>,
    open: FxHashMap<OpenKey, KworkStart>,
    /// Time at which each softirq and work item last began: a raise that was lost since may be the
    /// first.
    begun: FxHashMap<OpenKey, u64>,
    /// Interrupts and softirqs that run on each CPU, the interrupted ones first.
    cpus: Vec<Vec<OpenKey>>,
    losses: LossWindows,
    /// Halves without partner.
    pub counts: KworkCounts,
    /// Whether there are raises of softirqs, and of work items.
    pub has_raises: [bool; 2],
}

impl KworkMachine {
    /// A machine that knows in which spans events were lost.
    pub fn new(losses: LossWindows) -> KworkMachine {
        KworkMachine { losses, ..KworkMachine::default() }
    }

    /// Takes an event; gives what it changes. `stack`: with functions of stacks.
    #[inline]
    pub fn apply(
        &mut self,
        kwork: &KworkEvent<'_>,
        event: &RecordedEvent<'_>,
        stack: bool,
    ) -> Option<(KworkStep, u64, u32)> {
        let (Some(time), Some(cpu)) = (event.time, event.cpu().filter(|c| *c < MOST_CPUS)) else {
            self.counts.unplaced += 1;
            return None;
        };
        let place = match kwork.kind {
            KworkKind::Workqueue => event.task().tid.unwrap_or(ANYWHERE),
            _ => cpu,
        };
        let key = (kwork.kind, place, kwork.id);
        let raise_key = match kwork.kind {
            KworkKind::Workqueue => (kwork.kind, ANYWHERE, kwork.id),
            _ => key,
        };
        let step = match kwork.phase {
            KworkPhase::Raise => {
                self.raise(raise_key, time);
                return None;
            }
            KworkPhase::Entry => {
                let stack = if stack { event.stack_names() } else { Vec::new() };
                let function = kwork.function;
                let start = KworkStart { time, cpu, function, stack, ..KworkStart::default() };
                KworkStep::Begin(self.begin(key, raise_key, start))
            }
            KworkPhase::Exit => KworkStep::End(self.end(key, time)?),
        };
        Some((step, time, cpu))
    }

    fn raise(&mut self, key: OpenKey, time: u64) {
        self.has_raises[usize::from(key.0 == KworkKind::Workqueue)] = true;
        if self.raised.contains_key(&key) {
            // It is waited for since the first.
            self.counts.repeated += 1;
        } else if self.raised.len() >= MOST_OPEN {
            self.counts.crowded += 1;
        } else {
            self.raised.insert(key, time);
        }
    }

    fn begin(&mut self, key: OpenKey, raise_key: OpenKey, mut start: KworkStart) -> KworkStart {
        start.raised = self.raised.remove(&raise_key).filter(|raised| *raised <= start.time);
        let unraised_since = self.begun_before(raise_key, start.time);
        if let Some(raised) = start.raised {
            let since = unraised_since.map_or(raised, |since| since.min(raised));
            start.delay_touches_loss = self.losses.touches(since, start.time);
            self.counts.touching_loss += u64::from(start.delay_touches_loss);
        } else if key.0 != KworkKind::Irq {
            self.counts.unraised += 1;
        }
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(&key) {
            self.counts.crowded += 1;
            return start;
        }
        if self.open.insert(key, start.clone()).is_some() {
            self.counts.entries += 1;
        }
        self.enter(key);
        start
    }

    /// Time when an earlier run with the same key, or the recording, started; none for interrupts,
    /// which are not raised.
    fn begun_before(&mut self, key: OpenKey, time: u64) -> Option<u64> {
        if key.0 == KworkKind::Irq {
            return None;
        }
        let before = self.begun.get(&key).copied().unwrap_or(0);
        if self.begun.len() < MOST_OPEN || before > 0 {
            self.begun.insert(key, time);
        }
        Some(before)
    }

    fn end(&mut self, key: OpenKey, time: u64) -> Option<KworkInterval> {
        let start = self.open.remove(&key).filter(|start| start.time <= time);
        let is_outermost = self.leave(key);
        let Some(start) = start else {
            self.counts.exits += 1;
            return None;
        };
        let touches_loss = self.losses.touches(start.time, time);
        self.counts.touching_loss += u64::from(touches_loss);
        Some(KworkInterval { start, end: time, touches_loss, holds_up_task: is_outermost })
    }

    /// Something begins on a CPU. What cannot be under it has ended unseen.
    fn enter(&mut self, key: OpenKey) {
        let (kind, cpu, _) = key;
        if kind == KworkKind::Workqueue {
            return;
        }
        let index = cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, Vec::new());
        }
        let Some(running) = self.cpus.get_mut(index) else { return };
        match kind {
            // Softirqs run when interrupts have ended, one after the other.
            KworkKind::Softirq => running.clear(),
            _ => {
                let again = running.iter().position(|k| *k == key);
                running.truncate(again.unwrap_or(running.len()));
            }
        }
        if running.len() < DEEPEST {
            running.push(key);
        }
    }

    /// Something ends on a CPU; returns whether it was the outermost.
    fn leave(&mut self, key: OpenKey) -> bool {
        let Some(running) = self.cpus.get_mut(key.1 as usize) else { return false };
        if key.0 == KworkKind::Workqueue {
            return false;
        }
        let at = running.iter().position(|k| *k == key);
        running.truncate(at.unwrap_or(running.len()));
        at == Some(0)
    }

    /// Whether it knows of losses.
    pub fn has_losses(&self) -> bool {
        !self.losses.is_empty()
    }

    /// Counts what is open at the end; gives the number of pieces that run.
    pub fn finish(&mut self) -> u64 {
        self.counts.raises += self.raised.len() as u64;
        self.counts.entries += self.open.len() as u64;
        self.open.len() as u64
    }
}
