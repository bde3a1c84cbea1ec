//! Call chains of samples as frames: what the kernel recorded, what is unwound of a copy of
//! the stack, and the code that each address of both stands for. Each distinct address of an
//! address space is resolved once.

use std::sync::{Arc, Mutex, PoisonError};

use kymo_files::perfdata::Entry;
use kymo_model::{CALLCHAIN_CONTEXT_MIN, ChainContext, Misc, Sample};
use kymo_symbols::{DsoId, Resolver};
use rustc_hash::FxHashMap;

use crate::address::BinaryAddress;
use crate::chain::{ChainAddress, Origin, Step, returns_of_signals, walk};
use crate::state::{Located, MachineState, Maps};
use crate::state_history::StateReader;
use crate::unwind::{Tally, Unwinder};

/// Addresses remembered; more start the memory over.
const MAX_KNOWN: usize = 1 << 18;
/// Frames of whole stacks of the kernel remembered, likewise.
const MAX_FRAMES: usize = 1 << 18;

/// State of a machine that addresses are resolved in.
pub trait AddressState {
    /// Binaries and their symbols.
    fn symbols(&self) -> &Resolver;
    /// Mappings of a process.
    fn space(&mut self, pid: u32) -> Arc<Maps>;
    /// Numbers of the states that addresses of a process and of the kernel resolve in.
    fn generation(&mut self, pid: u32) -> (u64, u64);
    /// Binary and symbol of an address that was sampled.
    fn locate(&mut self, pid: u32, ip: u64, mode: u16) -> Located;
}

impl AddressState for MachineState {
    fn symbols(&self) -> &Resolver {
        &self.symbols
    }

    fn space(&mut self, pid: u32) -> Arc<Maps> {
        MachineState::space(self, pid)
    }

    fn generation(&mut self, pid: u32) -> (u64, u64) {
        MachineState::generation(self, pid)
    }

    fn locate(&mut self, pid: u32, ip: u64, mode: u16) -> Located {
        MachineState::locate(self, pid, ip, mode)
    }
}

impl AddressState for StateReader {
    fn symbols(&self) -> &Resolver {
        &self.symbols
    }

    fn space(&mut self, pid: u32) -> Arc<Maps> {
        Arc::clone(StateReader::space(self, pid))
    }

    fn generation(&mut self, pid: u32) -> (u64, u64) {
        StateReader::generation(self, pid)
    }

    fn locate(&mut self, pid: u32, ip: u64, mode: u16) -> Located {
        StateReader::locate(self, pid, ip, mode)
    }
}

/// Frame of a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainFrame {
    /// Its address as the chain has it.
    pub address: ChainAddress,
    /// Binary, address and symbol as they are shown.
    pub shown: Located,
    /// The instruction that is executed, in the binary's terms.
    pub code: u64,
    /// Source of the address.
    pub origin: Origin,
}

/// The state of the address space, the address, and the mode it was seen in.
type AddressKey = (u64, u64, u16);

/// The part of a sample's call chain that is of the kernel, as bytes, and the rest: the kernel
/// puts a marker before each. Without one before the first part nothing is known of it.
pub(crate) fn kernel_part<'a>(
    sample: &Sample<'a>,
) -> (&'a [u8], impl ExactSizeIterator<Item = u64> + use<'a>) {
    let kernel = ChainContext::KERNEL.0;
    let words = sample.callchain();
    let len = match words.clone().next() {
        Some(first) if first == kernel => {
            let ends = |word: &u64| *word >= CALLCHAIN_CONTEXT_MIN && *word != kernel;
            words.clone().position(|word| ends(&word)).unwrap_or(words.len())
        }
        _ => 0,
    };
    (sample.callchain_bytes().get(..len * 8).unwrap_or_default(), words.skip(len))
}

/// Frames of whole stacks of the kernel: programs come into it by few ways.
#[derive(Debug, Default)]
struct KernelChains {
    /// By their words.
    known: FxHashMap<Box<[u8]>, Box<[ChainFrame]>>,
    /// Frames of all of them.
    frames: usize,
    /// Number of the kernel's state that they are of.
    generation: u64,
}

impl KernelChains {
    #[inline]
    fn find(&mut self, words: &[u8], generation: u64) -> Option<&[ChainFrame]> {
        if self.generation != generation || self.frames >= MAX_FRAMES {
            *self = KernelChains { generation, ..KernelChains::default() };
        }
        if words.is_empty() { Some(&[]) } else { self.known.get(words).map(|frames| &**frames) }
    }

    fn remember(&mut self, words: &[u8], frames: &[ChainFrame]) {
        self.frames += frames.len().max(1);
        self.known.insert(words.into(), frames.into());
    }
}

/// Resolves call chains on one thread, with the state that it is given each time.
#[derive(Debug)]
pub struct ChainResolver {
    known: FxHashMap<AddressKey, Located>,
    kernel: KernelChains,
    trampolines: FxHashMap<(DsoId, u64), bool>,
    unwinder: Unwinder,
}

impl ChainResolver {
    /// A resolver of chains in the binaries that `symbols` knows.
    pub fn new(symbols: &Resolver) -> ChainResolver {
        ChainResolver {
            known: FxHashMap::default(),
            kernel: KernelChains::default(),
            trampolines: FxHashMap::default(),
            unwinder: Unwinder::new(symbols.binaries()),
        }
    }

