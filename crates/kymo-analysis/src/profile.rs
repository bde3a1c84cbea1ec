//! A recording in memory as distinct stacks with their weights.
//!
//! Samples are counted by their raw addresses first, on several threads; each
//! distinct address in each distinct state of an address space is resolved once,
//! after all tables that will be needed were read in parallel. Memory grows with
//! the number of distinct stacks, not with that of samples.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kymo_files::perfdata::{
    Batch, Entry, EventDesc, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder,
};
use kymo_model::{IndexVec, Misc, RecordKind, Sample, SamplePlaces};
use kymo_symbols::{Resolver, ResolverOptions, Sources};
use rayon::prelude::*;

use crate::addresses::Addresses;
use crate::counting::{self, Counter, Slot, SlotId};
use crate::frames::{self, Detail};
use crate::oncpu::{OnCpu, RecordingWindow};
use crate::payload_labels::PayloadLabels;
use crate::running_threads::RunningThreads;
use crate::sample_reads::{ReadParts, SampleReads};
use crate::samples::{Job, Mark, Settings, Share, Space};
use kymo_events::state::{CommId, MachineState};
use kymo_events::unwind::Tally;
use kymo_events::worker_pool::{WorkerPool, worker_count};
use kymo_events::{EventSelection, SampleSelector, SourceError, TeedBatches};

pub use crate::frames::{Frame, FrameId, Lacking, SourceLine};
pub use crate::running_threads::ParallelismOptions;
pub use crate::samples::StackLimit;

/// A stack and what it weighs.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// Name of the task at that time.
    pub comm: CommId,
    /// Process; of the first sample where threads are counted together.
    pub pid: u32,
    /// Thread, likewise.
    pub tid: u32,
    /// CPU, if it is recorded and was asked for.
    pub cpu: Option<u32>,
    /// Threads that ran, where that was asked for; else 0.
    pub parallelism: u32,
    /// Its label, where [`LoadOptions::labels`] asks for it.
    pub label: u32,
    /// `k`, `.`, `g`, `u` or `H`: where the processor was.
    pub level: char,
    /// Sampled frame.
    pub leaf: FrameId,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// Sum of their periods, each divided by the number of threads that ran, where that was
    /// asked for.
    pub latency: u64,
}

impl Stack {
    fn of(slot: &Slot) -> Stack {
        Stack {
            comm: slot.key.comm,
            pid: slot.task.0,
            tid: slot.task.1,
            cpu: slot.key.cpu,
            parallelism: slot.key.parallelism,
            label: slot.key.label,
            level: level(slot.key.mode),
            leaf: FrameId(slot.key.leaf),
            samples: slot.samples,
            period: slot.period,
            latency: slot.latency,
        }
    }
}

/// Names a stack of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackId(u32, SlotId);

/// A sample in time.
#[derive(Clone, Copy, Debug)]
pub struct SampleMoment {
    /// Time; 0 where no times were recorded.
    pub time: u64,
    /// Weight of the sample.
    pub period: u64,
    /// Its stack.
    pub stack: StackId,
}

/// All of one event.
#[derive(Debug, Default)]
pub struct EventProfile {
    /// Description of the event.
    pub desc: EventDesc,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// Sum of their latencies, where these were asked for.
    pub latency: u64,
    /// Counters of each share of the recording.
    counters: Vec<Counter>,
    /// Samples that should have a call chain and have none.
    pub empty_chains: u64,
    /// Samples whose call chain is as long as was allowed.
    pub cut_chains: u64,
    /// Samples whose call chain holds what cannot be in one.
    pub bad_chains: u64,
}

impl EventProfile {
    fn new(desc: EventDesc, counters: Vec<Counter>) -> EventProfile {
        let slots = || counters.iter().flat_map(|c| &c.slots);
        EventProfile {
            desc,
            samples: slots().map(|s| s.samples).sum(),
            period: slots().fold(0, |sum, s| sum.saturating_add(s.period)),
            latency: slots().fold(0, |sum, s| sum.saturating_add(s.latency)),
            empty_chains: counters.iter().map(|c| c.empty_chains).sum(),
            cut_chains: counters.iter().map(|c| c.cut_chains).sum(),
            bad_chains: counters.iter().map(|c| c.bad_chains).sum(),
            counters,
        }
    }

    /// Number of frames of which call chains have no more.
    pub fn longest_chain(&self) -> usize {
        crate::samples::longest_chain(&self.desc.attr)
    }

