//! Values of a selection that no event had, and the values that events had in their place: why a
//! result is empty.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kymo_model::{Note, NoteKind};

/// Most values that a note names.
const MOST_NAMED: usize = 12;
/// Most distinct values of a list.
const MOST_VALUES: usize = 64;

/// Extent of the recordings that a selection was applied to.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedExtent {
    /// Times of the first and the last event, where they are known.
    pub span: Option<(u64, u64)>,
    /// Number of CPUs, where it is known.
    pub cpus: Option<usize>,
}

/// Values of one list, asked for and met: bits by place in the list.
#[derive(Debug, Default)]
pub(crate) struct ListTally {
    asked: AtomicBool,
    met: AtomicU64,
    /// Values that events had, until one of the list is met.
    others: Mutex<Vec<String>>,
    /// There are more than are kept.
    has_more: AtomicBool,
}

impl ListTally {
    /// Notes whether a value is in the list, and where; `other` words one that is not.
    #[inline]
    pub(crate) fn note(&self, place: Option<usize>, other: impl FnOnce() -> Option<String>) {
        if !self.asked.load(Ordering::Relaxed) {
            self.asked.store(true, Ordering::Relaxed);
        }
        let met = self.met.load(Ordering::Relaxed);
        match place {
            Some(place) => {
                let bit = 1 << place.min(MOST_VALUES - 1);
                if met & bit == 0 {
                    self.met.fetch_or(bit, Ordering::Relaxed);
                }
            }
            None if met == 0 && !self.has_more.load(Ordering::Relaxed) => self.keep(other()),
            None => {}
        }
    }

    #[cold]
    fn keep(&self, value: Option<String>) {
        let Some(value) = value else { return };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.contains(&value) {
            return;
        }
        if others.len() < MOST_NAMED {
            others.push(value)
        } else {
            self.has_more.store(true, Ordering::Relaxed)
        }
    }

    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn is_met(&self) -> bool {
        self.met.load(Ordering::Relaxed) != 0
    }

    /// The values of a list that no event had.
    fn unmet<'v, T>(&self, values: &'v [T]) -> Vec<&'v T> {
        let met = self.met.load(Ordering::Relaxed);
        let is_unmet = |n: usize| n >= MOST_VALUES - 1 || met & (1 << n) == 0;
        let several = values.len() >= MOST_VALUES && met != 0;
        let unmet = values.iter().enumerate().filter(|(n, _)| !several && is_unmet(*n));
        unmet.map(|(_, value)| value).collect()
    }

    /// `; the recording has a, b`.
    fn there(&self) -> String {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (n, other) in others.iter().enumerate() {
            let between = if n == 0 { "; the recording has " } else { ", " };
            let _ = write!(text, "{between}{other}");
        }
        if self.has_more.load(Ordering::Relaxed) {
            text += ", and others";
        }
        text
    }
}

/// Counts, for one selection and its clones, which of its values were met.
#[derive(Debug, Default)]
pub(crate) struct SelectionCensus {
    pub(crate) times: ListTally,
    pub(crate) cpus: ListTally,
    pub(crate) pids: ListTally,
    pub(crate) tids: ListTally,
    pub(crate) comms: ListTally,
    pub(crate) events: ListTally,
    pub(crate) filter: ListTally,
}

/// Values of a selection as its flags give them.
pub(crate) struct SelectionValues<'s> {
    pub(crate) times: &'s [(u64, u64)],
    pub(crate) cpus: Vec<u32>,
    pub(crate) pids: &'s [u32],
    pub(crate) tids: &'s [u32],
    pub(crate) comms: &'s [String],
    pub(crate) events: &'s [String],
}

impl SelectionCensus {
    /// Notes on values that no event had: a warning where nothing at all met a condition.
    pub(crate) fn notes(&self, of: &SelectionValues<'_>, extent: RecordedExtent) -> Vec<Note> {
        if let Some(fact) = self.outside(of, extent) {
            return vec![Note::doubt(NoteKind::Empty, fact, None)];
        }
        let mut notes = Vec::new();
        let mut list = |flag: &str, tally: &ListTally, unmet: Vec<String>| {
            if !tally.is_asked() || unmet.is_empty() {
                return;
            }
            let values = unmet.join(",");
            let there = tally.there();
            let fact = format!("no event matches {flag} {values}{there}");
            notes.push(if tally.is_met() {
                Note::choice(NoteKind::Nothing, fact, None)
            } else {
                Note::doubt(NoteKind::Empty, fact, None)
            });
        };
        let numbers = |unmet: Vec<&u32>| unmet.into_iter().map(u32::to_string).collect();
        list("--pid", &self.pids, numbers(self.pids.unmet(of.pids)));
        list("--tid", &self.tids, numbers(self.tids.unmet(of.tids)));
        let comms = self.comms.unmet(of.comms).into_iter().cloned().collect();
        list("--comm", &self.comms, comms);
        if !self.events.is_met() {
            list("--event", &self.events, of.events.to_vec());
        }
        if notes.is_empty() && self.filter.is_asked() && !self.filter.is_met() {
            let fact = "no event matches --filter".to_owned();
            notes.push(Note::doubt(NoteKind::Empty, fact, None));
        }
        notes
    }

