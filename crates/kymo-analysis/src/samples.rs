//! Samples on their way into stacks of addresses, on as many threads as pay.
//!
//! One thread reads and follows the state of the machine. What a sample needs
//! of that state goes along with it, so that all the rest, which is most of the
//! work, can be done by any thread:
//!
//! ```text
//!   reader ── state ──► job, job, job … ─┬─► share 0: addresses, stacks
//!                                        └─► share 1: addresses, stacks
//! ```
//!
//! Jobs are dealt out in turn, so the result does not depend on who is faster.

use std::sync::Arc;

use kymo_files::perfdata::{Batch, Entry, EventDesc};
use kymo_model::{Attr, Misc, RecordKind, Sample, SampleType, internal_error};
use kymo_symbols::KernelTable;
use kymo_symbols::unwind::Binaries;
use rustc_hash::FxHashMap;

use crate::addresses::Addresses;
use crate::counting::{Counter, Moment, StackKey};
use crate::payload_labels::PayloadLabels;
use crate::sample_reads::ReadParts;
use kymo_events::chain::{ChainAddress, Origin, Step, walk};
use kymo_events::state::{CommId, Maps};
use kymo_events::unwind::Unwinder;
use kymo_events::worker_pool::PoolWorker;

/// Options of counting samples.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) by_cpu: bool,
    pub(crate) merge_threads: bool,
    pub(crate) no_chains: bool,
    pub(crate) moments: bool,
    pub(crate) max_stack: Option<StackLimit>,
    /// Latencies are counted.
    pub(crate) latency: bool,
}

/// Longest part of a call chain that is used.
#[derive(Clone, Copy, Debug)]
pub struct StackLimit {
    /// Number of frames.
    pub frames: usize,
    /// Keep the outermost callers, not the innermost frames.
    pub outermost: bool,
}

impl StackLimit {
    /// Cuts the chain that begins at `start`, innermost frame first.
    fn cut<T>(self, frames: &mut Vec<T>, start: usize) {
        let surplus = frames.len().saturating_sub(start).saturating_sub(self.frames);
        if self.outermost {
            _ = frames.drain(start..start + surplus)
        } else {
            frames.truncate(frames.len() - surplus)
        }
    }
}

/// The state of the machine as far as addresses of a sample depend on it.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) user: Arc<Maps>,
    pub(crate) kernel: Arc<Maps>,
}

/// State that applies to a sample.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Place in [`Job::spaces`].
    pub(crate) space: u32,
    pub(crate) comm: CommId,
    pub(crate) label: u32,
    /// Threads that ran, where that was asked for, and whether it keeps samples apart.
    pub(crate) parallelism: (u32, bool),
    /// It is not selected.
    pub(crate) left_out: bool,
    /// Counts of each event of its group, in place of its period.
    pub(crate) parts: Option<ReadParts>,
}

/// Some samples.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) batch: Arc<Batch>,
    /// By number of the event, of which no sample counts.
    pub(crate) unwanted: Vec<bool>,
    /// One for each other sample of the batch.
    pub(crate) marks: Vec<Mark>,
    pub(crate) spaces: Vec<Space>,
    /// Number of the first sample.
    pub(crate) first: u64,
    /// The recorded kernel's symbols, where something is to be asked of them.
    pub(crate) kernel: Option<Arc<KernelTable>>,
}

/// The work of one thread.
pub(crate) struct Share {
    pub(crate) addresses: Addresses,
    pub(crate) unwinder: Unwinder,
    /// By event.
    pub(crate) counters: Vec<Counter>,
    /// Labels, where samples are separated by their payloads.
    pub(crate) labels: Option<PayloadLabels>,
    chains: KnownChains,
    settings: Settings,
}

/// Key of the meaning of a chain's addresses: states of both address spaces, and whether the
/// kernel's code is known.
type ChainSpaces = (u64, u64, bool);

/// Recorded call chains that came before, by their bytes: tracepoints have few.
#[derive(Debug, Default)]
struct KnownChains {
    by_spaces: FxHashMap<ChainSpaces, FxHashMap<Box<[u8]>, KnownChain>>,
    kept: usize,
    asked: u32,
    found: u32,
    is_off: bool,
}

