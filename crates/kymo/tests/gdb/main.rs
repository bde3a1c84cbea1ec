//! Stacks with their inlined frames and source lines, frame by frame: what gdb shows
//! at the same place of the same program is right.
//!
//! Where both differ it is said at the test, and why.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod judge;
mod loaded;
mod programs;
mod steps;
