//! The tools that bpftrace ships pass the verifier of this kernel. Nothing is attached.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::{Path, PathBuf};

use kymo_programs::{MachineFacts, ProgramError, ProgramOptions, compile_program, verify_program};
use kymo_testkit::{Need, newest_peers, peer, require};

fn tools_of(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.filter_map(|e| Some(e.ok()?.path()));
    let mut tools: Vec<PathBuf> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "bt")).collect();
    tools.sort();
    tools
}

/// Whether the message is about an event, function or module type that this kernel lacks.
fn is_missing(text: &str) -> bool {
    [
        "No matches for",
        "no such",
        "no function",
        "has no ",
        "unknown ",
        "not in the kernel's BTF",
        "resolve kernel symbol",
    ]
    .iter()
    .any(|part| text.contains(part))
}

/// Whether the newest bpftrace, where it is there, cannot run a tool on this machine either.
fn refused_by_peer(tool: &Path) -> bool {
    newest_peers().is_none()
        || peer("bpftrace").run(["--dry-run", tool.to_str().unwrap(), "1", "x"]).status != 0
}

#[test]
fn tools_of_bpftrace_pass_the_verifier() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let mut tools = tools_of(Path::new("/usr/sbin"));
    if let Some(newest) = newest_peers() {
        tools.extend(tools_of(&newest.join("usr/sbin")));
    }
    assert!(!tools.is_empty(), "bpftrace's tools are not installed: cargo xtask setup");
    let facts = MachineFacts::new(None);
    let (mut loaded, mut failed, mut missing) = (0, Vec::new(), Vec::new());
    for tool in &tools {
        let bytes = std::fs::read(tool).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // A number and a text, for those that ask for parameters.
        let parameters = vec!["1".to_owned(), "x".to_owned()];
        let options = ProgramOptions { parameters, ..ProgramOptions::default() };
        let outcome = compile_program(&text, &options, &facts)
            .and_then(|program| verify_program(&program, &facts));
        match outcome {
            Ok(programs) => {
                assert!(programs > 0, "{}: no program", tool.display());
                loaded += 1;
            }
            Err(ProgramError::Compile(messages)) => {
                let texts: Vec<String> = messages.into_iter().map(|m| m.text).collect();
                let is_lacking = texts.iter().all(|t| is_missing(t)) && refused_by_peer(tool);
                let list = if is_lacking { &mut missing } else { &mut failed };
                list.push(format!("{}: {}", tool.display(), texts.join("; ")));
            }
            Err(error) => failed.push(format!("{}: {error}", tool.display())),
        }
    }
    println!("{loaded} loaded; not on this machine:\n{}", missing.join("\n"));
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), tools.len(), failed.join("\n"));
    let (all, list) = (tools.len(), missing.join("\n"));
    assert!(missing.len() * 6 < all, "only {loaded} of {all}:\n{list}");
}
