//! Ticks of a counter as nanoseconds of `CLOCK_MONOTONIC`: readings of both clocks, and
//! straight lines between them.
//!
//! The kernel makes its clock of the same counter, but corrects its pace (NTP), so that
//! one reading and a frequency are right for a moment only. All traces of a machine
//! share a counter, so their readings are put together and all events are laid on one
//! curve: what was ordered by the counter stays so.

use std::collections::BTreeMap;

/// The most cells of time that readings are kept for.
const MOST_CELLS: usize = 1 << 13;
/// The most pieces of a curve: more only follow the readings' own errors.
const PIECES: u64 = 512;
/// Bits behind the point of a slope.
const SHIFT: u32 = 48;
/// Readings may differ from the first one by a millisecond and this share of the time
/// between: more than clocks are ever corrected by.
const SLACK: (u64, u64) = (1_000_000, 1000);
/// Programs measure the frequency over this time, in nanoseconds.
const MEASURED: u64 = 2_000_000;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) ticks: u64,
    pub(crate) nanos: u64,
    /// Nanoseconds within which they were read.
    pub(crate) error: u64,
}

/// Agreement of times with `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Nanoseconds that an event's time differs from that clock at most.
    pub error: u64,
    /// Readings of both clocks, that times were computed from or checked by; 0 if the
    /// trace's clock is `CLOCK_MONOTONIC`.
    pub readings: usize,
    /// Those that were extrapolated from others, to see how the clock was corrected.
    pub checked: usize,
    /// Readings that cannot be of the same clocks, and were left out.
    pub ignored: u64,
}

/// Readings that are gathered: of each cell of time the best, and another to check it.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    freq: u64,
    first: Reading,
    /// Ticks of a cell, as bits.
    width: u32,
    cells: BTreeMap<u64, (Reading, Option<Reading>)>,
    /// The ticks that events have.
    span: (u64, u64),
    ignored: u64,
}

impl Readings {
    /// `first` is believed; others must fit to it.
    pub(crate) fn new(freq: u64, first: Reading) -> Readings {
        let freq = freq.max(1);
        // Cells of two to four milliseconds.
        let width = freq.ilog2().saturating_sub(8);
        let (cells, span) = (BTreeMap::new(), (first.ticks, first.ticks));
        let mut readings = Readings { freq, first, width, cells, span, ignored: 0 };
        readings.add(first);
        readings
    }

    pub(crate) fn freq(&self) -> u64 {
        self.freq
    }

    pub(crate) fn first(&self) -> Reading {
        self.first
    }

    /// There are events at these ticks.
    pub(crate) fn reach(&mut self, ticks: u64) {
        self.span = (self.span.0.min(ticks), self.span.1.max(ticks));
    }

    /// Whether a reading can be of the same two clocks.
    pub(crate) fn fits(&self, r: Reading) -> bool {
        let ticks = i128::from(r.ticks) - i128::from(self.first.ticks);
        let nanos = ticks * 1_000_000_000 / i128::from(self.freq);
        let off = (i128::from(r.nanos) - i128::from(self.first.nanos) - nanos).unsigned_abs();
        let slack = u128::from(SLACK.0) + nanos.unsigned_abs() / u128::from(SLACK.1);
        off <= slack + u128::from(r.error)
    }

    pub(crate) fn add(&mut self, r: Reading) {
        if !self.fits(r) {
            self.ignored += 1;
            return;
        }
        self.put(r);
        while self.cells.len() > MOST_CELLS {
            self.width += 1;
            for (_, (best, check)) in std::mem::take(&mut self.cells) {
                self.put(best);
                check.into_iter().for_each(|c| self.put(c));
            }
        }
    }

    fn put(&mut self, r: Reading) {
        let cell = r.ticks.checked_shr(self.width).unwrap_or(0);
        let Some((best, check)) = self.cells.get_mut(&cell) else {
            self.cells.insert(cell, (r, None));
            return;
        };
        if r.error < best.error {
            (*best, *check) = (r, Some(*best));
        } else if check.is_none_or(|c| r.error < c.error) && r != *best {
            *check = Some(r);
        }
    }

    /// Those of another trace of the same machine.
    pub(crate) fn join(&mut self, other: &Readings) {
        for (best, check) in other.cells.values() {
            self.add(*best);
            check.iter().for_each(|c| self.add(*c));
        }
        self.reach(other.span.0);
        self.reach(other.span.1);
        self.ignored += other.ignored;
    }

    pub(crate) fn curve(&self) -> Curve {
        let (knots, checks) = self.knots();
        let mut curve = Curve { segments: Vec::new(), agreement: Agreement::default() };
        let own = slope(1_000_000_000, self.freq);
        let steep = |pair: &[Reading]| match pair {
            [a, b] if b.nanos > a.nanos.saturating_add(MEASURED) => {
                Some(slope(b.nanos - a.nanos, b.ticks - a.ticks))
            }
            _ => None,
        };
        // After the last reading, time continues at the pace it had before it.
        let mut after = own;
        for (i, k) in knots.iter().enumerate() {
            let here = knots.get(i..i + 2).and_then(steep);
            after = here.unwrap_or(after);
            curve.segments.push(Segment { ticks: k.ticks, nanos: k.nanos, slope: after });
        }
        curve.agreement = Agreement {
            error: self.error(&knots, &checks, &curve),
            readings: knots.len() + checks.len(),
            checked: knots.len().saturating_sub(2) + checks.len(),
            ignored: self.ignored,
        };
        curve
    }

