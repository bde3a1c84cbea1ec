//! Events over time in a bounded number of bins, for the picture of the whole recording; and what
//! of it is known while it is read.

use std::sync::{Mutex, PoisonError};

/// Events over time, in equal bins whose width doubles as the time grows.
#[derive(Clone, Debug, Default)]
pub(super) struct EventDensity {
    /// A bin is 2^shift ns wide.
    shift: u32,
    counts: Vec<u64>,
}

impl EventDensity {
    /// Many for each part of what is drawn.
    const BINS: u64 = 1 << 15;

    #[inline]
    pub(super) fn add(&mut self, time: u64) {
        while time >> self.shift >= Self::BINS {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.shift += 1;
        }
        let at = (time >> self.shift) as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
        }
    }

    /// Time in the middle of each bin, and its events.
    pub(super) fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let middle = |at: u64| (at << self.shift) + (1 << self.shift) / 2;
        (0..).zip(&self.counts).map(move |(at, count)| (middle(at), *count))
    }
}

/// Progress of reading a recording.
#[derive(Clone, Debug, Default)]
pub struct ReadSoFar {
    /// Events.
    pub events: u64,
    /// Time of the first.
    pub base: u64,
    /// Time of the last.
    pub last: u64,
    density: EventDensity,
}

impl ReadSoFar {
    /// Times that count from `base`, and how many events there are around each.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.density.bins().filter(|(_, count)| *count > 0)
    }
}

/// Shared progress of reading, for concurrent readers. A recording that is read a second time,
/// since events were lost, starts anew.
#[derive(Debug, Default)]
pub struct TrackProgress(Mutex<ReadSoFar>);

impl TrackProgress {
    /// Returns the current progress.
    pub fn so_far(&self) -> ReadSoFar {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self, (base, last): (u64, u64), events: u64, density: &EventDensity) {
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (read.events, read.base, read.last) = (events, base, last);
        read.density.clone_from(density);
    }

    /// Takes note of events at times that count from `base`.
    pub fn note_times(&self, base: u64, times: &[u64]) {
        let mut density = EventDensity::default();
        times.iter().for_each(|time| density.add(*time));
        let last = times.iter().max().map_or(base, |time| base.saturating_add(*time));
        self.note((base, last), times.len() as u64, &density);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_get_wider_and_lose_nothing() {
        let mut density = EventDensity::default();
        (0..100u64).for_each(|time| density.add(time));
        assert!(density.bins().eq((0..100).map(|time| (time, 1))));
        density.add(EventDensity::BINS * 8 - 1);
        assert_eq!(density.bins().map(|(_, count)| count).sum::<u64>(), 101);
        assert_eq!(density.bins().next(), Some((4, 8)));
        density.add(u64::MAX);
        assert!(density.bins().count() as u64 <= EventDensity::BINS);
        assert_eq!(density.bins().map(|(_, count)| count).sum::<u64>(), 102);
    }
}
