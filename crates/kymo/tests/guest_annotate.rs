//! `kymo annotate` of the kernel, whose memory can be read in the guest.
#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use kymo_testkit::{Need, Workload, perf, require, run};

#[test]
fn functions_of_the_kernel_are_shown_out_of_its_memory() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Perf]) || !kymo_testkit::guest() {
        return;
    }
    let w = Workload::syscalls();
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let event = "cpu-clock:k";
    let args = ["record", "-q", "-F", "500", "-e", event, "-o", &file, &program, "400000"];
    let _ = perf(args).success();
    let script = perf(["script", "-F", "ip,sym", "-i", &file]).success().stdout;
    let shown = run(env!("CARGO_BIN_EXE_kymo"), ["annotate", "-i", &file, "-n", "--top", "5"]);
    let shown = shown.success().stdout;
    // Every sample is where an instruction of the kernel as it runs begins.
    assert!(!shown.contains("boundary:"), "{shown}");
    let mut functions = 0;
    for part in shown.split("Samples |  ").skip(1) {
        let name = part.split(" in ").next().unwrap();
        let theirs = script.lines().filter(|l| l.split_whitespace().nth(1) == Some(name)).count();
        let count = |l: &str| -> Option<u64> {
            let (cell, rest) = l.split_once(" :  ")?;
            let place = rest.split_whitespace().next()?;
            let code = place.starts_with("ffffffff") && place.ends_with(':');
            code.then(|| cell.trim().parse().unwrap_or(0))
        };
        let ours: u64 = part.lines().filter_map(count).sum();
        assert_eq!(ours, theirs as u64, "{name}\n{part}");
        functions += 1;
    }
    assert!(functions > 0, "{shown}");
}
