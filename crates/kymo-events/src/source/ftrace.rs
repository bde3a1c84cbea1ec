//! Events of a trace.dat. A stack is an event of its own behind the one it belongs to: where
//! it is asked for, events wait for the next of their CPU, which may be their stack.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::OnceLock;

use kymo_files::tracedat::{self, TraceDat};
use kymo_symbols::Kallsyms;

use super::ReadOptions;
use super::registry::Registry;
use crate::event::{EventBody, KernelFunctions, RecordedEvent, TaskInfo};
use crate::schema::{ClassOrigin, LayoutId, RecordedClass};
use crate::trace_dat::{FormatTable, KnownEvent, TaskName, TaskNames};

/// What is known of a recording.
pub(super) struct KernelContext<'s> {
    data: &'s TraceDat,
    formats: FormatTable<'s>,
    names: RefCell<TaskNames>,
    kallsyms: OnceLock<Kallsyms>,
}

impl<'s> KernelContext<'s> {
    pub(super) fn new(data: &'s TraceDat) -> KernelContext<'s> {
        KernelContext {
            data,
            formats: FormatTable::new(data),
            names: RefCell::new(TaskNames::new(&data.machine().saved_cmdlines)),
            kallsyms: OnceLock::new(),
        }
    }

    /// Names of tasks at the present place.
    pub(super) fn names(&self) -> &RefCell<TaskNames> {
        &self.names
    }
}

impl KernelFunctions for KernelContext<'_> {
    fn name(&self, addr: u64) -> Option<String> {
        let text = || self.data.machine().kallsyms.as_bytes().to_vec();
        let table = self.kallsyms.get_or_init(|| Kallsyms::parse_as_kernel(text()));
        table.lookup(addr).map(|(_, _, name, _)| name.to_owned())
    }
}

/// An event whose stack may follow.
#[derive(Default)]
struct Pending {
    waits: bool,
    id: u16,
    time: u64,
    task: TaskInfo,
    payload: Vec<u8>,
    kernel: Vec<u64>,
    user: Vec<u64>,
}

/// Instance and CPU.
type RingId = (usize, u32);

/// A recording under way.
pub(super) struct KernelLane<'s> {
    context: &'s KernelContext<'s>,
    number: usize,
    /// By number in `common_type`.
    classes: Vec<Option<Box<RecordedClass>>>,
    join_stacks: bool,
    /// Of each ring that had an event; a machine has few.
    pending: Vec<(RingId, Pending)>,
}

