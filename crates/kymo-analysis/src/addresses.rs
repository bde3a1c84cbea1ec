//! The distinct addresses of a recording. Each is put into its binary's terms
//! when it is first met, and gets a number, so that chains are kept as numbers
//! and everything about an address is looked up once (`frames`).

use kymo_model::Misc;
use kymo_symbols::DsoId;

use kymo_events::chain::Place;
use kymo_events::state::Maps;

/// Number of a distinct address.
pub(crate) type AddressId = u32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// In the binary's terms, of the instruction that is executed.
    pub(crate) addr: u64,
    /// As sampled: what is printed of an address without a symbol.
    pub(crate) ip: u64,
    /// [`NO_DSO`] where nothing is mapped.
    dso: u32,
    pub(crate) kernel: bool,
    /// The address is one behind, where a call returns to.
    pub(crate) returns: bool,
}

const NO_DSO: u32 = u32::MAX;

impl Address {
    pub(crate) fn dso(&self) -> Option<DsoId> {
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
    pub(crate) fn id(&mut self, maps: Option<&Maps>, at: Place) -> AddressId {
        let kernel = at.mode == Misc::KERNEL;
        let kind = u64::from(kernel) << 1 | u64::from(at.returns);
        let line = maps.and_then(|m| u32::try_from(m.line << 2 | kind).ok());
        let space = line.unwrap_or(NOWHERE);
        match self.slots.get(self.place(space, at.ip)) {
            Some(slot) if slot.id > 0 => slot.id - 1,
            _ => self.add(maps, space, at),
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
    fn add(&mut self, maps: Option<&Maps>, space: u32, at: Place) -> AddressId {
        let Place { ip, returns, .. } = at;
        let (code, kernel) = (at.code(), at.mode == Misc::KERNEL);
        let (space, address) = match maps.and_then(|m| m.find(code)) {
            Some(m) => (space, Address { dso: m.dso.0, addr: m.to_dso(code), ip, kernel, returns }),
            // What is not mapped now may be later.
            None => {
                let (dso, kernel, returns) = (NO_DSO, false, false);
                (NOWHERE, Address { dso, addr: ip, ip, kernel, returns })
            }
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

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes note that an address is not one behind a call after all.
    pub(crate) fn set_exact(&mut self, id: AddressId) {
        if let Some(a) = self.all.get_mut(id as usize).filter(|a| a.returns) {
            a.returns = false;
            a.addr += 1;
        }
    }

    /// The addresses, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Address> {
        self.all.iter()
    }
}
