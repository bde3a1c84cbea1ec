//! `kymo io` of recordings of this machine: requests of a program that makes a known number of
//! them, against the events that `kymo script` shows, and of files, whose sectors they must have;
//! of LTTng's traces with all that can happen to a request; losses.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt as _;

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_testkit::{JsonSchema, Need, NoIdleCpus, Outcome, TracingState, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn page(command: &str, path: &str, more: &[&str]) -> Value {
    let args = [&["io", command, "--json", "-i", path], more].concat();
    serde_json::from_str(&kymo(&args).stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

fn lines(path: &str, more: &[&str]) -> Vec<Value> {
    let text = kymo(&[&["io", "timehist", "--json", "-i", path], more].concat()).stdout;
    let all = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let schema = JsonSchema::parse(include_str!("../../../docs/json.schema.json"));
    let all = all.inspect(|line| {
        assert_eq!(schema.errors("io_timehist", line), Vec::<String>::new(), "{line}");
    });
    all.filter(|l| l["type"] == "request").collect()
}

/// Issue and completion of each request, by the events themselves: device, sector, times. A flush
/// is `FF`; what asked for it (`WS`, `FWS`) ends without sectors after it, and has no issue then.
fn model(path: &str) -> Vec<(u64, u64, u64, u64)> {
    let text = kymo(&["script", "-i", path, "--json", "--ns"]).success().stdout;
    let mut issued: HashMap<(u64, u64, bool, bool), u64> = HashMap::new();
    let mut done = Vec::new();
    for line in text.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let f = &e["fields"];
        let (seconds, nanos) = match e["time"].to_string().split_once('.') {
            Some((a, b)) => (a.parse::<u64>().unwrap(), format!("{b:0<9}").parse::<u64>().unwrap()),
            None => continue,
        };
        let time: u64 = seconds * 1_000_000_000 + nanos;
        let key = || {
            let sector = Some(number(&f["sector"])).filter(|s| *s != u64::MAX).unwrap_or(0);
            let is_flush = f["rwbs"].as_str().unwrap().starts_with("FF");
            (number(&f["dev"]), sector, number(&f["nr_sector"]) == 0, is_flush)
        };
        match e["event"].as_str().unwrap() {
            "block:block_rq_issue" => _ = issued.insert(key(), time),
            "block:block_rq_complete" => {
                if let Some(from) = issued.remove(&key()) {
                    done.push((key().0, key().1, from, time));
                }
            }
            _ => {}
        }
    }
    done.sort_unstable();
    done
}

#[test]
fn requests_are_those_that_a_program_makes() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let state = TracingState::take();
    // Linux 6.18 was seen to lose all events of interrupts that came upon the idle task of a CPU, for
    // perf as well, from some moment until the next boot: no CPU is idle here.
    let _awake = NoIdleCpus::keep();
    // On a disk: a tmpfs has no requests.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let file = path("file");
    // A name that no other program has.
    let dd = path("dd-of-requests");
    std::os::unix::fs::symlink("/bin/dd", &dd).unwrap();
    // No read-ahead has three sectors.
    let program = format!(
        "{dd} if=/dev/zero of={file} bs=4k count=41 oflag=direct && \
         {dd} if={file} of=/dev/null bs=1536 count=20 iflag=direct && sync {file}"
    );
    let workload = ["--", "sh", "-c", &program];
    for recording in [path("a.data"), path("b.dat")] {
        let record = ["io", "record", "-q", "-o", &recording];
        let _ = kymo(&[&record, &workload[..]].concat()).success();
        let requests = lines(&recording, &["--comm", "dd-of-requests"]);
        // Where the file continues elsewhere on the disk, a part of it is two requests.
        let of = |op: &str, most: u64| -> u64 {
            let bytes = requests.iter().filter(|r| r["op"] == op).map(|r| number(&r["bytes"]));
            bytes.filter(|bytes| *bytes <= most).sum()
        };
        assert_eq!((of("write", 4096), of("read", 1536)), (41 * 4096, 20 * 1536), "{requests:#?}");
        // Parts are in their order, and those of the events.
        let all = lines(&recording, &[]);
        let mut ours: Vec<(u64, u64, u64, u64)> = Vec::new();
        for r in &all {
            let times = ["start_ns", "issued_ns", "completed_ns"].map(|n| number(&r[n]));
            assert!(times.is_sorted(), "{r}");
            let (queue, device) = (number(&r["queue_ns"]), number(&r["device_ns"]));
            assert_eq!(queue + device, times[2] - times[0], "{r}");
            let (major, minor) = r["device"].as_str().unwrap().split_once(',').unwrap();
            let dev = major.parse::<u64>().unwrap() << 20 | minor.parse::<u64>().unwrap();
            ours.push((dev, number(&r["sector"]), times[1], times[2]));
        }
        ours.sort_unstable();
        assert_eq!(ours, model(&recording));
        // `sync` flushes.
        assert!(all.iter().any(|r| r["op"] == "flush"), "{all:#?}");
        // Tables are sums of the lines.
        let table = page("latency", &recording, &[]);
        let sum = |name: &str| -> u64 {
            list(&table["rows"]).iter().map(|r| number(&r[name]["total_ns"])).sum()
        };
        let of_lines = |name: &str| -> u64 { all.iter().map(|r| number(&r[name])).sum() };
        assert_eq!(sum("queue"), of_lines("queue_ns"));
        assert_eq!(sum("device_time"), of_lines("device_ns"));
        let row = &list(&table["rows"])[0];
        let in_rows = list(&row["device_time"]["histogram"]).iter().map(|h| number(&h[1]));
        assert_eq!(in_rows.sum::<u64>(), number(&row["count"]));
        // Each request is waited for by who makes it, as it is made directly.
        let waiter = list(&table["waiters"]).iter().filter(|w| w["comm"] == "dd-of-requests");
        let waits: u64 = waiter.map(|w| number(&w["waits"]["count"])).sum();
        assert!((40..=70).contains(&waits), "{table:#}");
        let top = page("top", &recording, &["--comm", "dd-of-requests"]);
        let of_dd = list(&top["processes"]).iter();
        let bytes = of_dd.map(|p| (number(&p["read_bytes"]), number(&p["written_bytes"])));
        let bytes = bytes.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        assert!(bytes.0 >= 20 * 1536 && bytes.1 >= 41 * 4096, "{top:#}");
        let text = kymo(&["io", "latency", "-i", &recording]).stdout;
        assert!(text.contains(" write: ") && text.contains("█"), "{text}");
    }
    assert_eq!(state.left_behind(), None);
}

/// Sectors of a file on its disk: where its file system says that the extents are.
fn sectors_of(path: &str, device: u64) -> Option<Vec<(u64, u64)>> {
    // In blocks of 512 bytes: `0:  0..  159:  1234..  1393:  160:  last,eof`.
    let text = run("filefrag", ["-v", "-b512", path]).stdout;
    // A partition's sectors are those of its disk from there on.
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    let begin = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/start"));
    let begin: u64 = begin.map_or(0, |text| text.trim().parse().unwrap());
    let extents: Vec<(u64, u64)> = text
        .lines()
        .filter_map(|line| {
            let mut parts = line.split(':');
            parts.next()?.trim().parse::<u64>().ok()?;
            let (from, to) = parts.nth(1)?.split_once("..")?;
            let [from, to] = [from, to].map(|n| n.trim().parse::<u64>().unwrap());
            Some((begin + from, begin + to + 1))
        })
        .collect();
    (!extents.is_empty()).then_some(extents)
}

/// The answer is about the command, whatever other programs do meanwhile.
#[test]
fn requests_beside_a_command_are_those_of_its_tasks() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let state = TracingState::take();
    let _awake = NoIdleCpus::keep();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let link = |name: &str| {
        std::os::unix::fs::symlink("/bin/dd", path(name)).unwrap();
        path(name)
    };
    let (own, other) = (link("dd-own"), link("dd-other"));
    let write = |dd: &str, file: &str, count: u32| {
        format!("{dd} if=/dev/zero of={} bs=4k count={count} oflag=direct", path(file))
    };
    let endless = format!("while :; do {}; done", write(&other, "b", 20));
    let mut beside = std::process::Command::new("sh").args(["-c", &endless]).spawn().unwrap();
    let command = write(&own, "a", 41);
    let table = kymo(&["io", "top", "--json", "--", "sh", "-c", &command]);
    beside.kill().unwrap();
    beside.wait().unwrap();
    let table: Value = serde_json::from_str(&table.success().stdout).unwrap();
    let rows = list(&table["processes"]);
    let names: Vec<&str> = rows.iter().filter_map(|row| row["comm"].as_str()).collect();
    assert!(names.contains(&"dd-own") && !names.contains(&"dd-other"), "{rows:#?}");
    drop(state);
}

