//! `kymo diff`: what became slower is named with an interval that holds the truth, unchanged
//! programs raise no alarm, gates have three outcomes; perf's columns are perf's.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;
use std::path::Path;

use kymo_testkit::{JsonSchema, Need, Outcome, Workload, page_with_ledger, peer, require, run};
use serde_json::{Value, json};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// `parse` and `render` do the same number of steps of the same cost; arguments: rounds, percent
/// of `parse`, microseconds asleep in a round, times that a mutex is held by another thread, rows
/// that are written to a file, each with an fsync(2), the file.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
volatile unsigned long sink;
static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;
static volatile int held;
#define STEPS(n) do { unsigned long x = sink; for (long i = 0; i < (n); i++) \
    x = x * 6364136223846793005UL + 1442695040888963407UL; sink = x; } while (0)
__attribute__((noinline)) void parse(long n) { STEPS(n); }
__attribute__((noinline)) void render(long n) { STEPS(n); }
__attribute__((noinline)) void pause_a_while(long us) { if (us) usleep(us); sink++; }
static void *holder(void *arg) {
    pthread_mutex_lock(&accounts);
    held = 1;
    usleep(20000);
    pthread_mutex_unlock(&accounts);
    return arg;
}
__attribute__((noinline)) void transfer(void) {
    pthread_t other;
    held = 0;
    pthread_create(&other, 0, holder, 0);
    while (!held) usleep(100);
    pthread_mutex_lock(&accounts);
    pthread_mutex_unlock(&accounts);
    pthread_join(other, 0);
    sink++;
}
int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100, percent = argc > 2 ? atol(argv[2]) : 100;
    long us = argc > 3 ? atol(argv[3]) : 0, locks = argc > 4 ? atol(argv[4]) : 0;
    for (long i = 0; i < rounds; i++) {
        parse(2000 * percent);
        render(200000);
        pause_a_while(us);
    }
    for (long i = 0; i < locks; i++) transfer();
    if (argc > 6) {
        int fd = open(argv[6], O_CREAT | O_RDWR, 0600);
        for (long i = atol(argv[5]); i > 0; i--)
            if (pwrite(fd, "row", 3, 0) != 3 || fsync(fd)) return 1;
    }
    return 0;
}
"#;

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn program() -> Workload {
    Workload::compile("versions", PROGRAM)
}

/// Records two commands in turns and compares them.
fn diff_run(w: &Workload, options: &[&str], before: &[&str], after: &[&str]) -> Outcome {
    let mut args = vec!["diff", "--run"];
    args.extend(options);
    for side in [before, after] {
        args.extend(["--", w.arg()]);
        args.extend(side);
    }
    kymo(&args)
}

/// The result, which is as the schema says.
fn answer_of(out: &Outcome) -> Value {
    let mut page = page_with_ledger(&out.stdout, &out.stderr);
    let ledger = page.as_object_mut().unwrap().remove("ledger").unwrap();
    let schema = JsonSchema::parse(include_str!("../../../docs/json.schema.json"));
    assert_eq!(schema.errors("diff", &page), Vec::<String>::new(), "{page}");
    page["ledger"] = ledger;
    page
}

/// Rows of changes of a part: `whole`, `self` or `total`.
fn changes<'a>(value: &'a Value, part: &'a str) -> impl Iterator<Item = &'a Value> {
    let rows = value["changes"].as_array().unwrap();
    rows.iter().filter(move |row| row["part"] == part)
}

/// The change of a function itself, of the first quantity that has it.
fn own<'a>(value: &'a Value, name: &str) -> &'a Value {
    changes(value, "self")
        .find(|row| row["function"] == name)
        .unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Records this many runs with these arguments into `NAME-N.data`; the paths.
