//! Entries and exits of system calls, paired to lines.
//!
//! A line is written when the call returns, so lines are in the order of
//! returns. What has not returned when the task or the trace ends has `?` for a
//! result.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kymo_analysis::syscalls::CallWaits;
use kymo_bpf::{CALL_NUMBERS, MemoryPiece};
use kymo_format::{EventFormat, json_string};
use kymo_model::{Endian, Note, NoteKind, UntrustedText, counted};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::enum_names::EnumNames;
use crate::perf_trace::{PerfTraceOptions, PerfTraceStarts};

use super::arguments::{ArgumentDetail, ArgumentKind, SyscallDescription, write_argument};
use super::details::{CallDetails, DetailCache, TaskInspector, seconds};
use super::errno::{errno_name, errno_text};
use super::flags;
use super::memory::{MemoryShape, ReadMemory, slot_of};
use super::numbers::{COMPAT_CALLS, is_compat, is_x32, plain_number, syscall_name};
use super::summary::{SummaryStyle, SyscallSummary, abi_name};
use super::waits::{CallWaiting, Return, SlowestCall, WaitFormats, switched};

/// Results from here on are errors: -4095 … -1.
const FIRST_ERROR: i64 = -4095;

/// Turns the events of calls into lines.
pub struct SyscallLines<I> {
    /// Text that was written and not taken yet.
    pub output: Vec<u8>,
    /// Calls that were shown.
    pub shown: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Ring pages that could not be read to their end.
    pub damaged: u64,
    /// Events that were read so far, shown or not.
    pub inspected: u64,
    formats: Option<SyscallFormats>,
    calls: FxHashMap<i64, Rc<SyscallDescription>>,
    open: FxHashMap<i32, PendingCall>,
    details: DetailCache<I>,
    texts: u64,
    unread: u64,
    seen: FxHashSet<i32>,
    /// The command's process while it still runs the tool's own code.
    gated: Option<i32>,
    summary: Option<SyscallSummary>,
    waiting: Option<CallWaiting>,
    style: SyscallStyle,
    /// Calls by number that are shown; all where there are none. Others are followed only.
    only: Vec<i64>,
    left: Option<u64>,
    /// Calls that had begun before the trace, by name.
    continued: BTreeMap<String, u64>,
    fresh: bool,
    enums: EnumNames,
    /// Lines are those of perf trace.
    perf_trace: Option<PerfTraceStarts>,
    /// CPU of the current event.
    cpu: u32,
    sampled: SampledCall,
}

/// Sampled details of a call that ends.
#[derive(Debug, Default)]
pub struct SampledCall {
    /// Stack of the call, as lines or as a member of its object.
    pub stack: Vec<u8>,
    /// Its stack has fewer frames than those of calls that are shown must have.
    pub is_too_short: bool,
    /// The cgroup of its task.
    pub cgroup: Option<Arc<[u8]>>,
}

/// Layout of the lines of system calls.
#[derive(Clone, Copy, Debug)]
pub struct SyscallStyle {
    /// A line for each call.
    pub lines: bool,
    /// A table of all calls at the end.
    pub summary: bool,
    /// Layout of the table.
    pub tables: SummaryStyle,
    /// Lines are JSON objects.
    pub json: bool,
    /// Lines begin with the time of the call.
    pub times: bool,
    /// Names and errors are in colour.
    pub colour: bool,
    /// Calls that took less are not shown.
    pub least: Duration,
    /// Calls that succeeded are not shown.
    pub failures_only: bool,
    /// Lines begin with the task, as there are tasks of several programs.
    pub tasks: bool,
    /// The trace's clock is the one that is read with a task's memory.
    pub monotonic: bool,
    /// Bytes of a buffer that are shown at most.
    pub string_limit: usize,
    /// Lines say on which CPU a call ended.
    pub cpus: bool,
    /// Events come from a recording, without the memory of tasks.
    pub is_recorded: bool,
}

/// Formats of the four events that calls are made of.
#[derive(Debug)]
pub struct SyscallFormats {
    /// `raw_syscalls:sys_enter`.
    pub enter: EventFormat,
    /// `raw_syscalls:sys_exit`.
    pub exit: EventFormat,
    /// `sched:sched_process_exec`.
    pub exec: EventFormat,
    /// `sched:sched_process_exit`.
    pub end: EventFormat,
}

/// A call that has not returned.
struct PendingCall {
    time: u64,
    number: i64,
    call: Rc<SyscallDescription>,
    args: [u64; 6],
    details: CallDetails,
    waits: CallWaits,
    memory: Vec<MemoryPiece>,
    /// Whether it started before the trace, at an unknown time.
    is_continued: bool,
}

/// A call's end.
#[derive(Clone, Copy)]
enum CallEnd {
    /// It returned.
    Returned { at: u64, value: i64 },
    /// The task ended in it.
    Task,
    /// The trace ended before it did.
    Trace,
}

