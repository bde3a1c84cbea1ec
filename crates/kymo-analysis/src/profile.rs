//! A recording in memory as distinct stacks with their weights.
//!
//! Samples are counted by their raw addresses first; each distinct address in
//! each distinct state of an address space is resolved once, after all tables
//! that will be needed were read in parallel. Memory grows with the number of
//! distinct stacks, not with that of samples.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kymo_files::perfdata::{Entry, EventDesc, Order, PerfData, ReadError, ReadStats};
use kymo_model::{CALLCHAIN_CONTEXT_MIN, ChainContext, Misc, RecordKind, Sample};
use kymo_symbols::{DsoId, Options, Resolver, SymId};
use rustc_hash::FxHashMap;

use crate::counting::{Counter, RawStack, Spaces};
use crate::oncpu::OnCpu;
use crate::state::{CommId, Machine, Maps};

/// Number of a distinct frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// A place in a program: a symbol, or an address without one.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The binary, when the address is mapped.
    pub dso: Option<DsoId>,
    /// The symbol.
    pub symbol: Option<SymId>,
    /// The address in the binary's terms, of the first sample seen here.
    pub addr: u64,
    /// The address as it was sampled first.
    pub ip: u64,
    /// Found in the kernel's address space.
    pub kernel: bool,
}

/// A distinct stack of one thread and what it weighs.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Name of the task at that time.
    pub comm: CommId,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU, if it is recorded and was asked for.
    pub cpu: Option<u32>,
    /// `k`, `.`, `g`, `u` or `H`: where the processor was.
    pub level: char,
    /// Where the processor was.
    pub leaf: FrameId,
    /// The call chain from the inside out, the leaf included. Empty when none
    /// was recorded.
    pub frames: Vec<FrameId>,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
}

/// All of one event.
#[derive(Clone, Debug, Default)]
pub struct EventProfile {
    /// What it is.
    pub desc: EventDesc,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// In the order in which they were first seen.
    pub stacks: Vec<Stack>,
    /// Samples that should have a call chain and have none.
    pub empty_chains: u64,
    /// Samples whose call chain is as long as was allowed.
    pub cut_chains: u64,
}

impl EventProfile {
    /// Whether call chains were recorded.
    pub fn has_chains(&self) -> bool {
        self.desc.attr.sample_type.contains(kymo_model::SampleType::CALLCHAIN)
    }
}

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Where symbols come from.
    pub symbols: Options,
    /// Keep the samples of different CPUs apart.
    pub by_cpu: bool,
    /// Leave call chains aside.
    pub no_chains: bool,
}

/// A recording, resolved.
#[derive(Debug)]
pub struct Profile {
    /// Names of tasks, binaries and symbols.
    pub machine: Machine,
    /// The events in the recording's order.
    pub events: Vec<EventProfile>,
    /// All frames, by number.
    pub frames: Vec<Frame>,
    /// What reading found.
    pub stats: ReadStats,
    /// What threads did with their time, where switches were recorded.
    pub on_cpu: OnCpu,
    /// First and last time of a sample.
    pub span: Option<(u64, u64)>,
}

impl Profile {
    /// Reads a recording from a path; `-` is the standard input.
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Profile, ReadError> {
        let mut file = PerfData::open(path)?;
        Profile::read(&mut file, options)
    }