    /// Frames of a sample's call chain, innermost first: those that the kernel recorded, then
    /// those of the program that are unwound here.
    pub fn frames(
        &mut self,
        state: &mut impl AddressState,
        entry: &Entry<'_>,
        sample: &Sample<'_>,
    ) -> Vec<ChainFrame> {
        let (pid, mode) = (sample.tid.map_or(0, |t| t.0), entry.raw.misc.cpumode());
        let of = (pid, state.generation(pid));
        let (own, others) = kernel_part(sample);
        let mut frames = Vec::new();
        match self.kernel.find(own, of.1.1) {
            Some(known) => {
                frames.reserve_exact(known.len() + others.len());
                frames.extend_from_slice(known);
            }
            None => {
                let words = sample.callchain().take(own.len() / 8);
                self.add(state, of, (words, mode, Origin::Recorded), &mut frames);
                self.kernel.remember(own, &frames);
            }
        }
        self.add(state, of, (others, mode, Origin::Recorded), &mut frames);
        if sample.stack_user.is_some() || sample.branch_callers().is_some() {
            let unwound = self.unwind(state, entry, sample).to_vec();
            self.add(state, of, (unwound.into_iter(), mode, Origin::Unwound), &mut frames);
        }
        frames
    }

    /// Adds the frames of a part of a chain.
    fn add(
        &mut self,
        state: &mut impl AddressState,
        of: (u32, (u64, u64)),
        (words, mode, origin): (impl Iterator<Item = u64>, u16, Origin),
        frames: &mut Vec<ChainFrame>,
    ) {
        let kernel = (origin == Origin::Recorded).then(|| Arc::clone(state.symbols().kernel()));
        for step in walk(words, mode, origin, &kernel) {
            if let Step::Frame(address) = step {
                let (shown, code) = self.frame_in(state, of, address);
                frames.push(ChainFrame { address, shown, code, origin });
            }
        }
    }

    /// The user part of a call chain that is recorded as registers and stack.
    pub fn unwind(
        &mut self,
        state: &mut impl AddressState,
        entry: &Entry<'_>,
        sample: &Sample<'_>,
    ) -> &[u64] {
        let is_here = sample.stack_user.is_some() || sample.branch_callers().is_some();
        if !is_here || !sample.has_callchain() {
            return &[];
        }
        let maps = state.space(sample.tid.map_or(0, |t| t.0));
        let machine = entry.features.arch.as_deref();
        self.unwinder.chain(sample, machine, entry.raw.endian, &maps)
    }

    /// Binary and symbol of an address that was sampled.
    pub fn locate(
        &mut self,
        state: &mut impl AddressState,
        pid: u32,
        ip: u64,
        mode: u16,
    ) -> Located {
        let generation = state.generation(pid);
        self.locate_in(state, (pid, generation), ip, mode)
    }

    /// [`locate`](Self::locate) in a state of known generation.
    fn locate_in(
        &mut self,
        state: &mut impl AddressState,
        (pid, (user, kernel)): (u32, (u64, u64)),
        ip: u64,
        mode: u16,
    ) -> Located {
        // The kernel is the same in all processes.
        let key = (if mode == Misc::KERNEL { kernel } else { user }, ip, mode);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let located = state.locate(pid, ip, mode);
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, located);
        located
    }

    /// A frame as it is shown, and the instruction that is executed in it, in the
    /// binary's terms.
    pub fn frame(
        &mut self,
        state: &mut impl AddressState,
        pid: u32,
        address: ChainAddress,
    ) -> (Located, u64) {
        let generation = state.generation(pid);
        self.frame_in(state, (pid, generation), address)
    }

    /// [`frame`](Self::frame) in a state of known generation.
    fn frame_in(
        &mut self,
        state: &mut impl AddressState,
        of: (u32, (u64, u64)),
        address: ChainAddress,
    ) -> (Located, u64) {
        let at = self.locate_in(state, of, address.code().get(), address.mode);
        if address.returns && address.mode == Misc::USER && self.is_trampoline(state.symbols(), &at)
        {
            let at = self.locate_in(state, of, address.ip, address.mode);
            return (at, at.addr);
        }
        let behind = |n: u64| n.wrapping_add(u64::from(address.returns));
        (Located { addr: behind(at.addr), offset: behind(at.offset), ..at }, at.addr)
    }

    /// Whether a handler of a signal returned to what is behind an address.
    fn is_trampoline(&mut self, symbols: &Resolver, before: &Located) -> bool {
        let Some(dso) = before.dso else { return false };
        if self.trampolines.len() >= MAX_KNOWN {
            self.trampolines.clear();
        }
        let call = BinaryAddress::new(before.addr);
        let found = || returns_of_signals(symbols, dso, &[call]) == [true];
        *self.trampolines.entry((dso, before.addr)).or_insert_with(found)
    }

    /// Counts of how the unwound stacks ended.
    pub fn tally(&self) -> &Tally {
        self.unwinder.tally()
    }
}

/// Counts of how unwound stacks ended, shared by the threads that read a recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedTally(Arc<Mutex<Tally>>);

impl SharedTally {
    pub(crate) fn add(&self, tally: &Tally) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).merge(tally.clone());
    }

    pub(crate) fn total(&self) -> Tally {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Facts about the resolution of a perf.data's call chains, for notes on them.
#[derive(Debug)]
pub struct ChainFacts {
    /// Counts of how the unwound stacks ended.
    pub tally: Tally,
    /// Binaries and their symbols.
    pub symbols: Resolver,
}
