//! Print formats of program events: text with `{field}` and `{field:x}`, into which the values
//! of an event are put. Live events and events of files take this way alike.

use std::fmt::Write as _;
use std::io::Write as _;

use kymo_files::ctf::read::{Class, FieldInfo, Group, Part};

use kymo_events::ctf::{write_number, write_printable};

/// A print format, its fields looked up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PrintFormat {
    pieces: Vec<PrintPiece>,
    /// Whether each field of the event is shown as it is, and in hexadecimal.
    shown: Vec<[bool; 2]>,
}

/// A piece of a print format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PrintPiece {
    /// Text.
    Text(String),
    /// A field of the event, by its place among those.
    Field {
        /// Its place.
        place: usize,
        /// Whether numbers are hexadecimal.
        hex: bool,
        /// Placeholder in an event that ends before it.
        missing: String,
    },
}

impl PrintFormat {
    /// The print format of a class, if it has one.
    pub(crate) fn of(class: &Class<'_>) -> Option<PrintFormat> {
        let format = class.event.print_format.as_deref()?;
        let own = |f: &&FieldInfo| f.top && f.part == Part::Fields;
        let names: Vec<&str> = class.fields().iter().filter(own).map(|f| &*f.name).collect();
        Some(PrintFormat::parse(format, &names))
    }

    fn parse(format: &str, fields: &[&str]) -> PrintFormat {
        let mut parsed = PrintFormat { pieces: Vec::new(), shown: vec![[false; 2]; fields.len()] };
        let mut text = String::new();
        let mut rest = format;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            push_printable(&mut text, before);
            let brace = &from[..1];
            if let Some(behind) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                text.push_str(brace);
                rest = behind;
                continue;
            }
            let inside = from.strip_prefix('{').and_then(|f| f.split_once('}'));
            let Some((inside, behind)) = inside else {
                text.push_str(brace);
                rest = &from[1..];
                continue;
            };
            rest = behind;
            let mut missing = String::new();
            push_printable(&mut missing, &format!("{{{inside}}}"));
            let (name, how) = inside.split_once(':').unwrap_or((inside, ""));
            match fields.iter().position(|f| *f == name) {
                Some(place) => {
                    let hex = how.contains('x');
                    if let Some(shown) = parsed.shown.get_mut(place) {
                        shown[usize::from(hex)] = true;
                    }
                    if !text.is_empty() {
                        parsed.pieces.push(PrintPiece::Text(std::mem::take(&mut text)));
                    }
                    parsed.pieces.push(PrintPiece::Field { place, hex, missing });
                }
                None => text.push_str(&missing),
            }
        }
        push_printable(&mut text, rest);
        if !text.is_empty() {
            parsed.pieces.push(PrintPiece::Text(text));
        }
        parsed
    }

    /// Its pieces in their order.
    pub(crate) fn pieces(&self) -> &[PrintPiece] {
        &self.pieces
    }
}

/// Appends text without its control characters: those of a program must not reach a terminal.
fn push_printable(out: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
}

/// Appends an integer as it stands in a sentence: its name, or the number.
pub(crate) fn write_int(out: &mut Vec<u8>, field: &FieldInfo, bits: u64, hex: bool) {
    if hex {
        return write_number(out, 16, field, bits);
    }
    match field.first_label(bits) {
        Some(label) => write_printable(out, label.as_bytes()),
        None => write_number(out, field.base, field, bits),
    }
}

/// The values of an event on their way into a sentence.
#[derive(Debug, Default)]
pub(super) struct SentenceValues {
    /// Values as they are, and in hexadecimal, as far as the format shows them.
    written: [Vec<u8>; 2],
    /// Spans in both of each field seen.
    spans: Vec<[(usize, usize); 2]>,
    /// Groups that are open, with whether something stands in them.
    open: Vec<(Group, bool)>,
}

impl SentenceValues {
    /// The values of another event begin.
    pub(super) fn begin(&mut self) {
        self.written.iter_mut().for_each(Vec::clear);
        self.spans.clear();
        self.open.clear();
    }

    fn here(&self) -> [usize; 2] {
        [self.written[0].len(), self.written[1].len()]
    }

    /// Writes a value wherever it is shown. `end`: the field it is of ends with it.
    fn put(&mut self, format: &PrintFormat, field: &FieldInfo, write: impl Fn(bool, &mut Vec<u8>)) {
        let from = self.start(format, field);
        let shown = self.shown(format);
        for (hex, out) in [false, true].into_iter().zip(&mut self.written) {
            if shown[usize::from(hex)] {
                write(hex, out);
            }
        }
        self.finish(from);
    }

    /// Whether the field that is next, or open, is shown.
    fn shown(&self, format: &PrintFormat) -> [bool; 2] {
        let place = self.spans.len() - usize::from(!self.open.is_empty());
        format.shown.get(place).copied().unwrap_or_default()
    }

