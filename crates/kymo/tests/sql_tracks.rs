//! `kymo sql`: slices, counters, tracks and clocks are those that the events state, by readings of
//! the events in these tests, by babeltrace's, perf's and the programs' own.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::{BTreeMap, BTreeSet};

use kymo_testkit::{Need, TracingState, Workload, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Rows of a query, or of several.
fn rows(path: &str, query: &str) -> Vec<Value> {
    let text = run(KYMO, ["sql", "--json", path, query]).success().stdout;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name} of {row}"))
}

/// A line of babeltrace: nanoseconds since 1970, event, thread, and its own fields.
struct Line {
    time: u64,
    event: String,
    tid: u64,
    fields: BTreeMap<String, String>,
}

fn babeltrace(name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    let line = |line: &str| {
        let (time, rest) = line.strip_prefix('[')?.split_once("] ")?;
        let (head, contexts) = rest.split_once(": {")?;
        let tid = contexts.split_once("vtid = ")?.1;
        let tid = tid[..tid.find(|c: char| !c.is_ascii_digit())?].parse().ok()?;
        let own = contexts.rsplit_once("}, {")?.1.trim_end_matches(" }");
        let fields = own.split(", ").filter_map(|field| field.trim().split_once(" = "));
        Some(Line {
            time: time.replace('.', "").parse().ok()?,
            event: head.rsplit(' ').next()?.to_owned(),
            tid,
            fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        })
    };
    text.lines().filter_map(line).collect()
}

/// All relations between the tables hold.
#[track_caller]
fn tables_fit(path: &str) {
    let none = |what: &str, query: &str| {
        let found = rows(path, query);
        assert_eq!(found[0]["n"], 0, "{path}: {what}: {query}");
    };
    none(
        "slices without the event that starts them, or of another thread",
        "SELECT count(*) AS n FROM slice s JOIN track t ON t.id = s.track_id LEFT JOIN \
         (SELECT arg_set_id, ts, utid FROM ftrace_event UNION ALL \
          SELECT arg_set_id, ts, utid FROM program_event) e ON e.arg_set_id = s.arg_set_id \
         WHERE e.ts IS NULL OR e.ts <> s.ts OR t.utid <> e.utid",
    );
    none(
        "parents that do not hold their children",
        "SELECT count(*) AS n FROM slice c LEFT JOIN slice p ON p.id = c.parent_id \
         WHERE (c.depth > 0) <> (p.id IS NOT NULL) OR p.track_id <> c.track_id \
         OR p.depth <> c.depth - 1 OR p.ts > c.ts OR p.ts + p.dur < c.ts + c.dur",
    );
    none(
        "overlaps on a track at one depth",
        "SELECT count(*) AS n FROM (SELECT ts, lag(ts + dur) OVER (PARTITION BY track_id, depth \
         ORDER BY ts, id) AS before FROM slice) WHERE before > ts",
    );
    none(
        "tracks without slices or counters",
        "SELECT count(*) AS n FROM track WHERE (event_type = 'slice' AND id NOT IN \
         (SELECT track_id FROM slice)) OR (event_type = 'counter' AND id NOT IN \
         (SELECT track_id FROM counter))",
    );
    none(
        "owners that are not there",
        "SELECT count(*) AS n FROM track t LEFT JOIN thread USING (utid) LEFT JOIN process p ON \
         p.upid = t.upid WHERE (t.utid IS NOT NULL AND thread.tid IS NULL) OR \
         (t.upid IS NOT NULL AND p.pid IS NULL)",
    );
    none(
        "counter tracks that differ from tracks",
        "SELECT count(*) AS n FROM (SELECT id, name, type, utid, upid, cpu FROM counter_track \
         EXCEPT SELECT id, name, type, utid, upid, cpu FROM track WHERE event_type = 'counter')",
    );
    // Numbers are the same whichever tables a query reads.
    let query = "SELECT c.id, c.ts, c.value, c.track_id, t.name FROM counter c \
                 JOIN counter_track t ON t.id = c.track_id";
    let alone = rows(path, query);
    let all = format!(
        "{query} WHERE (SELECT count(*) FROM slice) >= 0 AND \
                       (SELECT count(*) FROM sched_slice) >= 0"
    );
    assert_eq!(alone, rows(path, &all));
}

