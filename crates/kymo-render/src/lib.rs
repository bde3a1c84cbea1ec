//! Events and samples as lines of text and JSON, system calls as strace's words.
//!
//! [`syscalls`] turns the entry and exit events of system calls into one line a call.
//!
//! Nothing here reads files or the traced machine: what a renderer needs to know beside the
//! bytes of an event is given to it, or asked of the caller through a trait.
#![forbid(unsafe_code)]

pub mod syscalls;
