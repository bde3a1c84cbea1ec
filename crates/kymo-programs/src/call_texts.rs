//! Memory that arguments of system calls point to, read by programs in the kernel while the calls
//! begin and end ([`kymo_bpf::call_reader`]), and matched with the events of the calls.
//!
//! The programs are attached before the events are enabled, so that they run first: when an event
//! can be read, what was read for it is in the ring. A record belongs to a call if it is of the
//! same thread, number and arguments (at the end: result), and between the call's event and the one
//! of its thread before. What cannot be matched is dropped.

use std::collections::VecDeque;

use kymo_bpf::{
    BpfInstruction, BpfMapType, BpfProgramType, CALL_HEADER, CALL_NUMBERS, CALL_READS_SIZE,
    CALL_SCRATCH, CallReaderMaps, CallSide, CompatMark, MemoryPiece, MemoryRead, call_pieces,
    call_reader, call_reads_bytes, follow_exec, follow_fork, forget_task,
};
use kymo_format::EventFormat;
use kymo_kernel::bpf::{BpfError, BpfLink, BpfMap, BpfProgram, BpfRing, MapSpec, ProgramSpec};
use kymo_kernel::perf_event::{OpenFlags, PerfEvent};
use kymo_model::{Attr, AttrFlags, EventType};
use rustc_hash::FxHashMap;
use std::os::fd::{AsFd as _, AsRawFd as _};

use crate::bytes::u64_at;
use crate::facts::KernelTypes;

/// Bytes of the ring.
const RING: usize = 8 << 20;
/// Bytes that wait for their events at most.
const MAX_WAITING: usize = 64 << 20;
/// Threads that are followed at most.
const MAX_TASKS: u32 = 1 << 16;
/// Looks at a ring in which another CPU still writes, before it is left alone.
const MAX_LOOKS: u32 = 10_000;

/// Tasks whose calls are read.
#[derive(Clone, Copy, Debug)]
pub enum ReadTasks<'a> {
    /// Those that are added, and their children if the format of `sched:sched_process_fork` is
    /// there.
    Added(Option<&'a EventFormat>),
    /// All but those of this process.
    AllBut(u32),
}

/// Programs in the kernel that read the memory of calls. Dropping it detaches them.
pub struct CallTexts {
    _links: Vec<BpfLink>,
    ring: BpfRing,
    reads: BpfMap,
    tasks: Option<BpfMap>,
    waiting: FxHashMap<u32, VecDeque<Record>>,
    bytes: usize,
    /// Time of the last event of each thread.
    last: FxHashMap<u32, u64>,
    /// Whether records say of which ABI calls are.
    tells_abi: bool,
}

/// A call that begins, as the programs have seen it.
#[derive(Clone, Debug, Default)]
pub struct CallEntry {
    /// Memory that its arguments point to.
    pub pieces: Vec<MemoryPiece>,
    /// Whether it is of the ABI of 32-bit programs; `None` where the kernel does not tell.
    pub is_compat: Option<bool>,
}

struct Record {
    time: u64,
    number: u16,
    is_end: bool,
    result: i64,
    arguments: [u64; 6],
    pieces: Vec<u8>,
}

