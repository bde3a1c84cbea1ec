//! Functions, lines, variables and types in the debugging information of a binary, read lazily: a
//! unit is parsed when something in it is needed, and dropped again when others are.
//!
//! Nothing here opens a file: bytes are passed in, and companions are requested through
//! [`Companions`]. `kymo-probe` decides what a probe fetches.

mod budget;
#[cfg(test)]
mod budget_tests;
mod companions;
mod copies;
mod die;
mod forms;
mod frame;
mod function;
pub mod index;
pub mod inlines;
mod line_files;
mod line_places;
mod lines;
mod location;
mod member_path;
mod members;
mod names;
mod scan;
mod scope;
mod search;
mod sections;
mod source;
mod span_set;
mod type_units;
mod types;
mod unit;

pub use companions::{Companions, FileBytes};
pub use die::{Die, WalkStep, unsigned};
pub use function::{DwarfFunction, UnitFunctions};
pub use lines::{LineRow, LineTable, is_tail};
pub use location::{Liveness, LocationBase, LocationContext, LocationExpr, VariableLocation};
pub use members::{BitSlice, Member};
pub use scope::VisibleVariable;
pub(crate) use sections::layout_of;
pub use sections::{LoadedSection, Pages, Sections};
pub use source::SourceLocation;
pub use span_set::SpanSet;
pub use unit::{Dwarf, DwarfUnit};

/// The debugging information cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DwarfError {
    /// The file is not ELF, or damaged.
    #[error("not a usable ELF file: {0}")]
    Object(#[from] object::Error),
    /// The information contradicts itself.
    #[error("damaged debugging information: {0}")]
    Gimli(#[from] gimli::Error),
    /// It refers to itself over and over.
    #[error("damaged debugging information: it takes more steps than its size explains")]
    Endless,
    /// It refers to the same bytes over and over, or unpacks to more than anything real.
    #[error("damaged debugging information: one answer would take more than {} MiB of memory", limit >> 20)]
    TooMuchMemory {
        /// Bytes that one answer may take.
        limit: usize,
    },
    /// The call frame information cannot be read.
    #[error("damaged call frame information: {0}")]
    Frames(String),
    /// A packed section claims to be larger than anything real.
    #[error("section {section} claims to unpack to {size} bytes")]
    TooLarge {
        /// Its name.
        section: String,
        /// Claimed size.
        size: u64,
    },
}

/// Result of reading debugging information.
pub type Result<T> = std::result::Result<T, DwarfError>;
pub(crate) type Reader<'s> = gimli::EndianSlice<'s, gimli::RunTimeEndian>;
pub(crate) type Entry<'s> = gimli::DebuggingInformationEntry<Reader<'s>>;
pub(crate) type Value<'s> = gimli::AttributeValue<Reader<'s>>;
