//! Probes as words: descriptions that a user types, definitions that the kernel
//! takes, ranges of lines, filters. Nothing here reads a binary; what a
//! description means in one is found by `crate::dwarf`.

mod args;
mod definition;
mod description;
mod error;
mod filter;
mod glob;
mod lines;
mod name;
mod parse;
mod raw;

pub use definition::{Base, Definition, Deref, Fetch, FetchArg, Place};
pub use description::{Arg, ArgValue, Description, Point, Step};
pub use error::ParseError;
pub use filter::Filter;
pub use glob::{glob_match, is_glob, lazy_match};
pub use lines::LineRange;
pub use name::{event_name, group_of_binary, is_symbol};
pub use raw::{RawLine, looks_raw};
