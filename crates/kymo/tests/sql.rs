//! `kymo sql` and `kymo export`: numbers equal those of the answers' own commands and of the model
//! of the scheduler, in all formats; queries that write or have no end are refused.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

#[allow(dead_code, reason = "tests of `kymo sched` use the rest")]
mod sched_model;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, TracingState, Workload, require, run};
use sched_model::{CtfTrace, SchedRecord, model};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/sched.data");

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// Rows of a query.
fn rows(path: &str, query: &str) -> Vec<Value> {
    let text = kymo(&["sql", "--json", path, query]).success().stdout;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines_of(args: &[&str]) -> Vec<Value> {
    let text = kymo(args).success().stdout;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Each run of `sched timehist` is a row of `sched_slice`, and the other way round.
#[track_caller]
fn slices_are_timehists(path: &str) -> usize {
    let slices = rows(
        path,
        "SELECT ts + dur AS time_ns, s.cpu, t.tid, dur AS run_ns, end_state AS state, cause, \
         coalesce(wakeup_delay, preempt_delay) AS delay_ns, migrated \
         FROM sched_slice s JOIN thread t USING (utid) WHERE dur IS NOT NULL AND t.tid <> 0",
    );
    let mut lines = lines_of(&["sched", "timehist", "--json", "-i", path]);
    lines.retain(|line| line["type"] == "switch" && !line["run_ns"].is_null() && line["tid"] != 0);
    let key = |row: &Value| (row["time_ns"].as_u64(), row["cpu"].as_u64());
    let by_key =
        |rows: Vec<Value>| rows.into_iter().map(|r| (key(&r), r)).collect::<BTreeMap<_, _>>();
    let (slices, lines) = (by_key(slices), by_key(lines));
    assert!(slices.len() > 10, "{slices:?}");
    assert!(slices.keys().eq(lines.keys()), "{path}: other runs");
    for (slice, line) in slices.values().zip(lines.values()) {
        for name in ["tid", "run_ns", "state", "cause", "delay_ns"] {
            assert_eq!(slice[name], line[name], "{name}: {slice} {line}");
        }
        assert_eq!(
            slice["migrated"].as_u64().map(|n| n == 1),
            line["migrated"].as_bool(),
            "{slice} {line}"
        );
    }
    slices.len()
}

/// Delays by thread, as the model has them of events that `kymo script` shows.
#[track_caller]
fn delays_are_the_models(path: &str, records: &[SchedRecord]) {
    let expected: BTreeMap<u32, [u64; 3]> = model(records)
        .into_iter()
        .filter(|(tid, row)| *tid != 0 && row.count > 0)
        .map(|(tid, row)| (tid, [row.count, row.total, row.max]))
        .collect();
    let found = rows(
        path,
        "SELECT t.tid, count(d) AS n, sum(d) AS total, max(d) AS longest FROM \
         (SELECT utid, coalesce(wakeup_delay, preempt_delay) AS d FROM sched_slice) \
         JOIN thread t USING (utid) WHERE d IS NOT NULL AND t.tid <> 0 GROUP BY t.tid",
    );
    let found: BTreeMap<u32, [u64; 3]> = found
        .iter()
        .map(|row| {
            let number = |name: &str| row[name].as_u64().unwrap();
            (number("tid") as u32, [number("n"), number("total"), number("longest")])
        })
        .collect();
    assert!(found.len() > 3, "{found:?}");
    assert_eq!(found, expected);
}

/// Times of states add up to those of runs, and do not overlap.
#[track_caller]
fn states_fit(path: &str) {
    let sums = rows(
        path,
        "SELECT (SELECT sum(dur) FROM thread_state WHERE state = 'Running') AS states, \
         (SELECT sum(dur) FROM sched_slice) AS runs",
    );
    assert_eq!(sums[0]["states"], sums[0]["runs"]);
    assert!(sums[0]["runs"].as_u64() > Some(0));
    let overlaps = rows(
        path,
        "SELECT count(*) AS n FROM (SELECT ts, lag(ts + dur) OVER (PARTITION BY utid ORDER BY ts, \
         dur) AS before FROM thread_state WHERE utid <> 0) WHERE before > ts",
    );
    assert_eq!(overlaps[0]["n"], 0, "states of a thread overlap");
    // Delays are the spans in which the thread could have run.
    let delays = rows(
        path,
        "SELECT (SELECT sum(wakeup_delay) FROM sched_slice WHERE utid <> 0) AS delays, \
         (SELECT sum(w.dur) FROM thread_state w JOIN sched_slice s ON s.utid = w.utid AND \
         s.ts = w.ts + w.dur WHERE s.wakeup_delay IS NOT NULL AND w.state IN ('R', 'R+')) AS states",
    );
    assert_eq!(delays[0]["delays"], delays[0]["states"]);
}

fn records(path: &str) -> Vec<SchedRecord> {
    let text = kymo(&["script", "-i", path, "--json"]).success().stdout;
    let parse = |l: &str| SchedRecord::parse(&serde_json::from_str(l).unwrap());
    text.lines().filter_map(parse).collect()
}

#[test]
fn runs_of_the_fixture_are_those_of_timehist_and_the_model() {
    slices_are_timehists(FIXTURE);
    delays_are_the_models(FIXTURE, &records(FIXTURE));
    states_fit(FIXTURE);
}

#[test]
fn runs_of_the_same_events_as_a_kernel_trace_of_lttng_are_those() {
    let records = records(FIXTURE);
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("kernel");
    CtfTrace { records: &records, packet: 12, stacks: false, without: &|_, _| false }.write(&trace);
    let path = trace.to_str().unwrap();
    assert_eq!(slices_are_timehists(path), slices_are_timehists(FIXTURE));
    delays_are_the_models(path, &records);
    states_fit(path);
    // They are events of the kernel, by LTTng's names.
    let names =
        rows(path, "SELECT DISTINCT name, system FROM ftrace_event WHERE name = 'sched_switch'");
    assert_eq!(names, [serde_json::json!({"name": "sched_switch", "system": "sched"})]);
}

/// A run whose end was not recorded is a row: its beginning and the delay before it are known.
#[test]
fn runs_whose_ends_are_missing_have_their_delays() {
    let mut switches = 0;
    let mut events = lines_of(&["script", "-i", FIXTURE, "--json"]);
    events.retain(|event| {
        let is_switch = event["event"].as_str().is_some_and(|name| name.ends_with("sched_switch"));
        switches += usize::from(is_switch);
        !is_switch || switches % 5 != 0
    });
    assert!(switches > 50, "{switches}");
    let records: Vec<SchedRecord> = events.iter().filter_map(SchedRecord::parse).collect();
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("kernel");
    CtfTrace { records: &records, packet: 12, stacks: false, without: &|_, _| false }.write(&trace);
    let path = trace.to_str().unwrap();
    slices_are_timehists(path);
    delays_are_the_models(path, &records);
    states_fit(path);
    let query = "SELECT count(*) AS n, min(uncertain) AS least, count(thread_name) AS names, \
                 max(ts) < (SELECT end_ts FROM trace_bounds) AS is_before FROM sched_slice \
                 WHERE dur IS NULL AND end_state IS NULL AND uncertain = 1";
    let found = rows(path, query);
    assert!(found[0]["n"].as_u64() > Some(5), "{found:?}");
    assert_eq!(found[0]["names"], found[0]["n"]);
}

/// Recorded by the ring of the kernel.
#[test]
fn runs_of_a_trace_dat_are_those_of_timehist_and_the_model() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.dat");
    let path = path.to_str().unwrap();
    let events = ["sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new"];
    let mut args = vec!["trace", "-o", path];
    let names: Vec<String> = events.iter().map(|name| format!("sched:{name}")).collect();
    names.iter().for_each(|name| args.extend(["-e", name.as_str()]));
    let script = "for i in $(seq 50); do sleep 0.001; done";
    args.extend(["-a", "--", "sh", "-c", script]);
    let _ = kymo(&args).success();
    slices_are_timehists(path);
    delays_are_the_models(path, &records(path));
    states_fit(path);
    let counts = rows(path, "SELECT count(*) AS n FROM ftrace_event");
    let lines = kymo(&["script", "-i", path]).success().stdout;
    let events = lines.lines().filter(|line| line.contains(": sched_")).count() as u64;
    assert_eq!(counts[0]["n"].as_u64(), Some(events));
}

#[test]
fn answers_are_tables() {
    let text = kymo(&["sched", "latency", "-p", "--json", "-i", FIXTURE]).success().stdout;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let tasks = answer["tasks"].as_array().unwrap();
    let query =
        "SELECT tid, comm, runtime_ns, switches, delay_count, delay_max_ns FROM sched_latency";
    let found = rows(FIXTURE, query);
    assert_eq!(found.len(), tasks.len());
    for task in tasks {
        let row = found.iter().find(|row| row["tid"] == task["tid"]).unwrap();
        for name in ["comm", "runtime_ns", "switches"] {
            assert_eq!(row[name], task[name], "{row} {task}");
        }
        assert_eq!(row["delay_count"], task["delay"]["count"]);
        assert_eq!(row["delay_max_ns"], task["delay"]["max_ns"]);
    }
    let text = kymo(&["offcpu", "report", "--json", "-i", FIXTURE]).success().stdout;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let tasks = answer["tasks"].as_array().unwrap();
    let found = rows(FIXTURE, "SELECT tid, blocked_ns, waiting_ns FROM offcpu");
    assert!(!tasks.is_empty());
    assert_eq!(found.len(), tasks.len());
    for task in tasks {
        let row = found.iter().find(|row| row["tid"] == task["tid"]).unwrap();
        assert_eq!(
            (&row["blocked_ns"], &row["waiting_ns"]),
            (&task["blocked_ns"], &task["waiting_ns"])
        );
    }
}

/// A row of a command's JSON as SQL has it: members of groups are columns, truth values numbers,
/// lists and records their JSON.
fn flat(row: &Value, columns: &BTreeSet<String>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (name, value) in row.as_object().unwrap() {
        match value {
            Value::Object(group) if !columns.contains(name) => {
                let members = group.iter().map(|(m, value)| (format!("{name}_{m}"), value.clone()));
                all.extend(members.filter(|(name, _)| columns.contains(name)));
            }
            Value::Bool(yes) => _ = all.insert(name.clone(), u8::from(*yes).into()),
            Value::Array(_) | Value::Object(_) => {
                _ = all.insert(name.clone(), value.to_string().into());
            }
            _ => _ = all.insert(name.clone(), value.clone()),
        }
    }
    all
}

/// A thread waits for a lock that another one holds for 20 ms.
const WAITS: &str = r"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *waiter(void *none) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return none;
}
int main(void) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    pthread_create(&thread, 0, waiter, 0);
    usleep(20000);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, 0);
    return 0;
}
";

