//! Losses of a perf.data: whichever records tell of them, every command states the same
//! number, and it is the true one.

#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::fs::File;
use std::path::Path;

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_files::perfdata::write::{EventMeta, FeatureSections, PerfDataWriter};
use kymo_model::{Attr, AttrFlags, EventType, Misc, RecordHeader, RecordKind, SampleType, sw};
use kymo_testkit::{Need, TracingState, Workload, lines_with, require, run};

const SAMPLES: u64 = 3;
const ID: u64 = 7;

/// A record of the event below, with the time in its sample id.
fn record(kind: RecordKind, misc: u16, body: &[u64], time: u64) -> Vec<u8> {
    let words = [body, &[time, ID]].concat();
    let size = (RecordHeader::SIZE + words.len() * 8) as u16;
    let mut bytes = RecordHeader { kind, misc: Misc(misc), size }.to_bytes().to_vec();
    words.iter().for_each(|w| bytes.extend(w.to_ne_bytes()));
    bytes
}

fn lost(n: u64, time: u64) -> Vec<u8> {
    record(RecordKind::LOST, 0, &[ID, n], time)
}

fn lost_samples(n: u64, misc: u16, time: u64) -> Vec<u8> {
    record(RecordKind::LOST_SAMPLES, misc, &[n], time)
}

/// Writes three samples and these records, and compares what is stated of losses.
#[track_caller]
fn check(records: &[Vec<u8>], truth: u64, note: Option<&str>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.data");
    let attr = Attr {
        kind: EventType::SOFTWARE,
        config: sw::CPU_CLOCK,
        sample_period: 1,
        sample_type: SampleType::IP | SampleType::TIME | SampleType::IDENTIFIER,
        flags: AttrFlags::SAMPLE_ID_ALL,
        ..Attr::default()
    };
    let event = EventMeta { name: "cpu-clock".into(), attr, ids: vec![ID], ..EventMeta::default() };
    let sections = FeatureSections::new();
    let mut writer =
        PerfDataWriter::file(File::create(&path).unwrap(), vec![event], &sections).unwrap();
    for time in 1..=SAMPLES {
        // IDENTIFIER, IP, TIME: these lie the other way round than in the sample id.
        let size = (RecordHeader::SIZE + 24) as u16;
        let header = RecordHeader { kind: RecordKind::SAMPLE, misc: Misc(Misc::USER), size };
        let mut sample = header.to_bytes().to_vec();
        [ID, 0x1000, time].iter().for_each(|w| sample.extend(w.to_ne_bytes()));
        writer.record(&sample).unwrap();
    }
    records.iter().for_each(|r| writer.record(r).unwrap());
    writer.finish(&sections).unwrap();

    let path = path.to_str().unwrap();
    let kymo = |args: &[&str]| run(env!("CARGO_BIN_EXE_kymo"), args).success();
    let report = kymo(&["report", "-i", path]);
    let total = format!("# Total Lost Samples: {truth}\n");
    assert!(report.stdout.contains(&total), "{truth}: {report:?}");
    let json = kymo(&["report", "--json", "-i", path]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["lost_samples"].as_u64(), Some(truth));
    let script = kymo(&["script", "-F", "time,event", "-i", path]);
    assert_eq!(script.stdout.lines().count() as u64, SAMPLES, "{script:?}");
    for (what, text) in [("report", &report.stdout), ("script", &script.stderr)] {
        let stated =
            text.lines().find_map(|l| l.trim_start_matches(['#', ' ']).strip_prefix("lost: "));
        assert_eq!(stated, note, "{what}: {text}");
    }
}

#[test]
fn a_total_at_the_end_repeats_what_lost_records_said() {
    // Perf of today's kernels: the totals know also of what was lost last.
    let all =
        [lost(10, 4), lost(20, 5), lost(5, 6), lost_samples(30, 0, 0), lost_samples(11, 0, 0)];
    check(&all, 41, Some("41 events lost in 3 places, 3 samples kept"));
    // Of losses that are no samples only LOST reports.
    check(
        &[lost(50, 4), lost_samples(40, 0, 0)],
        50,
        Some("50 events lost in 1 place, 3 samples kept"),
    );
    // Older kernels count nothing.
    check(&[lost(35, 4)], 35, Some("35 events lost in 1 place, 3 samples kept"));
    check(&[lost_samples(9, 0, 0)], 9, Some("9 events lost, 3 samples kept"));
    check(&[lost(0, 4), lost_samples(0, 0, 0)], 0, None);
}

