//! Events of CTF traces as lines: `event_line` renders any event, `plan` writes those whose
//! fields always lie at the same places, `line` batches of them.

mod batch;
mod event_line;
mod line;
mod plan;

pub(crate) use batch::CtfBatch;
pub(crate) use event_line::{CtfBody, CtfClasses, CtfEventLine, CtfLines};
pub use event_line::{CtfFieldsError, CtfOptions};
pub(crate) use line::{CtfRenderer, ctf_notes};
