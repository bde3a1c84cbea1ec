//! CTF traces of LTTng through the commands: `script` shows the events that babeltrace2
//! shows, `report` and `list` count them as they are counted in its text.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use kymo_testkit::{Lttng, LttngSession, Need, Outcome, require, run};
use serde_json::Value;

const NEEDS: [Need; 3] = [Need::Lttng, Need::Babeltrace, Need::Gcc];

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// An event as babeltrace2 prints it.
#[derive(Debug)]
struct Event {
    time: u64,
    name: String,
    cpu: u64,
    tid: Option<u64>,
    line: String,
}

/// The number behind `name = `.
fn number(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!(" {name} = "))?;
    rest.split([',', ' ']).next()?.parse().ok()
}

fn babeltrace(path: &str) -> Vec<Event> {
    let out = run("babeltrace2", ["--clock-cycles", "--no-delta", path]).success().stdout;
    let event = |line: &str| {
        let (time, rest) = line.strip_prefix('[').unwrap().split_once("] ").unwrap();
        let name = rest.split(": {").next().unwrap().rsplit(' ').next().unwrap();
        Event {
            time: time.parse().unwrap(),
            name: name.to_owned(),
            cpu: number(line, "cpu_id").unwrap(),
            tid: number(line, "vtid"),
            line: line.to_owned(),
        }
    };
    out.lines().map(event).collect()
}

/// Records into `dir/trace`: with contexts 100 rounds, without 30,000 in small buffers.
fn record(dir: &Path, contexts: bool) -> String {
    let output = dir.join("trace");
    let lttng = Lttng::start();
    let mut command = Command::new(lttng.program());
    if contexts {
        command.arg("100")
    } else {
        command.args(["30000", "two"])
    };
    let session = LttngSession {
        output: &output,
        by_process: false,
        sub_buffer: if contexts { "64k" } else { "4k" },
        sub_buffers: if contexts { 4 } else { 2 },
        contexts: if contexts { &["vpid", "vtid", "procname"] } else { &[] },
        waits: false,
    };
    lttng.record(&session, command);
    output.to_str().unwrap().to_owned()
}

fn json_lines(args: &[&str]) -> Vec<Value> {
    let out = kymo(&[&["script", "--json"], args].concat()).success().stdout;
    out.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

#[test]
fn script_report_and_list_tell_what_babeltrace2_tells() {
    if !require(&NEEDS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path(), true);
    let theirs = babeltrace(&path);
    assert_eq!(theirs.len(), 300);
    script_as_text(&path, &theirs);
    script_as_json(&path, &theirs);
    filters(&path, &theirs);
    counts(&path, &theirs);
}

fn script_as_text(path: &str, theirs: &[Event]) {
    let out = kymo(&["script", "--ns", path]).success();
    assert_eq!(out.stderr, "");
    for (line, event) in out.stdout.lines().zip(theirs) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (seconds, nanos) = (event.time / 1_000_000_000, event.time % 1_000_000_000);
        let cpu = format!("[{:03}]", event.cpu);
        let time = format!("{seconds}.{nanos:09}:");
        let name = format!("{}:", event.name);
        let tid = event.tid.unwrap().to_string();
        assert_eq!(words[..5], ["traced", &tid, &cpu, &time, &name], "{line}");
    }
    assert_eq!(out.stdout.lines().count(), theirs.len());
    // Values in our own words.
    let of = |n: usize| out.stdout.lines().nth(n).unwrap();
    let numbers = " i8=1 u8=1 i16=1 u16=1 i32=1 u32=1 i64=8589934592 u64=8589934592 h16=0x1 \
                   h64=0x1 n16=256 nh32=0x1000000 f=0.33333334 d=1.4285714285714287e19 \
                   e=GREENS(1) se=RANGE(-2) ue=GREENS(1)";
    assert!(of(3).ends_with(numbers), "{}", of(3));
    let rows = " str=\"a \\\"quoted\\\" \\\\ back\\nline\\ttab\\x01\" a16={31,32,33} \
                ah16={0x1f,0x20} at=\"a \\\"q\" _s16_length=1 s16={31} _sh16_length=1 \
                sh16={0x1f} _st_length=2 st=\"a \" an16={7936,8192} _sn16_length=1 sn16={7936}";
    assert!(of(4).ends_with(rows), "{}", of(4));
    assert!(of(5).ends_with(" kt:empty:"), "{}", of(5));
    let only = kymo(&["script", "-F", "event,cpu", path]).success().stdout;
    assert_eq!(only.lines().next().unwrap(), format!("[{:03}] kt:numbers:", theirs[0].cpu));
    let real = kymo(&["script", "--real-time", "-F", "time", path]).success().stdout;
    let seconds: f64 = real.lines().next().unwrap().trim().trim_end_matches(':').parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!((now.as_secs_f64() - seconds).abs() < 600.0, "{seconds}");
}

