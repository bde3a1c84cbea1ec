//! User stacks from sampled registers and stack copies, as call chains.
//!
//! One [`Unwinder`] serves one thread. It asks the address space of the sample's
//! time what an address belongs to, and the binaries (shared by all threads) how
//! to leave it; each distinct address is asked about once. How the stacks ended
//! is counted in a [`Tally`].

use std::sync::Arc;

use kymo_model::{
    ChainContext, Endian, IndexVec, OpenTable, Sample, TableSlot, hash_address, impl_vec_index,
};
use kymo_symbols::DsoId;
use kymo_symbols::unwind::{self, Binaries, CfiError};
use kymo_unwind::{
    Arch, CfiContext, Code, End, Quick, Registers, Rule, StackWindow, Walked, quick_walk, walk,
};
use rustc_hash::FxHashMap;

use crate::address::CodeAddress;
use crate::state::{Mapping, Maps};

pub use crate::unwind_tally::{Cut, LARGEST_COPY, Needed, Tally, UnwindStop};

/// Addresses remembered; more start the memory over.
const MOST_ADDRESSES: usize = 1 << 20;
/// Distinct rules remembered, likewise.
const MOST_RULES: usize = 1 << 16;

/// Number of a distinct rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RuleId(u32);
impl_vec_index!(RuleId, "rule of unwinding");

/// Rules that are always there: no code, then a guess for each reason.
const NOTHING: RuleId = RuleId(0);
const CFI_ERRORS: [CfiError; 6] = [
    CfiError::Memory,
    CfiError::Missing,
    CfiError::Changed,
    CfiError::Unusable,
    CfiError::Silent,
    CfiError::Damaged,
];

/// Unwinds samples.
#[derive(Debug)]
pub struct Unwinder {
    rules: Rules,
    chain: Vec<u64>,
    tally: Tally,
}

/// Unwind rules of the known code.
#[derive(Debug)]
struct Rules {
    binaries: Arc<Binaries>,
    by_dso: Vec<Option<Result<Arc<unwind::UnwindCode>, CfiError>>>,
    known: OpenTable<RuleSlot>,
    /// The mapping of the last address, with the line of address spaces.
    last: Option<(u64, Mapping)>,
    rules: IndexVec<RuleId, Rule>,
    numbers: FxHashMap<Rule, RuleId>,
    context: CfiContext,
}

impl Unwinder {
    /// One that knows nothing yet.
    pub fn new(binaries: Arc<Binaries>) -> Unwinder {
        let mut rules = Rules {
            binaries,
            by_dso: Vec::new(),
            known: OpenTable::with_slots(FIRST_SLOTS),
            last: None,
            rules: IndexVec::default(),
            numbers: FxHashMap::default(),
            context: CfiContext::default(),
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
        if let Some(callers) = sample.branch_callers() {
            self.chain.push(ChainContext::USER.0);
            self.chain.extend(callers);
            return &self.chain;
        }
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
        let stack = StackWindow::new(sp, bytes, endian);
        let chain = &mut self.chain;
        chain.push(ChainContext::USER.0);
        let mut code = At { rules: &mut self.rules, maps };
        let quick = quick_walk(&start, &stack, &mut code, |address| chain.push(address));
        let walked = quick.unwrap_or_else(|| {
            chain.truncate(1);
            walk(&start, &stack, &mut code, |address| chain.push(address))
        });
        let stop = code.stop(&walked);
        let cut = Cut { pid, tid, sp, copied: bytes.len() as u64, asked: copy.bytes.len() as u64 };
        self.tally.add(&walked, stop, cut);
        &self.chain
    }

    /// Forgets the tables of binaries if those of all threads have more than this many bytes. What
    /// was found out about addresses stays.
    pub fn forget_binaries_beyond(&mut self, bytes: usize) {
        if self.rules.binaries.forget_beyond(bytes) {
            self.rules.by_dso = Vec::new();
        }
    }

    /// Counts of how the stacks ended so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts of how the stacks ended, when all were unwound.
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
        let number = self.rules.found(self.maps, address, interrupted).number;
        self.rules.rules.get(number).unwrap_or(&Rule::Nothing)
    }

    #[inline]
    fn quick(&mut self, address: u64, interrupted: bool) -> Quick {
        self.rules.found(self.maps, address, interrupted).quick
    }

    fn is_code(&mut self, address: u64) -> bool {
        self.maps.find(CodeAddress::exact(address)).is_some()
    }
}

