//! Spans that programs mark by pairs of tracepoints: `request:begin` and `request:end`,
//! `app:order_start` and `app:order_stop`. A pair is of one thread, and where both events have the
//! first field of the start (a number), of one value of that.

use kymo_events::{
    ClassOrigin, FieldId, FieldPart, FieldType, LayoutMemo, RecordedClass, RecordedEvent,
};
use rustc_hash::FxHashMap;

use super::span_track::{SpanTrack, TrackSpan};

/// Words that begin and end spans.
const BEGINS: [&str; 4] = ["begin", "start", "entry", "enter"];
const ENDS: [&str; 5] = ["end", "stop", "exit", "done", "finish"];
/// Spans within each other that are drawn.
const MOST_DEPTH: usize = 4;
/// Spans of one thread that are open at a time.
const MOST_OPEN: usize = 64;
/// Most names that are distinguished; the rest is merged.
const MOST_NAMES: usize = 4096;

/// Role of a class in the spans of programs.
#[derive(Clone, Debug)]
pub struct SpanRole {
    /// Name that both events share.
    pub name: String,
    /// Whether its events start a span; others end one.
    pub is_begin: bool,
    /// The field that distinguishes spans: of a start its first, of an end by its name.
    pub keys: Vec<(String, FieldId)>,
}

impl SpanRole {
    /// Role of a program's class; `None` if its name is not of a pair.
    pub fn of(class: &RecordedClass) -> Option<SpanRole> {
        let (name, is_begin) = pair_name(&class.full_name)?;
        let own = (0u32..).zip(&class.fields);
        let own = own.filter(|(_, f)| !f.common && f.part == FieldPart::Own);
        let first = own.clone().next();
        let first = first.is_some_and(|(_, f)| matches!(f.field_type, FieldType::Integer { .. }));
        let keys = own.map(|(id, f)| (f.name.clone(), FieldId(id)));
        let keys = if is_begin && !first { Vec::new() } else { keys.collect() };
        Some(SpanRole { name: name.to_owned(), is_begin, keys })
    }
}

/// Role of a class, with the number of its name.
#[derive(Clone, Debug)]
struct PairRole {
    is_begin: bool,
    name: u32,
    keys: Vec<(String, FieldId)>,
}

/// A span that has begun.
#[derive(Clone, Debug)]
pub(super) struct OpenSpan {
    from: u64,
    name: u32,
    depth: usize,
    key: Option<(String, i128)>,
}

/// The pairs of tracepoints of a recording.
#[derive(Debug, Default)]
pub(super) struct ProgramSpans {
    /// Names of spans.
    pub(super) names: Vec<String>,
    numbers: FxHashMap<String, u32>,
    roles: LayoutMemo<Option<PairRole>>,
}

/// The spans of one thread, the outer ones first.
#[derive(Clone, Debug, Default)]
pub struct ThreadSpans {
    /// By depth.
    pub tracks: Vec<SpanTrack>,
    /// Ends whose begin was not seen.
    pub unmatched: u64,
    open: Vec<OpenSpan>,
}

impl ProgramSpans {
    /// Takes an event of a thread.
    pub(super) fn event(&mut self, event: &RecordedEvent<'_>, now: u64, thread: &mut ThreadSpans) {
        if self.roles.get(event.class.layout).is_none() {
            self.learn(event.class);
        }
        let Some(Some(role)) = self.roles.get(event.class.layout) else { return };
        let value = |id: FieldId| event.field(id).number();
        if role.is_begin {
            let key = role.keys.first();
            let key = key.and_then(|(name, id)| Some((name.clone(), value(*id)?)));
            let is_free = |depth: &usize| thread.open.iter().all(|o| o.depth != *depth);
            let depth = (0..MOST_OPEN).find(is_free).unwrap_or(MOST_OPEN);
            if thread.open.len() < MOST_OPEN {
                thread.open.push(OpenSpan { from: now, name: role.name, depth, key });
            }
            return;
        }
        let is_partner = |open: &OpenSpan| {
            open.name == role.name
                && open.key.as_ref().is_none_or(|(name, begun)| {
                    let own = role.keys.iter().find(|(own, _)| own == name);
                    own.and_then(|(_, id)| value(*id)).is_none_or(|ended| ended == *begun)
                })
        };
        match thread.open.iter().rposition(is_partner) {
            Some(at) => {
                let open = thread.open.remove(at);
                thread.push(&open, now);
            }
            None => thread.unmatched += 1,
        }
    }

    #[cold]
    fn learn(&mut self, class: &RecordedClass) {
        let role = (class.origin == ClassOrigin::Program).then(|| self.role(class)).flatten();
        self.roles.insert(class.layout, role);
    }

    fn role(&mut self, class: &RecordedClass) -> Option<PairRole> {
        let SpanRole { name, is_begin, keys } = SpanRole::of(class)?;
        let number = match self.numbers.get(&name) {
            Some(number) => *number,
            None if self.names.len() >= MOST_NAMES => MOST_NAMES as u32 - 1,
            None => {
                let number = self.names.len() as u32;
                self.names.push(name.clone());
                self.numbers.insert(name, number);
                number
            }
        };
        Some(PairRole { is_begin, name: number, keys })
    }
}

/// Splits the name of a class into the name of its span and whether it is the start:
/// `request:begin` is the start of `request`.
pub(super) fn pair_name(full_name: &str) -> Option<(&str, bool)> {
    let strip = |words: &[&str]| {
        words.iter().find_map(|word| {
            let before = full_name.strip_suffix(word)?;
            let name = before.strip_suffix(['_', ':', '-', '.'])?;
            (!name.is_empty()).then_some(name)
        })
    };
    strip(&BEGINS).map(|name| (name, true)).or_else(|| strip(&ENDS).map(|name| (name, false)))
}

impl ThreadSpans {
    fn push(&mut self, open: &OpenSpan, to: u64) {
        if open.depth >= MOST_DEPTH {
            return;
        }
        if self.tracks.len() <= open.depth {
            self.tracks.resize_with(open.depth + 1, SpanTrack::default);
        }
        if let Some(track) = self.tracks.get_mut(open.depth) {
            track.push(TrackSpan { from: open.from, to, code: open.name });
        }
    }

    /// Events of the thread may have been lost: what is open may have ended.
    pub(super) fn forget_open(&mut self) {
        self.open.clear();
    }

    /// Draws what is open at the end of the recording until then.
    pub(super) fn finish(&mut self, end: u64) {
        let mut open = std::mem::take(&mut self.open);
        open.sort_by_key(|o| o.from);
        open.iter().for_each(|o| self.push(o, end));
    }
}

#[cfg(test)]
mod tests {
    use super::pair_name;

    #[test]
    fn pairs_have_one_name() {
        let check = |name: &str, expected| assert_eq!(pair_name(name), expected, "{name}");
        check("request:begin", Some(("request", true)));
        check("request:end", Some(("request", false)));
        check("app:order_start", Some(("app:order", true)));
        check("app:order_stop", Some(("app:order", false)));
        check("app:restart", None);
        check("app:send", None);
        check("begin", None);
        check(":begin", None);
    }
}
