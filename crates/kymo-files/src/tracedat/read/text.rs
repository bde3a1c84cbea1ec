//! Instances that hold text instead of pages: the kernel's `trace` file of a
//! latency tracer.

use super::section_reader::SectionReader;
use super::{Buffer, Damage, TraceDat};

/// Bytes handed over per call.
const PIECE: u64 = 64 << 10;

impl TraceDat {
    /// Hands the text of an instance to `sink`, piece by piece.
    pub fn read_text<E: From<Damage>>(
        &self,
        buffer: &Buffer,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some((at, size)), Some(file)) = (buffer.text, &self.file) else { return Ok(()) };
        let mut s =
            SectionReader::file(file, at, at.saturating_add(size).min(self.len), self.endian);
        if !buffer.compressed {
            while s.left() > 0 {
                let n = s.left().min(PIECE);
                sink(s.take(n, "text")?)?;
            }
            return Ok(());
        }
        let mut out = Vec::new();
        for _ in 0..s.u32()? {
            let (packed, unpacked) = (s.u32()?, s.u32()?);
            let place = s.offset();
            let bytes = s.take(packed.into(), "chunk of text")?;
            let unpacked = (unpacked as usize).min(super::pages::MAX_CHUNK as usize);
            if let Err(e) = self.compression.decompress(bytes, unpacked, &mut out) {
                let what = format!("text cannot be unpacked: {e}");
                return Err(Damage { offset: place, what }.into());
            }
            sink(&out)?;
        }
        Ok(())
    }
}
