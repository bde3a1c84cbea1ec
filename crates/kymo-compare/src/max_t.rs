//! Mann-Whitney rank-sum statistics of many functions, tested together: step-down max-T over
//! permutations of the labels "before" and "after" (Westfall and Young 1993, algorithm 4.1).
//!
//! All functions are permuted alike, so that their correlation is kept: the probability that any
//! unchanged function is reported at all stays at the level, however many there are.

use rayon::prelude::*;

use crate::random::Random;

/// Permutations of labels where not all of them are tried.
pub(crate) const PERMUTATIONS: usize = 9_999;
/// Permutations that share one pass.
const CHUNK: usize = 128;

/// Results for each column, and the critical value of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct MaxT {
    /// p-values, adjusted for the number of columns.
    pub(crate) p: Vec<f64>,
    /// Standardized statistic that one column must reach to be significant at 5 %.
    pub(crate) critical: f64,
    /// Smallest p-value that this number of runs can give.
    pub(crate) smallest: f64,
}

/// Tests columns of which the first `before` values are of one side, the others of the other one.
/// All columns have the same number of values.
pub(crate) fn max_t(columns: &[Vec<f64>], before: usize, seed: u64) -> MaxT {
    let runs = columns.first().map_or(0, Vec::len);
    if before == 0 || before >= runs {
        return MaxT { p: vec![1.0; columns.len()], critical: f64::INFINITY, smallest: 1.0 };
    }
    let ranks: Vec<Vec<i32>> = columns.iter().map(|c| centered_ranks(c)).collect();
    let scale: Vec<f32> = ranks.iter().map(|r| inverse_deviation(r, before)).collect();
    let statistic = |c: usize| {
        let sum: i32 = ranks[c].iter().take(before).sum();
        sum.unsigned_abs() as f32 * scale[c]
    };
    let mut order: Vec<usize> = (0..columns.len()).collect();
    let observed: Vec<f32> = order.iter().map(|c| statistic(*c)).collect();
    order.sort_by(|a, b| observed[*a].total_cmp(&observed[*b]));
    let sorted = SortedColumns {
        rows: (0..runs).map(|run| order.iter().map(|c| ranks[*c][run]).collect()).collect(),
        scale: order.iter().map(|c| scale[*c]).collect(),
        // Equal values must count as such in spite of rounding.
        observed: order.iter().map(|c| observed[*c] * (1.0 - 1e-5)).collect(),
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
    let critical = maxima.get((maxima.len() * 95).div_ceil(100)).or(maxima.last());
    let symmetric = if before * 2 == runs && all.is_some() { 2.0 } else { 1.0 };
    MaxT {
        p,
        critical: critical.map_or(f64::INFINITY, |c| f64::from(*c)),
        smallest: symmetric / of as f64,
    }
}

/// Columns by their observed statistic, the smallest first, as one row for each run.
struct SortedColumns {
    rows: Vec<Vec<i32>>,
    scale: Vec<f32>,
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
        let mut largest = 0.0_f32;
        let each = self.sums.iter().zip(&sorted.scale).zip(&sorted.observed);
        for (((sum, scale), observed), exceeded) in each.zip(&mut self.exceeded) {
            largest = largest.max(sum.unsigned_abs() as f32 * scale);
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

    fn p_of(before: &[f64], after: &[f64]) -> f64 {
        max_t(&[[before, after].concat()], before.len(), 1).p[0]
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
        let three = max_t(&[vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]], 3, 1);
        assert_eq!((three.p[0], three.smallest), (0.1, 0.1));
    }

    /// Unchanged functions of Poisson counts: at most 5 % of comparisons may report any of them
    /// (plus two standard deviations of 400 tries), and step-down finds a changed one all the same.
    #[test]
    fn family_wise_false_alarms_stay_at_the_level() {
        let (tries, functions, runs) = (400, 12, 20);
        let mut random = Random::new(7, 0);
        let (mut alarms, mut found) = (0, 0);
        for seed in 0..tries {
            let mut column = |mean: f64, factor: f64| -> Vec<f64> {
                (0..2 * runs)
                    .map(|i| random.poisson(mean * if i < runs { 1.0 } else { factor }) as f64)
                    .collect()
            };
            let mut columns: Vec<_> =
                (0..functions).map(|f| column(3.0 + 20.0 * f as f64, 1.0)).collect();
            let tested = max_t(&columns, runs, seed);
            alarms += usize::from(tested.p.iter().any(|p| *p <= 0.05));
            // Samples that Poisson counts need for a power of 90 % where 13 functions are tested:
            // 2 ((2.85 + 1.28) / ln 1.05)^2 / 0.955 = 15,000 a side.
            columns.push(column(750.0, 1.05));
            let tested = max_t(&columns, runs, seed);
            let smallest = tested.p.iter().copied().fold(1.0, f64::min);
            let last = *tested.p.last().unwrap_or(&1.0);
            found += usize::from(last <= 0.05 && last <= smallest);
        }
        let (rate, power) = (alarms as f64 / tries as f64, found as f64 / tries as f64);
        assert!(rate <= 0.064 + 0.008, "{rate}");
        assert!(power >= 0.8, "{power}");
    }

    #[test]
    fn two_thousand_functions_take_less_than_a_second() {
        let mut random = Random::new(3, 0);
        let columns: Vec<Vec<f64>> =
            (0..2000).map(|_| (0..40).map(|_| random.unit()).collect()).collect();
        let began = std::time::Instant::now();
        let tested = max_t(&columns, 20, 1);
        let took = began.elapsed();
        assert_eq!(tested.p.len(), 2000);
        println!("9,999 permutations of 2,000 functions: {took:?}");
        // A loaded machine is no defect.
        assert!(took.as_secs() < 10, "{took:?}");
    }
}
