//! Blocks of time of one long recording that stand for runs: they must be longer than the time
//! over which what happens depends on what happened before.

/// Fewest blocks of a side.
pub(crate) const FEWEST_BLOCKS: usize = 20;

/// Most blocks of a side: more would be shorter, and tell no more.
const MOST_BLOCKS: usize = 50;

/// One recording does not make enough independent blocks.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BlockError {
    /// Too few samples.
    #[error("{0} samples cannot be divided into {FEWEST_BLOCKS} blocks of time")]
    Few(u64),
    /// Consecutive blocks depend on each other.
    #[error(
        "the load changes too slowly for a recording of this length: it has {0} independent blocks of time, and {FEWEST_BLOCKS} are needed"
    )]
    Correlated(usize),
}

/// Number of blocks of equal length that a recording is cut into. `series`: the weight of what
/// matters most, in as many equal bins of time each; `samples`: samples of the recording.
///
/// # Errors
/// If fewer than 20 blocks would be independent.
pub fn block_count(series: &[Vec<f64>], samples: u64) -> Result<usize, BlockError> {
    if samples < 2 * FEWEST_BLOCKS as u64 {
        return Err(BlockError::Few(samples));
    }
    let bins = series.first().map_or(0, Vec::len);
    let longest = series.iter().map(|s| correlation_length(s)).fold(1.0, f64::max);
    // Twice the correlation length, so that neighbors share little.
    let block = if longest > 1.0 { (2.0 * longest).ceil() } else { 1.0 };
    let blocks = (bins as f64 / block).floor() as usize;
    // Ten samples a block on average: a rank needs different values.
    let blocks = blocks.min((samples / 10).max(FEWEST_BLOCKS as u64) as usize).min(MOST_BLOCKS);
    if blocks < FEWEST_BLOCKS { Err(BlockError::Correlated(blocks)) } else { Ok(blocks) }
}

/// Integrated autocorrelation time in bins: 1 for independent bins. The sum ends at the first
/// correlation that chance explains.
fn correlation_length(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let mean = series.iter().sum::<f64>() / n.max(1.0);
    let variance: f64 = series.iter().map(|v| (v - mean).powi(2)).sum();
    if variance <= 0.0 {
        return 1.0;
    }
    let noise = 2.0 / n.sqrt();
    let mut length = 1.0;
    for lag in 1..series.len() / 2 {
        let pairs = series.iter().zip(series.iter().skip(lag));
        let correlation = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance;
        if correlation <= noise {
            break;
        }
        length += 2.0 * correlation;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn independent_bins_are_blocks_of_their_own() {
        let mut random = Random::new(1, 0);
        let series: Vec<f64> = (0..200).map(|_| random.poisson(50.0) as f64).collect();
        let blocks = block_count(&[series], 10_000);
        assert!(blocks.is_ok_and(|b| b >= 40), "{blocks:?}");
    }

    #[test]
    fn a_slow_wave_leaves_too_few_blocks() {
        let wave: Vec<f64> = (0..200).map(|i| 50.0 + 20.0 * (f64::from(i) / 30.0).sin()).collect();
        assert!(matches!(block_count(&[wave], 10_000), Err(BlockError::Correlated(_))));
    }

    #[test]
    fn a_first_order_process_has_the_known_length() {
        // x(t) = 0.8 x(t-1) + e: the length is (1 + 0.8) / (1 - 0.8) = 9.
        let mut random = Random::new(2, 0);
        let mut value = 0.0;
        let series: Vec<f64> = (0..20_000)
            .map(|_| {
                value = 0.8 * value + random.unit() - 0.5;
                value
            })
            .collect();
        let length = correlation_length(&series);
        assert!((7.5..10.5).contains(&length), "{length}");
    }

    #[test]
    fn few_samples_are_refused() {
        assert_eq!(block_count(&[vec![1.0; 200]], 12), Err(BlockError::Few(12)));
    }
}
