//! Counting of samples that are made here: what is kept, for how long, by which keys.

use kymo_model::{Attr, AttrFlags, SampleType};

use super::*;

const SECOND: u64 = 1_000_000_000;

fn profile(span: u64) -> LiveProfile {
    let attr = Attr {
        sample_type: SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::CALLCHAIN,
        flags: AttrFlags::SAMPLE_ID_ALL,
        sample_period: 10,
        ..Attr::default()
    };
    let event = EventDesc { attr, ids: vec![1], ..EventDesc::default() };
    let symbols = ResolverOptions::default();
    let (page, off_cpu, max_stack) = (SECOND, None, None);
    let options = LiveProfileOptions { symbols, by_cpu: false, span, page, off_cpu, max_stack };
    LiveProfile::new((vec![event], Features::default()), options)
}

/// A sample in user space of a thread, with its callers, the innermost first.
fn sample(time: u64, task: (u32, u32), chain: &[u64]) -> Vec<u8> {
    let mut words = vec![chain[0], u64::from(task.0) | u64::from(task.1) << 32, time];
    words.push(chain.len() as u64 + 1);
    words.push(kymo_model::ChainContext::USER.0);
    words.extend(chain);
    let size = (8 + 8 * words.len()) as u16;
    let header = [&9u32.to_ne_bytes()[..], &2u16.to_ne_bytes(), &size.to_ne_bytes()].concat();
    let body = words.iter().flat_map(|w| w.to_ne_bytes());
    header.into_iter().chain(body).collect()
}

fn query(times: (u64, u64), keys: &[LiveKey]) -> LiveQuery {
    LiveQuery { times, keys: keys.to_vec(), ..LiveQuery::default() }
}

#[test]
fn rows_are_about_their_time_and_task() {
    let mut profile = profile(100 * SECOND);
    for n in 0..40u64 {
        let task = if n < 10 { (5, 5) } else { (6, 7) };
        profile.push(&sample(n * SECOND, task, &[0x1000 + n % 2, 0x2000]), &[]);
    }
    profile.finish();
    profile.wait_for_names();
    let rows = profile.rows(&query((0, u64::MAX), &[LiveKey::Symbol]));
    assert_eq!((rows.samples, rows.period, rows.unnamed, rows.pending), (40, 400, 40, 0));
    let mut shares: Vec<_> = rows.rows.iter().map(|r| (r.samples, r.own, r.total)).collect();
    shares.sort_unstable();
    // The caller, whose call is one before where it returns to, and both callees.
    assert_eq!(shares, [(0, 0, 400), (20, 200, 200), (20, 200, 200)]);
    let by_task = profile.rows(&query((5 * SECOND, 15 * SECOND), &[LiveKey::Pid]));
    let mut tasks: Vec<_> = by_task.rows.iter().map(|r| (r.key.tid, r.samples)).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, [(Some(5), 5), (Some(7), 5)]);
    let zoomed =
        LiveQuery { zoom: Some(TaskZoom::Process(6)), ..query((0, u64::MAX), &[LiveKey::Symbol]) };
    assert_eq!(profile.rows(&zoomed).samples, 30);
    assert_eq!(profile.rows(&LiveQuery { hide_user: true, ..zoomed }).samples, 0);
}

#[test]
fn trees_begin_with_who_is_called_by_nobody() {
    let mut profile = profile(SECOND);
    // Recursion is drawn as it is.
    profile.push(&sample(1, (5, 5), &[0x10, 0x20, 0x21, 0x30]), &[]);
    profile.push(&sample(2, (5, 5), &[0x30]), &[]);
    profile.finish();
    profile.wait_for_names();
    let tree = profile.tree(&query((0, 9), &[]));
    let comm = tree.children(LiveNodeId::ROOT);
    assert_eq!(comm.len(), 1);
    let mut depth = 0;
    let mut at = comm[0];
    assert_eq!(tree.node(at).unwrap().total, 20);
    while let Some(child) = tree.children(at).first() {
        (at, depth) = (*child, depth + 1);
    }
    assert_eq!((depth, tree.node(at).unwrap().own), (4, 10));
    assert_eq!(tree.find(&tree.path(at)), at);
}

