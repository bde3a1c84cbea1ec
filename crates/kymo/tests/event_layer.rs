//! One event layer: the same workload recorded as perf.data, trace.dat and LTTng's CTF gives
//! the same tables, the same JSON fields and the same selections, and recordings of several
//! formats are merged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kymo_testkit::{Lttng, LttngSession, Need, Outcome, TracingState, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 5] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Lttng, Need::Gcc];
/// The function that the tracepoint is in, with the tracepoint's name and arguments.
const PROBE: &str = "kt:two=two a=%di:u64 b=%si:u64";
/// Events of the workload.
const ROUNDS: usize = 12;

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// The workload in three formats: `two(i, 3 * i)` for each round.
struct Recordings {
    _directory: tempfile::TempDir,
    perf_data: String,
    trace_dat: String,
    ctf: String,
}

impl Recordings {
    fn make() -> Recordings {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (perf_data, trace_dat, ctf) = (path("a.data"), path("a.dat"), path("ctf"));
        let lttng = Lttng::start();
        let program = lttng.program().to_str().unwrap().to_owned();
        let rounds = ROUNDS.to_string();
        let workload = ["--", &program, &rounds, "two"];
        let record = ["record", "-q", "--clockid", "mono", "-o", &perf_data];
        let placed = format!("{program} {PROBE}");
        let probe = ["--probe", &placed];
        let _ = kymo(&[&record[..], &probe, &workload].concat()).success();
        let trace = ["trace", "-q", "-o", &trace_dat];
        let _ = kymo(&[&trace[..], &probe, &workload].concat()).success();
        let mut command = std::process::Command::new(&program);
        command.args([&rounds, "two"]);
        let session = LttngSession {
            output: std::path::Path::new(&ctf),
            by_process: false,
            sub_buffer: "64k",
            sub_buffers: 4,
            contexts: &["procname", "vtid"],
            waits: true,
        };
        lttng.record(&session, command);
        Recordings { _directory: directory, perf_data, trace_dat, ctf }
    }

    fn all(&self) -> [&str; 3] {
        [&self.perf_data, &self.trace_dat, &self.ctf]
    }
}

/// The rows of a table, without what states the recording.
fn rows(args: &[&str]) -> Vec<String> {
    let text = kymo(args).success().stdout;
    let rows = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    rows.map(str::to_owned).collect()
}

/// Event, `a` and `b` of each line of JSON.
fn values(args: &[&str]) -> Vec<(String, u64, u64, String)> {
    let text = kymo(args).success().stdout;
    let value = |line: &str| {
        let v: Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| v["fields"][name].as_u64().unwrap();
        let text = |name: &str| v[name].as_str().unwrap().to_owned();
        assert!(v["time"].is_f64() && v["cpu"].is_u64() && v["tid"].is_u64(), "{line}");
        (text("event"), number("a"), number("b"), text("comm"))
    };
    text.lines().map(value).collect()
}

