//! Probes for one run: `--probe` of trace, record and stat adds them, their events are
//! there with the program's own values, and nothing stays, also after a signal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, Outcome, TracingState, Workload, require, run, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Calls `work` with 1, 2, … and a text; forever, on request.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n, const char *text) { __asm__ volatile(""); return n * 10 + text[0] - 'm'; }
__attribute__((noinline)) int other(long a) { __asm__ volatile(""); return a == 5; }
int main(int argc, char **argv) {
    int sum = 0, n = argc > 1 ? atoi(argv[1]) : 3;
    for (int i = 1; n == 0 || i <= n; i++) { sum += work(i, "message"); if (n == 0) usleep(1000); }
    return other(sum) == 7;
}
"#;

fn ready() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc])
}

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// Probes of a program that are still there.
fn left_over(program: &Workload) -> Vec<String> {
    let text = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap();
    text.lines().filter(|l| l.contains(program.arg())).map(str::to_owned).collect()
}

#[test]
fn a_trace_takes_its_probes_along() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let program = Workload::compile("tmptrace", PROGRAM);
    let path = program.arg();
    let work = ["--probe", "work n text:string", "--probe", "work%return $retval:s32"];
    let mut args = vec!["trace", "-q", "-x", path];
    args.extend(work);
    args.extend(["--probe", "other a", "--", path]);
    let live = kymo(&args).success().stdout;
    let said: Vec<String> = live
        .lines()
        .map(|l| {
            let (_, event) = l.split_once(": ").unwrap();
            let (name, rest) = event.split_once(':').unwrap();
            format!("{name} {}", rest.split_once(") ").unwrap().1)
        })
        .collect();
    let expected = [
        "work n=1 text_string=\"message\"",
        "work__return arg1=10",
        "work n=2 text_string=\"message\"",
        "work__return arg1=20",
        "work n=3 text_string=\"message\"",
        "work__return arg1=30",
        "other a=60",
    ];
    assert_eq!(said, expected, "{live}");
    assert_eq!(left_over(&program), Vec::<String>::new());
    // The program may stand before the place; a filter is for the event's name.
    let one = format!("{path} work n");
    let filtered = ["-e", "probe_tmptrace:work", "--filter", "n > 2", "--", path, "5"];
    let mut args = vec!["trace", "-q", "--json", "--probe", &one];
    args.extend(filtered);
    let lines = kymo(&args).success().stdout;
    let values: Vec<serde_json::Value> =
        lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let n: Vec<i64> = values.iter().map(|v| v["fields"]["n"].as_i64().unwrap()).collect();
    assert_eq!(n, [3, 4, 5], "{lines}");
    // A path may begin at the working directory.
    let (place, name) = path.rsplit_once('/').unwrap();
    let here = format!("./{name} work n");
    let mut command = Command::new(KYMO);
    command.args(["trace", "-q", "--json", "--probe", &here, "--", path]).current_dir(place);
    let lines = run_command(command).success().stdout;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    // bpftrace's way to write it is distinguished from a line of a source file.
    let joined = format!("{path}:work");
    let refused = kymo(&["trace", "--probe", &joined, "--", path]).failure();
    assert!(refused.stderr.contains(&format!("--probe '{path} work'")), "{}", refused.stderr);
    // Into a file, which holds the event's format.
    let file = program.file("trace.dat");
    let _ = kymo(&["trace", "-q", "-o", &file, "--probe", &one, "--", path]).success();
    let shown = kymo(&["script", "-i", &file]).success().stdout;
    assert_eq!(shown.matches(" n=").count(), 3, "{shown}");
    assert_eq!(left_over(&program), Vec::<String>::new());
}

#[test]
fn record_and_stat_take_them_too() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let program = Workload::compile("tmpstat", PROGRAM);
    let path = program.arg();
    let one = format!("{path} work n");
    let data = program.file("perf.data");
    let _ = kymo(&["record", "-q", "-o", &data, "--probe", &one, "--", path, "4"]).success();
    let shown = kymo(&["script", "-i", &data, "-F", "event,trace"]).success().stdout;
    let values: Vec<&str> = shown.lines().filter_map(|l| Some(l.split_once(" n=")?.1)).collect();
    assert_eq!(values, ["1", "2", "3", "4"], "{shown}");
    let args = ["stat", "-x", ",", "--probe", &one, "--", path, "6"];
    let counted = kymo(&args).success().stderr;
    // Another test's command may have died just before: what it left is removed and said.
    let has = |text: &str, row: &str| text.lines().any(|line| line.starts_with(row));
    assert!(has(&counted, "6,,probe_tmpstat:work,"), "{counted}");
    assert_eq!(left_over(&program), Vec::<String>::new());
    // A name that is taken is no hindrance: the run's probe has a number.
    let _ = kymo(&["probe", "-q", "-x", path, "work"]).success();
    let counted = kymo(&args).success().stderr;
    assert!(has(&counted, "6,,probe_tmpstat:work_1,"), "{counted}");
    assert_eq!(left_over(&program).len(), 1);
    let _ = kymo(&["probe", "-q", "--del", "probe_tmpstat:*"]).success();
    // What cannot be added is said before the command is started.
    let mark = program.file("started");
    let wrong = format!("{path} nonsense");
    let refused = kymo(&["stat", "--probe", &wrong, "--", "touch", &mark]).failure().stderr;
    assert!(refused.contains("nonsense"), "{refused}");
    let half = format!("{path} work bad=%nosuch");
    let refused = kymo(&["stat", "--probe", &one, "--probe", &half, "--", "touch", &mark]);
    assert!(refused.failure().stderr.contains("the kernel refused"));
    assert!(!std::path::Path::new(&mark).exists());
    assert_eq!(left_over(&program), Vec::<String>::new());
}

