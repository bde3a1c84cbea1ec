//! Timelines of a recording: slices (system calls, interrupts, function graphs, spans of programs)
//! and counters, with the tracks that they are on.

use std::sync::Arc;

use kymo_analysis::kwork::{KworkDecoder, KworkKind, KworkPhase};
use kymo_analysis::syscalls::{CallId, SyscallDecoder, SyscallEvent};
use kymo_analysis::tracks::{SpanRole, counted_fields};
use kymo_events::{FieldId, FieldValue, FunctionEvent, LayoutMemo, RecordedClass, RecordedEvent};
use kymo_model::{Note, NoteKind, counted};
use kymo_table::WordList;
use rustc_hash::FxHashMap;

use crate::answers::CallName;
use crate::build::{Put, TableBuilder};
use crate::slices::{NO_END, RawSlice, SliceCategory, nest};
use crate::threads::ucpu;
use crate::trace_marker::Marker;

/// Spans of a thread or of a process that are open at a time.
const MOST_OPEN: usize = 64;
/// Functions of a thread that are open at a time.
const MOST_FUNCTIONS: usize = 512;
/// Bytes of a track with its key, about.
const TRACK_BYTES: usize = 128;

/// Type of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TrackType {
    Execution,
    Syscall,
    ThreadFunctions,
    CpuFunctions,
    Irq,
    Softirq,
    Async,
    Frequency,
    Idle,
    Memory,
    Program,
    Marker,
}

impl TrackType {
    fn text(self) -> &'static str {
        match self {
            TrackType::Execution => "thread_execution",
            TrackType::Syscall => "thread_syscall",
            TrackType::ThreadFunctions => "thread_funcgraph",
            TrackType::CpuFunctions => "cpu_funcgraph",
            TrackType::Irq => "cpu_irq",
            TrackType::Softirq => "cpu_softirq",
            TrackType::Async => "atrace_async_slice",
            TrackType::Frequency => "cpu_frequency",
            TrackType::Idle => "cpu_idle",
            TrackType::Memory => "process_memory",
            TrackType::Program => "program_counter",
            TrackType::Marker => "atrace_counter",
        }
    }

    fn is_counter(self) -> bool {
        use TrackType::{Frequency, Idle, Marker, Memory, Program};
        matches!(self, Frequency | Idle | Memory | Program | Marker)
    }

    fn unit(self) -> Option<&'static str> {
        match self {
            TrackType::Frequency => Some("kHz"),
            TrackType::Memory => Some("bytes"),
            _ => None,
        }
    }
}

/// Owner of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TrackOwner {
    /// By `utid`.
    Thread(u32),
    /// By `upid`.
    Process(u32),
    /// CPU and `ucpu`.
    Cpu(u32, u32),
}

#[derive(Clone, Copy, Debug)]
struct Track {
    of: TrackType,
    owner: TrackOwner,
    name: Option<u32>,
    group: Option<u32>,
    machine: u32,
}

/// Time and owners of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventOwner {
    pub(crate) time: u64,
    pub(crate) utid: Option<u32>,
    pub(crate) upid: Option<u32>,
    /// CPU and `ucpu`.
    pub(crate) cpu: Option<(u32, u32)>,
    pub(crate) args: Option<u32>,
    pub(crate) is_idle: bool,
    /// Whether it is an event of a program rather than of the kernel.
    pub(crate) is_program: bool,
}

impl EventOwner {
    fn thread(&self) -> Option<TrackOwner> {
        self.utid.map(TrackOwner::Thread)
    }

    /// Its process; its thread, if the process is not recorded.
    fn process(&self) -> Option<TrackOwner> {
        self.upid.map(TrackOwner::Process).or_else(|| self.thread())
    }
}

/// Fields of a class that a timeline is made of.
#[derive(Clone, Debug)]
enum TimelinePlan {
    Nothing,
    /// Its first event shows which decoder takes it.
    Undecided,
    Call,
    Work,
    Function {
        func: FieldId,
        is_entry: bool,
    },
    Marker(FieldId),
    Program(Arc<ProgramPlan>),
    /// Value, CPU.
    Frequency(FieldId, FieldId),
    Idle(FieldId, FieldId),
    /// Whether it is the memory of the task itself, kind, bytes.
    Memory([FieldId; 3]),
}

