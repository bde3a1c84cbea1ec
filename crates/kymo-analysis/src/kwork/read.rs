//! Reading interrupts, softirqs and work items of recordings.

use std::ops::ControlFlow;

use kymo_events::{
    EventSelection, EventSource, ReadOptions, ReadSummary, RecordedEvent, SourceError,
};

use super::decode::{KworkDecoder, KworkEvent, KworkKind};
use super::machine::{KworkMachine, KworkStep};
use crate::call_sites::{CallSites, SiteId};
use crate::losses::{MOST_CPUS, select_events};
use kymo_format::print_argument::FlagNames;

/// Options of reading work.
#[derive(Debug, Default)]
pub struct KworkConfig {
    /// Selection of intervals: by the time and CPU at which they end, and the task they are in.
    pub selection: EventSelection,
    /// Kinds of work; all where it is empty.
    pub kinds: Vec<KworkKind>,
    /// Switches of tasks, too.
    pub switches: bool,
    /// Functions of stacks.
    pub stacks: bool,
}

impl KworkConfig {
    fn names(&self) -> Vec<&'static str> {
        let wanted = |kind: &KworkKind| self.kinds.is_empty() || self.kinds.contains(kind);
        let kinds = KworkKind::ALL.into_iter().filter(wanted);
        let mut names: Vec<&str> = kinds.flat_map(|kind| kind.events().iter().copied()).collect();
        if self.switches {
            names.push("sched:sched_switch");
        }
        names
    }

    /// Whether an interval that ends, or begins, now counts.
    pub fn wants(&self, time: u64, cpu: u32, event: &RecordedEvent<'_>) -> bool {
        let s = &self.selection;
        s.wants_time(Some(time)) && s.wants_cpu(Some(cpu)) && {
            !s.has_task_conditions() || {
                let task = event.task();
                s.wants_task(task.pid, task.tid, task.comm())
            }
        }
    }
}

/// Work that was read.
#[derive(Debug)]
pub struct KworkRead {
    /// The machine as it was at the end.
    pub machine: KworkMachine,
    /// Functions of work items.
    pub sites: CallSites,
    /// Names of softirqs.
    pub softirq_names: FlagNames,
    /// Number of events of work items.
    pub events: u64,
    /// Pieces that were open when the recording ended.
    pub open_at_end: u64,
    /// Times of the first and the last event.
    pub span: Option<(u64, u64)>,
    /// Events that lack a field.
    pub malformed: u64,
    /// Summary of the readers.
    pub summary: ReadSummary,
}

/// Event as a consumer receives it.
pub(super) struct KworkSight<'a, 'e> {
    pub(super) kwork: &'a KworkEvent<'a>,
    pub(super) step: KworkStep,
    pub(super) time: u64,
    pub(super) cpu: u32,
    pub(super) event: &'a RecordedEvent<'e>,
    /// Function of a work item.
    pub(super) function: Option<SiteId>,
}

impl KworkRead {
    /// Name of a piece of work as perf has it: `virtio1-req.0:36`, `(s)RCU:9`, `(w)psi_avgs_work`.
    pub fn name(
        sites: &CallSites,
        softirqs: &FlagNames,
        kind: KworkKind,
        (id, function): (u64, Option<SiteId>),
        irq: &[u8],
    ) -> String {
        /// Names since Linux 2.6.30; of recordings without print formats.
        const SOFTIRQS: [&str; 10] = [
            "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
            "RCU",
        ];
        match kind {
            KworkKind::Irq => format!("{}:{id}", String::from_utf8_lossy(irq)),
            KworkKind::Softirq => {
                let number = usize::try_from(id).ok();
                let listed = number.and_then(|n| SOFTIRQS.get(n)).map(|n| (*n).to_owned());
                let name = softirqs.is_known().then(|| softirqs.text(id)).or(listed);
                format!("(s){}:{id}", name.unwrap_or_default())
            }
            KworkKind::Workqueue => match function.and_then(|f| sites.get(f)) {
                Some(site) => match &site.symbol {
                    Some((name, _)) => format!("(w){name}"),
                    None => format!("(w){:#x}", site.address),
                },
                None => format!("(w){id:#x}"),
            },
        }
    }
}

