//! The text of a tracefs `format` file → name, id and fields.
//!
//! The kernel writes it, but it also comes out of recordings, so any bytes may
//! stand here: sizes are checked and nothing is trusted.

use std::sync::OnceLock;

use kymo_model::Endian;

use crate::ctype::{self, IntTy, Ty};
use crate::error::FormatError;
use crate::field::{Field, FieldKind, ProbeText};
use crate::json::MemberName;
use crate::parse::ParseOptions;
use crate::print_fmt::Plan;

/// The largest text that is read; the largest of a kernel is some 16 KiB.
const MAX_TEXT: usize = 1 << 20;
/// The most fields of one event that are read.
const MAX_FIELDS: usize = 1024;
/// Payloads end before this offset (a perf record has a 16-bit size).
const MAX_OFFSET: u32 = 1 << 20;

/// An event's layout and its print format, ready for use.
#[derive(Debug)]
pub struct EventFormat {
    /// Event name, without the system.
    pub name: String,
    /// System, as set by the caller; empty otherwise.
    pub system: String,
    /// The number in `common_type`.
    pub id: u32,
    /// All fields, common ones first.
    pub fields: Vec<Field>,
    /// The text after `print fmt:`.
    pub print_fmt: String,
    pub(crate) plan: Plan,
    /// JSON names of the own fields, made when the first payload is shown as JSON.
    pub(crate) member_names: OnceLock<Vec<MemberName>>,
}

impl EventFormat {
    /// Reads the text of a `format` file of a 64-bit machine.
    pub fn parse(text: &str) -> Result<EventFormat, FormatError> {
        Self::parse_with(text, &ParseOptions::default())
    }

    /// Reads the text of a `format` file.
    pub fn parse_with(text: &str, options: &ParseOptions<'_>) -> Result<EventFormat, FormatError> {
        if text.len() > MAX_TEXT {
            return Err(FormatError::TooLarge { bytes: text.len(), limit: MAX_TEXT });
        }
        let (mut name, mut id, mut print_fmt) = (None, None, None);
        let mut fields = Vec::new();
        let mut rest = text;
        let mut line_no = 0;
        while !rest.is_empty() {
            line_no += 1;
            if let Some(p) = rest.trim_start().strip_prefix("print fmt:") {
                // The only entry that may hold line ends of its own, and the last.
                print_fmt = Some(p.trim());
                break;
            }
            let (line, tail) = rest.split_once('\n').unwrap_or((rest, ""));
            rest = tail;
            let line = line.trim();
            let bad = |what| FormatError::BadLine {
                line: line_no,
                what,
                text: line.chars().take(120).collect(),
            };
            if let Some(v) = line.strip_prefix("name:") {
                name = Some(v.trim());
            } else if let Some(v) = line.strip_prefix("ID:") {
                id = Some(v.trim().parse().map_err(|_| bad("id is not a number"))?);
            } else if let Some(v) = line.strip_prefix("field:") {
                if fields.len() >= MAX_FIELDS {
                    return Err(bad("too many fields"));
                }
                fields.push(parse_field(v, options.long_size).map_err(bad)?);
            }
        }
        find_probe_texts(&mut fields);
        let name = name.ok_or(FormatError::Missing("name:"))?.to_owned();
        let id = id.ok_or(FormatError::Missing("ID:"))?;
        let print_fmt = print_fmt.unwrap_or("").to_owned();
        let plan = Plan::compile(&name, &print_fmt, &fields, options);
        let (system, member_names) = (String::new(), OnceLock::new());
        for field in &mut fields {
            field.is_function = plan.names_function_at(field.offset);
        }
        Ok(EventFormat { name, system, id, fields, print_fmt, plan, member_names })
    }

    /// Sets the system of the format.
    #[must_use]
    pub fn with_system(mut self, system: impl Into<String>) -> Self {
        self.system = system.into();
        self
    }

    /// Finds a field by name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// The event's own fields, without the common ones.
    pub fn own_fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().filter(|f| !f.common)
    }

    /// Whether the text of a payload names functions whose addresses are in its fields (`%pS`), or
    /// is the text of `trace_printk`.
    pub fn names_addresses(&self) -> bool {
        self.plan.names_addresses()
    }

    /// Why payloads are not rendered exactly as the kernel does; empty when they are.
    pub fn fallbacks(&self) -> &[String] {
        &self.plan.notes
    }

    /// The id in a payload's `common_type`, the first two bytes of any payload.
    #[inline]
    pub fn payload_id(payload: &[u8], endian: Endian) -> Option<u16> {
        payload.first_chunk().map(|b| endian.u16(*b))
    }
}

/// Marks the texts of probes, whose lengths may be recorded beside: `name` and `name_len`.
fn find_probe_texts(fields: &mut [Field]) {
    if !fields.iter().any(|f| matches!(f.name.as_str(), "__probe_ip" | "__probe_func")) {
        return;
    }
    let lengths: Vec<(String, u32)> = fields
        .iter()
        .filter(|f| f.size == 8 && f.kind == FieldKind::Int && !f.signed)
        .filter_map(|f| Some((f.name.strip_suffix("_len")?.to_owned(), f.offset)))
        .collect();
    let texts = fields.iter_mut().filter(|f| matches!(f.kind, FieldKind::DynString { .. }));
    for text in texts {
        let length = lengths.iter().find(|(name, _)| *name == text.name);
        text.probe_text = Some(ProbeText { length_at: length.map(|(_, at)| *at) });
    }
}

