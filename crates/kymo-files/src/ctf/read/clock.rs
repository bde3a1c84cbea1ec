//! Values of clocks: stored with few bits, rebuilt to 64, turned into nanoseconds.

use std::sync::Arc;

use super::super::types::{ClockClass, ClockOrigin};
use super::bits::mask;
use super::curve::Curve;

const SECOND: u64 = 1_000_000_000;

/// A value whose lowest bits are stored, the first at or after `before` that has them.
#[inline]
pub(crate) fn rebuild(before: u64, stored: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return stored;
    }
    let mask = mask(bits);
    let value = before & !mask | stored & mask;
    if value < before { value.wrapping_add(mask).wrapping_add(1) } else { value }
}

/// Conversion of a trace's timestamps to nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    freq: u64,
    /// Curve of an uneven clock: its ticks as nanoseconds of another.
    curve: Option<Arc<Curve>>,
    /// Nanoseconds that are added: 0 for the clock's own time.
    offset: i128,
}

impl Scale {
    /// `real`: nanoseconds since 1970 instead of since the clock's zero. The offset of a clock with
    /// an origin of its own leads there, in either case.
    pub(crate) fn of(clock: Option<&ClockClass>, real: bool) -> Scale {
        let freq = clock.map_or(SECOND, |c| c.freq.max(1));
        let has_origin = |c: &ClockClass| matches!(c.origin, ClockOrigin::Custom(_));
        let offset = clock.filter(|c| real || has_origin(c)).map_or(0, real_offset);
        Scale { freq, curve: None, offset }
    }

    /// Converts ticks to nanoseconds of `CLOCK_MONOTONIC` along `curve`, or to those since 1970 as
    /// the metadata relate the two at some tick.
    pub(crate) fn along(clock: Option<&ClockClass>, curve: Arc<Curve>, real: Option<u64>) -> Scale {
        let plain = Scale::of(clock, real.is_some());
        let offset = real.map_or(0, |ticks| {
            i128::from(plain.nanos(ticks, &mut 0)) - i128::from(curve.nanos(ticks, &mut 0))
        });
        Scale { curve: Some(curve), offset, ..plain }
    }

    /// Nanoseconds of a value. `near` is for the next call with a value near this one.
    #[inline]
    pub(crate) fn nanos(&self, value: u64, near: &mut usize) -> u64 {
        if self.offset == 0 {
            match &self.curve {
                None if self.freq == SECOND => return value,
                None => {}
                Some(curve) => return curve.nanos(value, near),
            }
        }
        self.slow(value, near)
    }

    fn slow(&self, value: u64, near: &mut usize) -> u64 {
        let nanos = match (&self.curve, self.freq) {
            (Some(curve), _) => i128::from(curve.nanos(value, near)),
            (None, SECOND) => i128::from(value),
            (None, freq) => (u128::from(value) * u128::from(SECOND) / u128::from(freq)) as i128,
        };
        (nanos + self.offset).clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// Nanoseconds from 1970 to a clock's zero.
pub(crate) fn real_offset(clock: &ClockClass) -> i128 {
    let ticks = i128::from(clock.offset) * i128::from(SECOND);
    i128::from(clock.offset_s) * i128::from(SECOND)
        + ticks.div_euclid(i128::from(clock.freq.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_wrap_once() {
        assert_eq!(rebuild(0, 5, 27), 5);
        assert_eq!(rebuild(0x7ff_ffff, 0, 27), 0x800_0000);
        assert_eq!(rebuild(0x1_0000_0005, 5, 32), 0x1_0000_0005);
        assert_eq!(rebuild(0x1_0000_0005, 4, 32), 0x2_0000_0004);
        assert_eq!(rebuild(9, 7, 64), 7);
        assert_eq!(rebuild(u64::MAX, 0, 32), 0);
    }

    #[test]
    fn ticks_become_nanoseconds_exactly() {
        let mut clock = ClockClass::new("c");
        (clock.freq, clock.offset_s, clock.offset) = (3, 10, -1);
        let own = Scale::of(Some(&clock), false);
        assert_eq!((own.nanos(1, &mut 0), own.nanos(3, &mut 0)), (333_333_333, SECOND));
        let real = Scale::of(Some(&clock), true);
        assert_eq!(real.nanos(0, &mut 0), 10 * SECOND - 333_333_334);
        clock.offset_s = -100;
        assert_eq!(Scale::of(Some(&clock), true).nanos(5, &mut 0), 0);
    }
}
