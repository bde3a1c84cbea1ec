//! Compression with deflate (RFC 1951) for what a page has much of: columns of numbers, in which
//! little comes again but some bytes come often, and texts that come again whole. Only long
//! matches are looked for, with one candidate each; all else is coded by how often each byte is
//! there. That takes less than half of the time of zlib's fastest level, which has fixed codes,
//! and makes a tenth less of it.

/// Bytes of a block: its codes are made of what is in it.
const BLOCK: usize = 128 << 10;
/// So far back a match may be, and so long.
const WINDOW: usize = 32 << 10;
const LONGEST_MATCH: usize = 258;
/// Shorter ones gain little over their bytes one by one.
const LEAST_MATCH: usize = 7;
const HASH_BITS: u32 = 13;
/// After 2^this places in a row without a match every second is looked at, and so on.
const PATIENCE: u32 = 4;
/// Literals and lengths, distances.
const LITERALS: usize = 286;
const DISTANCES: usize = 30;
const END_OF_BLOCK: usize = 256;
/// Longest codes of those, and of the lengths of codes.
const LONGEST_CODE: usize = 15;
const LONGEST_META_CODE: usize = 7;

/// Bytes as they are, then a match.
#[derive(Clone, Copy)]
struct Sequence {
    literals: u32,
    /// 0: the block ends.
    length: u16,
    distance: u16,
}

/// Compresses bytes.
pub(super) fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut out = BitWriter { bytes: Vec::new(), end: 0, word: 0, count: 0 };
    let mut finder = MatchFinder { recent: vec![0; 1 << HASH_BITS], at: 0 };
    let mut sequences = Vec::new();
    loop {
        let from = finder.at;
        // No code is longer than 15 bits.
        out.bytes.resize(out.end + 2 * BLOCK.min(plain.len() - from) + 1024, 0);
        finder.block(plain, &mut sequences);
        let is_last = finder.at >= plain.len();
        write_block(plain.get(from..).unwrap_or_default(), &sequences, is_last, &mut out);
        if is_last {
            return out.finish();
        }
    }
}

struct MatchFinder {
    /// Places + 1 at which bytes of a hash were last.
    recent: Vec<u32>,
    /// What is before was looked at.
    at: usize,
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[inline]
fn hash(word: u64) -> usize {
    // The bytes of the shortest match.
    let kept = word << (64 - 8 * LEAST_MATCH as u32);
    (kept.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS)) as usize
}

impl MatchFinder {
    /// Parts the next block.
    fn block(&mut self, plain: &[u8], sequences: &mut Vec<Sequence>) {
        sequences.clear();
        let end = plain.len().min(self.at + BLOCK);
        let (mut at, mut literals, mut misses) = (self.at, self.at, 0u32);
        while at < end {
            let Some(word) = word_at(plain, at) else { break };
            let Some(slot) = self.recent.get_mut(hash(word)) else { break };
            let before = std::mem::replace(slot, at as u32 + 1) as usize;
            let distance = (at + 1).wrapping_sub(before);
            let length = match before {
                0 => 0,
                _ if distance > WINDOW => 0,
                _ => match_length(plain, at, distance, end),
            };
            if length < LEAST_MATCH {
                misses += 1;
                at += 1 + (misses >> PATIENCE) as usize;
                continue;
            }
            misses = 0;
            sequences.push(Sequence {
                literals: (at - literals) as u32,
                length: length as u16,
                distance: distance as u16,
            });
            at += length;
            literals = at;
            // What comes again may go on here.
            if let Some(word) = word_at(plain, at - 2)
                && let Some(slot) = self.recent.get_mut(hash(word))
            {
                *slot = at as u32 - 1;
            }
        }
        sequences.push(Sequence { literals: (end - literals) as u32, length: 0, distance: 0 });
        self.at = end;
    }
}

