//! Events of the kernel that could not be rendered, and what is said of them.

use std::collections::BTreeMap;

use kymo_model::{Note, NoteKind, counted};

/// Counts of events that could not be rendered.
#[derive(Debug, Default)]
pub(crate) struct Unrendered {
    /// Payloads: event, reason, count.
    payloads: BTreeMap<u16, (String, u64)>,
    /// Events that are too short to name their class.
    pub(crate) short: u64,
}

impl Unrendered {
    /// Counts a payload.
    #[cold]
    pub(crate) fn add(&mut self, id: u16, why: &str) {
        self.payloads.entry(id).or_insert_with(|| (why.to_owned(), 0)).1 += 1;
    }

    /// Notes on those of several renderers.
    pub(crate) fn notes<'u>(of: impl Iterator<Item = &'u Unrendered> + Clone) -> Vec<Note> {
        let mut notes = Vec::new();
        let short: u64 = of.clone().map(|u| u.short).sum();
        if short > 0 {
            let fact = counted(
                short,
                "event is too short to name its kind",
                "events are too short to name their kind",
            );
            notes.push(Note::doubt(NoteKind::Malformed, fact, None));
        }
        let mut all = BTreeMap::<u16, (&str, u64)>::new();
        for (id, (why, n)) in of.flat_map(|u| &u.payloads) {
            all.entry(*id).or_insert((why, 0)).1 += n;
        }
        for (id, (why, n)) in all {
            let fact = format!("{n} payloads of event {id} are not shown: {why}");
            notes.push(Note::doubt(NoteKind::Payload, fact, None));
        }
        notes
    }
}
