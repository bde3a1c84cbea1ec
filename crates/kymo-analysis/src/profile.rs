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

use crate::addresses::Addresses;
use crate::counting::{Counter, StackKey};
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
    /// The address in the binary's terms; of a symbol's frame, the first one.
    pub addr: u64,
    /// The address as it was sampled; of a symbol's frame, the first one.
    pub ip: u64,
    /// Found in the kernel's address space.
    pub kernel: bool,
}

/// A distinct stack and what it weighs.
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
    /// What [`LoadOptions::label`] said.
    pub label: u32,
    /// `k`, `.`, `g`, `u` or `H`: where the processor was.
    pub level: char,
    /// Where the processor was.
    pub leaf: FrameId,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
}

/// All of one event.
#[derive(Debug, Default)]
pub struct EventProfile {
    /// What it is.
    pub desc: EventDesc,
    /// Samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    counter: Counter,
    /// Samples that should have a call chain and have none.
    pub empty_chains: u64,
    /// Samples whose call chain is as long as was allowed.
    pub cut_chains: u64,
    /// Samples whose call chain holds what cannot be in one.
    pub bad_chains: u64,
}

impl EventProfile {
    /// The stacks in the order in which they were first seen, each with its
    /// call chain from the inside out, the leaf included; that is empty when
    /// none was recorded.
    pub fn stacks(&self) -> impl ExactSizeIterator<Item = (Stack, Frames<'_>)> {
        self.counter.slots.iter().map(|slot| {
            let stack = Stack {
                comm: slot.key.comm,
                pid: slot.task.0,
                tid: slot.task.1,
                cpu: slot.key.cpu,
                label: slot.key.label,
                level: level(slot.key.mode),
                leaf: FrameId(slot.key.leaf),
                samples: slot.samples,
                period: slot.period,
            };
            (stack, Frames(self.counter.chain(slot)))
        })
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

    /// How many.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether no chain was recorded.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// Gives each sample a number that keeps it apart from others.
pub type Label<'a> = dyn FnMut(&Entry<'_>, &Sample<'_>) -> u32 + 'a;

/// What to read.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Where symbols come from.
    pub symbols: Options,
    /// Keep the samples of different CPUs apart.
    pub by_cpu: bool,
    /// Do not keep the samples of different threads apart.
    pub merge_threads: bool,
    /// Leave call chains aside.
    pub no_chains: bool,
    /// Keep samples apart by more than that.
    pub label: Option<&'a mut Label<'a>>,
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
    pub fn load(path: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Profile, ReadError> {
        let mut file = PerfData::open(path)?;
        Profile::read(&mut file, options)
    }

    /// Reads an opened recording.
    pub fn read(file: &mut PerfData, options: LoadOptions<'_>) -> Result<Profile, ReadError> {
        let mut machine = Machine::new(Resolver::new(options.symbols.clone()));
        let piped = file.is_pipe();
        machine.adopt(file.features());
        let mut counting = Counting {
            machine,
            options,
            counters: Vec::new(),
            addresses: Addresses::default(),
            user: None,
        };
        let mut on_cpu = OnCpu::default();
        let mut span: Option<(u64, u64)> = None;
        let stats = file.for_each(Order::Time, &mut |entry| {
            match entry.raw.kind {
                RecordKind::SAMPLE => {
                    if let Some(t) = entry.time {
                        span = Some(span.map_or((t, t), |(a, b)| (a.min(t), b.max(t))));
                    }
                    counting.sample(entry);
                }
                RecordKind::HEADER_BUILD_ID | RecordKind::HEADER_FEATURE if piped => {
                    counting.machine.adopt(entry.features);
                }
                _ => {
                    counting.user = None;
                    counting.machine.apply(&entry.raw);
                    account(entry, &mut on_cpu);
                }
            }
            ControlFlow::Continue(())
        })?;
        let Counting { mut machine, counters, addresses, .. } = counting;
        let (frame_of, frames) = addresses.resolve(&mut machine.symbols);
        let frame_of = |a: u32| frame_of.get(a as usize).map_or(u32::MAX, |f| f.0);
        let mut counters = counters.into_iter();
        let events = file.events().iter().map(|desc| {
            let counter = counters.next().unwrap_or_default().in_frames(&frame_of);
            EventProfile {
                desc: desc.clone(),
                samples: counter.slots.iter().map(|s| s.samples).sum(),
                period: counter.slots.iter().fold(0, |sum, s| sum.saturating_add(s.period)),
                empty_chains: counter.empty_chains,
                cut_chains: counter.cut_chains,
                bad_chains: counter.bad_chains,
                counter,
            }
        });
        let events = events.collect();
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

    /// Puts frames of equal weight in an order, mostly that of perf: higher
    /// addresses first.
    pub fn rank(&self, id: FrameId) -> (u32, u64) {
        let frame = self.frame(id);
        let place = frame.symbol.map_or(frame.ip, |s| self.machine.symbols.start(s).1);
        (!frame.dso.map_or(0, |d| d.0 + 1), !place)
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

/// Samples on their way into stacks of addresses.
struct Counting<'a> {
    machine: Machine,
    options: LoadOptions<'a>,
    counters: Vec<Counter>,
    addresses: Addresses,
    /// The process last asked for and its address space, while nothing changes.
    user: Option<(u32, Arc<Maps>)>,
}

impl Counting<'_> {
    fn sample(&mut self, entry: &Entry<'_>) {
        let Some(desc) = entry.desc() else { return };
        let Ok(sample) = Sample::parse(&entry.raw, &desc.attr) else { return };
        let (pid, tid) = sample.tid.unwrap_or((0, 0));
        if self.counters.len() <= entry.event {
            self.counters.resize_with(entry.event + 1, Counter::default);
        }
        let Some(counter) = self.counters.get_mut(entry.event) else { return };
        if self.user.as_ref().is_none_or(|u| u.0 != pid) {
            self.user = Some((pid, self.machine.space(pid)));
        }
        let user = self.user.as_ref().map(|u| &*u.1);
        let mode = entry.raw.misc.cpumode();
        if mode == Misc::KERNEL {
            self.machine.symbols.prefetch_kernel();
        }
        let kernel = self.machine.kernel();
        let addresses = &mut self.addresses;
        let mut id = |mode: u16, ip: u64| match mode {
            Misc::KERNEL => addresses.id(Some(kernel), ip, true),
            Misc::USER => addresses.id(user, ip, false),
            _ => addresses.id(None, ip, false),
        };
        let leaf = id(mode, sample.ip.unwrap_or(0));
        let start = counter.arena.len();
        if sample.has_callchain() {
            let length = match self.options.no_chains {
                true => walk_chain(sample.callchain(), |_, _| {}),
                false => walk_chain(sample.callchain(), |m, ip| counter.arena.push(id(m, ip))),
            };
            let max = match desc.attr.sample_max_stack {
                0 => 127,
                n => usize::from(n),
            };
            // An unknown marker makes all of a chain doubtful: perf, too, uses
            // nothing of it.
            match length {
                Some(length) => {
                    counter.empty_chains += u64::from(length == 0);
                    counter.cut_chains += u64::from(length >= max);
                }
                None => {
                    counter.arena.truncate(start);
                    counter.bad_chains += 1;
                }
            }
        }
        let key = StackKey {
            comm: self.machine.comm_of(pid, tid),
            cpu: if self.options.by_cpu { sample.cpu } else { None },
            task: (!self.options.merge_threads).then_some((pid, tid)),
            label: self.options.label.as_mut().map_or(0, |label| label(entry, &sample)),
            mode,
            leaf,
        };
        let period = sample.period.unwrap_or(desc.attr.sample_period.max(1));
        counter.add(key, (pid, tid), start, 1, period);
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

/// Calls `each` with mode and address of every frame, innermost first; answers
/// how many there are, or `None` at a marker that nobody knows.
fn walk_chain(chain: impl Iterator<Item = u64>, mut each: impl FnMut(u16, u64)) -> Option<usize> {
    let mut mode = Misc::USER;
    let mut length = 0;
    for word in chain {
        if word < CALLCHAIN_CONTEXT_MIN {
            each(mode, word);
            length += 1;
            continue;
        }
        mode = match ChainContext(word) {
            ChainContext::KERNEL => Misc::KERNEL,
            ChainContext::USER | ChainContext::USER_DEFERRED => Misc::USER,
            ChainContext::HV => Misc::HYPERVISOR,
            ChainContext::GUEST_KERNEL => Misc::GUEST_KERNEL,
            ChainContext::GUEST | ChainContext::GUEST_USER => Misc::GUEST_USER,
            _ => return None,
        };
    }
    Some(length)
}
