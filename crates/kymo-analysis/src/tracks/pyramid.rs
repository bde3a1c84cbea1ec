//! A pyramid of bins over the spans of a track: drawing costs pixels, never spans. Bins of a
//! level are 2^k ns wide, four of them are one of the next level.

use rayon::prelude::*;

use super::packed::push_number;
use super::span_track::SpanTrack;

/// Narrowest bin: 2^12 ns.
const LEAST_SHIFT: u32 = 12;
/// A factor of four.
const STEP: u32 = 2;
/// A level with no more bins is the last.
const FEW: usize = 256;
/// Numbers that are told apart in a bin; of more the smallest gives way.
const MOST_CODES: usize = 6;

/// A level: packed bins that have a span in them.
#[derive(Clone, Debug, Default)]
pub struct PyramidLevel {
    /// A bin is 2^shift ns wide.
    pub shift: u32,
    /// For each bin: distance of its number from the one before, dominant number, share of the
    /// bin in spans (of 255).
    pub bytes: Vec<u8>,
    /// How many bins there are.
    pub count: u64,
}

#[derive(Clone, Debug, Default)]
struct Bin {
    index: u64,
    busy: u64,
    codes: Vec<(u32, u64)>,
}

impl Bin {
    fn add(&mut self, code: u32, nanos: u64) {
        self.busy = self.busy.saturating_add(nanos);
        if let Some((_, sum)) = self.codes.iter_mut().find(|(c, _)| *c == code) {
            *sum = sum.saturating_add(nanos);
            return;
        }
        if self.codes.len() < MOST_CODES {
            return self.codes.push((code, nanos));
        }
        if let Some(least) = self.codes.iter_mut().min_by_key(|(_, sum)| *sum)
            && least.1 < nanos
        {
            *least = (code, nanos);
        }
    }
}

/// The levels of each track, narrow bins first; none where its spans are few.
pub fn build_pyramids(tracks: &[&SpanTrack]) -> Vec<Vec<PyramidLevel>> {
    tracks.par_iter().map(|track| build_pyramid(track)).collect()
}

fn build_pyramid(track: &SpanTrack) -> Vec<PyramidLevel> {
    if track.count as usize <= FEW * 4 {
        return Vec::new();
    }
    let mut shift = LEAST_SHIFT;
    let mut bins = bins_of(track, shift);
    // A level that has as many bins as there are spans spares nothing.
    while bins.is_none() {
        shift += STEP;
        bins = bins_of(track, shift);
    }
    let mut bins = bins.unwrap_or_default();
    let mut levels = vec![pack(&bins, shift)];
    while bins.len() > FEW && shift < 60 {
        shift += STEP;
        bins = widen(bins);
        levels.push(pack(&bins, shift));
    }
    levels
}

/// Bins of a width; none if there are more than a third of the spans.
fn bins_of(track: &SpanTrack, shift: u32) -> Option<Vec<Bin>> {
    let most = (track.count / 3) as usize;
    let mut bins: Vec<Bin> = Vec::new();
    for span in track.spans() {
        let (first, last) = (span.from >> shift, (span.to - 1) >> shift);
        if last - first > most as u64 {
            return (shift >= 60).then_some(bins);
        }
        for index in first..=last {
            if bins.last().is_none_or(|b| b.index != index) {
                if bins.len() > most && shift < 60 {
                    return None;
                }
                bins.push(Bin { index, ..Bin::default() });
            }
            let Some(bin) = bins.last_mut() else { continue };
            let begin = index << shift;
            let end = begin + ((1u64 << shift) - 1);
            bin.add(span.code, span.to.min(end.saturating_add(1)) - span.from.max(begin));
        }
    }
    Some(bins)
}

fn widen(bins: Vec<Bin>) -> Vec<Bin> {
    let mut wide: Vec<Bin> = Vec::with_capacity(bins.len() / 2);
    for bin in bins {
        let index = bin.index >> STEP;
        if wide.last().is_none_or(|w| w.index != index) {
            wide.push(Bin { index, ..Bin::default() });
        }
        let Some(into) = wide.last_mut() else { continue };
        // What was crowded out of its numbers stays in its sum.
        let told: u64 = bin.codes.iter().map(|(_, n)| n).sum();
        bin.codes.iter().for_each(|(code, nanos)| into.add(*code, *nanos));
        into.busy = into.busy.saturating_add(bin.busy.saturating_sub(told));
    }
    wide
}

fn pack(bins: &[Bin], shift: u32) -> PyramidLevel {
    let mut level = PyramidLevel { shift, bytes: Vec::new(), count: bins.len() as u64 };
    let mut before = 0;
    for bin in bins {
        let dominant = bin.codes.iter().max_by_key(|(_, sum)| *sum).map_or(0, |(code, _)| *code);
        let share = (u128::from(bin.busy) * 255).div_ceil(1 << shift).min(255) as u64;
        for number in [bin.index - before, dominant.into(), share] {
            push_number(&mut level.bytes, number);
        }
        before = bin.index;
    }
    level
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test is a panic")]
mod tests {
    use super::super::packed::take_number;
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
            let (mut left, mut bins, mut busy) = (&*level.bytes, 0, 0);
            while let Some(_index) = take_number(&mut left) {
                let mut next = || take_number(&mut left).unwrap();
                let (code, share) = (next(), next());
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
