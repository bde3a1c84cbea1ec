//! Programs of bpftrace's language with kprobes, kretprobes, fentry and fexit beside the installed
//! bpftrace, in the guest, whose kernel has them: each on the same command, with the same output.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod bpftrace_tools;

use std::path::Path;
use std::process::Command;

use bpftrace_tools::RunningTool;
use kymo_testkit::{Need, Workload, require, run, run_command};

const NEEDS: [Need; 3] = [Need::Root, Need::Tracefs, Need::Tool("bpftrace")];

const PROGRAMS: [&str; 8] = [
    "kprobe:vfs_read /pid == cpid/ { @[arg2] = count(); }",
    "kretprobe:vfs_read /pid == cpid/ { @[retval] = count(); }",
    "kprobe:vfs_read /pid == cpid/ { @begin[tid] = 1; @h = hist(arg2); } \
     kretprobe:vfs_read /@begin[tid]/ { @n = count(); delete(@begin[tid]); }",
    "kfunc:vfs_read /pid == cpid/ { @[args->count] = count(); }",
    "kretfunc:vfs_read /pid == cpid/ { @[args->count, retval] = count(); }",
    "kprobe:vfs_read /pid == cpid/ { @[kstack(2)] = count(); }",
    "kprobe:vfs_read /pid == cpid/ \
     { @[str(((struct file *)arg0)->f_path.dentry->d_name.name)] = count(); }",
    "kprobe:vfs_read /pid == cpid/ { printf(\"%s %d %s\\n\", comm, arg2, func); }",
];

/// Returns the output of `kymo run` under bpftrace's name and as its release, and that of bpftrace.
fn both(arguments: &[&str]) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("bpftrace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kymo"), &link).unwrap();
    let mut ours = Command::new(&link);
    ours.args(arguments).env("BPFTRACE_RELEASE", "0.17");
    let ours = run_command(ours).success();
    let theirs = run("bpftrace", arguments).success();
    (ours.stdout, theirs.stdout)
}

#[test]
fn functions_of_the_kernel_are_seen_as_bpftrace_sees_them() {
    if !require(&NEEDS) {
        return;
    }
    let reads = Workload::compile("reads", include_str!("guest_programs/reads.c"));
    let command = format!("{} 7", reads.arg());
    for program in PROGRAMS {
        let (ours, theirs) = both(&["-e", program, "-c", &command]);
        // Keys of one count come in any order, as a map has them; release 0.17 has an empty line
        // for a map that is empty, too.
        let sorted = |text: &str| -> Vec<String> {
            let mut lines: Vec<String> =
                text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&ours), sorted(&theirs), "{program}");
        assert!(ours.lines().count() > 2, "{program}: {ours}");
    }
}

