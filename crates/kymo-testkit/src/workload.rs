//! Programs with a known shape: which functions they spend their time in and how
//! many system calls they make. Compiled when the test runs, so that no binary
//! is kept in the project.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiled program in a directory of its own that goes away with it.
#[derive(Debug)]
pub struct Workload {
    dir: tempfile::TempDir,
    program: PathBuf,
}

/// `main` calls `outer`, which calls `hot` three times as long as `warm`.
/// Argument: how many rounds (default 100, a few milliseconds each).
const SPIN: &str = r#"
#include <stdlib.h>
volatile unsigned long sink;
__attribute__((noinline)) void hot(void) { for (unsigned long i = 0; i < 3000000; i++) sink += i; }
__attribute__((noinline)) void warm(void) { for (unsigned long i = 0; i < 1000000; i++) sink += i; }
__attribute__((noinline)) void outer(void) { hot(); warm(); sink++; }
int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    for (int i = 0; i < rounds; i++) outer();
    return 0;
}
"#;

/// Makes exactly as many `getppid` calls as its argument says (default 1000).
const SYSCALLS: &str = r#"
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 1000;
    for (int i = 0; i < n; i++) syscall(SYS_getppid);
    return 0;
}
"#;

/// Two threads named `left` and `right` that both burn, and a child process.
const THREADS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void turn(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; }
static void *body(void *name) { pthread_setname_np(pthread_self(), name); turn(60000000); return 0; }
int main(void) {
    pthread_t left, right;
    pthread_create(&left, 0, body, "left");
    pthread_create(&right, 0, body, "right");
    pid_t child = fork();
    if (child == 0) { turn(20000000); _exit(0); }
    pthread_join(left, 0);
    pthread_join(right, 0);
    waitpid(child, 0, 0);
    return 0;
}
"#;

/// Directory of prepared programs in the guest, each with its source.
const IN_GUEST: &str = "/vm/programs";

impl Workload {
    /// The programs that every test can use: names and sources.
    pub const SOURCES: [(&str, &str); 3] =
        [("spin", SPIN), ("syscalls", SYSCALLS), ("threads", THREADS)];

    /// Compiler flags: frame pointers, symbols, lines; functions of libraries are resolved at the
    /// start. If they were resolved at their first calls, samples would now and then fall into the
    /// first entry of the procedure linkage table, which has no name, and which perf takes for the
    /// function `_init` before it.
    pub const FLAGS: [&str; 6] = [
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-fno-optimize-sibling-calls",
        "-pthread",
        "-Wl,-z,now",
    ];

    /// Compiles C source with frame pointers, symbols and lines. In the guest the
    /// program lies ready: its source must be one of [`Workload::SOURCES`] or a file
    /// `tests/guest_programs/<name>.c` of a crate.
    ///
    /// # Panics
    /// If the compiler is missing (see [`crate::Need::Gcc`]) or refuses.
    #[track_caller]
    pub fn compile(name: &str, source: &str) -> Workload {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("temporary directory: {e}"));
        let (code, program) = (dir.path().join(format!("{name}.c")), dir.path().join(name));
        if crate::guest() {
            take_ready(name, source, &program);
            return Workload { dir, program };
        }
        std::fs::write(&code, source).unwrap_or_else(|e| panic!("{}: {e}", code.display()));
        let mut gcc = Command::new("gcc");
        gcc.args(Workload::FLAGS).arg("-o").args([&program, &code]);
        let _ = crate::run_command(gcc).success();
        Workload { dir, program }
    }

    /// `main` → `outer` → `hot` (three quarters of the time) and `warm` (one quarter).
    /// Argument: rounds.
    #[track_caller]
    pub fn spin() -> Workload {
        Workload::compile("spin", SPIN)
    }

    /// Makes as many `getppid` calls as its argument says.
    #[track_caller]
    pub fn syscalls() -> Workload {
        Workload::compile("syscalls", SYSCALLS)
    }

    /// Two named threads, `left` and `right`, and a child process, all in `turn`.
    #[track_caller]
    pub fn threads() -> Workload {
        Workload::compile("threads", THREADS)
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The program as text, for argument lists.
    ///
    /// # Panics
    /// If the temporary directory's path is not UTF-8.
    pub fn arg(&self) -> &str {
        self.program.to_str().unwrap_or_else(|| panic!("{}: not UTF-8", self.program.display()))
    }

    /// Its directory, where recordings can be put.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in its directory, as text.
    ///
    /// # Panics
    /// If the temporary directory's path is not UTF-8.
    pub fn file(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        path.to_str().unwrap_or_else(|| panic!("{}: not UTF-8", path.display())).to_owned()
    }
}

/// Copies a program that was compiled before the guest started.
#[track_caller]
fn take_ready(name: &str, source: &str, program: &Path) {
    let ready = Path::new(IN_GUEST).join(name);
    let built_from = std::fs::read_to_string(ready.with_extension("c"));
    assert!(
        built_from.as_ref().is_ok_and(|b| b == source),
        "no program {name} of this source lies ready in the guest: the source belongs into \
         tests/guest_programs/{name}.c of a crate"
    );
    std::fs::copy(&ready, program).unwrap_or_else(|e| panic!("{}: {e}", ready.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_programs_compile_and_run() {
        if !crate::require(&[crate::Need::Gcc]) {
            return;
        }
        for (workload, args) in [
            (Workload::spin(), vec!["1"]),
            (Workload::syscalls(), vec!["5"]),
            (Workload::threads(), vec![]),
        ] {
            assert_eq!(crate::run(workload.program(), args).success().stdout, "");
        }
    }
}