/// Spans by pairs of tracepoints.
#[test]
fn spans_of_programs_are_slices() {
    let path = fixture("ctf/x86_64/kymo-session");
    let lines = babeltrace("ctf/x86_64/kymo-session.babeltrace.txt");
    let mut expected = Vec::new();
    let mut begun: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for line in &lines {
        let Some(id) = line.fields.get("id") else { continue };
        let key = (line.tid, id.clone());
        match line.event.as_str() {
            "request:begin" => _ = begun.insert(key, line.time),
            "request:end" => expected.push((line.tid, begun.remove(&key).unwrap(), line.time)),
            _ => {}
        }
    }
    expected.sort_by_key(|span| span.1);
    let found = rows(
        &path,
        "SELECT s.ts, s.dur, s.category, s.depth, thread.tid FROM slice s \
         JOIN thread_track k ON k.id = s.track_id JOIN thread USING (utid) \
         WHERE s.name = 'request' AND k.type = 'thread_execution' ORDER BY s.ts",
    );
    assert!(expected.len() > 5 && begun.is_empty());
    assert_eq!(found.len(), expected.len());
    let first = (number(&found[0], "ts"), expected[0].1);
    for (row, (tid, from, to)) in found.iter().zip(&expected) {
        assert_eq!((number(row, "tid"), number(row, "depth")), (*tid, 0));
        assert_eq!(row["category"], "program");
        // Ticks become nanoseconds along another line than babeltrace's.
        assert!(number(row, "dur").abs_diff(to - from) < 100, "{row} {from} {to}");
        assert!((number(row, "ts") - first.0).abs_diff(from - first.1) < 10_000, "{row} {from}");
    }
    // Pairs in events as SQL has them, to the nanosecond.
    let events = rows(
        &path,
        "SELECT e.ts, e.name, e.utid, a.int_value AS id FROM program_event e JOIN args a \
         USING (arg_set_id) WHERE a.key = 'id' AND e.system = 'request' ORDER BY e.id",
    );
    let mut exact = Vec::new();
    let mut begun = BTreeMap::new();
    for event in &events {
        let key = (number(event, "utid"), number(event, "id"));
        if event["name"] == "begin" {
            begun.insert(key, number(event, "ts"));
        } else if event["name"] == "end" {
            let from = begun.remove(&key).unwrap();
            exact.push((from, number(event, "ts") - from));
        }
    }
    exact.sort_unstable();
    let found: Vec<_> = found.iter().map(|row| (number(row, "ts"), number(row, "dur"))).collect();
    assert_eq!(found, exact);
    tables_fit(&path);
}

/// Numbers in fields of programs' events.
#[test]
fn numbers_of_programs_are_counters() {
    let of_lines = |name: &str, event: &str, field: &str| -> Vec<f64> {
        let lines = babeltrace(name);
        let own = lines.iter().filter(|line| line.event == event);
        own.map(|line| line.fields[field].parse().unwrap()).collect()
    };
    let of_sql = |path: &str, counter: &str| -> Vec<Value> {
        let query = format!(
            "SELECT value, pid, tid FROM counters c JOIN counter_track k ON k.id = c.track_id \
             LEFT JOIN process USING (upid) LEFT JOIN thread ON thread.utid = k.utid \
             WHERE c.name = '{counter}' ORDER BY c.id"
        );
        rows(path, &query)
    };
    let values = |found: &[Value]| -> Vec<f64> {
        found.iter().map(|row| row["value"].as_f64().unwrap()).collect()
    };
    let text = "ctf/x86_64/lttng-ust.babeltrace.txt";
    let path = fixture("ctf/x86_64/lttng-ust");
    for field in ["number", "load"] {
        let expected = of_lines(text, "corpus:request", field);
        let found = of_sql(&path, &format!("corpus:request {field}"));
        assert!(expected.len() > 10 && values(&found) == expected, "{found:?} {expected:?}");
        assert!(found.iter().all(|row| row["pid"] == 162), "{found:?}");
    }
    tables_fit(&path);
    let text = "ctf/x86_64/kymo-session.babeltrace.txt";
    let path = fixture("ctf/x86_64/kymo-session");
    let found = of_sql(&path, "request:ask id");
    let expected = of_lines(text, "request:ask", "id");
    assert!(!expected.is_empty() && values(&found) == expected, "{found:?} {expected:?}");
}

