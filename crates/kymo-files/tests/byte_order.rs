//! A real recording rewritten as a big-endian machine would have written it
//! yields the same events.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod common;

use std::ops::ControlFlow;

use common::record;
use kymo_files::perfdata::RecordOrder;
use kymo_model::{Attr, Endian, RecordKind, Sample, SampleType, Sideband};

/// Reverses each of the fields, whose widths are given, in place.
fn swap(bytes: &mut [u8], widths: &[usize]) -> usize {
    let mut at = 0;
    for width in widths {
        bytes[at..at + width].reverse();
        at += width;
    }
    at
}

/// Widths of `struct perf_event_attr`'s fields, up to `sig_data` and `config3`.
const ATTR: [usize; 22] = [4, 4, 8, 8, 8, 8, 8, 4, 4, 8, 8, 8, 8, 4, 4, 8, 4, 2, 2, 4, 4, 8];

fn swap_attr(bytes: &mut [u8]) {
    let flags = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    let mut at = 0;
    for width in ATTR {
        if at + width <= bytes.len() {
            bytes[at..at + width].reverse();
        }
        at += width;
    }
    // Bit fields begin at the most significant bit; the two bits of
    // `precise_ip` are a number and keep their order within.
    let precise = (flags >> 15) & 3;
    let turned = ((precise & 1) << 1) | (precise >> 1);
    let flags = (flags & !(3 << 15)) | (turned << 15);
    bytes[40..48].copy_from_slice(&flags.reverse_bits().to_be_bytes());
}

/// Widths of the trailer of `attr`'s records.
fn trailer(attr: &Attr) -> Vec<usize> {
    let mut widths = Vec::new();
    for (field, parts) in [
        (SampleType::TID, &[4usize, 4][..]),
        (SampleType::TIME, &[8]),
        (SampleType::ID, &[8]),
        (SampleType::STREAM_ID, &[8]),
        (SampleType::CPU, &[4, 4]),
        (SampleType::IDENTIFIER, &[8]),
    ] {
        if attr.sample_type.contains(field) {
            widths.extend(parts);
        }
    }
    widths
}

fn swap_record(record: &mut [u8], attr: &Attr) {
    let kind = RecordKind(u32::from_le_bytes(record[..4].try_into().unwrap()));
    let misc = u16::from_le_bytes(record[4..6].try_into().unwrap());
    swap(record, &[4, 2, 2]);
    let body = &mut record[8..];
    match kind {
        RecordKind::SAMPLE => {
            // Identifier, ip, task, time, id, cpu, period, then words.
            let mut widths = Vec::new();
            for (field, parts) in [
                (SampleType::IDENTIFIER, &[8usize][..]),
                (SampleType::IP, &[8]),
                (SampleType::TID, &[4, 4]),
                (SampleType::TIME, &[8]),
                (SampleType::ID, &[8]),
                (SampleType::CPU, &[4, 4]),
                (SampleType::PERIOD, &[8]),
            ] {
                if attr.sample_type.contains(field) {
                    widths.extend(parts);
                }
            }
            let at = swap(body, &widths);
            body[at..].chunks_exact_mut(8).for_each(<[u8]>::reverse);
            return;
        }
        RecordKind::MMAP2 if misc & (1 << 14) != 0 => {
            swap(body, &[4, 4, 8, 8, 8]);
            swap(&mut body[56..], &[4, 4]);
        }
        RecordKind::MMAP2 => drop(swap(body, &[4, 4, 8, 8, 8, 4, 4, 8, 8, 4, 4])),
        RecordKind::MMAP => drop(swap(body, &[4, 4, 8, 8, 8])),
        RecordKind::COMM => drop(swap(body, &[4, 4])),
        RecordKind::FORK | RecordKind::EXIT => drop(swap(body, &[4, 4, 4, 4, 8])),
        RecordKind::KSYMBOL => drop(swap(body, &[8, 4, 2, 2])),
        _ => {}
    }
    if !kind.is_user() {
        let widths = trailer(attr);
        let size: usize = widths.iter().sum();
        let start = body.len() - size;
        swap(&mut body[start..], &widths);
    }
}

/// The recording in the other byte order, without its feature sections.
fn swapped(little: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(little[at..at + 8].try_into().unwrap()) as usize;
    let (attr_size, attrs, data) = (word(16), (word(24), word(32)), (word(40), word(48)));
    let mut out = little[..data.0 + data.1].to_vec();
    let attr = Attr::parse(&little[attrs.0..attrs.0 + attr_size - 16], Endian::Little).unwrap();
    for at in (attrs.0..attrs.0 + attrs.1).step_by(attr_size) {
        let section = at + attr_size - 16;
        let (ids, size) = (word(section), word(section + 8));
        out[ids..ids + size].chunks_exact_mut(8).for_each(<[u8]>::reverse);
        swap(&mut out[section..], &[8, 8]);
        swap_attr(&mut out[at..section]);
    }
    let mut at = data.0;
    while at < data.0 + data.1 {
        let size = usize::from(u16::from_le_bytes(little[at + 6..at + 8].try_into().unwrap()));
        swap_record(&mut out[at..at + size], &attr);
        at += size;
    }
    out[72..104].fill(0);
    swap(&mut out, &[8; 9]);
    out
}

fn told(bytes: &[u8]) -> (Endian, Vec<String>) {
    let mut data = common::open(bytes).unwrap();
    let mut lines = Vec::new();
    let stats = data
        .for_each(RecordOrder::Time, &mut |e| {
            let attr = &e.events[e.event].attr;
            let mut line = format!("{:?} {:?} {:?}", e.raw.kind, e.raw.misc, e.time);
            if e.raw.kind == RecordKind::SAMPLE {
                let s = Sample::parse(&e.raw, attr).unwrap();
                let chain: Vec<u64> = s.callchain().collect();
                line += &format!("{:?} {:?} {:?} {:?} {chain:x?}", s.ip, s.tid, s.cpu, s.period);
            } else if let Some(sideband) = Sideband::parse(&e.raw).unwrap() {
                line += &format!("{sideband:?} {:?}", e.raw.sample_id(attr).unwrap());
            }
            lines.push(line);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(stats.damaged, None);
    assert!(stats.samples > 0);
    (data.endian(), lines)
}

#[test]
fn both_endiannesses_give_equal_results() {
    let args = ["-e", "cpu-clock", "-F", "5000", "-g", "-a"];
    let little = record(&args, "for i in 1 2 3 4; do ls -R /etc; done");
    let (endian, expected) = told(&little);
    assert_eq!(endian, Endian::Little);
    let (endian, got) = told(&swapped(&little));
    assert_eq!(endian, Endian::Big);
    assert_eq!(got, expected);
}
