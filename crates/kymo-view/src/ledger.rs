//! The trust ledger: what could make a result wrong. Everything that prints a
//! result ends with it; an empty ledger prints nothing.

use std::borrow::Cow;
use std::fmt::Write as _;

use kymo_model::{Note, NoteKind, Weight, counted, internal_error_notes};

use crate::units::visible;

/// All notes of one result, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    notes: Vec<Note>,
}

impl Ledger {
    /// Exit status under `--strict` when there is anything to note.
    pub const STRICT_STATUS: u8 = 3;

    /// Ledger of these notes; the same note twice is kept once.
    pub fn from_notes(notes: impl IntoIterator<Item = Note>) -> Ledger {
        let mut ledger = Ledger::default();
        notes.into_iter().for_each(|n| ledger.push(n));
        ledger
    }

    /// Adds a reason for less than full trust; the same note twice is kept once.
    pub fn note(&mut self, kind: NoteKind, fact: impl Into<String>, advice: Option<String>) {
        self.push(Note::doubt(kind, fact, advice));
    }

    /// Adds a fact that takes nothing from the result: a choice made for the user.
    pub fn tell(&mut self, kind: NoteKind, fact: impl Into<String>, advice: Option<String>) {
        self.push(Note::choice(kind, fact, advice));
    }

    /// Adds a note of either kind; the same note twice is kept once.
    pub fn push(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes over the notes of another ledger.
    pub fn extend(&mut self, other: Ledger) {
        other.notes.into_iter().for_each(|n| self.push(n));
    }

    /// All notes, and those on errors of ours, which no result may be without.
    fn complete(&self) -> impl Iterator<Item = Cow<'_, Note>> {
        let internal = internal_error_notes().into_iter().map(Cow::Owned);
        self.notes.iter().map(Cow::Borrowed).chain(internal)
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.complete().next().is_none()
    }

    /// Whether anything lessens the trust in the result, which `--strict` minds.
    pub fn has_doubts(&self) -> bool {
        self.complete().any(|n| n.weight == Weight::Doubt)
    }

    /// The notes.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The text that ends a report: each line starts with `prefix` (perf's
    /// `# ` for stdio reports, nothing on a terminal), doubts first. Empty for an
    /// empty ledger.
    pub fn to_text(&self, prefix: &str) -> String {
        let mut out = String::new();
        for (weight, title) in [(Weight::Doubt, "Trust:"), (Weight::Choice, "Note:")] {
            let mut of_weight = self.complete().filter(|n| n.weight == weight).peekable();
            if of_weight.peek().is_some() {
                let _ = writeln!(out, "{prefix}{title}");
            }
            for n in of_weight {
                let _ = writeln!(out, "{prefix}  {}: {}", n.kind, visible(&n.fact));
                if let Some(advice) = &n.advice {
                    let _ = writeln!(out, "{prefix}    -> {}", visible(advice));
                }
            }
        }
        out
    }

    /// The text for the first screen: warnings only, in `lines` lines at most; `all` shows the rest.
    pub fn to_screen(&self, lines: usize, all: &str) -> String {
        let mut text: Vec<String> = Vec::new();
        for n in self.complete().filter(|n| n.weight == Weight::Doubt) {
            text.push(format!("  {}: {}", n.kind, visible(&n.fact)));
            text.extend(n.advice.iter().map(|advice| format!("    -> {}", visible(advice))));
        }
        if text.is_empty() {
            return String::new();
        }
        if text.len() > lines {
            // Advice without its warning is not understood.
            let mut kept = lines.saturating_sub(1);
            while kept > 0 && text.get(kept).is_some_and(|line| line.starts_with("    ->")) {
                kept -= 1;
            }
            let rest = counted((text.len() - kept) as u64, "more line", "more lines");
            text.truncate(kept);
            text.push(format!("  {rest}: {all}"));
        }
        format!("Trust:\n{}\n", text.join("\n"))
    }

    /// The notes as a JSON array.
    pub fn to_json(&self) -> serde_json::Value {
        self.complete()
            .map(|n| {
                let doubt = n.weight == Weight::Doubt;
                serde_json::json!({
                    "kind": n.kind.code(), "fact": n.fact, "advice": n.advice, "doubt": doubt
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_means_nothing_of_the_kind() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.to_text("# "), "");
        ledger.note(NoteKind::Lost, "12 of 100 events lost", Some("a larger ring: -m 1024".into()));
        ledger.note(NoteKind::Lost, "12 of 100 events lost", Some("a larger ring: -m 1024".into()));
        assert_eq!(
            ledger.to_text("# "),
            "# Trust:\n#   lost: 12 of 100 events lost\n#     -> a larger ring: -m 1024\n"
        );
        assert!(ledger.has_doubts());
    }

    #[test]
    fn the_first_screen_has_few_lines() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.to_screen(5, "-v"), "");
        ledger.tell(NoteKind::Stacks, "all complete", None);
        assert_eq!(ledger.to_screen(5, "-v"), "");
        for n in 0..2 {
            ledger.note(NoteKind::Lost, format!("{n} events"), Some("a larger buffer".into()));
        }
        let two = "Trust:\n  lost: 0 events\n    -> a larger buffer\n  lost: 1 events\n    -> a larger \
                   buffer\n";
        assert_eq!(ledger.to_screen(4, "-v"), two);
        let one = "Trust:\n  lost: 0 events\n    -> a larger buffer\n  2 more lines: -v\n";
        assert_eq!(ledger.to_screen(3, "-v"), one);
    }

    #[test]
    fn what_is_only_told_is_no_doubt() {
        let mut ledger = Ledger::default();
        ledger.tell(NoteKind::DefaultEvent, "recording cpu-clock", None);
        assert!(!ledger.has_doubts() && !ledger.is_empty());
        assert_eq!(ledger.to_text(""), "Note:\n  default-event: recording cpu-clock\n");
        ledger.note(NoteKind::Lost, "1 event", None);
        assert_eq!(
            ledger.to_text(""),
            "Trust:\n  lost: 1 event\nNote:\n  default-event: recording cpu-clock\n"
        );
    }
}
