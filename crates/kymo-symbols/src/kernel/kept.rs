//! The running kernel's symbols out of the user's cache. Printing all of them takes
//! the kernel longer than many a report; its own stay the same until the next boot.
//! One file for each build of a kernel; a boot renews it.

use kymo_kernel::kallsyms::{Kallsyms, NameChoice, VERSION};

use crate::cache::{CacheError, CacheKind, SymbolCache};
use crate::files::{KERNEL, running_build_id};

const KIND: CacheKind = CacheKind { name: "kallsyms", version: VERSION };

/// The running kernel's symbols: the stored ones, or all, which are then stored. An error of the
/// cache costs time only, and is returned.
pub(super) fn running(choice: NameChoice) -> (Kallsyms, Option<CacheError>) {
    let Some((cache, id)) = SymbolCache::of_user().zip(running_build_id()) else {
        return (Kallsyms::live(choice), None);
    };
    let (kept, error) = match cache.load(KIND, id) {
        Ok(kept) => (kept, None),
        Err(error) => (None, Some(error)),
    };
    let kept = kept.and_then(|bytes| Kallsyms::kept(Box::new(bytes), choice));
    if let Some(table) = kept {
        return (table, None);
    }
    let table = Kallsyms::live(choice);
    let stored = table.keep().map_or(Ok(()), |bytes| cache.store(KIND, id, KERNEL, &bytes));
    (table, error.or(stored.err()))
}

/// Symbols of the running kernel, without the error of the cache.
pub fn running_symbols(choice: NameChoice) -> Kallsyms {
    running(choice).0
}
