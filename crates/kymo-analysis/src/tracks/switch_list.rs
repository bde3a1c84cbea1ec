//! Switches and wake-ups one by one, as they were recorded: states and runs are drawn from them,
//! and formats of other programs have the events themselves. Also those that no run follows from,
//! because a switch before them is missing.

use super::packed::{Columns, step_between, time_after};
use crate::tasks::{SwitchOutState, WakeupKind};

/// Switches and wake-ups in the order of the recording.
#[derive(Clone, Debug, Default)]
pub struct SwitchList {
    /// For each: time since the one before (zigzag), CPU, kind and state, two tasks + 1.
    columns: Columns<5>,
    /// Number of events.
    pub count: u64,
    before: u64,
}

/// A switch or a wake-up. Tasks are numbers of tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedSwitch {
    /// Time relative to the start.
    pub time: u64,
    /// CPU on which it happened.
    pub cpu: u32,
    /// The change.
    pub change: ListedChange,
}

/// Change that a switch or a wake-up makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedChange {
    /// A CPU goes from one task to another.
    Switch {
        /// Task that leaves the CPU.
        out: Option<u32>,
        /// In which state.
        state: SwitchOutState,
        /// Whether the start of its run is known.
        has_start: bool,
        /// Task that gets the CPU.
        next: Option<u32>,
    },
    /// A task is woken.
    Wakeup {
        /// Kind of the event.
        kind: WakeupKind,
        /// Task that is woken.
        task: Option<u32>,
        /// Task in which the event happened.
        by: Option<u32>,
    },
}

/// Kinds of events in the third column. Those of switches have the state above them.
const WAKING: u64 = 0;
const WAKEUP: u64 = 1;
const WAKEUP_NEW: u64 = 2;
const SWITCH: u64 = 3;
const SWITCH_WITHOUT_START: u64 = 4;
const KIND_BITS: u32 = 3;

impl SwitchList {
    pub(super) fn push(&mut self, event: &ListedSwitch) {
        let step = step_between(self.before, event.time);
        self.before = event.time;
        let number = |task: Option<u32>| task.map_or(0, |task| u64::from(task) + 1);
        let (what, one, other) = match event.change {
            ListedChange::Switch { out, state, has_start, next } => {
                let kind = if has_start { SWITCH } else { SWITCH_WITHOUT_START };
                (kind | state_code(state) << KIND_BITS, out, next)
            }
            ListedChange::Wakeup { kind, task, by } => {
                let kind = match kind {
                    WakeupKind::Waking => WAKING,
                    WakeupKind::Wakeup => WAKEUP,
                    WakeupKind::New => WAKEUP_NEW,
                };
                (kind, task, by)
            }
        };
        self.columns.push([step, event.cpu.into(), what, number(one), number(other)]);
        self.count += 1;
    }

    /// The events.
    pub fn iter(&self) -> impl Iterator<Item = ListedSwitch> + '_ {
        let mut time = 0u64;
        self.columns.rows().map(move |[step, cpu, what, one, other]| {
            time = time_after(time, step);
            let task = |number: u64| number.checked_sub(1).map(|task| task as u32);
            let (one, other) = (task(one), task(other));
            let wakeup = |kind| ListedChange::Wakeup { kind, task: one, by: other };
            let change = match what & ((1 << KIND_BITS) - 1) {
                WAKING => wakeup(WakeupKind::Waking),
                WAKEUP => wakeup(WakeupKind::Wakeup),
                WAKEUP_NEW => wakeup(WakeupKind::New),
                kind => ListedChange::Switch {
                    out: one,
                    state: state_of(what >> KIND_BITS),
                    has_start: kind == SWITCH,
                    next: other,
                },
            };
            ListedSwitch { time, cpu: cpu as u32, change }
        })
    }
}

fn state_code(state: SwitchOutState) -> u64 {
    match state {
        SwitchOutState::Runnable => 0,
        SwitchOutState::Preempted => 1,
        SwitchOutState::Blocked(letter) | SwitchOutState::Dead(letter) => letter.into(),
    }
}

fn state_of(code: u64) -> SwitchOutState {
    match code as u8 {
        0 => SwitchOutState::Runnable,
        1 => SwitchOutState::Preempted,
        letter @ (b'X' | b'Z') => SwitchOutState::Dead(letter),
        letter => SwitchOutState::Blocked(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_as_they_were() {
        let states = [0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x100];
        let mut events = Vec::new();
        for (n, state) in (0u64..).zip(states.map(SwitchOutState::from_kernel)) {
            let change = ListedChange::Switch {
                out: Some(n as u32),
                state,
                has_start: n % 2 == 0,
                next: (n % 3 != 0).then_some(7),
            };
            // Events of several CPUs need not be in order.
            events.push(ListedSwitch { time: 100 - n, cpu: n as u32 % 4, change });
        }
        for (n, kind) in
            [WakeupKind::Waking, WakeupKind::Wakeup, WakeupKind::New].iter().enumerate()
        {
            let by = (n > 0).then_some(0);
            let change = ListedChange::Wakeup { kind: *kind, task: Some(u32::MAX - 1), by };
            events.push(ListedSwitch { time: u64::MAX - n as u64, cpu: 4095, change });
        }
        let mut list = SwitchList::default();
        events.iter().for_each(|event| list.push(event));
        assert_eq!(list.iter().collect::<Vec<_>>(), events);
        assert_eq!(list.count, events.len() as u64);
    }
}
