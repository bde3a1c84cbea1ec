//! From addresses to frames: symbols, and on request inlined copies and lines. Each lookup is done
//! once for each distinct address, all of a binary together.

use kymo_events::BinaryAddress;
use kymo_events::chain::returns_of_signals;
use kymo_model::{IndexVec, impl_vec_index, internal_error};
use kymo_symbols::{DsoId, DsoKind, Resolver, SourceFrame, Sources, SymId, TextId};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::addresses::{Address, AddressId, Addresses};

/// Number of a distinct frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);
impl_vec_index!(FrameId, "frame");

impl FrameId {
    /// Number that no frame has.
    pub(crate) const NONE: FrameId = FrameId(u32::MAX);
}

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
    /// Whether it is in the kernel's address space.
    pub kernel: bool,
    /// Name in `Profile::sources` of a function inlined into the symbol's code.
    pub inlined: Option<TextId>,
    /// Position in the source, if lines are distinguished and it is known.
    pub line: Option<SourceLine>,
}

/// A line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Path, in `Profile::sources`.
    pub file: TextId,
    /// Number.
    pub line: u32,
}

/// Granularity of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Detail {
    /// By address, not only by symbol.
    pub(crate) by_address: bool,
    /// Inlined copies are frames of their own.
    pub(crate) inlines: bool,
    /// By line.
    pub(crate) lines: bool,
}

/// The frames of one collection's addresses.
#[derive(Debug, Default)]
pub(crate) struct FramesOf {
    /// Frame of the samples at each address: that of the symbol, with the line of the innermost
    /// copy.
    leaves: IndexVec<AddressId, FrameId>,
    /// All frames of each address, innermost first; empty where the leaf is the only one.
    runs: Vec<FrameId>,
    ends: IndexVec<AddressId, u32>,
    /// Whether the address has a symbol, and a line.
    known: IndexVec<AddressId, (bool, bool)>,
}

impl FramesOf {
    pub(crate) fn leaf(&self, address: AddressId) -> FrameId {
        self.leaves.get(address).copied().unwrap_or(FrameId::NONE)
    }

    /// The frames of an address, innermost first.
    pub(crate) fn run(&self, address: AddressId) -> &[FrameId] {
        let Some(end) = self.ends.get(address) else { return &[] };
        let before = address.0.checked_sub(1).and_then(|n| self.ends.get(AddressId(n)));
        let start = before.map_or(0, |e| *e);
        self.runs.get(start as usize..*end as usize).unwrap_or_else(|| {
            internal_error("run of frames");
            &[]
        })
    }

    /// Whether addresses stand for more than one frame, or for another one than their leaf.
    pub(crate) fn expands(&self) -> bool {
        !self.ends.is_empty()
    }

    pub(crate) fn known(&self, address: AddressId) -> (bool, bool) {
        self.known.get(address).copied().unwrap_or_default()
    }
}

/// Everything that was looked up.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// In the order of the collections.
    pub(crate) of: Vec<FramesOf>,
    pub(crate) frames: IndexVec<FrameId, Frame>,
    pub(crate) sources: Sources,
    pub(crate) lacking: Lacking,
}

/// Addresses of programs, libraries and the kernel.
#[derive(Clone, Debug, Default)]
pub struct Lacking {
    /// Distinct addresses.
    pub addresses: u64,
    /// Those without a line, by binary, most first.
    pub lines: Vec<(DsoId, u64)>,
}

/// An address of a binary, as it was sampled, and where it stands: in which collection,
/// in which place.
type Asked = (BinaryAddress, u64, u32, AddressId);

/// Resolved facts of one address.
#[derive(Clone, Copy)]
struct Known {
    symbol: Option<SymId>,
    /// Binary, and index of the address in it.
    source: (u32, u32),
    /// The first address that is the same in all: in which collection, in which place.
    first: (u32, AddressId),
}

const NOWHERE: (u32, AddressId) = (u32::MAX, AddressId(0));
const UNKNOWN: Known = Known { symbol: None, source: (u32::MAX, 0), first: NOWHERE };