/// Workers of the kernel write back the page cache that a command wrote into.
#[test]
fn writes_of_a_command_that_workers_make_are_reported() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let state = TracingState::take();
    let _awake = NoIdleCpus::keep();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let top = |name: &str, more: &[&str]| {
        let file = directory.path().join(name).to_str().unwrap().to_owned();
        // sync(1) leaves the data of files to workers.
        let command = format!("dd if=/dev/zero of={file} bs=64k count=20; sync -f {file}");
        let all = [&["io", "top", "--json"], more, &["--", "sh", "-c", &command]].concat();
        kymo(&all).success()
    };
    let (table, all) = (top("own", &[]), top("all", &["-a"]));
    let written = |table: &Outcome| {
        let table: Value = serde_json::from_str(&table.stdout).unwrap();
        let rows = list(&table["processes"]).iter();
        rows.map(|row| number(&row["written_bytes"])).sum::<u64>()
    };
    assert!(written(&all) >= 20 << 16, "{}", all.stdout);
    let note = "kernel workers, which write pages back later";
    if written(&table) < 20 << 16 {
        assert!(table.stdout.contains(note) || table.stderr.contains(note), "{table:?}");
    }
    assert!(!all.stdout.contains(note), "{}", all.stdout);
    drop(state);
}

#[test]
fn requests_are_of_the_files_whose_sectors_they_have() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Tool("filefrag")]) {
        return;
    }
    let state = TracingState::take();
    let _awake = NoIdleCpus::keep();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = directory.path().canonicalize().unwrap();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    // What a process has open has a name.
    let names = ["buffered", "direct"].map(path);
    let open = names.clone().map(|name| std::fs::File::create(name).unwrap());
    let [buffered, direct] = &names;
    let gone = path("gone");
    // Written back by fsync, read again from the disk; past the page cache; a file that is deleted.
    let program = format!(
        "dd if=/dev/zero of={buffered} bs=64k count=20 conv=notrunc,fsync && \
         dd of={buffered} oflag=nocache conv=notrunc,fdatasync count=0 && \
         dd if={buffered} of=/dev/null bs=64k && \
         dd if=/dev/zero of={direct} bs=4k count=16 oflag=direct conv=notrunc && \
         dd if={direct} of=/dev/null bs=16k iflag=direct && \
         dd if=/dev/zero of={gone} bs=4k count=5 conv=fsync && rm {gone}"
    );
    let [recording, without] = [path("a.data"), path("b.data")];
    let _ = kymo(&["io", "record", "-q", "-o", &recording, "--", "sh", "-c", &program]).success();
    let requests = lines(&recording, &[]);
    let top = page("top", &recording, &["--by", "file"]);
    let moved = |inode: u64| -> (u64, u64) {
        let of_file = list(&top["files"]).iter().filter(|row| row["file"]["inode"] == inode);
        let bytes = of_file.map(|r| (number(&r["read_bytes"]), number(&r["written_bytes"])));
        bytes.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    let kind = run("stat", ["-f", "-c", "%T", root.to_str().unwrap()]).stdout;
    let is_ext4 = kind.trim() == "ext2/ext3";
    let text = kymo(&["io", "top", "--by", "file", "-E", "1000", "-i", &recording]).stdout;
    for ((name, file), (read, written)) in
        names.iter().zip(&open).zip([(20 << 16, 20 << 16), (16 << 12, 16 << 12)])
    {
        let meta = file.metadata().unwrap();
        // Whatever is said to be of the file has sectors of the file.
        let of_file = requests.iter().filter(|r| r["file"]["inode"] == meta.ino());
        let extents = sectors_of(name, meta.dev());
        for r in of_file {
            let from = number(&r["sector"]);
            let to = from + number(&r["bytes"]) / 512;
            let Some(extents) = &extents else { continue };
            assert!(extents.iter().any(|e| e.0 <= from && to <= e.1), "{r} {extents:?}");
        }
        let (of_read, of_written) = moved(meta.ino());
        assert!(of_read <= read && of_written <= written, "{name}: {top:#}");
        if is_ext4 {
            assert_eq!((of_read, of_written), (read, written), "{name}: {top:#}");
            let row = list(&top["files"]).iter().find(|r| r["file"]["inode"] == meta.ino());
            assert_eq!(row.unwrap()["file"]["path"], **name);
            assert!(text.contains(name.as_str()), "{text}");
        }
    }
    if is_ext4 {
        // Its inode may be that of a file to come: it has no name.
        let deleted = list(&top["files"])
            .iter()
            .filter(|r| r["file"]["deleted"] == true && r["file"]["path"].is_null());
        let written: Vec<u64> = deleted.map(|r| number(&r["written_bytes"])).collect();
        assert!(written.contains(&(5 << 12)), "{top:#}");
    }
    // Every request is in one row.
    let counts = list(&top["files"]).iter().map(|r| number(&r["count"]));
    assert_eq!(counts.sum::<u64>(), requests.len() as u64);
    let latency = kymo(&["io", "latency", "--files", "3", "-i", &recording]).stdout;
    assert!(latency.contains("\n  Files\n"), "{latency}");

    // Without the events nothing is said of files.
    let program = format!("dd if=/dev/zero of={direct} bs=4k count=3 oflag=direct conv=notrunc");
    let record = ["io", "record", "-q", "--no-files", "-o", &without];
    let _ = kymo(&[&record[..], &["--", "sh", "-c", &program]].concat()).success();
    assert!(lines(&without, &[]).iter().all(|r| r["file"].is_null()));
    let text = kymo(&["io", "top", "--by", "file", "-i", &without]).stdout;
    assert!(text.contains("the files of requests are unknown"), "{text}");
    assert_eq!(state.left_behind(), None);
}

