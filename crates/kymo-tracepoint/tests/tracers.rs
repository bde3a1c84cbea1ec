//! perf and bpftrace at the markers of programs in Rust and C: they see what the program wrote,
//! the program computes what it computes without them, and its semaphore goes up and down
//! again.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::incompatible_msrv, reason = "tests need not build with the oldest compiler")]

mod common;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Marker, is_role};
use kymo_testkit::{Need, require};
use kymo_tracepoint::{emit, mark, tracepoint};

tracepoint! {
    mixr: round(number: u64, sum: u64) {
        fields {
            number: u64 = number,
            less: i32 = -(number as i32),
            parity: str = if number % 2 == 1 { "odd" } else { "even" },
            low: u8 = number as u8,
            half: f64 = number as f64 / 2.0,
            raw: [u64] = &[sum],
        }
        print "round {number} {less} {parity}"
    }
}

#[inline(never)]
fn leaf(a: u64, b: u64) -> u64 {
    let mut v = [0u64; 12];
    for (i, v) in (0..).zip(&mut v) {
        *v = (a ^ b.wrapping_mul(i)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    for i in 1..12 {
        v[i] = v[i].wrapping_add(v[i - 1] >> 7 ^ v[i * 5 % 12]);
        std::hint::black_box(&mut v);
    }
    v[11] ^ v[3]
}

/// The program in Rust.
fn mix(rounds: u64, waits: bool) -> u64 {
    let mut sum = 1;
    let (told, ended) = std::sync::mpsc::channel();
    if waits {
        std::thread::spawn(move || {
            let _ = std::io::stdin().read(&mut [0]);
            told.send(())
        });
    }
    for i in 0..rounds {
        sum = leaf(sum, i);
        emit!(round(i, sum));
        mark!(mixr: marked, "{i} in the midst", i: u64, twice: i64 = -2 * i as i64);
        sum ^= leaf(i, sum);
        if waits && ended.recv_timeout(Duration::from_millis(1)).is_ok() {
            break;
        }
    }
    sum
}

const ROUNDS: u64 = 3_000;

#[test]
fn role() {
    if is_role() {
        let waits = std::env::var_os("KYMO_TEST_WAITS").is_some();
        println!("\nresult {:x}", mix(if waits { u64::MAX } else { ROUNDS }, waits));
    }
}

/// A program with a marker `PROVIDER:EVENT`.
struct Program {
    dir: tempfile::TempDir,
    path: PathBuf,
    provider: &'static str,
    /// Name that differs per program: perf selects by it alone, and tests run concurrently.
    event: &'static str,
}

impl Program {
    /// A copy of this test, so that tracers do not see the programs of others.
    fn rust() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mixr");
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        Self { dir, path, provider: "mixr", event: "round" }
    }

    fn c() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mixc");
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-O2"]);
        gcc.arg(here.join("tests/programs/mix.c")).arg("-I").arg(here.join("include"));
        gcc.arg("-o").arg(&path).arg(common::static_library()).args(["-lpthread", "-ldl", "-lm"]);
        let output = gcc.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { dir, path, provider: "mixc", event: "turn" }
    }

    /// Its words, for a shell or without one.
    fn words(&self) -> Vec<String> {
        let path = self.path.to_str().unwrap().to_owned();
        match self.provider {
            "mixr" => vec![path, "--exact".into(), "role".into(), "--nocapture".into()],
            _ => vec![path, ROUNDS.to_string()],
        }
    }

    fn set(command: &mut Command) -> &mut Command {
        command.env("KYMO_UST", "off").env("KYMO_TEST_ROLE", "role")
    }

    fn bare(&self) -> String {
        let words = self.words();
        let output = Self::set(Command::new(&words[0]).args(&words[1..])).output().unwrap();
        result(&output.stdout)
    }

    /// Running until its standard input ends.
    fn waiting(&self) -> Child {
        let words = self.words();
        let args = if self.provider == "mixr" { &words[1..] } else { &[] };
        let mut command = Command::new(&words[0]);
        command.args(args).env("KYMO_TEST_WAITS", "1");
        Self::set(&mut command).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn marker(&self) -> Marker {
        Marker::find(&self.path, self.provider, self.event)
    }
}

fn result(stdout: &[u8]) -> String {
    let text = String::from_utf8_lossy(stdout);
    text.lines().find(|line| line.starts_with("result")).expect(&text).to_owned()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn parity(i: u64) -> &'static str {
    if i % 2 == 1 { "odd" } else { "even" }
}

fn bpftrace_sees_what_is_written(program: &Program) {
    let bare = program.bare();
    let place = format!("usdt:{}:{}:{}", program.path.display(), program.provider, program.event);
    let script = format!(
        "{place} {{ printf(\"hit %d %d %s %d\\n\", arg0, (int32)arg1, str(arg2), arg3); }}"
    );
    let mut command = Command::new("bpftrace");
    command.args(["-e", &script, "-c", &program.words().join(" ")]);
    // No line is to be lost because the test machine is busy.
    command.env("BPFTRACE_PERF_RB_PAGES", "1024");
    let output = Program::set(&mut command).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(result(&output.stdout), bare, "computes the same: {stderr}");
    let text = String::from_utf8_lossy(&output.stdout);
    let hits: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("hit ")).collect();
    let due: Vec<String> =
        (0..ROUNDS).map(|i| format!("{i} -{i} {} {}", parity(i), i as u8)).collect();
    let due: Vec<String> = due.iter().map(|d| d.replace("0 -0 ", "0 0 ")).collect();
    assert_eq!(hits.len() as u64, ROUNDS, "{stderr}");
    assert_eq!(hits, due);
}