    /// Reads an opened recording.
    pub fn read(file: &mut PerfData, options: &LoadOptions) -> Result<Profile, ReadError> {
        let mut machine = Machine::new(Resolver::new(options.symbols.clone()));
        let piped = file.is_pipe();
        machine.adopt(file.features());
        let mut counters: Vec<Counter> = Vec::new();
        let mut spaces = Spaces::default();
        let mut on_cpu = OnCpu::default();
        let mut span: Option<(u64, u64)> = None;
        let stats = file.for_each(Order::Time, &mut |entry| {
            match entry.raw.kind {
                RecordKind::SAMPLE => {
                    if let Some(t) = entry.time {
                        span = Some(span.map_or((t, t), |(a, b)| (a.min(t), b.max(t))));
                    }
                    count(entry, &mut machine, &mut counters, &mut spaces, options);
                }
                RecordKind::HEADER_BUILD_ID | RecordKind::HEADER_FEATURE if piped => {
                    machine.adopt(entry.features);
                }
                _ => {
                    machine.apply(&entry.raw);
                    account(entry, &mut on_cpu);
                }
            }
            ControlFlow::Continue(())
        })?;
        let mut resolving = Resolving { machine, frames: Vec::new(), ids: FxHashMap::default() };
        resolving.preload(&counters, &spaces);
        let descs = file.events();
        let mut counters = counters.into_iter();
        let mut events = Vec::with_capacity(descs.len());
        for desc in descs {
            let counter = counters.next().unwrap_or_default();
            events.push(resolving.event(desc, &counter, &spaces));
        }
        let Resolving { machine, frames, .. } = resolving;
        Ok(Profile { machine, events, frames, stats, on_cpu, span })
    }

    /// A frame by its number.
    pub fn frame(&self, id: FrameId) -> Frame {
        self.frames.get(id.0 as usize).copied().unwrap_or(Frame {
            dso: None,
            symbol: None,
            addr: 0,
            ip: 0,
            kernel: false,
        })
    }

    /// What a call chain calls the frame: its symbol, or its address.
    pub fn frame_name(&self, id: FrameId) -> String {
        let frame = self.frame(id);
        match frame.symbol {
            Some(s) => self.machine.symbols.name(s).to_string(),
            None if frame.ip == 0 => "0".to_string(),
            None => format!("{:#x}", frame.ip),
        }
    }
}

fn account(entry: &Entry<'_>, on_cpu: &mut OnCpu) {
    let (Some(time), Some(desc)) = (entry.time, entry.desc()) else { return };
    let wanted = [
        RecordKind::SWITCH,
        RecordKind::SWITCH_CPU_WIDE,
        RecordKind::FORK,
        RecordKind::EXIT,
        RecordKind::COMM,
    ];
    if !wanted.contains(&entry.raw.kind) {
        return;
    }
    let tid = entry.raw.sample_id(&desc.attr).ok().and_then(|id| id.tid);
    if let (Some((_, tid)), Ok(Some(record))) = (tid, kymo_model::Sideband::parse(&entry.raw)) {
        on_cpu.apply(tid, time, &record);
    }
}

fn count(
    entry: &Entry<'_>,
    machine: &mut Machine,
    counters: &mut Vec<Counter>,
    spaces: &mut Spaces,
    options: &LoadOptions,
) {
    let Some(desc) = entry.desc() else { return };
    let Ok(sample) = Sample::parse(&entry.raw, &desc.attr) else { return };
    let (pid, tid) = sample.tid.unwrap_or((0, 0));
    let comm = machine.comm_of(pid, tid);
    let (user, kernel) = machine.generation(pid);
    spaces.keep(user, || machine.space(pid));
    spaces.keep(kernel, || machine.kernel());
    if counters.len() <= entry.event {
        counters.resize_with(entry.event + 1, Counter::default);
    }
    let Some(counter) = counters.get_mut(entry.event) else { return };
    let has_chain = sample.has_callchain() && !options.no_chains;
    let raw = RawStack {
        comm,
        pid,
        tid,
        cpu: if options.by_cpu { sample.cpu } else { None },
        user,
        kernel,
        mode: entry.raw.misc.cpumode(),
        ip: sample.ip.unwrap_or(0),
    };
    let period = sample.period.unwrap_or(desc.attr.sample_period.max(1));
    let chain = sample.callchain();
    let length = chain.len();
    let max = match desc.attr.sample_max_stack {
        0 => 127,
        n => usize::from(n),
    };
    if sample.has_callchain() {
        let addresses = chain.clone().filter(|a| *a < CALLCHAIN_CONTEXT_MIN).count();
        counter.empty_chains += u64::from(addresses == 0);
        counter.cut_chains += u64::from(addresses >= max);
    }
    counter.add(raw, chain.take(if has_chain { length } else { 0 }), period);
}

struct Resolving {
    machine: Machine,
    frames: Vec<Frame>,
    /// Of symbols and of addresses without one.
    ids: FxHashMap<(Option<DsoId>, Result<SymId, u64>), FrameId>,
}

