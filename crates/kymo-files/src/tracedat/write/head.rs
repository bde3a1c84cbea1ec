//! Everything before the events, with places left for what is known later:
//! where each CPU's data lie and how large they are.

use kymo_model::Endian;

use super::sink::Bytes;
use super::{BufferSpec, Format, TraceFacts, WriteError};
use crate::tracedat::ids::{SECTION_COMPRESSED, SECTION_HEADER};
use crate::tracedat::{Compression, MAGIC, OptionId, SectionId};

/// The tables in the order of version 6, with what version 7 calls them.
const TABLES: [(SectionId, &str); 6] = [
    (SectionId::HEADER_INFO, "headers"),
    (SectionId::FTRACE_EVENTS, "ftrace events"),
    (SectionId::EVENT_FORMATS, "events format"),
    (SectionId::KALLSYMS, "kallsyms"),
    (SectionId::PRINTK, "printk"),
    (SectionId::CMDLINES, "command lines"),
];

/// The places of an instance.
pub(super) struct BufferPlaces {
    /// Position of the offset of its section, which is written later; version 7 only.
    pub(super) section: Option<u64>,
    /// For each of its CPUs, where the offset and the size are to be written.
    pub(super) cpus: Vec<(u64, u64)>,
    /// Name of its section: an offset in the section of strings.
    pub(super) description: u32,
}

/// The bytes before the events.
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    pub(super) buffers: Vec<BufferPlaces>,
}

pub(super) fn build(
    facts: &TraceFacts,
    format: Format,
    buffers: &[BufferSpec],
) -> Result<Head, WriteError> {
    let mut facts = std::borrow::Cow::Borrowed(facts);
    if facts.options.cpu_count.is_none() {
        facts.to_mut().options.cpu_count = Some(cpu_count(buffers));
    }
    let mut out = Bytes::new(facts.endian);
    out.raw(&MAGIC).cstr(if format.version == 6 { "6" } else { "7" });
    out.raw(&[u8::from(facts.endian == Endian::Big), facts.long_size]).u32(facts.page_size);
    match format.version {
        6 => Ok(version6(&facts, buffers, out)),
        _ => version7(&facts, format.compression, buffers, out),
    }
}

/// CPUs are numbered from 0, so the highest number determines the count.
fn cpu_count(buffers: &[BufferSpec]) -> u32 {
    buffers.iter().flat_map(|b| &b.cpus).max().map_or(0, |c| c.saturating_add(1))
}

fn version6(facts: &TraceFacts, buffers: &[BufferSpec], mut out: Bytes) -> Head {
    for (table, _) in TABLES {
        facts.machine.write(table, &mut out);
    }
    let cpus = cpu_count(buffers);
    out.u32(cpus).raw(b"options  \0");
    facts.options.write(&mut out, facts.endian);
    // The top instance has no option of its own: its places follow immediately.
    let top = usize::from(buffers.first().is_some_and(|b| b.name.is_empty()));
    let mut offsets = Vec::new();
    for b in buffers.iter().skip(top) {
        offsets.push(out.len() + 6);
        let mut data = Bytes::new(facts.endian);
        data.u64(0).cstr(&b.name);
        out.option(OptionId::BUFFER.0, &data.bytes);
    }
    out.u16(OptionId::DONE.0);
    let index = |out: &mut Bytes| {
        out.raw(b"flyrecord\0");
        let start = out.len();
        (0..cpus).for_each(|_| _ = out.u64(0).u64(0));
        start
    };
    let mut places = Vec::new();
    if top == 0 {
        index(&mut out);
    }
    for (i, b) in buffers.iter().enumerate() {
        if let Some(at) = i.checked_sub(top).and_then(|i| offsets.get(i)) {
            out.set_u64(*at, out.len());
        }
        let start = index(&mut out);
        let place = |cpu: &u32| (start + u64::from(*cpu) * 16, start + u64::from(*cpu) * 16 + 8);
        let cpus = b.cpus.iter().map(place).collect();
        places.push(BufferPlaces { section: None, cpus, description: 0 });
    }
    Head { bytes: out.bytes, buffers: places }
}

/// Descriptions of sections, which the headers name by their offset.
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }
}

fn version7(
    facts: &TraceFacts,
    compression: Compression,
    buffers: &[BufferSpec],
    mut out: Bytes,
) -> Result<Head, WriteError> {
    out.cstr(compression.name()).cstr(compression.version());
    let options_at = out.len();
    out.u64(0);
    let mut strings = Strings(Vec::new());
    let mut options = Bytes::new(facts.endian);
    for (table, name) in TABLES {
        let mut at = Bytes::new(facts.endian);
        at.u64(out.len());
        options.option(table.0, &at.bytes);
        let mut content = Bytes::new(facts.endian);
        facts.machine.write(table, &mut content);
        section(&mut out, table, strings.add(name), &content.bytes, compression)?;
    }
    facts.options.write(&mut options, facts.endian);
    out.set_u64(options_at, out.len());
    let names = strings.add("options");
    let mut places: Vec<BufferPlaces> = buffers
        .iter()
        .map(|b| {
            let description = strings.add(&format!("buffer flyrecord {}", b.name));
            BufferPlaces { section: None, cpus: Vec::new(), description }
        })
        .collect();
    // Options stay as they are, so that places in them can be filled in.
    let start = out.len() + SECTION_HEADER;
    for (b, place) in buffers.iter().zip(&mut places) {
        let mut data = Bytes::new(facts.endian);
        let base = start + options.len() + 6;
        place.section = Some(base);
        data.u64(0).cstr(&b.name).cstr(&b.clock).u32(b.page_size).u32(b.cpus.len() as u32);
        for cpu in &b.cpus {
            let at = base + data.len() + 4;
            place.cpus.push((at, at + 8));
            data.u32(*cpu).u64(0).u64(0);
        }
        options.option(OptionId::BUFFER.0, &data.bytes);
    }
    let done = {
        let mut next = Bytes::new(facts.endian);
        next.u64(0);
        next.bytes
    };
    options.option(OptionId::DONE.0, &done);
    section(&mut out, SectionId::OPTIONS, names, &options.bytes, Compression::None)?;
    let name = strings.add("strings");
    section(&mut out, SectionId::STRINGS, name, &strings.0, compression)?;
    Ok(Head { bytes: out.bytes, buffers: places })
}

/// Header and content of a section.
fn section(
    out: &mut Bytes,
    id: SectionId,
    description: u32,
    content: &[u8],
    compression: Compression,
) -> Result<(), WriteError> {
    if compression == Compression::None {
        out.u16(id.0).u16(0).u32(description).u64(content.len() as u64).raw(content);
        return Ok(());
    }
    let mut packed = Vec::new();
    compression.compress(content, &mut packed).map_err(WriteError::Compress)?;
    out.u16(id.0).u16(SECTION_COMPRESSED).u32(description).u64(packed.len() as u64 + 8);
    out.u32(packed.len() as u32).u32(content.len() as u32).raw(&packed);
    Ok(())
}
