//! `kymo strace` beside strace 6.1: the lines of programs, task by task, equal after numbers of
//! processes, addresses, times and random bytes are taken out.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, Unprivileged, Workload, require, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Programs of every Debian, each as a command of the shell in a directory with the files `a`
/// and `b`. What two runs of one program do differently by themselves is no call here: `ps`, hash
/// tables of `awk` and the like.
const PROGRAMS: [&str; 32] = [
    "exec true",
    "exec cat a",
    "exec ls -l .",
    "exec cp a c",
    "exec mv b c",
    "exec mkdir -p d/e/f",
    "exec rm -r a b",
    "exec ln -s a link",
    "exec touch -d '2001-02-03 04:05:06' a",
    "exec chmod 0640 a",
    "exec dd if=a of=c bs=16 count=2 status=none",
    "exec wc a b",
    "exec head -c 5 a",
    "exec tail -n 1 a",
    "exec sort -r a",
    "exec uniq a",
    "exec cut -c 1-3 a",
    "exec tr a-z A-Z < a",
    "exec grep -n line a",
    "exec sed s/line/row/ a",
    "exec od -c a",
    "exec sha256sum a b",
    "exec base64 a",
    "exec cmp a b",
    "exec diff a b",
    "exec find . -name a",
    "exec tar cf c a b",
    "exec sleep 0.01",
    "exec env -i A=1 /bin/true",
    "exec readlink -f a",
    "(exit 3); (kill -9 0$$ 2> /dev/null); cat a | cat > c; exit 4",
    "sh -c 'kill -USR1 $$'; sh -c 'kill -KILL $$'; true",
];

/// Puts marks in the place of what differs between runs.
struct Marks {
    pids: BTreeSet<String>,
}

/// Runs of digits, of hexadecimal ones behind `0x` too, that `change` may replace.
fn replace_numbers(line: &str, change: impl Fn(&str, &str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_hex = rest.starts_with("0x");
        let start = if is_hex { 2 } else { 0 };
        let digit = |c: char| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
        let end = rest[start..].find(|c| !digit(c)).map_or(rest.len(), |end| start + end);
        let (number, after) = rest.split_at(end);
        out.push_str(&change(&out, number).unwrap_or_else(|| number.to_owned()));
        rest = after;
    }
    out + rest
}

impl Marks {
    fn line(&self, line: &str) -> String {
        // Random bytes, which CPU it was, and what the machine has left.
        let varying = ["getrandom(", "getcpu(", "sysinfo(", "statfs(", "fstatfs("];
        // Addresses of /proc/self/maps.
        let is_maps = line.starts_with("read(") && line.contains(" r--p 0\"...");
        if is_maps || varying.iter().any(|call| line.starts_with(call)) {
            return line.split('(').next().unwrap().to_owned();
        }
        let line = replace_numbers(line, |before, number| {
            let is_time = ["_nsec=", "_usec=", "tv_sec=", "time=", "tms_", "htons("]
                .iter()
                .any(|name| before.ends_with(name));
            if number.starts_with("0x") && number.len() >= 7 {
                Some("ADDRESS".to_owned())
            } else if self.pids.contains(number) {
                Some("PID".to_owned())
            } else if is_time && number.len() > 2 {
                Some("TIME".to_owned())
            } else {
                None
            }
        });
        let returns_time = line.starts_with("times(") || line.starts_with("getppid(");
        let (call, result) = line.rsplit_once(" = ").unwrap_or((&line, ""));
        format!("{} = {}", call.trim_end(), if returns_time { "TIME" } else { result })
    }
}

