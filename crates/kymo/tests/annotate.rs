//! `kymo annotate` next to `perf annotate` and `objdump`: each instruction's share
//! and each instruction's text.

#![allow(clippy::unwrap_used, reason = "a test that cannot read an answer has failed")]

use std::collections::BTreeMap;

use kymo_testkit::{Need, Outcome, Workload, perf, require, run};

const SOURCE: &str = r#"
#include <stdio.h>
#include <string.h>
volatile unsigned long sink;
static char text[4096];
static inline int hash(const char *p, int n) {
    int h = 0;
    for (int i = 0; i < n; i++)
        h = h * 31 + p[i];
    return h;
}
__attribute__((noinline)) void leaf(int n) {
    for (int i = 0; i < n; i++) {
        if (i % 3)
            sink += i * i;
        else
            sink ^= 5;
    }
}
__attribute__((noinline)) int mid(int n) {
    leaf(n / 4);
    return hash(text, n % 4096);
}
int main(void) {
    int s = 0;
    memset(text, 7, sizeof text);
    for (int i = 0; i < 15000; i++) {
        s += mid(16380);
        if (i % 64 == 0) {
            FILE *f = fopen("/proc/self/stat", "r");
            if (f) { s += fread(text, 1, 64, f); fclose(f); }
        }
    }
    printf("%d\n", s);
    return 0;
}
"#;

fn kymo(args: &[&str]) -> Outcome {
    run(env!("CARGO_BIN_EXE_kymo"), args)
}

fn recording(w: &Workload, events: &str) -> String {
    let file = w.file("perf.data");
    let program = w.program().display().to_string();
    let _ = perf(["record", "-q", "-F", "2000", "-e", events, "-o", &file, &program]).success();
    file
}

/// Returns the cells and the text of each instruction, from lines `CELLS :  ADDRESS:  TEXT`.
fn rows(text: &str) -> BTreeMap<u64, (Vec<String>, String)> {
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let Some((cells, rest)) = line.split_once(" :  ").or_else(|| line.split_once(":  ")) else {
            continue;
        };
        let Some((addr, text)) = rest.trim_start().split_once(':') else { continue };
        let Ok(addr) = u64::from_str_radix(addr, 16) else { continue };
        // What is drawn beside it.
        let text = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let cells = cells.split_whitespace().map(str::to_string).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(rows.insert(addr, (cells, text)).is_none(), "{addr:x} stands twice");
    }
    rows
}

#[test]
fn shares_and_instructions_are_perfs() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("objdump")]) {
        return;
    }
    let w = Workload::compile("annotate", SOURCE);
    let file = recording(&w, "cpu-clock:u");
    for (symbol, percent) in
        [("leaf", "local-period"), ("mid", "local-period"), ("mid", "local-hits")]
    {
        let options = ["--stdio", "-i", &file, "--percent-type", percent];
        let theirs = perf([&["annotate", "-s", symbol], &options[..]].concat()).success().stdout;
        let ours = kymo(&[&["annotate", symbol, "--no-source"], &options[..]].concat()).success();
        let (theirs, ours) = (rows(&theirs), rows(&ours.stdout));
        assert!(theirs.len() > 10, "{theirs:#?}");
        assert!(theirs.values().any(|r| r.0 != ["0.00"]), "no sample: {theirs:#?}");
        // perf writes zeros where there is no sample.
        let shown = |(addr, (cells, text)): (&u64, &(Vec<String>, String))| {
            let cell = cells.first().filter(|c| *c != "0.00").cloned();
            (*addr, cell, text.clone())
        };
        let ours: Vec<_> = ours.iter().map(shown).collect();
        let theirs: Vec<_> = theirs.iter().map(shown).collect();
        assert_eq!(ours, theirs, "{symbol} {percent}");
    }
    // perf 6.1 prints shares of the function for global-period, and zeros for
    // global-hits; what `perf script` counts is the judge.
    let script = perf(["script", "-F", "ip,sym", "-i", &file]).success().stdout;
    let inside = script.lines().filter(|l| l.trim_end().ends_with(" mid")).count() as f64;
    let share = 100.0 * inside / script.lines().count() as f64;
    for percent in ["global-period", "global-hits"] {
        let args = ["annotate", "mid", "-i", &file, "--percent-type", percent, "--no-source"];
        let rows = rows(&kymo(&args).success().stdout);
        let sum: f64 = rows.values().flat_map(|r| &r.0).map(|c| c.parse::<f64>().unwrap()).sum();
        assert!((sum - share).abs() < 0.01 * rows.len() as f64, "{percent}: {sum} {share}");
    }
}

