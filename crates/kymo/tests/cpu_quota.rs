//! Waits of tasks whose cgroup has no CPU time left are not blamed on the tasks that run meanwhile.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, NoIdleCpus, Outcome, QuotaCgroup, page_with_ledger, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 3] = [Need::Root, Need::Tracefs, Need::PerfEvents];

/// A shell that computes, until it is dropped.
struct Spinner(Child);

impl Spinner {
    /// `first`: what it does before.
    fn start(first: &str) -> Spinner {
        let script = format!("{first}; while :; do :; done");
        Spinner(Command::new("sh").args(["-c", &script]).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn latency(pid: &str) -> (Outcome, Value) {
    let out =
        run(KYMO, ["sched", "latency", "--live", "--json", "--pid", pid, "--timeout", "1000"])
            .success();
    let page = page_with_ledger(&out.stdout, &out.stderr);
    (out, page)
}

/// Milliseconds that a note states, of this cgroup.
fn noted(text: &str, cgroup: &str) -> Option<f64> {
    let (_, rest) =
        text.split_once(&format!("cgroup {cgroup} was throttled by its CPU quota in "))?;
    let (_, rest) = rest.split_once("for ")?;
    rest.split(' ').next()?.parse().ok()
}

#[test]
fn a_wait_for_a_quota_has_no_other_task_as_its_cause() {
    if !require(&NEEDS) {
        return;
    }
    let millis = Duration::from_millis;
    let Some(group) = QuotaCgroup::new("latency", millis(10), millis(100)) else { return };
    // Others have the CPU meanwhile.
    let _busy = NoIdleCpus::keep();
    let spinner = Spinner::start(&format!("echo $$ > {}", group.procs()));
    let begin = Instant::now();
    while group.throttled().0 == 0 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(millis(10));
    }
    let procs = group.procs();
    let name = procs.strip_prefix("/sys/fs/cgroup/cpu").unwrap().strip_suffix("/cgroup.procs");
    let (pid, name) = (spinner.pid(), name.unwrap());

    let before = group.throttled();
    let (_, page) = latency(&pid);
    let after = group.throttled();
    let ledger = page["ledger"].to_string();
    let said = noted(&ledger, name).unwrap_or_else(|| panic!("{page}"));
    // Rounded to microseconds; a throttled time counts when it is over.
    let most = (after.1 - before.1) as f64 / 1e6;
    assert!(said <= most + 0.001 && said >= most / 2.0, "{said} of {most}");
    let (longest, tid) = (&page["longest"], pid.parse::<u64>().unwrap());
    assert!(longest["tid"] == tid && longest["ran_before"].is_null(), "{page}");
    assert!(longest["ran_before_tid"].is_null(), "{page}");
    let text = run(KYMO, ["sched", "latency", "--live", "--pid", &pid, "--timeout", "300"]);
    let text = text.success().stdout;
    assert!(text.contains("the CPU quota of its cgroup may be the cause"), "{text}");
    assert!(!text.contains("ran there before it"), "{text}");

    // The process is in another cgroup than kymo.
    for words in
        [&["why", "-p", &pid, "--timeout", "500"][..], &["profile", "-p", &pid, "--timeout", "500"]]
    {
        let out = run(KYMO, words);
        let text = out.stdout.clone() + &out.stderr;
        assert!(noted(&text, name).is_some_and(|millis| millis > 0.0), "{text}");
    }
    let directory = tempfile::tempdir().unwrap();
    for file in ["x.data", "x.dat"] {
        let file = directory.path().join(file).display().to_string();
        let recorded = run(KYMO, ["sched", "record", "-o", &file, "--timeout", "500"]).success();
        assert!(noted(&recorded.stderr, name).is_some(), "{recorded:?}");
        let text = run(KYMO, ["sched", "latency", "--pid", &pid, "-i", &file]).success().stdout;
        assert!(text.contains("the next period of a CPU quota"), "{text}");
    }
    drop(spinner);

    // Without a quota others are named.
    let spinner = Spinner::start(":");
    let (_, page) = latency(&spinner.pid());
    assert!(page["longest"]["ran_before"].is_string(), "{page}");
    assert!(!page["ledger"].to_string().contains("CPU quota"), "{page}");
}
