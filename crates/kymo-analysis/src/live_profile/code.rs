//! Code of a function that samples are in: listed by the thread of names, costs counted anew at
//! each request.

use std::collections::BTreeMap;

use kymo_debuginfo::disasm::Syntax;
use kymo_symbols::{DsoId, Resolver, SymId};

use super::names::FunctionId;
use super::rows::LiveQuery;
use super::{AddressId, LiveProfile};
use crate::code_listing::{CodeListing, list_function};
use crate::function_cost::{CostSum, FunctionCost};

/// Code of a function.
#[derive(Debug)]
pub struct LiveCode {
    /// The function.
    pub function: FunctionId,
    /// Its instructions; their costs are those of when it was asked for.
    pub listing: CodeListing,
    /// From an address as it is recorded to that of the listing.
    shift: u64,
}

impl LiveCode {
    /// Lists a function that has a name.
    pub(super) fn list(
        symbols: &Resolver,
        function: FunctionId,
        (dso, symbol): (DsoId, SymId),
        places: BTreeMap<u64, CostSum>,
    ) -> Result<LiveCode, String> {
        let sums = vec![CostSum::default()];
        let recorded: Vec<u64> = places.keys().copied().collect();
        let places = places.into_iter().map(|(at, sum)| (at, vec![sum])).collect();
        let cost = FunctionCost { dso, symbol, sums, places };
        let listing = list_function(symbols, &cost, Syntax::Att, false)?;
        // A segment lies elsewhere in memory than in the file, but all of it alike: what fits
        // most of the samples is the distance.
        let row = |addr: u64| listing.rows.binary_search_by_key(&addr, |r| r.line.addr).is_ok();
        let first = listing.rows.iter().find(|r| r.cost.is_some()).map(|r| r.line.addr);
        let shifts = recorded.iter().map(|at| first.unwrap_or(*at).wrapping_sub(*at));
        let fits = |shift: &u64| recorded.iter().filter(|at| row(at.wrapping_add(*shift))).count();
        let shift = shifts.take(64).max_by_key(fits).unwrap_or(0);
        Ok(LiveCode { function, listing, shift })
    }

    /// Address of the listing for one that was recorded.
    pub fn address(&self, recorded: u64) -> u64 {
        recorded.wrapping_add(self.shift)
    }
}

impl LiveProfile {
    /// Returns the cost of the selected samples in a function, by recorded address.
    pub fn places_of(&self, query: &LiveQuery, function: FunctionId) -> BTreeMap<u64, CostSum> {
        let mut places: BTreeMap<u64, CostSum> = BTreeMap::new();
        self.each_stack(query, &mut |_, slot, weight| {
            if self.names.of(slot.key.leaf) == function
                && let Some(address) = self.share.addresses.get(AddressId(slot.key.leaf))
            {
                let sum = CostSum { samples: weight.samples, period: weight.period };
                places.entry(address.addr.get()).or_default().add(sum);
            }
        });
        places
    }

    /// Has the code of a function listed.
    pub fn want_code(&mut self, query: &LiveQuery, function: FunctionId) {
        let places = self.places_of(query, function);
        self.names.want_code(function, places);
    }

    /// The code that was asked for last, once it is there; the error says why it cannot be had.
    pub fn take_code(&mut self) -> Option<(FunctionId, Result<LiveCode, String>)> {
        self.names.take_code()
    }
}
