//! The writing side of tracefs: events are switched on and off, filtered and
//! given triggers, and their ring is read, in a trace directory.
//!
//! A *trace directory* ([`TraceDir`]) is what the kernel calls a trace array: the
//! tree's top, or one of `instances/`. Both hold the same files. Recordings of
//! our own use an [`Instance`], a directory that is made for one purpose and
//! removed when its guard is dropped; the top belongs to the user and is
//! changed only on request (`kymo event`).
//!
//! ```no_run
//! use kymo_kernel::ftrace::{Instance, Selection};
//! use kymo_kernel::tracefs::Tracefs;
//!
//! let tracefs = Tracefs::open()?;
//! let instance = Instance::create(&tracefs, "example")?;
//! instance.enable(&Selection::parse("irq:softirq_entry")?)?;
//! instance.set_tracing(true)?;
//! for cpu in instance.cpus()? {
//!     let mut pipe = instance.raw_pipe(cpu)?;
//!     let mut page = vec![0; pipe.page_size()];
//!     while let Some(n) = pipe.read(&mut page)? {
//!         println!("cpu {cpu}: {n} bytes of ring page");
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What lives where: `dir` the files and how a refusal is explained, `instance`
//! making, owning and removing directories, `settings` everything that is one value,
//! `events` names to `enable` files, `trigger` filters and triggers, `error_log`
//! the kernel's own account of what was wrong, `pipe` the ring pages, `stream`
//! their events merged by time, `hook` a closure on events, `stats` what was lost.

mod dir;
mod error;
mod error_log;
mod events;
mod hook;
mod instance;
mod owner;
mod pipe;
mod settings;
mod stats;
mod stream;
mod trigger;

pub use dir::TraceDir;
pub use error::{FtraceError, Refusal};
pub use error_log::Complaint;
pub use events::{EventName, EventState, Selection};
pub use hook::{Fired, Hook};
pub use instance::{Instance, Stale};
pub(crate) use owner::Owner;
pub use owner::{is_left_behind, is_owned, own_name};
pub use pipe::{MoveError, PageMover, RawPipe, wait_readable};
pub use settings::{Clocks, mask_text};
pub use stats::CpuStats;
pub use stream::{Item, Stream};
pub use trigger::{Trigger, TriggerKind};
