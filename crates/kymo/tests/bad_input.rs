//! Files that are not what they should be: the message names the file, the status
//! is not 0, nothing panics, and what could be read is still shown.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_testkit::{Need, Outcome, Peer, Workload, peer, require, run};

const READERS: &[&str] = &["report", "script"];

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// The failure of a command that was given `path`.
#[track_caller]
fn refused(command: &str, path: &str) -> Outcome {
    let outcome = kymo(&[command, "-i", path]).failure();
    assert!(outcome.stderr.contains(path), "`{path}` not in:\n{}", outcome.stderr);
    outcome
}

/// A directory with files to refuse.
struct InputDirectory(tempfile::TempDir);

impl InputDirectory {
    fn new() -> InputDirectory {
        InputDirectory(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        text(&path)
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A recording by perf, so that these tests say which reader is at fault.
fn recording(workload: &Workload) -> PathBuf {
    recording_with(workload, &[])
}

fn recording_with(workload: &Workload, options: &[&str]) -> PathBuf {
    let path = workload.dir().join("perf.data");
    let out = text(&path);
    let args = ["record", "-q", "-e", "cpu-clock", "-g", "-o", &out];
    let command = [workload.arg(), "20"];
    let all = args.into_iter().chain(options.iter().copied()).chain(command);
    let _ = kymo_testkit::perf(all).success();
    path
}

#[test]
fn files_that_are_no_recordings_are_refused_by_name() {
    let place = InputDirectory::new();
    let paths = [
        place.file("empty", b""),
        place.file("text", b"this is a text, not a recording, whatever its name says\n"),
        place.file("magic", b"PERFILE2"),
        text(place.0.path()),
        "/dev/null".to_owned(),
    ];
    for command in READERS {
        for path in &paths {
            refused(command, path);
        }
    }
}

#[test]
fn a_missing_file_says_so() {
    let place = InputDirectory::new();
    let path = text(&place.0.path().join("nowhere.data"));
    for command in READERS {
        let outcome = refused(command, &path);
        assert!(outcome.stderr.contains("No such file"), "{}", outcome.stderr);
    }
}

#[test]
fn a_truncated_recording_shows_what_it_has_and_fails() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let workload = Workload::spin();
    // One ring for the task, so that the file has its records in the order of time.
    // With a ring for each CPU a task that moves between them may have its earliest
    // records, its name among them, at the end of the file, where they are cut off.
    let whole = std::fs::read(recording_with(&workload, &["--per-thread"])).unwrap();
    let place = InputDirectory::new();
    let complete = place.file("whole.data", &whole);
    let all = kymo(&["script", "-i", &complete]).success().stdout;
    assert!(all.contains("spin"), "{all}");
    // The header says at 40 and 48 where the data section is and how long.
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let cut = place.file("cut.data", &whole[..word(40) + word(48) * 2 / 3]);
    let outcome = refused("script", &cut);
    assert!(!outcome.stdout.is_empty(), "nothing shown; stderr: {}", outcome.stderr);
    let first = |text: &str| text.lines().next().map(str::to_owned);
    assert_eq!(first(&outcome.stdout), first(&all));
    assert!(outcome.stdout.len() < all.len());
    let shown = outcome.stdout;
    // The same rule for all commands that show a part of it.
    let [out, written] = ["out", "written"].map(|name| text(&place.0.path().join(name)));
    for args in [
        &["report", "-i", &cut][..],
        &["report", "--strict", "-i", &cut],
        &["annotate", "-i", &cut],
        &["annotate", "--strict", "-i", &cut],
        &["convert", "-f", "folded", "-i", &cut],
        &["bundle", "-i", &cut, "-o", &out],
        &["inject", "-i", &cut, "-o", &written],
    ] {
        let outcome = kymo(args).expect_status(1);
        let last = outcome.stderr.trim_end().lines().last().unwrap_or_default();
        assert!(
            last.contains(&cut) && last.contains("everything before it is"),
            "{args:?}: {last}"
        );
        let writes = ["bundle", "inject"].contains(&args[0]);
        assert!(!outcome.stdout.is_empty() || writes, "{args:?}");
    }
    // What was written is a recording of what came before.
    assert_eq!(kymo(&["script", "-i", &written]).success().stdout, shown);
    // It says that it is not whole: as a file, as a pipe, and as what is made of that pipe.
    let piped = place.0.path().join("piped.data");
    let mut inject = Command::new(env!("CARGO_BIN_EXE_kymo"));
    inject.args(["inject", "-i", &cut, "-o", "-"]).stderr(Stdio::null());
    let status = inject.stdout(File::create(&piped).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let [piped, again] = [text(&piped), text(&place.0.path().join("again.data"))];
    let _ = kymo(&["inject", "-i", &piped, "-o", &again]);
    for file in [&written, &piped, &again] {
        let report = kymo(&["report", "--strict", "-i", file]);
        assert_ne!(report.status, 0, "{file}");
        assert!(report.stdout.contains("did not finish the file"), "{file}: {}", report.stdout);
    }
    let from_pipe = r#"cat "$1" | "$0" script --strict -i -"#;
    let read = run("sh", ["-c", from_pipe, env!("CARGO_BIN_EXE_kymo"), &piped]);
    assert_ne!(read.status, 0);
    assert!(read.stderr.contains("did not finish the file"), "{}", read.stderr);
    // perf passes over the mark, in both of its releases here.
    let samples = |text: &str| {
        text.lines().filter(|line| line.split_whitespace().next() == Some("spin")).count()
    };
    assert!(samples(&shown) > 10, "{shown}");
    for perf in [peer("perf"), Peer::installed("perf")] {
        let lines = perf.run(["script", "-i", &piped]).success().stdout;
        assert_eq!(samples(&lines), samples(&shown), "{}", perf.version());
    }
}

#[test]
fn no_cut_makes_it_panic_or_succeed_with_nothing() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let workload = Workload::spin();
    let whole = std::fs::read(recording(&workload)).unwrap();
    let place = InputDirectory::new();
    // The header byte by byte, then a sample: the reader's own tests do every byte.
    let cuts = (0..256).step_by(17).chain((256..whole.len()).step_by(whole.len() / 16));
    for cut in cuts {
        let path = place.file("cut.data", &whole[..cut]);
        for command in READERS {
            let outcome = kymo(&[command, "-i", &path]);
            assert!(
                outcome.status < 101 && !outcome.stderr.contains("panicked"),
                "{command} at {cut}: {outcome:?}"
            );
            assert!(
                outcome.status != 0 || !outcome.stdout.is_empty(),
                "{command} at {cut} bytes: silence and success"
            );
        }
    }
}

#[test]
fn flipped_bits_never_panic() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let workload = Workload::spin();
    let whole = std::fs::read(recording(&workload)).unwrap();
    let place = InputDirectory::new();
    // A fixed sequence, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..24 {
        let mut bytes = whole.clone();
        for _ in 0..=round {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let bit = (state % (bytes.len() as u64 * 8)) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let path = place.file("flipped.data", &bytes);
        for command in READERS {
            let outcome = kymo(&[command, "-i", &path]);
            assert!(
                outcome.status < 101 && !outcome.stderr.contains("panicked"),
                "{command} round {round}: {outcome:?}"
            );
        }
    }
}

#[test]
fn an_unknown_event_is_named_by_every_command_that_takes_one() {
    let place = InputDirectory::new();
    let out = text(&place.0.path().join("out.data"));
    let event = "sched:sched_swich";
    for args in [
        vec!["stat", "-e", event, "true"],
        vec!["record", "-e", event, "-o", &out, "true"],
        vec!["stat", "-e", "no-such-event", "true"],
    ] {
        let outcome = kymo(&args).failure();
        assert!(outcome.stderr.contains(args[2]), "{}", outcome.stderr);
    }
    assert!(!Path::new(&out).exists(), "a refused recording left a file");
}

#[test]
fn a_command_that_is_not_there_gives_the_status_of_a_shell() {
    let place = InputDirectory::new();
    let out = text(&place.0.path().join("out.data"));
    for args in [
        vec!["stat", "--", "no-such-program-here"],
        vec!["record", "-o", &out, "--", "no-such-program-here"],
    ] {
        let outcome = kymo(&args);
        assert_eq!(outcome.status, 127, "{}", outcome.stderr);
        assert!(outcome.stderr.contains("no-such-program-here"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("No such file"), "{}", outcome.stderr);
    }
}

#[test]
fn a_process_that_is_gone_is_named() {
    // No pid reaches this number, which is past the largest pid_max.
    let gone = "4194305";
    let place = InputDirectory::new();
    let out = text(&place.0.path().join("out.data"));
    for args in [vec!["stat", "-p", gone], vec!["record", "-p", gone, "-o", &out]] {
        let outcome = kymo(&args).failure();
        assert!(outcome.stderr.contains(gone), "{}", outcome.stderr);
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let outcome = kymo(&["record", "-e", "cpu-clock", "-o", "/dev/full", "--", "true"]).failure();
    assert!(outcome.stderr.contains("/dev/full"), "{}", outcome.stderr);
}

/// The cause of an error is in the message, and in it once.
#[test]
fn each_message_tells_its_cause_once() {
    let place = InputDirectory::new();
    let nowhere = text(&place.0.path().join("nowhere/x.data"));
    let file = place.file("plain", b"no recording");
    let packed = place.file("packed", b"\x1f\x8b\x08\0\0\0\0\0\0\x03rest");
    let out = text(&place.0.path().join("out.data"));
    let missing = "No such file or directory";
    let mut cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["script", "-i", &nowhere], missing),
        (vec!["report", "-i", &nowhere], missing),
        (vec!["script", "-i", &file], "is not a perf.data file"),
        (vec!["report", "-i", &packed], "as files packed by gzip do: unpack it first"),
        (vec!["record", "-e", "cpu-clock", "-o", &nowhere, "--", "true"], missing),
        (vec!["stat", "-o", &nowhere, "--", "true"], missing),
    ];
    if require(&[Need::PerfEvents]) {
        let full = vec!["record", "-e", "cpu-clock", "-o", "/dev/full", "--", "true"];
        cases.push((full, "No space left on device"));
    }
    if require(&[Need::PerfEvents, Need::Tracefs]) {
        let refused = ["-e", "sched:sched_switch", "--filter", "bogus==1", "--", "true"];
        let record = [&["record", "-o", &out][..], &refused].concat();
        cases.push((record, "Invalid argument"));
        cases.push(([&["stat"][..], &refused].concat(), "Invalid argument"));
    }
    for (args, cause) in cases {
        let said = kymo(&args).failure().stderr;
        assert_eq!(said.matches(cause).count(), 1, "{args:?}: {said}");
    }
}

#[test]
fn output_that_cannot_be_written_is_reported_once() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let workload = Workload::spin();
    let path = text(&recording(&workload));
    for command in READERS {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"))
            .args([command, "-i", &path])
            .stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert_eq!(said.matches("No space left").count(), 1, "{command}: {said}");
    }
}
