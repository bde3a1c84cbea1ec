//! The notes about what was read of a trace.dat.

use kymo_files::tracedat::{ReadStats, TraceDat};
use kymo_model::NoteKind;
use kymo_view::Ledger;

/// What could make a result of the recording less than the truth.
pub(crate) fn ledger(data: &TraceDat, s: &ReadStats) -> Ledger {
    let mut l = Ledger::default();
    let more = || Some("record with larger rings: kymo trace --buffer-size".to_owned());
    if s.lost > 0 {
        let places = s.lost_places - s.lost_unknown;
        l.note(NoteKind::Lost, format!("{} events lost in {places} places", s.lost), more());
    }
    if s.lost_unknown > 0 {
        let n = s.lost_unknown;
        l.note(
            NoteKind::Lost,
            format!("events lost in {n} places, their number is not known"),
            more(),
        );
    }
    for d in data.damage() {
        l.note(NoteKind::Damaged, d.to_string(), None);
    }
    for d in &s.damaged {
        l.note(NoteKind::Damaged, d.to_string(), None);
    }
    let more = s.damaged_places.saturating_sub(s.damaged.len() as u64);
    if more > 0 {
        l.note(NoteKind::Damaged, format!("{more} more places"), None);
    }
    if data.is_growing() {
        let fact = "the recorder did not finish the file: it is at work or was killed";
        l.note(NoteKind::Unfinished, fact, None);
    }
    if data.options().time_shift.is_some() {
        let fact = "this is a guest's recording: its times are the guest's, not the host's";
        l.tell(NoteKind::Clock, fact, None);
    }
    l
}

/// Whether anything of the file could not be read.
pub(crate) fn damaged(data: &TraceDat, s: &ReadStats) -> bool {
    s.damaged_places > 0 || !data.damage().is_empty()
}
