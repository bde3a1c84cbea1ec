//! Programs whose files in the shared directory are cut short by another process of their user:
//! they go on, what is lost is said, and a SIGBUS that has nothing to do with it does what it
//! always did.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(unsafe_code, reason = "a mapping that is touched behind the end of its file")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use kymo_tracepoint::{counter, emit, tracepoint};

tracepoint! {
    /// A step of the work.
    pub cutting: step(number: u64, name: &str) {
        fields { number: u64 = number, name: str = name }
        print "step {number} of {name}"
    }
}

const ROLE: &str = "KYMO_TEST_CUT_FILES";
/// Events of each thread for each line on standard input: several sub-buffers.
const AT_ONCE: u64 = 20_000;

/// Two threads that write events and count for each line, and say so when they have.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    for line in std::io::stdin().lines() {
        match &*line.unwrap() {
            "own" => touch_a_cut_file_of_its_own(),
            _ => std::thread::scope(|scope| {
                for name in ["one", "other"] {
                    scope.spawn(move || {
                        for number in 0..AT_ONCE {
                            emit!(step(number, name));
                            counter!(cutting: steps);
                            counter!(cutting: by_name, by name);
                        }
                    });
                }
            }),
        }
        println!("\ndone {}", step::enabled());
    }
    // What the test asks for.
    std::process::exit(42);
}

fn touch_a_cut_file_of_its_own() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: a mapping of a file of its own, which nothing else uses.
    unsafe {
        let flags = libc::PROT_READ | libc::PROT_WRITE;
        let at =
            libc::mmap(std::ptr::null_mut(), 4096, flags, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        file.set_len(0).unwrap();
        at.cast::<u8>().write_volatile(1);
    }
}

struct Program {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Program {
    fn start(base: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, "1");
        command.env("KYMO_UST_DIR", base).stderr(Stdio::null());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Has it work once. Whether the event was on afterwards; none: it has ended.
    fn work(&mut self, line: &str) -> Option<bool> {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").ok()?;
        let said = self.lines.find_map(|line| Some(line.ok()?.strip_prefix("done ")?.to_owned()));
        said.map(|said| said == "true")
    }

    fn work_while_on(&mut self) {
        let begin = std::time::Instant::now();
        while self.work("work") != Some(true) {
            assert!(begin.elapsed().as_secs() < 60, "the event was not enabled");
        }
        // On from the first to the last.
        assert_eq!(self.work("work"), Some(true));
    }

    fn end(mut self) -> std::process::ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }
}

/// The files of the one program below a base directory.
fn files(base: &Path, of: &str) -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect()
    };
    let users = below(base);
    let users = users
        .iter()
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("kymo-")));
    let inside: Vec<PathBuf> =
        users.flat_map(|user| below(user)).flat_map(|dir| below(&dir)).collect();
    let of = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(of);
    inside.into_iter().filter(of).collect()
}

fn cut(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn kymo(base: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(args).env("KYMO_UST_DIR", base).env("KYMO_UST", "off").stdin(Stdio::null());
    command
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

/// Sizes to which each file is cut.
fn sizes(whole: u64) -> [u64; 4] {
    [0, 4096, whole / 2 / 4096 * 4096, whole - 4096]
}

#[test]
fn a_program_whose_ring_is_cut_goes_on_and_it_is_said() {
    for (case, again) in [(0, false), (1, false), (2, false), (3, false), (0, true), (2, true)] {
        let context = format!("case {case}, grown again: {again}");
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        let out = base.path().join("out");
        let mut program = Program::start(base.path());
        let args = ["trace", "-u", "cutting:*", "--buffer-size", "256K", "-o"];
        let mut tool = kymo(base.path(), &args);
        let tool = tool.arg(&out).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        program.work_while_on();
        let rings = files(base.path(), "ring-");
        let [ring] = rings.as_slice() else { panic!("{context}: {rings:?}") };
        let whole = std::fs::metadata(ring).unwrap().len();
        cut(ring, sizes(whole)[case]);
        if again {
            cut(ring, whole);
        }
        for round in 0..3 {
            assert!(program.work("work").is_some(), "{context}: it has ended in round {round}");
        }
        signal(&tool, "-INT");
        let said = tool.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(program.end().code(), Some(42), "{context}: {said}");
        // Of a part the threads may not have needed what is gone.
        if case < 2 && !again {
            assert!(said.contains("cut short by another process"), "{context}: {said}");
        }
        assert!(!said.contains("panicked"), "{context}: {said}");
    }
}

#[test]
fn a_program_whose_control_file_or_counters_are_cut_goes_on() {
    for of in ["control", "counters"] {
        for case in 0..4 {
            let base = tempfile::tempdir_in("/dev/shm").unwrap();
            let mut program = Program::start(base.path());
            assert!(program.work("work").is_some());
            let paths = files(base.path(), of);
            let [path] = paths.as_slice() else { panic!("{of}: {paths:?}") };
            let whole = std::fs::metadata(path).unwrap().len();
            cut(path, sizes(whole)[case].min(whole));
            for _ in 0..2 {
                assert!(program.work("work").is_some(), "{of}, case {case}: it has ended");
            }
            let listed = kymo(base.path(), &["list", "-v", "ust"]).output().unwrap();
            assert!(listed.status.code().is_some_and(|code| code < 100), "{listed:?}");
            assert_eq!(program.end().code(), Some(42), "{of}, case {case}");
        }
    }
}

#[test]
fn other_accesses_behind_the_end_of_a_file_end_the_program_as_ever() {
    let base = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut program = Program::start(base.path());
    assert!(program.work("work").is_some());
    assert_eq!(program.work("own"), None);
    assert_eq!(program.end().signal(), Some(libc::SIGBUS));
    // A signal from another process.
    let mut program = Program::start(base.path());
    assert!(program.work("work").is_some());
    signal(&program.child, "-BUS");
    // It ends by the signal, before the command to end.
    program.lines.by_ref().for_each(drop);
    assert_eq!(program.end().signal(), Some(libc::SIGBUS));
}
