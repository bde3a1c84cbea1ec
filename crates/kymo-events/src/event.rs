//! One event, of any format: time, CPU, task and class are available immediately, fields and stacks
//! are read on demand.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::io::Write as _;
use std::sync::Arc;

use kymo_files::ctf;
use kymo_files::perfdata::{Entry, EventDesc};
use kymo_model::{Endian, Misc, Sample, SampleType};
use kymo_symbols::Resolver;

use crate::chain_frames::{ChainFrame, kernel_part};
use crate::ctf::EventTask;
use crate::payload::KernelNames;
use crate::schema::{ClassOrigin, FieldDesc, FieldId, FieldPlace, RecordedClass, SampleField};
use crate::state::Located;
use crate::trace_dat::{KnownEvent, TaskNames};
use crate::value::FieldValue;

pub use crate::task_info::{TaskComm, TaskInfo};

/// The stack of an event as addresses, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventStack<'e> {
    /// Addresses in the kernel.
    pub kernel: Cow<'e, [u64]>,
    /// Addresses in the program.
    pub user: Cow<'e, [u64]>,
}

impl EventStack<'_> {
    /// Whether no stack was recorded.
    pub fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.user.is_empty()
    }
}

/// Names tasks and addresses of a perf.data at the present place.
pub(crate) trait PerfState {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo;
    /// A task by its thread alone, with the name it has now.
    fn thread(&self, tid: u32) -> TaskInfo {
        let mut task = self.task(tid, tid);
        task.pid = None;
        task
    }
    /// Path of a cgroup.
    fn cgroup(&self, id: u64) -> Option<Arc<[u8]>>;
    fn name(&self, pid: u32, addr: u64, mode: u16) -> Option<String>;
    /// Frames of a sample's call chain.
    fn chain(&self, entry: &Entry<'_>, sample: &Sample<'_>) -> Vec<ChainFrame>;
    /// Number of the state that addresses of the kernel resolve in.
    fn kernel_generation(&self) -> Option<u64> {
        None
    }
    /// Hands over the symbols that frames are resolved with.
    fn with_symbols(&self, see: &mut dyn FnMut(&Resolver));
    /// Function of the kernel at an address, and how far it is from its begin.
    fn kernel_symbol(&self, _addr: u64) -> Option<(String, u64)> {
        None
    }
    /// Binary and symbol of an address.
    fn locate(&self, _pid: u32, _addr: u64, _mode: u16) -> Option<Located> {
        None
    }
    /// Whether the program of a process is one of 32 bits.
    fn is_32_bit(&self, _pid: u32) -> Option<bool> {
        None
    }
    /// Variable of a program at an address of a process.
    fn variable(&self, _pid: u32, _addr: u64) -> Option<String> {
        None
    }
    /// Appends the text of a tracepoint's payload.
    fn write_payload(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>);
    /// Appends the member `message` of a payload whose text names addresses.
    fn write_message(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>);
}

