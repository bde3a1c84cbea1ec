//! `kymo trace` beside strace: the texts of the calls of real programs, call by call. strace
//! stops a program at each call and reads its memory then, so that its texts are right; both
//! watch the same run, as kymo traces strace and its children.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeSet, HashMap};

use kymo_render::syscalls::{syscall_class, syscall_classes, syscall_name, syscall_number};
use kymo_testkit::{Need, TracingState, Workload, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Programs that are traced. Those of a package that may be missing are left out then.
const PROGRAMS: [&[&str]; 11] = [
    &["ls", "-l", "/usr"],
    &["sh", "-c", "echo a | cat; ls / > /dev/null; exec true"],
    &["find", "/etc/apt"],
    &["tar", "cf", "/dev/null", "/etc/apt"],
    &["perl", "-e", "use POSIX; print STDERR uname()"],
    &["gcc", "-c", "-x", "c", "-o", "/dev/null", "/dev/null"],
    &["/usr/bin/python3", "-c", "import json, socket; socket.socketpair()[0].send(b'x' * 40)"],
    &["git", "--version"],
    &["psql", "--version"],
    &["curl", "-s", "http://127.0.0.1:9/"],
    &["bash", "-c", "read a < /etc/passwd; exec 5<>/dev/null; /bin/echo \"$a\" >&5"],
];

fn begin() -> Option<TracingState> {
    let needs = [Need::Root, Need::Tracefs, Need::Gcc, Need::Tool("strace")];
    require(&needs).then(TracingState::take)
}

/// A call: its name, and the texts in its arguments with whether more follows.
type Call = (String, Vec<(Vec<u8>, bool)>);

/// Returns the quoted texts, sorted, since members of JSON have no order.
fn quoted(text: &str) -> Vec<(Vec<u8>, bool)> {
    let mut found = Vec::new();
    let mut bytes = text.bytes().peekable();
    while bytes.by_ref().any(|b| b == b'"') {
        let mut inside = Vec::new();
        while let Some(b) = bytes.next().filter(|b| *b != b'"') {
            inside.push(match (b, bytes.peek()) {
                (b'\\', Some(b'x')) => {
                    let digits: String = bytes.by_ref().skip(1).take(2).map(char::from).collect();
                    u8::from_str_radix(&digits, 16).unwrap()
                }
                (b'\\', _) => match bytes.next().unwrap() {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => other,
                },
                _ => b,
            });
        }
        let rest: Vec<u8> = bytes.clone().take(3).collect();
        found.push((inside, rest == b"..."));
    }
    found.sort();
    found
}

/// The calls of strace's output by thread, those that were interrupted joined.
fn calls_of_strace(output: &str) -> HashMap<u64, Vec<Call>> {
    let mut calls: HashMap<u64, Vec<Call>> = HashMap::new();
    let mut begun: HashMap<u64, String> = HashMap::new();
    for line in output.lines() {
        let (tid, text) = line.split_once(' ').unwrap();
        let tid: u64 = tid.parse().unwrap();
        let mut text = text.trim_start().to_owned();
        if let Some(first) = text.strip_suffix("<unfinished ...>") {
            begun.insert(tid, first.to_owned());
            continue;
        }
        if let Some((_, rest)) = text.split_once(" resumed>").filter(|_| text.starts_with("<... "))
        {
            text = begun.remove(&tid).unwrap_or_default() + rest;
        }
        if let Some((name, rest)) = text.split_once('(').filter(|_| !text.starts_with(['-', '+'])) {
            let arguments = rest.rsplit_once(" = ").map_or(rest, |(arguments, _)| arguments);
            calls.entry(tid).or_default().push((name.to_owned(), quoted(arguments)));
        }
    }
    calls
}

/// The calls of lines of JSON by thread.
fn calls_of_kymo(output: &str) -> HashMap<u64, Vec<Call>> {
    let mut calls: HashMap<u64, Vec<Call>> = HashMap::new();
    for line in output.lines().filter(|line| line.starts_with("{\"comm\"")) {
        let line: Value = serde_json::from_str(line).unwrap();
        let arguments: Vec<&str> =
            line["args"].as_object().unwrap().values().map(|v| v.as_str().unwrap()).collect();
        let texts = quoted(&arguments.join(", "));
        let name = line["syscall"].as_str().unwrap().to_owned();
        calls.entry(line["tid"].as_u64().unwrap()).or_default().push((name, texts));
    }
    calls
}

/// Result of the comparison.
#[derive(Default)]
struct Compared {
    /// Texts of strace, and those that kymo shows.
    texts: usize,
    shown: usize,
    /// Texts that differ, and those that are missing.
    wrong: Vec<String>,
    missing: Vec<String>,
}

/// Traces a command by both, kymo begun by `before`.
fn compare(before: &[&str], command: &[&str]) -> Compared {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("strace");
    let path = file.to_str().unwrap();
    let kymo = [KYMO, "trace", "--json", "--"];
    let strace = ["strace", "-f", "-xx", "-s", "32", "-o", path];
    let all = [before, &kymo, &strace, command].concat();
    let out = run(all[0], &all[1..]);
    let theirs = calls_of_strace(&std::fs::read_to_string(&file).unwrap());
    let ours = calls_of_kymo(&out.stdout);
    let mut found = Compared::default();
    for (tid, theirs) in &theirs {
        let ours = ours.get(tid).map(Vec::as_slice).unwrap_or_default();
        // What strace itself does in the process before the program is there is not in its lines.
        let skip = match theirs.first() {
            Some((name, _)) if name == "execve" => ours.iter().position(|(n, _)| n == "execve"),
            _ => None,
        };
        let ours = ours.get(skip.unwrap_or(0)..).unwrap_or_default();
        for (theirs, ours) in theirs.iter().zip(ours) {
            if theirs.0 != ours.0 {
                found.wrong.push(format!("{theirs:?} is {ours:?}"));
                break;
            }
            found.texts += theirs.1.len();
            let differs = || format!("{theirs:?}\n  is {ours:?}");
            if theirs.1 == ours.1 {
                found.shown += ours.1.len();
            } else if ours.1.iter().all(|text| theirs.1.contains(text)) {
                found.missing.push(differs());
            } else {
                found.wrong.push(differs());
            }
        }
        if theirs.len() > ours.len() {
            found.wrong.push(format!("{tid}: {} calls of {}", ours.len(), theirs.len()));
        }
    }
    found
}

#[test]
fn texts_are_those_of_strace() {
    let Some(_state) = begin() else { return };
    let mut compared = 0;
    for command in PROGRAMS {
        if !run("sh", ["-c", "command -v \"$0\"", command[0]]).stdout.starts_with('/') {
            continue;
        }
        compared += 1;
        let Compared { texts, shown, wrong, missing } = compare(&[], command);
        assert!(wrong.is_empty(), "{command:?}: {}", wrong.join("\n"));
        assert!(texts > 30, "{command:?}: {texts}");
        assert!(shown * 100 >= texts * 99, "{command:?}: {}", missing.join("\n"));
    }
    assert!(compared >= 7, "{compared}");
}

/// Calls with addresses of sockets, vectors, messages and buffers in both directions.
const SHAPES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
    socklen_t size = sizeof here;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    bind(server, (struct sockaddr *)&here, size);
    getsockname(server, (struct sockaddr *)&here, &size);
    listen(server, 1);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    connect(client, (struct sockaddr *)&here, size);
    int peer = accept4(server, (struct sockaddr *)&here, &size, SOCK_CLOEXEC);
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback };
    bind(socket(AF_INET6, SOCK_DGRAM, 0), (struct sockaddr *)&six, sizeof six);
    struct sockaddr_un unix_name = { .sun_family = AF_UNIX, .sun_path = "/nonexistent/socket" };
    connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&unix_name, sizeof unix_name);
    char long_text[200], in[200];
    memset(long_text, 'l', sizeof long_text);
    struct iovec pieces[2] = { { "one\n", 4 }, { long_text, sizeof long_text } };
    writev(client, pieces, 2);
    struct iovec room[3] = { { in, 2 }, { in + 2, 100 }, { in + 102, 98 } };
    readv(peer, room, 3);
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
    sendmsg(client, &message, 0);
    message.msg_iov = room;
    message.msg_iovlen = 3;
    recvmsg(peer, &message, 0);
    sendto(client, "to", 2, 0, 0, 0);
    recvfrom(peer, in, sizeof in, MSG_DONTWAIT, 0, 0);
    int ends[2];
    pipe(ends);
    write(ends[1], long_text, 0);
    struct utsname name;
    uname(&name);
    readlink("/proc/self/exe", in, sizeof in);
    getcwd(in, sizeof in);
    struct stat facts;
    fstat(open("/dev/null", O_RDONLY), &facts);
    char *many[40] = { "true" };
    for (int i = 1; i < 39; i++) many[i] = "argument";
    execv("/nonexistent/true", many);
    execv("/bin/true", many);
    return 1;
}
"#;