impl At<'_> {
    /// Address and reason at which a walk stopped.
    fn stop(&mut self, walked: &Walked) -> Option<UnwindStop> {
        let (End::NoRule(address) | End::NoCode(address) | End::Wrong(address)) = walked.end else {
            return None;
        };
        let dso = self.maps.find(CodeAddress::exact(address)).map(|m| m.dso);
        let cfi_error = match (walked.end, self.rules.found(self.maps, address, false).number) {
            (End::NoRule(_), NOTHING) => None,
            (End::NoRule(_), RuleId(n)) => CFI_ERRORS.get(n as usize - 1).copied(),
            (End::Wrong(_), _) => Some(CfiError::Damaged),
            _ => None,
        };
        Some(UnwindStop { dso, cfi_error })
    }
}

/// Address of a lookup: in the binary's terms, as programs that are started again are mapped at
/// other addresses.
#[derive(Clone, Copy, Debug)]
struct RuleKey {
    dso: DsoId,
    offset: u64,
    interrupted: bool,
}

impl RuleKey {
    /// All but the offset, plus one; of more binaries than any machine has nothing
    /// is remembered.
    fn of(self) -> Option<u32> {
        self.dso.0.checked_mul(2)?.checked_add(1 + u32::from(self.interrupted))
    }
}

/// The rule there: its number, and in short.
#[derive(Clone, Copy, Debug)]
struct FoundRule {
    number: RuleId,
    quick: Quick,
}

/// Slots that the table begins with, as a power of two.
const FIRST_SLOTS: u32 = 12;

/// Rule of an address that was asked for. A slot is half a cache line: every frame of
/// every sample looks one up.
#[derive(Clone, Copy, Debug)]
struct RuleSlot {
    offset: u64,
    /// [`RuleKey::of`]; 0 is an empty slot.
    of: u32,
    found: FoundRule,
}

impl TableSlot for RuleSlot {
    const EMPTY: RuleSlot =
        RuleSlot { offset: 0, of: 0, found: FoundRule { number: NOTHING, quick: Quick::NOTHING } };
    const SLOTS_PER_ENTRY: (usize, usize) = (2, 1);

    #[inline]
    fn is_empty(&self) -> bool {
        self.of == 0
    }

    #[inline]
    fn hash(&self) -> u32 {
        hash_address(self.offset, self.of)
    }
}

impl Rules {
    /// Keeps only the rules that are always there.
    fn forget(&mut self) {
        self.known = OpenTable::with_slots(FIRST_SLOTS);
        self.numbers.clear();
        self.rules = IndexVec::default();
        self.rules.push(Rule::Nothing);
        CFI_ERRORS.iter().for_each(|_| {
            self.rules.push(Rule::Guess);
        });
    }

    #[inline]
    fn found(&mut self, maps: &Maps, address: u64, interrupted: bool) -> FoundRule {
        let at = CodeAddress::exact(address);
        let mapping = match &self.last {
            Some((line, m)) if *line == maps.line && m.start <= address && address < m.end => *m,
            _ => match maps.find(at) {
                Some(m) => self.last.insert((maps.line, *m)).1,
                None => return FoundRule { number: NOTHING, quick: Quick::NOTHING },
            },
        };
        let place = RuleKey { dso: mapping.dso, offset: mapping.to_dso(at).get(), interrupted };
        match self.remembered(place) {
            Some(found) => found,
            None => self.find(place),
        }
    }

    #[inline]
    fn remembered(&self, place: RuleKey) -> Option<FoundRule> {
        let (of, offset) = (place.of()?, place.offset);
        let same = |slot: &RuleSlot| slot.offset == offset && slot.of == of;
        self.known.find(hash_address(offset, of), same).map(|slot| slot.found)
    }

    #[cold]
    fn find(&mut self, place: RuleKey) -> FoundRule {
        if self.known.len() >= MOST_ADDRESSES || self.rules.len() >= MOST_RULES {
            self.forget();
        }
        let RuleKey { dso, offset, interrupted } = place;
        let rule = match self.binary(dso) {
            Ok(code) => code.rule(&mut self.context, offset, interrupted),
            Err(cfi_error) => Err(cfi_error),
        };
        let quick = rule.as_ref().map_or(Quick::GUESS, Quick::of);
        let number = match rule {
            Ok(rule) => self.intern(rule),
            Err(cfi_error) => CFI_ERRORS
                .iter()
                .position(|l| *l == cfi_error)
                .map_or(NOTHING, |n| RuleId(n as u32 + 1)),
        };
        let found = FoundRule { number, quick };
        if let Some(of) = place.of() {
            self.known.insert(RuleSlot { offset, of, found });
        }
        found
    }

    fn binary(&mut self, dso: DsoId) -> Result<Arc<unwind::UnwindCode>, CfiError> {
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

    fn intern(&mut self, rule: Rule) -> RuleId {
        if let Some(number) = self.numbers.get(&rule) {
            return *number;
        }
        let number = self.rules.push(rule.clone());
        self.numbers.insert(rule, number);
        number
    }
}