/// System calls, interrupts and softirqs are pairs of events; answers their numbers by kind.
#[track_caller]
fn pairs_are_slices(path: &str) -> BTreeMap<String, usize> {
    let events = rows(
        path,
        "SELECT e.ts, e.name, e.utid, e.cpu, max(CASE WHEN a.key IN ('id', 'irq', 'vec') THEN \
         a.int_value END) AS number FROM ftrace_event e JOIN args a USING (arg_set_id) \
         WHERE e.name IN ('sys_enter', 'sys_exit', 'irq_handler_entry', 'irq_handler_exit', \
         'softirq_entry', 'softirq_exit') GROUP BY e.id ORDER BY e.id",
    );
    let mut open: BTreeMap<(String, u64), (u64, Value)> = BTreeMap::new();
    let mut expected: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for event in &events {
        let name = event["name"].as_str().unwrap();
        let (kind, owner) = match name.split_once('_').unwrap().0 {
            "sys" => ("syscall", "utid"),
            "irq" => ("irq", "cpu"),
            _ => ("softirq", "cpu"),
        };
        let key = (kind.to_owned(), number(event, owner));
        let time = number(event, "ts");
        if name.ends_with("entry") || name.ends_with("enter") {
            open.insert(key, (time, event["number"].clone()));
        } else if let Some((from, id)) = open.remove(&key) {
            // The end of rt_sigreturn (15) has the number of the code that a signal interrupted.
            assert!(id == event["number"] || id == 15, "{id} {event}");
            expected.entry(kind.to_owned()).or_default().push((from, time - from));
        }
    }
    // Calls that do not return end with their threads.
    for (kind, expected) in &mut expected {
        expected.sort_unstable();
        let query = format!(
            "SELECT ts, dur FROM slice WHERE category = '{kind}' AND dur IS NOT NULL \
             AND name NOT IN ('exit', 'exit_group') ORDER BY ts, dur"
        );
        let found = rows(path, &query);
        let found: Vec<_> =
            found.iter().map(|row| (number(row, "ts"), number(row, "dur"))).collect();
        assert_eq!(found, *expected, "{kind}");
    }
    tables_fit(path);
    expected.into_iter().map(|(kind, spans)| (kind, spans.len())).collect()
}

/// A ring that has lost its first events.
#[test]
fn calls_of_a_trace_dat_are_slices() {
    let path = fixture("trace-dat/x86_64/ring.dat");
    assert!(pairs_are_slices(&path)["syscall"] > 50);
    // Linux's numbers of the calls of x86-64.
    let numbers = [("read", 0), ("write", 1), ("mmap", 9), ("openat", 257), ("exit_group", 231)];
    for (name, id) in numbers {
        let query = format!(
            "SELECT count(*) AS n, sum(a.int_value = {id}) AS same FROM slice s JOIN args a \
             USING (arg_set_id) WHERE s.name = '{name}' AND a.key = 'id'"
        );
        let found = rows(&path, &query);
        assert!(number(&found[0], "n") > 0, "{name}");
        assert_eq!(found[0]["n"], found[0]["same"], "{name}");
    }
}

