//! Answers of commands, cut to a size: sums first, then rows from an offset.

use kymo_model::UntrustedText;
use serde_json::{Map, Value, json};

/// Most bytes of an answer.
pub(super) const MOST_BYTES: usize = 16_000;

/// Rows of a table, elements of lists within rows, and characters of texts: the first that fits.
const SIZES: [(usize, usize, usize); 9] = [
    (400, 50, 400),
    (200, 20, 200),
    (100, 10, 200),
    (50, 10, 120),
    (20, 5, 100),
    (10, 3, 80),
    (5, 2, 60),
    (2, 1, 40),
    (1, 1, 20),
];
/// Notes of a ledger, and characters of their texts.
const NOTES: (usize, usize) = (8, 240);

/// A text without control characters, of limited size.
pub(super) fn cut_text(text: &str, most: usize) -> String {
    let text = UntrustedText::new(text).to_text().into_owned();
    if text.len() <= most {
        return text;
    }
    let kept = text.get(..text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
    format!("{}…", kept.unwrap_or_default())
}

/// An answer under way.
struct Cut {
    items: usize,
    characters: usize,
    /// Something was left out.
    is_cut: bool,
}

impl Cut {
    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let most = self.characters;
                let plain = cut_text(text, usize::MAX);
                self.is_cut |= plain.len() > most;
                Value::String(cut_text(text, most))
            }
            Value::Array(list) => {
                self.is_cut |= list.len() > self.items;
                list.iter().take(self.items).map(|item| self.value(item)).collect()
            }
            Value::Object(members) => {
                let members = members.iter();
                members.map(|(name, value)| (cut_text(name, 100), self.value(value))).collect()
            }
            other => other.clone(),
        }
    }
}

fn ledger(notes: &[Value]) -> Value {
    let mut cut = Cut { items: NOTES.0, characters: NOTES.1, is_cut: false };
    // Doubts come before what states how the answer was obtained.
    let mut sorted: Vec<&Value> = notes.iter().collect();
    sorted.sort_by_key(|note| note["doubt"] != Value::Bool(true));
    let mut shown: Vec<Value> = sorted.iter().take(NOTES.0).map(|n| cut.value(n)).collect();
    if notes.len() > shown.len() {
        shown.push(json!({"more": notes.len() - shown.len()}));
    }
    Value::Array(shown)
}

/// The answer of a command, a JSON object: members that are no tables, then rows of its tables.
pub(super) fn of_object(answer: &Value, notes: &[Value], offset: usize) -> String {
    let none = Map::new();
    let members = answer.as_object().unwrap_or(&none);
    let (tables, sums): (Vec<_>, Vec<_>) =
        members.iter().partition(|(_, value)| value.as_array().is_some_and(|rows| is_table(rows)));
    fit(|rows, items, characters| {
        let mut cut = Cut { items, characters, is_cut: false };
        let summary: Map<String, Value> =
            sums.iter().map(|(name, value)| (cut_text(name, 100), cut.value(value))).collect();
        let (mut shown, mut counts) = (Map::new(), Map::new());
        let mut next = None;
        for (name, all) in &tables {
            let all = all.as_array().map_or(&[][..], Vec::as_slice);
            let from = all.get(offset..).unwrap_or_default();
            let taken = from.iter().take(rows).map(|row| cut.value(row)).collect();
            if from.len() > rows {
                next = Some(offset + rows);
            }
            let _ = shown.insert(cut_text(name, 100), Value::Array(taken));
            let _ = counts.insert(cut_text(name, 100), all.len().into());
        }
        let is_cut = cut.is_cut || next.is_some();
        json!({
            "summary": summary, "tables": shown, "rows": counts, "truncated": is_cut, "next": next,
            "ledger": ledger(notes),
        })
    })
}

/// Rows of a query, a JSON object a line.
pub(super) fn of_rows(lines: &[Value], notes: &[Value], offset: usize) -> String {
    fit(|rows, items, characters| {
        let mut cut = Cut { items, characters: characters.max(200), is_cut: false };
        let from = lines.get(offset..).unwrap_or_default();
        let shown: Vec<Value> = from.iter().take(rows).map(|row| cut.value(row)).collect();
        let next = (from.len() > rows).then(|| offset + rows);
        json!({
            "rows": shown, "total": lines.len(), "truncated": cut.is_cut || next.is_some(),
            "next": next, "ledger": ledger(notes),
        })
    })
}

/// A table has rows, each of which is an object.
fn is_table(rows: &[Value]) -> bool {
    rows.iter().all(Value::is_object)
}

/// The largest form that fits.
fn fit(form: impl Fn(usize, usize, usize) -> Value) -> String {
    for (rows, items, characters) in SIZES {
        let text = form(rows, items, characters).to_string();
        if text.len() <= MOST_BYTES {
            return text;
        }
    }
    json!({"truncated": true, "error": "not even one row fits: choose columns by a query"})
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows come, once and in order, by following `next`.
    #[test]
    fn pages_are_the_whole() {
        let rows: Vec<Value> = (0..3000).map(|n| json!({"n": n, "name": "x".repeat(30)})).collect();
        let (mut seen, mut offset) = (Vec::new(), Some(0));
        while let Some(at) = offset {
            let text = of_rows(&rows, &[], at);
            assert!(text.len() <= MOST_BYTES);
            let page: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(page["total"], 3000);
            seen.extend(page["rows"].as_array().unwrap().clone());
            offset = page["next"].as_u64().map(|next| next as usize);
            assert_eq!(page["truncated"], offset.is_some());
        }
        assert_eq!(seen, rows);
    }

    #[test]
    fn whatever_is_large_is_cut_and_says_so() {
        let long = "ü".repeat(100_000);
        let wide: Map<String, Value> = (0..5000).map(|n| (format!("c{n}"), json!(n))).collect();
        for answer in [
            json!({"total": 1, "rows": [{"name": long}]}),
            json!({"name": long}),
            json!({"deep": {"list": vec![1; 100_000]}}),
            json!({"rows": vec![json!({"stack": vec!["f"; 1000]}); 1000]}),
            json!({"rows": [wide]}),
        ] {
            let notes = vec![json!({"doubt": true, "fact": long}); 100];
            let text = of_object(&answer, &notes, 0);
            assert!(text.len() <= MOST_BYTES, "{}", text.len());
            let page: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(page["truncated"], true, "{text}");
        }
        assert_eq!(of_object(&json!([]), &[], 7), of_object(&json!({}), &[], 0));
    }

    #[test]
    fn texts_have_no_control_characters_and_doubts_come_first() {
        let text = of_object(&json!({"a\x1b[2J": "b\x1b]0;c\x07\n"}), &[], 0);
        let page: Value = serde_json::from_str(&text).unwrap();
        for (name, value) in page["summary"].as_object().unwrap() {
            let value = value.as_str().unwrap();
            assert!(
                !name.contains(char::is_control) && !value.contains(char::is_control),
                "{text}"
            );
        }
        let notes =
            [json!({"doubt": false, "fact": "how"}), json!({"doubt": true, "fact": "lost"})];
        let page: Value = serde_json::from_str(&of_rows(&[], &notes, 0)).unwrap();
        assert_eq!(page["ledger"][0]["fact"], "lost");
    }
}