/// Reads fields of CTF events.
pub(crate) trait CtfFields {
    fn task(&self, event: &ctf::read::CtfEvent<'_>) -> TaskInfo;
    fn field(&self, event: &ctf::read::CtfEvent<'_>, field: u32) -> FieldValue<'static>;
    fn stack(&self, event: &ctf::read::CtfEvent<'_>) -> EventStack<'static>;
    /// Name of a function of the kernel that was recorded.
    fn kernel_function(&self, addr: u64) -> Option<String>;
    /// Name of the kernel function at an address, and the distance from its start.
    fn kernel_symbol(&self, _addr: u64) -> Option<(String, u64)> {
        None
    }
}

/// Names addresses in stacks of a trace.dat.
pub(crate) trait StackNames {
    /// Name of a function of the kernel that was recorded.
    fn kernel_function(&self, addr: u64) -> Option<String>;
    /// Name of the kernel function at an address, and the distance from its start.
    fn kernel_symbol(&self, _addr: u64) -> Option<(String, u64)> {
        None
    }
    /// Path of the binary that a process had mapped at an address.
    fn binary(&self, process: Option<i32>, addr: u64) -> Option<String>;
}

/// An event of a trace.dat.
pub(crate) struct FtraceBody<'e> {
    pub(crate) payload: &'e [u8],
    pub(crate) endian: Endian,
    pub(crate) cpu: u32,
    pub(crate) task: &'e TaskInfo,
    pub(crate) instance: &'e str,
    pub(crate) kernel: &'e [u64],
    pub(crate) user: &'e [u64],
    /// Process that the addresses of the program are of.
    pub(crate) user_process: Option<i32>,
    pub(crate) names: &'e dyn StackNames,
    /// Text of its line, where it comes from a ring that is read while it is written.
    pub(crate) live: Option<LiveText<'e>>,
}

/// Hands over what reads events of a running program.
pub(crate) trait LiveReader {
    /// Task of all events of the event's trace, as far as that is known.
    fn owner(&self, event: &ctf::read::CtfEvent<'_>) -> EventTask;
    /// Names that the kernel has for threads, where its events come beside.
    fn kernel_names(&self) -> Option<&RefCell<TaskNames>>;
    fn with_reader(&self, read: &mut dyn FnMut(&mut ctf::read::Reader<'_>));
}

/// Parts of the text of a kernel event.
#[derive(Clone, Copy)]
pub(crate) struct LiveText<'e> {
    /// `common_flags` and `common_preempt_count`.
    pub(crate) flags: (u8, u8),
    /// Its format, or why there is none.
    pub(crate) known: Result<&'e KnownEvent, &'e str>,
    /// Functions and strings.
    pub(crate) names: &'e KernelNames,
}

/// Bytes of an event of the kernel, and what rendering them needs.
pub struct KernelPayload<'e> {
    /// The event from `common_type` on.
    pub bytes: &'e [u8],
    /// Byte order of its numbers.
    pub endian: Endian,
    /// `common_flags` and `common_preempt_count`.
    pub flags: (u8, u8),
    /// Its format, or why there is none.
    pub known: Result<&'e KnownEvent, &'e str>,
    /// Functions and strings of its kernel.
    pub names: &'e KernelNames,
}

/// An event of a program, with what reads its values.
pub struct ProgramPayload<'e> {
    /// Its class, CPU, time and bytes.
    pub event: &'e ctf::read::CtfEvent<'e>,
    /// Number of its program.
    pub program: u32,
    /// Task of all events of the program, as far as that is known.
    pub owner: EventTask,
    /// Names that the kernel has for threads, where its events come beside.
    pub kernel_names: Option<&'e RefCell<TaskNames>>,
    walker: &'e dyn LiveReader,
}

impl ProgramPayload<'_> {
    /// Hands over the reader of the event's trace.
    pub fn read(&self, read: &mut dyn FnMut(&mut ctf::read::Reader<'_>)) {
        self.walker.with_reader(read);
    }
}

/// An event in the form its recording has it.
pub(crate) enum EventBody<'e> {
    Perf {
        entry: &'e Entry<'e>,
        sample: OnceCell<Option<Box<Sample<'e>>>>,
        state: &'e dyn PerfState,
    },
    // Not by value: an event is made for each of millions.
    Ftrace(&'e FtraceBody<'e>),
    Ctf {
        event: &'e ctf::read::CtfEvent<'e>,
        trace: &'e str,
        /// Number of a program whose ring is read while it is written, and who reads it.
        program: Option<(u32, &'e dyn LiveReader)>,
        fields: &'e dyn CtfFields,
    },
}

/// An event. It is valid while it is handed out.
pub struct RecordedEvent<'e> {
    /// Its class.
    pub class: &'e RecordedClass,
    /// Nanoseconds of the recording's clock, where the event has a time.
    pub time: Option<u64>,
    /// Number of events that were lost on its CPU since the event before; 0: some, it is not
    /// known how many. Of a recording whose rings are not those of CPUs it holds for all CPUs.
    pub lost: Option<u64>,
    pub(crate) body: EventBody<'e>,
    pub(crate) task: OnceCell<TaskInfo>,
}

impl<'e> RecordedEvent<'e> {
    #[inline]
    pub(crate) fn new(
        class: &'e RecordedClass,
        time: Option<u64>,
        body: EventBody<'e>,
    ) -> RecordedEvent<'e> {
        RecordedEvent { class, time, lost: None, body, task: OnceCell::new() }
    }