fn script_as_json(path: &str, theirs: &[Event]) {
    let lines = json_lines(&[path]);
    assert_eq!(lines.len(), theirs.len());
    for (object, event) in lines.iter().zip(theirs) {
        assert_eq!(object["event"], *event.name);
        assert_eq!(object["cpu"], event.cpu);
        assert_eq!(object["context"]["vtid"], event.tid.unwrap());
        assert_eq!((&object["comm"], &object["tid"]), (&"traced".into(), &event.tid.into()));
        for (name, value) in object["fields"].as_object().unwrap() {
            let Some(value) = value.as_u64() else { continue };
            let hex = format!(" {name} = 0x{value:X}");
            // A value without a name.
            let bare = format!(" {name} = ( <unknown> : container = {value} )");
            let found = number(&event.line, name) == Some(value)
                || event.line.contains(&hex)
                || event.line.contains(&bare);
            assert!(found, "{name} = {value}: {}", event.line);
        }
    }
    let fields = &lines[3]["fields"];
    assert_eq!(fields["e"], serde_json::json!({"label": "GREENS", "value": 1}));
    assert_eq!((&fields["i64"], &fields["f"]), (&8589934592u64.into(), &0.33333334.into()));
    assert_eq!(lines[4]["fields"]["str"], "a \"quoted\" \\ back\nline\ttab\u{1}");
    assert_eq!(lines[4]["fields"]["a16"], serde_json::json!([31, 32, 33]));
}

fn filters(path: &str, theirs: &[Event]) {
    let count = |args: &[&str]| {
        let out = kymo(&[&["script"], args, &[path]].concat()).success();
        out.stdout.lines().count()
    };
    assert_eq!(count(&["--event", "kt:em*"]), 100);
    assert_eq!(count(&["--event", "rows,numbers"]), 200);
    for cpu in [0, 1] {
        let on = theirs.iter().filter(|e| e.cpu == cpu).count();
        assert_eq!(count(&["--cpu", &cpu.to_string()]), on);
    }
    let tid = theirs[0].tid.unwrap().to_string();
    assert_eq!((count(&["--tid", &tid]), count(&["--tid", "1"])), (300, 0));
    assert_eq!((count(&["--comm", "traced"]), count(&["--comm", "other"])), (300, 0));
    let (from, to) = (theirs[100].time, theirs[199].time);
    let within = theirs.iter().filter(|e| (from..=to).contains(&e.time)).count();
    let seconds = |t: u64| format!("{}.{:09}", t / 1_000_000_000, t % 1_000_000_000);
    assert_eq!(count(&["--time", &format!("{},{}", seconds(from), seconds(to))]), within);
    assert_eq!(count(&["--time", "0%-100%"]), 300);
}

fn counts(path: &str, theirs: &[Event]) {
    let report = |sort: &str| -> BTreeMap<String, u64> {
        let out = kymo(&["report", "--json", "--sort", sort, path]).success().stdout;
        let page: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(page["events"], theirs.len());
        let entries = page["entries"].as_array().unwrap().iter();
        entries
            .map(|e| {
                let key = e[sort].as_str().unwrap_or_else(|| panic!("{e}"));
                (key.to_owned(), e["events"].as_u64().unwrap())
            })
            .collect()
    };
    let counted = |key: &dyn Fn(&Event) -> String| {
        let mut counts = BTreeMap::<String, u64>::new();
        theirs.iter().for_each(|e| *counts.entry(key(e)).or_default() += 1);
        counts
    };
    let or_not = |n: Option<u64>| n.map_or("N/A".to_owned(), |n| n.to_string());
    assert_eq!(report("event"), counted(&|e| e.name.clone()));
    assert_eq!(report("comm"), BTreeMap::from([("traced".to_owned(), 300)]));
    assert_eq!(report("vtid"), counted(&|e| or_not(e.tid)));
    assert_eq!(report("cpu"), counted(&|e| e.cpu.to_string()));
    assert_eq!(report("numbers.u8"), counted(&|e| or_not(number(&e.line, "u8"))));
    let listed = kymo(&["list", "-i", path, "--json"]).success().stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let listed: BTreeMap<String, u64> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["name"].as_str().unwrap().to_owned(), e["events"].as_u64().unwrap()))
        .collect();
    assert_eq!(listed, counted(&|e| e.name.clone()));
    let wrong = kymo(&["report", "--sort", "numbers.colour", path]).failure().stderr;
    assert!(
        wrong.contains("numbers has no such field; it has vpid, vtid, procname, i8"),
        "{wrong}"
    );
}

