//! Readings of a trace's clock beside `CLOCK_MONOTONIC`, in the environment of its
//! metadata: how kymo's traces of programs, whose clock is the processor's counter, are
//! laid on one time with those of the kernel.

use super::types::{EnvValue, Metadata};

/// The most that are looked for.
const MOST: usize = 1 << 10;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The trace's clock, in its own ticks.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic: u64,
    /// Nanoseconds within which they were read.
    pub error: u64,
}

impl Anchor {
    /// Prefix of the environment names of the anchor at `place`.
    fn prefix(place: usize) -> String {
        if place == 0 { "anchor_".to_owned() } else { format!("anchor_{place}_") }
    }

    /// Reads one. Without an error of its own it has that of the clock.
    fn of(metadata: &Metadata, place: usize) -> Option<Anchor> {
        let prefix = Anchor::prefix(place);
        let number = |name: &str| match metadata.env(&format!("{prefix}{name}")) {
            Some(EnvValue::Int(n)) => u64::try_from(*n).ok(),
            _ => None,
        };
        let precision = || {
            metadata.clocks.first().map_or(0, |c| {
                (u128::from(c.precision) * 1_000_000_000 / u128::from(c.freq.max(1))) as u64
            })
        };
        Some(Anchor {
            ticks: number("ticks")?,
            monotonic: number("monotonic")?,
            error: number("error").unwrap_or_else(precision),
        })
    }
}

impl Metadata {
    /// The readings that the environment holds.
    pub fn anchors(&self) -> Vec<Anchor> {
        (0..MOST).map_while(|n| Anchor::of(self, n)).collect()
    }

    /// Adds readings to the environment, which has none yet.
    pub fn add_anchors(&mut self, anchors: impl IntoIterator<Item = Anchor>) {
        for (place, a) in anchors.into_iter().take(MOST).enumerate() {
            let prefix = Anchor::prefix(place);
            let of = [("ticks", a.ticks), ("monotonic", a.monotonic), ("error", a.error)];
            for (name, n) in of {
                let value = EnvValue::Int(i64::try_from(n).unwrap_or(i64::MAX));
                self.env.push((format!("{prefix}{name}"), value));
            }
        }
    }
}
