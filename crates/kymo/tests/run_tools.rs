//! The tools that bpftrace ships, of its release 0.17 (Debian's package) and 0.27: each is compiled,
//! verified by the kernel and attached, as far as this kernel has what it probes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod bpftrace_tools;

use std::path::{Path, PathBuf};
use std::process::Command;

use bpftrace_tools::{IN_THE_GUEST, NOT_COMPARED, RunningTool};
use kymo_testkit::{Need, newest_peers, peer, require, run, run_command};

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

/// A tool, what it is given to see, and columns with times besides those of the clock. `MARK` is a
/// file of the test's own, `NAME` the name of a program.
type ToolCase<'a> = (&'a str, &'a str, &'a [usize]);

const FILES: &str = "echo $$; cat MARK > /dev/null; cat MARK-not-there 2> /dev/null; \
                     stat MARK > /dev/null; kill -0 $$; exec /bin/true MARK";
const WRITES: &str = "cp /bin/dd NAME; ./NAME if=/dev/zero of=big bs=4k count=6 oflag=direct && \
                      ./NAME if=/dev/zero of=big bs=64k count=2 oflag=direct";
const CALLS: &str = "cp /bin/dd NAME; ./NAME if=/dev/zero of=/dev/null bs=1 count=1000000";
const SYNCS: &str = "cp /bin/sync NAME; ./NAME MARK; ./NAME -d MARK; ./NAME -f MARK";
const HOSTS: &str = "cp /usr/bin/getent NAME; ./NAME ahosts localhost > /dev/null";
const SLEEPS: &str = "echo $$; sleep 0.0101; sleep 0.002";
const TYPED: &str = "(sleep 0.5; echo ': NAME'; sleep 0.5; echo exit) | \
                     script -qec 'bash --norc -i' /dev/null > /dev/null";

/// The others are in `bpftrace_tools`: compared in the guest, or why they are not.
const OF_NEWEST: [ToolCase<'_>; 10] = [
    ("opensnoop", FILES, &[]),
    ("killsnoop", FILES, &[]),
    ("statsnoop", FILES, &[]),
    ("naptime", SLEEPS, &[]),
    ("syncsnoop", SYNCS, &[]),
    ("gethostlatency", HOSTS, &[2]),
    ("biosnoop", WRITES, &[0, 5]),
    ("bitesize", WRITES, &[]),
    ("syscount", CALLS, &[]),
    ("bashreadline", TYPED, &[]),
];
const OF_INSTALLED: [ToolCase<'_>; 8] = [
    ("opensnoop", FILES, &[]),
    ("statsnoop", FILES, &[]),
    ("killsnoop", FILES, &[]),
    ("syncsnoop", SYNCS, &[]),
    ("gethostlatency", HOSTS, &[2]),
    ("bitesize", WRITES, &[]),
    ("syscount", CALLS, &[]),
    ("bashreadline", TYPED, &[]),
];

#[test]
fn each_tool_is_compared_or_it_is_said_why_not() {
    if !require(&[Need::Tool("bpftrace"), Need::NewestPeers]) {
        return;
    }
    let Some(newest) = newest_peers() else { return };
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let (installed, newest) = (tools("/usr/sbin".into()), tools(newest.join("usr/sbin")));
    let elsewhere = |name: &str| {
        IN_THE_GUEST.contains(&name) || NOT_COMPARED.iter().any(|(tool, _)| *tool == name)
    };
    for (tools, cases) in [(&installed, &OF_INSTALLED[..]), (&newest, &OF_NEWEST[..])] {
        let missing: Vec<String> = tools
            .iter()
            .map(name)
            .filter(|name| !cases.iter().any(|(tool, ..)| tool == name) && !elsewhere(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    // No word of what is not there.
    let shipped: Vec<String> = installed.iter().chain(&newest).map(name).collect();
    let named = IN_THE_GUEST.into_iter().chain(NOT_COMPARED.into_iter().map(|(name, _)| name));
    for name in named {
        assert!(shipped.iter().any(|tool| tool == name), "{name}");
    }
}

/// Asserts that a tool prints the same in kymo and in bpftrace under the same load.
#[track_caller]
fn tools_print_the_same(
    directory: &Path,
    cases: &[ToolCase<'_>],
    release: Option<&str>,
    bpftrace: &dyn Fn() -> Command,
) {
    // On a disk: blocks are written to it.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let link = dir.path().join("bpftrace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kymo"), &link).unwrap();
    let mark = dir.path().join("a-mark");
    std::fs::write(&mark, "x").unwrap();
    let mark = mark.to_str().unwrap();
    for (number, (name, load, dropped)) in cases.iter().enumerate() {
        let tool = directory.join(format!("{name}.bt"));
        let mut own = Command::new(&link);
        own.envs(release.map(|release| ("BPFTRACE_RELEASE", release)));
        let ours = RunningTool::start(own, &tool, dir.path().join("ours"));
        let theirs = RunningTool::start(bpftrace(), &tool, dir.path().join("theirs"));
        ours.wait_until_attached();
        theirs.wait_until_attached();
        let program = format!("m{}-{number}", std::process::id());
        let load = load.replace("MARK", mark).replace("NAME", &program);
        let mut shell = Command::new("sh");
        shell.args(["-c", &load]).current_dir(dir.path());
        let load = run_command(shell).success();
        let shell = load.stdout.trim();
        let mut words = vec![mark, &program];
        words.extend(Some(shell).filter(|shell| !shell.is_empty()));
        let (ours, theirs) = (ours.finish(&words, dropped), theirs.finish(&words, dropped));
        assert_eq!(ours, theirs, "{}", tool.display());
        assert!(!ours.is_empty(), "{}", tool.display());
    }
}

#[test]
fn tools_of_the_newest_release_print_what_it_prints() {
    if !require(&[Need::Root, Need::Tracefs, Need::NewestPeers]) {
        return;
    }
    let Some(newest) = newest_peers() else { return };
    let tools = newest.join("usr/sbin");
    tools_print_the_same(&tools, &OF_NEWEST, None, &|| peer("bpftrace").command());
}

#[test]
fn tools_of_the_installed_release_print_what_it_prints() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("bpftrace")]) {
        return;
    }
    let tools = Path::new("/usr/sbin");
    tools_print_the_same(tools, &OF_INSTALLED, Some("0.17"), &|| Command::new("bpftrace"));
}
