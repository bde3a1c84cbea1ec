//! Mann-Whitney rank-sum statistics of many functions, tested together: weighted step-down max-T
//! over permutations of the labels "before" and "after" (Westfall and Young 1993, algorithm 4.1).
//!
//! All functions are permuted alike, so that their correlation is kept: the probability that any
//! unchanged function is reported at all stays at the level, however many there are.
//!
//! A function's part of the error grows with its share of everything (Genovese, Roeder and
//! Wasserman 2006): the statistic is z² + 2 ln w. Since -2 ln p is z² and a little, this compares
//! p / w. Shares are of both sides together: permutations leave them as they are.

use rayon::prelude::*;

use crate::effect::normal_tail;
use crate::random::Random;

/// Level of the family-wise error.
pub(crate) const LEVEL: f64 = 0.05;
/// Permutations of labels where not all of them are tried.
pub(crate) const PERMUTATIONS: usize = 9_999;
/// Permutations that share one pass.
const CHUNK: usize = 128;

/// Results for each column.
#[derive(Clone, Debug, Default)]
pub(crate) struct MaxT {
    /// p-values, adjusted for the number of columns.
    pub(crate) p: Vec<f64>,
    /// Standardized statistics that columns must reach to be significant at 5 %.
    pub(crate) critical: Vec<f64>,
    /// Smallest p-value that this number of runs can give.
    pub(crate) smallest: f64,
}

/// Column of the test.
#[derive(Clone, Debug)]
pub(crate) struct TestColumn {
    /// Values: those of one side, then those of the other.
    pub(crate) values: Vec<f64>,
    /// Share of everything, of both sides together.
    pub(crate) share: f64,
}

/// Tests columns of which the first `before` values are of one side, the others of the other one.
/// All columns have the same number of values.
pub(crate) fn max_t(columns: &[TestColumn], before: usize, seed: u64) -> MaxT {
    let runs = columns.first().map_or(0, |c| c.values.len());
    if before == 0 || before >= runs {
        let critical = vec![f64::INFINITY; columns.len()];
        return MaxT { p: vec![1.0; columns.len()], critical, smallest: 1.0 };
    }
    let weights = weights(columns, (before, runs - before));
    let ranks: Vec<Vec<i32>> = columns.iter().map(|c| centered_ranks(&c.values)).collect();
    let scale: Vec<f32> = ranks.iter().map(|r| inverse_deviation(r, before)).collect();
    // What is alike in all runs shows nothing.
    let bonus: Vec<f32> = scale
        .iter()
        .zip(&weights)
        .map(|(scale, w)| if *scale > 0.0 { 2.0 * w.ln() as f32 } else { f32::NEG_INFINITY })
        .collect();
    let statistic = |c: usize| {
        let sum: i32 = ranks[c].iter().take(before).sum();
        // Equal values must count as such in spite of rounding.
        squared(sum, scale[c]) * (1.0 - 1e-5) + bonus[c]
    };
    let mut order: Vec<usize> = (0..columns.len()).collect();
    let observed: Vec<f32> = order.iter().map(|c| statistic(*c)).collect();
    order.sort_by(|a, b| observed[*a].total_cmp(&observed[*b]));
    let sorted = SortedColumns {
        rows: (0..runs).map(|run| order.iter().map(|c| ranks[*c][run]).collect()).collect(),
        scale: order.iter().map(|c| scale[*c]).collect(),
        bonus: order.iter().map(|c| bonus[*c]).collect(),
        observed: order.iter().map(|c| observed[*c]).collect(),
        before,
    };
    let all = combinations(runs, before, PERMUTATIONS);
    let total = all.as_ref().map_or(PERMUTATIONS, Vec::len);
    let chunks: Vec<usize> = (0..total).step_by(CHUNK).collect();
    let tallies: Vec<Tally> = chunks
        .par_iter()
        .map(|from| {
            let mut tally = Tally::new(order.len());
            for number in *from..(*from + CHUNK).min(total) {
                match &all {
                    Some(all) => tally.count(&sorted, &all[number]),
                    None => tally.count(&sorted, &random_labels(runs, before, seed, number)),
                }
            }
            tally
        })
        .collect();
    let mut exceeded = vec![0_u64; order.len()];
    let mut maxima = Vec::with_capacity(total);
    for tally in tallies {
        exceeded.iter_mut().zip(&tally.exceeded).for_each(|(sum, n)| *sum += n);
        maxima.extend(tally.maxima);
    }
    // The labels as they are belong to all permutations; to drawn ones they are added.
    let (extra, of) = if all.is_some() { (0, total) } else { (1, total + 1) };
    let mut p = vec![1.0; columns.len()];
    let mut largest = 0.0_f64;
    for (at, column) in order.iter().enumerate().rev() {
        largest = largest.max((exceeded[at] + extra) as f64 / of as f64);
        p[*column] = largest;
    }
    maxima.sort_by(f32::total_cmp);
    let largest = maxima.get((maxima.len() * 95).div_ceil(100)).or(maxima.last());
    let largest = largest.map_or(f64::INFINITY, |c| f64::from(*c));
    let critical = weights.iter().map(|w| (largest - 2.0 * w.ln()).max(0.0).sqrt());
    let symmetric = if before * 2 == runs && all.is_some() { 2.0 } else { 1.0 };
    MaxT { p, critical: critical.collect(), smallest: symmetric / of as f64 }
}