fn record_runs(w: &Workload, name: &str, runs: usize, args: &[&str]) -> Vec<String> {
    let one = |n: usize| {
        let path = w.file(&format!("{name}-{n}.data"));
        let mut words =
            vec!["record", "-q", "-e", "cpu-clock", "-F", "997", "-g", "-o", &path, "--", w.arg()];
        words.extend(args);
        let _ = kymo(&words).success();
        path
    };
    (0..runs).map(one).collect()
}

#[test]
fn the_function_that_became_slower_is_named_with_its_interval() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    let directory = w.file("kept");
    let options = ["-n", "8", "--cpu-only", "--json", "-o", &directory];
    let out = diff_run(&w, &options, &["300", "100"], &["300", "150"]).success();
    let value = answer_of(&out);
    let first = changes(&value, "self").next().unwrap();
    assert_eq!((&first["function"], &first["verdict"]), (&"parse".into(), &"more".into()));
    let sentence = value["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("`parse` is ") && sentence.contains("% slower"), "{sentence}");
    // Half as many steps more; the machine may be busy with other things.
    let ratio = first["ratio"].as_f64().unwrap();
    assert!((1.3..1.7).contains(&ratio), "{value:#}");
    assert!(!["more", "new"].contains(&own(&value, "render")["verdict"].as_str().unwrap()));
    // The recordings are kept, and the same numbers are made of them again.
    let side = |word: &str| -> Vec<String> {
        let mut paths: Vec<String> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|e| e.unwrap().path().display().to_string())
            .filter(|p| p.contains(word))
            .collect();
        paths.sort();
        paths
    };
    let (before, after) = (side("before-"), side("after-"));
    assert_eq!((before.len(), after.len()), (8, 8));
    let mut args = vec!["diff", "--cpu-only", "--json", "--before"];
    args.extend(before.iter().map(String::as_str));
    args.push("--after");
    args.extend(after.iter().map(String::as_str));
    let again = answer_of(&kymo(&args).success());
    let part = |v: &Value| {
        let row = own(v, "parse").clone();
        (row["before"].clone(), row["after"].clone(), row["ratio"].clone())
    };
    assert_eq!(part(&again), part(&value));
    // Recorded in turns: no side is after the other.
    let kinds = again["ledger"].as_array().unwrap().iter().map(|n| n["kind"].as_str().unwrap());
    assert!(!kinds.clone().any(|k| k == "sequential"), "{:?}", kinds.collect::<Vec<_>>());
}

/// At most one in twenty comparisons of a program with itself may report a function.
#[test]
fn an_unchanged_program_raises_no_alarm() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    let all = record_runs(&w, "same", 12, &["150"]);
    // Ways to part the same twelve runs: the pairs whose second run is before. Each raises an alarm
    // with a probability of at most 5 %.
    let mut alarms = 0;
    for swapped in [0b00_0000, 0b01_0101, 0b00_1011, 0b01_1001, 0b00_0111, 0b00_1110] {
        let is_before = |n: usize| (n ^ (swapped >> (n / 2))) & 1 == 0;
        let side = |before: bool| {
            let numbered = all.iter().enumerate();
            numbered.filter(move |(n, _)| is_before(*n) == before).map(|(_, p)| p.as_str())
        };
        let mut args = vec!["diff", "--json", "--before"];
        args.extend(side(true));
        args.push("--after");
        args.extend(side(false));
        let value = answer_of(&kymo(&args).success());
        let quantity = &value["measures"][0]["quantity"];
        let of_functions = changes(&value, "self").chain(changes(&value, "total"));
        let is_changed = |row: &Value| {
            ["more", "less", "new", "vanished"].contains(&row["verdict"].as_str().unwrap())
        };
        let mut first = of_functions.filter(|row| row["quantity"] == *quantity);
        alarms += usize::from(first.any(is_changed));
    }
    assert!(alarms <= 2, "{alarms} of 6");
}

