//! User stacks from sampled registers and stack copies, as call chains.
//!
//! One [`Unwinder`] serves one thread. It asks the address space of the sample's
//! time what an address belongs to, and the binaries (shared by all threads) how
//! to leave it; each distinct address is asked about once. How the stacks ended
//! is counted in a [`Tally`].

use std::sync::Arc;

use kymo_model::{ChainContext, Endian, Sample};
use kymo_symbols::DsoId;
use kymo_symbols::unwind::{self, Binaries, Lack};
use kymo_unwind::{Arch, Code, Context, End, Registers, Rule, Stack, Walked, walk};
use rustc_hash::FxHashMap;

use crate::state::Maps;

pub use crate::tally::{Cut, LARGEST_COPY, Needed, Stop, Tally};

/// Addresses remembered; more start the memory over.
const MOST_ADDRESSES: usize = 1 << 20;
/// Distinct rules remembered, likewise.
const MOST_RULES: usize = 1 << 16;

/// Rules that are always there: no code, then a guess for each reason.
const NOTHING: u32 = 0;
const LACKS: [Lack; 6] =
    [Lack::Memory, Lack::Missing, Lack::Changed, Lack::Unusable, Lack::Silent, Lack::Damaged];

/// Unwinds samples.
#[derive(Debug)]
pub struct Unwinder {
    rules: Rules,
    chain: Vec<u64>,
    tally: Tally,
}

/// What is known of the code.
#[derive(Debug)]
struct Rules {
    binaries: Arc<Binaries>,
    by_dso: Vec<Option<Result<Arc<unwind::Code>, Lack>>>,
    /// By line of address spaces, address, and whether it was interrupted there.
    places: FxHashMap<(u64, u64, bool), u32>,
    rules: Vec<Rule>,
    numbers: FxHashMap<Rule, u32>,
    context: Context,
}

impl Unwinder {
    /// One that knows nothing yet.
    pub fn new(binaries: Arc<Binaries>) -> Unwinder {
        let mut rules = Rules {
            binaries,
            by_dso: Vec::new(),
            places: FxHashMap::default(),
            rules: Vec::new(),
            numbers: FxHashMap::default(),
            context: Context::default(),
        };
        rules.forget();
        Unwinder { rules, chain: Vec::new(), tally: Tally::default() }
    }

    /// The user part of a sample's call chain: the marker of user addresses and
    /// the addresses, innermost first. Empty when the sample has no registers of
    /// a user program or no copy of its stack. Addresses of callers are one less
    /// than the return address, as perf has them: they lie in the call.
    pub fn chain(
        &mut self,
        sample: &Sample<'_>,
        machine: Option<&str>,
        endian: Endian,
        maps: &Maps,
    ) -> &[u64] {
        self.chain.clear();
        let (Some(registers), Some(copy)) = (&sample.regs_user, &sample.stack_user) else {
            return &[];
        };
        let arch = match machine {
            Some(name) => Arch::of_machine(name),
            None => Arch::of_machine(std::env::consts::ARCH),
        };
        let start = arch.and_then(|arch| Registers::sampled(arch, registers));
        let (pid, tid) = sample.tid.unwrap_or((0, 0));
        let Some((start, sp)) = start.and_then(|s| Some((s, s.sp()?))) else {
            self.tally.add_unusable();
            return &[];
        };
        let copied = usize::try_from(copy.dynamic_size).unwrap_or(usize::MAX);
        let bytes = copy.bytes.get(..copied).unwrap_or(copy.bytes);
        let stack = Stack::new(sp, bytes, endian);
        let chain = &mut self.chain;
        chain.push(ChainContext::USER.0);
        let mut code = At { rules: &mut self.rules, maps };
        let walked = walk(&start, &stack, &mut code, |address| chain.push(address));
        let stop = code.stop(&walked);
        let cut = Cut { pid, tid, sp, copied: bytes.len() as u64, asked: copy.bytes.len() as u64 };
        self.tally.add(&walked, stop, cut);
        &self.chain
    }

    /// How the stacks ended so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The same, when nothing more is to come.
    pub fn into_tally(self) -> Tally {
        self.tally
    }
}

/// The code as one sample saw it.
struct At<'a> {
    rules: &'a mut Rules,
    maps: &'a Maps,
}

impl Code for At<'_> {
    #[inline]
    fn rule(&mut self, address: u64, interrupted: bool) -> &Rule {
        let number = self.rules.number(self.maps, address, interrupted);
        self.rules.rules.get(number as usize).unwrap_or(&Rule::Nothing)
    }

    fn is_code(&mut self, address: u64) -> bool {
        self.maps.find(address).is_some()
    }
}

impl At<'_> {
    /// What a walk stopped at.
    fn stop(&mut self, walked: &Walked) -> Option<Stop> {
        let (End::NoRule(address) | End::NoCode(address) | End::Wrong(address)) = walked.end else {
            return None;
        };
        let dso = self.maps.find(address).map(|m| m.dso);
        let lack = match (walked.end, self.rules.number(self.maps, address, false)) {
            (End::NoRule(_), NOTHING) => None,
            (End::NoRule(_), n) => LACKS.get(n as usize - 1).copied(),
            (End::Wrong(_), _) => Some(Lack::Damaged),
            _ => None,
        };
        Some(Stop { dso, lack })
    }
}

impl Rules {
    /// Keeps only the rules that are always there.
    fn forget(&mut self) {
        self.places.clear();
        self.numbers.clear();
        self.rules.clear();
        self.rules.push(Rule::Nothing);
        self.rules.extend(LACKS.map(|_| Rule::Guess));
    }

    #[inline]
    fn number(&mut self, maps: &Maps, address: u64, interrupted: bool) -> u32 {
        match self.places.get(&(maps.line, address, interrupted)) {
            Some(number) => *number,
            None => self.find(maps, address, interrupted),
        }
    }

    #[cold]
    fn find(&mut self, maps: &Maps, address: u64, interrupted: bool) -> u32 {
        // What is not mapped now may be later.
        let Some(mapping) = maps.find(address) else { return NOTHING };
        if self.places.len() >= MOST_ADDRESSES || self.rules.len() >= MOST_RULES {
            self.forget();
        }
        let found = match self.binary(mapping.dso) {
            Ok(code) => code.rule(&mut self.context, mapping.to_dso(address), interrupted),
            Err(lack) => Err(lack),
        };
        let number = match found {
            Ok(rule) => self.intern(rule),
            Err(lack) => LACKS.iter().position(|l| *l == lack).map_or(NOTHING, |n| n as u32 + 1),
        };
        self.places.insert((maps.line, address, interrupted), number);
        number
    }

    fn binary(&mut self, dso: DsoId) -> Result<Arc<unwind::Code>, Lack> {
        let at = dso.0 as usize;
        if let Some(Some(known)) = self.by_dso.get(at) {
            return known.clone();
        }
        let binary = self.binaries.get(dso);
        if self.by_dso.len() <= at {
            self.by_dso.resize(at + 1, None);
        }
        if let Some(slot) = self.by_dso.get_mut(at) {
            *slot = Some(binary.clone());
        }
        binary
    }

    fn intern(&mut self, rule: Rule) -> u32 {
        if let Some(number) = self.numbers.get(&rule) {
            return *number;
        }
        let number = self.rules.len() as u32;
        self.rules.push(rule.clone());
        self.numbers.insert(rule, number);
        number
    }
}