impl<I: TaskInspector> SyscallLines<I> {
    /// `child`: the command's process, which is not the command before it executes it.
    /// `left`: lines that are shown at most. `formats`: those of events that come as bytes.
    pub fn new(
        formats: Option<SyscallFormats>,
        inspector: I,
        style: SyscallStyle,
        child: Option<i32>,
        left: Option<u64>,
    ) -> SyscallLines<I> {
        SyscallLines {
            output: Vec::new(),
            shown: 0,
            lost: 0,
            damaged: 0,
            inspected: 0,
            formats,
            calls: FxHashMap::default(),
            open: FxHashMap::default(),
            details: DetailCache::new(inspector, style.string_limit),
            texts: 0,
            unread: 0,
            seen: FxHashSet::default(),
            gated: child,
            summary: style.summary.then(|| SyscallSummary::new(style.tables)),
            waiting: None,
            style,
            only: Vec::new(),
            left,
            continued: BTreeMap::new(),
            fresh: false,
            enums: EnumNames::default(),
            perf_trace: None,
            cpu: 0,
            sampled: SampledCall::default(),
        }
    }

    /// Sets the names of arguments that are enumerations of the kernel.
    pub fn with_enums(self, enums: EnumNames) -> SyscallLines<I> {
        SyscallLines { enums, ..self }
    }

    /// Sets lines in the format of perf trace.
    pub fn as_perf_trace(self, options: PerfTraceOptions) -> SyscallLines<I> {
        SyscallLines { perf_trace: Some(PerfTraceStarts::new(options)), ..self }
    }

    /// Sets the calls with lines; other calls are read to track descriptors.
    pub fn with_calls(self, only: Vec<i64>) -> SyscallLines<I> {
        SyscallLines { only, ..self }
    }

    /// Adds the waits of the slowest calls, by events of the scheduler.
    pub fn with_waits(self, formats: WaitFormats) -> SyscallLines<I> {
        SyscallLines { waiting: Some(CallWaiting::new(formats)), ..self }
    }

    /// The slowest calls, the slowest first, with the names of their wakers.
    pub fn take_slowest(&mut self) -> Vec<SlowestCall> {
        let mut slowest =
            self.waiting.take().map_or_else(Vec::new, |mut w| std::mem::take(&mut w.slowest));
        self.details.inspector.refresh_names();
        let blocks = slowest.iter_mut().flat_map(|call| &mut call.waits.blocks);
        // Names that were not known yet when the calls ended.
        let wakers = blocks.filter_map(|block| block.woken_by.as_mut());
        for (comm, tid, _) in wakers.filter(|(comm, ..)| comm.is_empty() || comm == b"<...>") {
            *comm = self.details.inspector.task_name(*tid as i32).to_vec();
        }
        slowest
    }

    /// Says of all calls that are shown what is to be read of their memory.
    pub fn describe_calls(&mut self) {
        let native = 0..i64::from(CALL_NUMBERS);
        let compat = COMPAT_CALLS..COMPAT_CALLS + i64::from(CALL_NUMBERS);
        for number in native.chain(compat) {
            if !self.style.lines || syscall_name(number).is_none() {
                continue;
            }
            let call = self.call(number);
            if self.only.is_empty() || self.only.contains(&number) || call.returns_fd {
                let limit = self.style.string_limit;
                let reads: Vec<_> = call.shapes().map(|(n, shape)| shape.read(n, limit)).collect();
                let after = if is_compat(number) { i64::from(CALL_NUMBERS) } else { 0 };
                let _ = self.details.inspector.describe(plain_number(number) + after, &reads);
            }
        }
    }

    /// Whether as many lines were shown as were asked for.
    pub fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Whether the memory of tasks is read, which must happen soon.
    pub fn inspects(&self) -> bool {
        self.style.lines
    }

    /// Has the names of tasks read again before they are shown: they may have changed.
    pub fn expire_names(&mut self) {
        self.fresh = false;
    }

    /// Looks up what the arguments of a call point to: its entry was read from the ring, and
    /// it may still go on.
    pub fn inspect(&mut self, time: u64, payload: &[u8]) {
        self.inspected += 1;
        let (true, Some(formats), Some(id)) = (self.style.lines, &self.formats, self.id(payload))
        else {
            return;
        };
        if id == formats.enter.id {
            let Some((tid, number, args)) = self.decode_entry(payload) else { return };
            let is_compat = self.details.inspector.is_compat_task(tid);
            let call = self.call(number_of(number, is_compat == Some(true)));
            self.details.foresee(tid, time, &call.name, &args);
            self.details.look_up(tid, time, &call, &args);
        } else if id == formats.exit.id {
            let number = int(&formats.exit, "id", payload);
            let value = int(&formats.exit, "ret", payload);
            let tid = tid_of(payload);
            let is_compat = self.details.inspector.is_compat_task(tid);
            let call = self.call(number_of(number, is_compat == Some(true)));
            if let (true, Ok(fd @ 0..)) = (call.returns_fd, i32::try_from(value)) {
                self.details.foresee_one(tid, time, fd);
            }
        } else if id == formats.exec.id {
            self.details.foresee_all(tid_of(payload), time);
        }
    }

