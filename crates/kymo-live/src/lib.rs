//! Events while they happen, in a program of one's own: tracepoints and probes of the kernel,
//! probes of programs, samples, and the tracepoints of programs that link `kymo-tracepoint`, each
//! with typed fields. What a kernel module would hook, a dozen lines see from outside:
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use kymo_live::{LiveError, Subscription};
//!
//! fn main() -> Result<(), LiveError> {
//!     let summary = Subscription::new()
//!         .event("sched:sched_switch")
//!         .filter("next_pid > 0")
//!         .command(["make", "-j2"])
//!         .run(|event| {
//!             let (task, next) = (event.comm(), event.text("next_comm").unwrap_or_default());
//!             println!("{} {task} -> {next}, pid {:?}", event.name(), event.integer("next_pid"));
//!             ControlFlow::Continue(())
//!         })?;
//!     println!("{} events, {} lost", summary.events, summary.lost);
//!     Ok(())
//! }
//! ```
//!
//! The kernel's events come through perf rings: no root for one's own processes as far as
//! `kernel.perf_event_paranoid` allows it, root for the machine and for probes. Those of programs
//! come through shared memory, and need no right. Nothing stays switched on when
//! [`Subscription::run`] returns, or the process dies.
//!
//! | part | file |
//! |---|---|
//! | what is asked for, and the run | `subscription.rs` |
//! | an event, its values | `event.rs` |
//! | errors | `error.rs` |
//!
//! # Stability
//!
//! The types here show none of those of kymo's inner crates; enumerations and structures that may
//! grow are `non_exhaustive`.
#![forbid(unsafe_code)]

mod error;
mod event;
mod subscription;

pub use error::LiveError;
pub use event::{LiveEvent, LiveValue};
pub use subscription::{LiveNote, LiveSummary, Subscription};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ExamplesOfReadme;
