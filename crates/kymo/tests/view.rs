//! Pages of `kymo view` in a headless Chromium: they load without an error or request, their
//! numbers are those of the command line, names of others are text, and keys, search, flame graphs
//! and the address do what they should.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod browser;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use browser::Browser;
use kymo_testkit::{Need, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const CHROMIUM: Need = Need::Tool("chromium");

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/perf-data/x86_64/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn page(recording: &str, directory: &Path) -> PathBuf {
    let page = directory.join("page.html");
    let made = run(KYMO, ["view", "-i", recording, "-o", page.to_str().unwrap()]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    assert!(made.stderr.contains("[ kymo view: wrote "), "{}", made.stderr);
    page
}

/// Times of each thread: running, waiting for a CPU, blocked.
type Times = BTreeMap<u64, [u64; 3]>;

/// What the command line says of tasks that were seen entirely.
fn told_times(args: &[&str]) -> Times {
    let told = run(KYMO, [&["offcpu", "report", "--json"], args].concat());
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let certain =
        |t: &&Value| t["tid"].as_u64().is_some_and(|tid| tid > 0) && t["uncertain_ns"] == 0;
    let times = told["tasks"].as_array().unwrap().iter().filter(certain).map(|t| {
        let of = |key: &str| t[key].as_u64().unwrap();
        (of("tid"), [of("running_ns"), of("waiting_ns"), of("blocked_ns")])
    });
    // The page leaves out who did nothing.
    times.filter(|(_, times)| *times != [0; 3]).collect()
}

/// What the table of the page says.
fn shown_times(browser: &mut Browser) -> Times {
    let script = "[...document.querySelectorAll('#pane-tasks tr[data-tid]')].map(r => \
         [r.dataset.tid, ...['run', 'ready', 'blocked'].map(k => r.querySelector(`[data-key=${k}]`).dataset.ns)].map(Number))";
    let rows = browser.eval(script);
    let numbers = |row: &Value| -> Vec<u64> {
        row.as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as u64).collect()
    };
    let rows = rows.as_array().unwrap().iter().map(numbers);
    rows.map(|r| (r[0], [r[1], r[2], r[3]])).collect()
}

#[test]
fn times_of_tasks_are_those_of_the_command_line() {
    if !require(&[CHROMIUM]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = fixture("sched.data");
    let page = page(&recording, directory.path());
    let mut browser = Browser::start(1280, 720);
    browser.open(&page, "");
    let (told, shown) = (told_times(&["-i", &recording]), shown_times(&mut browser));
    assert!(told.len() > 3, "{told:?}");
    for (tid, times) in &told {
        assert_eq!(shown.get(tid), Some(times), "thread {tid}");
    }
    // The command of the selection is for the same times.
    browser.eval("select([LENGTH * .25, LENGTH * .5])");
    browser.settle();
    let command = browser.text("document.getElementById('command').textContent");
    let words: Vec<&str> = command.split(' ').skip(3).filter(|w| *w != "--tasks").collect();
    assert!(words.contains(&"--time"), "{command}");
    let (told, shown) = (told_times(&words), shown_times(&mut browser));
    assert!(told.len() > 1, "{told:?}");
    for (tid, times) in &told {
        assert_eq!(shown.get(tid), Some(times), "thread {tid} of {command}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
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
