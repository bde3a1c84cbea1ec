//! `kymo run`: watchpoints on what functions are given, and arguments of USDT probes that are
//! elsewhere at each place, in other registers or in memory.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::process::Command;

use kymo_testkit::{Need, Outcome, TracingState, Workload, peer, require, run, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// `count` is called with the address of a number, which is written once in it and three times
/// behind it; `many` with ten addresses. What the very first instruction writes is not seen: the
/// probe is on it.
const WRITES: &str = r#"
#include <stdlib.h>
int numbers[20];
__attribute__((noinline)) void count(int other, int *number) { asm volatile("nop"); *number += other; }
__attribute__((noinline)) void many(int *number) { asm volatile("nop"); *number += 1; }
int main(int argc, char **argv) {
    count(1, &numbers[3]);
    for (int i = 0; i < 3; i++) ((volatile int *)numbers)[3]++;
    if (argc > 1) for (int i = 0; i < 10; i++) many(&numbers[4 + i]);
    return numbers[3] == 4 ? 7 : 1;
}
"#;

fn watched(work: &Workload, program: &str, more: &str) -> Outcome {
    run(KYMO, ["run", "-e", program, "-c", &format!("{}{more}", work.arg())])
}

#[test]
fn an_argument_is_watched_from_the_call_on() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::compile("writes", WRITES);
    // The program stands still until its memory is watched: no write is missed.
    let o = watched(&work, "watchpoint:count+arg1:4:w { @[probe] = count(); }", "").success();
    assert_eq!(o.stdout.trim(), "@[watchpoint:count+arg1:4:w]: 4", "{}", o.stderr);
    assert!(o.stderr.contains("Attached 1 probe\n"), "{}", o.stderr);
    // The installed bpftrace, which knows them, too.
    let mut theirs = Command::new("bpftrace");
    theirs.args(["-e", "watchpoint:count+arg1:4:w { @ = count(); }", "-c", work.arg()]);
    assert!(run_command(theirs).stdout.contains("@: 4\n"));
    let text = "watchpoint:count+arg1:4:w { @ = count(); unwatch(@address); } \
                uprobe:PATH:count { @address = arg1; }";
    let o = watched(&work, &text.replace("PATH", work.arg()), "").success();
    assert!(o.stderr.contains("Attached 2 probes\n"), "{}", o.stderr);
    let hits = o.stdout.lines().find_map(|line| line.strip_prefix("@: ")).unwrap();
    assert!((1..=4).contains(&hits.parse::<u32>().unwrap()), "{}", o.stdout);
}

#[test]
fn more_watchpoints_than_the_cpu_has_are_reported() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::compile("writes", WRITES);
    let o = watched(&work, "watchpoint:m*y+arg0:4:w { @ = count(); }", " x").success();
    // Four registers; each number is written once.
    assert!(o.stdout.contains("@: 4\n"), "{}\n{}", o.stdout, o.stderr);
    let lost = "scope: 6 addresses were not watched: You are out of watchpoint registers\n";
    assert!(o.stderr.contains(lost), "{}", o.stderr);
    let o = run(KYMO, ["run", "-e", "watchpoint:count+arg1:4:w { }"]).failure();
    assert!(o.stderr.contains("needs a process: -p PID or -c CMD"), "{}", o.stderr);
    let o = watched(&work, "watchpoint:nowhere+arg1:4:w { }", "").failure();
    assert!(o.stderr.contains("No matches for watchpoint nowhere+arg1:4:w."), "{}", o.stderr);
}