    /// The readings that the curve goes through, apart from each other, and the others.
    fn knots(&self) -> (Vec<Reading>, Vec<Reading>) {
        let all = || self.cells.values().map(|c| c.0.ticks);
        let span = all().max().unwrap_or(0) - all().min().unwrap_or(0);
        let cell = 1u64.checked_shl(self.width.saturating_sub(1)).unwrap_or(u64::MAX);
        let apart = cell.max(span / PIECES);
        let (mut knots, mut checks): (Vec<Reading>, Vec<Reading>) = (Vec::new(), Vec::new());
        let best = self.cells.values().map(|c| c.0.error).min().unwrap_or(0);
        for (r, check) in self.cells.values() {
            checks.extend(check);
            // The thread was interrupted between the two readings.
            if r.error > best.saturating_mul(16).saturating_add(100) {
                checks.push(*r);
                continue;
            }
            match knots.last_mut() {
                Some(last) if r.ticks - last.ticks < apart && r.error >= last.error => {
                    checks.push(*r);
                }
                Some(last) if r.ticks - last.ticks < apart => {
                    checks.push(*last);
                    *last = *r;
                }
                Some(last) if r.nanos <= last.nanos => checks.push(*r),
                _ => knots.push(*r),
            }
        }
        // One that took another's place may lie before the one before.
        knots.dedup_by(|next, last| next.nanos <= last.nanos || next.ticks <= last.ticks);
        (knots, checks)
    }

    /// Largest error of a time on the curve: that of the readings, the clock's correction between
    /// two of them, as far as others in between and the bends of the curve show it, and before the
    /// first and after the last reading the error of the pace.
    fn error(&self, knots: &[Reading], checks: &[Reading], curve: &Curve) -> u64 {
        let readings = knots.iter().map(|k| k.error).max().unwrap_or(0);
        let mut slewed = 0u64;
        for three in knots.windows(3) {
            let [a, b, c] = three else { continue };
            let line = slope(c.nanos - a.nanos, c.ticks - a.ticks);
            let extrapolated = a.nanos.saturating_add(along(b.ticks - a.ticks, line));
            slewed = slewed.max(extrapolated.abs_diff(b.nanos));
        }
        for c in checks {
            let off = curve.nanos(c.ticks, &mut 0).abs_diff(c.nanos);
            slewed = slewed.max(off.saturating_sub(c.error));
        }
        let (Some(first), Some(last)) = (knots.first(), knots.last()) else { return u64::MAX };
        let outside =
            first.ticks.saturating_sub(self.span.0).max(self.span.1.saturating_sub(last.ticks));
        let outside = u128::from(outside) * 1_000_000_000 / u128::from(self.freq);
        let length = last.nanos - first.nanos;
        let (unsure, over) = match length > MEASURED {
            true => (first.error.saturating_add(last.error), length),
            // The frequency that the metadata state.
            false => (readings.max(1).saturating_mul(2), MEASURED),
        };
        let paces = || curve.segments.iter().map(|s| s.slope);
        let spread = paces().max().unwrap_or(0) - paces().min().unwrap_or(0);
        let ticks = outside.saturating_mul(u128::from(self.freq)) / 1_000_000_000;
        let pace = (outside.saturating_mul(u128::from(unsure))).div_ceil(u128::from(over))
            + (ticks.saturating_mul(u128::from(spread)) >> SHIFT);
        readings.saturating_add(slewed).saturating_add(u64::try_from(pace).unwrap_or(u64::MAX))
    }
}

/// Nanoseconds of ticks, on lines from reading to reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Curve {
    segments: Vec<Segment>,
    pub(crate) agreement: Agreement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    ticks: u64,
    nanos: u64,
    /// Nanoseconds of a tick from here on, and before the first reading.
    slope: u64,
}

/// Nanoseconds of a tick.
fn slope(nanos: u64, ticks: u64) -> u64 {
    let ticks = u128::from(ticks.max(1));
    let exact = ((u128::from(nanos) << SHIFT) + ticks / 2) / ticks;
    u64::try_from(exact).unwrap_or(u64::MAX)
}

/// Nanoseconds of ticks.
#[inline]
fn along(ticks: u64, slope: u64) -> u64 {
    ((u128::from(ticks) * u128::from(slope) + (1 << (SHIFT - 1))) >> SHIFT) as u64
}

