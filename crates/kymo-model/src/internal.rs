//! Errors of ours, counted while the program runs: a number that leads nowhere must not
//! look like a small one in a result. The ledger has a note of each kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::{Note, NoteKind};

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts an internal error: an invalid index into `element`. Tests stop here; a user's run
/// continues and reports it in the ledger.
#[cold]
#[inline(never)]
#[track_caller]
pub fn internal_error(element: &'static str) {
    debug_assert!(false, "no {element} has this number");
    count_internal_error(element);
}

fn count_internal_error(element: &'static str) {
    *COUNTS.lock().unwrap_or_else(PoisonError::into_inner).entry(element).or_insert(0) += 1;
}

/// Notes of the internal errors so far; usually none.
pub fn internal_error_notes() -> Vec<Note> {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let note = |(element, n): (&&str, &u64)| {
        let times = if *n == 1 { "once".to_owned() } else { format!("{n} times") };
        let fact = format!("the number of a {element} led nowhere, {times}");
        let advice = "this is an error in kymo: report it, with the recording if you can";
        Note::doubt(NoteKind::Internal, fact, Some(advice.to_owned()))
    };
    counts.iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_becomes_a_doubt() {
        count_internal_error("specimen");
        count_internal_error("specimen");
        let notes = internal_error_notes();
        let note = notes.iter().find(|n| n.fact.contains("specimen")).unwrap();
        assert_eq!(note.fact, "the number of a specimen led nowhere, 2 times");
        assert_eq!((note.kind, note.weight), (NoteKind::Internal, crate::Weight::Doubt));
    }
}