/// Constants have a sign in the note; `element` lies at base + index × 4; `place` has its argument
/// in a register at one place and as a constant at the other.
const MARKERS: &str = r#"
#include <sys/sdt.h>
__attribute__((noinline)) void element(const unsigned *numbers, long i) {
    DTRACE_PROBE1(test, element, numbers[i]);
}
__attribute__((noinline)) void place(long n) {
    DTRACE_PROBE1(test, place, n);
    DTRACE_PROBE1(test, place, 77L);
}
int main(void) {
    unsigned numbers[4] = {10, 4000000000u, 30, 40};
    for (long i = 0; i < 4; i++) element(numbers, i);
    for (long n = 1; n < 4; n++) place(n * 100);
    DTRACE_PROBE1(test, unsigned_constant, (unsigned)-202182160);
    DTRACE_PROBE1(test, signed_constant, -202182160);
    volatile char small = -3;
    volatile short larger = -300;
    volatile unsigned char natural = 250;
    DTRACE_PROBE3(test, small, small, larger, natural);
    DTRACE_PROBE12(test, many, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
}
"#;

#[test]
fn arguments_of_usdt_probes_are_found_where_they_are() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("markers.c"), dir.path().join("markers"));
    std::fs::write(&source, MARKERS).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-o"]).args([&path, &source]);
    let _ = run_command(gcc).success();
    let mut notes = Command::new("readelf");
    notes.arg("-n").arg(&path);
    let notes = run_command(notes).success().stdout;
    assert!(notes.contains(",4)"), "no operand with an index: {notes}");
    let path = path.to_str().unwrap();
    for (probe, format, expected) in [
        ("element", "%u", "10 4000000000 30 40"),
        ("place", "%d", "100 77 200 77 300 77"),
        ("*_constant", "%lld", "4092785136 -202182160"),
    ] {
        let text = format!("usdt:{path}:test:{probe} {{ printf(\"{format} \", arg0); }}");
        let o = run(KYMO, ["run", "-q", "-e", &text, "-c", path]).success();
        assert_eq!(o.stdout.trim(), expected, "{probe}: {}", o.stderr);
        let theirs = peer("bpftrace");
        if theirs.is_newest() {
            let theirs = theirs.run(["-q", "--no-warnings", "-e", &text, "-c", path]).success();
            assert_eq!(theirs.stdout.trim(), expected, "{probe}");
        }
    }
    for (probe, shown, expected) in [
        ("small", "(arg0, arg1, arg2)", "(-3, -300, 250)"),
        ("many", "(arg0, arg9, arg10, arg11)", "(1, 10, 11, 12)"),
    ] {
        let text = format!("usdt:{path}:test:{probe} {{ print({shown}); }}");
        let o = run(KYMO, ["run", "-q", "-e", &text, "-c", path]).success();
        assert_eq!(o.stdout.trim(), expected, "{probe}: {}", o.stderr);
    }
    // Places of one probe are one attach point, of which each has its own name.
    let o = run(KYMO, ["run", "-l", &format!("*:{path}:*")]).success();
    let place = format!("usdt:{path}:test:place");
    assert_eq!(o.stdout.lines().filter(|line| **line == place).count(), 1, "{}", o.stdout);
    assert!(o.stdout.contains(&format!("uprobe:{path}:element\n")), "{}", o.stdout);
}

/// Lines: 6 and 10 of loops with three rounds, 15 in a function that is inlined three times.
const LOOPS: &str = r#"
#include <stdlib.h>
volatile int sink;
__attribute__((noinline)) void work(int n)
{
    for (int i = 0; i < n; i++)
        sink += i;
}
__attribute__((noinline)) void down(int n) {
    while (n > 0)
        n--, sink++;
}
static inline __attribute__((always_inline)) void leaf(int n)
{
    sink += n;
}
__attribute__((noinline)) void once(void) { leaf(1); }
__attribute__((noinline)) void twice(void) { leaf(2); sink = 0; leaf(3); }
int main(void) {
    for (int n = 0; n < 5; n++) work(3), down(3);
    once();
    twice();
    twice();
    return 0;
}
"#;

