//! Rows of a live profile: samples of a time, grouped by requested keys.

use kymo_events::state::CommId;
use kymo_model::{Misc, SampleType};
use kymo_symbols::DsoKind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::names::FunctionId;
use super::off_cpu::overlap;
use super::{LiveProfile, LiveSample};
use crate::counting::{Counter, Slot, SlotId};
use crate::profile::has_chains;

/// Key by which rows are grouped, in perf's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LiveKey {
    /// Name of the task.
    Comm,
    /// Thread.
    Pid,
    /// Process.
    Tgid,
    /// CPU.
    Cpu,
    /// Binary.
    Dso,
    /// Function.
    Symbol,
    /// Line of source.
    Srcline,
}

impl LiveKey {
    /// By perf's name of it.
    pub fn parse(name: &str) -> Option<LiveKey> {
        Some(match name {
            "comm" => LiveKey::Comm,
            "pid" | "tid" => LiveKey::Pid,
            "tgid" => LiveKey::Tgid,
            "cpu" => LiveKey::Cpu,
            "dso" => LiveKey::Dso,
            "sym" | "symbol" => LiveKey::Symbol,
            "srcline" => LiveKey::Srcline,
            _ => return None,
        })
    }

    /// Names that there are.
    pub const NAMES: &str = "comm, pid, tgid, cpu, dso, symbol and srcline";
}

/// Task whose samples count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskZoom {
    /// A process's.
    Process(u32),
    /// A thread's.
    Thread(u32),
}

/// Selection and grouping of samples.
#[derive(Clone, Debug, Default)]
pub struct LiveQuery {
    /// From, and up to before.
    pub times: (u64, u64),
    /// The event, by number.
    pub event: usize,
    /// Keys of rows.
    pub keys: Vec<LiveKey>,
    /// Task whose samples count.
    pub zoom: Option<TaskZoom>,
    /// Only these names of tasks.
    pub comms: Option<Vec<String>>,
    /// Only these binaries.
    pub dsos: Option<Vec<String>>,
    /// Only these functions.
    pub symbols: Option<Vec<String>>,
    /// Leave samples in the kernel out.
    pub hide_kernel: bool,
    /// Leave samples in programs out.
    pub hide_user: bool,
}

/// Key of a row; fields that are not among its keys are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Name of the task.
    pub comm: Option<CommId>,
    /// Thread.
    pub tid: Option<u32>,
    /// Process.
    pub pid: Option<u32>,
    /// CPU.
    pub cpu: Option<u32>,
    /// Binary, plus one; 0: none.
    pub dso: Option<u32>,
    /// Function.
    pub function: Option<FunctionId>,
    /// Line.
    pub line: Option<u32>,
    /// Function of a sample without a line.
    pub lineless: Option<FunctionId>,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct LiveRow {
    /// Key of the row.
    pub key: RowKey,
    /// Samples with the processor there.
    pub samples: u64,
    /// Sum of their periods.
    pub own: u64,
    /// Sum of periods of samples there or in what was called from there.
    pub total: u64,
}

/// Rows, and sums over the samples that count.
#[derive(Clone, Debug, Default)]
pub struct LiveRows {
    /// In no order.
    pub rows: Vec<LiveRow>,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// Sum of periods, with samples of tasks, binaries and functions that the query leaves out.
    pub all_period: u64,
    /// Samples in the kernel.
    pub kernel: u64,
    /// Samples where no symbol is.
    pub unnamed: u64,
    /// Samples whose address has no name yet.
    pub pending: u64,
    /// Samples in programs whose call chains were made by frame pointers.
    pub chains: u64,
    /// Those of them whose chains end before the program's first function.
    pub broken_chains: u64,
}

impl LiveProfile {
    /// Samples of a time grouped by keys.
    pub fn rows(&self, query: &LiveQuery) -> LiveRows {
        let mut out = LiveRows::default();
        let mut rows: FxHashMap<RowKey, LiveRow> = FxHashMap::default();
        let mut seen: FxHashSet<RowKey> = FxHashSet::default();
        let by_frame_pointers = self.has_frame_pointer_chains(query.event);
        let all_period = self.each_stack(query, &mut |counter, slot, weight| {
            out.samples += weight.samples;
            out.period = out.period.saturating_add(weight.period);
            out.kernel += u64::from(slot.key.mode == Misc::KERNEL) * weight.samples;
            let function = self.names.of(slot.key.leaf);
            match self.names.function(function) {
                None => out.pending += weight.samples,
                Some(f) => out.unnamed += u64::from(f.name.is_none()) * weight.samples,
            }
            if slot.key.mode == Misc::USER && by_frame_pointers {
                out.chains += weight.samples;
                out.broken_chains +=
                    u64::from(self.is_broken(counter.chain(slot))) * weight.samples;
            }
            let key = self.row_key(&query.keys, slot, slot.key.leaf);
            let new = |key: RowKey| LiveRow { key, samples: 0, own: 0, total: 0 };
            let row = rows.entry(key).or_insert_with(|| new(key));
            row.samples += weight.samples;
            row.own = row.own.saturating_add(weight.period);
            row.total = row.total.saturating_add(weight.period);
            seen.clear();
            seen.insert(key);
            for address in self.stack(counter, slot) {
                let key = self.row_key(&query.keys, slot, *address);
                if seen.insert(key) {
                    let row = rows.entry(key).or_insert_with(|| new(key));
                    row.total = row.total.saturating_add(weight.period);
                }
            }
        });
        out.rows = rows.into_values().collect();
        out.all_period = all_period;
        out
    }

