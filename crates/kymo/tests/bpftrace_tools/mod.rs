//! Tools that bpftrace ships, run by kymo or by bpftrace, and where each is compared.
#![allow(dead_code, reason = "the tests that have this module use parts of it")]
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]
#![allow(unreachable_pub, reason = "a module of tests")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::run;

/// Tools whose lines are checked in the guest, by `guest_bpftrace.rs`: capable, dcsnoop and setuids
/// beside bpftrace 0.17, the others, of both releases, by what is known of the load.
pub const IN_THE_GUEST: [&str; 9] = [
    "capable",
    "dcsnoop",
    "setuids",
    "tcpaccept",
    "tcpconnect",
    "tcplife",
    "tcpretrans",
    "tcpsynbl",
    "undump",
];

/// Tools that are not compared, and why. All are compiled, verified and attached where the kernel
/// has what they probe (`run_tools.rs`, `guest_tools.rs`).
pub const NOT_COMPARED: [(&str, &str); 22] = [
    ("biolatency", "times of the whole machine's requests"),
    ("biolatency-kp", "times of the whole machine's requests"),
    ("biosnoop", "0.17's has kprobes and wants a disk: not tried in the guest"),
    ("biostacks", "times of the whole machine's requests"),
    ("cpuwalk", "samples of the whole machine"),
    ("execsnoop", "a line is printed in parts, between which those of other processes may stand"),
    ("loads", "the machine's load at the moments at which it looks"),
    ("mdflush", "no RAID in the guest"),
    ("naptime", "0.17's sees nanosleep(2), which no program of the C library makes any more"),
    ("oomkill", "wants a cgroup that is out of memory: tried in the guest, did not come to an end"),
    ("pidpersec", "counts by seconds that begin with the tool"),
    ("runqlat", "times of the whole machine's tasks"),
    ("runqlen", "samples of the whole machine"),
    ("ssllatency", "of libraries that each finds its own way (the newest peer's are beside it)"),
    ("sslsnoop", "of libraries that each finds its own way (the newest peer's are beside it)"),
    ("swapin", "no swap in the guest"),
    ("tcpdrop", "0.17's bpftrace did not attach it in the guest"),
    ("threadsnoop", "of libraries that each finds its own way (the newest peer's are beside it)"),
    ("vfscount", "counts of the whole machine"),
    ("vfsstat", "counts of the whole machine by seconds that begin with the tool"),
    ("writeback", "what the kernel does when it likes"),
    ("xfsdist", "no XFS in the guest"),
];

/// A tool that runs, and the file with its output.
pub struct RunningTool {
    child: Child,
    output: PathBuf,
}

impl RunningTool {
    pub fn start(mut program: Command, tool: &Path, output: PathBuf) -> RunningTool {
        let file = File::create(&output).unwrap();
        program.arg(tool).env("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "1").stdin(Stdio::null());
        // Paths are longer than what release 0.17 takes by itself.
        program.env("BPFTRACE_STRLEN", "200").env("BPFTRACE_MAX_STRLEN", "200");
        program.stdout(file.try_clone().unwrap()).stderr(file);
        RunningTool { child: program.spawn().unwrap(), output }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned()
    }

    pub fn wait_until_attached(&self) {
        let start = Instant::now();
        while !self.text().contains("__BPFTRACE_NOTIFY_PROBES_ATTACHED\n") {
            assert!(start.elapsed() < Duration::from_secs(90), "{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it; the lines with one of the words, without what differs from run to run: times, and
    /// columns that have some.
    pub fn finish(mut self, words: &[&str], dropped: &[usize]) -> Vec<String> {
        // The shell has it where there is no such program.
        let kill = format!("kill -INT {}", self.child.id());
        let _ = run("sh", ["-c", &kill]).success();
        // Release 0.17 of bpftrace does not always end in the guest: said, rather than waited for.
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
            let output = self.output.display();
            let waited = start.elapsed() < Duration::from_secs(60);
            assert!(waited, "{output}: not ended by SIGINT: {}", self.text());
        };
        assert!(status.success(), "{}", self.text());
        about(&self.text(), words, dropped)
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        // Of a test that failed. Who was waited for is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a tool's output with one of the words.
pub fn about(text: &str, words: &[&str], dropped: &[usize]) -> Vec<String> {
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