#[derive(Debug)]
struct KnownChain {
    /// Numbers of its addresses.
    ids: Box<[u32]>,
    /// Number of its frames, as [`walk_chain`] answers.
    length: Option<usize>,
}

impl KnownChains {
    /// With more of them, they are forgotten.
    const MOST: usize = 1 << 14;
    /// After this number of them it is clear whether chains come again.
    const TRIED: u32 = 1 << 12;

    #[inline]
    fn find(&mut self, spaces: ChainSpaces, bytes: &[u8]) -> Option<&KnownChain> {
        if self.is_off {
            return None;
        }
        self.asked += 1;
        if self.asked == KnownChains::TRIED {
            self.is_off = self.found < self.asked / 2;
            (self.asked, self.found) = (0, 0);
        }
        let known = self.by_spaces.get(&spaces)?.get(bytes)?;
        self.found += 1;
        Some(known)
    }

    fn keep(&mut self, spaces: ChainSpaces, bytes: &[u8], ids: &[u32], length: Option<usize>) {
        if self.is_off {
            self.by_spaces = FxHashMap::default();
            return;
        }
        if self.kept >= KnownChains::MOST {
            self.by_spaces.clear();
            self.kept = 0;
        }
        self.kept += 1;
        let chain = KnownChain { ids: ids.into(), length };
        self.by_spaces.entry(spaces).or_default().insert(bytes.into(), chain);
    }
}

/// Looks at the memory that a sample with a copy of the stack will need: many words at
/// a time arrive sooner than one after the other, as unwinding asks for them.
fn touch(entry: &Entry<'_>) {
    const NEAR: usize = 4096;
    const LINE: usize = 64;
    let bytes = entry.raw.body;
    if bytes.len() > NEAR {
        let near = bytes.iter().take(NEAR).step_by(LINE).chain(bytes.last());
        std::hint::black_box(near.fold(0, |all, byte| all ^ byte));
    }
}

impl Share {
    pub(crate) fn new(
        settings: &Settings,
        binaries: &Arc<Binaries>,
        labels: Option<&PayloadLabels>,
    ) -> Share {
        Share {
            addresses: Addresses::default(),
            unwinder: Unwinder::new(Arc::clone(binaries)),
            counters: Vec::new(),
            labels: labels.map(PayloadLabels::fork_for_thread),
            chains: KnownChains::default(),
            settings: settings.clone(),
        }
    }

    fn count(&mut self, job: &Job) {
        let wanted = || job.batch.entries_without(&job.unwanted);
        let samples = || wanted().filter(|e| e.raw.kind == RecordKind::SAMPLE);
        let has_stack = |e: &EventDesc| e.attr.sample_type.contains(SampleType::STACK_USER);
        let wide = job.batch.events().iter().any(has_stack);
        let mut next = wide.then(|| samples().skip(1));
        for ((entry, mark), number) in samples().zip(&job.marks).zip(job.first..) {
            next.as_mut().and_then(Iterator::next).iter().for_each(touch);
            if mark.left_out {
                // What could be asked for is known of it, too.
                self.labels.as_mut().map(|labels| labels.learn(&entry));
                continue;
            }
            let Some(space) = job.spaces.get(mark.space as usize) else {
                internal_error("address space");
                continue;
            };
            self.sample(&entry, mark, space, (number, &job.kernel));
        }
    }

