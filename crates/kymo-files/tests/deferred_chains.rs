//! Call chains whose user part is recorded later: made by hand, read by kymo and by perf 7.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ops::ControlFlow;

use common::{collect, write_temp};
use kymo_files::perfdata::RecordOrder;
use kymo_model::{Attr, AttrFlags, EventType, Sample, SampleType};
use kymo_testkit::peer;

const DEFERRED: u64 = -640i64 as u64;
const KERNEL: u64 = -128i64 as u64;
const USER: u64 = -512i64 as u64;

fn attr() -> Attr {
    Attr {
        kind: EventType::SOFTWARE,
        config: 1,
        sample_period: 1,
        sample_type: SampleType::IP
            | SampleType::TID
            | SampleType::TIME
            | SampleType::CALLCHAIN
            | SampleType::RAW,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::DEFER_CALLCHAIN | AttrFlags::DEFER_OUTPUT,
        ..Attr::default()
    }
}

fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let size = 8 + 8 * words.len() as u64;
    let header = u64::from(kind) | 1 << 32 | size << 48;
    [header].iter().chain(words).flat_map(|w| w.to_le_bytes()).collect()
}

fn sample(time: u64, tid: u64, chain: &[u64]) -> Vec<u8> {
    let head = [0xffff_8000_0000_1000, 7 | tid << 32, time, chain.len() as u64];
    // The raw part behind the chain: four bytes.
    let raw = [4 | (0xaaaa_0000 + time) << 32];
    record(9, &[&head, chain, &raw[..]].concat())
}

fn deferred(time: u64, tid: u64, cookie: u64, chain: &[u64]) -> Vec<u8> {
    let head = [cookie, chain.len() as u64];
    record(22, &[&head, chain, &[7 | tid << 32, time]].concat())
}

/// A file of these records.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    let data = records.concat();
    let attr = attr().to_bytes();
    let (entry, begin) = (attr.len() as u64 + 16, 104);
    let words = [
        u64::from_le_bytes(*b"PERFILE2"),
        begin,
        entry,
        begin,
        entry,
        begin + entry,
        data.len() as u64,
    ];
    let mut out: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    out.resize(104, 0);
    out.extend(attr);
    out.extend([0; 16]);
    out.extend(data);
    out
}

/// Two threads; a cookie without an answer, one that another cookie overtakes, one that two samples
/// wait for.
fn records() -> Vec<Vec<u8>> {
    vec![
        sample(100, 8, &[KERNEL, 0xffff_8000_0000_1000, DEFERRED, 11]),
        sample(110, 9, &[KERNEL, 0xffff_8000_0000_2000, DEFERRED, 21]),
        sample(120, 8, &[KERNEL, 0xffff_8000_0000_3000, 0xffff_8000_0000_3100, DEFERRED, 11]),
        sample(130, 8, &[USER, 0x4444]),
        deferred(140, 8, 11, &[USER, 0x5000, 0x6000]),
        deferred(150, 9, 22, &[USER, 0x7000]),
        sample(160, 9, &[KERNEL, 0xffff_8000_0000_4000, DEFERRED, 23]),
        sample(170, 9, &[KERNEL, 0xffff_8000_0000_4100]),
    ]
}

/// Time, chain and raw bytes of each sample, in the order in which they are handed on.
fn samples(bytes: &[u8]) -> (Vec<(u64, Vec<u64>, u32)>, u64) {
    let mut data = common::open(bytes).unwrap();
    let mut all = Vec::new();
    let stats = data
        .for_each(RecordOrder::Time, &mut |e| {
            if e.raw.kind.0 == 9 {
                let sample = Sample::parse(&e.raw, &e.desc().unwrap().attr).unwrap();
                let raw = u32::from_le_bytes(*sample.raw.unwrap().first_chunk().unwrap());
                all.push((e.time.unwrap(), sample.callchain().collect(), raw));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(stats.malformed, 0);
    (all, stats.missing_user_stacks)
}

#[test]
fn user_parts_join_the_samples_that_wait_for_them() {
    let bytes = file(&records());
    let (all, missing) = samples(&bytes);
    let chains: Vec<(u64, Vec<u64>)> = all.iter().map(|(t, c, _)| (*t, c.clone())).collect();
    let kernel = |n: u64| 0xffff_8000_0000_0000 + n;
    assert_eq!(
        chains,
        [
            (130, vec![USER, 0x4444]),
            (100, vec![KERNEL, kernel(0x1000), DEFERRED, USER, 0x5000, 0x6000]),
            (120, vec![KERNEL, kernel(0x3000), kernel(0x3100), DEFERRED, USER, 0x5000, 0x6000]),
            (110, vec![KERNEL, kernel(0x2000)]),
            (170, vec![KERNEL, kernel(0x4100)]),
            (160, vec![KERNEL, kernel(0x4000)]),
        ]
    );
    assert_eq!(missing, 2);
    // What follows the chain is where it was.
    assert!(all.iter().all(|(time, _, raw)| u64::from(*raw) == 0xaaaa_0000 + time), "{all:?}");
    // As the file has them, nothing is merged.
    let plain = collect(&bytes, RecordOrder::File).unwrap();
    assert_eq!(plain.records.iter().map(|r| r.0).collect::<Vec<_>>(), [9, 9, 9, 9, 22, 22, 9, 9]);
}

#[test]
fn perf_7_merges_the_same_chains() {
    let perf = peer("perf");
    if !perf.is_newest() {
        return;
    }
    let bytes = file(&records());
    let path = write_temp(&bytes);
    let args = ["script", "-F", "tid,time,ip", "--ns", "-i", path.path().to_str().unwrap()];
    let out = perf.run(args).success();
    let mut theirs: Vec<(u64, Vec<u64>)> = Vec::new();
    for line in out.stdout.lines().filter(|l| !l.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, time] if time.ends_with(':') => {
                let time = time.trim_end_matches(':').replace('.', "").parse().unwrap();
                theirs.push((time, Vec::new()));
            }
            [ip, ..] => theirs.last_mut().unwrap().1.push(u64::from_str_radix(ip, 16).unwrap()),
            [] => {}
        }
    }
    let is_address = |w: &u64| *w < (-4095i64) as u64;
    let plain = |chain: &Vec<u64>| chain.iter().copied().filter(is_address).collect::<Vec<_>>();
    let ours: Vec<_> = samples(&bytes).0.iter().map(|(t, c, _)| (*t, plain(c))).collect();
    // perf shows the cookie of a sample without an answer as if it were an address.
    theirs.iter_mut().for_each(|(_, chain)| chain.retain(|ip| *ip > 0xff));
    assert_eq!(ours, theirs, "{}", out.stdout);
}

#[test]
fn damaged_chains_neither_panic_nor_grow() {
    let bytes = file(&records());
    let begin = 104 + Attr::SIZE + 16;
    for at in begin..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            let Ok(got) = collect(&changed, RecordOrder::Time) else { continue };
            assert!(got.records.len() <= 8, "{at} {value}");
        }
    }
}
