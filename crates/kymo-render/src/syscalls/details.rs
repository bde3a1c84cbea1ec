//! Details of calls that their numbers do not say: texts in the task's memory, what descriptors
//! stand for.
//!
//! The kernel records only addresses and numbers. Where programs in the kernel may read what is
//! there while the call begins and ends, the inspector has it. Else it is resolved as soon as the
//! event is read, which is after it happened: what was read after the call had returned may be
//! another call's by then and is not shown.

use std::time::Duration;

use kymo_bpf::{MemoryPiece, MemoryRead};
use kymo_format::EventFormat;
use rustc_hash::FxHashMap;

use super::arguments::{ArgumentDetail, ArgumentKind, FoundFile, SyscallDescription};
use super::descriptor_changes::DescriptorChanges;
use super::memory::{MAX_TEXT, MemoryShape};

/// A call that begins, as programs in the kernel have seen it.
#[derive(Clone, Debug, Default)]
pub struct CallMemory {
    /// Memory that its arguments point to.
    pub pieces: Vec<MemoryPiece>,
    /// Whether it is of the ABI of 32-bit programs; `None` where it is unknown.
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

    /// Sets the memory to be read for calls of this number when they are made; returns whether it
    /// will be.
    fn describe(&self, _number: i64, _reads: &[MemoryRead]) -> bool {
        false
    }

    /// Whether memory is read when calls are made.
    fn reads_calls(&self) -> bool {
        false
    }

    /// Memory that was read when the call of this event started.
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