/// How long what is at a place is the same as what is `distance` before it.
#[inline]
fn match_length(plain: &[u8], at: usize, distance: usize, end: usize) -> usize {
    let most = (end - at).min(LONGEST_MATCH);
    let (Some(new), Some(old)) = (plain.get(at..at + most), plain.get(at - distance..)) else {
        return 0;
    };
    let mut length = 0;
    for (new, old) in new.as_chunks::<8>().0.iter().zip(old.as_chunks::<8>().0) {
        let differs = u64::from_le_bytes(*new) ^ u64::from_le_bytes(*old);
        if differs != 0 {
            return length + differs.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let rest = new.iter().zip(old).skip(length);
    length + rest.take_while(|(new, old)| new == old).count()
}

/// Symbol, number of further bits, and first of the lengths or distances that it stands for.
#[derive(Clone, Copy, Default)]
struct Range {
    symbol: u16,
    extra: u8,
    base: u16,
}

/// By length - 3.
const LENGTHS: [Range; LONGEST_MATCH - 2] = {
    let mut table = [Range { symbol: 0, extra: 0, base: 0 }; LONGEST_MATCH - 2];
    let (mut symbol, mut at) = (257, 0);
    while at < LONGEST_MATCH - 3 {
        // Eight symbols stand for a length each, then four for 2, four for 4, and so on.
        let extra = if symbol < 265 { 0 } else { (symbol - 261) / 4 };
        let base = at;
        while at < base + (1 << extra) && at < LONGEST_MATCH - 3 {
            table[at] = Range { symbol, extra: extra as u8, base: base as u16 };
            at += 1;
        }
        symbol += 1;
    }
    // The longest has a symbol of its own.
    table[at] = Range { symbol: 285, extra: 0, base: at as u16 };
    table
};

#[inline]
fn distance_range(distance: u16) -> Range {
    let at = u32::from(distance) - 1;
    if at < 4 {
        return Range { symbol: at as u16, extra: 0, base: at as u16 };
    }
    let extra = at.ilog2() - 1;
    let half = at >> extra & 1;
    Range {
        symbol: (2 * (extra + 1) + half) as u16,
        extra: extra as u8,
        base: ((2 + half) << extra) as u16,
    }
}

#[inline]
fn length_range(length: u16) -> Range {
    LENGTHS.get(usize::from(length).wrapping_sub(3)).copied().unwrap_or_default()
}

/// A symbol's code, its first bit lowest, and how long it is.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u16,
    length: u8,
}

fn write_block(plain: &[u8], sequences: &[Sequence], is_last: bool, out: &mut BitWriter) {
    // Two tables in turns: the same byte again need not wait for the number before.
    let mut counts = [[0u32; LITERALS]; 2];
    let mut distances = [0u32; DISTANCES];
    let mut at = 0;
    for sequence in sequences {
        let literals = plain.get(at..at + sequence.literals as usize).unwrap_or_default();
        let (pairs, odd) = literals.as_chunks::<2>();
        for [first, second] in pairs {
            counts[0][usize::from(*first)] += 1;
            counts[1][usize::from(*second)] += 1;
        }
        odd.iter().for_each(|byte| counts[0][usize::from(*byte)] += 1);
        at += literals.len() + usize::from(sequence.length);
        if sequence.length > 0 {
            counts[0][usize::from(length_range(sequence.length).symbol)] += 1;
            distances[usize::from(distance_range(sequence.distance).symbol)] += 1;
        }
    }
    let [mut counts, others] = counts;
    counts.iter_mut().zip(others).for_each(|(count, other)| *count += other);
    counts[END_OF_BLOCK] = 1;
    let (literal_lengths, distance_lengths) =
        (code_lengths(&mut counts, LONGEST_CODE), code_lengths(&mut distances, LONGEST_CODE));
    out.push(u64::from(is_last) | 2 << 1, 3);
    write_lengths(&literal_lengths, &distance_lengths, out);
    let mut literals: [Code; 512] = [Code::default(); 512];
    codes(&literal_lengths, &mut literals);
    let mut distances = [Code::default(); 32];
    codes(&distance_lengths, &mut distances);
    let mut at = 0;
    for sequence in sequences {
        let bytes = plain.get(at..at + sequence.literals as usize).unwrap_or_default();
        at += bytes.len() + usize::from(sequence.length);
        out.push_bytes(bytes, &literals);
        if sequence.length > 0 {
            let range = length_range(sequence.length);
            let code = literals[usize::from(range.symbol) % 512];
            out.add(code.bits.into(), code.length.into());
            out.add(u64::from(sequence.length - 3 - range.base), range.extra.into());
            let range = distance_range(sequence.distance);
            let code = distances[usize::from(range.symbol) % 32];
            out.add(code.bits.into(), code.length.into());
            out.add(u64::from(sequence.distance - 1 - range.base), range.extra.into());
            out.flush();
        }
    }
    let end = literals[END_OF_BLOCK];
    out.push(end.bits.into(), end.length.into());
}

/// Lengths of the codes of symbols that are there so often. At least two have one.
fn code_lengths(counts: &mut [u32], longest: usize) -> Vec<u8> {
    for symbol in 0..2 {
        if counts.iter().filter(|c| **c > 0).count() < 2 && counts[symbol] == 0 {
            counts[symbol] = 1;
        }
    }
    let mut used: Vec<(u32, u16)> =
        counts.iter().zip(0u16..).filter(|(c, _)| **c > 0).map(|(c, s)| (*c, s)).collect();
    used.sort_unstable();
    // Huffman's way. Two rows by weight: symbols, and nodes as they are made of the two lightest.
    let mut parents: Vec<u32> = vec![0; 2 * used.len()];
    let mut nodes: Vec<u32> = Vec::with_capacity(used.len());
    let (mut leaf, mut node) = (0, 0);
    while nodes.len() + 1 < used.len() {
        let mut sum = 0;
        for _ in 0..2 {
            let next = match (used.get(leaf), nodes.get(node)) {
                (Some(symbol), Some(weight)) if symbol.0 <= *weight => (symbol.0, true),
                (Some(symbol), None) => (symbol.0, true),
                (_, Some(weight)) => (*weight, false),
                (None, None) => break,
            };
            let place = if next.1 { leaf } else { used.len() + node };
            if next.1 {
                leaf += 1
            } else {
                node += 1
            }
            parents[place] = (used.len() + nodes.len()) as u32;
            sum += next.0;
        }
        nodes.push(sum);
    }
    // How many have each length, from the root down.
    let root = used.len() + nodes.len() - 1;
    let mut depths = vec![0u32; root + 1];
    for place in (0..root).rev() {
        depths[place] = depths[parents[place] as usize] + 1;
    }
    let mut by_length = vec![0u32; longest + 1];
    for depth in &depths[..used.len()] {
        by_length[(*depth as usize).min(longest)] += 1;
    }
    // Those that were too long take more room than there is: others make it for them.
    let share = |by_length: &[u32]| -> u32 {
        by_length.iter().enumerate().skip(1).map(|(l, n)| n << (longest - l)).sum()
    };
    while share(&by_length) > 1 << longest {
        let Some(shorter) = (1..longest).rev().find(|l| by_length[*l] > 0) else { break };
        by_length[shorter] -= 1;
        by_length[shorter + 1] += 2;
        by_length[longest] -= 1;
    }
    let mut lengths = vec![0u8; counts.len()];
    let mut rarest = used.iter();
    for length in (1..=longest).rev() {
        for (_, symbol) in rarest.by_ref().take(by_length[length] as usize) {
            lengths[usize::from(*symbol)] = length as u8;
        }
    }
    lengths
}

/// The codes that have these lengths.
fn codes(lengths: &[u8], codes: &mut [Code]) {
    let mut next = 0u16;
    for length in 1..=LONGEST_CODE as u8 {
        for (code, _) in codes.iter_mut().zip(lengths).filter(|(_, l)| **l == length) {
            *code = Code { bits: next.reverse_bits() >> (16 - length), length };
            next += 1;
        }
        next <<= 1;
    }
}

/// The lengths of both kinds of codes, as a block begins with them.
fn write_lengths(literals: &[u8], distances: &[u8], out: &mut BitWriter) {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let used = |lengths: &[u8]| lengths.iter().rposition(|l| *l > 0).map_or(0, |last| last + 1);
    let (literal_count, distance_count) = (used(literals).max(257), used(distances).max(1));
    let all: Vec<u8> =
        literals[..literal_count].iter().chain(&distances[..distance_count]).copied().collect();
    // Each with its further bits and their number.
    let mut symbols: Vec<(u8, u8, u8)> = Vec::new();
    for run in all.chunk_by(|a, b| a == b) {
        let (length, mut left) = (run[0], run.len());
        while left > 0 {
            let taken = match (length, left) {
                (0, 11..) => {
                    symbols.push((18, left.min(138) as u8 - 11, 7));
                    left.min(138)
                }
                (0, 3..11) => {
                    symbols.push((17, left as u8 - 3, 3));
                    left
                }
                // The first of a run stands for itself.
                (1.., 3..) if left < run.len() => {
                    symbols.push((16, left.min(6) as u8 - 3, 2));
                    left.min(6)
                }
                _ => {
                    symbols.push((length, 0, 0));
                    1
                }
            };
            left -= taken;
        }
    }
    let mut counts = [0u32; 19];
    symbols.iter().for_each(|s| counts[usize::from(s.0)] += 1);
    let lengths = code_lengths(&mut counts, LONGEST_META_CODE);
    let mut coded = [Code::default(); 19];
    codes(&lengths, &mut coded);
    let stated = ORDER.iter().rposition(|s| lengths[*s] > 0).map_or(4, |last| (last + 1).max(4));
    out.push(literal_count as u64 - 257, 5);
    out.push(distance_count as u64 - 1, 5);
    out.push(stated as u64 - 4, 4);
    ORDER[..stated].iter().for_each(|s| out.push(lengths[*s].into(), 3));
    for (symbol, further, bits) in symbols {
        let code = coded[usize::from(symbol)];
        out.push(code.bits.into(), code.length.into());
        out.push(further.into(), bits.into());
    }
}

struct BitWriter {
    /// Up to `end` they are written; behind it is room.
    bytes: Vec<u8>,
    end: usize,
    /// Bits that are no whole bytes yet, and how many.
    word: u64,
    count: u32,
}

impl BitWriter {
    /// Adds bits; at most 56 between two flushes.
    #[inline]
    fn add(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.count;
        self.count += count;
    }

    /// Writes what is whole bytes.
    #[inline]
    fn flush(&mut self) {
        let whole = self.count / 8;
        if let Some(room) = self.bytes.get_mut(self.end..).and_then(|room| room.first_chunk_mut()) {
            *room = self.word.to_le_bytes();
        }
        self.end += whole as usize;
        self.word = if whole < 8 { self.word >> (8 * whole) } else { 0 };
        self.count &= 7;
    }

    fn push(&mut self, bits: u64, count: u32) {
        self.add(bits, count);
        self.flush();
    }

    fn push_bytes(&mut self, bytes: &[u8], codes: &[Code; 512]) {
        let (rows, rest) = bytes.as_chunks::<3>();
        // Three of the longest codes beside seven bits.
        for row in rows {
            for byte in row {
                let code = codes[usize::from(*byte)];
                self.add(code.bits.into(), code.length.into());
            }
            self.flush();
        }
        for byte in rest {
            let code = codes[usize::from(*byte)];
            self.add(code.bits.into(), code.length.into());
        }
        self.flush();
    }

    fn finish(mut self) -> Vec<u8> {
        // The last byte is filled with zeros.
        self.count = self.count.next_multiple_of(8);
        self.flush();
        self.bytes.truncate(self.end);
        self.bytes
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test is a panic")]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Compresses, and has another program's decoder unpack it.
    fn check(plain: &[u8]) -> usize {
        let packed = deflate(plain);
        let mut back = Vec::new();
        flate2::read::DeflateDecoder::new(&*packed).read_to_end(&mut back).unwrap();
        assert!(back == plain, "{} bytes came back as {}", plain.len(), back.len());
        packed.len()
    }

    /// Numbers that look like any.
    fn noise(seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        })
    }

    #[test]
    fn what_is_packed_comes_back() {
        assert!(check(b"") < 20);
        for n in 0..40 {
            check(&b"abcabcabcabcabcabcabcabcabcdabcdabcdabcd"[..n]);
            check(&vec![7; n]);
        }
        // Around the ends of blocks and of the window.
        for size in [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            assert!(check(&vec![0; size]) < size / 200);
            check(&(0..size).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
            let far: Vec<u8> = noise(1).take(WINDOW).map(|n| n as u8).collect();
            let packed = check(&far.iter().copied().cycle().take(size).collect::<Vec<u8>>());
            assert!(packed < size / 2, "{packed} of {size}");
            // What is no more than noise grows by less than a hundredth.
            let packed = check(&noise(2).take(size).map(|n| n as u8).collect::<Vec<u8>>());
            assert!(packed < size + size / 100, "{packed} of {size}");
        }
    }

    #[test]
    fn bytes_that_are_rare_and_matches_of_any_length_come_back() {
        for seed in 0..200 {
            let mut numbers = noise(seed);
            let mut plain = Vec::new();
            while plain.len() < 20_000 {
                let mut next = || numbers.next().unwrap() as usize;
                match next() % 3 {
                    // Each byte is half as frequent as the one before: codes get too long.
                    0 => (0..next() % 500).for_each(|_| plain.push(next().trailing_zeros() as u8)),
                    1 => plain.push(next() as u8),
                    _ if plain.is_empty() => {}
                    _ => {
                        let from = plain.len() - 1 - next() % plain.len();
                        (0..next() % 600).for_each(|n| plain.push(plain[from + n]));
                    }
                }
            }
            check(&plain);
        }
    }

    #[test]
    fn codes_are_no_longer_than_they_may_be_and_leave_no_room() {
        let fibonacci =
            |n: usize| (0..n).fold((1u32, 1u32), |(a, b), _| (b, a.saturating_add(b))).0;
        for longest in [LONGEST_META_CODE, LONGEST_CODE] {
            for symbols in [1, 2, 3, 19, 40] {
                let mut counts: Vec<u32> = (0..symbols.max(2)).map(fibonacci).collect();
                counts[symbols..].fill(0);
                let lengths = code_lengths(&mut counts, longest);
                let used = lengths.iter().filter(|l| **l > 0);
                assert!(used.clone().all(|l| usize::from(*l) <= longest));
                assert_eq!(
                    used.map(|l| 1 << (longest - usize::from(*l))).sum::<u32>(),
                    1 << longest
                );
            }
        }
    }
}