impl<'s> KernelLane<'s> {
    pub(super) fn new(
        context: &'s KernelContext<'s>,
        number: usize,
        options: ReadOptions,
    ) -> KernelLane<'s> {
        let pending = Vec::new();
        let join_stacks = options.join_stacks;
        KernelLane { context, number, classes: Vec::new(), join_stacks, pending }
    }

    pub(super) fn event(
        &mut self,
        e: &tracedat::Event<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let context = self.context;
        let id = context.formats.id(e.payload).unwrap_or(0);
        let tid = context.formats.pid(e.payload);
        let known = context.formats.get(id).ok();
        if self.join_stacks {
            let endian = context.formats.endian;
            let slot = self.slot((e.buffer, e.cpu));
            let Some((_, pending)) = self.pending.get_mut(slot) else {
                return ControlFlow::Continue(());
            };
            let belongs = pending.waits && pending.task.tid == Some(tid as u32);
            if let Some(known) = known.filter(|_| belongs) {
                if let Some(stack) = &known.stack {
                    pending.kernel.extend(stack.entries(e.payload, endian));
                    return ControlFlow::Continue(());
                }
                if let Some(stack) = &known.user_stack {
                    let entries = stack.entries(e.payload, endian);
                    pending.user.extend(entries.take_while(|a| *a != 0));
                    return ControlFlow::Continue(());
                }
            }
            self.release(slot, registry, sink)?;
        }
        if let Some(known) = known.filter(|k| !k.names_of_tasks.is_empty()) {
            let mut names = context.names.borrow_mut();
            names.learn(known, e.payload, context.formats.endian, |_, _| {});
        }
        if self.class(id, registry).is_none_or(|c| !registry.wants_layout(c.layout)) {
            return ControlFlow::Continue(());
        }
        let task = task(tid, context.names.borrow().find(tid));
        if self.join_stacks {
            let slot = self.slot((e.buffer, e.cpu));
            let Some((_, pending)) = self.pending.get_mut(slot) else {
                return ControlFlow::Continue(());
            };
            (pending.waits, pending.id, pending.time, pending.task) = (true, id, e.time, task);
            pending.payload.clear();
            pending.payload.extend_from_slice(e.payload);
            pending.kernel.clear();
            pending.user.clear();
            return ControlFlow::Continue(());
        }
        let Some(class) = self.known_class(id) else { return ControlFlow::Continue(()) };
        let body = self.body((e.buffer, e.cpu), e.payload, &task, (&[], &[]));
        registry.give(&RecordedEvent::new(class, Some(e.time), body), sink)
    }

    fn body<'e>(
        &'e self,
        (buffer, cpu): RingId,
        payload: &'e [u8],
        task: &'e TaskInfo,
        (kernel, user): (&'e [u64], &'e [u64]),
    ) -> EventBody<'e> {
        let buffers = self.context.data.buffers();
        EventBody::Ftrace {
            payload,
            endian: self.context.formats.endian,
            cpu,
            task,
            instance: buffers.get(buffer).map_or("", |b| &b.name),
            kernel,
            user,
            functions: self.context,
        }
    }

    /// Hands on an event that waited.
    fn release(
        &mut self,
        slot: usize,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some((ring, pending)) = self.pending.get_mut(slot) else {
            return ControlFlow::Continue(());
        };
        if !std::mem::take(&mut pending.waits) {
            return ControlFlow::Continue(());
        }
        let (ring, pending) = (*ring, std::mem::take(pending));
        let mut flow = ControlFlow::Continue(());
        if let Some(class) = self.known_class(pending.id) {
            let stack = (&*pending.kernel, &*pending.user);
            let body = self.body(ring, &pending.payload, &pending.task, stack);
            flow = registry.give(&RecordedEvent::new(class, Some(pending.time), body), sink);
        }
        // Its memory is used again.
        if let Some(place) = self.pending.get_mut(slot) {
            place.1 = pending;
        }
        flow
    }

    /// Hands on the events whose stacks might still have come, by time.
    pub(super) fn finish(
        &mut self,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut slots: Vec<(u64, usize)> =
            self.pending.iter().enumerate().map(|(slot, (_, p))| (p.time, slot)).collect();
        slots.sort_unstable();
        slots.into_iter().try_for_each(|(_, slot)| self.release(slot, registry, sink))
    }

    /// Place of a ring among those that had an event.
    #[inline]
    fn slot(&mut self, ring: RingId) -> usize {
        let known = self.pending.iter().position(|(r, _)| *r == ring);
        known.unwrap_or_else(|| {
            self.pending.push((ring, Pending::default()));
            self.pending.len() - 1
        })
    }

    fn known_class(&self, id: u16) -> Option<&RecordedClass> {
        self.classes.get(usize::from(id))?.as_deref()
    }

    fn class(&mut self, id: u16, registry: &mut Registry<'_>) -> Option<&RecordedClass> {
        if self.known_class(id).is_none() {
            let at = (registry.next_layout(), self.number);
            let class = match self.context.formats.get(id) {
                Ok(known) => RecordedClass::from_format(&known.format, at),
                Err(_) => unknown(id, at),
            };
            let index = usize::from(id);
            if self.classes.len() <= index {
                self.classes.resize_with(index + 1, || None);
            }
            if let Some(slot) = self.classes.get_mut(index) {
                *slot = Some(registry.add(class));
            }
        }
        self.known_class(id)
    }
}

/// A task by the name it has now.
fn task(tid: i32, name: Option<TaskName>) -> TaskInfo {
    match name {
        Some(name) => TaskInfo::new(None, Some(tid as u32), name.as_bytes()),
        None => TaskInfo::unnamed(None, Some(tid as u32), b"<...>"),
    }
}

/// The class of events whose format is not in the recording.
fn unknown(id: u16, (layout, recording): (LayoutId, usize)) -> RecordedClass {
    let name = format!("[event {id}]");
    RecordedClass {
        layout,
        recording,
        system: String::new(),
        full_name: name.clone(),
        name,
        origin: ClassOrigin::Kernel,
        fields: Vec::new(),
        print_format: None,
        is_stack: false,
    }
}

/// The classes of a recording before it is read: all that it has formats of.
pub(super) fn classes(
    data: &TraceDat,
    number: usize,
    registry: &mut Registry<'_>,
) -> Vec<RecordedClass> {
    let formats = FormatTable::new(data);
    let known = formats.iter().filter_map(Result::ok);
    let class = |k: &KnownEvent| {
        let at = (registry.next_layout(), number);
        *registry.add(RecordedClass::from_format(&k.format, at))
    };
    known.map(class).collect()
}
