//! A pyramid of bins over the spans of a track: drawing costs pixels, never spans. Bins of a
//! level are 2^k ns wide, four of them are one of the next level.

use rayon::prelude::*;

use super::packed::Columns;
use super::span_track::SpanTrack;

/// Narrowest bin: 2^12 ns.
const LEAST_SHIFT: u32 = 12;
/// Widest bin.
const LAST_SHIFT: u32 = 60;
/// A factor of four.
const STEP: u32 = 2;
/// A level with no more bins is the last.
const FEW: usize = 256;
/// Most numbers that are distinguished in a bin; of more the smallest gives way.
const MOST_CODES: usize = 6;

/// A level: packed bins that have a span in them.
#[derive(Clone, Debug, Default)]
pub struct PyramidLevel {
    /// A bin is 2^shift ns wide.
    pub shift: u32,
    /// For each bin: distance of its number from the one before, dominant number, share of the
    /// bin in spans (of 255).
    pub columns: Columns<3>,
    /// Number of bins.
    pub count: u64,
}

/// The bin of a level that is being filled: spans come by time, so that there is one of each.
#[derive(Clone, Debug, Default)]
struct OpenBin {
    index: u64,
    busy: u64,
    codes: [(u32, u64); MOST_CODES],
    /// Number of codes in use.
    count: usize,
}

impl OpenBin {
    fn add(&mut self, code: u32, nanos: u64) {
        self.busy = self.busy.saturating_add(nanos);
        let codes = self.codes.get_mut(..self.count).unwrap_or_default();
        if let Some((_, sum)) = codes.iter_mut().find(|(c, _)| *c == code) {
            *sum = sum.saturating_add(nanos);
            return;
        }
        if let Some(free) = self.codes.get_mut(self.count) {
            *free = (code, nanos);
            self.count += 1;
            return;
        }
        if let Some(least) = self.codes.iter_mut().min_by_key(|(_, sum)| *sum)
            && least.1 < nanos
        {
            *least = (code, nanos);
        }
    }

    fn codes(&self) -> &[(u32, u64)] {
        self.codes.get(..self.count).unwrap_or_default()
    }

    /// Takes over what a narrower bin has.
    fn merge(&mut self, bin: &OpenBin) {
        // What was crowded out of its numbers stays in its sum.
        let told: u64 = bin.codes().iter().map(|(_, nanos)| nanos).sum();
        bin.codes().iter().for_each(|(code, nanos)| self.add(*code, *nanos));
        self.busy = self.busy.saturating_add(bin.busy.saturating_sub(told));
    }
}

/// A level that is being made.
#[derive(Clone, Debug)]
struct GrowingLevel {
    level: PyramidLevel,
    /// The bin at the end, if there is one.
    bin: Option<OpenBin>,
    /// Number of the bin before.
    before: u64,
}

/// The levels of each track, narrow bins first; none where its spans are few.
pub fn build_pyramids(tracks: &[&SpanTrack]) -> Vec<Vec<PyramidLevel>> {
    tracks.par_iter().map(|track| build_pyramid(track)).collect()
}

fn build_pyramid(track: &SpanTrack) -> Vec<PyramidLevel> {
    if track.count as usize <= FEW * 4 {
        return Vec::new();
    }
    // A level that has as many bins as there are spans spares nothing.
    let mut shift = LEAST_SHIFT;
    // As many bins as the time in spans fills are there in any case.
    while track.busy >> shift > track.count / 3 && shift + STEP <= LAST_SHIFT {
        shift += STEP;
    }
    loop {
        if let Some(mut levels) = levels_from(track, shift) {
            let few = levels.iter().position(|l| l.count as usize <= FEW);
            levels.truncate(few.map_or(levels.len(), |at| at + 1));
            return levels;
        }
        shift += STEP;
    }
}

