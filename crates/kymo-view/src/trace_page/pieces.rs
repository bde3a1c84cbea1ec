//! The data of a page: blobs, one behind the other in pieces that are compressed, and unpacked
//! by the page when it looks at them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::thread::JoinHandle;

use kymo_analysis::tracks::{Columns, DeflateEffort, DeflatedBytes};
use serde_json::Value;

/// A piece is full with this many bytes, unless one blob has more.
const PIECE: usize = 4 << 20;
/// A blob is cut into parts of this size, so that no piece is larger than browsers like.
const PART: usize = 5 << 20;

/// Pieces that are compressed at a time.
const MOST_PACKING: usize = 3;

/// Output of full pieces.
pub(super) enum PieceTarget<'o> {
    /// Into the page, as text in elements of it.
    Page(&'o mut dyn Write),
    /// To who hands them out one by one: behind each other in a file, and where each is.
    File(&'o mut File, &'o mut Vec<(u64, usize)>),
}

/// Packs blobs into pieces.
pub(super) struct PieceWriter<'o> {
    out: PieceTarget<'o>,
    piece: Vec<u8>,
    number: u32,
    effort: DeflateEffort,
    /// Pieces that are compressed by threads of their own, in their order.
    packing: VecDeque<Packing>,
    written: u32,
}

/// A piece as it will be written.
enum Packing {
    Done(Vec<u8>),
    Thread(JoinHandle<Vec<u8>>),
}

impl PieceTarget<'_> {
    /// Compressed bytes as they are written.
    fn text_of(&self, packed: &[u8]) -> Vec<u8> {
        match self {
            PieceTarget::Page(_) => escape(packed),
            PieceTarget::File(..) => packed.to_vec(),
        }
    }
}

impl<'o> PieceWriter<'o> {
    pub(super) fn new(out: PieceTarget<'o>, effort: DeflateEffort) -> PieceWriter<'o> {
        let packing = VecDeque::new();
        PieceWriter { out, piece: Vec::new(), number: 0, effort, packing, written: 0 }
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

    /// Adds rows of LEB128 numbers, column by column.
    pub(super) fn add_columns<const N: usize>(&mut self, rows: &Columns<N>) -> io::Result<Value> {
        self.add(&rows.to_bytes())
    }

    /// Adds a blob that is compressed already, as a piece of its own.
    pub(super) fn add_deflated(&mut self, blob: &DeflatedBytes) -> io::Result<Value> {
        if !self.piece.is_empty() {
            self.end_piece()?;
        }
        let place = vec![self.number as usize, 0, blob.length];
        self.number += 1;
        self.packing.push_back(Packing::Done(self.out.text_of(&blob.bytes)));
        if self.packing.len() > MOST_PACKING {
            self.write_next()?;
        }
        Ok(place.into())
    }

    fn end_piece(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        self.number += 1;
        let thread = std::thread::Builder::new().name("deflate".into());
        let is_page = matches!(self.out, PieceTarget::Page(_));
        let effort = self.effort;
        self.packing.push_back(Packing::Thread(thread.spawn(move || {
            let packed = DeflatedBytes::new(&piece, effort).bytes;
            if is_page { escape(&packed) } else { packed }
        })?));
        if self.packing.len() > MOST_PACKING { self.write_next() } else { Ok(()) }
    }

    /// Writes the first piece of those that are compressed.
    fn write_next(&mut self) -> io::Result<()> {
        let packed = match self.packing.pop_front() {
            None => return Ok(()),
            Some(Packing::Done(packed)) => packed,
            Some(Packing::Thread(thread)) => {
                thread.join().map_err(|_| io::Error::other("deflate failed"))?
            }
        };
        match &mut self.out {
            PieceTarget::File(file, places) => {
                let end = places.last().map_or(0, |(at, length)| at + *length as u64);
                places.push((end, packed.len()));
                file.write_all(&packed)?;
            }
            PieceTarget::Page(out) => {
                write!(out, "<script type=\"text/plain\" id=\"p{}\">", self.written)?;
                out.write_all(&packed)?;
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

/// Bytes as text of ISO 8859-15, whose other bytes are the characters of their numbers: those that
/// are not, those that a parser of HTML changes, and `<`. `=` and 64 more stand for each.
fn escape(packed: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(packed.len() + packed.len() / 16);
    let mut left = packed;
    while let Some(at) = left.iter().position(|byte| IS_ESCAPED[usize::from(*byte)]) {
        let (plain, rest) = left.split_at(at);
        text.extend_from_slice(plain);
        let Some((byte, rest)) = rest.split_first() else { break };
        text.extend([b'=', byte.wrapping_add(64)]);
        left = rest;
    }
    text.extend_from_slice(left);
    text
}

/// By byte.
const IS_ESCAPED: [bool; 256] = {
    let escaped = [0, b'\r', b'<', b'=', 0xa4, 0xa6, 0xa8, 0xb4, 0xb8, 0xbc, 0xbd, 0xbe];
    let (mut table, mut at) = ([false; 256], 0);
    while at < escaped.len() {
        table[escaped[at] as usize] = true;
        at += 1;
    }
    table
};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test is a panic")]
mod tests {
    use super::*;
    use flate2::read::DeflateDecoder;
    use std::io::Read as _;

    #[test]
    fn blobs_are_where_they_are_said_to_be() {
        let mut out = Vec::new();
        let mut pieces = PieceWriter::new(PieceTarget::Page(&mut out), DeflateEffort::Usual);
        let large: Vec<u8> = (0..(PART + 1000) as u32).map(|n| (n / 7) as u8).collect();
        assert_eq!(pieces.add(b"abc").unwrap(), serde_json::json!([0, 0, 3]));
        assert_eq!(pieces.add(b"de").unwrap(), serde_json::json!([0, 3, 2]));
        assert_eq!(pieces.add(&large).unwrap(), serde_json::json!([1, 0, PART, 2, 0, 1000]));
        pieces.finish().unwrap();
        let piece = |n: u32| {
            let begin = format!("id=\"p{n}\">").into_bytes();
            let at = out.windows(begin.len()).position(|w| w == begin).unwrap() + begin.len();
            let (mut packed, mut text) = (Vec::new(), out[at..].iter());
            while let Some(byte) = text.next().filter(|b| **b != b'<') {
                assert!(!b"\0\r".contains(byte));
                let escaped = *byte == b'=';
                packed.push(if escaped { text.next().unwrap() - 64 } else { *byte });
            }
            let mut bytes = Vec::new();
            DeflateDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(piece(0), b"abcde");
        assert_eq!(escape(b"\0=\xfc\xbc"), b"=@=}\xfc=\xfc");
        assert!(piece(1) == large[..PART] && piece(2) == large[PART..]);
    }
}