    /// The stacks in the order in which they were first seen, each with its
    /// call chain from the inside out, the leaf included; that is empty when
    /// none was recorded. Several may be equal.
    pub fn stacks(&self) -> impl Iterator<Item = (Stack, Frames<'_>)> {
        let mut shares: Vec<_> = self.counters.iter().map(|c| (c, c.slots.iter())).collect();
        std::iter::from_fn(move || {
            let first = |(_, left): &&mut (_, std::slice::Iter<'_, Slot>)| {
                left.as_slice().first().map_or(u64::MAX, |s| s.first)
            };
            let (counter, slots) = shares.iter_mut().min_by_key(first)?;
            let slot = slots.next()?;
            Some((Stack::of(slot), Frames(counter.chain(slot))))
        })
    }

    /// The samples one by one, in the order of time, where
    /// [`LoadOptions::moments`] asked for them.
    pub fn moments(&self) -> impl Iterator<Item = SampleMoment> {
        let mut shares: Vec<_> = self.counters.iter().map(|c| c.moments.iter()).collect();
        std::iter::from_fn(move || {
            let time = |(_, left): &(usize, &mut std::slice::Iter<'_, counting::Moment>)| {
                left.as_slice().first().map_or((true, 0), |m| (false, m.time))
            };
            let (share, left) = shares.iter_mut().enumerate().min_by_key(time)?;
            let m = left.next()?;
            Some(SampleMoment {
                time: m.time,
                period: m.period,
                stack: StackId(share as u32, m.slot),
            })
        })
    }

    /// A stack of a moment.
    pub fn stack(&self, id: StackId) -> Option<(Stack, Frames<'_>)> {
        let counter = self.counters.get(id.0 as usize)?;
        let slot = counter.slots.get(id.1)?;
        Some((Stack::of(slot), Frames(counter.chain(slot))))
    }

    /// Whether call chains were recorded.
    pub fn has_chains(&self) -> bool {
        self.desc.attr.sample_type.contains(kymo_model::SampleType::CALLCHAIN)
    }
}

/// A call chain from the inside out.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [u32]);

impl<'a> Frames<'a> {
    /// The frames.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = FrameId> + ExactSizeIterator + 'a {
        self.0.iter().map(|f| FrameId(*f))
    }

    /// Those from the `n`-th on.
    pub fn skip(self, n: usize) -> Frames<'a> {
        Frames(self.0.get(n..).unwrap_or_default())
    }

    /// Number of frames.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether no chain was recorded.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Gives each sample a number that keeps it apart from others.
pub type SampleLabeler<'a> = dyn FnMut(&Entry<'_>, &Sample<'_>) -> u32 + 'a;

/// Options of loading a profile.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Sources of symbols.
    pub symbols: ResolverOptions,
    /// Keep the samples of different CPUs apart.
    pub by_cpu: bool,
    /// Do not keep the samples of different threads apart.
    pub merge_threads: bool,
    /// Leave call chains aside.
    pub no_chains: bool,
    /// Longest part of a call chain that is used.
    pub max_stack: Option<StackLimit>,
    /// Each address of a symbol is a frame of its own.
    pub by_address: bool,
    /// Functions inlined into others are frames of their own in call chains.
    pub inlines: bool,
    /// Each line of a function is a frame of its own.
    pub lines: bool,
    /// Keep the samples in time, too: 24 bytes for each.
    pub moments: bool,
    /// Only samples that are selected.
    pub selection: Option<&'a EventSelection>,
    /// Use of the number of threads that run at a time.
    pub parallelism: ParallelismOptions,
    /// Labels by which samples are separated.
    pub labels: SampleLabels<'a>,
    /// Window of the accounts of threads.
    pub window: RecordingWindow,
    /// The recording's records, if another consumer reads it.
    pub batches: Option<TeedBatches>,
}

/// Labels by which samples are separated besides task, CPU and address.
#[derive(Default)]
pub enum SampleLabels<'a> {
    /// Nothing.
    #[default]
    None,
    /// A number that the thread that reads asks for.
    Numbers(&'a mut SampleLabeler<'a>),
    /// Their payloads, which are rendered where they are counted.
    Payloads(&'a mut PayloadLabels),
}

/// A profile cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] PerfDataReadError),
    /// The selection does not fit the recording.
    #[error(transparent)]
    Selection(#[from] SourceError),
}

/// A recording, resolved.
#[derive(Debug)]
pub struct Profile {
    /// Names of tasks, binaries and symbols.
    pub machine: MachineState,
    /// The events in the recording's order.
    pub events: Vec<EventProfile>,
    /// All frames, by number.
    pub frames: IndexVec<FrameId, Frame>,
    /// Counts of the records that were read.
    pub stats: PerfDataReadStats,
    /// Times of threads on and off CPU, where switches were recorded.
    pub on_cpu: OnCpu,
    /// First and last time of a sample.
    pub span: Option<(u64, u64)>,
    /// Outcomes of unwinding user stacks.
    pub unwinding: Tally,
    /// Names of inlined functions and of source files, where these were asked for.
    pub sources: Sources,
    /// Counts of resolved samples.
    pub found: ResolvedCounts,
}