    /// The times or the CPUs that no event has, which readers may pass over without asking.
    fn outside(&self, of: &SelectionValues<'_>, extent: RecordedExtent) -> Option<String> {
        let is_unmet = |tally: &ListTally| !tally.is_met();
        if !of.times.is_empty() && is_unmet(&self.times) {
            let apart =
                |(first, last): (u64, u64)| of.times.iter().all(|(a, b)| *b < first || *a > last);
            let span = extent.span.filter(|span| apart(*span));
            if span.is_some() || self.times.is_asked() {
                let spans: Vec<String> = of.times.iter().map(|t| seconds_between(*t)).collect();
                let there = span.map_or_else(String::new, |(first, last)| {
                    format!("; the recording is from {} to {}", seconds(first), seconds(last))
                });
                return Some(format!("no event is within --time {}{there}", spans.join(" ")));
            }
        }
        if !of.cpus.is_empty() && is_unmet(&self.cpus) {
            let beyond = |n: usize| of.cpus.iter().all(|cpu| *cpu as usize >= n);
            let cpus = extent.cpus.filter(|n| beyond(*n));
            if cpus.is_some() || self.cpus.is_asked() {
                let list: Vec<String> = of.cpus.iter().map(u32::to_string).collect();
                let mut there = self.cpus.there();
                if let (Some(n), true) = (cpus, there.is_empty()) {
                    there = match n {
                        1 => "; the machine has CPU 0 alone".to_owned(),
                        n => format!("; the machine has CPUs 0 to {}", n - 1),
                    };
                }
                return Some(format!("no event is on --cpu {}{there}", list.join(",")));
            }
        }
        None
    }
}

fn seconds(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1000)
}

/// As `--time` is written.
fn seconds_between((from, to): (u64, u64)) -> String {
    let end = |nanos: u64, none: u64| if nanos == none { String::new() } else { seconds(nanos) };
    format!("{},{}", end(from, 0), end(to, u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::EventSelection;

    fn facts(s: &EventSelection, extent: RecordedExtent) -> Vec<(String, bool)> {
        let notes = s.unmet_notes(|| extent);
        notes.into_iter().map(|n| (n.fact, n.kind == NoteKind::Empty)).collect()
    }

    #[test]
    fn values_that_no_event_has_are_named_with_those_there_are() {
        let comms = vec!["nosuch".to_owned(), "sh".to_owned()];
        let s = EventSelection::of_tasks(comms, vec![], vec![]);
        // Before anything was asked, nothing is known.
        assert_eq!(facts(&s, RecordedExtent::default()), []);
        let shared = s.clone();
        assert!(!shared.wants_task(Some(7), Some(8), b"sleep"));
        assert!(!shared.wants_task(Some(7), Some(0), b"swapper/0"));
        let expected = "no event matches --comm nosuch,sh; the recording has sleep";
        assert_eq!(facts(&s, RecordedExtent::default()), [(expected.to_owned(), true)]);
        assert!(shared.wants_task(Some(7), Some(9), b"sh"));
        let (fact, is_empty) = facts(&s, RecordedExtent::default()).remove(0);
        assert!(fact.starts_with("no event matches --comm nosuch") && !is_empty, "{fact}");
        let s = EventSelection::of_tasks(vec![], vec![5], vec![6]);
        assert!(!s.wants_task(Some(7), Some(6), b"sleep"));
        let expected = "no event matches --pid 5; the recording has 7 (sleep)";
        assert_eq!(facts(&s, RecordedExtent::default()), [(expected.to_owned(), true)]);
    }

    #[test]
    fn times_and_cpus_are_compared_with_the_recording() {
        let mut s = EventSelection::default();
        s.times = vec![(1_000_000_000, 2_000_000_000)];
        let extent = RecordedExtent { span: Some((5_000_000_000, 6_500_000_000)), cpus: Some(2) };
        let expected = "no event is within --time 1.000000,2.000000; the recording is from \
                        5.000000 to 6.500000";
        assert_eq!(facts(&s, extent), [(expected.to_owned(), true)]);
        s.times = vec![(0, u64::MAX)];
        assert_eq!(facts(&s, extent), []);
        s.set_cpus("63").unwrap();
        let expected = "no event is on --cpu 63; the machine has CPUs 0 to 1";
        assert_eq!(facts(&s, extent), [(expected.to_owned(), true)]);
        assert!(!s.wants_cpu(Some(1)) && s.wants_cpu(Some(63)));
        assert_eq!(facts(&s, extent), []);
    }
}
