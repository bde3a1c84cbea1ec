//! `kymo probe --cache`: definitions kept by build-id, and the index of large
//! debugging information. Both in a cache of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, kernel_debug, require, run};

const C: &str = include_str!("probe_programs/plain.c");

fn kymo(cache: &Path, words: &[&str]) -> Outcome {
    let setting = format!("KYMO_CACHE={}", cache.display());
    let command = [setting.as_str(), env!("CARGO_BIN_EXE_kymo"), "probe"];
    run("env", [&command[..], words].concat())
}

#[test]
fn a_kept_probe_needs_no_debugging_information() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let source = directory.path().join("plain.c");
    // The group is the program's name: no other test has it.
    let program = directory.path().join("keptprog");
    std::fs::write(&source, C).unwrap();
    let tool = |name: &str, args: &[&str]| {
        let done = Command::new(name).args(args).current_dir(directory.path()).status().unwrap();
        assert!(done.success(), "{name} {args:?}");
    };
    tool("gcc", &["-g", "-O2", "-Wl,--build-id=sha1", "-o", "keptprog", "plain.c"]);
    let target = ["-q", "-x", program.to_str().unwrap()];
    let with = |words: &[&str]| kymo(&cache, &[&target[..], words].concat());
    let definition = with(&["-D", "mine=work o->in.x msg:string"]).success().stdout;
    let _ = with(&["--cache", "-a", "mine=work o->in.x msg:string"]).success();
    let kept = kymo(&cache, &["--cache", "--list"]).success().stdout;
    let lines: Vec<&str> = kept.lines().collect();
    assert!(lines[0].starts_with(program.to_str().unwrap()) && lines[0].ends_with("):"), "{kept}");
    assert_eq!(lines[1..], ["mine=work o->in.x msg:string"]);
    let _ = with(&["-d", "probe_keptprog:*"]).success();
    // The same binary without debugging information, at another place.
    tool("objcopy", &["--strip-debug", "keptprog", "stripped"]);
    let stripped = directory.path().join("stripped");
    let target = ["-q", "-x", stripped.to_str().unwrap()];
    let with = |words: &[&str]| kymo(&cache, &[&target[..], words].concat());
    let refused = with(&["-a", "mine=work o->in.x msg:string"]).failure();
    assert!(refused.stderr.contains("no debugging information"), "{}", refused.stderr);
    for again in ["mine=work o->in.x msg:string", "%probe_keptprog:mine"] {
        let _ = with(&["--cache", "-a", again]).success();
        let events = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap();
        let line = events.lines().find(|l| l.contains("probe_keptprog/mine")).unwrap().to_owned();
        let _ = kymo(&cache, &["-q", "-d", "probe_keptprog:*"]).success();
        let fetched = |line: &str| line.split_once(" o").map(|f| f.1.to_owned());
        assert_eq!(fetched(&line), fetched(definition.trim_end()), "{line}");
        assert!(line.contains(stripped.to_str().unwrap()), "{line}");
    }
    // What is damaged is named and not used, and renewed by the next one kept.
    let file = std::fs::read_dir(&cache).unwrap().flatten().next().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let listed = kymo(&cache, &["--cache", "--list"]).success();
    assert!(listed.stderr.contains("checksum"), "{}", listed.stderr);
    let target = ["-x", program.to_str().unwrap()];
    let with = |words: &[&str]| kymo(&cache, &[&target[..], words].concat());
    let added = with(&["--cache", "-a", "other=work"]).success();
    assert!(added.stderr.contains("checksum"), "{}", added.stderr);
    let _ = kymo(&cache, &["-q", "-d", "probe_keptprog:*"]).success();
    assert!(kymo(&cache, &["--cache", "--list"]).success().stdout.ends_with("other=work\n"));
    let _ = kymo(&cache, &["-q", "--cache", "-d", "nothing:*"]).failure();
    let _ = kymo(&cache, &["-q", "--cache", "-d", "probe_keptprog:other"]).success();
    assert_eq!(kymo(&cache, &["--cache", "--list"]).success().stdout, "");
}

#[test]
fn an_index_is_made_by_the_second_search_and_renewed_when_damaged() {
    if !require(&[Need::KernelDebug]) {
        return;
    }
    let vmlinux = kernel_debug().unwrap().vmlinux;
    let target = ["-k", vmlinux.to_str().unwrap()];
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let ask = |cache: &Path, words: &[&str]| kymo(cache, &[&target[..], words].concat()).success();
    let questions: [&[&str]; 6] = [
        &["-D", "vfs_read file->f_mode"],
        &["--max-probes", "1000", "-D", "ksys_*"],
        &["-D", "fs/read_write.c:468"],
        &["-D", "read_write.c:470 $vars"],
        &["-V", "vfs_read", "--externs"],
        &["-D", "vfs_read:6 count"],
    ];
    let off = Path::new("off");
    let index = || {
        let files = std::fs::read_dir(&cache).into_iter().flatten().flatten().map(|f| f.path());
        files.into_iter().find(|f| f.extension().is_some_and(|e| e == "probe-index"))
    };
    let plain: Vec<String> = questions.iter().map(|q| ask(off, q).stdout).collect();
    let _ = ask(&cache, questions[0]);
    assert_eq!(index(), None);
    let _ = ask(&cache, questions[0]);
    let file = index().unwrap();
    for (question, plain) in questions.iter().zip(&plain) {
        assert!(!plain.is_empty());
        assert_eq!(ask(&cache, question).stdout, *plain, "{question:?}");
    }
    let whole = std::fs::read(&file).unwrap();
    for (damage, named) in [(whole.len() / 2, "checksum"), (0, "not a cache file")] {
        let mut bytes = whole.clone();
        bytes[damage] ^= 0x10;
        std::fs::write(&file, bytes).unwrap();
        let outcome = ask(&cache, questions[0]);
        assert_eq!(outcome.stdout, plain[0]);
        assert!(outcome.stderr.contains(named), "{}", outcome.stderr);
        // It was renewed.
        assert!(std::fs::read(&file).unwrap() == whole);
        assert_eq!(ask(&cache, questions[0]).stderr, "");
    }
}
