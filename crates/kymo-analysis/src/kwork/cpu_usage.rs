//! Shares of the CPUs' time: tasks, interrupts, softirqs, idle.

use kymo_events::{EventSource, FieldId, RecordedEvent, SourceError};
use rustc_hash::FxHashMap;

use super::decode::KworkKind;
use super::machine::KworkStep;
use super::read::{KworkConfig, KworkRead, KworkSight, KworkSink, read_into};
use crate::call_sites::CallSites;
use crate::losses::{LossWindows, MOST_CPUS};
use kymo_format::print_argument::FlagNames;

/// Tasks on CPUs that have rows.
const MOST_ROWS: usize = 200_000;

/// Time of a CPU, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuShare {
    /// All that is known.
    pub total: u64,
    /// The idle task's, without interrupts and softirqs.
    pub idle: u64,
    /// Interrupts, but for those within softirqs.
    pub irq: u64,
    /// Softirqs, with interrupts within.
    pub softirq: u64,
}

/// Time of a task, on all CPUs; of an idle task on its own.
#[derive(Clone, Debug, Default)]
pub struct TaskShare {
    /// Name.
    pub comm: Vec<u8>,
    /// Thread; 0 for idle tasks.
    pub tid: u32,
    /// CPU of an idle task.
    pub cpu: u32,
    /// Nanoseconds on CPUs, without interrupts and softirqs.
    pub runtime: u64,
    /// Nanoseconds in which interrupts and softirqs held it up.
    pub held_up: u64,
    /// Shares of its CPUs, added up.
    pub usage: f64,
}

/// Shares of the CPUs' time.
#[derive(Debug)]
pub struct CpuUsage {
    /// By CPU.
    pub cpus: Vec<CpuShare>,
    /// Tasks, in no order.
    pub tasks: Vec<TaskShare>,
    /// Tasks without rows.
    pub crowded: u64,
    /// Whether there are switches of tasks.
    pub has_switches: bool,
    /// Work that was read.
    pub read: KworkRead,
}

#[derive(Clone, Debug, Default)]
struct TaskTime {
    comm: Vec<u8>,
    runtime: u64,
    held_up: u64,
}

#[derive(Clone, Copy)]
struct SwitchFields {
    layout: usize,
    prev_tid: FieldId,
    prev_comm: Option<FieldId>,
    next_tid: FieldId,
}

struct UsageSink<'a> {
    config: &'a KworkConfig,
    fields: Option<SwitchFields>,
    /// Task of each CPU and since when, and what held it up since.
    running: Vec<Option<(u32, u64, u64)>>,
    times: FxHashMap<(u32, u32), TaskTime>,
    cpus: Vec<CpuShare>,
    crowded: u64,
    losses: LossWindows,
}

impl UsageSink<'_> {
    fn share(&mut self, cpu: u32) -> Option<&mut CpuShare> {
        let index = cpu as usize;
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, CpuShare::default());
            self.running.resize(index + 1, None);
        }
        self.cpus.get_mut(index)
    }

    /// The part of a span of time that is wanted.
    fn cut(&self, from: u64, to: u64) -> Option<u64> {
        let s = &self.config.selection;
        if s.times.is_empty() {
            return Some(to - from);
        }
        let (first, last) = (s.from().max(from), s.until().min(to));
        (last > first).then(|| last - first)
    }

    fn switch(&mut self, event: &RecordedEvent<'_>) -> Option<()> {
        let layout = event.class.layout.index();
        let fields = match self.fields.filter(|f| f.layout == layout) {
            Some(fields) => fields,
            None => {
                let class = event.class;
                let fields = SwitchFields {
                    layout,
                    prev_tid: class.field("prev_tid")?,
                    prev_comm: class.field("prev_comm"),
                    next_tid: class.field("next_tid")?,
                };
                *self.fields.insert(fields)
            }
        };
        let (time, cpu) = (event.time?, event.cpu().filter(|c| *c < MOST_CPUS)?);
        let values = event.fields();
        let tid = |id| u32::try_from(values.integer(id)?).ok();
        let (prev, next) = (tid(fields.prev_tid)?, tid(fields.next_tid)?);
        self.share(cpu)?;
        let before = self.running.get_mut(cpu as usize)?.replace((next, time, 0));
        // A switch is missing where another task leaves the CPU than got it.
        let (_, since, held_up) = before.filter(|(tid, ..)| *tid == prev)?;
        if !self.config.selection.wants_cpu(Some(cpu)) || self.losses.touches(since, time) {
            return None;
        }
        let elapsed = self.cut(since, time.max(since))?;
        self.share(cpu)?.total += elapsed;
        if self.times.len() >= MOST_ROWS && !self.times.contains_key(&(prev, cpu)) {
            self.crowded += 1;
            return None;
        }
        let row = self.times.entry((prev, cpu)).or_default();
        if let Some(comm) = fields.prev_comm {
            let comm = values.text(comm);
            if row.comm != *comm {
                row.comm = comm.into_owned();
            }
        }
        row.runtime += elapsed.saturating_sub(held_up);
        row.held_up += held_up.min(elapsed);
        Some(())
    }
}

