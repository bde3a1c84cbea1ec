//! Conditions on the fields of events, in the words of the kernel's event filters
//! (Documentation/trace/events.rst, "Event filtering"): `prev_prio < 100 && next_comm ~
//! "kworker*"`. Beside fields there are `comm`, `pid`, `tid`, `cpu` and `event`.
//!
//! An expression is parsed once ([`FilterExpr`]) and bound to each event class that comes
//! ([`BoundFilter`]); an event whose class lacks a field of it does not match.

mod bind;
mod parse;

pub use bind::BoundFilter;
pub use parse::{FilterExpr, FilterExprError};
