//! View models and their text renderers. Nothing here knows where data came from.
#![forbid(unsafe_code)]

mod ledger;

pub use ledger::{Ledger, Note};
