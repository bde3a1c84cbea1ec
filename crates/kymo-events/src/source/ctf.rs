//! Events of CTF traces: fields are found by one walk over the body.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kymo_files::ctf::read::{Ctf, CtfEvent, FieldInfo, Group, Part, Reader, Run, TaskField, Visit};

use kymo_model::{Note, NoteKind};
use kymo_symbols::ResolverOptions;
use rustc_hash::FxHashMap;

use super::event_batch::{EventBatch, NONE};
use super::loss_marks::LossMarks;
use super::registry::Registry;
use crate::ctf::{EventTask, KernelFunctions, TraceOwners, ValueText};
use crate::event::{CtfFields, EventBody, EventStack, LiveReader, RecordedEvent, TaskInfo};
use crate::schema::{KERNEL_STACK, LayoutId, RecordedClass, USER_STACK};
use crate::trace_dat::TaskNames;
use crate::value::FieldValue;

/// More than any tracer records; what a damaged trace states beyond is not read.
const DEEPEST: usize = 1024;
/// CPUs whose tasks are known.
const MOST_CPUS: usize = 1 << 14;

/// Traces under way.
pub(super) struct CtfContext<'s> {
    ctf: &'s Ctf,
    number: usize,
    walker: Walker<'s>,
    classes: Vec<Option<Arc<RecordedClass>>>,
    losses: LossMarks,
}

/// Looks at the values of events.
pub(crate) struct Walker<'s> {
    bodies: BodyReader<'s>,
    /// Names of threads by the kernel, where it was recorded, too.
    names: Option<&'s RefCell<TaskNames>>,
    running: RefCell<RunningTasks>,
}

/// The task on each CPU as of its last switch, for traces of the kernel whose events do not say
/// their task (LTTng without `add-context --type=tid`).
#[derive(Default)]
struct RunningTasks {
    /// By class: the fields of who gets the CPU, if it is a switch.
    fields: Vec<Option<Option<[u32; 2]>>>,
    tasks: FxHashMap<u32, EventTask>,
}

impl RunningTasks {
    fn forget(&mut self, cpu: Option<u32>) {
        cpu.map(|cpu| self.tasks.remove(&cpu));
    }

    fn note(&mut self, bodies: &BodyReader<'_>, e: &CtfEvent<'_>) {
        let Some(cpu) = e.cpu else { return };
        let index = e.class as usize;
        if self.fields.len() <= index {
            self.fields.resize(index + 1, None);
        }
        let Some(slot) = self.fields.get_mut(index) else { return };
        let Some([tid, comm]) = *slot.get_or_insert_with(|| switch_fields(bodies.ctf, e.class))
        else {
            return;
        };
        let mut task = EventTask::default();
        task.tid = bodies.field(e, tid).number().and_then(|tid| u32::try_from(tid).ok());
        if let FieldValue::Text(name) = bodies.field(e, comm) {
            task.name(&name);
        }
        if self.tasks.len() < MOST_CPUS || self.tasks.contains_key(&cpu) {
            self.tasks.insert(cpu, task);
        }
    }
}

/// Fields of the task that gets the CPU, in a class of switches whose events do not state their
/// task.
fn switch_fields(ctf: &Ctf, class: u32) -> Option<[u32; 2]> {
    let class = ctf.class(class).filter(|class| class.event.name == "sched_switch")?;
    if class.fields().iter().any(|f| matches!(f.task, Some(TaskField::Tid | TaskField::VirtualTid)))
    {
        return None;
    }
    let place = |name: &str| Some(class.field(Part::Fields, name)?.0 as u32);
    Some([place("next_tid")?, place("next_comm")?])
}

/// Looks at values that depend on nothing but their events and traces.
pub(super) struct BodyReader<'s> {
    ctf: &'s Ctf,
    reader: RefCell<Reader<'s>>,
    owners: Arc<TraceOwners>,
    addresses: Arc<AddressNames<'s>>,
}

/// Names addresses in stacks, for all threads.
struct AddressNames<'s> {
    functions: Mutex<KernelFunctions<'s>>,
    /// Whether an event had a stack of its program, and it was asked for.
    user_asked: AtomicBool,
}