#[test]
fn events_stand_side_by_side_and_add_up() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("objdump")]) {
        return;
    }
    let w = Workload::compile("annotate_events", SOURCE);
    let file = recording(&w, "cpu-clock:u,task-clock:u");
    let args = ["annotate", "leaf", "-i", &file, "-n", "--no-source"];
    let rows = rows(&kymo(&args).success().stdout);
    // Equal to the number that `perf script` prints; a column without a sample is blank, so that
    // only sums of all cells can be compared.
    let script = perf(["script", "-F", "event,ip,sym", "-i", &file]).success().stdout;
    let theirs = script.lines().filter(|l| l.trim_end().ends_with(" leaf")).count() as u64;
    let cells = rows.values().flat_map(|r| &r.0);
    let ours: u64 = cells.map(|c| c.parse::<u64>().unwrap()).sum();
    assert!(theirs > 0, "{script}");
    assert_eq!(ours, theirs);
}

#[test]
fn source_lines_stand_between_the_instructions() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("objdump")]) {
        return;
    }
    let w = Workload::compile("annotate_source", SOURCE);
    let file = recording(&w, "cpu-clock:u");
    let shown = kymo(&["annotate", "mid", "-i", &file, "-l"]).success().stdout;
    assert!(shown.contains("h = h * 31 + p[i];"), "{shown}");
    // The line of the loop is the hottest, and is said to be another function's.
    let hottest = shown.split("Hottest lines:").nth(1).unwrap().lines().nth(1).unwrap();
    let line = SOURCE.lines().position(|l| l.contains("h = h * 31")).unwrap() + 1;
    let near = [line - 1, line].map(|l| format!("annotate_source.c:{l} "));
    assert!(near.iter().any(|n| hottest.contains(n)), "{hottest}\n{shown}");
    assert!(shown.contains("hash") && shown.contains("(inlined into mid)"), "{shown}");
    let plain = kymo(&["annotate", "mid", "-i", &file, "--no-source"]).success().stdout;
    let code = plain.split("Hottest instructions").nth(1).unwrap();
    assert!(!code.contains("h = h * 31"), "{plain}");
}

#[test]
fn a_binary_that_was_replaced_is_refused_by_name() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("objdump")]) {
        return;
    }
    let w = Workload::compile("annotate_replaced", SOURCE);
    let file = recording(&w, "cpu-clock:u");
    let other = Workload::compile("annotate_other", "int main(void) { return 0; }");
    // The copy that perf keeps under the user's directory would do as well.
    let empty = tempfile::tempdir().unwrap();
    std::fs::copy(other.program(), w.program()).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kymo"));
    let _ = command.args(["annotate", "-i", &file, "-d", "annotate_replaced"]);
    let _ = command.env("HOME", empty.path());
    let refused = kymo_testkit::run_command(command).failure();
    assert!(refused.stderr.contains("no sample is in a function"), "{}", refused.stderr);
    assert!(refused.stderr.contains("annotate_replaced"), "{}", refused.stderr);
}

#[test]
fn what_cannot_be_shown_is_said() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("objdump")]) {
        return;
    }
    let w = Workload::compile("annotate_refused", SOURCE);
    let file = recording(&w, "cpu-clock:u");
    let refused = |args: &[&str], why: &str| {
        let said = kymo(&[&["annotate", "-i", &file], args].concat()).failure().stderr;
        assert!(said.contains(why), "{args:?}: {said}");
    };
    refused(&["nonsense"], "no sample is in a function nonsense; most are in ");
    let plain = kymo(&["annotate", "leaf", "-i", &file]).success().stdout;
    let idle = kymo(&["annotate", "leaf", "-i", &file, "--objdump", "/usr/bin/objdump"]);
    assert_eq!(idle.success().stdout, plain);
    let report = perf(["report", "-q", "--stdio", "-F", "overhead,sym", "-i", &file]).success();
    let shares: Vec<f64> =
        report.stdout.lines().filter_map(|l| l.trim().split_once('%')?.0.parse().ok()).collect();
    let between = format!("{}", shares[0].midpoint(shares[1]));
    let most = kymo(&["annotate", "-i", &file, "--percent-limit", &between]).success().stdout;
    assert_eq!(most.matches(" Percent |").count(), 1, "{report:?}: {most}");
    let top = kymo(&["annotate", "-i", &file, "--top", "1"]).success().stdout;
    assert!(top.contains("functions with samples are shown"), "{top}");
    let intel = kymo(&["annotate", "leaf", "-i", &file, "-M", "intel"]).success().stdout;
    assert!(intel.contains("imul") && intel.contains("QWORD PTR [rip+"), "{intel}");
}

