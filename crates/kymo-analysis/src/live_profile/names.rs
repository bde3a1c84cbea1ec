//! Names of addresses, resolved by a separate thread: readers of the profile never wait for a
//! binary to be read. Until an address has its name, it is pending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use kymo_events::BinaryAddress;
use kymo_events::chain::returns_of_signals;
use kymo_symbols::{Dso, DsoId, RecordedFacts, Resolver, SymId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::code::LiveCode;
use crate::addresses::{Address, AddressId, Addresses};
use crate::function_cost::CostSum;

/// Number of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

impl FunctionId {
    /// Number that stands for all addresses that have no name yet.
    pub const PENDING: FunctionId = FunctionId(u32::MAX);
}

/// A function, or an address without one.
#[derive(Clone, Debug)]
pub struct LiveFunction {
    /// Readable name; none of an address that no symbol covers.
    pub name: Option<Arc<str>>,
    /// The binary, when the address is mapped.
    pub dso: Option<DsoId>,
    /// First address in the binary's terms, or that of the code.
    pub start: u64,
    /// As sampled: what is printed of an address without a symbol.
    pub ip: u64,
    /// Whether it is in the kernel.
    pub kernel: bool,
}

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveLine {
    /// Path of the file.
    pub file: Arc<str>,
    /// Number.
    pub line: u32,
}

/// Addresses that wait for their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingNames {
    /// For the name of their function.
    pub functions: usize,
    /// For their line, where lines are wanted.
    pub lines: usize,
}

/// Request to the thread.
enum ThreadRequest {
    Names(NameRequest),
    Code { numbering: Numbering, function: FunctionId, places: BTreeMap<u64, CostSum> },
}

/// The next request, of those that wait and those that came meanwhile; none when no more come.
///
/// A pass over a large binary takes longer than requests need to come: those for names become one,
/// and those with numbers of before are dropped, as their answers would not be understood.
fn next_request(
    taken: &Receiver<ThreadRequest>,
    waiting: &mut Vec<ThreadRequest>,
) -> Option<ThreadRequest> {
    if waiting.is_empty() {
        waiting.push(taken.recv().ok()?);
    }
    waiting.extend(taken.try_iter());
    let newest = waiting.iter().rev().find_map(|request| match request {
        ThreadRequest::Names(request) => Some(request.numbering),
        ThreadRequest::Code { .. } => None,
    });
    let mut merged: Vec<ThreadRequest> = Vec::new();
    for request in waiting.drain(..) {
        let ThreadRequest::Names(request) = request else {
            // Not after names of which there may be many.
            let is_code = |r: &&ThreadRequest| matches!(r, ThreadRequest::Code { .. });
            merged.insert(merged.iter().take_while(is_code).count(), request);
            continue;
        };
        if Some(request.numbering) != newest {
            continue;
        }
        let same = merged.iter_mut().find_map(|other| match other {
            ThreadRequest::Names(other) => Some(other).filter(|o| o.wants == request.wants),
            ThreadRequest::Code { .. } => None,
        });
        match same {
            Some(same) => {
                same.addresses.extend(request.addresses);
                // All that were known then, and more.
                (same.binaries, same.recorded) = (request.binaries, request.recorded);
            }
            None => merged.push(ThreadRequest::Names(request)),
        }
    }
    *waiting = merged;
    (!waiting.is_empty()).then(|| waiting.remove(0))
}

/// Answer of the thread.
enum ThreadAnswer {
    Names(NameAnswer),
    Code { numbering: Numbering, function: FunctionId, code: Box<Result<LiveCode, String>> },
}

/// Which numbers a request or an answer is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbering {
    /// Answers about functions and lines.
    functions: u64,
    /// Answers about addresses.
    addresses: u64,
}

/// Addresses to look at, and what the resolver must know of them.
struct NameRequest {
    numbering: Numbering,
    binaries: Vec<Arc<Dso>>,
    recorded: Arc<RecordedFacts>,
    addresses: Vec<(AddressId, Address)>,
    wants: Wanted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Functions,
    Lines,
}

/// Names that were found, and functions and lines that are new.
struct NameAnswer {
    numbering: Numbering,
    functions: Vec<LiveFunction>,
    lines: Vec<LiveLine>,
    of: Vec<(AddressId, u32)>,
    wants: Wanted,
}