    /// Memory that was read when the call ended.
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
    /// Tables of descriptors of tasks that do not use the one of their process: negative numbers,
    /// or those of other processes.
    tables: FxHashMap<i32, i32>,
    /// The last number of a table that is no process's.
    last_table: i32,
    /// Files behind descriptors, since a recorded call opened them, by table.
    opened: FxHashMap<(i32, i32), String>,
    /// Files that the inspector found for others.
    asked: FxHashMap<(i32, i32), FoundFile>,
    /// Times at which descriptors came to stand for something else, by calls that were seen: what
    /// was found before that is another file.
    changed: FxHashMap<(i32, i32), u64>,
    /// Times at which all descriptors of a process may have changed.
    replaced: FxHashMap<i32, u64>,
    /// Changes by calls whose events have been read, but perhaps not handed out.
    coming: DescriptorChanges,
    /// When the rings were read last, on the monotonic clock, and until when all events are known.
    reading_since: u64,
    known_until: u64,
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
        let (changed, replaced, tables) = Default::default();
        DetailCache {
            inspector,
            found,
            processes,
            tables,
            last_table: 0,
            opened,
            asked,
            changed,
            replaced,
            coming: DescriptorChanges::default(),
            reading_since: 0,
            known_until: 0,
            most,
        }
    }

    /// The rings are about to be read.
    pub(super) fn begin_reading(&mut self) {
        self.reading_since = self.inspector.monotonic_time();
    }

    /// All rings have been read to their ends since then.
    pub(super) fn end_reading(&mut self) {
        self.known_until = self.reading_since;
    }

    /// Notes a call that changes descriptors, as its entry is read.
    pub(super) fn foresee(&mut self, tid: i32, time: u64, name: &str, args: &[u64; 6]) {
        let fd = match name {
            "close" => args[0],
            "dup2" | "dup3" => args[1],
            "close_range" => return self.foresee_all(tid, time),
            _ => return,
        };
        self.foresee_one(tid, time, fd as i32);
    }

    /// Notes that a descriptor of a task is made, as the event is read.
    pub(super) fn foresee_one(&mut self, tid: i32, time: u64, fd: i32) {
        let table = self.table(tid);
        self.coming.note(table, fd, time);
    }

    /// Notes that all descriptors of a task may change, as the event is read.
    pub(super) fn foresee_all(&mut self, tid: i32, time: u64) {
        let table = self.table(tid);
        self.coming.note_all(table, time);
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

    /// File behind a descriptor by the inspector, now or before.
    fn file(&mut self, tid: i32, fd: i32) -> ArgumentDetail {
        if fd < 0 {
            return ArgumentDetail::None;
        }
        let key = (self.table(tid), fd);
        if let Some(file) = self.asked.get(&key) {
            return ArgumentDetail::File(file.clone());
        }
        let Some(path) = self.inspector.descriptor_path(tid, fd) else {
            return ArgumentDetail::None;
        };
        let file = FoundFile { path, found_at: Some(self.inspector.monotonic_time()) };
        self.asked.insert(key, file.clone());
        ArgumentDetail::File(file)
    }

    /// File behind a descriptor by recorded calls.
    pub(super) fn descriptor(&mut self, tid: i32, fd: i32) -> Option<&str> {
        let table = self.table(tid);
        self.opened.get(&(table, fd)).map(String::as_str)
    }

    /// File behind a descriptor in a call that began at `start`: by the calls before it, or as it
    /// was found, unless another file may have had its number then.
    pub(super) fn settle_file(
        &mut self,
        (tid, start): (i32, u64),
        fd: i32,
        found: ArgumentDetail,
        is_monotonic: bool,
    ) -> ArgumentDetail {
        if let Some(path) = self.descriptor(tid, fd) {
            let path = path.to_owned();
            return ArgumentDetail::File(FoundFile { path, found_at: None });
        }
        let ArgumentDetail::File(FoundFile { found_at: Some(found_at), .. }) = found else {
            return found;
        };
        let table = self.table(tid);
        let since = self.changed.get(&(table, fd)).max(self.replaced.get(&table));
        // Times of other clocks cannot be compared.
        let is_other_before = since.is_some_and(|since| !is_monotonic || found_at < *since);
        let end = is_monotonic.then_some(found_at);
        // What was found while the events were read may be by calls that are still to be read.
        let is_other_after =
            found_at >= self.known_until || self.coming.is_changed(table, fd, start, end);
        if is_other_before || is_other_after { ArgumentDetail::None } else { found }
    }

    /// A call made a descriptor; without a path it is asked for when it is used.
    pub(super) fn note_opened(&mut self, (tid, at): (i32, u64), fd: i32, path: Option<String>) {
        self.note_closed(tid, fd, at);
        if let Some(path) = path {
            let key = (self.table(tid), fd);
            self.opened.insert(key, path);
        }
    }

    /// A descriptor stands for nothing any more.
    pub(super) fn note_closed(&mut self, tid: i32, fd: i32, at: u64) {
        let key = (self.table(tid), fd);
        self.opened.remove(&key);
        self.asked.remove(&key);
        if self.changed.len() >= MAX_KEPT {
            // What was found until now is in doubt for all.
            let tables = self.changed.drain().map(|((table, _), time)| (table, time));
            for (table, time) in tables {
                let since = self.replaced.entry(table).or_default();
                *since = time.max(*since);
            }
        }
        self.changed.insert(key, at);
    }

    /// The descriptors of a range stand for nothing any more.
    pub(super) fn note_range_closed(&mut self, tid: i32, (first, last): (u32, u32), at: u64) {
        let table = self.table(tid);
        let is_kept = |(t, fd): &(i32, i32)| {
            *t != table || !(first..=last).contains(&u32::try_from(*fd).unwrap_or(u32::MAX))
        };
        self.opened.retain(|key, _| is_kept(key));
        self.asked.retain(|key, _| is_kept(key));
        // Answers for descriptors that were not used yet are on their way.
        self.replaced.insert(table, at);
    }

    /// A task got a copy of its table of descriptors, which was that of others, too.
    pub(super) fn note_own_table(&mut self, tid: i32) {
        let old = self.table(tid);
        self.last_table = self.last_table.saturating_sub(1);
        self.tables.insert(tid, self.last_table);
        self.copy_table(old, self.last_table);
    }

    /// A task started another, which uses its table of descriptors or a copy of that.
    pub(super) fn note_started(&mut self, tid: i32, child: i32, shares_table: bool) {
        let table = self.table(tid);
        let is_thread = self.process(tid) == self.process(child);
        match shares_table {
            true if table == self.process(child) => {}
            true => _ = self.tables.insert(child, table),
            // The copy of a new process is found where its descriptors are used.
            false if !is_thread => {}
            false => {
                self.tables.insert(child, table);
                self.note_own_table(child);
            }
        }
    }

    /// Whether two tasks are of one process.
    pub(super) fn is_thread_of(&mut self, tid: i32, other: i32) -> bool {
        self.process(tid) == self.process(other)
    }

    fn copy_table(&mut self, from: i32, to: i32) {
        let of = |key: &(i32, i32)| key.0 == from;
        let opened = self.opened.iter().filter(|(key, _)| of(key));
        let opened: Vec<_> = opened.map(|(key, path)| ((to, key.1), path.clone())).collect();
        self.opened.extend(opened);
        let changed = self.changed.iter().filter(|(key, _)| of(key));
        let changed: Vec<_> = changed.map(|(key, time)| ((to, key.1), *time)).collect();
        self.changed.extend(changed);
        let replaced = self.replaced.get(&from).copied();
        replaced.into_iter().for_each(|time| _ = self.replaced.insert(to, time));
    }

    /// A process became another program: some descriptors are closed by that.
    pub(super) fn forget_process(&mut self, tid: i32, at: u64) {
        self.forget(tid);
        let process = self.process(tid);
        self.replaced.insert(process, at);
    }

    /// A task ended, or has a new table of descriptors.
    pub(super) fn forget(&mut self, tid: i32) {
        let process = self.process(tid);
        if process == tid {
            self.forget_table(process);
        }
        if let Some(table) = self.tables.remove(&tid).filter(|table| *table < 0)
            && !self.tables.values().any(|known| *known == table)
        {
            self.forget_table(table);
        }
        self.processes.remove(&tid);
    }

    fn forget_table(&mut self, table: i32) {
        self.opened.retain(|(t, _), _| *t != table);
        self.asked.retain(|(t, _), _| *t != table);
        self.changed.retain(|(t, _), _| *t != table);
        self.replaced.remove(&table);
    }

    /// Number of the table of descriptors of a task.
    fn table(&mut self, tid: i32) -> i32 {
        match self.tables.get(&tid) {
            Some(table) => *table,
            None => self.process(tid),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A process 10 with the threads 10 and 11, and a process 20; it knows no files.
    struct Threads;

    impl TaskInspector for Threads {
        fn call_format(&self, _name: &str) -> Option<EventFormat> {
            None
        }

        fn read_text(&self, _tid: i32, _address: u64, _most: usize) -> Option<(Vec<u8>, bool)> {
            None
        }

        fn read_memory(&self, _tid: i32, _address: u64, _buffer: &mut [u8]) -> Option<usize> {
            None
        }

        fn descriptor_path(&self, _tid: i32, _fd: i32) -> Option<String> {
            None
        }

        fn process_of(&self, tid: i32) -> Option<i32> {
            Some(if tid < 20 { 10 } else { 20 })
        }

        fn monotonic_time(&self) -> u64 {
            0
        }

        fn refresh_names(&mut self) {}

        fn task_name(&mut self, _tid: i32) -> &[u8] {
            b"x"
        }
    }

    #[test]
    fn copied_descriptor_tables_are_separate() {
        let mut details = DetailCache::new(Threads, 32);
        let open = |details: &mut DetailCache<Threads>, tid, path: &str| {
            details.note_opened((tid, 1), 3, Some(path.to_owned()));
        };
        open(&mut details, 10, "/a");
        assert_eq!(details.descriptor(11, 3), Some("/a"));
        // unshare(CLONE_FILES), or close_range(…, CLOSE_RANGE_UNSHARE).
        details.note_own_table(11);
        assert_eq!(details.descriptor(11, 3), Some("/a"));
        open(&mut details, 11, "/b");
        assert_eq!(details.descriptor(10, 3), Some("/a"));
        assert_eq!(details.descriptor(11, 3), Some("/b"));
        // What it starts uses its table, or a copy of it.
        details.note_started(11, 12, true);
        details.note_started(11, 13, false);
        details.note_closed(11, 3, 2);
        assert_eq!(details.descriptor(12, 3), None);
        assert_eq!(details.descriptor(13, 3), Some("/b"));
        // A process with the table of another.
        details.note_started(10, 20, true);
        assert_eq!(details.descriptor(20, 3), Some("/a"));
        details.note_closed(20, 3, 3);
        assert_eq!(details.descriptor(10, 3), None);
        // An exec ends that.
        open(&mut details, 10, "/c");
        details.forget_process(20, 4);
        assert_eq!(details.descriptor(20, 3), None);
        assert_eq!(details.descriptor(10, 3), Some("/c"));
    }
}
