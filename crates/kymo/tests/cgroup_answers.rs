//! `--cgroup` of the answers: the tasks that `perf report --sort cgroup,pid` sees in a cgroup, and no
//! others.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};

use kymo_testkit::{Need, TestCgroup, TracingState, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// A shell that starts programs, one after the other, until it is killed.
struct Shell(Child);

impl Shell {
    fn start() -> Shell {
        let script = "while :; do sleep 0.01; done";
        let mut command = Command::new("sh");
        Shell(command.args(["-c", script]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Threads that perf sees in a cgroup, and elsewhere: `  /group   4711:sh`.
fn seen_by_perf(path: &str, group: &str) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let args = ["report", "--stdio", "--sort", "cgroup,pid", "-F", "cgroup,pid", "-i", path];
    let said = perf(args).success().stdout;
    let task = |line: &str| {
        let mut words = line.split_whitespace();
        let cgroup = words.next()?.strip_prefix('/')?;
        Some((words.next()?.split_once(':')?.0.parse::<u64>().ok()?, cgroup == group))
    };
    let (within, others): (Vec<_>, Vec<_>) = said.lines().filter_map(task).partition(|t| t.1);
    let tids = |of: Vec<(u64, bool)>| of.into_iter().map(|t| t.0).filter(|t| *t != 0).collect();
    (tids(within), tids(others))
}

/// Threads of the rows of an answer.
fn tids(args: &[&str], rows: &str) -> BTreeSet<u64> {
    let said = run(KYMO, args).success().stdout;
    let said: Value = serde_json::from_str(&said).unwrap();
    let rows = said[rows].as_array().unwrap();
    rows.iter().map(|row| row["tid"].as_u64().unwrap_or_else(|| panic!("{row}"))).collect()
}

#[test]
fn answers_are_about_the_tasks_of_a_cgroup() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Perf]) {
        return;
    }
    let Some(group) = TestCgroup::new("answers") else { return };
    let state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (inside, outside) = (Shell::start(), Shell::start());
    group.add(inside.0.id());
    let record = |command: &str, more: &[&str], to: &str| {
        let args = [&[command, "record", "-q", "-o", to], more].concat();
        let _ = run(KYMO, [&args[..], &["--timeout", "400"]].concat()).success();
    };
    let sched = path("sched.data");
    record("sched", &["--all-cgroups"], &sched);
    let calls = path("calls.data");
    record("syscalls", &["--all-cgroups"], &calls);
    let without = path("without.data");
    record("sched", &[], &without);
    let ring = path("ring.dat");
    record("sched", &[], &ring);
    let (shell, other) = (u64::from(inside.0.id()), u64::from(outside.0.id()));
    drop((inside, outside));

    let (within, others) = seen_by_perf(&sched, group.name());
    assert!(within.contains(&shell) && within.len() > 5, "{within:?}");
    assert!(others.contains(&other) && within.is_disjoint(&others));
    let latency = |more: &[&str]| {
        tids(&[&["sched", "latency", "-p", "--json", "-i", &sched], more].concat(), "tasks")
    };
    let all = latency(&[]);
    let expected: BTreeSet<u64> = all.intersection(&within).copied().collect();
    assert!(expected.len() > 5 && expected.len() < all.len());
    assert_eq!(latency(&["--cgroup", group.name()]), expected);
    // A glob, and a group that is not there.
    assert_eq!(latency(&["--cgroup", "kymo-answers-*,none"]), expected);
    assert_eq!(latency(&["--cgroup", "none"]), BTreeSet::new());

    let (within, _) = seen_by_perf(&calls, group.name());
    let args = ["syscalls", "report", "--json", "-i", &calls, "--cgroup", group.name()];
    let calling = tids(&args, "threads");
    assert!(calling.contains(&shell) && calling.is_subset(&within), "{calling:?} {within:?}");

    // The same while it happens, of a shell that was there before and of what it starts.
    let (inside, outside) = (Shell::start(), Shell::start());
    group.add(inside.0.id());
    let (shell, other) = (u64::from(inside.0.id()), u64::from(outside.0.id()));
    let live = ["--json", "--timeout", "400"];
    for (answer, rows) in [
        (&["sched", "latency", "-p"][..], "tasks"),
        (&["offcpu", "report", "--tasks"], "tasks"),
        (&["syscalls", "report", "--threads", "1000"], "threads"),
    ] {
        let of = |cgroup: &str| tids(&[answer, &live, &["--cgroup", cgroup]].concat(), rows);
        let seen = of(group.name());
        assert!(
            seen.contains(&shell) && !seen.contains(&other) && seen.len() > 5,
            "{answer:?} {seen:?}"
        );
        assert_eq!(of("none"), BTreeSet::new(), "{answer:?}");
    }
    let of_map = run(KYMO, ["sched", "map", "--cgroup", "a", "--timeout", "50"]).failure().stderr;
    assert!(of_map.contains("whatever its CPUs run"), "{of_map}");
    drop((inside, outside));

    let refused = |path: &str, why: &str| {
        let said = run(KYMO, ["sched", "latency", "-i", path, "--cgroup", "a"]).failure().stderr;
        assert!(said.contains(why), "{said}");
    };
    refused(&without, "have no cgroup");
    refused(&ring, "only samples of perf.data do");
    let of_locks = |option: &str, path: &str| {
        run(KYMO, ["lock", "contention", "-i", path, option, group.name(), "--json"])
    };
    for option in ["-G", "--cgroup-filter", "--cgroup"] {
        let said = of_locks(option, &without).failure().stderr;
        assert!(said.contains("have no cgroup"), "{said}");
        assert!(!of_locks(option, &sched).stderr.contains("have no cgroup"));
    }
    assert_eq!(state.left_behind(), None);
}

#[test]
fn the_container_of_a_cgroup_is_named_where_its_path_tells_it() {
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let Some(group) = TestCgroup::new("container") else { return };
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let mount = mount.split(' ').nth(1).unwrap();
    let inner = format!("{mount}/{}/lxc.payload.web", group.name());
    std::fs::create_dir(&inner).unwrap();
    let mut spin = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    std::fs::write(format!("{inner}/cgroup.procs"), spin.id().to_string()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data").display().to_string();
    let pid = spin.id().to_string();
    let record = ["record", "-q", "--all-cgroups", "-e", "cpu-clock:u", "-o", &data, "-p", &pid];
    let _ = run(KYMO, [&record[..], &["--", "sleep", "0.2"]].concat()).success();
    let _ = spin.kill();
    let _ = spin.wait();
    // The kernel lets a group go a moment after its last task.
    while std::fs::remove_dir(&inner).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let rows = run(KYMO, ["report", "--sort", "cgroup", "-i", &data]).success().stdout;
    let row = format!("/{}/lxc.payload.web (container web)", group.name());
    assert!(rows.contains(&row), "{rows}");
}