#[test]
fn what_the_hardware_lost_found_no_full_ring() {
    let all = [lost(10, 4), lost_samples(7, 0, 5), lost_samples(12, 0, 0)];
    let note = "19 events lost in 1 place, 7 of them in hardware, 3 samples kept";
    check(&all, 19, Some(note));
}

#[test]
fn what_a_filter_left_out_was_not_lost() {
    check(&[lost_samples(1000, Misc::LOST_SAMPLES_BPF, 0)], 0, None);
}

#[test]
fn numbers_without_sense_do_not_overflow() {
    let all = [lost(u64::MAX, 4), lost(2, 5), lost_samples(u64::MAX, 0, 6)];
    let max = u64::MAX;
    let note = format!("{max} events lost in 2 places, {max} of them in hardware, 3 samples kept");
    check(&all, max, Some(&note));
}

/// Pages say only that something is missing before them; the kernel's counters say how much.
#[test]
fn what_a_trace_dat_has_and_has_lost_is_all_there_was() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let (kymo, dat, calls) = (env!("CARGO_BIN_EXE_kymo"), w.file("x.dat"), 300_000u64);
    let event = ["-e", "syscalls:sys_enter_getppid", "--buffer-size", "8K"];
    let command = ["--", w.arg(), &calls.to_string()];
    let _ = run(kymo, [&["trace", "-o", &dat], &event[..], &command].concat()).success();
    let shown = run(kymo, ["script", "-i", &dat]).success();
    let seen = lines_with(&shown.stdout, "sys_enter_getppid").len() as u64;
    let stated = shown.stderr.lines().find_map(|l| l.trim().strip_prefix("lost: "));
    let lost = stated.map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(seen + lost.unwrap_or(0), calls, "{}", shown.stderr);
}

/// Commands that read recordings of any format, and the number of times that they read one.
const READERS: [(&[&str], u64); 30] = [
    (&["script"], 1),
    (&["script", "--json"], 1),
    (&["report"], 1),
    (&["convert", "--to", "folded"], 1),
    (&["convert", "--to", "perfetto", "--force", "-o", "OUTPUT"], 1),
    (&["convert", "--weight", "wall", "--to", "folded"], 1),
    (&["view", "--force", "-o", "OUTPUT"], 1),
    (&["profile"], 1),
    (&["profile", "--json", "--comm", "syscalls"], 1),
    // Of the stacks only those on the path are kept, which is known when all was read.
    (&["why", "--comm", "syscalls"], 2),
    // Of the tasks only those that ran longest get lanes.
    (&["timechart", "-o", "OUTPUT"], 2),
    (&["list"], 1),
    (&["sched", "latency"], 1),
    (&["sched", "timehist"], 1),
    (&["sched", "map"], 1),
    (&["offcpu", "report"], 1),
    (&["syscalls", "report"], 1),
    (&["lock", "report"], 1),
    (&["lock", "contention"], 1),
    (&["lock", "contention", "--futex"], 1),
    (&["kwork", "report"], 1),
    (&["kwork", "latency"], 1),
    (&["kwork", "timehist"], 1),
    (&["kwork", "top"], 1),
    (&["kmem", "stat"], 1),
    (&["kmem", "pagealloc"], 1),
    (&["io", "latency"], 1),
    (&["io", "timehist"], 1),
    (&["io", "top"], 1),
    (&["trace"], 1),
];

/// Commands that read perf.data alone.
const PERF_READERS: [(&[&str], u64); 6] = [
    (&["annotate"], 1),
    (&["data", "convert", "--force", "--to-json", "OUTPUT"], 1),
    (&["archive"], 1),
    (&["profile", "--cpu-only"], 1),
    // The recorded command is found on the way.
    (&["why"], 2),
    // Binaries with samples, then their mappings, then what is written.
    (&["inject", "--force", "-b", "-o", "OUTPUT"], 3),
];

/// Bytes that a command reads of a recording.
fn bytes_read(command: &[&str], recording: &str, directory: &Path) -> u64 {
    let tally = tempfile::NamedTempFile::new().unwrap();
    let out = directory.join("output");
    let _ = std::fs::remove_file(&out);
    let words = command.iter().map(|w| if *w == "OUTPUT" { out.to_str().unwrap() } else { w });
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"))
        .args(words.chain(["-i", recording]))
        .current_dir(directory)
        .env("KYMO_READ_TALLY", tally.path())
        .output()
        .unwrap();
    // Some have nothing to show of these events.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{command:?}: {output:?}");
    let text = std::fs::read_to_string(tally.path()).unwrap();
    text.trim().parse().unwrap_or_else(|_| panic!("{command:?}: {text:?} {output:?}"))
}