impl KworkSink for UsageSink<'_> {
    fn step(&mut self, sight: &KworkSight<'_, '_>, _: &CallSites, _: &FlagNames) -> bool {
        let KworkStep::End(interval) = &sight.step else { return true };
        if !interval.holds_up_task || interval.touches_loss {
            return true;
        }
        let cpu = interval.start.cpu;
        let Some(elapsed) = self.cut(interval.start.time, interval.end) else { return true };
        if !self.config.selection.wants_cpu(Some(cpu)) {
            return true;
        }
        let since = self.running.get(cpu as usize).copied().flatten().map(|r| r.1);
        // Before the first switch the CPU's time is not known either.
        if since.is_none_or(|since| since > interval.start.time) {
            return true;
        }
        if let Some(share) = self.share(cpu) {
            match sight.kwork.kind {
                KworkKind::Irq => share.irq += elapsed,
                _ => share.softirq += elapsed,
            }
        }
        if let Some(Some((_, _, held_up))) = self.running.get_mut(cpu as usize) {
            *held_up += elapsed;
        }
        true
    }

    fn other(&mut self, event: &RecordedEvent<'_>) {
        self.switch(event);
    }
}

impl CpuUsage {
    /// Counts the shares.
    ///
    /// # Errors
    /// If reading fails.
    pub fn count(source: &EventSource, config: &KworkConfig) -> Result<CpuUsage, SourceError> {
        let mut sink = UsageSink {
            config,
            fields: None,
            running: Vec::new(),
            times: FxHashMap::default(),
            cpus: Vec::new(),
            crowded: 0,
            losses: source.losses(),
        };
        let read = read_into(source, config, &mut sink)?;
        let UsageSink { mut cpus, times, crowded, fields, .. } = sink;
        // By task; an idle task is one of its CPU.
        let mut tasks: FxHashMap<(u32, u32), TaskShare> = FxHashMap::default();
        for ((tid, cpu), time) in times {
            let Some(share) = cpus.get_mut(cpu as usize) else { continue };
            if tid == 0 {
                share.idle += time.runtime;
            }
            let row = tasks.entry((tid, if tid == 0 { cpu } else { 0 })).or_default();
            let usage = match share.total {
                0 => 0.0,
                total => time.runtime as f64 * 100.0 / total as f64,
            };
            (row.tid, row.cpu) = (tid, if tid == 0 { cpu } else { 0 });
            row.comm = if tid == 0 { format!("swapper/{cpu}").into_bytes() } else { time.comm };
            row.runtime += time.runtime;
            row.held_up += time.held_up;
            row.usage += usage;
        }
        let tasks = tasks.into_values().collect();
        Ok(CpuUsage { cpus, tasks, crowded, has_switches: fields.is_some(), read })
    }
}
