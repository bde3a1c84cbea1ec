//! `kymo sched` of a small recording that is kept: against what perf sched says of it, against
//! a model of both, and the same events as LTTng's kernel traces, complete and with losses.
//! `BLESS=1` renews what perf 6.1 says.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod sched_model;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use kymo_testkit::{Need, Outcome, TracingState, perf, require, run};
use sched_model::{CtfTrace, ModelRow, SchedRecord, model, perf_model};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64");

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn fixture() -> String {
    format!("{FIXTURES}/sched.data")
}

/// Returns perf's output for the fixture.
fn kept(name: &str, args: &[&str]) -> String {
    let path = format!("{FIXTURES}/{name}");
    if std::env::var_os("BLESS").is_some_and(|b| b == "1") {
        let said = perf(args).success().stdout;
        std::fs::write(&path, said).unwrap();
    }
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}; BLESS=1 makes it"))
}

/// Events of a recording, as `kymo script` shows them.
fn records(path: &str) -> Vec<SchedRecord> {
    let text = kymo(&["script", "-i", path, "--json"]).success().stdout;
    text.lines().filter_map(|l| SchedRecord::parse(&serde_json::from_str(l).unwrap())).collect()
}

/// Rows of `perf sched latency -p` by thread: run time, switches, mean and longest delay.
fn perf_rows(text: &str) -> BTreeMap<u32, [String; 4]> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [name, runtime, switches, average, max, ..] = cells[..] else { return None };
        let tid = name.rsplit_once(':')?.1.parse().ok()?;
        let number = |cell: &str| {
            let number = cell.rsplit_once(':').map_or(cell, |(_, n)| n);
            number.trim().trim_end_matches(" ms").to_owned()
        };
        Some((tid, [runtime, switches, average, max].map(number)))
    };
    text.lines().filter_map(row).collect()
}

fn millis(nanos: u64) -> String {
    format!("{:.3}", nanos as f64 / 1e6)
}

/// Asserts that the model of perf's rules gives what perf prints, row by row.
#[track_caller]
fn model_is_perf(records: &[SchedRecord], said: &str) {
    let rows = perf_rows(said);
    let expected: BTreeMap<u32, [String; 4]> = perf_model(records)
        .into_iter()
        // perf shows no idle tasks, and none without a wait.
        .filter(|(tid, row)| *tid != 0 && row.count > 0)
        .map(|(tid, r)| {
            let average = r.total / r.count;
            (tid, [millis(r.runtime), r.count.to_string(), millis(average), millis(r.max)])
        })
        .collect();
    assert!(rows.len() > 10, "{said}");
    assert_eq!(rows, expected);
}

/// Rows of `kymo sched latency -p --json` by thread.
fn kymo_rows(path: &str) -> BTreeMap<u32, ModelRow> {
    let text = kymo(&["sched", "latency", "-p", "--json", "-i", path]).success().stdout;
    let page: Value = serde_json::from_str(&text).unwrap();
    let row = |t: &Value| {
        let number = |v: &Value| v.as_u64().unwrap_or(0);
        let d = &t["delay"];
        let row = ModelRow {
            runtime: number(&t["runtime_ns"]),
            count: number(&d["count"]),
            total: number(&d["total_ns"]),
            max: number(&d["max_ns"]),
            switches: number(&t["switches"]),
        };
        (t["tid"].as_u64().unwrap() as u32, row)
    };
    page["tasks"].as_array().unwrap().iter().map(row).collect()
}

/// kymo's rows are the model's. perf 6.1 differs from it in these points:
/// - `perf sched record` records sched_waking, and `perf sched latency` looks at sched_wakeup
///   alone: no delay after a wake-up is in its table;
/// - a task that was preempted in the kernel (`R+`) sleeps for perf, its wait is not counted;
/// - a task that perf sees first has a wait of 0 ms, which lowers the mean: here it has none;
/// - a wake-up that comes before the `sched_switch` of the sleep it ends is lost on perf.
#[track_caller]
fn rows_are_the_models(records: &[SchedRecord], path: &str) {
    let mut expected = model(records);
    expected.retain(|tid, row| *tid != 0 && (row.switches > 0 || row.runtime > 0));
    let mut rows = kymo_rows(path);
    // Of run time between switches there is more than of accounted one: both see all tasks.
    rows.retain(|_, row| row.switches > 0 || row.runtime > 0);
    assert!(rows.len() > 3, "{rows:?}");
    assert_eq!(rows, expected);
}

