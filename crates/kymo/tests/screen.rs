//! Results on a terminal: the pager, lines no wider than the screen. What is not a terminal gets
//! the same text as ever.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod terminal;

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, TracingState, require, run};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use terminal::TerminalTest;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const LONGEST: Duration = Duration::from_secs(60);

/// Action on the keyboard once a text is on the terminal.
type Awaited<'a> = (&'a str, &'a mut dyn FnMut(&mut File));

/// Returns the final screen of a terminal of 80 columns, without colors, and the exit status.
#[track_caller]
fn on_terminal(
    pager: Option<&str>,
    args: &[&str],
    awaited: Option<Awaited<'_>>,
) -> (String, Option<i32>) {
    on_terminal_with(&[("NO_COLOR", "1")], pager, args, awaited)
}

#[track_caller]
fn on_terminal_with(
    environment: &[(&str, &str)],
    pager: Option<&str>,
    args: &[&str],
    mut awaited: Option<Awaited<'_>>,
) -> (String, Option<i32>) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let pty = openpt(flags | OpenptFlags::from_bits_retain(0o4000)).unwrap();
    grantpt(&pty).unwrap();
    unlockpt(&pty).unwrap();
    let name = ptsname(&pty, Vec::new()).unwrap();
    let tty = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    tcsetwinsize(&tty, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let side = || Stdio::from(tty.try_clone().unwrap());
    let mut command = Command::new("setsid");
    command.args(["-c", "-w", KYMO]).args(args).env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
    command.env_remove("PAGER").env_remove("LESS").env_remove("NO_COLOR");
    command.envs(environment.iter().copied());
    match pager {
        Some(pager) => command.env("KYMO_PAGER", pager),
        None => command.env_remove("KYMO_PAGER"),
    };
    let mut child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
    let (mut pty, mut all) = (File::from(pty), Vec::new());
    let began = Instant::now();
    let status = loop {
        let ended = child.try_wait().unwrap();
        let mut block = [0; 1 << 16];
        match pty.read(&mut block) {
            Ok(count) => all.extend_from_slice(&block[..count]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => match ended {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(5)),
            },
            Err(e) => panic!("{e}"),
        }
        let text = String::from_utf8_lossy(&all);
        if let Some((_, act)) = awaited.take_if(|(awaited, _)| text.contains(*awaited)) {
            act(&mut pty);
        }
        if began.elapsed() > LONGEST {
            let _ = child.kill();
            panic!("it does not end: {text}");
        }
    };
    assert!(awaited.is_none(), "not shown: {}", String::from_utf8_lossy(&all));
    (String::from_utf8(all).unwrap().replace("\r\n", "\n"), status.code())
}

/// Each line with a mark, which shows that it went through the pager.
const MARKS: Option<&str> = Some("sed s/^/P:/");

#[test]
fn long_texts_go_through_the_pager_of_the_environment() {
    for args in [&["manual", "list"][..], &["list", "--help"], &["-h"]] {
        let (text, status) = on_terminal(MARKS, args, None);
        assert_eq!(status, Some(0), "{args:?}");
        assert!(text.lines().count() > 10, "{args:?}: {text}");
        assert!(text.lines().all(|line| line.starts_with("P:")), "{args:?}: {text}");
        let (plain, _) = on_terminal(MARKS, &[args, &["--no-pager"]].concat(), None);
        assert_eq!(text.replace("P:", ""), plain, "{args:?}");
        // A pager that there is not, and none.
        for pager in ["", "cat", "no-such-pager"] {
            assert_eq!(on_terminal(Some(pager), args, None).0, plain, "{pager}");
        }
    }
    // An answer to what cannot be typed is short, and keeps its status.
    let (text, status) = on_terminal(MARKS, &["list", "--no-such-option"], None);
    assert!(text.starts_with("error: "), "{text}");
    assert_eq!(status, Some(2));
    let mut piped = Command::new(KYMO);
    piped.args(["manual", "list"]).env("KYMO_PAGER", MARKS.unwrap());
    assert!(piped.output().unwrap().stdout.starts_with(b".ie"), "a pipe has no pager");
}

#[test]
fn a_manual_page_on_a_terminal_is_text() {
    if !require(&[Need::Tool("setsid")]) {
        return;
    }
    let (text, status) = on_terminal(Some("cat"), &["manual", "list"], None);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("Usage: kymo list"), "{text}");
    assert!(!text.contains(".TH ") && !text.contains("\\-"), "{text}");
    // For `man` it is roff.
    let page = run(KYMO, ["manual", "list"]).success().stdout;
    assert!(page.contains(".TH kymo-list"), "{page}");
}

