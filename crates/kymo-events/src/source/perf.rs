//! Events of perf.data: samples and tracepoints, with the state that the sideband gives.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use std::cell::OnceCell;

use kymo_files::perfdata::{
    Batch, Entry, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder,
};
use kymo_model::{Note, RecordKind, TrailingFields};
use kymo_symbols::{Resolver, ResolverOptions};
use rustc_hash::FxHashMap;

use super::SourceError;
use super::hand_off::EventConsumer;
use super::loss_marks::LossMarks;
use super::registry::Registry;
use crate::event::{EventBody, PerfState, RecordedEvent, TaskInfo};
use crate::perf_data::{TracepointPayloads, note};
use crate::schema::{LayoutId, RecordedClass};
use crate::selection::EventSelection;
use crate::state::MachineState;
use crate::state_history::{StateMark, StateReader, StateTracker};

/// Batches that wait at most for each recording that is merged.
const WAITING: usize = 2;

/// What is known of a recording at the present place.
pub(super) struct PerfContext {
    machine: RefCell<MachineState>,
    payloads: RefCell<TracepointPayloads>,
}

impl PerfContext {
    pub(super) fn new(data: &PerfData, symbols: &ResolverOptions) -> PerfContext {
        let mut machine = MachineState::new(Resolver::new(symbols.clone()));
        machine.adopt(data.features());
        let payloads = TracepointPayloads::new(symbols.bundle.clone());
        PerfContext { machine: RefCell::new(machine), payloads: RefCell::new(payloads) }
    }

    /// Notes on payloads.
    pub(super) fn notes(&self) -> Vec<Note> {
        note(std::iter::once(&*self.payloads.borrow()))
    }
}

impl PerfState for PerfContext {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo {
        task_of(&self.machine.borrow(), pid, tid)
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

    fn name(&self, pid: u32, addr: u64, mode: u16) -> Option<String> {
        let mut machine = self.machine.borrow_mut();
        let at = machine.locate(pid, addr, mode);
        at.symbol.map(|s| machine.symbols.name(s).to_owned())
    }

