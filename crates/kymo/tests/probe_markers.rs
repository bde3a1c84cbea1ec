//! Static markers (`sys/sdt.h`) of a running program: their arguments, of several types
//! and places, are what the program itself prints; with and without semaphores, at
//! every inlined copy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use kymo_testkit::{Need, TracingState, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const SOURCE: &str = include_str!("probe_programs/markers.c");

/// Compares the arguments of a marker as the program prints them and as recorded.
fn compare(name: &str, flags: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let code = directory.path().join("markers.c");
    std::fs::write(&code, SOURCE).unwrap();
    let path = directory.path().join(name);
    let made = Command::new("gcc").args(flags).arg("-o").arg(&path).arg(&code).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = path.to_str().unwrap();
    let data = directory.path().join("perf.data");
    let data = data.to_str().unwrap();
    let probe = |what: &str| format!("{path} {what}");
    let probes = [probe("%app:values"), probe("words=%app:text arg1:string"), probe("%app:copy")];
    let mut args = vec!["record", "-q", "-o", data];
    args.extend(probes.iter().flat_map(|p| ["--probe", p]));
    args.extend(["--", path]);
    let said = run(KYMO, args).success().stdout;
    let shown = run(KYMO, ["script", "-i", data, "-F", "event,trace"]).success().stdout;
    let values = |line: &str| -> Vec<String> {
        let fields = line.split_once(") ").unwrap().1.split(' ');
        fields.map(|f| f.split_once('=').unwrap().1.trim_matches('"').to_owned()).collect()
    };
    for (event, word, count) in
        [(":values:", "values", 3), (":words:", "text", 3), (":copy:", "copy", 2)]
    {
        let recorded: Vec<Vec<String>> =
            shown.lines().filter(|l| l.contains(event)).map(values).collect();
        let printed: Vec<Vec<String>> = said
            .lines()
            .filter_map(|l| l.strip_prefix(word)?.strip_prefix(' '))
            .map(|l| l.split(' ').map(str::to_owned).collect())
            .collect();
        assert_eq!(printed.len(), count, "{said}");
        assert_eq!(recorded, printed, "{flags:?} {word}\n{shown}\n{said}");
    }
    let semaphore = if flags.contains(&"-DSEMAPHORES") { "semaphore 1" } else { "semaphore -1" };
    assert!(said.lines().any(|l| l == semaphore), "{said}");
    let unprobed = run(path, [] as [&str; 0]).success().stdout;
    assert!(
        unprobed.ends_with("semaphore 0\n") || unprobed.ends_with("semaphore -1\n"),
        "{unprobed}"
    );
    let unknown = run(KYMO, ["probe", "-x", path, "%app:nothing"]).failure().stderr;
    assert!(unknown.contains("%app:copy, %app:text, %app:values"), "{unknown}");
}

#[test]
fn arguments_are_those_that_the_program_prints() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let _state = TracingState::take();
    compare("marks0", &["-g", "-O0"]);
    compare("marks2", &["-g", "-O2"]);
    compare("marks0s", &["-O0", "-DSEMAPHORES"]);
    compare("marks2s", &["-O2", "-DSEMAPHORES", "-no-pie"]);
}
