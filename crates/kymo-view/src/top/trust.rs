//! Warnings about a live profile: as the last line of a screen, and as a ledger.

use kymo_analysis::live_profile::{LiveProfile, LiveRows};
use kymo_model::{Note, NoteKind, counted};

use crate::trust::{HARMLESS_PERCENT, note_symbols, note_unwinding};
use crate::{Ledger, percent};

/// Losses so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopLosses {
    /// Records that found a ring full.
    pub lost: u64,
    /// Times that the kernel paused sampling.
    pub throttled: u64,
}

impl TopLosses {
    /// Losses that the rings have reported.
    pub fn of(profile: &LiveProfile) -> TopLosses {
        let stats = profile.stats();
        TopLosses {
            lost: stats.lost.saturating_add(stats.lost_in_hardware),
            throttled: stats.throttled,
        }
    }
}

/// The ledger in one line.
pub fn top_status(profile: &LiveProfile, sums: &LiveRows) -> String {
    let losses = TopLosses::of(profile);
    let mut parts = vec![format!("{} samples", sums.samples)];
    let mut tell = |n: u64, what: &str| {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    };
    tell(losses.lost, "lost");
    tell(losses.throttled, "times throttled");
    let is_cut = profile.are_pages_cut();
    tell(if is_cut { profile.dropped_early() } else { 0 }, "dropped for lack of memory");
    if sums.unnamed > 0 {
        parts.push(format!("{:.1}% without a symbol", percent(sums.unnamed, sums.samples)));
    }
    if has_broken_chains(sums) {
        let share = percent(sums.broken_chains, sums.chains);
        parts.push(format!("{share:.0}% of stacks cut short: --call-graph dwarf"));
    }
    let pending = profile.pending_names();
    match (pending.functions, pending.lines) {
        (0, 0) => {}
        (0, lines) => parts.push(counted(lines as u64, "line to be found", "lines to be found")),
        (functions, _) => parts.push(format!("{functions} names to be found")),
    }
    parts.join(", ")
}

/// Whether callers are missing in more than a few stacks of programs.
fn has_broken_chains(sums: &LiveRows) -> bool {
    sums.broken_chains > 0 && percent(sums.broken_chains, sums.chains) >= BROKEN_PERCENT
}

/// Below this share of stacks it may be the first instructions of functions, which have no frame
/// yet, and code that is in no binary.
const BROKEN_PERCENT: f64 = 10.0;

/// The ledger of what was shown last; `notes` are those of the capture.
pub fn top_ledger(
    profile: &LiveProfile,
    sums: &LiveRows,
    notes: impl IntoIterator<Item = Note>,
) -> Ledger {
    let mut ledger = Ledger::from_notes(notes);
    let losses = TopLosses::of(profile);
    if sums.samples == 0 && sums.all_period > 0 {
        let fact = "no sample matches --comms, --dsos and --symbols, though samples were taken";
        ledger.note(NoteKind::Empty, fact, None);
    } else if sums.samples == 0 {
        ledger.tell(NoteKind::Empty, "the last page has no samples: no event happened in it", None);
    }
    if losses.lost > 0 {
        let fact =
            counted(losses.lost, "event lost: the ring was full", "events lost: the ring was full");
        ledger.note(NoteKind::Lost, fact, Some("a larger ring: -m, or a lower -F".into()));
    }
    if losses.throttled > 0 {
        let fact =
            format!("the kernel paused sampling {}", counted(losses.throttled, "time", "times"));
        ledger.note(NoteKind::Throttled, fact, Some("a lower -F".into()));
    }
    if profile.dropped_early() > 0 {
        let fact = counted(
            profile.dropped_early(),
            "sample dropped before its time (memory limit reached)",
            "samples dropped before their time (memory limit reached)",
        );
        let advice = Some("a lower -F, or a shorter --history".into());
        if profile.are_pages_cut() {
            ledger.note(NoteKind::Scope, fact, advice);
        } else {
            let (first, end) = profile.span().unwrap_or_default();
            let kept = end.saturating_sub(first) as f64 / 1e9;
            ledger.tell(NoteKind::Scope, format!("{fact}: {kept:.0} s are kept"), advice);
        }
    }
    if profile.without_end() > 0 {
        let fact = counted(
            profile.without_end(),
            "time off the CPU is not counted: no end was seen",
            "times off the CPU are not counted: no end was seen",
        );
        ledger.note(NoteKind::Lost, fact, None);
    }
    if has_broken_chains(sums) {
        let fact = format!(
            "{} of {} user stacks do not lead to the beginning of the program or thread: they end \
             immediately, or in no binary",
            sums.broken_chains, sums.chains
        );
        ledger.note(NoteKind::FramePointers, fact, Some("--call-graph dwarf".into()));
    }
    let share = percent(sums.unnamed, sums.samples);
    if share >= HARMLESS_PERCENT {
        let fact = format!("{share:.1}% of {} samples have no symbol", sums.samples);
        ledger.note(NoteKind::Unresolved, fact, None);
    }
    if sums.pending > 0 {
        let fact = counted(sums.pending, "sample has no name yet", "samples have no name yet");
        ledger.note(NoteKind::Unresolved, fact, None);
    }
    note_unwinding(profile.unwinding(), &profile.machine().symbols, &mut ledger);
    note_symbols(&profile.machine().symbols, &mut ledger);
    ledger
}
