//! Numbers into bytes, without the formatting machinery: most of what script
//! prints is numbers.

const HEX: &[u8; 16] = b"0123456789abcdef";

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
pub(crate) fn hex(out: &mut Vec<u8>, mut n: u64, width: usize) {
    let mut b = [0u8; 16];
    let mut at = 16;
    loop {
        at -= 1;
        b[at] = HEX[(n & 15) as usize];
        n >>= 4;
        if n == 0 {
            break;
        }
    }
    pad(out, width.saturating_sub(16 - at));
    out.extend_from_slice(&b[at..]);
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

/// Two digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + (n / 10) as u8, b'0' + (n % 10) as u8];
        n += 1;
    }
    pairs
};

/// The six digits of a number below a million.
#[inline]
pub(crate) fn six(n: u32) -> [u8; 6] {
    let [a, b] = PAIRS[(n / 10_000 % 100) as usize];
    let [c, d] = PAIRS[(n / 100 % 100) as usize];
    let [e, f] = PAIRS[(n % 100) as usize];
    [a, b, c, d, e, f]
}

/// `seconds.micros`, or nanoseconds; whole, right-aligned in 12 columns as perf.
#[inline]
pub(crate) fn time(out: &mut Vec<u8>, t: u64, ns: bool) {
    let (seconds, rest) = (t / 1_000_000_000, t % 1_000_000_000);
    if ns {
        decimal(out, seconds, 5);
        out.push(b'.');
        zeros(out, rest, 9);
    } else {
        decimal(out, seconds, 5);
        out.push(b'.');
        zeros(out, rest / 1000, 6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(f: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn widths_and_times_are_perfs() {
        assert_eq!(of(|o| decimal(o, 42, 5)), "   42");
        assert_eq!(of(|o| hex(o, 0xbeef, 16)), "            beef");
        assert_eq!(of(|o| hex(o, 0, 1)), "0");
        assert_eq!(of(|o| time(o, 6_880_661_636_999, false)), " 6880.661636");
        assert_eq!(six(907_065), *b"907065");
        assert_eq!(of(|o| some_of(o, b"abcdef", 4)), "abcd");
        assert_eq!(of(|o| time(o, 1, true)), "    0.000000001");
    }
}