    /// States what was lost before it.
    #[inline]
    pub(crate) fn after_loss(mut self, lost: Option<u64>) -> RecordedEvent<'e> {
        self.lost = lost;
        self
    }

    /// States its task, where that is known without looking at the event.
    pub(crate) fn with_task(self, task: Option<&TaskInfo>) -> RecordedEvent<'e> {
        match task {
            Some(task) => RecordedEvent { task: OnceCell::from(*task), ..self },
            None => self,
        }
    }

    /// CPU of the event, where the recording states it.
    #[inline]
    pub fn cpu(&self) -> Option<u32> {
        match &self.body {
            EventBody::Perf { entry, .. } => self.class.places.as_ref()?.cpu(&entry.raw),
            EventBody::Ftrace(body) => Some(body.cpu),
            EventBody::Ctf { event, .. } => event.cpu,
        }
    }

    /// The task it happened in.
    #[inline]
    pub fn task(&self) -> &TaskInfo {
        if let EventBody::Ftrace(body) = &self.body {
            return body.task;
        }
        self.task.get_or_init(|| match &self.body {
            EventBody::Perf { entry, state, .. } => {
                match self.class.places.as_ref().and_then(|places| places.task(&entry.raw)) {
                    Some((pid, tid)) => state.task(pid, tid),
                    None => TaskInfo::unnamed(None, None, b"N/A"),
                }
            }
            EventBody::Ftrace(body) => *body.task,
            EventBody::Ctf { event, fields, .. } => fields.task(event),
        })
    }

    /// Another task than its own, by the records of a perf.data so far beside its events.
    pub fn thread(&self, tid: u32) -> TaskInfo {
        match &self.body {
            EventBody::Perf { state, .. } => state.thread(tid),
            EventBody::Ftrace(_) | EventBody::Ctf { .. } => {
                TaskInfo::unnamed(None, Some(tid), b"N/A")
            }
        }
    }

    /// Payload of a kernel's event as it was recorded, and its byte order.
    #[inline(always)]
    pub(crate) fn payload(&self) -> Option<(&[u8], Endian)> {
        match &self.body {
            EventBody::Ftrace(body) => Some((body.payload, body.endian)),
            EventBody::Perf { entry, .. } => {
                let whole = || self.sample().and_then(|s| s.raw);
                let payload = self.class.places.as_ref()?.payload(&entry.raw).or_else(whole);
                payload.map(|p| (p, entry.raw.endian))
            }
            EventBody::Ctf { .. } => None,
        }
    }

    /// Number of the event of a perf.data or of perf rings, in the order in which they were
    /// opened.
    #[inline]
    pub fn opened_number(&self) -> Option<usize> {
        match &self.body {
            EventBody::Perf { entry, .. } => Some(entry.event),
            EventBody::Ftrace(_) | EventBody::Ctf { .. } => None,
        }
    }

    /// Processor mode of a sample, where the recording states it: `kernel` or `user`.
    pub fn cpu_mode(&self) -> Option<&'static str> {
        let EventBody::Perf { entry, .. } = &self.body else { return None };
        match entry.raw.misc.cpumode() {
            Misc::KERNEL => Some("kernel"),
            Misc::USER => Some("user"),
            _ => None,
        }
    }

    /// Record of a tracepoint as the kernel wrote it, from `common_type` on.
    #[inline]
    pub fn record_bytes(&self) -> Option<&[u8]> {
        self.payload().map(|(bytes, _)| bytes)
    }

    /// Appends the entries of a sample's call chain as the kernel wrote them, with its marks.
    pub fn append_chain_entries(&self, entries: &mut Vec<u64>) {
        if let Some(sample) = self.sample() {
            entries.extend(sample.callchain());
        }
    }

    /// Number of the cgroup it happened in, where samples have it.
    pub fn cgroup_id(&self) -> Option<u64> {
        match &self.body {
            EventBody::Perf { .. } => self.sample()?.cgroup,
            _ => None,
        }
    }

    /// Path of the cgroup it happened in, as the kernel mounts them: `/user.slice/…`. Samples
    /// have it if they were recorded so.
    pub fn cgroup(&self) -> Option<Arc<[u8]>> {
        match &self.body {
            EventBody::Perf { state, .. } => state.cgroup(self.cgroup_id()?),
            _ => None,
        }
    }

    /// The instance of the kernel's rings, or the trace of a program, by name; empty for
    /// the top instance and for perf.data.
    pub fn instance(&self) -> &'e str {
        match &self.body {
            EventBody::Perf { .. } => "",
            EventBody::Ftrace(body) => body.instance,
            EventBody::Ctf { trace, .. } => trace,
        }
    }

    /// The payload of a live event of the kernel. Renderers of recordings know their formats.
    #[inline]
    pub fn kernel_payload(&self) -> Option<KernelPayload<'_>> {
        match &self.body {
            EventBody::Ftrace(body) => body.live.map(|live| KernelPayload {
                bytes: body.payload,
                endian: body.endian,
                flags: live.flags,
                known: live.known,
                names: live.names,
            }),
            _ => None,
        }
    }

    /// The payload of a live event of a program.
    #[inline]
    pub fn program_payload(&self) -> Option<ProgramPayload<'_>> {
        match &self.body {
            EventBody::Ctf { event, program: Some((program, walker)), .. } => {
                Some(ProgramPayload {
                    event,
                    program: *program,
                    owner: walker.owner(event),
                    kernel_names: walker.kernel_names(),
                    walker: *walker,
                })
            }
            _ => None,
        }
    }

    /// The value of a field of its class.
    #[inline]
    pub fn field(&self, id: FieldId) -> FieldValue<'_> {
        let Some(desc) = self.class.field_desc(id) else {
            debug_assert!(false, "field {id:?} of {}", self.class.full_name);
            return FieldValue::Absent;
        };
        match (&self.body, &desc.place) {
            (EventBody::Ftrace(_) | EventBody::Perf { .. }, FieldPlace::Payload(field)) => {
                match self.payload() {
                    Some((payload, endian)) => {
                        FieldValue::from_payload(field.value(payload, endian), endian)
                    }
                    None => FieldValue::Absent,
                }
            }
            (EventBody::Perf { entry, .. }, FieldPlace::Sample(field)) => {
                self.sample_field(entry, *field)
            }
            (EventBody::Ctf { event, fields, .. }, FieldPlace::Ctf(field)) => {
                fields.field(event, *field)
            }
            _ => {
                debug_assert!(false, "{} is of another format than its event", desc.name);
                FieldValue::Absent
            }
        }
    }

    /// Appends the value of a field as a cell of a table shows it; of an address that the event's
    /// text shows as a function, `call_site=%pS`, that function.
    pub fn write_field_cell(&self, id: FieldId, out: &mut Vec<u8>) {
        let value = self.field(id);
        let place = self.class.field_desc(id).map(|desc| &desc.place);
        let is_function = matches!(place, Some(FieldPlace::Payload(field)) if field.is_function);
        let function = value.number().filter(|_| is_function);
        match function.and_then(|address| self.kernel_symbol(address as u64)) {
            Some((name, offset)) => _ = write!(out, "{name}+{offset:#x}"),
            None => value.write_cell(out),
        }
    }

    /// Appends the text of an event of perf.data: a tracepoint's by its print format; of a
    /// sample its weight and where it was taken. Nothing of other formats, whose renderers
    /// have texts of their own.
    pub fn write_perf_text(&self, out: &mut Vec<u8>) {
        let EventBody::Perf { entry, state, .. } = &self.body else { return };
        let Some(sample) = self.sample() else { return };
        if let (Some(raw), ClassOrigin::Kernel) = (sample.raw, self.class.origin) {
            return state.write_payload(entry, raw, out);
        }
        let _ = write!(out, "{}", self.period());
        if let Some(ip) = sample.ip {
            let mode = entry.raw.misc.cpumode();
            let name = state.name(self.task().pid.unwrap_or(u32::MAX), ip, mode);
            let _ = write!(out, " {ip:x} {}", name.as_deref().unwrap_or("[unknown]"));
        }
    }

    /// Appends the member `message` of a perf.data's tracepoint whose text names addresses.
    pub fn write_perf_message(&self, out: &mut Vec<u8>) {
        let EventBody::Perf { entry, state, .. } = &self.body else { return };
        if let (Some(raw), ClassOrigin::Kernel) =
            (self.sample().and_then(|s| s.raw), self.class.origin)
        {
            state.write_message(entry, raw, out);
        }
    }

    /// Weight of a sample: its period, else 1.
    pub fn period(&self) -> u64 {
        let EventBody::Perf { entry, .. } = &self.body else { return 1 };
        let fixed = || entry.desc().map_or(1, |d| d.attr.sample_period.max(1));
        self.sample().and_then(|s| s.period).unwrap_or_else(fixed)
    }

    /// The record of a perf.data.
    pub fn perf_entry(&self) -> Option<&Entry<'e>> {
        match &self.body {
            EventBody::Perf { entry, .. } => Some(entry),
            EventBody::Ftrace(_) | EventBody::Ctf { .. } => None,
        }
    }

    /// Whether it may have a stack.
    #[inline]
    fn has_stack(&self) -> bool {
        match &self.body {
            EventBody::Perf { .. } => true,
            EventBody::Ftrace(body) => !(body.kernel.is_empty() && body.user.is_empty()),
            EventBody::Ctf { .. } => self.class.ctf.as_ref().is_none_or(|c| c.has_stack),
        }
    }

    /// The stack that was recorded with it.
    pub fn stack(&self) -> EventStack<'_> {
        match &self.body {
            EventBody::Perf { .. } => {
                let frames = self.call_chain();
                let of = |mode| frames.iter().map(|f| f.address).filter(move |a| a.mode == mode);
                let kernel = of(Misc::KERNEL).map(|a| a.ip).collect();
                let user = of(Misc::USER).map(|a| a.ip).collect();
                EventStack { kernel: Cow::Owned(kernel), user: Cow::Owned(user) }
            }
            EventBody::Ftrace(body) => {
                EventStack { kernel: Cow::Borrowed(body.kernel), user: Cow::Borrowed(body.user) }
            }
            EventBody::Ctf { event, fields, .. } => fields.stack(event),
        }
    }

    /// Frames of a sample's call chain, innermost first: what the kernel recorded, and what is
    /// unwound of a copy of the program's stack. Empty for events that are no samples.
    pub fn call_chain(&self) -> Vec<ChainFrame> {
        let EventBody::Perf { entry, state, .. } = &self.body else { return Vec::new() };
        let has_chain = |d: &EventDesc| d.attr.sample_type.contains(SampleType::CALLCHAIN);
        match entry.desc().filter(|d| has_chain(d)).and_then(|_| self.sample()) {
            Some(sample) => state.chain(entry, sample),
            None => Vec::new(),
        }
    }

    /// The kernel's part of a sample's call chain as it was recorded, and the number of the state
    /// that it resolves in: where both are the same, so are its frames. None where the parts cannot
    /// be distinguished.
    pub fn kernel_chain(&self) -> Option<(&'e [u8], u64)> {
        let EventBody::Perf { state, .. } = &self.body else { return None };
        let words = self.sample().filter(|s| s.has_callchain()).map(|s| kernel_part(s).0)?;
        let generation = state.kernel_generation()?;
        (!words.is_empty()).then_some((words, generation))
    }

    /// The binary and symbol in which a sample was taken, and those of the data that it is about.
    pub fn sampled_places(&self) -> Option<(Located, Option<Located>)> {
        let EventBody::Perf { entry, state, .. } = &self.body else { return None };
        let (sample, pid) = (self.sample()?, self.task().pid?);
        let code = state.locate(pid, sample.ip?, entry.raw.misc.cpumode())?;
        let data = sample.addr.and_then(|addr| state.locate(pid, addr, Misc::USER));
        Some((code, data))
    }

    /// Whether the program of the event's process is one of 32 bits, where the recording states it.
    pub fn is_of_32_bit_program(&self) -> Option<bool> {
        match &self.body {
            EventBody::Perf { state, .. } => state.is_32_bit(self.task().pid?),
            EventBody::Ftrace(_) | EventBody::Ctf { .. } => None,
        }
    }

    /// Name of the variable at an address of the event's process, where the recording and the
    /// binary tell.
    pub fn variable(&self, addr: u64) -> Option<String> {
        match &self.body {
            EventBody::Perf { state, .. } => state.variable(self.task().pid?, addr),
            EventBody::Ftrace(_) | EventBody::Ctf { .. } => None,
        }
    }

    /// Hands over the symbols that frames of its call chain are resolved with.
    pub fn with_symbols(&self, see: &mut dyn FnMut(&Resolver)) {
        if let EventBody::Perf { state, .. } = &self.body {
            state.with_symbols(see);
        }
    }

    /// Addresses of a stack of the kernel that is an event of its own (`ftrace:kernel_stack`),
    /// innermost first; none of other events.
    pub fn stack_entries(&self) -> Vec<u64> {
        let declared = |name: &str| self.class.field(name).and_then(|f| self.class.field_desc(f));
        let Some((payload, endian)) = self.payload().filter(|_| self.class.is_stack) else {
            return Vec::new();
        };
        // It is declared with eight addresses; its size gives the actual number.
        let Some((offset, bytes)) = declared("caller").and_then(FieldDesc::offset_and_size) else {
            return Vec::new();
        };
        let size = self.class.field("size").and_then(|f| self.field(f).number());
        let most = size.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(0));
        let words = payload.get(offset as usize..).unwrap_or(&[]);
        match bytes {
            32 => words.as_chunks().0.iter().take(most).map(|w| endian.u32(*w).into()).collect(),
            _ => words.as_chunks().0.iter().take(most).map(|w| endian.u64(*w)).collect(),
        }
    }

    /// The functions of its stack, innermost first; an address stands for a function that
    /// has no name.
    #[inline]
    pub fn stack_names(&self) -> Vec<String> {
        if self.has_stack() { self.name_stack() } else { Vec::new() }
    }

    fn name_stack(&self) -> Vec<String> {
        if let EventBody::Perf { .. } = &self.body {
            return self.chain_names();
        }
        let stack = self.stack();
        let hex = |addr: u64| format!("{addr:#x}");
        let name = |addr: &u64, kernel| self.function(*addr, kernel).unwrap_or_else(|| hex(*addr));
        let kernel = stack.kernel.iter().map(|a| name(a, true));
        kernel.chain(stack.user.iter().map(|a| name(a, false))).collect()
    }

    fn chain_names(&self) -> Vec<String> {
        let mut frames = self.call_chain();
        // Nothing of guests and hypervisors is known here.
        frames.retain(|f| [Misc::KERNEL, Misc::USER].contains(&f.address.mode));
        let mut names = Vec::with_capacity(frames.len());
        self.with_symbols(&mut |symbols| {
            names.extend(frames.iter().map(|f| match f.shown.symbol {
                Some(symbol) => symbols.name(symbol).to_owned(),
                None => format!("{:#x}", f.address.ip),
            }));
        });
        names
    }

    /// Name of the function at an address of its stack, in the kernel or in the program.
    pub fn function(&self, addr: u64, in_kernel: bool) -> Option<String> {
        match &self.body {
            EventBody::Perf { state, .. } => {
                let mode = if in_kernel { Misc::KERNEL } else { Misc::USER };
                state.name(self.task().pid.unwrap_or(u32::MAX), addr, mode)
            }
            EventBody::Ftrace(body) if in_kernel => body.names.kernel_function(addr),
            EventBody::Ctf { fields, .. } if in_kernel => fields.kernel_function(addr),
            _ => None,
        }
    }

    /// Function of the kernel at an address of its fields, and how far the address is from its
    /// begin.
    pub fn kernel_symbol(&self, addr: u64) -> Option<(String, u64)> {
        match &self.body {
            EventBody::Perf { state, .. } => state.kernel_symbol(addr),
            EventBody::Ftrace(body) => body.names.kernel_symbol(addr),
            EventBody::Ctf { fields, .. } => fields.kernel_symbol(addr),
        }
    }

    /// Path of the binary that the program had mapped at an address, where the recording of an
    /// event that is not a sample states it.
    pub fn binary(&self, addr: u64) -> Option<String> {
        match &self.body {
            EventBody::Ftrace(body) => body.names.binary(body.user_process, addr),
            _ => None,
        }
    }

    #[inline]
    fn sample(&self) -> Option<&Sample<'e>> {
        let EventBody::Perf { entry, sample, .. } = &self.body else { return None };
        let parse = || {
            let attr = &entry.desc()?.attr;
            Sample::parse(&entry.raw, attr).ok().map(Box::new)
        };
        sample.get_or_init(parse).as_deref()
    }

    fn sample_field(&self, entry: &Entry<'_>, field: SampleField) -> FieldValue<'static> {
        debug_assert!(entry.desc().is_some(), "a sample without an event");
        let Some(s) = self.sample() else { return FieldValue::Absent };
        let (value, is_address) = match field {
            SampleField::Ip => (s.ip, true),
            SampleField::Addr => (s.addr, true),
            SampleField::PhysAddr => (s.phys_addr, true),
            SampleField::Period => (s.period, false),
            SampleField::Weight => (s.weight, false),
            SampleField::DataSrc => (s.data_src, false),
            SampleField::Cgroup => (s.cgroup, false),
        };
        match (value, is_address) {
            (Some(v), true) => FieldValue::Address(v),
            (Some(v), false) => FieldValue::Unsigned(v),
            (None, _) => FieldValue::Absent,
        }
    }
}