    /// Writes the separator before a value in a group. Returns the positions at which the value of
    /// a field starts.
    fn start(&mut self, format: &PrintFormat, field: &FieldInfo) -> Option<[usize; 2]> {
        let shown = self.shown(format);
        let Some((group, any)) = self.open.last_mut() else { return Some(self.here()) };
        let any = std::mem::replace(any, true);
        let named = *group == Group::Struct;
        for (out, _) in self.written.iter_mut().zip(shown).filter(|(_, shown)| *shown) {
            if any {
                out.extend_from_slice(b", ");
            }
            if named {
                write_printable(out, field.name.as_bytes());
                out.push(b'=');
            }
        }
        None
    }

    fn finish(&mut self, from: Option<[usize; 2]>) {
        if let Some([plain, hex]) = from {
            let [plain_end, hex_end] = self.here();
            self.spans.push([(plain, plain_end), (hex, hex_end)]);
        }
    }

    pub(super) fn int(&mut self, format: &PrintFormat, field: &FieldInfo, bits: u64) {
        self.put(format, field, |hex, out| write_int(out, field, bits, hex));
    }

    /// An address that has a name.
    pub(super) fn named(&mut self, format: &PrintFormat, field: &FieldInfo, bits: u64, name: &str) {
        self.put(format, field, |hex, out| {
            if hex {
                write_int(out, field, bits, true)
            } else {
                write_printable(out, name.as_bytes())
            }
        });
    }

    pub(super) fn float(
        &mut self,
        format: &PrintFormat,
        field: &FieldInfo,
        value: f64,
        single: bool,
    ) {
        self.put(format, field, |_, out| {
            // The fewest digits that mean this number and no other.
            let _ = if single { write!(out, "{}", value as f32) } else { write!(out, "{value}") };
        });
    }

    pub(super) fn text(&mut self, format: &PrintFormat, field: &FieldInfo, text: &[u8]) {
        self.put(format, field, |_, out| write_printable(out, text));
    }

    pub(super) fn open(&mut self, format: &PrintFormat, field: &FieldInfo, group: Group) {
        let from = self.start(format, field);
        let shown = self.shown(format);
        if let Some([plain, hex]) = from {
            // Ends with the group.
            self.spans.push([(plain, plain), (hex, hex)]);
        }
        self.open.push((group, false));
        let mark: &[u8] = match group {
            Group::Row => b"[",
            Group::Struct => b"{",
            Group::Option => b"",
        };
        for (out, _) in self.written.iter_mut().zip(shown).filter(|(_, shown)| *shown) {
            out.extend_from_slice(mark);
        }
    }

    pub(super) fn close(&mut self, format: &PrintFormat, group: Group) {
        let shown = self.shown(format);
        let mark: &[u8] = match group {
            Group::Row => b"]",
            Group::Struct => b"}",
            Group::Option => b"",
        };
        for (out, _) in self.written.iter_mut().zip(shown).filter(|(_, shown)| *shown) {
            out.extend_from_slice(mark);
        }
        self.open.pop();
        if self.open.is_empty() {
            let here = self.here();
            if let Some(spans) = self.spans.last_mut() {
                (spans[0].1, spans[1].1) = (here[0], here[1]);
            }
        }
    }

    /// Puts the sentence together. A field whose bytes were not there, or not all of them,
    /// stands as the format names it.
    pub(super) fn finish_sentence(&mut self, format: &PrintFormat, out: &mut Vec<u8>) {
        // A group that the event's end left open has no end.
        let whole = self.spans.len() - usize::from(!self.open.is_empty());
        for piece in format.pieces() {
            let (place, hex, missing) = match piece {
                PrintPiece::Text(text) => {
                    out.extend_from_slice(text.as_bytes());
                    continue;
                }
                PrintPiece::Field { place, hex, missing } => (*place, usize::from(*hex), missing),
            };
            let span = self.spans.get(place).filter(|_| place < whole).map(|s| s[hex]);
            let value = span.and_then(|(from, to)| self.written[hex].get(from..to));
            out.extend_from_slice(value.unwrap_or(missing.as_bytes()));
        }
    }
}

/// A function and how far behind its begin an address lies, as text.
pub(super) fn write_function(out: &mut String, (name, offset): (&str, u64)) {
    out.clear();
    let _ = write!(out, "{name}+{offset:#x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_and_names_that_are_none_stay_as_they_are() {
        let text = |t: &str| PrintPiece::Text(t.into());
        let field =
            |place, hex, missing: &str| PrintPiece::Field { place, hex, missing: missing.into() };
        let parsed = |format: &str| PrintFormat::parse(format, &["a", "b"]);
        assert_eq!(parsed("").pieces, []);
        assert_eq!(parsed("{{a}}").pieces, [text("{a}")]);
        assert_eq!(
            parsed("a {b:x}, {a}{c} }\u{1b}{").pieces,
            [
                text("a "),
                field(1, true, "{b:x}"),
                text(", "),
                field(0, false, "{a}"),
                text("{c} }\\u{1b}{"),
            ]
        );
        assert_eq!(parsed("{a}{a:x}").shown, [[true, true], [false, false]]);
    }
}