/// Checks that commands read all of a recording once, or the given number of times. Parts that no
/// reader needs, such as the unused ends of pages, reduce the number; `more` is the part at the
/// start of streams that is read to find their CPUs.
fn check_bytes(readers: &[(&[&str], u64)], recording: &str, (size, more): (u64, u64)) {
    let directory = tempfile::tempdir().unwrap();
    let script = bytes_read(&["script"], recording, directory.path());
    assert!(script <= size + more && script > size / 2, "{script} of {size} bytes");
    for (command, times) in readers {
        let read = bytes_read(command, recording, directory.path());
        assert!(read <= times * script + more, "{command:?}: {read} of {script} bytes");
        // Where events are passed over, so are some pages.
        assert!(read > script / 2, "{command:?}: {read} of {script} bytes");
    }
}

/// A trace of LTTng's kernel tracer with lost packets, in which a task waits and is woken.
fn write_ctf(directory: &Path) {
    let classes = [
        CtfClass {
            name: "sched_switch",
            fields: &[
                ("text", "prev_comm"),
                ("int32_t", "prev_tid"),
                ("int32_t", "prev_prio"),
                ("int32_t", "prev_state"),
                ("text", "next_comm"),
                ("int32_t", "next_tid"),
                ("int32_t", "next_prio"),
            ],
        },
        CtfClass {
            name: "sched_waking",
            fields: &[
                ("text", "comm"),
                ("int32_t", "tid"),
                ("int32_t", "prio"),
                ("int32_t", "target_cpu"),
            ],
        },
    ];
    let name = 7;
    let mut events = Vec::new();
    for n in 0..30_000u64 {
        for cpu in 0..2u32 {
            let (tid, time) = (100 + u64::from(cpu), 1_000_000 + n * 100_000 + u64::from(cpu));
            let out = vec![name, tid, 120, 1, 0, 0, 120];
            let back = vec![0, 0, 120, 0, name, tid, 120];
            events.push(CtfEvent { time, cpu, class: 0, values: out });
            events.push(CtfEvent {
                time: time + 50_000,
                cpu,
                class: 1,
                values: vec![name, tid, 120, u64::from(cpu)],
            });
            events.push(CtfEvent { time: time + 60_000, cpu, class: 0, values: back });
        }
    }
    events.sort_by_key(|event| event.time);
    let without = |_: u32, number: usize| number % 50 == 7;
    CtfWriter { classes: &classes, events: &events, packet: 100, without: &without }
        .write(directory);
}

/// Losses are found as events are read: no command reads a recording once more for them.
#[test]
fn each_byte_of_a_recording_is_read_once() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let (kymo, data, dat) = (env!("CARGO_BIN_EXE_kymo"), w.file("x.data"), w.file("x.dat"));
    let events = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup_new,\
                  raw_syscalls:sys_enter,raw_syscalls:sys_exit,irq:softirq_entry,irq:softirq_exit";
    let command = ["-e", events, "--", w.arg(), "100000"];
    let record = ["record", "-q", "-a", "-m", "4", "-o", &data];
    let _ = run(kymo, [&record[..], &command].concat()).success();
    let trace = ["trace", "-T", "-o", &dat, "--buffer-size", "8K"];
    let _ = run(kymo, [&trace[..], &command].concat()).success();
    let ctf = tempfile::tempdir().unwrap();
    write_ctf(ctf.path());
    let ctf_path = ctf.path().to_str().unwrap();
    for recording in [data.as_str(), dat.as_str(), ctf_path] {
        let shown = run(kymo, ["script", "-i", recording]).success();
        assert!(shown.stderr.contains("lost: "), "{recording}: {}", shown.stderr);
    }
    let size = |path: &str| (std::fs::metadata(path).unwrap().len(), 0);
    check_bytes(&READERS, &data, size(&data));
    check_bytes(&PERF_READERS, &data, size(&data));
    check_bytes(&READERS, &dat, size(&dat));
    let files =
        std::fs::read_dir(ctf.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    check_bytes(&READERS, ctf_path, (files.sum(), 2 << 20));
}