#[derive(Clone, Debug)]
struct ProgramPlan {
    span: Option<(u32, SpanRole)>,
    /// Field and name of the counter.
    counted: Vec<(FieldId, u32)>,
}

/// A slice that has started.
#[derive(Clone, Debug)]
struct OpenSlice {
    time: u64,
    start: u64,
    name: u32,
    args: Option<u32>,
}

/// Distinguishes spans of one thread.
#[derive(Clone, Debug)]
enum SpanKey {
    Marker,
    /// The first field of the start.
    Pair(Option<(String, i128)>),
}

/// Slices of a thread that have started.
#[derive(Clone, Debug, Default)]
struct OpenThread {
    call: Option<(CallId, OpenSlice)>,
    spans: Vec<(SpanKey, OpenSlice)>,
    functions: Vec<(u64, OpenSlice)>,
}

/// Slices of a CPU that have started.
#[derive(Clone, Debug, Default)]
struct OpenCpu {
    /// Interrupt and softirq, with their numbers.
    work: [Option<(u64, OpenSlice)>; 2],
    /// Functions of the idle task.
    functions: Vec<(u64, OpenSlice)>,
}

/// Timelines of all recordings.
pub(crate) struct Timelines {
    tracks: Vec<Track>,
    by_key: FxHashMap<(TrackType, TrackOwner, Option<u32>), u32>,
    words: WordList,
    slices: Vec<RawSlice>,
    keeps_slices: bool,
    machine: u32,
    calls: SyscallDecoder,
    work: KworkDecoder,
    plans: LayoutMemo<TimelinePlan>,
    threads: FxHashMap<u32, OpenThread>,
    cpus: FxHashMap<(u32, u32), OpenCpu>,
    /// Spans of processes by name and cookie.
    asyncs: FxHashMap<TrackOwner, Vec<AsyncSlice>>,
    functions: FxHashMap<u64, u32>,
    /// Whether a system call returned: a recording may have entries alone.
    has_returns: bool,
    /// Number of the event.
    event: u64,
    unmatched: u64,
    left_out: u64,
}

/// A span of a process that is open, with its name and cookie.
type AsyncSlice = ((u32, i64), OpenSlice);

impl Timelines {
    /// `keeps_slices`: slices are wanted, not only counters.
    pub(crate) fn new(keeps_slices: bool) -> Timelines {
        Timelines {
            tracks: Vec::new(),
            by_key: FxHashMap::default(),
            words: WordList::default(),
            slices: Vec::new(),
            keeps_slices,
            machine: 0,
            calls: SyscallDecoder::new(|_| None).without_arguments(),
            work: KworkDecoder::default(),
            plans: LayoutMemo::default(),
            threads: FxHashMap::default(),
            cpus: FxHashMap::default(),
            asyncs: FxHashMap::default(),
            functions: FxHashMap::default(),
            has_returns: false,
            event: 0,
            unmatched: 0,
            left_out: 0,
        }
    }

    /// Starts a recording.
    pub(crate) fn begin(&mut self, machine: u32, name_of: CallName) {
        self.machine = machine;
        self.calls = SyscallDecoder::new(name_of).without_arguments();
        self.work = KworkDecoder::default();
        self.plans = LayoutMemo::default();
        self.functions.clear();
        self.has_returns = false;
        (self.unmatched, self.left_out) = (0, 0);
    }

    /// Bytes in memory, about.
    pub(crate) fn size(&self) -> usize {
        let slices = self.slices.capacity() * size_of::<RawSlice>();
        let open = self.threads.len() * size_of::<OpenThread>();
        slices + open + self.words.size() + self.tracks.len() * TRACK_BYTES
    }

    fn track(&mut self, of: TrackType, owner: TrackOwner, name: Option<u32>) -> u32 {
        if let Some(track) = self.by_key.get(&(of, owner, name)) {
            return *track;
        }
        let number = self.tracks.len() as u32;
        self.tracks.push(Track { of, owner, name, group: None, machine: self.machine });
        self.by_key.insert((of, owner, name), number);
        number
    }

