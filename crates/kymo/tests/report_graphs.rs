//! Call graphs and names of `kymo report` next to `perf report`: C++ and Rust
//! programs, all shapes of a graph, keys of tasks, and whose symbols are refused.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeMap;
use std::process::Command;

use kymo_testkit::{Need, Workload, perf, require, run, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

const CPP: &str = r#"
#include <functional>
volatile unsigned long sink;
namespace work {
template <typename T, unsigned N> struct Box {
    __attribute__((noinline)) void spin(T n) const { for (T i = 0; i < n; i++) sink += i * N; }
};
struct Left { virtual ~Left() {} long pad = 1; };
struct Base { virtual ~Base() {} virtual int run(int) = 0; };
struct Both : Left, Base {
    __attribute__((noinline)) int run(int n) override { Box<int, 7>().spin(n); return n; }
};
__attribute__((noinline)) int twice(int n) { Box<unsigned long, 3>().spin(n); return n; }
template <int F(int)> __attribute__((noinline)) int call(int n) { return F(n) + F(n / 2); }
__attribute__((noinline)) int apply(const std::function<int(int)> &f, int n) { return f(n) + 1; }
}
__attribute__((noinline)) int outside(int n) { for (int i = 0; i < n; i++) sink ^= i; return n; }
int main() {
    work::Both both;
    work::Base *base = &both;
    for (int i = 0; i < 6000; i++) {
        sink += base->run(20000);
        sink += work::call<work::twice>(20000);
        sink += work::call<outside>(20000);
        sink += work::apply([&](int n) { for (int k = 0; k < n; k++) sink ^= k; return n; }, 20000);
    }
}
"#;

const RUST: &str = r#"
use std::hint::black_box;
mod work {
    use std::hint::black_box;
    pub trait Turn { fn turn(&self, n: u64) -> u64; }
    pub struct Wheel<const N: u64>;
    impl<const N: u64> Turn for Wheel<N> {
        #[inline(never)]
        fn turn(&self, n: u64) -> u64 { (0..n).fold(0, |a, i| black_box(a ^ i * N)) }
    }
    #[inline(never)]
    pub fn drive(what: &dyn Turn, n: u64) -> u64 { what.turn(n) + 1 }
}
#[inline(never)]
fn with<F: Fn(u64) -> u64>(f: F, n: u64) -> u64 { f(n) + 1 }
fn main() {
    for _ in 0..6000 {
        black_box(work::drive(&work::Wheel::<3>, 20000));
        black_box(with(#[inline(never)] |n| (0..n).fold(1, |a, i| black_box(a + i)), 20000));
    }
}
"#;

/// A program of another language than C, and a recording of it by perf.
fn recorded(
    name: &str,
    compile: &str,
    flags: &[&str],
    source: &str,
) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (code, program, data) = (file("source"), file(name), file("perf.data"));
    std::fs::write(&code, source).unwrap();
    let mut compiler = Command::new(compile);
    compiler.args(flags).args(["-o", &program, &code]);
    let _ = run_command(compiler).success();
    let record = ["record", "-q", "-F", "2000", "-g", "-e", "cpu-clock:u", "-o", &data, &program];
    let _ = perf(record).success();
    (dir, data)
}

/// The entries of a report: each heading line with the lines of its graph, which
/// are sorted, because branches of equal weight have no order.
fn entries(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim_end) {
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        // Of a folded graph a line begins with a share, of others with blanks.
        let is_entry = line.starts_with("  ") && !line.starts_with("       ");
        if is_entry || current.is_none() {
            current = Some(line.to_owned());
            found.entry(line.to_owned()).or_default();
        } else if let Some(lines) = current.as_ref().and_then(|c| found.get_mut(c)) {
            // perf takes the rest of a fork for a function that was inlined.
            let line = line.trim_end_matches(" (inlined)").replace(['|', '-'], " ");
            lines.push(line.trim().to_owned());
        }
    }
    found.values_mut().for_each(|lines| lines.sort());
    found
}

#[track_caller]
fn same(file: &str, options: &[&str]) -> BTreeMap<String, Vec<String>> {
    // perf shows inlined functions in chains that it unwound only.
    let plain = ["report", "--stdio", "--no-inline", "-i", file];
    let args: Vec<&str> = plain.into_iter().chain(options.iter().copied()).collect();
    let theirs = entries(&perf(&args).success().stdout);
    let ours = entries(&run(KYMO, &args).success().stdout);
    assert!(!theirs.is_empty(), "{options:?}: perf shows nothing");
    for (entry, graph) in &theirs {
        let Some(drawn) = ours.get(entry) else {
            panic!("{options:?}: `{entry}` is missing in {:#?}", ours.keys());
        };
        assert_eq!(drawn, graph, "{options:?}: {entry}");
    }
    assert_eq!(ours.len(), theirs.len(), "{options:?}: {:#?}", ours.keys());
    ours
}

/// All shapes of a graph.
const GRAPHS: &[&[&str]] = &[
    &["--no-children", "-g", "caller"],
    &["--no-children", "-g", "callee"],
    &["--no-children", "-g", "flat"],
    &["--no-children", "-g", "fractal,callee"],
    &["--no-children", "-g", "folded"],
    &["--children", "-g", "caller"],
    &["--children", "-g", "callee"],
    &["--children", "-g", "folded"],
];

#[test]
fn cpp_names_and_graphs_are_perfs() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let flags = ["-x", "c++", "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
    let (_dir, data) = recorded("cpp_shape", "g++", &flags, CPP);
    // The program's own: of the C library's start there are too few samples.
    let own = ["-s", "sym", "-d", "cpp_shape", "--percent-limit", "2"];
    for graph in GRAPHS {
        let shown = same(&data, &[*graph, &own[..]].concat());
        let name = "[.] work::Box<unsigned long, 3u>::spin";
        assert!(shown.keys().any(|k| k.ends_with(name)), "{:?}", shown.keys());
    }
}

#[test]
fn rust_names_and_graphs_are_perfs() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    // The compiler's own choice, which is the old scheme up to 1.95, and the new one.
    for scheme in [&[][..], &["-C", "symbol-mangling-version=v0"]] {
        let usual = ["--edition=2021", "-O", "-C", "force-frame-pointers=yes"];
        let flags = [&usual[..], &["--crate-name", "rust_shape"], scheme].concat();
        let (_dir, data) = recorded("rust_shape", "rustc", &flags, RUST);
        for graph in GRAPHS {
            let own = ["-s", "sym", "-d", "rust_shape", "--percent-limit", "2"];
            let shown = same(&data, &[*graph, &own[..]].concat());
            assert!(shown.keys().any(|k| k.contains("turn")), "{:?}", shown.keys());
        }
    }
}

