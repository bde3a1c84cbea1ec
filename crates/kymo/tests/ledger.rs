//! The trust ledger from the outside: silence when there is nothing to say, the
//! figures when there is, and status 3 under `--strict`.

use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

const STRICT: i32 = 3;

#[track_caller]
fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// The notes that a result ended with, without the comment signs of a report.
fn notes(outcome: &Outcome) -> Vec<String> {
    let text = format!("{}\n{}", outcome.stdout, outcome.stderr);
    text.lines()
        .map(|l| l.trim_start_matches(['#', ' ']).to_owned())
        .skip_while(|l| l != "Trust:")
        .skip(1)
        .collect()
}

/// A recording of the machine's system calls through the smallest ring, which loses.
#[track_caller]
fn with_losses(workload: &Workload) -> String {
    let out = workload.file("lost.data");
    let args = ["record", "-q", "-m", "1", "-e", "raw_syscalls:*", "-o", &out];
    let _ = perf(args.iter().copied().chain(["--", workload.arg(), "300000"])).success();
    out
}

#[test]
fn a_clean_count_is_silent_and_strict_agrees() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let outcome =
        kymo(&["stat", "--strict", "-e", "task-clock,context-switches", "true"]).success();
    assert_eq!(notes(&outcome), [""; 0]);
}

#[test]
fn what_could_not_be_counted_is_noted() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    // `cycles:u` counts where there is a PMU, so the test asks what this machine does.
    let plain = kymo(&["stat", "-e", "cycles", "true"]);
    let shown = format!("{}{}", plain.stdout, plain.stderr);
    let counted = !shown.contains("<not supported>");
    let strict = kymo(&["stat", "--strict", "-e", "cycles", "true"]);
    assert_eq!(strict.status, if counted { 0 } else { STRICT }, "{strict:?}");
    assert_eq!(notes(&strict).is_empty(), counted, "{strict:?}");
}

/// `-F` is for all events, as with perf: most system calls may be missing in such a recording, of
/// kymo or perf.
#[test]
fn tracepoints_that_are_sampled_are_said_to_be() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Perf]) {
        return;
    }
    let w = Workload::syscalls();
    let file = w.file("sampled.data");
    let said = "sampled: hits of syscalls:sys_enter_getppid may be missing";
    let has_note = |o: &Outcome| format!("{}{}", o.stdout, o.stderr).contains(said);
    // All hits fit into the rings: nothing is lost, whatever else runs.
    let rings = ["-m", "4096", "-e", "syscalls:sys_enter_getppid", "-o", &file];
    let event = [&rings[..], &["--", w.arg(), "50000"]].concat();
    for rate in [&["-F", "100"][..], &["-c", "7"], &[]] {
        let args = [&["record"], rate, &event[..]].concat();
        let recorded = kymo(&args).success();
        let by_kymo = kymo(&["script", "-i", &file]).success();
        assert_eq!(has_note(&recorded), has_note(&by_kymo), "{recorded:?}");
        let _ = perf(args).success();
        for read in [by_kymo, kymo(&["script", "-i", &file]).success()] {
            let hits = read.stdout.matches("sys_enter_getppid:").count();
            let is_reported = has_note(&read);
            // How many a frequency leaves out is the kernel's matter. Of those of a period it
            // records all where samples are to tell their period, and a few hits twice.
            match rate.first() {
                Some(&"-F") => assert!(is_reported, "{hits}: {}", read.stderr),
                Some(_) => assert!(hits >= 50_000 / 7, "{hits}"),
                None => assert!(!is_reported && hits >= 50_000, "{hits}: {}", read.stderr),
            }
            assert!(is_reported || hits >= 50_000, "{hits}: {}", read.stderr);
        }
    }
}

#[test]
fn events_that_kymo_chose_itself_are_no_doubt() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let stat = kymo(&["stat", "--strict", "true"]).success();
    let missing = stat.stderr.contains("<not supported>");
    assert_eq!(stat.stderr.contains("\nNote:\n  not-supported: "), missing, "{stat:?}");
    assert_eq!(notes(&stat), [""; 0]);
    let dir = Workload::spin();
    let data = dir.file("x.data");
    let args = ["record", "--strict", "-o", &data, "--", dir.arg(), "20"];
    let record = kymo(&args).success();
    assert_eq!(record.stderr.contains("\nNote:\n  default-event: "), missing, "{record:?}");
}

#[test]
fn lost_events_are_noted_with_their_number() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc]) {
        return;
    }
    let workload = Workload::syscalls();
    let path = with_losses(&workload);
    for command in ["script", "report"] {
        let outcome = kymo(&[command, "-i", &path]).success();
        let notes = notes(&outcome);
        let lost = notes.iter().find(|n| n.starts_with("lost:"));
        assert!(
            lost.is_some_and(|n| n.chars().any(|c| c.is_ascii_digit())),
            "{command}: {notes:?}\n{}",
            outcome.stderr
        );
        // The recording was made with one page; all of it would have fitted into these.
        let numbers = lost.unwrap().split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let numbers: Vec<u64> = numbers.collect();
        let (lost, kept) = (numbers[0], numbers[numbers.len() - 1]);
        let pages = (lost + kept).div_ceil(kept).max(2).next_power_of_two();
        let advice = format!("larger rings: -m {pages}");
        assert!(notes.iter().any(|n| n.ends_with(&advice)), "{command}: {advice}: {notes:?}");
        let _ = kymo(&[command, "--strict", "-i", &path]).expect_status(STRICT);
    }
}

#[test]
fn a_recording_that_loses_says_so_when_it_is_made() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let state = kymo_testkit::TracingState::take();
    let workload = Workload::syscalls();
    let out = workload.file("lost.data");
    let args =
        ["record", "--strict", "-m", "1", "-e", "raw_syscalls:*", "-o", &out, "--", workload.arg()];
    let outcome = kymo(&[&args[..], &["1000000"]].concat());
    // A machine quick enough to lose nothing passes with an empty ledger.
    let notes = notes(&outcome);
    let lost = notes.iter().any(|n| n.starts_with("lost:"));
    assert_eq!(outcome.status, if lost { STRICT } else { 0 }, "{outcome:?}");
    assert_eq!(lost, !notes.is_empty(), "{outcome:?}");
    assert_eq!(state.left_behind(), None);
}

#[test]
fn events_of_a_process_that_sleeps_are_one_note() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    // Until it sleeps in the kernel, it may run.
    let stat = format!("/proc/{}/stat", sleep.id());
    while !std::fs::read_to_string(&stat).unwrap().contains("(sleep) S") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let events = "task-clock,page-faults,minor-faults,major-faults,context-switches,dummy";
    let args = ["stat", "-e", events, "-p", &sleep.id().to_string(), "--", "true"];
    let outcome = kymo(&args).success();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    let reported = notes(&outcome);
    let [note] = reported.as_slice() else { panic!("{reported:?}") };
    let expected = "6 events never ran while they were counted: \
                    task-clock, page-faults, minor-faults, major-faults and 2 more";
    assert!(note.contains(expected), "{note}");
}