impl<'s> AddressNames<'s> {
    fn functions(&self) -> MutexGuard<'_, KernelFunctions<'s>> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'s> CtfContext<'s> {
    pub(super) fn new(
        ctf: &'s Ctf,
        number: usize,
        names: Option<&'s RefCell<TaskNames>>,
        symbols: &'s ResolverOptions,
    ) -> CtfContext<'s> {
        let walker = Walker::new(ctf, names, symbols);
        CtfContext { ctf, number, walker, classes: Vec::new(), losses: LossMarks::default() }
    }

    /// Notes on names of functions that were asked for.
    pub(super) fn notes(&self) -> Vec<Note> {
        let addresses = &self.walker.bodies.addresses;
        let mut notes: Vec<Note> = addresses.functions().notes().into_iter().collect();
        if addresses.user_asked.load(Ordering::Relaxed) {
            let fact = "CTF does not contain the mappings of programs: their frames have no names";
            let advice = Some("kymo record -g -e EVENT names them".to_owned());
            notes.push(Note::doubt(NoteKind::Unresolved, fact, advice));
        }
        notes
    }

    pub(super) fn event(
        &mut self,
        e: &CtfEvent<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if let Some(lost) = e.missed {
            self.losses.note(e.cpu, lost);
            self.walker.running.borrow_mut().forget(e.cpu);
        }
        let flow = self.give(e, registry, sink);
        // Who leaves the CPU is the task of a switch.
        self.walker.running.borrow_mut().note(&self.walker.bodies, e);
        flow
    }

    fn give(
        &mut self,
        e: &CtfEvent<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (ctf, walker) = (self.ctf, &self.walker);
        let class = find_class((ctf, self.number), &mut self.classes, e.class, registry);
        let Some(class) = class else { return ControlFlow::Continue(()) };
        let trace = ctf.traces().get(e.trace as usize).map_or("", |t| t.name());
        let body = EventBody::Ctf { event: e, trace, program: None, fields: walker };
        let lost = self.losses.take(|| e.cpu);
        registry.give(&RecordedEvent::new(class, Some(e.time), body).after_loss(lost), sink)
    }

    /// A reader of its events for another thread.
    pub(super) fn reader(&self) -> BodyReader<'s> {
        self.walker.bodies.fork_for_thread()
    }

    /// Adds an event to a batch for other threads. Its task is found now if that depends on
    /// what the kernel calls the thread by now.
    pub(super) fn hand_off<'f>(
        &mut self,
        e: &CtfEvent<'_>,
        registry: &mut Registry<'f>,
        batch: &mut EventBatch<'f>,
    ) {
        let class = find_class((self.ctf, self.number), &mut self.classes, e.class, registry);
        let Some(class) = class else { return };
        let task = match self.walker.names {
            Some(_) => batch.push_task(self.walker.task(e)),
            None => NONE,
        };
        batch.push_ctf(e, class.layout, task);
    }

    /// Adds several events.
    pub(super) fn hand_off_run<'f>(
        &mut self,
        run: &Run<'_>,
        registry: &mut Registry<'f>,
        batch: &mut EventBatch<'f>,
    ) {
        let (of, classes) = ((self.ctf, self.number), &mut self.classes);
        let layout = |class| find_class(of, classes, class, registry).map(|c| c.layout);
        batch.push_run(run, layout);
    }
}

/// The class with a number, if events of it can be wanted.
#[inline]
fn find_class<'c>(
    (ctf, number): (&Ctf, usize),
    classes: &'c mut Vec<Option<Arc<RecordedClass>>>,
    class: u32,
    registry: &mut Registry<'_>,
) -> Option<&'c RecordedClass> {
    let index = class as usize;
    if classes.get(index).is_none_or(Option::is_none)
        && let Some(class) = ctf.class(class)
    {
        if classes.len() <= index {
            classes.resize_with(index + 1, || None);
        }
        let class = RecordedClass::from_ctf(&class, (registry.next_layout(), number));
        if let Some(slot) = classes.get_mut(index) {
            *slot = Some(registry.add(class));
        }
    }
    let class = classes.get(index)?.as_deref()?;
    registry.wants_layout(class.layout).then_some(class)
}