#[test]
fn interrupts_of_a_trace_dat_are_slices() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("irq.dat");
    let path = path.to_str().unwrap();
    let script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.01; done; \
                  dd if=/dev/zero of=$0 bs=4k count=9 oflag=dsync 2>/dev/null; rm $0";
    let written = directory.path().join("written");
    let args = ["trace", "-q", "-a", "-e", "irq", "-o", path, "--", "sh", "-c", script];
    let _ = run(KYMO, [&args[..], &[written.to_str().unwrap()]].concat()).success();
    let counts = pairs_are_slices(path);
    assert!(counts.get("softirq").is_some_and(|count| *count > 5), "{counts:?}");
    // Names of softirqs are those of the kernel (`show_softirq_name`), for the number in the event.
    let found = rows(
        path,
        "SELECT DISTINCT s.name, a.int_value AS vec FROM slice s JOIN args a USING (arg_set_id) \
         WHERE s.category = 'softirq' AND a.key = 'vec'",
    );
    let names = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    for row in found {
        assert_eq!(row["name"], names[number(&row, "vec") as usize], "{row}");
    }
}

/// The spans of a timeline are those slices, but for what has no end.
#[test]
fn slices_are_those_of_a_timeline() {
    let path = fixture("trace-dat/x86_64/ring.dat");
    let text = run(KYMO, ["convert", "--to", "chrome", &path]).success().stdout;
    let trace: Value = serde_json::from_str(&text).unwrap();
    // Microseconds with three digits after the point.
    let nanos = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as u64;
    let mut drawn = BTreeSet::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" && event["cat"] == "syscall" {
            let name = event["name"].as_str().unwrap().to_owned();
            drawn.insert((name, nanos(&event["ts"]), nanos(&event["dur"])));
        }
    }
    let query = "SELECT name, ts, dur FROM slice WHERE dur > 0 AND name <> 'rt_sigreturn'";
    let found = rows(&path, query);
    assert!(found.len() > 50);
    for row in &found {
        let name = row["name"].as_str().unwrap().to_owned();
        let slice = (name, number(row, "ts"), number(row, "dur"));
        assert!(drawn.contains(&slice), "{slice:?} is not drawn");
    }
}

/// Calls whose number is known.
#[test]
fn calls_of_a_perf_data_are_slices() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let calls = Workload::syscalls();
    let path = calls.file("calls.data");
    let _ = run(
        KYMO,
        [
            "record",
            "-q",
            "-e",
            "raw_syscalls:sys_enter,raw_syscalls:sys_exit",
            "-o",
            &path,
            "--",
            calls.arg(),
            "321",
        ],
    )
    .success();
    let found = rows(
        &path,
        "SELECT count(*) AS n, count(dur) AS ended, count(DISTINCT track_id) AS tracks, \
         min(depth) AS least, max(depth) AS most FROM slice WHERE name = 'getppid'",
    );
    let expected = serde_json::json!({"n": 321, "ended": 321, "tracks": 1, "least": 0, "most": 0});
    assert_eq!(found, [expected]);
    // The last call does not return, and nothing states when the thread ended.
    let last = rows(&path, "SELECT name, dur FROM slice ORDER BY id DESC LIMIT 1");
    assert_eq!(last, [serde_json::json!({"name": "exit_group", "dur": null})]);
    tables_fit(&path);
}

/// A program in which five signals are handled.
const SIGNALS: &str = r"
#include <signal.h>
static void handle(int number) { (void)number; }
int main(void) {
    signal(SIGUSR1, handle);
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    return 0;
}
";

#[test]
fn returns_from_signals_have_their_ends() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let signals = Workload::compile("signals", SIGNALS);
    let path = signals.file("signals.data");
    let events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    let args = ["record", "-q", "-e", events, "-o", &path, "--", signals.arg()];
    let _ = run(KYMO, args).success();
    let found = rows(
        &path,
        "SELECT count(*) AS n, count(dur) AS ended FROM slice WHERE name = 'rt_sigreturn'",
    );
    assert_eq!(found, [serde_json::json!({"n": 5, "ended": 5})]);
}

