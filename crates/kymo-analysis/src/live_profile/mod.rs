//! A profile of samples while they come: those of the last minutes, by stack, in memory that does
//! not grow with time. Names of addresses are resolved by a thread (`names`); tables (`rows`) and
//! call trees (`tree`) of any part of the time are computed on request.
//!
//! ```text
//!  rings ─► order ─► state ─► stacks of addresses, samples in time ─► rows, trees
//!                                    │  ▲
//!                          addresses ▼  │ functions
//!                                 a thread of names
//! ```

mod code;
mod names;
mod off_cpu;
mod rows;
mod tree;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use kymo_events::state::MachineState;
use kymo_events::unwind::Tally;
use kymo_events::worker_pool::PoolWorker as _;
use kymo_files::perfdata::{Batch, EventDesc, Features, PerfDataReadStats, RingRecords};
use kymo_model::{Misc, RecordKind, SamplePlaces, Sideband};
use kymo_symbols::{Resolver, ResolverOptions};

use crate::addresses::{Address, AddressId, Addresses};
use crate::counting::{Counter, Slot, SlotId};
use crate::samples::{Job, Mark, Settings, Share, Space, StackLimit};
use names::AddressNames;
use off_cpu::OffCpu;

pub use code::LiveCode;
pub use names::{FunctionId, LiveFunction, LiveLine, PendingNames};
pub use rows::{LiveKey, LiveQuery, LiveRow, LiveRows, RowKey, TaskZoom};
pub use tree::{LiveNodeId, LiveTree, LiveTreeNode, NodeKind};

/// Options of keeping samples.
#[derive(Clone, Debug)]
pub struct LiveProfileOptions {
    /// Sources of symbols.
    pub symbols: ResolverOptions,
    /// Keep samples of different CPUs apart.
    pub by_cpu: bool,
    /// Nanoseconds that samples are kept for.
    pub span: u64,
    /// Nanoseconds that a page is about.
    pub page: u64,
    /// The event whose samples are context switches: with the records of switches they tell
    /// where threads are off the CPU, and for how long.
    pub off_cpu: Option<usize>,
    /// Innermost frames of a stack that are kept at most.
    pub max_stack: Option<usize>,
}

/// A sample.
#[derive(Clone, Copy, Debug)]
struct LiveSample {
    time: u64,
    period: u64,
    slot: SlotId,
    event: u32,
}

/// Bytes of samples with their stacks and addresses that are kept, about; four times as many while
/// they are looked at.
const MOST_BYTES: usize = 20 << 20;
/// Bytes of tables that stacks are unwound with.
const MOST_TABLES: usize = 16 << 20;
/// Distinct stacks and addresses beyond those in use before they are sorted out.
const UNUSED: usize = 1 << 16;

/// Samples of the last minutes.
pub struct LiveProfile {
    records: RingRecords,
    events: Vec<EventDesc>,
    machine: MachineState,
    share: Share,
    samples: VecDeque<LiveSample>,
    names: AddressNames,
    options: LiveProfileOptions,
    /// Newest time of a sample.
    newest: u64,
    /// Samples that came in all.
    count: u64,
    /// Samples that were dropped before their time was over.
    dropped_early: u64,
    /// Time before which none is left.
    dropped_to: u64,
    /// Less was left than a page is about.
    are_pages_cut: bool,
    /// Distinct addresses and stacks that were in use when they were sorted out last.
    used: (usize, usize),
    /// Samples from here on are looked at: they stay.
    held: Option<u64>,
    /// Processes and threads that ended, those of the round before first.
    ended: [Vec<(u32, u32)>; 2],
    off_cpu: Option<OffCpu>,
}