    fn write_payload(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.payloads.borrow_mut().write(entry, raw, out);
    }
}

/// The task that a sample states, by the name it has now.
fn task_of(machine: &MachineState, pid: u32, tid: u32) -> TaskInfo {
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
struct PerfClasses {
    payloads: RefCell<TracepointPayloads>,
    /// By number of the event.
    classes: Vec<Option<Arc<RecordedClass>>>,
    /// Events that were known when the classes were made: a pipe tells of more.
    known: usize,
}

impl PerfClasses {
    /// The class of a sample; `number` is that of its recording.
    fn class(
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

/// A recording under way.
pub(super) struct PerfLane<'c> {
    context: &'c PerfContext,
    number: usize,
    classes: PerfClasses,
    losses: LossMarks,
}

impl<'c> PerfLane<'c> {
    pub(super) fn new(context: &'c PerfContext, number: usize) -> PerfLane<'c> {
        let payloads = RefCell::new(context.payloads.borrow().fork_for_thread());
        let classes = PerfClasses { payloads, ..PerfClasses::default() };
        PerfLane { context, number, classes, losses: LossMarks::default() }
    }

    /// Takes a record: applies what is sideband, hands a sample on.
    pub(super) fn record(
        &mut self,
        entry: &Entry<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if entry.raw.kind != RecordKind::SAMPLE {
            if entry.raw.kind == RecordKind::LOST {
                let (cpu, lost) = loss_of(entry);
                self.losses.note(cpu, lost);
            }
            let mut machine = self.context.machine.borrow_mut();
            if matches!(entry.raw.kind, RecordKind::HEADER_BUILD_ID | RecordKind::HEADER_FEATURE) {
                machine.adopt(entry.features);
            }
            machine.apply(&entry.raw);
            return ControlFlow::Continue(());
        }
        let Some(class) = self.classes.class(entry, self.number, registry) else {
            return ControlFlow::Continue(());
        };
        if !registry.wants_layout(class.layout) {
            return ControlFlow::Continue(());
        }
        let body = EventBody::Perf { entry, sample: OnceCell::new(), state: self.context };
        let event = RecordedEvent::new(class, entry.time, body);
        let lost = self.losses.take(|| event.cpu());
        registry.give(&event.after_loss(lost), sink)
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
}

impl SampleFeed {
    pub(super) fn new(number: usize, symbols: &ResolverOptions) -> SampleFeed {
        let payloads = RefCell::new(TracepointPayloads::new(symbols.bundle.clone()));
        SampleFeed {
            number,
            tracker: StateTracker::new(Resolver::new(symbols.clone())),
            classes: PerfClasses { payloads, ..PerfClasses::default() },
            layouts: Arc::default(),
        }
    }

    /// Notes on payloads.
    pub(super) fn notes(&self) -> Vec<Note> {
        note(std::iter::once(&*self.classes.payloads.borrow()))
    }

    /// A reader of its batches for one thread.
    pub(super) fn reader(&self) -> SampleReader {
        let state = RefCell::new(self.tracker.reader());
        let payloads = RefCell::new(self.classes.payloads.borrow().fork_for_thread());
        SampleReader(SampleState { state, payloads, tasks: RefCell::default() })
    }

    /// Applies what is sideband in a batch, and finds the classes of its samples.
    pub(super) fn prepare<'f>(
        &mut self,
        records: Batch,
        registry: &mut Registry<'f>,
    ) -> SampleBatch<'f> {
        let state = self.tracker.apply(&records);
        // A pipe tells of events bit by bit.
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

/// The state at the record that is looked at.
struct SampleState {
    state: RefCell<StateReader>,
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

    fn name(&self, pid: u32, addr: u64, mode: u16) -> Option<String> {
        let mut state = self.state.borrow_mut();
        let at = state.locate(pid, addr, mode);
        at.symbol.map(|s| state.symbols.name(s).to_owned())
    }

    fn write_payload(&self, entry: &Entry<'_>, raw: &[u8], out: &mut Vec<u8>) {
        self.payloads.borrow_mut().write(entry, raw, out);
    }
}

/// Chooses samples for a reader that keeps the state of the machine itself.
pub struct SampleSelector<'f> {
    registry: Registry<'f>,
    classes: PerfClasses,
}

/// State of a machine that somebody else keeps.
struct BorrowedState<'m>(&'m MachineState);

impl PerfState for BorrowedState<'_> {
    fn task(&self, pid: u32, tid: u32) -> TaskInfo {
        task_of(self.0, pid, tid)
    }

    fn cgroup(&self, id: u64) -> Option<Arc<[u8]>> {
        self.0.cgroup(id).cloned()
    }

    fn name(&self, _pid: u32, _addr: u64, _mode: u16) -> Option<String> {
        None
    }

    /// Who chooses samples shows none.
    fn write_payload(&self, _entry: &Entry<'_>, _raw: &[u8], _out: &mut Vec<u8>) {}
}

impl<'f> SampleSelector<'f> {
    /// `symbols`: where a bundle beside the recording is.
    ///
    /// # Errors
    /// If the filter fits no event of the recording, or cgroups were named and not recorded.
    pub fn new(
        selection: &'f EventSelection,
        data: &PerfData,
        symbols: &ResolverOptions,
    ) -> Result<SampleSelector<'f>, SourceError> {
        selection.check_cgroups(data)?;
        if let Some(filter) = selection.filter.as_ref().filter(|_| !data.is_pipe()) {
            filter.check(classes(data, 0, &mut LayoutId::default(), symbols).iter())?;
        }
        let payloads = TracepointPayloads::new(symbols.bundle.clone());
        Ok(SampleSelector {
            registry: Registry::new(selection),
            classes: PerfClasses { payloads: RefCell::new(payloads), ..PerfClasses::default() },
        })
    }

    /// Whether a sample is selected; `machine` is the state at its time.
    pub fn wants(&mut self, entry: &Entry<'_>, machine: &MachineState) -> bool {
        let Some(class) = self.classes.class(entry, 0, &mut self.registry) else { return true };
        if !self.registry.wants_layout(class.layout) {
            return false;
        }
        let state = BorrowedState(machine);
        let body = EventBody::Perf { entry, sample: OnceCell::new(), state: &state };
        let mut wanted = false;
        let _ = self.registry.give(&RecordedEvent::new(class, entry.time, body), &mut |_| {
            wanted = true;
            ControlFlow::Continue(())
        });
        wanted
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

/// A recording that is read by a thread of its own.
struct BatchLane<'s> {
    batches: Receiver<Batch>,
    batch: Option<Batch>,
    at: usize,
    reader: ScopedJoinHandle<'s, Result<PerfDataReadStats, PerfDataReadError>>,
}

impl BatchLane<'_> {
    /// Waits for the next batch if there is none; its next record's time.
    fn time(&mut self) -> Option<u64> {
        loop {
            if let Some(batch) = &self.batch
                && let Some(entry) = batch.get(self.at)
            {
                return Some(entry.time.unwrap_or(0));
            }
            self.batch = Some(self.batches.recv().ok()?);
            self.at = 0;
        }
    }
}

/// Several recordings by time.
pub(super) struct BatchMerge<'s, 'c> {
    readers: Vec<BatchLane<'s>>,
    lanes: Vec<PerfLane<'c>>,
}

impl<'s, 'c> BatchMerge<'s, 'c> {
    pub(super) fn start(
        scope: &'s Scope<'s, '_>,
        perf: &'s [Mutex<PerfData>],
        contexts: &'c [PerfContext],
    ) -> BatchMerge<'s, 'c> {
        let reader = |data: &'s Mutex<PerfData>| {
            let (sender, batches) = sync_channel(WAITING);
            let reader = scope.spawn(move || {
                let mut data = data.lock().unwrap_or_else(PoisonError::into_inner);
                data.for_each_batch(RecordOrder::Time, &mut |batch| match sender.send(batch) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                })
            });
            BatchLane { batches, batch: None, at: 0, reader }
        };
        let lanes = contexts.iter().enumerate().map(|(n, c)| PerfLane::new(c, n)).collect();
        BatchMerge { readers: perf.iter().map(reader).collect(), lanes }
    }

    /// The earliest record that was not yet handed out, and its recording.
    pub(super) fn next(&mut self) -> Option<(&mut PerfLane<'c>, Entry<'_>)> {
        let times = self.readers.iter_mut().enumerate().filter_map(|(n, r)| Some((r.time()?, n)));
        let (_, n) = times.min()?;
        let (reader, lane) = (self.readers.get_mut(n)?, self.lanes.get_mut(n)?);
        reader.at += 1;
        let entry = reader.batch.as_ref()?.get(reader.at - 1)?;
        Some((lane, entry))
    }

    /// What was read of each.
    pub(super) fn finish(self) -> Vec<Result<PerfDataReadStats, PerfDataReadError>> {
        let join = |reader: BatchLane<'_>| {
            // A reader that still has something to say ends at its next word.
            drop(reader.batches);
            reader.reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        self.readers.into_iter().map(join).collect()
    }
}
