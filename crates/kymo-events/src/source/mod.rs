//! Recordings, opened: one stream of events in time order, whatever their formats.
//!
//! ```text
//!  perf.data  ─ batches, by time ─┐
//!  perf.data  ─ batches, by time ─┼─ merge ─ selection ─ sink
//!  trace.dat, CTF ─ Timeline ─────┘
//! ```
//!
//! Each perf.data is read and ordered by a thread of its own, the rest happens on the thread
//! that asks. Where that one is the slower of the two, fields can be read on the other
//! ([`EventSource::for_each_digest`]); consumers that need no common order get threads of their
//! own ([`EventSource::for_each_on_threads`]).

mod batch_reader;
mod batch_tee;
mod cgroup_tasks;
mod clocks;
mod count;
pub(crate) mod ctf;
mod digest;
mod event_batch;
mod feed;
pub(crate) mod ftrace;
mod ftrace_feed;
mod hand_off;
mod loss_marks;
pub(crate) mod perf;
mod perf_merge;
mod recorded_command;
pub(crate) mod registry;
mod sample_selector;
mod stack_join;
pub(crate) mod summary;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kymo_files::perfdata::{self, Entry, PerfData};
use kymo_files::{Moment, RecordingFormat, Timeline, TimelineError, TimelineSelect, TimelineWalk};
use kymo_kernel::blocked::{BlockedAtStart, BlockedThread, BlockedThreads};
use kymo_model::{LossWindows, Note, NoteKind, recording_arguments};
use kymo_symbols::ResolverOptions;

use crate::clock_unit::ClockUnit;
use crate::event::RecordedEvent;
use crate::filter::FilterExprError;
use crate::schema::{LayoutId, RecordedClass};
use crate::selection::{EventSelection, SelectionError};
use crate::selection_census::RecordedExtent;
use crate::task_tree::TaskTree;

use batch_reader::{BatchReader, WAITING, WAITING_FOR_TWO};
use batch_tee::BatchTee;
pub use batch_tee::TeedBatches;
pub use cgroup_tasks::note_blocked;
pub use clocks::clock_name;
pub use count::ClassCounts;
use ctf::CtfContext;
pub use digest::EventDigester;
use ftrace::{KernelContext, KernelLane};
pub use hand_off::EventConsumer;
use perf::{PerfContext, PerfLane};
use perf_merge::BatchMerge;
pub use recorded_command::{CommandWatch, RecordedCommand};
use registry::Registry;
pub use sample_selector::SampleSelector;
pub use summary::{
    ReadSummary, is_ctf_damaged, is_damaged, is_trace_dat_damaged, note_unfinished, notes_on_ctf,
    notes_on_perf_data, notes_on_timeline, notes_on_trace_dat, notes_on_trace_data,
};

/// Recordings cannot be read, or not together.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SourceError {
    #[error(transparent)]
    PerfData(#[from] perfdata::PerfDataReadError),
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error("{path}: {error}")]
    Open { path: String, error: std::io::Error },
    #[error("{path} is not a recording: neither perf.data nor trace.dat nor a directory of traces")]
    NoRecording { path: String },
    #[error("{name} cannot be laid on the time of the other recordings: {why}")]
    Clock { name: String, why: String },
    #[error(
        "{name}: its clock {clock} counts {unit}, not nanoseconds, so that it has no times \
         (record it with --clock mono; `kymo script` prints the counts)"
    )]
    NotNanoseconds { name: String, clock: String, unit: &'static str },
    #[error("{name} was recorded on another machine, or another kernel, than {first}")]
    OtherMachine { name: String, first: String },
    #[error("--kallsyms {path}: {error}")]
    Kallsyms { path: String, error: std::io::Error },
    #[error("{name} is not a perf.data: only samples of code contain the requested data")]
    NoSamples { name: String },
    #[error(transparent)]
    Filter(#[from] FilterExprError),
    #[error(transparent)]
    Selection(#[from] SelectionError),
    #[error("--cgroup: {name} does not contain the cgroup of events: only samples of perf.data do")]
    NoCgroups { name: String },
}

/// Options of reading events.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// Hand out stacks that ftrace records as events of their own with the events they
    /// belong to. Such an event is handed out when it is complete: the order of time holds
    /// for each task only.
    pub join_stacks: bool,
    /// Leave out perf.data, whose samples the caller reads itself ([`EventSource::perf`]).
    pub without_perf_data: bool,
}

/// A consumer of events, with its choice of them.
pub struct EventPass<'p> {
    /// Events that are handed out.
    pub selection: &'p EventSelection,
    /// Form in which they are.
    pub options: ReadOptions,
    /// Takes them; `Break` ends this pass.
    pub sink: &'p mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
}