/// A program that marks spans and counters, and measures them itself.
const MARKS: &str = r#"
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static int file;
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void mark(const char *text) {
    long long before = now();
    if (write(file, text, strlen(text)) < 0) perror(text);
    printf("%lld %lld %s\n", before, now(), text);
}
int main(void) {
    // The instance of the tracer that started this program.
    char pattern[99];
    glob_t found;
    sprintf(pattern, "/sys/kernel/tracing/instances/kymo-%d-*/trace_marker", getppid());
    if (glob(pattern, 0, NULL, &found)) return 1;
    file = open(found.gl_pathv[0], O_WRONLY);
    mark("E");
    mark("B|1|outer");
    mark("C|1|queue|5");
    mark("B|1|inner");
    mark("S|1|load|7");
    usleep(2000);
    mark("E|1");
    mark("S|1|load|8");
    mark("C|1|queue|-2");
    mark("I|1|moment");
    mark("F|1|load|7");
    mark("E");
    mark("F|1|load|8");
    mark("B|1|open");
    mark("not a mark");
    return 0;
}
"#;

#[test]
fn marks_of_a_program_are_slices_and_counters() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let marks = Workload::compile("marks", MARKS);
    let path = marks.file("marks.dat");
    let args = ["trace", "-q", "--clock", "mono", "-e", "sched:sched_process_exit", "-o", &path];
    let outcome = run(KYMO, [&args[..], &["--", marks.arg()]].concat()).success();
    let measured: Vec<(u64, u64, String)> = outcome
        .stdout
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut time = || words.next()?.parse::<u64>().ok();
            Some((time()?, time()?, words.next()?.to_owned()))
        })
        .collect();
    assert_eq!(measured.len(), 14, "{} {}", outcome.stdout, outcome.stderr);
    let when = |number: usize| (measured[number].0, measured[number].1);
    let is_within = |time: u64, number: usize| {
        let (before, after) = when(number);
        assert!(before <= time && time <= after, "{time}: {:?}", measured[number]);
    };
    // Name, type of the track, depth, the marks that start and end it.
    let expected = [
        ("outer", "thread_execution", 0, 1, Some(10)),
        ("inner", "thread_execution", 1, 3, Some(5)),
        ("load", "atrace_async_slice", 0, 4, Some(9)),
        ("load", "atrace_async_slice", 0, 6, Some(11)),
        ("moment", "thread_execution", 1, 8, Some(8)),
        ("open", "thread_execution", 0, 12, None),
    ];
    let found = rows(
        &path,
        "SELECT s.id, s.ts, s.dur, s.name, s.depth, s.category, s.parent_id, t.type, t.id AS track, \
         t.track_group_id AS grouped FROM slice s JOIN track t ON t.id = s.track_id ORDER BY s.id",
    );
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (row, (name, of, depth, start, end)) in found.iter().zip(expected) {
        assert_eq!((&row["name"], &row["type"]), (&name.into(), &of.into()), "{row}");
        assert_eq!((&row["depth"], &row["category"]), (&depth.into(), &"trace_marker".into()));
        is_within(number(row, "ts"), start);
        match end {
            Some(end) => is_within(number(row, "ts") + number(row, "dur"), end),
            None => assert!(row["dur"].is_null(), "{row}"),
        }
    }
    assert_eq!(
        (&found[1]["parent_id"], &found[4]["parent_id"]),
        (&found[0]["id"], &found[0]["id"])
    );
    assert_eq!(found[4]["dur"], 0);
    // Two that overlap are on two tracks of one group.
    assert_ne!(found[2]["track"], found[3]["track"]);
    assert_eq!(found[2]["grouped"], found[3]["grouped"]);
    assert_eq!(found[2]["grouped"], found[2]["track"]);
    let found = rows(
        &path,
        "SELECT ts, value, t.name, t.type FROM counter c JOIN counter_track t \
         ON t.id = c.track_id ORDER BY c.id",
    );
    for ((row, value), start) in found.iter().zip([5.0, -2.0]).zip([2, 7]) {
        assert_eq!((&row["name"], &row["type"]), (&"queue".into(), &"atrace_counter".into()));
        assert_eq!(row["value"].as_f64(), Some(value));
        is_within(number(row, "ts"), start);
    }
    assert_eq!(found.len(), 2);
    tables_fit(&path);
}