/// Each table of an answer has the rows of the command that prints it.
#[test]
fn answers_are_those_of_their_commands() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let workload = Workload::syscalls();
    let written = file("written");
    let waits = Workload::compile("waits", WAITS);
    let (calls, locks) = (workload.arg(), waits.arg());
    let script = format!("{calls} 500; {locks}; dd if=/dev/zero of={written} count=20 conv=fsync");
    let record = |words: &str| {
        let path = file(&words.replace(' ', "-"));
        let words: Vec<&str> = words.split(' ').collect();
        let more = ["-q", "-o", &path, "--", "sh", "-c", &script];
        let _ = kymo(&[&words[..], &more].concat()).success();
        path
    };
    let cases = [
        ("sched record", "sched latency -p", "sched_latency", "tasks"),
        ("offcpu record", "offcpu report", "offcpu", "tasks"),
        ("syscalls record", "syscalls report --slowest 1000", "syscalls", "calls"),
        ("lock record", "lock contention", "lock_contention", "locks"),
        ("lock record --futex", "lock contention --futex", "lock_futex", "futexes"),
        ("kwork -k irq,softirq,workqueue,sched record", "kwork report", "kwork_report", "rows"),
        ("kwork -k irq,softirq,workqueue,sched record", "kwork top", "kwork_top", "tasks"),
        ("kmem record --slab --page", "kmem stat --slab --page --caller --alloc", "kmem_stat", ""),
        (
            "kmem record --slab --page",
            "kmem pagealloc --max-stack 16",
            "kmem_pagealloc",
            "processes",
        ),
    ];
    let mut recordings: BTreeMap<&str, String> = BTreeMap::new();
    for (recorder, command, answer, main) in cases {
        let path = recordings.entry(recorder).or_insert_with(|| record(recorder)).clone();
        let words: Vec<&str> = command.split(' ').collect();
        let text = kymo(&[&words[..], &["--json", "-i", &path]].concat()).success().stdout;
        let result: Value = serde_json::from_str(&text).unwrap();
        let mut compared = 0;
        for (member, expected) in result.as_object().unwrap() {
            let Some(expected) = expected.as_array() else { continue };
            let table =
                if member == main { answer.to_owned() } else { format!("{answer}_{member}") };
            let found = rows(&path, &format!("SELECT * FROM {table}"));
            assert_eq!(found.len(), expected.len(), "{table}: {expected:#?}");
            let Some(first) = found.first() else { continue };
            let columns: BTreeSet<String> = first.as_object().unwrap().keys().cloned().collect();
            let is_table = |value: &Value| {
                value.as_array().is_some_and(|rows| rows.iter().any(Value::is_object))
            };
            // Tables within rows have details in SQL.
            let within: BTreeSet<String> = expected
                .iter()
                .flat_map(|row| row.as_object().unwrap())
                .filter(|(_, value)| is_table(value))
                .map(|(name, _)| name.clone())
                .collect();
            let mut expected: Vec<BTreeMap<String, Value>> =
                expected.iter().map(|row| flat(row, &columns)).collect();
            // Details are columns too, which JSON leaves out.
            let mut names: BTreeSet<String> =
                expected.iter().flat_map(|r| r.keys().cloned()).collect();
            names.retain(|name| !within.contains(name));
            expected.iter_mut().for_each(|row| row.retain(|name, _| names.contains(name)));
            assert!(names.is_subset(&columns), "{table}: {names:?} {columns:?}");
            let of_row = |row: &Value| -> BTreeMap<String, Value> {
                names.iter().map(|name| (name.clone(), row[name].clone())).collect()
            };
            let mut found: Vec<BTreeMap<String, Value>> = found.iter().map(of_row).collect();
            for row in &mut expected {
                names.iter().for_each(|name| _ = row.entry(name.clone()).or_insert(Value::Null));
            }
            let in_order = |rows: &mut Vec<BTreeMap<String, Value>>| {
                rows.sort_by_cached_key(|row| format!("{row:?}"));
            };
            in_order(&mut expected);
            in_order(&mut found);
            for (one, other) in expected.iter().zip(&found) {
                assert_eq!(one, other, "{table} of {command}");
            }
            compared += expected.len();
        }
        // Nothing makes sure that a lock of the kernel is waited for.
        assert!(compared > 0 || answer == "lock_contention", "{command}: {text}");
    }
}

