//! Recordings and sessions in the guest: an older kernel, which has a snapshot
//! buffer. Counts and texts are compared with trace-cmd's.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, TracingState, Workload, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::TraceCmd, Need::Gcc];
const GETPPID: &str = "syscalls:sys_enter_getppid";

/// Number of the program's calls in a file, on which trace-cmd and kymo agree.
#[track_caller]
fn calls(path: &str) -> usize {
    let of = |out: String| {
        out.lines().filter(|l| l.contains("syscalls-") && l.contains("sys_enter_getppid")).count()
    };
    let theirs = of(run("trace-cmd", ["report", "-i", path]).success().stdout);
    let ours = of(run(KYMO, ["script", "-i", path]).success().stdout);
    assert_eq!(ours, theirs, "{path}");
    ours
}

#[test]
fn recordings_of_each_version() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let dir = tempfile::tempdir().unwrap();
    let dat = dir.path().join("x.dat");
    let dat = dat.to_str().unwrap();
    for form in [&["--file-version", "6"][..], &["--file-version", "7"], &["--compression", "zstd"]]
    {
        let args = [&["trace", "-o", dat], form, &["-e", GETPPID, "--", w.arg(), "3000"]].concat();
        let said = run(KYMO, args).success().stderr;
        assert!(said.contains("(3000 events)") && !said.contains("lost"), "{said}");
        assert_eq!(calls(dat), 3000, "{form:?}");
    }
}

#[test]
fn the_kernel_takes_the_snapshot_while_tracing_goes_on() {
    if !require(&NEEDS) {
        return;
    }
    let _state = TracingState::take();
    let w = Workload::syscalls();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let session = |args: &[&str]| run(KYMO, [&["session"], args].concat()).success().stderr;
    let name = "guest-snapshot";
    let _ = session(&["create", name, "-e", GETPPID]);
    let _ = session(&["start", name]);
    for (n, count) in ["500", "300"].into_iter().enumerate() {
        let _ = run(w.program(), [count]).success();
        let dat = file(&format!("{n}.dat"));
        let said = session(&["snapshot", name, "-o", &dat]);
        assert!(said.contains("taken by the kernel"), "{said}");
        // What a snapshot took is not in the next one.
        assert_eq!(calls(&dat).to_string(), count);
    }
    let _ = run(w.program(), ["200"]).success();
    let _ = session(&["rotate", name, "-o", &file("r.dat")]);
    let rotated = std::fs::read_dir(dir.path()).unwrap().flatten();
    let rotated = rotated.map(|e| e.path()).find(|p| p.to_str().unwrap().contains("r.dat."));
    assert_eq!(calls(rotated.unwrap().to_str().unwrap()), 200);
    let _ = session(&["destroy", name]);
}