    /// The rings are about to be read: [`inspect`](Self::inspect) gets what is in them.
    pub fn begin_reading(&mut self) {
        self.details.begin_reading();
    }

    /// All rings have been read to their ends.
    pub fn end_reading(&mut self) {
        self.details.end_reading();
    }

    /// Takes an event of a CPU in its turn.
    pub fn event(&mut self, cpu: u32, time: u64, payload: &[u8]) {
        self.cpu = cpu;
        let (Some(formats), Some(id)) = (&self.formats, self.id(payload)) else { return };
        let tid = tid_of(payload);
        if id == formats.enter.id {
            let Some((tid, number, args)) = self.decode_entry(payload) else { return };
            self.enter_call((tid, time), number, args);
        } else if id == formats.exit.id {
            let number = int(&formats.exit, "id", payload);
            let value = int(&formats.exit, "ret", payload);
            self.exit_call((tid, time), number, value);
        } else if id == formats.exec.id {
            let field = formats.exec.field("filename");
            let name = field.map(|f| f.bytes(payload, Endian::NATIVE)).unwrap_or_default();
            let name = name.split(|b| *b == 0).next().unwrap_or_default().to_vec();
            let before = int(&formats.exec, "old_pid", payload);
            self.execute((tid, time), i32::try_from(before).unwrap_or(tid), name);
        } else if id == formats.end.id {
            let comm = formats.end.field("comm").map(|f| f.bytes(payload, Endian::NATIVE));
            let comm = comm.unwrap_or_default().split(|b| *b == 0).next().unwrap_or_default();
            let comm = comm.to_vec();
            self.end_task(tid, Some(&comm));
        } else {
            self.scheduler_event(id, time, payload);
        }
    }

    /// Takes a recorded call that begins; `texts`: arguments whose texts are recorded, by place.
    pub fn recorded_entry(
        &mut self,
        event: (i32, u64),
        number: i64,
        args: [u64; 6],
        texts: Vec<(usize, Vec<u8>)>,
    ) {
        self.inspected += 1;
        self.enter_call(event, number, args);
        let Some(pending) = self.open.get_mut(&event.0) else { return };
        for (place, bytes) in texts {
            if let Some(detail) = pending.details.arguments.get_mut(place) {
                *detail = ArgumentDetail::Memory { bytes, whole: true };
            }
        }
    }

    /// Takes a call that began before the trace, of a task that has been in it since events come:
    /// its end is the first that they tell of it. `time`: when that was found.
    pub fn continued_call(&mut self, (tid, time): (i32, u64), number: i64, args: [u64; 6]) {
        let is_compat = self.details.inspector.is_compat_task(tid);
        let number = number_of(number, is_compat == Some(true));
        let call = self.call(number);
        let is_chosen = self.only.is_empty() || self.only.contains(&number);
        if is_chosen {
            *self.continued.entry(call.name.clone()).or_default() += 1;
        }
        let mut details = CallDetails::default();
        if self.style.lines {
            self.details.look_up(tid, time, &call, &args);
            details = self.details.take(tid, time).unwrap_or_default();
        }
        let (waits, memory, is_continued) = (CallWaits::default(), Vec::new(), true);
        let pending =
            PendingCall { time, number, call, args, details, waits, memory, is_continued };
        self.open.insert(tid, pending);
    }

    /// Takes a recorded call that ends on a CPU.
    pub fn recorded_exit(
        &mut self,
        cpu: u32,
        event: (i32, u64),
        (number, value): (i64, i64),
        sampled: SampledCall,
    ) {
        self.cpu = cpu;
        self.inspected += 1;
        self.sampled = sampled;
        self.exit_call(event, number, value);
        self.sampled = SampledCall::default();
    }

    /// Takes an event that is no call: its words, or the members of its object, and its stack as
    /// calls have it.
    pub fn other_event(&mut self, cpu: u32, event: (i32, u64), words: &[u8], stack: &[u8]) {
        self.cpu = cpu;
        self.inspected += 1;
        if !self.style.lines || self.is_full() {
            return;
        }
        if self.style.json {
            self.start_json(event, self.style.cpus);
            self.output.push(b',');
            self.output.extend_from_slice(words);
            self.output.extend_from_slice(stack);
            self.output.extend_from_slice(b"}\n");
        } else {
            self.start_text(event, self.style.cpus);
            self.output.extend_from_slice(words);
            self.output.push(b'\n');
            self.output.extend_from_slice(stack);
        }
        self.count_line();
    }

    /// Counts time that a task ran on a CPU.
    pub fn add_runtime(&mut self, tid: i32, cgroup: Option<&Arc<[u8]>>, nanos: u64) {
        if let Some(summary) = &mut self.summary {
            let group = summary.group(tid, cgroup);
            summary.add_runtime(group, nanos);
        }
    }

