//! Programs of bpftrace's language with kprobes, kretprobes, fentry and fexit beside the installed
//! bpftrace, in the guest, whose kernel has them: each on the same command, with the same output.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod bpftrace_tools;

use std::fs::{create_dir_all, write};
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

/// What `kymo run` prints under bpftrace's name and as its release, and what bpftrace prints.
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
/// from run to run: processes, times since the begin.
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
            // The directory of a process is looked up by its number.
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

/// A tool, what its lines about the load contain, and columns that differ from run to run.
type WatchingTool<'a> = (&'a str, &'a [&'a str], &'a [usize]);

/// What bpftrace includes of the C library's headers, which the guest does not have.
const SOCKET_CONSTANTS: &str = "#define AF_INET 2\n#define AF_INET6 10\n";

/// The tool of 0.17 run by kymo and by bpftrace, and that of 0.27 run by kymo, on one load.
#[track_caller]
fn sees_connections_as_bpftrace_does((name, words, dropped): WatchingTool<'_>) {
    if !require(&NEEDS) {
        return;
    }
    let tool = |release: &str| format!("/vm/bpftrace-tools/{release}-{name}.bt");
    if !Path::new(&tool("installed")).exists() {
        println!("skipped: bpftrace's tools are not installed on the host");
        return;
    }
    let source = include_str!("guest_programs/connections.c");
    let connections = Workload::compile("connections", source);
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("bpftrace");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kymo"), &link).unwrap();
    let headers = directory.path().join("headers");
    create_dir_all(headers.join("sys")).unwrap();
    write(headers.join("sys/socket.h"), SOCKET_CONSTANTS).unwrap();
    let start = |program, release: &str, output: &str| {
        let output = directory.path().join(output);
        RunningTool::start(program, Path::new(&tool(release)), output)
    };
    // bpftrace first and by itself: it takes its time to start here.
    let mut theirs = Command::new("bpftrace");
    theirs.arg("-I").arg(&headers);
    let mut running = vec![start(theirs, "installed", "theirs")];
    running[0].wait_until_attached();
    let mut ours = Command::new(&link);
    ours.env("BPFTRACE_RELEASE", "0.17");
    running.push(start(ours, "installed", "ours"));
    if Path::new(&tool("newest")).exists() {
        running.push(start(Command::new(&link), "newest", "newer"));
    }
    running.iter().for_each(RunningTool::wait_until_attached);
    let _ = run(connections.arg(), [""; 0]).success();
    let lines: Vec<Vec<String>> =
        running.into_iter().map(|tool| tool.finish(words, dropped)).collect();
    assert!(!lines[0].is_empty(), "{name}: bpftrace printed nothing of the load");
    for ours in &lines[1..] {
        assert_eq!(*ours, lines[0], "{name}");
    }
}

#[test]
fn tcpconnect_sees_connections_as_bpftrace_does() {
    sees_connections_as_bpftrace_does(("tcpconnect", &["connections"], &[]));
}

#[test]
fn tcpaccept_sees_connections_as_bpftrace_does() {
    sees_connections_as_bpftrace_does(("tcpaccept", &["connections"], &[]));
}

#[test]
fn tcpretrans_sees_connections_as_bpftrace_does() {
    sees_connections_as_bpftrace_does(("tcpretrans", &[":7004"], &[]));
}

#[test]
fn tcpsynbl_sees_connections_as_bpftrace_does() {
    sees_connections_as_bpftrace_does(("tcpsynbl", &["@backlog[3]", "@backlog[0]"], &[]));
}

#[test]
fn undump_sees_messages_as_bpftrace_does() {
    sees_connections_as_bpftrace_does(("undump", &["connections"], &[]));
}