fn the_semaphore_goes_up_and_down(program: &Program) {
    let mut child = program.waiting();
    let id = child.id();
    let maps = || std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    let path = program.path.to_str().unwrap();
    until("the program is mapped", || maps().contains(path));
    let maps = maps();
    let first = maps.lines().find(|line| line.ends_with(path)).unwrap();
    let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let memory = File::open(format!("/proc/{id}/mem")).unwrap();
    let at = base + program.marker().semaphore;
    let semaphore = || {
        let mut bytes = [0; 2];
        memory.read_exact_at(&mut bytes, at).unwrap();
        u16::from_le_bytes(bytes)
    };
    assert_eq!(semaphore(), 0);
    let place = format!("usdt:{path}:{}:{}", program.provider, program.event);
    let script = format!("{place} {{ @hits++; if (@hits % 3 == 0) {{ printf(\"three\\n\"); }} }}");
    let attach = || {
        let mut command = Command::new("bpftrace");
        command.args(["-B", "line", "-e", &script, "-p", &id.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut tracer = command.spawn().unwrap();
        let mut lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "three"));
        (tracer, lines)
    };
    // The kernel counts a marker once, for any number of listeners.
    let tracers = [attach(), attach()];
    assert_eq!(semaphore(), 1);
    for (mut tracer, mut lines) in tracers {
        assert_eq!(semaphore(), 1);
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(tracer.id().cast_signed(), libc::SIGINT) };
        let hits = lines.find_map(|line| line.unwrap().strip_prefix("@hits: ")?.parse().ok());
        assert!(hits.is_some_and(|hits: u64| hits >= 3), "{hits:?}");
        assert!(tracer.wait().unwrap().success());
    }
    until("no tracer is there any more", || semaphore() == 0);
    assert!(child.try_wait().unwrap().is_none(), "it runs on");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// perf's probes at the marker; gone at the end.
struct PerfProbe<'p> {
    program: &'p Program,
}

impl<'p> PerfProbe<'p> {
    fn new(program: &'p Program) -> Self {
        let this = Self { program };
        this.remove();
        let (provider, event) = (program.provider, program.event);
        if provider == "mixc" {
            this.perf(&["buildid-cache", "--add", program.path.to_str().unwrap()]);
            this.perf(&["probe", "--add", &format!("%sdt_{provider}:{event}")]);
        } else {
            // perf takes the address of a marker for its place in the file, which it is only if the
            // linker leaves whole pages between segments; lld has to be asked for that.
            let definition = format!(
                "p:sdt_{provider}/{event} {} arg1=+0(%ax):u64 arg2=+8(%ax):s32 arg4=+24(%ax):u8 \
                 arg5=+32(%ax):u64\n",
                program.marker().place(&program.path)
            );
            let events = "/sys/kernel/tracing/uprobe_events";
            let mut events = File::options().append(true).open(events).unwrap();
            events.write_all(definition.as_bytes()).unwrap();
        }
        this
    }

