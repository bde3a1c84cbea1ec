//! Call chains of a perf.data that is read together with other recordings: they are those of
//! the perf.data alone, unwound stacks and inlined functions among them.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::process::Command;

use kymo_testkit::{Need, Outcome, TracingState, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];
/// Calls of the program.
const CALLS: usize = 40;
/// A program whose stack has an inlined function, and no frame pointers.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <unistd.h>
static inline __attribute__((always_inline)) int inner(int n) { return getppid() + n; }
__attribute__((noinline)) int outer(int n) { int all = inner(n); __asm__ volatile(""); return all; }
int main(void) {
  int all = 0;
  for (int i = 0; i < CALLS; i++) all += outer(i);
  return all == 12345;
}
"#;
const EVENT: &str = "syscalls:sys_enter_getppid";

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

struct MergedRecordings {
    _directory: tempfile::TempDir,
    /// Two of perf.data, one of trace.dat.
    paths: [String; 3],
}

impl MergedRecordings {
    fn make() -> MergedRecordings {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (source, program) = (path("program.c"), path("program"));
        std::fs::write(&source, PROGRAM).unwrap();
        let calls = format!("-DCALLS={CALLS}");
        let flags = ["-O2", "-g", "-fomit-frame-pointer", &calls, "-o", &program, &source];
        assert!(Command::new("gcc").args(flags).status().unwrap().success());
        let paths = ["a.data", "other.data", "b.dat"].map(path);
        for data in &paths[..2] {
            let how = ["--clockid", "mono", "--call-graph", "dwarf,4096"];
            let record = [&["record", "-q", "-e", EVENT, "-o", data], &how[..]].concat();
            let _ = kymo(&[&record[..], &["--", &program]].concat()).success();
        }
        let _ = kymo(&["trace", "-q", "-e", EVENT, "-o", &paths[2], "--", &program]).success();
        MergedRecordings { _directory: directory, paths }
    }

    fn all<'s>(&'s self, first: &[&'s str]) -> Vec<&'s str> {
        first.iter().copied().chain(self.paths.iter().map(String::as_str)).collect()
    }
}

/// The chain of each event that has one: its lines.
fn chains(text: &str) -> Vec<Vec<&str>> {
    let mut chains = vec![Vec::new()];
    for line in text.lines() {
        match (line.starts_with('\t'), chains.last_mut()) {
            (true, Some(last)) => last.push(line),
            _ => chains.push(Vec::new()),
        }
    }
    chains.retain(|c| !c.is_empty());
    chains
}

fn json_chains(text: &str) -> Vec<Value> {
    let chain = |l: &str| serde_json::from_str::<Value>(l).unwrap().get("callchain").cloned();
    text.lines().filter_map(chain).collect()
}

#[test]
fn chains_of_merged_recordings_are_those_of_each_alone() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let recordings = MergedRecordings::make();
    let [a, other, trace] = recordings.paths.each_ref().map(String::as_str);
    for flags in [&[][..], &["--no-inline"], &["--max-stack", "2"]] {
        let script = [&["script"], flags].concat();
        let alone = [a, other].map(|path| kymo(&[&script[..], &[path]].concat()).success().stdout);
        let merged = kymo(&recordings.all(&script)).success();
        let alone: Vec<_> = alone.iter().flat_map(|text| chains(text)).collect();
        assert_eq!(alone.len(), 2 * CALLS);
        assert_eq!(chains(&merged.stdout), alone);
        let inlined = alone.iter().flatten().filter(|l| l.ends_with("(inlined)")).count();
        assert_eq!(inlined > 0, flags != ["--no-inline"], "{:#?}", alone[0]);
        assert!(
            merged.stderr.contains(&format!("(100.0%) of {CALLS} user stacks are complete")),
            "{}",
            merged.stderr
        );
    }
    let outermost = " _start+0x";
    let text = kymo(&["script", a, trace]).success().stdout;
    assert!(chains(&text).iter().all(|c| c.last().unwrap().contains(outermost)), "{text}");
    assert!(chains(&kymo(&recordings.all(&["script", "-G"])).success().stdout).is_empty());

    let alone = [a, other].map(|path| kymo(&["script", "--json", path]).success().stdout);
    let alone: Vec<Value> = alone.iter().flat_map(|text| json_chains(text)).collect();
    assert_eq!(alone.len(), 2 * CALLS);
    assert_eq!(json_chains(&kymo(&recordings.all(&["script", "--json"])).success().stdout), alone);

    // A table of events has the same functions, of both recordings together.
    let table = kymo(&recordings.all(&["report", "-s", "event,stack"])).success();
    let row = table.stdout.lines().find(|l| l.contains(" < outer < main < "));
    let row = row.unwrap_or_else(|| panic!("{}", table.stdout));
    assert!(row.contains(&format!(" {} ", 2 * CALLS)), "{}", table.stdout);
    assert!(row.trim_end().ends_with("< _start"), "{row}");
    let said = format!("(100.0%) of {CALLS} user stacks are complete");
    assert!(table.stdout.contains(&said), "{}", table.stdout);
}