#[test]
fn nothing_stays_after_a_signal() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let program = Workload::compile("tmpend", PROGRAM);
    let path = program.arg();
    let one = format!("{path} work n");
    let data = program.file("perf.data");
    for (command, signal) in [
        (vec!["trace", "--probe", &one], "-INT"),
        (vec!["trace", "--probe", &one], "-TERM"),
        (vec!["stat", "--probe", &one], "-INT"),
        (vec!["record", "-o", &data, "--probe", &one], "-TERM"),
        (vec!["trace", "--probe", &one], "-KILL"),
    ] {
        let mut child = Command::new(KYMO)
            .args(&command)
            .args(["--", path, "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let hits = || {
            let text = std::fs::read_to_string("/sys/kernel/tracing/uprobe_profile").unwrap();
            let line = text.lines().find(|l| l.contains(path)).map(str::to_owned);
            line.and_then(|l| l.split_whitespace().last()?.parse::<u64>().ok()).unwrap_or(0)
        };
        while hits() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{command:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = run("kill", [signal, &child.id().to_string()]).success();
        let _ = child.wait().unwrap();
        if signal == "-KILL" {
            assert!(!left_over(&program).is_empty());
            end_all(path);
            // The next start of anything that traces removes it.
            let _ = kymo(&["event", "list", "sched:sched_switch"]).success();
        }
        assert_eq!(left_over(&program), Vec::<String>::new(), "{command:?} {signal}");
        end_all(path);
    }
}

/// Ends the remaining copies of a program.
fn end_all(path: &str) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let is_it =
            std::fs::read_link(entry.path().join("exe")).is_ok_and(|e| e.as_os_str() == path);
        if is_it {
            let pid = entry.file_name().into_string().unwrap();
            let _ = run("kill", ["-KILL", &pid]);
        }
    }
}

/// Passes texts that are there, none, empty and nowhere.
const TEXTS: &str = r#"
#include <stddef.h>
__attribute__((noinline)) int take(const char *name, int n) { __asm__ volatile("" ::: "memory"); return n; }
int main(void) { return take("here", 1) + take(NULL, 2) + take("", 3) + take((char *)0x1000, 4) - 10; }
"#;

/// Text that could not be read is not an empty one: the kernel writes `(fault)` for it.
#[test]
fn text_that_could_not_be_read_is_not_empty() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let program = Workload::compile("tmptexts", TEXTS);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (data, dat) = (path("x.data"), path("x.dat"));
    let take = format!("{} take name:string n", program.arg());
    let probe = ["--probe", &take];
    let command = ["--", program.arg()];
    let _ = kymo(&[&["record", "-q", "-o", &data], &probe[..], &command].concat()).success();
    let _ = kymo(&[&["trace", "-q", "-o", &dat], &probe[..], &command].concat()).success();
    let live = kymo(&[&["trace", "-q"], &probe[..], &command].concat()).success().stdout;
    let live_json = [&["trace", "-q", "--json"], &probe[..], &command].concat();
    let live_json = kymo(&live_json).success().stdout;
    let shown = ["\"here\" n=1", "\"(fault)\" n=2", "\"\" n=3", "\"(fault)\" n=4"];
    let texts = |text: &str| -> Vec<String> {
        let of = |line: &str| line.split_once("name_string=").map(|(_, rest)| rest.to_owned());
        text.lines().filter_map(of).collect()
    };
    assert_eq!(texts(&live), shown, "{live}");
    let names = |text: &str| -> Vec<serde_json::Value> {
        let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
        text.lines().filter_map(of).map(|v| v["fields"]["name_string"].clone()).collect()
    };
    let expected = serde_json::json!(["here", null, "", null]);
    assert_eq!(names(&live_json), *expected.as_array().unwrap(), "{live_json}");
    for file in [&data, &dat] {
        let text = kymo(&["script", "-i", file]).success().stdout;
        assert_eq!(texts(&text), shown, "{file}: {text}");
        let json = kymo(&["script", "--json", "-i", file]).success().stdout;
        assert_eq!(names(&json), *expected.as_array().unwrap(), "{file}: {json}");
        let query = "SELECT string_value AS text, value_type AS type FROM args \
                     WHERE flat_key = 'name_string' ORDER BY id";
        let rows = kymo(&["sql", "--json", file, query]).success().stdout;
        let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let rows: Vec<serde_json::Value> = rows.lines().map(row).collect();
        let text: Vec<serde_json::Value> = rows.iter().map(|row| row["text"].clone()).collect();
        assert_eq!(text, *expected.as_array().unwrap(), "{file}: {rows:?}");
    }
}
