//! Format of a binary's cached source positions: all addresses requested so far, with their frames,
//! and the texts these use. Numbers are little-endian:
//!
//! ```text
//!  0  addresses, u32   4  frames, u32   8  texts, u32   12  bytes of all texts, u32
//! 16  addresses, u64 each, ascending
//!  …  end of each address's frames, u32 each
//!  …  frames: function, file, line, column, u32 each
//!  …  end of each text, u32 each; the texts
//! ```
//!
//! It is read in place: an address is found by binary search.

use kymo_debuginfo::dwarf::inlines::{Answers, SourceFrame, TextId};

use crate::cache::CacheKind;

/// Version of this layout.
pub(super) const KIND: CacheKind = CacheKind { name: "lines", version: 1 };

/// Addresses kept of one binary: more than any run asks for.
const MOST: usize = 1 << 20;
const HEAD: usize = 16;

/// A file's contents, in its parts.
pub(super) struct Stored<'a> {
    addresses: &'a [[u8; 8]],
    ends: &'a [[u8; 4]],
    frames: &'a [[u8; 16]],
    text_ends: &'a [[u8; 4]],
    texts: &'a [u8],
}

fn u32_at(bytes: &[[u8; 4]], place: usize) -> Option<u32> {
    bytes.get(place).map(|b| u32::from_le_bytes(*b))
}

fn split<'a, const N: usize>(bytes: &mut &'a [u8], count: u32) -> Option<&'a [[u8; N]]> {
    let (part, rest) = bytes.split_at_checked(N.checked_mul(count as usize)?)?;
    *bytes = rest;
    Some(part.as_chunks().0)
}

impl<'a> Stored<'a> {
    /// Understands a file's contents.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Stored<'a>> {
        let (head, mut rest) = bytes.split_at_checked(HEAD)?;
        let head = head.as_chunks::<4>().0;
        let count = |n| u32_at(head, n);
        let stored = Stored {
            addresses: split(&mut rest, count(0)?)?,
            ends: split(&mut rest, count(0)?)?,
            frames: split(&mut rest, count(1)?)?,
            text_ends: split(&mut rest, count(2)?)?,
            texts: rest,
        };
        let sorted = stored.addresses.is_sorted_by_key(|a| u64::from_le_bytes(*a));
        (sorted && rest.len() == count(3)? as usize).then_some(stored)
    }

    fn address(&self, place: usize) -> Option<u64> {
        self.addresses.get(place).map(|a| u64::from_le_bytes(*a))
    }

    /// The place of an address.
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        self.addresses.binary_search_by_key(&address, |a| u64::from_le_bytes(*a)).ok()
    }

    fn text(&self, id: u32) -> &'a str {
        let id = id as usize;
        let start = id.checked_sub(1).map_or(Some(0), |before| u32_at(self.text_ends, before));
        let range = start.zip(u32_at(self.text_ends, id));
        let bytes = range.and_then(|(start, end)| self.texts.get(start as usize..end as usize));
        bytes.and_then(|b| std::str::from_utf8(b).ok()).unwrap_or_default()
    }

    fn frames(&self, place: usize) -> impl Iterator<Item = [u32; 4]> + 'a {
        let start = place.checked_sub(1).map_or(0, |before| u32_at(self.ends, before).unwrap_or(0));
        let end = u32_at(self.ends, place).unwrap_or(0);
        let frames = self.frames.get(start as usize..end as usize).unwrap_or_default();
        frames.iter().map(|f| {
            let words = f.as_chunks::<4>().0;
            [0, 1, 2, 3].map(|n| u32_at(words, n).unwrap_or(0))
        })
    }

    /// Adds one address's frames to `answers`.
    fn push(&self, place: Option<usize>, known: &mut [Option<TextId>], answers: &mut Answers) {
        let mut id = |n: u32, answers: &mut Answers| match known.get_mut(n as usize) {
            Some(known) => *known.get_or_insert_with(|| answers.intern(self.text(n))),
            None => TextId(0),
        };
        let mut frames: Vec<SourceFrame> = Vec::new();
        for [function, file, line, column] in place.into_iter().flat_map(|p| self.frames(p)) {
            let (function, file) = (id(function, answers), id(file, answers));
            frames.push(SourceFrame { function, file, line, column });
        }
        answers.push(frames);
    }

    /// Adds the frames of addresses; none of those that are not here.
    pub(super) fn answer(&self, addresses: &[u64], answers: &mut Answers) {
        let mut known = vec![None; self.text_ends.len()];
        for address in addresses {
            self.push(self.find(*address), &mut known, answers);
        }
    }
}