#[test]
fn structures_are_those_of_strace() {
    let Some(_state) = begin() else { return };
    let work = Workload::compile("shapes", SHAPES);
    let Compared { texts, shown, wrong, missing } = compare(&[], &[work.arg()]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(shown == texts && texts > 100, "{shown} of {texts}: {}", missing.join("\n"));
    // Names and numbers around them, as strace 6.1 writes them.
    let out = run(KYMO, ["trace", "--", work.arg()]).success().stdout;
    for expected in [
        ", {sa_family=AF_INET, sin_port=htons(0), sin_addr=inet_addr(\"127.0.0.1\")}, 16) = 0",
        "{sa_family=AF_INET6, sin6_port=htons(0), sin6_flowinfo=htonl(0), \
         inet_pton(AF_INET6, \"::1\", &sin6_addr), sin6_scope_id=0}, 28)",
        "{sa_family=AF_UNIX, sun_path=\"/nonexistent/socket\"}, 110) = -1 ENOENT",
        "[{iov_base=\"one\\n\", iov_len=4}, {iov_base=\"llllllllllllllllllllllllllllllll\"..., \
         iov_len=200}], 2) = 204",
        "[{iov_base=\"on\", iov_len=2}, {iov_base=\"e\\nllllllllllllllllllllllllllllll\"..., \
         iov_len=100}, {iov_base=\"llllllllllllllllllllllllllllllll\"..., iov_len=98}], 3) = 200",
        "{msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base=\"one\\n\", iov_len=4}, ",
        "msg_iovlen=2, msg_controllen=0, msg_flags=0}, 0) = 204",
        "\"argument\", ...], 0x",
        "{st_mode=S_IFCHR|0666, st_rdev=makedev(0x1, 0x3), ...}",
    ] {
        assert!(out.contains(expected), "{expected}\n{out}");
    }
}

/// One buffer for the paths of many calls: what is read late is that of a later one.
const ONE_BUFFER: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) {
    static char path[64];
    for (int i = 0; i < 3000; i++) {
        sprintf(path, "/nonexistent/%d", i);
        access(path, F_OK);
    }
    return 0;
}
"#;