/// Item of one perf.data, by time.
#[derive(Clone, Copy)]
pub enum PerfItem<'a, 'e> {
    /// A record that is no sample.
    Record(&'a Entry<'e>),
    /// A selected event.
    Event(&'a RecordedEvent<'e>),
}

/// Recordings that are read as one.
pub struct EventSource {
    name: String,
    arguments: String,
    perf: Vec<Mutex<PerfData>>,
    timeline: Option<Timeline>,
    symbols: ResolverOptions,
    /// Kernel symbols that were named for recordings of the kernel.
    kallsyms: Option<String>,
    /// Notes found before events were read for a result.
    notes: Mutex<Vec<Note>>,
    /// The selection that results are made with, once it is known.
    selection: Mutex<EventSelection>,
    tree: Option<TaskTree>,
    /// Threads whose events are wanted and that had been blocked before there were events.
    blocked: BlockedThreads,
    /// Those of them that were blocked once there were events.
    blocked_at_start: BlockedAtStart,
    /// The result contains the waits of those.
    counts_blocked: AtomicBool,
    /// Events of a flight recorder from before this time are not handed out.
    whole_from: Option<u64>,
    losses: LossWindows,
    /// Second consumer of the next reading.
    tee: Mutex<Option<BatchTee>>,
    /// Search for the recorded command.
    command: Mutex<Option<CommandWatch>>,
}

impl EventSource {
    /// Opens recordings: perf.data, trace.dat, directories of CTF traces and of sessions.
    /// Several must be of one machine and one clock. `symbols`: where names of functions
    /// come from.
    ///
    /// # Errors
    /// If one cannot be read, or not with the others.
    pub fn open(paths: &[PathBuf], symbols: ResolverOptions) -> Result<EventSource, SourceError> {
        let is_perf = |path: &Path| match RecordingFormat::of(path) {
            Some(RecordingFormat::PerfData) => true,
            // What is wrong with a file of no known format is best said by a reader.
            None => paths.len() == 1 && !path.is_dir(),
            Some(_) => false,
        };
        let (perf, others): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.iter().cloned().partition(|p| is_perf(p));
        if let Some(path) = others.iter().find(|p| RecordingFormat::of(p).is_none()) {
            let path_text = path.display().to_string();
            return Err(match std::fs::metadata(path) {
                Err(error) => SourceError::Open { path: path_text, error },
                Ok(_) => SourceError::NoRecording { path: path_text },
            });
        }
        let perf = perf.iter().map(PerfData::open).collect::<Result<Vec<_>, _>>()?;
        let timeline = if others.is_empty() { None } else { Some(Timeline::open(&others)?) };
        clocks::check(&perf, timeline.as_ref())?;
        let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        let perf = perf.into_iter().map(Mutex::new).collect();
        let has_kernels = timeline.as_ref().is_some_and(|t| !t.kernels().is_empty());
        let kallsyms = match symbols.kallsyms.as_ref().filter(|_| has_kernels) {
            None => None,
            Some(path) => Some(std::fs::read_to_string(path).map_err(|error| {
                SourceError::Kallsyms { path: path.display().to_string(), error }
            })?),
        };
        let name = names.join(", ");
        Ok(EventSource {
            name,
            arguments: recording_arguments(paths.iter().map(PathBuf::as_path)),
            perf,
            timeline,
            symbols,
            kallsyms,
            notes: Mutex::default(),
            selection: Mutex::default(),
            tree: None,
            blocked: BlockedThreads::default(),
            blocked_at_start: BlockedAtStart::default(),
            counts_blocked: AtomicBool::new(false),
            whole_from: None,
            losses: LossWindows::default(),
            tee: Mutex::default(),
            command: Mutex::default(),
        })
    }

    /// Removes the name: a reader of its notes cannot open it again.
    #[must_use]
    pub fn unnamed(self) -> EventSource {
        EventSource { name: String::new(), arguments: String::new(), ..self }
    }

    /// Sets the tree of a command's tasks, which is followed while records are read
    /// ([`EventSelection::tree`]).
    #[must_use]
    pub fn following(self, tree: Option<TaskTree>) -> EventSource {
        EventSource { tree, ..self }
    }