    fn count_line(&mut self) {
        self.shown += 1;
        self.left = self.left.map(|n| n.saturating_sub(1));
    }

    /// Source of facts about tasks.
    pub fn inspector_mut(&mut self) -> &mut I {
        &mut self.details.inspector
    }

    /// Forgets the call that a task is in: its end is not wanted.
    pub fn forget_call(&mut self, tid: i32) {
        self.open.remove(&tid);
        self.details.inspector.forget_memory(Some(tid));
    }

    /// Ends the call of a task that ends. `comm`: its name, where the event states it: it may not
    /// be available any more when the event is read.
    pub fn end_task(&mut self, tid: i32, comm: Option<&[u8]>) {
        if let Some(pending) = self.open.remove(&tid) {
            self.finish_call(tid, pending, CallEnd::Task);
        }
        if let Some(summary) = self.summary.as_mut().filter(|summary| summary.has_thread(tid)) {
            let told = comm.filter(|comm| !comm.is_empty());
            let name = told.unwrap_or_else(|| self.details.inspector.task_name(tid));
            let name = name.iter().map(|b| if b.is_ascii_control() { b'?' } else { *b });
            summary.end_thread(tid, name.collect());
        }
        self.details.forget(tid);
        self.details.inspector.forget_memory(Some(tid));
    }

    fn scheduler_event(&mut self, id: u32, time: u64, payload: &[u8]) {
        let Some(waiting) = &mut self.waiting else { return };
        if id == waiting.formats.waking.id {
            return waiting.wake(time, payload);
        }
        if id != waiting.formats.switch.id {
            return;
        }
        let Some((prev, next)) = switched(&waiting.formats.switch, payload) else { return };
        waiting.note_name(next, payload);
        if let Some(pending) = self.open.get_mut(&next) {
            let PendingCall { waits, call, .. } = pending;
            waiting.resume((next, time), Return::Now, waits, &call.name);
        }
        if let Some(pending) = self.open.get_mut(&prev) {
            let PendingCall { waits, call, .. } = pending;
            waiting.leave((prev, time), payload, waits, &call.name);
        }
    }

    /// Takes note of events that were lost.
    pub fn lost(&mut self, cpu: u32, count: Option<u64>) {
        self.lost += count.unwrap_or(1);
        // Beginnings and ends do not belong together any more.
        self.open.clear();
        self.waiting.iter_mut().for_each(CallWaiting::forget);
        self.details.inspector.forget_memory(None);
        if self.style.lines {
            let count = count.map_or(String::new(), |n| format!("{n} "));
            let _ = if self.style.json {
                writeln!(self.output, "{{\"lost\":true,\"cpu\":{cpu}}}")
            } else {
                writeln!(self.output, "CPU:{cpu} [LOST {count}EVENTS]")
            };
        }
    }

    /// Writes the calls that have not returned, and the table: the trace is over.
    pub fn finish(&mut self) {
        let mut rest: Vec<(i32, PendingCall)> = self.open.drain().collect();
        rest.sort_by_key(|(_, b)| b.time);
        for (tid, pending) in rest {
            if !self.is_full() {
                self.finish_call(tid, pending, CallEnd::Trace);
            }
        }
        if let Some(summary) = self.summary.take() {
            if self.style.lines && !self.output.is_empty() {
                self.output.push(b'\n');
            }
            let inspector = &mut self.details.inspector;
            inspector.refresh_names();
            summary.write(&mut self.output, &mut |tid, out| {
                let name = inspector.task_name(tid).iter();
                out.extend(name.map(|b| if b.is_ascii_control() { b'?' } else { *b }));
            });
        }
    }

    /// Notes what makes the lines less than the truth.
    pub fn note(&self, note: &mut dyn FnMut(Note)) {
        if !self.continued.is_empty() {
            let names = self.continued.iter().map(|(name, count)| match count {
                1 => name.clone(),
                _ => format!("{name} ({count})"),
            });
            let total = self.continued.values().sum();
            let calls = counted(total, "call had", "calls had");
            let names = names.collect::<Vec<_>>().join(", ");
            let fact = format!("{calls} begun before the trace, when is not known: {names}");
            note(if self.style.summary {
                let fact = format!("{fact}; not in the tables");
                Note::doubt(NoteKind::Scope, fact, None)
            } else {
                Note::choice(NoteKind::Scope, fact, None)
            });
        }
        let (unread, texts) = (self.unread, self.texts);
        if unread > 0 && self.style.is_recorded {
            let fact = format!(
                "{unread} of {texts} strings are shown as addresses: the recording does not contain them"
            );
            note(Note::doubt(NoteKind::Unread, fact, None));
        } else if unread > 0 {
            let fact = format!(
                "{unread} of {texts} strings are shown as addresses: they could not be read during the call"
            );
            note(Note::doubt(NoteKind::Unread, fact, None));
        }
    }

