//! The tools that bpftrace ships, of its release 0.17 (Debian's package) and 0.27: each is compiled,
//! verified by the kernel and attached, as far as this kernel has what it probes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// A tool that runs, and the file with its output.
struct RunningTool {
    child: Child,
    output: PathBuf,
}

impl RunningTool {
    fn start(mut program: Command, tool: &Path, output: PathBuf) -> RunningTool {
        let file = File::create(&output).unwrap();
        program.arg(tool).env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1").stdin(Stdio::null());
        // Paths are longer than what release 0.17 takes by itself.
        program.env("BPFTRACE_STRLEN", "200").env("BPFTRACE_MAX_STRLEN", "200");
        program.stdout(file.try_clone().unwrap()).stderr(file);
        RunningTool { child: program.spawn().unwrap(), output }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned()
    }

    fn wait_until_attached(&self) {
        let start = Instant::now();
        while !self.text().contains("__BPFTRACE_NOTIFY_PROBES_ATTACHED\n") {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it; the lines with one of the words, without what differs from run to run: times, and
    /// columns that have some.
    fn finish(mut self, words: &[&str], dropped: &[usize]) -> Vec<String> {
        let _ = run("kill", ["-INT", &self.child.id().to_string()]).success();
        assert!(self.child.wait().unwrap().success(), "{}", self.text());
        let text = self.text();
        let is_time = |word: &str| word.len() > 7 && word.as_bytes()[2] == b':';
        let without_times = |line: &str| {
            let words = line.split_whitespace().filter(|word| !is_time(word));
            let kept = words.enumerate().filter(|(column, _)| !dropped.contains(column));
            kept.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
        };
        // Below the key of a histogram are its rows.
        let (mut lines, mut is_within) = (Vec::new(), false);
        for line in text.lines() {
            let is_about = words.iter().any(|word| line.contains(word));
            is_within = is_about && line.starts_with('@') || is_within && !line.is_empty();
            if is_about || is_within {
                lines.push(without_times(line));
            }
        }
        if !text.contains("\n@") {
            lines.sort();
        }
        lines
    }
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

/// Not among them, and why: lines of execsnoop and setuids are printed in parts, between which
/// those of other processes may stand; cpuwalk, runqlen, runqlat, biolatency and biostacks measure
/// times of the whole machine, pidpersec counts by seconds that begin with the tool, writeback and
/// tcpdrop show what the kernel does when it likes, threadsnoop, ssllatency and sslsnoop look for
/// libraries each in its own way (of the newest peers, those unpacked with them); the others need
/// kprobes, some of which are in guest_bpftrace.rs.
const OF_NEWEST: [ToolCase<'_>; 8] = [
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

/// The same load seen by a tool that kymo and one that bpftrace runs.
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