/// Levels from a width on; none if the first has more bins than a third of the spans.
fn levels_from(track: &SpanTrack, shift: u32) -> Option<Vec<PyramidLevel>> {
    let shifts = (shift..=LAST_SHIFT).step_by(STEP as usize);
    let mut levels: Vec<GrowingLevel> = shifts.map(GrowingLevel::new).collect();
    let most = if shift >= LAST_SHIFT { u64::MAX } else { track.count / 3 };
    for span in track.spans() {
        let (first, last) = (span.from >> shift, (span.to - 1) >> shift);
        if last - first > most {
            return None;
        }
        for index in first..=last {
            let bin = open_bin(&mut levels, index)?;
            let begin = index << shift;
            let end = begin + ((1u64 << shift) - 1);
            bin.add(span.code, span.to.min(end.saturating_add(1)) - span.from.max(begin));
            if levels.first().is_some_and(|l| l.level.count > most) {
                return None;
            }
        }
    }
    for at in 0..levels.len() {
        close_bin(&mut levels, at);
    }
    Some(levels.into_iter().map(|l| l.level).collect())
}

/// The bin of the first level with a number; the one before it is done.
#[inline]
fn open_bin(levels: &mut [GrowingLevel], index: u64) -> Option<&mut OpenBin> {
    if levels.first()?.bin.as_ref().is_none_or(|bin| bin.index != index) {
        close_bin(levels, 0);
        levels.first_mut()?.begin(index);
    }
    levels.first_mut()?.bin.as_mut()
}

/// Packs the bin at the end of a level, and adds it to that of the next.
fn close_bin(levels: &mut [GrowingLevel], at: usize) {
    let Some(bin) = levels.get_mut(at).and_then(GrowingLevel::pack) else { return };
    let index = bin.index >> STEP;
    let Some(wide) = levels.get(at + 1) else { return };
    if wide.bin.as_ref().is_none_or(|b| b.index != index) {
        close_bin(levels, at + 1);
        levels.get_mut(at + 1).into_iter().for_each(|l| l.begin(index));
    }
    if let Some(wide) = levels.get_mut(at + 1).and_then(|l| l.bin.as_mut()) {
        wide.merge(&bin);
    }
}

impl GrowingLevel {
    fn new(shift: u32) -> GrowingLevel {
        let level = PyramidLevel { shift, ..PyramidLevel::default() };
        GrowingLevel { level, bin: None, before: 0 }
    }

    fn begin(&mut self, index: u64) {
        self.level.count += 1;
        self.bin = Some(OpenBin { index, ..OpenBin::default() });
    }

    /// Takes the bin at the end, and writes it behind the others.
    fn pack(&mut self) -> Option<OpenBin> {
        let bin = self.bin.take()?;
        // Of several that have most it is the last.
        let dominant = bin.codes().iter().max_by_key(|(_, sum)| *sum).map_or(0, |(code, _)| *code);
        let width = 1 << self.level.shift;
        let share = (u128::from(bin.busy) * 255).div_ceil(width).min(255) as u64;
        self.level.columns.push([bin.index - self.before, dominant.into(), share]);
        self.before = bin.index;
        Some(bin)
    }
}

#[cfg(test)]
mod tests {
    use super::super::span_track::TrackSpan;
    use super::*;

    #[test]
    fn levels_keep_shares() {
        let mut track = SpanTrack::default();
        for n in 0..20_000u64 {
            let code = if n % 4 == 0 { 1 } else { 0 };
            track.push(TrackSpan { from: n * 1000, to: n * 1000 + 50, code });
        }
        let levels = build_pyramid(&track);
        assert!(levels.len() >= 3, "{}", levels.len());
        for level in &levels {
            let (mut bins, mut busy) = (0, 0);
            for [_, code, share] in level.columns.rows() {
                assert!(code <= 1 && share <= 255);
                busy += share << level.shift;
                bins += 1;
            }
            // A share is rounded up.
            let off = busy / 255 - track.busy;
            assert!(bins == level.count && off <= (bins << level.shift) / 255, "{off}");
        }
        assert!(
            levels.windows(2).all(|w| w[1].count <= w[0].count && w[1].shift == w[0].shift + 2)
        );
        assert!(build_pyramid(&SpanTrack::default()).is_empty());
    }

    #[test]
    fn a_span_of_all_time_ends_the_search() {
        let mut track = SpanTrack::default();
        (0..2000).for_each(|n| track.push(TrackSpan { from: n * 2, to: n * 2 + 1, code: 0 }));
        track.push(TrackSpan { from: 5000, to: 1 << 62, code: 2 });
        assert!(build_pyramid(&track).iter().all(|l| l.count < 2001));
    }
}