/// Receiver of work items, and of other requested events.
pub(super) trait KworkSink {
    fn step(&mut self, sight: &KworkSight<'_, '_>, sites: &CallSites, softirqs: &FlagNames)
    -> bool;
    fn other(&mut self, _event: &RecordedEvent<'_>) {}
}

/// Reads work items.
///
/// # Errors
/// If reading fails.
pub(super) fn read_into(
    source: &EventSource,
    config: &KworkConfig,
    sink: &mut dyn KworkSink,
) -> Result<KworkRead, SourceError> {
    let mut decoder = KworkDecoder::default();
    let mut machine = KworkMachine::new(source.losses());
    let mut sites = CallSites::default();
    let (mut span, mut events) = (None, 0u64);
    let selection = select_events(&config.names());
    let summary = source.for_each(&selection, ReadOptions::default(), &mut |event| {
        if let (Some(time), true) = (event.time, event.cpu().is_some_and(|c| c < MOST_CPUS)) {
            let (first, latest) = span.unwrap_or((time, time));
            span = Some((time.min(first), time.max(latest)));
        }
        let Some(kwork) = decoder.decode(event) else {
            if config.switches {
                sink.other(event);
            }
            return ControlFlow::Continue(());
        };
        events += 1;
        let function = kwork.function.filter(|f| *f != 0).map(|f| sites.find(f, event));
        let Some((step, time, cpu)) = machine.apply(&kwork, event, config.stacks) else {
            return ControlFlow::Continue(());
        };
        let sight = KworkSight { kwork: &kwork, step, time, cpu, event, function };
        if sink.step(&sight, &sites, &decoder.softirq_names) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    let open_at_end = machine.finish();
    let KworkDecoder { softirq_names, malformed, .. } = decoder;
    Ok(KworkRead { machine, sites, softirq_names, events, open_at_end, span, malformed, summary })
}

/// A piece of work that began or ended, for who writes lines.
pub struct KworkLine<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub kind: KworkKind,
    /// Number or address.
    pub id: u64,
    /// The interval.
    pub interval: &'a super::machine::KworkInterval,
    /// CPU where it ended.
    pub cpu: u32,
    /// The task it happened in.
    pub task: &'a kymo_events::TaskInfo,
}

impl KworkLine<'_> {
    /// Time from the first raise to the start, where the raise is known.
    pub fn delay(&self) -> Option<u64> {
        let start = &self.interval.start;
        start.raised.map(|raised| start.time - raised)
    }

    /// Whether events were lost meanwhile.
    pub fn is_uncertain(&self) -> bool {
        self.interval.touches_loss || self.interval.start.delay_touches_loss
    }

    /// Callers of the start, up to a number of them.
    pub fn stack(&self, most: usize) -> &[String] {
        let stack = &self.interval.start.stack;
        stack.get(..most).unwrap_or(stack)
    }
}

struct LineSink<'a> {
    config: &'a KworkConfig,
    write: &'a mut dyn FnMut(&KworkLine<'_>) -> bool,
    irqs: rustc_hash::FxHashMap<u64, Vec<u8>>,
    functions: rustc_hash::FxHashMap<u64, SiteId>,
}

impl KworkSink for LineSink<'_> {
    fn step(
        &mut self,
        sight: &KworkSight<'_, '_>,
        sites: &CallSites,
        softirqs: &FlagNames,
    ) -> bool {
        let (kwork, id) = (sight.kwork, sight.kwork.id);
        if kwork.kind == KworkKind::Irq && !kwork.name.is_empty() && self.irqs.len() < 1 << 16 {
            self.irqs.entry(id).or_insert_with(|| kwork.name.to_vec());
        }
        let interval = match &sight.step {
            KworkStep::Begin(_) => {
                if let Some(function) = sight.function.filter(|_| self.functions.len() < 1 << 17) {
                    self.functions.insert(id, function);
                }
                return true;
            }
            KworkStep::End(interval) => interval,
        };
        if !self.config.wants(sight.time, sight.cpu, sight.event) {
            return true;
        }
        let function = sight.function.or_else(|| self.functions.get(&id).copied());
        let irq = self.irqs.get(&id).map_or(&b""[..], Vec::as_slice);
        let name = KworkRead::name(sites, softirqs, kwork.kind, (id, function), irq);
        let line = KworkLine {
            name: &name,
            kind: kwork.kind,
            id,
            interval,
            cpu: sight.cpu,
            task: sight.event.task(),
        };
        (self.write)(&line)
    }
}

/// Reads work items, and hands each to `write` when it ends; `false` ends reading.
///
/// # Errors
/// If reading fails.
pub fn read_kwork(
    source: &EventSource,
    config: &KworkConfig,
    write: &mut dyn FnMut(&KworkLine<'_>) -> bool,
) -> Result<KworkRead, SourceError> {
    let (irqs, functions) = Default::default();
    let mut sink = LineSink { config, write, irqs, functions };
    read_into(source, config, &mut sink)
}
