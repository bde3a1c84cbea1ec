//! Events of a trace.dat. A stack is an event of its own behind the one it belongs to: where
//! it is asked for, events wait for it (`stack_join`).

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kymo_files::tracedat::{self, TraceDat};
use kymo_format::ring::Missed;
use kymo_model::{Endian, Note, NoteKind, counted};
use kymo_symbols::Kallsyms;
use rustc_hash::FxHashSet;

use super::ReadOptions;
use super::loss_marks::LossMarks;
use super::registry::Registry;
use super::stack_join::{FtraceContext, PendingEvent, PendingRing};
use crate::event::{EventBody, FtraceBody, RecordedEvent, StackNames, TaskInfo};
use crate::schema::{ClassOrigin, LayoutId, RecordedClass};
use crate::trace_dat::{FormatTable, KnownEvent, ProcessMaps, TaskGroups, TaskName, TaskNames};

/// State of a recording that is read.
pub(super) struct KernelContext<'s> {
    data: &'s TraceDat,
    pub(super) formats: FormatTable<'s>,
    names: RefCell<TaskNames>,
    groups: RefCell<TaskGroups>,
    addresses: AddressNames<'s>,
}

/// Names addresses in stacks, for all threads.
struct AddressNames<'s> {
    data: &'s TraceDat,
    /// Text of kernel symbols that counts before the recording's own.
    named_kallsyms: Option<&'s str>,
    kallsyms: OnceLock<Kallsyms>,
    maps: OnceLock<ProcessMaps>,
    /// Addresses of the kernel that were asked for and have no name.
    nameless: Mutex<FxHashSet<u64>>,
    /// Whether addresses of programs were asked for.
    user_asked: AtomicBool,
}

/// Facts of a recording that its events need, for all threads.
#[derive(Clone, Copy)]
pub(super) struct KernelFacts<'s> {
    data: &'s TraceDat,
    endian: Endian,
    addresses: &'s AddressNames<'s>,
}

impl<'s> KernelContext<'s> {
    pub(super) fn new(data: &'s TraceDat, named_kallsyms: Option<&'s str>) -> KernelContext<'s> {
        KernelContext {
            data,
            formats: FormatTable::new(data),
            names: RefCell::new(TaskNames::new(&data.machine().saved_cmdlines)),
            groups: RefCell::default(),
            addresses: AddressNames {
                data,
                named_kallsyms,
                kallsyms: OnceLock::new(),
                maps: OnceLock::new(),
                nameless: Mutex::default(),
                user_asked: AtomicBool::new(false),
            },
        }
    }

    /// Facts for the threads that read its events.
    pub(super) fn facts(&self) -> KernelFacts<'_> {
        let KernelContext { data, addresses, formats, .. } = self;
        KernelFacts { data, endian: formats.endian, addresses }
    }

    /// Processes of threads at the present place.
    pub(super) fn groups(&self) -> &RefCell<TaskGroups> {
        &self.groups
    }

    /// Names of tasks at the present place.
    pub(super) fn names(&self) -> &RefCell<TaskNames> {
        &self.names
    }

    /// Notes on names of functions and tasks that were asked for.
    pub(super) fn notes(&self) -> Vec<Note> {
        let mut notes = self.addresses.notes();
        notes.extend(self.names.borrow().note());
        notes
    }
}

impl AddressNames<'_> {
    fn nameless(&self) -> std::sync::MutexGuard<'_, FxHashSet<u64>> {
        self.nameless.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let nameless = self.nameless().len();
        if nameless > 0 {
            let fact = counted(
                nameless as u64,
                "address of the kernel has no name",
                "addresses of the kernel have no name",
            );
            let empty = self.named_kallsyms.is_none() && self.data.machine().kallsyms.is_empty();
            let advice = empty.then(|| "the recording has no kallsyms: --kallsyms FILE".to_owned());
            notes.push(Note::doubt(NoteKind::Unresolved, fact, advice));
        }
        if self.user_asked.load(Ordering::Relaxed) {
            let fact = "a trace.dat does not contain the mappings of programs: their frames have at most the name of a binary";
            let advice = Some("kymo record -g -e EVENT names them".to_owned());
            notes.push(Note::doubt(NoteKind::Unresolved, fact, advice));
        }
        notes
    }
}

