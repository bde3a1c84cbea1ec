//! `kymo convert`: what each format's consumer reads out of it is what was
//! recorded. The stacks themselves are compared with `perf script`.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

mod exports;

use std::collections::BTreeMap;
use std::io::Read as _;

use exports::{Folded, firefox, folded as lines, pprof, same, speedscope};
use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

const SOURCE: &str =
    concat!("#define THREADS\n#define ROUNDS 300\n", include_str!("programs/calls.c"));

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// Folds what `perf script` prints, as stackcollapse-perf describes it: one line
/// for the sample with its period, one for each frame, innermost first.
fn fold(script: &str, event: &str) -> Folded {
    /// Default of `kernel.perf_event_max_stack`.
    const MOST_FRAMES: usize = 127;

    let mut folded = Folded::new();
    for sample in script.split("\n\n").filter(|s| !s.trim().is_empty()) {
        let mut lines = sample.trim_start_matches('\n').lines();
        let head = lines.next().unwrap();
        let (front, rest) = head.split_once(": ").unwrap();
        let mut words = rest.split_whitespace();
        let (period, name) = (words.next().unwrap(), words.next().unwrap());
        if name.trim_end_matches(':') != event {
            continue;
        }
        // `comm pid/tid time`; the name may hold blanks.
        let words: Vec<&str> = front.split_whitespace().collect();
        let mut frames: Vec<String> = lines.map(frame).collect();
        // What lies above the kernel's limit perf does not say.
        if frames.len() >= MOST_FRAMES {
            frames.push("[stack cut]".to_owned());
        }
        frames.push(words[..words.len() - 2].join("_"));
        frames.reverse();
        *folded.entry(frames.join(";")).or_default() += period.parse::<u64>().unwrap();
    }
    folded
}

fn frame(line: &str) -> String {
    let (_, place) = line.trim().split_once(' ').unwrap();
    let (symbol, dso) = place.rsplit_once(" (").unwrap();
    let dso = dso.trim_end_matches(')');
    match symbol {
        "[unknown]" if dso == "[unknown]" => "[unknown]".into(),
        // stackcollapse-perf puts brackets around brackets here.
        "[unknown]" if dso.starts_with('[') => dso.into(),
        // A return address right behind `_start`: perf names what begins there, not
        // what the call is in.
        "_dl_start_user+0x0" => "_start".into(),
        "[unknown]" => format!("[{}]", dso.rsplit('/').next().unwrap()),
        symbol => symbol.rsplit_once("+0x").map_or(symbol, |s| s.0).into(),
    }
}

/// Some recording of two threads and two events.
fn recording(w: &Workload) -> String {
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let events = "cpu-clock,page-faults";
    let _ = perf(["record", "-q", "-F", "2000", "-g", "-e", events, "-o", &file, &program]);
    file
}