#[test]
fn latency_of_the_fixture_is_the_models_and_the_model_is_perfs() {
    let path = fixture();
    let args = ["sched", "latency", "-p", "-i", &path];
    let records = records(&path);
    model_is_perf(&records, &kept("sched.latency.txt", &args));
    rows_are_the_models(&records, &path);
}

/// One line of `timehist`: time and CPU, name, the three times.
fn timehist_lines(text: &str) -> Vec<(String, String, [String; 3])> {
    let line = |l: &str| {
        let (head, rest) = l.split_once("]  ")?;
        let cells: Vec<&str> = rest.split_whitespace().collect();
        let (name, times) = cells.split_at_checked(cells.len().checked_sub(3)?)?;
        let times = [times[0], times[1], times[2]].map(str::to_owned);
        Some((head.trim().to_owned(), name.join(" "), times))
    };
    text.lines().filter_map(line).collect()
}

/// Lines are perf's but for what is explained here.
#[track_caller]
fn lines_are_perfs(ours: &str, theirs: &str) {
    let (ours, theirs) = (timehist_lines(ours), timehist_lines(theirs));
    assert_eq!(ours.len(), theirs.len());
    let mut equal = 0;
    for (our, their) in ours.iter().zip(&theirs) {
        assert_eq!(our.0, their.0);
        if our == their {
            equal += 1;
            continue;
        }
        let exiting = their.1.starts_with(":-1[");
        // Of an exiting task perf.data states -1: perf takes all of them for one.
        // And it takes no name from sched_switch where no other record has one.
        let unnamed = their.1.starts_with(':');
        // Long names of workers it cuts.
        let cut = our.1.starts_with(&their.1);
        assert!(unnamed || cut, "{our:?} {their:?}");
        for (n, (a, b)) in our.2.iter().zip(&their.2).enumerate() {
            // perf prints 0 for what it does not know, and loses a wake-up that comes
            // before the switch of the sleep that it ends.
            let unknown = a == "-" && (b == "0.000" || our.2[2] == "-");
            let early = n == 1 && b == "0.000" && a == &our.2[0];
            assert!(a == b || unknown || early || exiting && n < 2, "{our:?} {their:?}");
        }
    }
    assert!(equal * 2 > ours.len(), "only {equal} of {} lines are equal", ours.len());
}

#[test]
fn timehist_and_map_of_the_fixture_are_perfs() {
    let path = fixture();
    let args = ["sched", "timehist", "-i", &path];
    let ours = kymo(&args).success().stdout;
    let theirs = kept("sched.timehist.txt", &args);
    lines_are_perfs(&ours, &theirs);
    assert_eq!(
        ours.lines().take(3).collect::<Vec<_>>(),
        theirs.lines().take(3).collect::<Vec<_>>()
    );
    let args = ["sched", "map", "-i", &path];
    let map = |text: &str| -> Vec<String> {
        // perf reports a name again when a COMM record comes, here when the name changed.
        let line = |l: &str| l.split(" secs").next().unwrap().to_owned();
        text.lines().filter(|l| l.contains(" secs")).map(line).collect()
    };
    assert_eq!(map(&kymo(&args).success().stdout), map(&kept("sched.map.txt", &args)));
}

