//! Sources of the kernel and of its modules, whose addresses are those of the
//! recording: what is found in a file is kept by the file's own addresses, since
//! the next boot has others.

use std::path::Path;

use super::{From, answer, bundled, in_order, stored};
use crate::cache::SymbolCache;
use crate::dso::DsoId;
use crate::files::{Binary, FilePart, KERNEL};
use crate::resolver::Resolver;
use kymo_debuginfo::dwarf::inlines::Answers;

/// The source of running addresses, which ascend, of the kernel or a module.
pub(super) fn of_kernel(
    resolver: &Resolver,
    id: DsoId,
    addresses: &[u64],
    cache: Option<&SymbolCache>,
) -> Answers {
    let files = resolver.files();
    // A bundle is of one recording, so it has the recording's addresses.
    let kernel =
        Binary { path: Path::new(KERNEL), build_id: resolver.recorded_kernel().0, pid: None };
    if let Some(bundled) = bundled(files, &kernel) {
        return answer(&bundled, addresses);
    }
    let Some(dso) = resolver.get(id) else { return Answers::default() };
    let Some(file) = resolver.kernel_file(id, FilePart::Dwarf) else { return Answers::default() };
    let from = From {
        files,
        name: Path::new(&*dso.long_name),
        id: file.build_id,
        dwarf: &|| Some(file.path.clone()),
    };
    in_order(addresses, |a| file.stated(a), |stated| from.of_addresses(stated, cache))
}

impl Resolver {
    /// Source positions of the kernel and its modules for a bundle, in the format of the cache, but
    /// by the recording's addresses.
    pub(crate) fn lines_of_kernel(&self, asked: &[(DsoId, Vec<u64>)]) -> Option<Vec<u8>> {
        let cache = SymbolCache::of_user();
        let mut all: Option<Vec<u8>> = None;
        for (id, addresses) in asked {
            let mut addresses = addresses.clone();
            addresses.sort_unstable();
            addresses.dedup();
            let known = all.as_deref().and_then(stored::Stored::of);
            addresses.retain(|a| known.as_ref().is_none_or(|k| k.find(*a).is_none()));
            let found = of_kernel(self, *id, &addresses, cache.as_ref());
            if (0..found.len()).any(|n| !found.frames(n).is_empty()) {
                all = Some(stored::merge(known.as_ref(), &addresses, &found));
            }
        }
        all
    }
}