/// Weights of columns: their shares, but never so small that a column of which all runs of one side
/// lie above those of the other could not be reported at half the level.
fn weights(columns: &[TestColumn], (before, after): (usize, usize)) -> Vec<f64> {
    let shares = || columns.iter().map(|c| c.share.clamp(f64::MIN_POSITIVE, 1.0));
    let (before, after) = (before as f64, after as f64);
    let farthest = (before * after * 3.0 / (before + after + 1.0)).sqrt();
    let part = 2.0 * normal_tail(farthest) / (LEVEL / 2.0);
    let mut least = 0.0;
    // The sum of the weights grows with the smallest of them.
    for _ in 0..100 {
        let next = part * shares().map(|share| share.max(least)).sum::<f64>();
        if next >= 1.0 {
            return vec![1.0; columns.len()];
        }
        if next <= least * 1.001 {
            break;
        }
        least = next;
    }
    shares().map(|share| share.max(least)).collect()
}

/// Square of a standardized sum of ranks.
fn squared(sum: i32, scale: f32) -> f32 {
    let z = sum as f32 * scale;
    z * z
}

/// Columns by their observed statistic, the smallest first, as one row for each run.
struct SortedColumns {
    rows: Vec<Vec<i32>>,
    scale: Vec<f32>,
    bonus: Vec<f32>,
    observed: Vec<f32>,
    before: usize,
}

/// Counts of some permutations.
struct Tally {
    /// By column: permutations whose largest statistic of this and all smaller columns reaches
    /// the observed one.
    exceeded: Vec<u64>,
    /// Largest statistic of all columns, by permutation.
    maxima: Vec<f32>,
    sums: Vec<i32>,
}

impl Tally {
    fn new(columns: usize) -> Tally {
        Tally { exceeded: vec![0; columns], maxima: Vec::new(), sums: vec![0; columns] }
    }

    fn count(&mut self, sorted: &SortedColumns, labels: &[usize]) {
        debug_assert_eq!(labels.len(), sorted.before);
        self.sums.fill(0);
        for run in labels {
            for (sum, rank) in self.sums.iter_mut().zip(&sorted.rows[*run]) {
                *sum += rank;
            }
        }
        let mut largest = f32::NEG_INFINITY;
        let each = self.sums.iter().zip(&sorted.scale).zip(&sorted.bonus).zip(&sorted.observed);
        for ((((sum, scale), bonus), observed), exceeded) in each.zip(&mut self.exceeded) {
            largest = largest.max(squared(*sum, *scale) + bonus);
            *exceeded += u64::from(largest >= *observed);
        }
        self.maxima.push(largest);
    }
}

/// Twice the mid-rank of each value, less the mean.
fn centered_ranks(values: &[f64]) -> Vec<i32> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0; values.len()];
    let mut from = 0;
    while from < order.len() {
        let value = values[order[from]];
        let ties = order[from..].iter().take_while(|i| values[**i] == value).count().max(1);
        let doubled = (2 * from + ties + 1) as i32 - (values.len() + 1) as i32;
        order[from..from + ties].iter().for_each(|i| ranks[*i] = doubled);
        from += ties;
    }
    ranks
}

/// One by the standard deviation of the sum of `before` of the ranks under permutation; 0 where
/// all are equal.
fn inverse_deviation(ranks: &[i32], before: usize) -> f32 {
    let (n, squares) =
        (ranks.len() as f64, ranks.iter().map(|r| f64::from(*r).powi(2)).sum::<f64>());
    let part = before as f64;
    let variance = part * (n - part) / (n * (n - 1.0)) * squares;
    if variance > 0.0 { (1.0 / variance.sqrt()) as f32 } else { 0.0 }
}

/// Runs that a permutation labels "before".
fn random_labels(runs: usize, before: usize, seed: u64, number: usize) -> Vec<usize> {
    let mut random = Random::new(seed, number as u64);
    let mut all: Vec<usize> = (0..runs).collect();
    for at in 0..before {
        let other = at + random.below(runs - at);
        all.swap(at, other);
    }
    all.truncate(before);
    all
}

