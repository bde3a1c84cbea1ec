//! The ring that traced programs write their events into, over memory that is given to it: slices,
//! anonymous or shared mappings. A sub-buffer is a CTF packet, so a reader copies bytes. The format
//! and why it survives a kill at any instruction is in `docs/formats/ust.md`.
//!
//! [`Ring`] writes. It takes no lock for which another thread waits, allocates nothing and makes no
//! system call. The part for readers ([`Header`], [`AreaState`], [`Context`]) works on bytes and
//! touches no shared memory: a reader of another process's ring reads its file.
//!
//! | module | |
//! |---|---|
//! | `layout` | what lies where; reading and writing of headers |
//! | `area` | ordering: how an event and a new packet are committed |
//! | `rseq` | the restartable sequences on a CPU |
//! | `ring` | memory and sharing: which area, which discipline |
//! | `cpu_words` | counters: words that each CPU has of its own |
//! | `futex_word` | how a writer wakes a reader that sleeps |
//! | `cursor` | the reader's note of how far it has read |
//! | `generations` | sharing of what is made once for each generation of a slot |
//! | `clock` | ticks, and how they relate to the kernel's clocks |
//! | `sync` | atomics, loom's under loom |
//!
//! No dependencies. Unsafe code lives here because shared memory does.

mod area;
mod clock;
mod cpu_words;
mod cursor;
mod futex_word;
mod generations;
mod layout;
#[cfg(not(loom))]
mod ring;
mod rseq;
mod sync;

#[cfg(all(loom, test))]
mod loom_tests;

pub use clock::{Clock, ClockFacts, ClockKind};
pub use cpu_words::CpuWords;
pub use cursor::RingCursor;
pub use futex_word::FutexWord;
pub use generations::{Generations, OfGeneration};
pub use layout::{
    AREA_HEADER, AreaState, CONTEXT_END, Config, Context, HEADROOM, Header, LayoutError, MAX_AREAS,
    MAX_SUB_BUFFER, MAX_SUB_BUFFERS, MAX_UNWRITTEN, MIN_SUB_BUFFER, Mode, RING_HEADER, SLACK,
};
#[cfg(not(loom))]
pub use ring::{CacheLine, Filled, Memory, Provide, Ring, WriteOutcome};
pub use rseq::{AREA_SHIFT, Rseq};
