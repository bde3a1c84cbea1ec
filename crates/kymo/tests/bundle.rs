//! A recording is resolved on another machine as on its own: with nothing there
//! but kymo, the recording and its bundle, report and script print the same bytes.
//! The other machine is an empty root with another kernel's (no) symbols.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, Workload, require, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Perf, Need::PerfEvents, Need::Gcc];

/// A place where a recording is made, and an empty root to take it to.
struct Places {
    w: Workload,
    root: tempfile::TempDir,
}

impl Places {
    fn new(w: Workload) -> Places {
        let root = tempfile::tempdir().unwrap();
        for directory in ["proc", "home", "tmp"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        fs::copy(KYMO, root.path().join("kymo")).unwrap();
        Places { w, root }
    }

    #[track_caller]
    fn here(&self, args: &[&str]) -> Outcome {
        let mut command = Command::new(KYMO);
        command.args(args).current_dir(self.w.dir()).env("HOME", "/nonexistent");
        command.env_remove("DEBUGINFOD_URLS");
        run_command(command)
    }

    #[track_caller]
    fn perf(&self, args: &[&str]) {
        let mut command = Command::new("perf");
        command.args(args).current_dir(self.w.dir()).env("HOME", self.root.path());
        let _ = run_command(command).success();
    }

    /// Takes the recording and its bundle away.
    fn take(&self) {
        for name in ["perf.data", "perf.data.bundle"] {
            let _ = fs::copy(self.w.file(name), self.root.path().join("home").join(name));
        }
    }

    /// Runs kymo where nothing else is.
    #[track_caller]
    fn there(&self, args: &[&str]) -> Outcome {
        let root = self.root.path().display();
        let script = format!(
            "mount -t proc proc {root}/proc && mount --bind /dev/null {root}/proc/kallsyms && \
             exec chroot {root} /kymo-runs \"$@\""
        );
        // chroot starts in its root; the recording lies in /home.
        let script = script.replace("/kymo-runs", "/kymo");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh"]).args(args);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", "/nonexistent");
        run_command(command)
    }

    /// Asserts that the output of each of these commands has the same bytes on both machines.
    #[track_caller]
    fn same(&self, commands: &[&[&str]]) -> Vec<String> {
        self.take();
        let text = |o: Outcome| (o.status, o.stdout, o.stderr);
        let mut all = Vec::new();
        for args in commands {
            let away: Vec<&str> = args.iter().copied().chain(["-i", "/home/perf.data"]).collect();
            let with = |more: &[&'static str]| -> Vec<&str> {
                args.iter()
                    .copied()
                    .chain(["-i", "perf.data"])
                    .chain(more.iter().copied())
                    .collect()
            };
            let plain = text(self.here(&with(&["--no-bundle"])));
            assert_eq!(plain.0, 0, "{plain:?}");
            let there = text(self.there(&away));
            assert_eq!(there, plain, "{args:?}: away, and at home without the bundle");
            let bundled = text(self.here(&with(&[])));
            assert_eq!(bundled, plain, "{args:?}: at home, with and without the bundle");
            all.push(plain.1);
        }
        all
    }
}

const REPORTS: [&[&str]; 8] = [
    &["report", "--stdio", "-s", "dso,sym"],
    &["report", "--stdio", "-g", "-s", "comm,dso,sym"],
    &["report", "--stdio", "--children", "-g", "caller"],
    &["script"],
    &["script", "--json"],
    &["script", "-F", "+srcline"],
    &["convert", "-f", "folded"],
    &["convert", "-f", "speedscope"],
];

#[test]
fn stacks_of_frame_pointers_and_the_kernel() {
    if !require(&NEEDS) {
        return;
    }
    let p = Places::new(Workload::spin());
    let events = ["record", "-q", "-g", "-e", "cpu-clock", "-e", "context-switches"];
    let record = [&events[..], &["-o", "perf.data", "./spin", "100"]].concat();
    let _ = p.here(&record).success();
    let made = p.here(&["bundle", "perf.data"]).success();
    assert!(made.stderr.contains("kymo bundle: Wrote"), "{made:?}");
    let bundle = fs::metadata(p.w.file("perf.data.bundle")).unwrap().len();
    assert!(bundle < 2_000_000, "{bundle}");
    let texts = p.same(&REPORTS);
    assert!(texts[0].contains("[.] hot"), "{}", texts[0]);
    assert!(texts[1].contains("hot"), "{}", texts[1]);
    // Without the bundle no symbol is known there.
    fs::remove_file(p.root.path().join("home/perf.data.bundle")).unwrap();
    let bare = p.there(&["report", "--stdio", "-i", "/home/perf.data"]).success().stdout;
    assert!(!bare.contains("[.] hot") && bare.contains("unresolved:"), "{bare}");
}