/// Looks everything up.
pub(crate) fn resolve(all: &mut [Addresses], symbols: &mut Resolver, detail: Detail) -> Resolved {
    let wants_sources = detail.inlines || detail.lines;
    exact_trampolines(all, symbols);
    let all = &*all;
    let asked = by_binary(all, |_| true);
    let wanted: Vec<(DsoId, Vec<u64>)> =
        asked.iter().map(|(id, places)| (*id, numbers(&distinct(places)))).collect();
    let found = symbols.symbols_of(&wanted);
    let sources = if wants_sources { symbols.sources_of(&wanted) } else { Sources::default() };
    let mut known: Vec<IndexVec<AddressId, Known>> =
        all.iter().map(|a| IndexVec::from(vec![UNKNOWN; a.len()])).collect();
    let mut lacking = Lacking::default();
    for (binary, (((dso, places), (_, addresses)), found)) in
        (0u32..).zip(asked.iter().zip(&wanted).zip(&found))
    {
        let mut place = 0;
        let mut same = (BinaryAddress::new(0), 0, NOWHERE);
        for (addr, ip, n, id) in places {
            if same.2 == NOWHERE || (same.0, same.1) != (*addr, *ip) {
                same = (*addr, *ip, (*n, *id));
            }
            while addresses.get(place).is_some_and(|a| *a < addr.get()) {
                place += 1;
            }
            let Some(of) = known.get_mut(*n as usize) else {
                internal_error("share of addresses");
                continue;
            };
            if let Some(slot) = of.get_mut(*id) {
                let symbol = found.get(place).copied().flatten();
                *slot = Known { symbol, source: (binary, place as u32), first: same.2 };
            }
        }
        let kinds = [DsoKind::File, DsoKind::Kernel, DsoKind::Module];
        if wants_sources && symbols.get(*dso).is_some_and(|d| kinds.contains(&d.kind)) {
            lacking.addresses += addresses.len() as u64;
            let lined = |p: &usize| sources.frames(binary as usize, *p).iter().any(|f| f.line > 0);
            let without = (0..addresses.len()).filter(|p| !lined(p)).count();
            lacking.lines.extend((without > 0).then_some((*dso, without as u64)));
        }
    }
    lacking.lines.sort_by_key(|(dso, n)| (std::cmp::Reverse(*n), *dso));
    let mut maker = Maker {
        detail,
        symbols,
        sources: &sources,
        frames: IndexVec::default(),
        ids: FxHashMap::default(),
        of_symbol: vec![None; symbols.count()],
    };
    let mut of: Vec<FramesOf> = Vec::new();
    for (a, known) in all.iter().zip(&known) {
        let next = maker.frames_of(a, known, &of);
        of.push(next);
    }
    let frames = maker.frames;
    Resolved { of, frames, sources, lacking }
}

/// Makes exact the addresses to which signal handlers returned: they are not one past a call.
fn exact_trampolines(all: &mut [Addresses], symbols: &Resolver) {
    let asked = by_binary(all, |a| a.returns && !a.kernel);
    let found: Vec<Vec<Asked>> = asked
        .par_iter()
        .with_max_len(1)
        .map(|(dso, places)| {
            let addresses = distinct(places);
            let found = returns_of_signals(symbols, *dso, &addresses);
            let exact: Vec<BinaryAddress> =
                addresses.into_iter().zip(found).filter_map(|(a, yes)| yes.then_some(a)).collect();
            places.iter().filter(|p| exact.contains(&p.0)).copied().collect()
        })
        .collect();
    for (_, _, n, id) in found.into_iter().flatten() {
        if let Some(of) = all.get_mut(n as usize) {
            of.set_exact(id);
        }
    }
}

/// The wanted addresses, sorted, of the binaries with the most of them first.
fn by_binary(all: &[Addresses], wanted: impl Fn(&Address) -> bool) -> Vec<(DsoId, Vec<Asked>)> {
    let mut by_dso: FxHashMap<DsoId, Vec<Asked>> = FxHashMap::default();
    for (n, addresses) in all.iter().enumerate() {
        for (id, a) in addresses.iter() {
            if let Some(dso) = a.dso().filter(|_| wanted(a)) {
                let asked = (a.addr, a.ip, n as u32, id);
                by_dso.entry(dso).or_default().push(asked);
            }
        }
    }
    let mut asked: Vec<(DsoId, Vec<Asked>)> = by_dso.into_iter().collect();
    // The longest work first.
    asked.sort_by_key(|(id, places)| (std::cmp::Reverse(places.len()), *id));
    asked.par_iter_mut().with_max_len(1).for_each(|(_, places)| places.par_sort_unstable());
    asked
}

/// Addresses as kymo-symbols takes them.
fn numbers(addresses: &[BinaryAddress]) -> Vec<u64> {
    addresses.iter().map(|a| a.get()).collect()
}

fn distinct(places: &[Asked]) -> Vec<BinaryAddress> {
    let mut addresses: Vec<BinaryAddress> = places.iter().map(|p| p.0).collect();
    addresses.dedup();
    addresses
}