    fn open(&self, owner: &EventOwner, name: u32) -> OpenSlice {
        OpenSlice { time: owner.time, start: self.event, name, args: owner.args }
    }

    /// A slice ends at a time, or for an unknown reason.
    fn close(&mut self, at: (u32, SliceCategory), open: &OpenSlice, time: Option<u64>) {
        if !self.keeps_slices {
            return;
        }
        let dur = time.map_or(NO_END, |time| time.saturating_sub(open.time));
        self.slices.push(RawSlice {
            ts: open.time.cast_signed(),
            dur,
            start: open.start,
            end: self.event,
            track: at.0,
            name: open.name,
            args: open.args,
            category: at.1,
        });
    }

    /// Takes an event; `value` takes the values of counters, with their tracks.
    pub(crate) fn event(
        &mut self,
        event: &RecordedEvent<'_>,
        owner: &EventOwner,
        value: &mut dyn FnMut(u32, f64),
    ) {
        self.event += 1;
        if event.lost.is_some() {
            self.lose(owner);
        }
        let layout = event.class.layout;
        let plan = match self.plans.get(layout) {
            Some(plan) => plan.clone(),
            None => self.plan(event.class, owner.is_program),
        };
        match plan {
            TimelinePlan::Nothing => {}
            TimelinePlan::Undecided => {
                self.call(event, owner);
                self.cpu_work(event, owner);
                let plan = match (self.calls.takes(layout), self.work.takes(layout)) {
                    (Some(true), _) => TimelinePlan::Call,
                    (_, Some(true)) => TimelinePlan::Work,
                    _ => TimelinePlan::Nothing,
                };
                self.plans.insert(layout, plan);
            }
            TimelinePlan::Call => self.call(event, owner),
            TimelinePlan::Work => self.cpu_work(event, owner),
            TimelinePlan::Function { func, is_entry } => {
                self.function(event, owner, (func, is_entry));
            }
            TimelinePlan::Marker(text) => {
                if let FieldValue::Text(text) = event.field(text) {
                    self.marker(&text, owner, value);
                }
            }
            TimelinePlan::Program(plan) => self.program(event, owner, &plan, value),
            TimelinePlan::Frequency(state, cpu) => {
                self.cpu_value(event, (TrackType::Frequency, "cpufreq"), (state, cpu), value);
            }
            TimelinePlan::Idle(state, cpu) => {
                self.cpu_value(event, (TrackType::Idle, "cpuidle"), (state, cpu), value);
            }
            TimelinePlan::Memory(fields) => self.memory(event, owner, fields, value),
        }
    }

    #[cold]
    fn plan(&mut self, class: &RecordedClass, is_program: bool) -> TimelinePlan {
        let plan = self.plan_of(class, is_program);
        self.plans.insert(class.layout, plan.clone());
        plan
    }

    fn plan_of(&mut self, class: &RecordedClass, is_program: bool) -> TimelinePlan {
        let fields = |names: [&str; 2]| Some((class.field(names[0])?, class.field(names[1])?));
        if is_program {
            let span = SpanRole::of(class).map(|role| (self.words.intern(&role.name), role));
            let counted = counted_fields(class).unwrap_or_default().into_iter();
            let counted = counted.map(|(id, field, _)| {
                (id, self.words.intern(&format!("{} {field}", class.full_name)))
            });
            let counted: Vec<(FieldId, u32)> = counted.collect();
            return match span.is_none() && counted.is_empty() {
                true => TimelinePlan::Nothing,
                false => TimelinePlan::Program(Arc::new(ProgramPlan { span, counted })),
            };
        }
        let plan = match class.function_event() {
            Some(FunctionEvent::Entry { func, .. }) => {
                return TimelinePlan::Function { func, is_entry: true };
            }
            Some(FunctionEvent::Exit { func, .. }) => {
                return TimelinePlan::Function { func, is_entry: false };
            }
            Some(FunctionEvent::Call { .. }) => return TimelinePlan::Nothing,
            None if class.is_named("ftrace:print") => class.field("buf").map(TimelinePlan::Marker),
            None if class.is_named("power:cpu_frequency") => {
                fields(["state", "cpu_id"]).map(|(state, cpu)| TimelinePlan::Frequency(state, cpu))
            }
            None if class.is_named("power:cpu_idle") => {
                fields(["state", "cpu_id"]).map(|(state, cpu)| TimelinePlan::Idle(state, cpu))
            }
            None if class.is_named("kmem:rss_stat") => {
                let member = class.field("member");
                let others = fields(["curr", "size"]);
                others
                    .zip(member)
                    .map(|((own, size), kind)| TimelinePlan::Memory([own, kind, size]))
            }
            None => return TimelinePlan::Undecided,
        };
        plan.unwrap_or(TimelinePlan::Nothing)
    }