#[test]
fn waits_that_were_added_are_named() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    // Of a disk: what is in memory only has nothing to wait for.
    let rows = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let rows = rows.path().join("rows").display().to_string();
    let before = ["20", "100", "0", "0", "0", &rows];
    for (after, cause) in [
        (["20", "100", "3000", "0", "0", &rows], "nanosleep"),
        (["20", "100", "0", "5", "0", &rows], "futex"),
        (["20", "100", "0", "0", "60", &rows], "fsync"),
    ] {
        let out = diff_run(&w, &["-n", "6", "--json"], &before, &after).success();
        let value = answer_of(&out);
        let sentence = value["sentence"].as_str().unwrap();
        let first = sentence.split(';').next().unwrap();
        let is_cause = first.contains(cause) || first.contains("lock") && cause == "futex";
        assert!(is_cause && first.contains("new"), "{sentence}\n{value:#}");
    }
}

#[test]
fn a_gate_passes_fails_or_is_undecided() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    let before = record_runs(&w, "before", 6, &["150", "100"]);
    let after = record_runs(&w, "after", 6, &["150", "160"]);
    let gate = |gates: &[&str], report: &[&str]| {
        let mut args = vec!["diff"];
        if !gates.is_empty() {
            args.push("--accept-sequential");
        }
        gates.iter().for_each(|g| args.extend(["--gate", g]));
        args.extend(report);
        args.push("--before");
        args.extend(before.iter().map(String::as_str));
        args.push("--after");
        args.extend(after.iter().map(String::as_str));
        kymo(&args)
    };
    let failed = gate(&["self:parse < +5%", "total < +90%"], &[]).expect_status(4);
    assert!(failed.stdout.contains("failed     self:parse < +5%"), "{}", failed.stdout);
    assert!(failed.stdout.contains("passed     total < +90%"), "{}", failed.stdout);
    let _ = gate(&["self:parse < +120%", "total < +90%"], &[]).success();
    let open = gate(&["self:no_such_function < +5%"], &[]).expect_status(5);
    assert!(open.stdout.contains("undecided  self:no_such_function < +5%"), "{}", open.stdout);
    let _ = gate(&["offcpu:* < +10%"], &[]).expect_status(5);
    let report = gate(&["self:parse < +5%"], &["--report", "md"]).expect_status(4);
    assert!(report.stdout.contains("| `self:parse < +5%` | **failed** |"), "{}", report.stdout);
    assert!(gate(&["parse"], &[]).expect_status(2).stderr.contains("--gate"));
    // One side after the other is said, and decides nothing unless that is accepted.
    assert!(failed.stdout.contains("sequential: "), "{}", failed.stdout);
    let mut args = vec!["diff", "--gate", "self:parse < +5%", "--before"];
    args.extend(before.iter().map(String::as_str));
    args.push("--after");
    args.extend(after.iter().map(String::as_str));
    let strict = kymo(&args).expect_status(5).stdout;
    let reason = "undecided  self:parse < +5%: one side was recorded after the other";
    assert!(strict.contains(reason), "{strict}");
    // The flags of tables choose, order and limit the rows, in all formats.
    let chosen = ["--csv", "--columns", "function,part,after", "--sort", "after", "--limit", "3"];
    let csv = gate(&[], &chosen).success().stdout;
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), &lines[0][..]), (4, &["function", "part", "after"][..]), "{csv}");
    let amounts: Vec<f64> = lines[1..].iter().map(|line| line[2].parse().unwrap()).collect();
    assert!(amounts.is_sorted_by(|a, b| a >= b), "{csv}");
    let text = gate(&[], &["--sort", "-after", "--limit", "1"]).success().stdout;
    assert!(text.contains(" more functions"), "{text}");
    let unknown = gate(&[], &["--sort", "no_such_column"]).failure().stderr;
    assert!(unknown.contains("no_such_column"), "{unknown}");
    // A baseline has the same sums.
    let base = w.file("base.parquet");
    let mut args = vec!["diff", "--save", &base];
    args.extend(before.iter().map(String::as_str));
    let _ = kymo(&args).success();
    let mut args = vec!["diff", "--json", "--against", &base];
    args.extend(after.iter().map(String::as_str));
    let against = answer_of(&kymo(&args).success());
    let direct = answer_of(&gate(&[], &["--json"]).success());
    let part = |v: &Value| own(v, "parse").clone();
    let mut expected = part(&direct);
    // It has no callers.
    assert_eq!(expected["callers"][0]["function"], "__libc_start_call_main", "{direct:#}");
    expected["callers"] = json!([]);
    assert_eq!(part(&against), expected);
    args.extend(["--gate", "self:parse < +5%"]);
    let gated = answer_of(&kymo(&args).expect_status(5));
    let reason = gated["gates"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("a baseline was recorded before ("), "{reason}");
    let cut = w.file("cut.parquet");
    let whole = std::fs::read(&base).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    let refused = kymo(&["diff", "--against", &cut, &after[0], &after[1]]).expect_status(1).stderr;
    let reason = "cut.parquet: not a baseline: not a Parquet file: the footer is missing";
    assert_eq!(refused.matches(reason).count(), 1, "{refused}");
    assert!(refused.trim_end().ends_with("is missing or damaged"), "{refused}");
    assert_eq!(refused.matches("not a Parquet file").count(), 1, "{refused}");
}

