//! Numbers into bytes, without the formatting machinery: most of what script
//! prints is numbers.

use kymo_format::digits;

/// Decimal, padded with blanks on the left.
#[inline]
pub(crate) fn decimal(out: &mut Vec<u8>, n: u64, width: usize) {
    let mut b = itoa::Buffer::new();
    let digits = b.format(n).as_bytes();
    pad(out, width.saturating_sub(digits.len()));
    out.extend_from_slice(digits);
}

/// Decimal of a fixed number of digits, padded with zeros.
#[inline]
pub(crate) fn zeros(out: &mut Vec<u8>, mut n: u64, digits: usize) {
    let mut b = [b'0'; 20];
    let mut at = digits.min(20);
    while at > 0 {
        at -= 1;
        b[at] = b'0' + (n % 10) as u8;
        n /= 10;
    }
    out.extend_from_slice(&b[..digits.min(20)]);
}

/// Lower-case hexadecimal, padded with blanks on the left.
#[inline]
pub(crate) fn hex(out: &mut Vec<u8>, n: u64, width: usize) {
    let (text, len) = digits::hex(n, 0);
    pad(out, width.saturating_sub(len));
    some_of(out, &text, len);
}

/// Blanks.
#[inline]
pub(crate) fn pad(out: &mut Vec<u8>, n: usize) {
    const BLANKS: [u8; 64] = [b' '; 64];
    let mut n = n;
    while n > 0 {
        let step = n.min(64);
        out.extend_from_slice(&BLANKS[..step]);
        n -= step;
    }
}

/// Appends the first `len` of some bytes. One copy of a fixed size is cheaper than
/// a call that copies few.
#[inline]
pub(crate) fn some_of<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N], len: usize) {
    let end = out.len() + len.min(N);
    out.extend_from_slice(bytes);
    out.truncate(end);
}

/// `seconds.nanos`, seconds in five columns as perf.
#[inline]
pub(crate) fn nanos(out: &mut Vec<u8>, time: u64) {
    decimal(out, time / SECOND, 5);
    out.push(b'.');
    out.extend_from_slice(&digits::nanos((time % SECOND) as u32));
}

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;

/// The text of the second that a time lies in: it changes seldom.
#[derive(Debug, Default)]
pub(crate) struct SecondText {
    begin: u64,
    /// 0 before the first second.
    len: usize,
    /// At most 11 digits: 2^64 nanoseconds are 584 years.
    text: [u8; 16],
}

impl SecondText {
    /// The text of a time's second, in five columns and with its point, and the microseconds
    /// behind it.
    #[inline]
    pub(crate) fn of(&mut self, time: u64) -> (&[u8; 16], usize, u32) {
        let mut rest = time.wrapping_sub(self.begin);
        if rest >= SECOND || self.len == 0 {
            rest = self.enter(time);
        }
        (&self.text, self.len, (rest / 1000) as u32)
    }

    /// Appends `seconds.micros: `.
    #[inline]
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, time: u64) {
        let (text, len, micros) = self.of(time);
        some_of(out, text, len);
        out.extend_from_slice(&digits::micros(micros));
    }

    /// Another second begins; nanoseconds since.
    #[cold]
    fn enter(&mut self, time: u64) -> u64 {
        let mut text = Vec::with_capacity(16);
        decimal(&mut text, time / SECOND, 5);
        text.push(b'.');
        self.len = text.len();
        self.text[..text.len()].copy_from_slice(&text);
        self.begin = time - time % SECOND;
        time % SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn widths_and_times_are_perfs() {
        assert_eq!(of(|o| decimal(o, 42, 5)), "   42");
        assert_eq!(of(|o| hex(o, 0xbeef, 16)), "            beef");
        assert_eq!(of(|o| hex(o, 0, 1)), "0");
        let mut second = SecondText::default();
        assert_eq!(of(|o| second.write(o, 6_880_661_636_999)), " 6880.661636: ");
        assert_eq!(of(|o| second.write(o, 6_880_000_000_000)), " 6880.000000: ");
        assert_eq!(of(|o| second.write(o, 6_879_907_065_001)), " 6879.907065: ");
        assert_eq!(of(|o| second.write(o, u64::MAX)), "18446744073.709551: ");
        assert_eq!(of(|o| some_of(o, b"abcdef", 4)), "abcd");
        assert_eq!(of(|o| nanos(o, 1)), "    0.000000001");
    }
}
