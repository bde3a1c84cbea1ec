//! What the debugging information of a binary says about its functions, lines,
//! variables and types, read lazily: a unit is parsed when something in it is
//! asked for, and dropped again when others are.
//!
//! Nothing here opens a file: bytes are given, and sources are asked for through
//! [`Sources`].

mod companions;
mod copies;
mod die;
mod fetch;
mod finder;
mod forms;
mod frame;
mod function;
pub mod index;
pub mod inlines;
mod line_files;
mod lines;
mod location;
mod member;
mod names;
mod ranges;
mod regs;
mod scan;
mod scope;
mod search;
mod sections;
mod source;
mod type_units;
mod types;
mod unit;
mod vars;

pub use companions::{Companions, FileBytes};
pub use finder::{FindError, Finder, Located, Options, Sources, SymbolLookup, SymbolOf};
pub use ranges::{SourceLines, source_lines};
pub(crate) use sections::layout_of;
pub use sections::{LoadedSection, Pages, Sections};
pub use source::SourcePlace;
pub use unit::Dwarf;
pub use vars::{PlaceVariables, Variable};

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
    /// The call frame information cannot be read.
    #[error("damaged call frame information: {0}")]
    Frames(String),
    /// A packed section claims to be larger than anything real.
    #[error("section {section} claims to unpack to {size} bytes")]
    TooLarge {
        /// Its name.
        section: String,
        /// What it claims.
        size: u64,
    },
}

pub(crate) type Result<T> = std::result::Result<T, DwarfError>;
pub(crate) type Reader<'s> = gimli::EndianSlice<'s, gimli::RunTimeEndian>;
pub(crate) type Entry<'s> = gimli::DebuggingInformationEntry<Reader<'s>>;
pub(crate) type Value<'s> = gimli::AttributeValue<Reader<'s>>;
