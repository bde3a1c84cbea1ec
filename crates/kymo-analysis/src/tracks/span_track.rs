//! Spans of one track, one after the other and without overlaps.

use super::packed::Columns;

/// A span; times are relative to the start of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackSpan {
    /// Begin.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Number of its state, task or call.
    pub code: u32,
}

/// Spans of one track: for each the distance from the end before, its length and its number.
#[derive(Clone, Debug, Default)]
pub struct SpanTrack {
    /// The spans, packed.
    pub columns: Columns<3>,
    /// Number of spans.
    pub count: u64,
    /// Nanoseconds in spans.
    pub busy: u64,
    /// Spans that overlap one before them, and are cut or left out.
    pub overlaps: u64,
    end: u64,
    /// Start of each chunk after the first: lengths of the columns, and the end of the span before.
    begins: Vec<([usize; 3], u64)>,
}

/// Spans of a chunk: a view of a part of the time unpacks few of them.
pub const SPANS_PER_CHUNK: u64 = 1 << 13;

/// Consecutive spans of a track.
#[derive(Clone, Debug)]
pub struct SpanChunk {
    /// Number of spans.
    pub count: u64,
    /// End of the last.
    pub to: u64,
    /// Their columns; the first distance counts from the end of the chunk before.
    pub bytes: Vec<u8>,
}

impl SpanTrack {
    /// Adds a span behind the others. What overlaps them is cut.
    pub fn push(&mut self, span: TrackSpan) {
        let from = span.from.max(self.end);
        self.overlaps += u64::from(from != span.from);
        if span.to <= from {
            return;
        }
        if self.count > 0 && self.count.is_multiple_of(SPANS_PER_CHUNK) {
            self.begins.push((self.columns.lengths(), self.end));
        }
        self.columns.push([from - self.end, span.to - from, span.code.into()]);
        self.count += 1;
        self.busy += span.to - from;
        self.end = span.to;
    }

    /// Adds bits to the codes of the spans that begin at some times.
    pub fn mark(&mut self, begins: &[u64], bits: u32) {
        let mut marked = SpanTrack { overlaps: self.overlaps, ..SpanTrack::default() };
        for span in self.spans() {
            let code = if begins.contains(&span.from) { span.code | bits } else { span.code };
            marked.push(TrackSpan { code, ..span });
        }
        *self = marked;
    }

    /// The spans, in chunks of equal numbers.
    pub fn chunks(&self) -> impl Iterator<Item = SpanChunk> + '_ {
        let begins = std::iter::once([0; 3]).chain(self.begins.iter().map(|b| b.0));
        let ends = self.begins.iter().copied().chain([(self.columns.lengths(), self.end)]);
        let mut left = self.count;
        begins.zip(ends).filter(|_| self.count > 0).map(move |(from, (at, to))| {
            let count = left.min(SPANS_PER_CHUNK);
            left -= count;
            SpanChunk { count, to, bytes: self.columns.part(from, at) }
        })
    }

    /// The spans.
    pub fn spans(&self) -> impl Iterator<Item = TrackSpan> + '_ {
        let mut end = 0;
        self.columns.rows().map(move |[distance, length, code]| {
            let from = end + distance;
            end = from + length;
            TrackSpan { from, to: end, code: code as u32 }
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

    #[test]
    fn marked_spans_keep_their_times() {
        let mut track = SpanTrack::default();
        for (from, to, code) in [(5, 9, 1), (9, 12, 2), (15, 20, 1)] {
            track.push(TrackSpan { from, to, code });
        }
        track.mark(&[9, 15], 8);
        let spans: Vec<_> = track.spans().map(|s| (s.from, s.to, s.code)).collect();
        assert_eq!(spans, [(5, 9, 1), (9, 12, 10), (15, 20, 9)]);
        assert_eq!((track.count, track.busy), (3, 12));
    }

    #[test]
    fn chunks_are_all_spans_in_parts() {
        assert_eq!(SpanTrack::default().chunks().count(), 0);
        for count in [1, SPANS_PER_CHUNK, SPANS_PER_CHUNK + 1, 3 * SPANS_PER_CHUNK] {
            let mut track = SpanTrack::default();
            (0..count).for_each(|n| {
                track.push(TrackSpan { from: n * 300 + 7, to: n * 300 + 200, code: n as u32 });
            });
            let chunks: Vec<SpanChunk> = track.chunks().collect();
            assert_eq!(chunks.len() as u64, count.div_ceil(SPANS_PER_CHUNK));
            assert_eq!(chunks.iter().map(|c| c.count).sum::<u64>(), count);
            let ends = chunks.iter().scan(0, |n, chunk| {
                *n += chunk.count;
                Some((*n - 1) * 300 + 200)
            });
            assert!(chunks.iter().map(|c| c.to).eq(ends));
            // Two lengths before the columns of each.
            let columns: usize = chunks.iter().map(|c| c.bytes.len()).sum();
            let whole: usize = track.columns.lengths().iter().sum();
            assert!(columns > whole && columns < whole + 10 * chunks.len());
        }
    }
}
