//! Commands report data that they could not see: parts of a directory that are left out, sections that are
//! cut off, counts of groups. What comes through a pipe is what the file has.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::path::Path;

use kymo_testkit::{Need, Outcome, Peer, TracingState, Workload, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory with a good trace and something else that is named as a recording: the good one is
/// shown, the other is named.
#[test]
fn parts_that_are_left_out_are_named() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = TracingState::take();
    let place = tempfile::tempdir().unwrap();
    let good = place.path().join("good.dat");
    let record = ["trace", "-q", "-o", text(&good), "-e", "sched:sched_process_exit", "--", "true"];
    let _ = kymo(&record).success();
    let data = place.path().join("own.data");
    let _ = kymo(&["record", "-q", "-e", "cpu-clock", "-o", text(&data), "--", "true"]).success();
    let alone = kymo(&["script", "-i", text(&good)]).success().stdout;
    let others: [(&str, Vec<u8>, &str); 5] = [
        ("empty.dat", Vec::new(), "empty.dat: the file is empty"),
        ("garbage.dat", b"no recording".to_vec(), "garbage.dat: it is not a recording"),
        (
            "perf.data.old",
            std::fs::read(&data).unwrap(),
            "perf.data.old: a perf.data is read alone",
        ),
        ("ctf/metadata", Vec::new(), "ctf"),
        ("ctf/metadata", b"garbage\n".to_vec(), "ctf"),
    ];
    for (number, (name, bytes, reported)) in others.into_iter().enumerate() {
        let both = place.path().join(format!("both{number}"));
        let other = both.join(name);
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        std::fs::copy(&good, both.join("good.dat")).unwrap();
        std::fs::write(&other, bytes).unwrap();
        for command in [&["script"][..], &["sched", "latency"], &["sql", "--json"]] {
            let path = text(&both);
            let args = match command {
                ["sql", ..] => [command, &[path, "SELECT count(*) FROM ftrace_event"]].concat(),
                command => [command, &["-i", path]].concat(),
            };
            let out = kymo(&args);
            let all = out.stdout.clone() + &out.stderr;
            assert_eq!(out.status, 1, "{args:?}: {all}");
            assert!(all.contains("left out: ") && all.contains(reported), "{args:?}: {all}");
        }
        let shown = kymo(&["script", "-i", text(&both)]).stdout;
        let exits = |text: &str| text.matches("sched_process_exit").count();
        assert_eq!(exits(&shown), exits(&alone), "{shown}");
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Directories with streams of events whose metadata is not there, or is no file.
#[test]
fn traces_without_a_metadata_file_are_named() {
    let fixture = format!("{}/tests/fixtures/ctf/x86_64/kymo-programs", env!("CARGO_MANIFEST_DIR"));
    let inner = "ust/uid-0/shop-928-387136-0";
    let place = tempfile::tempdir().unwrap();
    let alone = kymo(&["script", "-i", &fixture]).success().stdout;
    type Damage = fn(&Path);
    let damages: [(&str, Damage, &str); 3] = [
        ("directory", |path| std::fs::create_dir(path).unwrap(), "its metadata is a directory"),
        (
            "link",
            |path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
            "its metadata is a link that leads to no file",
        ),
        ("nothing", |_| (), "it has streams of events, but no metadata"),
    ];
    for (name, damage, reported) in damages {
        let both = place.path().join(name);
        copy_tree(Path::new(&fixture), &both.join("good"));
        copy_tree(&Path::new(&fixture).join(inner), &both.join("kernel"));
        let metadata = both.join("kernel/metadata");
        std::fs::remove_file(&metadata).unwrap();
        damage(&metadata);
        for command in [&["script"][..], &["sql", "--json"]] {
            let args = match command {
                ["sql", ..] => {
                    [command, &[text(&both), "SELECT count(*) FROM program_event"]].concat()
                }
                command => [command, &["-i", text(&both)]].concat(),
            };
            let out = kymo(&args).expect_status(1);
            let all = out.stdout.clone() + &out.stderr;
            assert!(all.contains("kernel: ") && all.contains(reported), "{args:?}: {all}");
            assert!(command != ["script"] || out.stdout == alone, "{}", out.stdout);
        }
        let out = kymo(&["script", "-i", text(&both.join("kernel"))]).failure();
        assert!(out.stderr.contains(reported), "{}", out.stderr);
        // A directory of that name beside other files is of something else.
        let other = both.join("good/other");
        std::fs::create_dir_all(other.join("metadata")).unwrap();
        std::fs::write(other.join("notes.txt"), "text").unwrap();
        let _ = kymo(&["script", "-i", text(&both.join("good"))]).success();
    }
}

/// A file named `-` is not standard input.
#[test]
fn a_file_of_that_name_is_not_standard_input() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let in_place =
        |line: &str| run("sh", ["-c", &format!("cd \"$1\" && {line}"), KYMO, text(place.path())]);
    let _ = in_place("\"$0\" record -q -e cpu-clock -o - -- true > p.data").success();
    std::fs::write(place.path().join("-"), "not a recording").unwrap();
    let shown = in_place("\"$0\" script -i p.data").success().stdout;
    for read in ["script -i -", "report -i - --stats", "evlist -i -"] {
        let _ = in_place(&format!("cat p.data | \"$0\" {read}")).success();
    }
    assert_eq!(in_place("cat p.data | \"$0\" script -i -").success().stdout, shown);
    // Nor is one made.
    std::fs::remove_file(place.path().join("-")).unwrap();
    for refused in ["trace -o - -e sched:sched_switch -- true", "profile -o - -- true"] {
        let out = in_place(&format!("\"$0\" {refused}")).failure();
        assert!(out.stderr.contains("-o -: "), "{}", out.stderr);
    }
    let counts = in_place("\"$0\" stat -x, -e page-faults -o - -- true").success();
    assert!(counts.stderr.contains(",page-faults"), "{counts:?}");
    assert!(!place.path().join("-").exists());
}

/// The events and sections of a pipe are among its records.
#[test]
fn a_pipe_is_described_as_its_file_is() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let work = Workload::spin();
    let data = work.file("pipe.data");
    let record =
        ["-c", "\"$0\" record -q -e cpu-clock -o - -- \"$1\" > \"$2\"", KYMO, work.arg(), &data];
    let _ = run("sh", record).success();
    for command in ["evlist", "buildid-list", "script --header-only", "report --header-only"] {
        let line = format!("cat \"$1\" | \"$0\" {command} -i -");
        let piped = run("sh", ["-c", &line, KYMO, &data]).success().stdout;
        let args: Vec<&str> = command.split(' ').chain(["-i", &data]).collect();
        let file = kymo(&args).success().stdout;
        // When it was captured is known of a file alone.
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.contains("captured on"));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(lines(&piped), lines(&file), "{command}");
        assert!(!piped.is_empty(), "{command}");
    }
    // How long it took, too.
    let elapsed = |out: Outcome| {
        let json: Value = serde_json::from_str(&out.success().stdout).unwrap();
        json["elapsed_ns"].as_u64().unwrap()
    };
    let piped = ["-c", "cat \"$1\" | \"$0\" profile --json -i -", KYMO, &data];
    assert_eq!(elapsed(run("sh", piped)), elapsed(kymo(&["profile", "--json", "-i", &data])));
}

