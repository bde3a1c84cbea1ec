//! The shares in the ledger against recordings whose truth is known: a program calls into libraries
//! of three kinds a given number of times, so that the number of complete stacks, the ends of the
//! others, and the numbers of samples with a symbol and with a line are known; and one that forks
//! and becomes another program in the middle.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, require, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: &[Need] = &[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

const LIBRARY: &str = "
static long call(long x)
{
	long result;
	__asm__ volatile(\"syscall\\n\\tnop\" : \"=a\"(result) : \"a\"(110) : \"rcx\", \"r11\", \"memory\");
	return result + x;
}
__attribute__((noinline)) static long inside(long x) { return call(x) * 3; }
long NAME(long x) { volatile long room = inside(x); return room; }
";

const PROGRAM: &str = "
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
long lined(long), named(long), bare(long);
static volatile long sink;
__attribute__((noinline)) void calls(char **counts)
{
	for (int i = atoi(counts[0]); i > 0; i--) sink += lined(i);
	for (int i = atoi(counts[1]); i > 0; i--) sink += named(i);
	for (int i = atoi(counts[2]); i > 0; i--) sink += bare(i);
}
__attribute__((noinline)) void child(char **arguments)
{
	calls((char *[]){\"1\", \"1\", \"0\"});
	execv(arguments[5], arguments + 5);
}
int main(int count, char **arguments)
{
	calls(arguments + 1);
	if (count > 4) {
		if (fork() == 0) child(arguments);
		wait(0);
		calls((char *[]){\"1\", \"0\", \"0\"});
	}
	return 0;
}
";

#[track_caller]
fn inside(directory: &Path, program: &str, args: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command.args(args).current_dir(directory).env("KYMO_CACHE", "off");
    command.env("LD_LIBRARY_PATH", directory).env_remove("DEBUGINFOD_URLS");
    run_command(command).success()
}

/// The program and its libraries: `lined` has debugging information, `named` symbols
/// alone, `bare` neither names nor a way out of its functions.
fn program() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    std::fs::write(dir.join("library.c"), LIBRARY).unwrap();
    std::fs::write(dir.join("program.c"), PROGRAM).unwrap();
    let silent = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (name, more) in [("lined", &["-g"][..]), ("named", &[]), ("bare", &silent)] {
        let (file, define) = (format!("lib{name}.so"), format!("-DNAME={name}"));
        let flags = ["-O1", "-fPIC", "-shared", "-fomit-frame-pointer", &define, "-o", &file];
        inside(dir, "gcc", &[&flags[..], more, &["library.c"]].concat());
    }
    inside(dir, "strip", &["libbare.so"]);
    let flags = ["-O2", "-fomit-frame-pointer", "-L.", "-o", "program", "program.c"];
    inside(dir, "gcc", &[&flags[..], &["-llined", "-lnamed", "-lbare"]].concat());
    directory
}

fn record(directory: &Path, args: &[&str]) {
    let first = ["record", "-q", "-e", "syscalls:sys_enter_getppid", "-o", "perf.data"];
    let rest = ["--call-graph", "dwarf,8192", "--", "./program"];
    inside(directory, KYMO, &[&first[..], &rest, args].concat());
}

#[test]
fn shares_of_stacks_symbols_and_lines_are_the_programs() {
    if !require(NEEDS) {
        return;
    }
    let directory = program();
    let directory = directory.path();
    for (lined, named, bare) in [(3u32, 4u32, 5u32), (0, 0, 2), (6, 1, 1), (2, 3, 0)] {
        let all = lined + named + bare;
        let counts = [lined, named, bare].map(|n| n.to_string());
        record(directory, &counts.each_ref().map(String::as_str));
        let args = ["report", "--stdio", "--no-children", "-g", "caller", "-s", "sym,srcline"];
        let text = inside(directory, KYMO, &[&args[..], &["-i", "perf.data"]].concat()).stdout;
        let share = |n: u32| format!("{n} ({:.1}%)", f64::from(n) * 100.0 / f64::from(all));
        // `bare` has no unwind information: its stacks stop there.
        let complete = format!("stacks: {} of {all} user stacks are complete", share(all - bare));
        assert!(text.contains(&complete), "{complete}: {text}");
        if bare > 0 {
            let stopped = format!("{} stopped at unknown code", share(bare));
            let stacks = if bare == 1 { "stack ends" } else { "stacks end" };
            let place = format!("{bare} {stacks} in libbare.so ({bare}): no call frame");
            let without = f64::from(bare) * 100.0 / f64::from(all);
            let nameless = format!("{without:.1}% of {all} samples have no symbol");
            for what in [&stopped, &place, &nameless] {
                assert!(text.contains(what.as_str()), "{what}: {text}");
            }
        } else {
            assert!(!text.contains("# Trust:"), "{text}");
        }
        // A sample's own line, and what each of the places in programs has.
        let of_samples = f64::from(lined) * 100.0 / f64::from(all);
        let lines = format!("as have {of_samples:.1}% of all samples");
        assert!(text.contains(&lines), "{lines}: {text}");
        let (found, places) = places_with_lines(directory);
        let lines = format!("lines: {found} of {places} distinct addresses of code have");
        assert!(text.contains(&lines), "{lines}: {text}");
        let missing = text.contains("it is missing in ");
        assert!(missing && (named == 0 || text.contains("libnamed.so")), "{text}");
    }
}

/// Number of distinct addresses of the stacks that have a line, counted from their text.
fn places_with_lines(directory: &Path) -> (usize, usize) {
    let args = ["script", "--no-inline", "-F", "ip,sym,dso,srcline", "-i", "perf.data"];
    let text = inside(directory, KYMO, &args).stdout;
    let lines: Vec<&str> = text.lines().collect();
    let mut places: Vec<(&str, &str, bool)> = Vec::new();
    for pair in lines.windows(2).filter(|pair| pair[0].starts_with('\t')) {
        let (address, rest) = pair[0].trim().split_once(' ').unwrap();
        let dso = rest.rsplit_once('(').unwrap().1;
        places.push((address, dso, !pair[1].contains("??")));
    }
    places.sort_unstable();
    places.dedup();
    (places.iter().filter(|p| p.2).count(), places.len())
}

/// In the middle of the recording the program forks; its child calls, becomes another
/// program, which calls; then the first one calls again. Whose stack is whose is known.
#[test]
fn forks_and_new_programs_in_the_middle() {
    if !require(NEEDS) {
        return;
    }
    let directory = program();
    let directory = directory.path();
    inside(
        directory,
        "gcc",
        &[
            "-O2",
            "-fomit-frame-pointer",
            "-L.",
            "-Dcalls=other_calls",
            "-o",
            "other",
            "program.c",
            "-llined",
            "-lnamed",
            "-lbare",
        ],
    );
    // Two calls; a child with two more that becomes `other 0 2`; one call.
    record(directory, &["2", "0", "0", "fork", "./other", "0", "2", "0"]);
    let args = ["script", "--no-inline", "-F", "comm,tid,ip,sym,dso", "-i", "perf.data"];
    let shown = inside(directory, KYMO, &args);
    let stacks: Vec<Vec<&str>> = shown
        .stdout
        .split("\n\n")
        .map(|sample| sample.lines().filter(|l| !l.is_empty()).collect::<Vec<_>>())
        .filter(|lines| !lines.is_empty())
        .collect();
    let functions = |lines: &[&str]| -> Vec<String> {
        let name =
            |l: &&str| Some(l.strip_prefix('\t')?.trim_start().split(' ').nth(1)?.to_owned());
        lines.iter().filter_map(name).take(5).collect()
    };
    let wanted = |library: &str, calls: &str, last: &str| {
        ["inside", library, calls, last].map(str::to_owned).to_vec()
    };
    let expected = [
        ("program", wanted("lined", "calls", "main")),
        ("program", wanted("lined", "calls", "main")),
        ("program", wanted("lined", "calls", "child")),
        ("program", wanted("named", "calls", "child")),
        ("other", wanted("named", "other_calls", "main")),
        ("other", wanted("named", "other_calls", "main")),
        ("program", wanted("lined", "calls", "main")),
    ];
    assert_eq!(stacks.len(), expected.len(), "{}", shown.stdout);
    for (lines, (comm, frames)) in stacks.iter().zip(expected) {
        assert!(lines[0].trim_start().starts_with(comm), "{comm}: {}", lines[0]);
        assert_eq!(functions(lines)[..4], frames, "{}", shown.stdout);
        let dso = format!("/{comm})");
        assert!(lines.iter().any(|l| l.contains(" main (") && l.ends_with(&dso)), "{lines:?}");
    }
    assert!(shown.stderr.contains("7 (100.0%) of 7 user stacks"), "{}", shown.stderr);
}