impl<'s> BodyReader<'s> {
    fn fork_for_thread(&self) -> BodyReader<'s> {
        let (owners, addresses) = (Arc::clone(&self.owners), Arc::clone(&self.addresses));
        BodyReader { ctf: self.ctf, reader: RefCell::new(self.ctf.reader()), owners, addresses }
    }

    pub(super) fn ctf(&self) -> &'s Ctf {
        self.ctf
    }

    fn task_of(&self, event: &CtfEvent<'_>) -> EventTask {
        let mut visitor = TaskVisitor { task: self.owners.get(event.trace) };
        self.visit_contexts(event, &mut visitor);
        visitor.task
    }

    fn visit(&self, event: &CtfEvent<'_>, visitor: &mut impl Visit) {
        // What is whole of an event counts: its class, its contexts.
        let _ = self.reader.borrow_mut().see(event.class, &event.body, visitor);
    }

    /// Visits the contexts of an event without its fields.
    fn visit_contexts(&self, event: &CtfEvent<'_>, visitor: &mut impl Visit) {
        let _ = self.reader.borrow_mut().see_contexts(event.class, &event.body, visitor);
    }
}

/// A task as events show it.
fn task_info(task: &EventTask) -> TaskInfo {
    if task.named {
        TaskInfo::new(task.pid, task.tid.or(task.pid), task.comm())
    } else {
        TaskInfo::unnamed(task.pid, task.tid.or(task.pid), b"N/A")
    }
}

impl<'s> Walker<'s> {
    /// `names`: those that the kernel has for threads.
    pub(crate) fn new(
        ctf: &'s Ctf,
        names: Option<&'s RefCell<TaskNames>>,
        symbols: &'s ResolverOptions,
    ) -> Walker<'s> {
        let bodies = BodyReader {
            ctf,
            reader: RefCell::new(ctf.reader()),
            owners: Arc::new(TraceOwners::new(ctf)),
            addresses: Arc::new(AddressNames {
                functions: Mutex::new(KernelFunctions::new(ctf, symbols)),
                user_asked: AtomicBool::new(false),
            }),
        };
        Walker { bodies, names, running: RefCell::default() }
    }
}

impl LiveReader for Walker<'_> {
    fn owner(&self, event: &CtfEvent<'_>) -> EventTask {
        self.bodies.owners.get(event.trace)
    }

    fn kernel_names(&self) -> Option<&RefCell<TaskNames>> {
        self.names
    }

    fn with_reader(&self, read: &mut dyn FnMut(&mut Reader<'_>)) {
        read(&mut self.bodies.reader.borrow_mut());
    }
}

impl CtfFields for Walker<'_> {
    fn task(&self, event: &CtfEvent<'_>) -> TaskInfo {
        let mut task = self.bodies.task_of(event);
        let running = self.running.borrow();
        if let (None, Some(known)) = (task.tid, event.cpu.and_then(|cpu| running.tasks.get(&cpu))) {
            task = *known;
        }
        if let Some(names) = self.names {
            task.rename(|tid| names.borrow().find(tid));
        }
        task_info(&task)
    }

    fn field(&self, event: &CtfEvent<'_>, field: u32) -> FieldValue<'static> {
        self.bodies.field(event, field)
    }

    fn stack(&self, event: &CtfEvent<'_>) -> EventStack<'static> {
        self.bodies.stack(event)
    }

    fn kernel_function(&self, addr: u64) -> Option<String> {
        self.bodies.kernel_function(addr)
    }

    fn kernel_symbol(&self, addr: u64) -> Option<(String, u64)> {
        self.bodies.kernel_symbol(addr)
    }
}

impl CtfFields for BodyReader<'_> {
    fn task(&self, event: &CtfEvent<'_>) -> TaskInfo {
        task_info(&self.task_of(event))
    }

    fn field(&self, event: &CtfEvent<'_>, field: u32) -> FieldValue<'static> {
        let Some(class) = self.ctf.class(event.class) else { return FieldValue::Absent };
        let Some(wanted) = class.fields().get(field as usize) else { return FieldValue::Absent };
        let mut visitor = FieldVisitor {
            wanted,
            value: FieldValue::Absent,
            text: ValueText::default(),
            shown: Vec::new(),
            inside: false,
        };
        self.visit(event, &mut visitor);
        if visitor.inside || !visitor.shown.is_empty() {
            FieldValue::Compound(visitor.shown)
        } else {
            visitor.value
        }
    }

    fn stack(&self, event: &CtfEvent<'_>) -> EventStack<'static> {
        let mut visitor = StackVisitor::default();
        self.visit_contexts(event, &mut visitor);
        if !visitor.user.is_empty() {
            self.addresses.user_asked.store(true, Ordering::Relaxed);
        }
        EventStack { kernel: Cow::Owned(visitor.kernel), user: Cow::Owned(visitor.user) }
    }

    fn kernel_function(&self, addr: u64) -> Option<String> {
        self.addresses.functions().name(addr)
    }

    fn kernel_symbol(&self, addr: u64) -> Option<(String, u64)> {
        self.addresses.functions().symbol(addr)
    }
}

struct TaskVisitor {
    task: EventTask,
}

impl Visit for TaskVisitor {
    fn int(&mut self, field: &FieldInfo, value: u64) {
        self.task.number(field, value);
    }

    fn text(&mut self, field: &FieldInfo, value: &[u8]) {
        if field.task == Some(TaskField::Name) {
            self.task.name(value);
        }
    }
}

/// Finds the value of one field.
struct FieldVisitor<'w> {
    wanted: &'w FieldInfo,
    value: FieldValue<'static>,
    text: ValueText,
    /// Text of a structure or array.
    shown: Vec<u8>,
    inside: bool,
}

impl FieldVisitor<'_> {
    fn is_wanted(&self, field: &FieldInfo) -> bool {
        std::ptr::eq(self.wanted, field)
    }

    /// Cuts off `name=`, which the text of a value begins with.
    fn cut_name(&mut self) {
        let name = (self.wanted.name.len() + 1).min(self.shown.len());
        self.shown.drain(..name);
    }
}

