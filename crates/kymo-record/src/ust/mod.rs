//! Traced programs (`kymo-tracepoint`): their identity, enabling their events, and draining their
//! rings into CTF directories. The files they share with us are described in `docs/formats/ust.md`;
//! none of them is believed.
//!
//! | module | |
//! |---|---|
//! | `mount_namespace` | where programs leave their directories: this mount namespace and others |
//! | `program` | one program: its control file, its events, its slots |
//! | `channel` | channel configurations: what is wanted of which events |
//! | `slots` | switching events of a running program on and off |
//! | `session`, `state` | the program part of a named session, and what it is now |
//! | `ring` | reading a ring: whole packets, and what is written of the last |
//! | `complete_packets` | finished packets that are not copied on their way |
//! | `stream` | the file that they go to |
//! | `drain`, `drain_notes` | rings of a channel into a directory of CTF traces, and what is missing there |
//! | `rules` | patterns, levels, filters and room, as a person says them |
//! | `draining` | the same on a thread of its own |
//! | `clock` | the programs' counter beside CLOCK_MONOTONIC |
//! | `code_maps` | the code that a program has mapped, for fields that hold addresses |
//! | `metadata` | what a program says of its events, as CTF says it |
//! | `live` | the rings of programs, event by event, for those who watch |
//! | `futex_waiters` | the words that programs wake when their rings fill up |
//! | `counters` | counters and histograms of one program |
//! | `counter_watch` | those of all programs, added up |
//! | `watch` | a channel over all programs there are and those that come |

mod channel;
mod clock;
mod code_maps;
mod complete_packets;
mod counter_watch;
mod counters;
mod drain;
mod drain_notes;
mod draining;
mod error;
mod futex_waiters;
mod live;
mod metadata;
mod mount_namespace;
mod program;
mod ring;
mod ringless;
mod rules;
mod session;
mod slots;
mod state;
mod stream;
mod unreadable;
mod watch;

pub use channel::{Channel, ChannelOptions, DEFAULT_CHANNEL};
pub use complete_packets::CompletePackets;
pub use counter_watch::{CountedPrograms, CounterChoice, CounterWatch};
pub use counters::ProgramCounter;
pub use drain::{Drain, DrainStats, Peek, check_new_directory};
pub use draining::Draining;
pub use error::{Notes, UstError};
pub use live::{LivePrograms, ProgramNews};
pub use mount_namespace::{MountNamespace, UserDirectory};
pub use program::{Program, ProgramId, RingFile};
pub use ring::{Area, Out, RingCounts, RingReader, TakenPacket};
pub use rules::{
    MAX_LEVEL, ProgramRuleError, RING_ROOM, level_name, parse_level, parse_rules, sub_buffers,
};
pub use session::{ProgramSession, RingOptions};
pub use slots::{Attached, UnfitEvent};
pub use state::{ChannelState, Doing, ProgramState, ProgramsState, RuleState};
pub use watch::{ChannelWatch, WatchOptions};
