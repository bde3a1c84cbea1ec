//! Traces of LTTng's tracer for programs: with buffers by user and by process, with
//! contexts and without, of every type of field, and with discarded events.

use std::process::Command;

use kymo_testkit::{Lttng, LttngSession, Need, require};

use crate::text::{agree, by_time};

const NEEDS: [Need; 3] = [Need::Lttng, Need::Babeltrace, Need::Gcc];

#[test]
fn traces_of_lttng_have_the_values_that_babeltrace2_shows() {
    if !require(&NEEDS) {
        return;
    }
    let (lttng, dir) = (Lttng::start(), tempfile::tempdir().unwrap());
    let program = lttng.program();
    let plain = LttngSession {
        output: dir.path(),
        by_process: false,
        sub_buffer: "64k",
        sub_buffers: 4,
        contexts: &["vpid", "vtid", "procname"],
        waits: false,
    };
    for by_process in [false, true] {
        let output = dir.path().join(format!("plain-{by_process}"));
        let mut command = Command::new(&program);
        command.arg("100");
        lttng.record(&LttngSession { output: &output, by_process, ..plain }, command);
        let (lines, stats, said) = agree(&output);
        assert_eq!((lines.len(), stats.lost, said.as_str()), (300, 0, ""));
        let of = |name: &str| lines.iter().filter(|(_, l)| l.starts_with(name)).count();
        assert_eq!((of("kt:numbers"), of("kt:rows"), of("kt:empty")), (100, 100, 100));
        assert!(lines[0].1.contains("procname = \"traced\" }"), "{}", lines[0].1);
        // The same as babeltrace2 writes it.
        let copy = dir.path().join(format!("copy-{by_process}"));
        let (from, to) = (output.to_str().unwrap(), copy.to_str().unwrap());
        let args = ["convert", from, "--output-format=ctf", "--output", to];
        let _ = kymo_testkit::run("babeltrace2", args).success();
        let (copied, stats, _) = agree(&copy);
        assert_eq!((by_time(&copied), stats.damaged_places), (by_time(&lines), 0));
    }
    // Sub-buffers so small that most of the events find no place.
    let output = dir.path().join("small");
    let mut command = Command::new(&program);
    command.args(["30000", "two"]);
    let small = LttngSession {
        output: &output,
        sub_buffer: "4k",
        sub_buffers: 2,
        contexts: &["perf:thread:page-fault", "ip"],
        ..plain
    };
    lttng.record(&small, command);
    let (lines, stats, said) = agree(&output);
    assert!(stats.lost > 0, "nothing was discarded");
    assert_eq!(lines.len() as u64 + stats.lost, 30_000);
    // WARNING: Tracer discarded 1152 events between …
    let counted = said.lines().filter_map(|l| {
        let (n, _) = l.split_once("discarded ")?.1.split_once(" events")?;
        n.parse::<u64>().ok()
    });
    assert_eq!(counted.sum::<u64>(), stats.lost, "{said}");
    assert_eq!(said.lines().count() as u64, stats.lost_places);
}