/// Key of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    dso: Option<DsoId>,
    symbol: Option<SymId>,
    addr: u64,
    ip: u64,
    inlined: Option<TextId>,
    line: Option<SourceLine>,
}

struct Maker<'a> {
    detail: Detail,
    symbols: &'a Resolver,
    sources: &'a Sources,
    frames: IndexVec<FrameId, Frame>,
    ids: FxHashMap<Key, FrameId>,
    /// Frame of each symbol that determines its frame alone.
    of_symbol: Vec<Option<FrameId>>,
}

impl Maker<'_> {
    /// The frames of a collection; `done` are those of the collections before.
    fn frames_of(
        &mut self,
        all: &Addresses,
        known: &IndexVec<AddressId, Known>,
        done: &[FramesOf],
    ) -> FramesOf {
        let mut of = FramesOf::default();
        let Detail { inlines, lines, .. } = self.detail;
        let expand = inlines || lines;
        for ((_, address), known) in all.iter().zip(known) {
            let (binary, place) = known.source;
            let source = self.sources.frames(binary as usize, place as usize);
            let line = |f: Option<&SourceFrame>| {
                f.filter(|f| lines && f.line > 0).map(|f| SourceLine { file: f.file, line: f.line })
            };
            let innermost = line(source.first());
            let has_line = source.first().is_some_and(|f| f.line > 0);
            let here = (done.len() as u32, of.leaves.next_index());
            let leaf = match known.first {
                // Equal addresses have the same frame. Most of them are the first there, and in a
                // stripped library there are nearly as many frames as addresses.
                first if known.symbol.is_some() || innermost.is_some() || first == NOWHERE => {
                    self.frame(address, known.symbol, None, innermost)
                }
                first if first == here => push(&mut self.frames, address, None, None, None),
                (n, id) => done.get(n as usize).unwrap_or(&of).leaf(id),
            };
            of.leaves.push(leaf);
            of.known.push((known.symbol.is_some(), has_line));
            if !expand {
                continue;
            }
            match (source.split_last(), known.symbol) {
                (Some((outermost, inner)), Some(symbol)) => {
                    let outer = line(Some(outermost));
                    let inner = if inlines { inner } else { &[] };
                    for f in inner {
                        let name = self.inlined(f, symbol);
                        let run = self.frame(address, known.symbol, name, line(Some(f)));
                        of.runs.push(run);
                    }
                    let outer = if inlines { outer } else { innermost };
                    let run = self.frame(address, known.symbol, None, outer);
                    of.runs.push(run);
                }
                _ => of.runs.push(leaf),
            }
            of.ends.push(of.runs.len() as u32);
        }
        of
    }

    /// The name of an inlined copy; a function inlined into itself is no other one.
    fn inlined(&self, frame: &SourceFrame, symbol: SymId) -> Option<TextId> {
        let name = self.sources.stored(frame.function);
        // Names of the kernel are readable as they are stored.
        let own = match self.symbols.stored(symbol) {
            [] => self.symbols.name(symbol).as_bytes(),
            stored => stored,
        };
        (!name.is_empty() && own != name.as_bytes()).then_some(frame.function)
    }

    fn frame(
        &mut self,
        a: &Address,
        symbol: Option<SymId>,
        inlined: Option<TextId>,
        line: Option<SourceLine>,
    ) -> FrameId {
        let by_address = self.detail.by_address || (self.detail.lines && line.is_none());
        if let Some(s) = symbol
            && inlined.is_none()
            && line.is_none()
            && !by_address
        {
            if let Some(Some(known)) = self.of_symbol.get(s.0 as usize) {
                return *known;
            }
            let made = push(&mut self.frames, a, symbol, None, None);
            if let Some(slot) = self.of_symbol.get_mut(s.0 as usize) {
                *slot = Some(made);
            }
            return made;
        }
        let key = Key {
            dso: a.dso(),
            symbol,
            addr: if by_address || symbol.is_none() { a.addr.get() } else { 0 },
            ip: if symbol.is_none() { a.ip } else { 0 },
            inlined,
            line,
        };
        let frames = &mut self.frames;
        *self.ids.entry(key).or_insert_with(|| push(frames, a, symbol, inlined, line))
    }
}

fn push(
    frames: &mut IndexVec<FrameId, Frame>,
    a: &Address,
    symbol: Option<SymId>,
    inlined: Option<TextId>,
    line: Option<SourceLine>,
) -> FrameId {
    let (dso, addr, ip, kernel) = (a.dso(), a.addr.get(), a.ip, a.kernel);
    frames.push(Frame { dso, symbol, addr, ip, kernel, inlined, line })
}