/// Counts of samples with a symbol and with a line.
#[derive(Clone, Debug, Default)]
pub struct ResolvedCounts {
    /// Samples.
    pub samples: u64,
    /// Samples where there is a symbol.
    pub named: u64,
    /// Samples where there is a line; only if sources were asked for.
    pub lined: u64,
    /// Distinct addresses of code in files, and where lines are missing;
    /// likewise.
    pub lacking: Lacking,
}

impl Profile {
    /// Reads a recording from a path; `-` is the standard input.
    pub fn load(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Profile, ProfileError> {
        let mut file = PerfData::open(path)?;
        Profile::read(&mut file, options)
    }

    /// Reads an opened recording.
    pub fn read(file: &mut PerfData, options: LoadOptions<'_>) -> Result<Profile, ProfileError> {
        let LoadOptions { symbols, by_cpu, merge_threads, no_chains, by_address, .. } = options;
        let detail = Detail { by_address, inlines: options.inlines, lines: options.lines };
        let LoadOptions { moments, labels, selection, max_stack, parallelism, .. } = options;
        let batches = options.batches;
        let (label, mut labels) = match labels {
            SampleLabels::None => (None, None),
            SampleLabels::Numbers(label) => (Some(label), None),
            SampleLabels::Payloads(labels) => (None, Some(labels)),
        };
        crate::activity::set_resolving(false);
        kymo_events::map(file);
        let reads = SampleReads::of_recording(file);
        // Where a sample counts for all events of its group, they are selected one by one.
        let by_event = selection.filter(|_| reads.is_some());
        let heads = by_event.map(EventSelection::without_events);
        let selector = match heads.as_ref().or(selection).filter(|s| s.is_restricted()) {
            Some(selection) => Some(SampleSelector::new(selection, file, &symbols)?),
            None => None,
        };
        let mut machine = MachineState::new(Resolver::new(symbols));
        machine.adopt(file.features());
        let latency = parallelism.weigh;
        let settings = Settings { by_cpu, merge_threads, no_chains, moments, max_stack, latency };
        let cpus = file.features().nrcpus.map(|n| n.0);
        let running = parallelism.is_asked_for().then(|| RunningThreads::new(cpus));
        let label_all = labels.is_some();
        let (stats, mut machine, shares, on_cpu, span) = std::thread::scope(|scope| {
            let binaries = machine.symbols.binaries();
            let share = || Share::new(&settings, &binaries, labels.as_deref());
            let shares = std::iter::repeat_with(share).take(worker_count());
            let mut reading = Reading {
                machine,
                label,
                selector,
                shares: WorkerPool::start(scope, "count", shares),
                piped: file.is_pipe(),
                all_count: label_all || running.is_some(),
                samples: 0,
                on_cpu: match selection {
                    Some(selection) => OnCpu::within(options.window).with_names(selection),
                    None => OnCpu::within(options.window),
                },
                span: None,
                running,
                parallelism,
                reads,
                by_event,
            };
            let mut take = |batch| {
                reading.batch(batch);
                ControlFlow::Continue(())
            };
            let stats = match batches {
                Some(teed) => Ok(teed.for_each(&mut take)),
                None => file.for_each_batch(RecordOrder::Time, &mut |b| take(Arc::new(b))),
            };
            let Reading { machine, shares, on_cpu, span, .. } = reading;
            (stats, machine, shares.finish(), on_cpu, span)
        });
        let stats = stats?;
        let mut unwinding = Tally::default();
        let (mut addresses, mut counters): (Vec<Addresses>, Vec<Vec<Counter>>) = shares
            .into_iter()
            .map(|mut s| {
                unwinding.merge(s.unwinder.into_tally());
                if let Some((all, own)) = labels.as_mut().zip(s.labels) {
                    let numbers = all.merge(own);
                    s.counters.iter_mut().for_each(|c| c.number_labels(&numbers));
                }
                (s.addresses, s.counters)
            })
            .unzip();
        crate::activity::set_resolving(true);
        let resolved = frames::resolve(&mut addresses, &mut machine.symbols, detail);
        drop(addresses);
        let mut found = ResolvedCounts { lacking: resolved.lacking, ..ResolvedCounts::default() };
        for (counter, of) in counters
            .iter()
            .zip(&resolved.of)
            .flat_map(|(c, of)| c.iter().zip(std::iter::repeat(of)))
        {
            let (named, lined) = counter.known(of);
            found.samples += counter.slots.iter().map(|s| s.samples).sum::<u64>();
            found.named += named;
            found.lined += lined;
        }
        counters.par_iter_mut().zip(&resolved.of).for_each(|(counters, of)| {
            counters.iter_mut().for_each(|c| c.name_frames(of));
        });
        let mut shares: Vec<_> = counters.into_iter().map(Vec::into_iter).collect();
        let events = file.events().iter().map(|desc| {
            // A share has counters up to its last event.
            let counters = shares.iter_mut().filter_map(Iterator::next).collect();
            EventProfile::new(desc.clone(), counters)
        });
        let events = events.collect();
        let (frames, sources) = (resolved.frames, resolved.sources);
        Ok(Profile { machine, events, frames, stats, on_cpu, span, unwinding, sources, found })
    }

    /// A frame by its number.
    pub fn frame(&self, id: FrameId) -> Frame {
        // A frame without anything stands for one that is not there, which is counted.
        self.frames.get(id).copied().unwrap_or(Frame {
            dso: None,
            symbol: None,
            addr: 0,
            ip: 0,
            kernel: false,
            inlined: None,
            line: None,
        })
    }

    /// Puts frames of equal weight in an order, mostly that of perf: higher
    /// addresses first.
    pub fn rank(&self, id: FrameId) -> (u32, u64) {
        let frame = self.frame(id);
        let place = frame.symbol.map_or(frame.ip, |s| self.machine.symbols.start(s).1);
        (!frame.dso.map_or(0, |d| d.0 + 1), !place)
    }

    /// The name of a frame's function: of the inlined one, or of the symbol.
    pub fn function(&self, id: FrameId) -> Option<&str> {
        let frame = self.frame(id);
        match frame.inlined {
            Some(name) => Some(self.sources.function(name)),
            None => frame.symbol.map(|s| self.machine.symbols.name(s)),
        }
    }

    /// Name of a frame in call chains: its function, or its address.
    pub fn frame_name(&self, id: FrameId) -> String {
        let frame = self.frame(id);
        match self.function(id) {
            Some(name) if frame.inlined.is_some() => format!("{name} (inlined)"),
            Some(name) => name.to_string(),
            None if frame.ip == 0 => "0".to_string(),
            None => format!("{:#x}", frame.ip),
        }
    }

    /// The line of a frame as `file:line`, with the file's whole path or its last part;
    /// where it is not known, the place in the symbol or the binary.
    pub fn srcline(&self, id: FrameId, full: bool) -> String {
        let frame = self.frame(id);
        let symbols = &self.machine.symbols;
        match (frame.line, frame.symbol, frame.dso) {
            (Some(at), ..) => format!("{}:{}", self.srcfile(id, full), at.line),
            (None, Some(s), _) if frame.kernel => {
                let offset = frame.addr.saturating_sub(symbols.start(s).1);
                format!("{}+{offset}", symbols.name(s))
            }
            (None, _, Some(dso)) => format!("{}[{:x}]", symbols.dso_name(Some(dso)), frame.addr),
            (None, _, None) => format!("[{:x}]", frame.ip),
        }
    }

    /// The source file of a frame: its whole path or the last part; `[unknown]` where
    /// it is not known.
    pub fn srcfile(&self, id: FrameId, full: bool) -> &str {
        let Some(at) = self.frame(id).line else { return "[unknown]" };
        let path = self.sources.file(at.file);
        match path.rsplit_once('/') {
            Some((_, name)) if !full => name,
            _ => path,
        }
    }

    /// Key of a frame where lines do not matter: equal for all frames of one function.
    pub fn without_line(&self, id: FrameId) -> (u64, u64) {
        let frame = self.frame(id);
        let inlined = frame.inlined.map_or(0, |t| u64::from(t.0) + 1);
        match frame.symbol {
            Some(s) => (u64::from(s.0) + 1, inlined),
            None => (0, u64::from(id.0)),
        }
    }
}

/// The samples of a recording on their way to those who count them.
struct Reading<'a, 'e, 's> {
    machine: MachineState,
    label: Option<&'a mut SampleLabeler<'a>>,
    selector: Option<SampleSelector<'e>>,
    shares: WorkerPool<'s, Job, Share>,
    piped: bool,
    /// Samples that are not selected are looked at, too.
    all_count: bool,
    /// Samples so far.
    samples: u64,
    on_cpu: OnCpu,
    span: Option<(u64, u64)>,
    running: Option<RunningThreads>,
    parallelism: ParallelismOptions,
    reads: Option<SampleReads>,
    /// Condition on events that `selector` does not have.
    by_event: Option<&'e EventSelection>,
}

