//! Symbol resolution: finds binaries, separate debug files, kallsyms, the vdso and perf-PID.map
//! files, and resolves addresses from sorted tables; the cache on disk. ELF is parsed in
//! `kymo-debuginfo`; `kymo-analysis` finds the mapping of an address.
#![forbid(unsafe_code)]

pub mod build_id_archive;
pub mod build_id_cache;
mod build_id_directory;
pub mod bundle;
pub mod bundle_writer;
pub mod cache;
mod code;
mod compressed_modules;
mod debug_directories;
pub mod debug_files;
mod dso;
mod files;
pub mod jit_images;
mod jitdump;
mod kernel;
mod kernel_file;
mod kernel_relocation;
mod options;
mod pages;
mod perf_map;
mod problem;
mod read_symbols;
mod recent_tables;
mod resolver;
mod sources;
mod symbol_cache;
mod trampolines;
pub mod unwind;
mod variables;

pub use build_id_directory::BuildIdDirectory;
pub use code::{CodeFile, JitCode, NoCode};
pub use debug_directories::choose_debug_directories;
pub use dso::{DsoId, DsoKind, SymId};
pub use files::{Binary, FilePart, Finder};
pub use kernel::{KernelTable, running_symbols};
pub use kernel_file::KernelFile;
pub use kymo_debuginfo::dwarf::inlines::{SourceFrame, TextId};
pub use kymo_debuginfod as debuginfod;
pub use kymo_kernel::kallsyms::{Kallsyms, NameChoice};
pub use options::ResolverOptions;
pub use problem::{BundleError, Problem};
pub use resolver::{Dso, RecordedFacts, Resolver};
pub use sources::Sources;
