//! Size of an effect: the Hodges-Lehmann ratio of two samples of runs with an interval by
//! bootstrap over runs, and the change that these runs could have detected.

use crate::random::Random;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 1_999;
/// Least variance of a count of samples, as a part of its mean. That of random moments is 1 (Poisson);
/// a clock samples more regularly: 0.2 to 0.6 was measured of functions in a loop.
const LEAST_DISPERSION: f64 = 0.2;
/// Standard normal quantiles of 97.5 % and of a power of 80 %.
pub(crate) const Z_INTERVAL: f64 = 1.959_964;
pub(crate) const Z_POWER: f64 = 0.841_621;

/// Ratio of a quantity after to the quantity before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioEstimate {
    /// Median of the ratios of all pairs of runs.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Relative change that would be reported with a probability of 80 %, all functions
    /// considered.
    pub detectable: f64,
}

impl RatioEstimate {
    /// Estimate from runs; `None` where a side has no positive value or fewer than two runs.
    /// `critical`: standardized statistic that a function must reach to be reported.
    pub(crate) fn new(
        before: &[f64],
        after: &[f64],
        critical: f64,
        seed: u64,
    ) -> Option<RatioEstimate> {
        let is_positive = |values: &[f64]| values.iter().any(|v| *v > 0.0);
        if before.len() < 2 || after.len() < 2 || !is_positive(before) || !is_positive(after) {
            return None;
        }
        let (before, after) = (sorted_logs(before), sorted_logs(after));
        let center = median_difference(&before, &after);
        let mut ratios = resample(&before, &after, seed);
        ratios.sort_by(f64::total_cmp);
        // The quantile of a small sample is that of Student's t: the ends lie further out.
        let widened = student_quantile((before.len() + after.len() - 2) as f64);
        let tail = normal_tail(widened);
        let at = |share: f64| {
            let place = share * (RESAMPLES - 1) as f64;
            ratios.get(place.round() as usize).copied().unwrap_or(center)
        };
        let (low, high) = (at(tail).min(center), at(1.0 - tail).max(center));
        let error = (high - low) / (2.0 * widened);
        let detectable = ((critical.max(Z_INTERVAL) + Z_POWER) * error).exp_m1();
        Some(RatioEstimate { ratio: center.exp(), low: low.exp(), high: high.exp(), detectable })
    }

    /// Widens the interval for these numbers of samples on both sides: counts of a few samples that
    /// happen to be equal in all runs do not make it narrow.
    #[must_use]
    pub(crate) fn of_samples(self, (before, after): (u64, u64), critical: f64) -> RatioEstimate {
        if before == 0 || after == 0 {
            return self;
        }
        let least = (LEAST_DISPERSION * (1.0 / before as f64 + 1.0 / after as f64)).sqrt();
        let (center, reach) = (self.ratio.ln(), Z_INTERVAL * least);
        RatioEstimate {
            low: self.low.min((center - reach).exp()),
            high: self.high.max((center + reach).exp()),
            detectable: self
                .detectable
                .max(((critical.max(Z_INTERVAL) + Z_POWER) * least).exp_m1()),
            ..self
        }
    }

    /// Half of the interval of the logarithm of the ratio.
    pub(crate) fn reach(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / 2.0
    }

    /// Standard error of the logarithm of the ratio.
    pub(crate) fn error(&self) -> f64 {
        (self.high.ln() - self.low.ln()) / (2.0 * Z_INTERVAL)
    }
}

/// Logarithms in order; that of nothing is minus infinity.
fn sorted_logs(values: &[f64]) -> Vec<f64> {
    let mut logs: Vec<f64> = values.iter().map(|v| v.max(0.0).ln()).collect();
    logs.sort_by(f64::total_cmp);
    logs
}

/// Largest number of pairs that are listed one by one.
const LISTED_PAIRS: usize = 4_096;

