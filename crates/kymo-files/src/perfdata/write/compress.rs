//! `PERF_RECORD_COMPRESSED` and `PERF_RECORD_COMPRESSED2`: the kernel's records as one zstd
//! stream, cut into records of at most 64 KiB.

use std::io;

use kymo_model::{RecordHeader, RecordKind};
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

/// Most bytes of the stream in a record: with its header, the size of the second form, and padding
/// the record has 64 KiB at most.
const MOST: usize = u16::MAX as usize - 7 - RecordHeader::SIZE - size_of::<u64>();
/// Bytes compressed between two flushes: no record expands to more, which is
/// what readers size their buffers by (`comp_mmap_len`).
pub(crate) const CHUNK: usize = 1 << 18;

/// The form of compressed records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressedForm {
    /// The bytes alone, as all versions of perf read them.
    #[default]
    Plain,
    /// The number of bytes before them and padding after them (COMPRESSED2), as perf writes them
    /// since 6.16.
    Aligned,
}

/// The stream's state.
pub struct Compressor {
    form: CompressedForm,
    encoder: Encoder<'static>,
    buffer: Vec<u8>,
    taken: u64,
    given: u64,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compressor({} -> {})", self.taken, self.given)
    }
}

impl Compressor {
    /// Most bytes one record expands to.
    pub const EXPANDS_TO: usize = CHUNK;

    /// Starts a stream.
    pub fn new(level: i32, form: CompressedForm) -> io::Result<Compressor> {
        let encoder = Encoder::new(level)?;
        Ok(Compressor { form, encoder, buffer: vec![0; MOST], taken: 0, given: 0 })
    }

    /// Appends `bytes` to `out` as compressed records.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            let mut input = InBuffer::around(chunk);
            loop {
                let mut output = OutBuffer::around(&mut self.buffer[..]);
                while input.pos() < chunk.len() && output.pos() < MOST {
                    self.encoder.run(&mut input, &mut output)?;
                }
                let mut left = 1;
                if input.pos() == chunk.len() && output.pos() < MOST {
                    left = self.encoder.flush(&mut output)?;
                }
                let filled = output.pos();
                self.emit(filled, out);
                if left == 0 {
                    break;
                }
            }
            self.taken += chunk.len() as u64;
        }
        Ok(())
    }

    fn emit(&mut self, filled: usize, out: &mut Vec<u8>) {
        if filled == 0 {
            return;
        }
        let (kind, stated, padding) = match self.form {
            CompressedForm::Plain => (RecordKind::COMPRESSED, None, 0),
            CompressedForm::Aligned => {
                let padding = filled.next_multiple_of(8) - filled;
                (RecordKind::COMPRESSED2, Some(filled as u64), padding)
            }
        };
        let size = RecordHeader::SIZE + stated.map_or(0, |_| size_of::<u64>()) + filled + padding;
        let header = RecordHeader { kind, misc: Default::default(), size: size as u16 };
        out.extend(header.to_bytes());
        stated.iter().for_each(|stated| out.extend(stated.to_ne_bytes()));
        out.extend_from_slice(&self.buffer[..filled]);
        out.resize(out.len() + padding, 0);
        self.given += size as u64;
    }

    /// Bytes taken per byte given.
    pub fn ratio(&self) -> f64 {
        if self.given == 0 { 1.0 } else { self.taken as f64 / self.given as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_records_hold_one_stream() {
        check(CompressedForm::Plain);
        check(CompressedForm::Aligned);
    }

    fn check(form: CompressedForm) {
        // Hard to compress, so that one chunk needs several records.
        let mut x = 1u64;
        let mut input = Vec::new();
        for _ in 0..100_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            input.extend((x >> 16).to_le_bytes());
        }
        let mut c = Compressor::new(1, form).unwrap();
        let mut out = Vec::new();
        input.chunks(200_003).for_each(|part| c.push(part, &mut out).unwrap());
        let (mut stream, mut at, mut records) = (Vec::new(), 0, 0);
        while at < out.len() {
            let size = usize::from(u16::from_ne_bytes([out[at + 6], out[at + 7]]));
            match form {
                CompressedForm::Plain => {
                    assert_eq!(out[at], 81);
                    stream.extend_from_slice(&out[at + 8..at + size]);
                }
                CompressedForm::Aligned => {
                    assert_eq!((out[at], size % 8, at % 8), (83, 0, 0));
                    let stated = u64::from_ne_bytes(out[at + 8..at + 16].try_into().unwrap());
                    let end = at + 16 + stated as usize;
                    assert!((at + size - 7..=at + size).contains(&end), "{end}");
                    stream.extend_from_slice(&out[at + 16..end]);
                }
            }
            at += size;
            records += 1;
        }
        assert!(records > input.len().div_ceil(200_003), "{records}");
        let mut back = vec![0; input.len()];
        zstd::stream::read::Decoder::new(&stream[..]).unwrap().read_exact(&mut back).unwrap();
        assert!(back == input);
    }

    #[test]
    fn higher_levels_compress_more() {
        // Words drawn at random: matches of many lengths and distances, which the strategies of
        // higher levels find better.
        let mut x = 1u64;
        let mut input = Vec::new();
        for _ in 0..30_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let word = ((x >> 40) * (x >> 40)) >> 36;
            input.extend(format!("{word} {} ", word % 17).bytes());
        }
        let size = |level| {
            let mut out = Vec::new();
            Compressor::new(level, CompressedForm::Plain).unwrap().push(&input, &mut out).unwrap();
            out.len()
        };
        let sizes = [3, 12, 15, 22].map(size);
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
    }
}
