//! Paths that a recording, its binaries' DWARF or a convention name lead to FIFOs,
//! devices and files of the kernel, or to files that are nobody's source: nothing waits
//! for them, none is read without end, none leaves the machine in a bundle. And names
//! that are longer than any column.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, Workload, require, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: &[Need] = &[Need::PerfEvents, Need::Gcc];

/// A program that was recorded in a directory of its own.
struct Recorded {
    workload: Workload,
}

impl Recorded {
    fn new(name: &str, source: &str) -> Recorded {
        let recorded = Recorded { workload: Workload::compile(name, source) };
        let program = recorded.workload.program().display().to_string();
        let args = ["record", "-q", "-e", "cpu-clock:u", "-o", "perf.data", "--", &program];
        let _ = recorded.kymo(&args).success();
        recorded
    }

    /// Runs kymo; it must end within 20 seconds and with 3 GB of addresses.
    #[track_caller]
    fn kymo(&self, args: &[&str]) -> Outcome {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", "20", "sh", "-c", "ulimit -v 3000000; exec \"$@\"", "sh", KYMO]);
        command.args(args).current_dir(self.workload.dir());
        command.env("KYMO_CACHE", "off").env("HOME", "/nonexistent").env_remove("DEBUGINFOD_URLS");
        let outcome = run_command(command);
        assert!(outcome.status < 101, "{args:?}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{args:?}: {outcome:?}");
        outcome
    }
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs bytes that it wrote itself.
const JIT: &str = r#"
#define _GNU_SOURCE
#include <sys/mman.h>
int main(void) {
    /* mov ecx, 300000000; dec ecx; jnz -4; ret */
    unsigned char code[] = {0xb9, 0x00, 0xa3, 0xe1, 0x11, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < sizeof code; i++) p[i] = code[i];
    ((void (*)(void))p)();
    return 0;
}
"#;

/// Path that is removed on drop.
struct Lying(PathBuf);