#[test]
fn every_format_holds_the_stacks_that_perf_script_prints() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("convert", SOURCE);
    let file = recording(&w);
    let fields = "comm,pid,tid,time,period,event,ip,sym,symoff,dso";
    let script = perf(["script", "--no-inline", "-F", fields, "-i", &file]).success().stdout;
    for event in ["cpu-clock", "page-faults"] {
        let theirs = fold(&script, event);
        let args = ["convert", "-i", &file, "-f", "folded", "--no-marks", "--no-inline"];
        let ours = kymo(&[&args[..], &["-e", event]].concat());
        same(&lines(&ours.success().stdout), &theirs);
    }
    let clock = fold(&script, "cpu-clock");
    let marked = kymo(&["convert", "-i", &file, "-f", "folded", "--no-inline"]).success();
    assert!(marked.stderr.contains("the result has cpu-clock only"), "{}", marked.stderr);
    let marked = lines(&marked.stdout);
    let marks = |stack: &str| stack.split(';').filter(|f| f.ends_with("_[k]")).count();
    assert!(marked.keys().any(|s| marks(s) > 2), "{marked:#?}");
    same(&marked.into_iter().map(|(k, v)| (k.replace("_[k]", ""), v)).collect(), &clock);

    let out = |name: &str| {
        let path = w.file(name);
        let _ = kymo(&["convert", "-i", &file, "-o", &path, "--no-inline"]).success();
        std::fs::read(path).unwrap()
    };
    // pprof holds every event; the second value of each is what it weighs.
    let profile = pprof::Profile::read(&out("a.pb.gz"));
    assert_eq!(profile.types[0], ("cpu-clock samples".into(), "count".into()));
    assert_eq!(profile.types[1], ("cpu-clock".into(), "nanoseconds".into()));
    // 2,000 samples a second.
    assert_eq!(profile.period, 500_000);
    same(&profile.folded(1), &clock);
    same(&profile.folded(3), &fold(&script, "page-faults"));
    let samples = script.lines().filter(|l| l.contains(" cpu-clock:")).count() as u64;
    assert_eq!(profile.folded(0).values().sum::<u64>(), samples);

    let path = w.file("a.speedscope.json");
    let args = ["convert", "-i", &file, "-o", &path, "--no-inline", "-e", "cpu-clock"];
    let _ = kymo(&args).success();
    let threads = speedscope::read(&std::fs::read(&path).unwrap());
    assert_eq!(threads.len(), 2, "one of each thread");
    same(
        &threads.into_iter().flatten().fold(Folded::new(), |mut all, (k, v)| {
            *all.entry(k).or_default() += v;
            all
        }),
        &clock,
    );

    let plain = out("a.json");
    let page: serde_json::Value = serde_json::from_slice(&plain).unwrap();
    assert_eq!(page["meta"]["interval"], 0.5);
    let plain = firefox::read(&plain);
    same(&plain, &clock);
    let mut unpacked = Vec::new();
    let packed = out("a.json.gz");
    let _ = flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
    same(&firefox::read(&unpacked), &clock);
}