/// Rows of a table, without padding.
fn rows(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    lines.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_columns_of_perf_diff_are_perfs() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc, Need::Perf]) {
        return;
    }
    let w = program();
    let link = w.file("perf");
    std::os::unix::fs::symlink(KYMO, &link).unwrap();
    let before = record_runs(&w, "one", 1, &["300", "100"]).remove(0);
    let after = record_runs(&w, "two", 1, &["300", "150"]).remove(0);
    let mut peers = vec![kymo_testkit::Peer::installed("perf")];
    peers.extend(Some(peer("perf")).filter(kymo_testkit::Peer::is_newest));
    let options: &[&[&str]] = &[
        &[],
        &["-c", "delta"],
        &["-c", "delta-abs"],
        &["-c", "ratio"],
        &["-c", "wdiff:2,3"],
        &["-c", "ratio", "-p"],
        &["-c", "delta", "-F"],
        &["-c", "wdiff:1,2", "-F", "-p"],
        &["-s", "dso"],
        &["-s", "comm,sym"],
        &["-b"],
        &["-o", "0"],
        &["-C", "versions"],
        &["-S", "parse"],
        &["-d", "versions"],
        &["--time", "0%-50%"],
        &["-q"],
    ];
    for theirs in &peers {
        for options in options {
            let words = [&["diff"], *options, &[&*before, &*after]].concat();
            let ours = run(&link, &words).success().stdout;
            let perfs = theirs.run(&words).success().stdout;
            assert_eq!(
                rows(&ours),
                rows(&perfs),
                "{} {options:?}\n{ours}\n{perfs}",
                theirs.version()
            );
        }
        let words = ["diff", &before, &after, &before];
        let (ours, perfs) =
            (run(&link, words).success().stdout, theirs.run(words).success().stdout);
        assert_eq!(rows(&ours), rows(&perfs), "{}", theirs.version());
        let heads = |text: &str| {
            let heads = text.lines().filter(|l| l.starts_with('#') && !l.contains(".."));
            heads.map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(heads(&ours), heads(&perfs), "{}", theirs.version());
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    let all = record_runs(&w, "run", 3, &["100"]);
    let garbage = w.file("garbage.data");
    std::fs::write(&garbage, b"PERFILE2\xff\xff\xff\xff not a recording").unwrap();
    let other = w.file("other.data");
    let task = ["record", "-q", "-e", "task-clock", "-o", &other, "--", w.arg(), "100"];
    let _ = kymo(&task).success();
    let idle = w.file("idle.data");
    let _ =
        kymo(&["record", "-q", "-e", "cpu-clock", "-c", "100000000000", "-o", &idle, "--", "true"])
            .success();
    let (folded, prose) = (w.file("some.folded"), w.file("prose.txt"));
    std::fs::write(&folded, "main;parse 3\n").unwrap();
    std::fs::write(&prose, "not stacks at all\n").unwrap();
    let (a, b) = (all[0].as_str(), all[1].as_str());
    for (args, reason) in [
        (&["--before", a, b, "--after", &other, &other][..], "these cannot be compared"),
        (&["--before", a, b, "--after", &garbage, b], "garbage.data"),
        (&[&idle, a], "idle.data"),
        (&["--before", &idle, &idle, "--after", a, b], "no samples before"),
        (&[a, b, &all[2]], "--before and --after"),
        (&[a], "the one after is missing"),
        (&["--against", &garbage, a, b], "garbage.data"),
        (&["-p", a, b], "-p is for perf's columns"),
        (&["--time", "0,1", &folded, &folded], "--time: stacks in it have no times"),
        (&["--per", "second", &folded, &folded], "--per: stacks in it have no times"),
        (&[&folded, a], "these cannot be compared"),
        (&[&prose, a], "line 1 is not a folded stack"),
        (&["--of", "report", a, b], "not a command whose rows add up"),
        (&["--of", "syscalls report", a, b], "kymo syscalls report: "),
        (&["--run", "--pin", "1000", "--", "true", "--", "true"], "CPU 1000 is not online"),
        (&["--run", "--", "true"], "--run compares two commands"),
        (&["--run", "-n", "4", "--", "false", "--", "true"], "ended with status 1"),
    ] {
        let out = kymo(&[&["diff"], args].concat());
        assert_eq!(out.status, 1, "{args:?}: {out:?}");
        assert!(out.stderr.contains(reason), "{args:?}: {}", out.stderr);
    }
    let branches = kymo(&["diff", "--stream", a, b]).expect_status(2);
    assert!(branches.stderr.contains("branch records"), "{}", branches.stderr);
}

/// Counts alone: nothing is recorded, and a program with twice as many faults is reported.
#[test]
fn counts_of_two_commands_are_compared() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile(
        "touch",
        "#include <stdlib.h>\nint main(int c, char **v) { long n = atol(v[1]); \
         volatile char *p = malloc(n << 12); for (long i = 0; i < n; i++) p[i << 12] = 1; return 0; }",
    );
    let out = diff_run(&w, &["-n", "6", "--stat", "minor-faults", "--json"], &["4000"], &["8000"]);
    let value = answer_of(&out.success());
    let faults = changes(&value, "whole").find(|row| row["quantity"] == "minor-faults").unwrap();
    assert_eq!(faults["verdict"], "more", "{value:#}");
    let ratio = faults["ratio"].as_f64().unwrap();
    assert!((1.7..2.1).contains(&ratio), "{ratio}");
    assert!(!Path::new("perf.data").exists());
}