/// Number of an address without a line.
const NO_LINE: u32 = u32::MAX;
/// Number of an address whose line is not known yet.
const PENDING_LINE: u32 = u32::MAX - 1;

/// Names of addresses by their number.
pub(super) struct AddressNames {
    requests: Sender<ThreadRequest>,
    answers: Receiver<ThreadAnswer>,
    numbering: Numbering,
    /// Addresses that were asked for.
    asked: usize,
    /// Those of them whose answer, by their number of before, will not be understood.
    again: Vec<AddressId>,
    asked_lines: Option<usize>,
    of: Vec<FunctionId>,
    lines_of: Vec<u32>,
    functions: Vec<LiveFunction>,
    lines: Vec<LiveLine>,
    pending: PendingNames,
    /// Code that came and was not fetched yet.
    code: Option<(FunctionId, Result<LiveCode, String>)>,
    /// The thread has ended: no more names come.
    over: bool,
}

impl AddressNames {
    /// Starts the thread, which ends when this is dropped and its work is done.
    pub(super) fn start(symbols: &Resolver) -> AddressNames {
        let (requests, taken) = channel();
        let (found, answers) = channel();
        let mut finder = NameFinder { symbols: symbols.fork_for_thread(), ..NameFinder::default() };
        finder.symbols.limit_tables(TABLE_BYTES);
        let thread = std::thread::Builder::new().name("names".into());
        let is_started = thread
            .spawn(move || {
                let mut waiting = Vec::new();
                while let Some(request) = next_request(&taken, &mut waiting) {
                    if found.send(finder.answer(request)).is_err() {
                        break;
                    }
                }
            })
            .is_ok();
        AddressNames {
            requests,
            answers,
            numbering: Numbering::default(),
            asked: 0,
            again: Vec::new(),
            asked_lines: None,
            of: Vec::new(),
            lines_of: Vec::new(),
            functions: Vec::new(),
            lines: Vec::new(),
            pending: PendingNames::default(),
            code: None,
            over: !is_started,
        }
    }

    /// Asks for the names of addresses that are new.
    pub(super) fn ask(&mut self, symbols: &Resolver, addresses: &Addresses) {
        if self.over {
            self.of.resize(addresses.len(), FunctionId::PENDING);
            return;
        }
        let again = std::mem::take(&mut self.again);
        if addresses.len() > self.asked || !again.is_empty() {
            let from = std::mem::replace(&mut self.asked, addresses.len());
            self.of.resize(addresses.len(), FunctionId::PENDING);
            self.pending.functions += addresses.len() - from;
            let known = again.iter().filter_map(|id| Some((*id, *addresses.get(*id)?)));
            let new = addresses.iter().skip(from).map(|(id, a)| (id, *a));
            self.send(symbols, known.chain(new).collect(), Wanted::Functions);
        }
        if let Some(from) = self.asked_lines.filter(|from| addresses.len() > *from) {
            self.asked_lines = Some(addresses.len());
            self.lines_of.resize(addresses.len(), PENDING_LINE);
            self.pending.lines += addresses.len() - from;
            let new = addresses.iter().skip(from).map(|(id, a)| (id, *a));
            self.send(symbols, new.collect(), Wanted::Lines);
        }
    }

    /// Asks for lines, too.
    pub(super) fn want_lines(&mut self, symbols: &Resolver, addresses: &Addresses) {
        self.asked_lines.get_or_insert(0);
        self.ask(symbols, addresses);
    }

    fn send(&mut self, symbols: &Resolver, addresses: Vec<(AddressId, Address)>, wants: Wanted) {
        let request = NameRequest {
            numbering: self.numbering,
            binaries: symbols.binaries_from(0).to_vec(),
            recorded: Arc::clone(symbols.recorded_facts()),
            addresses,
            wants,
        };
        self.over |= self.requests.send(ThreadRequest::Names(request)).is_err();
    }

    /// Asks for the code of a function.
    pub(super) fn want_code(&mut self, function: FunctionId, places: BTreeMap<u64, CostSum>) {
        let request = ThreadRequest::Code { numbering: self.numbering, function, places };
        self.over |= self.requests.send(request).is_err();
    }

    /// The code that came last.
    pub(super) fn take_code(&mut self) -> Option<(FunctionId, Result<LiveCode, String>)> {
        self.code.take()
    }