#[test]
fn numbers_are_those_of_the_lines_whatever_is_asked_for() {
    let path = fixture();
    let lines = |args: &[&str]| -> Vec<Value> {
        let all = [&["sched", "timehist", "--json", "-i", &path], args].concat();
        let text = kymo(&all).success().stdout;
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    let of = |lines: &[Value], kind: &str| -> Vec<Value> {
        lines.iter().filter(|l| l["type"] == kind).cloned().collect()
    };
    let all = lines(&["-w", "-M", "-S"]);
    let (switches, summary) = (of(&all, "switch"), of(&all, "summary"));
    assert_eq!((switches.len(), summary.len()), (219, 1));
    assert_eq!((of(&all, "wakeup").len(), of(&all, "migration").len()), (134, 3));
    let run = |l: &Value| l["run_ns"].as_u64().unwrap_or(0);
    assert_eq!(summary[0]["run_ns"].as_u64(), Some(switches.iter().map(run).sum()));
    // A task alone, by number and by name.
    let load: Vec<&Value> = switches.iter().filter(|l| l["tid"] == 8882).collect();
    let alone = lines(&["-t", "8882"]);
    assert_eq!(of(&alone, "switch").iter().collect::<Vec<_>>(), load);
    assert!(load.len() > 2 && load.iter().all(|l| l["comm"] == "load.sh"));
    // Half of the time, and a CPU: the same lines, but that runs are cut where the time begins.
    let half = of(&lines(&["--time", "15236.740,15236.760", "-C", "1"]), "switch");
    let time = |l: &Value| l["time_ns"].as_u64().unwrap();
    let late = switches.iter().filter(|l| time(l) >= 15_236_740_000_000 && l["cpu"] == 1);
    for (half, all) in half.iter().zip(late) {
        let cut = time(all) - run(all) < 15_236_740_000_000;
        assert_eq!((half["time_ns"].as_u64(), cut || half == all), (all["time_ns"].as_u64(), true));
        assert!(run(half) <= run(all) && (half["wait_ns"] == all["wait_ns"]));
    }
    assert!(half.len() > 30);
}

/// The fixture's events as LTTng's kernel tracer writes them.
fn ctf_of(
    records: &[SchedRecord],
    directory: &Path,
    without: &dyn Fn(u32, usize) -> bool,
) -> String {
    let path = directory.join("kernel");
    CtfTrace { records, packet: 12, stacks: false, without }.write(&path);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_same_events_of_lttng_give_the_same_numbers() {
    let (path, directory) = (fixture(), tempfile::tempdir().unwrap());
    let ctf = ctf_of(&records(&path), directory.path(), &|_, _| false);
    assert_eq!(kymo_rows(&ctf), kymo_rows(&path));
    let lines = |path: &str| switches(path).into_values().map(|l| numbers(&l)).collect::<Vec<_>>();
    assert_eq!(lines(&ctf), lines(&path));
    let map = |p: &str| kymo(&["sched", "map", "-i", p]).success().stdout;
    let columns = |text: String| -> Vec<String> {
        text.lines().map(|l| l.split(" secs").next().unwrap().to_owned()).collect()
    };
    assert_eq!(columns(map(&ctf)), columns(map(&path)));
}

/// Lines of runs by CPU and time.
fn switches(path: &str) -> BTreeMap<(u64, u64), Value> {
    let text = kymo(&["sched", "timehist", "--json", "-i", path]).stdout;
    let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let switches = lines.filter(|l| l["type"] == "switch");
    switches.map(|l| ((l["cpu"].as_u64().unwrap(), l["time_ns"].as_u64().unwrap()), l)).collect()
}

fn numbers(line: &Value) -> Vec<Value> {
    let all =
        ["tid", "wait_ns", "delay_ns", "wakeup_delay_ns", "run_ns", "cause", "state", "next_tid"];
    all.iter().map(|name| line[name].clone()).collect()
}

/// Packets of each CPU are taken out in turn: every number that is not the one of the complete
/// recording is marked, or is not there.
#[test]
fn no_number_is_wrong_that_is_not_marked() {
    let (path, directory) = (fixture(), tempfile::tempdir().unwrap());
    let records = records(&path);
    let complete = switches(&path);
    let (mut wrong, mut right) = (0, 0);
    for (cpu, packet) in (0..2).flat_map(|cpu| (1..20).map(move |packet| (cpu, packet))) {
        let without = |c: u32, p: usize| c == cpu && p == packet;
        let there = directory.path().join(format!("{cpu}-{packet}"));
        let ctf = ctf_of(&records, &there, &without);
        for (at, line) in switches(&ctf) {
            let truth = &complete[&at];
            for (name, value) in ["wait_ns", "delay_ns", "run_ns"].map(|n| (n, &line[n])) {
                match (value == &truth[name], &line["uncertain"]) {
                    (true, _) => right += 1,
                    (false, Value::Bool(true)) => wrong += 1,
                    // Not to know is not wrong.
                    (false, _) if value.is_null() => {}
                    (false, _) => panic!("packet {packet} of CPU {cpu}: {name}\n{line}\n{truth}"),
                }
            }
        }
    }
    assert!(wrong > 20 && right > 10_000, "{wrong} wrong, {right} right");
}

#[test]
fn live_recordings_give_the_models_numbers_in_both_formats() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let load = "for i in 1 2 3; do (for j in 1 2 3 4 5 6; do sleep 0.002; done; i=0; \
                while [ $i -lt 3000 ]; do i=$((i+1)); done) & done; wait";
    let workload = ["--", "sh", "-c", load];
    // Of everybody, as perf does it: it is short, and its directory is removed.
    let data = path("a.data");
    let record = ["sched", "record", "-q", "-o", &data];
    let _ = kymo(&[&record[..], &workload].concat()).success();
    let perf_records = records(&data);
    model_is_perf(&perf_records, &perf(["sched", "latency", "-p", "-i", &data]).stdout);
    rows_are_the_models(&perf_records, &data);
    let args = ["sched", "timehist", "-i", &data];
    lines_are_perfs(&kymo(&args).stdout, &perf(args).stdout);
    // With the event that perf does look at.
    let woken = path("c.data");
    let record = ["record", "-q", "-a", "-c", "1", "-o", &woken];
    let events =
        ["switch", "wakeup", "wakeup_new", "stat_runtime"].map(|e| format!("sched:sched_{e}"));
    let _ = kymo(&[&record[..], &["-e", &events.join(",")], &workload].concat()).success();
    let woken_records = records(&woken);
    model_is_perf(&woken_records, &perf(["sched", "latency", "-p", "-i", &woken]).stdout);
    rows_are_the_models(&woken_records, &woken);
    // Through the ftrace ring.
    let dat = path("b.dat");
    let record = ["sched", "record", "-q", "-o", &dat];
    let _ = kymo(&[&record[..], &workload].concat()).success();
    rows_are_the_models(&records(&dat), &dat);
    assert_eq!(state.left_behind(), None);
}

/// Stacks of a trace.dat are events of their own: each comes to the line that it belongs to, and the
/// lines are the same as without.
#[test]
fn call_chains_of_a_trace_dat_are_those_that_trace_cmd_shows() {
    if !require(&[Need::Root, Need::Tracefs, Need::TraceCmd]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("g.dat").to_str().unwrap().to_owned();
    let record = ["sched", "record", "-q", "-g", "-o", &path, "--", "sh", "-c"];
    let _ = kymo(&[&record[..], &["sleep 0.02; echo | cat; sleep 0.01"]].concat()).success();
    let hist = |more: &[&str]| {
        kymo(&[&["sched", "timehist", "-i", &path], more].concat()).success().stdout
    };
    // By thread and time: the functions behind `schedule`, outermost last.
    let mut theirs: BTreeMap<(u64, u64), Vec<String>> = BTreeMap::new();
    // A stack is the next event of its CPU; events of another may stand between.
    let (mut last, mut at) = (HashMap::new(), None);
    for line in run("trace-cmd", ["report", "-t", "-i", &path]).success().stdout.lines() {
        if let Some(function) = line.strip_prefix("=> ") {
            let name = function.split_once(" (").unwrap().0.to_owned();
            at.into_iter().for_each(|at| theirs.entry(at).or_default().push(name.clone()));
            continue;
        }
        let Some((head, rest)) = line.split_once(" [") else { continue };
        let (cpu, rest) = rest.split_once(']').unwrap();
        if rest.contains(" kernel_stack: ") {
            at = last.get(cpu).copied().flatten();
            continue;
        }
        let tid: u64 = head.rsplit_once('-').unwrap().1.trim().parse().unwrap();
        let time = rest.split_whitespace().next().unwrap().trim_end_matches(':');
        let time = time.replace('.', "").parse::<u64>().unwrap();
        last.insert(cpu.to_owned(), rest.contains(" sched_switch: ").then_some((tid, time)));
    }
    let (mut compared, mut sleeps) = (0, 0);
    for line in hist(&["--json", "--max-stack", "64"]).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(stack) = line["stack"].as_array() else { continue };
        let at = (line["tid"].as_u64().unwrap(), line["time_ns"].as_u64().unwrap());
        let stack: Vec<&str> = stack.iter().map(|f| f.as_str().unwrap()).collect();
        assert!(
            theirs[&at].iter().map(String::as_str).collect::<Vec<_>>().ends_with(&stack),
            "{line}"
        );
        assert!(!stack[0].contains("sched_switch") && stack[0] != "schedule", "{line}");
        compared += 1;
        let is_sleep = line["comm"] == "sleep" && stack.contains(&"hrtimer_nanosleep");
        sleeps += usize::from(is_sleep);
    }
    assert!(compared > 10 && sleeps >= 2, "{compared} {sleeps}");
    let cut = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|l| l.split("   ").collect::<Vec<_>>());
        let plain = lines.map(|mut parts| {
            parts.retain(|p| !p.contains(" <- "));
            parts.join("   ").trim_end().to_owned()
        });
        plain.collect()
    };
    assert_eq!(cut(&hist(&["--max-stack", "2"])), cut(&hist(&["-G"])));
}

