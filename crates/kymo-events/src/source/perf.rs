//! Events of perf.data: samples and tracepoints, with the state that the sideband gives.

use std::borrow::Borrow;
use std::cell::{OnceCell, RefCell};
use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_files::perfdata::{Batch, Entry, Features, PerfData};
use kymo_model::{Misc, Note, RecordKind, Sample, TrailingFields};
use kymo_symbols::{Resolver, ResolverOptions};
use rustc_hash::FxHashMap;

use super::hand_off::EventConsumer;
use super::loss_marks::LossMarks;
use super::recorded_command::CommandWatch;
use super::registry::Registry;
use crate::chain_frames::{ChainFacts, ChainFrame, ChainResolver, SharedTally};
use crate::event::{EventBody, PerfState, RecordedEvent, TaskInfo};
use crate::perf_data::{TracepointPayloads, note};
use crate::schema::{LayoutId, RecordedClass};
use crate::state::{CommId, Located, MachineState};
use crate::state_history::{StateMark, StateReader, StateTracker};
use crate::task_tree::TaskTree;

/// State of a recording at the current position.
pub(crate) struct PerfContext {
    machine: RefCell<MachineState>,
    chains: RefCell<ChainResolver>,
    payloads: RefCell<TracepointPayloads>,
    /// Tasks as they were stated last, by the end of their thread's number.
    tasks: RefCell<[Option<(CommId, TaskInfo)>; STATED]>,
    /// The recorded command, where it is searched.
    pub(super) command: Option<CommandWatch>,
}

/// Tasks whose texts are kept at hand; a power of two.
const STATED: usize = 16;

impl PerfContext {
    pub(crate) fn new(features: &Features, symbols: &ResolverOptions) -> PerfContext {
        let mut machine = MachineState::new(Resolver::new(symbols.clone()));
        machine.adopt(features);
        let payloads = RefCell::new(TracepointPayloads::new(symbols.bundle.clone()));
        let chains = RefCell::new(ChainResolver::new(&machine.symbols));
        let machine = RefCell::new(machine);
        PerfContext { machine, chains, payloads, tasks: RefCell::default(), command: None }
    }

    /// Follows the tasks of a command.
    pub(crate) fn follow(&self, tree: &TaskTree) {
        self.machine.borrow_mut().follow(tree);
    }

    /// No classes yet, for a thread that makes them of the same formats.
    pub(super) fn classes(&self) -> PerfClasses {
        PerfClasses::new(self.payloads.borrow().fork_for_thread())
    }

    /// A sample as an event.
    #[inline]
    fn event<'e>(
        &'e self,
        class: &'e RecordedClass,
        entry: &'e Entry<'e>,
        losses: &mut LossMarks,
    ) -> RecordedEvent<'e> {
        let body = EventBody::Perf { entry, sample: OnceCell::new(), state: self };
        let mut event = RecordedEvent::new(class, entry.time, body);
        event.lost = losses.take(|| event.cpu());
        if let Some(tree) = self.machine.borrow().cgroup_tree()
            && let (Some(tid), Some(id)) = (event.task().tid, event.cgroup_id())
        {
            tree.see(tid, id, || event.cgroup());
        }
        event
    }

    /// Notes on payloads, and what is known of call chains.
    pub(crate) fn finish(self) -> (Vec<Note>, ChainFacts) {
        let tally = self.chains.into_inner().tally().clone();
        let symbols = self.machine.into_inner().symbols;
        (note(std::iter::once(&*self.payloads.borrow())), ChainFacts { tally, symbols })
    }
}

impl PerfState for PerfContext {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo {
        let machine = self.machine.borrow();
        let Some(name) = machine.name_of(tid) else { return unnamed(pid, tid) };
        let mut tasks = self.tasks.borrow_mut();
        let Some(stated) = tasks.get_mut(tid as usize % STATED) else {
            return task_of(&machine, pid, tid);
        };
        let is_same = |(of, task): &&(CommId, TaskInfo)| {
            *of == name && task.tid == Some(tid) && task.pid == Some(pid)
        };
        if let Some((_, task)) = stated.as_ref().filter(is_same) {
            return *task;
        }
        let task = task_of(&machine, pid, tid);
        *stated = Some((name, task));
        task
    }

    fn thread(&self, tid: u32) -> TaskInfo {
        let machine = self.machine.borrow();
        let pid = machine.pid_of(tid);
        let mut task = task_of(&machine, pid.unwrap_or(tid), tid);
        task.pid = pid;
        task
    }

    fn cgroup(&self, id: u64) -> Option<Arc<[u8]>> {
        self.machine.borrow().cgroup(id).cloned()
    }