    /// Events were lost: what is open may have ended.
    fn lose(&mut self, owner: &EventOwner) {
        let mut threads = std::mem::take(&mut self.threads);
        for (utid, thread) in &mut threads {
            self.end_spans(*utid, thread, owner.is_program);
            if !owner.is_program {
                self.end_call(*utid, thread, None);
                self.end_functions(TrackOwner::Thread(*utid), &mut thread.functions);
            }
        }
        self.threads = threads;
        if owner.is_program {
            return;
        }
        self.end_asyncs();
        let mut cpus = std::mem::take(&mut self.cpus);
        for (cpu, open) in &mut cpus {
            if owner.cpu.is_none_or(|lost| lost == *cpu) {
                self.end_cpu(*cpu, open);
            }
        }
        self.cpus = cpus;
    }

    /// Ends spans of programs, or those of markers, at an unknown time.
    fn end_spans(&mut self, utid: u32, thread: &mut OpenThread, of_programs: bool) {
        let is_of = |key: &SpanKey| matches!(key, SpanKey::Pair(_)) == of_programs;
        let category = if of_programs { SliceCategory::Program } else { SliceCategory::Marker };
        for (_, open) in thread.spans.extract_if(.., |(key, _)| is_of(key)) {
            let track = self.track(TrackType::Execution, TrackOwner::Thread(utid), None);
            self.close((track, category), &open, None);
        }
    }

    fn end_call(&mut self, utid: u32, thread: &mut OpenThread, time: Option<u64>) {
        // Without returns in the recording no call is known to last.
        if let Some((_, open)) = thread.call.take().filter(|_| self.has_returns) {
            let track = self.track(TrackType::Syscall, TrackOwner::Thread(utid), None);
            self.close((track, SliceCategory::Syscall), &open, time);
        }
    }

    fn end_functions(&mut self, owner: TrackOwner, functions: &mut Vec<(u64, OpenSlice)>) {
        for (_, open) in functions.drain(..) {
            let track = self.function_track(owner);
            self.close((track, SliceCategory::Function), &open, None);
        }
    }

    fn end_asyncs(&mut self) {
        let mut asyncs: Vec<_> = std::mem::take(&mut self.asyncs).into_iter().collect();
        asyncs.sort_by_key(|(_, open)| open.first().map(|(_, open)| open.start));
        for (owner, opens) in asyncs {
            for ((name, _), open) in opens {
                let track = self.track(TrackType::Async, owner, Some(name));
                self.close((track, SliceCategory::Marker), &open, None);
            }
        }
    }

    fn end_cpu(&mut self, cpu: (u32, u32), open: &mut OpenCpu) {
        for (kind, work) in open.work.iter_mut().enumerate() {
            if let Some((_, open)) = work.take() {
                let at = self.work_track(kind, cpu);
                self.close(at, &open, None);
            }
        }
        self.end_functions(TrackOwner::Cpu(cpu.0, cpu.1), &mut open.functions);
    }

    /// A thread ended: the call that ends it does not return.
    pub(crate) fn end_thread(&mut self, utid: u32, time: u64) {
        if let Some(mut thread) = self.threads.remove(&utid) {
            self.end_call(utid, &mut thread, Some(time));
            self.end_spans(utid, &mut thread, true);
            self.end_spans(utid, &mut thread, false);
            self.end_functions(TrackOwner::Thread(utid), &mut thread.functions);
        }
    }