/// One `field:` line after that word: `TYPE NAME[N];\toffset:O;\tsize:S;\tsigned:B;`.
fn parse_field(text: &str, long: u8) -> Result<Field, &'static str> {
    let mut parts = text.split(';');
    let decl = parts.next().unwrap_or("").trim();
    let (mut offset, mut size, mut signed) = (None, None, false);
    for p in parts {
        let Some((key, value)) = p.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "offset" => offset = value.parse::<u32>().ok(),
            "size" => size = value.parse::<u32>().ok(),
            "signed" => signed = value == "1",
            _ => {}
        }
    }
    let offset = offset.filter(|o| *o < MAX_OFFSET).ok_or("no usable offset")?;
    let size = size.filter(|s| *s < MAX_OFFSET).ok_or("no usable size")?;
    let (type_text, name) = split_declaration(decl).ok_or("no name in the declaration")?;
    let kind = kind_of(&type_text, size, signed, long);
    let common = name.starts_with("common_");
    let (name, probe_text) = (name.to_owned(), None);
    Ok(Field {
        name,
        type_text,
        offset,
        size,
        signed,
        kind,
        common,
        probe_text,
        is_function: false,
    })
}

/// `char comm[16]` → (`char[16]`, `comm`); `const char *const * argv` → (…, `argv`).
fn split_declaration(decl: &str) -> Option<(String, &str)> {
    let (head, array) = match decl.rfind('[') {
        // `__data_loc char[] name` has its brackets before the name.
        Some(at) if decl.ends_with(']') => (decl[..at].trim_end(), &decl[at..]),
        _ => (decl, ""),
    };
    // A second dimension stays with the type as well.
    let (head, array2) = match head.rfind('[') {
        Some(at) if head.ends_with(']') && !array.is_empty() => (&head[..at], &head[at..]),
        _ => (head, ""),
    };
    let at = head.rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    let start = at.map_or(0, |i| i + head[i..].chars().next().map_or(1, char::len_utf8));
    let name = head.get(start..)?;
    if name.is_empty() {
        return None;
    }
    let ty = head.get(..start)?.trim_end();
    Some((format!("{ty}{array2}{array}"), name))
}

fn kind_of(type_text: &str, size: u32, signed: bool, long: u8) -> FieldKind {
    let (dynamic, relative, inner) = if let Some(t) = type_text.strip_prefix("__data_loc ") {
        (true, false, t)
    } else if let Some(t) = type_text.strip_prefix("__rel_loc ") {
        (true, true, t)
    } else {
        (false, false, type_text)
    };
    let (base, is_array, count) = match inner.find('[') {
        Some(at) => {
            let n = inner[at..].trim_matches(['[', ']']).trim().parse::<u32>().ok();
            (inner[..at].trim(), true, n)
        }
        None => (inner.trim(), false, None),
    };
    let words = || base.split([' ', '\t']).filter(|w| !w.is_empty());
    let is_char = matches!(words().next_back(), Some("char"))
        && !words().any(|w| w == "unsigned" || w == "signed")
        && !base.contains('*');
    let element = element_type(base, long);
    if dynamic {
        return match element {
            _ if is_char => FieldKind::DynString { relative },
            Some(e) => FieldKind::DynArray { relative, elem: e.size, signed: e.signed },
            None => FieldKind::DynBitmask { relative },
        };
    }
    if is_array {
        if is_char {
            return FieldKind::String;
        }
        // The written size settles what an unknown typedef's element takes.
        let by_size = count.filter(|n| *n > 0 && size.is_multiple_of(*n)).map(|n| size / n);
        return match (element, by_size) {
            (Some(e), None) => FieldKind::Array { elem: e.size, signed: e.signed },
            (Some(e), Some(n)) if u32::from(e.size) == n => {
                FieldKind::Array { elem: e.size, signed: e.signed }
            }
            (_, Some(n @ (1 | 2 | 4 | 8))) => FieldKind::Array { elem: n as u8, signed },
            _ => FieldKind::Opaque,
        };
    }
    if base.contains('*') {
        return if matches!(size, 1 | 2 | 4 | 8) { FieldKind::Pointer } else { FieldKind::Opaque };
    }
    match size {
        1 if matches!(base, "bool" | "_Bool") => FieldKind::Bool,
        // A structure of an integer's size is shown as that integer.
        1 | 2 | 4 | 8 => FieldKind::Int,
        _ => FieldKind::Opaque,
    }
}

fn element_type(base: &str, long: u8) -> Option<IntTy> {
    if base.contains('*') {
        return Some(IntTy { size: long, signed: false });
    }
    match ctype::from_words(base.split([' ', '\t']).filter(|w| !w.is_empty()), long)? {
        Ty::Int(i) => Some(i),
        _ => None,
    }
}
