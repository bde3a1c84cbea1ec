//! perf's own shell tests of kernel 6.1 (`tools/perf/tests/shell`), run with kymo under the name
//! `perf`: those that perf passes on this machine pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use kymo_testkit::{Need, TracingState, kernel_source, require};

/// Those of a daemon that kymo has sessions for, of other processors, and of perf's own parts.
const LEFT_OUT: [&str; 2] = ["daemon.sh", "test_arm"];

/// Runs a script with this `perf` and gives its status and what it said.
fn status(script: &Path, perf: &Path, home: &Path) -> (Option<i32>, String) {
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", "120", "bash"])
        .arg(script)
        .current_dir(script.parent().unwrap());
    command.env("PATH", format!("{}:{path}", perf.display()));
    // Binaries that recordings name are cached there.
    command.env("HOME", home).env_remove("PERF_CONFIG").stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    (output.status.code(), text.concat())
}

#[test]
fn what_perf_passes_kymo_passes() {
    let needs = [Need::Root, Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc];
    if !require(&needs) || !require(&[Need::KernelSource]) {
        return;
    }
    let _state = TracingState::take();
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("xJf")
        .arg(kernel_source().unwrap())
        .args(["--wildcards", "--strip-components=3", "-C"])
        .arg(dir.path())
        .args(["*/tools/perf/tests/shell/*.sh", "*/tools/perf/tests/shell/lib/*"])
        .status()
        .unwrap();
    assert!(unpacked.success());
    let home = dir.path().join("home");
    let (perf, kymo) = (dir.path().join("perf"), dir.path().join("kymo"));
    for directory in [&home, &perf, &kymo] {
        fs::create_dir(directory).unwrap();
    }
    symlink("/usr/bin/perf", perf.join("perf")).unwrap();
    symlink(env!("CARGO_BIN_EXE_kymo"), kymo.join("perf")).unwrap();
    let mut scripts: Vec<_> = fs::read_dir(dir.path().join("tests/shell"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "sh"))
        .collect();
    scripts.sort();
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    for script in scripts {
        let name = script.file_name().unwrap().to_str().unwrap().to_owned();
        if LEFT_OUT.iter().any(|begin| name.starts_with(begin))
            || status(&script, &perf, &home).0 != Some(0)
        {
            continue;
        }
        match status(&script, &kymo, &home) {
            (Some(0), _) => passed.push(name),
            (status, text) => failed.push(format!("{name}: {status:?}\n{text}")),
        }
    }
    assert!(failed.is_empty(), "passed: {passed:?}\nfailed: {}", failed.join("\n"));
    // Others need what a machine may lack: cycles, sources, a just-in-time compiler.
    for name in ["buildid.sh", "pipe_test.sh", "stat+csv_output.sh", "stat.sh"] {
        assert!(passed.iter().any(|p| p == name), "{name} is not among {passed:?}");
    }
}
