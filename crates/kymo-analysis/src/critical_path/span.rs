//! Spans of a program's events: `begin-event -> end-event by key`, and matching them.

use kymo_events::{FieldValue, FilterExpr, LayoutMemo, RecordedClass, RecordedEvent};
use rustc_hash::FxHashMap;

/// Begins without an end that are remembered.
const MAX_OPEN: usize = 1 << 16;

/// A span that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} in the span {text:?}; it reads A -> B by FIELD (A and B may have `if FILTER`, \
         `by` may name a field of each: by pid=next_pid; without it the thread is the key)"
)]
pub struct SpanError {
    text: String,
    what: String,
}

/// An event with a condition.
#[derive(Clone, Debug)]
struct SpanEvent {
    name: String,
    filter: Option<FilterExpr>,
}

/// `A [if FILTER] -> B [if FILTER] [by FIELD]`.
#[derive(Clone, Debug)]
pub struct SpanExpr {
    begin: SpanEvent,
    end: SpanEvent,
    key: Option<(String, String)>,
}

/// Value that the start and the end of a span share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SpanKey {
    Number(i128),
    Text(Vec<u8>),
}

/// Side of a span that an event may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpanSide {
    Begin,
    End,
}

impl SpanExpr {
    /// Reads a span.
    ///
    /// # Errors
    /// If the text is none.
    pub fn parse(text: &str) -> Result<SpanExpr, SpanError> {
        let error = |what: String| SpanError { text: text.to_owned(), what };
        let (begin, rest) = text.split_once("->").ok_or_else(|| error("no `->`".to_owned()))?;
        let (end, key) = match rest.rsplit_once(" by ") {
            Some((end, key)) => (end, Some(key.trim())),
            None => (rest, None),
        };
        let event = |text: &str| {
            let (name, filter) = match text.trim().split_once(" if ") {
                Some((name, filter)) => (name.trim(), Some(filter)),
                None => (text.trim(), None),
            };
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err(error("no single event".to_owned()));
            }
            let filter = filter.map(FilterExpr::parse).transpose();
            let filter = filter.map_err(|e| error(e.to_string()))?;
            Ok(SpanEvent { name: name.to_owned(), filter })
        };
        let key = key.map(|key| key.split_once('=').unwrap_or((key, key)));
        let is_name =
            |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let key = key.map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()));
        if key.as_ref().is_some_and(|(a, b)| !is_name(a) || !is_name(b)) {
            return Err(error("no field after `by`".to_owned()));
        }
        Ok(SpanExpr { begin: event(begin)?, end: event(end)?, key })
    }

    /// Names of its events.
    pub fn events(&self) -> [&str; 2] {
        [&self.begin.name, &self.end.name]
    }

    fn event(&self, side: SpanSide) -> &SpanEvent {
        match side {
            SpanSide::Begin => &self.begin,
            SpanSide::End => &self.end,
        }
    }

    fn field(&self, side: SpanSide) -> Option<&str> {
        let (begin, end) = self.key.as_ref()?;
        Some(match side {
            SpanSide::Begin => begin,
            SpanSide::End => end,
        })
    }

    fn key_of(&self, side: SpanSide, event: &RecordedEvent<'_>) -> Option<SpanKey> {
        let Some(field) = self.field(side) else {
            return event.task().tid.map(|tid| SpanKey::Number(i128::from(tid)));
        };
        let Some(field) = event.class.field(field) else {
            // As in count --latency: the thread or the process that an event is of.
            let id = match field {
                "tid" => event.task().tid,
                "pid" => event.task().pid,
                _ => None,
            };
            return id.map(|id| SpanKey::Number(i128::from(id)));
        };
        Some(match event.field(field) {
            FieldValue::Text(text) => SpanKey::Text(text.into_owned()),
            value => SpanKey::Number(value.number()?),
        })
    }
}

/// A span that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedSpan {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Matches ends to begins; of several begins the last counts.
#[derive(Debug, Default)]
pub(super) struct SpanMatcher {
    open: FxHashMap<SpanKey, u64>,
    /// Sides that a class may be.
    sides: LayoutMemo<Vec<SpanSide>>,
    /// Begins without end, ends without begin, events without the field.
    pub(super) unmatched: (u64, u64, u64),
}

impl SpanMatcher {
    /// Takes an event; answers whether it belongs to spans, and the span that it ends.
    pub(super) fn event(
        &mut self,
        expr: &SpanExpr,
        event: &RecordedEvent<'_>,
    ) -> (bool, Option<EndedSpan>) {
        let sides = self.sides.get_or_make(event.class, |class| sides_of(expr, class));
        let sides = sides.cloned().unwrap_or_default();
        let mut ended = None;
        // An event that is both ends one and begins the next.
        for side in &sides {
            let filter = expr.event(*side).filter.as_ref();
            let matches = |f: &FilterExpr| f.bind(event.class).is_some_and(|b| b.matches(event));
            let Some(time) = event.time.filter(|_| filter.is_none_or(matches)) else { continue };
            let Some(key) = expr.key_of(*side, event) else {
                self.unmatched.2 += 1;
                continue;
            };
            match side {
                SpanSide::End => match self.open.remove(&key) {
                    Some(from) => ended = Some(EndedSpan { from: from.min(time), to: time }),
                    None => self.unmatched.1 += 1,
                },
                SpanSide::Begin => {
                    let has_room = self.open.len() < MAX_OPEN || self.open.contains_key(&key);
                    let before = has_room.then(|| self.open.insert(key, time));
                    self.unmatched.0 += u64::from(!matches!(before, Some(None)));
                }
            }
        }
        (!sides.is_empty(), ended)
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) {
        self.unmatched.0 += self.open.len() as u64;
    }
}

fn sides_of(expr: &SpanExpr, class: &RecordedClass) -> Vec<SpanSide> {
    let is = |side: &SpanSide| class.is_named(&expr.event(*side).name);
    [SpanSide::End, SpanSide::Begin].into_iter().filter(is).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_or_refused_with_a_reason() {
        let span = SpanExpr::parse("shop:sale -> shop:paid if sum > 3 by id=order").unwrap();
        assert_eq!(span.events(), ["shop:sale", "shop:paid"]);
        assert_eq!(span.key, Some(("id".to_owned(), "order".to_owned())));
        assert!(span.end.filter.is_some() && span.begin.filter.is_none());
        assert_eq!(SpanExpr::parse("a -> b").unwrap().key, None);
        for bad in ["a", "a -> ", "a b -> c", "a -> b by ", "a -> b by x y", "a if ( -> b"] {
            assert!(SpanExpr::parse(bad).is_err(), "{bad}");
        }
    }
}