#[test]
fn a_tool_with_kprobes_prints_what_it_prints_with_bpftrace() {
    if !require(&NEEDS) {
        return;
    }
    let tool = "/vm/bpftrace-tools/installed-capable.bt";
    if !Path::new(tool).exists() {
        println!("skipped: bpftrace's tools are not installed on the host");
        return;
    }
    let (ours, theirs) = both(&[tool, "-c", "/bin/hostname kymo-guest"]);
    // Time and process differ.
    let lines = |text: &str| -> Vec<String> {
        let about = text.lines().filter(|line| line.contains(" hostname "));
        about.map(|l| l.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(lines(&ours), lines(&theirs), "{ours}\n{theirs}");
    assert!(lines(&ours).iter().any(|line| line.contains("CAP_SYS_ADMIN")), "{ours}");
}

/// Tools beside bpftrace on one program, and the columns, without those of the clock, that differ
/// from run to run: processes, times since the start.
const TOOLS: [(&str, &[usize]); 2] = [("dcsnoop", &[0, 1]), ("setuids", &[0])];

#[test]
fn tools_with_kprobes_print_what_they_print_with_bpftrace() {
    if !require(&NEEDS) {
        return;
    }
    let sockets = Workload::compile("sockets", include_str!("guest_programs/sockets.c"));
    // What it looks up is known to the kernel afterwards.
    let _ = run(sockets.arg(), [""; 0]).success();
    for (name, dropped) in TOOLS {
        let tool = format!("/vm/bpftrace-tools/installed-{name}.bt");
        if !Path::new(&tool).exists() {
            println!("skipped: bpftrace's tools are not installed on the host");
            return;
        }
        let (ours, theirs) = both(&[&tool, "-c", sockets.arg()]);
        let is_time = |word: &str| word.len() == 8 && word.as_bytes()[2] == b':';
        let lines = |text: &str| -> Vec<String> {
            // The directory of a process is resolved by its number.
            let is_number = |line: &str| name == "dcsnoop" && line.ends_with(char::is_numeric);
            let about = text.lines().filter(|l| l.contains("sockets") && !is_number(l));
            let kept = |line: &str| {
                let words = line.split_whitespace().filter(|word| !is_time(word));
                let kept = words.enumerate().filter(|(column, _)| !dropped.contains(column));
                kept.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
            };
            let mut lines: Vec<String> = about.map(kept).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&ours), lines(&theirs), "{name}: {ours}\n{theirs}");
        assert!(!lines(&ours).is_empty(), "{name}: {ours}");
    }
}

/// Tools of connections, and the words that lines about the load have one of.
const OF_CONNECTIONS: [(&str, &[&str]); 6] = [
    ("tcpconnect", &["connections "]),
    ("tcpaccept", &["connections "]),
    ("tcplife", &["connection "]),
    ("tcpretrans", &[":7004"]),
    ("tcpsynbl", &["@backlog[3]", "@backlog[0]"]),
    ("undump", &["connections "]),
];

/// Not beside bpftrace: that of release 0.17 printed the same lines of this load, each of the six
/// tools at least once, but it does not always end at SIGINT in the guest. What they have to say of
/// the load is known.
#[test]
fn tools_of_both_releases_see_what_a_program_sends() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let tool = |release: &str, name: &str| format!("/vm/bpftrace-tools/{release}-{name}.bt");
    let is_there = |release: &&str| Path::new(&tool(release, "tcplife")).exists();
    let releases: Vec<&str> = ["installed", "newest"].into_iter().filter(is_there).collect();
    if releases.is_empty() {
        println!("skipped: bpftrace's tools are not installed on the host");
        return;
    }
    let source = include_str!("guest_programs/connections.c");
    let connections = Workload::compile("connections", source);
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("bpftrace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kymo"), &link).unwrap();
    let mut running = Vec::new();
    for (name, _) in OF_CONNECTIONS {
        for release in &releases {
            let mut ours = Command::new(&link);
            if *release == "installed" {
                ours.env("BPFTRACE_RELEASE", "0.17");
            }
            let output = directory.path().join(format!("{release}-{name}"));
            running.push(RunningTool::start(ours, Path::new(&tool(release, name)), output));
        }
    }
    running.iter().for_each(RunningTool::wait_until_attached);
    let _ = run(connections.arg(), [""; 0]).success();
    let mut running = running.into_iter();
    for (name, words) in OF_CONNECTIONS {
        // The life of a connection ends its line, as each of them measures it.
        let dropped: &[usize] = if name == "tcplife" { &[8] } else { &[] };
        let said: Vec<Vec<String>> =
            releases.iter().map(|_| running.next().unwrap().finish(words, dropped)).collect();
        assert!(said.iter().all(|lines| *lines == said[0]), "{name}: {said:#?}");
        let lines = &said[0];
        let with = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        let words = |part: &str| -> Vec<&str> {
            let line = lines.iter().find(|line| line.contains(part));
            line.unwrap_or_else(|| panic!("{name}: {lines:#?}")).split(' ').collect()
        };
        match name {
            // One connection to a port, two to another, of which the second is not taken.
            "tcpconnect" => {
                assert_eq!((with(" 7003"), with(" 7004"), lines.len()), (1, 2, 3), "{lines:#?}");
            }
            "tcpaccept" => {
                assert_eq!((with(" 127.0.0.1 7003 "), lines.len()), (1, 1), "{lines:#?}");
            }
            // 5,000 bytes are 4 kilobytes, sent by one end and received by the other.
            "tcplife" => {
                let (sender, receiver) = (words(" 127.0.0.1 7003 4 0"), words(" 7003 127.0.0.1 "));
                assert_eq!(sender[3], receiver[5], "{lines:#?}");
                assert_eq!(receiver[6..8], ["0", "4"], "{lines:#?}");
            }
            "tcpretrans" => {
                assert!(with("127.0.0.1:7004") > 0 && with("SYN_SENT") > 0, "{lines:#?}");
            }
            "tcpsynbl" => {
                assert_eq!((with("@backlog[3]"), with("@backlog[0]")), (1, 1), "{lines:#?}");
            }
            _ => assert_eq!((with("eightby"), lines.len()), (1, 1), "{name}: {lines:#?}"),
        }
    }
}
