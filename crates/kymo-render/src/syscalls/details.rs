//! Details of calls that their numbers do not say: texts in the task's memory, what
//! descriptors stand for.
//!
//! The kernel records only addresses and numbers. Where programs in the kernel may read what is
//! there while the call begins and ends, the inspector has it. Else it is looked up as soon as
//! the event is read, which is after it happened: what was read after the call had returned may
//! be another call's by then and is not shown.

use std::time::Duration;

use kymo_bpf::{MemoryPiece, MemoryRead};
use kymo_format::EventFormat;
use rustc_hash::FxHashMap;

use super::arguments::{ArgumentDetail, ArgumentKind, SyscallDescription};
use super::memory::{MAX_TEXT, MemoryShape};

/// A call that begins, as programs in the kernel have seen it.
#[derive(Clone, Debug, Default)]
pub struct CallMemory {
    /// What its arguments point to.
    pub pieces: Vec<MemoryPiece>,
    /// Whether it is of the ABI of 32-bit programs; `None` where nothing tells.
    pub is_compat: Option<bool>,
}

/// Answers of the machine that is traced. All input and output of rendering system calls is
/// behind it.
pub trait TaskInspector {
    /// Format of the event `name` of the system `syscalls`.
    fn call_format(&self, name: &str) -> Option<EventFormat>;

    /// Text at an address of a task, up to its NUL and at most `most` bytes, with whether
    /// that is all.
    fn read_text(&self, tid: i32, address: u64, most: usize) -> Option<(Vec<u8>, bool)>;

    /// Copies bytes at an address of a task; answers how many there were.
    fn read_memory(&self, tid: i32, address: u64, buffer: &mut [u8]) -> Option<usize>;

    /// Path (or `socket:[…]` and its like) of a descriptor of a task.
    fn descriptor_path(&self, tid: i32, fd: i32) -> Option<String>;

    /// Process of a task.
    fn process_of(&self, tid: i32) -> Option<i32>;

    /// What is to be read of the calls of this number when they are made; whether it is.
    fn describe(&self, _number: i64, _reads: &[MemoryRead]) -> bool {
        false
    }

    /// Whether memory is read when calls are made.
    fn reads_calls(&self) -> bool {
        false
    }

    /// What was read when the call of this event began.
    fn memory_at_entry(
        &mut self,
        _event: (i32, u64),
        _number: i64,
        _args: &[u64; 6],
    ) -> CallMemory {
        CallMemory::default()
    }

    /// Whether the program of a task makes calls of the ABI of 32-bit programs; `None` if that
    /// is not known.
    fn is_compat_task(&mut self, _tid: i32) -> Option<bool> {
        None
    }

    /// A task executes another program.
    fn forget_program(&mut self, _tid: i32) {}

    /// What was read when the call ended.
    fn memory_at_exit(
        &mut self,
        _event: (i32, u64),
        _number: i64,
        _result: i64,
    ) -> Vec<MemoryPiece> {
        Vec::new()
    }

    /// A task ended, or (`None`) events were lost.
    fn forget_memory(&mut self, _tid: Option<i32>) {}

    /// Nanoseconds of the monotonic clock, which is the trace's if no other was asked for.
    fn monotonic_time(&self) -> u64;

    /// Reads again what tasks are named.
    fn refresh_names(&mut self);

    /// Name of a task.
    fn task_name(&mut self, tid: i32) -> &[u8];
}

/// Calls whose details are kept until their event is shown.
const MAX_KEPT: usize = 1 << 16;

/// Details of calls, looked up when their entry was read, and descriptors by process.
pub(super) struct DetailCache<I> {
    pub(super) inspector: I,
    found: FxHashMap<(i32, u64), CallDetails>,
    /// Processes of tasks, as far as known.
    processes: FxHashMap<i32, i32>,
    /// What descriptors stand for since a call that was seen opened them, by process.
    opened: FxHashMap<(i32, i32), String>,
    /// Paths that the inspector gave for others. A later file may have their number already,
    /// so that `opened` is asked first.
    asked: FxHashMap<(i32, i32), String>,
    /// Bytes of a buffer that are read at most.
    most: usize,
}

/// Details of one call.
#[derive(Debug, Default)]
pub(super) struct CallDetails {
    pub(super) arguments: [ArgumentDetail; 6],
    /// When its memory was read, on the trace's clock (if that is monotonic time).
    pub(super) read_at: Option<u64>,
}