/// Sections at the end of a file that is cut are reported by all commands that show them.
#[test]
fn sections_that_are_cut_off_are_reported() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let work = Workload::spin();
    let data = work.file("whole.data");
    let _ = kymo(&["record", "-q", "-e", "cpu-clock", "-o", &data, "--", work.arg()]).success();
    let bytes = std::fs::read(&data).unwrap();
    let [cut, bundle] = ["cut.data", "bundle.tar"].map(|name| work.file(name));
    std::fs::write(&cut, &bytes[..bytes.len() - 40]).unwrap();
    for args in [
        &["script", "--header-only"][..],
        &["report", "--header-only"],
        &["evlist"],
        &["buildid-list"],
        &["profile"],
        &["profile", "--json"],
        &["bundle", "-o", &bundle],
    ] {
        let out = kymo(&[args, &["-i", &cut]].concat()).expect_status(1);
        let all = out.stdout + &out.stderr;
        assert!(all.contains("damaged"), "{args:?}: {all}");
    }
}

/// A sample of a group's leader holds the counts of all its events: each is a row, with what it has
/// counted since the sample before, as perf and `script` show it.
#[test]
fn counts_of_a_sampled_group_are_rows() {
    if !require(&[Need::PerfEvents, Need::Perf]) {
        return;
    }
    let work = Workload::spin();
    let data = work.file("group.data");
    let group = "{cpu-clock,task-clock,page-faults}:S";
    let recorded = perf(["record", "-q", "-c", "1000000", "-e", group, "-o", &data, work.arg()]);
    if recorded.status != 0 {
        println!("SKIPPED: this kernel does not sample a group: {}", recorded.stderr);
        return;
    }
    let query = "SELECT event, period FROM perf_sample";
    let rows = kymo(&["sql", "--json", &data, query]).success().stdout;
    let mut own: Vec<(String, u64)> = rows
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            (row["event"].as_str().unwrap().to_owned(), row["period"].as_u64().unwrap())
        })
        .collect();
    let shown = Peer::installed("perf").run(["script", "-i", &data, "-F", "period,event"]);
    let mut expected: Vec<(String, u64)> = shown
        .success()
        .stdout
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace();
            let period = words.next().unwrap().parse().unwrap();
            (words.next().unwrap().trim_end_matches(':').to_owned(), period)
        })
        .collect();
    own.sort();
    expected.sort();
    assert_eq!(own, expected);
    assert!(own.iter().any(|(event, _)| event.contains("task-clock")), "{own:?}");
}

