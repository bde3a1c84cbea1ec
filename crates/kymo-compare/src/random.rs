//! Pseudo-random numbers with a fixed seed, so that a comparison of the same files is the same
//! each time: SplitMix64 (Steele, Lea, Flood 2014).

/// Generator of uniform numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Generator of one stream of a seed; streams are independent of the order of their use.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut mixed = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        mixed.0 = mixed.next();
        mixed
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // Multiply and shift: the bias is below 2^-32 for the limits in use.
        let high = (u128::from(self.next()) * limit as u128) >> 64;
        high as usize
    }

    /// Uniform number in [0, 1).
    #[cfg(test)]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Number of a Poisson distribution.
    #[cfg(test)]
    pub(crate) fn poisson(&mut self, mean: f64) -> u64 {
        // By parts of at most 30, so that the product does not underflow.
        let (mut rest, mut count) = (mean, 0);
        while rest > 0.0 {
            let limit = (-rest.min(30.0)).exp();
            rest -= 30.0;
            let mut product = self.unit();
            while product > limit {
                count += 1;
                product *= self.unit();
            }
        }
        count
    }
}