impl<I: TaskInspector> DetailCache<I> {
    pub(super) fn new(inspector: I, most: usize) -> DetailCache<I> {
        let (found, processes, opened, asked) = Default::default();
        DetailCache { inspector, found, processes, opened, asked, most }
    }

    /// Looks up what the arguments of a call that was just entered point to.
    pub(super) fn look_up(
        &mut self,
        tid: i32,
        time: u64,
        call: &SyscallDescription,
        args: &[u64; 6],
    ) {
        if self.found.len() >= MAX_KEPT {
            return;
        }
        let mut details = CallDetails::default();
        let mut any = false;
        let is_read = self.inspector.reads_calls();
        for ((arg, value), detail) in call.args.iter().zip(args).zip(&mut details.arguments) {
            *detail = match arg.kind {
                ArgumentKind::Memory(_) if is_read => ArgumentDetail::None,
                ArgumentKind::Memory(MemoryShape::Text) if *value != 0 => self.text(tid, *value),
                ArgumentKind::Memory(MemoryShape::Bytes(count)) => {
                    let len = args.get(count).copied().unwrap_or(0);
                    self.bytes(tid, *value, len)
                }
                ArgumentKind::Fd | ArgumentKind::DirFd => self.file(tid, *value as i32),
                _ => ArgumentDetail::None,
            };
            any |= *detail != ArgumentDetail::None;
        }
        if any {
            details.read_at = call.shapes().next().map(|_| self.inspector.monotonic_time());
            self.found.insert((tid, time), details);
        }
    }

    /// Takes the details of a call, which is shown now.
    pub(super) fn take(&mut self, tid: i32, time: u64) -> Option<CallDetails> {
        self.found.remove(&(tid, time))
    }

    fn text(&self, tid: i32, address: u64) -> ArgumentDetail {
        match self.inspector.read_text(tid, address, MAX_TEXT as usize) {
            Some((bytes, whole)) => ArgumentDetail::Memory { bytes, whole },
            None => ArgumentDetail::None,
        }
    }

    fn bytes(&self, tid: i32, address: u64, len: u64) -> ArgumentDetail {
        let most = usize::try_from(len).unwrap_or(usize::MAX).min(self.most);
        let mut bytes = vec![0; most];
        let Some(n) = self.inspector.read_memory(tid, address, &mut bytes) else {
            return ArgumentDetail::None;
        };
        bytes.truncate(n);
        ArgumentDetail::Memory { bytes, whole: n as u64 == len }
    }

    /// What a descriptor stands for now.
    fn file(&mut self, tid: i32, fd: i32) -> ArgumentDetail {
        if fd < 0 {
            return ArgumentDetail::None;
        }
        let key = (self.process(tid), fd);
        if let Some(path) = self.opened.get(&key).or_else(|| self.asked.get(&key)) {
            return ArgumentDetail::File(path.clone());
        }
        let Some(path) = self.inspector.descriptor_path(tid, fd) else {
            return ArgumentDetail::None;
        };
        self.asked.insert(key, path.clone());
        ArgumentDetail::File(path)
    }

    /// What a descriptor stands for by the calls that were seen.
    pub(super) fn descriptor(&mut self, tid: i32, fd: i32) -> Option<&str> {
        let process = self.process(tid);
        self.opened.get(&(process, fd)).map(String::as_str)
    }

    /// A call made a descriptor; without a path it is asked for when it is used.
    pub(super) fn note_opened(&mut self, tid: i32, fd: i32, path: Option<&str>) {
        let key = (self.process(tid), fd);
        match path {
            Some(path) => drop(self.opened.insert(key, path.to_owned())),
            None => self.note_closed(tid, fd),
        }
    }

    /// A descriptor stands for nothing any more.
    pub(super) fn note_closed(&mut self, tid: i32, fd: i32) {
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
        let inspector = &self.inspector;
        *self.processes.entry(tid).or_insert_with(|| inspector.process_of(tid).unwrap_or(tid))
    }
}

/// A duration as strace writes it: seconds with microseconds.
pub(super) fn seconds(d: Duration) -> String {
    format!("{}.{:06}", d.as_secs(), d.subsec_micros())
}
