//! Equal records in other wrappings: compressed in pieces of every size, by both kinds of
//! compressed record, under the old magic, with kinds from the future among them. The output is
//! compared with a walk over the plain bytes that shares no code with the reader.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod common;

use common::{Record, collect, record};
use kymo_files::perfdata::RecordOrder;

const SAMPLE: u32 = 9;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

fn word(file: &[u8], at: usize) -> usize {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize
}

/// The data section, and the file without it and without feature sections.
fn parts(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (at, size) = (word(file, 40), word(file, 48));
    let mut head = file[..at].to_vec();
    head[72..104].fill(0);
    (head, file[at..at + size].to_vec())
}

fn file_of(head: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = [head, data].concat();
    file[48..56].copy_from_slice(&(data.len() as u64).to_le_bytes());
    file
}

/// `(kind, body)` of each record, by the sizes alone.
fn walk(data: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let (mut at, mut found) = (0, Vec::new());
    while at < data.len() {
        let kind = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        let size = usize::from(u16::from_le_bytes([data[at + 6], data[at + 7]]));
        found.push((kind, data[at + 8..at + size].to_vec()));
        at += size;
    }
    found
}

fn plain(records: &[Record]) -> Vec<(u32, Vec<u8>)> {
    records.iter().map(|r| (r.0, r.3.clone())).collect()
}

fn record_of(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = (body.len() + 8) as u16;
    [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), body].concat()
}

/// One zstd stream over all data, cut into records of at most `piece` bytes.
fn compressed(data: &[u8], piece: usize, kind: u32) -> Vec<u8> {
    let stream = zstd::stream::encode_all(data, 1).unwrap();
    let wrap = |part: &[u8]| match kind {
        COMPRESSED => record_of(kind, part),
        _ => {
            // Its own size, then the bytes, then zeros up to a multiple of eight.
            let mut body = (part.len() as u64).to_le_bytes().to_vec();
            body.extend_from_slice(part);
            body.resize(body.len().next_multiple_of(8), 0);
            record_of(kind, &body)
        }
    };
    stream.chunks(piece).flat_map(wrap).collect()
}

/// More than a block of records.
fn large() -> Vec<u8> {
    record(&["-m", "1024", "-e", "raw_syscalls:*"], "for i in 1 2 3 4; do ls -lR /etc; done")
}

#[test]
fn blocks_lose_and_change_nothing() {
    let (head, data) = parts(&large());
    assert!(data.len() > 600_000, "{} bytes do not cross blocks", data.len());
    let file = file_of(&head, &data);
    let in_file = collect(&file, RecordOrder::File).unwrap();
    assert_eq!(plain(&in_file.records), walk(&data));
    let in_time = collect(&file, RecordOrder::Time).unwrap();
    let times = in_time.records.iter().filter(|r| r.0 == SAMPLE).map(|r| r.1.unwrap());
    assert!(times.is_sorted());
    let sorted = |mut all: Vec<(u32, Vec<u8>)>| {
        all.sort();
        all
    };
    assert_eq!(sorted(plain(&in_time.records)), sorted(walk(&data)));
    assert_eq!(in_time.stats.out_of_order, 0);
}

#[test]
fn compressed_in_any_pieces_it_is_the_same() {
    let (head, data) = parts(&large());
    let expected = walk(&data);
    for kind in [COMPRESSED, COMPRESSED2] {
        for piece in [7, 1000, 65_000] {
            let file = file_of(&head, &compressed(&data, piece, kind));
            let got = collect(&file, RecordOrder::File).unwrap();
            assert_eq!(got.stats.damaged, None, "{kind} {piece}");
            assert!(plain(&got.records) == expected, "{kind} in pieces of {piece}");
        }
    }
}

#[test]
fn compressed_data_that_ends_in_a_record_tells_how_much_is_left() {
    let (head, data) = parts(&record(&["-e", "raw_syscalls:*"], "true"));
    let whole = walk(&data);
    for left in [1, 7, 8, 20] {
        let half = record_of(SAMPLE, &[0; 40]);
        let cut = [&data[..], &half[..left]].concat();
        let file = file_of(&head, &compressed(&cut, 4000, COMPRESSED));
        let got = collect(&file, RecordOrder::File).unwrap();
        assert_eq!(got.stats.cut_compressed, left as u64);
        assert_eq!((got.stats.damaged, got.stats.malformed), (None, 0));
        assert!(plain(&got.records) == whole, "{left}");
    }
}

#[test]
fn plain_records_among_compressed_ones_keep_their_place() {
    let (head, data) = parts(&record(&["-e", "raw_syscalls:*"], "true"));
    let round = record_of(68, &[]);
    let stream = compressed(&data, 500, COMPRESSED);
    let mixed: Vec<u8> = walk(&stream)
        .iter()
        .flat_map(|(kind, body)| [record_of(*kind, body), round.clone()].concat())
        .collect();
    let got = collect(&file_of(&head, &mixed), RecordOrder::Time).unwrap();
    let samples = |all: &[(u32, Vec<u8>)]| all.iter().filter(|r| r.0 == SAMPLE).count();
    assert_eq!(samples(&plain(&got.records)), samples(&walk(&data)));
    assert_eq!(got.stats.damaged, None);
}

#[test]
fn kinds_from_the_future_are_passed_over_and_counted() {
    let (head, data) = parts(&record(&["-e", "raw_syscalls:*"], "true"));
    let strange = [record_of(42, &[1; 24]), record_of(200, &[2; 8]), record_of(200, &[])].concat();
    let mixed = [&strange[..], &data, &strange].concat();
    let got = collect(&file_of(&head, &mixed), RecordOrder::Time).unwrap();
    let counted: Vec<(u32, u64)> = got.stats.unknown_kinds.into_iter().collect();
    assert_eq!(counted, [(42, 2), (200, 4)]);
    let samples = got.records.iter().filter(|r| r.0 == SAMPLE).count();
    assert_eq!(samples, walk(&data).iter().filter(|r| r.0 == SAMPLE).count());
}

#[test]
fn cut_or_flipped_compressed_data_neither_panics_nor_grows() {
    let (head, data) = parts(&record(&["-e", "raw_syscalls:*"], "true"));
    let file = file_of(&head, &compressed(&data, 3000, COMPRESSED));
    let all = collect(&file, RecordOrder::Time).unwrap().records.len();
    for end in (head.len()..file.len()).step_by(13) {
        let got = collect(&file[..end], RecordOrder::Time).unwrap();
        assert!(got.records.len() <= all);
        assert!(got.stats.damaged.is_some(), "cut at {end} of {}", file.len());
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..400 {
        let mut bytes = file.clone();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bit = (state >> 20) as usize % ((bytes.len() - head.len()) * 8);
        bytes[head.len() + bit / 8] ^= 1 << (bit % 8);
        // Any answer but a panic.
        let _ = collect(&bytes, RecordOrder::Time);
    }
}
