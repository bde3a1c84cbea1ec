//! Text of `kymo kmem`, in kymo's layout and in perf's.

mod page_processes;
mod pages;
mod slab;

pub use page_processes::PageProcessView;
pub use pages::PageView;
pub use slab::SlabView;

use kymo_table::TableRow;

/// The caller of a row as perf shows it: `function+1f`, or the address.
fn site_text(row: TableRow<'_>, raw: bool) -> String {
    if row.has("function") && !raw {
        format!("{}+{:x}", row.text("function"), row.number("offset"))
    } else if row.has("callsite") {
        row.text("callsite")
    } else {
        "[unknown]".to_owned()
    }
}

/// Rule of a table, as wide as perf's.
fn rule(width: usize) -> String {
    "-".repeat(width)
}