#[test]
fn fields_of_events_are_rows() {
    let lines = lines_of(&["script", "--json", "-i", FIXTURE]);
    let query = "SELECT e.ts, e.name, a.key, a.int_value, a.string_value FROM ftrace_event e \
                 JOIN args a USING (arg_set_id) WHERE e.name = 'sched_switch' AND a.key IN \
                 ('prev_pid', 'next_comm') ORDER BY e.id, a.id";
    let found = rows(FIXTURE, query);
    let switches: Vec<&Value> = lines
        .iter()
        .filter(|line| line["event"].as_str().is_some_and(|e| e.ends_with("sched_switch")))
        .collect();
    assert!(!switches.is_empty());
    assert_eq!(found.len(), 2 * switches.len());
    for (line, pair) in switches.iter().zip(found.chunks(2)) {
        let by_key = |key: &str| pair.iter().find(|row| row["key"] == key).unwrap();
        assert_eq!(by_key("prev_pid")["int_value"], line["fields"]["prev_pid"]);
        assert_eq!(by_key("next_comm")["string_value"], line["fields"]["next_comm"]);
    }
}

#[test]
fn queries_that_write_or_have_no_end_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.sqlite");
    let attach = format!("ATTACH '{}' AS x", other.display());
    let vacuum = format!("VACUUM INTO '{}'", other.display());
    let refused = |query: &str, word: &str| {
        let outcome = kymo(&["sql", FIXTURE, query]).expect_status(1);
        assert!(outcome.stderr.contains(word), "{query}: {}", outcome.stderr);
        assert!(outcome.stdout.is_empty(), "{query}: {}", outcome.stdout);
    };
    refused(&attach, "ATTACH is refused");
    refused(&vacuum, "refused");
    refused("PRAGMA writable_schema = 1", "PRAGMA writable_schema is refused");
    refused("SELECT * FROM pragma_table_info('thread')", "PRAGMA table_info is refused");
    refused("CREATE TABLE x (a)", "refused");
    refused("CREATE TEMP TABLE x (a)", "refused");
    refused("INSERT INTO thread (tid) VALUES (1)", "refused");
    // Tables without a way to write have words of SQLite's own.
    refused("DELETE FROM thread", "may not be modified");
    refused("UPDATE thread SET tid = 1", "may not be modified");
    let outcome = kymo(&["sql", FIXTURE, "DROP TABLE thread"]).expect_status(1);
    assert!(!outcome.stderr.is_empty());
    refused("BEGIN", "a transaction is refused");
    refused("SELECT load_extension('x')", "load_extension");
    refused("INCLUDE PERFETTO MODULE sched.runqueue", "INCLUDE PERFETTO MODULE");
    refused("CREATE PERFETTO TABLE x AS SELECT 1", "CREATE PERFETTO");
    refused("SELECT 18446744073709551615", "the largest integer of SQL");
    refused("SELECT unknown FROM thread", "no such column: unknown");
    assert!(!other.exists());
    let endless =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";
    let limited =
        |query: &str| kymo(&["sql", "--time-limit", "1", "--memory-limit", "64", FIXTURE, query]);
    let outcome = limited(endless).expect_status(1);
    assert!(outcome.stderr.contains("--time-limit"), "{}", outcome.stderr);
    for huge in [
        "SELECT length(zeroblob(2000000000))",
        "SELECT length(printf('%.*c', 1000000000, 'x'))",
        "WITH RECURSIVE n(x) AS (SELECT randomblob(1000000) UNION ALL SELECT randomblob(1000000) \
         FROM n LIMIT 1000000) SELECT count(*) FROM (SELECT x FROM n ORDER BY x)",
        "SELECT group_concat(hex(a.key) || b.key) FROM args a, args b, args c",
    ] {
        let outcome = limited(huge).expect_status(1);
        let words = ["--memory-limit", "too big", "--time-limit"];
        assert!(
            words.iter().any(|word| outcome.stderr.contains(word)),
            "{huge}: {}",
            outcome.stderr
        );
    }
}

