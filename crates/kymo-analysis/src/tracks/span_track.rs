//! Spans of one track, one after the other and without overlaps.

use super::packed::{push_number, take_number};

/// A span; times count from the begin of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackSpan {
    /// Begin.
    pub from: u64,
    /// End.
    pub to: u64,
    /// What it is: a state, a task, a call.
    pub code: u32,
}

/// Spans of one track: for each the distance from the end before, its length and its number.
#[derive(Clone, Debug, Default)]
pub struct SpanTrack {
    /// The spans, packed.
    pub bytes: Vec<u8>,
    /// How many there are.
    pub count: u64,
    /// Nanoseconds in spans.
    pub busy: u64,
    /// Spans that overlap one before them, and are cut or left out.
    pub overlaps: u64,
    end: u64,
}

impl SpanTrack {
    /// Adds a span behind the others. What overlaps them is cut.
    pub fn push(&mut self, span: TrackSpan) {
        let from = span.from.max(self.end);
        self.overlaps += u64::from(from != span.from);
        if span.to <= from {
            return;
        }
        push_number(&mut self.bytes, from - self.end);
        push_number(&mut self.bytes, span.to - from);
        push_number(&mut self.bytes, span.code.into());
        self.count += 1;
        self.busy += span.to - from;
        self.end = span.to;
    }

    /// The spans.
    pub fn spans(&self) -> impl Iterator<Item = TrackSpan> + '_ {
        let (mut left, mut end) = (&*self.bytes, 0);
        std::iter::from_fn(move || {
            let from = end + take_number(&mut left)?;
            end = from + take_number(&mut left)?;
            Some(TrackSpan { from, to: end, code: take_number(&mut left)? as u32 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_come_back_and_overlaps_are_cut() {
        let mut track = SpanTrack::default();
        for (from, to, code) in
            [(5, 9, 1), (9, 12, 2), (11, 20, 3), (13, 14, 4), (1 << 60, (1 << 60) + 1, 5)]
        {
            track.push(TrackSpan { from, to, code });
        }
        let spans: Vec<_> = track.spans().map(|s| (s.from, s.to, s.code)).collect();
        assert_eq!(spans, [(5, 9, 1), (9, 12, 2), (12, 20, 3), (1 << 60, (1 << 60) + 1, 5)]);
        assert_eq!((track.count, track.busy, track.overlaps), (4, 16, 2));
    }
}
