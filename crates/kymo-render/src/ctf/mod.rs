//! Events of CTF traces as lines: `line` renders any event, `plan` writes those whose
//! fields always lie at the same places.

mod batch;
mod line;
mod plan;

pub(crate) use batch::CtfBatch;
pub use line::{CtfFieldsError, CtfOptions};
pub(crate) use line::{CtfRenderer, ctf_notes};
