//! Files cut at every byte and files with every byte of what describes them
//! changed: no panic, no run-away, and what is whole is delivered.

use std::time::{Duration, Instant};

use kymo_files::tracedat::{Compression, Format};
use kymo_model::Endian;

use super::made::{Seen, events, facts, formats, made, open};

/// Places worth cutting or changing: everything before the pages and a bit of
/// each page, and all behind.
fn places(bytes: &[u8]) -> Vec<usize> {
    let data = open(bytes).unwrap();
    let cpus = data.buffers().iter().flat_map(|b| &b.cpus);
    let runs: Vec<_> = cpus.map(|c| (c.offset as usize, c.size as usize)).collect();
    let inside = |at: usize| {
        // Within a run only the heads of its pages.
        runs.iter().any(|(start, size)| {
            at > *start && at < start + size && (at - start) % 4096 > 24 && !at.is_multiple_of(97)
        })
    };
    (0..bytes.len()).filter(|at| !inside(*at)).collect()
}

/// Events in the order of each CPU, which damage elsewhere must not change.
fn by_cpu(seen: &[Seen]) -> Vec<Vec<u32>> {
    let mut rings = vec![Vec::new(); 6];
    for (buffer, cpu, _, number, _) in seen {
        if let Some(ring) = rings.get_mut(buffer * 2 + *cpu as usize) {
            ring.push(*number);
        }
    }
    rings
}

#[test]
fn cut_anywhere_it_delivers_what_is_whole() {
    for format in formats() {
        let whole = made(format, &facts(Endian::Little, 8));
        let all = by_cpu(&events(&open(&whole).unwrap()).0);
        let mut least = 1200;
        let mut cut_page = 0;
        // Every byte of the plainest form, some of the others.
        let step = if format == formats()[1] { 1 } else { 11 };
        for n in places(&whole).into_iter().rev().step_by(step) {
            let Ok(data) = open(&whole[..n]) else {
                least = 0;
                continue;
            };
            let (seen, stats) = events(&data);
            let reported = !data.damage().is_empty() || stats.damaged_places > 0;
            // Behind the last event of the file there is only padding.
            assert!(reported || seen.len() == 1200, "{format:?} cut at {n}: nothing said");
            for (cut, all) in by_cpu(&seen).iter().zip(&all) {
                assert_eq!(cut[..], all[..cut.len()], "{format:?} cut at {n}");
            }
            assert!(seen.len() <= least, "{format:?} cut at {n}: {} before {least}", seen.len());
            least = seen.len();
            cut_page += usize::from(least % 50 != 0);
        }
        assert!(least == 0 || step > 1);
        // The events before a cut within a page are there, if it is not packed.
        assert!(cut_page > 0 || format.compression != Compression::None, "{format:?}");
    }
}

#[test]
fn no_changed_byte_makes_reading_fail_badly() {
    for format in [formats()[0], formats()[1]] {
        let whole = made(format, &facts(Endian::Little, 8));
        let mut bytes = whole.clone();
        let places = places(&whole);
        let mut opened = 0;
        for (i, at) in places.iter().enumerate() {
            // Each place gets one of the changes, each change many places.
            let byte = match i % 4 {
                0 => whole[*at] ^ 0x80,
                1 => whole[*at] ^ 1,
                2 => 0xff,
                _ => 0,
            };
            bytes[*at] = byte;
            let start = Instant::now();
            if let Ok(data) = open(&bytes) {
                let (seen, stats) = events(&data);
                opened += 1;
                assert_eq!(stats.events as usize, seen.len());
                assert!(seen.len() < 20_000, "{format:?} byte {at}: {} events", seen.len());
            }
            let took = start.elapsed();
            assert!(took < Duration::from_secs(5), "{format:?} byte {at}: {took:?}");
            bytes[*at] = whole[*at];
        }
        assert!(opened > places.len() / 2, "{format:?}: {opened} of {}", places.len());
    }
}

#[test]
fn a_lying_size_is_reported_with_its_place() {
    let format = Format { version: 7, compression: Compression::None };
    let whole = made(format, &facts(Endian::Little, 8));
    let find = |needle: &[u8]| whole.windows(needle.len()).position(|w| w == needle).unwrap();
    let lie = |at: usize, value: u64| {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let data = open(&bytes).unwrap();
        let reported = data.damage().iter().map(|d| (d.offset, d.what.clone())).collect::<Vec<_>>();
        (reported, events(&data).0.len())
    };
    // The size of header_page: its table is gone, pages are read without it.
    let at = find(b"header_page\0") + 12;
    let (reported, n) = lie(at, u64::MAX / 2);
    assert_eq!(reported[0].0, at as u64 + 8);
    assert!(reported[0].1.starts_with("header_page of 9223372036854775807 bytes"), "{reported:?}");
    assert_eq!(n, 1200);
    // Where the options are.
    let at = find(b"none\0\0") + 6;
    let (reported, n) = lie(at, whole.len() as u64 + 1);
    assert_eq!((reported[0].0, n), (at as u64, 0));
    assert!(reported[0].1.contains("OPTIONS section at"), "{reported:?}");
}

#[test]
fn an_options_chain_that_is_a_ring_ends() {
    let format = Format { version: 7, compression: Compression::None };
    let mut bytes = made(format, &facts(Endian::Little, 8));
    let none = bytes.windows(6).position(|w| w == b"none\0\0").unwrap();
    let first = bytes[none + 6..none + 14].to_vec();
    // The option DONE, of eight bytes of zeros, closes the section.
    let done = [0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let at = bytes.windows(14).rposition(|w| w == done).unwrap();
    bytes[at + 6..at + 14].copy_from_slice(&first);
    let data = open(&bytes).unwrap();
    let reported: Vec<_> = data.damage().iter().map(|d| d.what.as_str()).collect();
    assert!(
        reported[0].starts_with("options at ") && reported[0].ends_with("were read already"),
        "{reported:?}"
    );
    assert_eq!((reported.len(), data.buffers().len()), (1, 3));
}

/// The largest resident set so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn counts_that_lie_cost_no_memory() {
    // Formats of no length, options of no length, chunks of 4 GiB.
    let mut many = b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0".to_vec();
    many.extend([0; 8]);
    many.extend(b"header_event\0");
    many.extend([0; 8]);
    many.extend(u32::MAX.to_le_bytes());
    many.resize(32 << 20, 0);
    let before = peak();
    let data = open(&many).unwrap();
    let reported = data.damage()[0].what.clone();
    assert_eq!(reported, "more than 131072 formats");
    assert!(peak() - before < 100 << 20, "{} bytes more", peak() - before);

    let format = Format { version: 7, compression: Compression::Zstd };
    let mut bytes = made(format, &facts(Endian::Little, 8));
    let (at, size_at) = {
        let data = open(&bytes).unwrap();
        let cpu = data.buffers()[0].cpus[0];
        let place = [cpu.offset.to_le_bytes(), cpu.size.to_le_bytes()].concat();
        let size_at = bytes.windows(16).position(|w| w == place).unwrap() + 8;
        (cpu.offset as usize + 4, size_at)
    };
    bytes[at..at + 4].copy_from_slice(&(u32::MAX - 100).to_le_bytes());
    bytes[size_at..size_at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let data = open(&bytes).unwrap();
    let (seen, stats) = events(&data);
    assert_eq!(seen.len(), 1000, "the other runs are read");
    assert!(stats.damaged[0].what.contains("chunk of 4294967195 bytes"), "{:?}", stats.damaged);
    assert!(peak() - before < 150 << 20, "{} bytes more", peak() - before);
}
