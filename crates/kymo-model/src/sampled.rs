//! Tracepoints of which hits may be missing, as perf's -F and -c mean it for all events.

use crate::{Attr, AttrFlags, EventType, Note, NoteKind, SampleType, by_number};

/// Most names in a note.
const MOST_NAMES: usize = 3;

/// Note on events whose sampling lowers counts, pairs and times, if there are any.
pub fn sampled_tracepoints<'a>(events: impl Iterator<Item = (&'a str, &'a Attr)>) -> Option<Note> {
    let is_sampled = |attr: &Attr| {
        attr.kind == EventType::TRACEPOINT
            && attr.sample_period > 0
            && (attr.flags.contains(AttrFlags::FREQ)
                // The kernel records every hit where samples are to tell their period
                // (`perf_swevent_event` in kernel/events/core.c).
                || attr.sample_period > 1 && !attr.sample_type.contains(SampleType::PERIOD))
    };
    let names: Vec<&str> = events.filter(|(_, attr)| is_sampled(attr)).map(|(n, _)| n).collect();
    let named = names.get(..MOST_NAMES.min(names.len()))?.join(", ");
    let more = match names.len().saturating_sub(MOST_NAMES) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let number = names.len() as u64;
    let they_are = by_number(number, "it is", "they are");
    let fact =
        format!("hits of {named}{more} may be missing: {they_are} sampled, as -F and -c ask for");
    let advice = "for every hit record without -F and -c; a rate of one event alone is \
                  -e cpu-clock/freq=4000/";
    (number > 0).then(|| Note::doubt(NoteKind::Sampled, fact, Some(advice.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_a_rate_of_their_own_are_whole() {
        let attr =
            |kind, sample_period, flags| Attr { kind, sample_period, flags, ..Attr::default() };
        let whole = attr(EventType::TRACEPOINT, 1, AttrFlags::default());
        let by_rate = attr(EventType::TRACEPOINT, 4000, AttrFlags::FREQ);
        let each_tenth = attr(EventType::TRACEPOINT, 10, AttrFlags::default());
        let with_periods = Attr { sample_type: SampleType::PERIOD, ..each_tenth.clone() };
        let clock = attr(EventType::SOFTWARE, 4000, AttrFlags::FREQ);
        let uncounted = attr(EventType::TRACEPOINT, 0, AttrFlags::FREQ);
        let none = [("a", &whole), ("b", &clock), ("c", &uncounted), ("d", &with_periods)];
        assert_eq!(sampled_tracepoints(none.into_iter()), None);
        let note = |events: &[(&str, &Attr)]| {
            sampled_tracepoints(events.iter().copied()).map(|note| note.fact).unwrap_or_default()
        };
        let one = note(&[("a", &whole), ("b", &by_rate)]);
        assert!(one.starts_with("hits of b may be missing: it is sampled"), "{one}");
        let many = note(&[("b", &by_rate), ("c", &each_tenth), ("d", &by_rate), ("e", &by_rate)]);
        assert!(
            many.starts_with("hits of b, c, d and 1 more may be missing: they are sampled"),
            "{many}"
        );
    }
}
