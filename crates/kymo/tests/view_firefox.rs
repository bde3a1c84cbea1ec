//! Pages of `kymo view` in a headless Firefox: they load without an error or request, are drawn,
//! and show the numbers of the command line, as they do in Chromium (`view.rs`).
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

#[path = "browser/firefox.rs"]
mod firefox;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use firefox::Firefox;
use kymo_testkit::{Need, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/perf-data/x86_64/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn page(recording: &str, directory: &Path) -> PathBuf {
    let page = directory.join("page.html");
    let made = run(KYMO, ["view", "-i", recording, "--force", "-o", page.to_str().unwrap()]);
    assert_eq!(made.status, 0, "{}", made.stderr);
    page
}

#[test]
fn pages_are_drawn_with_the_numbers_of_the_command_line() {
    if !require(&[Need::Tool("firefox-esr")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let recording = fixture("sched.data");
    let mut browser = Firefox::start(1280, 720);
    browser.open(&page(&recording, directory.path()), "tab=tasks");
    let rows = browser.eval(
        "[...document.querySelectorAll('#pane-tasks tr[data-tid]')].map(r => [r.dataset.tid, \
         ...['run', 'ready', 'blocked', 'unsure'].map(k => \
         r.querySelector(`[data-key=${k}]`).dataset.ns)].map(Number))",
    );
    let number = |value: &Value| value.as_f64().unwrap() as u64;
    // Threads that had one number after each other come in any order.
    let mut shown: BTreeMap<u64, Vec<Vec<u64>>> = BTreeMap::new();
    for row in rows.as_array().unwrap() {
        let row: Vec<u64> = row.as_array().unwrap().iter().map(number).collect();
        shown.entry(row[0]).or_default().push(row[1..].to_vec());
    }
    let told = run(KYMO, ["offcpu", "report", "--json", "-i", &recording]).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut expected: BTreeMap<u64, Vec<Vec<u64>>> = BTreeMap::new();
    for task in told["tasks"].as_array().unwrap() {
        let keys = ["running_ns", "waiting_ns", "blocked_ns", "uncertain_ns"];
        let times: Vec<u64> = keys.iter().map(|key| task[key].as_u64().unwrap()).collect();
        let tid = task["tid"].as_u64().unwrap();
        if tid > 0 && times.iter().any(|t| *t > 0) {
            expected.entry(tid).or_default().push(times);
        }
    }
    let sort = |all: &mut BTreeMap<u64, Vec<Vec<u64>>>| all.values_mut().for_each(|l| l.sort());
    sort(&mut shown);
    sort(&mut expected);
    shown.retain(|tid, _| *tid > 0);
    assert!(shown.len() > 3, "{shown:?}");
    assert_eq!(shown, expected);
    // Tracks are drawn: many colors, not one.
    let colors = "(() => { const c = [...document.querySelectorAll('canvas')] \
         .sort((a, b) => b.width * b.height - a.width * a.height)[0]; \
         const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer); \
         return new Set(d).size; })()";
    assert!(number(&browser.eval(colors)) > 8);
    let picture = browser.screenshot();
    assert!(picture.starts_with("iVBORw0KGgo"), "no PNG");
    if let Some(path) = std::env::var_os("KYMO_TEST_SCREENSHOT") {
        std::fs::write(path, picture).unwrap();
    }
    // The flame graph of another recording.
    let recording = fixture("fp.data");
    browser.open(&page(&recording, directory.path()), "tab=flame");
    let folded = run(KYMO, ["convert", "-f", "folded", "--weight", "samples", &recording]).stdout;
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let whole: u64 = folded.lines().map(count).sum();
    let title = browser.eval("document.getElementById('on-title').textContent.replaceAll(',', '')");
    let title = title.as_str().unwrap();
    assert!(title.contains(&format!("On CPU: {whole} samples")), "{title}, {whole}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
