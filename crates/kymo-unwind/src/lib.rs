//! Registers, a window of the stack and the call frame information of the
//! binaries → return addresses.
//!
//! Everything is given: the sections of a binary make a [`CfiTable`], which says
//! for an address how its function is left (a [`Rule`]); [`walk`] applies one
//! rule after the other and says how it ended. Nothing is opened or read here,
//! and whatever the bytes are, nothing panics and nothing loops.
//!
//! Rules restore all general registers, not only the frame pointer: functions
//! that realign their stack, signal frames and hand-written code find their
//! frame through others. That, and that every end has a name, is why the tables
//! are read here (with gimli) and not by framehop, whose rules know the frame
//! pointer alone and stop silently.
#![forbid(unsafe_code)]

mod arch;
mod epilogue;
mod expression;
mod quick;
mod quick_rule;
mod registers;
mod rule;
mod stack;
mod table;
mod walk;

pub use arch::Arch;
pub use epilogue::{BEFORE, BEHIND, epilogue};
pub use quick::quick_walk;
pub use quick_rule::Quick;
pub use registers::Registers;
pub use rule::{Cfa, Row, Rule, RuleError, Saved, outermost};
pub use stack::StackWindow;
pub use table::{CfiContext, CfiSections, CfiTable, Section};
pub use walk::{Code, End, Walked, walk};
