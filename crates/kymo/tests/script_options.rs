//! Records beside samples, binaries and ends of call chains in `kymo script`, beside perf's.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use kymo_testkit::{Need, Outcome, Workload, peer, perf, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

#[track_caller]
fn kymo(args: &[&str]) -> String {
    run(KYMO, args).success().stdout
}

fn record(directory: &tempfile::TempDir, name: &str, args: &[&str]) -> String {
    let path = directory.path().join(name).display().to_string();
    let out: Outcome = perf([&["record", "-q", "-o", &path], args].concat());
    let _ = out.success();
    path
}

/// Lines of records by kind, with single blanks.
fn records(text: &str, kinds: &[&str]) -> Vec<String> {
    let lines = text.lines().filter(|l| kinds.iter().any(|kind| l.contains(kind)));
    lines.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn programs_that_come_and_go_are_printed_as_perf_prints_them() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // kymo's own programs are loaded and removed meanwhile.
    let trace = [KYMO, "count", "-e", "syscalls:sys_enter_getppid", "--", "true"];
    let path = record(&directory, "bpf.data", &[&["-e", "dummy", "-a", "--"], &trace[..]].concat());
    let args = ["script", "-i", &path, "--show-bpf-events"];
    let kinds = ["PERF_RECORD_KSYMBOL", "PERF_RECORD_BPF_EVENT"];
    let ours = records(&kymo(&args), &kinds);
    assert_eq!(ours, records(&perf(args).success().stdout, &kinds));
    assert!(kinds.iter().all(|kind| ours.iter().any(|l| l.contains(kind))), "{ours:?}");
    // Code of the kernel comes and goes with them; it is not patched here.
    let args = ["script", "-i", &path, "--show-text-poke-events"];
    let kinds = ["PERF_RECORD_KSYMBOL", "PERF_RECORD_TEXT_POKE"];
    assert_eq!(
        records(&kymo(&args), &kinds),
        records(&peer("perf").run(args).success().stdout, &kinds)
    );
}

/// A recording with a TEXT_POKE record of this content in place of its first COMM record of
/// at least that size.
fn with_text_poke(path: &str, to: &str) {
    const COMM: u32 = 3;
    const TEXT_POKE: u32 = 20;
    let mut bytes = std::fs::read(path).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (mut at, size) = (word(&bytes, 40) as usize, word(&bytes, 48) as usize);
    let end = at + size;
    // Address, two lengths, bytes before and after, and what is left of the name.
    let mut body = 0xffff_ffff_8100_0010u64.to_le_bytes().to_vec();
    body.extend([2, 0, 3, 0]);
    body.extend([0x0f, 0x1f, 0xe9, 0x11, 0x22]);
    while at < end {
        let kind = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let length = usize::from(u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap()));
        if kind == COMM && length >= 8 + 24 {
            bytes[at..at + 4].copy_from_slice(&TEXT_POKE.to_le_bytes());
            bytes[at + 8..at + 8 + body.len()].copy_from_slice(&body);
            std::fs::write(to, bytes).unwrap();
            return;
        }
        at += length;
    }
    panic!("{path} has no COMM record");
}

#[test]
fn patched_code_is_printed_as_perf_prints_it() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let plain = record(&directory, "plain.data", &["-e", "cpu-clock", "--", "true"]);
    let path = directory.path().join("poked.data").display().to_string();
    with_text_poke(&plain, &path);
    let args = ["script", "-i", &path, "--show-text-poke-events"];
    let lines = |text: &str| -> Vec<String> {
        let shown = text.lines().skip_while(|l| !l.contains("PERF_RECORD_TEXT_POKE")).take(3);
        shown.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let (ours, theirs) = (lines(&kymo(&args)), lines(&perf(args).success().stdout));
    // The name of the kernel's function there is not everywhere the same one of several.
    let rest = |lines: &[String]| lines.get(1..).unwrap_or_default().to_vec();
    assert_eq!(rest(&ours), rest(&theirs));
    assert_eq!(rest(&ours), ["Old bytes: 0f 1f", "New bytes: e9 11 22"]);
    for side in [&ours[0], &theirs[0]] {
        assert!(side.contains("ffffffff81000010 "), "{side}");
        assert!(side.ends_with("old len 2 new len 3"), "{side}");
    }
}