impl StackNames for AddressNames<'_> {
    fn kernel_function(&self, addr: u64) -> Option<String> {
        self.kernel_symbol(addr).map(|(name, _)| name)
    }

    fn kernel_symbol(&self, addr: u64) -> Option<(String, u64)> {
        let text = || self.named_kallsyms.unwrap_or(&self.data.machine().kallsyms);
        let parse = || Kallsyms::parse_as_kernel(text().as_bytes().to_vec());
        let found = self.kallsyms.get_or_init(parse).lookup(addr);
        if found.is_none() {
            self.nameless().insert(addr);
        }
        found.map(|(start, _, name, _)| (name.to_owned(), addr.saturating_sub(start)))
    }

    fn binary(&self, process: Option<i32>, addr: u64) -> Option<String> {
        self.user_asked.store(true, Ordering::Relaxed);
        let maps = self.maps.get_or_init(|| ProcessMaps::parse(&self.data.options().procmaps));
        maps.binary(process?, addr).map(str::to_owned)
    }
}

impl<'s> KernelFacts<'s> {
    /// An event without a stack.
    #[inline]
    pub(super) fn body<'e>(
        self,
        (buffer, cpu): RingId,
        payload: &'e [u8],
        task: &'e TaskInfo,
    ) -> FtraceBody<'e>
    where
        's: 'e,
    {
        FtraceBody {
            live: None,
            payload,
            endian: self.endian,
            cpu,
            task,
            instance: self.data.buffers().get(buffer).map_or("", |b| &b.name),
            kernel: &[],
            user: &[],
            user_process: None,
            names: self.addresses,
        }
    }
}

/// Instance and CPU.
type RingId = (usize, u32);

/// A recording under way.
pub(super) struct KernelLane<'s> {
    context: &'s KernelContext<'s>,
    number: usize,
    /// By number in `common_type`.
    classes: Vec<Option<Arc<RecordedClass>>>,
    join_stacks: bool,
    losses: LossMarks,
    /// State per ring that had an event; a machine has few.
    pending: Vec<(RingId, PendingRing)>,
}

