//! View models, their text renderers, and other programs' formats: tables, trees, the
//! ledger and the wording of its notes, reports of profiles, headers of recordings.
#![forbid(unsafe_code)]

pub mod annotate;
pub mod arrows;
pub mod attribute_text;
pub mod block_io;
pub mod boot;
pub mod bundle;
mod call_tree;
pub mod class_list;
mod containers;
pub mod counts;
pub mod critical_path;
pub mod diff;
pub mod event_counts;
mod event_table;
pub mod export;
mod histogram;
pub mod kmem;
pub mod kwork;
pub mod ledger;
pub mod locks;
pub mod offcpu;
pub mod profile_page;
pub mod record_overview;
pub mod recording_header;
pub mod recording_stacks;
pub mod report;
pub mod sched;
mod screen_lines;
pub mod stacks;
pub mod syscalls;
mod table;
mod table_style;
pub mod timechart;
pub mod top;
pub mod trace_page;
pub mod trust;

pub use kymo_analysis::percent;
pub use kymo_table::units;

pub use call_tree::{GraphStyle, TreeNode, write_flat, write_folded, write_graph};
pub use containers::container_of;
pub use event_table::{EventRow, EventTableView, StackDrawing};
pub use ledger::Ledger;
pub use screen_lines::fit_line;
pub use table::{PerfColumn, PerfTable};
pub use table_style::TableStyle;