/// The lines of each task, in the order in which tasks began; calls that were interrupted joined.
fn lines_of(text: &str) -> Vec<Vec<String>> {
    let mut order = Vec::new();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut begun: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines() {
        let (pid, line) = line.split_once(' ').unwrap();
        let (pid, mut line) = (pid.to_owned(), line.trim_start().to_owned());
        if !lines.contains_key(&pid) {
            order.push(pid.clone());
            lines.insert(pid.clone(), Vec::new());
        }
        if let Some(first) = line.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, first.to_owned());
            continue;
        }
        if line.starts_with("<... ")
            && let Some((_, rest)) = line.split_once(" resumed>")
        {
            line = begun.remove(&pid).unwrap() + rest;
        }
        lines.get_mut(&pid).unwrap().push(line);
    }
    let marks = Marks { pids: order.iter().cloned().collect() };
    let mut tasks: Vec<Vec<String>> =
        order.iter().map(|pid| lines[pid].iter().map(|line| marks.line(line)).collect()).collect();
    // Tasks that run side by side begin in any order.
    if let Some(rest) = tasks.get_mut(1..) {
        rest.sort();
    }
    tasks
}

/// Makes the directory with the files that the programs read, anew.
fn fill(directory: &Path, owner: Option<u32>) {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir(directory).unwrap();
    for (name, text) in [("a", "line one\nline two\n"), ("b", "line one\nline 2\n")] {
        std::fs::write(directory.join(name), text).unwrap();
        std::os::unix::fs::chown(directory.join(name), owner, owner).unwrap();
    }
    std::os::unix::fs::chown(directory, owner, owner).unwrap();
}

/// Runs a command below a tracer, as this user, in a directory that is made anew: what it wrote
/// about the command.
fn traced(
    tracer: &[&str],
    command: &[&str],
    user: Option<u32>,
    directory: &Path,
) -> (Outcome, String) {
    use std::os::unix::process::CommandExt as _;
    // Both tracers see the same path, which lines have.
    let directory = directory.join("work");
    fill(&directory, user);
    let output = directory.join(".calls");
    let mut run = Command::new(tracer[0]);
    run.args(&tracer[1..]).args(["-f", "-o"]).arg(&output).args(command);
    run.current_dir(&directory).env_clear().env("PATH", "/usr/bin:/bin");
    if let Some(user) = user {
        run.uid(user).gid(user);
    }
    let outcome = run_command(run);
    (outcome, std::fs::read_to_string(output).unwrap())
}

/// Returns the difference between the lines of both.
fn difference(
    command: &[&str],
    kymo: &[&str],
    user: Option<u32>,
    directory: &Path,
) -> Option<String> {
    let strace = [&["strace"], kymo.get(2..).unwrap_or_default()].concat();
    let (theirs, their_text) = traced(&strace, command, user, directory);
    let (ours, our_text) = traced(kymo, command, user, directory);
    if theirs.stdout != ours.stdout {
        return Some(format!("{command:?} wrote {:?} and {:?}", theirs.stdout, ours.stdout));
    }
    let (their_tasks, our_tasks) = (lines_of(&their_text), lines_of(&our_text));
    if their_tasks.len() != our_tasks.len() {
        return Some(format!("{command:?}: {} tasks, {}", their_tasks.len(), our_tasks.len()));
    }
    for (theirs, ours) in their_tasks.iter().zip(&our_tasks) {
        let both = theirs.iter().zip(ours).find(|(theirs, ours)| theirs != ours);
        if let Some((theirs, ours)) = both {
            return Some(format!("{command:?}\n  strace {theirs}\n  kymo   {ours}"));
        }
        if theirs.len() != ours.len() {
            return Some(format!("{command:?}: {} lines, {}", theirs.len(), ours.len()));
        }
    }
    None
}

/// Compares until both runs did the same: what a program does may depend on what ran when.
fn check(command: &[&str], kymo: &[&str], user: Option<u32>) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(directory.path(), user, user).unwrap();
    let mut last = String::new();
    for _ in 0..4 {
        match difference(command, kymo, user, directory.path()) {
            None => return Ok(()),
            Some(text) => last = text,
        }
    }
    Err(last)
}

