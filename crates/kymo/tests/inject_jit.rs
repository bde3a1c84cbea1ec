//! `kymo inject -j`: functions of a jitdump file as ELF files, which perf names samples with.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use kymo_testkit::{Need, Outcome, Workload, peer, perf, require, run};

/// A program that makes two functions at run time, moves the second, stays in each for a while,
/// and writes a jitdump file into a directory.
const JIT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
/* mov $0x8000000,%ecx; dec %ecx; jne -4; ret */
static const unsigned char code[] = {0xb9, 0, 0, 0, 8, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
static int fd;
static void put(const void *bytes, int n) { if (write(fd, bytes, n) != n) _exit(3); }
static void head(int kind, int size) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint32_t words[2] = {kind, 16 + size};
    uint64_t time = t.tv_sec * 1000000000ull + t.tv_nsec;
    put(words, 8), put(&time, 8);
}
static void load(const unsigned char *at, uint64_t index, const char *name) {
    uint32_t ids[2] = {getpid(), getpid()};
    uint64_t words[4] = {(uint64_t)at, (uint64_t)at, sizeof code, index};
    head(0, 40 + strlen(name) + 1 + sizeof code);
    put(ids, 8), put(words, sizeof words), put(name, strlen(name) + 1), put(code, sizeof code);
}
static void move(const unsigned char *from, const unsigned char *to, uint64_t index) {
    uint32_t ids[2] = {getpid(), getpid()};
    uint64_t words[5] = {(uint64_t)to, (uint64_t)from, (uint64_t)to, sizeof code, index};
    head(1, 8 + sizeof words);
    put(ids, 8), put(words, sizeof words);
}
int main(int count, char **arguments) {
    int late = count > 2, memory = late && arguments[2][0] == 'm' ? memfd_create("code", 0) : -1;
    int kind = memory < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    if (memory >= 0 && ftruncate(memory, 8192)) return 3;
    unsigned char *page = mmap(0, 8192, PROT_READ | PROT_WRITE | (late ? 0 : PROT_EXEC), kind, memory, 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", arguments[1], getpid());
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    uint32_t begin[10] = {0x4A695444, 1, 40, 62, 0, getpid()};
    put(begin, sizeof begin);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (late) {
        /* Code is written first, and may be executed then. */
        memcpy(page, code, sizeof code), memcpy(page + 4096, code, sizeof code);
        load(page, 1, "made_first"), load(page + 4096, 2, "made_second");
        for (int n = 0; n < 2; n++) {
            mprotect(page, 8192, PROT_READ | PROT_EXEC);
            ((void (*)(void))(page + 4096 * n))();
            mprotect(page, 8192, PROT_READ | PROT_WRITE);
        }
        return 0;
    }
    memcpy(page, code, sizeof code);
    load(page, 1, "made_first");
    ((void (*)(void))page)();
    /* In the place of the first one. */
    memcpy(page, code, sizeof code);
    load(page, 2, "made_second");
    ((void (*)(void))page)();
    memcpy(page + 4096, code, sizeof code);
    move(page, page + 4096, 2);
    ((void (*)(void))(page + 4096))();
    return 0;
}
"#;

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

/// Samples by function and binary.
fn functions(text: &str) -> Vec<(String, String, u64)> {
    let rows = text.lines().map(str::trim).filter(|l| l.contains("made_"));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, samples, binary, _, name] = words[..] else { panic!("{line}") };
        (name.to_owned(), binary.to_owned(), samples.parse().unwrap())
    };
    let mut rows: Vec<_> = rows.map(row).collect();
    rows.sort();
    rows
}