    fn id(&self, payload: &[u8]) -> Option<u32> {
        EventFormat::payload_id(payload, Endian::NATIVE).map(u32::from)
    }

    fn call(&mut self, number: i64) -> Rc<SyscallDescription> {
        let inspector = &self.details.inspector;
        let load = || SyscallDescription::load(number, |name| inspector.call_format(name));
        Rc::clone(self.calls.entry(number).or_insert_with(|| Rc::new(load())))
    }

    fn decode_entry(&self, payload: &[u8]) -> Option<(i32, i64, [u64; 6])> {
        let enter = &self.formats.as_ref()?.enter;
        let number = int(enter, "id", payload);
        let mut args = [0; 6];
        if let Some(field) = enter.field("args") {
            let words = field.bytes(payload, Endian::NATIVE).chunks_exact(size_of::<usize>());
            for (arg, word) in args.iter_mut().zip(words) {
                *arg = word.try_into().map(usize::from_ne_bytes).unwrap_or(0) as u64;
            }
        }
        Some((tid_of(payload), number, args))
    }

    fn enter_call(&mut self, (tid, time): (i32, u64), number: i64, args: [u64; 6]) {
        let mut details = self.details.take(tid, time).unwrap_or_default();
        let entry = self.details.inspector.memory_at_entry((tid, time), number, &args);
        let memory = entry.pieces;
        let of_program = self.details.inspector.is_compat_task(tid);
        let is_compat = entry.is_compat.or(of_program).unwrap_or(false);
        if of_program.is_some_and(|of_program| of_program != is_compat) {
            // What was looked up is of another call.
            details = CallDetails::default();
        }
        let number = number_of(number, is_compat);
        // Registers are wider than the arguments of such calls.
        let of_abi = |word: u64| if is_compat { word & u64::from(u32::MAX) } else { word };
        let args = args.map(of_abi);
        // Of what happens before the command is there only the execve(2) that succeeds
        // is shown, and that is not known yet.
        if self.gated == Some(tid) && syscall_name(number) != Some("execve") {
            return;
        }
        let call = self.call(number);
        let waits = CallWaits::default();
        let is_continued = false;
        let pending =
            PendingCall { time, number, call, args, details, waits, memory, is_continued };
        let before = self.open.insert(tid, pending);
        if let Some(before) = before.filter(|_| self.gated != Some(tid)) {
            // Its end was lost, or it is one that never returns here (rt_sigreturn).
            self.finish_call(tid, before, CallEnd::Task);
        }
    }

    fn exit_call(&mut self, (tid, at): (i32, u64), number: i64, value: i64) {
        let memory = self.details.inspector.memory_at_exit((tid, at), number, value);
        if self.open.get(&tid).is_some_and(|b| ends(b, number))
            && let Some(mut pending) = self.open.remove(&tid)
            && self.gated != Some(tid)
        {
            pending.memory.extend(memory);
            if let Some(waiting) = &mut self.waiting {
                waiting.resume((tid, at), Return::Before, &mut pending.waits, &pending.call.name);
            }
            self.finish_call(tid, pending, CallEnd::Returned { at, value });
        }
    }

    /// The program's name comes with the event; the memory it stood in is gone. `before`: the
    /// thread's number when it began the call, which becomes that of its process.
    pub fn execute(&mut self, (tid, time): (i32, u64), before: i32, name: Vec<u8>) {
        if before != tid
            && let Some(call) = self.open.remove(&before)
            && let Some(ended) = self.open.insert(tid, call)
        {
            self.finish_call(tid, ended, CallEnd::Task);
        }
        if self.gated == Some(tid) {
            self.gated = None;
        }
        if let Some(pending) = self.open.get_mut(&tid)
            && pending.call.name == "execve"
            && let Some(detail) = pending.details.arguments.first_mut()
        {
            *detail = ArgumentDetail::Memory { bytes: name, whole: true };
            pending.details.read_at = None;
        }
        self.details.forget_process(tid, time);
        self.details.inspector.forget_program(tid);
    }

