//! printf conversions as the kernel understands them: parsing `%-8.3llx` and
//! writing integers and text by it.

use crate::digits::nibbles;
use crate::expr::Expr;

/// Widths and precisions are cut to this, so that no format can ask for
/// unbounded output.
pub(crate) const MAX_WIDTH: usize = 4096;

/// A number written in the format, or taken from an argument (`*`).
#[derive(Clone, Debug)]
pub(crate) enum Amount {
    None,
    Fixed(usize),
    Arg(Box<Expr>),
}

/// Conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conv {
    Signed,
    Unsigned,
    Hex,
    HexUpper,
    Octal,
    Char,
    Str,
    Pointer,
}

/// One conversion.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) left: bool,
    pub(crate) plus: bool,
    pub(crate) space: bool,
    pub(crate) alt: bool,
    pub(crate) zero: bool,
    pub(crate) width: Amount,
    pub(crate) precision: Amount,
    /// Bytes of an integer argument.
    pub(crate) size: u8,
    pub(crate) conv: Conv,
    /// Letters behind `%p`.
    pub(crate) ext: Box<str>,
}

/// A piece of a format string.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Literal(Vec<u8>),
    Conversion { spec: Spec, star_width: bool, star_precision: bool },
}

/// A conversion's numbers, settled for one event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) left: bool,
    pub(crate) plus: bool,
    pub(crate) space: bool,
    pub(crate) alt: bool,
    pub(crate) zero: bool,
    pub(crate) width: usize,
    pub(crate) precision: Option<usize>,
}

/// Splits a format string.
pub(crate) fn pieces(format: &[u8], long: u8) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut literal = Vec::new();
    let mut at = 0;
    while let Some(&b) = format.get(at) {
        if b != b'%' {
            literal.push(b);
            at += 1;
            continue;
        }
        match conversion(format, at + 1, long) {
            Some((piece, next)) => {
                if !literal.is_empty() {
                    out.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                out.push(piece);
                at = next;
            }
            None => {
                literal.push(b'%');
                at += 1 + usize::from(format.get(at + 1) == Some(&b'%'));
            }
        }
    }
    if !literal.is_empty() {
        out.push(Piece::Literal(literal));
    }
    out
}

fn number(format: &[u8], at: &mut usize) -> usize {
    let mut n = 0usize;
    while let Some(d) = format.get(*at).filter(|b| b.is_ascii_digit()) {
        n = (n * 10 + usize::from(d - b'0')).min(MAX_WIDTH);
        *at += 1;
    }
    n
}

/// One conversion behind its `%`; `None` where the kernel knows none (or `%%`).
fn conversion(format: &[u8], mut at: usize, long: u8) -> Option<(Piece, usize)> {
    let mut spec = Spec {
        left: false,
        plus: false,
        space: false,
        alt: false,
        zero: false,
        width: Amount::None,
        precision: Amount::None,
        size: 4,
        conv: Conv::Signed,
        ext: "".into(),
    };
    loop {
        match format.get(at)? {
            b'-' => spec.left = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.alt = true,
            b'0' => spec.zero = true,
            _ => break,
        }
        at += 1;
    }
    let star_width = format.get(at) == Some(&b'*');
    if star_width {
        at += 1;
    } else if format.get(at)?.is_ascii_digit() {
        spec.width = Amount::Fixed(number(format, &mut at));
    }
    let mut star_precision = false;
    if format.get(at) == Some(&b'.') {
        at += 1;
        star_precision = format.get(at) == Some(&b'*');
        if star_precision {
            at += 1;
        } else {
            spec.precision = Amount::Fixed(number(format, &mut at));
        }
    }
    let mut longs = 0u8;
    loop {
        match format.get(at)? {
            b'h' => spec.size = if spec.size == 2 { 1 } else { 2 },
            b'l' => {
                longs = longs.saturating_add(1);
                spec.size = if longs == 1 { long } else { 8 };
            }
            b'L' | b'q' => spec.size = 8,
            b'z' | b'Z' | b't' => spec.size = long,
            _ => break,
        }
        at += 1;
    }
    spec.conv = match format.get(at)? {
        b'd' | b'i' => Conv::Signed,
        b'u' => Conv::Unsigned,
        b'x' => Conv::Hex,
        b'X' => Conv::HexUpper,
        b'o' => Conv::Octal,
        b'c' => Conv::Char,
        b's' => Conv::Str,
        b'p' => Conv::Pointer,
        _ => return None,
    };
    at += 1;
    if spec.conv == Conv::Pointer {
        let start = at;
        while format.get(at).is_some_and(|b| b.is_ascii_alphanumeric()) && at - start < 6 {
            at += 1;
        }
        let taken = extension(format.get(start..at).unwrap_or(&[]));
        at = start + taken.len();
        spec.ext = String::from_utf8_lossy(taken).into();
    }
    Some((Piece::Conversion { spec, star_width, star_precision }, at))
}

/// The part of the letters behind `%p` that belongs to it.
fn extension(letters: &[u8]) -> &[u8] {
    let known = |set: &[u8], from: usize| {
        letters.iter().skip(from).take_while(|b| set.contains(b)).count() + from
    };
    let n = match letters.first() {
        Some(b'S' | b's' | b'f' | b'F' | b'B') => known(b"Rb", 1),
        Some(b'I' | b'i') => match letters.get(1) {
            Some(b'4') => known(b"hnbl", 2),
            Some(b'6') => known(b"c", 2),
            Some(b'S') => known(b"pfschnbl", 2),
            _ => 1,
        },
        Some(b'M' | b'm') => known(b"FR", 1),
        Some(b'U') => known(b"bBlL", 1),
        Some(b'h') => known(b"CDN", 1).min(2),
        Some(b'b') => known(b"l", 1).min(2),
        Some(b'd' | b'D') => known(b"234", 1).min(2),
        Some(b'a') => known(b"dp", 1).min(2),
        Some(b'E' | b'r' | b'R' | b'G' | b'C' | b't' | b'O' | b'N' | b'g') => known(b"abcdnr", 1),
        Some(b'K' | b'x' | b'e' | b'V') => 1,
        _ => 0,
    };
    letters.get(..n).unwrap_or(letters)
}

