//! Context for reading events of a trace.dat: its formats, parsed on first use, and the names of
//! its tasks.

mod event_formats;
mod function_graph;
mod process_maps;
mod task_groups;
mod task_names;

pub use event_formats::{FormatTable, KnownEvent, StackFormat};
pub use function_graph::{GraphEntry, GraphEvent, write_duration};
pub(crate) use process_maps::ProcessMaps;
pub use task_groups::{TaskGroupEvent, TaskGroups};
pub use task_names::{NameChange, NewName, TaskName, TaskNames, saved_lines};