    /// Sets the selected threads that are blocked before there are events: a note lists those that
    /// stay blocked. `at_start`: those that are blocked when the events start, as the recorder
    /// reads them.
    #[must_use]
    pub fn beside(self, blocked: BlockedThreads, at_start: BlockedAtStart) -> EventSource {
        EventSource { blocked, blocked_at_start: at_start, ..self }
    }

    /// Start of a live capture and the selected threads that were blocked then, for results that
    /// contain their waits from then on; none of recordings, and before the first event is read.
    pub fn blocked_at_start(&self) -> Option<(u64, &[BlockedThread])> {
        let found = self.blocked_at_start.found()?;
        self.counts_blocked.store(true, Ordering::Relaxed);
        Some(found)
    }

    /// Starts the events where all CPUs of a flight recorder have some: before that, switches and
    /// wake-ups are missing on CPUs whose rings wrapped sooner. Leaves recordings of perf.data,
    /// several recordings, and those with events of programs unchanged.
    #[must_use]
    pub fn beginning_together(self) -> EventSource {
        let timeline = self.timeline.as_ref().filter(|t| self.perf.is_empty() && !t.is_mixed());
        let Some([kernel]) = timeline.map(Timeline::kernels) else { return self };
        let Some((first, from)) = kernel.uneven_begin() else { return self };
        let left_out = from.saturating_sub(first) as f64 / 1e9;
        let fact = format!(
            "the first {left_out:.6} s are left out, of which not all CPUs have events any more"
        );
        let advice = "--time 0%-100% takes them".to_owned();
        self.tell(Note::choice(NoteKind::Overwritten, fact, Some(advice)));
        EventSource { whole_from: Some(from), ..self }
    }

    /// Puts a note in front of those of reading.
    pub fn tell(&self, note: Note) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Has the notes on what is read name the values of `selection` that no event has.
    pub fn explain(&self, selection: &EventSelection) {
        *self.selection.lock().unwrap_or_else(PoisonError::into_inner) = selection.clone();
    }

    /// Known times and CPUs of the recordings, without reading a pipe again.
    pub fn extent(&self) -> RecordedExtent {
        let span = (!self.is_piped()).then(|| self.span().ok().flatten()).flatten();
        RecordedExtent { span, cpus: self.cpu_count() }
    }

    /// Name of the recordings in messages; empty if they cannot be named.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The recordings as arguments of a command that reads them, `-i FILE`; empty if they cannot
    /// be named.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    /// Those of perf.data.
    pub fn perf_count(&self) -> usize {
        self.perf.len()
    }

    /// One of those of perf.data, for as long as it is held.
    pub fn perf(&self, number: usize) -> Option<MutexGuard<'_, PerfData>> {
        self.perf.get(number).map(|p| p.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another reader of one of those of perf.data.
    ///
    /// # Errors
    /// If there is none of this number, or it is a pipe.
    pub fn reopen(&self, number: usize) -> Result<PerfData, SourceError> {
        match self.perf(number) {
            Some(data) => Ok(data.reopen()?),
            None => Err(SourceError::NoSamples { name: self.name.clone() }),
        }
    }

    /// The recording, if it is one perf.data: for analyses of code samples.
    ///
    /// # Errors
    /// If it is of another format.
    pub fn samples(&self) -> Result<MutexGuard<'_, PerfData>, SourceError> {
        let data = self.perf(0).filter(|_| self.is_one_perf_data());
        data.ok_or_else(|| SourceError::NoSamples { name: self.name.clone() })
    }

    /// Spans in which events were lost: what is read after this call adds each before it hands
    /// out an event later than the span's start.
    pub fn losses(&self) -> LossWindows {
        for number in 0..self.perf.len() {
            if let Some(mut data) = self.perf(number) {
                data.watch_losses(self.losses.clone());
            }
        }
        self.losses.clone()
    }

    /// Number of CPUs, where the recordings state them before they are read: the highest and all
    /// below it.
    pub fn cpu_count(&self) -> Option<usize> {
        let mut count = 0;
        for number in 0..self.perf.len() {
            count = count.max(self.perf(number)?.features().nrcpus?.0 as usize);
        }
        for kernel in self.timeline.iter().flat_map(Timeline::kernels) {
            let cpus = kernel.buffers().iter().flat_map(|b| &b.cpus).filter(|c| c.size > 0);
            count = count.max(cpus.map(|c| c.cpu as usize + 1).max().unwrap_or(0));
        }
        // What cannot be read is reported by who reads all of it.
        let programs = self.timeline.as_ref().and_then(Timeline::programs);
        let highest = programs.and_then(|ctf| ctf.highest_cpu().ok().flatten());
        count = count.max(highest.map_or(0, |cpu| cpu as usize + 1));
        (count > 0).then_some(count)
    }