/// Appends at most 16 bytes. One fixed-size copy is cheaper than a call that
/// copies a few bytes, and these are most of what rendering does.
#[inline]
pub(crate) fn short(out: &mut Vec<u8>, bytes: &[u8; 16], len: usize) {
    let end = out.len() + len.min(16);
    out.extend_from_slice(bytes);
    out.truncate(end);
}

/// Writes `v` in decimal.
#[inline]
pub(crate) fn decimal(out: &mut Vec<u8>, v: u64) {
    if v < 10_000 {
        // Left-aligned digits of a small number.
        let v = v as u32;
        let digits = [v / 1000, v / 100 % 10, v / 10 % 10, v % 10];
        let word = digits.iter().fold(0u32, |w, d| w << 8 | (d + u32::from(b'0')));
        let n = 1 + usize::from(v >= 10) + usize::from(v >= 100) + usize::from(v >= 1000);
        let end = out.len() + n;
        out.extend_from_slice(&(word << (8 * (4 - n as u32))).to_be_bytes());
        out.truncate(end);
        return;
    }
    out.extend_from_slice(itoa::Buffer::new().format(v).as_bytes());
}

/// Writes `v` in decimal.
#[inline]
pub(crate) fn signed_decimal(out: &mut Vec<u8>, v: i64) {
    if v < 0 {
        out.push(b'-');
    }
    decimal(out, v.unsigned_abs());
}

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Writes `v` in hexadecimal, zeros before it up to `min` digits (at most 16).
#[inline]
pub(crate) fn hex(out: &mut Vec<u8>, v: u64, min: usize) {
    let used = (67 - (v | 1).leading_zeros() as usize) / 4;
    let n = used.max(min.min(16));
    if n <= 8 {
        let word = nibbles((v as u32) << (32 - 4 * n as u32));
        let end = out.len() + n;
        out.extend_from_slice(&word.to_be_bytes());
        out.truncate(end);
        return;
    }
    let aligned = v << (64 - 4 * n);
    let (high, low) = (nibbles((aligned >> 32) as u32), nibbles(aligned as u32));
    short(out, &(u128::from(high) << 64 | u128::from(low)).to_be_bytes(), n);
}

/// Writes an integer of `size` bytes as the kernel's `number()` does: `#`
/// prefixes zero too, and precision 0 still prints the digit.
pub(crate) fn integer(out: &mut Vec<u8>, v: u64, size: u8, conv: Conv, s: Shape) {
    let mut digits = [0u8; 24];
    let (v, sign) = match conv {
        Conv::Signed => {
            let v = crate::ctype::IntTy { size, signed: true }.wrap(v) as i64;
            let sign = match v {
                ..0 => Some(b'-'),
                _ if s.plus => Some(b'+'),
                _ if s.space => Some(b' '),
                _ => None,
            };
            (v.unsigned_abs(), sign)
        }
        _ => (crate::ctype::IntTy { size, signed: false }.wrap(v), None),
    };
    let (base, set) = match conv {
        Conv::Hex => (16, LOWER),
        Conv::HexUpper => (16, UPPER),
        Conv::Octal => (8, LOWER),
        _ => (10, LOWER),
    };
    let mut n = 0;
    let mut left = v;
    for slot in digits.iter_mut().rev() {
        *slot = set[(left % base) as usize];
        n += 1;
        left /= base;
        if left == 0 {
            break;
        }
    }
    let body = digits.get(digits.len() - n..).unwrap_or(&[]);
    let prefix: &[u8] = match (s.alt, conv) {
        (true, Conv::Hex) => b"0x",
        (true, Conv::HexUpper) => b"0X",
        (true, Conv::Octal) if v != 0 => b"0",
        _ => b"",
    };
    let precision = s.precision.unwrap_or(0).max(n);
    let pad = s.width.saturating_sub(precision + prefix.len() + usize::from(sign.is_some()));
    let zero = s.zero && !s.left;
    if !s.left && !zero {
        repeat(out, b' ', pad);
    }
    out.extend(sign);
    out.extend_from_slice(prefix);
    if zero {
        repeat(out, b'0', pad);
    }
    repeat(out, b'0', precision - n);
    out.extend_from_slice(body);
    if s.left {
        repeat(out, b' ', pad);
    }
}

/// Appends `n` times `b`.
pub(crate) fn repeat(out: &mut Vec<u8>, b: u8, n: usize) {
    out.resize(out.len() + n.min(MAX_WIDTH), b);
}

/// Cuts what was written since `start` to the precision and fills it to the
/// width with spaces, as `%s` does.
pub(crate) fn fit(out: &mut Vec<u8>, start: usize, s: Shape) {
    if let Some(p) = s.precision {
        out.truncate(out.len().min(start.saturating_add(p)));
    }
    let pad = s.width.saturating_sub(out.len() - start.min(out.len())).min(MAX_WIDTH);
    if pad == 0 {
        return;
    }
    let end = out.len();
    repeat(out, b' ', pad);
    if !s.left {
        out.copy_within(start..end, start + pad);
        if let Some(gap) = out.get_mut(start..start + pad) {
            gap.fill(b' ');
        }
    }
}