/// Names of threads with escape sequences, and text that is not UTF-8.
#[test]
fn hostile_text_is_escaped() {
    let query =
        "SELECT char(27) || '[2J' AS \"a\u{1b}b\", CAST(x'ff00' AS TEXT) AS b, x'00ff' AS c";
    for format in [&[][..], &["--csv"], &["--json"]] {
        let args = [&["sql"][..], format, &[FIXTURE, query]].concat();
        let outcome = kymo(&args).success();
        assert!(!outcome.stdout.contains(['\u{1b}', '\0']), "{format:?}: {:?}", outcome.stdout);
        assert!(outcome.stdout.contains("x'00ff'"), "{format:?}: {:?}", outcome.stdout);
    }
}

#[test]
fn several_recordings_are_machines_and_warnings_are_rows() {
    let query = "SELECT machine_id, count(*) AS n FROM thread GROUP BY 1";
    let text = kymo(&["sql", "--json", FIXTURE, FIXTURE, query]).success().stdout;
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 2);
    assert_eq!(all[0]["n"], all[1]["n"]);
    assert_eq!((&all[0]["machine_id"], &all[1]["machine_id"]), (&Value::from(0), &Value::from(1)));
    let ledger = tempfile::tempdir().unwrap();
    let file = ledger.path().join("ledger");
    let file = file.to_str().unwrap();
    let query = "SELECT code, fact FROM trust WHERE (SELECT count(*) FROM sched_slice) > 0";
    let text = kymo(&["sql", "--json", "--ledger", file, FIXTURE, query]).success().stdout;
    let ledger = std::fs::read_to_string(file).unwrap();
    assert!(text.lines().count() > 0, "the fixture has runs that begin before it");
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert!(ledger.contains(row["code"].as_str().unwrap()), "{row} not in {ledger}");
    }
}

