//! Values of fields as text (`a=1 b="x" c={1,2}`) and as JSON.

use std::io::Write as _;

use kymo_files::ctf::read::{FieldInfo, Group, Visit};
use kymo_format::json_string;

/// Labels of one value that are shown, and about how many bytes of them.
const MAX_LABELS: usize = 64;
const MAX_LABEL_BYTES: usize = 4096;

/// Appends a number of a field in a base; `bits` is sign-extended.
#[inline]
pub fn write_number(out: &mut Vec<u8>, base: u8, field: &FieldInfo, bits: u64) {
    let mut digits = itoa::Buffer::new();
    match base {
        16 => _ = write!(out, "{:#x}", cut(bits, field.size)),
        8 => _ = write!(out, "{:#o}", cut(bits, field.size)),
        2 => _ = write!(out, "{:#b}", cut(bits, field.size)),
        _ if field.signed => out.extend_from_slice(digits.format(bits as i64).as_bytes()),
        _ => out.extend_from_slice(digits.format(bits).as_bytes()),
    }
}

/// Appends text in which control characters are escaped: those of a program must not reach a
/// terminal. What is not UTF-8 is replaced.
pub fn write_printable(out: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|b| (0x20..0x7f).contains(b)) {
        return out.extend_from_slice(text);
    }
    let text = String::from_utf8_lossy(text);
    for c in text.chars() {
        if c.is_control() {
            _ = write!(out, "{}", c.escape_default())
        } else {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes())
        }
    }
}

/// The bits of a number without its sign's.
fn cut(bits: u64, size: u32) -> u64 {
    if size >= 64 { bits } else { bits & ((1 << size) - 1) }
}

/// ValueText that cannot be mistaken for something else and keeps to its line.
pub fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for b in text {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..0x20 | 0x7f => _ = write!(out, "\\x{b:02x}"),
            _ => out.push(*b),
        }
    }
    out.push(b'"');
}

/// Writes values as text. Separators stand before all but the first.
#[derive(Debug, Default)]
pub struct ValueText {
    open: Vec<(Group, bool)>,
}

impl ValueText {
    /// Separator before a value; `first` is for those outside of all groups.
    #[inline]
    fn before(&mut self, field: &FieldInfo, first: bool, out: &mut Vec<u8>) {
        let (group, first) = match self.open.last_mut() {
            Some((group, first)) => (*group, std::mem::take(first)),
            None => (Group::Struct, first),
        };
        match group {
            Group::Struct => {
                if !first {
                    out.push(b' ');
                }
                out.extend_from_slice(field.name.as_bytes());
                out.push(b'=');
            }
            Group::Row if first => {}
            Group::Row => out.push(b','),
            Group::Option => {
                out.extend_from_slice(field.name.as_bytes());
                out.push(b':');
            }
        }
    }

    /// Appends a number, with the label of an enumeration before it.
    #[inline]
    pub fn int(&mut self, field: &FieldInfo, bits: u64, first: bool, out: &mut Vec<u8>) {
        self.before(field, first, out);
        if field.boolean {
            return match field.first_label(bits) {
                Some(label) => out.extend_from_slice(label.as_bytes()),
                None => write_number(out, field.base, field, bits),
            };
        }
        let mut labels = field.labels(bits).peekable();
        if labels.peek().is_none() {
            return write_number(out, field.base, field, bits);
        }
        let begin = out.len();
        for (i, label) in labels.enumerate() {
            if i > 0 {
                out.push(b'|');
            }
            // Ranges may overlap without end: a line must not grow with the metadata.
            if i == MAX_LABELS || out.len() - begin > MAX_LABEL_BYTES {
                out.extend_from_slice("…".as_bytes());
                break;
            }
            out.extend_from_slice(label.as_bytes());
        }
        out.push(b'(');
        write_number(out, field.base, field, bits);
        out.push(b')');
    }

    /// Appends an address by its name.
    pub fn named(&mut self, field: &FieldInfo, name: &str, first: bool, out: &mut Vec<u8>) {
        self.before(field, first, out);
        write_printable(out, name.as_bytes());
    }

    /// Appends a floating-point number.
    pub fn float(
        &mut self,
        field: &FieldInfo,
        value: f64,
        single: bool,
        first: bool,
        out: &mut Vec<u8>,
    ) {
        self.before(field, first, out);
        // The fewest digits that mean this number and no other.
        let _ = if single { write!(out, "{:?}", value as f32) } else { write!(out, "{value:?}") };
    }

