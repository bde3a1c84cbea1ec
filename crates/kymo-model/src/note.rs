//! Note on a result, from any crate. The command collects these notes into the ledger
//! (`kymo_view::Ledger`), which lays them out and decides about `--strict`.

use crate::counted::counted;
use crate::note_kind::{NoteKind, Weight};

/// One thing to know about a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Kind of the note, whose code scripts look at.
    pub kind: NoteKind,
    /// The fact, with its figures.
    pub fact: String,
    /// The way out, where there is one.
    pub advice: Option<String>,
    /// Whether it lessens the trust in the result, or only states a choice
    /// that was made for the user.
    pub weight: Weight,
}

impl Note {
    /// A reason for less than full trust.
    pub fn doubt(kind: NoteKind, fact: impl Into<String>, advice: Option<String>) -> Note {
        Note::new(kind, Weight::Doubt, fact.into(), advice)
    }

    /// A choice made for the user, or another fact that takes nothing from the result.
    pub fn choice(kind: NoteKind, fact: impl Into<String>, advice: Option<String>) -> Note {
        Note::new(kind, Weight::Choice, fact.into(), advice)
    }

    fn new(kind: NoteKind, weight: Weight, fact: String, advice: Option<String>) -> Note {
        debug_assert!(
            kind.weights().contains(&weight),
            "docs/trust.md says of `{kind}` that it is no {weight}"
        );
        Note { kind, fact, advice, weight }
    }
}

/// Notes in the order in which they are found.
#[derive(Clone, Debug, Default)]
pub struct NoteList(pub Vec<Note>);

impl NoteList {
    /// Adds a reason for less than full trust.
    pub fn doubt(&mut self, kind: NoteKind, fact: impl Into<String>, advice: Option<&str>) {
        self.0.push(Note::doubt(kind, fact, advice.map(str::to_owned)));
    }

    /// Adds a choice, or another fact that takes nothing from the result.
    pub fn choice(&mut self, kind: NoteKind, fact: impl Into<String>, advice: Option<&str>) {
        self.0.push(Note::choice(kind, fact, advice.map(str::to_owned)));
    }

    /// Adds a reason for less than full trust for `n` things, unless there is none of them.
    pub fn counted(&mut self, n: u64, kind: NoteKind, one: &str, more: &str) {
        if n > 0 {
            self.doubt(kind, counted(n, one, more), None);
        }
    }

    /// Adds notes of others.
    pub fn extend(&mut self, notes: impl IntoIterator<Item = Note>) {
        self.0.extend(notes);
    }
}