#[test]
fn three_formats_of_one_workload_give_the_same_answers() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let recordings = Recordings::make();
    let [perf_data, trace_dat, ctf] = recordings.all();

    // One row for each pair of values, each with the same share; and the selection by a filter.
    for (flags, expected) in [
        (&["-s", "event,comm,a,b"][..], ROUNDS),
        (&["-s", "event,comm,a,b", "--filter", "a >= 5 && b < 30"], 5),
        (&["-s", "event,kt:two.b", "--filter", "a & 1"], ROUNDS / 2),
        (&["-s", "event,comm", "--event", "kt:*"], 1),
    ] {
        let table = |recording: &str| rows(&[&["report", "-i", recording][..], flags].concat());
        let first = table(perf_data);
        assert_eq!(first.len(), expected, "{flags:?}: {first:#?}");
        assert_eq!(table(trace_dat), first, "{flags:?}");
        assert_eq!(table(ctf), first, "{flags:?}");
    }

    // Expected values of the program, field by field.
    let script = |recording: &str, more: &[&str]| {
        values(&[&["script", "--json", "-i", recording][..], more].concat())
    };
    let first = script(perf_data, &[]);
    let numbers: Vec<(u64, u64)> = first.iter().map(|v| (v.1, v.2)).collect();
    let expected: Vec<(u64, u64)> = (0..ROUNDS as u64).map(|i| (i, 3 * i)).collect();
    assert_eq!(numbers, expected);
    assert!(first.iter().all(|v| v.0 == "kt:two"), "{first:?}");
    for recording in [trace_dat, ctf] {
        assert_eq!(script(recording, &[]), first, "{recording}");
        let few = script(recording, &["--filter", "a == 3 || b == 21"]);
        assert_eq!(few.iter().map(|v| v.1).collect::<Vec<_>>(), [3, 7], "{recording}");
    }
    let few = script(perf_data, &["--filter", "a == 3 || b == 21"]);
    assert_eq!(few.iter().map(|v| v.1).collect::<Vec<_>>(), [3, 7]);

    // Each event is the innermost frame of its stack, below its task; weights add up.
    let convert = |recording: &str, flags: &[&str]| {
        let args = ["convert", "-f", "folded", "-i", recording];
        let text = kymo(&[&args[..], flags].concat()).success().stdout;
        let mut ends = std::collections::BTreeMap::<(String, String), u64>::new();
        for line in text.lines() {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            let (task, event) =
                (stack.split(';').next().unwrap(), stack.rsplit(';').next().unwrap());
            let key = (task.to_owned(), event.to_owned());
            *ends.entry(key).or_default() += weight.parse::<u64>().unwrap();
        }
        ends
    };
    for (flags, weight) in [
        (&[][..], ROUNDS as u64),
        (&["--weight", "two.b"], numbers.iter().map(|n| n.1).sum()),
        (&["--filter", "a >= 5 && b < 30"], 5),
        (&["-e", "kt:t*", "--weight", "a", "--filter", "a < 4"], 6),
    ] {
        let first = convert(perf_data, flags);
        let [((_, event), n)] = &first.iter().collect::<Vec<_>>()[..] else {
            panic!("{flags:?}: {first:?}")
        };
        assert_eq!((event.as_str(), **n), ("kt:two", weight), "{flags:?}");
        assert_eq!(convert(trace_dat, flags), first, "{flags:?}");
        assert_eq!(convert(ctf, flags), first, "{flags:?}");
    }

    // The same class, with the same members.
    let listed = recordings.all().map(|recording| {
        let text = kymo(&["list", "-j", "-i", recording, "kt:two"]).success().stdout;
        let Ok(Value::Array(classes)) = serde_json::from_str(&text) else { panic!("{text}") };
        let [class] = &classes[..] else { panic!("{text}") };
        let own = class["fields"].as_array().unwrap().iter().filter(|f| f["part"] == "field");
        let own: Vec<&str> = own.map(|f| f["name"].as_str().unwrap()).collect();
        assert!(own.ends_with(&["a", "b"]), "{text}");
        let members: Vec<String> = class.as_object().unwrap().keys().cloned().collect();
        let of = |name: &str| class[name].clone();
        (of("name"), of("kind"), of("events"), members)
    });
    let [first, second, third] = &listed;
    assert_eq!((&first.0, &first.1), (&"kt:two".into(), &"tracepoint".into()));
    assert_eq!(first.2, ROUNDS);
    assert!(first == second && first == third, "{listed:#?}");

    // Code is only in samples.
    let refused = kymo(&["annotate", "-i", trace_dat]).failure().stderr;
    assert!(refused.contains("is not a perf.data: only samples of code contain"), "{refused}");

    // A field that there is not is refused alike, with those that there are.
    for recording in recordings.all() {
        for command in [&["script"][..], &["report"], &["convert", "-f", "folded"]] {
            let wrong = [command, &["-i", recording, "--filter", "nosuch == 1"]].concat();
            let wrong = kymo(&wrong);
            assert_eq!(wrong.status, 1, "{command:?} {recording}: {}", wrong.stderr);
            let why = "no event has a field `nosuch`";
            assert!(wrong.stderr.contains(why), "{command:?} {recording}: {}", wrong.stderr);
        }
    }
}

