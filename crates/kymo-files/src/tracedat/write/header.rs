//! The bytes before the events, for who places the pages by himself: a file
//! that grows in place, or one on another machine.

use super::{BufferSpec, Format, TraceFacts, WriteError, check, head, section_header};
use crate::tracedat::Compression;
use crate::tracedat::write::sink;

/// All of an uncompressed file but the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceHeader {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// For each CPU of each instance, in their order, where the offset of its
    /// pages is to be written (a `u64`). Their size follows it.
    pub places: Vec<u64>,
    /// Position of the size of the last instance's section, which is written later (a `u64`), in
    /// version 7. The section starts after it. trace-cmd walks from section to section in search of
    /// one: a size that is too small makes it walk through pages and holes.
    pub section_size: Option<u64>,
}

/// Makes a header. A compression in `format` is only named: the pages are to
/// be stored as they are.
pub fn trace_header(
    facts: &TraceFacts,
    format: Format,
    buffers: &[BufferSpec],
) -> Result<TraceHeader, WriteError> {
    check(format, facts, buffers)?;
    let format = Format { compression: Compression::None, ..format };
    let mut head = head::build(facts, format, buffers)?;
    let headers_at = head.bytes.len() as u64;
    let mut bytes = sink::Bytes::new(facts.endian);
    bytes.raw(&std::mem::take(&mut head.bytes));
    let mut section_size = None;
    for (n, place) in head.buffers.iter().enumerate() {
        if let Some(section) = place.section {
            section_size = Some(headers_at + 16 * n as u64 + 8);
            bytes.set_u64(section, headers_at + 16 * n as u64);
            bytes.raw(&section_header(facts.endian, Compression::None, place.description, 0));
        }
    }
    let places = head.buffers.iter().flat_map(|b| &b.cpus).map(|(offset, _)| *offset).collect();
    Ok(TraceHeader { bytes: bytes.bytes, places, section_size })
}
