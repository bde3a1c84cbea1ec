//! Traces of LTTng's tracer for programs: with buffers by user and by process, with
//! contexts and without, of every type of field, and with discarded events.

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Lttng, LttngSession, Need, require};

use crate::text::{Line, agree, agree_with, by_time, theirs, theirs_newest};

const NEEDS: [Need; 3] = [Need::Lttng, Need::Babeltrace, Need::Gcc];

#[test]
fn traces_of_lttng_have_the_values_that_babeltrace2_shows() {
    if !require(&NEEDS) {
        return;
    }
    let (lttng, dir) = (Lttng::start(), tempfile::tempdir().unwrap());
    let program = lttng.program();
    let plain = LttngSession {
        output: dir.path(),
        by_process: false,
        sub_buffer: "64k",
        sub_buffers: 4,
        contexts: &["vpid", "vtid", "procname"],
        waits: false,
    };
    for by_process in [false, true] {
        let output = dir.path().join(format!("plain-{by_process}"));
        let mut command = Command::new(&program);
        command.arg("100");
        lttng.record(&LttngSession { output: &output, by_process, ..plain }, command);
        let (lines, stats, said) = agree(&output);
        assert_eq!((lines.len(), stats.lost, said.as_str()), (300, 0, ""));
        let of = |name: &str| lines.iter().filter(|(_, l)| l.starts_with(name)).count();
        assert_eq!((of("kt:numbers"), of("kt:rows"), of("kt:empty")), (100, 100, 100));
        assert!(lines[0].1.contains("procname = \"traced\" }"), "{}", lines[0].1);
        // The same as babeltrace2 writes it.
        let copy = dir.path().join(format!("copy-{by_process}"));
        let (from, to) = (output.to_str().unwrap(), copy.to_str().unwrap());
        let args = ["convert", from, "--output-format=ctf", "--output", to];
        let _ = kymo_testkit::run("babeltrace2", args).success();
        let (copied, stats, _) = agree(&copy);
        assert_eq!((by_time(&copied), stats.damaged_places), (by_time(&lines), 0));
    }
    // Sub-buffers so small that most of the events find no place.
    let output = dir.path().join("small");
    let mut command = Command::new(&program);
    command.args(["30000", "two"]);
    let small = LttngSession {
        output: &output,
        sub_buffer: "4k",
        sub_buffers: 2,
        contexts: &["perf:thread:page-fault", "ip"],
        ..plain
    };
    lttng.record(&small, command);
    let (lines, stats, said) = agree(&output);
    assert!(stats.lost > 0, "nothing was discarded");
    assert_eq!(lines.len() as u64 + stats.lost, 30_000);
    // WARNING: Tracer discarded 1152 events between …
    let counted = said.lines().filter_map(|l| {
        let (n, _) = l.split_once("discarded ")?.1.split_once(" events")?;
        n.parse::<u64>().ok()
    });
    assert_eq!(counted.sum::<u64>(), stats.lost, "{said}");
    assert_eq!(said.lines().count() as u64, stats.lost_places);
}

/// Outputs of a session: archives of a rotation, a snapshot, and the recovery by `lttng-crash` from
/// the shared memory of one that was not stopped; with indexes beside the streams.
#[test]
fn rotations_snapshots_and_crashed_sessions_are_read() {
    if require(&NEEDS) {
        rotated_snapped_and_crashed(&Lttng::start(), &theirs);
    }
    if require(&[Need::NewestPeers, Need::Gcc]) {
        rotated_snapped_and_crashed(&Lttng::newest(), &theirs_newest);
    }
}

fn rotated_snapped_and_crashed(lttng: &Lttng, theirs: &dyn Fn(&Path) -> (Vec<Line>, String)) {
    let dir = tempfile::tempdir().unwrap();
    let program = lttng.program();
    let run = |rounds: &str| {
        let mut command = lttng.command(&program);
        command.arg(rounds);
        lttng.run_traced(command);
    };
    let channel = |session: &str, more: &[&str]| {
        let of = ["enable-channel", "-u", "ch", "-s", session, "--buffers-uid"];
        let size = ["--subbuf-size", "64k", "--num-subbuf", "4"];
        lttng.client(&[&of[..], &size, more].concat());
        lttng.client(&["enable-event", "-u", "-s", session, "-c", "ch", "kt:*"]);
        lttng.client(&["start", session]);
    };
    let path = |name: &str| dir.path().join(name);
    // Rotated once: two archives, which are one trace.
    let output = format!("--output={}", path("rotated").display());
    lttng.client(&["create", "rotated", &output]);
    channel("rotated", &[]);
    run("50");
    lttng.client(&["rotate", "rotated"]);
    run("30");
    lttng.client(&["destroy", "rotated"]);
    let (lines, stats, said) = agree_with(&path("rotated"), theirs(&path("rotated")));
    assert_eq!((lines.len(), stats.lost, stats.damaged_places), (240, 0, 0), "{said}");
    assert!(std::fs::read_dir(path("rotated").join("archives")).unwrap().count() >= 2);
    assert!(has_index(&path("rotated")), "no index");
    // Snapshots: each is what the rings hold.
    let output = format!("--output={}", path("snapped").display());
    lttng.client(&["create", "snapped", "--snapshot", &output]);
    channel("snapped", &["--overwrite"]);
    for (rounds, all) in [("20", 60), ("10", 90)] {
        run(rounds);
        lttng.client(&["snapshot", "record", "--session=snapped", "--name", rounds]);
        let mut entries = std::fs::read_dir(path("snapped")).unwrap().flatten();
        let named = |name: &std::ffi::OsStr| name.to_str().unwrap().starts_with(rounds);
        let one = entries.find(|e| named(&e.file_name())).unwrap().path();
        let (lines, stats, said) = agree_with(&one, theirs(&one));
        assert_eq!((lines.len(), stats.damaged_places), (all, 0), "{said}");
    }
    lttng.client(&["destroy", "snapped"]);
    // The files of the buffers, while the session has not ended.
    let (memory, output) = (path("memory"), format!("--output={}", path("crashed").display()));
    let shared = format!("--shm-path={}", memory.display());
    lttng.client(&["create", "crashed", &output, &shared]);
    channel("crashed", &[]);
    run("40");
    let copy = path("copy");
    let mut cp = Command::new("cp");
    cp.arg("-r").arg(&memory).arg(&copy);
    let _ = kymo_testkit::run_command(cp).success();
    lttng.client(&["destroy", "crashed"]);
    lttng.extract(&copy, &path("extracted"));
    let (lines, _, said) = agree_with(&path("extracted"), theirs(&path("extracted")));
    assert_eq!(lines.len(), 120, "{said}");
}

/// Whether there is a file with an index of packets somewhere below.
fn has_index(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().flatten().any(|entry| {
        let path = entry.path();
        path.is_dir() && has_index(&path) || path.extension().is_some_and(|e| e == "idx")
    })
}
