//! The files behind a binary that is probed or annotated: the binary itself, its
//! separate debug file, the files that its debugging information is spread over, and
//! its sources.

mod binary;
mod companions;
mod process_root;
mod search_path;
mod source_directories;

pub use binary::{BinaryError, BinaryFiles, BinaryKind};
pub use companions::DebugCompanions;
pub use process_root::path_in_process;
pub use search_path::{find_on_search_path, is_elf, path_as_typed};
pub use source_directories::SourceDirectories;
