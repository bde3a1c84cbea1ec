//! The tools that bpftrace ships, of its release 0.17 (Debian's package) and 0.27: each is compiled,
//! verified by the kernel and attached, as far as this kernel has what it probes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::PathBuf;

use kymo_testkit::{Need, newest_peers, peer, require, run};

fn tools(directory: PathBuf) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut tools: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "bt")).collect();
    tools.sort();
    tools
}

#[test]
fn each_tool_is_attached_or_lacks_something_here() {
    if !require(&[Need::Root, Need::Tracefs, Need::NewestPeers]) {
        return;
    }
    let Some(newest) = newest_peers() else { return };
    let all = [tools("/usr/sbin".into()), tools(newest.join("usr/sbin"))].concat();
    assert!(all.len() > 70, "{all:?}");
    let mut attached = 0;
    for tool in &all {
        let text = std::fs::read_to_string(tool).unwrap();
        let o = run(env!("CARGO_BIN_EXE_kymo"), ["run", "--dry-run", tool.to_str().unwrap()]);
        assert!(!o.stderr.contains("panicked"), "{tool:?}: {}", o.stderr);
        // What is wrong with the text would be said before; a refusal of the verifier is ours.
        let lacks_kprobes = o.stderr.contains("this kernel has no kprobes");
        if o.status == 0 {
            attached += 1;
        } else if !lacks_kprobes {
            // A function, symbol or member that is not there: for bpftrace neither.
            let theirs = peer("bpftrace").run(["--dry-run", "-e", &text]);
            assert!(theirs.status != 0, "{tool:?}: {}", o.stderr);
        }
    }
    assert!(attached >= 30, "{attached} of {}", all.len());
}