impl Reading<'_, '_, '_> {
    /// The selected parts of a sample that counts for the events of its group, and whether the
    /// sample is left out.
    fn parts(&mut self, entry: &Entry<'_>, left_out: bool) -> (Option<ReadParts>, bool) {
        // Also of one that is left out: the next one's parts are differences from it.
        let parts = self.reads.as_mut().and_then(|reads| reads.parts(entry));
        let Some(selection) = self.by_event else { return (parts, left_out) };
        let Some(parts) = parts else {
            let is_selected = entry.desc().is_none_or(|e| selection.wants_event(&[&e.name]));
            return (None, left_out || !is_selected);
        };
        let is_selected = |event: usize| {
            entry.events.get(event).is_none_or(|e| selection.wants_event(&[&e.name]))
        };
        let parts: ReadParts =
            parts.iter().copied().filter(|(event, _)| is_selected(*event)).collect();
        let left_out = left_out || parts.is_empty();
        (Some(parts), left_out)
    }

    /// Follows the state through a batch and has its samples counted.
    fn batch(&mut self, batch: Arc<Batch>) {
        let mut marks = Vec::with_capacity(batch.len());
        let unwanted = self.selector.as_ref().filter(|_| !self.piped && !self.all_count);
        let unwanted = unwanted.map_or_else(Vec::new, SampleSelector::unwanted);
        if let Some((from, to)) = batch.sample_span() {
            self.span = Some(self.span.map_or((from, to), |(a, b)| (a.min(from), b.max(to))));
        }
        let mut spaces: Vec<Space> = Vec::new();
        // Process whose address space is the last of them, while nothing changes.
        let mut current: Option<u32> = None;
        // Only code of the kernel is interrupted within the kernel.
        let mut kernel = false;
        for entry in batch.entries_without(&unwanted) {
            match entry.raw.kind {
                RecordKind::SAMPLE => {
                    let desc = entry.desc();
                    let task = desc.and_then(|d| SamplePlaces::of(&d.attr).task(&entry.raw));
                    let (pid, tid) = task.unwrap_or((0, 0));
                    if current != Some(pid) {
                        let (user, kernel) = (self.machine.space(pid), self.machine.kernel());
                        spaces.push(Space { user, kernel });
                        current = Some(pid);
                    }
                    if entry.raw.misc.cpumode() == Misc::KERNEL {
                        self.machine.symbols.prefetch_kernel();
                        kernel = true;
                    }
                    let space = spaces.len() as u32 - 1;
                    // Unreadable samples are not counted by the caller.
                    let comm = self.machine.comm_of(pid, tid);
                    let selector = self.selector.as_mut();
                    let left_out = selector.is_some_and(|s| !s.wants(&entry, &self.machine));
                    let running = self.running.as_mut().map_or(0, |r| r.at_sample(tid));
                    let parallelism = (running, self.parallelism.keep_apart);
                    let label = self.label.as_mut().filter(|_| !left_out).map_or(0, |label| {
                        let sample = desc.and_then(|d| Sample::parse(&entry.raw, &d.attr).ok());
                        sample.map_or(0, |s| label(&entry, &s))
                    });
                    let (parts, left_out) = self.parts(&entry, left_out);
                    marks.push(Mark { space, comm, label, parallelism, left_out, parts });
                }
                RecordKind::HEADER_BUILD_ID | RecordKind::HEADER_FEATURE if self.piped => {
                    self.machine.adopt(entry.features);
                }
                _ => {
                    current = None;
                    self.machine.apply(&entry.raw);
                    _ = self.on_cpu.take_record(&entry);
                    if let Some(running) = &mut self.running {
                        running.apply(&entry);
                    }
                }
            }
        }
        let first = self.samples;
        self.samples += marks.len() as u64;
        let kernel = kernel.then(|| Arc::clone(self.machine.symbols.kernel()));
        self.shares.give(Job { batch, unwanted, marks, spaces, first, kernel });
    }
}

fn level(mode: u16) -> char {
    match mode {
        Misc::KERNEL => 'k',
        Misc::USER => '.',
        Misc::GUEST_KERNEL => 'g',
        Misc::GUEST_USER => 'u',
        _ => 'H',
    }
}

/// Whether samples of an event have call chains.
pub fn has_chains(event: &EventDesc) -> bool {
    event.attr.sample_type.contains(kymo_model::SampleType::CALLCHAIN)
}