    /// Ends a recording. Slices that are open then have no end.
    pub(crate) fn end(&mut self) -> Vec<Note> {
        self.event += 1;
        let mut threads: Vec<_> = std::mem::take(&mut self.threads).into_iter().collect();
        threads.sort_unstable_by_key(|(utid, _)| *utid);
        for (utid, mut thread) in threads {
            self.end_call(utid, &mut thread, None);
            self.end_spans(utid, &mut thread, true);
            self.end_spans(utid, &mut thread, false);
            self.end_functions(TrackOwner::Thread(utid), &mut thread.functions);
        }
        let mut cpus: Vec<_> = std::mem::take(&mut self.cpus).into_iter().collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (cpu, mut open) in cpus {
            self.end_cpu(cpu, &mut open);
        }
        self.end_asyncs();
        let mut notes = Vec::new();
        let mut note = |n: u64, kind, one: &str, more: &str| {
            if n > 0 {
                notes.push(Note::choice(kind, counted(n, one, more), None));
            }
        };
        note(
            self.unmatched,
            NoteKind::Unmatched,
            "slice has no recorded start and is left out",
            "slices have no recorded start and are left out",
        );
        note(
            self.left_out,
            NoteKind::Entries,
            "slice is left out: too many are open at a time",
            "slices are left out: too many are open at a time",
        );
        notes
    }

    fn call(&mut self, event: &RecordedEvent<'_>, owner: &EventOwner) {
        let Some(decoded) = self.calls.decode(event) else { return };
        let Some(utid) = owner.utid else { return };
        match decoded {
            SyscallEvent::Enter(call, _) => {
                let name = self.calls.calls.get(call.0 as usize).map_or("", |call| &call.name);
                let open = self.open(owner, self.words.code(name).unwrap_or(u32::MAX));
                let open = match open.name {
                    u32::MAX => {
                        let name = name.to_owned();
                        OpenSlice { name: self.words.intern(&name), ..open }
                    }
                    _ => open,
                };
                let mut thread = self.threads.remove(&utid).unwrap_or_default();
                self.end_call(utid, &mut thread, None);
                thread.call = Some((call, open));
                self.threads.insert(utid, thread);
            }
            SyscallEvent::Exit(call, _) => {
                self.has_returns = true;
                let open = self.threads.get_mut(&utid).and_then(|thread| thread.call.take());
                let Some((entered, open)) = open else {
                    self.unmatched += 1;
                    return;
                };
                // The registers of the interrupted code, and the number in them, are back then.
                let name = self.calls.calls.get(entered.0 as usize).map(|call| &*call.name);
                let is_partner =
                    entered == call || matches!(name, Some("rt_sigreturn" | "sigreturn"));
                self.unmatched += u64::from(!is_partner);
                let track = self.track(TrackType::Syscall, TrackOwner::Thread(utid), None);
                let end = is_partner.then_some(owner.time);
                self.close((track, SliceCategory::Syscall), &open, end);
            }
        }
    }

    fn work_track(&mut self, kind: usize, (cpu, ucpu): (u32, u32)) -> (u32, SliceCategory) {
        let (of, category, name) = match kind {
            0 => (TrackType::Irq, SliceCategory::Irq, "Irq"),
            _ => (TrackType::Softirq, SliceCategory::Softirq, "SoftIrq"),
        };
        let name = self.words.intern(&format!("{name} Cpu {cpu}"));
        (self.track(of, TrackOwner::Cpu(cpu, ucpu), Some(name)), category)
    }

