//! Histogram of durations: quantiles in little memory.

/// Steps of a doubling: a quantile is at most 1/16 above the truth.
const STEPS: u32 = 16;

/// Numbers of durations by size. Those below 16 ns are exact, others fall into 16 steps for
/// each doubling; only the range that occurs takes memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    first: u32,
    counts: Vec<u32>,
}

fn bucket(nanos: u64) -> u32 {
    if nanos < u64::from(STEPS) {
        return nanos as u32;
    }
    let shift = nanos.ilog2() - STEPS.ilog2();
    shift * STEPS + (nanos >> shift) as u32
}

/// Largest duration of a bucket.
fn upper(bucket: u32) -> u64 {
    if bucket < STEPS {
        return u64::from(bucket);
    }
    let shift = bucket / STEPS - 1;
    let step = u64::from(bucket - shift * STEPS);
    // The last of all overflows into 0.
    ((step + 1) << shift).wrapping_sub(1)
}

impl DurationHistogram {
    /// Counts a duration.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.add_many(bucket(nanos), 1);
    }

    fn add_many(&mut self, bucket: u32, count: u32) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = (self.first - bucket) as usize;
            self.counts.splice(0..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let at = (bucket - self.first) as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        if let Some(slot) = self.counts.get_mut(at) {
            *slot = slot.saturating_add(count);
        }
    }

    /// Takes over what another one counted.
    pub fn merge(&mut self, other: &DurationHistogram) {
        for (bucket, count) in (other.first..).zip(&other.counts).filter(|(_, n)| **n > 0) {
            self.add_many(bucket, *count);
        }
    }

    /// Start and number of durations of each doubling that occurs, ascending; those below 16 ns are
    /// merged.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let mut doublings: Vec<(u64, u64)> = Vec::new();
        for (bucket, count) in (self.first..).zip(&self.counts) {
            let begin = match bucket {
                0..STEPS => 0,
                _ => 1 << (bucket / STEPS - 1 + STEPS.ilog2()).min(63),
            };
            match doublings.last_mut() {
                Some(last) if last.0 == begin => last.1 += u64::from(*count),
                _ => doublings.push((begin, u64::from(*count))),
            }
        }
        doublings
    }

    /// The duration that this share of all does not exceed; at most 1/16 too large.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.counts.iter().map(|n| u64::from(*n)).sum();
        let rank = ((all as f64 * share).ceil() as u64).clamp(1, all.max(1));
        let mut before = 0;
        for (bucket, count) in (self.first..).zip(&self.counts) {
            before += u64::from(*count);
            if before >= rank {
                return Some(upper(bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_in_a_bucket_that_is_at_most_a_sixteenth_larger() {
        let powers = (0..64).flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 1]);
        for nanos in powers.chain(0..5000).chain([u64::MAX]) {
            let upper = upper(bucket(nanos));
            assert!(upper >= nanos && upper - nanos <= nanos / 16, "{nanos}: {upper}");
        }
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut a = DurationHistogram::default();
        assert_eq!(a.quantile(0.5), None);
        (1..=10).rev().for_each(|n| a.add(n));
        assert_eq!(
            (a.quantile(0.5), a.quantile(0.99), a.quantile(0.0)),
            (Some(5), Some(10), Some(1))
        );
        assert_eq!(a.doublings(), [(0, 10)]);
        let mut wide = DurationHistogram::default();
        [3, 16, 31, 100, 1023].into_iter().for_each(|n| wide.add(n));
        let expected = [(0, 1), (16, 2), (32, 0), (64, 1), (128, 0), (256, 0), (512, 1)];
        assert_eq!(wide.doublings(), expected);
        let mut b = DurationHistogram::default();
        b.add(1_000_000);
        b.merge(&a);
        assert_eq!(b.quantile(0.5), Some(6));
        assert!(b.quantile(1.0).is_some_and(|q| (1_000_000..=1_062_500).contains(&q)));
    }
}
