//! The notes about what was read of CTF traces.

use kymo_files::ctf::read::{Ctf, ReadStats, Times};
use kymo_model::NoteKind;
use kymo_view::Ledger;

/// What could make a result of the traces less than the truth.
pub(crate) fn ledger(ctf: &Ctf, s: &ReadStats) -> Ledger {
    let mut l = Ledger::default();
    let more = || Some("record with larger or more sub-buffers".to_owned());
    if s.lost > 0 {
        let (n, places) = (s.lost, s.lost_places);
        l.note(
            NoteKind::Lost,
            format!("{n} events discarded by the tracer in {places} places"),
            more(),
        );
    }
    if s.lost_at_start > 0 {
        let fact = format!(
            "{} events had been discarded when the first packets ended, perhaps before the \
             trace begins",
            s.lost_at_start
        );
        l.note(NoteKind::Lost, fact, more());
    }
    if s.lost_packets > 0 {
        let (n, places) = (s.lost_packets, s.lost_packet_places);
        let fact = format!("{n} packets are missing in {places} places, with all their events");
        l.note(NoteKind::Lost, fact, more());
    }
    if s.out_of_order > 0 {
        let fact = format!("{} events are older than the one before them", s.out_of_order);
        l.note(NoteKind::Order, fact, None);
    }
    for d in ctf.damage() {
        l.note(NoteKind::Damaged, d.clone(), None);
    }
    for d in &s.damaged {
        l.note(NoteKind::Damaged, d.to_string(), None);
    }
    let more = s.damaged_places.saturating_sub(s.damaged.len() as u64);
    if more > 0 {
        l.note(NoteKind::Damaged, format!("{more} more places"), None);
    }
    for remark in ctf.remarks() {
        l.tell(NoteKind::Metadata, remark, None);
    }
    if ctf.times() == Times::Real && ctf.traces().len() > 1 {
        let fact = "the traces have clocks of their own: times are real time, as good as each \
                    clock's offset";
        l.tell(NoteKind::Clock, fact, None);
    }
    if ctf.traces().iter().any(|t| t.clock().is_none()) {
        let fact = "a trace has no clock: its times are the numbers in it, if any";
        l.tell(NoteKind::Clock, fact, None);
    }
    l
}

/// Whether anything of the traces could not be read.
pub(crate) fn damaged(ctf: &Ctf, s: &ReadStats) -> bool {
    s.damaged_places > 0 || !ctf.damage().is_empty()
}