    /// Applies the answers that arrived; returns whether there were any.
    pub(super) fn take_answers(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.answers.try_recv() {
                Ok(answer) => {
                    self.take(answer);
                    any = true;
                }
                Err(TryRecvError::Empty) => return any,
                Err(TryRecvError::Disconnected) => {
                    self.over = true;
                    return any;
                }
            }
        }
    }

    /// Waits until nothing is pending.
    pub(super) fn wait(&mut self) {
        while self.pending != PendingNames::default() && !self.over {
            match self.answers.recv() {
                Ok(answer) => self.take(answer),
                Err(_) => self.over = true,
            }
        }
    }

    fn take(&mut self, answer: ThreadAnswer) {
        let answer = match answer {
            ThreadAnswer::Names(answer) => answer,
            ThreadAnswer::Code { numbering, function, code } => {
                if numbering.functions == self.numbering.functions {
                    self.code = Some((function, *code));
                }
                return;
            }
        };
        if answer.numbering.functions != self.numbering.functions {
            return;
        }
        // Later answers count on them.
        self.functions.extend(answer.functions);
        self.lines.extend(answer.lines);
        if answer.numbering != self.numbering {
            return;
        }
        for (id, number) in answer.of {
            let at = id.0 as usize;
            match answer.wants {
                Wanted::Functions => {
                    self.pending.functions = self.pending.functions.saturating_sub(1);
                    if let Some(slot) = self.of.get_mut(at) {
                        *slot = FunctionId(number);
                    }
                }
                Wanted::Lines => {
                    self.pending.lines = self.pending.lines.saturating_sub(1);
                    if let Some(slot) = self.lines_of.get_mut(at) {
                        *slot = number;
                    }
                }
            }
        }
    }

    /// Addresses have other numbers now: for each old number, the new one of those that are kept,
    /// which are `count`. Names stay with their addresses.
    pub(super) fn renumber(&mut self, new: &[Option<AddressId>], count: usize) {
        self.numbering.addresses += 1;
        let kept = || new.iter().enumerate().filter_map(|(old, id)| Some((old, (*id)?.0 as usize)));
        let mut of = vec![FunctionId::PENDING; count];
        let mut in_use: FxHashSet<FunctionId> = FxHashSet::default();
        for (old, new) in kept() {
            if let (Some(slot), Some(function)) = (of.get_mut(new), self.of.get(old)) {
                *slot = *function;
                in_use.insert(*function);
            }
        }
        if self.functions.len() > in_use.len() * 2 + UNUSED_FUNCTIONS
            || self.lines.len() > count * 2 + UNUSED_FUNCTIONS
        {
            self.forget();
            return;
        }
        self.of = of;
        self.asked = count;
        let is_pending = |of: &(u32, &FunctionId)| *of.1 == FunctionId::PENDING;
        let pending = (0..).zip(&self.of).filter(is_pending).map(|(id, _)| AddressId(id));
        self.again = pending.collect();
        self.pending.functions = self.again.len();
        // Lines are asked for while they are looked at; what was found is in the cache.
        self.asked_lines = self.asked_lines.map(|_| 0);
        self.lines_of.clear();
        self.pending.lines = 0;
    }

    /// All addresses are asked for again, and functions get other numbers.
    fn forget(&mut self) {
        self.numbering.functions += 1;
        self.asked = 0;
        self.again.clear();
        self.asked_lines = self.asked_lines.map(|_| 0);
        self.of.clear();
        self.lines_of.clear();
        self.functions.clear();
        self.lines.clear();
        self.pending = PendingNames::default();
    }

    /// Function of an address.
    #[inline]
    pub(super) fn of(&self, address: u32) -> FunctionId {
        self.of.get(address as usize).copied().unwrap_or(FunctionId::PENDING)
    }

    /// Line of an address; none where there is none, or not yet.
    pub(super) fn line_of(&self, address: u32) -> Option<u32> {
        let line = self.lines_of.get(address as usize).copied();
        line.filter(|line| *line != NO_LINE && *line != PENDING_LINE)
    }

    pub(super) fn function(&self, id: FunctionId) -> Option<&LiveFunction> {
        self.functions.get(id.0 as usize)
    }

    pub(super) fn line(&self, id: u32) -> Option<&LiveLine> {
        self.lines.get(id as usize)
    }

    pub(super) fn pending(&self) -> PendingNames {
        self.pending
    }
}

