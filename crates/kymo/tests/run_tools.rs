//! The tools that bpftrace ships, of its release 0.17 (Debian's package) and 0.27: each is compiled,
//! verified by the kernel and attached, as far as this kernel has what it probes.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// What a tool is given to see: files that are there and not, a signal, a command that is executed.
const LOAD: &str = "echo $$; cat MARK > /dev/null; cat MARK-not-there 2> /dev/null; \
                    stat MARK > /dev/null; kill -0 $$; exec /bin/true MARK";

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

    /// Ends it; the lines with one of the words, without what differs from run to run.
    fn finish(mut self, words: &[&str]) -> Vec<String> {
        let _ = run("kill", ["-INT", &self.child.id().to_string()]).success();
        assert!(self.child.wait().unwrap().success(), "{}", self.text());
        let text = self.text();
        let is_time = |word: &str| word.len() > 7 && word.as_bytes()[2] == b':';
        let without_times = |line: &str| {
            let words = line.split_whitespace().filter(|word| !is_time(word));
            words.collect::<Vec<_>>().join(" ")
        };
        let about = |line: &&str| words.iter().any(|word| line.contains(word));
        let mut lines: Vec<String> = text.lines().filter(about).map(without_times).collect();
        lines.sort();
        lines
    }
}

/// The same load seen by a tool that kymo and one that bpftrace runs.
#[track_caller]
fn tools_print_the_same(directory: &Path, names: &[&str], bpftrace: &dyn Fn() -> Command) {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("bpftrace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kymo"), &link).unwrap();
    let mark = dir.path().join("a-mark");
    std::fs::write(&mark, "x").unwrap();
    let mark = mark.to_str().unwrap();
    for name in names {
        let tool = directory.join(format!("{name}.bt"));
        let ours = RunningTool::start(Command::new(&link), &tool, dir.path().join("ours"));
        let theirs = RunningTool::start(bpftrace(), &tool, dir.path().join("theirs"));
        ours.wait_until_attached();
        theirs.wait_until_attached();
        let load = run("sh", ["-c", &LOAD.replace("MARK", mark)]).success();
        let shell = load.stdout.trim();
        let words = [mark, shell];
        let (ours, theirs) = (ours.finish(&words), theirs.finish(&words));
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
    // It prints a line at once; where others do not, lines of other processes may stand between the parts.
    let names = ["statsnoop"];
    tools_print_the_same(&newest.join("usr/sbin"), &names, &|| peer("bpftrace").command());
}

#[test]
fn tools_of_the_installed_release_print_what_it_prints() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("bpftrace")]) {
        return;
    }
    let names = ["opensnoop", "statsnoop", "killsnoop"];
    tools_print_the_same(Path::new("/usr/sbin"), &names, &|| Command::new("bpftrace"));
}
