//! View models, their text renderers, and other programs' formats. Nothing here
//! knows where data came from.
#![forbid(unsafe_code)]

pub mod arrows;
mod call_tree;
pub mod export;
pub mod ledger;
pub mod stacks;
mod table;

pub use call_tree::{GraphStyle, TreeNode, percent, write_flat, write_folded, write_graph};
pub use ledger::Ledger;
pub use table::{Column, Table};