/// LTTng's are fields of their events.
#[test]
fn call_chains_of_lttng_are_those_of_their_events() {
    let (path, directory) = (fixture(), tempfile::tempdir().unwrap());
    let (there, records) = (directory.path().join("kernel"), records(&path));
    CtfTrace { records: &records, packet: 12, stacks: true, without: &|_, _| false }.write(&there);
    let args = ["sched", "timehist", "--json", "-i", there.to_str().unwrap()];
    let mut seen = 0;
    for line in kymo(&args).success().stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["type"] == "switch" && line["tid"] != 0 {
            let time = line["time_ns"].as_u64().unwrap();
            assert_eq!(line["stack"], serde_json::json!([format!("{time:#x}"), "0xfff"]), "{line}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
    let none = kymo(&[&args[..], &["-G"]].concat()).success().stdout;
    assert!(!none.contains("\"stack\""), "{none}");
}

#[test]
fn what_is_missing_is_said() {
    let there = format!("{FIXTURES}/fp.data");
    let none = kymo(&["sched", "latency", "-i", &there, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("no sched_switch events") && none.stdout.contains("sched record"));
    let bad = kymo(&["sched", "latency", "--sort", "color", "-i", &there]).failure();
    assert!(bad.stderr.contains("unknown key \"color\""), "{}", bad.stderr);
    let map = kymo(&["sched", "map", "--comm", "sh", "-i", &there]).failure();
    assert!(map.stderr.contains("a map shows whatever its CPUs run"), "{}", map.stderr);
    let both = kymo(&["sched", "timehist", "-s", "-w", "-i", &there]).failure();
    assert!(both.stderr.contains("-S shows both"), "{}", both.stderr);
}

/// Time and priority of each run; perf does not know the number of threads that end.
fn priority_lines(text: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let (head, rest) = line.split_once(']')?;
        let prio = rest.split_whitespace().find(|word| {
            word.split("->").all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })?;
        let time = head.split_whitespace().next()?;
        (!rest.contains("awakened") && !rest.contains("migrated"))
            .then(|| (time.to_owned(), prio.rsplit("->").next().unwrap().to_owned()))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn priorities_choose_runs_and_are_shown_as_by_perf() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::NewestPeers]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prio.data").display().to_string();
    let script =
        "nice -n 7 sleep 0.01; for i in 1 2 3; do nice -n 5 sh -c 'sleep 0.002' | cat; done";
    let _ = kymo(&["sched", "record", "-q", "-o", &path, "--", "sh", "-c", script]).success();
    let newest = kymo_testkit::peer("perf");
    let show = |options: &[&str]| {
        let args = [&["sched", "timehist", "-i", &path, "--show-prio"], options].concat();
        let theirs = priority_lines(&newest.run(&args).success().stdout);
        let ours = priority_lines(&kymo(&args).success().stdout);
        // Runs of idle tasks have no number in both.
        assert_eq!(ours, theirs, "{options:?}");
        ours
    };
    let all = show(&[]);
    let of = |prio: &str| all.iter().filter(|(_, own)| own == prio).count();
    assert!(of("127") > 0 && of("125") > 0 && of("120") > 0, "{all:?}");
    // Of a run that is not seen to begin (this kernel leaves out some switches from idle tasks)
    // only the priority at its end is known; perf shows one that the task had before.
    let text = kymo(&["sched", "timehist", "-i", &path, "--show-prio"]).success().stdout;
    let unseen = text.lines().filter(|l| l.trim_end().ends_with('-') && l.contains("->"));
    assert_eq!(unseen.collect::<Vec<_>>(), Vec::<&str>::new());
    // A run whose priority changes within it is chosen by the one that it begins with; perf does
    // so too, but by the other if it is the first run of the task that perf sees.
    let chosen = ["sched", "timehist", "-i", &path, "--show-prio", "--prio", "125,127-130"];
    let some = priority_lines(&kymo(&chosen).success().stdout);
    assert!(!some.is_empty() && some.len() < all.len());
    // Other tasks of the machine may have been niced, too.
    let is_chosen =
        |prio: &str| ["125", "127", "128", "129", "130"].iter().any(|p| prio.contains(p));
    assert!(some.iter().all(|(_, prio)| is_chosen(prio)), "{some:?}");
    assert_eq!(show(&["--prio", "3"]), []);
    let args = ["sched", "timehist", "--json", "--show-prio", "--prio", "127", "-i", &path];
    let json = kymo(&args).success().stdout;
    let objects = json.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    let prios: Vec<Value> = objects.map(|o| o["prio"].clone()).collect();
    assert!(!prios.is_empty() && prios.iter().any(|p| *p == 127), "{prios:?}");
    let refused = kymo(&["sched", "timehist", "--prio", "high", "-i", &path]).failure();
    assert!(refused.stderr.contains("--prio: a list of priorities"), "{refused:?}");
}

#[test]
fn times_before_migrations_are_perfs() {
    if !require(&[Need::NewestPeers]) {
        return;
    }
    let path = fixture();
    let newest = kymo_testkit::peer("perf");
    let last = |text: &str| -> Vec<(String, String)> {
        let runs = text.lines().filter(|l| l.contains('[') && !l.contains("migrated"));
        let runs = runs.filter_map(|l| {
            let words: Vec<&str> = l.split_whitespace().collect();
            Some(((*words.first()?).to_owned(), (*words.last()?).to_owned()))
        });
        runs.filter(|(time, _)| time.contains('.')).collect()
    };
    let args = ["sched", "timehist", "-P", "-i", &path];
    let ours = last(&kymo(&args).success().stdout);
    let theirs = last(&newest.run(args).success().stdout);
    assert_eq!(ours, theirs);
    assert!(!ours.is_empty());
}

/// perf leaves out the switch from a task that ran before the recording began, and writes one
/// between two of the tasks twice.
#[test]
fn a_map_of_some_tasks_is_perfs() {
    if !require(&[Need::NewestPeers]) {
        return;
    }
    let path = fixture();
    let newest = kymo_testkit::peer("perf");
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.split_once(" secs"));
        let mut lines: Vec<String> = lines.map(|(line, _)| line.to_owned()).collect();
        lines.dedup_by_key(|line| line.rsplit(' ').next().map(str::to_owned));
        lines
    };
    let show = |options: &[&str]| {
        let args = [&["sched", "map", "-i", &path], options].concat();
        (lines(&kymo(&args).success().stdout), lines(&newest.run(&args).success().stdout))
    };
    let (whole, _) = show(&[]);
    let (mut ours, theirs) = show(&["--task-name", "other"]);
    let number = ours.len();
    ours.retain(|line| theirs.contains(line));
    assert_eq!(ours, theirs);
    assert!(number <= theirs.len() + 2, "one on each CPU");
    assert!(theirs.len() > 20 && theirs.len() < whole.len(), "{theirs:?}");
    let parts = show(&["--task-name", "slee", "--fuzzy-name"]);
    assert_eq!(parts, show(&["--task-name", "sleep"]));
    assert!(parts.0.len() > 20, "{parts:?}");
    let none = kymo(&["sched", "map", "-i", &path, "--task-name", "no-such"]).success().stdout;
    assert_eq!(lines(&none), Vec::<String>::new());
    assert!(none.contains("empty: no switch is to or from no-such"), "{none}");
}