#[test]
fn discarded_events_are_reported_and_damage_is_an_error() {
    if !require(&NEEDS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = record(dir.path(), false);
    let out = kymo(&["script", "--strict", &path]).expect_status(3);
    let events = out.stdout.lines().filter(|l| l.contains("kt:two: a=")).count();
    let lost: usize = out
        .stdout
        .lines()
        .filter_map(|l| {
            l.split_once('[')?.1.strip_suffix(" EVENTS DROPPED]")?.parse::<usize>().ok()
        })
        .sum();
    assert!(events > 0 && lost > 0 && events + lost <= 30_000, "{events} {lost}");
    let reported = 30_000 - events;
    let reported = format!("lost: {reported} events discarded by the tracer in ");
    assert!(out.stderr.contains(&reported), "{}", out.stderr);
    // A stream that is cut: what is whole is shown, and the exit status says it.
    let directory = dir.path().join("trace/ust/uid");
    let user = std::fs::read_dir(directory).unwrap().next().unwrap().unwrap().path();
    // Where events were lost both buffers of a CPU were full.
    let cut = std::fs::read_dir(user.join("64-bit")).unwrap().flatten().find(|e| {
        e.file_name().to_string_lossy().starts_with("ch_") && e.metadata().unwrap().len() >= 8192
    });
    let file = std::fs::OpenOptions::new().write(true).open(cut.unwrap().path()).unwrap();
    file.set_len(2000).unwrap();
    let out = kymo(&["script", &path]).failure();
    assert!(out.stderr.contains("the packet is cut: 2000 of "), "{}", out.stderr);
    assert!(out.stdout.lines().count() > 50);
    let out = kymo(&["report", &path]).failure();
    assert!(out.stdout.contains("kt:two"), "{}", out.stdout);
}

#[test]
fn stacks_in_contexts_are_drawn() {
    if !require(&[]) {
        return;
    }
    // As LTTng's context callstack-user: a length and addresses, innermost first.
    let dir = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        typealias integer { size = 64; align = 8; base = x; } := u64;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { event.context := struct {
            u8 _callstack_user_length; u64 callstack_user[_callstack_user_length]; }; };
        event { name = \"a:b\"; fields := struct { u8 x; }; };";
    std::fs::write(dir.path().join("metadata"), metadata).unwrap();
    let mut stream = Vec::new();
    for stack in [&[0x1000u64, 0x3000][..], &[0x2000, 0x3000], &[0x1000, 0x3000], &[]] {
        stream.push(stack.len() as u8);
        stack.iter().for_each(|a| stream.extend(a.to_le_bytes()));
        stream.push(7);
    }
    std::fs::write(dir.path().join("stream"), stream).unwrap();
    let path = dir.path().to_str().unwrap();
    let json = kymo(&["report", "-g", "-s", "event", "--json", path]).success().stdout;
    let page: Value = serde_json::from_str(&json).unwrap();
    let stacks = &page["entries"][0]["stacks"];
    assert_eq!(page["entries"][0]["events"], 4);
    assert_eq!(stacks[0], serde_json::json!({"events": 2, "stack": ["0x1000", "0x3000"]}));
    assert_eq!(stacks[1], serde_json::json!({"events": 1, "stack": ["0x2000", "0x3000"]}));
    let cells = kymo(&["report", "-s", "stack", path]).success().stdout;
    assert!(cells.contains("0x1000 < 0x3000") && cells.contains("N/A"), "{cells}");
}