#[test]
fn recordings_of_several_formats_are_merged_by_time() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let recordings = Recordings::make();
    let all = recordings.all();
    let merged = values(&[&["script", "--json"][..], &all].concat());
    // They were made one after the other.
    let numbers: Vec<u64> = merged.iter().map(|v| v.1).collect();
    let once: Vec<u64> = (0..ROUNDS as u64).collect();
    assert_eq!(numbers, [&once[..], &once, &once].concat());
    let text = kymo(&[&["script"][..], &all].concat()).success().stdout;
    let times: Vec<f64> = text
        .lines()
        .map(|l| {
            let (before, _) = l.split_once(": ").unwrap();
            before.rsplit_once(' ').unwrap().1.parse().unwrap()
        })
        .collect();
    assert_eq!(times.len(), 3 * ROUNDS, "{text}");
    assert!(times.is_sorted(), "{text}");
    let table = rows(&[&["report", "-s", "event,a"][..], &all].concat());
    assert_eq!(table.len(), ROUNDS, "{table:#?}");
    assert!(table.iter().all(|r| r.contains(" 3  kt:two")), "{table:#?}");
    let folded = kymo(&[&["convert", "-f", "folded"][..], &all].concat()).success().stdout;
    let events = folded.lines().map(|l| l.rsplit_once(' ').unwrap());
    let events = events.filter(|(stack, _)| stack.ends_with(";kt:two"));
    let events: usize = events.map(|(_, n)| n.parse::<usize>().unwrap()).sum();
    assert_eq!(events, 3 * ROUNDS, "{folded}");

    // perf's own clock has no place on that time.
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("own.data").to_str().unwrap().to_owned();
    let own = ["record", "-q", "--clockid", "perf", "-e", "page-faults", "-o", &other];
    let _ = kymo(&[&own[..], &["--", "true"]].concat());
    if std::path::Path::new(&other).exists() {
        let refused = kymo(&["script", &other, all[1]]);
        assert_eq!(refused.status, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("CLOCK_MONOTONIC"), "{}", refused.stderr);
    }
}

#[test]
fn floats_are_compared_as_numbers() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ctf/x86_64/kymo-programs");
    let sales = |filter: &[&str]| -> Vec<(f64, i64)> {
        let only = ["script", "--json", "-i", fixture, "--event", "shop:sale"];
        let text = kymo(&[&only[..], filter].concat()).success().stdout;
        let values = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        let fields = values.map(|v| v["fields"].clone());
        fields.map(|f| (f["euros"].as_f64().unwrap(), f["cents"].as_i64().unwrap())).collect()
    };
    let all = sales(&[]);
    for (filter, wanted) in [
        ("euros > 0", (|e, _| e > 0.0) as fn(f64, i64) -> bool),
        ("euros <= 9.98", |e, _| e <= 9.98),
        ("euros == -0.03", |e, _| e == -0.03),
        ("cents > 998.5", |_, c| c >= 999),
        ("cents == 998.0", |_, c| c == 998),
    ] {
        let expected: Vec<_> = all.iter().copied().filter(|(e, c)| wanted(*e, *c)).collect();
        assert!(!expected.is_empty() && expected.len() < all.len(), "{filter}: {all:?}");
        assert_eq!(sales(&["--filter", filter]), expected, "{filter}");
    }
    for (filter, why) in [
        ("euros & 1", "`euros` is a float, which has no bits"),
        ("cents ~ \"9*\"", "`cents` is a number: compare it with one"),
        ("customer > 1.5", "`customer` is text: compare it with \"…\""),
    ] {
        let refused = kymo(&["report", "-i", fixture, "--filter", filter]);
        assert_eq!(refused.status, 1, "{filter}: {}", refused.stderr);
        assert!(refused.stderr.contains(why), "{filter}: {}", refused.stderr);
    }
}

#[test]
fn a_recording_that_is_not_there_is_said_to_be_missing() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/trace-dat/x86_64/v6.dat");
    for command in ["script", "report"] {
        let missing = kymo(&[command, "nosuch.data", fixture]);
        assert_eq!(missing.status, 1, "{command}: {}", missing.stderr);
        let why = "nosuch.data: No such file or directory";
        assert!(missing.stderr.contains(why), "{command}: {}", missing.stderr);
    }
}