type Memo = FxHashMap<(u64, u64), FrameId>;

impl Resolving {
    fn preload(&mut self, counters: &[Counter], spaces: &Spaces) {
        let mut wanted: Vec<DsoId> = Vec::new();
        let mut seen = rustc_hash::FxHashSet::default();
        for counter in counters {
            counter.for_each(|raw, chain, _, _| {
                walk(raw, chain, |mode, ip| {
                    let Some(maps) = space(raw, mode, spaces) else { return };
                    if let Some(m) = maps.find(ip)
                        && seen.insert(m.dso)
                    {
                        wanted.push(m.dso);
                    }
                });
            });
        }
        self.machine.symbols.preload(&wanted);
    }

    fn event(&mut self, desc: &EventDesc, counter: &Counter, spaces: &Spaces) -> EventProfile {
        let mut event = EventProfile {
            desc: desc.clone(),
            empty_chains: counter.empty_chains,
            cut_chains: counter.cut_chains,
            ..EventProfile::default()
        };
        let (mut user, mut kernel) = (Memo::default(), Memo::default());
        counter.for_each(|raw, chain, samples, period| {
            let mut frame = |mode: u16, ip: u64| match mode {
                Misc::KERNEL => *kernel
                    .entry((raw.kernel, ip))
                    .or_insert_with(|| self.frame(spaces.get(raw.kernel), ip, true)),
                Misc::USER => *user
                    .entry((raw.user, ip))
                    .or_insert_with(|| self.frame(spaces.get(raw.user), ip, false)),
                _ => self.frame(None, ip, false),
            };
            let leaf = frame(raw.mode, raw.ip);
            let mut frames = Vec::with_capacity(chain.len());
            walk_chain(chain, |mode, ip| frames.push(frame(mode, ip)));
            event.samples += samples;
            event.period = event.period.saturating_add(period);
            event.stacks.push(Stack {
                comm: raw.comm,
                pid: raw.pid,
                tid: raw.tid,
                cpu: raw.cpu,
                level: level(raw.mode),
                leaf,
                frames,
                samples,
                period,
            });
        });
        event
    }

    fn frame(&mut self, maps: Option<&Arc<Maps>>, ip: u64, kernel: bool) -> FrameId {
        let mapping = maps.and_then(|m| m.find(ip)).copied();
        let at = self.machine.locate_in(mapping, ip);
        let key = (at.dso, at.symbol.ok_or(at.addr));
        *self.ids.entry(key).or_insert_with(|| {
            let id = FrameId(self.frames.len() as u32);
            let kernel = kernel && at.dso.is_some();
            self.frames.push(Frame { dso: at.dso, symbol: at.symbol, addr: at.addr, ip, kernel });
            id
        })
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

fn space<'a>(raw: &RawStack, mode: u16, spaces: &'a Spaces) -> Option<&'a Arc<Maps>> {
    match mode {
        Misc::KERNEL => spaces.get(raw.kernel),
        Misc::USER => spaces.get(raw.user),
        _ => None,
    }
}

fn walk(raw: &RawStack, chain: &[u64], mut each: impl FnMut(u16, u64)) {
    each(raw.mode, raw.ip);
    walk_chain(chain, each);
}

/// Calls `each` with mode and address of every frame, innermost first.
fn walk_chain(chain: &[u64], mut each: impl FnMut(u16, u64)) {
    let mut mode = Misc::USER;
    for &word in chain {
        if word < CALLCHAIN_CONTEXT_MIN {
            each(mode, word);
            continue;
        }
        mode = match ChainContext(word) {
            ChainContext::KERNEL => Misc::KERNEL,
            ChainContext::USER | ChainContext::USER_DEFERRED => Misc::USER,
            ChainContext::HV => Misc::HYPERVISOR,
            ChainContext::GUEST_KERNEL => Misc::GUEST_KERNEL,
            ChainContext::GUEST | ChainContext::GUEST_USER => Misc::GUEST_USER,
            // An unknown marker makes the rest meaningless.
            _ => return,
        };
    }
}