    fn cpu_work(&mut self, event: &RecordedEvent<'_>, owner: &EventOwner) {
        let Some(decoded) = self.work.decode(event) else { return };
        let kind = match decoded.kind {
            KworkKind::Irq => 0,
            KworkKind::Softirq => 1,
            KworkKind::Workqueue => return,
        };
        let Some(cpu) = owner.cpu else { return };
        let id = decoded.id;
        match decoded.phase {
            KworkPhase::Raise => {}
            KworkPhase::Entry => {
                let name = if !decoded.name.is_empty() {
                    self.words.intern_bytes(&decoded.name)
                } else if kind == 1 && self.work.softirq_names.is_known() {
                    self.words.intern(&self.work.softirq_names.text(id))
                } else {
                    self.words.intern(&format!("{} {id}", decoded.kind.name()))
                };
                let open = self.open(owner, name);
                let slot = self.cpus.entry(cpu).or_default().work.get_mut(kind);
                let before = slot.and_then(|slot| slot.replace((id, open)));
                if let Some((_, before)) = before {
                    let at = self.work_track(kind, cpu);
                    self.close(at, &before, None);
                }
            }
            KworkPhase::Exit => {
                let slot = self.cpus.get_mut(&cpu).and_then(|cpu| cpu.work.get_mut(kind));
                let Some((entered, open)) = slot.and_then(Option::take) else {
                    self.unmatched += 1;
                    return;
                };
                self.unmatched += u64::from(entered != id);
                let at = self.work_track(kind, cpu);
                self.close(at, &open, (entered == id).then_some(owner.time));
            }
        }
    }

    fn function_track(&mut self, owner: TrackOwner) -> u32 {
        let of = match owner {
            TrackOwner::Cpu(..) => TrackType::CpuFunctions,
            _ => TrackType::ThreadFunctions,
        };
        let name = self.words.intern("Funcgraph");
        self.track(of, owner, Some(name))
    }

    /// Functions of the function-graph tracer. Those of the idle task are of the CPU.
    fn function(
        &mut self,
        event: &RecordedEvent<'_>,
        owner: &EventOwner,
        (func, is_entry): (FieldId, bool),
    ) {
        let Some(address) = event.field(func).number().map(|address| address as u64) else {
            return;
        };
        let name = match self.functions.get(&address) {
            Some(name) => *name,
            None => {
                let symbol = event.kernel_symbol(address).map(|(name, _)| name);
                let name = symbol.unwrap_or_else(|| format!("{address:#x}"));
                let name = self.words.intern(&name);
                self.functions.insert(address, name);
                name
            }
        };
        let open = self.open(owner, name);
        let (functions, of) = match (owner.is_idle, owner.cpu, owner.utid) {
            (true, Some(cpu), _) => {
                (&mut self.cpus.entry(cpu).or_default().functions, TrackOwner::Cpu(cpu.0, cpu.1))
            }
            (_, _, Some(utid)) => {
                let thread = self.threads.entry(utid).or_default();
                (&mut thread.functions, TrackOwner::Thread(utid))
            }
            _ => return,
        };
        if is_entry {
            if functions.len() < MOST_FUNCTIONS {
                functions.push((address, open));
            } else {
                self.left_out += 1;
            }
            return;
        }
        let Some(at) = functions.iter().rposition(|(entered, _)| *entered == address) else {
            self.unmatched += 1;
            return;
        };
        // Ends of the functions within it are not recorded.
        let mut ended = functions.split_off(at).into_iter();
        let own = ended.next();
        let track = self.function_track(of);
        for (_, open) in ended {
            self.close((track, SliceCategory::Function), &open, None);
        }
        if let Some((_, open)) = own {
            self.close((track, SliceCategory::Function), &open, Some(owner.time));
        }
    }

    fn open_span(&mut self, owner: &EventOwner, key: SpanKey, name: u32) {
        let open = self.open(owner, name);
        let Some(utid) = owner.utid else { return };
        let spans = &mut self.threads.entry(utid).or_default().spans;
        if spans.len() < MOST_OPEN {
            spans.push((key, open));
        } else {
            self.left_out += 1;
        }
    }