    /// Whether an event has whole call chains that the kernel made by frame pointers alone.
    fn has_frame_pointer_chains(&self, event: usize) -> bool {
        let copies = SampleType::STACK_USER | SampleType::BRANCH_STACK;
        let desc = self.events.get(event).filter(|_| self.options.max_stack.is_none());
        desc.is_some_and(|d| has_chains(d) && !d.attr.sample_type.intersects(copies))
    }

    /// Whether a chain of a program leads nowhere: the code that is there has no frame pointers, so
    /// that it has no callers, or one that is in no binary, or in JIT code, which no
    /// program begins in.
    fn is_broken(&self, chain: &[u32]) -> bool {
        let Some(last) = chain.last().filter(|_| chain.len() > 1) else { return true };
        let dso = self.share.addresses.dso(*last).and_then(|id| self.machine.symbols.get(id));
        dso.is_none_or(|dso| dso.kind == DsoKind::PerfMap)
    }

    fn row_key(&self, keys: &[LiveKey], slot: &Slot, address: u32) -> RowKey {
        let mut row = RowKey::default();
        let function = self.names.of(address);
        for key in keys {
            match key {
                LiveKey::Comm => row.comm = Some(slot.key.comm),
                LiveKey::Pid => (row.tid, row.comm) = (Some(slot.task.1), Some(slot.key.comm)),
                LiveKey::Tgid => row.pid = Some(slot.task.0),
                LiveKey::Cpu => row.cpu = slot.key.cpu,
                LiveKey::Dso => {
                    let dso = self.share.addresses.dso(address);
                    row.dso = Some(dso.map_or(0, |d| d.0 + 1));
                }
                LiveKey::Symbol => row.function = Some(function),
                LiveKey::Srcline => match self.names.line_of(address) {
                    Some(line) => row.line = Some(line),
                    None => row.lineless = Some(function),
                },
            }
        }
        row
    }

    /// Hands over each stack that counts with its weight; the sum of the periods of all that would
    /// without names.
    pub(super) fn each_stack(
        &self,
        query: &LiveQuery,
        sink: &mut dyn FnMut(&Counter, &Slot, StackWeight),
    ) -> u64 {
        let Some(counter) = self.share.counters.get(query.event) else { return 0 };
        let mut all = 0u64;
        let mut weights = vec![StackWeight::default(); counter.slots.len()];
        let of_event = |s: &&LiveSample| s.event as usize == query.event;
        let mut add = |slot: SlotId, period: u64| {
            if let Some(weight) = weights.get_mut(slot.0 as usize) {
                weight.samples += 1;
                weight.period = weight.period.saturating_add(period);
            }
        };
        match self.off_cpu.as_ref().filter(|off| off.event as usize == query.event) {
            None => {
                let samples = self.samples_of(query.times).filter(of_event);
                samples.for_each(|sample| add(sample.slot, sample.period));
            }
            // Times may begin before and end after.
            Some(off) => {
                let ended = self.samples_of((query.times.0, u64::MAX)).filter(of_event).copied();
                let lasting = off.pending.values().map(|s| LiveSample {
                    time: self.newest,
                    period: self.newest.saturating_sub(s.time),
                    ..*s
                });
                for sample in ended.chain(lasting) {
                    match overlap(&sample, query.times) {
                        0 => {}
                        time => add(sample.slot, time),
                    }
                }
            }
        }
        for (slot, weight) in counter.slots.iter().zip(weights) {
            if weight.samples == 0 || !self.is_of_question(query, slot) {
                continue;
            }
            all = all.saturating_add(weight.period);
            if self.wants(query, slot) {
                sink(counter, slot, weight);
            }
        }
        all
    }

    /// Whether a stack is of the tasks and the side that are looked at.
    fn is_of_question(&self, query: &LiveQuery, slot: &Slot) -> bool {
        let of_zoom = match query.zoom {
            None => true,
            Some(TaskZoom::Process(pid)) => slot.task.0 == pid,
            Some(TaskZoom::Thread(tid)) => slot.task.1 == tid,
        };
        let hidden = match slot.key.mode {
            _ if Some(query.event) == self.off_cpu() => false,
            Misc::KERNEL => query.hide_kernel,
            Misc::USER => query.hide_user,
            _ => false,
        };
        of_zoom && !hidden
    }

    /// Whether a stack counts. As in perf, filters are about where the processor was.
    fn wants(&self, query: &LiveQuery, slot: &Slot) -> bool {
        let among = |list: &Option<Vec<String>>, name: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|l| l == name))
        };
        let function = || self.names.function(self.names.of(slot.key.leaf));
        let is_task_named = among(&query.comms, self.machine.comm(slot.key.comm));
        if Some(query.event) == self.off_cpu() {
            // All of them end in the kernel's scheduler.
            return is_task_named;
        }
        is_task_named
            && (query.dsos.is_none() || {
                let dso = self.share.addresses.dso(slot.key.leaf);
                among(&query.dsos, self.machine.symbols.dso_name(dso))
            })
            && (query.symbols.is_none()
                || among(&query.symbols, function().and_then(|f| f.name.as_deref()).unwrap_or("")))
    }
}

/// Weight of the samples of a stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StackWeight {
    pub(super) samples: u64,
    pub(super) period: u64,
}