    /// Options of symbol resolution.
    pub fn symbols(&self) -> &ResolverOptions {
        &self.symbols
    }

    /// The architecture that the recordings were made on, as uname(2) calls it, as far as they
    /// tell: perf.data does, and trace.dat.
    pub fn architecture(&self) -> Option<String> {
        let perf = (0..self.perf.len()).find_map(|n| self.perf(n)?.features().arch.clone());
        let kernels = || self.timeline.iter().flat_map(Timeline::kernels);
        // The machine comes last, and is one word.
        let of = |uname: &str| uname.split_whitespace().next_back().map(str::to_owned);
        perf.or_else(|| kernels().find_map(|k| of(k.options().uname.as_deref()?)))
    }

    /// Name of the host that the recordings were made on, where a perf.data states it.
    pub fn hostname(&self) -> Option<String> {
        (0..self.perf.len()).find_map(|n| self.perf(n)?.features().hostname.clone())
    }

    /// The name of a clock that counts something else than nanoseconds.
    pub fn counting_clock(&self) -> Option<&str> {
        let counts = |clock: &str| !ClockUnit::of_trace_clock(clock).is_time();
        let kernels = self.timeline.iter().flat_map(Timeline::kernels);
        let raw = kernels.filter(|k| k.options().tsc2nsec.is_none());
        raw.flat_map(|k| k.buffers()).map(|b| b.clock.as_str()).find(|clock| counts(clock))
    }

    /// Checks that times are in nanoseconds, for a result that needs them.
    ///
    /// # Errors
    /// If a clock counts something else than nanoseconds.
    pub fn in_nanoseconds(self) -> Result<EventSource, SourceError> {
        match self.counting_clock() {
            None => Ok(self),
            Some(clock) => Err(SourceError::NotNanoseconds {
                name: self.name.clone(),
                clock: clock.to_owned(),
                unit: ClockUnit::of_trace_clock(clock).text(),
            }),
        }
    }

    /// Those of trace.dat and CTF.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Recordings of trace.dat and CTF, mutable, to change their time base.
    pub fn timeline_mut(&mut self) -> Option<&mut Timeline> {
        self.timeline.as_mut()
    }

    /// Times of the first and the last event. Recordings that do not state them are read for it.
    ///
    /// # Errors
    /// If reading fails.
    pub fn span(&self) -> Result<Option<(u64, u64)>, SourceError> {
        let mut spans = Vec::new();
        for number in 0..self.perf.len() {
            let Some(mut data) = self.perf(number) else { continue };
            match data.sample_span()? {
                Some(span) => spans.push(span),
                None => return Ok(None),
            }
        }
        if let Some(timeline) = &self.timeline {
            spans.extend(timeline.span()?);
        }
        let first = spans.iter().map(|s| s.0).min();
        Ok(first.zip(spans.iter().map(|s| s.1).max()))
    }

    /// Offset of the wall clock from the clock of the times, where a perf.data states it.
    pub fn wall_offset(&self) -> Option<u64> {
        (0..self.perf.len()).find_map(|number| clocks::wall_offset(&*self.perf(number)?))
    }

    /// Name of the clock that times are of.
    pub fn clock(&self) -> String {
        clocks::name(&self.perf, self.timeline.as_ref())
    }

    /// Event classes of all recordings, whether events of them happened or not, as far as they are
    /// known before reading: a pipe defines its events while it is read.
    pub fn classes(&self) -> Vec<RecordedClass> {
        let mut next = LayoutId::default();
        let mut classes = Vec::new();
        for number in 0..self.perf.len() {
            let Some(data) = self.perf(number) else { continue };
            classes.extend(perf::classes(&data, number, &mut next, &self.symbols));
        }
        let Some(timeline) = &self.timeline else { return classes };
        for (number, data) in timeline.kernels().iter().enumerate() {
            classes.extend(ftrace::classes(data, self.perf.len() + number, &mut next));
        }
        if let Some(programs) = timeline.programs() {
            let number = self.perf.len() + timeline.kernels().len();
            classes.extend(ctf::classes(programs, number, &mut next));
        }
        classes
    }

