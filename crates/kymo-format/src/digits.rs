//! Conversion of numbers to digits, several digits per step.

/// The first number of nine digits.
pub(crate) const EIGHT: u32 = 100_000_000;
/// Eight times `0`.
pub(crate) const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The values of the eight digits of a number below [`EIGHT`], the first in the lowest byte:
/// halves, then halves of all halves together, by multiplying with the inverse.
#[inline]
pub(crate) fn eight(n: u32) -> u64 {
    let fours = u64::from(n / 10_000) | u64::from(n % 10_000) << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

/// The hexadecimal digits of a number, the first in the highest byte.
#[inline]
pub(crate) fn nibbles(n: u32) -> u64 {
    let mut x = u64::from(n);
    x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // 1 in each byte that holds ten or more: those continue at `a`.
    let letters = (x + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (x | ZEROS) + letters * u64::from(b'a' - b'0' - 10)
}

/// Six digits, a colon and a blank: microseconds of a second.
#[inline]
pub fn micros(n: u32) -> [u8; 8] {
    const COLON: u64 = (b':' as u64) << 48 | (b' ' as u64) << 56;
    (((eight(n) | ZEROS) >> 16) | COLON).to_le_bytes()
}

/// Nine digits: nanoseconds of a second.
#[inline]
pub fn nanos(n: u32) -> [u8; 9] {
    let mut text = [b'0' + (n / EIGHT) as u8; 9];
    text[1..].copy_from_slice(&(eight(n % EIGHT) | ZEROS).to_le_bytes());
    text
}

/// Lower-case hexadecimal digits, zeros before them up to `least` (at most 16), and how many
/// of the bytes they are.
#[inline]
pub fn hex(n: u64, least: usize) -> ([u8; 16], usize) {
    let digits = ((67 - (n | 1).leading_zeros() as usize) / 4).max(least.min(16));
    if digits <= 8 {
        let text = nibbles((n as u32) << (32 - 4 * digits as u32));
        return ((u128::from(text) << 64).to_be_bytes(), digits);
    }
    let first = n << (64 - 4 * digits as u32);
    let text = u128::from(nibbles((first >> 32) as u32)) << 64 | u128::from(nibbles(first as u32));
    (text.to_be_bytes(), digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_has_eight_digits_is_right() {
        // Each half of a number is treated like the other, so that this is all of them.
        for half in 0..10_000 {
            let digits = |n: u32| eight(n).to_le_bytes().map(|d| char::from(b'0' + d));
            let all: String = digits(half * 10_000 + 9_999 - half).iter().collect();
            assert_eq!(all, format!("{:08}", half * 10_000 + 9_999 - half));
        }
    }
}
