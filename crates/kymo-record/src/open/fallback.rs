//! Fallbacks when the kernel refuses an event: a lesser event is requested where that still meets
//! the request, the event is left out where the caller allows it, and otherwise the refusal is an
//! error.

use kymo_kernel::perf_event::{FOR_THE_KERNELS_SIDE, OpenError};
use kymo_model::{Attr, AttrFlags, Note, NoteKind, SampleType};

use super::{CounterPlace, OpenedEvent, PlannedEvent};

/// Fallbacks that the caller allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPolicy {
    /// Flags of events that wait for their start: `DISABLED`, `ENABLE_ON_EXEC`.
    pub(crate) start: AttrFlags,
    /// Events that are opened without the kernel's side where only that is permitted.
    pub(crate) user_only: UserOnly,
    /// Events that the machine does not have are kept as such; they are errors otherwise.
    pub(crate) keep_unsupported: bool,
}

/// Events without the kernel's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserOnly {
    /// Each event that is refused, by itself: its count says so in its name.
    EachEvent,
    /// All events or none: samples of some with and some without the kernel mislead.
    AllEvents,
}

/// Outcome of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Relaxation {
    /// The event asks for less now.
    TryAgain,
    /// The machine does not have the event.
    NotSupported,
    /// The task has ended.
    Gone,
    /// Nothing helps.
    None,
}

/// Asks less of an event that the kernel refused, where that helps.
pub(super) fn relax(
    policy: OpenPolicy,
    event: &mut OpenedEvent,
    place: CounterPlace,
    refusal: &OpenError,
) -> Relaxation {
    let planned = &mut event.planned;
    let spec = &planned.spec;
    if policy.user_only == UserOnly::EachEvent
        && refusal.is_denied()
        && place.tid.is_some()
        && !spec.is_tracepoint()
        && spec.may_be_user_only()
    {
        // What an unprivileged user may still see, said in the name as perf does.
        event.user_only = refusal.paranoid;
        planned.restrict_to_user();
        return Relaxation::TryAgain;
    }
    if refusal.is_invalid() && reads_of_children(&planned.attr) {
        planned.attr.flags -= AttrFlags::INHERIT;
        return Relaxation::TryAgain;
    }
    if refusal.is_invalid() && spec.may_count_guests() {
        // The PMU cannot tell guests from the host.
        let guests = AttrFlags::EXCLUDE_GUEST | AttrFlags::EXCLUDE_HOST;
        planned.spec.attr.flags -= guests;
        planned.attr.flags -= guests;
        return Relaxation::TryAgain;
    }
    if refusal.is_gone() {
        return Relaxation::Gone;
    }
    if policy.keep_unsupported && refusal.is_unsupported() {
        Relaxation::NotSupported
    } else {
        Relaxation::None
    }
}

/// Whether samples of children hold counts, which kernels before Linux 6.12 refuse.
pub(super) fn reads_of_children(attr: &Attr) -> bool {
    attr.flags.contains(AttrFlags::INHERIT) && attr.sample_type.contains(SampleType::READ)
}

/// Note on samples with counts that are without threads and children.
pub(super) fn alone_note() -> Note {
    let fact = "samples with counts (:S) are of the first thread only: this kernel refuses those of \
                its threads and children";
    let advice = "Linux 6.12 and later do; without :S all are recorded".to_owned();
    Note::doubt(NoteKind::Scope, fact.to_owned(), Some(advice))
}

/// Whether leaving the kernel out of all events would be allowed, and still meet the request.
pub(super) fn may_drop_kernel(refusal: &OpenError, plan: &[PlannedEvent]) -> bool {
    let may_drop = |p: &PlannedEvent| {
        p.sideband_only
            || p.spec.may_be_user_only()
            || p.spec.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL)
    };
    refusal.is_denied()
        && refusal.wants_kernel
        && refusal.pid != -1
        && refusal.paranoid.is_some_and(|level| level > 1)
        && plan.iter().all(may_drop)
}

/// Note on a recording without the kernel's side.
pub(super) fn user_only_note(refusal: &OpenError) -> Note {
    let level = refusal.paranoid.unwrap_or_default();
    Note::doubt(
        NoteKind::UserOnly,
        format!("only user space is recorded: kernel.perf_event_paranoid is {level}"),
        Some(FOR_THE_KERNELS_SIDE.into()),
    )
}
