//! Events of programs as text and JSON, from a ring that is watched or from a recorded trace: the
//! sentence of their print format or their values one by one, with names for their addresses.

mod code_names;
mod object;
mod payload;
mod print_format;

pub use code_names::CodeNames;
pub(crate) use object::{EventObject, write_message};
pub(crate) use payload::{EventPayload, PayloadBuffers, PayloadLine};
pub(crate) use print_format::{PrintFormat, PrintPiece, write_int};