    /// Checks that the events that a selection names are there. A pipe defines its events while it
    /// is read.
    ///
    /// # Errors
    /// If one is not.
    pub fn check_events(&self, selection: &EventSelection) -> Result<(), SelectionError> {
        if selection.names_events() && !self.is_piped() {
            selection.check_events(&self.classes())
        } else {
            Ok(())
        }
    }

    /// Checks that the recordings have what a selection is about.
    fn check(&self, selection: &EventSelection) -> Result<(), SourceError> {
        if let Some(filter) = &selection.filter {
            filter.check(self.classes().iter())?;
        }
        if !selection.names_cgroups() {
            return Ok(());
        }
        if let Some(timeline) = &self.timeline {
            return Err(SourceError::NoCgroups { name: timeline.name().to_owned() });
        }
        let all = (0..self.perf.len()).filter_map(|n| self.perf(n));
        Ok(all.into_iter().try_for_each(|data| selection.check_cgroups(&data))?)
    }

    /// Whether a recording is a pipe, which is read once and whose events are not known before.
    pub fn is_piped(&self) -> bool {
        (0..self.perf.len()).any(|n| self.perf(n).is_some_and(|p| p.is_pipe()))
    }

    /// Hands the selected events to `sink`, by time; `Break` stops without error. Readable parts of
    /// damaged recordings are handed out; the summary reports the rest.
    ///
    /// # Errors
    /// If reading fails, or the filter fits no event class.
    pub fn for_each(
        &self,
        selection: &EventSelection,
        options: ReadOptions,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        self.check(selection)?;
        let perf = if options.without_perf_data { 0 } else { self.perf.len() };
        match (perf, &self.timeline) {
            (0, None) => Ok(ReadSummary::default()),
            (0, Some(timeline)) => {
                let mut passes = [EventPass { selection, options, sink }];
                Ok(self.read_timeline(timeline, &mut passes)?.pop().unwrap_or_default())
            }
            (1, None) => self.read_perf(Registry::new(selection), sink),
            _ => self.read_merged(Registry::new(selection), options, sink),
        }
    }

