//! Pages of `kymo view` in a headless Chromium: they load without an error or request, their
//! numbers are those of the command line, names of others are text, and keys, search, flame graphs
//! and the address do what they should.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod browser;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use browser::Browser;
use kymo_testkit::{Need, require, run};
use kymo_tracepoint::{emit, tracepoint};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const CHROMIUM: Need = Need::Tool("chromium");

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/perf-data/x86_64/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn page(recording: &str, directory: &Path) -> PathBuf {
    page_of(recording, &[], directory)
}

fn page_of(recording: &str, args: &[&str], directory: &Path) -> PathBuf {
    let page = directory.join("page.html");
    let output = ["view", "-i", recording, "--force", "-o", page.to_str().unwrap()];
    let made = run(KYMO, [&output[..], args].concat());
    assert_eq!(made.status, 0, "{}", made.stderr);
    assert!(made.stderr.contains("[ kymo view: wrote "), "{}", made.stderr);
    page
}

/// Times of threads: running, waiting for a CPU, blocked, uncertain; of threads that had one
/// number after each other in any order.
type Times = BTreeMap<u64, Vec<[u64; 4]>>;

fn sorted(rows: impl Iterator<Item = (u64, [u64; 4])>) -> Times {
    let mut times = Times::new();
    // The page leaves out who did nothing.
    for (tid, row) in rows.filter(|(tid, row)| *tid > 0 && *row != [0; 4]) {
        times.entry(tid).or_default().push(row);
    }
    times.values_mut().for_each(|rows| rows.sort_unstable());
    times
}

/// Returns the results of the command line: times of tasks, nanoseconds off CPU, number of waits.
fn reported_times(args: &[&str]) -> (Times, [u64; 2]) {
    let reported = run(KYMO, [&["offcpu", "report", "--json"], args].concat());
    let reported: Value = serde_json::from_str(&reported.stdout).unwrap();
    let times = reported["tasks"].as_array().unwrap().iter().map(|t| {
        let of = |key: &str| t[key].as_u64().unwrap();
        let all = ["running_ns", "waiting_ns", "blocked_ns", "uncertain_ns"];
        (of("tid"), all.map(of))
    });
    let total = |key: &str| reported["total"][key].as_u64().unwrap();
    let causes = reported["causes"].as_array().unwrap().iter();
    let waits = causes.map(|c| c["count"].as_u64().unwrap()).sum();
    (sorted(times), [total("waiting_ns") + total("blocked_ns"), waits])
}

/// Returns the table of the page, and the time off CPU beside its flame graphs.
fn shown_times(browser: &mut Browser) -> (Times, [u64; 2]) {
    browser.eval("STATE.tab = 'tasks'; showPanel()");
    browser.settle();
    let script = "[...document.querySelectorAll('#pane-tasks tr[data-tid]')].map(r => \
         [r.dataset.tid, ...['run', 'ready', 'blocked', 'unsure'].map(k => r.querySelector(`[data-key=${k}]`).dataset.ns)].map(Number))";
    let rows = browser.eval(script);
    let row = |row: &Value| -> Vec<u64> {
        row.as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as u64).collect()
    };
    let rows: Vec<Vec<u64>> = rows.as_array().unwrap().iter().map(row).collect();
    let times = sorted(rows.iter().map(|r| (r[0], [r[1], r[2], r[3], r[4]])));
    browser.eval("STATE.tab = 'flame'; showPanel()");
    browser.settle();
    let off = browser.eval("graphs.off.root.total").as_f64().unwrap() as u64;
    let title =
        browser.text("document.getElementById('off-title').textContent.replaceAll(',', '')");
    let waits = title.strip_prefix("Off CPU: ").unwrap().split(' ').next().unwrap().parse();
    (times, [off, waits.unwrap_or(0)])
}

/// Events of the page's table, after a change of its filter or kind.
fn shown_events(browser: &mut Browser, kind: &str, filter: &str) -> u64 {
    let set = serde_json::json!({"kind": kind, "filter": filter});
    browser.eval(&format!("Object.assign(STATE, {set}, {{tab: 'events'}}); showPanel()"));
    browser.settle();
    let text = browser.text("document.getElementById('shown').textContent.replaceAll(',', '')");
    text.strip_suffix(" events").unwrap_or_else(|| panic!("{filter}: {text}")).parse().unwrap()
}

/// The words of the command that the page shows, without the program.
fn shown_command(browser: &mut Browser) -> Vec<String> {
    let command = browser.text("document.getElementById('command').textContent");
    let words = run("sh", ["-c", &format!("set -- {command}; printf '%s\\n' \"$@\"")]).stdout;
    words.lines().skip(1).map(str::to_owned).collect()
}

