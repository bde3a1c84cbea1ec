//! Static tracepoints for programs. A tracepoint costs two loads and a branch while it is disabled;
//! when a kymo session switches it on, its events go into a ring in shared memory without a system
//! call, a lock or an allocation, and survive the program.
//!
//! A program declares events with [`tracepoint!`], [`tracepoint_class!`] and [`mark!`], and hits
//! them with [`emit!`]. That is all: no initialisation, no thread, no daemon. The same sites are
//! SDT markers with the fields as arguments, for perf, bpftrace and uprobes; and closures can be
//! registered on them. (`perf probe %sdt_…` takes the address of a marker for its place in the
//! file: link with `-C link-arg=-Wl,-z,separate-loadable-segments` for it where lld is the linker,
//! as it is by default.)
//!
//! [`counter!`] and [`histogram!`] count, with keys if wanted, whether anybody looks or not; `kymo
//! count -u` shows what they have come to, also when the program was killed.
//!
//! Programs in C and C++ use `include/kymo_tracepoint.h` and `include/kymo_counter.h`, and link
//! this crate as a static or shared library (`cargo xtask c-library`; `docs/c.md`).
//!
//! Programs that use the crates `log` or `tracing` have their records, events and spans in the
//! trace with the features of these names.
//!
//! The library handles SIGBUS for its own mappings, whose files another process may truncate, and
//! hands all others to the action that was there before (`docs/security.md`).
//!
//! How the tool finds programs: `docs/formats/ust.md`. `KYMO_UST=off` in the environment keeps a
//! program out of it; `KYMO_UST_DIR` sets its directory, by default under `/dev/shm`.

pub mod abi;
mod callbacks;
mod channel;
mod counter;
mod guard;
mod lock;
#[cfg(feature = "log")]
pub mod log_records;
mod macros;
mod process;
mod record;
mod site;
#[cfg(feature = "tracing")]
pub mod spans;
mod sys;
mod value;

pub use callbacks::Registration;
pub use counter::{CounterKey, SampleValue};
pub use site::Level;
pub use value::{Element, FieldType, Symbol};

/// Items that the macros expand to; not part of the interface.
#[doc(hidden)]
pub mod private {
    pub use kymo_ust::Shape;

    pub use crate::callbacks::call;
    pub use crate::counter::{CounterInfo, CounterRef, CounterSite, KeyWords, step};
    pub use crate::record::{SMALL, Scratch};
    pub use crate::site::{
        Declared, EnumEntry, EventInfo, Listeners, Site, SiteField, SiteRef, StaticText,
    };
    pub use crate::value::enum_shape;
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ExamplesOfReadme;