    fn is_32_bit(&self, pid: u32) -> Option<bool> {
        self.machine.borrow().is_32_bit(pid)
    }

    fn variable(&self, pid: u32, addr: u64) -> Option<String> {
        self.machine.borrow().variable(pid, addr)
    }

    fn locate(&self, pid: u32, addr: u64, mode: u16) -> Option<Located> {
        Some(self.machine.borrow_mut().locate(pid, addr, mode))
    }

    fn name(&self, pid: u32, addr: u64, mode: u16) -> Option<String> {
        let mut machine = self.machine.borrow_mut();
        let at = machine.locate(pid, addr, mode);
        at.symbol.map(|s| machine.symbols.name(s).to_owned())
    }

    fn chain(&self, entry: &Entry<'_>, sample: &Sample<'_>) -> Vec<ChainFrame> {
        self.chains.borrow_mut().frames(&mut *self.machine.borrow_mut(), entry, sample)
    }

    fn kernel_generation(&self) -> Option<u64> {
        Some(self.machine.borrow().generation(u32::MAX).1)
    }

    fn with_symbols(&self, see: &mut dyn FnMut(&Resolver)) {
        see(&self.machine.borrow().symbols);
    }

    fn kernel_symbol(&self, addr: u64) -> Option<(String, u64)> {
        let mut machine = self.machine.borrow_mut();
        let at = machine.locate(u32::MAX, addr, Misc::KERNEL);
        at.symbol.map(|s| (machine.symbols.name(s).to_owned(), at.offset))
    }

    fn write_payload(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.payloads.borrow_mut().write(entry, raw, out);
    }

    fn write_message(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.payloads.borrow_mut().write_json_message(entry, raw, out);
    }
}

/// The task that a sample states, by the name it has now.
pub(super) fn task_of(machine: &MachineState, pid: u32, tid: u32) -> TaskInfo {
    match machine.name_of(tid) {
        Some(id) => TaskInfo::new(Some(pid), Some(tid), machine.comm(id).as_bytes()),
        None => unnamed(pid, tid),
    }
}

/// A task whose name the recording does not state.
fn unnamed(pid: u32, tid: u32) -> TaskInfo {
    let shown = format!(":{}", tid as i32);
    TaskInfo::unnamed(Some(pid), Some(tid), shown.as_bytes())
}

/// CPU of a LOST record's ring, where it is that of one, and the number of events lost.
fn loss_of(entry: &Entry<'_>) -> (Option<u32>, u64) {
    let (body, endian) = (entry.raw.body, entry.raw.endian);
    let cpu = || {
        let back = TrailingFields::new(&entry.desc()?.attr).cpu?;
        endian.u32_at(body, body.len().checked_sub(back)?)
    };
    (cpu(), endian.u64_at(body, 8).unwrap_or(0))
}

/// The classes of a recording, each made when its first event comes.
#[derive(Default)]
pub(super) struct PerfClasses {
    payloads: RefCell<TracepointPayloads>,
    /// By number of the event.
    classes: Vec<Option<Arc<RecordedClass>>>,
    /// Events that were known when the classes were made: a pipe defines more.
    known: usize,
}

impl PerfClasses {
    /// No classes yet; `payloads` has what their formats come from.
    pub(super) fn new(payloads: TracepointPayloads) -> PerfClasses {
        PerfClasses { payloads: RefCell::new(payloads), ..PerfClasses::default() }
    }

    /// The class of a sample; `number` is that of its recording.
    #[inline]
    pub(super) fn class(
        &mut self,
        entry: &Entry<'_>,
        number: usize,
        registry: &mut Registry<'_>,
    ) -> Option<&RecordedClass> {
        if self.known != entry.events.len() {
            self.known = entry.events.len();
            self.classes.clear();
        }
        if self.classes.get(entry.event).is_none_or(Option::is_none) {
            self.learn(entry, number, registry);
        }
        self.classes.get(entry.event)?.as_deref()
    }

    /// For each event whether its class is known, and nothing of it is wanted.
    pub(super) fn unwanted(&self, registry: &Registry<'_>) -> Vec<bool> {
        let is_unwanted = |class: &Arc<RecordedClass>| !registry.wants_layout(class.layout);
        self.classes.iter().map(|class| class.as_ref().is_some_and(is_unwanted)).collect()
    }