#[test]
fn clocks_are_those_that_recordings_state() {
    let query = "SELECT ts, clock_id, clock_name, clock_value, snapshot_id FROM clock_snapshot";
    // As `perf report --header-only` shows the section of this file:
    // `# reference time: … = 1795374818.494812 (TOD) = 3792.466725969 (monotonic)`
    let found = rows(&fixture("perf-data/x86_64/kymo.data"), query);
    let monotonic = 3_792_466_725_969_u64;
    let row = |ts: u64, id: u32, name: &str, value: u64| {
        serde_json::json!({
            "ts": ts, "clock_id": id, "clock_name": name, "clock_value": value, "snapshot_id": 0,
        })
    };
    assert_eq!(found[0], row(monotonic, 3, "MONOTONIC", monotonic));
    // perf shows microseconds.
    let wall = number(&found[1], "clock_value");
    assert_eq!((found.len(), wall / 1000), (2, 1_795_374_818_494_812));
    assert_eq!(found[1], row(monotonic, 1, "REALTIME", wall));
    // `offset` in its metadata.
    let found = rows(&fixture("ctf/x86_64/lttng-ust"), query);
    let offset = 1_795_371_026_028_086_903;
    assert_eq!(found, [row(0, 3, "MONOTONIC", 0), row(0, 1, "REALTIME", offset)]);
    // The first line of babeltrace is the first event.
    let first = babeltrace("ctf/x86_64/lttng-ust.babeltrace.txt")[0].time;
    let query = format!("SELECT start_ts + {offset} AS first FROM trace_bounds");
    assert_eq!(number(&rows(&fixture("ctf/x86_64/lttng-ust"), &query)[0], "first"), first);
    // A trace.dat without the option DATE.
    let count = "SELECT count(*) AS n FROM clock_snapshot";
    assert_eq!(rows(&fixture("trace-dat/x86_64/v7.dat"), count)[0]["n"], 0);
}

/// Views of Perfetto's prelude.
#[test]
fn views_have_perfettos_names() {
    let path = fixture("perf-data/x86_64/fp.data");
    let found = rows(
        &path,
        "SELECT count(*) AS n, count(upid) AS processes, count(stack(callsite_id)) AS stacks, \
         min(source) AS source FROM stack_sample",
    );
    let samples = rows(&path, "SELECT count(callsite_id) AS n FROM perf_sample");
    assert!(number(&found[0], "n") > 100, "{found:?}");
    for column in ["n", "processes", "stacks"] {
        assert_eq!(found[0][column], samples[0]["n"], "{column}");
    }
    assert_eq!(found[0]["source"], "linux.perf");
    let path = fixture("trace-dat/x86_64/ring.dat");
    let found = rows(
        &path,
        "SELECT (SELECT count(*) FROM slices) AS slices, (SELECT count(*) FROM slice) AS slice, \
         (SELECT count(*) FROM thread_track) + (SELECT count(*) FROM process_track) \
         + (SELECT count(*) FROM cpu_track) AS tracks, (SELECT count(*) FROM track) AS track, \
         (SELECT count(*) FROM cpu_counter_track) + (SELECT count(*) FROM process_counter_track) \
         + (SELECT count(*) FROM thread_counter_track) AS counters, \
         (SELECT count(*) FROM counter_track) AS counter",
    );
    let row = &found[0];
    assert!(number(row, "slice") > 50 && row["slice"] == row["slices"], "{row}");
    assert_eq!(number(row, "tracks") + number(row, "counter"), number(row, "track"), "{row}");
    assert_eq!(row["counters"], row["counter"]);
    let listed = run(KYMO, ["sql", "--tables"]).success().stdout;
    for name in ["slice", "track", "counter", "counter_track", "clock_snapshot", "stack_sample"] {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{name}: "))), "{name}");
    }
}
