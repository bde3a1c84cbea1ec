//! Spans of time in which events were lost, shared between the reader that finds them and the
//! analyses that read the same recording.
//!
//! A reader adds a window before it hands out an event that is later than the window's start:
//! the readers of all formats see the next event of a stream before they leave the last one. So
//! no pass over the recording is needed to find losses first.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Spans kept apart; where there are more, neighbors are joined.
const MOST: usize = 1 << 16;

/// Spans of time in which events were lost. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LossWindows(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Whether there is a span: what most recordings are asked for is answered by this alone.
    any: AtomicBool,
    /// Spans that were found after events later than their start had been handed out.
    late: AtomicU64,
    spans: Mutex<Spans>,
}

#[derive(Debug, Default)]
struct Spans {
    /// By start, without overlaps.
    list: Vec<(u64, u64)>,
    /// Spans that were joined with neighbors since there were too many.
    joined: usize,
}

impl Spans {
    fn add(&mut self, from: u64, to: u64) {
        // Nearly always one of the last few.
        let first = self.list.partition_point(|span| span.1 < from);
        let behind = self.list.partition_point(|span| span.0 <= to);
        match self.list.get_mut(first).filter(|_| first < behind) {
            Some(span) => {
                let last = (from.min(span.0), to.max(span.1));
                *span = last;
                if let Some(end) = self.list.get(behind - 1).map(|span| span.1)
                    && let Some(span) = self.list.get_mut(first)
                {
                    span.1 = span.1.max(end);
                }
                self.list.drain(first + 1..behind);
            }
            None => self.list.insert(first, (from, to)),
        }
        if self.list.len() > MOST {
            // Marks more than it must, never less.
            let before = self.list.len();
            let joined = |pair: &[(u64, u64)]| (pair[0].0, pair[pair.len() - 1].1);
            self.list = self.list.chunks(2).map(joined).collect();
            self.joined += before - self.list.len();
        }
    }
}

/// Number of windows that had started and that had ended before a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassedWindows {
    /// Windows that started at this time or before.
    pub started: usize,
    /// Windows that ended before this time.
    pub ended: usize,
}

impl LossWindows {
    /// Windows of these spans, in any order.
    pub fn new(spans: Vec<(u64, u64)>) -> LossWindows {
        let windows = LossWindows::default();
        spans.into_iter().for_each(|(from, to)| windows.add(from, to));
        windows
    }

    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.0.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a window; one that is known already changes nothing.
    #[cold]
    pub fn add(&self, from: u64, to: u64) {
        self.spans().add(from.min(to), to);
        self.0.any.store(true, Ordering::Release);
    }

    /// Notes that a window was found too late for events that were handed out before.
    #[cold]
    pub fn note_late(&self) {
        self.0.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of windows that were found too late.
    pub fn late(&self) -> u64 {
        self.0.late.load(Ordering::Relaxed)
    }

    /// The windows, by start.
    pub fn to_spans(&self) -> Vec<(u64, u64)> {
        self.spans().list.clone()
    }

    /// Whether no loss is known.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.0.any.load(Ordering::Acquire)
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.spans().list.len()
    }

    /// Whether events were lost between two times.
    #[inline]
    pub fn touches(&self, from: u64, to: u64) -> bool {
        !self.is_empty() && self.spans_touch(from, to)
    }

    #[cold]
    fn spans_touch(&self, from: u64, to: u64) -> bool {
        let spans = self.spans();
        let ended = spans.list.partition_point(|w| w.1 < from);
        spans.list.get(ended).is_some_and(|w| w.0 <= to)
    }

    /// Number of windows that events have passed at a time. Between two times nothing was lost if
    /// as many windows had ended before the first as had started before the second.
    #[inline]
    pub fn passed(&self, time: u64) -> PassedWindows {
        if self.is_empty() {
            return PassedWindows::default();
        }
        let spans = self.spans();
        let started = spans.joined + spans.list.partition_point(|w| w.0 <= time);
        let ended = spans.joined + spans.list.partition_point(|w| w.1 < time);
        PassedWindows { started, ended }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_and_found() {
        let w = LossWindows::new(vec![(30, 40), (10, 20), (15, 25)]);
        assert_eq!(w.to_spans(), [(10, 25), (30, 40)]);
        assert!(w.touches(0, 10) && w.touches(12, 13) && w.touches(26, 30) && w.touches(0, 99));
        assert!(!w.touches(0, 9) && !w.touches(26, 29) && !w.touches(41, 50));
        w.add(20, 35);
        assert_eq!(w.to_spans(), [(10, 40)]);
        w.add(10, 40);
        w.add(50, 60);
        w.add(41, 49);
        assert_eq!(w.to_spans(), [(10, 40), (41, 49), (50, 60)]);
        let many = LossWindows::new((0..200_000).map(|n| (n * 10, n * 10 + 1)).collect());
        assert!(many.len() <= MOST && many.touches(1_999_990, 1_999_990));
    }

    #[test]
    fn a_reader_and_an_analysis_share_them() {
        let reader = LossWindows::default();
        let analysis = reader.clone();
        assert!(analysis.is_empty() && !analysis.touches(0, u64::MAX));
        reader.add(10, 20);
        assert!(!analysis.is_empty() && analysis.touches(15, 15));
    }

    #[test]
    fn passed_windows_tell_whether_something_was_lost_between() {
        let w = LossWindows::new(vec![(10, 20), (30, 40)]);
        let passed = |time| (w.passed(time).started, w.passed(time).ended);
        assert_eq!(
            [5, 10, 20, 21, 30, 41].map(passed),
            [(0, 0), (1, 0), (1, 0), (1, 1), (2, 1), (2, 2)]
        );
        // From 21 to 29 nothing was lost, from 21 to 30 something was.
        assert_eq!(w.passed(21).ended, w.passed(29).started);
        assert_ne!(w.passed(21).ended, w.passed(30).started);
    }
}