const NAMED_THREADS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
static void spin(void) { for (volatile long i = 0; i < 60000000; i++); }
static void *work(void *name) {
    pthread_setname_np(pthread_self(), name);
    spin();
    return 0;
}
int main(void) {
    pthread_t threads[2];
    pthread_create(&threads[0], 0, work, "first");
    pthread_create(&threads[1], 0, work, "second");
    spin();
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// A thread has its own name, and that of its process.
#[test]
fn threads_are_in_their_process() {
    if !require(&[Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("named_threads", NAMED_THREADS);
    let (data, json) = (w.file("perf.data"), w.file("firefox.json"));
    let record = ["record", "-q", "-e", "cpu-clock:u", "-F", "2000", "-o", &data, "--", w.arg()];
    let _ = kymo(&record).success();
    let _ = kymo(&["convert", "--to", "firefox", "-i", &data, "-o", &json]).success();
    let page: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let threads = page["threads"].as_array().unwrap();
    let mut names: Vec<(&str, &str)> = threads
        .iter()
        .map(|t| (t["name"].as_str().unwrap(), t["processName"].as_str().unwrap()))
        .collect();
    names.sort_unstable();
    let process = "named_threads";
    assert_eq!(names, [("first", process), (process, process), ("second", process)]);
}

const INLINED: &str = include_str!("programs/inlined.c");

#[test]
fn inlined_functions_are_frames_of_one_location() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("convert_inlined", INLINED);
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let event = "cpu-clock:u";
    let _ = perf(["record", "-q", "-F", "1000", "-g", "-e", event, "-o", &file, &program]);
    let folded = |args: &[&str]| {
        let all = ["convert", "-i", &file, "-f", "folded"];
        lines(&kymo(&[&all[..], args].concat()).success().stdout)
    };
    let (with, without) = (folded(&[]), folded(&["--no-inline"]));
    let deepest = "main;outer;between_[i];inner_[i]";
    let inner: u64 = with.iter().filter(|(k, _)| k.ends_with(deepest)).map(|(_, v)| v).sum();
    let whole: u64 = with.values().sum();
    assert!(inner * 10 > whole * 9, "{with:#?}");
    assert!(without.keys().all(|k| !k.contains("inner")), "{without:#?}");
    // Nothing else is different.
    let mut stripped = Folded::new();
    for (stack, weight) in &with {
        let frames: Vec<&str> = stack.split(';').filter(|f| !f.ends_with("_[i]")).collect();
        *stripped.entry(frames.join(";")).or_default() += weight;
    }
    assert_eq!(stripped, without);
    let path = w.file("a.pb.gz");
    let _ = kymo(&["convert", "-i", &file, "-o", &path]).success();
    let profile = pprof::Profile::read(&std::fs::read(&path).unwrap());
    let own = profile.inlined.iter().filter(|l| l.iter().any(|f| f == "inner"));
    let own: Vec<_> = own.collect();
    assert!(!own.is_empty());
    assert!(own.iter().all(|l| ***l == ["inner", "between", "outer"]), "{own:?}");
    let plain: Folded = with.into_iter().map(|(k, v)| (k.replace("_[i]", ""), v)).collect();
    let mut read = Folded::new();
    profile.folded(1).into_iter().for_each(|(k, v)| *read.entry(k).or_default() += v);
    assert_eq!(read, plain.into_iter().map(|(k, v)| (k.replace("_[k]", ""), v)).collect());
    // Lines are those of the source.
    let line = INLINED.lines().position(|l| l.contains("sink += i * i")).unwrap() as u64 + 1;
    assert!(profile.lines.contains(&("inner".to_string(), line)), "{:?}", profile.lines);
}

#[test]
fn a_flame_graph_is_as_wide_as_its_stacks_weigh() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("convert_flame", SOURCE);
    let file = recording(&w);
    let path = w.file("a.svg");
    let args = ["convert", "-i", &file, "-o", &path, "--percent-limit", "0", "-e", "cpu-clock"];
    let _ = kymo(&args).success();
    let svg = std::fs::read_to_string(&path).unwrap();
    let folded = kymo(&["convert", "-i", &file, "-f", "folded", "--no-marks"]).success().stdout;
    let folded = lines(&folded);
    let whole: u64 = folded.values().sum();
    // Every frame's weight, summed up from the folded stacks.
    let mut passing: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    for (stack, weight) in &folded {
        let frames: Vec<&str> = stack.split(';').collect();
        for depth in 1..=frames.len() {
            *passing.entry(frames[..depth].to_vec()).or_default() += weight;
        }
    }
    let mut drawn: Vec<(usize, u64, String)> = Vec::new();
    for line in svg.lines().filter(|l| l.starts_with("<svg class=\"f\"")) {
        let value = |key: &str| -> u64 {
            let rest = line.split_once(&format!(" data-{key}=\"")).unwrap().1;
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let name = line.rsplit_once("y=\"12\">").unwrap().1.trim_end_matches("</text></svg>");
        let width = line.split_once(" width=\"").unwrap().1.split('%').next().unwrap();
        let share: f64 = width.parse().unwrap();
        assert!((share - 100.0 * value("w") as f64 / whole as f64).abs() < 0.001, "{line}");
        drawn.push((
            value("d") as usize,
            value("w"),
            name.replace("&gt;", ">").replace("&lt;", "<"),
        ));
    }
    assert_eq!(drawn.remove(0), (0, whole, "all".into()));
    let mut expected: Vec<(usize, u64, String)> =
        passing.into_iter().map(|(p, w)| (p.len(), w, p.last().unwrap().to_string())).collect();
    drawn.sort();
    expected.sort();
    assert_eq!(drawn, expected);
}

#[test]
fn nothing_is_overwritten_and_what_cannot_be_made_is_refused() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("convert_refused", SOURCE);
    let file = recording(&w);
    let path = w.file("a.folded");
    std::fs::write(&path, "mine\n").unwrap();
    let refused = kymo(&["convert", "-i", &file, "-o", &path]).failure();
    assert!(refused.stderr.contains("already exists; --force replaces it"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine\n");
    let _ = kymo(&["convert", "-i", &file, "-o", &path, "--force"]).success();
    assert!(lines(&std::fs::read_to_string(&path).unwrap()).len() > 10);
    let left = std::fs::read_dir(w.dir()).unwrap().flatten();
    let parts = left.filter(|e| e.path().to_string_lossy().ends_with(".part")).count();
    assert_eq!(parts, 0);

    let refused = |args: &[&str], why: &str| {
        let said = kymo(&[&["convert", "-i", &file], args].concat()).failure().stderr;
        assert!(said.contains(why), "{args:?}: {said}");
    };
    refused(&[], "which format?");
    refused(&["-f", "folded", "-e", "nonsense"], "there are cpu-clock, page-faults");
    refused(&["-f", "folded", "-e", "*"], "this format holds one event");
    refused(&["-o", "/nowhere/a.svg"], "cannot write /nowhere/a.svg");
    refused(&["-f", "folded", "--time", "5,1"], "the start is later than the end");
    let none = kymo(&["convert", "-i", &file, "-f", "folded", "-c", "absent", "--strict"]);
    assert!(
        none.expect_status(3).stderr.contains("no event matches --comm absent; the recording has")
    );
}

#[test]
fn samples_can_be_chosen_and_counted_in_other_ways() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("convert_chosen", SOURCE);
    let file = recording(&w);
    let folded = |args: &[&str]| {
        let all = ["convert", "-i", &file, "-f", "folded", "-e", "cpu-clock"];
        lines(&kymo(&[&all[..], args].concat()).success().stdout)
    };
    let sum = |folded: &Folded| folded.values().sum::<u64>();
    let all = folded(&[]);
    let counted = folded(&["--weight", "samples"]);
    assert_eq!(sum(&all), 500_000 * sum(&counted));
    // Both halves of the time are all of it.
    let halves =
        ["0%-50%", "50%-100%"].map(|t| sum(&folded(&["--time", t, "--weight", "samples"])));
    assert_eq!(halves[0] + halves[1], sum(&counted), "{halves:?}");
    assert!(halves.iter().all(|h| *h > 0), "{halves:?}");
    let threads = folded(&["--split", "tid"]);
    let names: std::collections::BTreeSet<&str> =
        threads.keys().map(|k| k.split(';').next().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        let tid = name.rsplit_once('/').unwrap().1;
        let own = folded(&["--tid", tid, "--split", "tid"]);
        let of = |(k, v): (&String, &u64)| k.starts_with(name).then_some(*v);
        assert_eq!(sum(&own), threads.iter().filter_map(of).sum::<u64>());
    }
    let merged = folded(&["--split", "none"]);
    assert_eq!(sum(&merged), sum(&all));
    assert!(merged.keys().all(|k| !k.starts_with("convert_chosen;")), "{merged:#?}");
    let libc = folded(&["-d", "[kernel.kallsyms]"]);
    assert!(sum(&libc) < sum(&all) && libc.keys().all(|k| k.ends_with("_[k]")), "{libc:#?}");
}

#[test]
fn a_stack_that_the_kernel_cut_says_so_in_a_frame() {
    if !require(&[Need::PerfEvents, Need::Gcc]) {
        return;
    }
    // Of 40 calls one in the other the kernel records 16.
    let deep = Workload::compile(
        "deep",
        "__attribute__((noinline)) long spin(void) {\
             volatile long n = 0; while (n < 200000000) n++; return n; }\
         __attribute__((noinline)) long down(int n) { return (n ? down(n - 1) : spin()) + 1; }\
         int main(void) { return down(40) == 0; }",
    );
    for (event, cut) in [("cpu-clock:u", false), ("cpu-clock/max-stack=16/u", true)] {
        let data = deep.file(if cut { "cut.data" } else { "whole.data" });
        let args = ["record", "-q", "-F", "99", "-g", "-e", event, "-o", &data, deep.arg()];
        let _ = kymo(&args).success();
        let text = kymo(&["convert", "--to", "folded", "-i", &data]).success().stdout;
        let line = text.lines().find(|line| line.contains(";spin ")).unwrap();
        let names: Vec<&str> = line.rsplit_once(' ').unwrap().0.split(';').collect();
        assert_eq!(names.contains(&"[stack cut]"), cut, "{line}");
        if cut {
            assert_eq!(names[1], "[stack cut]", "{line}");
            assert_eq!(names.iter().filter(|name| **name == "down").count(), 15, "{line}");
        } else {
            assert_eq!(names.iter().filter(|name| **name == "down").count(), 41, "{line}");
        }
    }
}
