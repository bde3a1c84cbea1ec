//! The compressions of version 7, with bounds on what a lying size can cost.

use std::io::{Error, ErrorKind, Read as _, Result};

/// Compression of the sections of a version 7 file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all; version 6 knows nothing else.
    #[default]
    None,
    /// zlib streams.
    Zlib,
    /// zstd frames.
    Zstd,
}

impl Compression {
    /// The name in the file's header.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Zlib => "zlib",
            Compression::Zstd => "zstd",
        }
    }

    /// The version of the algorithm that a file of ours states.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Zlib => "1.2.13",
            Compression::Zstd => "1.5.4",
        }
    }

    /// The compression a header names.
    pub fn named(name: &str) -> Option<Compression> {
        [Compression::None, Compression::Zlib, Compression::Zstd]
            .into_iter()
            .find(|c| c.name() == name)
    }

    /// Compresses `bytes` to the end of `out`.
    pub(crate) fn compress(self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self {
            Compression::None => out.extend_from_slice(bytes),
            Compression::Zstd => out.extend(zstd::bulk::compress(bytes, 1)?),
            Compression::Zlib => {
                let level = flate2::Compression::new(4);
                flate2::bufread::ZlibEncoder::new(bytes, level).read_to_end(out)?;
            }
        }
        Ok(())
    }

    /// Puts what `bytes` unpack to into `out`: exactly `size` bytes, or it is
    /// an error that leaves what could be unpacked.
    pub(crate) fn decompress(self, bytes: &[u8], size: usize, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let limit = size as u64 + 1;
        match self {
            Compression::None => out.extend_from_slice(bytes),
            Compression::Zstd => {
                zstd::stream::read::Decoder::with_buffer(bytes)?.take(limit).read_to_end(out)?;
            }
            Compression::Zlib => {
                flate2::bufread::ZlibDecoder::new(bytes).take(limit).read_to_end(out)?;
            }
        }
        if out.len() == size {
            return Ok(());
        }
        let what = if out.len() > size { "more than" } else { "fewer than" };
        out.truncate(size);
        Err(Error::new(ErrorKind::InvalidData, format!("{what} the stated {size} bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_unpacks_and_sizes_are_held_to() {
        let text: Vec<u8> = (0..100_000u32).flat_map(|i| (i % 251).to_le_bytes()).collect();
        for c in [Compression::None, Compression::Zlib, Compression::Zstd] {
            assert_eq!(Compression::named(c.name()), Some(c));
            let (mut packed, mut out) = (Vec::new(), Vec::new());
            c.compress(&text, &mut packed).unwrap();
            c.decompress(&packed, text.len(), &mut out).unwrap();
            assert_eq!(out, text, "{c:?}");
            let more = c.decompress(&packed, text.len() - 1, &mut out).unwrap_err();
            assert!(more.to_string().contains("more than"), "{more}");
            assert_eq!(out.len(), text.len() - 1);
            assert!(c.decompress(&packed, text.len() + 1, &mut out).is_err());
            assert!(c.decompress(&packed[..packed.len() / 2], text.len(), &mut out).is_err());
        }
    }
}
