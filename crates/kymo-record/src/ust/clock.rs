//! The counter that programs take their times from, read beside `CLOCK_MONOTONIC` by the
//! tool itself: while it watches for times that are true now, into traces so that their
//! readers can follow what the kernel's clock was corrected by.

use kymo_files::ctf::Anchor;
use kymo_ring::{Clock, ClockFacts, ClockKind};

/// A reading each so often, at first.
const EVERY: u64 = 1_000_000_000;
/// Readings that are kept; more are thinned out.
const KEPT: usize = 64;
/// Clocks of one machine differ by less than this and a thousandth of the time between.
const SLACK: u64 = 1_000_000;

/// Both clocks now. The counter is that of all CPUs where programs use it at all.
fn read(earlier: Option<(u64, u64)>) -> Anchor {
    let facts = Clock::Tsc.facts(earlier);
    Anchor { ticks: facts.ticks, monotonic: facts.monotonic, error: facts.error_ns.into() }
}

/// Nanoseconds from one reading on, at a pace of ticks per nanoseconds.
fn stretch(from: Anchor, ticks: u64, (by, nanos): (u64, u64)) -> u64 {
    let off = (i128::from(ticks) - i128::from(from.ticks)) * i128::from(nanos);
    let off = off.div_euclid(i128::from(by.max(1)));
    (i128::from(from.monotonic) + off).clamp(0, i128::from(u64::MAX)) as u64
}

/// The counter as the tool sees it.
#[derive(Debug)]
pub(super) struct Counter {
    first: Anchor,
    /// The last two readings.
    last: [Anchor; 2],
    kept: Vec<Anchor>,
    every: u64,
    /// The most that a time was wrong by, as far as readings tell.
    error: u64,
}

impl Counter {
    /// Begins; takes two milliseconds.
    pub(super) fn start() -> Counter {
        let first = read(None);
        let next = read(Some((first.ticks, first.monotonic)));
        let error = first.error.max(next.error);
        Counter { first, last: [first, next], kept: vec![first], every: EVERY, error }
    }

    /// Reads both clocks again.
    pub(super) fn look(&mut self) {
        let now = read(Some((self.first.ticks, self.first.monotonic)));
        let [_, before] = self.last;
        // Who was held up between the two clocks has read neither.
        if now.error > self.first.error.saturating_mul(16).saturating_add(100) {
            return;
        }
        // A line through two points that lie together points anywhere.
        if now.monotonic > before.monotonic.saturating_add(SLACK) {
            let extrapolated = self.at(now.ticks).abs_diff(now.monotonic);
            self.error = self.error.max(now.error.saturating_add(extrapolated));
            self.last = [before, now];
        }
        let due = self.kept.last().is_none_or(|k| now.monotonic - k.monotonic >= self.every);
        if due {
            self.kept.push(now);
        }
        if self.kept.len() > KEPT {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every *= 2;
        }
    }

    /// `CLOCK_MONOTONIC` at some ticks of a program with this clock.
    pub(super) fn monotonic(&self, clock: &ClockFacts, ticks: u64) -> u64 {
        match clock.kind {
            ClockKind::Monotonic => ticks,
            ClockKind::Tsc => self.at(ticks),
        }
    }

    fn at(&self, ticks: u64) -> u64 {
        let [a, b] = self.last;
        let pace = if a.ticks <= ticks {
            (b.ticks - a.ticks, b.monotonic - a.monotonic)
        } else {
            (b.ticks - self.first.ticks, b.monotonic - self.first.monotonic)
        };
        stretch(a, ticks, pace)
    }

    /// Largest error of the times, by the readings: each is compared with the extrapolation of
    /// those before.
    pub(super) fn error(&self) -> u64 {
        self.error
    }

    /// Whether a program's `CLOCK_MONOTONIC` is ours: it is not in a time namespace, and
    /// its recording is of this start of the machine.
    fn shares(&self, clock: &ClockFacts) -> bool {
        let there = Anchor { ticks: clock.ticks, monotonic: clock.monotonic, error: 0 };
        let extrapolated = stretch(there, self.last[1].ticks, (clock.frequency, 1_000_000_000));
        let between = self.last[1].monotonic.abs_diff(there.monotonic);
        extrapolated.abs_diff(self.last[1].monotonic) <= SLACK + between / 1000
    }

    /// Returns the clock for a trace's metadata: the program's facts with the pace measured over
    /// all the time since, and the readings that its times follow. `gone` is a program that may
    /// have run before the machine was rebooted.
    pub(super) fn of(&self, facts: ClockFacts, gone: bool) -> (ClockFacts, Vec<Anchor>) {
        let error = facts.error_ns.into();
        let own = Anchor { ticks: facts.ticks, monotonic: facts.monotonic, error };
        if facts.kind == ClockKind::Monotonic {
            return (facts, vec![own]);
        }
        let [_, now] = self.last;
        let readings = self.kept.iter().copied().chain([now]);
        match (self.shares(&facts), gone) {
            (false, true) => (facts, vec![own]),
            // Its own readings are of another clock, and no reader will believe them.
            (false, false) => (facts, readings.collect()),
            (true, _) => {
                let (ticks, nanos) = (
                    now.ticks.saturating_sub(own.ticks),
                    now.monotonic.saturating_sub(own.monotonic),
                );
                let pace = u128::from(ticks) * 1_000_000_000 / u128::from(nanos.max(1));
                let measured = nanos > 2 * SLACK && ticks > 0;
                let frequency = match u64::try_from(pace) {
                    Ok(pace) if measured => pace,
                    _ => facts.frequency,
                };
                (ClockFacts { frequency, ..facts }, [own].into_iter().chain(readings).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_kept_further_apart_the_longer_it_takes() {
        let at = |n: u64| Anchor { ticks: n, monotonic: n, error: u64::MAX };
        let mut counter =
            Counter { first: at(0), last: [at(0), at(1)], kept: vec![at(0)], every: 0, error: 0 };
        for _ in 0..1000 {
            counter.look();
        }
        assert!((KEPT / 2..=KEPT).contains(&counter.kept.len()), "{}", counter.kept.len());
        assert!(counter.kept.is_sorted_by_key(|k| k.ticks));
    }

    #[test]
    fn ticks_now_are_the_kernels_time_now() {
        let mut counter = Counter::start();
        let facts = Clock::Tsc.facts(None);
        assert!(counter.shares(&facts));
        std::thread::sleep(std::time::Duration::from_millis(20));
        let before = kymo_kernel::clock::monotonic_ns();
        let ticks = Clock::Tsc.now();
        let after = kymo_kernel::clock::monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        counter.look();
        let shown = counter.monotonic(&facts, ticks);
        let error = counter.error();
        assert!(before <= shown + error && shown <= after + error, "{before} {shown} {after}");
        // Of a time namespace, or of another start of the machine.
        let other = ClockFacts { monotonic: facts.monotonic + 3_600_000_000_000, ..facts };
        assert!(!counter.shares(&other));
        assert_eq!(counter.of(other, true).1.len(), 1);
        let (_, alive) = counter.of(other, false);
        assert!(alive.iter().all(|a| a.monotonic < other.monotonic), "{alive:?}");
    }
}
