//! The words every other crate speaks: what a perf event attribute, a raw
//! record, a sample, the sideband records, a probe definition and a note about a
//! result are, and cursors over bytes.
//!
//! No I/O happens here and nothing here is unsafe. Layouts follow
//! perf_event_open(2) and `include/uapi/linux/perf_event.h`.
#![forbid(unsafe_code)]

mod attr;
mod count;
mod counted;
mod cursor;
mod flags;
pub mod glob;
mod index_vec;
mod internal;
mod loss_windows;
mod near_names;
mod note;
mod note_kind;
mod open_table;
pub mod probe;
mod record;
mod registers;
mod sample;
mod sample_layout;
mod sample_places;
mod sampled;
pub mod schedstat;
mod shell_word;
mod sideband;
mod untrusted;
mod width;

pub use attr::{Attr, EventType, hw, hw_cache, sw};
pub use count::{Aggregation, CountKey, CountRow, CountState, Metric, MetricKind};
pub use counted::{by_number, counted};
pub use cursor::{Cursor, Endian, Truncated};
pub use flags::{AttrFlags, BranchType, ReadFormat, SampleType};
pub use index_vec::{IndexVec, VecIndex, index_number};
pub use internal::{internal_error, internal_error_notes};
pub use loss_windows::{LossWindows, PassedWindows};
pub use near_names::near_names;
pub use note::{Note, NoteList};
pub use note_kind::{NoteKind, Weight};
pub use open_table::{OpenTable, TableSlot, hash_address};
pub use record::{Misc, RawRecord, RecordHeader, RecordKind, SampleId};
pub use registers::RegisterNames;
pub use sample::{
    CALLCHAIN_CONTEXT_MIN, ChainContext, ReadValues, Sample, SampledRegisters, UserStack,
    is_call_stack, without_user_callers,
};
pub use sample_layout::{LeadingFields, SampleLayout, TrailingFields};
pub use sample_places::SamplePlaces;
pub use sampled::sampled_tracepoints;
pub use shell_word::{recording_arguments, shell_word};
pub use sideband::{
    BuildId, Comm, Ksymbol, Lost, LostSamples, Mmap, Sideband, Switch, Task, TextPoke, Throttle,
};
pub use untrusted::{UntrustedText, is_unprintable, write_character, write_stray_byte};
pub use width::format_width;
