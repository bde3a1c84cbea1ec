//! A real recording, cut at every byte, with bits flipped and with sizes that
//! lie: reading ends where the damage is, what came before is delivered, and
//! neither time nor memory runs away.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod common;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use common::{Collected, collect, record};
use kymo_files::perfdata::{PerfData, PerfDataReadError, RecordOrder};

/// Offset and size of the records, from the header.
fn data_range(file: &[u8]) -> (usize, usize) {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    (word(40), word(48))
}

fn small() -> Vec<u8> {
    let bytes = record(&["-e", "cpu-clock", "-F", "200"], "true");
    assert!(bytes.len() < 1 << 20, "the recording is too large for this test: {}", bytes.len());
    bytes
}

#[test]
fn cut_at_every_byte_it_delivers_what_came_before() {
    let whole = small();
    let (start, size) = data_range(&whole);
    let all = collect(&whole, RecordOrder::File).unwrap();
    assert!(all.stats.damaged.is_none());
    let mut before = 0;
    for n in 0..start + size {
        match collect(&whole[..n], RecordOrder::File) {
            Err(_) => assert_eq!(before, 0, "cut at {n}: no header although a shorter file had"),
            Ok(cut) => {
                let have = cut.records.len();
                assert!(have >= before, "cut at {n}: {have} records, {before} before");
                assert_eq!(cut.records[..], all.records[..have], "cut at {n}");
                assert!(cut.stats.damaged.is_some(), "cut at {n}: nothing said");
                before = have;
            }
        }
    }
    // One record can be missing at most: the one that is cut.
    assert!(before + 1 >= all.records.len());
}

#[test]
fn a_cut_pipe_delivers_what_came_before() {
    let whole = record(&["-e", "cpu-clock", "-F", "200", "-o", "-"], "true");
    let all = collect(&whole, RecordOrder::Time).unwrap();
    assert!(!all.records.is_empty());
    let mut most = 0;
    for n in (16..whole.len()).step_by(7) {
        let cut = collect(&whole[..n], RecordOrder::Time).unwrap();
        most = most.max(cut.records.len());
        assert!(cut.records.len() <= all.records.len());
    }
    assert!(most + 1 >= all.records.len(), "{most} of {}", all.records.len());
}

#[test]
fn flipped_bits_neither_panic_nor_hang() {
    // Kept recordings and a kept seed: what fails once fails again.
    let whole = include_bytes!("../../kymo/tests/fixtures/perf-data/x86_64/dwarf.data").to_vec();
    let packed = include_bytes!("../../kymo/tests/fixtures/perf-data/x86_64/zstd.data").to_vec();
    let begun = Instant::now();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    let mut readable = 0;
    for round in 0..2000 {
        let mut bytes = if round % 2 == 0 { whole.clone() } else { packed.clone() };
        for _ in 0..=random() % 8 {
            // Half of the flips hit the header and the tables near it.
            let range = if random() % 2 == 0 { bytes.len().min(1024) } else { bytes.len() };
            let at = random() % range;
            bytes[at] ^= 1 << (random() % 8);
        }
        readable += usize::from(collect(&bytes, RecordOrder::Time).is_ok());
    }
    assert!(readable > 100, "only {readable} of 2000 could be opened");
    assert!(begun.elapsed() < Duration::from_secs(400));
}

#[test]
fn sizes_that_lie_are_reported_with_their_place() {
    let whole = small();
    let (start, _) = data_range(&whole);
    let mut zero = whole.clone();
    zero[start + 6..start + 8].copy_from_slice(&[0, 0]);
    let got = collect(&zero, RecordOrder::Time).unwrap();
    let damage = got.stats.damaged.unwrap();
    assert_eq!(damage.offset, start as u64);
    assert!(damage.what.contains("size of 0"), "{damage}");

    let put = |at: usize, value: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        collect(&bytes, RecordOrder::Time)
    };
    // Records said to go on beyond the end of the file.
    let all = collect(&whole, RecordOrder::Time).unwrap();
    let got = put(48, 1 << 60).unwrap();
    assert!(got.records.len() >= all.records.len() && got.stats.damaged.is_some());
    // A table of events that is not there, or of absurd size.
    assert!(matches!(
        put(24, 1 << 60),
        Err(PerfDataReadError::Header { field: "attrs.offset", .. })
    ));
    assert!(matches!(put(32, 1 << 60), Err(PerfDataReadError::Header { field: "attrs.size", .. })));
    assert!(matches!(put(16, 3), Err(PerfDataReadError::Header { field: "attr_size", .. })));
    // A recorder that was killed: the size is 0, the records are there.
    let got = put(48, 0).unwrap();
    assert!(got.stats.unfinished);
    assert_eq!(got.records[..all.records.len().min(5)], all.records[..all.records.len().min(5)]);
    // Killed in the middle of a write: that its end is missing is all that there is to say.
    let mut cut = whole[..data_range(&whole).1 - 3].to_vec();
    cut[48..56].fill(0);
    let got = collect(&cut, RecordOrder::File).unwrap();
    assert!(got.stats.unfinished && got.stats.damaged.is_none(), "{:?}", got.stats.damaged);
    let before = collect(&whole, RecordOrder::File).unwrap().records;
    let read = got.records.len();
    assert!(read > 0 && read < before.len() && got.records[..] == before[..read]);
}

#[test]
fn what_is_no_recording_is_said_by_name() {
    let error = |bytes: &[u8]| {
        let Err(e) = common::open(bytes) else { panic!("opened") };
        e.to_string()
    };
    assert!(error(b"").ends_with("is empty"));
    assert!(error(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0").contains("not a perf.data file"));
    let directory = tempfile::tempdir().unwrap();
    let Err(e) = PerfData::open(directory.path()) else { panic!("opened a directory") };
    assert!(e.to_string().contains("is a directory"), "{e}");
    let Err(e) = PerfData::open("/nowhere/perf.data") else { panic!("opened nothing") };
    assert!(e.to_string().contains("/nowhere/perf.data"), "{e}");
}

#[test]
fn stopping_early_is_no_error() {
    let mut data = common::open(&small()).unwrap();
    let mut seen = 0;
    let stats = data
        .for_each(RecordOrder::File, &mut |_| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!((seen, stats.damaged), (2, None));
    // And it can be read again, whole.
    let again = Collected::of(&mut data, RecordOrder::File).unwrap();
    assert!(again.records.len() > 2);
}