#[test]
fn lines_of_programs_are_those_of_strace() {
    if !require(&[Need::Root, Need::Tool("strace")]) {
        return;
    }
    let wrong: Vec<String> = PROGRAMS
        .iter()
        .filter_map(|program| check(&["sh", "-c", program], &[KYMO, "strace"], None).err())
        .collect();
    assert!(wrong.is_empty(), "{} programs\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_ordinary_user_has_the_same_lines() {
    if !require(&[Need::Root, Need::Tool("strace")]) {
        return;
    }
    let place = Unprivileged::new(Path::new(KYMO));
    let kymo = place.dir().join("kymo");
    let kymo = [kymo.to_str().unwrap(), "strace"];
    let wrong: Vec<String> = PROGRAMS
        .iter()
        .filter_map(|program| {
            check(&["sh", "-c", program], &kymo, Some(kymo_testkit::UNPRIVILEGED_UID)).err()
        })
        .collect();
    assert!(wrong.is_empty(), "{} programs\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_structure_is_that_of_strace() {
    if !require(&[Need::Root, Need::Tool("strace"), Need::Gcc]) {
        return;
    }
    let source = include_str!("programs/every_structure.c");
    let work = Workload::compile("every_structure", source);
    check(&[work.arg()], &[KYMO, "strace"], None).unwrap();
}

const WHOLE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>
int main(void) {
    struct stat status;
    struct statx more;
    struct utsname names;
    struct iovec parts[40];
    stat("/etc/passwd", &status);
    stat("/dev/null", &status);
    statx(AT_FDCWD, "/etc/passwd", 0, STATX_ALL, &more);
    statx(AT_FDCWD, "/dev/null", 0, STATX_BASIC_STATS, &more);
    uname(&names);
    for (int i = 0; i < 40; i++) parts[i] = (struct iovec){"x", 1};
    writev(open("/dev/null", O_WRONLY), parts, 40);
    return 0;
}
"#;

#[test]
fn whole_structures_are_those_of_strace() {
    if !require(&[Need::Root, Need::Tool("strace"), Need::Gcc]) {
        return;
    }
    let work = Workload::compile("whole_structures", WHOLE);
    for options in [&["-v"][..], &["--no-abbrev"], &["-e", "abbrev=none"]] {
        check(&[work.arg()], &[&[KYMO, "strace"], options].concat(), None).unwrap();
    }
    // Under its long names an option is the same.
    for options in [
        &["--trace=/^new.*stat|^uname$", "--string-limit=5"][..],
        &["-e", "trace=/stat", "--successful-only"],
        &["--trace-path=/dev/null", "--decode-fds"],
    ] {
        check(&[work.arg()], &[&[KYMO, "strace"], options].concat(), None).unwrap();
    }
}

/// A command that a signal ends: the tracer ends so, too.
#[test]
fn the_end_by_a_signal_is_passed_on() {
    use std::os::unix::process::ExitStatusExt as _;
    let kill = ["sh", "-c", "kill -SEGV $$"];
    let mut command = Command::new(KYMO);
    command.args(["strace", "-o", "/dev/null"]).args(kill).stderr(std::process::Stdio::null());
    assert_eq!(command.status().unwrap().signal(), Some(11));
}

/// System time by default, as strace's; the time that passed with -w.
#[test]
fn the_table_has_system_time_or_the_time_that_passed() {
    let seconds = |args: &[&str]| -> f64 {
        let mut command = Command::new(KYMO);
        command.args(["strace", "-c", "-e", "trace=clock_nanosleep"]).args(args);
        let out = run_command(command).success().stderr;
        let row = out.lines().find(|line| line.ends_with("clock_nanosleep")).unwrap().to_owned();
        row.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(seconds(&["sleep", "0.3"]) < 0.1);
    assert!(seconds(&["-w", "sleep", "0.3"]) >= 0.3);
}

/// Threads that wait, a thread that executes a program, and one that is killed by a signal.
const THREADS: &str = r#"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *wait_here(void *unused) { pause(); return unused; }
static void *execute(void *path) { execl(path, path, "done", NULL); return NULL; }
int main(int count, char **args) {
    pthread_t first, second;
    if (count > 1 && !strcmp(args[1], "done")) return 7;
    if (count > 1 && !strcmp(args[1], "abort")) { raise(SIGTERM); }
    pthread_create(&first, NULL, wait_here, NULL);
    pthread_create(&second, NULL, execute, args[0]);
    pthread_join(first, NULL);
    return 1;
}
"#;

#[test]
fn ends_of_tasks_are_reported() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let work = Workload::compile("strace_threads", THREADS);
    let directory = tempfile::tempdir().unwrap();
    let (outcome, text) = traced(&[KYMO, "strace"], &[work.arg()], None, directory.path());
    let _ = outcome.expect_status(7);
    assert!(text.contains("+++ superseded by execve in pid "), "{text}");
    assert!(text.contains("execve(") && text.contains("+++ exited with 7 +++"), "{text}");
    let (outcome, text) = traced(&[KYMO, "strace"], &[work.arg(), "abort"], None, directory.path());
    let _ = outcome.expect_status(128 + 15);
    assert!(text.contains("--- SIGTERM {si_signo=SIGTERM, si_code=SI_TKILL, "), "{text}");
    assert!(text.ends_with("+++ killed by SIGTERM +++\n"), "{text}");
}

#[test]
fn options_mean_what_strace_means() {
    let run = |args: &[&str]| {
        let mut command = Command::new(KYMO);
        command.arg("strace").args(args);
        run_command(command)
    };
    // Lines go to standard error, and the program's own output stays alone.
    let out = run(&["-e", "trace=write", "echo", "text"]).success();
    assert_eq!(out.stdout, "text\n");
    assert_eq!(
        out.stderr,
        format!("write(1, \"text\\n\", 5){:18} = 5\n+++ exited with 0 +++\n", "")
    );
    let out = run(&["-qq", "-Z", "-e", "trace=%file", "test", "-e", "/nonexistent/file"]);
    let out = out.expect_status(1);
    assert!(out.stderr.lines().all(|line| line.contains(" = -1 E")), "{}", out.stderr);
    assert!(out.stderr.contains("\"/nonexistent/file\", "), "{}", out.stderr);
    let out = run(&["-qq", "-y", "-P", "/dev/null", "cat", "/dev/null"]).success();
    assert!(out.stderr.contains("read(3</dev/null>, \"\", "), "{}", out.stderr);
    assert!(!out.stderr.contains("mmap("), "{}", out.stderr);
    let out = run(&["-c", "true"]).success();
    assert!(out.stderr.starts_with("% time     seconds  usecs/call     calls"), "{}", out.stderr);
    assert!(out.stderr.contains(" execve\n") && !out.stderr.contains("execve("));
    let out = run(&["-s", "2", "-xx", "-e", "write", "echo", "text"]).success();
    assert!(out.stderr.starts_with("write(1, \"\\x74\\x65\"..., 5)"), "{}", out.stderr);
    for (args, reason) in [
        (&["-e", "inject=open:error=EIO", "true"][..], "calls are watched, not changed"),
        (&["-k", "true"], "stacks are not read here"),
        (&["-e", "trace=no_such_call", "true"], "no system call, class or pattern"),
        (&["-e", "signal=SIGNOT", "true"], "no signal"),
        (&["-p", "4194305"], "cannot trace process 4194305"),
    ] {
        let out = run(args).failure();
        assert!(out.stderr.contains(reason), "{args:?}: {}", out.stderr);
    }
}

#[test]
fn a_command_that_is_not_there_is_an_error() {
    let mut command = Command::new(KYMO);
    command.args(["strace", "/nonexistent/program"]);
    let out = run_command(command).expect_status(127);
    assert!(out.stderr.contains("No such file or directory"), "{}", out.stderr);
}

/// A process that is traced runs on after the tracer was killed, and after Ctrl-C.
#[test]
fn a_process_survives_its_tracer() {
    use std::io::{BufRead as _, BufReader};
    for signal in ["INT", "KILL"] {
        let mut child =
            Command::new("sh").args(["-c", "while :; do sleep 0.01; done"]).spawn().unwrap();
        let mut tracer = Command::new(KYMO)
            .args(["strace", "-p", &child.id().to_string()])
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(tracer.stderr.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains("wait4(")));
        let kill = |pid: u32, signal: &str| {
            let kill = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
            assert!(kill.unwrap().success());
        };
        kill(tracer.id(), signal);
        lines.for_each(drop);
        tracer.wait().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(status.contains("TracerPid:\t0"), "{status}");
        assert!(child.try_wait().unwrap().is_none(), "{signal}");
        kill(child.id(), "KILL");
        child.wait().unwrap();
    }
}