impl LiveProfile {
    /// Events as they were opened, on the machine that `features` describe.
    pub fn new(
        (events, features): (Vec<EventDesc>, Features),
        options: LiveProfileOptions,
    ) -> LiveProfile {
        let mut machine = MachineState::new(Resolver::new(options.symbols.clone()));
        machine.adopt(&features);
        let settings = Settings {
            by_cpu: options.by_cpu,
            merge_threads: false,
            no_chains: false,
            moments: true,
            max_stack: options.max_stack.map(|frames| StackLimit { frames, outermost: false }),
            latency: false,
        };
        let share = Share::new(&settings, &machine.symbols.binaries(), None);
        LiveProfile {
            records: RingRecords::new(events.clone(), features),
            events,
            names: AddressNames::start(&machine.symbols),
            machine,
            share,
            samples: VecDeque::new(),
            off_cpu: options.off_cpu.map(OffCpu::new),
            options,
            newest: 0,
            count: 0,
            dropped_early: 0,
            dropped_to: 0,
            are_pages_cut: false,
            used: (0, 0),
            held: None,
            ended: Default::default(),
        }
    }

    /// Takes what a ring holds: whole records in two pieces.
    pub fn push(&mut self, first: &[u8], second: &[u8]) {
        self.records.push(first, second);
    }

    /// All rings were read: counts what no ring can have an older record than.
    pub fn end_round(&mut self) {
        let mut batches = Vec::new();
        let _ = self.records.end_round(&mut |batch| {
            batches.push(batch);
            ControlFlow::Continue(())
        });
        self.count_batches(batches);
        let [before, now] = &mut self.ended;
        for (pid, tid) in before.drain(..) {
            self.machine.forget_task(pid, tid);
            // Its last switch was no wait.
            self.off_cpu.as_mut().map(|off| off.pending.remove(&tid));
        }
        std::mem::swap(before, now);
    }

    /// Nothing more comes: counts the rest.
    pub fn finish(&mut self) {
        let mut batches = Vec::new();
        let _ = self.records.finish(&mut |batch| {
            batches.push(batch);
            ControlFlow::Continue(())
        });
        self.count_batches(batches);
    }

    fn count_batches(&mut self, batches: Vec<Batch>) {
        batches.into_iter().for_each(|batch| self.batch(batch));
        self.forget_old();
        self.names.ask(&self.machine.symbols, &self.share.addresses);
        self.names.take_answers();
    }