/// Bytes of symbol tables that are kept.
const TABLE_BYTES: usize = 10 << 20;
/// Functions that no kept address is in, beyond the number in use, before all are forgotten.
const UNUSED_FUNCTIONS: usize = 1 << 14;

/// The thread's side.
#[derive(Default)]
struct NameFinder {
    symbols: Resolver,
    numbering: Numbering,
    functions: FxHashMap<FunctionKey, u32>,
    lines: FxHashMap<LiveLine, u32>,
    /// Symbols of functions by number.
    symbols_of: Vec<Option<(DsoId, SymId)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum FunctionKey {
    Symbol(SymId),
    Address(Option<DsoId>, u64),
}

impl NameFinder {
    fn answer(&mut self, request: ThreadRequest) -> ThreadAnswer {
        match request {
            ThreadRequest::Names(request) => ThreadAnswer::Names(self.find(request)),
            ThreadRequest::Code { numbering, function, places } => {
                let known = self.symbols_of.get(function.0 as usize).copied().flatten();
                let is_known = numbering.functions == self.numbering.functions;
                let code = match known.filter(|_| is_known) {
                    Some(symbol) => LiveCode::list(&self.symbols, function, symbol, places),
                    None => Err("no symbol covers it".to_owned()),
                };
                ThreadAnswer::Code { numbering, function, code: Box::new(code) }
            }
        }
    }

    fn find(&mut self, request: NameRequest) -> NameAnswer {
        let NameRequest { numbering, binaries, recorded, addresses, wants } = request;
        if numbering.functions != self.numbering.functions {
            self.functions = FxHashMap::default();
            self.lines = FxHashMap::default();
            self.symbols_of = Vec::new();
            self.symbols.forget_symbols();
        }
        self.numbering = numbering;
        self.symbols.take_binaries(&binaries, &recorded);
        let (functions, lines, of) = (Vec::new(), Vec::new(), Vec::new());
        let mut answer = NameAnswer { numbering, functions, lines, of, wants };
        let mut by_dso: FxHashMap<DsoId, Vec<(BinaryAddress, AddressId, Address)>> =
            FxHashMap::default();
        for (id, address) in addresses {
            match address.dso() {
                Some(dso) => by_dso.entry(dso).or_default().push((address.addr, id, address)),
                None => self.found(id, &address, None, &mut answer),
            }
        }
        let mut asked: Vec<_> = by_dso.into_iter().collect();
        for (dso, places) in &mut asked {
            self.exact_trampolines(*dso, places);
            places.sort_by_key(|p| p.0);
        }
        let wanted: Vec<(DsoId, Vec<u64>)> = asked
            .iter()
            .map(|(dso, places)| {
                let mut addresses: Vec<u64> = places.iter().map(|p| p.0.get()).collect();
                addresses.dedup();
                (*dso, addresses)
            })
            .collect();
        match wants {
            Wanted::Functions => self.find_functions(&asked, &wanted, &mut answer),
            Wanted::Lines => self.find_lines(&asked, &wanted, &mut answer),
        }
        answer
    }

    /// Makes exact the addresses to which signal handlers returned: they are not one past a call.
    fn exact_trampolines(&self, dso: DsoId, places: &mut [(BinaryAddress, AddressId, Address)]) {
        let returns = |p: &(BinaryAddress, AddressId, Address)| p.2.returns && !p.2.kernel;
        let addresses: Vec<BinaryAddress> =
            places.iter().filter(|p| returns(p)).map(|p| p.0).collect();
        if addresses.is_empty() {
            return;
        }
        let exact = returns_of_signals(&self.symbols, dso, &addresses);
        let callers = places.iter_mut().filter(|p| returns(p));
        for (place, _) in callers.zip(exact).filter(|(_, exact)| *exact) {
            place.0 = place.0.return_address();
        }
    }

    fn find_functions(
        &mut self,
        asked: &[Asked],
        wanted: &[(DsoId, Vec<u64>)],
        answer: &mut NameAnswer,
    ) {
        let found = self.symbols.symbols_of(wanted);
        for (((_, places), (_, addresses)), found) in asked.iter().zip(wanted).zip(&found) {
            for (addr, id, address) in places {
                let at = addresses.binary_search(&addr.get()).ok();
                let symbol = at.and_then(|at| found.get(at).copied().flatten());
                self.found(*id, address, symbol, answer);
            }
        }
    }

