//! The data of a page: blobs, one behind the other in pieces that are compressed, and unpacked
//! by the page when it looks at them.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::thread::JoinHandle;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::Value;

/// A piece is full with this many bytes, unless one blob has more.
const PIECE: usize = 4 << 20;
/// A blob is cut into parts of this size, so that no piece is larger than browsers like.
const PART: usize = 5 << 20;

/// Pieces that are compressed at a time.
const MOST_PACKING: usize = 3;

/// Where pieces go as they get full.
pub(super) enum PieceTarget<'o> {
    /// Into the page, as text in elements of it.
    Page(&'o mut dyn Write),
    /// To who hands them out one by one.
    List(&'o mut Vec<Vec<u8>>),
}

/// Packs blobs into pieces.
pub(super) struct PieceWriter<'o> {
    out: PieceTarget<'o>,
    piece: Vec<u8>,
    number: u32,
    /// Pieces that are compressed by threads of their own, in their order.
    packing: VecDeque<JoinHandle<io::Result<Vec<u8>>>>,
    written: u32,
}

impl<'o> PieceWriter<'o> {
    pub(super) fn new(out: PieceTarget<'o>) -> PieceWriter<'o> {
        let packing = VecDeque::new();
        PieceWriter { out, piece: Vec::new(), number: 0, packing, written: 0 }
    }

    /// Adds a blob; answers where its parts are: piece, offset, length of each.
    pub(super) fn add(&mut self, bytes: &[u8]) -> io::Result<Value> {
        let mut parts = Vec::new();
        for part in bytes.chunks(PART) {
            if !self.piece.is_empty() && self.piece.len() + part.len() > PIECE {
                self.end_piece()?;
            }
            parts.extend([self.number as usize, self.piece.len(), part.len()]);
            self.piece.extend_from_slice(part);
        }
        Ok(parts.into())
    }

    fn end_piece(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        self.number += 1;
        let thread = std::thread::Builder::new().name("deflate".into());
        self.packing.push_back(thread.spawn(move || deflate(&piece))?);
        if self.packing.len() > MOST_PACKING { self.write_next() } else { Ok(()) }
    }

    /// Writes the first piece of those that are compressed.
    fn write_next(&mut self) -> io::Result<()> {
        let Some(thread) = self.packing.pop_front() else { return Ok(()) };
        let packed = thread.join().map_err(|_| io::Error::other("deflate failed"))??;
        match &mut self.out {
            PieceTarget::List(list) => list.push(packed),
            PieceTarget::Page(out) => {
                write!(out, "<script type=\"text/plain\" id=\"p{}\">", self.written)?;
                // A multiple of three bytes has no padding inside.
                for part in packed.chunks(48 << 10) {
                    out.write_all(STANDARD.encode(part).as_bytes())?;
                }
                out.write_all(b"</script>\n")?;
            }
        }
        self.written += 1;
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.piece.is_empty() {
            self.end_piece()?;
        }
        while !self.packing.is_empty() {
            self.write_next()?;
        }
        Ok(())
    }
}

fn deflate(piece: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(4));
    encoder.write_all(piece)?;
    encoder.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test is a panic")]
mod tests {
    use super::*;
    use flate2::read::DeflateDecoder;
    use std::io::Read as _;

    #[test]
    fn blobs_are_where_they_are_said_to_be() {
        let mut out = Vec::new();
        let mut pieces = PieceWriter::new(PieceTarget::Page(&mut out));
        let large: Vec<u8> = (0..(PART + 1000) as u32).map(|n| (n / 7) as u8).collect();
        assert_eq!(pieces.add(b"abc").unwrap(), serde_json::json!([0, 0, 3]));
        assert_eq!(pieces.add(b"de").unwrap(), serde_json::json!([0, 3, 2]));
        assert_eq!(pieces.add(&large).unwrap(), serde_json::json!([1, 0, PART, 2, 0, 1000]));
        pieces.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let piece = |n: u32| {
            let begin = format!("id=\"p{n}\">");
            let at = text.find(&begin).unwrap() + begin.len();
            let packed = STANDARD.decode(text[at..].split('<').next().unwrap()).unwrap();
            let mut bytes = Vec::new();
            DeflateDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(piece(0), b"abcde");
        assert!(piece(1) == large[..PART] && piece(2) == large[PART..]);
    }
}
