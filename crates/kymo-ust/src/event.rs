//! Event records: encoded by programs, and decoded by readers.

use crate::bytes::Take;
use crate::error::UstFormatError;
use crate::field::{FieldTag, Shape};

/// Flags of an event record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFlags(pub u8);

impl EventFlags {
    /// Its library has been unloaded.
    pub const GONE: u8 = 1;
    /// A mark with text of its own.
    pub const MARK: u8 = 2;
    /// There is an SDT marker at the site.
    pub const SDT: u8 = 4;
}

/// Description of one event by a program, to be encoded. Text is bytes: C programs may use any
/// names.
pub trait EventWords {
    /// Its number.
    fn id(&self) -> u32;
    /// 0 (emergency) to 14 (debug).
    fn level(&self) -> u8;
    /// See [`EventFlags`].
    fn flags(&self) -> u8;
    /// Line in the source.
    fn line(&self) -> u32;
    /// Address of its description in the program.
    fn address(&self) -> u64;
    /// Provider, name, print format, documentation, source file.
    fn texts(&self) -> [&[u8]; 5];
    /// Number of fields.
    fn field_count(&self) -> usize;
    /// One of them.
    fn field(&self, index: usize) -> FieldWords<'_>;
    /// A name of an enum's values: low, high, name.
    fn entry(&self, field: usize, entry: usize) -> (i64, i64, &[u8]);
}

/// Description of one field by a program.
#[derive(Clone, Copy, Debug)]
pub struct FieldWords<'a> {
    /// Layout in the payload.
    pub shape: Shape,
    /// Its name.
    pub name: &'a [u8],
    /// Number of named values.
    pub entries: usize,
}

/// Texts are cut to this, so that a record stays bounded.
const MAX_TEXT: usize = 4096;
const MAX_FIELDS: usize = 256;
const MAX_ENTRIES: usize = 1024;

/// Hands the bytes of a record to `sink`, piece by piece. Allocates nothing. Call it with a
/// counting sink first to know the size.
fn pieces(event: &impl EventWords, size: u32, sink: &mut impl FnMut(&[u8])) {
    let cut = |text: &[u8]| text.len().min(MAX_TEXT);
    let fields = event.field_count().min(MAX_FIELDS);
    sink(&size.to_le_bytes());
    sink(&event.id().to_le_bytes());
    sink(&[event.level(), event.flags()]);
    sink(&(fields as u16).to_le_bytes());
    sink(&event.line().to_le_bytes());
    sink(&event.address().to_le_bytes());
    let text = |text: &[u8], sink: &mut dyn FnMut(&[u8])| {
        sink(&(cut(text) as u16).to_le_bytes());
        sink(&text[..cut(text)]);
    };
    for t in event.texts() {
        text(t, sink);
    }
    for i in 0..fields {
        let field = event.field(i);
        let shape = field.shape;
        sink(&[shape.kind as u8, shape.size, shape.flags, 0]);
        sink(&shape.count.to_le_bytes());
        text(field.name, sink);
        if shape.kind == FieldTag::Enum {
            let entries = field.entries.min(MAX_ENTRIES);
            sink(&(entries as u16).to_le_bytes());
            for e in 0..entries {
                let (low, high, name) = event.entry(i, e);
                sink(&low.to_le_bytes());
                sink(&high.to_le_bytes());
                text(name, sink);
            }
        }
    }
}

/// Size of an event's record, in bytes.
pub(crate) fn record_size(event: &impl EventWords) -> usize {
    let mut size = 0;
    pieces(event, 0, &mut |bytes| size += bytes.len());
    size.next_multiple_of(8)
}

/// A field as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRecord {
    /// Layout in the payload.
    pub shape: Shape,
    /// Its name.
    pub name: String,
    /// Names of an enum's values: low, high, name.
    pub entries: Vec<(i64, i64, String)>,
}

/// An event as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Its number: in packets, and its enable word's.
    pub id: u32,
    /// 0 (emergency) to 14 (debug).
    pub level: u8,
    /// See [`EventFlags`].
    pub flags: EventFlags,
    /// Line in the source.
    pub line: u32,
    /// Address of its description in the program.
    pub address: u64,
    /// Provider.
    pub provider: String,
    /// Name.
    pub name: String,
    /// Print format, with `{field}`.
    pub format: String,
    /// Documentation.
    pub doc: String,
    /// Source file.
    pub file: String,
    /// Its fields.
    pub fields: Vec<FieldRecord>,
}