/// A line of a loop counts once for each entry, as with bpftrace; each inlined copy counts.
#[test]
fn a_source_line_is_probed_at_its_first_place_in_each_copy() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("loops.c"), LOOPS).unwrap();
    for level in ["-O0", "-O2"] {
        let program = at("loops");
        let _ = run("gcc", ["-g", level, "-o", &program, &at("loops.c")]).success();
        for (line, count, has_more) in [(6, 5, true), (7, 15, false), (10, 5, true), (15, 5, false)]
        {
            let text = format!("uprobe:{program}@loops.c:{line} {{ @ = count(); }}");
            let o = run(KYMO, ["run", "-e", &text, "-c", &program]).success();
            assert_eq!(o.stdout.trim(), format!("@: {count}"), "{level} {line}: {}", o.stderr);
            let more = o.stderr.contains(&format!("loops.c:{line} has code at"));
            assert!(more == has_more || level == "-O2", "{level} {line}: {}", o.stderr);
            let theirs = peer("bpftrace");
            // It knows the first copy only.
            if theirs.is_newest() && line != 15 {
                let theirs = theirs.run(["-q", "--no-warnings", "-e", &text, "-c", &program]);
                assert_eq!(theirs.success().stdout.trim(), format!("@: {count}"), "{level} {line}");
            }
        }
        // Probes of perf's grammar are at all places, as perf's are.
        let newest = peer("perf");
        if newest.is_newest() && level == "-O0" {
            for what in ["work:2", "down:1", "loops.c:6"] {
                let places = |o: Outcome| -> Vec<String> {
                    let last = |l: &str| Some(l.rsplit_once(":0x")?.1.to_owned());
                    o.success().stdout.lines().filter_map(last).collect()
                };
                let ours = places(run(KYMO, ["probe", "-x", &program, "-D", what]));
                assert!(ours.len() > 1, "{what}: {ours:?}");
                assert_eq!(
                    ours,
                    places(newest.run(["probe", "-x", &program, "-D", what])),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn probes_are_put_on_instructions_alone() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("objdump")]) {
        return;
    }
    let work = Workload::spin();
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn", "--disassemble=outer"]).arg(work.program());
    let shown = run_command(objdump).success().stdout;
    let address = |line: &str| u64::from_str_radix(line.split_once(':')?.0.trim(), 16).ok();
    let begins: Vec<u64> = shown.lines().filter_map(address).collect();
    let start = *begins.first().unwrap();
    for offset in 1..16 {
        let text = format!("uprobe:{}:outer+{offset} {{ }}", work.arg());
        let o = run(KYMO, ["run", "--dry-run", "-e", &text]);
        let is_begin = begins.contains(&(start + offset));
        assert_eq!(o.status == 0, is_begin, "{offset}: {}\n{shown}", o.stderr);
        assert!(
            is_begin || o.stderr.contains("is in the middle of an instruction"),
            "{}",
            o.stderr
        );
    }
    let text = format!("uprobe:{}:10 {{ }}", work.arg());
    let o = run(KYMO, ["run", "--dry-run", "-e", &text]).failure();
    let expected = format!("Could not resolve address: {}:0xa is no code", work.arg());
    assert!(o.stderr.contains(&expected), "{}", o.stderr);
}

/// A program whose file was removed runs on, and its functions are found.
#[test]
fn a_removed_program_is_probed_by_its_process() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::compile(
        "removed",
        "#include <unistd.h>
         __attribute__((noinline)) void tick(int n) { asm volatile(\"\" :: \"r\"(n)); }
         int main() { for (int i = 0;; i++) { tick(i); usleep(2000); } }",
    );
    let copy = format!("{}-copy", work.arg());
    std::fs::copy(work.arg(), &copy).unwrap();
    let mut process = Command::new(&copy).spawn().unwrap();
    std::fs::remove_file(&copy).unwrap();
    let program = format!(
        "uprobe:/proc/{}/exe:tick {{ @ = count(); if (arg0 > 5) {{ exit(); }} }}",
        process.id()
    );
    let o = run(KYMO, ["run", "-e", &program]);
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(o.success().stdout.trim_start().starts_with("@: "));
}

/// Arguments that are variables; `twice` has the same one at two places.
const GLOBALS: &str = r#"
#include <sys/sdt.h>
static volatile signed char small = -5;
volatile unsigned short natural = 65535;
volatile int numbers[4] = { 10, 20, 30, -40 };
__attribute__((noinline)) void element(long i) { DTRACE_PROBE1(app, element, numbers[i]); }
int main(int argc, char **argv) {
    DTRACE_PROBE4(app, tick, small, natural, numbers[2], 42);
    DTRACE_PROBE1(app, twice, numbers[0]);
    numbers[0] = 11;
    DTRACE_PROBE1(app, twice, numbers[0]);
    for (int i = 0; i < 4; i++) element(i);
    return 0;
}
"#;

#[test]
fn arguments_of_usdt_probes_may_be_global_variables() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc, Need::Tool("strip")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("globals.c"), GLOBALS).unwrap();
    for place in ["-pie", "-no-pie"] {
        let path = at("globals");
        let code = if place == "-pie" { "-fPIE" } else { "-fno-pie" };
        let _ = run("gcc", ["-O1", code, place, "-o", &path, &at("globals.c")]).success();
        let notes = run("readelf", ["-n", &path]).success().stdout;
        let is_global = ["8+numbers(%rip)", "numbers+8(%rip)"].iter().any(|s| notes.contains(s));
        assert!(is_global, "{notes}");
        let shown = |probe: &str, what: &str| {
            let text = format!("usdt:{path}:app:{probe} {{ printf(\"%d \", {what}); }}");
            let o = run(KYMO, ["run", "-q", "-e", &text, "-c", &path]).success();
            o.stdout.trim().to_owned()
        };
        let tick = ["arg0", "arg1", "arg2", "arg3"].map(|argument| shown("tick", argument));
        assert_eq!(tick, ["-5", "65535", "30", "42"], "{place}");
        assert_eq!(shown("twice", "arg0"), "10 11", "{place}");
        assert_eq!(shown("element", "arg0"), "11 20 30 -40", "{place}: {notes}");
        let probe = format!("{path} %app:tick");
        let o = run(KYMO, ["trace", "--probe", &probe, "--", &path]).success();
        assert!(o.stdout.contains("arg1=-5 arg2=65535 arg3=30 arg4=42"), "{}", o.stdout);
    }
    // The address of a local variable is not in a stripped program: that argument alone is refused.
    let bare = at("bare");
    let _ = run("strip", ["-o", &bare, &at("globals")]).success();
    let all = |argument: &str| {
        let text = format!("usdt:{bare}:app:tick {{ print({argument}); }}");
        run(KYMO, ["run", "-q", "-e", &text, "-c", &bare])
    };
    assert_eq!(all("arg3").success().stdout.trim(), "42");
    let o = all("arg0").failure();
    let why = "is small(%rip), and the symbols do not have the address of small";
    assert!(o.stderr.contains(why), "{}", o.stderr);
}