#[test]
fn stacks_that_are_unwound() {
    if !require(&NEEDS) {
        return;
    }
    let p = Places::new(Workload::spin());
    let args = ["-O2", "-fomit-frame-pointer", "-g", "-o", "spin", "spin.c"];
    let mut gcc = Command::new("gcc");
    gcc.args(args).current_dir(p.w.dir());
    let _ = run_command(gcc).success();
    let record = ["record", "-q", "--call-graph", "dwarf,4096", "-e", "cpu-clock:u", "--bundle"];
    let made = p.here(&[&record[..], &["-o", "perf.data", "./spin", "100"]].concat()).success();
    assert!(!made.stderr.contains("Trust:"), "{made:?}");
    let texts = p.same(&REPORTS);
    assert!(texts[1].contains("main") && texts[1].contains("__libc_start"), "{}", texts[1]);
    // Code is only in bundles with whole binaries. The text of sources stays at home.
    let code = |more: &[&'static str]| [&["annotate", "hot", "--no-source"], more].concat();
    let plain = p.here(&code(&["-i", "perf.data", "--no-bundle"])).success();
    assert!(plain.stdout.contains("Hottest lines:") && plain.stdout.contains("ret"), "{plain:?}");
    let bundled = p.here(&code(&["-i", "perf.data"])).success();
    assert_eq!((&bundled.stdout, &bundled.stderr), (&plain.stdout, &plain.stderr));
    let none = p.there(&code(&["-i", "/home/perf.data"]));
    let said = "the bundle has no code; make it with `kymo bundle --binaries`";
    assert!(none.stdout.contains(said), "{none:?}");
    let _ = p.here(&["bundle", "--binaries", "perf.data"]).success();
    p.take();
    let whole = p.there(&code(&["-i", "/home/perf.data"])).success();
    let rows = |text: &str| -> Vec<String> {
        let (_, listing) = text.split_once("Hottest instructions:").unwrap();
        let rows = listing.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
        rows.map(str::to_owned).collect()
    };
    assert!(rows(&plain.stdout).len() > 10, "{}", plain.stdout);
    assert_eq!(rows(&whole.stdout), rows(&plain.stdout));
}

/// With its sources a recording is annotated elsewhere as at home, inlined functions of
/// other files included; what a binary has no business with stays at home.
#[test]
fn sources_go_along_if_asked() {
    use std::os::unix::fs::PermissionsExt as _;
    if !require(&NEEDS) {
        return;
    }
    let p = Places::new(Workload::spin());
    let source = fs::read_to_string(p.w.file("spin.c")).unwrap();
    let header = "static inline __attribute__((always_inline)) unsigned long mix(unsigned long x)\n\
                  {\n\treturn x * 2654435761u ^ x >> 7; // the header's own\n}\n";
    fs::create_dir(p.w.file("include")).unwrap();
    fs::write(p.w.file("include/mix.h"), header).unwrap();
    let more = "#include \"include/mix.h\"\n\
                __attribute__((noinline)) unsigned long mixed(unsigned long n)\n\
                {\n\tunsigned long r = 0;\n\
                \tfor (unsigned long i = 0; i < n; i++)\n\t\tr += mix(r + i);\n\treturn r;\n}\n\
                __attribute__((constructor)) static void begin(void)\n\
                {\n\tvolatile unsigned long r = mixed(200000000);\n\t(void)r;\n}\n";
    fs::write(p.w.file("spin.c"), source + more).unwrap();
    let args = ["-O2", "-g", "-o", "spin", "spin.c"];
    let mut gcc = Command::new("gcc");
    gcc.args(args).current_dir(p.w.dir());
    let _ = run_command(gcc).success();
    let record = ["record", "-q", "-e", "cpu-clock:u", "-o", "perf.data", "./spin", "30"];
    let _ = p.here(&record).success();
    let made = p.here(&["bundle", "--sources", "perf.data"]).success();
    assert!(made.stderr.contains(" sources) ]"), "{made:?}");
    let header = fs::canonicalize(p.w.file("include/mix.h")).unwrap();
    assert!(made.stderr.contains(&format!("\n  {}\n", header.display())), "{made:?}");
    let mode = fs::metadata(p.w.file("perf.data.bundle")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let texts = p.same(&[&["annotate", "mixed", "-l"], &["annotate", "mixed", "-n"]]);
    let (own, headers) = ("r += mix(r + i);", "// the header's own");
    assert!(texts[0].contains(own) && texts[0].contains(headers), "{}", texts[0]);
    // In the archive are the files of the line tables, and no other.
    let mut tar = Command::new("tar");
    tar.args(["xOf", "perf.data.bundle", "--wildcards", "*/sources"]).current_dir(p.w.dir());
    let names = run_command(tar).success().stdout;
    assert!(names.lines().any(|n| n.ends_with("/include/mix.h")), "{names}");
    let mut lines = Command::new("readelf");
    lines.args(["--debug-dump=line", "spin"]).current_dir(p.w.dir());
    let lines = run_command(lines).success().stdout;
    let of_spin = p.w.dir().display().to_string();
    for name in names.lines().filter(|n| n.starts_with(&of_spin)) {
        let base = name.rsplit('/').next().unwrap();
        assert!(lines.lines().any(|l| l.trim_end().ends_with(base)), "{name}\n{lines}");
    }
    // A binary of another user does not bundle its reader's files.
    fs::set_permissions(p.w.file("include/mix.h"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(p.w.file("spin"), Some(4711), None).unwrap();
    let made = p.here(&["bundle", "--sources", "perf.data"]).success();
    assert!(made.stderr.contains("source files are not in the bundle"), "{made:?}");
    p.take();
    let there = p.there(&["annotate", "mixed", "-l", "-i", "/home/perf.data"]).success();
    assert!(!there.stdout.contains(headers) && there.stdout.contains("mix.h:3"), "{there:?}");
}

/// Payloads name functions of the kernel; JIT code has a map of its own.
#[test]
fn payloads_and_jit_code() {
    if !require(&[&NEEDS[..], &[Need::Tracefs]].concat()) {
        return;
    }
    let p = Places::new(Workload::compile("jit", JIT));
    let events = ["-e", "cpu-clock:u", "-e", "timer:hrtimer_start"];
    let record = ["record", "-q", "-o", "perf.data"];
    let _ = p.here(&[&record[..], &events, &["./jit"]].concat()).success();
    let _ = p.here(&["bundle", "perf.data"]).success();
    let texts = p.same(&[&["report", "--stdio", "-s", "dso,sym"], &["script"]]);
    let maps = texts[0].lines().find(|l| l.contains("made here"));
    assert!(maps.is_some_and(|l| l.contains("perf-")), "{}", texts[0]);
    assert!(texts[1].contains("function=hrtimer_wakeup"), "{}", texts[1]);
    // The map is the process's own; it is not left behind.
    let map = texts[1].lines().find_map(|l| l.split("(/tmp/perf-").nth(1)).unwrap();
    fs::remove_file(format!("/tmp/perf-{}", map.trim_end_matches(')'))).unwrap();
}

/// Runs bytes that it wrote itself, and says so.
const JIT: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
int main(void) {
    /* mov ecx, 300000000; dec ecx; jnz -4; ret */
    unsigned char code[] = {0xb9, 0x00, 0xa3, 0xe1, 0x11, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < sizeof code; i++) p[i] = code[i];
    char name[64];
    sprintf(name, "/tmp/perf-%d.map", getpid());
    FILE *f = fopen(name, "w");
    fprintf(f, "%lx 10 made here\n", (unsigned long)p);
    fclose(f);
    ((void (*)(void))p)();
    struct timespec t = {0, 1000000};
    for (int i = 0; i < 5; i++) nanosleep(&t, 0);
    return 0;
}
"#;

#[test]
fn damage_is_named_and_the_report_comes() {
    if !require(&NEEDS) {
        return;
    }
    let p = Places::new(Workload::spin());
    let record = ["record", "-q", "-g", "-e", "cpu-clock:u", "--bundle", "-o", "perf.data"];
    let _ = p.here(&[&record[..], &["./spin", "50"]].concat()).success();
    let bundle = p.w.file("perf.data.bundle");
    let whole = fs::read(&bundle).unwrap();
    let report = |bytes: &[u8]| {
        fs::write(&bundle, bytes).unwrap();
        p.here(&["report", "--stdio", "-s", "dso,sym", "-i", "perf.data"]).success().stdout
    };
    let good = report(&whole);
    assert!(!good.contains("bundle:"), "{good}");
    // Every damaged bundle is reported, or the damage is in an unread part.
    let mut stated = 0;
    // Its last kilobyte is empty.
    for at in (0..whole.len() - 1024).step_by(whole.len() / 25) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let text = report(&bytes);
        stated += usize::from(text.contains("bundle: ") && text.contains("perf.data.bundle"));
        assert!(text.contains("[.] hot"), "{at}: {text}");
        let cut = report(&whole[..at]);
        assert!(cut.contains("bundle: ") && cut.contains("[.] hot"), "{at}: {cut}");
    }
    assert!(stated > 15, "{stated}");
    let text = String::from_utf8_lossy(&whole);
    let at =
        text.find("kymo-bundle\t1").map(|_| whole.windows(13).position(|w| w == b"kymo-bundle\t1"));
    let at = at.flatten().unwrap();
    let mut newer = whole.clone();
    newer[at + 12] = b'7';
    assert!(report(&newer).contains("it is of version 7, not 1"));
    assert!(report(b"").contains("it is cut short"));
    // Of another recording.
    fs::write(&bundle, &whole).unwrap();
    let other = ["record", "-q", "-g", "-e", "cpu-clock:u", "-o", "other.data", "./spin", "50"];
    let _ = p.here(&other).success();
    fs::rename(&bundle, p.w.file("other.data.bundle")).unwrap();
    let other = p.here(&["report", "--stdio", "-i", "other.data"]).success().stdout;
    assert!(other.contains("it belongs to another recording"), "{other}");
    let strict = p.here(&["report", "--strict", "--stdio", "-i", "other.data"]);
    let _ = strict.expect_status(3);
}

/// Unpacked into `~/.debug` a bundle serves perf, as `perf archive` would.
#[test]
fn perf_reads_an_unpacked_bundle() {
    if !require(&NEEDS) {
        return;
    }
    let p = Places::new(Workload::spin());
    let record = ["record", "-q", "-N", "-e", "cpu-clock:u", "-o", "perf.data", "./spin", "100"];
    p.perf(&record);
    let report = |home: &Path| {
        let mut command = Command::new("perf");
        command.args(["report", "--stdio", "--no-children", "-s", "dso,sym", "-i", "perf.data"]);
        command.current_dir(p.w.dir()).env("HOME", home).env("LC_ALL", "C");
        let text = run_command(command).success().stdout;
        let rows = text.lines().filter(|l| l.contains("[.]")).map(str::to_owned);
        rows.collect::<Vec<String>>()
    };
    let nothing = tempfile::tempdir().unwrap();
    let whole = report(nothing.path());
    assert!(whole.iter().any(|l| l.contains("hot")), "{whole:?}");
    let _ = p.here(&["bundle", "perf.data", "-o", "slim.tar"]).success();
    let _ = p.here(&["bundle", "--binaries", "-i", "perf.data", "-o", "full.tar"]).success();
    fs::rename(p.w.program(), p.w.file("gone")).unwrap();
    let bare = report(nothing.path());
    assert!(!bare.iter().any(|l| l.contains("hot")), "{bare:?}");
    for archive in ["full.tar", "slim.tar"] {
        let home = tempfile::tempdir().unwrap();
        let debug = home.path().join(".debug");
        fs::create_dir(&debug).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(p.w.file(archive)).arg("-C").arg(&debug);
        let _ = run_command(tar).success();
        let of_spin = |rows: &[String]| -> Vec<String> {
            rows.iter().filter(|l| l.contains(" spin ")).cloned().collect()
        };
        assert_eq!(of_spin(&report(home.path())), of_spin(&whole), "{archive}");
        // kymo takes the same directory as a bundle.
        let directory = debug.to_str().unwrap();
        let ours =
            p.here(&["report", "--stdio", "-i", "perf.data", "--bundle", directory]).success();
        assert!(ours.stdout.contains("[.] hot"), "{archive}: {}", ours.stdout);
    }
}
