//! tracefs `format` text to field layouts, print formats to text.
//!
//! [`EventFormat::parse`] reads the text of an event's `format` file and
//! compiles its print format once; [`EventFormat::render`] then writes what the
//! kernel's own `trace` file shows for a payload, and [`Field::value`] gives
//! typed values. [`FormatIndex`] finds an event by the id in its payload.
//! [`ring`] walks the pages of the ring buffer such payloads come from.
//!
//! Nothing here fails on a print format: what only the kernel can compute is
//! shown by its arguments or field by field, and [`EventFormat::fallbacks`]
//! says so. Any text and any payload may come in; output, depth and time are
//! bounded. No I/O happens here.
#![forbid(unsafe_code)]

mod binprintf;
mod calls;
mod constants;
mod context;
mod ctype;
pub mod digits;
mod error;
mod expr;
mod field;
mod flag_letters;
mod format;
mod json;
mod lex;
mod line_writer;
mod parse;
mod pointer;
pub mod print_argument;
mod print_fmt;
mod render;
pub mod ring;
mod spec;
mod table;
mod text;
mod value;

pub use constants::{Builtin, Constants};
pub use context::{KernelSymbol, NoSymbols, PointerStyle, RenderContext, Symbols};
pub use error::FormatError;
pub use field::{Field, FieldKind, ProbeText};
pub use flag_letters::flag_letters;
pub use format::EventFormat;
pub use json::json_string;
pub use line_writer::LineWriter;
pub use parse::ParseOptions;
pub use table::FormatIndex;
pub use value::{Integers, Value};