/// Medians of the differences of resampled runs.
fn resample(before: &[f64], after: &[f64], seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed, 0);
    if before.len() * after.len() > LISTED_PAIRS {
        let mut draw = |values: &[f64]| -> Vec<f64> {
            let mut drawn: Vec<f64> =
                values.iter().map(|_| values[random.below(values.len())]).collect();
            drawn.sort_by(f64::total_cmp);
            drawn
        };
        return (0..RESAMPLES).map(|_| bisected_median(&draw(before), &draw(after))).collect();
    }
    let pairs = PairList::new(before, after);
    let (mut of_before, mut of_after) = (vec![0_u32; before.len()], vec![0_u32; after.len()]);
    let mut median = || {
        for counts in [&mut of_before, &mut of_after] {
            let runs = counts.len();
            counts.fill(0);
            (0..runs).for_each(|_| counts[random.below(runs)] += 1);
        }
        pairs.median(&of_before, &of_after)
    };
    (0..RESAMPLES).map(|_| median()).collect()
}

/// Differences of all pairs in order, so that a resample needs no sorting: it only says how often
/// each run is in it.
struct PairList(Vec<(f64, u16, u16)>);

impl PairList {
    fn new(before: &[f64], after: &[f64]) -> PairList {
        let mut pairs = Vec::with_capacity(before.len() * after.len());
        for (b, old) in (0_u16..).zip(before) {
            pairs.extend((0_u16..).zip(after).map(|(a, new)| (difference(*new, *old), b, a)));
        }
        pairs.sort_by(|one, two| one.0.total_cmp(&two.0));
        PairList(pairs)
    }

    fn median(&self, before: &[u32], after: &[u32]) -> f64 {
        let doubled_half = (before.len() * after.len()) as u32;
        let mut count = 0;
        let mut lower = None;
        for (value, b, a) in &self.0 {
            let weight = before[usize::from(*b)] * after[usize::from(*a)];
            if weight == 0 {
                continue;
            }
            if let Some(lower) = lower {
                return middle(lower, *value);
            }
            count += weight;
            if 2 * count > doubled_half {
                return *value;
            }
            if 2 * count == doubled_half {
                lower = Some(*value);
            }
        }
        lower.unwrap_or(0.0)
    }
}

/// Difference of logarithms; of nothing to nothing there is none.
fn difference(after: f64, before: f64) -> f64 {
    if after == before { 0.0 } else { after - before }
}

/// Mean of two values, which may be infinite.
fn middle(lower: f64, upper: f64) -> f64 {
    if lower == upper { lower } else { (lower + upper) / 2.0 }
}

/// Median of all differences `after - before` of two sorted lists.
fn median_difference(before: &[f64], after: &[f64]) -> f64 {
    if before.len() * after.len() > LISTED_PAIRS {
        return bisected_median(before, after);
    }
    PairList::new(before, after).median(&vec![1; before.len()], &vec![1; after.len()])
}

/// The median of differences by counting those below a bound, for long lists.
fn bisected_median(before: &[f64], after: &[f64]) -> f64 {
    let finite =
        |values: &[f64]| values.iter().copied().filter(|v| v.is_finite()).collect::<Vec<_>>();
    let (b, a) = (finite(before), finite(after));
    let (Some((b_first, b_last)), Some((a_first, a_last))) = (ends(&b), ends(&a)) else {
        return 0.0;
    };
    let half = (before.len() * after.len()) as f64 / 2.0;
    let count_below = |bound: f64| {
        let mut at = 0;
        let mut count = 0;
        for value in before {
            while at < after.len() && after[at] <= value + bound {
                at += 1;
            }
            count += at;
        }
        count as f64
    };
    let (mut low, mut high) = (a_first - b_last, a_last - b_first);
    for _ in 0..48 {
        let bound = (low + high) / 2.0;
        if count_below(bound) < half { low = bound } else { high = bound }
    }
    (low + high) / 2.0
}

fn ends(sorted: &[f64]) -> Option<(f64, f64)> {
    Some((*sorted.first()?, *sorted.last()?))
}

/// Median; of an even number of values the mean of the two in the middle.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    let is_even = values.len().is_multiple_of(2);
    let (lower, upper, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    if !is_even {
        return *upper;
    }
    let below = lower.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    middle(below, *upper)
}

