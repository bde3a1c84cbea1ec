//! The distinct addresses of a recording. Each is put into its binary's terms
//! when it is first met, and gets a number, so that chains are kept as numbers
//! and symbols are looked up once, all of a binary together.

use kymo_symbols::{DsoId, Resolver, SymId};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::profile::{Frame, FrameId};
use crate::state::Maps;

/// Number of a distinct address.
pub(crate) type AddressId = u32;

#[derive(Clone, Copy, Debug)]
struct Address {
    /// In the binary's terms.
    addr: u64,
    /// As sampled: what is printed of an address without a symbol.
    ip: u64,
    /// [`NO_DSO`] where nothing is mapped.
    dso: u32,
    kernel: bool,
}

const NO_DSO: u32 = u32::MAX;

impl Address {
    fn dso(&self) -> Option<DsoId> {
        (self.dso != NO_DSO).then_some(DsoId(self.dso))
    }
}

/// An address in a state of an address space. A slot is a quarter of a cache
/// line: finding an address that is not in the cache costs one access to memory.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ip: u64,
    space: u32,
    /// Number of the address, plus one; 0 is an empty slot.
    id: u32,
}

const EMPTY: Slot = Slot { ip: 0, space: 0, id: 0 };
/// The space of all addresses that are mapped nowhere.
const NOWHERE: u32 = u32::MAX;

/// The collection.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: Vec<Address>,
    /// Open addressing, at most three quarters full; a power of two.
    slots: Vec<Slot>,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses { all: Vec::new(), slots: vec![EMPTY; 1 << 12] }
    }
}

impl Addresses {
    /// The number of an address in an address space.
    #[inline]
    pub(crate) fn id(&mut self, maps: Option<&Maps>, ip: u64, kernel: bool) -> AddressId {
        let line = maps.and_then(|m| u32::try_from(m.line << 1 | u64::from(kernel)).ok());
        let space = line.unwrap_or(NOWHERE);
        match self.slots.get(self.place(space, ip)) {
            Some(slot) if slot.id > 0 => slot.id - 1,
            _ => self.add(maps, space, ip, kernel),
        }
    }

    /// Where an address is, or the empty slot where it belongs.
    #[inline]
    fn place(&self, space: u32, ip: u64) -> usize {
        let mask = self.slots.len() - 1;
        let hash = (ip ^ u64::from(space).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> 32) as usize & mask;
        while let Some(slot) = self.slots.get(at) {
            if slot.id == 0 || (slot.ip == ip && slot.space == space) {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn add(&mut self, maps: Option<&Maps>, space: u32, ip: u64, kernel: bool) -> AddressId {
        let (space, address) = match maps.and_then(|m| m.find(ip)) {
            Some(m) => (space, Address { dso: m.dso.0, addr: m.to_dso(ip), ip, kernel }),
            // What is not mapped now may be later.
            None => (NOWHERE, Address { dso: NO_DSO, addr: ip, ip, kernel: false }),
        };
        if self.slots.len() * 3 < 4 * (self.all.len() + 1) {
            self.grow();
        }
        // A space without a number of its own: not to be found again.
        let at = match space == NOWHERE && address.dso != NO_DSO {
            true => None,
            false => Some(self.place(space, ip)),
        };
        let slot = at.and_then(|at| self.slots.get_mut(at));
        if let Some(known) = slot.as_ref().filter(|s| s.id > 0) {
            return known.id - 1;
        }
        self.all.push(address);
        let id = self.all.len() as u32;
        if let Some(slot) = slot {
            *slot = Slot { ip, space, id };
        }
        id - 1
    }

    fn grow(&mut self) {
        let larger = vec![EMPTY; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.id > 0 {
                let at = self.place(slot.space, slot.ip);
                if let Some(empty) = self.slots.get_mut(at) {
                    *empty = slot;
                }
            }
        }
    }

    /// Looks the symbols of several collections up. The frame of an address
    /// stands in its place of its collection's list. A symbol is one frame, or
    /// one for each of its addresses.
    pub(crate) fn resolve(
        all: &[Addresses],
        symbols: &mut Resolver,
        by_address: bool,
    ) -> (Vec<Vec<FrameId>>, Vec<Frame>) {
        let symbol_of = symbols_of(all, symbols);
        let mut frames: Vec<Frame> = Vec::new();
        let mut of_symbol: Vec<Option<FrameId>> = vec![None; symbols.count()];
        let mut push = |a: &Address, symbol| {
            let dso = a.dso();
            frames.push(Frame { dso, symbol, addr: a.addr, ip: a.ip, kernel: a.kernel });
            FrameId(frames.len() as u32 - 1)
        };
        let mut nowhere: FxHashMap<(u32, u64, u64), FrameId> = FxHashMap::default();
        let mut of_address = Vec::with_capacity(all.len());
        for (addresses, symbols) in all.iter().zip(&symbol_of) {
            let frame_of = |(a, symbol): (&Address, &Option<SymId>)| match symbol {
                Some(_) if by_address => {
                    *nowhere.entry((a.dso, a.addr, 0)).or_insert_with(|| push(a, *symbol))
                }
                Some(s) => match of_symbol.get_mut(s.0 as usize) {
                    Some(known) => *known.get_or_insert_with(|| push(a, Some(*s))),
                    None => push(a, Some(*s)),
                },
                None => *nowhere.entry((a.dso, a.addr, a.ip)).or_insert_with(|| push(a, None)),
            };
            of_address.push(addresses.all.iter().zip(symbols).map(frame_of).collect());
        }
        (of_address, frames)
    }
}

/// An address of a binary and where it stands: in which collection, in which place.
type Asked = (u64, u32, AddressId);

fn symbols_of(all: &[Addresses], symbols: &mut Resolver) -> Vec<Vec<Option<SymId>>> {
    let mut by_dso: FxHashMap<DsoId, Vec<Asked>> = FxHashMap::default();
    for (n, addresses) in all.iter().enumerate() {
        for (id, a) in addresses.all.iter().enumerate() {
            if let Some(dso) = a.dso() {
                by_dso.entry(dso).or_default().push((a.addr, n as u32, id as AddressId));
            }
        }
    }
    let mut asked: Vec<(DsoId, Vec<Asked>)> = by_dso.into_iter().collect();
    // The longest work first.
    asked.sort_by_key(|(id, places)| (std::cmp::Reverse(places.len()), *id));
    let distinct = |(id, places): &mut (DsoId, Vec<Asked>)| {
        places.sort_unstable_by_key(|p| p.0);
        let mut addresses: Vec<u64> = places.iter().map(|p| p.0).collect();
        addresses.dedup();
        (*id, addresses)
    };
    let wanted: Vec<(DsoId, Vec<u64>)> =
        asked.par_iter_mut().with_max_len(1).map(distinct).collect();
    let found = symbols.symbols_of(&wanted);
    let mut of: Vec<Vec<Option<SymId>>> = all.iter().map(|a| vec![None; a.all.len()]).collect();
    for (((_, places), (_, addresses)), found) in asked.iter().zip(&wanted).zip(&found) {
        let mut answers = addresses.iter().zip(found).peekable();
        for (addr, n, id) in places {
            while answers.next_if(|(a, _)| *a < addr).is_some() {}
            let symbol = answers.peek().and_then(|(_, symbol)| **symbol);
            if let Some(slot) = of.get_mut(*n as usize).and_then(|of| of.get_mut(*id as usize)) {
                *slot = symbol;
            }
        }
    }
    of
}