    /// Ends the latest span of a thread for which `is_it`.
    fn close_span(
        &mut self,
        owner: &EventOwner,
        category: SliceCategory,
        is_it: impl Fn(&SpanKey, u32) -> bool,
    ) {
        let Some(utid) = owner.utid else { return };
        let open = self.threads.get_mut(&utid).and_then(|thread| {
            let at = thread.spans.iter().rposition(|(key, open)| is_it(key, open.name))?;
            Some(thread.spans.remove(at).1)
        });
        match open {
            Some(open) => {
                let track = self.track(TrackType::Execution, TrackOwner::Thread(utid), None);
                self.close((track, category), &open, Some(owner.time));
            }
            None => self.unmatched += 1,
        }
    }

    fn marker(&mut self, text: &[u8], owner: &EventOwner, value: &mut dyn FnMut(u32, f64)) {
        let Some(marker) = Marker::parse(text) else { return };
        match marker {
            Marker::Begin(name) => {
                let name = self.words.intern_bytes(name);
                self.open_span(owner, SpanKey::Marker, name);
            }
            Marker::End => {
                self.close_span(owner, SliceCategory::Marker, |key, _| {
                    matches!(key, SpanKey::Marker)
                });
            }
            Marker::Instant(name) => {
                let Some(thread) = owner.thread() else { return };
                let name = self.words.intern_bytes(name);
                let open = self.open(owner, name);
                let track = self.track(TrackType::Execution, thread, None);
                self.close((track, SliceCategory::Marker), &open, Some(owner.time));
            }
            Marker::AsyncBegin(name, cookie) => {
                let Some(process) = owner.process() else { return };
                let name = self.words.intern_bytes(name);
                let open = self.open(owner, name);
                let spans = self.asyncs.entry(process).or_default();
                if spans.len() < MOST_OPEN {
                    spans.push(((name, cookie), open));
                } else {
                    self.left_out += 1;
                }
            }
            Marker::AsyncEnd(name, cookie) => {
                let Some(process) = owner.process() else { return };
                let name = self.words.intern_bytes(name);
                let open = self.asyncs.get_mut(&process).and_then(|spans| {
                    let at = spans.iter().rposition(|(key, _)| *key == (name, cookie))?;
                    Some(spans.remove(at).1)
                });
                match open {
                    Some(open) => {
                        let track = self.track(TrackType::Async, process, Some(name));
                        self.close((track, SliceCategory::Marker), &open, Some(owner.time));
                    }
                    None => self.unmatched += 1,
                }
            }
            Marker::Counter(name, number) => {
                let Some(process) = owner.process() else { return };
                let name = self.words.intern_bytes(name);
                value(self.track(TrackType::Marker, process, Some(name)), number);
            }
        }
    }

    fn program(
        &mut self,
        event: &RecordedEvent<'_>,
        owner: &EventOwner,
        plan: &ProgramPlan,
        value: &mut dyn FnMut(u32, f64),
    ) {
        let number = |id: FieldId| event.field(id).number();
        match &plan.span {
            Some((name, role)) if role.is_begin => {
                let key = role.keys.first();
                let key = key.and_then(|(field, id)| Some((field.clone(), number(*id)?)));
                self.open_span(owner, SpanKey::Pair(key), *name);
            }
            Some((name, role)) => {
                self.close_span(owner, SliceCategory::Program, |key, open| {
                    let SpanKey::Pair(key) = key else { return false };
                    let is_equal = |(field, started): &(String, i128)| {
                        let own = role.keys.iter().find(|(own, _)| own == field);
                        own.and_then(|(_, id)| number(*id)).is_none_or(|ended| ended == *started)
                    };
                    open == *name && key.as_ref().is_none_or(is_equal)
                });
            }
            None => {}
        }
        let Some(process) = owner.process() else { return };
        for (field, name) in &plan.counted {
            let found = match event.field(*field) {
                FieldValue::Float(number) => number,
                field => match field.number() {
                    Some(number) => number as f64,
                    None => continue,
                },
            };
            value(self.track(TrackType::Program, process, Some(*name)), found);
        }
    }

    fn cpu_value(
        &mut self,
        event: &RecordedEvent<'_>,
        (of, name): (TrackType, &str),
        (state, cpu): (FieldId, FieldId),
        value: &mut dyn FnMut(u32, f64),
    ) {
        let cpu = event.field(cpu).number().and_then(|cpu| u32::try_from(cpu).ok());
        if let (Some(state), Some(cpu)) = (event.field(state).number(), cpu) {
            let name = self.words.intern(name);
            let ucpu = ucpu(self.machine, cpu);
            value(self.track(of, TrackOwner::Cpu(cpu, ucpu), Some(name)), state as f64);
        }
    }

