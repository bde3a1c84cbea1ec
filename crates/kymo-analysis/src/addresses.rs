//! The distinct addresses of a recording. Each is put into its binary's terms when it is first met,
//! and gets a number, so that chains are kept as numbers and everything about an address is
//! resolved once (`frames`).

use kymo_events::BinaryAddress;
use kymo_events::chain::ChainAddress;
use kymo_events::state::Maps;
use kymo_model::{IndexVec, Misc, OpenTable, TableSlot, hash_address, impl_vec_index};
use kymo_symbols::DsoId;

/// Number of a distinct address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AddressId(pub(crate) u32);
impl_vec_index!(AddressId, "address");

#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// Address of the binary, of the instruction that is executed.
    pub(crate) addr: BinaryAddress,
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
struct AddressSlot {
    ip: u64,
    space: u32,
    /// Number of the address, plus one; 0 is an empty slot.
    id: u32,
}

impl TableSlot for AddressSlot {
    const EMPTY: AddressSlot = AddressSlot { ip: 0, space: 0, id: 0 };

    #[inline]
    fn is_empty(&self) -> bool {
        self.id == 0
    }

    #[inline]
    fn hash(&self) -> u32 {
        hash_address(self.ip, self.space)
    }
}

/// The space of all addresses that are mapped nowhere.
const NOWHERE: u32 = u32::MAX;

/// The collection.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: IndexVec<AddressId, Address>,
    table: OpenTable<AddressSlot>,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses { all: IndexVec::default(), table: OpenTable::with_slots(12) }
    }
}

impl Addresses {
    /// The number of an address in an address space.
    #[inline]
    pub(crate) fn id(&mut self, maps: Option<&Maps>, at: ChainAddress) -> AddressId {
        let kernel = at.mode == Misc::KERNEL;
        let kind = u64::from(kernel) << 1 | u64::from(at.returns);
        let line = maps.and_then(|m| u32::try_from(m.line << 2 | kind).ok());
        let space = line.unwrap_or(NOWHERE);
        match self.find(space, at.ip) {
            Some(known) => known,
            None => self.add(maps, space, at),
        }
    }

    #[inline]
    fn find(&self, space: u32, ip: u64) -> Option<AddressId> {
        let same = |slot: &AddressSlot| slot.ip == ip && slot.space == space;
        self.table.find(hash_address(ip, space), same).map(|slot| AddressId(slot.id - 1))
    }

    #[cold]
    fn add(&mut self, maps: Option<&Maps>, space: u32, at: ChainAddress) -> AddressId {
        let ChainAddress { ip, returns, .. } = at;
        let (code, kernel) = (at.code(), at.mode == Misc::KERNEL);
        let (space, address) = match maps.and_then(|m| m.find(code)) {
            Some(m) => (space, Address { dso: m.dso.0, addr: m.to_dso(code), ip, kernel, returns }),
            // What is not mapped now may be later.
            None => {
                let (dso, kernel, returns) = (NO_DSO, false, false);
                (NOWHERE, Address { dso, addr: BinaryAddress::new(ip), ip, kernel, returns })
            }
        };
        // A space without a number of its own: not to be found again.
        if space == NOWHERE && address.dso != NO_DSO {
            return self.all.push(address);
        }
        if let Some(known) = self.find(space, ip) {
            return known;
        }
        let id = self.all.push(address);
        self.table.insert(AddressSlot { ip, space, id: id.0 + 1 });
        id
    }

    /// Takes over an address of another collection. It is not found by where it is: the same
    /// place gets another number when it is met again.
    pub(crate) fn adopt(&mut self, from: &Addresses, id: AddressId) -> AddressId {
        match from.all.get(id) {
            Some(address) => self.all.push(*address),
            None => id,
        }
    }

    /// An address by its number.
    pub(crate) fn get(&self, id: AddressId) -> Option<&Address> {
        self.all.get(id)
    }

    /// The binary of an address.
    pub(crate) fn dso(&self, id: u32) -> Option<DsoId> {
        self.all.get(AddressId(id)).and_then(Address::dso)
    }

    /// Number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes note that an address is not one behind a call after all.
    pub(crate) fn set_exact(&mut self, id: AddressId) {
        if let Some(a) = self.all.get_mut(id).filter(|a| a.returns) {
            a.returns = false;
            a.addr = a.addr.return_address();
        }
    }

    /// The addresses, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (AddressId, &Address)> {
        self.all.iter_enumerated()
    }
}