impl Curve {
    /// `near`: the segment that was right last time.
    #[inline]
    pub(crate) fn nanos(&self, ticks: u64, near: &mut usize) -> u64 {
        let here = self.segments.get(*near).is_some_and(|s| s.ticks <= ticks)
            && self.segments.get(*near + 1).is_none_or(|s| ticks < s.ticks);
        if !here {
            let behind = self.segments.partition_point(|s| s.ticks <= ticks);
            *near = behind.saturating_sub(1);
        }
        match self.segments.get(*near) {
            Some(s) if ticks >= s.ticks => s.nanos.saturating_add(along(ticks - s.ticks, s.slope)),
            Some(s) => s.nanos.saturating_sub(along(s.ticks - ticks, s.slope)),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 2.5 GHz, and a kernel that changes its pace by `ppm` at 10 s.
    fn truth(ticks: u64, ppm: u64) -> u64 {
        let nanos = u128::from(ticks) * 2 / 5;
        let late = nanos.saturating_sub(10_000_000_000);
        (nanos + late * u128::from(ppm) / 1_000_000) as u64 + 7_000_000_000
    }

    fn reading(ticks: u64, ppm: u64, off: i64, error: u64) -> Reading {
        Reading { ticks, nanos: truth(ticks, ppm).wrapping_add_signed(off), error }
    }

    const GHZ: u64 = 2_500_000_000;

    #[test]
    fn the_stated_error_holds_while_the_clock_is_corrected() {
        let paces = [(0, GHZ), (0, GHZ / 20), (40, GHZ), (500, GHZ / 3), (3, 4 * GHZ)];
        for ((ppm, every), end) in paces.into_iter().flat_map(|p| [(p, 20), (p, 21)]) {
            let mut all = Readings::new(GHZ, reading(0, ppm, 0, 30));
            let mut ticks = 0;
            let mut n = 0u64;
            while ticks < 20 * GHZ {
                ticks += every;
                n += 1;
                // Readings are off by what they may be, one in nine by more than is usable.
                let (off, error) = if n.is_multiple_of(9) { (3000, 4000) } else { (25, 30) };
                let off = if n.is_multiple_of(2) { off } else { -off };
                all.add(reading(ticks, ppm, off, error));
            }
            all.reach(end * GHZ);
            let curve = all.curve();
            let bound = curve.agreement.error;
            let mut worst = 0;
            let (mut near, mut before) = (0, 0);
            for t in (0..end * GHZ).step_by(9_999_991) {
                let shown = curve.nanos(t, &mut near);
                assert!(shown >= before, "{t}");
                before = shown;
                worst = worst.max(shown.abs_diff(truth(t, ppm)));
            }
            assert!(worst <= bound, "{ppm} ppm, {every}: {worst} > {bound}");
            // And it is no idle word where readings reach and the pace is even.
            let idle = ppm == 0 && end == 20 && bound > 3 * worst + 100;
            assert!(!idle, "{ppm} ppm, {every}: {worst}, {bound}");
        }
    }

    #[test]
    fn one_reading_is_stretched_by_the_frequency_and_says_how_far() {
        let mut one = Readings::new(GHZ, reading(10 * GHZ, 0, 0, 40));
        one.reach(9 * GHZ);
        one.reach(15 * GHZ);
        let curve = one.curve();
        assert_eq!(curve.nanos(10 * GHZ, &mut 0), 17_000_000_000);
        assert_eq!(curve.nanos(9 * GHZ, &mut 5), 16_000_000_000);
        // 5 s by a pace that was measured to 80 ns in 2 ms.
        assert_eq!(curve.agreement.error, 40 + 5_000_000_000 / 2_000_000 * 80);
    }

    #[test]
    fn readings_of_other_clocks_are_left_out() {
        let mut all = Readings::new(GHZ, reading(GHZ, 0, 0, 20));
        all.add(reading(3 * GHZ, 0, 5_000_000_000, 20));
        all.add(reading(5 * GHZ, 0, 10, 20));
        all.add(Reading { ticks: u64::MAX, nanos: 0, error: 0 });
        let curve = all.curve();
        assert_eq!((curve.agreement.ignored, curve.agreement.readings), (2, 2));
        assert!(curve.nanos(3 * GHZ, &mut 0).abs_diff(10_000_000_000) <= 10);
        // Whatever a file says, there is an answer.
        let odd = Readings::new(0, Reading { ticks: u64::MAX, nanos: u64::MAX, error: u64::MAX });
        let curve = odd.curve();
        assert_eq!((curve.nanos(u64::MAX, &mut 9), curve.agreement.error), (u64::MAX, u64::MAX));
    }

    #[test]
    fn memory_is_bounded_by_wider_cells() {
        let mut all = Readings::new(GHZ, reading(0, 0, 0, 20));
        for n in 1..40_000 {
            all.add(reading(n * 2 * GHZ, 0, 0, 20 + n % 7));
        }
        let curve = all.curve();
        assert!(curve.segments.len() <= MOST_CELLS && all.cells.len() <= MOST_CELLS);
        assert!(curve.nanos(20_000 * 2 * GHZ, &mut 0).abs_diff(truth(20_000 * 2 * GHZ, 0)) <= 1);
    }
}
