//! `kymo archive` beside perf's: each unpacks what the other has packed, and resolves with it.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, Workload, require, run_command};

/// A directory with a recording, and homes of users.
struct Case {
    w: Workload,
    homes: tempfile::TempDir,
}

impl Case {
    fn new() -> Case {
        Case { w: Workload::spin(), homes: tempfile::tempdir().unwrap() }
    }

    fn run(&self, home: &str, program: &str, args: &[&str]) -> Outcome {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.w.dir()).env("LC_ALL", "C");
        command.env("HOME", self.home(home)).env("PERF_CONFIG", "/dev/null");
        command.env_remove("DEBUGINFOD_URLS");
        run_command(command)
    }

    fn kymo(&self, home: &str, args: &[&str]) -> Outcome {
        self.run(home, env!("CARGO_BIN_EXE_kymo"), args)
    }

    fn home(&self, name: &str) -> PathBuf {
        let home = self.homes.path().join(name);
        fs::create_dir_all(&home).unwrap();
        home
    }

    /// Whether a report finds the workload's functions by its copy in the cache.
    fn resolves(&self, home: &str, program: &str) -> bool {
        let args = ["report", "--stdio", "--no-children", "-s", "sym", "-i", "perf.data"];
        let text = self.run(home, program, &args).success().stdout;
        text.lines().any(|line| line.contains("[.]") && line.contains("hot"))
    }

    /// Build-ids of the links in a cache.
    fn ids(&self, home: &str) -> Vec<String> {
        let links = self.home(home).join(".debug/.build-id");
        let mut ids = Vec::new();
        for head in fs::read_dir(links).unwrap().flatten() {
            for tail in fs::read_dir(head.path()).unwrap().flatten() {
                let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
                ids.push(name(&head.path()) + &name(&tail.path()));
            }
        }
        ids.sort();
        ids
    }
}

const PERF_ARCHIVE: &str = "/usr/lib/perf-core/perf-archive";

#[test]
fn each_unpacks_what_the_other_has_packed() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Gcc, Need::Tool("bzip2")]) {
        return;
    }
    let case = Case::new();
    let record = ["record", "-q", "-e", "cpu-clock", "-o", "perf.data", "--", case.w.arg(), "200"];
    // perf puts the binaries into the cache, kymo does not.
    let _ = case.run("perf", "perf", &record).success();
    let theirs = Path::new(PERF_ARCHIVE).exists();
    if theirs {
        let _ = case.run("perf", "perf", &["archive", "perf.data"]).success();
        fs::rename(case.w.file("perf.data.tar.bz2"), case.w.file("theirs.tar.bz2")).unwrap();
    }
    let packed = case.kymo("perf", &["archive"]).success();
    assert!(packed.stderr.contains("into perf.data.tar.bz2"), "{}", packed.stderr);
    fs::rename(case.w.file("perf.data.tar.bz2"), case.w.file("cached.tar.bz2")).unwrap();
    // Out of no cache: from where the binaries are.
    let _ = case.kymo("nothing", &["archive", "-i", "perf.data"]).success();
    assert!(!case.home("nothing").join(".debug").exists());
    fs::remove_file(case.w.program()).unwrap();
    assert!(!case.resolves("nothing", "perf"));
    for (archive, home) in
        [("theirs.tar.bz2", "a"), ("cached.tar.bz2", "b"), ("perf.data.tar.bz2", "c")]
    {
        if archive == "theirs.tar.bz2" && !theirs {
            continue;
        }
        let unpacked = case.kymo(home, &["archive", "--unpack", archive]).success();
        assert!(unpacked.stderr.contains("Unpacked"), "{}", unpacked.stderr);
        for program in ["perf", env!("CARGO_BIN_EXE_kymo")] {
            assert!(case.resolves(home, program), "{archive} {program}");
        }
        let by_tar = format!("{home}-tar");
        let debug = case.home(&by_tar).join(".debug");
        fs::create_dir(&debug).unwrap();
        let _ = case.run(&by_tar, "tar", &["xf", archive, "-C", debug.to_str().unwrap()]).success();
        assert_eq!(case.ids(home), case.ids(&by_tar), "{archive}");
        assert!(case.resolves(&by_tar, "perf"), "{archive}");
    }
    if theirs {
        assert_eq!(case.ids("b"), case.ids("a"));
    }
    // The only archive of the directory is found by itself.
    let _ = case.kymo("d", &["archive", "--unpack"]).success();
    assert_eq!(case.ids("d"), case.ids("c"));
    // What is gone and nowhere kept is said.
    let partly = case.kymo("nothing", &["archive"]);
    assert!(partly.stderr.contains("neither in the cache nor here"), "{}", partly.stderr);
}