#[test]
fn round_marks_are_as_many_as_perf_prints() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let work = Workload::syscalls();
    let args = ["-e", "cpu-clock", "-F", "2000", "--", work.arg(), "300000"];
    let path = record(&directory, "rounds.data", &args);
    let args = ["script", "-i", &path, "--show-round-events"];
    let kinds = ["PERF_RECORD_FINISHED_ROUND"];
    let ours = records(&kymo(&args), &kinds);
    assert_eq!(ours, records(&perf(args).success().stdout, &kinds));
    assert!(!ours.is_empty());
}

#[test]
fn samples_of_binaries_and_chains_up_to_a_function_are_perfs() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let work = Workload::syscalls();
    let what = ["-e", "cpu-clock:u", "-F", "4000", "--", work.arg(), "300000"];
    let path = record(&directory, "dsos.data", &what);
    let all = kymo(&["script", "-i", &path]);
    let name = work.arg().rsplit('/').next().unwrap();
    for dsos in [name, work.arg(), "libc.so.6", "nothing"] {
        // Names of stubs of the linker are not the same everywhere.
        let fields = ["-F", "comm,tid,time,ip,dso", "--dsos", dsos];
        let args = [&["script", "-i", &path][..], &fields].concat();
        let ours = kymo(&args);
        assert_eq!(ours, perf(&args).success().stdout, "{dsos}");
        assert!(ours.len() < all.len(), "{dsos}");
    }
    let own = kymo(&["script", "-i", &path, "--dsos", name]);
    assert!(!own.is_empty());
    // JSON lines are of the same samples, also of -S.
    let count = |args: &[&str]| kymo(&[&["script", "-i", &path], args].concat()).lines().count();
    assert_eq!(count(&["--json", "--dsos", name]), own.lines().count());
    let (lines, objects) = (count(&["-S", "main"]), count(&["--json", "-S", "main"]));
    assert_eq!(objects, lines);
    let what = ["-g", "-e", "cpu-clock", "-F", "4000", "--", work.arg(), "100000"];
    let path = record(&directory, "chains.data", &what);
    let args = ["script", "-i", &path, "--no-inline", "--stop-bt", "do_syscall_64"];
    let fields = [&args[..], &["-F", "comm,tid,time,ip,dso"]].concat();
    // Addresses in BPF programs, which may run meanwhile, are shown differently.
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|l| !l.contains("(bpf_prog_")).map(str::to_owned).collect()
    };
    assert_eq!(lines(&kymo(&fields)), lines(&perf(&fields).success().stdout));
    let ours = kymo(&args);
    let ends: Vec<&str> = ours.split("\n\n").filter(|b| b.contains("do_syscall_64")).collect();
    assert!(!ends.is_empty(), "{ours}");
    assert!(ends.iter().all(|b| b.lines().last().unwrap().contains("do_syscall_64")), "{ours}");
}

/// A recording of one event whose samples have the user part of their stack recorded later, of
/// two threads: one sample waits for what never comes.
fn with_deferred_chains(path: &std::path::Path) {
    const DEFERRED: u64 = -640i64 as u64;
    const KERNEL: u64 = -128i64 as u64;
    const USER: u64 = -512i64 as u64;
    const IN_KERNEL: u64 = 0xffff_8000_0000_1000;
    let record = |kind: u64, words: &[u64]| -> Vec<u8> {
        let head = kind | 1 << 32 | (8 + 8 * words.len() as u64) << 48;
        [head].iter().chain(words).flat_map(|word| word.to_le_bytes()).collect()
    };
    let sample = |time: u64, tid: u64, chain: &[u64]| {
        let head = [IN_KERNEL, 7 | tid << 32, time * 1_000_000, chain.len() as u64];
        record(9, &[&head, chain].concat())
    };
    let deferred = |time: u64, tid: u64, cookie: u64, chain: &[u64]| {
        let tail = [7 | tid << 32, time * 1_000_000];
        record(22, &[&[cookie, chain.len() as u64], chain, &tail].concat())
    };
    let data = [
        sample(100, 8, &[KERNEL, IN_KERNEL, DEFERRED, 11]),
        sample(120, 8, &[KERNEL, IN_KERNEL + 8, IN_KERNEL + 16, DEFERRED, 11]),
        sample(130, 8, &[USER, 0x4444]),
        deferred(140, 8, 11, &[USER, 0x5000, 0x6000]),
        sample(160, 9, &[KERNEL, IN_KERNEL, DEFERRED, 23]),
        sample(170, 9, &[KERNEL, IN_KERNEL]),
    ]
    .concat();
    // The task clock; ip, tid, time and chain; ids in all records, chains deferred and recorded.
    let flags = 1 << 18 | 1 << 38 | 1 << 39;
    let mut attr: Vec<u8> = [1 | 136 << 32, 1, 1, 1 | 2 | 4 | 32, 0, flags]
        .iter()
        .flat_map(|word: &u64| word.to_le_bytes())
        .collect();
    attr.resize(136 + 16, 0);
    let (begin, size) = (104, attr.len() as u64);
    let head = [u64::from_le_bytes(*b"PERFILE2"), begin, size, begin, size, begin + size];
    let head = head.into_iter().chain([data.len() as u64]);
    let mut file: Vec<u8> = head.flat_map(u64::to_le_bytes).collect();
    file.resize(104, 0);
    std::fs::write(path, [file, attr, data].concat()).unwrap();
}