/// Compares what a page shows of a selection with the command line; answers its tasks.
fn compare(browser: &mut Browser, recording: &str, select: &str) -> usize {
    browser.eval(select);
    browser.settle();
    browser.eval("STATE.tab = 'tasks'; showPanel()");
    browser.settle();
    let words = shown_command(browser);
    assert_eq!(words[..3], ["offcpu", "report", "--tasks"]);
    let args: Vec<&str> = words[3..].iter().map(String::as_str).collect();
    assert_eq!(args[..2], ["-i", recording]);
    let ((reported, reported_off), (shown, shown_off)) =
        (reported_times(&args), shown_times(browser));
    assert_eq!(shown, reported, "{args:?}");
    assert_eq!(shown_off, reported_off, "{args:?}");
    let lines = |args: &[String]| -> u64 { run(KYMO, args).stdout.lines().count() as u64 };
    let shown = shown_events(browser, "", "");
    let command = shown_command(browser);
    assert_eq!(shown, lines(&command), "{command:?}");
    reported.len()
}

#[test]
fn numbers_are_those_of_the_command_line() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = fixture("sched.data");
    let page = page(&recording, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    assert!(compare(&mut browser, &recording, "select(null)") > 3);
    for part in ["[LENGTH * .25, LENGTH * .5]", "[LENGTH * .6, LENGTH * .61]", "[0, 1000]"] {
        compare(&mut browser, &recording, &format!("select({part})"));
    }
    // Within a wait that nothing interrupts.
    let wait = "(async () => { const t = TASKS.filter(t => t.tid && t.states.desc.count); let best = [0, 1]; \
         for (const one of t) { await one.states.want(); const l = one.states.leaf; \
         for (let i = 0; i < l.count; i++) if (stateOf(l.code[i]) && !isOpen(l.code[i]) && l.to[i] - l.from[i] > best[1] - best[0]) best = [l.from[i], l.to[i]]; } \
         window.longest = best; })()";
    browser.eval(wait);
    browser.settle();
    let within = "select([longest[0] + (longest[1] - longest[0]) * .3, longest[0] + (longest[1] - longest[0]) * .4])";
    assert!(compare(&mut browser, &recording, within) > 0);
    // A page of a part of the time, in which tasks wait from before its begin until after its end.
    let times = browser.text("`${absolute(longest[0] + (longest[1] - longest[0]) * .3)},${absolute(longest[0] + (longest[1] - longest[0]) * .4)}`");
    let page = page_of(&recording, &["--time", &times], directory.path());
    browser.open(&page, "");
    assert!(compare(&mut browser, &recording, "select(null)") > 0);
    compare(&mut browser, &recording, "select([LENGTH * .2, LENGTH * .7])");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A track of more spans than a chunk has: its parts are those of the whole.
#[test]
fn of_long_tracks_the_parts_in_view_are_unpacked() {
    if !require(&[CHROMIUM, Need::Root, Need::PerfEvents, Need::Tracefs, Need::Perf]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("pipe.data");
    let data = data.to_str().unwrap();
    let events = ["-e", "sched:sched_switch", "-e", "sched:sched_waking", "-m", "1024", "-o", data];
    let load = ["--", "taskset", "-c", "0", "perf", "bench", "sched", "pipe", "-l", "15000"];
    let recorded = run(KYMO, [&["record", "-q"], &events[..], &load].concat());
    assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    let page = page(data, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    let most = "TASKS.reduce((a, b) => a.states.desc.count > b.states.desc.count ? a : b)";
    browser.eval(&format!("window.long = {most}"));
    let chunks = browser.eval("long.states.chunks.length").as_u64().unwrap();
    assert!(chunks >= 3, "{chunks} chunks");
    assert!(compare(&mut browser, data, "select(null)") > 0);
    // Times that end in the middle of one chunk, at the end of one, and that have one between.
    for part in ["[c[0].to / 2, c[1].from]", "[c[1].from, c[1].to]", "[c[0].to - 1, c[2].from + 1]"]
    {
        let part = part.replace("c[", "long.states.chunks[");
        compare(&mut browser, data, &format!("select({part})"));
    }
    // What is drawn around the start of a chunk is what the whole track has there.
    browser.eval("select(null); (t => look(t - 3e4, t + 3e4))(long.states.chunks[1].to)");
    browser.settle();
    let same = browser.eval(
        "(async () => { const t = long.states, leaf = t.leaf, whole = await t.unpackChunks(0, t.chunks.length), first = leaf.first * 8192; \
         return [t.covers(STATE.from, STATE.to), leaf.count < whole.count, whole.count === t.desc.count, \
         ['from', 'to', 'code'].every(k => leaf[k].every((n, i) => n === whole[k][first + i])), \
         t.chunks.every((c, n) => c.to === whole.to[Math.min(n * 8192 + 8191, whole.count - 1)])]; })()",
    );
    assert_eq!(same, serde_json::json!([true, true, true, true, true]));
    // The next span is in the next chunk, and the one before it is not.
    let step =
        "(async by => { STATE.row = 'task' + long.number; await stepSpan(by); return STATE.at; })";
    browser.eval("STATE.at = long.states.chunks[1].to - 1");
    let (begin, next) = (
        browser.eval(&format!("{step}(1)")),
        browser.eval("long.states.unpackChunks(2, 3).then(l => l.from[0])"),
    );
    assert_eq!(begin, next);
    let before = browser.eval(&format!("{step}(-1)"));
    assert_eq!(before, browser.eval("long.states.unpackChunks(1, 2).then(l => l.from[8191])"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn switches_of_some_tasks_make_no_states_that_nobody_saw() {
    if !require(&[CHROMIUM, Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("one.data");
    let data = data.to_str().unwrap();
    let load =
        "for i in 1 2 3 4 5; do sleep 0.01; i=0; while [ $i -lt 9000 ]; do i=$((i+1)); done; done";
    let events = ["-e", "sched:sched_switch", "-e", "sched:sched_waking", "-o", data];
    let recorded = run(KYMO, [&["record", "-q"], &events[..], &["--", "sh", "-c", load]].concat());
    assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    let page = page(data, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    assert!(compare(&mut browser, data, "select(null)") > 0);
    compare(&mut browser, data, "select([LENGTH * .3, LENGTH * .8])");
    let doubt =
        browser.eval("TASKS.some(t => t.states.leaf && t.states.leaf.code.some(isUncertain))");
    assert_eq!(doubt, true, "the start of runs is not in such a recording");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn lanes_of_interrupts_add_up_to_kwork_report() {
    if !require(&[CHROMIUM, Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("irq.data");
    let data = data.to_str().unwrap();
    let events = ["irq:irq_handler_entry", "irq:irq_handler_exit", "irq:softirq_entry"];
    let events = [&events[..], &["irq:softirq_exit"]].concat();
    let events: Vec<&str> = events.iter().flat_map(|e| ["-e", e]).collect();
    let load = ["--", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 0.02; done"];
    let recorded = run(KYMO, [&["record", "-q", "-a", "-o", data], &events[..], &load].concat());
    assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    let reported = run(KYMO, ["kwork", "report", "--json", "-i", data]).stdout;
    let reported: Value = serde_json::from_str(&reported).unwrap();
    let mut sums: BTreeMap<(String, u64), (u64, u64)> = BTreeMap::new();
    for row in reported["rows"].as_array().unwrap().iter().filter(|r| r["kind"] != "workqueue") {
        let lane = if row["kind"] == "irq" { "interrupts" } else { "softirqs" };
        let sum = sums.entry((lane.to_owned(), row["cpu"].as_u64().unwrap())).or_default();
        sum.0 += row["runtime"]["count"].as_u64().unwrap();
        sum.1 += row["runtime"]["total_ns"].as_u64().unwrap();
    }
    let page = page(data, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    let lanes =
        browser.eval("WORK.map(w => [w.kind, w.cpu, w.spans.desc.count, w.spans.desc.busy])");
    let lanes = lanes.as_array().unwrap().iter().map(|l| {
        let lane = (l[0].as_str().unwrap().to_owned(), l[1].as_u64().unwrap());
        (lane, (l[2].as_u64().unwrap(), l[3].as_u64().unwrap()))
    });
    assert!(!sums.is_empty(), "{reported}");
    assert_eq!(lanes.collect::<BTreeMap<_, _>>(), sums);
    let names = browser.eval("HEAD.workNames").to_string();
    assert!(names.contains("TIMER"), "{names}");
    let row = browser.eval("rows.filter(r => r.kind === 'work').length");
    assert_eq!(row.as_u64().unwrap() as usize, sums.len());
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

tracepoint! {
    /// An order comes.
    pub order: begin(id: u64) { fields { id: u64 = id } print "{id}" }
}
tracepoint! {
    /// It is done.
    order: end(id: u64) { fields { id: u64 = id } print "{id}" }
}
tracepoint! {
    /// A part of it.
    order: step_start(id: u64) { fields { id: u64 = id } print "{id}" }
}
tracepoint! {
    /// The part is done.
    order: step_stop(id: u64) { fields { id: u64 = id } print "{id}" }
}

tracepoint! {
    /// Orders that wait, and what they are worth.
    order: queue(waiting: i32, euros: f64) {
        fields { waiting: i32 = waiting, euros: f64 = euros } print "{waiting} {euros}"
    }
}
mod frequency {
    use super::*;
    tracepoint! {
        /// The kernel's event of a CPU's frequency, which virtual machines do not have.
        pub power: cpu_frequency(state: u32, cpu_id: u32) {
            fields { state: u32 = state, cpu_id: u32 = cpu_id } print "{state} {cpu_id}"
        }
    }
}

const ROLE: &str = "KYMO_TEST_PAIRS";

/// The program: spans with a part each, two of them at a time.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let emit_pairs = |from: u64| {
        for id in (from..from + 1500).step_by(2) {
            emit!(begin(id));
            emit!(begin(id + 1));
            emit!(step_start(id));
            emit!(end(id));
            emit!(step_stop(id));
            emit!(end(id + 1));
        }
    };
    for n in 0..700i32 {
        emit!(queue(n % 50 - 10, f64::from(n) / 4.0));
        emit!(frequency::cpu_frequency(1_000_000 + n as u32 % 7 * 100_000, n as u32 % 2));
    }
    std::thread::scope(|s| {
        s.spawn(|| emit_pairs(0));
        s.spawn(|| emit_pairs(10_000));
    });
}

#[test]
fn pairs_of_a_programs_tracepoints_are_spans() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (shared, trace) = (directory.path().join("shared"), directory.path().join("trace"));
    std::fs::create_dir_all(&shared).unwrap();
    let me = std::env::current_exe().unwrap();
    let recorded = Command::new(KYMO)
        .args(["trace", "-u", "order:*", "-u", "power:*", "-m", "16M", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(me)
        .args(["--exact", "role", "-q"])
        .env("KYMO_UST_DIR", &shared)
        .env(ROLE, "1")
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let trace = trace.to_str().unwrap();
    // Spans by name: how many, and how long together.
    let mut reported: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut open: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let mut counted: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in run(KYMO, ["script", "-i", trace, "--json"]).stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let Some(event) = line["event"].as_str() else { continue };
        let number = |name: &str| line["fields"][name].as_f64().unwrap();
        let mut count = |name: String, value| counted.entry(name).or_default().push(value);
        match event {
            "order:queue" => {
                for name in ["waiting", "euros"] {
                    count(format!("order:queue {name}"), number(name));
                }
                continue;
            }
            "power:cpu_frequency" => {
                count(format!("frequency, kHz {}", number("cpu_id")), number("state"));
                continue;
            }
            _ => {}
        }
        let key = |name: &str| (name.to_owned(), line["fields"]["id"].as_u64().unwrap());
        let nanos = (line["time"].as_f64().unwrap() * 1e9).round() as u64;
        match event.rsplit([':', '_']).next().unwrap() {
            "begin" => _ = open.insert(key("order"), nanos),
            "start" => _ = open.insert(key("order:step"), nanos),
            word => {
                let name = if word == "end" { "order" } else { "order:step" };
                let sum = reported.entry(name.to_owned()).or_default();
                sum.0 += 1;
                sum.1 += nanos - open.remove(&key(name)).unwrap();
            }
        }
    }
    assert_eq!((reported["order"].0, reported["order:step"].0), (3000, 1500));
    let page = page(trace, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    browser.eval(
        "(async () => { window.reported = {}; for (const t of TASKS) for (const track of t.spans) { await track.want(); const l = track.leaf; \
         for (let i = 0; i < l.count; i++) { const s = (reported[HEAD.spanNames[l.code[i]]] ||= [0, 0]); s[0]++; s[1] += l.to[i] - l.from[i]; } } })()",
    );
    let shown = browser.eval("reported");
    for (name, (count, nanos)) in &reported {
        assert_eq!(shown[name][0].as_u64(), Some(*count), "{name}");
        // Seconds of the lines are doubles.
        let off = shown[name][1].as_u64().unwrap().abs_diff(*nanos);
        assert!(off <= 2 * count, "{name}: {shown} {nanos}");
    }
    let rows = browser.eval("rows.filter(r => r.work && r.work.kind === 'spans').length");
    assert!(rows.as_u64().unwrap() >= 4, "{rows}");
    // Numbers of the others are counters: of the process, and of CPUs.
    browser.eval("Promise.all(COUNTERS.map(c => c.want())).then(() => 0)");
    let shown = browser.eval("Object.fromEntries(COUNTERS.map(c => [c.name + (c.cpu === null ? '' : ' ' + c.cpu), [...c.value]]))");
    assert_eq!(series(&shown), counted);
    assert_eq!(counted["order:queue euros"].len(), 700);
    let shown = browser.eval("(() => { const c = COUNTERS.find(c => c.name === 'order:queue waiting'); return [c.low, c.high, c.range(0, 700), c.range(3, 8), c.text(c.low)]; })()");
    assert_eq!(shown, serde_json::json!([-10, 39, [-10, 39], [-7, -3], "-10"]));
    // By keys: the row, its first value, and the next.
    browser.eval(
        "STATE.row = rows.find(r => r.counter?.name === 'order:queue waiting').id; showRow()",
    );
    browser.press("ArrowRight");
    browser.press("ArrowRight");
    let found = browser.text("document.getElementById('found').textContent");
    assert_eq!(found, "order:queue waiting = -9");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn filters_choose_the_events_that_script_chooses() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = fixture("sched.data");
    let page = page(&recording, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    let tid = browser.eval("TASKS.find(t => t.tid && t.tid !== NO_TID && t.events > 3).tid");
    let mut kinds = 0;
    for filter in [
        "prev_prio < 120".to_owned(),
        "prev_pid != 0 && next_pid == 0 || pid > 100".into(),
        "!(prev_state & 1) && sched_switch.prev_comm ~ \"*[a-m]*\"".into(),
        "comm ~ 'k{soft,work}*' || comm == sleep".into(),
        format!("tid == {tid} && cpu < 1"),
        format!("tid != {tid}"),
        "event ~ \"sched_w*\" && target_cpu >= 0x0".into(),
        "comm !~ \"s*\" && pid >= -1.5".into(),
    ] {
        let args = ["script", "-i", &recording, "--filter", &filter];
        let reported = run(KYMO, args);
        assert_eq!(reported.status, 0, "{}", reported.stderr);
        let reported = reported.stdout.lines().count() as u64;
        assert_eq!(shown_events(&mut browser, "", &filter), reported, "{filter}");
        assert_eq!(shown_command(&mut browser), args, "{filter}");
        kinds += usize::from(reported > 0);
    }
    assert!(kinds > 5, "{kinds} filters choose something");
    let reported = run(KYMO, ["script", "-i", &recording, "-e", "sched:sched_switch"]).stdout;
    let shown = shown_events(&mut browser, "sched:sched_switch", "");
    assert_eq!(shown, reported.lines().count() as u64);
    for wrong in ["prev_prio <", "a ==", "(a == 1", "comm ~ \"[\"", "x = 1"] {
        browser.eval(&format!("STATE.filter = {}; showPanel()", serde_json::json!(wrong)));
        browser.settle();
        let text = browser.text("document.getElementById('shown').textContent");
        assert!(text.starts_with("filter: "), "{wrong}: {text}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Numbers by name.
fn series(shown: &Value) -> BTreeMap<String, Vec<f64>> {
    let numbers = |v: &Value| v.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
    shown.as_object().unwrap().iter().map(|(name, v)| (name.clone(), numbers(v))).collect()
}

#[test]
fn memory_of_processes_and_their_tree() {
    if !require(&[CHROMIUM, Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, reported) = (path("tree.data"), path("reported"));
    // Each shell prints its process and its parent.
    let inner = format!("echo $$ $PPID >> {reported}; sleep 0.01; :");
    let outer = format!("echo $$ $PPID >> {reported}; sh -c '{inner}'; sh -c '{inner}'; :");
    let events = ["-e", "kmem:rss_stat", "-e", "sched:sched_switch", "-o", &data];
    let recorded =
        run(KYMO, [&["record", "-q"], &events[..], &["--", "sh", "-c", &outer]].concat());
    assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    let reported = std::fs::read_to_string(reported).unwrap();
    let reported: Vec<Vec<u32>> =
        reported.lines().map(|l| l.split(' ').map(|n| n.parse().unwrap()).collect()).collect();
    let page = page(&data, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    let shell = reported[0][0];
    assert!(reported[1][1] == shell && reported[2][1] == shell, "{reported:?}");
    for [pid, parent] in reported.iter().skip(1).map(|t| [t[0], t[1]]) {
        assert_eq!(browser.eval(&format!("PARENTS.get({pid})")), parent);
        let level = format!("rows.find(r => r.id === 'pid{pid}').level");
        assert_eq!(browser.eval(&level), 1, "{pid} below {parent}");
    }
    // A fold hides processes below, too.
    let count = browser.eval("rows.length").as_u64().unwrap();
    browser.eval(&format!("chooseRow(rows.find(r => r.id === 'pid{shell}'), true)"));
    let pids: Vec<u32> = reported.iter().map(|t| t[0]).collect();
    let left = format!("rows.filter(r => r.task && {pids:?}.includes(r.task.pid)).length");
    let left = browser.eval(&left);
    assert!(left == 0 && count > 6, "{left} of {count}");
    browser.eval(&format!("chooseRow(rows.find(r => r.id === 'pid{shell}'), true)"));
    let mut counted: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let lines = run(KYMO, ["script", "-i", &data, "-e", "kmem:rss_stat", "--json"]).stdout;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line["fields"][name].as_u64();
        let (Some(1), Some(size)) = (number("curr"), line["fields"]["size"].as_f64()) else {
            continue;
        };
        let kind = ["file", "anonymous", "swap", "shared"][number("member").unwrap() as usize];
        let name = format!("{} {kind} memory, bytes", line["pid"]);
        counted.entry(name).or_default().push(size);
    }
    browser.eval("Promise.all(COUNTERS.map(c => c.want())).then(() => 0)");
    let shown =
        browser.eval("Object.fromEntries(COUNTERS.map(c => [c.pid + ' ' + c.name, [...c.value]]))");
    assert_eq!(series(&shown), counted);
    assert!(counted.contains_key(&format!("{shell} anonymous memory, bytes")), "{counted:?}");
    // Counters and states of processes that ended go no further.
    let ended = format!(
        "COUNTERS.filter(c => c.pid === {0}).every(c => c.end >= c.at.at(-1) && c.end < LENGTH) && \
         TASKS.find(t => t.pid === {0}).states.want().then(() => TASKS.find(t => t.pid === {0}).states.leaf.to.at(-1) < LENGTH)",
        reported[1][0]
    );
    assert_eq!(browser.eval(&ended), true);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// Shares of functions that `kymo report` prints: with what they call, and in themselves.
fn reported_functions(command: &[String]) -> BTreeMap<String, [String; 2]> {
    let reported = run(KYMO, command);
    assert_eq!(reported.status, 0, "{}", reported.stderr);
    let lines = reported.stdout.lines().filter(|l| !l.starts_with('#') && l.contains('%'));
    let rows = lines.map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[4..].join(" "), [words[0].to_owned(), words[1].to_owned()])
    });
    rows.filter(|(name, _)| is_function(name)).collect()
}

/// Whether the name is that of a function: for code without a symbol the report shows addresses,
/// the page the binary.
fn is_function(name: &str) -> bool {
    !name.starts_with(['[', '0'])
}

#[test]
fn a_flame_graph_of_two_recordings_shows_what_changed() {
    if !require(&[CHROMIUM, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let source = path("x.c");
    let code = r#"
#include <stdlib.h>
#define BURN(name) __attribute__((noinline)) void name(long n) { for (volatile long i = 0; i < n * 1000000; i++); }
BURN(more) BURN(less) BURN(gone) BURN(fresh)
__attribute__((noinline)) void serve(char **v) { more(atol(v[1])); less(atol(v[2])); gone(atol(v[3])); fresh(atol(v[4])); __asm__(""); }
int main(int c, char **v) { serve(v); return 0; }
"#;
    std::fs::write(&source, code).unwrap();
    let program = path("x");
    let flags = ["-O1", "-fno-omit-frame-pointer", "-o", &program, &source];
    assert!(Command::new("gcc").args(flags).status().unwrap().success());
    let files = [path("before.data"), path("after.data")];
    for (file, loads) in files.iter().zip([["40", "120", "60", "0"], ["120", "40", "0", "60"]]) {
        let args =
            ["record", "-q", "-g", "-F", "2000", "-e", "cpu-clock:u", "-o", file, "--", &program];
        let recorded = run(KYMO, [&args[..], &loads].concat());
        assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    }
    let page = path("page.html");
    let made = run(KYMO, ["view", &files[0], &files[1], "-o", &page]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    let mut browser = Browser::start(1280, 720);
    browser.open(Path::new(&page), "tab=functions");
    // The table has the numbers of both reports, which its command asks for.
    let command = browser.text("document.getElementById('command').textContent");
    let commands: Vec<Vec<String>> =
        command.split("; ").map(|c| c.split(' ').skip(1).map(str::to_owned).collect()).collect();
    assert!(commands[0].contains(&files[1]) && commands[1].contains(&files[0]), "{command}");
    let [now, before] = [0, 1].map(|n| reported_functions(&commands[n]));
    let rows = browser.eval("[...document.querySelectorAll('#pane-functions tbody tr')].map(r => [...r.cells].map(c => c.textContent))");
    let mut shown = [BTreeMap::new(), BTreeMap::new()];
    for row in rows.as_array().unwrap() {
        let cell = |n: usize| row[n].as_str().unwrap().to_owned();
        for (at, self_share, total) in [(0, 0, 3), (1, 4, 6)] {
            if cell(total) != "0.00%" && is_function(&cell(7)) {
                shown[at].insert(cell(7), [cell(total), cell(self_share)]);
            }
        }
    }
    assert_eq!(shown, [now.clone(), before.clone()]);
    assert!(!now.contains_key("gone") && !before.contains_key("fresh"), "{now:?} {before:?}");
    // The graph says it by color, by sign, and has what is gone.
    browser.eval("STATE.tab = 'flame'; showPanel()");
    browser.settle();
    let frames = browser.eval("Object.fromEntries(graphs.on.boxes.map(b => [b.node.name, [frameColor(b.node, 'on').match(/\\d+/)[0], points(b.node.change), b.node.total, b.node.was, b.w]]))");
    for (name, hue, sign) in [
        ("more", "30", '+'),
        ("fresh", "30", '+'),
        ("less", "212", '\u{2212}'),
        ("gone", "212", '\u{2212}'),
    ] {
        assert_eq!(frames[name][0], hue, "{frames}");
        assert!(frames[name][1].as_str().unwrap().starts_with(sign), "{frames}");
        assert!(frames[name][4].as_f64().unwrap() > 20.0, "{frames}");
    }
    assert_eq!((&frames["gone"][2], &frames["fresh"][3]), (&Value::from(0), &Value::from(0)));
    let title = browser.text("document.getElementById('on-title').textContent");
    assert!(title.contains("before.data"), "{title}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// A server; a test that fails leaves none behind.
struct ServerGuard(Child);

impl Drop for ServerGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The answer to the bytes of a request.
fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_served_page_asks_for_its_pieces_and_says_when_the_recording_is_gone() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("copy.data");
    std::fs::copy(fixture("sched.data"), &recording).unwrap();
    let server = Command::new(KYMO)
        .args(["view", "-i", recording.to_str().unwrap()])
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = ServerGuard(server);
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        line.split_whitespace().find(|w| w.starts_with("http://127.0.0.1:")).map(str::to_owned)
    });
    let address = address.unwrap();
    let port: u16 = address.split([':', '/']).nth(4).unwrap().parse().unwrap();
    let path = format!("/{}", address.splitn(4, '/').nth(3).unwrap());
    let host = format!("Host: 127.0.0.1:{port}\r\n\r\n");
    let status = |request: &str, rest: &str| ask(port, &format!("{request} HTTP/1.1\r\n{rest}"));
    // A slow machine says first that it reads.
    while !status(&format!("GET {path}"), &host).contains("id=\"head\"") {
        assert!(status(&format!("GET {path}"), &host).starts_with("HTTP/1.1 200 "));
    }
    for (request, rest, expected) in [
        (format!("POST {path}"), &*host, "405"),
        ("GET /".to_owned(), &host, "404"),
        (format!("GET /{}/", "0".repeat(32)), &host, "403"),
        (format!("GET {path}../../etc/passwd"), &host, "404"),
        (format!("GET {path}"), "Host: example.org\r\n\r\n", "403"),
        (format!("GET {path}{}", "x".repeat(9000)), &host, "431"),
    ] {
        let got = status(&request, rest);
        assert!(got.starts_with(&format!("HTTP/1.1 {expected} ")), "{request}: {got}");
    }
    // Its pieces are in a file that has no name.
    let files = std::fs::read_dir(format!("/proc/{}/fd", server.0.id())).unwrap();
    let files = files.filter_map(|f| std::fs::read_link(f.unwrap().path()).ok());
    let name = files.map(|f| f.display().to_string()).find(|f| f.contains("kymo-view-"));
    assert!(name.unwrap().ends_with(" (deleted)"));
    let mut browser = Browser::start(1280, 720);
    browser.open_address(&format!("{address}#tab=tasks"));
    let (shown, _) = shown_times(&mut browser);
    assert_eq!(shown, reported_times(&["-i", recording.to_str().unwrap()]).0);
    // The critical path of the task that the page shows first.
    browser.eval("STATE.row = rows.find(r => r.kind === 'task' && r.task.states.desc.count > 2).id; panelDone = showPath()");
    browser.settle();
    let tid = browser.eval("PATH.tid").to_string();
    let args = ["why", "-i", recording.to_str().unwrap(), "--tid", &tid, "--json"];
    let times = browser.text("`--time=${absolute(0)},${absolute(LENGTH)}`");
    let reported = run(KYMO, [&args[..], &[&*times]].concat());
    let reported: Value = serde_json::from_str(&reported.stdout).unwrap();
    let segment = |s: &Value| [&s["start_ns"], &s["end_ns"], &s["task"]["tid"]].map(|n| n.as_u64());
    let reported = reported["paths"][0]["segments"].as_array().unwrap().iter().map(segment);
    let base: u64 = browser.text("HEAD.base").parse().unwrap();
    let shown = browser.eval("PATH.segments");
    let shown = shown.as_array().unwrap().iter().map(|s| {
        let at = |n: usize| s[n].as_u64().map(|t| t + base);
        [at(0), at(1), s[2].as_u64()]
    });
    let (reported, shown): (Vec<_>, Vec<_>) = (reported.collect(), shown.collect());
    assert!(shown.len() > 1, "{shown:?}");
    assert_eq!(shown, reported);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    std::fs::rename(&recording, directory.path().join("elsewhere")).unwrap();
    browser.eval("pieces.clear(); piece(0).catch(() => 0)");
    browser.settle();
    let text = browser.text("document.getElementById('gone').textContent");
    assert!(text.contains("has been moved or changed"), "{text}");
    // As Ctrl-C does.
    let killed = Command::new("kill").args(["-INT", &server.0.id().to_string()]).status();
    assert!(killed.unwrap().success());
    server.0.wait().unwrap();
    browser.eval("pieces.clear(); piece(0).catch(() => 0)");
    browser.settle();
    let text = browser.text("document.getElementById('gone').textContent");
    assert!(text.contains("kymo view has ended"), "{text}");
}

#[test]
fn flame_graphs_have_all_samples_and_a_click_zooms() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = fixture("fp.data");
    let page = page(&recording, directory.path());
    let mut browser = Browser::start(1920, 1080);
    browser.open(&page, "tab=flame");
    let folded = run(KYMO, ["convert", "-f", "folded", "--weight", "samples", &recording]).stdout;
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let whole: u64 = folded.lines().map(count).sum();
    let title = browser.text("document.getElementById('on-title').textContent.replaceAll(',', '')");
    assert!(title.contains(&format!("On CPU: {whole} samples")), "{title}, {whole}");
    // A frame that is neither the whole width nor a sliver.
    let place = "(() => { const c = $('on'), r = c.getBoundingClientRect(); \
         const wide = b => b.w > 60 && b.w < c.clientWidth * .9; \
         const b = graphs.on.boxes.filter(wide).sort((a, b) => b.w - a.w)[0]; \
         return [r.left + b.x + b.w / 2, r.top + b.depth * FRAME_H + 9, b.node.name]; })()";
    let place = browser.eval(place);
    browser.click(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    let name = place[2].as_str().unwrap().to_owned();
    assert_eq!(browser.eval("STATE.frame"), name.as_str());
    assert!(browser.text("document.getElementById('frame').textContent").starts_with(&name));
    assert_eq!(browser.eval("graphs.on.zoom.name"), name.as_str());
    browser.press("Escape");
    assert_eq!(browser.eval("graphs.on.zoom"), Value::Null);
    // The same by keys: the greatest child of the greatest frame.
    browser.eval("$('on').focus()");
    browser.press("ArrowDown");
    browser.press("ArrowDown");
    browser.press("Enter");
    let greatest = "(() => { const most = n => [...n.children.values()].sort((a, b) => b.total - a.total)[0]; \
         return most(most(graphs.on.root)).name; })()";
    assert_eq!(browser.eval("graphs.on.zoom.name"), browser.eval(greatest));
    browser.press("Escape");
    browser.press("3");
    browser.eval("document.querySelector('#pane-functions tbody tr').focus()");
    let name = browser.text("document.activeElement.cells[4].textContent");
    browser.press("Enter");
    let shown = browser.eval("[STATE.tab, $('find').value]");
    assert_eq!(shown, serde_json::json!(["flame", name]));
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn keys_search_events_and_the_address_work_together() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = fixture("sched.data");
    let page = page(&recording, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    let whole = browser.eval("STATE.to - STATE.from").as_f64().unwrap();
    browser.press("w");
    assert!(browser.eval("STATE.to - STATE.from").as_f64().unwrap() < whole * 0.7);
    // A wake-up of the recording, as the command line has it.
    let lines = run(KYMO, ["script", "-i", &recording, "-e", "sched:sched_wak*", "--ns"]).stdout;
    let line = lines.lines().nth(5).unwrap();
    let time = line.split_whitespace().find(|w| w.contains('.') && w.ends_with(':')).unwrap();
    let time = time.trim_end_matches(':');
    browser.press("4");
    browser.eval("$('filter').value = 'sched_wak'; $('filter').dispatchEvent(new Event('input'))");
    browser.settle();
    let count = run(KYMO, ["script", "-i", &recording, "-e", "sched:sched_wak*"]).stdout;
    let shown = browser.text("document.getElementById('shown').textContent.replaceAll(',', '')");
    assert_eq!(shown, format!("{} events", count.lines().count()));
    browser.eval("document.activeElement.blur(); chooseEvent(5)");
    browser.settle();
    assert_eq!(browser.text("absolute(STATE.at)"), time);
    assert_eq!(browser.eval("STATE.from <= STATE.at && STATE.at <= STATE.to"), true);
    let row = browser.text("document.querySelector('.event.chosen').textContent");
    assert!(row.starts_with(time), "{row}");
    browser.press("n");
    assert_eq!(browser.eval("chosenEvent"), 6);
    browser.press("/");
    assert_eq!(browser.text("document.activeElement.id"), "find");
    browser.press("Escape");
    browser.press("?");
    assert_eq!(browser.eval("$('help').open"), true);
    browser.press("Escape");
    browser.eval("$('help').close(); select([1000, 500000])");
    browser.settle();
    let (state, fragment) = (browser.text("fragment()"), browser.text("location.hash.slice(1)"));
    assert_eq!(state, fragment);
    browser.open(&page, &fragment);
    assert_eq!(browser.text("fragment()"), fragment);
    assert!(fragment.contains("s=1000-500000") && fragment.contains("tab=events"), "{fragment}");
    // A fragment is text of others, too.
    browser.open(&page, "v=9-1&s=%3Cb%3E&tab=no&row=%22&sampled=1e9&at=-1&closed=%00,,");
    assert_eq!(
        browser.eval("[STATE.from, STATE.range, STATE.at, STATE.sampled < 1000]"),
        serde_json::json!([0, null, null, true])
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn hostile_names_are_text() {
    if !require(&[CHROMIUM, Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("x.c");
    // Functions and tasks that would be markup or script if anybody took them for it.
    let code = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
void hostile(void) __asm__("\"<img/src=x/onerror=alert(1)>\"");
__attribute__((noinline)) void hostile(void) { for (volatile long i = 0; i < 40000000; i++); }
static const char *names[] = {"</script>", "<b>x</b>", "'\"><i>", "${x}`\\n", "\xff\xfe<!--", "\xe2\x80\xa8]]>", "constructor", "__proto__"};
static void *work(void *n) { pthread_setname_np(pthread_self(), names[(long)n]); usleep(1000); hostile(); return 0; }
int main(void) {
  for (long n = 0; n < 8; n++) { pthread_t t; pthread_create(&t, 0, work, (void *)n); pthread_join(t, 0); }
  return 0;
}
"#;
    std::fs::write(&source, code).unwrap();
    let program = directory.path().join("</title><s>");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    let flags = ["-O1", "-fno-omit-frame-pointer", "-pthread", "-o"];
    let gcc = Command::new("gcc").args(flags).arg(&program).arg(&source).status();
    assert!(gcc.unwrap().success());
    let data = directory.path().join("<i>.data");
    let args = ["record", "-q", "-g", "-e", "cpu-clock", "-e", "sched:sched_switch", "-o"];
    let paths = [data.to_str().unwrap(), "--", program.to_str().unwrap()];
    let recorded = run(KYMO, [&args[..], &paths[..]].concat());
    assert_eq!(recorded.status, 0, "{}", recorded.stderr);
    let page = page(data.to_str().unwrap(), directory.path());
    let mut browser = Browser::start(1280, 720);
    for tab in ["tasks", "flame", "functions", "events", "ledger"] {
        browser.open(&page, &format!("tab={tab}&query=%3Cb&row=task1"));
        let found = browser.eval("[document.querySelectorAll('img, b:not(.note b), i:not(.note i), s').length, document.scripts.length, document.title.includes('</title>')]");
        let scripts = browser.eval(
            "HEAD.chunks.length >= 1 && document.querySelectorAll('script:not([type])').length",
        );
        assert_eq!((&found[0], scripts), (&Value::from(0), Value::from(1)), "{tab}");
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{tab}");
    }
    let names = browser.eval("TASKS.map(t => t.comm)").to_string();
    for name in ["</script>", "<b>x</b>", "${x}`", "]]>", "constructor", "__proto__"] {
        assert!(names.contains(name), "{name} in {names}");
    }
    let functions = browser.eval("HEAD.samples.functions.map(f => f[0])").to_string();
    assert!(functions.contains("<img/src=x/onerror=alert(1)>"), "{functions}");
}