const REQUEST: &[(&str, &str)] = &[
    ("uint32_t", "dev"),
    ("uint64_t", "sector"),
    ("uint32_t", "nr_sector"),
    ("uint32_t", "bytes"),
    ("uint32_t", "rwbs"),
];
const DONE: &[(&str, &str)] = &[
    ("uint32_t", "dev"),
    ("uint64_t", "sector"),
    ("uint32_t", "nr_sector"),
    ("int32_t", "error"),
    ("uint32_t", "rwbs"),
];
const CLASSES: [CtfClass; 6] = [
    CtfClass { name: "block_rq_insert", fields: REQUEST },
    CtfClass { name: "block_rq_issue", fields: REQUEST },
    CtfClass { name: "block_rq_requeue", fields: DONE },
    CtfClass { name: "block_rq_merge", fields: REQUEST },
    CtfClass { name: "block_rq_complete", fields: DONE },
    CtfClass {
        name: "sched_switch",
        fields: &[
            ("text", "prev_comm"),
            ("int32_t", "prev_tid"),
            ("uint64_t", "prev_state"),
            ("text", "next_comm"),
            ("int32_t", "next_tid"),
        ],
    },
];
const INSERT: usize = 0;
const ISSUE: usize = 1;
const REQUEUE: usize = 2;
const MERGE: usize = 3;
const COMPLETE: usize = 4;
const SWITCH: usize = 5;