/// All ways to choose `part` of `whole`, if there are at most `limit`.
fn combinations(whole: usize, part: usize, limit: usize) -> Option<Vec<Vec<usize>>> {
    let mut number = 1.0;
    for i in 0..part {
        number *= (whole - i) as f64 / (i + 1) as f64;
        if number > limit as f64 + 0.5 {
            return None;
        }
    }
    let mut all = Vec::new();
    let mut chosen: Vec<usize> = (0..part).collect();
    loop {
        all.push(chosen.clone());
        let Some(at) = (0..part).rev().find(|i| chosen[*i] < whole - part + i) else {
            return Some(all);
        };
        chosen[at] += 1;
        for i in at + 1..part {
            chosen[i] = chosen[i - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: Vec<f64>, share: f64) -> TestColumn {
        TestColumn { values, share }
    }

    fn p_of(before: &[f64], after: &[f64]) -> f64 {
        max_t(&[column([before, after].concat(), 1.0)], before.len(), 1).p[0]
    }

    /// Values of scipy 1.17 `mannwhitneyu(x, y, alternative="two-sided", method="exact").pvalue`;
    /// the first is the example of its manual page (Conover), the second follows by counting:
    /// two of C(8,4) = 70 orders are as extreme.
    #[test]
    fn exact_p_values_are_those_of_scipy() {
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        assert!((p_of(&males, &females) - 0.111_111_111).abs() < 1e-6);
        let (low, high) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert!((p_of(&low, &high) - 2.0 / 70.0).abs() < 1e-9);
        let (x, y) = ([1.1, 2.2, 3.3, 4.4, 5.5, 6.6], [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert!((p_of(&x, &y) - 0.179_653_680).abs() < 1e-6, "{}", p_of(&x, &y));
    }

    #[test]
    fn ties_share_ranks_and_equal_values_show_nothing() {
        // Mid-ranks 1, 2.5, 2.5, 4, doubled and centered around 5.
        assert_eq!(centered_ranks(&[3.0, 5.0, 5.0, 9.0]), [-3, 0, 0, 3]);
        assert_eq!(p_of(&[2.0; 10], &[2.0; 10]), 1.0);
    }

    #[test]
    fn all_combinations_are_tried_where_they_are_few() {
        assert_eq!(combinations(4, 2, 10).map(|c| c.len()), Some(6));
        assert_eq!(combinations(14, 7, PERMUTATIONS).map(|c| c.len()), Some(3432));
        assert!(combinations(16, 8, PERMUTATIONS).is_none());
        let three = max_t(&[column(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.01)], 3, 1);
        assert_eq!((three.p[0], three.smallest), (0.1, 0.1));
    }

    /// A program of Poisson counts with all of it in the first column: an unchanged one raises an
    /// alarm in at most 5 % of comparisons (plus two standard deviations of 400 tries). Of 10,000
    /// samples a side, 1.05 is 3.45 standard errors: one test alone would find that in 93 % of
    /// tries, and 13 with equal parts of the error in 70 %.
    #[test]
    fn family_wise_false_alarms_stay_at_the_level() {
        const SHARES: [f64; 12] =
            [0.45, 0.2, 0.1, 0.08, 0.06, 0.04, 0.03, 0.02, 0.01, 0.005, 0.003, 0.002];
        let (tries, runs, samples) = (400, 20, 500.0 / 0.45);
        let mut random = Random::new(7, 0);
        let (mut alarms, mut found) = (0, 0);
        for seed in 0..tries {
            let mut test = |factor: f64| {
                let mut columns = vec![column(vec![0.0; 2 * runs], 1.0)];
                for (function, share) in SHARES.iter().enumerate() {
                    let factor =
                        |run: usize| if function == 0 && run >= runs { factor } else { 1.0 };
                    let values: Vec<f64> = (0..2 * runs)
                        .map(|run| random.poisson(samples * share * factor(run)) as f64)
                        .collect();
                    columns[0].values.iter_mut().zip(&values).for_each(|(sum, v)| *sum += v);
                    columns.push(column(values, *share));
                }
                max_t(&columns, runs, seed).p
            };
            alarms += usize::from(test(1.0).iter().any(|p| *p <= 0.05));
            found += usize::from(test(1.05)[1] <= 0.05);
        }
        let (rate, power) = (alarms as f64 / tries as f64, found as f64 / tries as f64);
        println!("false alarms {rate}, power {power}");
        assert!(rate <= 0.05 + 0.022, "{rate}");
        assert!(power >= 0.8, "{power}");
    }

    /// Few runs: a rare function that is new must be reported all the same, although its share is
    /// small. 6 + 6 runs give a p-value of 2 / 924 for each of ten functions.
    #[test]
    fn a_rare_function_that_is_new_is_reported_after_few_runs() {
        let mut random = Random::new(5, 0);
        let runs = 6;
        let mut columns: Vec<TestColumn> =
            (0..9).map(|_| column((0..2 * runs).map(|_| random.unit()).collect(), 0.3)).collect();
        let new = (0..2 * runs).map(|run| if run < runs { 0.0 } else { 1.0 + random.unit() });
        columns.push(column(new.collect(), 0.001));
        let tested = max_t(&columns, runs, 1);
        assert!(tested.p[9] <= 0.05, "{tested:?}");
    }

    #[test]
    fn two_thousand_functions_take_less_than_a_second() {
        let mut random = Random::new(3, 0);
        let columns: Vec<TestColumn> = (1..=2000)
            .map(|n| column((0..40).map(|_| random.unit()).collect(), 1.0 / f64::from(n)))
            .collect();
        let began = std::time::Instant::now();
        let tested = max_t(&columns, 20, 1);
        let took = began.elapsed();
        assert_eq!(tested.p.len(), 2000);
        println!("9,999 permutations of 2,000 functions: {took:?}");
        // A loaded machine is no defect.
        assert!(took.as_secs() < 10, "{took:?}");
    }
}
