//! Notes for the ledger about events that do not match each other.

use kymo_model::{Note, NoteKind, counted};

use super::read::KmemRead;

fn doubt(kind: NoteKind, fact: String, advice: Option<&str>) -> Note {
    Note::doubt(kind, fact, advice.map(str::to_owned))
}

/// Notes on events of both allocators.
fn common(read: &KmemRead) -> Vec<Note> {
    let mut notes = Vec::new();
    if read.unplaced + read.malformed > 0 {
        let what = counted(read.unplaced + read.malformed, "event", "events");
        let fact = format!("{what} without time, CPU or a field that is needed are left out");
        notes.push(doubt(NoteKind::Malformed, fact, None));
    }
    notes
}

/// Notes on the slab allocator.
pub fn slab_notes(read: &KmemRead) -> Vec<Note> {
    let slab = &read.slab;
    let mut notes = common(read);
    if read.events.0 == 0 {
        let fact = "there are no events of the slab allocator".to_owned();
        notes.push(doubt(NoteKind::Empty, fact, Some("record them: kymo kmem record --slab")));
    }
    if read.losses > 0 && slab.live_uncertain > 0 {
        let what = counted(slab.live_uncertain, "object that is", "objects that are");
        let fact = format!("{what} alive at the end may have been freed when events were lost");
        notes.push(doubt(NoteKind::Lost, fact, None));
    }
    if slab.reused > 0 {
        let what = counted(slab.reused, "address", "addresses");
        let fact = format!(
            "{what} of objects were allocated again without a free in between: it was lost, or was \
             one that has no event (kfree_rcu, bulk frees); the objects count as alive no more"
        );
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    if slab.unmatched_frees > 0 {
        let what = counted(slab.unmatched_frees, "free", "frees");
        let fact = format!("{what} of objects whose allocation is not in the recording");
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    if slab.failed > 0 {
        let what = counted(slab.failed, "allocation", "allocations");
        notes.push(Note::choice(NoteKind::Scope, format!("{what} failed and have no bytes"), None));
    }
    let crowded = slab.crowded + slab.alloc_rows_crowded + read.sites.crowded;
    if crowded > 0 {
        let what = counted(crowded, "allocation", "allocations");
        let fact = format!("{what} not attributed to a caller (table limit reached)");
        notes.push(doubt(NoteKind::Entries, fact, Some("choose fewer: --time, --cpu, --pid")));
    }
    notes
}

/// Notes on allocations and frees of pages.
pub fn page_notes(read: &KmemRead) -> Vec<Note> {
    let pages = &read.pages;
    let mut notes = common(read);
    if read.events.1 == 0 {
        let fact = "there are no events of the page allocator".to_owned();
        notes.push(doubt(NoteKind::Empty, fact, Some("record them: kymo kmem record --page")));
    }
    if read.losses > 0 && pages.live_uncertain > 0 {
        let fact = format!(
            "{} KB that are alive at the end may have been freed when events were lost",
            pages.live_uncertain / 1024
        );
        notes.push(doubt(NoteKind::Lost, fact, None));
    }
    if pages.reused.count > 0 {
        let what = counted(pages.reused.count, "block", "blocks");
        let fact = format!(
            "{what} of pages were allocated again without a free in between; they count as alive no \
             more"
        );
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    if pages.unmatched.count > 0 {
        let what = counted(pages.unmatched.count, "free", "frees");
        let fact = format!("{what} of pages whose allocation is not in the recording");
        notes.push(Note::choice(NoteKind::Unmatched, fact, None));
    }
    if read.chains.without() > 0 && pages.requests.count > 0 {
        let fact = format!(
            "{} have no call chain",
            counted(read.chains.without(), "allocation", "allocations")
        );
        notes.push(Note::choice(
            NoteKind::Stacks,
            fact,
            Some("kymo kmem record --page".to_owned()),
        ));
    }
    let crowded = pages.crowded + read.chains.crowded + read.sites.crowded;
    if crowded > 0 {
        let what = counted(crowded, "allocation", "allocations");
        let fact = format!("{what} not attributed to a caller or call chain (table limit reached)");
        notes.push(doubt(NoteKind::Entries, fact, Some("choose fewer: --time, --cpu, --pid")));
    }
    notes
}

/// Notes on events by process.
pub fn process_notes(read: &KmemRead) -> Vec<Note> {
    let mut notes = Vec::new();
    if read.processes.unknown_fragmenting > 0 {
        let what = counted(read.processes.unknown_fragmenting, "fallback", "fallbacks");
        let fact = format!("{what}: the recording does not contain the order of pageblocks");
        notes.push(doubt(NoteKind::Missing, fact, None));
    }
    if read.processes.crowded > 0 {
        let what = counted(read.processes.crowded, "event", "events");
        let fact = format!("{what} of further threads in one row (table limit reached)");
        notes.push(doubt(NoteKind::Entries, fact, None));
    }
    notes
}