impl CallTexts {
    /// Loads the programs and attaches them; `None` on machines whose registers are not known.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn start(tasks: ReadTasks<'_>) -> Result<Option<CallTexts>, BpfError> {
        let reads = map("reads", BpfMapType::Array, (4, CALL_READS_SIZE), 2 * CALL_NUMBERS)?;
        let scratch = map("scratch", BpfMapType::PerCpuArray, (4, CALL_SCRATCH), 1)?;
        let ring_map = map("texts", BpfMapType::RingBuffer, (0, 0), RING as u32)?;
        let retry = map("retry", BpfMapType::LruHash, (4, 8), 1 << 14)?;
        let followed = match tasks {
            ReadTasks::Added(_) => Some(map("tasks", BpfMapType::Hash, (4, 4), MAX_TASKS)?),
            ReadTasks::AllBut(_) => None,
        };
        let fd = |map: &BpfMap| map.as_fd().as_raw_fd();
        let maps = CallReaderMaps {
            reads: fd(&reads),
            scratch: fd(&scratch),
            ring: fd(&ring_map),
            retry: fd(&retry),
            tasks: followed.as_ref().map(fd),
            without: match tasks {
                ReadTasks::AllBut(pid) => pid,
                ReadTasks::Added(_) => 0,
            },
            compat: compat_mark(),
        };
        let tells_abi = maps.compat.is_some();
        let mut links = Vec::new();
        for (side, name) in [(CallSide::Enter, "sys_enter"), (CallSide::Exit, "sys_exit")] {
            let Some(code) = call_reader(side, &maps) else { return Ok(None) };
            let program = load(name, BpfProgramType::RawTracepoint, &code)?;
            links.push(BpfLink::to_raw_tracepoint(&program, Some(name))?);
        }
        if let (ReadTasks::Added(fork), Some(tasks)) = (tasks, &followed) {
            let program = load("forget", BpfProgramType::RawTracepoint, &forget_task(fd(tasks)))?;
            links.push(BpfLink::to_raw_tracepoint(&program, Some("sched_process_exit"))?);
            let program = load("executes", BpfProgramType::RawTracepoint, &follow_exec(fd(tasks)))?;
            links.push(BpfLink::to_raw_tracepoint(&program, Some("sched_process_exec"))?);
            if let Some(fork) = fork {
                links.push(follow(fork, fd(tasks))?);
            }
        }
        let ring = BpfRing::map(&ring_map, RING)?;
        let (waiting, last) = Default::default();
        let tasks = followed;
        let (bytes, _links) = (0, links);
        Ok(Some(CallTexts { _links, ring, reads, tasks, waiting, bytes, last, tells_abi }))
    }

    /// Defines the reads of the calls of this number, from their next one on. Numbers of the ABI of
    /// 32-bit programs begin at [`CALL_NUMBERS`].
    pub fn describe(&self, number: u16, reads: &[MemoryRead]) -> bool {
        !reads.is_empty()
            && u32::from(number) < 2 * CALL_NUMBERS
            && self.reads.update(&u32::from(number).to_ne_bytes(), &call_reads_bytes(reads)).is_ok()
    }

    /// Has the calls of a thread read.
    pub fn add_task(&self, tid: u32) {
        if let Some(tasks) = &self.tasks {
            // A full map: its texts are shown as addresses.
            let _ = tasks.update(&tid.to_ne_bytes(), &1u32.to_ne_bytes());
        }
    }

    /// Returns the memory read at the start of the call whose event has this time; must be called
    /// for each call start, in order.
    pub fn at_entry(
        &mut self,
        (tid, time): (u32, u64),
        number: i64,
        arguments: &[u64; 6],
    ) -> CallEntry {
        let after = self.last.insert(tid, time).unwrap_or_default();
        let is_it = |record: &Record| !record.is_end && record.arguments == *arguments;
        let record = self.take(tid, (after, time), number, is_it);
        let is_compat = record.as_ref().is_some_and(Record::is_compat);
        CallEntry {
            pieces: record.map(|record| call_pieces(&record.pieces)).unwrap_or_default(),
            is_compat: self.tells_abi.then_some(is_compat),
        }
    }

    /// Returns the memory read at the end of a call.
    pub fn at_exit(
        &mut self,
        (tid, time): (u32, u64),
        number: i64,
        result: i64,
    ) -> Vec<MemoryPiece> {
        let after = self.last.insert(tid, time).unwrap_or_default();
        let is_it = |record: &Record| record.is_end && record.result == result;
        let record = self.take(tid, (after, time), number, is_it);
        record.map(|record| call_pieces(&record.pieces)).unwrap_or_default()
    }

    /// Forgets what waits: events were lost.
    pub fn forget_all(&mut self) {
        self.drain();
        self.waiting.clear();
        self.bytes = 0;
    }

    /// Forgets a thread that ended.
    pub fn forget(&mut self, tid: u32) {
        self.drain();
        self.last.remove(&tid);
        if let Some(records) = self.waiting.remove(&tid) {
            self.bytes -= records.iter().map(Record::size).sum::<usize>().min(self.bytes);
        }
    }

    fn take(
        &mut self,
        tid: u32,
        (after, until): (u64, u64),
        number: i64,
        is_it: impl Fn(&Record) -> bool,
    ) -> Option<Record> {
        self.drain();
        let records = self.waiting.get_mut(&tid)?;
        let mut found = None;
        while let Some(record) = records.pop_front_if(|record| record.time <= until) {
            self.bytes -= record.size().min(self.bytes);
            found = Some(record);
        }
        if records.is_empty() {
            self.waiting.remove(&tid);
        }
        found.filter(|record| {
            let of_abi = u32::from(record.number) % CALL_NUMBERS;
            record.time > after && i64::from(of_abi) == number && is_it(record)
        })
    }

    /// Takes all records that were begun up to now.
    fn drain(&mut self) {
        let mut left = self.ring.pending();
        let mut looks = 0;
        while left > 0 && looks < MAX_LOOKS {
            let (waiting, bytes) = (&mut self.waiting, &mut self.bytes);
            let read = self.ring.read(left, |bytes_of_record| {
                if let Some((tid, record)) = Record::decode(bytes_of_record) {
                    *bytes += record.size();
                    waiting.entry(tid).or_default().push_back(record);
                }
                true
            });
            left = left.saturating_sub(read);
            if read == 0 {
                // Another CPU is about to finish one.
                looks += 1;
                std::thread::yield_now();
            }
        }
        if self.bytes > MAX_WAITING {
            self.waiting.clear();
            self.bytes = 0;
        }
    }
}

