//! Numbers as LEB128: seven bits a byte, the lowest first, the eighth says that more come.

/// Appends a number.
#[inline]
pub fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the begin of bytes.
#[inline]
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 53, u64::MAX];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|n| push_number(&mut bytes, *n));
        let mut left = &*bytes;
        assert_eq!(numbers.map(|_| take_number(&mut left).unwrap_or(7)), numbers);
        assert_eq!(take_number(&mut left), None);
        assert_eq!(take_number(&mut &[0x80][..]), None);
    }
}