/// The contents of a file with what was known before and what is new, which are of
/// different addresses.
pub(super) fn merge(old: Option<&Stored<'_>>, addresses: &[u64], fresh: &Answers) -> Vec<u8> {
    // Who asks for that many may ask for them again.
    let old = old.filter(|old| old.addresses.len() + addresses.len() <= MOST);
    let mut answers = Answers::default();
    let mut all: Vec<u64> = Vec::new();
    let mut known = vec![None; old.map_or(0, |old| old.text_ends.len())];
    let fresh_texts: Vec<TextId> = fresh.texts().map(|t| answers.intern(t)).collect();
    let id = |t: TextId| fresh_texts.get(t.0 as usize).copied().unwrap_or_default();
    let (mut left, mut right) = (0, 0);
    loop {
        let before = old.and_then(|old| Some((old, old.address(left)?)));
        let new = addresses.get(right).copied();
        match (before, new) {
            (Some((old, at)), new) if new.is_none_or(|new| at < new) => {
                old.push(Some(left), &mut known, &mut answers);
                all.push(at);
                left += 1;
            }
            (_, Some(at)) => {
                let frames = fresh.frames(right).iter();
                answers.push(frames.map(|f| SourceFrame {
                    function: id(f.function),
                    file: id(f.file),
                    ..*f
                }));
                all.push(at);
                right += 1;
            }
            _ => return write(&all, &answers),
        }
    }
}

fn write(addresses: &[u64], answers: &Answers) -> Vec<u8> {
    let mut frames: Vec<u8> = Vec::new();
    let mut ends: Vec<u8> = Vec::new();
    let mut count = 0u32;
    for place in 0..addresses.len() {
        for f in answers.frames(place) {
            for word in [f.function.0, f.file.0, f.line, f.column] {
                frames.extend(word.to_le_bytes());
            }
            count += 1;
        }
        ends.extend(count.to_le_bytes());
    }
    let mut texts: Vec<u8> = Vec::new();
    let mut text_ends: Vec<u8> = Vec::new();
    for text in answers.texts() {
        texts.extend(text.as_bytes());
        text_ends.extend((texts.len() as u32).to_le_bytes());
    }
    let mut out = Vec::with_capacity(HEAD + 12 * addresses.len() + frames.len() + texts.len());
    for n in [addresses.len() as u32, count, answers.texts().len() as u32, texts.len() as u32] {
        out.extend(n.to_le_bytes());
    }
    addresses.iter().for_each(|a| out.extend(a.to_le_bytes()));
    for part in [ends, frames, text_ends, texts] {
        out.extend(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(of: &[&[(&str, &str, u32)]]) -> Answers {
        let mut answers = Answers::default();
        for frames in of {
            let frames: Vec<SourceFrame> = frames
                .iter()
                .map(|(function, file, line)| SourceFrame {
                    function: answers.intern(function),
                    file: answers.intern(file),
                    line: *line,
                    column: 7,
                })
                .collect();
            answers.push(frames);
        }
        answers
    }

    fn shown(answers: &Answers) -> Vec<Vec<(&str, &str, u32)>> {
        let frames = |p| {
            let show = |f: &SourceFrame| (answers.text(f.function), answers.text(f.file), f.line);
            answers.frames(p).iter().map(show).collect()
        };
        (0..answers.len()).map(frames).collect()
    }

    #[test]
    fn what_is_merged_is_found_again() {
        let a: &[(&str, &str, u32)] = &[("inner", "a.c", 1), ("f", "b.c", 2)];
        let b: &[(&str, &str, u32)] = &[("g", "b.c", 3)];
        let first = merge(None, &[10, 30], &answers(&[a, &[]]));
        let stored = Stored::of(&first).unwrap();
        let second = merge(Some(&stored), &[5, 20, 40], &answers(&[b, a, b]));
        let stored = Stored::of(&second).unwrap();
        let mut found = Answers::default();
        stored.answer(&[5, 10, 20, 25, 30, 40], &mut found);
        assert_eq!(shown(&found), [b, a, a, &[], &[], b]);
        assert_eq!((stored.find(30), stored.find(25)), (Some(3), None));
    }

    #[test]
    fn any_bytes_are_understood_or_refused() {
        let whole = merge(None, &[1, 2], &answers(&[&[("f", "a", 1)], &[("g", "b", 2)]]));
        for cut in 0..whole.len() {
            assert!(Stored::of(&whole[..cut]).is_none(), "{cut}");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if let Some(stored) = Stored::of(&bytes) {
                    stored.answer(&[0, 1, 2, u64::MAX], &mut Answers::default());
                }
            }
        }
    }
}
