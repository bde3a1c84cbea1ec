//! `printf`: conversions filled with values.

use std::io::Write as _;

use kymo_bpf::{FormatConversion, FormatPiece, FormatText, TypedField, ValueType};

use super::text::{write_escaped, write_value};
use crate::value::{ProgramValue, ValueDecoder};

/// Text of a format whose conversions take the fields of a record in order. Returns the number of
/// values of which a conversion without a length showed the lower 32 bits and others are set.
pub(crate) fn format_values(
    out: &mut Vec<u8>,
    format: &FormatText,
    fields: &[TypedField],
    record: &[u8],
    decoder: &mut ValueDecoder<'_>,
    is_old: bool,
) -> u64 {
    let mut fields = fields.iter();
    let mut cut = 0;
    for piece in &format.pieces {
        match piece {
            FormatPiece::Literal(text) => out.extend(text.as_bytes()),
            FormatPiece::Conversion(conversion) => {
                let mut number = |wanted: bool, stated: Option<u32>| {
                    if wanted {
                        let field = fields.next()?;
                        Some(decoder.field(field, record).bits() as i32)
                    } else {
                        stated.map(|n| n as i32)
                    }
                };
                let width = number(conversion.width_from_field, conversion.width);
                let precision = number(conversion.precision_from_field, conversion.precision);
                let Some(field) = fields.next() else { continue };
                let value = match (conversion.letter, decoder.field(field, record)) {
                    ('g', value) => {
                        let flags = decoder.names.allocation_flags(value.bits());
                        ProgramValue::Text(flags.into_bytes())
                    }
                    (_, value) => value,
                };
                let size = conversion_size(conversion, field, is_old);
                cut += u64::from(is_cut(conversion, size, &value));
                convert(out, conversion, width, precision, size, &value);
            }
        }
    }
    cut
}

/// Whether a conversion that states no length hides bits of a value.
fn is_cut(conversion: &FormatConversion, size: u32, value: &ProgramValue) -> bool {
    let is_number = matches!(conversion.letter, 'd' | 'i' | 'u' | 'x' | 'X' | 'o');
    is_number
        && size == 4
        && match value {
            ProgramValue::Signed(n) | ProgramValue::Enumerator(n, _) => {
                i32::try_from(*n).is_err() && u32::try_from(*n).is_err()
            }
            // Of a smaller type with a sign.
            value => u32::try_from(value.bits()).is_err() && (value.bits() as i64) >> 31 != -1,
        }
}

/// The widest field: more is a mistake, and memory.
const WIDEST: usize = 4096;

fn convert(
    out: &mut Vec<u8>,
    conversion: &FormatConversion,
    width: Option<i32>,
    precision: Option<i32>,
    size: u32,
    value: &ProgramValue,
) {
    let left = conversion.left || width.is_some_and(|w| w < 0);
    let width = width.map_or(0, |w| w.unsigned_abs() as usize).min(WIDEST);
    let precision = precision.and_then(|p| usize::try_from(p).ok()).map(|p| p.min(WIDEST));
    let is_number = matches!(conversion.letter, 'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'p' | 'b');
    let (sign, mut body) = match conversion.letter {
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'p' | 'b' => number_parts(conversion, size, value),
        'c' => (String::new(), vec![value.bits() as u8]),
        'r' => (String::new(), bytes_text(conversion, value)),
        _ => {
            let mut body = Vec::new();
            write_value(&mut body, value);
            (String::new(), body)
        }
    };
    if let Some(precision) = precision {
        match is_number {
            true if body.len() < precision => {
                let zeros = std::iter::repeat_n(b'0', precision - body.len());
                body = zeros.chain(body).collect();
            }
            false => body.truncate(precision),
            true => {}
        }
    }
    let padding = width.saturating_sub(sign.len() + body.len());
    let zeros = conversion.zero && !left && is_number && precision.is_none();
    if !left && !zeros {
        out.extend(std::iter::repeat_n(b' ', padding));
    }
    out.extend(sign.as_bytes());
    if zeros {
        out.extend(std::iter::repeat_n(b'0', padding));
    }
    out.extend(&body);
    if left {
        out.extend(std::iter::repeat_n(b' ', padding));
    }
}

/// Sign or prefix, and digits.
fn number_parts(
    conversion: &FormatConversion,
    size: u32,
    value: &ProgramValue,
) -> (String, Vec<u8>) {
    // An enumerator prints its number there.
    let bits = match value {
        ProgramValue::Enumerator(number, _) => *number as u64,
        value => value.bits(),
    };
    let masked = if size >= 8 { bits } else { bits & ((1u64 << (8 * size)) - 1) };
    let prefix =
        |text: &str| if conversion.alternate && masked != 0 { text.into() } else { String::new() };
    match conversion.letter {
        'x' => (prefix("0x"), format!("{masked:x}").into()),
        'X' => (prefix("0X"), format!("{masked:X}").into()),
        'o' => (prefix("0"), format!("{masked:o}").into()),
        'b' => (prefix("0b"), format!("{masked:b}").into()),
        'p' if bits == 0 => (String::new(), "0".into()),
        'p' => ("0x".into(), format!("{bits:x}").into()),
        'u' => (String::new(), masked.to_string().into()),
        _ => {
            let unused = 64 - 8 * size.min(8);
            let number = (bits << unused) as i64 >> unused;
            let sign = match number {
                n if n < 0 => "-",
                _ if conversion.plus => "+",
                _ if conversion.space => " ",
                _ => "",
            };
            (sign.into(), number.unsigned_abs().to_string().into())
        }
    }
}

/// Bytes of the number that are printed: of the conversion, or of the value's type.
fn conversion_size(conversion: &FormatConversion, field: &TypedField, is_old: bool) -> u32 {
    let is_int = matches!(conversion.letter, 'd' | 'i' | 'u' | 'x' | 'X' | 'o');
    match (conversion.length.as_str(), &field.value_type) {
        ("hh", _) => 1,
        ("h", _) => 2,
        ("l" | "ll" | "j" | "z" | "t", _) => 8,
        // An `int`, as in C.
        (
            _,
            ValueType::Integer { .. }
            | ValueType::Boolean
            | ValueType::Pointer
            | ValueType::Enumerator { .. },
        ) if is_int && !is_old => 4,
        (_, ValueType::Integer { size, signed: true })
            if matches!(conversion.letter, 'x' | 'X' | 'o' | 'b' | 'u') =>
        {
            u32::from(*size).max(1)
        }
        _ => 8,
    }
}

fn bytes_text(conversion: &FormatConversion, value: &ProgramValue) -> Vec<u8> {
    let ProgramValue::Bytes(bytes) = value else { return Vec::new() };
    let mut out = Vec::new();
    match conversion.length.as_str() {
        "x" => bytes.iter().for_each(|b| drop(write!(out, "\\x{b:02x}"))),
        "h" => bytes.iter().enumerate().for_each(|(i, b)| {
            drop(write!(out, "{}{b:02x}", if i > 0 { " " } else { "" }));
        }),
        _ => write_escaped(&mut out, bytes),
    }
    out
}