    fn finish_call(&mut self, tid: i32, mut pending: PendingCall, end: CallEnd) {
        let is_chosen = self.only.is_empty() || self.only.contains(&pending.number);
        let is_counted = is_chosen && !pending.is_continued;
        if let (true, Some(summary), CallEnd::Returned { at, value }) =
            (is_counted, &mut self.summary, end)
        {
            let error = (FIRST_ERROR..0).contains(&value).then_some(-value as i32);
            let took = at.saturating_sub(pending.time);
            let group = summary.group(tid, self.sampled.cgroup.as_ref());
            summary.count(group, (pending.number, &pending.call.name), error, took);
            if self.waiting.as_ref().is_some_and(|waiting| waiting.is_slow(took)) {
                let result = self.result_text(tid, &pending, value);
                let mut text = format!("{}(", pending.call.name).into_bytes();
                let arguments: Vec<_> =
                    argument_texts(&pending, &self.enums).map(|(_, text)| text).collect();
                text.extend(arguments.join(&b", "[..]));
                text.extend(format!(") = {result}").into_bytes());
                let mut waits = std::mem::take(&mut pending.waits);
                let wakers = waits.blocks.iter_mut().filter_map(|b| b.woken_by.as_mut());
                for (name, by, _) in wakers.filter(|(name, ..)| name.is_empty()) {
                    *name = self.details.inspector.task_name(*by as i32).to_vec();
                }
                let call = SlowestCall { tid, start: pending.time, duration: took, text, waits };
                self.waiting.iter_mut().for_each(|waiting| waiting.keep(call.clone()));
            }
        }
        if self.style.lines && !self.is_full() {
            let (texts, unread) = self.settle_details(tid, &mut pending, end);
            if let CallEnd::Returned { at, value } = end {
                let call = (&*pending.call, &pending.args, &pending.details);
                self.details.track_descriptors(tid, call, (value, at));
            }
            if !is_chosen || !self.wants(&pending, end) {
                return;
            }
            self.texts += texts;
            self.unread += unread;
            if self.style.json {
                self.write_json(tid, &pending, end)
            } else {
                self.write_text(tid, &pending, end)
            }
            self.count_line();
        }
    }

    /// Whether a call is shown, as far as its end decides.
    fn wants(&self, pending: &PendingCall, end: CallEnd) -> bool {
        match end {
            CallEnd::Returned { .. } if self.sampled.is_too_short => false,
            CallEnd::Returned { at, value } => {
                let took = Duration::from_nanos(at.saturating_sub(pending.time));
                let failed = (FIRST_ERROR..0).contains(&value);
                took >= self.style.least && (failed || !self.style.failures_only)
            }
            // How long it would have taken, and to what end, is not known.
            CallEnd::Task | CallEnd::Trace => {
                self.style.least.is_zero() && !self.style.failures_only
            }
        }
    }

    /// Settles the details of the arguments, as of the call's own time. Returns the number of
    /// those in memory, and of those that could not be read.
    fn settle_details(&mut self, tid: i32, pending: &mut PendingCall, end: CallEnd) -> (u64, u64) {
        let (mut texts, mut unread) = (0, 0);
        let late = match (end, pending.details.read_at) {
            (CallEnd::Returned { at, .. }, Some(read)) => !self.style.monotonic || read > at,
            // It is not known when the task went on.
            (CallEnd::Task, Some(_)) => true,
            _ => false,
        };
        let result = match end {
            CallEnd::Returned { value, .. } => value,
            CallEnd::Task | CallEnd::Trace => -1,
        };
        let (pieces, args) = (&pending.memory, &pending.args);
        let memory = ReadMemory { pieces, args, result, limit: self.style.string_limit };
        let is_read = self.details.inspector.reads_calls();
        let shapes = || pending.call.shapes().map(|(_, shape)| shape);
        for (place, (n, shape)) in pending.call.shapes().enumerate() {
            let (Some(value), Some(detail)) =
                (pending.args.get(n), pending.details.arguments.get_mut(n))
            else {
                continue;
            };
            if *value == 0 || shape.is_written() && result < 0 {
                continue;
            }
            let slot = slot_of(shapes(), place);
            match detail {
                ArgumentDetail::Memory { .. } if late => *detail = ArgumentDetail::None,
                ArgumentDetail::Memory { .. } => {}
                _ if shape == MemoryShape::Text => {
                    if let Some((text, whole)) = memory.path(slot) {
                        *detail = ArgumentDetail::Memory { bytes: text.to_vec(), whole };
                    }
                }
                _ => {
                    if let Some(text) = memory.text(shape, slot) {
                        *detail = ArgumentDetail::Written(text);
                    }
                }
            }
            // Without programs in the kernel only what calls are given is asked for.
            if is_read || matches!(shape, MemoryShape::Text | MemoryShape::Bytes(_)) {
                texts += 1;
                unread += u64::from(*detail == ArgumentDetail::None);
            }
        }
        let details = pending.details.arguments.iter_mut();
        for ((arg, value), detail) in pending.call.args.iter().zip(&pending.args).zip(details) {
            if let ArgumentKind::Fd | ArgumentKind::DirFd = arg.kind {
                let found = std::mem::take(detail);
                let monotonic = self.style.monotonic;
                let call = (tid, pending.time);
                *detail = self.details.settle_file(call, *value as i32, found, monotonic);
            }
        }
        (texts, unread)
    }

    /// Writes who, when and where.
    fn start_text(&mut self, (tid, time): (i32, u64), has_cpu: bool) {
        self.seen.insert(tid);
        if self.style.tasks {
            if !std::mem::replace(&mut self.fresh, true) {
                self.details.inspector.refresh_names();
            }
            let _ = write!(self.output, "[pid {tid:>5} ");
            let name = self.details.inspector.task_name(tid);
            let name = name.iter().map(|b| if b.is_ascii_control() { b'?' } else { *b });
            self.output.extend(name);
            self.output.extend_from_slice(b"] ");
        } else if self.seen.len() > 1 {
            let _ = write!(self.output, "[pid {tid:>5}] ");
        }
        if self.style.times {
            let _ = write!(self.output, "{} ", seconds(Duration::from_nanos(time)));
        }
        if has_cpu {
            let _ = write!(self.output, "[{:03}] ", self.cpu);
        }
    }