impl EventRecord {
    /// The bytes of an event's record go to `sink`, in pieces; returns how many.
    pub fn encode(event: &impl EventWords, sink: &mut impl FnMut(&[u8])) -> usize {
        let size = record_size(event);
        let mut written = 0;
        pieces(event, size as u32, &mut |bytes| {
            written += bytes.len();
            sink(bytes);
        });
        sink(&[0; 8][..size - written]);
        size
    }

    /// All records of an event table; what is wrong ends it, and comes with what was right.
    pub fn parse_table(mut bytes: &[u8]) -> (Vec<Self>, Option<UstFormatError>) {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let size = Take(bytes).u32().unwrap_or(0) as usize;
            let record = if size >= 24 && size % 8 == 0 { bytes.get(..size) } else { None };
            let Some(record) = record else {
                let error = UstFormatError::Field { name: "record size", value: size as u64 };
                return (events, Some(error));
            };
            match Self::parse(record) {
                Some(event) => events.push(event),
                None => {
                    let error = UstFormatError::Short { what: "event record", found: size };
                    return (events, Some(error));
                }
            }
            bytes = &bytes[size..];
        }
        (events, None)
    }

    fn parse(record: &[u8]) -> Option<Self> {
        let mut take = Take(&record[4..]);
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let id = take.u32()?;
        let (level, flags, field_count) = (take.u8()?, take.u8()?, take.u16()?);
        let (line, address) = (take.u32()?, take.u64()?);
        let mut texts = [const { String::new() }; 5];
        for text in &mut texts {
            *text = string(take.text()?);
        }
        let [provider, name, format, doc, file] = texts;
        let mut fields = Vec::new();
        for _ in 0..field_count {
            let kind = FieldTag::from_number(take.u8()?)?;
            let (size, flags, _) = (take.u8()?, take.u8()?, take.u8()?);
            let shape = Shape { kind, size, flags, count: take.u32()? };
            if !shape.is_sound() {
                return None;
            }
            let name = string(take.text()?);
            let mut entries = Vec::new();
            if kind == FieldTag::Enum {
                for _ in 0..take.u16()? {
                    entries.push((take.i64()?, take.i64()?, string(take.text()?)));
                }
            }
            fields.push(FieldRecord { shape, name, entries });
        }
        let flags = EventFlags(flags);
        Some(Self { id, level, flags, line, address, provider, name, format, doc, file, fields })
    }
}

/// Decoded records can be encoded again.
impl EventWords for EventRecord {
    fn id(&self) -> u32 {
        self.id
    }
    fn level(&self) -> u8 {
        self.level
    }
    fn flags(&self) -> u8 {
        self.flags.0
    }
    fn line(&self) -> u32 {
        self.line
    }
    fn address(&self) -> u64 {
        self.address
    }
    fn texts(&self) -> [&[u8]; 5] {
        [&self.provider, &self.name, &self.format, &self.doc, &self.file].map(|t| t.as_bytes())
    }
    fn field_count(&self) -> usize {
        self.fields.len()
    }
    fn field(&self, index: usize) -> FieldWords<'_> {
        let field = &self.fields[index];
        FieldWords { shape: field.shape, name: field.name.as_bytes(), entries: field.entries.len() }
    }
    fn entry(&self, field: usize, entry: usize) -> (i64, i64, &[u8]) {
        let (low, high, name) = &self.fields[field].entries[entry];
        (*low, *high, name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn event() -> EventRecord {
        let shape = |kind, size| Shape { kind, size, flags: Shape::HEX, count: 3 };
        let field = |kind, size, name: &str| FieldRecord {
            shape: shape(kind, size),
            name: name.to_owned(),
            entries: if kind == FieldTag::Enum { vec![(-1, 5, "few".into())] } else { Vec::new() },
        };
        EventRecord {
            id: 3,
            level: 13,
            flags: EventFlags(EventFlags::SDT),
            line: 77,
            address: 0x1234,
            provider: "shop".into(),
            name: "sale".into(),
            format: "{id}".into(),
            doc: "Something was sold.".into(),
            file: "src/shop.rs".into(),
            fields: vec![field(FieldTag::Int, 8, "id"), field(FieldTag::Enum, 2, "how")],
        }
    }

    #[test]
    fn a_table_survives_its_bytes() {
        let mut bytes = Vec::new();
        for _ in 0..2 {
            EventRecord::encode(&event(), &mut |piece| bytes.extend_from_slice(piece));
        }
        assert_eq!(EventRecord::parse_table(&bytes), (vec![event(), event()], None));
        for cut in 1..bytes.len() {
            let (events, error) = EventRecord::parse_table(&bytes[..cut]);
            let half = cut == bytes.len() / 2;
            assert_eq!((events.len(), error.is_none()), ((cut >= bytes.len() / 2).into(), half));
        }
    }
}
