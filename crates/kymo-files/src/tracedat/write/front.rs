//! The bytes before the events, for who places the pages by himself: a file
//! that grows in place, or one on another machine.

use super::{BufferSpec, Facts, Format, WriteError, check, head, section_header};
use crate::tracedat::Compression;
use crate::tracedat::write::sink;

/// All of an uncompressed file but the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// For each CPU of each instance, in their order, where the offset of its
    /// pages is to be written (a `u64`). Their size follows it.
    pub places: Vec<u64>,
}

/// Makes a front. A compression in `format` is only named: the pages are to
/// be stored as they are.
pub fn front(facts: &Facts, format: Format, buffers: &[BufferSpec]) -> Result<Front, WriteError> {
    check(format, facts, buffers)?;
    let format = Format { compression: Compression::None, ..format };
    let mut head = head::build(facts, format, buffers)?;
    let headers_at = head.bytes.len() as u64;
    let mut bytes = sink::Bytes::new(facts.endian);
    bytes.raw(&std::mem::take(&mut head.bytes));
    for (n, place) in head.buffers.iter().enumerate() {
        if let Some(section) = place.section {
            bytes.set_u64(section, headers_at + 16 * n as u64);
            bytes.raw(&section_header(facts.endian, Compression::None, place.description, 0));
        }
    }
    let places = head.buffers.iter().flat_map(|b| &b.cpus).map(|(offset, _)| *offset).collect();
    Ok(Front { bytes: bytes.bytes, places })
}
