//! The process of a thread: where a recording has it, `pid` is it and `--pid` chooses by it; where
//! it does not, there is no `pid`. And the cgroup of a sample.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;

use kymo_testkit::{Need, Outcome, TracingState, Workload, perf, require, run};
use serde_json::Value;

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// Says its process id; each of four threads calls getppid(2) once.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *work(void *x)
{
    syscall(SYS_getppid);
    return x;
}

int main(void)
{
    pthread_t threads[3];

    printf("%d\n", (int)getpid());
    fflush(stdout);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], 0);
    work(0);
    return 0;
}
"#;
const CALL: &str = "syscalls:sys_enter_getppid";

/// Process, if it is said, and thread of each call.
fn calls(recording: &str, more: &[&str]) -> Vec<(Option<u64>, u64)> {
    let args = ["script", "--json", "-e", CALL, "-i", recording];
    let text = kymo(&[&args[..], more].concat()).success().stdout;
    let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
    lines.map(|v| (v["pid"].as_u64(), v["tid"].as_u64().unwrap())).collect()
}

#[test]
fn threads_have_the_process_that_events_tell() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::compile("threads", THREADS);
    let program = w.program().display().to_string();
    let with_tasks = format!("{CALL},task:task_newtask,sched:sched_process_exec");
    for (name, command, events) in [
        ("all-tasks.dat", "trace", with_tasks.as_str()),
        ("calls.dat", "trace", CALL),
        ("a.data", "record", CALL),
    ] {
        let file = w.file(name);
        let said = kymo(&[command, "-q", "-o", &file, "-e", events, "--", &program]).success();
        let process: u64 = said.stdout.trim().parse().unwrap();
        let all = calls(&file, &[]);
        let threads: BTreeSet<u64> = all.iter().map(|c| c.1).collect();
        assert_eq!((all.len(), threads.len()), (4, 4), "{name}: {all:?}");
        assert!(threads.contains(&process), "{name}: {all:?}");
        let known = (name != "calls.dat").then_some(process);
        assert!(all.iter().all(|c| c.0 == known), "{name}: {process}, {all:?}");
        // Where the process is not known the thread's number stands for it.
        let of_process = calls(&file, &["--pid", &process.to_string()]).len();
        assert_eq!(of_process, if known.is_some() { 4 } else { 1 }, "{name}");
        let filter = format!("pid == {process}");
        let filtered = calls(&file, &["--filter", &filter]).len();
        assert_eq!(filtered, of_process, "{name}");
        // So do other commands choose.
        let by_process = ["convert", "-f", "folded", "-e", CALL, "--split", "pid", "-i", &file];
        let folded = kymo(&by_process).success().stdout;
        let stacks: BTreeSet<&str> =
            folded.lines().map(|l| l.split([';', ' ']).next().unwrap()).collect();
        assert_eq!(stacks.len(), if known.is_some() { 1 } else { 4 }, "{name}: {folded}");
    }
}

#[test]
fn samples_are_chosen_by_cgroup() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Root]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data").display().to_string();
    let record = ["record", "-q", "-e", "cpu-clock", "--all-cgroups", "-o", &file, "--"];
    let _ = perf([&record[..], &["dd", "if=/dev/zero", "of=/dev/null", "count=200000"]].concat())
        .success();
    let script = |more: &[&str]| {
        kymo(&[&["script", "-F", "comm,cgroup", "-i", &file][..], more].concat()).success()
    };
    let all = script(&[]).stdout;
    let samples = all.lines().count();
    let path = all.lines().next().unwrap().split_whitespace().last().unwrap().to_owned();
    assert!(samples > 3 && path.starts_with('/'), "{all}");
    let below = |name: &str| {
        let paths = all.lines().map(|l| l.split_whitespace().last().unwrap());
        paths.filter(|p| name == "/" || *p == name || p.starts_with(&format!("{name}/"))).count()
    };
    let report = |more: &[&str]| -> u64 {
        let json = kymo(&[&["report", "--json", "-i", &file][..], more].concat()).success();
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        json["events"][0]["samples"].as_u64().unwrap_or(0)
    };
    assert_eq!(report(&[]), samples as u64);
    for cgroup in [path.as_str(), "/", "/nosuch.slice"] {
        let chosen = script(&["--cgroup", cgroup]).stdout.lines().count();
        assert_eq!(chosen, below(cgroup), "{cgroup}: {all}");
        assert_eq!(report(&["--cgroup", cgroup]), chosen as u64, "{cgroup}");
    }
    // What does not tell cgroups is refused.
    let fixture = |name: &str| format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    for (recording, why) in [
        ("perf-data/x86_64/fp.data", "samples of cpu-clock:u in"),
        ("trace-dat/x86_64/v6.dat", "only samples of perf.data do"),
        ("ctf/x86_64/lttng-ust", "only samples of perf.data do"),
    ] {
        let recording = fixture(recording);
        for command in [&["script"][..], &["report"], &["convert", "-f", "folded"]] {
            let args = [command, &["--cgroup", "/", "-i", &recording]].concat();
            let refused = kymo(&args).failure().stderr;
            assert!(refused.contains(why), "{args:?}: {refused}");
        }
    }
}