impl Visit for FieldVisitor<'_> {
    #[inline]
    fn int(&mut self, field: &FieldInfo, value: u64) {
        if self.inside {
            return self.text.int(field, value, true, &mut self.shown);
        }
        if !self.is_wanted(field) {
            return;
        }
        self.value = match (field.labels.is_some(), field.signed) {
            (true, signed) => {
                let mut shown = Vec::new();
                self.text.int(field, value, true, &mut shown);
                let name = (field.name.len() + 1).min(shown.len());
                shown.drain(..name);
                FieldValue::Enumeration { value, signed, shown }
            }
            (false, true) => FieldValue::Signed(value as i64),
            (false, false) if field.base == 16 => FieldValue::Address(cut(value, field.size)),
            (false, false) => FieldValue::Unsigned(value),
        };
    }

    fn float(&mut self, field: &FieldInfo, value: f64, single: bool) {
        if self.inside {
            return self.text.float(field, value, single, true, &mut self.shown);
        }
        if self.is_wanted(field) {
            self.value = FieldValue::Float(value);
        }
    }

    fn text(&mut self, field: &FieldInfo, text: &[u8]) {
        if self.inside {
            return self.text.text(field, text, true, &mut self.shown);
        }
        if self.is_wanted(field) {
            self.value = FieldValue::Text(Cow::Owned(text.to_vec()));
        }
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        if self.inside {
            return self.text.open(field, group, true, &mut self.shown);
        }
        if self.is_wanted(field) {
            self.text.open(field, group, true, &mut self.shown);
            self.cut_name();
            self.inside = true;
        }
    }

    fn close(&mut self, group: Group) {
        if !self.inside {
            return;
        }
        self.text.close(group, &mut self.shown);
        self.inside = !self.text.is_outside();
    }
}

/// The bits of a number without its sign's.
fn cut(bits: u64, size: u32) -> u64 {
    if size >= 64 { bits } else { bits & ((1 << size) - 1) }
}

#[derive(Default)]
struct StackVisitor {
    /// The stack whose array is open; whether it is the kernel's.
    open: Option<bool>,
    kernel: Vec<u64>,
    user: Vec<u64>,
}

impl Visit for StackVisitor {
    fn int(&mut self, _field: &FieldInfo, value: u64) {
        let Some(kernel) = self.open else { return };
        let stack = if kernel { &mut self.kernel } else { &mut self.user };
        // The tracer ends a stack with all bits set.
        if value != u64::MAX && value != 0 && stack.len() < DEEPEST {
            stack.push(value);
        }
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        if group == Group::Row {
            self.open = match field.name.as_str() {
                KERNEL_STACK => Some(true),
                USER_STACK => Some(false),
                _ => None,
            };
        }
    }

    fn close(&mut self, _group: Group) {
        self.open = None;
    }
}

/// The classes of traces before they are read.
pub(super) fn classes(ctf: &Ctf, number: usize, next: &mut LayoutId) -> Vec<RecordedClass> {
    let class = |n| {
        let class = ctf.class(n)?;
        Some(RecordedClass::from_ctf(&class, (next.take(), number)))
    };
    (0..ctf.class_count() as u32).filter_map(class).collect()
}