    fn write_text(&mut self, tid: i32, pending: &PendingCall, end: CallEnd) {
        let paint =
            |style: anstyle::Style| if self.style.colour { style } else { anstyle::Style::new() };
        let name = paint(anstyle::AnsiColor::Yellow.on_default().bold());
        let bad = paint(anstyle::AnsiColor::Red.on_default());
        let has_cpu = self.style.cpus && matches!(end, CallEnd::Returned { .. });
        if self.perf_trace.is_some() {
            return self.write_as_perf(tid, pending, end);
        }
        self.start_text((tid, pending.time), has_cpu);
        let continued = if pending.is_continued { "... [continued]: " } else { "" };
        let _ = write!(self.output, "{continued}{name}{}{name:#}(", pending.call.name);
        for (i, (_, arg)) in argument_texts(pending, &self.enums).enumerate() {
            self.output.extend_from_slice(if i > 0 { b", " } else { b"" });
            self.output.extend_from_slice(&arg);
        }
        self.output.extend_from_slice(b") = ");
        let _ = match end {
            CallEnd::Task => writeln!(self.output, "?"),
            CallEnd::Trace => writeln!(self.output, "? <unfinished ...>"),
            CallEnd::Returned { at, value } => {
                let result = self.result_text(tid, pending, value);
                let style =
                    if (FIRST_ERROR..0).contains(&value) { bad } else { anstyle::Style::new() };
                if pending.is_continued {
                    writeln!(self.output, "{style}{result}{style:#}")
                } else {
                    let took = seconds(Duration::from_nanos(at.saturating_sub(pending.time)));
                    writeln!(self.output, "{style}{result}{style:#} <{took}>")
                }
            }
        };
        self.output.extend_from_slice(&self.sampled.stack);
    }

    /// Writes a call as perf trace does: arguments with names, without those that are zero.
    fn write_as_perf(&mut self, tid: i32, pending: &PendingCall, end: CallEnd) {
        /// Columns of a call before its result.
        const WIDTH: usize = 70;
        if !std::mem::replace(&mut self.fresh, true) {
            self.details.inspector.refresh_names();
        }
        let Some(starts) = &mut self.perf_trace else { return };
        let out = &mut self.output;
        starts.time(pending.time, out);
        let _ = match end {
            CallEnd::Returned { at, .. } => {
                let took = at.saturating_sub(pending.time) as f64 / 1e6;
                write!(out, "({took:>6.3} ms): ")
            }
            CallEnd::Task | CallEnd::Trace => write!(out, "(         ): "),
        };
        starts.task(self.details.inspector.task_name(tid), tid, out);
        let begin = out.len();
        let continued = if pending.is_continued { "... [continued]: " } else { "" };
        let _ = write!(out, "{continued}{}(", pending.call.name);
        let mut separator = "";
        for (i, arg) in argument_texts(pending, &self.enums) {
            let name = pending.call.args.get(i).map_or("", |arg| &*arg.name);
            // Names stand for zeros, too.
            if pending.args.get(i) != Some(&0) || arg.first().is_some_and(u8::is_ascii_uppercase) {
                let _ = write!(out, "{separator}{name}: ");
                out.extend(arg);
                separator = ", ";
            }
        }
        out.push(b')');
        let width = WIDTH.saturating_sub(String::from_utf8_lossy(&out[begin..]).chars().count());
        let _ = write!(out, "{:width$} = ", "");
        let result = match end {
            CallEnd::Returned { value, .. } => self.result_text(tid, pending, value),
            CallEnd::Task | CallEnd::Trace => "?".to_owned(),
        };
        let _ = writeln!(self.output, "{result}");
        self.output.extend_from_slice(&self.sampled.stack);
    }

    fn result_text(&mut self, tid: i32, pending: &PendingCall, value: i64) -> String {
        match value {
            FIRST_ERROR..0 => {
                let number = -value as i32;
                let name = errno_name(number).map_or_else(|| number.to_string(), str::to_owned);
                format!("-1 {name} ({})", errno_text(number))
            }
            1.. if pending.call.name == "umask" => format!("0{value:o}"),
            0 if pending.call.returns_pointer => "NULL".to_owned(),
            _ if pending.call.returns_pointer => format!("{value:#x}"),
            _ if pending.call.returns_fd => match self.details.descriptor(tid, value as i32) {
                Some(path) => format!("{value}<{}>", UntrustedText::new(path).to_text()),
                None => value.to_string(),
            },
            _ => value.to_string(),
        }
    }