#[test]
fn perf_names_functions_that_were_made_at_run_time() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("inject_jit", JIT);
    let (file, piped) = (w.file("perf.data"), w.file("piped.data"));
    let own = tempfile::tempdir().unwrap();
    let made = own.path().join("made.data").display().to_string();
    let directory = w.dir().display().to_string();
    let clock = ["record", "-q", "-k", "mono", "-F", "1000", "-e", "cpu-clock:u"];
    let _ = perf([&clock[..], &["-o", &file, w.arg(), &directory]].concat()).success();
    // A link in the place of a file is not followed.
    let dump = std::fs::read_dir(w.dir()).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        Some(name.strip_prefix("jit-")?.strip_suffix(".dump")?.to_owned())
    });
    let image = own.path().join(format!("jitted-{}-1.so", dump.unwrap()));
    let target = own.path().join("target");
    std::fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &image).unwrap();
    let _ = kymo(&["inject", "-j", "-i", &file, "-o", &made]).success();
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "kept");
    assert!(std::fs::symlink_metadata(&image).unwrap().is_file());
    // perf's files are beside the jitdump file.
    let from_perf = w.file("perfs.data");
    let _ = perf(["inject", "-j", "-i", &file, "-o", &from_perf]).success();
    let report = ["report", "--stdio", "-n", "-s", "dso,sym", "-i"];
    let theirs = functions(&perf([&report[..], &[&from_perf]].concat()).success().stdout);
    let names: Vec<&str> = theirs.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["made_first", "made_second"], "{theirs:?}");
    // Each by either, perf's newest included.
    for outcome in [
        perf([&report[..], &[&made]].concat()),
        peer("perf").run([&report[..], &[&made]].concat()),
        kymo(&[&report[..], &[&made]].concat()),
    ] {
        assert_eq!(functions(&outcome.success().stdout), theirs);
    }
    // Nothing is left of the file that was mapped, and all samples are there.
    let maps = kymo(&["script", "--show-mmap-events", "-i", &made]).success().stdout;
    assert!(!maps.contains(".dump") && maps.matches("/jitted-").count() > 3, "{maps}");
    let samples = |path: &str| kymo(&["script", "-F", "time,ip", "-i", path]).success().stdout;
    assert_eq!(samples(&made), samples(&file));
    // Through a pipe, files are made where the program runs.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["inject", "-j", "-i", &file]).current_dir(elsewhere.path());
    command.stdout(std::fs::File::create(&piped).unwrap());
    assert!(command.status().unwrap().success());
    let files = std::fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(files, 2);
    let text = perf([&report[..], &[&piped]].concat()).success().stdout;
    assert_eq!(functions(&text), theirs);
}

#[test]
fn a_recording_with_a_different_clock_is_unchanged_and_reported() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("inject_jit_clock", JIT);
    let (file, made) = (w.file("perf.data"), w.file("made.data"));
    let directory = w.dir().display().to_string();
    let args = ["record", "-q", "-e", "cpu-clock:u", "-o", &file, w.arg(), &directory];
    let _ = perf(args).success();
    let out = kymo(&["inject", "-j", "-i", &file, "-o", &made]).success();
    assert!(out.stderr.contains("record with -k mono"), "{out:?}");
    let maps = kymo(&["script", "--show-mmap-events", "-i", &made]).success().stdout;
    assert!(maps.contains(".dump") && !maps.contains("/jitted-"), "{maps}");
}

/// A program whose main function calls `burn` through code that it makes at run time, with the
/// unwinding information and the header (no machine) that CPython 3.13 writes for its trampolines.
const TRAMPOLINE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
/* sub $8,%rsp; call *%rdi; add $8,%rsp; ret */
static const unsigned char code[] = {
    0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
static const unsigned char unwinding[72] = {
    /* .eh_frame: 48 bytes */
    0x14, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 0x10, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    0x14, 0, 0, 0, 0x1c, 0, 0, 0, 0xd0, 0xff, 0xff, 0xff, 11, 0, 0, 0, 0, 0x44, 0x0e, 0x10, 0x46,
    0x0e, 8, 0,
    /* .eh_frame_hdr: 20 bytes */
    1, 0x1b, 3, 0x3b, 0xcc, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xc0, 0xff, 0xff, 0xff, 0xe8, 0xff, 0xff,
    0xff};
static int fd;
static volatile unsigned long sum;
static void put(const void *bytes, int n) { if (write(fd, bytes, n) != n) _exit(3); }
static void head(int kind, int size) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint32_t words[2] = {kind, 16 + size};
    uint64_t time = t.tv_sec * 1000000000ull + t.tv_nsec;
    put(words, 8), put(&time, 8);
}
__attribute__((noinline)) void burn(void) {
    for (unsigned long n = 0; n < 300000000; n++) sum += n;
}
int main(int count, char **arguments) {
    unsigned char *page =
        mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/jit-%d.dump", arguments[1], getpid());
    fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    uint32_t begin[10] = {0x4A695444, 1, 40, 0, 0, getpid()};
    put(begin, sizeof begin);
    mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    memcpy(page, code, sizeof code);
    uint64_t sizes[3] = {68, 20, 80};
    head(4, 24 + 72), put(sizes, 24), put(unwinding, 72);
    uint32_t ids[2] = {getpid(), getpid()};
    uint64_t words[4] = {(uint64_t)page, (uint64_t)page, sizeof code, 1};
    head(0, 40 + 16 + sizeof code);
    put(ids, 8), put(words, sizeof words), put("made_trampoline", 16), put(code, sizeof code);
    ((void (*)(void (*)(void)))page)(burn);
    return sum == 1;
}
"#;

