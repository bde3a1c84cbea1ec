//! The files behind a binary that is probed or annotated: the binary itself, its
//! separate debug file, the files that its debugging information is spread over, and
//! its sources.

mod binary;
mod companions;
mod process_root;
mod source_directories;

pub use binary::{BinaryError, BinaryFiles, BinaryKind};
pub use companions::DebugCompanions;
pub use process_root::path_in_process;
pub use source_directories::SourceDirectories;
