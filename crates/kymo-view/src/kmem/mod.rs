//! Output of `kymo kmem`: text laid out as perf's, and JSON (docs/json.md).

mod page_processes;
mod pages;
mod slab;
mod sort_keys;

pub use page_processes::{PageProcessView, VmstatDelta};
pub use pages::PageView;
pub use slab::SlabView;
pub use sort_keys::KmemKey;

use kymo_analysis::call_sites::{CallSites, SiteId};

/// An address of code as perf shows it: `function+1f`, or the address.
fn site_text(sites: &CallSites, id: SiteId, raw: bool) -> String {
    match sites.get(id) {
        Some(site) if site.address > 0 => match &site.symbol {
            Some((name, offset)) if !raw => format!("{name}+{offset:x}"),
            _ => format!("{:#x}", site.address),
        },
        _ => "[unknown]".to_owned(),
    }
}

/// Rule of a table, as wide as perf's.
fn rule(width: usize) -> String {
    "-".repeat(width)
}