#[test]
fn a_recording_travels_with_its_binaries() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let case = Case::new();
    let record = ["record", "-q", "-e", "cpu-clock:u", "--", case.w.arg(), "100"];
    let _ = case.kymo("here", &record).success();
    let _ = case.kymo("here", &["archive", "--all"]).success();
    let profile = |home: &str| {
        let args = ["convert", "--to", "firefox", "-o", "firefox.json", "-i", "perf.data"];
        let _ = case.kymo(home, &args).success();
        let text = fs::read_to_string(case.w.file("firefox.json")).unwrap();
        fs::remove_file(case.w.file("firefox.json")).unwrap();
        // What is before it has the time of the file.
        text[text.find("\"libs\"").unwrap()..].to_owned()
    };
    let of_here = profile("here");
    let names = || -> Vec<String> {
        let entries = fs::read_dir(case.w.dir()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("perf")).collect()
    };
    let archive = names().into_iter().find(|name| name.starts_with("perf.all-")).unwrap();
    assert_eq!(names().len(), 2, "{:?}", names());
    // The recording is not overwritten unasked.
    let refused = case.kymo("there", &["archive", "--unpack", &archive]).failure();
    assert!(refused.stderr.contains("perf.data is there already; -f"), "{}", refused.stderr);
    let before = fs::read(case.w.file("perf.data")).unwrap();
    fs::write(case.w.file("perf.data"), "changed").unwrap();
    let _ = case.kymo("there", &["archive", "--unpack", "--force", &archive]).success();
    assert_eq!(fs::read(case.w.file("perf.data")).unwrap(), before);
    fs::remove_file(case.w.program()).unwrap();
    assert!(case.resolves("there", env!("CARGO_BIN_EXE_kymo")));
    assert!(!case.resolves("elsewhere", env!("CARGO_BIN_EXE_kymo")));
    // What is made of it for other programs is the same, too.
    assert!(of_here.contains("\"hot\""));
    assert!(profile("there") == of_here);
    assert!(!profile("elsewhere").contains("\"hot\""));
    // All but the build-ids that are left out.
    let ids = case.ids("there").join("\n");
    fs::write(case.w.file("ids"), ids).unwrap();
    let none = case.kymo("there", &["archive", "--exclude-buildids", "ids"]).failure();
    assert!(none.stderr.contains("no build-ids to pack"), "{}", none.stderr);
}

#[test]
fn what_is_no_archive_is_refused() {
    let case = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args(args).current_dir(case.path()).env("HOME", case.path());
        run_command(command)
    };
    let none = run(&["archive", "--unpack"]).failure();
    assert!(none.stderr.contains("no perf*.tar.bz2"), "{}", none.stderr);
    fs::write(case.path().join("perf.tar.bz2"), "text").unwrap();
    let damaged = run(&["archive", "--unpack"]).failure();
    assert!(damaged.stderr.contains("cannot unpack perf.tar.bz2"), "{}", damaged.stderr);
    fs::write(case.path().join("perf2.tar.bz2"), "text").unwrap();
    let several = run(&["archive", "--unpack"]).failure();
    assert!(several.stderr.contains("perf.tar.bz2, perf2.tar.bz2"), "{}", several.stderr);
    let missing = run(&["archive"]).failure();
    assert!(missing.stderr.contains("perf.data"), "{}", missing.stderr);
    // The cache may be there, as what may be written to is made before rights are given up.
    let cached = fs::read_dir(case.path().join(".debug")).map_or(0, Iterator::count);
    assert_eq!(cached, 0);
}
