//! What addresses are called, found out by a thread of its own: whoever looks at the profile
//! never waits for a binary to be read. Until an address has its name, it is pending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use kymo_events::BinaryAddress;
use kymo_events::chain::returns_of_signals;
use kymo_symbols::{Dso, DsoId, RecordedFacts, Resolver, SymId};
use rustc_hash::FxHashMap;

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

/// What the thread is asked for.
enum ThreadRequest {
    Names(NameRequest),
    Code { epoch: u64, function: FunctionId, places: BTreeMap<u64, CostSum> },
}

/// What it answers.
enum ThreadAnswer {
    Names(NameAnswer),
    Code { epoch: u64, function: FunctionId, code: Box<Result<LiveCode, String>> },
}

/// Addresses to look at, and what the resolver must know of them.
struct NameRequest {
    epoch: u64,
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
    epoch: u64,
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
    epoch: u64,
    /// Addresses that were asked for.
    asked: usize,
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
        let thread = std::thread::Builder::new().name("names".into());
        let started = thread.spawn(move || {
            for request in taken {
                if found.send(finder.answer(request)).is_err() {
                    break;
                }
            }
        });
        AddressNames {
            requests,
            answers,
            epoch: 0,
            asked: 0,
            asked_lines: None,
            of: Vec::new(),
            lines_of: Vec::new(),
            functions: Vec::new(),
            lines: Vec::new(),
            pending: PendingNames::default(),
            code: None,
            over: started.is_err(),
        }
    }

    /// Asks for the names of addresses that are new.
    pub(super) fn ask(&mut self, symbols: &Resolver, addresses: &Addresses) {
        if addresses.len() > self.asked {
            let from = std::mem::replace(&mut self.asked, addresses.len());
            self.of.resize(addresses.len(), FunctionId::PENDING);
            self.pending.functions += addresses.len() - from;
            self.send(symbols, addresses, from, Wanted::Functions);
        }
        if let Some(from) = self.asked_lines.filter(|from| addresses.len() > *from) {
            self.asked_lines = Some(addresses.len());
            self.lines_of.resize(addresses.len(), PENDING_LINE);
            self.pending.lines += addresses.len() - from;
            self.send(symbols, addresses, from, Wanted::Lines);
        }
    }

    /// Asks for lines, too.
    pub(super) fn want_lines(&mut self, symbols: &Resolver, addresses: &Addresses) {
        self.asked_lines.get_or_insert(0);
        self.ask(symbols, addresses);
    }

    fn send(&mut self, symbols: &Resolver, addresses: &Addresses, from: usize, wants: Wanted) {
        let new = addresses.iter().skip(from).map(|(id, a)| (id, *a)).collect();
        let request = NameRequest {
            epoch: self.epoch,
            binaries: symbols.binaries_from(0).to_vec(),
            recorded: Arc::clone(symbols.recorded_facts()),
            addresses: new,
            wants,
        };
        self.over |= self.requests.send(ThreadRequest::Names(request)).is_err();
    }

    /// Asks for the code of a function.
    pub(super) fn want_code(&mut self, function: FunctionId, places: BTreeMap<u64, CostSum>) {
        let request = ThreadRequest::Code { epoch: self.epoch, function, places };
        self.over |= self.requests.send(request).is_err();
    }

    /// The code that came last.
    pub(super) fn take_code(&mut self) -> Option<(FunctionId, Result<LiveCode, String>)> {
        self.code.take()
    }

    /// Takes over what was found meanwhile; tells whether that was anything.
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
            ThreadAnswer::Code { epoch, function, code } => {
                if epoch == self.epoch {
                    self.code = Some((function, *code));
                }
                return;
            }
        };
        if answer.epoch != self.epoch {
            return;
        }
        self.functions.extend(answer.functions);
        self.lines.extend(answer.lines);
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

    /// Addresses have other numbers now: all are asked for again.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
        self.asked = 0;
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

/// A binary that is asked as often has its symbol table kept.
const OFTEN: u32 = 3;

/// The thread's side.
#[derive(Default)]
struct NameFinder {
    symbols: Resolver,
    epoch: u64,
    functions: FxHashMap<FunctionKey, u32>,
    lines: FxHashMap<LiveLine, u32>,
    /// How often binaries were asked for symbols.
    asked: FxHashMap<DsoId, u32>,
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
            ThreadRequest::Code { epoch, function, places } => {
                let known = self.symbols_of.get(function.0 as usize).copied().flatten();
                let code = match known.filter(|_| epoch == self.epoch) {
                    Some(symbol) => LiveCode::list(&self.symbols, function, symbol, places),
                    None => Err("no symbol covers it".to_owned()),
                };
                ThreadAnswer::Code { epoch, function, code: Box::new(code) }
            }
        }
    }

    fn find(&mut self, request: NameRequest) -> NameAnswer {
        let NameRequest { epoch, binaries, recorded, addresses, wants } = request;
        if epoch != self.epoch {
            self.functions.clear();
            self.lines.clear();
            self.symbols_of.clear();
            self.epoch = epoch;
        }
        self.symbols.take_binaries(&binaries, &recorded);
        let mut answer =
            NameAnswer { epoch, functions: Vec::new(), lines: Vec::new(), of: Vec::new(), wants };
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

    /// What signal handlers returned to is where it is, not one behind.
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
        // One pass over a file finds a few symbols soonest; who is asked again and again has
        // its whole table kept.
        let mut known = Vec::with_capacity(wanted.len());
        let mut rare = Vec::new();
        for (dso, addresses) in wanted {
            let asked = self.asked.entry(*dso).or_default();
            *asked += 1;
            let is_kept = *asked >= OFTEN;
            known.push(is_kept);
            if !is_kept {
                rare.push((*dso, addresses.clone()));
            }
        }
        let mut found_rare = self.symbols.symbols_of(&rare).into_iter();
        let mut found = Vec::with_capacity(wanted.len());
        for ((dso, addresses), is_kept) in wanted.iter().zip(known) {
            found.push(if is_kept {
                let of = |a: &u64| self.symbols.symbol(*dso, *a).map(|s| s.0);
                addresses.iter().map(of).collect()
            } else {
                found_rare.next().unwrap_or_default()
            });
        }
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