#[test]
fn tables_are_saved_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.sqlite");
    let file = file.to_str().unwrap();
    let _ = kymo(&["sql", FIXTURE, "--save", file]).success();
    let outcome = kymo(&["sql", FIXTURE, "--save", file]).expect_status(1);
    assert!(outcome.stderr.contains("exists"), "{}", outcome.stderr);
    let script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
                  print(c.execute('select count(*), sum(dur) from sched').fetchone())";
    let out = Command::new("python3").args(["-c", script, file]).output().unwrap();
    let read = String::from_utf8_lossy(&out.stdout).into_owned();
    let row = &rows(FIXTURE, "SELECT count(*) AS n, sum(dur) AS d FROM sched")[0];
    assert_eq!(read.trim(), format!("({}, {})", row["n"], row["d"]));
}

/// Python with DuckDB, as the tests of kymo-parquet make it.
/// A recording whose sections are cut off has all its events, and is damaged all the same.
#[test]
fn damaged_recordings_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let bytes = std::fs::read(FIXTURE).unwrap();
    for (name, missing) in [("sections.data", 60), ("records.data", 40_000)] {
        let cut = at(name);
        std::fs::write(&cut, &bytes[..bytes.len() - missing]).unwrap();
        let message = format!("kymo: {cut}: damaged; what can be read is ");
        let out = kymo(&["export", &cut, "-o", &at("tables")]).expect_status(1);
        assert!(out.stderr.contains(&format!("{message}exported\n")), "{}", out.stderr);
        // Of several recordings only that one.
        let query = "select count(*) from sched_slice";
        let out = kymo(&["sql", FIXTURE, &cut, query]).expect_status(1);
        assert!(out.stderr.contains(&format!("{message}in the tables\n")), "{}", out.stderr);
    }
    let _ = kymo(&["export", FIXTURE, "-o", &at("whole")]).success();
}

