//! `kymo kmem pagealloc` beside the script of the kernel's documentation that counts the same
//! events, `trace-pagealloc-postprocess.pl`, over one recording. Both are on the guest's disk with
//! debugging information, which has the kernel's sources.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, TracingState, kernel_debug, require, run, run_command};
use serde_json::Value;

/// Allocates pages, frees them one by one and in batches, and has lists of CPUs drained.
const LOAD: &str = "for i in 1 2 3; do dd if=/dev/zero of=big bs=1M count=20 2> /dev/null; \
                    cat big > /dev/null; rm big; ls -lR /sys/kernel > /dev/null; done";

/// Columns of the script, by their names in kymo's JSON.
const COLUMNS: [&str; 12] = [
    "allocated",
    "allocated_under_lock",
    "freed",
    "freed_batched",
    "pcpu_drained",
    "pcpu_drains",
    "pcpu_refills",
    "fallbacks",
    "fragmenting",
    "migrate_type_changed",
    "fragmenting_severe",
    "fragmenting_moderate",
];

type Row = [u64; COLUMNS.len()];

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args).success()
}

/// Name of the task as the script parses it: letters, digits and dashes before the CPU.
fn name_of_script(task: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let cut = task.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    &task[cut..]
}

/// The lines of events of the page allocator, as the script takes them.
///
/// - It takes page frame numbers in decimal, though it does not use them: kernels print them in
///   hexadecimal today, so lines have none.
/// - Other events, stacks and forks, would end a batch for it.
/// - trace-cmd 3.1.6, which prints such lines, too, takes `a < b ? c : d` for `a < (b ? c : d)`
///   and has `fragmenting=10`; the texts are kymo's, which other tests compare with the kernel's.
fn lines_for_script(recording: &str) -> String {
    let events = kymo(&["script", "-i", recording, "-e", "kmem:mm_page_*"]).stdout;
    let word = |word: &str| match word.split_once('=') {
        Some((key @ ("page" | "pfn"), _)) => format!("{key}=0"),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    events.lines().map(|event| line(event) + "\n").collect()
}

/// Rows of the script. The pattern that it makes of the event's format has no group for a number
/// in hexadecimal, and columns behind it are shifted: it is kept from reading the format, and
/// takes the pattern of its own.
fn rows_of_script(recording: &str, directory: &Path) -> BTreeMap<String, Row> {
    let sources = kernel_debug().unwrap().sources;
    let script = sources.join("Documentation/trace/postprocess/trace-pagealloc-postprocess.pl");
    let text = std::fs::read_to_string(script).unwrap();
    let without_format = text.replace("/sys/kernel/debug/tracing/events", "/nowhere");
    assert_ne!(text, without_format);
    let (script, lines) = (directory.join("pagealloc.pl"), directory.join("lines"));
    std::fs::write(&script, without_format).unwrap();
    std::fs::write(&lines, lines_for_script(recording)).unwrap();
    let mut perl = Command::new("sh");
    perl.args(["-c", "exec perl \"$0\" < \"$1\""]).args([&script, &lines]);
    perl.env("PERL5LIB", sources.parent().unwrap().join("perl"));
    let text = run_command(perl).success().stdout;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, numbers) = words.split_first()?;
        let numbers: Result<Vec<u64>, _> = numbers.iter().map(|n| n.parse()).collect();
        let numbers = numbers.ok().filter(|n| n.len() == COLUMNS.len() + 1)?;
        // The last column counts events that it does not know.
        assert_eq!(numbers[COLUMNS.len()], 0, "{line}");
        Some(((*name).to_owned(), numbers[..COLUMNS.len()].try_into().unwrap()))
    };
    assert!(!text.contains("WARNING: Failed"), "{text}");
    text.lines().filter_map(row).collect()
}

fn rows_of_kymo(recording: &str) -> BTreeMap<String, Row> {
    let page = kymo(&["kmem", "pagealloc", "--json", "-i", recording]).stdout;
    let page: Value = serde_json::from_str(&page).unwrap();
    let mut rows = BTreeMap::new();
    for row in page["processes"].as_array().unwrap() {
        let task = format!("{}-{}", row["comm"].as_str().unwrap(), row["tid"]);
        let numbers = COLUMNS.map(|name| row[name].as_u64().unwrap());
        assert_eq!(rows.insert(name_of_script(&task).to_owned(), numbers), None, "{task}");
    }
    rows
}

#[test]
fn the_table_is_that_of_the_kernels_own_script() {
    if !require(&[Need::Root, Need::Tracefs, Need::KernelDebug]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.dat").to_str().unwrap().to_owned();
    let load = format!("cd {}; {LOAD}", directory.path().display());
    kymo(&[
        "kmem",
        "record",
        "--page",
        "-o",
        &path,
        "--buffer-size",
        "32M",
        "--strict",
        "sh",
        "-c",
        &load,
    ]);
    let (ours, theirs) = (rows_of_kymo(&path), rows_of_script(&path, directory.path()));
    assert_eq!(ours, theirs);
    let sum = |column: usize| ours.values().map(|row| row[column]).sum::<u64>();
    // What is drained and refilled for a CPU depends on how full its lists are.
    assert!([0, 1, 2, 3, 6].into_iter().all(|column| sum(column) > 0), "{ours:?}");
    assert!(sum(0) > 3 * 20 * 256 && ours.len() > 6, "{ours:?}");
    drop(state);
}