    #[cold]
    fn learn(&mut self, entry: &Entry<'_>, number: usize, registry: &mut Registry<'_>) {
        let Some(desc) = entry.desc() else { return };
        let at = (registry.next_layout(), number);
        let class = match self.payloads.borrow_mut().format(entry) {
            Some(format) => RecordedClass::from_format(format, at).with_sample_fields(desc),
            None => RecordedClass::from_perf(desc, at),
        };
        if self.classes.len() <= entry.event {
            self.classes.resize_with(entry.event + 1, || None);
        }
        if let Some(slot) = self.classes.get_mut(entry.event) {
            *slot = Some(registry.add(class));
        }
    }
}

/// A recording under way, with what is known of it.
pub(crate) struct PerfLane<C> {
    pub(crate) context: C,
    number: usize,
    classes: PerfClasses,
    losses: LossMarks,
}

impl<C: Borrow<PerfContext>> PerfLane<C> {
    pub(crate) fn new(context: C, number: usize) -> PerfLane<C> {
        let of: &PerfContext = context.borrow();
        let classes = of.classes();
        PerfLane { context, number, classes, losses: LossMarks::default() }
    }

    /// Takes a record: applies what is sideband, hands a sample on.
    pub(crate) fn record(
        &mut self,
        entry: &Entry<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if entry.raw.kind != RecordKind::SAMPLE {
            self.sideband(entry);
            return ControlFlow::Continue(());
        }
        self.sample(entry, registry, sink)
    }

    /// Applies a record that is no sample.
    pub(super) fn sideband(&mut self, entry: &Entry<'_>) {
        if entry.raw.kind == RecordKind::LOST {
            let (cpu, lost) = loss_of(entry);
            self.losses.note(cpu, lost);
        }
        let context: &PerfContext = self.context.borrow();
        context.command.iter().for_each(|watch| watch.record(entry));
        let mut machine = context.machine.borrow_mut();
        if matches!(entry.raw.kind, RecordKind::HEADER_BUILD_ID | RecordKind::HEADER_FEATURE) {
            machine.adopt(entry.features);
        }
        machine.apply(&entry.raw);
    }

    /// Hands a sample on.
    #[inline]
    pub(super) fn sample(
        &mut self,
        entry: &Entry<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Some(class) = self.classes.class(entry, self.number, registry) else {
            return ControlFlow::Continue(());
        };
        if !registry.wants_layout(class.layout) {
            return ControlFlow::Continue(());
        }
        let event = self.context.borrow().event(class, entry, &mut self.losses);
        registry.give(&event, sink)
    }

    /// Hands on a sample that was found to be wanted where its fields were read.
    #[inline]
    pub(super) fn digested(
        &mut self,
        entry: &Entry<'_>,
        registry: &mut Registry<'_>,
        sink: impl FnOnce(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.classes.class(entry, self.number, registry) {
            Some(class) => sink(&self.context.borrow().event(class, entry, &mut self.losses)),
            None => ControlFlow::Continue(()),
        }
    }
}

/// Records of one recording, with what the feeding thread knows of them.
pub(super) struct SampleBatch<'f> {
    pub(super) recording: usize,
    records: Batch,
    state: StateMark,
    registry: Registry<'f>,
    /// By number of the event.
    layouts: Arc<[LayoutId]>,
}

/// Follows the state of one recording for other threads.
pub(super) struct SampleFeed {
    number: usize,
    tracker: StateTracker,
    classes: PerfClasses,
    layouts: Arc<[LayoutId]>,
    unwound: SharedTally,
}

impl SampleFeed {
    pub(super) fn new(number: usize, symbols: &ResolverOptions) -> SampleFeed {
        let payloads = TracepointPayloads::new(symbols.bundle.clone());
        SampleFeed {
            number,
            tracker: StateTracker::new(Resolver::new(symbols.clone())),
            classes: PerfClasses::new(payloads),
            layouts: Arc::default(),
            unwound: SharedTally::default(),
        }
    }

    /// Notes on payloads, and what is known of call chains once its readers are gone.
    pub(super) fn finish(self) -> (Vec<Note>, ChainFacts) {
        let symbols = self.tracker.into_machine().symbols;
        let notes = note(std::iter::once(&*self.classes.payloads.borrow()));
        (notes, ChainFacts { tally: self.unwound.total(), symbols })
    }

    /// A reader of its batches for one thread.
    pub(super) fn reader(&self) -> SampleReader {
        let state = self.tracker.reader();
        let chains = RefCell::new(ChainResolver::new(&state.symbols));
        let payloads = RefCell::new(self.classes.payloads.borrow().fork_for_thread());
        SampleReader(SampleState {
            state: RefCell::new(state),
            chains,
            unwound: self.unwound.clone(),
            payloads,
            tasks: RefCell::default(),
        })
    }