    /// Begins the object of an event.
    fn start_json(&mut self, (tid, time): (i32, u64), has_cpu: bool) {
        if !std::mem::replace(&mut self.fresh, true) {
            self.details.inspector.refresh_names();
        }
        self.output.extend_from_slice(b"{\"comm\":");
        json_string(&mut self.output, self.details.inspector.task_name(tid));
        let (s, ns) = (time / 1_000_000_000, time % 1_000_000_000);
        if has_cpu {
            let _ = write!(self.output, ",\"cpu\":{}", self.cpu);
        }
        let _ = write!(self.output, ",\"tid\":{tid},\"time\":{s}.{ns:09}");
    }

    fn write_json(&mut self, tid: i32, pending: &PendingCall, end: CallEnd) {
        let has_cpu = self.style.cpus && matches!(end, CallEnd::Returned { .. });
        self.start_json((tid, pending.time), has_cpu);
        self.output.extend_from_slice(b",\"syscall\":");
        json_string(&mut self.output, pending.call.name.as_bytes());
        if is_compat(pending.number) || is_x32(pending.number) {
            // A 64-bit program may make such calls, too.
            let _ = write!(self.output, ",\"abi\":\"{}\"", abi_name(pending.number));
        }
        self.output.extend_from_slice(b",\"args\":{");
        for (i, (place, text)) in argument_texts(pending, &self.enums).enumerate() {
            self.output.extend_from_slice(if i > 0 { b"," } else { b"" });
            let name = pending.call.args.get(place).map_or("", |arg| &*arg.name);
            json_string(&mut self.output, name.as_bytes());
            self.output.push(b':');
            json_string(&mut self.output, &text);
        }
        self.output.push(b'}');
        if let CallEnd::Returned { at, value } = end {
            let _ = write!(self.output, ",\"ret\":{value}");
            if (FIRST_ERROR..0).contains(&value) {
                let name = errno_name(-value as i32).unwrap_or("?");
                let _ = write!(self.output, ",\"errno\":\"{name}\"");
            }
            if !pending.is_continued {
                let took = Duration::from_nanos(at.saturating_sub(pending.time));
                let (s, ns) = (took.as_secs(), took.subsec_nanos());
                let _ = write!(self.output, ",\"duration\":{s}.{ns:09}");
            }
        }
        if pending.is_continued {
            self.output.extend_from_slice(b",\"continued\":true");
        }
        self.output.extend_from_slice(&self.sampled.stack);
        self.output.extend_from_slice(b"}\n");
    }
}

/// Whether an end of this number is that of a call. execve(2) ends with its number in the ABI of
/// the program that was executed.
fn ends(call: &PendingCall, number: i64) -> bool {
    let is_execve = |number| syscall_name(number) == Some("execve");
    plain_number(call.number) == number
        || is_execve(call.number) && (is_execve(number) || is_execve(COMPAT_CALLS + number))
}

/// Number of a call among those of both ABIs.
fn number_of(number: i64, is_compat: bool) -> i64 {
    // Programs of x32 have addresses of 32 bits, and a bit in the numbers of their calls.
    let is_x32 = number & 0x4000_0000 != 0;
    // The kernel's number of a compat call is of 32 bits, with a sign where it is invalid.
    if is_compat && !is_x32 { COMPAT_CALLS + i64::from(number as u32) } else { number }
}

/// The arguments' places and texts. The mode of open(2) counts only where a file is made.
fn argument_texts<'a>(
    pending: &'a PendingCall,
    enums: &'a EnumNames,
) -> impl Iterator<Item = (usize, Vec<u8>)> + 'a {
    let makes =
        |flags: u64| flags & (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u64 != 0;
    let all =
        pending.call.args.iter().zip(&pending.args).zip(&pending.details.arguments).enumerate();
    let before = |i: usize| i.checked_sub(1).and_then(|i| pending.args.get(i)).copied();
    all.filter(move |(i, ((arg, _), _))| {
        let is_taken = flags::takes_argument(&pending.call.name, &pending.args, *i);
        let is_mode = matches!(arg.kind, ArgumentKind::CreateMode);
        is_taken && (!is_mode || before(*i).is_some_and(makes))
    })
    .map(move |(place, ((arg, value), detail))| {
        let mut text = Vec::new();
        // Enumerations have 32 bits; what else is in the register is not theirs.
        match enums.name(&arg.type_text, i64::from(*value as i32)) {
            Some(name) => text.extend(name.into_bytes()),
            None => write_argument(&mut text, arg.kind.after(before(place)), *value, detail),
        }
        (place, text)
    })
}

pub(super) fn int(format: &EventFormat, field: &str, payload: &[u8]) -> i64 {
    format.field(field).and_then(|f| f.int(payload, Endian::NATIVE)).unwrap_or(-1)
}

/// `common_pid` stands at the same place in every event.
pub(super) fn tid_of(payload: &[u8]) -> i32 {
    let bytes = payload.get(4..8).and_then(|b| b.first_chunk().copied());
    bytes.map_or(0, i32::from_ne_bytes)
}
