//! The trust ledger: what could make a result wrong. Everything that prints a
//! result ends with it; an empty ledger prints nothing.

use std::fmt::Write as _;

/// One reason for less than full trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A stable word for scripts: `lost`, `throttled`, `unresolved`, `multiplexed`, …
    pub kind: &'static str,
    /// What happened, with the figures.
    pub fact: String,
    /// The way out, where there is one.
    pub advice: Option<String>,
}

/// All notes of one result, in the order they were made.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    notes: Vec<Note>,
}

impl Ledger {
    /// Exit status under `--strict` when there is anything to note.
    pub const STRICT_STATUS: u8 = 3;

    /// Adds a note; the same note twice is kept once.
    pub fn note(&mut self, kind: &'static str, fact: impl Into<String>, advice: Option<String>) {
        let note = Note { kind, fact: fact.into(), advice };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes over the notes of another ledger.
    pub fn extend(&mut self, other: Ledger) {
        for n in other.notes {
            if !self.notes.contains(&n) {
                self.notes.push(n);
            }
        }
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The notes.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The text that ends a report: each line starts with `prefix` (perf's
    /// `# ` for stdio reports, nothing on a terminal). Empty for an empty ledger.
    pub fn to_text(&self, prefix: &str) -> String {
        let mut out = String::new();
        if self.notes.is_empty() {
            return out;
        }
        let _ = writeln!(out, "{prefix}Trust:");
        for n in &self.notes {
            let _ = writeln!(out, "{prefix}  {}: {}", n.kind, n.fact);
            if let Some(advice) = &n.advice {
                let _ = writeln!(out, "{prefix}    -> {advice}");
            }
        }
        out
    }

    /// The notes as a JSON array.
    pub fn to_json(&self) -> serde_json::Value {
        self.notes
            .iter()
            .map(|n| serde_json::json!({"kind": n.kind, "fact": n.fact, "advice": n.advice}))
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
        ledger.note("lost", "12 of 100 events lost", Some("a larger ring: -m 1024".into()));
        ledger.note("lost", "12 of 100 events lost", Some("a larger ring: -m 1024".into()));
        assert_eq!(
            ledger.to_text("# "),
            "# Trust:\n#   lost: 12 of 100 events lost\n#     -> a larger ring: -m 1024\n"
        );
    }
}