    /// Applies what is sideband in a batch, and finds the classes of its samples.
    pub(super) fn prepare<'f>(
        &mut self,
        records: Batch,
        registry: &mut Registry<'f>,
    ) -> SampleBatch<'f> {
        let state = self.tracker.apply(&records);
        // A pipe defines events one by one.
        if let Some(first) = records.get(0)
            && self.layouts.len() != first.events.len()
        {
            let layout = |event| {
                let class = self.classes.class(&Entry { event, ..first }, self.number, registry);
                class.map_or(LayoutId(u32::MAX), |class| class.layout)
            };
            self.layouts = (0..first.events.len()).map(layout).collect();
        }
        let layouts = Arc::clone(&self.layouts);
        SampleBatch { recording: self.number, records, state, registry: registry.clone(), layouts }
    }
}

/// Reads the samples of batches on one thread.
pub(super) struct SampleReader(SampleState);

impl SampleReader {
    pub(super) fn read<C: EventConsumer>(
        &mut self,
        batch: &SampleBatch<'_>,
        consumer: &mut C,
    ) -> ControlFlow<()> {
        let SampleReader(state) = self;
        state.forget_tasks_if(state.state.borrow_mut().begin(&batch.state));
        for entry in batch.records.entries() {
            if entry.raw.kind != RecordKind::SAMPLE {
                state.forget_tasks_if(state.state.borrow_mut().pass(entry.raw.kind));
                continue;
            }
            let layout =
                batch.layouts.get(entry.event).filter(|l| batch.registry.wants_layout(**l));
            let Some(class) = layout.and_then(|l| batch.registry.class(*l)) else { continue };
            let body = EventBody::Perf { entry: &entry, sample: OnceCell::new(), state };
            let event = RecordedEvent::new(class, entry.time, body);
            batch.registry.give(&event, &mut |event| consumer.event(event))?;
        }
        ControlFlow::Continue(())
    }
}

/// State at the current record.
struct SampleState {
    state: RefCell<StateReader>,
    chains: RefCell<ChainResolver>,
    /// Receiver of its figures on stacks.
    unwound: SharedTally,
    payloads: RefCell<TracepointPayloads>,
    /// Tasks by thread, while no record names others.
    tasks: RefCell<FxHashMap<u32, TaskInfo>>,
}

impl SampleState {
    fn forget_tasks_if(&self, renamed: bool) {
        if renamed {
            self.tasks.borrow_mut().clear();
        }
    }
}

impl Drop for SampleState {
    fn drop(&mut self) {
        self.unwound.add(self.chains.get_mut().tally());
    }
}

impl PerfState for SampleState {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo {
        let find = || match self.state.borrow().task_name(tid) {
            Some(name) => TaskInfo::new(Some(pid), Some(tid), name.as_bytes()),
            None => unnamed(pid, tid),
        };
        let mut tasks = self.tasks.borrow_mut();
        let mut task = *tasks.entry(tid).or_insert_with(find);
        task.pid = Some(pid);
        task
    }

    fn cgroup(&self, id: u64) -> Option<Arc<[u8]>> {
        self.state.borrow().cgroup(id)
    }

    fn is_32_bit(&self, pid: u32) -> Option<bool> {
        self.state.borrow_mut().space(pid).is_32_bit
    }

    fn name(&self, pid: u32, addr: u64, mode: u16) -> Option<String> {
        let mut state = self.state.borrow_mut();
        let at = state.locate(pid, addr, mode);
        at.symbol.map(|s| state.symbols.name(s).to_owned())
    }

    fn chain(&self, entry: &Entry<'_>, sample: &Sample<'_>) -> Vec<ChainFrame> {
        self.chains.borrow_mut().frames(&mut *self.state.borrow_mut(), entry, sample)
    }

    fn with_symbols(&self, see: &mut dyn FnMut(&Resolver)) {
        see(&self.state.borrow().symbols);
    }

    fn write_payload(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.payloads.borrow_mut().write(entry, raw, out);
    }

    fn write_message(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.payloads.borrow_mut().write_json_message(entry, raw, out);
    }
}

/// The classes of a recording before it is read.
pub(super) fn classes(
    data: &PerfData,
    number: usize,
    next: &mut LayoutId,
    symbols: &ResolverOptions,
) -> Vec<RecordedClass> {
    let mut payloads = TracepointPayloads::new(symbols.bundle.clone());
    let class = |(n, desc): (usize, &_)| {
        let at = (next.take(), number);
        match payloads.format_of(data, n) {
            Some(format) => RecordedClass::from_format(format, at).with_sample_fields(desc),
            None => RecordedClass::from_perf(desc, at),
        }
    };
    data.events().iter().enumerate().map(class).collect()
}
