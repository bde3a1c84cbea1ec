//! Losses of a perf.data: whichever records tell of them, every command states the same
//! number, and it is the true one.

#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs::File;

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
    // Of losses that are no samples only LOST tells.
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

/// Answers about recordings of these events.
const ANSWERS: [&[&str]; 11] = [
    &["script"],
    &["sched", "latency"],
    &["sched", "timehist"],
    &["sched", "map"],
    &["offcpu", "report"],
    &["syscalls", "report"],
    &["lock", "contention", "--futex"],
    &["kwork", "report"],
    &["kwork", "timehist"],
    &["kmem", "stat"],
    &["io", "latency"],
];

/// Bytes that commands read of a recording, checked to be the same for all, and no more than it
/// has.
fn check_bytes(recording: &str, size: u64) {
    let tally = tempfile::NamedTempFile::new().unwrap();
    let mut read = Vec::new();
    for args in ANSWERS {
        let command = [args, &["-i", recording]].concat();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"))
            .args(&command)
            .env("KYMO_READ_TALLY", tally.path())
            .output()
            .unwrap();
        assert!(output.status.code() != Some(101), "{command:?}: {output:?}");
        let text = std::fs::read_to_string(tally.path()).unwrap();
        assert_eq!(text.lines().count(), read.len() + 1, "{command:?}: {output:?}");
        read.push(text.lines().last().unwrap().parse::<u64>().unwrap());
    }
    let most = *read.iter().max().unwrap();
    assert!(most <= size && most > size / 2, "{most} of {size} bytes: {read:?}");
    // Where events are passed over, so are some pages.
    assert!(read.iter().all(|n| *n > most / 2), "{read:?}");
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
    let trace = ["trace", "-o", &dat, "--buffer-size", "8K"];
    let _ = run(kymo, [&trace[..], &command].concat()).success();
    for recording in [&data, &dat] {
        let shown = run(kymo, ["script", "-i", recording]).success();
        assert!(shown.stderr.contains("lost: "), "{recording}: {}", shown.stderr);
        check_bytes(recording, std::fs::metadata(recording).unwrap().len());
    }
}
