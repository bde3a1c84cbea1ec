//! The tools that bpftrace ships parse, type and compile.

mod common;

use std::path::{Path, PathBuf};

use common::TestFacts;
use kymo_bpf::{CompileOptions, compile};
use kymo_testkit::{Need, newest_peers, require};

fn tools_of(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let mut tools: Vec<PathBuf> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "bt")).collect();
    tools.sort();
    tools
}

#[test]
fn tools_of_bpftrace_compile() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let mut tools = tools_of(Path::new("/usr/sbin"));
    if let Some(newest) = newest_peers() {
        tools.extend(tools_of(&newest.join("usr/sbin")));
    }
    assert!(!tools.is_empty(), "bpftrace's tools are not installed: cargo xtask setup");
    let mut failed = Vec::new();
    for tool in &tools {
        let bytes = std::fs::read(tool).expect("a tool is readable");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Err(messages) = compile(&text, &CompileOptions::default(), &TestFacts::default()) {
            for message in messages {
                let position = message.position;
                let (line, column) = (position.line, position.column);
                failed.push(format!("{}:{line}:{column}: {}", tool.display(), message.text));
            }
        }
    }
    // Tracepoints that this kernel does not have are its matter, not the compiler's.
    failed.retain(|f| !f.contains("no such event"));
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), tools.len(), failed.join("\n"));
}
