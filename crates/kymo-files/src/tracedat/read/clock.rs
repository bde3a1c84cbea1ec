//! From the times of the ring to those of the recording, as the options ask.

use crate::tracedat::TraceDatOptions;

/// Conversion of each time: first the TSC conversion, then the options DATE (microseconds) and
/// OFFSET (units of the ring, nanoseconds) are added. trace-cmd does the same; it leaves the offset
/// of TSC2NSEC out, and so does this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// Multiplier and shift.
    tsc: Option<(u32, u32)>,
    add: i64,
}

impl Clock {
    pub(super) fn of(options: &TraceDatOptions) -> Clock {
        Clock {
            tsc: options.tsc2nsec.filter(|t| t.mult != 0).map(|t| (t.mult, t.shift)),
            add: options.date_ns().wrapping_add(options.offset_ns()),
        }
    }

    #[inline]
    pub(super) fn correct(self, time: u64) -> u64 {
        let time = match self.tsc {
            None => time,
            Some((mult, shift)) => {
                (u128::from(time) * u128::from(mult)).checked_shr(shift).unwrap_or(0) as u64
            }
        };
        time.wrapping_add_signed(self.add)
    }
}

impl TraceDatOptions {
    /// Nanoseconds from the ring's clock to the time of day; 0 without the option.
    pub fn date_ns(&self) -> i64 {
        self.date.as_deref().map_or(0, leading_number).wrapping_mul(1000)
    }

    /// Nanoseconds that are added to every time; 0 without the option.
    pub fn offset_ns(&self) -> i64 {
        self.offset.as_deref().map_or(0, leading_number)
    }
}

/// The number a text begins with, as C's `strtoll` with base 0 reads it.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..]),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    let mut value = 0i64;
    for d in digits.chars().map_while(|c| c.to_digit(base)) {
        value = value.saturating_mul(base.into()).saturating_add(d.into());
    }
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracedat::TscToNsec;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, value) in [
            ("1000000", 1_000_000),
            ("-5 and more", -5),
            ("0x3b9aca00", 1_000_000_000),
            ("010", 8),
            ("0x10", 16),
            ("+7\n", 7),
            ("0x", 0),
            ("1234.5", 1234),
            ("", 0),
            ("x", 0),
            ("99999999999999999999", i64::MAX),
        ] {
            assert_eq!(leading_number(text), value, "{text:?}");
        }
    }

    // The values trace-cmd 3.1.6 shows for a file with these options.
    #[test]
    fn corrections_are_those_of_trace_cmd() {
        let time = 11_368_843_602_601;
        let text = |t: &str| Some(t.to_owned());
        let tsc2nsec = Some(TscToNsec { mult: 3, shift: 1, offset: 1000 });
        let mut options = TraceDatOptions { tsc2nsec, ..TraceDatOptions::default() };
        assert_eq!(Clock::of(&options).correct(time), 17_053_265_403_901);
        options.offset = text("1000000");
        assert_eq!(Clock::of(&options).correct(time), 17_053_266_403_901);
        let (date, offset) = (text("1000000000"), text("5000000000"));
        let options = TraceDatOptions { date, offset, ..TraceDatOptions::default() };
        assert_eq!(Clock::of(&options).correct(time), 12_373_843_602_601);
    }
}