/// `tick` runs five times, and so does its marker; with an argument the program waits.
const TICKS: &str = r#"
#include <sys/sdt.h>
#include <unistd.h>
__attribute__((noinline)) void tick(int n) { DTRACE_PROBE1(app, hit, n); }
int main(int argc, char **argv) {
    for (int n = 0; n < 5; n++) tick(n);
    if (argc > 1) pause();
    return 0;
}
"#;

#[test]
fn a_path_with_wildcards_that_exists_is_that_file() {
    if !require(&[Need::Root, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("ticks.c");
    std::fs::write(&source, TICKS).unwrap();
    // `e9` and `dx8` match the patterns and are not meant.
    for name in ["e[9]", "e9", "d*8", "dx8", "f?x"] {
        let home = dir.path().join(name);
        std::fs::create_dir(&home).unwrap();
        let made = home.join("ticks");
        let _ = run("gcc", [source.to_str().unwrap(), "-o", made.to_str().unwrap()]).success();
    }
    let listed = |o: Outcome| o.success().stdout.lines().map(str::to_owned).collect::<Vec<_>>();
    for name in ["e[9]", "d*8", "f?x"] {
        let home = dir.path().join(name).to_str().unwrap().to_owned();
        let path = format!("{home}/ticks");
        let count = |probe: &str| {
            let text = format!("{probe} {{ @[probe] = count(); }}");
            let o = run(KYMO, ["run", "-q", "-e", &text, "-c", &path]).success();
            o.stdout.trim().to_owned()
        };
        let (function, marker) = (format!("uprobe:{path}:tick"), format!("usdt:{path}:app:hit"));
        assert_eq!(count(&function), format!("@[{function}]: 5"));
        assert_eq!(count(&format!("uprobe:\"{path}\":tick")), format!("@[{function}]: 5"));
        assert_eq!(count(&marker), format!("@[{marker}]: 5"));
        // A pattern of files in such a directory.
        assert_eq!(count(&format!("uprobe:{home}/t*s:tick")), format!("@[{function}]: 5"));
        let o = run(KYMO, ["count", "-e", &function, "--", &path]).success();
        assert!(o.stdout.trim_start().starts_with("5 events"), "{}", o.stdout);
        let functions = listed(run(KYMO, ["run", "-l", &format!("uprobe:{path}:ti*")]));
        assert_eq!(functions, [function.as_str()]);

        let mut process = Command::new(&path).arg("wait").spawn().unwrap();
        let id = process.id().to_string();
        let functions = run(KYMO, ["run", "-l", "uprobe:*", "-p", &id]);
        let markers = run(KYMO, ["run", "-l", "usdt:*", "-p", &id]);
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(listed(functions).contains(&function));
        assert!(listed(markers).contains(&marker));
    }
}

/// A point without a file is of the program of `-p` or `-c`; USDT probes are those of all files.
#[test]
fn points_without_a_file_are_of_the_process() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("gcc")]) {
        return;
    }
    let work = Workload::compile(
        "pathless",
        "#include <sys/sdt.h>
         #include <unistd.h>
         __attribute__((noinline)) void tick(int n) { DTRACE_PROBE(app, beat); asm volatile(\"\" :: \"r\"(n)); }
         int main(int argc, char **argv) {
             for (int i = 0; argc > 1 || i < 5; i++) { tick(i); getppid(); if (argc > 1) usleep(2000); }
         }",
    );
    let mut process = Command::new(work.arg()).arg("wait").spawn().unwrap();
    let id = process.id().to_string();
    let of_process = |text: &str| run(KYMO, ["run", "-q", "-p", &id, "-e", text]);
    let outcomes = [
        "uprobe:tick { printf(\"%s %d\\n\", func, pid); exit(); }",
        "uprobe:cpp:tick { printf(\"%s %d\\n\", func, pid); exit(); }",
        "uretprobe:ti?k { printf(\"%s %d\\n\", func, pid); exit(); }",
        "usdt:beat { printf(\"tick %d\\n\", pid); exit(); }",
        "uprobe:*:getppid { printf(\"tick %d\\n\", pid); exit(); }",
    ]
    .map(|text| (text, of_process(text)));
    let of_library = of_process("uprobe:getppid { exit(); }");
    let of_none = of_process("uprobe:no_such_function { exit(); }");
    process.kill().unwrap();
    process.wait().unwrap();
    for (text, o) in outcomes {
        let o = o.success();
        assert!(o.stdout.contains(&format!("tick {id}\n")), "{text}: {}", o.stdout);
    }
    assert!(of_library.stderr.contains("`uprobe:*:getppid` finds it in "), "{}", of_library.stderr);
    assert!(!of_none.stderr.contains("uprobe:*:"), "{}", of_none.stderr);

    let count = "uprobe:tick { @ = count(); }";
    let o = run(KYMO, ["run", "-q", "-c", work.arg(), "-e", count]).success();
    assert_eq!(o.stdout.trim(), "@: 5");
    let o = run(KYMO, ["run", "-e", count]);
    assert_eq!(o.status, 1);
    assert!(o.stderr.contains("write the path of a program or library"), "{}", o.stderr);
}

/// A function with several names is listed by the wanted one that perf prefers, here by
/// construction: strong before weak, then global before local, then few underscores.
#[test]
fn functions_have_the_best_of_the_names_that_match() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("gcc")]) {
        return;
    }
    let work = Workload::compile(
        "aliases",
        "__attribute__((noinline)) int zeta(int n) { asm volatile(\"\"); return n + 1; }
         int __inner_zeta(int) __attribute__((alias(\"zeta\")));
         int a_weak_zeta(int) __attribute__((weak, alias(\"zeta\")));
         static int a_local_zeta(int) __attribute__((used, alias(\"zeta\")));
         int main() { int s = 0; for (int i = 0; i < 5; i++) s = zeta(s); return s - 5; }",
    );
    for (pattern, name) in [
        ("*zeta", "zeta"),
        ("*_zeta", "__inner_zeta"),
        ("a_*", "a_local_zeta"),
        ("a_w*", "a_weak_zeta"),
        ("__inner_zeta", "__inner_zeta"),
    ] {
        let point = format!("uprobe:{}:{pattern}", work.arg());
        let text = format!("{point} {{ @[probe] = count(); }}");
        let o = run(KYMO, ["run", "-q", "-c", work.arg(), "-e", &text]).success();
        assert_eq!(o.stdout.trim(), format!("@[uprobe:{}:{name}]: 5", work.arg()), "{pattern}");
        let o = run(KYMO, ["count", "--json", "-e", &point, "--", work.arg()]).success();
        let is_there = o.stdout.contains(&format!(":{name}\""));
        assert!(is_there || !pattern.contains('*'), "{pattern}: {}", o.stdout);
    }
}

/// Return probes of functions that exceptions may leave are announced; those of C and entries not.
#[test]
fn return_probes_that_exceptions_may_meet_are_announced() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("g++"), Need::Tool("gcc")]) {
        return;
    }
    let _state = TracingState::take();
    const THROWS: &str = "extern \"C\" __attribute__((noinline)) int passes(int n) {
            if (n > 1) throw n;
            return n;
        }
        int main(int argc, char **) { try { passes(argc); } catch (int) { } return 0; }";
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("throws.cc"), THROWS).unwrap();
    let build = |name: &str, more: &[&str]| {
        let (program, source) = (file(name), file("throws.cc"));
        let words = [&["-O1", "-o", &program, &source], more].concat();
        let _ = run("g++", words).success();
        program
    };
    let work = Workload::compile(
        "returns",
        "__attribute__((noinline)) int passes(int n) { return n; }
         int main(int argc, char **argv) { return passes(argc) - 1; }",
    );
    let throwing = [build("throws", &[]), build("throws-static", &["-static"])];
    let said = "an exception or panic that leaves passes ends the program";
    for (program, is_said) in
        [(throwing[0].as_str(), true), (throwing[1].as_str(), true), (work.arg(), false)]
    {
        for (kind, is_said) in [("uretprobe", is_said), ("uprobe", false)] {
            let point = format!("{kind}:{program}:passes");
            let text = format!("{point} {{ @ = count(); }}");
            let o = run(KYMO, ["run", "-q", "-c", program, "-e", &text]).success();
            assert_eq!(o.stderr.contains(said), is_said, "{point}: {}", o.stderr);
            assert_eq!(o.stdout.trim(), "@: 1", "{point}");
            // As nothing is wrong with the result, it is a note.
            let o = run(KYMO, ["count", "--strict", "-e", &point, "--", program]).success();
            assert_eq!((o.stdout + &o.stderr).contains(said), is_said, "{point}");
        }
        let o = run(KYMO, ["probe", "-x", program, "-n", "--add", "passes%return"]).success();
        assert_eq!((o.stdout + &o.stderr).contains(said), is_said, "{program}");
    }
    // kymo itself is a Rust program whose panics unwind.
    let text = format!("uretprobe:{KYMO}:main {{ }}");
    let o = run(KYMO, ["run", "-q", "--dry-run", "-e", &text]).success();
    assert!(o.stderr.contains("an exception or panic that leaves main ends"), "{}", o.stderr);
}

/// Children that run a probed file are left out by `-c` and `-p`, which is reported; others are
/// not missed.
#[test]
fn children_that_are_left_out_are_reported() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("gcc")]) {
        return;
    }
    let work = Workload::compile(
        "children",
        r#"
        #include <pthread.h>
        #include <signal.h>
        #include <string.h>
        #include <sys/prctl.h>
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) void hot(int n) { asm volatile("" :: "r"(n)); }
        static void *run(void *unused) { hot(1); return unused; }
        int main(int argc, char **argv) {
            pthread_t thread;
            hot(0);
            if (strstr(argv[1], "thread")) pthread_create(&thread, 0, run, 0), pthread_join(thread, 0);
            if (strstr(argv[1], "exec") && !fork()) execl("/bin/true", "true", (char *)0);
            if (strstr(argv[1], "again") && !fork()) execl(argv[0], argv[0], "alone", (char *)0);
            if (strstr(argv[1], "copy") && !fork()) { hot(2); _exit(0); }
            if (strstr(argv[1], "beside") && !fork()) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;) { hot(3); usleep(2000); }
            }
            while (strstr(argv[1], "waits")) { hot(4); usleep(2000); }
            while (wait(0) > 0) {}
            return 0;
        }
        "#,
    );
    let said = "its children run a probed file, and their hits are left out";
    let text = format!("uprobe:{}:hot {{ @ = count(); }}", work.arg());
    for (how, hits, is_said) in [
        ("alone", 1, false),
        ("thread", 2, false),
        ("exec", 1, false),
        ("again", 1, true),
        ("copy", 1, true),
    ] {
        let command = format!("{} {how}", work.arg());
        let o = run(KYMO, ["run", "-q", "--strict", "-c", &command, "-e", &text]).success();
        assert_eq!(o.stdout.trim(), format!("@: {hits}"), "{how}");
        assert_eq!(o.stderr.contains(said), is_said, "{how}: {}", o.stderr);
    }
    for (how, is_said) in [("waits", false), ("waits beside", true)] {
        let mut process = Command::new(work.arg()).arg(how).spawn().unwrap();
        let id = process.id().to_string();
        // Until the child is there: it comes before the first of these.
        let text = "uprobe:hot /arg0 == 4/ { exit(); }";
        let first = run(KYMO, ["run", "-q", "-p", &id, "-e", text]);
        let second = run(KYMO, ["run", "-q", "-p", &id, "-e", text]);
        process.kill().unwrap();
        process.wait().unwrap();
        let (first, second) = (first.success().stderr, second.success().stderr);
        assert_eq!(second.contains(said), is_said, "{how}: {first} {second}");
    }
}