/// The shell part of the action writes the summary and ends with the status of the gates.
#[test]
fn the_action_writes_a_summary_and_ends_as_the_gates_do() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/github/kymo-diff/diff.sh");
    let act = |gates: &str, after: &str, undecided: &str| {
        let summary = w.file("summary.md");
        let _ = std::fs::remove_file(&summary);
        let out = std::process::Command::new("bash")
            .arg(script)
            .env("KYMO", KYMO)
            .env("BEFORE", format!("{} 100 100", w.arg()))
            .env("AFTER", format!("{} 100 {after}", w.arg()))
            .env("GATES", gates)
            .env("RUNS", "5")
            .env("OPTIONS", "--cpu-only")
            .env("UNDECIDED", undecided)
            .env("GITHUB_STEP_SUMMARY", &summary)
            .output()
            .unwrap();
        let text = std::fs::read_to_string(&summary).unwrap();
        assert!(text.starts_with("### kymo diff\n"), "{text}");
        (out.status.code().unwrap(), text)
    };
    let (status, text) = act("self:parse < +5%\n  total < +500%\n", "200", "pass");
    assert_eq!(status, 4, "{text}");
    assert!(text.contains("| `self:parse < +5%` | **failed** |"), "{text}");
    assert!(text.contains("| `total < +500%` | passed |"), "{text}");
    let nowhere = "self:no_such_function < +5%";
    assert_eq!(act(nowhere, "100", "fail").0, 5);
    assert_eq!(act(nowhere, "100", "pass").0, 0);
}

