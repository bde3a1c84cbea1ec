//! Symbols of a stripped program from separate debug files in all their places, perf's cache, and
//! packed symbol tables; and the files that are refused. perf is the judge of the names.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

use kymo_testkit::{Need, Outcome, Workload, perf, require, run_command};

const NEEDS: [Need; 3] = [Need::Perf, Need::PerfEvents, Need::Gcc];

/// A recorded program that was stripped afterwards, and its debug file.
struct Stripped {
    w: Workload,
    /// An empty home and a root for `--symfs`.
    home: tempfile::TempDir,
    build_id: String,
}

#[track_caller]
fn tool(dir: &Path, name: &str, args: &[&str]) -> Outcome {
    let mut command = Command::new(name);
    command.args(args).current_dir(dir);
    run_command(command).success()
}

impl Stripped {
    /// The program as it was is `whole`, its debug file `spin.debug`.
    #[track_caller]
    fn new(more: &[&str]) -> Stripped {
        let w = Workload::spin();
        let flags = Workload::FLAGS.iter().chain(more).copied();
        let args: Vec<&str> = flags.chain(["-o", "spin", "spin.c"]).collect();
        let _ = tool(w.dir(), "gcc", &args);
        let home = tempfile::tempdir().unwrap();
        let file = w.file("perf.data");
        let record = ["record", "-q", "-e", "cpu-clock:u", "-N", "-o", &file, w.arg(), "40"];
        let _ = perf(record).success();
        std::fs::rename(w.program(), w.file("whole")).unwrap();
        let _ = tool(w.dir(), "objcopy", &["--only-keep-debug", "whole", "spin.debug"]);
        let _ = tool(w.dir(), "objcopy", &["--strip-all", "whole", "spin"]);
        let notes = tool(w.dir(), "readelf", &["-n", "whole"]).stdout;
        let id = notes.lines().find_map(|l| l.trim().strip_prefix("Build ID: "));
        let build_id = id.unwrap_or_default().to_owned();
        Stripped { w, home, build_id }
    }

    /// Links the debug file, as it is now, by name and checksum.
    #[track_caller]
    fn link(&self) {
        let dir = self.w.dir();
        let _ = tool(dir, "objcopy", &["--remove-section=.gnu_debuglink", "spin", "linked"]);
        let _ = tool(dir, "objcopy", &["--add-gnu-debuglink=spin.debug", "linked", "spin"]);
    }

    fn root(&self) -> &Path {
        self.home.path()
    }

    #[track_caller]
    fn put(&self, place: impl AsRef<Path>) {
        let place = place.as_ref();
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::rename(self.w.file("spin.debug"), place).unwrap();
    }

    fn report(&self, program: &str, more: &[&str]) -> Outcome {
        let mut command = Command::new(program);
        let file = self.w.file("perf.data");
        let args = ["report", "--stdio", "--no-children", "-s", "sym", "-i", &file];
        command.args(args).args(more).current_dir(self.w.dir());
        command.env("HOME", self.root()).env("LC_ALL", "C").env_remove("DEBUGINFOD_URLS");
        run_command(command)
    }

    #[track_caller]
    fn kymo(&self, more: &[&str]) -> String {
        self.report(env!("CARGO_BIN_EXE_kymo"), more).success().stdout
    }

    /// The rows, which must be the same for kymo and perf, and name `hot`.
    #[track_caller]
    fn same_as_perf(&self, more: &[&str]) {
        let ours = self.kymo(more);
        let theirs = self.report("perf", more).success().stdout;
        let rows = |text: &str| -> Vec<String> {
            let rows = text.lines().filter(|l| l.contains("[.]")).map(|l| l.trim().to_owned());
            // Addresses without a symbol are of one height in different order.
            let mut rows: Vec<String> = rows.collect();
            rows.sort();
            rows
        };
        assert_eq!(rows(&ours), rows(&theirs));
        assert!(ours.contains("[.] hot") && ours.contains("[.] warm"), "{ours}");
    }
}

