//! Code that comes and goes while the program runs, and code of the kernel's in it:
//! libraries that are loaded by hand, one after the other at the same place; the vdso;
//! a handler with a stack of its own; statically linked programs at any address.

use crate::judge::{Stop, compile, in_gdb, in_kymo, record, same, tool};
use crate::programs::NEEDS;
use kymo_testkit::require;

const LIBRARY: &str = "
static volatile long sink;
static inline __attribute__((always_inline)) long call(void)
{
	long result;
	__asm__ volatile(\"syscall\\n\\tnop\" : \"=a\"(result) : \"a\"(110) : \"rcx\", \"r11\", \"memory\");
	return result;
}
__attribute__((noinline)) long NAME(long x)
{
	volatile char room[ROOM];
	room[x] = x;
	sink += call();
	return room[x];
}
long enter(long x) { return NAME(x) + 1; }
";

#[test]
fn libraries_one_after_the_other_at_one_place() {
    if !require(NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("library.c"), LIBRARY).unwrap();
    for (name, room) in [("first", "40"), ("second", "4000")] {
        let (file, name) = (format!("{name}.so"), format!("-DNAME=in_{name}"));
        let room = format!("-DROOM={room}");
        let flags = ["-O2", "-g", "-fPIC", "-shared", "-fomit-frame-pointer", &name, &room];
        tool(directory.path(), "gcc", &[&flags[..], &["-o", &file, "library.c"]].concat());
    }
    let text = include_str!("loads.c");
    compile(directory.path(), "gcc", "loads.c", text, &["-O2", "-g", "-no-pie"]);
    let (program, data) = (directory.path().join("program"), directory.path().join("perf.data"));
    let libraries = ["first.so", "second.so", "first.so"].map(|l| directory.path().join(l));
    let args = libraries.each_ref().map(|l| l.to_str().unwrap());
    record(&program, &args, &["-e", "syscalls:sys_enter_getppid"], &data);
    let (ours, shown) = in_kymo(&data, None);
    let theirs = in_gdb(&program, &args, &Stop::Syscall("getppid", 3));
    same(&program, &ours, &theirs);
    let names: Vec<&str> = ours.iter().map(|stack| stack[1].function.as_str()).collect();
    assert_eq!(names, ["in_first", "in_second", "in_first"]);
    assert!(shown.stderr.contains("3 (100.0%) of 3 user stacks"), "{}", shown.stderr);
}

#[test]
fn the_kernels_code_in_the_program() {
    if !require(NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let text = "
#include <time.h>
static volatile long sink;
__attribute__((noinline)) void asks(void)
{
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	sink += time.tv_nsec;
}
int main(void) { asks(); return 0; }
";
    compile(directory.path(), "gcc", "clock.c", text, &["-O2", "-g", "-no-pie"]);
    let (program, data) = (directory.path().join("program"), directory.path().join("perf.data"));
    record(&program, &[], &["-e", "syscalls:sys_enter_clock_gettime"], &data);
    let (ours, shown) = in_kymo(&data, None);
    let theirs = in_gdb(&program, &[], &Stop::Syscall("clock_gettime", 1));
    same(&program, &ours, &theirs);
    assert!(shown.stdout.contains("vdso"), "{}", shown.stdout);
    assert!(shown.stderr.contains("1 (100.0%) of 1 user stacks"), "{}", shown.stderr);
}

#[test]
fn a_handler_with_a_stack_of_its_own_and_static_programs() {
    if !require(NEEDS) {
        return;
    }
    let text = include_str!("../unwind_programs/signal.c");
    // What a static program says of the C library is not as gdb reads it: the same
    // functions are there under many names, so only the program's own are compared.
    for (linked, all) in [("-no-pie", true), ("-static", false), ("-static-pie", false)] {
        let directory = tempfile::tempdir().unwrap();
        compile(directory.path(), "gcc", "signal.c", text, &["-O2", "-g", linked]);
        let (program, data) =
            (directory.path().join("program"), directory.path().join("perf.data"));
        for args in [&[][..], &["own"]] {
            record(&program, args, &["-e", "syscalls:sys_enter_getppid"], &data);
            let (ours, shown) = in_kymo(&data, None);
            let theirs = in_gdb(&program, args, &Stop::Syscall("getppid", 1));
            // A recording has a copy of the stack that the program was on: behind the
            // first frame of the other one nothing is known, and it is said.
            let mut theirs = theirs;
            let ends = match args {
                [] => "1 (100.0%) of 1 user stacks are complete",
                _ => {
                    theirs[0].truncate(5);
                    "1 (100.0%) gone on to another stack"
                }
            };
            assert!(shown.stderr.contains(ends), "{}", shown.stderr);
            if all {
                same(&program, &ours, &theirs);
            }
            let own = ["in_handler", "handler", "deep", "main"];
            let words = |stack: &[crate::judge::Frame]| -> Vec<(String, u64, String)> {
                let own = stack.iter().filter(|f| own.contains(&f.function.as_str()));
                own.map(|f| (f.function.clone(), f.offset, f.line.clone())).collect()
            };
            assert_eq!(words(&ours[0]), words(&theirs[0]), "{linked} {args:?}");
            assert_eq!(ours[0].len(), theirs[0].len(), "{linked} {args:?}");
        }
    }
}