/// A program that makes a function at run time and stays in it for a while. With a
/// directory it writes a jitdump file there, with lines; without one a map of names.
const JIT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* mov $0x7fffffff,%ecx; dec %ecx; jne -4; ret */
static const unsigned char code[] = {0xb9, 255, 255, 255, 0x7f, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
static void put(int fd, const void *bytes, int n) { if (write(fd, bytes, n) != n) _exit(3); }
int main(int count, char **arguments) {
    unsigned char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    char path[4096];
    snprintf(path, sizeof path, count > 1 ? "%2$s/jit-%1$d.dump" : "/tmp/perf-%1$d.map", getpid(), count > 1 ? arguments[1] : "");
    int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (count > 1) {
        uint32_t head[10] = {0x4A695444, 1, 40, 62, 0, getpid()};
        put(fd, head, sizeof head);
        uint32_t info[8] = {2, 32 + 2 * (16 + 8)};
        ((uint64_t *)info)[2] = (uint64_t)page, ((uint64_t *)info)[3] = 2;
        put(fd, info, sizeof info);
        for (int i = 0; i < 2; i++) {
            uint64_t at = (uint64_t)page + 5 * i;
            uint32_t line[2] = {40 + i, 0};
            put(fd, &at, 8), put(fd, line, 8), put(fd, "made.js", 8);
        }
        uint32_t load[14] = {0, 56 + 5 + sizeof code, 0, 0, getpid(), getpid()};
        uint64_t *words = (uint64_t *)load;
        words[3] = words[4] = (uint64_t)page, words[5] = sizeof code, words[6] = 1;
        put(fd, load, sizeof load), put(fd, "made", 5), put(fd, code, sizeof code);
        mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    } else {
        dprintf(fd, "%lx %zx made\n", (unsigned long)page, sizeof code);
    }
    printf("%s\n", path);
    fflush(stdout);
    ((void (*)(void))page)();
    return 0;
}
"#;

#[test]
fn code_made_at_run_time_is_shown_where_a_jitdump_keeps_it() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("annotate_jit", JIT);
    let file = w.file("perf.data");
    let directory = w.dir().display().to_string();
    let record = |args: &[&str]| {
        let first = ["record", "-q", "-F", "500", "-e", "cpu-clock:u", "-o", &file, w.arg()];
        perf([&first, args].concat()).success().stdout
    };
    let _ = record(&[&directory]);
    let text = kymo(&["annotate", "made", "-i", &file, "-l"]).success().stdout;
    let rows: Vec<(Vec<String>, String)> = rows(&text).into_values().collect();
    let code: Vec<&str> = rows.iter().map(|r| r.1.split('<').next().unwrap().trim()).collect();
    let place = |n: usize| code[n].split(' ').next().unwrap();
    assert_eq!(
        (code[0], code[1], place(2), code[3]),
        ("mov $0x7fffffff,%ecx", "dec %ecx", "jne", "ret"),
        "{text}"
    );
    assert_eq!(code.len(), 4, "{text}");
    // All of the time is in the loop, which is of the second line.
    let share = |n: usize| rows[n].0.first().map_or(0.0, |c| c.parse::<f64>().unwrap());
    assert!(share(1) + share(2) > 99.0, "{text}");
    assert!(text.contains("made.js:41") && text.contains("made.js:40"), "{text}");
    // A map has names only, and that is said.
    let map = record(&[]);
    let said = kymo(&["annotate", "made", "-i", &file]).failure();
    std::fs::remove_file(map.trim()).unwrap();
    let said = said.stdout + &said.stderr;
    assert!(said.contains("it has names of JIT code, and no code"), "{said}");
}

#[test]
fn sources_that_were_moved_are_found_behind_a_prefix() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let w = Workload::compile("annotate_moved", SOURCE);
    let file = recording(&w, "cpu-clock:u");
    // The source as the compiler was given it, an absolute path.
    let whole = kymo(&["annotate", "leaf", "-i", &file, "-l", "-P"]).success().stdout;
    let path = whole.split_whitespace().find_map(|word| word.strip_prefix('/')?.split_once(".c:"));
    let path = format!("/{}.c", path.unwrap_or_else(|| panic!("{whole}")).0);
    assert!(whole.contains("sink += i * i"), "{whole}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let shown =
        |more: &[&str]| kymo(&[&["annotate", "leaf", "-i", &file], more].concat()).success().stdout;
    assert!(!shown(&[]).contains("sink += i * i"));
    let moved = tempfile::tempdir().unwrap();
    let prefix = moved.path().display().to_string();
    let directories = path.matches('/').count() - 1;
    let below = |strip: usize| {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').skip(strip).collect();
        moved.path().join(parts.join("/"))
    };
    for strip in 0..=directories {
        let place = below(strip);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(&place, &text).unwrap();
        let strip_option = strip.to_string();
        let text = shown(&["--prefix", &prefix, "--prefix-strip", &strip_option]);
        assert!(text.contains("sink += i * i"), "{strip}: {text}");
        std::fs::remove_file(&place).unwrap();
        let text = shown(&["--prefix", &prefix, "--prefix-strip", &strip_option]);
        assert!(!text.contains("sink += i * i"), "{strip}: {text}");
    }
    // More directories than there are leave the file.
    std::fs::write(below(directories), &text).unwrap();
    assert!(shown(&["--prefix", &prefix, "--prefix-strip", "99"]).contains("sink += i * i"));
    let alone = kymo(&["annotate", "-i", &file, "--prefix-strip", "2"]);
    assert_eq!(alone.status, 2, "{alone:?}");
}