/// The paths of the program above that were shown, each checked to be that of its call.
#[track_caller]
fn right_paths(before: &[&str], flags: &[&str]) -> usize {
    let work = Workload::compile("one_buffer", ONE_BUFFER);
    let kymo = [KYMO, "trace", "--json", "--calls", "access"];
    let all = [before, &kymo, flags, &["--", work.arg()]].concat();
    let out = run(all[0], &all[1..]).success();
    let lines = out.stdout.lines().filter(|line| line.starts_with("{\"comm\":"));
    let calls: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    // A task that lives for a moment may be shown under another name.
    let is_own = |call: &&Value| {
        let path = call["args"]["filename"].as_str().unwrap();
        call["comm"] == "one_buffer" || path.starts_with("\"/nonexistent/")
    };
    let named = calls.iter().find(is_own);
    let tid = &named.unwrap_or_else(|| panic!("{}{}", out.stdout, out.stderr))["tid"];
    let own = calls.iter().filter(|call| call["tid"] == *tid);
    let paths: Vec<&str> = own.map(|call| call["args"]["filename"].as_str().unwrap()).collect();
    assert!(paths.len() >= 3000, "{} calls {}", paths.len(), out.stderr);
    let own = paths.len() - 3000;
    let mut shown = 0;
    for (n, path) in paths.iter().skip(own).enumerate() {
        if path.starts_with('"') {
            assert_eq!(*path, format!("\"/nonexistent/{n}\""), "call {n}");
            shown += 1;
        }
    }
    shown
}

#[test]
fn a_path_is_that_of_its_own_call() {
    let Some(_state) = begin() else { return };
    assert_eq!(right_paths(&[], &[]), 3000);
    assert_eq!(right_paths(&[], &["-a"]), 3000);
}

/// Without the right to run programs in the kernel a text that is not certain is an address.
#[test]
fn without_programs_in_the_kernel_no_text_is_wrong() {
    let Some(_state) = begin() else { return };
    if !require(&[Need::Tool("setpriv")]) {
        return;
    }
    let without = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin"];
    right_paths(&without, &[]);
    let Compared { texts, wrong, .. } = compare(&without, &["ls", "-l", "/usr"]);
    assert!(wrong.is_empty() && texts > 30, "{texts} {}", wrong.join("\n"));
    let out = run(without[0], [&without[1..], &[KYMO, "trace", "--", "ls"]].concat());
    let said = out.stderr.contains("are shown as addresses");
    assert!(said && out.stderr.contains("CAP_BPF"), "{}", out.stderr);
}