#[test]
fn keys_of_tasks_are_perfs() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::threads();
    let file = w.file("perf.data");
    let record = ["record", "-q", "--sample-cpu", "-F", "2000", "-g", "-e", "cpu-clock:u"];
    let _ = perf(record.into_iter().chain(["-o", &file, w.arg()])).success();
    for keys in ["pid", "cpu", "pid,sym", "comm,pid", "cpu,comm,sym", "pid,cpu"] {
        same(&file, &["--no-children", "-g", "none", "-s", keys, "--percent-limit", "1"]);
    }
    same(&file, &["--no-children", "-g", "caller", "-s", "pid", "--percent-limit", "5"]);
    // Processes: the program and its child, whose threads are put together.
    let args = ["report", "--stdio", "-g", "none", "--no-children", "-s", "tgid", "-i", &file];
    let tasks = entries(&run(KYMO, args).success().stdout);
    assert_eq!(tasks.len(), 2, "{tasks:?}");
}

/// Bytes of a file with every occurrence of `from` replaced by `to`, equally long.
fn patched(bytes: &[u8], from: &[u8], to: &[u8]) -> (Vec<u8>, usize) {
    assert_eq!(from.len(), to.len());
    let (mut bytes, mut count) = (bytes.to_vec(), 0);
    for at in 0..bytes.len().saturating_sub(from.len()) {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            count += 1;
        }
    }
    (bytes, count)
}

#[test]
fn symbols_of_a_different_kernel_are_refused() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Root, Need::Gcc]) {
        return;
    }
    let w = Workload::syscalls();
    let file = w.file("perf.data");
    let _ = perf(["record", "-q", "-e", "cpu-clock", "-o", &file, w.arg(), "300000"]).success();
    let report = |path: &str| {
        let args = ["report", "--stdio", "--no-children", "-s", "dso,sym", "-i", path];
        run(KYMO, args).success().stdout
    };
    let kernel = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| l.contains("[kernel.kallsyms]") && l.contains("[k]"));
        lines.map(str::to_owned).collect()
    };
    let own = report(&file);
    let named = |l: &String| !l.contains("[k] 0xffff");
    assert!(kernel(&own).iter().any(named), "{own}");
    assert!(!own.contains("recorded on"), "{own}");

    // Another release and another build-id: what a file from another machine has.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let release = release.trim();
    let other = format!("9{}", &release[1..]);
    let whole = std::fs::read(&file).unwrap();
    let (bytes, count) = patched(&whole, release.as_bytes(), other.as_bytes());
    assert!(count > 0, "the recording does not state {release}");
    let list = perf(["buildid-list", "-i", &file]).success().stdout;
    let hex = list.lines().find(|l| l.contains("[kernel.kallsyms]")).unwrap();
    let hex = hex.split_whitespace().next().unwrap();
    let id: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
        .collect();
    let changed: Vec<u8> = id.iter().map(|b| b ^ 0x55).collect();
    let (bytes, count) = patched(&bytes, &id, &changed);
    assert!(count > 0, "the recording does not hold the build-id {hex}");
    let moved = w.file("moved.data");
    std::fs::write(&moved, bytes).unwrap();
    let foreign = report(&moved);
    let rows = kernel(&foreign);
    assert!(!rows.is_empty() && !rows.iter().any(named), "{foreign}");
    assert!(foreign.contains(&format!("recorded on {other}")), "{foreign}");
    assert!(foreign.contains("--kallsyms"), "{foreign}");
}