#[test]
fn a_debug_file_is_found_in_every_place() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&[]);
    let dir = s.w.dir().to_owned();
    let bare = s.kymo(&[]);
    assert!(!bare.contains("[.] hot") && bare.contains("unresolved:"), "{bare}");
    s.link();
    s.same_as_perf(&[]);
    let below = |path: &str| s.root().join(path);
    let inside = dir.strip_prefix("/").unwrap();
    let symfs = s.root().to_str().unwrap().to_owned();
    s.put(dir.join(".debug/spin.debug"));
    s.same_as_perf(&[]);
    std::fs::rename(dir.join(".debug/spin.debug"), dir.join("spin.debug")).unwrap();

    // Under another root: beside the program, by path and by build-id.
    let moved = s.root().join(inside);
    std::fs::create_dir_all(&moved).unwrap();
    std::fs::rename(dir.join("spin"), moved.join("spin")).unwrap();
    let id = &s.build_id;
    let places = [
        moved.join("spin.debug"),
        below("usr/lib/debug").join(inside).join("spin.debug"),
        below("usr/lib/debug/.build-id").join(&id[..2]).join(format!("{}.debug", &id[2..])),
    ];
    for place in places {
        s.put(&place);
        let text = s.kymo(&["--symfs", &symfs]);
        assert!(text.contains("[.] hot"), "{}: {text}", place.display());
        assert!(!s.kymo(&[]).contains("[.] hot"));
        std::fs::rename(&place, dir.join("spin.debug")).unwrap();
    }
    assert!(!s.kymo(&["--symfs", &symfs]).contains("[.] hot"));
}

#[test]
fn perfs_cache_of_files_is_used() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&[]);
    std::fs::rename(s.w.file("whole"), s.w.program()).unwrap();
    let mut add = Command::new("perf");
    add.args(["buildid-cache", "-a", s.w.arg()]).env("HOME", s.root());
    let _ = run_command(add).success();
    std::fs::remove_file(s.w.program()).unwrap();
    s.same_as_perf(&[]);
    // The build-id decides: without it the file is not identified.
    std::fs::remove_dir_all(s.root().join(".debug/.build-id")).unwrap();
    assert!(!s.kymo(&[]).contains("[.] hot"));
}

#[test]
fn a_debug_file_of_a_different_build_is_refused_and_named() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&[]);
    s.link();
    // The same program built otherwise, under the right name.
    let args = ["-O0", "-g", "-fPIE", "-o", "other", "spin.c", "-DX", "-Wl,--build-id=0x1234"];
    let _ = tool(s.w.dir(), "gcc", &args);
    let _ = tool(s.w.dir(), "objcopy", &["--only-keep-debug", "other", "spin.debug"]);
    let text = s.kymo(&[]);
    assert!(!text.contains("[.] hot"), "{text}");
    let note = format!("its build-id is 1234, wanted is {}", s.build_id);
    assert!(text.contains("refused: ") && text.contains(&note), "{text}");
    let strict = s.report(env!("CARGO_BIN_EXE_kymo"), &["--strict"]);
    let _ = strict.expect_status(3);
}

/// A program that is gone is said to be, instead of advice that would help a stripped one.
#[test]
fn a_binary_that_is_gone_is_said_to_be() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&[]);
    let stripped = s.kymo(&[]);
    assert!(stripped.contains("install the debug symbols of spin"), "{stripped}");
    std::fs::remove_file(s.w.program()).unwrap();
    let gone = s.kymo(&[]);
    assert!(
        gone.contains(
            "the recorded file of spin is missing: name a directory that contains it with --symfs"
        ),
        "{gone}"
    );
    assert!(!gone.contains("debug symbols") && !gone.contains("JIT"), "{gone}");
    // The advice helps.
    let place = s.root().join(s.w.program().strip_prefix("/").unwrap());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(s.w.file("whole"), &place).unwrap();
    let found = s.kymo(&["--symfs", s.root().to_str().unwrap()]);
    assert!(found.contains("[.] hot"), "{found}");
}

#[test]
fn without_build_ids_the_checksum_of_the_link_decides() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&["-Wl,--build-id=none"]);
    s.link();
    assert!(s.kymo(&[]).contains("[.] hot"), "{}", s.kymo(&[]));
    let debug = s.w.file("spin.debug");
    let mut bytes = std::fs::read(&debug).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&debug, &bytes).unwrap();
    let text = s.kymo(&[]);
    assert!(!text.contains("[.] hot"), "{text}");
    assert!(text.contains("its checksum is ") && text.contains("spin.debug for "), "{text}");
    // Cut short while it is written: the same.
    std::fs::write(&debug, &bytes[..bytes.len() / 2]).unwrap();
    let text = s.kymo(&[]);
    assert!(!text.contains("[.] hot") && text.contains("refused: "), "{text}");
}