/// Unwinding information in a jitdump file leads through the code, with `inject` and without it, in
/// kymo and in perf.
#[test]
fn stacks_lead_through_code_made_at_run_time() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("inject_unwinding", TRAMPOLINE);
    let (file, made) = (w.file("perf.data"), w.file("made.data"));
    let directory = w.dir().display().to_string();
    let clock = ["record", "-q", "-k", "mono", "-F", "500", "--call-graph", "dwarf,4096"];
    let command = ["-e", "cpu-clock:u", "-o", &file, "--", w.arg(), &directory];
    let _ = kymo(&[&clock[..], &command].concat()).success();
    let _ = kymo(&["inject", "-j", "-i", &file, "-o", &made]).success();
    let maps = kymo(&["script", "--show-mmap-events", "-i", &made]).success().stdout;
    // The code up to the next multiple of 8, and what is mapped behind it.
    assert!(maps.contains("(0x60) @ 0x80"), "{maps}");
    let script = ["script", "-F", "ip,sym", "-i"];
    // perf 7.2 with elfutils' unwinder ends each of these stacks behind its first frame.
    for (reader, text) in [
        ("kymo, injected", kymo(&[&script[..], &[&made]].concat()).success().stdout),
        ("kymo, recorded", kymo(&[&script[..], &[&file]].concat()).success().stdout),
        ("perf", perf([&script[..], &[&made]].concat()).success().stdout),
    ] {
        let name = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        let stacks = text.split("\n\n").map(|stack| stack.lines().filter_map(name));
        let stacks: Vec<Vec<String>> = stacks.map(Iterator::collect).collect();
        let in_burn = stacks.iter().filter(|s| s.first().is_some_and(|f| f == "burn")).count();
        let whole =
            |s: &&Vec<String>| s.get(..3).is_some_and(|s| s == ["burn", "made_trampoline", "main"]);
        let whole = stacks.iter().filter(whole).count();
        assert!(in_burn > 20 && whole * 10 > in_burn * 9, "{reader}: {whole} of {in_burn}: {text}");
    }
}

/// Memory that becomes executable after its functions were written does not hide them.
#[test]
fn functions_of_memory_that_is_made_executable_later_have_names() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("inject_late", JIT);
    let directory = w.dir().display().to_string();
    for memory in ["anonymous", "memfd"] {
        let (file, made) = (w.file("late.data"), w.file("late-made.data"));
        let clock = ["record", "-q", "-k", "mono", "-F", "1000", "-e", "cpu-clock:u"];
        let command = [w.arg(), &directory, memory];
        let _ = kymo(&[&clock[..], &["-o", &file, "--"], &command].concat()).success();
        for command in [&["report", "--stdio"][..], &["profile"]] {
            let shown = kymo(&[command, &["-i", &file]].concat()).success();
            let all = shown.stdout + &shown.stderr;
            // No directory has the file of such memory.
            assert!(!all.contains("--symfs"), "{memory}: {all}");
            assert_eq!(all.contains("kymo inject -j"), memory == "memfd", "{memory}: {all}");
        }
        let _ = kymo(&["inject", "-j", "-i", &file, "-o", &made]).success();
        let report = kymo(&["report", "--stdio", "-n", "-s", "dso,sym", "-i", &made]).success();
        let found = functions(&report.stdout);
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["made_first", "made_second"], "{memory}: {}", report.stdout);
    }
}