    /// Several consumers of events of trace.dat and CTF, out of one reading; a summary for each.
    ///
    /// # Errors
    /// If reading fails, the filter of one fits no event class, or a perf.data is among the
    /// recordings.
    pub fn for_each_of_timeline(
        &self,
        passes: &mut [EventPass<'_>],
    ) -> Result<Vec<ReadSummary>, SourceError> {
        passes.iter().try_for_each(|pass| self.check(pass.selection))?;
        match &self.timeline {
            Some(timeline) => self.read_timeline(timeline, passes),
            None => Ok(passes.iter().map(|_| ReadSummary::default()).collect()),
        }
    }

    /// Hands the selected events of a perf.data to `sink`, and all records that are no samples
    /// between them, by time.
    ///
    /// # Errors
    /// If reading fails, the filter fits no event class, or there is more than one perf.data.
    pub fn for_each_with_records(
        &self,
        selection: &EventSelection,
        sink: &mut dyn FnMut(PerfItem<'_, '_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        self.check(selection)?;
        if !self.is_one_perf_data() {
            return Err(SourceError::NoSamples { name: self.name.clone() });
        }
        self.read_perf_with(Registry::new(selection), |lane, entry, registry| {
            if entry.raw.kind != kymo_model::RecordKind::SAMPLE {
                lane.sideband(entry);
                return sink(PerfItem::Record(entry));
            }
            lane.sample(entry, registry, &mut |event| sink(PerfItem::Event(event)))
        })
    }

    /// One perf.data alone.
    fn read_perf(
        &self,
        registry: Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        self.read_perf_with(registry, |lane, entry, registry| lane.record(entry, registry, sink))
    }

    fn read_perf_with(
        &self,
        mut registry: Registry<'_>,
        mut take: impl FnMut(
            &mut PerfLane<&PerfContext>,
            &Entry<'_>,
            &mut Registry<'_>,
        ) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        let Some(recording) = self.perf.first() else { return Ok(ReadSummary::default()) };
        let Some(context) = self.perf_context() else { return Ok(ReadSummary::default()) };
        let mut lane = PerfLane::new(&context, 0);
        let tee = self.take_tee();
        let waiting = if tee.is_some() { WAITING_FOR_TWO } else { WAITING };
        let stats = std::thread::scope(|scope| {
            let reader =
                BatchReader::start(scope, (recording, waiting), tee, std::convert::identity);
            while let Some(batch) = reader.next() {
                let mut entries = batch.entries();
                if entries.try_for_each(|e| take(&mut lane, &e, &mut registry)).is_break() {
                    break;
                }
            }
            reader.finish()
        })?;
        let perf: Vec<_> =
            self.perf(0).map(|data| summary::PerfSummary::new(&data, stats)).into_iter().collect();
        let mut summary = ReadSummary { perf, ..ReadSummary::default() };
        summary.add_samples(context.finish());
        Ok(summary)
    }

    /// trace.dat and CTF, for each of several consumers.
    fn read_timeline(
        &self,
        timeline: &Timeline,
        passes: &mut [EventPass<'_>],
    ) -> Result<Vec<ReadSummary>, SourceError> {
        let contexts: Vec<_> = passes.iter().map(|_| self.kernel_contexts(timeline)).collect();
        let mut select = TimelineSelect { from: u64::MAX, ..TimelineSelect::default() };
        let mut open = Vec::new();
        for (number, (pass, kernels)) in passes.iter_mut().zip(&contexts).enumerate() {
            let own = self.select(pass.selection);
            select.from = select.from.min(own.from);
            select = TimelineSelect {
                from: select.from,
                cpus: if number == 0 { own.cpus } else { None },
                ..own
            };
            open.push(TimelinePass {
                lanes: TimelineLanes::new((self, timeline), kernels, pass.options),
                registry: Registry::new(pass.selection),
                until: pass.selection.until(),
                is_over: false,
                sink: &mut *pass.sink,
            });
        }
        let mut walk = timeline.walk(&select)?;
        let from = self.whole_from.unwrap_or(0);
        let _ = walk.run(u64::MAX, &mut |moment| {
            let time = time_of(&moment);
            let mut flow = ControlFlow::Break(());
            for pass in open.iter_mut().filter(|pass| !pass.is_over) {
                pass.is_over = pass.moment(moment, time, from).is_break();
                if !pass.is_over {
                    flow = ControlFlow::Continue(());
                }
            }
            flow
        })?;
        let stats = walk.into_stats();
        let finish = |mut pass: TimelinePass<'_, '_, '_>| {
            pass.lanes.finish(&mut pass.registry, pass.sink);
            let (timeline, notes) = (Some(stats.clone()), pass.lanes.notes());
            ReadSummary { timeline, notes, ..ReadSummary::default() }
        };
        Ok(open.into_iter().map(finish).collect())
    }

    /// Several, of which at least one is a perf.data.
    fn read_merged(
        &self,
        mut registry: Registry<'_>,
        options: ReadOptions,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        let timeline = self.timeline.as_ref();
        let kernels = timeline.map_or_else(Vec::new, |t| self.kernel_contexts(t));
        let mut lanes = timeline.map(|t| TimelineLanes::new((self, t), &kernels, options));
        let sink = RefCell::new(sink);
        let select = self.select(registry.selection());
        let mut summary = self.merge(
            &mut registry,
            &select,
            &mut |moment, registry| match &mut lanes {
                Some(lanes) => lanes.moment(moment, registry, &mut |e| (sink.borrow_mut())(e)),
                None => ControlFlow::Continue(()),
            },
            &mut |event| (sink.borrow_mut())(event),
        )?;
        if let Some(lanes) = &mut lanes {
            lanes.finish(&mut registry, &mut |e| (sink.borrow_mut())(e));
            summary.add(lanes.notes());
        }
        Ok(summary)
    }

    /// Hands over the contents of recordings by time: events of perf.data, and of the others the
    /// pieces of their readers, several events of a program in one piece where only their time is
    /// needed. Renderers that know the formats use it; of the conditions, only the filter is
    /// applied to the latter, the others are the renderer's.
    ///
    /// # Errors
    ///
    /// If reading fails, or the filter fits no event class.
    pub fn for_each_piece(
        &self,
        selection: &EventSelection,
        mut sink: impl FnMut(SourcePiece<'_, '_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        match &self.timeline {
            // The caller's code is called for each event by the reader itself: a call in
            // between is 5 % of the time that a line takes.
            Some(timeline) if self.perf.is_empty() && !selection.is_restricted() => {
                let mut walk =
                    timeline.walk(&TimelineSelect { runs: true, ..self.select(selection) })?;
                let _ = walk.run(u64::MAX, &mut |moment| sink(SourcePiece::Moment(moment)))?;
                let timeline = Some(walk.into_stats());
                Ok(ReadSummary { timeline, ..ReadSummary::default() })
            }
            _ => self.select_pieces(selection, &mut sink),
        }
    }

    fn select_pieces(
        &self,
        selection: &EventSelection,
        sink: &mut dyn FnMut(SourcePiece<'_, '_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        let timeline = self.timeline.as_ref();
        let filtered = timeline.filter(|_| selection.filter.is_some());
        self.check(selection)?;
        let kernels = filtered.map_or_else(Vec::new, |t| self.kernel_contexts(t));
        let options = ReadOptions::default();
        let mut lanes = filtered.map(|t| TimelineLanes::new((self, t), &kernels, options));
        let mut registry = Registry::new(selection);
        let runs = !selection.is_restricted();
        let until = selection.until();
        let sink = RefCell::new(sink);
        let mut on_moment = |moment: Moment<'_>, registry: &mut Registry<'_>| {
            if !runs && time_of(&moment) > until {
                return ControlFlow::Break(());
            }
            if lanes.as_mut().is_none_or(|lanes| lanes.wants(moment, registry)) {
                (sink.borrow_mut())(SourcePiece::Moment(moment))
            } else {
                ControlFlow::Continue(())
            }
        };
        let select = TimelineSelect { runs, ..self.select(selection) };
        match timeline.filter(|_| self.perf.is_empty()) {
            Some(timeline) => {
                let mut walk = timeline.walk(&select)?;
                let _ = walk.run(u64::MAX, &mut |moment| on_moment(moment, &mut registry))?;
                let timeline = Some(walk.into_stats());
                Ok(ReadSummary { timeline, ..ReadSummary::default() })
            }
            None => self.merge(&mut registry, &select, &mut on_moment, &mut |event| {
                (sink.borrow_mut())(SourcePiece::Event(event))
            }),
        }
    }

    /// The part of a selection that readers of trace.dat and CTF can pass over.
    fn select(&self, selection: &EventSelection) -> TimelineSelect {
        TimelineSelect {
            cpus: selection.cpus(),
            from: selection.from(),
            runs: false,
            raw_times: !self.perf.is_empty(),
            losses: self.losses.clone(),
        }
    }

    fn perf_context(&self) -> Option<PerfContext> {
        self.perf_context_of(0)
    }

    fn perf_context_of(&self, number: usize) -> Option<PerfContext> {
        let mut context = PerfContext::new(self.perf(number)?.features(), &self.symbols);
        context.command = self.command.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tree) = &self.tree {
            context.follow(tree);
        }
        Some(context)
    }

    fn kernel_contexts<'s>(&'s self, timeline: &'s Timeline) -> Vec<KernelContext<'s>> {
        let kallsyms = self.kallsyms.as_deref();
        timeline.kernels().iter().map(|k| KernelContext::new(k, kallsyms)).collect()
    }

    /// Merges perf.data with each other and with what else there is.
    fn merge(
        &self,
        registry: &mut Registry<'_>,
        select: &TimelineSelect,
        on_moment: &mut dyn FnMut(Moment<'_>, &mut Registry<'_>) -> ControlFlow<()>,
        on_event: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> Result<ReadSummary, SourceError> {
        let contexts: Vec<PerfContext> =
            (0..self.perf.len()).filter_map(|n| self.perf_context_of(n)).collect();
        let mut walk = match &self.timeline {
            Some(timeline) => Some(timeline.walk(select)?),
            None => None,
        };
        let until = registry.selection().until();
        let stats = std::thread::scope(|scope| {
            let mut merge = BatchMerge::start(scope, &self.perf, &contexts);
            let mut flow = ControlFlow::Continue(());
            while let Some((lane, entry)) = merge.next() {
                let time = entry.time.unwrap_or(0);
                if time > until {
                    break;
                }
                if let Some(walk) = &mut walk {
                    flow = walk.run(time, &mut |moment| on_moment(moment, registry))?;
                }
                if flow.is_continue() {
                    flow = lane.record(&entry, registry, on_event);
                }
                if flow.is_break() {
                    break;
                }
            }
            if let Some(walk) = walk.as_mut().filter(|_| flow.is_continue()) {
                let _ = walk.run(u64::MAX, &mut |moment| {
                    if time_of(&moment) > until {
                        ControlFlow::Break(())
                    } else {
                        on_moment(moment, registry)
                    }
                })?;
            }
            Ok::<_, SourceError>(merge.finish())
        })?;
        let mut summary = ReadSummary::default();
        for (number, stats) in stats.into_iter().enumerate() {
            if let Some(data) = self.perf(number) {
                summary.perf.push(summary::PerfSummary::new(&data, stats?));
            }
        }
        contexts.into_iter().for_each(|c| summary.add_samples(c.finish()));
        summary.timeline = walk.map(TimelineWalk::into_stats);
        Ok(summary)
    }
}

/// Parts of recordings, in the form of their readers.
#[derive(Clone, Copy)]
pub enum SourcePiece<'p, 'e> {
    /// An event of a perf.data.
    Event(&'p RecordedEvent<'e>),
    /// An event of a trace.dat, or events of a program.
    Moment(Moment<'p>),
}

fn time_of(moment: &Moment<'_>) -> u64 {
    match moment {
        Moment::Kernel(_, e) => e.time,
        Moment::Program(e) => e.time,
        Moment::Run(run) => run.events.first().map_or(0, |e| e.time),
    }
}

/// One consumer of the events of trace.dat and CTF.
struct TimelinePass<'s, 'f, 'k> {
    lanes: TimelineLanes<'s>,
    registry: Registry<'f>,
    until: u64,
    is_over: bool,
    sink: &'k mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
}

impl TimelinePass<'_, '_, '_> {
    /// Hands an event on; what comes before `from` names tasks only.
    fn moment(&mut self, moment: Moment<'_>, time: u64, from: u64) -> ControlFlow<()> {
        let TimelinePass { lanes, registry, sink, .. } = self;
        match time {
            time if time > self.until => ControlFlow::Break(()),
            time if time < from => {
                lanes.moment(moment, registry, &mut |_| ControlFlow::Continue(()))
            }
            _ => lanes.moment(moment, registry, sink),
        }
    }
}

/// The recordings of trace.dat and CTF under way.
struct TimelineLanes<'s> {
    kernels: Vec<KernelLane<'s>>,
    programs: Option<CtfContext<'s>>,
}

impl<'s> TimelineLanes<'s> {
    fn new(
        (source, timeline): (&'s EventSource, &'s Timeline),
        kernels: &'s [KernelContext<'s>],
        options: ReadOptions,
    ) -> TimelineLanes<'s> {
        let first = source.perf.len();
        let names = kernels.first().map(KernelContext::names);
        let lane = |(n, k): (usize, &'s KernelContext<'s>)| KernelLane::new(k, first + n, options);
        let number = first + kernels.len();
        TimelineLanes {
            kernels: kernels.iter().enumerate().map(lane).collect(),
            programs: timeline
                .programs()
                .map(|p| CtfContext::new(p, number, names, &source.symbols)),
        }
    }

