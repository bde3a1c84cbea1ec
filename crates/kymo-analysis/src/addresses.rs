//! The distinct addresses of a recording. Each is put into its binary's terms
//! when it is first met, and gets a number, so that chains are kept as numbers
//! and symbols are looked up once, all of a binary together.

use kymo_symbols::{DsoId, Resolver, SymId};
use rustc_hash::FxHashMap;

use crate::profile::{Frame, FrameId};
use crate::state::Maps;

/// Number of a distinct address.
pub(crate) type AddressId = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Address {
    dso: Option<DsoId>,
    /// In the binary's terms.
    addr: u64,
    /// As sampled: what is printed of an address without a symbol.
    ip: u64,
    kernel: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    space: u64,
    ip: u64,
    id: AddressId,
}

/// Most samples are taken at places seen a moment ago.
const SLOTS: usize = 1 << 14;
const NOWHERE: u64 = u64::MAX;

/// The collection.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: Vec<Address>,
    ids: FxHashMap<Address, AddressId>,
    recent: Vec<Slot>,
}

impl Default for Addresses {
    fn default() -> Self {
        let recent = vec![Slot { space: NOWHERE, ip: 0, id: 0 }; SLOTS];
        Addresses { all: Vec::new(), ids: FxHashMap::default(), recent }
    }
}

impl Addresses {
    /// The number of an address in an address space.
    #[inline]
    pub(crate) fn id(&mut self, maps: Option<&Maps>, ip: u64, kernel: bool) -> AddressId {
        let space = maps.map_or(NOWHERE - 1, |m| m.line << 1 | u64::from(kernel));
        let hash = (ip ^ space.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (hash >> 40) as usize % SLOTS;
        if let Some(slot) = self.recent.get(at).filter(|s| s.ip == ip && s.space == space) {
            return slot.id;
        }
        let (id, mapped) = self.find(maps, ip, kernel);
        // What is not mapped now may be later.
        if let Some(slot) = self.recent.get_mut(at).filter(|_| mapped || maps.is_none()) {
            *slot = Slot { space, ip, id };
        }
        id
    }

    fn find(&mut self, maps: Option<&Maps>, ip: u64, kernel: bool) -> (AddressId, bool) {
        let address = match maps.and_then(|m| m.find(ip)) {
            Some(m) => Address { dso: Some(m.dso), addr: m.to_dso(ip), ip, kernel },
            None => Address { dso: None, addr: ip, ip, kernel: false },
        };
        let all = &mut self.all;
        let id = *self.ids.entry(address).or_insert_with(|| {
            all.push(address);
            all.len() as u32 - 1
        });
        (id, address.dso.is_some())
    }

    /// Looks all symbols up. The frame of an address stands in its place of
    /// the first list.
    pub(crate) fn resolve(self, symbols: &mut Resolver) -> (Vec<FrameId>, Vec<Frame>) {
        let mut by_dso: FxHashMap<DsoId, Vec<u64>> = FxHashMap::default();
        for a in &self.all {
            if let Some(dso) = a.dso {
                by_dso.entry(dso).or_default().push(a.addr);
            }
        }
        let mut wanted: Vec<(DsoId, Vec<u64>)> = by_dso.into_iter().collect();
        for (_, addresses) in &mut wanted {
            addresses.sort_unstable();
            addresses.dedup();
        }
        // The longest work first.
        wanted.sort_by_key(|(id, addresses)| (std::cmp::Reverse(addresses.len()), *id));
        let found = symbols.symbols_of(&wanted);
        let places: FxHashMap<DsoId, usize> =
            wanted.iter().enumerate().map(|(i, (id, _))| (*id, i)).collect();
        let symbol = |a: &Address| -> Option<SymId> {
            let i = *places.get(&a.dso?)?;
            let at = wanted.get(i)?.1.binary_search(&a.addr).ok()?;
            *found.get(i)?.get(at)?
        };
        let mut frames: Vec<Frame> = Vec::new();
        let mut of_symbol: FxHashMap<SymId, FrameId> = FxHashMap::default();
        let mut push = |a: &Address, symbol| {
            frames.push(Frame { dso: a.dso, symbol, addr: a.addr, ip: a.ip, kernel: a.kernel });
            FrameId(frames.len() as u32 - 1)
        };
        let frame_of = |a: &Address| match symbol(a) {
            Some(s) => *of_symbol.entry(s).or_insert_with(|| push(a, Some(s))),
            None => push(a, None),
        };
        let of_address = self.all.iter().map(frame_of).collect();
        (of_address, frames)
    }
}