/// The terminal of these tests is one where `NO_COLOR` is set.
#[test]
fn no_color_holds_for_reports_unless_colours_are_asked_for() {
    if !require(&[Need::Tool("setsid")]) {
        return;
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");
    let report = |more: &[&str]| {
        let args = [&["report", "--no-debuginfod", "-i", file], more].concat();
        on_terminal(Some("cat"), &args, None).0
    };
    assert!(report(&[]).contains('%'));
    assert!(!report(&[]).contains("\u{1b}["), "{}", report(&[]));
    assert!(report(&["--stdio-color=always"]).contains("\u{1b}["));
}

#[test]
fn the_default_pager_is_less_as_git_calls_it() {
    if !require(&[Need::Tool("less")]) {
        return;
    }
    let mut quit = |pty: &mut File| pty.write_all(b"q").unwrap();
    let awaited = Some(("Usage: kymo record", &mut quit as _));
    let (text, status) = on_terminal(None, &["record", "--help"], awaited);
    assert_eq!(status, Some(0));
    // It shows a screen and waits; what was on the terminal stays.
    assert!(text.lines().count() < 30, "{text}");
    assert!(!text.contains("\u{1b}[?1049h"), "{text:?}");
    // What fits on a screen is not waited for.
    let (text, status) = on_terminal(None, &["buildid-list", "-k"], None);
    let id = run(KYMO, ["buildid-list", "-k"]).success().stdout;
    assert!(text.contains(id.trim()) && status == Some(0), "{text}");
}

const TEMPLATES: &str = r"
#include <map>
#include <string>
#include <vector>
template <class A, class B> struct spinner {
    __attribute__((noinline)) static unsigned long spin(unsigned long n) {
        volatile unsigned long sum = 0;
        for (unsigned long i = 0; i < n; i++) sum += i;
        return sum;
    }
};
int main() {
    return spinner<std::map<std::string, std::vector<unsigned long>>, std::string>::spin(300000000) == 1;
}
";

fn record_templates(directory: &Path) {
    let source = directory.join("spin.cpp");
    std::fs::write(&source, TEMPLATES).unwrap();
    let program = directory.join("spin");
    let [source, program] = [&source, &program].map(|path| path.to_str().unwrap());
    let _ = run("g++", ["-O1", "-o", program, source]).success();
    let data = directory.join("perf.data");
    let record = ["record", "-q", "-e", "cpu-clock:u", "-o", data.to_str().unwrap(), program];
    let _ = run(KYMO, record).success();
}

#[test]
fn tables_are_no_wider_than_the_terminal_unless_names_are_wanted_in_full() {
    if !require(&[Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    record_templates(directory.path());
    let data = directory.path().join("perf.data");
    let report = ["report", "-i", data.to_str().unwrap(), "--stdio-color=never"];
    let piped = run(KYMO, report).success().stdout;
    let name = |text: &str| {
        let line = text.lines().find(|line| line.contains("spinner<")).unwrap();
        line.trim_end().to_owned()
    };
    assert!(name(&piped).chars().count() > 80, "{piped}");
    let (text, status) = on_terminal(Some("cat"), &report, None);
    assert_eq!(status, Some(0));
    let table: Vec<&str> = text.lines().filter(|l| !l.starts_with("# To display")).collect();
    assert!(table.iter().all(|line| line.chars().count() <= 80), "{text}");
    let short = name(&text);
    assert!(short.contains('…') && short.ends_with("> >::spin"), "{short}");
    assert_eq!(short.chars().count(), 80, "{short}");
    let full = [&report[..], &["--full-names"]].concat();
    let (text, _) = on_terminal(Some("cat"), &full, None);
    assert_eq!(name(&text), name(&piped));
}

#[test]
fn what_takes_longer_than_a_second_is_reported_while_it_does() {
    if !require(&[Need::PerfEvents]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (whole, pipe) = (path("whole"), path("pipe"));
    let record = "exec \"$0\" record -q -e cpu-clock:u -o - -- true > \"$1\"";
    let _ = run("sh", ["-c", record, KYMO, &whole]).success();
    let _ = run("mkfifo", [&pipe]).success();
    let recording = std::fs::read(whole).unwrap();
    // The recording arrives gradually: its first bytes, and the others when the line stands there.
    let begin = pipe.clone();
    let (head, tail) = recording.split_at(16);
    let (send, receive) = std::sync::mpsc::channel();
    let head = head.to_vec();
    let writer = std::thread::spawn(move || {
        let mut file = File::options().write(true).open(begin).unwrap();
        file.write_all(&head).unwrap();
        send.send(file).unwrap();
    });
    let mut go_on = |_: &mut File| receive.recv().unwrap().write_all(tail).unwrap();
    let line = format!("reading {pipe}… ");
    let awaited = Some((line.as_str(), &mut go_on as _));
    let (text, status) = on_terminal(Some("cat"), &["report", "-i", &pipe], awaited);
    writer.join().unwrap();
    assert_eq!(status, Some(0), "{text}");
    // The line is wiped before the report begins.
    let (_, behind) = text.rsplit_once(" s\r\u{1b}[K").unwrap();
    assert!(behind.starts_with("# To display"), "{text:?}");
    // No terminal, no line.
    let file = path("file");
    std::fs::write(&file, &recording).unwrap();
    let quiet = run(KYMO, ["report", "-i", &file]).success();
    assert!(!quiet.stderr.contains("reading"), "{}", quiet.stderr);
}

/// A program whose name, threads and files have what a terminal obeys, and ends of lines.
const HOSTILE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>
volatile unsigned long sum;
__attribute__((noinline)) void work(void) { for (long i = 0; i < 20000000; i++) sum += i; }
static void *body(void *name) {
    prctl(PR_SET_NAME, name);
    for (int i = 0; i < 3; i++) {
        work();
        usleep(1000);
        close(open("/tmp/\x1b]0;path\x07\nforged", O_RDONLY));
    }
    return 0;
}
int main(void) {
    char *names[] = {"a\nforged: 1", "b\x1b]0;t\x07", "c\x9b""2J\r\x08", "d\xe2\x80\xae\xc2\x9bx",
                     "=forged,+1", "\x1b[2J\x1b[H"};
    pthread_t threads[6];
    prctl(PR_SET_NAME, "m\x1b[8m\nforged");
    for (int i = 0; i < 6; i++) pthread_create(threads + i, 0, body, names[i]);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// Panics if a text has what is not text, or a line that a name has made.
#[track_caller]
fn check_text(what: &str, text: &str) {
    let is_odd = |c: &char| !matches!(c, '\n' | '\t') && kymo_model::is_unprintable(*c);
    if let Some(odd) = text.chars().find(is_odd) {
        let line = text.lines().find(|line| line.contains(odd));
        panic!("{what}: {odd:?} in {line:?}");
    }
    let forged = text.lines().find(|line| line.trim_start_matches('"').starts_with("forged"));
    assert_eq!(forged, None, "{what}");
}

/// A recording of `program` in which names that stand in its header are hostile, too.
fn hostile_recordings(directory: &Path, program: &str) -> [String; 3] {
    let [data, dat, patched] = ["h.data", "h.dat", "patched.data"]
        .map(|name| directory.join(name).to_str().unwrap().to_owned());
    let events = ["-e", "cpu-clock", "-e", "sched:sched_switch,sched:sched_wakeup"];
    let record = [&["record", "-q", "-g", "-o", &data], &events[..], &["--", program]].concat();
    let _ = run(KYMO, record).success();
    let events = "sched:sched_switch,sched:sched_wakeup,raw_syscalls:*";
    let _ = run(KYMO, ["trace", "-q", "-o", &dat, "-e", events, "--", program]).success();
    // Texts of the same length in place of the event's name and the kernel's release.
    let mut bytes = std::fs::read(&data).unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = release.trim().as_bytes();
    let mut other = b"6\x1b]0;\x07\nforged".to_vec();
    other.resize(release.len().max(other.len()), b'x');
    other.truncate(release.len());
    for (old, new) in [(&b"cpu-clock\0"[..], &b"c\x1b[2J\nfo\0"[..]), (release, &other)] {
        let places: Vec<usize> =
            (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
        assert!(!places.is_empty(), "{old:?}");
        places.iter().for_each(|at| bytes[*at..*at + new.len()].copy_from_slice(new));
    }
    std::fs::write(&patched, bytes).unwrap();
    [data, dat, patched]
}

#[test]
fn texts_of_others_are_text_on_terminals_and_in_files() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc, Need::Tool("setsid")]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let hostile = directory.path().join("p\x1b]0;dir\x07\nforged");
    std::fs::create_dir(&hostile).unwrap();
    let source = directory.path().join("hostile.c");
    std::fs::write(&source, HOSTILE).unwrap();
    let program = hostile.join("prog\x1b[2J");
    let [source, program] = [&source, &program].map(|path| path.to_str().unwrap());
    let _ = run("gcc", ["-O1", "-g", "-pthread", "-o", program, source]).success();
    let files = hostile_recordings(directory.path(), program);
    let commands = [
        "script",
        "script --show-task-events --show-mmap-events",
        "script -F comm,tid,event,ip,sym,dso,srcline",
        "report",
        "report -t ,",
        "report --sort comm,tid,dso,sym,srcline --header",
        "report --header-only -I",
        "report --hierarchy --sort comm,dso",
        "report --tasks",
        "report --mmaps",
        "report --stats",
        "profile",
        "annotate",
        "buildid-list",
        "evlist -v",
        "evlist -F --trace-fields",
        "list -v",
        "why",
        "sched latency",
        "sched timehist",
        "sched map",
        "offcpu report",
        "syscalls report",
        "trace",
        "trace -s",
        "kwork report",
        "lock contention",
        "io latency",
        "convert --to folded",
    ];
    for file in &files {
        for command in commands {
            let mut args: Vec<&str> = command.split(' ').collect();
            args.extend(["-i", file, "--no-pager"]);
            if command.starts_with("convert") {
                args.truncate(args.len() - 3);
                args.extend([file, "--no-pager"]);
            }
            // Not every command is for every recording: what it says of that is text, too.
            let (text, _) = on_terminal(None, &args, None);
            check_text(&format!("{args:?} on a terminal"), &text);
            let piped = run(KYMO, &args);
            check_text(&format!("{args:?} into a file"), &piped.stdout);
            check_text(&format!("{args:?}, its notes"), &piped.stderr);
        }
    }
    for args in [
        &["trace", "--", program][..],
        &["trace", "-s", "--", program],
        &["trace", "-e", "sched:sched_switch", "--", program],
        &["stat", "--per-thread", "-x", ",", "-e", "task-clock", "--", program],
        &["count", "-e", "sched:sched_switch", "--", program],
        &["profile", "--", program],
    ] {
        let (text, _) = on_terminal(None, args, None);
        check_text(&format!("{args:?} on a terminal"), &text);
        let piped = run(KYMO, args);
        check_text(&format!("{args:?} into a file"), &piped.stdout);
    }
    // A name is no formula of a spreadsheet.
    let table =
        run(KYMO, ["report", "-i", &files[0], "-t", ";", "--sort", "comm"]).success().stdout;
    assert!(table.contains(";'=forged,+1"), "{table}");
    // Exact names are for programs.
    let objects = run(KYMO, ["script", "-i", &files[0], "--json"]).success().stdout;
    assert!(objects.contains(r#""comm":"a\nforged: 1""#), "names in JSON");
}

/// Names of files and words of the command line color no message.
#[test]
fn names_in_messages_color_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let name = "a\x1b[31mred\x1b[0m\x1b[2J.data";
    std::fs::write(directory.path().join(name), b"no recording").unwrap();
    let path = format!("{}/{name}", directory.path().display());
    for args in [
        &["report", "-i", &path][..],
        &["script", "-i", &path],
        &["evlist", "-i", &path],
        &["sql", &path, "SELECT 1"],
        &["diff", &path, &path],
        &["stat", "--", &path],
        &["run", &path],
    ] {
        let (text, status) = on_terminal_with(&[], None, args, None);
        assert!(status.is_some_and(|status| status != 0), "{args:?}: {text:?}");
        let is_escaped = ["\\u001b[31m", "\\u{1b}[31m"].iter().any(|name| text.contains(name));
        assert!(is_escaped, "{args:?}: {text:?}");
        assert!(!text.contains("\x1b[31m") && !text.contains("\x1b[2J"), "{args:?}: {text:?}");
    }
    for args in [&["nosuch\x1b[31m"][..], &["report", "--nosuch\x1b[31m"]] {
        let (text, status) = on_terminal_with(&[], None, args, None);
        assert_eq!(status, Some(2), "{args:?}: {text:?}");
        assert!(text.contains("nosuch") && !text.contains("\x1b[31mn"), "{args:?}: {text:?}");
        assert!(!text.contains("\x1b[31m'"), "{args:?}: {text:?}");
    }
}

/// Saves for a while when it is asked to end, and ends immediately when it is asked again. With a
/// word it ignores the keys, or gets none, as it is in another process group.
const SAVES: &str = r#"
import os, signal, sys, time
times = 0
def end(*_):
    global times
    times += 1
    if times > 1:
        print("forced", flush=True)
        os._exit(7)
    time.sleep(1)
    print("saved", flush=True)
    os._exit(0)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
if "deaf" in sys.argv:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), os._exit(0)))
if "apart" in sys.argv:
    os.setpgid(0, 0)
    # Its output is its only one in the background.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(0.1)
"#;

/// The keys of a terminal reach the command too: it is not asked twice.
#[test]
fn a_counted_command_gets_a_key_once() {
    if !require(&[Need::PerfEvents, Need::Tool("python3")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("saves.py").to_str().unwrap().to_owned();
    std::fs::write(&program, SAVES).unwrap();
    for interval in [&[][..], &["-I", "200"]] {
        let stat = [&["stat", "-e", "page-faults"], interval, &["--", "python3", &program]];
        let mut press = |pty: &mut File| pty.write_all(b"\x03").unwrap();
        let (text, _) = on_terminal(None, &stat.concat(), Some(("ready", &mut press)));
        assert!(text.contains("saved") && !text.contains("forced"), "{interval:?}: {text}");
        assert!(text.contains("page-faults"), "{interval:?}: {text}");
    }
}

/// So does a command that is recorded, traced or watched.
#[test]
fn a_recorded_command_gets_a_key_once() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Tool("python3")]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let program = path("saves.py");
    std::fs::write(&program, SAVES).unwrap();
    let (data, dat) = (path("perf.data"), path("trace.dat"));
    let commands: [&[&str]; 9] = [
        &["record", "-e", "page-faults", "-o", &data],
        &["profile"],
        &["why"],
        &["offcpu", "report"],
        &["trace", "-e", "sched:sched_process_exit"],
        &["trace", "-e", "sched:sched_process_exit", "-o", &dat],
        &["trace", "--calls", "openat"],
        &["count", "-e", "syscalls:sys_enter_openat"],
        &["stat", "-a", "-e", "page-faults"],
    ];
    for command in commands {
        let mut press = |pty: &mut File| pty.write_all(b"\x03").unwrap();
        let words = [command, &["--", "python3", &program]].concat();
        let (text, _) = on_terminal(Some("cat"), &words, Some(("ready", &mut press)));
        assert!(text.contains("saved") && !text.contains("forced"), "{command:?}: {text}");
    }
    for how in ["--quiet", "--no-bpf"] {
        let command = format!("python3 {program}");
        let mut press = |pty: &mut File| pty.write_all(b"\x03").unwrap();
        let words = ["run", how, "-e", "interval:s:9 { }", "-c", &command];
        let (text, _) = on_terminal(Some("cat"), &words, Some(("ready", &mut press)));
        assert!(text.contains("saved") && !text.contains("forced"), "{how}: {text}");
    }
}

/// A command that the keys do not reach, or that ignores them, is ended all the same.
#[test]
fn a_recorded_command_that_gets_no_key_is_ended() {
    if !require(&[Need::PerfEvents, Need::Tool("python3")]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (program, data) = (path("saves.py"), path("perf.data"));
    std::fs::write(&program, SAVES).unwrap();
    let record = ["record", "-e", "page-faults", "-o", &data, "--", "python3", &program];
    for (how, keys) in [("apart", 1), ("deaf", 100)] {
        // The first is handled before one of the next comes.
        let mut press = |pty: &mut File| {
            let mut keyboard = pty.try_clone().unwrap();
            std::thread::spawn(move || {
                for _ in 0..keys {
                    let _ = keyboard.write_all(b"\x03");
                    std::thread::sleep(Duration::from_millis(200));
                }
            });
        };
        let words = [&record[..], &[how]].concat();
        let (text, _) = on_terminal(Some("cat"), &words, Some(("ready", &mut press)));
        assert!(text.contains("saved") && !text.contains("forced"), "{how}: {text}");
    }
}

/// Colors that a program's author writes are shown; those in a text that it reads are not.
#[test]
fn texts_that_a_program_reads_color_nothing() {
    let program =
        r#"begin { printf("\x1b[1mbold\x1b[0m %s|\n", str($1)); @[str($1)] = 1; exit() }"#;
    let (text, status) =
        on_terminal_with(&[], None, &["run", "-e", program, "of\x1b[31mothers"], None);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("\x1b[1mbold\x1b[0m of\\u001b[31mothers|"), "{text:?}");
    assert!(text.contains("@[of\\u001b[31mothers]: 1"), "{text:?}");
}

/// Formats that are no text go through pipes byte by byte.
#[test]
fn bytes_of_a_format_are_not_changed() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let _state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let [dat, file] = ["b.dat", "b.pftrace"].map(|name| directory.path().join(name));
    let [dat, file] = [&dat, &file].map(|path| path.to_str().unwrap());
    let _ =
        run(KYMO, ["trace", "-q", "-o", dat, "-e", "sched:sched_switch", "--", "true"]).success();
    let _ = run(KYMO, ["convert", dat, "--to", "perfetto", "-o", file]).success();
    let piped = Command::new(KYMO).args(["convert", dat, "--to", "perfetto", "-o", "-"]).output();
    let written = std::fs::read(file).unwrap();
    assert!(written.iter().any(|byte| *byte < 0x20 || *byte > 0x7e), "it has other bytes");
    assert_eq!(piped.unwrap().stdout, written);
}

/// Statements of several lines, completed names, mistakes, forms of results; what was typed comes
/// back in the next prompt.
#[test]
fn sql_is_read_from_a_prompt() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().to_str().unwrap();
    let environment = [("XDG_STATE_HOME", state)];
    let recording =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/sched.data");
    let words = [KYMO, "sql", recording];
    let mut sql = TerminalTest::start((40, 100), &environment, &words);
    sql.wait_text("sql>");
    sql.press("SELECT 40\r+ 2\rAS answer;\r");
    sql.wait("a number", |t| t.text().lines().any(|line| line.trim() == "42"));
    sql.press("select count(*) > 0 as some from sched_sl\t;\r");
    sql.wait("a name that is completed", |t| t.text().contains("from sched_slice;"));
    sql.wait("its rows", |t| t.text().lines().any(|line| line.trim() == "1"));
    sql.press("SELECT x FROM nowhere;\r");
    sql.wait_text("no such table: nowhere");
    sql.press("DELETE FROM sched_slice;\r");
    sql.wait_text("may not be modified");
    sql.wait("a prompt", |t| t.reads_keys());
    sql.press(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(i) FROM n;\r",
    );
    sql.wait("an answer that never ends", |t| !t.reads_keys());
    sql.press("\x03");
    sql.wait_text("kymo: interrupted");
    // Keys that are pressed before there is a prompt may be lost.
    let at_prompt = |t: &TerminalTest, behind: &str| {
        t.text().contains(behind) && t.text().trim_end().ends_with("sql>") && t.reads_keys()
    };
    sql.wait("a prompt", |t| at_prompt(t, "interrupted"));
    sql.press("SELECT 'not sent\x03");
    sql.wait("a prompt", |t| at_prompt(t, "not sent"));
    sql.press(".mode json\r");
    sql.wait("a prompt", |t| at_prompt(t, ".mode json"));
    sql.press("SELECT 7 AS seven;\r");
    sql.wait_text("{\"seven\":7}");
    sql.wait("a prompt", |t| at_prompt(t, "{\"seven\":7}"));
    sql.press(".schema sched_slice\r");
    sql.wait("a prompt", |t| at_prompt(t, "wakeup_delay"));
    sql.press("\x04");
    let (status, text) = sql.end();
    assert!(status.success(), "{text}");
    let history = std::fs::read_to_string(home.path().join("kymo/sql_history")).unwrap();
    assert!(history.starts_with("SELECT 40\\n+ 2\\nAS answer;\n"), "{history}");
    assert!(!history.contains("not sent"), "{history}");
    let mut sql = TerminalTest::start((40, 100), &environment, &words);
    sql.wait_text("sql>");
    // The statement before the last.
    sql.press("\x1b[A\x1b[A\r");
    sql.wait("it comes back", |t| {
        t.text().lines().any(|line| line.trim() == "7") && at_prompt(t, "sql>")
    });
    sql.press(".quit\r");
    assert!(sql.end().0.success());
}