    /// Notes on names of functions that were asked for.
    fn notes(&self) -> Vec<Note> {
        let kernels = self.kernels.iter().flat_map(KernelLane::notes);
        kernels.chain(self.programs.iter().flat_map(CtfContext::notes)).collect()
    }

    fn moment(
        &mut self,
        moment: Moment<'_>,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match moment {
            Moment::Kernel(number, event) => match self.kernels.get_mut(number) {
                Some(lane) => lane.event(event, registry, sink),
                None => ControlFlow::Continue(()),
            },
            Moment::Program(event) => match &mut self.programs {
                Some(programs) => programs.event(event, registry, sink),
                None => ControlFlow::Continue(()),
            },
            // They are not asked for.
            Moment::Run(_) => ControlFlow::Continue(()),
        }
    }

    /// Whether the filter wants an event.
    fn wants(&mut self, moment: Moment<'_>, registry: &mut Registry<'_>) -> bool {
        let mut wanted = false;
        let _ = self.moment(moment, registry, &mut |_| {
            wanted = true;
            ControlFlow::Continue(())
        });
        wanted
    }

    fn finish(
        &mut self,
        registry: &mut Registry<'_>,
        sink: &mut dyn FnMut(&RecordedEvent<'_>) -> ControlFlow<()>,
    ) {
        for lane in &mut self.kernels {
            if lane.finish(registry, sink).is_break() {
                return;
            }
        }
    }
}
