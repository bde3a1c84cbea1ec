//! Parquet's hybrid of run lengths and packed bits: levels and numbers of dictionary entries.

use crate::thrift::ThriftReader;

/// Decodes `count` values of `width` bits; `None` if the bytes end before, or the width is above 32.
pub(crate) fn decode_hybrid(bytes: &[u8], width: u8, count: usize) -> Option<Vec<u32>> {
    if width > 32 {
        return None;
    }
    let mut values = Vec::new();
    let mut reader = ThriftReader { rest: bytes };
    while values.len() < count {
        let head = reader.varint()?;
        let left = count - values.len();
        let amount = usize::try_from(head >> 1).ok()?;
        if head & 1 == 0 {
            let (value, rest) = reader.rest.split_at_checked(usize::from(width).div_ceil(8))?;
            reader.rest = rest;
            let value = value.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
            if amount == 0 {
                return None;
            }
            values.resize(values.len() + amount.min(left), value);
            continue;
        }
        // Groups of eight values, `width` bytes each; the last group may be cut.
        let most = amount.checked_mul(8)?.min(left);
        if most == 0 {
            return None;
        }
        let bytes = amount.checked_mul(usize::from(width))?.min(reader.rest.len());
        let (packed, rest) = reader.rest.split_at_checked(bytes)?;
        reader.rest = rest;
        for n in 0..most {
            values.push(bits(packed, n * usize::from(width), width)?);
        }
    }
    Some(values)
}

/// Bits of a value, the lowest first.
fn bits(bytes: &[u8], from: usize, width: u8) -> Option<u32> {
    let mut value = 0u32;
    for n in 0..usize::from(width) {
        let at = from + n;
        let bit = bytes.get(at / 8)? >> (at % 8) & 1;
        value |= u32::from(bit) << n;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_values_are_decoded() {
        // Five times 2 in 3 bits, then 0 to 7 packed: the specification's example.
        let bytes = [5 << 1, 2, (1 << 1) | 1, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let expected = [2, 2, 2, 2, 2, 0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(decode_hybrid(&bytes, 3, 13).as_deref(), Some(&expected[..]));
        assert_eq!(decode_hybrid(&bytes, 3, 14), None);
        assert_eq!(decode_hybrid(&[0xfe, 0xff, 0xff, 0xff, 0x0f, 1], 1, 3), Some(vec![1; 3]));
        assert_eq!(decode_hybrid(&[0, 1], 1, 3), None);
        assert_eq!(decode_hybrid(&[2, 1], 33, 1), None);
        assert_eq!(decode_hybrid(&[], 0, 0), Some(vec![]));
    }
}
