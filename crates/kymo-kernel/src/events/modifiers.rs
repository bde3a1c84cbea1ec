//! Modifiers after the colon: `:ukp`. Meanings, and which letters exclude which unless they are
//! named, are perf's.

use kymo_model::AttrFlags;

use super::EventSpec;

/// Why a modifier text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Not a modifier letter.
    Unknown,
    /// A letter other than `p` twice.
    Twice,
    /// More than three `p`.
    TooPrecise,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Unknown => write!(f, "not one of the modifiers {LETTERS}"),
            Wrong::Twice => write!(f, "duplicate modifier"),
            Wrong::TooPrecise => write!(f, "precision goes up to ppp"),
        }
    }
}

const LETTERS: &str = "ukhGHIpPSDWeb";

/// Whether a text consists of modifier letters only.
pub(super) fn is_modifier_text(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| LETTERS.contains(c))
}

/// Checks a modifier text; the error has the offset of the wrong letter.
pub(super) fn check(text: &str) -> Result<(), (usize, Wrong)> {
    let mut precise = 0;
    for (at, c) in text.char_indices() {
        if !LETTERS.contains(c) {
            return Err((at, Wrong::Unknown));
        }
        if c == 'p' {
            precise += 1;
            if precise > 3 {
                return Err((at, Wrong::TooPrecise));
            }
        } else if text.get(..at).is_some_and(|before| before.contains(c)) {
            return Err((at, Wrong::Twice));
        }
    }
    Ok(())
}

/// Applies checked modifiers to one event. Those of a group (`add`) build on
/// what the event already chose, its own start afresh; so in perf.
pub(super) fn apply(event: &mut EventSpec, text: &str, add: bool, leads: bool) {
    if text.is_empty() {
        return;
    }
    let had = event.attr.flags;
    let start = |flag| add && had.contains(flag);
    let mut user = start(AttrFlags::EXCLUDE_USER);
    let mut kernel = start(AttrFlags::EXCLUDE_KERNEL);
    let mut hv = start(AttrFlags::EXCLUDE_HV);
    let mut host = start(AttrFlags::EXCLUDE_HOST);
    let mut guest = start(AttrFlags::EXCLUDE_GUEST);
    let mut idle = start(AttrFlags::EXCLUDE_IDLE);
    let mut precise = if add { had.precise_ip() } else { 0 };
    let mut level_chosen = user || kernel || hv;
    let mut place_chosen = add && event.guest_or_host_chosen;
    for c in text.chars() {
        match c {
            'u' | 'k' | 'h' => {
                if !level_chosen {
                    (level_chosen, user, kernel, hv) = (true, true, true, true);
                }
                match c {
                    'u' => {
                        guest |= !place_chosen;
                        user = false;
                    }
                    'k' => kernel = false,
                    _ => hv = false,
                }
            }
            'G' | 'H' => {
                if !place_chosen {
                    (place_chosen, host, guest) = (true, true, true);
                }
                if c == 'G' { guest = false } else { host = false }
            }
            'I' => idle = true,
            'p' => {
                // Precise counters cannot tell the guest from the host.
                precise = (precise + 1).min(3);
                guest |= !place_chosen;
            }
            'P' => event.precise_max = true,
            'S' => event.sample_read = true,
            'D' if leads => event.attr.flags |= AttrFlags::PINNED,
            'e' if leads => event.attr.flags |= AttrFlags::EXCLUSIVE,
            'W' => event.weak_group = true,
            // `b` asks for counting by BPF; the ordinary way gives the same counts.
            _ => {}
        }
    }
    let mut flags = event.attr.flags.with_precise_ip(precise);
    flags.set(AttrFlags::EXCLUDE_USER, user);
    flags.set(AttrFlags::EXCLUDE_KERNEL, kernel);
    flags.set(AttrFlags::EXCLUDE_HV, hv);
    flags.set(AttrFlags::EXCLUDE_HOST, host);
    flags.set(AttrFlags::EXCLUDE_GUEST, guest);
    flags.set(AttrFlags::EXCLUDE_IDLE, idle);
    event.attr.flags = flags;
    event.guest_or_host_chosen = place_chosen;
}
