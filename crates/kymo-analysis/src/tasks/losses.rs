//! Spans of time in which events were lost.

/// Spans kept apart; where there are more, neighbors are joined.
const MOST: usize = 1 << 16;

/// Spans of time in which events were lost, by their begin and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossWindows(Vec<(u64, u64)>);

impl LossWindows {
    /// Windows of these spans, in any order.
    pub fn new(mut spans: Vec<(u64, u64)>) -> LossWindows {
        spans.sort_unstable();
        let mut windows: Vec<(u64, u64)> = Vec::new();
        for (from, to) in spans {
            match windows.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => windows.push((from, to)),
            }
        }
        while windows.len() > MOST {
            // Marks more than it must, never less.
            let joined = |pair: &[(u64, u64)]| (pair[0].0, pair[pair.len() - 1].1);
            windows = windows.chunks(2).map(joined).collect();
        }
        LossWindows(windows)
    }

    /// The spans.
    pub(super) fn into_spans(self) -> Vec<(u64, u64)> {
        self.0
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether events were lost between two times.
    #[inline]
    pub fn touches(&self, from: u64, to: u64) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let ended = self.0.partition_point(|w| w.1 < from);
        self.0.get(ended).is_some_and(|w| w.0 <= to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_and_found() {
        let w = LossWindows::new(vec![(30, 40), (10, 20), (15, 25)]);
        assert_eq!(w, LossWindows(vec![(10, 25), (30, 40)]));
        assert!(w.touches(0, 10) && w.touches(12, 13) && w.touches(26, 30) && w.touches(0, 99));
        assert!(!w.touches(0, 9) && !w.touches(26, 29) && !w.touches(41, 50));
        let many = LossWindows::new((0..200_000).map(|n| (n * 10, n * 10 + 1)).collect());
        assert!(many.len() <= MOST && many.touches(1_999_990, 1_999_990));
    }
}