    /// Gives an address its function, which may be new.
    fn found(
        &mut self,
        id: AddressId,
        address: &Address,
        symbol: Option<SymId>,
        answer: &mut NameAnswer,
    ) {
        if answer.wants == Wanted::Lines {
            answer.of.push((id, NO_LINE));
            return;
        }
        let key = match symbol {
            Some(symbol) => FunctionKey::Symbol(symbol),
            None => FunctionKey::Address(address.dso(), address.ip),
        };
        let next = self.functions.len() as u32;
        let number = *self.functions.entry(key).or_insert(next);
        if number == next {
            self.symbols_of.push(symbol.zip(address.dso()).map(|(s, d)| (d, s)));
            answer.functions.push(LiveFunction {
                name: symbol.map(|s| self.symbols.name(s).into()),
                dso: address.dso(),
                start: symbol.map_or(address.addr.get(), |s| self.symbols.start(s).1),
                ip: address.ip,
                kernel: address.kernel,
            });
        }
        answer.of.push((id, number));
    }

    fn find_lines(
        &mut self,
        asked: &[Asked],
        wanted: &[(DsoId, Vec<u64>)],
        answer: &mut NameAnswer,
    ) {
        let sources = self.symbols.sources_of(wanted);
        for (binary, ((_, places), (_, addresses))) in asked.iter().zip(wanted).enumerate() {
            for (addr, id, _) in places {
                let at = addresses.binary_search(&addr.get()).ok();
                let frames = at.map_or(&[][..], |at| sources.frames(binary, at));
                let Some(frame) = frames.first().filter(|f| f.line > 0) else {
                    answer.of.push((*id, NO_LINE));
                    continue;
                };
                let line = LiveLine { file: sources.file(frame.file).into(), line: frame.line };
                let next = self.lines.len() as u32;
                let number = *self.lines.entry(line.clone()).or_insert(next);
                if number == next {
                    answer.lines.push(line);
                }
                answer.of.push((*id, number));
            }
        }
    }
}

/// Addresses of a binary: where they are, their number, what is known of them.
type Asked = (DsoId, Vec<(BinaryAddress, AddressId, Address)>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_wait_become_one() {
        let (requests, taken) = channel();
        let names = |functions: u64, wants: Wanted, ids: &[u32]| {
            let maps = None;
            let mut addresses = Addresses::default();
            let at = |ip| kymo_events::chain::ChainAddress::exact(0, ip);
            let of = |n: &u32| {
                let id = addresses.id(maps, at(u64::from(*n)));
                (AddressId(*n), *addresses.get(id).unwrap())
            };
            let addresses = ids.iter().map(of).collect();
            let numbering = Numbering { functions, addresses: 0 };
            let (binaries, recorded) = (Vec::new(), Arc::default());
            ThreadRequest::Names(NameRequest { numbering, binaries, recorded, addresses, wants })
        };
        let code = |function: u32| ThreadRequest::Code {
            numbering: Numbering::default(),
            function: FunctionId(function),
            places: BTreeMap::new(),
        };
        // Those with the numbers of before are dropped, and code is not waited for.
        for request in [
            names(0, Wanted::Functions, &[1, 2]),
            names(1, Wanted::Functions, &[3]),
            code(7),
            names(1, Wanted::Lines, &[3]),
            names(1, Wanted::Functions, &[4, 5]),
            code(8),
        ] {
            requests.send(request).unwrap();
        }
        drop(requests);
        let mut waiting = Vec::new();
        let mut next = || match next_request(&taken, &mut waiting) {
            Some(ThreadRequest::Names(request)) => {
                let ids = request.addresses.iter().map(|(id, _)| id.0).collect();
                (request.wants == Wanted::Lines, ids)
            }
            Some(ThreadRequest::Code { function, .. }) => (false, vec![100 + function.0]),
            None => (false, Vec::new()),
        };
        let all: Vec<(bool, Vec<u32>)> = (0..5).map(|_| next()).collect();
        let expected = [
            (false, vec![107]),
            (false, vec![108]),
            (false, vec![3, 4, 5]),
            (true, vec![3]),
            (false, vec![]),
        ];
        assert_eq!(all, expected);
    }
}