    fn command(&self) -> Command {
        let mut command = Command::new("perf");
        // Its cache of markers is in the home directory.
        command.arg("--buildid-dir").arg(self.program.dir.path().join("debug"));
        command.env("HOME", self.program.dir.path());
        command
    }

    fn perf(&self, args: &[&str]) -> String {
        let output = self.command().args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "perf {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn remove(&self) {
        let events = format!("sdt_{}:*", self.program.provider);
        let _ = self.command().args(["probe", "--del", &events]).output();
    }
}

impl Drop for PerfProbe<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}

fn perf_records_what_is_written(program: &Program) {
    let bare = program.bare();
    let perf = PerfProbe::new(program);
    let data = program.dir.path().join("perf.data").to_str().unwrap().to_owned();
    let event = format!("sdt_{}:{}", program.provider, program.event);
    let words = program.words();
    let mut record = perf.command();
    record.args(["record", "-q", "-m", "8M", "-e", &event, "-o", &data, "--"]).args(&words);
    let output = Program::set(&mut record).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(result(&output.stdout), bare, "computes the same");
    let text = perf.perf(&["script", "-i", &data, "-F", "event,trace"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len() as u64, ROUNDS, "{stderr} {:?}", &lines[..2]);
    for (i, line) in (0u64..).zip(lines) {
        let number = |name: &str| {
            let rest = line.split_once(&format!("{name}=")).expect(line).1;
            let word = rest.split(' ').next().unwrap();
            word.strip_prefix("0x").map_or_else(
                || word.parse::<i64>().unwrap(),
                |hex| u64::from_str_radix(hex, 16).unwrap().cast_signed(),
            )
        };
        let (first, second, fourth) = (number("arg1"), number("arg2"), number("arg4"));
        assert_eq!(first, i.cast_signed(), "{line}");
        // perf shows four bytes, signed or not.
        assert_eq!(second as i32, -(i as i32), "{line}");
        assert_eq!(fourth as u8, i as u8, "{line}");
        assert_eq!(f64::from_bits(number("arg5").cast_unsigned()), i as f64 / 2.0, "{line}");
    }
}

const TRACER: &[Need] = &[Need::Root, Need::Tool("bpftrace"), Need::Tool("readelf"), Need::Gcc];
const PERF: &[Need] = &[Need::Root, Need::Tracefs, Need::Perf, Need::Gcc];

#[test]
fn bpftrace_at_a_program_in_rust() {
    if require(TRACER) {
        bpftrace_sees_what_is_written(&Program::rust());
    }
}

#[test]
fn bpftrace_at_a_program_in_c() {
    if require(TRACER) {
        bpftrace_sees_what_is_written(&Program::c());
    }
}

#[test]
fn semaphores_of_a_program_in_rust() {
    if require(TRACER) {
        the_semaphore_goes_up_and_down(&Program::rust());
    }
}

#[test]
fn semaphores_of_a_program_in_c() {
    if require(TRACER) {
        the_semaphore_goes_up_and_down(&Program::c());
    }
}

#[test]
fn perf_at_a_program_in_rust() {
    if require(PERF) {
        perf_records_what_is_written(&Program::rust());
    }
}

#[test]
fn perf_at_a_program_in_c() {
    if require(PERF) {
        perf_records_what_is_written(&Program::c());
    }
}

#[test]
fn a_mark_is_a_marker_too() {
    if !require(TRACER) {
        return;
    }
    let program = Program::rust();
    let place = format!("usdt:{}:mixr:marked", program.path.display());
    let script = format!("{place} /arg0 < 5/ {{ printf(\"hit %d %d\\n\", arg0, arg1); }}");
    let mut command = Command::new("bpftrace");
    command.args(["-e", &script, "-c", &program.words().join(" ")]);
    let output = Program::set(&mut command).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let hits: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("hit ")).collect();
    assert_eq!(hits, ["0 0", "1 -2", "2 -4", "3 -6", "4 -8"]);
}
