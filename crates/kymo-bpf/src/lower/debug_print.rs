//! `debugf()`: text that the kernel formats into its trace buffer.

use super::builder::helper;
use super::{Lowered, Lowering, Value, ValueHome};
use crate::code::Operand;
use crate::object::{FormatConversion, FormatPiece, FormatText};

impl Lowering<'_> {
    pub(super) fn debug_print(&mut self, format: &FormatText, values: Vec<Value>) -> Lowered<()> {
        if self.options.in_user_space {
            return self.error(
                "debugf() prints to the kernel's trace buffer and works only in BPF programs",
            );
        }
        let mut text = match kernel_format(format) {
            Ok(text) => text.into_bytes(),
            Err(what) => return self.error(what),
        };
        text.push(0);
        let length = text.len() as u32;
        let mark = self.mark();
        let place = self.room(length.next_multiple_of(8));
        for (n, chunk) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            let word = self.constant(i64::from_le_bytes(word));
            self.store(place.at(n as u32 * 8), 8, word);
        }
        let size = values.len() as u32 * 8;
        let data = self.room(size.max(8));
        for (n, value) in values.into_iter().enumerate() {
            let operand = match value.home.clone() {
                _ if value.ty.is_scalar() => self.operand(&value)?,
                ValueHome::Memory(place) => self.address(place),
                _ => {
                    let ty = value.ty.clone();
                    let room = self.room(self.types.storage(&ty).max(8));
                    self.store_value(&value, room, &ty)?;
                    self.address(room)
                }
            };
            self.store(data.at(n as u32 * 8), 8, operand);
        }
        let (place, data) = (self.address(place), self.address(data));
        let (length, size) = (Operand::Immediate(length as i32), Operand::Immediate(size as i32));
        self.call(helper::TRACE_PRINT, vec![place, length, data, size]);
        self.release(mark);
        Ok(())
    }
}

/// The format as the kernel's `bpf_trace_vprintk` reads it.
fn kernel_format(format: &FormatText) -> Result<String, String> {
    let mut text = String::new();
    for piece in &format.pieces {
        match piece {
            FormatPiece::Literal(literal) => text += &literal.replace('%', "%%"),
            FormatPiece::Conversion(conversion) => text += &kernel_conversion(conversion)?,
        }
    }
    Ok(text)
}

fn kernel_conversion(conversion: &FormatConversion) -> Result<String, String> {
    let FormatConversion { letter, length, .. } = conversion;
    let is_known = matches!(letter, 'd' | 'i' | 'u' | 'x' | 'X' | 'p' | 's' | 'c');
    let is_plain = !conversion.alternate
        && !conversion.width_from_field
        && !conversion.precision_from_field
        && conversion.precision.is_none();
    if !is_known || !is_plain {
        return Err(format!(
            "debugf() does not support %{length}{letter} as written: the kernel formats it; \
             it has %d, %u, %x, %p, %s and %c with a width"
        ));
    }
    let flag = |is_set: bool, text: &'static str| if is_set { text } else { "" };
    let flags = [
        flag(conversion.left, "-"),
        flag(conversion.zero, "0"),
        flag(conversion.plus, "+"),
        flag(conversion.space, " "),
    ];
    let width = conversion.width.map_or(String::new(), |width| width.to_string());
    let (prefix, kind) = match (letter, length.as_str()) {
        ('p', _) => ("0x", "llx".to_owned()),
        ('s' | 'c', _) => ("", letter.to_string()),
        (letter, "" | "h" | "hh") => ("", letter.to_string()),
        (letter, _) => ("", format!("ll{letter}")),
    };
    Ok(format!("{prefix}%{}{width}{kind}", flags.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_those_of_the_kernel() {
        let of = |length: &str, letter| FormatConversion {
            left: false,
            zero: true,
            alternate: false,
            plus: false,
            space: false,
            width: Some(4),
            width_from_field: false,
            precision: None,
            precision_from_field: false,
            length: length.to_owned(),
            letter,
        };
        let pieces = vec![
            FormatPiece::Literal("100% ".to_owned()),
            FormatPiece::Conversion(of("", 'd')),
            FormatPiece::Conversion(of("l", 'x')),
        ];
        assert_eq!(kernel_format(&FormatText { pieces }).unwrap(), "100%% %04d%04llx");
        assert!(kernel_conversion(&of("", 'o')).is_err());
        assert!(
            kernel_conversion(&FormatConversion { precision: Some(1), ..of("", 's') }).is_err()
        );
    }
}