const DISK: u64 = 254 << 20;
const WRITE: u64 = 1;
const READ: u64 = 4;
const FLUSH: u64 = 1 << 10;

fn event(time: u64, cpu: u32, class: usize, values: &[u64]) -> CtfEvent {
    CtfEvent { time, cpu, class, values: values.to_vec() }
}

fn events() -> Vec<CtfEvent> {
    vec![
        event(90, 0, SWITCH, &[0, 0, 0, 7, 7]),
        // Done, and never seen before.
        event(95, 0, COMPLETE, &[DISK, 5, 8, 0, READ]),
        // Queued, given back once, done in two parts.
        event(100, 0, INSERT, &[DISK, 64, 16, 8192, WRITE]),
        event(120, 0, ISSUE, &[DISK, 64, 16, 8192, WRITE]),
        event(125, 0, REQUEUE, &[DISK, 64, 16, 0, WRITE]),
        event(130, 0, ISSUE, &[DISK, 64, 16, 8192, WRITE]),
        event(180, 1, COMPLETE, &[DISK, 64, 8, 0, WRITE]),
        event(200, 1, COMPLETE, &[DISK, 72, 8, 0, WRITE]),
        // Merged into another one.
        event(210, 0, INSERT, &[DISK, 200, 8, 4096, WRITE]),
        event(215, 0, MERGE, &[DISK, 200, 8, 4096, WRITE]),
        // Straight to the driver, and it fails; a flush meanwhile.
        event(300, 0, ISSUE, &[DISK + 1, 0, 8, 4096, READ]),
        event(310, 0, ISSUE, &[DISK + 1, 0, 0, 0, FLUSH]),
        event(350, 0, COMPLETE, &[DISK + 1, 0, 8, 0xffff_fffb, READ]),
        event(360, 0, COMPLETE, &[DISK + 1, 0, 0, 0, FLUSH]),
        // Not done.
        event(400, 0, ISSUE, &[DISK, 900, 8, 4096, READ]),
    ]
}

