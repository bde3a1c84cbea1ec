//! When a recording begins and ends, without reading what lies between.

use super::pages::Stream;
use super::{Clock, TraceDat, TraceDatReadStats, TraceDatSelect};
use crate::RecordingBytes;

impl TraceDat {
    /// Times of the first and the last event, corrected as the file asks;
    /// `None` where there is none.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.span_by(self.clock())
    }

    /// Time span in the units of the ring, unconverted.
    pub(crate) fn raw_span(&self) -> Option<(u64, u64)> {
        self.span_by(Clock::default())
    }

    /// When the first and the last CPU of a flight recorder begin, corrected as the file asks: what
    /// the last had recorded before was overwritten. `None` where they begin together.
    pub fn uneven_begin(&self) -> Option<(u64, u64)> {
        let file = self.file.as_ref().filter(|_| self.options().is_flight_recorder())?;
        let streams = self.streams(&TraceDatSelect::default(), &mut TraceDatReadStats::default());
        let (mut first, mut last) = (u64::MAX, None);
        for mut stream in streams {
            let mut stats = TraceDatReadStats::default();
            let Some(time) = begin(&mut stream, file, &mut stats) else { continue };
            first = first.min(time);
            last = last.max((stats.lost_before > 0).then_some(time));
        }
        let last = last.filter(|last| *last > first)?;
        Some((self.clock().correct(first), self.clock().correct(last)))
    }

    fn span_by(&self, clock: Clock) -> Option<(u64, u64)> {
        let file = self.file.as_ref()?;
        let mut stats = TraceDatReadStats::default();
        let streams =
            |stats: &mut TraceDatReadStats| self.streams(&TraceDatSelect::default(), stats);
        let first = streams(&mut stats).into_iter().filter_map(|s| first(s, file)).min()?;
        let last = streams(&mut stats).into_iter().filter_map(|s| last(s, file)).max()?;
        Some((clock.correct(first), clock.correct(last)))
    }
}

fn first(mut s: Stream, file: &RecordingBytes) -> Option<u64> {
    begin(&mut s, file, &mut TraceDatReadStats::default())
}

fn begin(s: &mut Stream, file: &RecordingBytes, stats: &mut TraceDatReadStats) -> Option<u64> {
    s.fill(file, stats).ok().filter(|more| *more)?;
    s.time()
}

/// The last pages may be empty: then the whole is read.
fn last(mut s: Stream, file: &RecordingBytes) -> Option<u64> {
    let mut stats = TraceDatReadStats::default();
    let whole = s.clone_unread();
    s.skip_to_tail(file).ok()?;
    last_of(s, file, &mut stats).or_else(|| last_of(whole, file, &mut stats))
}

fn last_of(mut s: Stream, file: &RecordingBytes, stats: &mut TraceDatReadStats) -> Option<u64> {
    let mut last = None;
    while s.fill(file, stats).ok()? {
        last = s.last_time();
    }
    last
}
