//! Addresses of code, by number, with the function each is in: of code that allocates, of
//! functions of work items.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

/// Most addresses that are distinguished; a kernel has some ten thousand places that allocate.
const MOST_SITES: usize = 1 << 17;

/// Number of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub u32);

/// An address of code.
#[derive(Clone, Debug, Default)]
pub struct CallSite {
    /// The address; 0 stands for all beyond the limit.
    pub address: u64,
    /// The function it is in, and how far from its begin.
    pub symbol: Option<(String, u64)>,
}

/// Addresses that were met.
#[derive(Debug, Default)]
pub struct CallSites {
    sites: Vec<CallSite>,
    ids: FxHashMap<u64, SiteId>,
    /// Events at addresses that there was no room for.
    pub crowded: u64,
}

impl CallSites {
    /// The number of an address, which is named when it is met first.
    #[inline]
    pub fn find(&mut self, address: u64, event: &RecordedEvent<'_>) -> SiteId {
        match self.ids.get(&address) {
            Some(id) => *id,
            None => self.insert(address, event),
        }
    }

    #[cold]
    fn insert(&mut self, address: u64, event: &RecordedEvent<'_>) -> SiteId {
        if self.sites.is_empty() {
            self.sites.push(CallSite::default());
        }
        if self.sites.len() >= MOST_SITES {
            self.crowded += 1;
            return SiteId(0);
        }
        let id = SiteId(self.sites.len() as u32);
        self.sites.push(CallSite { address, symbol: event.kernel_symbol(address) });
        self.ids.insert(address, id);
        id
    }

    /// The number of an address that was met.
    pub fn known(&self, address: u64) -> Option<SiteId> {
        self.ids.get(&address).copied()
    }

    /// An address by its number.
    pub fn get(&self, id: SiteId) -> Option<&CallSite> {
        self.sites.get(id.0 as usize)
    }

    /// Name of the function that an address is in.
    pub fn function(&self, id: SiteId) -> Option<&str> {
        self.get(id)?.symbol.as_ref().map(|(name, _)| name.as_str())
    }
}