    /// Appends a string in quotes.
    pub fn text(&mut self, field: &FieldInfo, text: &[u8], first: bool, out: &mut Vec<u8>) {
        self.before(field, first, out);
        quoted(out, text);
    }

    /// Opens a structure, array or variant.
    pub fn open(&mut self, field: &FieldInfo, group: Group, first: bool, out: &mut Vec<u8>) {
        self.before(field, first, out);
        if group != Group::Option {
            out.push(b'{');
        }
        self.open.push((group, true));
    }

    /// Closes the innermost group.
    pub fn close(&mut self, group: Group, out: &mut Vec<u8>) {
        self.open.pop();
        if group != Group::Option {
            out.push(b'}');
        }
    }

    /// Whether no group is open.
    #[inline]
    pub fn is_outside(&self) -> bool {
        self.open.is_empty()
    }

    /// Forgets groups that an event that ended early left open.
    pub fn reset(&mut self) {
        self.open.clear();
    }
}

/// Writes values as members of a JSON object. An enumeration and an address that has a name are
/// objects of label and value; without one they are numbers.
#[derive(Debug, Default)]
pub struct ValueJson {
    /// Text written so far.
    pub out: Vec<u8>,
    open: Vec<(Group, bool)>,
    /// Something was written of the object.
    begun: bool,
}

impl ValueJson {
    /// Another object begins.
    pub fn begin(&mut self) {
        self.finish();
        self.begun = false;
    }

    /// Closes what an event that ended early left open.
    pub fn finish(&mut self) {
        while let Some((group, _)) = self.open.pop() {
            self.end(group);
        }
    }

    fn before(&mut self, field: &FieldInfo) {
        let (group, first) = match self.open.last_mut() {
            Some((group, first)) => (*group, std::mem::take(first)),
            None => (Group::Struct, !std::mem::replace(&mut self.begun, true)),
        };
        if !first {
            self.out.push(b',');
        }
        if group != Group::Row {
            json_string(&mut self.out, field.name.as_bytes());
            self.out.push(b':');
        }
    }

    fn end(&mut self, group: Group) {
        self.out.push(if group == Group::Row { b']' } else { b'}' });
    }

    /// An address by its name.
    pub fn named(&mut self, field: &FieldInfo, bits: u64, name: &str) {
        self.before(field);
        self.labelled(field, bits, name);
    }

    fn labelled(&mut self, field: &FieldInfo, bits: u64, label: &str) {
        self.out.extend_from_slice(b"{\"label\":");
        json_string(&mut self.out, label.as_bytes());
        self.out.extend_from_slice(b",\"value\":");
        self.plain(field, bits);
        self.out.push(b'}');
    }

    fn plain(&mut self, field: &FieldInfo, bits: u64) {
        let mut digits = itoa::Buffer::new();
        let text = if field.signed { digits.format(bits as i64) } else { digits.format(bits) };
        self.out.extend_from_slice(text.as_bytes());
    }
}

impl Visit for ValueJson {
    fn int(&mut self, field: &FieldInfo, bits: u64) {
        self.before(field);
        if field.boolean {
            return match field.first_label(bits) {
                Some(label) => self.out.extend_from_slice(label.as_bytes()),
                None => self.plain(field, bits),
            };
        }
        // Of bits that are set and of ranges that overlap all names count.
        let mut labels = field.labels(bits);
        let mut names: Vec<&str> = labels.by_ref().take(MAX_LABELS).collect();
        if labels.next().is_some() {
            names.push("…");
        }
        if names.is_empty() {
            self.plain(field, bits);
        } else {
            self.labelled(field, bits, &names.join("|"));
        }
    }

    fn float(&mut self, field: &FieldInfo, value: f64, single: bool) {
        self.before(field);
        let _ = match (value.is_finite(), single) {
            // JSON has no words for these.
            (false, _) => write!(self.out, "\"{value}\""),
            (true, true) => write!(self.out, "{:?}", value as f32),
            (true, false) => write!(self.out, "{value:?}"),
        };
    }

    fn text(&mut self, field: &FieldInfo, text: &[u8]) {
        self.before(field);
        json_string(&mut self.out, text);
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        self.before(field);
        self.out.push(if group == Group::Row { b'[' } else { b'{' });
        self.open.push((group, true));
    }

    fn close(&mut self, group: Group) {
        self.open.pop();
        self.end(group);
    }
}