impl Drop for Lying {
    fn drop(&mut self) {
        // A test that failed before it was made has nothing to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_map_of_functions_that_is_no_regular_file() {
    if !require(NEEDS) {
        return;
    }
    let recorded = Recorded::new("jit", JIT);
    let script = recorded.kymo(&["script", "-F", "pid", "-i", "perf.data"]).success().stdout;
    let pid: u32 = script.lines().next().unwrap().trim().parse().unwrap();
    let map = Lying(PathBuf::from(format!("/tmp/perf-{pid}.map")));
    let shown = map.0.display().to_string();
    let huge = recorded.workload.dir().join("huge");
    std::fs::File::create(&huge).unwrap().set_len(64 << 30).unwrap();
    let everybody = |what: &str, reason: &str| {
        for args in [
            &["report", "--stdio", "-i", "perf.data"][..],
            &["script", "-i", "perf.data"],
            &["annotate", "-i", "perf.data"],
            &["convert", "-f", "folded", "-o", "out", "-i", "perf.data"],
            &["bundle", "-o", "out.bundle", "perf.data"],
        ] {
            let outcome = recorded.kymo(args);
            let told = format!("{}{}", outcome.stdout, outcome.stderr);
            if args[0] != "annotate" {
                let outcome = outcome.success();
                let line = told.lines().find(|l| l.contains(&shown) && l.contains(reason));
                assert!(line.is_some(), "{what}: {args:?}: {reason:?} not in {outcome:?}");
            }
            for made in ["out", "out.bundle"] {
                let _ = std::fs::remove_file(recorded.workload.dir().join(made));
            }
        }
        std::fs::remove_file(&map.0).unwrap();
    };
    make_fifo(&map.0);
    everybody("a FIFO", "not a regular file");
    symlink("/dev/zero", &map.0).unwrap();
    everybody("a device", "not a regular file");
    symlink("/proc/kmsg", &map.0).unwrap();
    everybody("a file of the kernel", "not a regular file");
    symlink(&huge, &map.0).unwrap();
    everybody("64 GB", "exceed the limit of");
}

/// Spins in a function that a `#line` places in another file.
fn named_source(file: &str) -> String {
    format!(
        "volatile unsigned long sink;\n\
         #line 1 \"{file}\"\n\
         __attribute__((noinline)) void spin(unsigned long n)\n\
         {{\n\tfor (unsigned long i = 0; i < n; i++)\n\t\tsink += i * i;\n}}\n\
         int main(void)\n{{\n\tspin(300000000);\n\treturn 0;\n}}\n"
    )
}

#[test]
fn sources_that_are_no_regular_files_are_not_opened() {
    if !require(NEEDS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo.c");
    make_fifo(&fifo);
    let device = dir.path().join("device.c");
    symlink("/dev/zero", &device).unwrap();
    for file in [fifo.to_str().unwrap(), device.to_str().unwrap(), "/proc/kmsg"] {
        let recorded = Recorded::new("named", &named_source(file));
        let annotate = recorded.kymo(&["annotate", "spin", "-l", "-i", "perf.data"]).success();
        assert!(annotate.stdout.contains(file), "{annotate:?}");
        let _ = recorded.kymo(&["report", "--stdio", "-s", "sym,srcline", "-i", "perf.data"]);
        let _ = recorded.kymo(&["probe", "-q", "-x", "./named", "-L", "spin"]);
        let bundle = recorded.kymo(&["bundle", "--sources", "perf.data"]).success();
        assert!(!bundle.stderr.contains(&format!("\n  {file}\n")), "{bundle:?}");
    }
}

/// A binary says that it was compiled from a file that holds passwords.
#[test]
fn a_bundle_holds_sources_only() {
    if !require(NEEDS) {
        return;
    }
    let recorded = Recorded::new("named", &named_source("/etc/shadow"));
    let bundle = recorded.kymo(&["bundle", "--sources", "perf.data"]).success();
    assert!(bundle.stderr.contains("source files are not in the bundle"), "{bundle:?}");
    assert!(!bundle.stderr.contains("\n  /etc/shadow\n"), "{bundle:?}");
    let mut tar = Command::new("tar");
    tar.args(["xOf", "perf.data.bundle", "--wildcards", "*/sources"]);
    tar.current_dir(recorded.workload.dir());
    let names = run_command(tar).success().stdout;
    assert!(names.lines().all(|name| !name.contains("/etc/")), "{names}");
}

#[test]
fn a_name_is_longer_than_any_column() {
    if !require(NEEDS) {
        return;
    }
    let name = "n".repeat(70_000);
    let source = named_source("long.c").replace("spin", &name);
    let recorded = Recorded::new("long", &source);
    for args in [
        &["report", "--stdio", "-i", "perf.data"][..],
        &["report", "--stdio", "-s", "sym,srcline", "-i", "perf.data"],
        &["report", "--stdio", "-s", "dso,sym,comm", "--children", "-i", "perf.data"],
        &["report", "--stdio", "-t", ";", "-i", "perf.data"],
        &["script", "-i", "perf.data"],
        &["annotate", "-i", "perf.data"],
        &["convert", "-f", "folded", "-o", "-", "-i", "perf.data"],
        &["probe", "-q", "-x", "./long", "-F"],
    ] {
        let outcome = recorded.kymo(args).success();
        assert!(outcome.stdout.contains(&name), "{args:?}: {} bytes", outcome.stdout.len());
    }
}

/// A program whose path is no text is found by its bytes.
#[test]
fn a_path_that_is_no_text_has_symbols() {
    use std::os::unix::ffi::OsStrExt as _;
    if !require(NEEDS) {
        return;
    }
    let w = Workload::spin();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9\xff");
    let (program, data) = (w.dir().join(name), w.dir().join(name).with_extension("data"));
    std::fs::rename(w.program(), &program).unwrap();
    let kymo = |args: &[&std::ffi::OsStr]| {
        let mut command = Command::new(KYMO);
        command.args(args).env("KYMO_CACHE", "off").env_remove("DEBUGINFOD_URLS");
        run_command(command)
    };
    let os = std::ffi::OsStr::new;
    let record = ["record", "-q", "-e", "cpu-clock:u", "-o"].map(os);
    let end = [data.as_os_str(), os("--"), program.as_os_str(), os("300")];
    let _ = kymo(&[&record[..], &end].concat()).success();
    let injected = w.dir().join(name).with_extension("injected");
    let inject = [os("inject"), os("-b"), os("-i"), data.as_os_str(), os("-o")];
    let _ = kymo(&[&inject[..], &[injected.as_os_str()]].concat()).success();
    for file in [&data, &injected] {
        let report = kymo(&[os("report"), os("-i"), file.as_os_str()]).success().stdout;
        assert!(report.contains("[.] hot"), "{report}");
        let code = kymo(&[os("annotate"), os("-i"), file.as_os_str(), os("hot")]).success().stdout;
        assert!(code.contains("hot"), "{code}");
    }
    // Its build-id stands beside its name as it is, behind the last sample.
    let list = kymo(&[os("buildid-list"), os("--with-hits"), os("-i"), injected.as_os_str()]);
    assert!(list.success().stdout.contains("caf"));
}

/// Names with control characters are escaped where they are listed.
#[test]
fn names_of_injected_build_ids_are_escaped() {
    if !require(NEEDS) {
        return;
    }
    let w = Workload::spin();
    let program = w.dir().join("two\nlines\x1b[31m");
    std::fs::copy(w.program(), &program).unwrap();
    let (program, data, injected) =
        (program.to_str().unwrap(), w.file("control.data"), w.file("injected.data"));
    let kymo = |args: &[&str]| kymo_testkit::run(KYMO, args).success();
    let _ = kymo(&["record", "-q", "-e", "cpu-clock:u", "-o", &data, "--", program]);
    let listed = kymo(&["inject", "-b", "-v", "-i", &data, "-o", &injected]).stderr;
    let lines: Vec<&str> = listed.lines().filter(|line| line.contains("two")).collect();
    assert!(matches!(lines[..], [line] if line.contains("lines")), "{listed:?}");
    assert!(!listed.contains('\x1b'), "{listed:?}");
}