/// As Fedora does it: the names that the dynamic table lacks, packed by xz.
#[test]
fn packed_names_of_functions_are_used() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&["-Wl,--export-dynamic-symbol=warm"]);
    let dir = s.w.dir();
    let names = |args: &[&str]| -> Vec<String> {
        let text = tool(dir, "nm", args).stdout;
        let mut names: Vec<String> =
            text.lines().filter_map(|l| l.split(' ').next()).map(str::to_owned).collect();
        names.sort();
        names
    };
    let dynamic = names(&["-D", "whole", "--format=posix", "--defined-only"]);
    let keep: Vec<String> = names(&["whole", "--format=posix", "--defined-only"])
        .into_iter()
        .filter(|n| !dynamic.contains(n))
        .collect();
    std::fs::write(dir.join("keep"), keep.join("\n")).unwrap();
    let args = ["-S", "--remove-section=.gdb_index", "--remove-section=.comment"];
    let args = [&args[..], &["--keep-symbols=keep", "spin.debug", "mini"]].concat();
    let _ = tool(dir, "objcopy", &args);
    let _ = tool(dir, "xz", &["-k", "mini"]);
    let args = ["--add-section", ".gnu_debugdata=mini.xz", "spin", "with"];
    let _ = tool(dir, "objcopy", &args);
    std::fs::rename(dir.join("with"), dir.join("spin")).unwrap();
    std::fs::remove_file(dir.join("spin.debug")).unwrap();
    let text = s.kymo(&[]);
    // `hot` is packed, `warm` is dynamic.
    assert!(text.contains("[.] hot") && text.contains("[.] warm"), "{text}");
    assert!(!text.contains("unusable:"), "{text}");

    // Damaged: reported, and the symbols of the dynamic table are shown.
    let mut packed = std::fs::read(dir.join("mini.xz")).unwrap();
    let middle = packed.len() / 2;
    packed[middle] ^= 0x55;
    std::fs::write(dir.join("mini.xz"), &packed).unwrap();
    let args = ["--update-section", ".gnu_debugdata=mini.xz", "spin"];
    let _ = tool(dir, "objcopy", &args);
    let text = s.kymo(&[]);
    assert!(text.contains("unusable: ") && text.contains(".gnu_debugdata of"), "{text}");
    assert!(text.contains("[.] warm"), "{text}");
}

/// A symbol table that lacks what the dynamic one names: both together, as perf has them.
#[test]
fn what_one_table_lacks_the_other_names() {
    if !require(&NEEDS) {
        return;
    }
    let s = Stripped::new(&["-Wl,--export-dynamic-symbol=warm"]);
    let dir = s.w.dir();
    let _ = tool(dir, "objcopy", &["--strip-symbol=warm", "whole", "spin"]);
    s.same_as_perf(&[]);
    let check = || {
        let text = s.kymo(&[]);
        assert!(text.contains("[.] hot") && text.contains("[.] warm"), "{text}");
        // The table read as a whole, which a listing of code needs.
        let mut annotate = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let file = s.w.file("perf.data");
        annotate.args(["annotate", "warm", "-i", &file]).env("HOME", s.root());
        let listing = run_command(annotate).success().stdout;
        assert!(listing.contains("warm in spin"), "{listing}");
    };
    check();
    // The same of a debug file that lacks it.
    let _ = tool(dir, "objcopy", &["--strip-symbol=warm", "spin.debug", "cut.debug"]);
    std::fs::rename(dir.join("cut.debug"), dir.join("spin.debug")).unwrap();
    let _ = tool(dir, "objcopy", &["--strip-all", "whole", "spin"]);
    s.link();
    check();
}

#[test]
fn a_file_in_a_container_is_found_while_it_lives() {
    if !require(&[Need::Perf, Need::PerfEvents, Need::Gcc, Need::Root]) {
        return;
    }
    let w = Workload::spin();
    let home = tempfile::tempdir().unwrap();
    let file = w.file("perf.data");
    // A mount namespace of its own, in which the program lies where nothing is outside.
    let inner = w.dir().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let script = format!(
        "mount -t tmpfs none {0} && cp {1} {0}/spin && exec {0}/spin 100000",
        inner.display(),
        w.arg()
    );
    let mut program = Command::new("unshare").args(["-m", "sh", "-c", &script]).spawn().unwrap();
    let inside = format!("/proc/{}/root{}/spin", program.id(), inner.display());
    let begin = std::time::Instant::now();
    while !Path::new(&inside).exists() && begin.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = program.id().to_string();
    let args = ["record", "-q", "-e", "cpu-clock:u", "-N", "-p", &pid, "-o", &file, "sleep", "0.3"];
    let recorded = perf(args);
    let report = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(["report", "--stdio", "--no-children", "-s", "dso,sym", "-i", &file]);
        command.env("HOME", home.path());
        run_command(command)
    };
    let living = report();
    program.kill().unwrap();
    program.wait().unwrap();
    let gone = report().success().stdout;
    let _ = recorded.success();
    let living = living.success().stdout;
    assert!(!inner.join("spin").exists());
    assert!(living.contains("[.] hot"), "{living}");
    assert!(gone.contains("spin") && !gone.contains("[.] hot"), "{gone}");
}
