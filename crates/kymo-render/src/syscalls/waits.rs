//! The slowest calls, and what they waited for: `sched_switch` and `sched_waking` of their threads
//! between entry and exit.

use kymo_analysis::offcpu::OffCpuCause;
use kymo_analysis::syscalls::{CallBlock, CallWaits, cause_of_call};
use kymo_analysis::tasks::{SwitchOutState, WakeupContext};
use kymo_format::EventFormat;
use kymo_model::Endian;
use rustc_hash::FxHashMap;

use super::lines::{int, tid_of};

/// The slowest that are kept.
const SLOWEST: usize = 5;
/// Threads that are off their CPUs within a call, at a time.
const MOST_THREADS: usize = 1 << 16;

/// Formats of the events that tell of waits.
#[derive(Debug)]
pub struct WaitFormats {
    /// `sched:sched_switch`.
    pub switch: EventFormat,
    /// `sched:sched_waking`.
    pub waking: EventFormat,
}

/// One of the slowest calls.
#[derive(Clone, Debug)]
pub struct SlowestCall {
    /// Its thread.
    pub tid: i32,
    /// Its begin.
    pub start: u64,
    /// Nanoseconds.
    pub duration: u64,
    /// The call with its arguments and its result.
    pub text: Vec<u8>,
    /// Waits of the call.
    pub waits: CallWaits,
}

/// A thread that is off its CPU.
struct OffThread {
    left: u64,
    state: SwitchOutState,
    woken: Option<(u64, Waker)>,
}

/// The waker of a thread, with its name of then: its number may be reused.
#[derive(Clone)]
struct Waker {
    name: Vec<u8>,
    tid: i32,
    context: WakeupContext,
}

/// When a thread came back to a CPU.
#[derive(Clone, Copy)]
pub(super) enum Return {
    /// At the time that is given.
    Now,
    /// Before it, unrecorded: some kernels miss switches from the idle task.
    Before,
}

/// Threads off their CPUs, and the slowest calls.
pub(super) struct CallWaiting {
    pub(super) formats: WaitFormats,
    off: FxHashMap<i32, OffThread>,
    /// Names of threads that came to a CPU, as of then.
    names: FxHashMap<i32, Vec<u8>>,
    pub(super) slowest: Vec<SlowestCall>,
}

impl CallWaiting {
    pub(super) fn new(formats: WaitFormats) -> CallWaiting {
        CallWaiting {
            formats,
            off: FxHashMap::default(),
            names: FxHashMap::default(),
            slowest: Vec::new(),
        }
    }

    /// The thread of a call leaves its CPU.
    pub(super) fn leave(
        &mut self,
        (tid, time): (i32, u64),
        payload: &[u8],
        waits: &mut CallWaits,
        call: &str,
    ) {
        self.resume((tid, time), Return::Before, waits, call);
        let state = SwitchOutState::from_kernel(int(&self.formats.switch, "prev_state", payload));
        if self.off.len() < MOST_THREADS {
            self.off.insert(tid, OffThread { left: time, state, woken: None });
        }
    }

    /// Takes note of who wakes a thread first.
    pub(super) fn wake(&mut self, time: u64, payload: &[u8]) {
        let tid = int(&self.formats.waking, "pid", payload) as i32;
        let Some(off) = self.off.get_mut(&tid).filter(|off| off.woken.is_none()) else { return };
        // `common_flags` stands at the same place in every event.
        let flags = payload.get(2).map(|flags| i64::from(*flags));
        let (tid, context) = (tid_of(payload), WakeupContext::from_flags(flags));
        let name = self.names.get(&tid).cloned().unwrap_or_default();
        off.woken = Some((time, Waker { name, tid, context }));
    }

    /// Takes note of the name of the thread that comes to a CPU.
    pub(super) fn note_name(&mut self, tid: i32, payload: &[u8]) {
        let Some(field) = self.formats.switch.field("next_comm") else { return };
        let name = field.bytes(payload, Endian::NATIVE);
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        match self.names.get_mut(&tid) {
            Some(known) if known == name => {}
            Some(known) => *known = name.to_vec(),
            None => {
                if self.names.len() >= MOST_THREADS {
                    self.names.clear();
                }
                self.names.insert(tid, name.to_vec());
            }
        }
    }

    /// A thread is back on a CPU: adds what it waited for to its call.
    pub(super) fn resume(
        &mut self,
        (tid, time): (i32, u64),
        back: Return,
        waits: &mut CallWaits,
        call: &str,
    ) {
        let Some(off) = self.off.remove(&tid) else { return };
        let woken = off.woken.filter(|(at, _)| *at >= off.left && *at <= time);
        let ready = match (&woken, back) {
            _ if off.state.is_runnable() => off.left,
            (Some((at, _)), _) => *at,
            (None, Return::Now) => time,
            (None, Return::Before) => off.left,
        };
        let rest = match back {
            Return::Now => &mut waits.runnable,
            Return::Before => &mut waits.unknown,
        };
        *rest = rest.saturating_add(time.saturating_sub(ready));
        let nanos = ready.saturating_sub(off.left);
        if nanos == 0 {
            return;
        }
        // A name that is not known is asked for if it is shown.
        let woken_by = woken.map(|(_, by)| (by.name, by.tid as u32, by.context));
        match waits.blocks.first_mut() {
            Some(block) => {
                block.nanos = block.nanos.saturating_add(nanos);
                block.woken_by = woken_by;
            }
            None => {
                let cause = match OffCpuCause::of_state(off.state) {
                    OffCpuCause::Blocked => cause_of_call(call),
                    other => other,
                };
                waits.blocks.push(CallBlock { cause, nanos, woken_by, stack: Vec::new() });
            }
        }
    }

    /// Forgets what belongs together no more: events were lost.
    pub(super) fn forget(&mut self) {
        self.off.clear();
    }

    /// Whether a call is among the slowest so far.
    pub(super) fn is_slow(&self, duration: u64) -> bool {
        self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|s| duration > s.duration)
    }

    /// Puts a call among the slowest.
    pub(super) fn keep(&mut self, call: SlowestCall) {
        let at = self.slowest.partition_point(|known| known.duration >= call.duration);
        self.slowest.insert(at, call);
        self.slowest.truncate(SLOWEST);
    }
}

/// Whom a switch event is of: who leaves, and who comes.
pub(super) fn switched(format: &EventFormat, payload: &[u8]) -> Option<(i32, i32)> {
    let field = |name| format.field(name)?.int(payload, Endian::NATIVE);
    Some((field("prev_pid")? as i32, field("next_pid")? as i32))
}
