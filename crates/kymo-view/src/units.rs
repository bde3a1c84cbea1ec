//! Times and names as tables show them: cut off as perf does, without what would break a line.

use std::fmt;

/// Times as perf shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeUnits {
    /// Nanoseconds instead of microseconds.
    pub nanos: bool,
}

/// A time in seconds, cut off.
pub struct Seconds(pub u64, pub TimeUnits);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        match self.1.nanos {
            true => f.pad(&format!("{seconds}.{rest:09}")),
            false => f.pad(&format!("{seconds}.{:06}", rest / 1000)),
        }
    }
}

/// A duration in milliseconds, cut off.
pub struct Millis(pub u64, pub TimeUnits);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        match self.1.nanos {
            true => f.pad(&format!("{millis}.{rest:06}")),
            false => f.pad(&format!("{millis}.{:03}", rest / 1000)),
        }
    }
}

/// Names may hold anything; what would break a line is shown as `?`.
pub fn shown(comm: &[u8]) -> String {
    let text = String::from_utf8_lossy(comm);
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_off_as_perf_does() {
        let (micro, nano) = (TimeUnits::default(), TimeUnits { nanos: true });
        assert_eq!(format!("{:>15}", Seconds(13_225_138_886_999, micro)), "   13225.138886");
        assert_eq!(Seconds(1_000_000_009, nano).to_string(), "1.000000009");
        assert_eq!(format!("{:>9}", Millis(1_999_999, micro)), "    1.999");
        assert_eq!(Millis(1_999_999, nano).to_string(), "1.999999");
        assert_eq!(shown(b"a\nb\xff"), "a?b\u{fffd}");
    }
}