#[test]
fn memory_is_that_of_what_is_kept() {
    let mut profile = profile(SECOND);
    for round in 0..300u64 {
        let mut ring = Vec::new();
        for n in 0..1000u64 {
            // No stack comes twice.
            let at = round * 1000 + n;
            let chain = [0x1000_0000 + at * 16, 0x2000_0000 + at * 16];
            ring.extend(sample(at * 1_000_000, (5, 5), &chain));
        }
        profile.push(&ring, &[]);
        profile.end_round();
    }
    profile.finish();
    assert_eq!(profile.samples.len(), 1001);
    let slots: usize = profile.share.counters.iter().map(|c| c.slots.len()).sum();
    assert!(slots < 80_000, "{slots}");
    assert!(profile.share.addresses.len() < 80_000, "{}", profile.share.addresses.len());
    profile.wait_for_names();
    let rows = profile.rows(&query((0, u64::MAX), &[LiveKey::Symbol]));
    assert_eq!((rows.samples, rows.pending, rows.rows.len()), (1001, 0, 2002));
}

/// Samples that are all different fill the memory before their time is over: the oldest go, those
/// that are left keep their names, which are not asked for again.
#[test]
fn memory_has_a_limit_and_names_stay() {
    let mut profile = profile(100 * SECOND);
    let mut task = (5, 5);
    for round in 0..400u64 {
        let mut ring = Vec::new();
        for n in 0..1000u64 {
            let at = round * 1000 + n;
            task.1 = 5 + (at % 3) as u32;
            // Some places come again, most do not.
            let leaf = if n % 10 == 0 { 0x1000 + n } else { 0x1000_0000 + at * 16 };
            ring.extend(sample(at * 100_000, task, &[leaf, 0x2000_0000 + at * 16]));
        }
        profile.push(&ring, &[]);
        profile.end_round();
        assert!(profile.held_bytes() <= MOST_BYTES, "{}", profile.held_bytes());
        if round == 200 {
            profile.wait_for_names();
        }
    }
    profile.finish();
    let kept = profile.samples.len() as u64;
    assert!(profile.dropped_early() > 0 && profile.dropped_early() + kept == 400_000);
    assert_eq!(profile.kept_from(), profile.samples.front().unwrap().time);
    // A page of a second is whole.
    assert!(!profile.are_pages_cut() && kept > 20_000, "{kept}");
    profile.wait_for_names();
    let rows = profile.rows(&query((0, u64::MAX), &[LiveKey::Symbol]));
    assert_eq!((rows.samples, rows.pending), (kept, 0));
    // Each address is its own function here: the right one.
    let mut own: Vec<(u64, u64)> = Vec::new();
    for row in rows.rows.iter().filter(|r| r.samples > 0) {
        let function = profile.function(row.key.function.unwrap()).unwrap();
        own.push((function.ip, row.samples));
    }
    let repeated = own.iter().filter(|(ip, _)| *ip < 0x1000 + 1000).count();
    let expected: u64 = own.iter().map(|(_, samples)| samples).sum();
    assert_eq!((repeated, expected), (100, kept));
    assert!(own.iter().filter(|(ip, _)| *ip >= 0x1000_0000).all(|(_, samples)| *samples == 1));
}

#[test]
fn ended_tasks_are_forgotten() {
    let mut profile = profile(SECOND);
    let record = |kind: u32, pid: u64, tid: u64, time: u64| {
        // pid, ppid, tid, ptid, time; and the trailer: task, time.
        let words = [pid | 1 << 32, tid | 1 << 32, time, pid | tid << 32, time];
        let header = [&kind.to_ne_bytes()[..], &[0, 0], &48u16.to_ne_bytes()].concat();
        let body = words.into_iter().flat_map(u64::to_ne_bytes);
        header.into_iter().chain(body).collect::<Vec<u8>>()
    };
    const FORK: u32 = 7;
    const EXIT: u32 = 4;
    for n in 0..1000u64 {
        profile.push(&record(FORK, 100 + n, 100 + n, n * 10), &[]);
        profile.push(&record(EXIT, 100 + n, 100 + n, n * 10 + 5), &[]);
        profile.end_round();
    }
    // Its number is reused immediately: the new one stays.
    profile.push(&record(FORK, 50, 50, 20_000), &[]);
    profile.push(&record(EXIT, 50, 50, 20_001), &[]);
    profile.push(&record(FORK, 50, 50, 20_002), &[]);
    for _ in 0..5 {
        profile.end_round();
    }
    let known = (100..1100).filter(|pid| profile.machine.name_of(*pid).is_some()).count();
    assert_eq!(known, 0);
    assert!(profile.machine.name_of(50).is_some());
}