#[test]
fn symbols_are_found_in_separate_debug_files() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::spin();
    let file = w.file("perf.data");
    let program = w.program().to_owned();
    // A linked debug file beside the program, which itself has no symbols any more.
    let debug = w.file("spin.debug");
    let objcopy = |args: &[&str]| {
        let mut command = Command::new("objcopy");
        command.args(args).current_dir(w.dir());
        let _ = run_command(command).success();
    };
    objcopy(&["--only-keep-debug", "spin", "spin.debug"]);
    objcopy(&["--strip-all", "--add-gnu-debuglink=spin.debug", "spin"]);
    let _ = perf(["record", "-q", "-e", "cpu-clock:u", "-o", &file, w.arg(), "300"]).success();
    let report = |more: &[&str]| {
        let args = ["report", "--stdio", "--no-children", "-s", "sym", "-d", "spin", "-i", &file];
        run(KYMO, args.iter().chain(more)).success().stdout
    };
    assert!(report(&[]).contains("[.] hot"), "{}", report(&[]));

    // The same below another root, with nothing at the old places.
    let root = tempfile::tempdir().unwrap();
    let below = root.path().join(w.dir().strip_prefix("/").unwrap());
    std::fs::create_dir_all(&below).unwrap();
    std::fs::rename(&program, below.join("spin")).unwrap();
    std::fs::rename(&debug, below.join("spin.debug")).unwrap();
    assert!(!report(&[]).contains("[.] hot"), "{}", report(&[]));
    let symfs = root.path().to_str().unwrap();
    assert!(report(&["--symfs", symfs]).contains("[.] hot"), "{}", report(&["--symfs", symfs]));

    // By build-id, where distributions put debug files.
    let list = perf(["buildid-list", "-i", &file]).success().stdout;
    let id =
        list.lines().find(|l| l.ends_with("/spin")).unwrap().split_whitespace().next().unwrap();
    let directory = root.path().join("usr/lib/debug/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::rename(below.join("spin.debug"), directory.join(format!("{}.debug", &id[2..])))
        .unwrap();
    assert!(report(&["--symfs", symfs]).contains("[.] hot"), "{}", report(&["--symfs", symfs]));
}

#[test]
fn a_piped_tracepoint_is_distinguished_when_asked_for() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let w = Workload::syscalls();
    let (file, pipe) = (w.file("perf.data"), w.file("pipe.data"));
    let record = |output: &str| {
        let mut command = Command::new("sh");
        let event = "raw_syscalls:sys_exit";
        let program = w.arg();
        command.args(["-c", &format!("perf record -q -e {event} -o {output} {program} 50")]);
        run_command(command).success()
    };
    let _ = record(&file);
    let _ = record(&format!("- > {pipe}"));
    let report =
        |args: &[&str]| run(KYMO, ["report", "--stdio", "-i"].iter().chain(args)).success().stdout;
    let heading = "# Overhead  Trace output";
    let whole = report(&[&file]);
    assert!(whole.lines().any(|l| l.trim_end() == heading), "{whole}");
    // What a pipe holds is not known before it is read: perf, too, takes its usual keys.
    let usual = |text: &str| text.lines().find(|l| l.contains("Overhead")).map(str::to_owned);
    let theirs = perf(["report", "--stdio", "-i", &pipe]).success().stdout;
    let piped = {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("cat {pipe} | {KYMO} report --stdio -i -")]);
        run_command(command).success().stdout
    };
    assert_eq!(usual(&piped), usual(&theirs));
    // A file of that form can be read before, and is reported as any file.
    assert!(report(&[&pipe]).lines().any(|l| l.trim_end() == heading));
    // 50 calls of getppid, number 110, which answer alike: one row in both.
    let calls = |text: &str| text.lines().filter(|l| l.contains("NR 110 = ")).count();
    let asked = report(&[&pipe, "-s", "trace"]);
    assert_eq!((calls(&whole), calls(&asked)), (1, 1), "{asked}");
}