#[test]
fn requests_of_lttng_are_followed_through_all_that_happens_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernel");
    let events = events();
    CtfWriter { classes: &CLASSES, events: &events, packet: 4, without: &|_, _| false }
        .write(&path);
    let path = path.to_str().unwrap();
    let all = lines(path, &[]);
    let row = |r: &Value| {
        let names = ["queue_ns", "device_ns", "bytes", "requeues"];
        (r["op"].as_str().unwrap().to_owned(), names.map(|n| number(&r[n])), r["error"].clone())
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    let expected = [
        ("write".to_owned(), [30, 70, 8192, 1], 0.into()),
        ("read".to_owned(), [0, 50, 4096, 0], (-5).into()),
        ("flush".to_owned(), [0, 50, 0, 0], 0.into()),
    ];
    assert_eq!(rows, expected);
    assert_eq!((&all[0]["device"], &all[1]["device"]), (&"254,0".into(), &"254,1".into()));
    let table = page("latency", path, &[]);
    let names = ["open_at_end", "completions_only", "merged", "uncertain"];
    assert_eq!(names.map(|n| number(&table["halves"][n])), [1, 1, 1, 0]);
    // Devices, and what is no device.
    assert_eq!(lines(path, &["-d", "254,1"]).len(), 2);
    let wrong = kymo(&["io", "top", "-d", "vda", "-i", path]).expect_status(2);
    assert!(wrong.stderr.contains("not MAJOR,MINOR"), "{}", wrong.stderr);
    // Packets of CPU 0 taken out in turn: times are those of all events, or marked.
    let key = |r: &Value| (r["device"].to_string(), number(&r["completed_ns"]));
    let truth: BTreeMap<_, Value> = all.iter().map(|r| (key(r), r.clone())).collect();
    for lost in 0..4 {
        let there = directory.path().join(format!("lossy-{lost}"));
        let without = |cpu: u32, packet: usize| cpu == 0 && packet == lost;
        CtfWriter { classes: &CLASSES, events: &events, packet: 3, without: &without }
            .write(&there);
        for r in lines(there.to_str().unwrap(), &[]) {
            // Events missing at the start are not known to be lost: nothing was before.
            let names = if lost == 0 { &["device_ns"][..] } else { &["device_ns", "queue_ns"] };
            let same = truth.get(&key(&r)).is_some_and(|t| names.iter().all(|n| t[*n] == r[*n]));
            assert!(same || r["uncertain"] == true, "{lost} {r}");
        }
    }
}

#[test]
fn what_is_missing_is_said() {
    let there = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");
    let none = kymo(&["io", "latency", "-i", there, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("there are no events of block requests"), "{}", none.stdout);
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    // Who sleeps makes no requests: nothing is missing.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.data").display().to_string();
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = child.id().to_string();
    let record =
        ["record", "-q", "-e", "block:block_rq_issue,block:block_rq_complete", "-o", &path];
    let _ = kymo(&[&record[..], &["-p", &pid, "--", "true"]].concat()).success();
    child.kill().unwrap();
    child.wait().unwrap();
    let none = kymo(&["io", "latency", "-i", &path, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("there were no block requests in that time"), "{}", none.stdout);
    assert!(!none.stdout.contains("record them"), "{}", none.stdout);
}
