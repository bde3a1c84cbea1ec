//! Notes of the ledger as rows.

use kymo_model::{Note, NoteKind, Weight};

use crate::build::{Put, TableBuilder};

/// Number that a fact begins with.
fn leading_number(fact: &str) -> Option<i64> {
    let end = fact.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(fact.len());
    let (digits, rest) = fact.split_at_checked(end)?;
    // `12.5 s`, `10%` are no counts.
    let is_count = rest.is_empty() || rest.starts_with(' ');
    digits.replace(',', "").parse().ok().filter(|_| is_count)
}

/// Whether a warning says that events are missing or cannot be read.
pub(crate) fn is_loss(note: &Note) -> bool {
    let kinds = [NoteKind::Lost, NoteKind::Damaged, NoteKind::Overwritten, NoteKind::Throttled];
    note.weight == Weight::Doubt && kinds.contains(&note.kind)
}

/// Fills the tables of notes, which are by recording.
pub(crate) fn fill(notes: &[Vec<Note>], stats: &mut TableBuilder, trust: &mut TableBuilder) {
    for (machine, notes) in notes.iter().enumerate() {
        let mut seen: Vec<NoteKind> = Vec::new();
        for note in notes {
            let count = seen.iter().filter(|kind| **kind == note.kind).count();
            seen.push(note.kind);
            let value = leading_number(&note.fact).map_or(Put::Null, Put::Integer);
            let is_doubt = note.weight == Weight::Doubt;
            let severity = if is_loss(note) {
                "data_loss"
            } else if is_doubt {
                "error"
            } else {
                "info"
            };
            let machine = Put::Small(machine as u32);
            stats.row([
                Put::Text(note.kind.code()),
                Put::Null,
                Put::Small(count as u32),
                Put::Text(severity),
                Put::Text(if is_loss(note) { "trace" } else { "analysis" }),
                value,
                Put::Text(&note.fact),
                machine,
            ]);
            trust.row([
                Put::Text(note.kind.code()),
                is_doubt.into(),
                value,
                Put::Text(&note.fact),
                note.advice.as_deref().into(),
                machine,
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_facts_are_counts() {
        let of = leading_number;
        assert_eq!(
            (of("12 events lost"), of("1,234 lost"), of("7")),
            (Some(12), Some(1234), Some(7))
        );
        assert_eq!((of("12.5 s"), of("10%"), of("events"), of("")), (None, None, None, None));
    }
}
