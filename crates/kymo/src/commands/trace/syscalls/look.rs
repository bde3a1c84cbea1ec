//! Looking at a task while it is still there: texts in its memory, what its
//! descriptors stand for.
//!
//! The kernel records only addresses and numbers. They are looked up as soon as
//! the event is read, which is after it happened: the task has gone on. What
//! was read after the call had returned is marked, since the memory may have
//! changed by then; a task that has ended has no memory any more.

use std::time::Duration;

use kymo_kernel::memory;
use rustc_hash::FxHashMap;

use super::args::{Call, Kind, Side};

/// The longest text that is read, and bytes of a buffer.
const TEXT: usize = 4096;
const BUFFER: usize = 32;
/// Looked-up arguments that are kept until their event's turn comes.
const KEPT: usize = 1 << 16;

/// What was found out for calls whose turn has not come.
#[derive(Default)]
pub(super) struct Looks {
    found: FxHashMap<(i32, u64), Look>,
    /// Of each task its process, as far as known.
    processes: FxHashMap<i32, i32>,
    /// What descriptors stand for since a call that was seen opened them, by process.
    opened: FxHashMap<(i32, i32), String>,
    /// What /proc said of others. A later file may have their number already, so
    /// the former goes before.
    asked: FxHashMap<(i32, i32), String>,
}

/// What was found for one call.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) sides: [Side; 6],
    /// When its memory was read, on the trace's clock (if that is monotonic time).
    pub(super) read_at: Option<u64>,
}

impl Looks {
    /// Looks up what the arguments of a call that just began point to.
    pub(super) fn enter(&mut self, tid: i32, time: u64, call: &Call, args: &[u64; 6]) {
        if self.found.len() >= KEPT {
            return;
        }
        let mut look = Look::default();
        let mut any = false;
        for ((arg, value), side) in call.args.iter().zip(args).zip(&mut look.sides) {
            *side = match arg.kind {
                Kind::Text if *value != 0 => text(tid, *value),
                Kind::Bytes(count) => {
                    let len = args.get(count).copied().unwrap_or(0);
                    bytes(tid, *value, len)
                }
                Kind::Fd | Kind::DirFd => self.file(tid, *value as i32),
                _ => Side::None,
            };
            any |= *side != Side::None;
        }
        if any {
            look.read_at = call.reads_memory().then(monotonic);
            self.found.insert((tid, time), look);
        }
    }

    /// Takes what was found for a call whose turn it is.
    pub(super) fn take(&mut self, tid: i32, time: u64) -> Option<Look> {
        self.found.remove(&(tid, time))
    }

    /// What a descriptor stands for now.
    fn file(&mut self, tid: i32, fd: i32) -> Side {
        if fd < 0 {
            return Side::None;
        }
        let key = (self.process(tid), fd);
        if let Some(path) = self.opened.get(&key).or_else(|| self.asked.get(&key)) {
            return Side::File(path.clone());
        }
        let Ok(path) = std::fs::read_link(format!("/proc/{tid}/fd/{fd}")) else {
            return Side::None;
        };
        let path = path.to_string_lossy().into_owned();
        self.asked.insert(key, path.clone());
        Side::File(path)
    }

    /// What a descriptor stands for by the calls that were seen.
    pub(super) fn known(&mut self, tid: i32, fd: i32) -> Option<&str> {
        let process = self.process(tid);
        self.opened.get(&(process, fd)).map(String::as_str)
    }

    /// A call made a descriptor; without a path it is asked for when it is used.
    pub(super) fn opened(&mut self, tid: i32, fd: i32, path: Option<&str>) {
        let key = (self.process(tid), fd);
        match path {
            Some(path) => drop(self.opened.insert(key, path.to_owned())),
            None => self.closed(tid, fd),
        }
    }

    /// A descriptor stands for nothing any more.
    pub(super) fn closed(&mut self, tid: i32, fd: i32) {
        let key = (self.process(tid), fd);
        self.opened.remove(&key);
        self.asked.remove(&key);
    }

    /// A task ended or became another program.
    pub(super) fn forget(&mut self, tid: i32) {
        let process = self.process(tid);
        if process == tid {
            self.opened.retain(|(p, _), _| *p != process);
            self.asked.retain(|(p, _), _| *p != process);
        }
        self.processes.remove(&tid);
    }

    fn process(&mut self, tid: i32) -> i32 {
        *self.processes.entry(tid).or_insert_with(|| process_of(tid).unwrap_or(tid))
    }
}

fn text(tid: i32, address: u64) -> Side {
    match memory::read_text(tid as u32, address, TEXT) {
        Ok((bytes, whole)) => Side::Memory { bytes, whole, late: false },
        Err(_) => Side::None,
    }
}

fn bytes(tid: i32, address: u64, len: u64) -> Side {
    let most = usize::try_from(len).unwrap_or(usize::MAX).min(BUFFER);
    let mut bytes = vec![0; most];
    match memory::read(tid as u32, address, &mut bytes) {
        Ok(n) => {
            bytes.truncate(n);
            Side::Memory { bytes, whole: n as u64 == len, late: false }
        }
        Err(_) => Side::None,
    }
}

/// The process of a thread.
fn process_of(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// The monotonic clock, which is the trace's if nothing else was asked for.
fn monotonic() -> u64 {
    u64::try_from(kymo_kernel::process::monotonic().as_nanos()).unwrap_or(u64::MAX)
}

/// A duration as strace writes it: seconds with microseconds.
pub(super) fn seconds(d: Duration) -> String {
    format!("{}.{:06}", d.as_secs(), d.subsec_micros())
}