impl Record {
    fn decode(bytes: &[u8]) -> Option<(u32, Record)> {
        let (header, pieces) = bytes.split_at_checked(CALL_HEADER)?;
        let word = u64_at(header, 8);
        let argument = |n: usize| u64_at(header, 24 + 8 * n);
        let record = Record {
            time: u64_at(header, 0),
            number: (word >> 32) as u16,
            is_end: word >> 48 == 2,
            result: u64_at(header, 16) as i64,
            arguments: std::array::from_fn(argument),
            pieces: pieces.to_vec(),
        };
        Some((word as u32, record))
    }

    fn size(&self) -> usize {
        size_of::<Record>() + self.pieces.len()
    }

    fn is_compat(&self) -> bool {
        u32::from(self.number) >= CALL_NUMBERS
    }
}

/// Returns the field in which this kernel marks a call of the 32-bit ABI.
fn compat_mark() -> Option<CompatMark> {
    // TS_COMPAT of x86; TIF_32BIT of AArch64.
    let (member, bits) = match std::env::consts::ARCH {
        "x86_64" => ("status", 2),
        "aarch64" => ("flags", 1 << 22),
        _ => return None,
    };
    let types = KernelTypes::running()?;
    let info = types.member_offset("task_struct", "thread_info")?;
    let word = types.member_offset("thread_info", member)?;
    Some(CompatMark { offset: i32::try_from(info + word).ok()?, bits })
}

fn map(
    name: &str,
    map_type: BpfMapType,
    (key_size, value_size): (u32, u32),
    max_entries: u32,
) -> Result<BpfMap, BpfError> {
    let map_type = map_type as u32;
    let spec = MapSpec {
        inner: None,
        name,
        map_type,
        key_size,
        value_size,
        max_entries,
        flags: 0,
        values: 1,
    };
    BpfMap::create(&spec)
}

fn load(
    name: &str,
    program_type: BpfProgramType,
    code: &[BpfInstruction],
) -> Result<BpfProgram, BpfError> {
    let instructions: Vec<u8> = code.iter().flat_map(|i| i.to_bytes()).collect();
    BpfProgram::load(&ProgramSpec {
        name,
        program_type: program_type as u32,
        instructions: &instructions,
        ..ProgramSpec::default()
    })
}

/// Has the children of followed threads followed.
fn follow(fork: &EventFormat, tasks: i32) -> Result<BpfLink, BpfError> {
    let place = |field| fork.field(field).map_or(0, |f| f.offset as i16);
    let code = follow_fork(tasks, place("parent_pid"), place("child_pid"));
    let program = load("follow", BpfProgramType::Tracepoint, &code)?;
    let attr = Attr {
        kind: EventType::TRACEPOINT,
        config: u64::from(fork.id),
        sample_period: 1,
        wakeup: 1,
        flags: AttrFlags::DISABLED,
        ..Attr::default()
    };
    let event = PerfEvent::open(&attr, -1, 0, None, OpenFlags::NONE).map_err(|e| BpfError {
        action: "open sched_process_fork".into(),
        error: std::io::Error::from_raw_os_error(e.errno),
        log: String::new(),
    })?;
    BpfLink::to_tracepoint(&program, event)
}