impl<'s> KernelLane<'s> {
    pub(super) fn new(
        context: &'s KernelContext<'s>,
        number: usize,
        options: ReadOptions,
    ) -> KernelLane<'s> {
        let pending = Vec::new();
        let join_stacks = options.join_stacks;
        let losses = LossMarks::default();
        KernelLane { context, number, classes: Vec::new(), join_stacks, losses, pending }
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.context.notes()
    }

    pub(super) fn event(
        &mut self,
        e: &tracedat::TraceDatEvent<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let context = self.context;
        let id = context.formats.id(e.payload).unwrap_or(0);
        let tid = context.formats.pid(e.payload);
        let known = context.formats.get(id).ok();
        if let Some(missed) = e.missed {
            let lost = if let Missed::Count(n) = missed { n } else { 0 };
            self.losses.note(Some(e.cpu), lost);
        }
        if let Some(known) = known.filter(|k| k.group.is_some()) {
            let mut groups = context.groups.borrow_mut();
            groups.learn(known, (tid, e.payload), context.formats.endian, |_, _| {});
        }
        // Entries and exits of functions come by themselves, and their order counts.
        let waits = self.join_stacks && known.is_none_or(|k| k.graph.is_none());
        let joint = FtraceContext { tid, flags: context.formats.flags(e.payload) };
        let slot = if waits { self.slot((e.buffer, e.cpu)) } else { 0 };
        if waits {
            if e.missed.is_some() {
                // A stack behind lost events is not that of the one before them.
                self.release(slot, Some(0), registry, sink)?;
            }
            self.release_elsewhere(slot, tid, registry, sink)?;
            if self.take_stack(slot, joint, known, e.payload) {
                return ControlFlow::Continue(());
            }
            let from = self.pending.get(slot).and_then(|(_, r)| r.join.complete_from(joint));
            self.release(slot, from, registry, sink)?;
        }
        let name = known.filter(|k| k.states_names()).and_then(|known| {
            let mut names = context.names.borrow_mut();
            names.learn(known, (tid, e.payload), context.formats.endian, |_| {})
        });
        if self.class(id, registry).is_none_or(|c| !registry.wants_layout(c.layout)) {
            return ControlFlow::Continue(());
        }
        let pid = context.groups.borrow().get(tid);
        let task = task((pid, tid), name.or_else(|| context.names.borrow().find(tid)));
        let lost = self.losses.take(|| Some(e.cpu));
        // A stack whose event is not there is an event of its own.
        let is_stack = known.is_some_and(|k| k.stack.is_some() || k.user_stack.is_some());
        if waits && !is_stack {
            if self.pending.get(slot).is_some_and(|(_, ring)| ring.join.is_full()) {
                self.release_one(slot, 0, registry, sink)?;
            }
            if let Some((_, ring)) = self.pending.get_mut(slot) {
                let event = PendingEvent { id, time: e.time, task, lost, ..ring.event(e.payload) };
                ring.join.push(joint, event);
            }
            return ControlFlow::Continue(());
        }
        let Some(class) = self.known_class(id) else { return ControlFlow::Continue(()) };
        let stack = known.and_then(|k| k.stack.as_ref());
        let kernel: Vec<u64> = stack
            .map(|s| s.entries(e.payload, context.formats.endian).collect())
            .unwrap_or_default();
        let body = FtraceBody {
            kernel: &kernel,
            ..context.facts().body((e.buffer, e.cpu), e.payload, &task)
        };
        let event = RecordedEvent::new(class, Some(e.time), EventBody::Ftrace(&body));
        registry.give(&event.after_loss(lost), sink)
    }

    /// Puts a stack to the event it belongs to. `false`: it is none, or its event is not there.
    fn take_stack(
        &mut self,
        slot: usize,
        context: FtraceContext,
        known: Option<&KnownEvent>,
        payload: &[u8],
    ) -> bool {
        let Some(known) = known else { return false };
        let (stack, is_user) = match (&known.stack, &known.user_stack) {
            (Some(stack), _) => (stack, false),
            (None, Some(stack)) => (stack, true),
            (None, None) => return false,
        };
        let ring = self.pending.get_mut(slot).map(|(_, ring)| ring);
        let Some(owner) = ring.and_then(|r| r.owner(context, is_user)) else { return false };
        let endian = self.context.formats.endian;
        if is_user {
            let entries = stack.entries(payload, endian);
            owner.user.extend(entries.take_while(|a| *a != 0));
            owner.user_process = stack.process(payload, endian);
            owner.task.pid = self.context.groups.borrow().get(context.tid);
        } else {
            owner.kernel.extend(stack.entries(payload, endian))
        }
        true
    }

    /// Hands on the events of a ring that waited, from a place on.
    fn release(
        &mut self,
        slot: usize,
        from: Option<usize>,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(from) = from else { return ControlFlow::Continue(()) };
        while self.release_one(slot, from, registry, sink)? {}
        ControlFlow::Continue(())
    }

    /// Hands on the events of a task that wait in rings of other CPUs: it left them, and no stack
    /// of it comes there any more. So events of one task stay in the order of time.
    fn release_elsewhere(
        &mut self,
        slot: usize,
        tid: i32,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // Each CPU has an idle task with this number.
        if tid == 0 {
            return ControlFlow::Continue(());
        }
        for other in (0..self.pending.len()).filter(|s| *s != slot) {
            while let Some(at) = self.pending.get(other).and_then(|p| p.1.join.first_of_task(tid)) {
                self.release_one(other, at, registry, sink)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Hands on an event that waited; whether there was one.
    fn release_one(
        &mut self,
        slot: usize,
        at: usize,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<(), bool> {
        let Some((id, ring)) = self.pending.get_mut(slot) else {
            return ControlFlow::Continue(false);
        };
        let id = *id;
        let Some(event) = ring.join.take(at) else { return ControlFlow::Continue(false) };
        self.give(id, &event, registry, sink)?;
        if let Some((_, ring)) = self.pending.get_mut(slot) {
            ring.recycle(event);
        }
        ControlFlow::Continue(true)
    }

    fn give(
        &self,
        ring: RingId,
        event: &PendingEvent,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(class) = self.known_class(event.id) else { return ControlFlow::Continue(()) };
        let body = FtraceBody {
            kernel: &event.kernel,
            user: &event.user,
            user_process: event.user_process,
            ..self.context.facts().body(ring, &event.payload, &event.task)
        };
        let recorded = RecordedEvent::new(class, Some(event.time), EventBody::Ftrace(&body));
        registry.give(&recorded.after_loss(event.lost), sink)
    }

    /// Hands on the events whose stacks might still have come, ring by ring.
    pub(super) fn finish(
        &mut self,
        registry: &Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let first = |(_, ring): &mut (RingId, PendingRing)| ring.first_time().unwrap_or(0);
        let mut slots: Vec<(u64, usize)> =
            self.pending.iter_mut().enumerate().map(|(slot, p)| (first(p), slot)).collect();
        slots.sort_unstable();
        slots.into_iter().try_for_each(|(_, slot)| self.release(slot, Some(0), registry, sink))
    }

    /// Place of a ring among those that had an event.
    #[inline]
    fn slot(&mut self, ring: RingId) -> usize {
        let known = self.pending.iter().position(|(r, _)| *r == ring);
        known.unwrap_or_else(|| {
            self.pending.push((ring, PendingRing::default()));
            self.pending.len() - 1
        })
    }

    fn known_class(&self, id: u16) -> Option<&RecordedClass> {
        self.classes.get(usize::from(id))?.as_deref()
    }

    fn class(&mut self, id: u16, registry: &mut Registry<'_>) -> Option<&RecordedClass> {
        if self.known_class(id).is_none() {
            let at = (registry.next_layout(), self.number);
            let class = class_of(&self.context.formats, id, at);
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

/// The class of the events with a number.
pub(super) fn class_of(formats: &FormatTable<'_>, id: u16, at: (LayoutId, usize)) -> RecordedClass {
    match formats.get(id) {
        Ok(known) => RecordedClass::from_format(&known.format, at),
        Err(_) => unknown(id, at),
    }
}

/// A task by the name it has now.
pub(crate) fn task((pid, tid): (Option<u32>, i32), name: Option<TaskName>) -> TaskInfo {
    match name {
        Some(name) => TaskInfo::new(pid, Some(tid as u32), name.as_bytes()),
        None => TaskInfo::unnamed(pid, Some(tid as u32), b"<...>"),
    }
}

/// The class of events whose format is not in the recording.
pub(crate) fn unknown(id: u16, (layout, recording): (LayoutId, usize)) -> RecordedClass {
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
        id: Some(u64::from(id)),
        ctf: None,
        attr: None,
        places: None,
    }
}

/// The classes of a recording before it is read: all that it has formats of.
pub(super) fn classes(data: &TraceDat, number: usize, next: &mut LayoutId) -> Vec<RecordedClass> {
    let formats = FormatTable::new(data);
    let known = formats.iter().filter_map(Result::ok);
    let class = |k: &KnownEvent| RecordedClass::from_format(&k.format, (next.take(), number));
    known.map(class).collect()
}