    fn memory(
        &mut self,
        event: &RecordedEvent<'_>,
        owner: &EventOwner,
        fields: [FieldId; 3],
        value: &mut dyn FnMut(u32, f64),
    ) {
        let [own, kind, size] = fields.map(|id| event.field(id).number());
        let (Some(1), Some(kind), Some(size)) = (own, kind, size) else { return };
        // The order of the kernel's MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES.
        let names = ["mem.rss.file", "mem.rss.anon", "mem.swap", "mem.rss.shmem"];
        let name = usize::try_from(kind).ok().and_then(|kind| names.get(kind));
        if let (Some(name), Some(process)) = (name, owner.process()) {
            let name = self.words.intern(name);
            value(self.track(TrackType::Memory, process, Some(name)), size as f64);
        }
    }

    /// Fills the tables of slices and tracks.
    pub(crate) fn fill(
        mut self,
        slices: Option<&mut TableBuilder>,
        tracks: Option<&mut TableBuilder>,
        counters: Option<&mut TableBuilder>,
    ) {
        let mut all = std::mem::take(&mut self.slices);
        let nested = nest(&mut all);
        // Slices that overlap others without lying within them are on tracks of their own.
        let mut lanes: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for (slice, nested) in all.iter_mut().zip(&nested).filter(|(_, nested)| nested.lane > 0) {
            let first = slice.track;
            slice.track = match lanes.get(&(first, nested.lane)) {
                Some(track) => *track,
                None => {
                    let number = self.tracks.len() as u32;
                    if let Some(track) = self.tracks.get_mut(first as usize) {
                        track.group = Some(first);
                        let track = *track;
                        self.tracks.push(track);
                    }
                    lanes.insert((first, nested.lane), number);
                    number
                }
            };
        }
        if let Some(table) = slices {
            for (slice, nested) in all.iter().zip(&nested) {
                let dur = Some(slice.dur).filter(|dur| *dur != NO_END);
                table.row([
                    Put::Integer(slice.ts),
                    dur.into(),
                    Put::Small(slice.track),
                    Put::Text(slice.category.text()),
                    self.words.get(slice.name).into(),
                    Put::Small(nested.depth),
                    nested.parent.into(),
                    slice.args.into(),
                ]);
            }
        }
        self.fill_tracks(tracks, counters);
    }

    fn fill_tracks(
        &self,
        mut tracks: Option<&mut TableBuilder>,
        mut counters: Option<&mut TableBuilder>,
    ) {
        for (number, track) in (0u32..).zip(&self.tracks) {
            let name = Put::from(track.name.and_then(|name| self.words.get(name)));
            let of = Put::Text(track.of.text());
            let (mut utid, mut upid, mut cpu, mut ucpu) = (None, None, None, None);
            match track.owner {
                TrackOwner::Thread(of) => utid = Some(of),
                TrackOwner::Process(of) => upid = Some(of),
                TrackOwner::Cpu(of, unique) => (cpu, ucpu) = (Some(of), Some(unique)),
            }
            let machine = Put::Small(track.machine);
            if let Some(table) = tracks.as_deref_mut() {
                table.row([
                    name,
                    of,
                    Put::Text(if track.of.is_counter() { "counter" } else { "slice" }),
                    Put::Null,
                    utid.into(),
                    upid.into(),
                    cpu.into(),
                    ucpu.into(),
                    track.group.into(),
                    machine,
                ]);
            }
            if let Some(table) = counters.as_deref_mut().filter(|_| track.of.is_counter()) {
                table.row([
                    Put::Small(number),
                    name,
                    of,
                    Put::Null,
                    track.of.unit().into(),
                    Put::Null,
                    utid.into(),
                    upid.into(),
                    cpu.into(),
                    ucpu.into(),
                    machine,
                ]);
            }
        }
    }
}
