//! Numbers that look random and are the same for the same seed: SplitMix64 (Steele, Lea, Flood,
//! "Fast splittable pseudorandom number generators", 2014).

/// The state.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The numbers of one round of a run, which do not depend on the other rounds.
    pub(crate) fn of_round(seed: u64, round: u64) -> Chance {
        let mut chance = Chance(seed ^ round.wrapping_mul(0xd134_2543_de82_ef95));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of the range, both ends included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let last = (of.len() - 1) as u64;
        let at = self.between(0, last) as usize;
        &of[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_the_same_again_and_unlike_the_next() {
        let numbers = |round| {
            let mut chance = Chance::of_round(7, round);
            (0..8).map(|_| chance.between(1, 1000)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(3), numbers(3));
        assert_ne!(numbers(3), numbers(4));
        assert!(numbers(3).iter().all(|n| (1..=1000).contains(n)));
    }
}