    /// Follows the state through a batch and counts its samples.
    fn batch(&mut self, batch: Batch) {
        let mut marks = Vec::with_capacity(batch.len());
        let mut spaces: Vec<Space> = Vec::new();
        let mut current: Option<u32> = None;
        let mut kernel_chains = false;
        for entry in batch.entries() {
            if entry.raw.kind != RecordKind::SAMPLE {
                current = None;
                self.sideband(&entry.raw);
                if let (Some(off), Some(desc)) = (&mut self.off_cpu, entry.desc()) {
                    let id = entry.raw.sample_id(&desc.attr).ok();
                    let tid = id.and_then(|id| id.tid).map(|(_, tid)| tid);
                    off.switch(&entry.raw, tid, entry.time);
                }
                continue;
            }
            self.newest = self.newest.max(entry.time.unwrap_or(0));
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
                kernel_chains |= desc.is_some_and(crate::profile::has_chains);
            }
            let (space, comm) = (spaces.len() as u32 - 1, self.machine.comm_of(pid, tid));
            let parallelism = (0, false);
            let (left_out, parts) = (false, None);
            marks.push(Mark { space, comm, label: 0, left_out, parallelism, parts });
        }
        let first = self.count;
        self.count += marks.len() as u64;
        let kernel = kernel_chains.then(|| Arc::clone(self.machine.symbols.kernel()));
        let (batch, unwanted) = (Arc::new(batch), Vec::new());
        self.share.work(Job { batch, unwanted, marks, spaces, first, kernel });
        let mut new = Vec::new();
        for (event, counter) in (0u32..).zip(&mut self.share.counters) {
            let moments = counter.moments.drain(..);
            new.extend(moments.map(|m| LiveSample {
                time: m.time,
                period: m.period,
                slot: m.slot,
                event,
            }));
        }
        if self.share.counters.len() > 1 {
            new.sort_by_key(|s| s.time);
        }
        if let Some(off) = &mut self.off_cpu {
            let tid = |s: &LiveSample| {
                let counter = self.share.counters.get(s.event as usize);
                counter.and_then(|c| c.slots.get(s.slot)).map_or(0, |slot| slot.task.1)
            };
            new = off.take(new.into_iter().map(|s| (s, tid(&s))).collect());
        }
        self.samples.extend(new);
    }

    fn sideband(&mut self, record: &kymo_model::RawRecord<'_>) {
        self.machine.apply(record);
        match record.kind {
            RecordKind::EXIT => {
                if let Ok(Some(Sideband::Exit(t))) = Sideband::parse(record) {
                    self.ended[1].push((t.pid, t.tid));
                }
            }
            RecordKind::FORK => {
                if let Ok(Some(Sideband::Fork(t))) = Sideband::parse(record) {
                    // Its number is another process's now.
                    self.ended.iter_mut().for_each(|list| list.retain(|(_, tid)| *tid != t.tid));
                }
            }
            _ => {}
        }
    }

    /// Drops samples whose time is over, and now and then unused stacks.
    fn forget_old(&mut self) {
        self.share.unwinder.forget_binaries_beyond(MOST_TABLES);
        let from = self.kept_from();
        let old = self.samples.partition_point(|s| s.time < from);
        self.samples.drain(..old);
        let most = if self.held.is_some() { 4 * MOST_BYTES } else { MOST_BYTES };
        if self.held_bytes() > most {
            self.sort_out();
            // So that it is not soon done again.
            if self.held_bytes() > most / 4 * 3 {
                let more = self.samples.len() / 2;
                self.samples.drain(..more);
                self.dropped_early += more as u64;
                self.dropped_to = self.samples.front().map_or(self.newest, |s| s.time);
                let left = self.newest - self.dropped_to.min(self.newest);
                self.are_pages_cut |= left < self.options.page.min(self.options.span);
                self.sort_out();
            }
            self.samples.shrink_to_fit();
        }
        let stacks: usize = self.share.counters.iter().map(|c| c.slots.len()).sum();
        let grown = |now: usize, used: usize| now > used * 2 + UNUSED;
        if grown(stacks, self.used.1) || grown(self.share.addresses.len(), self.used.0) {
            self.sort_out();
        }
    }

    /// Bytes of samples, stacks and addresses, about.
    fn held_bytes(&self) -> usize {
        /// Slots of a table, and the number of the function.
        const OF_ADDRESS: usize = size_of::<Address>() + 2 * 16 + 4;
        const OF_STACK: usize = size_of::<Slot>() + 2 * 8;
        let counters = self.share.counters.iter();
        let stacks = counters.map(|c| c.slots.len() * OF_STACK + c.arena.len() * 4);
        self.samples.len() * size_of::<LiveSample>()
            + stacks.sum::<usize>()
            + self.share.addresses.len() * OF_ADDRESS
    }

    /// Time from which samples are kept.
    pub fn kept_from(&self) -> u64 {
        let from = self.newest.saturating_sub(self.options.span);
        self.held.map_or(from, |held| held.min(from)).max(self.dropped_to)
    }

    /// Keeps samples from a time on for as long as they are looked at.
    pub fn hold(&mut self, from: Option<u64>) {
        self.held = from;
    }

    /// Keeps only stacks of samples that are kept, and their addresses.
    fn sort_out(&mut self) {
        let mut old: Vec<Counter> = self.share.counters.iter_mut().map(std::mem::take).collect();
        let mut slots: Vec<Vec<Option<SlotId>>> =
            old.iter().map(|c| vec![None; c.slots.len()]).collect();
        let mut addresses: Vec<Option<AddressId>> = vec![None; self.share.addresses.len()];
        let mut kept = Addresses::default();
        let pending = self.off_cpu.iter_mut().flat_map(|off| off.pending.values_mut());
        for sample in self.samples.iter_mut().chain(pending) {
            let event = sample.event as usize;
            let known = slots.get_mut(event).and_then(|s| s.get_mut(sample.slot.0 as usize));
            let (Some(known), Some(from)) = (known, old.get_mut(event)) else { continue };
            if let Some(slot) = *known {
                sample.slot = slot;
                continue;
            }
            let Some(slot) = from.slots.get(sample.slot) else { continue };
            let mut number = |word: u32| {
                let place = addresses.get_mut(word as usize);
                place.map_or(word, |place| {
                    place
                        .get_or_insert_with(|| kept.adopt(&self.share.addresses, AddressId(word)))
                        .0
                })
            };
            let Some(to) = self.share.counters.get_mut(event) else { continue };
            let start = to.arena.len();
            let mut key = slot.key;
            key.leaf = number(key.leaf);
            to.arena.extend(from.chain(slot).iter().map(|word| number(*word)));
            let made = to.add(key, slot.task, start, slot.first, (0, 0));
            *known = Some(made);
            sample.slot = made;
        }
        for (new, old) in self.share.counters.iter_mut().zip(&old) {
            new.empty_chains = old.empty_chains;
            new.cut_chains = old.cut_chains;
            new.bad_chains = old.bad_chains;
        }
        self.share.addresses = kept;
        let stacks = self.share.counters.iter().map(|c| c.slots.len()).sum();
        self.used = (self.share.addresses.len(), stacks);
        self.names.renumber(&addresses, self.share.addresses.len());
    }

    /// Time from which samples are there, and the first behind the newest one.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.samples.front()?.time, self.newest.saturating_add(1)))
    }

    /// Events as they were opened, without that of context switches.
    pub fn events(&self) -> &[EventDesc] {
        let count = self.options.off_cpu.unwrap_or(self.events.len());
        self.events.get(..count).unwrap_or_default()
    }

    /// The event whose weights are times off the CPU.
    pub fn off_cpu(&self) -> Option<usize> {
        self.options.off_cpu
    }

    /// Times off the CPU that are not counted, as their ends were not seen.
    pub fn without_end(&self) -> u64 {
        self.off_cpu.as_ref().map_or(0, |off| off.without_end)
    }

    /// Says that it is this time: who is off the CPU makes no samples.
    pub fn advance(&mut self, now: u64) {
        self.newest = self.newest.max(now);
    }

    /// Names of tasks and binaries.
    pub fn machine(&self) -> &MachineState {
        &self.machine
    }

    /// Waits until all addresses that came have names.
    pub fn wait_for_names(&mut self) {
        self.names.ask(&self.machine.symbols, &self.share.addresses);
        self.names.wait();
    }

    /// Has lines found from now on, too, which takes long where debugging information is
    /// large.
    pub fn want_lines(&mut self) {
        self.names.want_lines(&self.machine.symbols, &self.share.addresses);
    }

    /// A function by its number.
    pub fn function(&self, id: FunctionId) -> Option<&LiveFunction> {
        self.names.function(id)
    }

    /// A line of source by its number.
    pub fn line(&self, id: u32) -> Option<&LiveLine> {
        self.names.line(id)
    }

    /// Numbers of addresses that have no name yet.
    pub fn pending_names(&self) -> PendingNames {
        self.names.pending()
    }

    /// Lost records that the rings have reported.
    pub fn lost(&self) -> u64 {
        self.records.lost()
    }

    /// Counts of the records that were read.
    pub fn stats(&self) -> PerfDataReadStats {
        self.records.stats()
    }

    /// Samples that were dropped before their time was over, for want of memory.
    pub fn dropped_early(&self) -> u64 {
        self.dropped_early
    }

    /// Whether pages lacked some of these.
    pub fn are_pages_cut(&self) -> bool {
        self.are_pages_cut
    }

    /// Outcomes of unwinding stacks.
    pub fn unwinding(&self) -> &Tally {
        self.share.unwinder.tally()
    }

    /// Whether an event has call chains.
    pub fn has_chains(&self, event: usize) -> bool {
        self.events.get(event).is_some_and(crate::profile::has_chains)
    }

    /// Samples of a time, in its order.
    fn samples_of(&self, (from, to): (u64, u64)) -> impl Iterator<Item = &LiveSample> {
        let first = self.samples.partition_point(|s| s.time < from);
        let last = self.samples.partition_point(|s| s.time < to).max(first);
        self.samples.range(first..last)
    }

    /// The stack of a slot: where the processor was, and the chain, innermost first.
    fn stack<'a>(&self, counter: &'a Counter, slot: &'a Slot) -> &'a [u32] {
        match counter.chain(slot) {
            [] => std::slice::from_ref(&slot.key.leaf),
            chain => chain,
        }
    }
}

#[cfg(test)]
mod tests;
