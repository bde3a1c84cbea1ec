//! The grammar of what a person types: descriptions of probes, ranges of lines, filters
//! of names, lines in the kernel's own syntax. Mistakes are shown with a caret under the
//! spot. Nothing here knows a binary.

mod arguments;
mod description;
mod error;
mod filter;
mod kernel_line;
mod line_range;
mod parse;
mod symbol;

pub use description::{
    ArgDescription, ArgValue, FieldStep, PointDescription, ProbeDescription, UsdtName,
};
pub use error::GrammarError;
pub use filter::NameFilter;
pub use kernel_line::{KernelLine, is_kernel_line};
pub use line_range::LineRange;
pub use symbol::is_symbol;