/// Profiles of other tools' formats give the numbers of the recordings that they were made of.
#[test]
fn profiles_without_times_are_compared_as_runs() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = program();
    let sides = [record_runs(&w, "fast", 6, &["100"]), record_runs(&w, "slow", 6, &["100", "200"])];
    let converted = |extension: &str| -> [Vec<String>; 2] {
        sides.clone().map(|side| {
            let one = |path: String| {
                let out = format!("{path}.{extension}");
                let _ = kymo(&["convert", "-i", &path, "-o", &out]).success();
                out
            };
            side.into_iter().map(one).collect()
        })
    };
    let of = |sides: &[Vec<String>; 2]| {
        let mut args = vec!["diff", "--json", "--before"];
        args.extend(sides[0].iter().map(String::as_str));
        args.push("--after");
        args.extend(sides[1].iter().map(String::as_str));
        answer_of(&kymo(&args).success())
    };
    let row = |value: &Value| {
        let own = own(value, "parse").clone();
        ["before", "after", "ratio", "low", "high", "verdict"].map(|name| own[name].clone())
    };
    let recordings = of(&sides);
    assert_eq!(row(&recordings)[5], "more", "{recordings:#}");
    let pprof = of(&converted("pb.gz"));
    assert_eq!(row(&pprof), row(&recordings));
    assert_eq!(own(&pprof, "parse")["unit"], "nanoseconds");
    // Folded stacks state no unit, and not how many samples a weight stands for.
    let stacks = converted("folded");
    let folded = of(&stacks);
    assert_eq!(row(&folded)[..3], row(&recordings)[..3]);
    assert_eq!(own(&folded, "parse")["unit"], "count");
    // One profile of each side is shown, and nothing is decided: 0 against 1 sample least of all.
    let (before, after) = (w.file("one.folded"), w.file("two.folded"));
    std::fs::write(&before, "main;parse 4000\nmain;render 4000\n").unwrap();
    std::fs::write(&after, "main;parse 8000\nmain;render 4000\nmain;rare 1\n").unwrap();
    let one = answer_of(&kymo(&["diff", "--json", &before, &after]).success());
    assert_eq!(changes(&one, "self").next().unwrap()["function"], "parse");
    for change in changes(&one, "self") {
        assert_eq!((&change["verdict"], &change["more_runs"]), (&"undecided".into(), &3.into()));
    }
    assert!(one["ledger"].to_string().contains("one run of a side shows no spread"), "{one:#}");
    // Nothing shows the order of the sides: their gates are undecided unless that is accepted.
    let gated = |more: &[&str]| {
        let mut args = vec!["diff", "--json", "--gate", "self:parse < +5%"];
        args.extend(more);
        args.push("--before");
        args.extend(stacks[0].iter().map(String::as_str));
        args.push("--after");
        args.extend(stacks[1].iter().map(String::as_str));
        kymo(&args)
    };
    let out = answer_of(&gated(&[]).expect_status(5));
    let reason = out["gates"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("no times show that the sides were recorded in turns"), "{reason}");
    assert!(out["ledger"].to_string().contains("\"sequential\""), "{out:#}");
    let out = answer_of(&gated(&["--accept-sequential"]).expect_status(4));
    assert_eq!(out["gates"][0]["outcome"], "failed");
    let tree = kymo(&["diff", "-g", &before, &after]).success().stdout;
    let branches: Vec<Vec<&str>> = tree
        .lines()
        .skip_while(|line| !line.starts_with("Call tree"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(branches[2], ["8,000", "12,001", "+4,001", "main"], "{tree}");
    assert_eq!(branches[3], ["4,000", "8,000", "+4,000", "parse"], "{tree}");
    assert!(branches.get(4).is_none_or(Vec::is_empty), "no branch with less than 1 %: {tree}");
}

/// Rows of another command are compared by their keys.
#[test]
fn answers_are_compared_row_by_row() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("answers", CALLS);
    let target = w.file("target");
    let record = |name: &str, args: &[&str]| -> Vec<String> {
        let one = |n: usize| {
            let path = w.file(&format!("{name}-{n}.data"));
            let record = ["syscalls", "record", "-o", &path, "--", w.arg(), &target];
            let _ = kymo(&[&record[..], args].concat()).success();
            path
        };
        (0..6).map(one).collect()
    };
    let (before, after) = (record("calm", &["0"]), record("eager", &["20"]));
    // The recordings have the calls of all tasks of the machine.
    let mut args = vec!["diff", "--json", "--of", "syscalls report --comm answers", "--before"];
    args.extend(before.iter().map(String::as_str));
    args.push("--after");
    args.extend(after.iter().map(String::as_str));
    let value = answer_of(&kymo(&args).success());
    let sentence = value["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("`fsync` (total_ns) is new"), "{sentence}");
    let calls = |name: &str| {
        let mut counts = changes(&value, "self").filter(|row| row["quantity"] == "count");
        let own = counts.find(|row| row["function"] == name).unwrap();
        (own["before"].as_f64(), own["after"].as_f64(), own["verdict"].as_str().unwrap())
    };
    assert_eq!(calls("fsync"), (Some(0.0), Some(20.0), "new"));
    assert_eq!(calls("getppid"), (Some(30.0), Some(30.0), "no-change"));
    // One side was recorded after the other, which the answers tell by their times.
    let kinds: Vec<&str> =
        value["ledger"].as_array().unwrap().iter().map(|n| n["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"sequential"), "{value:#}");
    // What the comparison would not hand on is not taken.
    let refused =
        kymo(&["diff", "--of", "syscalls report", "--time", "0,1", &before[0], &after[0]]);
    assert_eq!(refused.status, 2, "{refused:?}");
    // The reason of the other command is reported in its words.
    let cut = w.file("cut.data");
    let whole = std::fs::read(&before[0]).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let failed = kymo(&["diff", "--of", "syscalls report", &before[0], &cut]).failure();
    assert!(failed.stderr.contains("damaged"), "{failed:?}");
    assert!(!failed.stderr.contains('{'), "{failed:?}");
}

/// Calls getppid(2) 30 times, and fsync(2) a given number of times.
const CALLS: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 30; i++) getppid();
    for (int i = 0; i < atoi(argv[2]); i++) if (fsync(fd)) return 1;
    return 0;
}
"#;

#[test]
fn pinned_commands_run_on_their_cpu_alone() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pinned = (cpus - 1).to_string();
    for how in [&["--cpu-only"][..], &["--stat", "task-clock"]] {
        let seen = directory.path().join("seen").display().to_string();
        let script = format!("grep Cpus_allowed_list /proc/self/status >> {seen}");
        let side = ["--", "sh", "-c", &script];
        let args = [&["diff", "--run", "-n", "2", "--pin", &pinned], how, &side, &side].concat();
        let _ = kymo(&args).success();
        let lines = std::fs::read_to_string(&seen).unwrap();
        // A pair that does not count, and two that do.
        assert_eq!(lines.lines().count(), 6, "{lines}");
        let is_pinned = |line: &str| line.split_whitespace().last() == Some(&pinned);
        assert!(lines.lines().all(is_pinned), "{lines}");
        std::fs::remove_file(&seen).unwrap();
    }
}
