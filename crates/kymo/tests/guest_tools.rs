//! The tools that bpftrace ships, in the guest, whose kernel has kprobes and fentry: each is
//! verified and attached, unless the kernel lacks what it probes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Tools that name members which the structures of Linux 6.1 do not have.
const OF_OTHER_KERNELS: [(&str, &str); 1] =
    // `nr_running` until Linux 6.14.
    [("newest-runqlen.bt", "struct cfs_rq has no member \"nr_queued\"")];

#[test]
fn each_tool_is_attached_or_names_what_the_kernel_lacks() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let Ok(entries) = std::fs::read_dir("/vm/bpftrace-tools") else {
        println!("skipped: bpftrace's tools are not installed on the host");
        return;
    };
    let mut tools: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    tools.sort();
    let functions =
        std::fs::read_to_string("/sys/kernel/tracing/available_filter_functions").unwrap();
    let is_function =
        |name: &str| functions.lines().any(|line| line.split(' ').next() == Some(name));
    let (mut attached, mut lacking, mut wrong) = (0, Vec::new(), Vec::new());
    for tool in &tools {
        let file = tool.file_name().unwrap().to_str().unwrap();
        let o = run(KYMO, ["run", "--dry-run", tool.to_str().unwrap()]);
        if o.status == 0 {
            attached += 1;
            continue;
        }
        let error = o.stderr.lines().find(|line| line.contains("ERROR: ")).unwrap_or(&o.stderr);
        let error = error.split("ERROR: ").last().unwrap().to_owned();
        // The probe or the binary that is not there.
        let missing =
            error.strip_prefix("No matches for ").or(error.strip_prefix("cannot attach "));
        let parts = |probe: &str| -> Option<String> {
            let mut parts = probe.split([':', '+', ' ']).filter(|s| !s.is_empty());
            parts.nth(1).map(|name| name.trim_end_matches('.').to_owned())
        };
        let name = missing.and_then(parts);
        let is_lacking = error.starts_with("No matches for tracepoint ")
            || OF_OTHER_KERNELS.iter().any(|(tool, text)| *tool == file && error.contains(text))
            || error.contains("is on the search path")
            || name.is_some_and(|name| !is_function(name.trim()));
        let list = if is_lacking { &mut lacking } else { &mut wrong };
        list.push(format!("{file}: {error}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{attached} of {} attached; not here:\n{}", tools.len(), lacking.join("\n"));
    assert!(attached * 4 >= tools.len() * 3, "{attached}:\n{}", lacking.join("\n"));
}