fn duckdb() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/parquet-peer");
    let python = target.join("bin/python");
    let has_duckdb = Command::new(&python).args(["-c", "import duckdb"]).output();
    if has_duckdb.is_ok_and(|out| out.status.success()) {
        return Some(python);
    }
    eprintln!("SKIPPED: no DuckDB in target/parquet-peer");
    None
}

#[test]
fn exported_rows_are_those_of_sql() {
    let Some(python) = duckdb() else { return };
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().to_str().unwrap();
    // Hosts whose names look like numbers stay three.
    for host in ["0012", "12", "1e5"] {
        let _ = kymo(&["export", FIXTURE, "-o", to, "--host", host]).success();
    }
    let script = r"
import duckdb, json, sys
sql = duckdb.connect()
path, table = sys.argv[1], sys.argv[2]
files = f'{path}/v1/{table}/*/*.parquet'
hosts = [r[0] for r in sql.execute(f'select distinct host from read_parquet(?, hive_partitioning = false) order by 1', [files]).fetchall()]
assert hosts == ['0012', '12', '1e5'], hosts
found = sql.execute('select * exclude (host, recording_id) from read_parquet(?, hive_partitioning = false) where host = ? order by id', [files, '12'])
names = [d[0] for d in found.description]
for row in found.fetchall():
    print(json.dumps(dict(zip(names, row))))
keys = dict(sql.execute('select key, value from parquet_kv_metadata(?)', [files]).fetchall())
assert keys[b'kymo.schema'] == b'1', keys
";
    for table in
        ["thread", "process", "sched_slice", "thread_state", "ftrace_event", "args", "trust"]
    {
        let out = Command::new(&python).args(["-c", script, to, table]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{table}: {said}");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let found: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!(!found.is_empty(), "{table}");
        if table == "trust" {
            continue;
        }
        assert_eq!(found, rows(FIXTURE, &format!("SELECT * FROM {table}")), "{table}");
    }
}

/// One line for each table; `--tables` has the columns below them.
#[test]
fn tables_are_listed_without_a_query() {
    let short = kymo(&["sql", FIXTURE]).success().stdout;
    let long = kymo(&["sql", "--tables"]).success().stdout;
    for table in ["thread", "sched_slice", "args", "trust", "offcpu", "io_latency", "sched"] {
        let has = |line: &str| line.split_whitespace().next() == Some(table);
        assert!(short.lines().any(has), "{table}: {short}");
        assert!(long.lines().any(|line| line.starts_with(&format!("{table}: "))), "{table}");
    }
    assert!(!short.contains("wakeup_delay") && long.contains("    wakeup_delay "), "{long}");
    assert!(short.lines().count() < 80, "{short}");
}
