//! Arguments of print formats: what the kernel computes for the text of an event and puts into
//! no field. They are constants of the kernel, or names of the bits of a field.

use std::fmt::Write as _;

use crate::{EventFormat, NoSymbols, RenderContext};
use kymo_model::Endian;

/// Expression that a print format shows behind a word such as `gfp_flags=`.
fn argument<'f>(print_format: &'f str, word: &str) -> Option<&'f str> {
    let rest = print_format.trim().strip_prefix('"')?;
    // Formats of the kernel have no escaped quotes but within arguments.
    let (text, arguments) = rest.split_once("\",")?;
    let before = text.get(..text.find(word)?)?;
    let number = before.matches('%').count() - 2 * before.matches("%%").count();
    let (mut depth, mut start, mut seen, mut quoted) = (0u32, 0, 0, false);
    for (at, c) in arguments.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                if seen == number {
                    return arguments.get(start..at).map(str::trim);
                }
                (seen, start) = (seen + 1, at + 1);
            }
            _ => {}
        }
    }
    (seen == number).then(|| arguments.get(start..).map(str::trim))?
}

/// Format that shows one expression over a field of 64 bits.
fn format_of(expression: &str, field: &str, conversion: &str) -> Option<EventFormat> {
    let mut text = String::new();
    let _ = write!(
        text,
        "name: x\nID: 1\nformat:\n\tfield:unsigned long {field};\toffset:0;\tsize:8;\tsigned:0;\n\n\
         print fmt: \"{conversion}\", {expression}\n"
    );
    EventFormat::parse(&text).ok().filter(|format| format.fallbacks().is_empty())
}

fn render(format: &EventFormat, value: u64) -> String {
    let context =
        RenderContext { endian: Endian::Little, symbols: &NoSymbols, ..Default::default() };
    let mut out = Vec::new();
    format.render(&mut out, &value.to_le_bytes(), &context);
    String::from_utf8_lossy(&out).into_owned()
}

/// Number that a print format has as a constant behind a word such as `pageblock_order=`.
pub fn constant_argument(print_format: &str, word: &str) -> Option<i64> {
    let expression = argument(print_format, word)?;
    if expression.contains("REC") {
        return None;
    }
    render(&format_of(expression, "unused", "%d")?, 0).trim().parse().ok()
}

/// Names of the bits of a field, or of its values, as the print format of its kernel has them.
#[derive(Debug, Default)]
pub struct FlagNames(Option<EventFormat>);

impl FlagNames {
    /// Names of a field's values, by what is shown behind a word.
    pub fn from_print_format(print_format: &str, word: &str, field: &str) -> FlagNames {
        let expression = argument(print_format, word);
        FlagNames(expression.and_then(|e| format_of(e, field, "%s")))
    }

    /// Whether there are names.
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Names of the bits that are set, as the kernel writes them; hexadecimal where they are
    /// not known.
    pub fn text(&self, value: u64) -> String {
        self.0.as_ref().map_or_else(|| format!("{value:#x}"), |format| render(format, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\"page=%p pfn=0x%lx pageblock_order=%d gfp_flags=%s last=%d\", \
        REC->pfn != -1UL ? (((struct page *)0) + (REC->pfn)) : ((void *)0), REC->pfn, \
        (((unsigned int)((21 - 12))) < ((unsigned int)(10)) ? ((unsigned int)((21 - 12))) : \
        ((unsigned int)(10))), (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
        {( unsigned long)(0x10|0x20), \"GFP_A,B\"}, {( unsigned long)0x40, \"__GFP_C\"}) : \
        \"none\", REC->last";

    #[test]
    fn constants_and_names_come_from_the_print_format() {
        assert_eq!(argument(FORMAT, "last="), Some("REC->last"));
        assert_eq!(constant_argument(FORMAT, "pageblock_order="), Some(9));
        assert_eq!(constant_argument(FORMAT, "last="), None);
        assert_eq!(constant_argument(FORMAT, "absent="), None);
        assert_eq!(constant_argument("no format", "last="), None);
        let names = FlagNames::from_print_format(FORMAT, "gfp_flags=", "gfp_flags");
        assert_eq!([0, 0x30, 0x70].map(|v| names.text(v)), ["none", "GFP_A,B", "GFP_A,B|__GFP_C"]);
        assert_eq!(FlagNames::default().text(0x30), "0x30");
    }
}