/// The calls that strace knows and those of each of its classes, of a program that makes every one.
#[test]
fn classes_of_calls_are_those_of_strace() {
    if !require(&[Need::Tool("strace"), Need::Gcc]) {
        return;
    }
    let program = Workload::compile("every_call", include_str!("programs/every_call.c"));
    let path = program.program().display().to_string();
    let calls_of = |class: &str| -> BTreeSet<i64> {
        let traced = format!("trace={class}");
        let out = run("strace", ["-q", "-e", "signal=none", "-e", &traced, &path]);
        // The signal that ends it is its last line.
        let out = out.expect_status(77);
        let names = out.stderr.lines().filter_map(|line| line.split('(').next());
        names.filter_map(syscall_number).collect()
    };
    let known = calls_of("all");
    assert!(known.len() > 300, "{}", known.len());
    for typed in syscall_classes() {
        let ours = syscall_class(typed.strip_prefix('%').unwrap()).unwrap();
        // This strace may be older than a call.
        let ours: BTreeSet<i64> = ours.into_iter().filter(|call| known.contains(call)).collect();
        let named = |calls: BTreeSet<i64>| -> Vec<_> {
            calls.into_iter().filter_map(syscall_name).collect()
        };
        assert_eq!(named(ours), named(calls_of(&typed)), "{typed}");
    }
    assert_eq!(syscall_class("net"), syscall_class("network"));
    assert!(syscall_class("").is_none() && syscall_class("nets").is_none());
}

/// Calls whose words depend on other arguments, or that take fewer than registers hold.
const WORDS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>
int main(void) {
    int one = 1, word = 0, fd = open("/dev/null", O_RDWR);
    socklen_t size = sizeof one;
    char path[1024];
    flock(fd, LOCK_SH | LOCK_NB);
    flock(fd, LOCK_UN);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    getsockopt(s, SOL_SOCKET, SO_ERROR, &one, &size);
    setitimer(ITIMER_VIRTUAL, 0, 0);
    epoll_create1(EPOLL_CLOEXEC);
    eventfd(3, EFD_CLOEXEC | EFD_NONBLOCK);
    inotify_init1(IN_NONBLOCK);
    timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    umask(027);
    umask(022);
    syscall(SYS_getcwd, path, 1024L);
    syscall(SYS_fcntl, fd, F_GETFD, 77, 78);
    syscall(SYS_ioctl, fd, FIOCLEX, 77);
    syscall(SYS_futex, &word, FUTEX_WAKE, 3, 77L, 78L, 79L);
    syscall(SYS_futex, &word, FUTEX_WAIT, 9, 0L, 78L, 79L);
    return 0;
}
"#;

#[test]
fn words_are_those_of_strace() {
    let Some(_state) = begin() else { return };
    let work = Workload::compile("words", WORDS);
    let program = work.program().to_str().unwrap();
    let calls = "flock,setsockopt,getsockopt,setitimer,epoll_create1,eventfd2,inotify_init1,\
                 timerfd_create,umask,getcwd,fcntl,ioctl,futex";
    // Addresses differ from run to run, and strace shows what they point to.
    let bare = |line: &str| -> String {
        let line = line.rsplit_once(" <").map_or(line, |(line, _)| line);
        let mut out = String::new();
        let (name, rest) = line.split_once('(').unwrap();
        let (args, result) = rest.rsplit_once(')').unwrap();
        let is_word = |arg: &&str| !arg.starts_with(['"', '[', '{']) && !arg.starts_with("0x");
        for arg in args.split(", ").filter(is_word) {
            // What a descriptor stands for is kymo's own.
            out.push_str(arg.split('<').next().unwrap_or(arg));
            out.push(' ');
        }
        let result = result.trim_start_matches([' ', '=']);
        format!("{name} {out}= {}", result.split(['<', ' ']).next().unwrap_or_default())
    };
    let output = run("strace", ["-e", &format!("trace={calls}"), program]).success().stderr;
    let is_call = |line: &&str| line.contains('(') && !line.starts_with('+');
    let theirs: Vec<String> = output.lines().filter(is_call).map(bare).collect();
    let ours = run(KYMO, ["trace", "--calls", calls, "--", program]).success().stdout;
    let ours: Vec<String> = ours.lines().filter(is_call).map(bare).collect();
    assert!(theirs.len() >= 15, "{output}");
    assert_eq!(ours.len(), theirs.len(), "{ours:#?}\n{theirs:#?}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        // strace joins the private flag to the operation.
        assert_eq!(ours, theirs);
    }
}