#[test]
fn user_parts_that_were_recorded_later_are_merged_or_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deferred.data");
    with_deferred_chains(&path);
    let path = path.display().to_string();
    let merged = kymo(&["script", "-i", &path, "-F", "time,ip"]);
    assert_eq!(merged, kymo(&["script", "-i", &path, "-F", "time,ip", "--merge-callchains"]));
    assert!(!merged.contains("DEFERRED") && merged.matches(" 6000\n").count() == 2, "{merged}");
    let apart = kymo(&["script", "-i", &path, "-F", "time,ip,sym", "--no-merge-callchains"]);
    let deferred: Vec<&str> = apart.lines().filter(|l| l.contains("DEFERRED")).collect();
    assert_eq!(deferred.len(), 1, "{apart}");
    assert!(deferred[0].ends_with("DEFERRED CALLCHAIN [cookie: b]"), "{apart}");
    let count = |what: &str| apart.matches(what).count();
    assert_eq!((count(" b (cookie)\n"), count(" 17 (cookie)\n"), count(" 6000 ")), (2, 1, 1));
    let json = run(KYMO, ["script", "-i", &path, "--json", "--no-merge-callchains"]);
    assert_eq!(json.status, 2, "{json:?}");
    if !require(&[Need::NewestPeers]) {
        return;
    }
    for fields in [&[][..], &["-F", "comm,time,ip"], &["--max-stack", "1"]] {
        let args = [&["script", "-i", &path, "--no-merge-callchains"], fields].concat();
        let single = |text: &str| -> Vec<String> {
            text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        let theirs = peer("perf").run(&args).success().stdout;
        assert_eq!(single(&kymo(&args)), single(&theirs), "{fields:?}");
    }
}

#[test]
fn code_is_chosen_by_addresses_and_ranges_of_them() {
    if !require(&[Need::Perf, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let work = Workload::spin();
    let what = ["-e", "cpu-clock:u", "-F", "2000", "--", work.arg(), "20"];
    let path = record(&directory, "addresses.data", &what);
    let all = kymo(&["script", "-i", &path, "-F", "ip"]);
    let mut addresses: Vec<u64> =
        all.lines().map(|l| u64::from_str_radix(l.trim(), 16).unwrap()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    // Two that are not far from each other.
    let near = addresses.windows(2).find(|pair| pair[1] - pair[0] < 64);
    let &[first, second] = near.unwrap() else { panic!("{addresses:x?}") };
    let (plain, long) = (format!("{first:x}"), format!("{first:#x}"));
    let distance = second - first;
    let (short, reaching) = (distance.to_string(), (distance + 1).to_string());
    let mut counts = Vec::new();
    for choice in [
        &["-S", &plain][..],
        &["-S", &long],
        &["-S", &long, "--addr-range", &short],
        &["-S", &long, "--addr-range", &reaching],
        &["-S", &long, "--addr-range", "100000"],
        &["--addr-range", "3"],
    ] {
        let args = [&["script", "-i", &path, "-F", "time,ip"], choice].concat();
        let ours = kymo(&args);
        assert_eq!(ours, perf(&args).success().stdout, "{choice:?}");
        counts.push(ours.lines().count());
    }
    assert!(counts[0] > 0 && counts[0] == counts[1] && counts[1] == counts[2], "{counts:?}");
    assert!(counts[2] < counts[3] && counts[3] <= counts[4], "{counts:?}");
    assert_eq!(counts[5], all.lines().count());
    let objects = kymo(&["script", "-i", &path, "--json", "-S", &long]);
    assert_eq!(objects.lines().count(), counts[0]);
}
