//! The time between two runs of a task.

use super::switch_state::SwitchOutState;
use super::task::{SwitchedOut, Wakeup};

/// Cause of a task's wait for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitCause {
    /// It was woken.
    Woken,
    /// It was preempted, or yielded.
    Preempted,
    /// It is new.
    New,
    /// The recording does not tell: it began in between, or a wake-up is not in it.
    #[default]
    Unknown,
}

/// The time between two runs of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Time at which it left its CPU, and its state.
    pub left: Option<(u64, SwitchOutState)>,
    /// Since when it could run.
    pub runnable: Option<u64>,
    /// Time at which it ran again; `None` if not known.
    pub ended: Option<u64>,
    /// Cause of the wait for a CPU.
    pub cause: WaitCause,
    /// The wake-up that made it runnable.
    pub woken: Option<Wakeup>,
    /// Whether it continues on another CPU.
    pub is_migrated: bool,
    /// Events were lost while it waited: it may have been otherwise.
    pub touches_loss: bool,
}

impl Wait {
    /// The wait that ends `now`, by what was seen of its task.
    #[inline]
    pub(super) fn ended(left: Option<SwitchedOut>, woken: Option<Wakeup>, now: u64) -> Wait {
        let (runnable, cause) = match (left, woken) {
            (Some(left), _) if left.state.is_runnable() => (Some(left.time), WaitCause::Preempted),
            (_, Some(w)) if w.is_new => (Some(w.time), WaitCause::New),
            (_, Some(w)) => (Some(w.time), WaitCause::Woken),
            (Some(left), None) if left.woken_before => (Some(left.time), WaitCause::Woken),
            _ => (None, WaitCause::Unknown),
        };
        Wait {
            left: left.map(|l| (l.time, l.state)),
            // A clock that steps back makes no wait.
            runnable: runnable.filter(|t| *t <= now),
            ended: Some(now),
            cause,
            woken,
            is_migrated: false,
            touches_loss: false,
        }
    }

    /// Begin of what is known of it.
    #[inline]
    pub(super) fn begin(&self) -> Option<u64> {
        let left = self.left.map(|l| l.0);
        left.or(self.runnable)
    }

    /// Whether it is known on which CPU the task ran before, if it did.
    pub fn knows_cpu(&self) -> bool {
        self.left.is_some() || self.cause == WaitCause::New
    }

    /// Nanoseconds without a CPU.
    #[inline]
    pub fn off_cpu(&self) -> Option<u64> {
        self.ended?.checked_sub(self.left?.0)
    }

    /// Nanoseconds that it could have run.
    #[inline]
    pub fn delay(&self) -> Option<u64> {
        self.ended?.checked_sub(self.runnable?)
    }

    /// Nanoseconds between its wake-up and its run: perf's scheduling delay, which is none for a
    /// task that was preempted and had no wake-up.
    #[inline]
    pub fn wakeup_delay(&self) -> Option<u64> {
        match (self.woken, self.cause) {
            (Some(w), _) => self.ended?.checked_sub(w.time),
            (None, WaitCause::Woken) => self.delay(),
            (None, WaitCause::Preempted) => Some(0),
            (None, _) => None,
        }
    }
}
