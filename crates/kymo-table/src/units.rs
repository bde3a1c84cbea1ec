//! Times and names as tables show them: cut off as perf does, without what would break a line.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use kymo_model::{UntrustedText, by_number, is_unprintable};

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
        if self.1.nanos {
            f.pad(&format!("{seconds}.{rest:09}"))
        } else {
            f.pad(&format!("{seconds}.{:06}", rest / 1000))
        }
    }
}

/// A duration in milliseconds, cut off.
pub struct Millis(pub u64, pub TimeUnits);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if self.1.nanos {
            f.pad(&format!("{millis}.{rest:06}"))
        } else {
            f.pad(&format!("{millis}.{:03}", rest / 1000))
        }
    }
}

/// A duration in milliseconds, rounded.
pub struct RoundedMillis(pub u64, pub TimeUnits);

impl fmt::Display for RoundedMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.1.nanos { 6 } else { 3 };
        f.pad(&format!("{:.digits$}", self.0 as f64 / 1e6))
    }
}

/// Says how many rows a screen has no room for; a file or a pipe gets all.
pub fn write_more(out: &mut dyn std::io::Write, all: usize, most: usize) -> std::io::Result<()> {
    match all.checked_sub(most) {
        Some(more) if more > 0 => writeln!(out, "  ... and {more} more (| less shows all)"),
        _ => Ok(()),
    }
}

/// A duration in the unit that reads best.
pub struct Span(pub u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let text = match self.0 {
            0..1_000 => format!("{} ns", self.0),
            1_000..1_000_000 => format!("{:.1} us", nanos / 1e3),
            1_000_000..1_000_000_000 => format!("{:.1} ms", nanos / 1e6),
            _ => format!("{:.1} s", nanos / 1e9),
        };
        f.pad(&text)
    }
}

/// A size in the unit that reads best; units are powers of 1024, as in the kernel's own texts.
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = match self.0 {
            0..1024 => format!("{} bytes", self.0),
            1024..0x10_0000 => format!("{:.1} KB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => format!("{:.1} MB", bytes / 1048576.0),
            _ => format!("{:.1} GB", bytes / 1073741824.0),
        };
        f.pad(&text)
    }
}

/// A number with commas between thousands.
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (n, digit) in digits.chars().enumerate() {
            if n > 0 && (digits.len() - n).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// [`kymo_model::counted`] with commas between thousands: `1,234 events`.
pub fn grouped_count(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", Grouped(n), by_number(n, one, more))
}

/// Names may hold anything; what would break a line is shown as `?`.
pub fn shown(comm: &[u8]) -> String {
    let text = String::from_utf8_lossy(comm);
    text.chars().map(|c| if is_unprintable(c) { '?' } else { c }).collect()
}

/// Text from outside, escaped.
pub fn visible(text: &str) -> Cow<'_, str> {
    UntrustedText::new(text).to_text()
}

/// Writes one line of which parts come from outside: what would end it before is escaped.
pub fn write_line(out: &mut dyn Write, line: fmt::Arguments<'_>) -> io::Result<()> {
    let line = line.to_string();
    out.write_all(visible(&line).as_bytes())?;
    out.write_all(b"\n")
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

    #[test]
    fn numbers_have_units_that_read_well() {
        let text = |n| format!("{} {} {}", Span(n), Size(n), Grouped(n));
        assert_eq!(text(999), "999 ns 999 bytes 999");
        assert_eq!(text(1_536_000), "1.5 ms 1.5 MB 1,536,000");
        assert_eq!(text(12_884_901_888), "12.9 s 12.0 GB 12,884,901,888");
    }
}
