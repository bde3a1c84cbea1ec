//! The tools that bpftrace ships, in the guest, whose kernel has kprobes and fentry: each is
//! verified and attached, unless the kernel lacks what it probes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

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
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let has_name = |name: &str| {
        let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
        btf.windows(wanted.len()).any(|part| part == wanted)
    };
    let (mut attached, mut lacking) = (0, Vec::new());
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
            error.strip_prefix("no such probe: ").or(error.strip_prefix("cannot attach "));
        let name =
            missing.and_then(|probe| probe.split([':', '+']).filter(|s| !s.is_empty()).nth(1));
        let member = error.split("has no member \"").nth(1).and_then(|rest| rest.strip_suffix('"'));
        let is_lacking = error.starts_with("tracepoint not found: ")
            || member.is_some_and(|name| !has_name(name))
            || error.contains("is on the search path")
            || name.is_some_and(|name| !is_function(name.trim()));
        assert!(is_lacking, "{file}: {}", o.stderr);
        lacking.push(format!("{file}: {error}"));
    }
    println!("{attached} of {} attached; not here:\n{}", tools.len(), lacking.join("\n"));
    assert!(attached * 10 >= tools.len() * 8, "{attached}:\n{}", lacking.join("\n"));
}