/// Quantile of 97.5 % of Student's t (Abramowitz and Stegun 26.7.5).
fn student_quantile(freedom: f64) -> f64 {
    let z = Z_INTERVAL;
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

/// Probability that a standard normal number exceeds `z` (Abramowitz and Stegun 26.2.17).
pub(crate) fn normal_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let polynomial = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        // Tables of t: 2.228 for 10 degrees, 2.024 for 38; of the normal: 0.025 at 1.96.
        assert!((student_quantile(10.0) - 2.228).abs() < 0.001);
        assert!((student_quantile(38.0) - 2.0244).abs() < 0.001);
        assert!((normal_tail(Z_INTERVAL) - 0.025).abs() < 1e-6);
    }

    #[test]
    fn the_ratio_is_the_median_of_all_pairs() {
        // Ratios 2/1, 4/1, 2/2, 4/2: 1, 2, 2, 4.
        let estimate = RatioEstimate::new(&[1.0, 2.0], &[2.0, 4.0], 2.0, 1);
        assert!(estimate.is_some_and(|e| (e.ratio - 2.0).abs() < 1e-12), "{estimate:?}");
        assert_eq!(RatioEstimate::new(&[0.0, 0.0], &[2.0, 4.0], 2.0, 1), None);
    }

    #[test]
    fn counting_finds_the_median_that_listing_finds() {
        let mut random = Random::new(5, 0);
        let mut list = |n: usize| {
            let mut values: Vec<f64> = (0..n).map(|_| random.unit().ln()).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (before, after) = (list(31), list(40));
        let mut all: Vec<f64> =
            before.iter().flat_map(|b| after.iter().map(move |a| a - b)).collect();
        let listed = median(&mut all);
        assert!((bisected_median(&before, &after) - listed).abs() < 0.01);
    }

    /// Poisson counts whose true ratio is known: the interval holds it in 93 to 97 % of tries,
    /// less two standard deviations of the number of tries.
    #[test]
    fn intervals_hold_the_truth() {
        for (mean, ratio, runs) in [(57.0, 1.0, 20), (420.0, 1.05, 20), (30.0, 1.3, 8)] {
            let tries = 400;
            let mut random = Random::new(11, runs as u64);
            let mut held = 0;
            for seed in 0..tries {
                let mut draw = |mean: f64| -> Vec<f64> {
                    (0..runs).map(|_| random.poisson(mean) as f64).collect()
                };
                let (before, after) = (draw(mean), draw(mean * ratio));
                let estimate = RatioEstimate::new(&before, &after, 2.0, seed);
                held += usize::from(estimate.is_some_and(|e| e.low <= ratio && ratio <= e.high));
            }
            let share = held as f64 / tries as f64;
            println!("mean {mean}, ratio {ratio}, {runs} runs: {share}");
            assert!((0.91..=0.985).contains(&share), "mean {mean}: {share}");
        }
    }

    /// A change of the size that is called detectable is detected in 80 % of tries.
    #[test]
    fn a_detectable_change_is_detected_in_four_of_five_tries() {
        let mut random = Random::new(13, 0);
        let (mean, runs) = (200.0, 20);
        let mut draw =
            |mean: f64| -> Vec<f64> { (0..runs).map(|_| random.poisson(mean) as f64).collect() };
        let tries = 300;
        let mut sizes: Vec<f64> = (0..tries)
            .filter_map(|seed| RatioEstimate::new(&draw(mean), &draw(mean), Z_INTERVAL, seed))
            .map(|e| e.detectable)
            .collect();
        let size = median(&mut sizes);
        let found = (0..tries).filter(|seed| {
            let values = [draw(mean), draw(mean * (1.0 + size))].concat();
            let column = crate::max_t::TestColumn { values, share: 1.0 };
            crate::max_t::max_t(&[column], runs, *seed).p[0] <= 0.05
        });
        let power = found.count() as f64 / tries as f64;
        assert!((0.7..=0.9).contains(&power), "{power} at {size}");
    }
}
