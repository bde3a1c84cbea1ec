//! Notes about events that programs wrote and that were not saved: lost, overwritten, damaged.

use kymo_model::{Note, NoteKind, by_number, counted};

use super::drain::DrainStats;
use super::mount_namespace::MountNamespace;

impl DrainStats {
    /// Notes on what is missing, behind those on what was passed over.
    pub fn notes(&self, passed_over: &[String]) -> Vec<Note> {
        let doubt = |text: &String| Note::doubt(NoteKind::Program, text.clone(), None);
        let mut notes: Vec<Note> = passed_over.iter().map(doubt).collect();
        let lost = |fact: String, advice: String| Note::doubt(NoteKind::Lost, fact, Some(advice));
        let shared = MountNamespace::here().base().display().to_string();
        if self.without_memory > 0 {
            let n = self.without_memory;
            let fact = format!(
                "{} discarded: there was no memory for rings in {shared}",
                counted(n, "event", "events")
            );
            notes.push(lost(fact, format!("make room in {shared}: df -h {shared}")));
        }
        let discarded = self.discarded.saturating_sub(self.without_memory);
        if discarded > 0 {
            let large = match self.too_large {
                0 => String::new(),
                n => format!(" ({n} larger than a sub-buffer)"),
            };
            let fact = format!(
                "{} discarded: rings were full{large}",
                counted(discarded, "event", "events")
            );
            notes.push(lost(fact, "more room: --buffer-size 64M; or a --filter".to_owned()));
        }
        if self.overwritten > 0 {
            // Overwriting rings lose packets by design.
            let packets = self.overwritten;
            let fact = match self.overwritten_events {
                0 => counted(
                    packets,
                    "packet was overwritten before it was read",
                    "packets were overwritten before they were read",
                ),
                events => format!(
                    "{} ({}) {} overwritten before {} taken",
                    counted(events, "event", "events"),
                    counted(packets, "packet", "packets"),
                    by_number(events, "was", "were"),
                    by_number(events, "it was", "they were")
                ),
            };
            let advice = "to keep more: a larger --buffer-size".to_owned();
            notes.push(Note::choice(NoteKind::Overwritten, fact, Some(advice)));
        }
        let lost_events = |n: u64| counted(n, "event lost", "events lost");
        let n = self.without_address_space;
        if n > 0 {
            let fact =
                format!("{}: a program may not have the memory for its ring", lost_events(n));
            let advice = "a smaller --buffer-size, or a higher limit of the program: ulimit -v";
            notes.push(lost(fact, advice.to_owned()));
        }
        let n = self.without_ring.saturating_sub(n);
        if n > 0 {
            let fact = format!("{}: a program could not make its ring", lost_events(n));
            notes.push(lost(fact, format!("make room in {shared}: df -h {shared}")));
        }
        if self.cut > 0 {
            let programs = if self.cut == 1 { "program" } else { "programs" };
            let fact = format!(
                "files of {} {programs} were cut short by another process: events that were in \
                 their rings, and all since, are lost; how many is not known",
                self.cut
            );
            let advice = format!("only programs and kymo may write into {shared}/kymo-UID");
            notes.push(lost(fact, advice));
        }
        if self.damaged > 0 {
            let fact = counted(
                self.damaged,
                "place in rings did not hold what it should",
                "places in rings did not hold what they should",
            );
            notes.push(Note::doubt(NoteKind::Damaged, fact, None));
        }
        notes
    }
}