    fn sample(
        &mut self,
        entry: &Entry<'_>,
        mark: &Mark,
        space: &Space,
        (number, kernel): (u64, &Option<Arc<KernelTable>>),
    ) {
        let settings = &self.settings;
        let Some(desc) = entry.desc() else { return };
        let Ok(sample) = Sample::parse(&entry.raw, &desc.attr) else { return };
        let time = sample.time.unwrap_or(0);
        let label = self.labels.as_mut().map_or(mark.label, |labels| labels.label(entry, &sample));
        let (pid, tid) = sample.tid.unwrap_or((0, 0));
        if self.counters.len() <= entry.event {
            self.counters.resize_with(entry.event + 1, Counter::default);
        }
        let Some(counter) = self.counters.get_mut(entry.event) else { return };
        let mode = entry.raw.misc.cpumode();
        let addresses = &mut self.addresses;
        let mut id = |at: ChainAddress| match at.mode {
            Misc::KERNEL => addresses.id(Some(&space.kernel), at),
            Misc::USER => addresses.id(Some(&space.user), at),
            _ => addresses.id(None, at),
        };
        let leaf = id(ChainAddress::exact(mode, sample.ip.unwrap_or(0))).0;
        let start = counter.arena.len();
        if sample.has_callchain() {
            let recorded = (sample.callchain(), Origin::Recorded);
            let length = if settings.no_chains {
                walk_chain(recorded, kernel, |_| {})
            } else {
                let spaces = (space.kernel.generation, space.user.generation, kernel.is_some());
                let bytes = sample.callchain_bytes();
                if let Some(known) = self.chains.find(spaces, bytes) {
                    counter.arena.extend_from_slice(&known.ids);
                    known.length
                } else {
                    let length = walk_chain(recorded, kernel, |at| counter.arena.push(id(at).0));
                    let ids = counter.arena.get(start..).unwrap_or_default();
                    self.chains.keep(spaces, bytes, ids, length);
                    length
                }
            };
            let unwound = if settings.no_chains {
                &[]
            } else {
                let machine = entry.features.arch.as_deref();
                self.unwinder.chain(&sample, machine, entry.raw.endian, &space.user)
            };
            let max = longest_chain(&desc.attr);
            // An unknown marker makes all of a chain doubtful: perf, too, uses
            // nothing of it.
            match length {
                Some(length) => {
                    let unwound_here = (unwound.iter().copied(), Origin::Unwound);
                    walk_chain(unwound_here, &None, |at| counter.arena.push(id(at).0));
                    // What is left aside is not missing.
                    let empty = length == 0 && unwound.is_empty() && !settings.no_chains;
                    counter.empty_chains += u64::from(empty);
                    counter.cut_chains += u64::from(length >= max);
                    if let Some(limit) = settings.max_stack {
                        limit.cut(&mut counter.arena, start);
                    }
                }
                None => {
                    counter.arena.truncate(start);
                    counter.bad_chains += 1;
                }
            }
        }
        let key = StackKey {
            comm: mark.comm,
            cpu: if settings.by_cpu { sample.cpu } else { None },
            parallelism: if mark.parallelism.1 { mark.parallelism.0 } else { 0 },
            task: (!settings.merge_threads).then_some((pid, tid)),
            label,
            mode,
            leaf,
        };
        let weights = |period: u64| {
            if settings.latency {
                (period, period / u64::from(mark.parallelism.0.max(1)))
            } else {
                (period, 0)
            }
        };
        let Some(parts) = &mark.parts else {
            let period = sample.period.unwrap_or(desc.attr.sample_period.max(1));
            let slot = counter.add(key, (pid, tid), start, number, weights(period));
            if settings.moments {
                counter.moments.push(Moment { time, period, slot });
            }
            return;
        };
        let chain = counter.arena.split_off(start);
        for (event, period) in parts {
            if self.counters.len() <= *event {
                self.counters.resize_with(event + 1, Counter::default);
            }
            let Some(counter) = self.counters.get_mut(*event) else { continue };
            let start = counter.arena.len();
            counter.arena.extend_from_slice(&chain);
            let slot = counter.add(key, (pid, tid), start, number, weights(*period));
            if settings.moments {
                counter.moments.push(Moment { time, period: *period, slot });
            }
        }
    }
}

impl PoolWorker<Job> for Share {
    fn work(&mut self, job: Job) {
        if !job.marks.is_empty() {
            self.count(&job);
        }
    }
}

/// Number of frames of which the kernel makes no longer chains: that of the event, or the default
/// of `kernel.perf_event_max_stack`.
pub(crate) fn longest_chain(attr: &Attr) -> usize {
    match attr.sample_max_stack {
        0 => 127,
        limit => usize::from(limit),
    }
}

/// Calls `each` with every frame, innermost first; returns their number, or `None` at an unknown
/// marker.
fn walk_chain(
    (chain, origin): (impl Iterator<Item = u64>, Origin),
    kernel: &Option<Arc<KernelTable>>,
    mut each: impl FnMut(ChainAddress),
) -> Option<usize> {
    let mut length = 0;
    for step in walk(chain, Misc::USER, origin, kernel) {
        let Step::Frame(place) = step else { return None };
        each(place);
        length += 1;
    }
    Some(length)
}