/// A task is found by each name that it had.
#[test]
fn why_finds_a_task_by_a_name_that_it_had() {
    const RENAMES: &str = r#"
        #include <sys/prctl.h>
        #include <unistd.h>
        int main(void) {
            for (int n = 0; n < 3; n++) usleep(2000);
            prctl(PR_SET_NAME, "second");
            for (int n = 0; n < 3; n++) usleep(2000);
            return 0;
        }
    "#;
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let work = Workload::compile("first", RENAMES);
    let data = work.file("why.data");
    let _ = kymo(&["offcpu", "record", "-q", "-o", &data, "--", work.arg()]).success();
    for name in ["first", "second"] {
        let out = kymo(&["why", "-i", &data, "--comm", name]).success();
        assert!(out.stdout.contains(" took "), "{name}: {}", out.stdout);
    }
}

/// The recorder, and its child before it executes the command, do nobody's work: the calls
/// of a recording are those that strace counts.
#[test]
fn calls_of_the_recorder_are_not_counted() {
    let needs = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Tool("strace")];
    if !require(&needs) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [data, traced, program] =
        ["calls.data", "traced", "counted_true"].map(|name| place.path().join(name));
    // All of the machine is recorded: the name is this test's.
    std::fs::copy("/bin/true", &program).unwrap();
    let (data, traced, program) = (text(&data), text(&traced), text(&program));
    let mut expected = BTreeMap::new();
    let _ = run("strace", ["-o", traced, program]).success();
    for line in std::fs::read_to_string(traced).unwrap().lines() {
        let name = line.split_once('(').map_or("", |(name, _)| name);
        // One that does not return is none.
        if !name.is_empty() && name != "exit_group" && !line.starts_with("+++") {
            *expected.entry(name.to_owned()).or_insert(0u64) += 1;
        }
    }
    let _ = kymo(&["syscalls", "record", "-q", "-o", data, "--", program]).success();
    let report = kymo(&["syscalls", "report", "--json", "-i", data]).success().stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let of_true = |thread: &&Value| thread["comm"] == "counted_true";
    let threads = report["threads"].as_array().unwrap();
    let rows: Vec<&Value> = threads.iter().filter(of_true).collect();
    let own: BTreeMap<String, u64> = rows
        .iter()
        .flat_map(|row| row["calls"].as_array().unwrap())
        .map(|call| (call["syscall"].as_str().unwrap().to_owned(), call["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(own, expected, "{report:#}");
}

/// Between its release and the command the recorder's child has two calls: one that unblocks
/// signals, and the execve.
#[test]
fn the_command_begins_soon_after_its_release() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("strace")]) {
        return;
    }
    let _state = kymo_testkit::TracingState::take();
    let place = tempfile::tempdir().unwrap();
    let listed = place.path().join("listed");
    let _ = run("strace", ["-o", text(&listed), "true"]).success();
    let calls = std::fs::read_to_string(&listed).unwrap();
    let calls = calls.lines().filter(|line| !line.starts_with("+++")).count();
    let event = ["-e", "raw_syscalls:sys_enter", "--", "true"];
    let out = kymo(&[&["trace"], &event[..]].concat()).success();
    let shown = out.stdout.lines().filter(|line| line.contains("sys_enter: ")).count();
    let said = format!("{shown} of {calls}: {}\n{}", out.stdout, out.stderr);
    assert!((calls..=calls + 1).contains(&shown), "{said}");
}
