//! `kymo buildid-cache` beside perf's: each finds, lists and removes what the other has put into
//! the cache.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, Workload, require, run_command};

const SDT: &str = r#"
#include <sys/sdt.h>
int main(int argc, char **argv) {
    DTRACE_PROBE2(provider, one, argc, argv);
    DTRACE_PROBE(provider, two);
    return 0;
}
"#;

/// A home directory of its own for a tool.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    fn run(&self, program: &str, args: &[&str]) -> Outcome {
        let mut command = Command::new(program);
        command.args(args).env("HOME", self.0.path()).env("LC_ALL", "C");
        command.env_remove("DEBUGINFOD_URLS").env("PERF_CONFIG", "/dev/null");
        run_command(command)
    }

    fn perf(&self, args: &[&str]) -> Outcome {
        self.run("perf", args)
    }

    fn kymo(&self, args: &[&str]) -> Outcome {
        self.run(env!("CARGO_BIN_EXE_kymo"), args)
    }

    fn cache(&self) -> PathBuf {
        self.0.path().join(".debug")
    }

    /// Files and links of the cache, with what the links say.
    fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![self.cache()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.cache()).unwrap().display().to_string();
                match fs::read_link(&path) {
                    Ok(target) => found.push(format!("{name} -> {}", target.display())),
                    Err(_) if path.is_dir() => left.push(path),
                    Err(_) => found.push(name),
                }
            }
        }
        found.sort();
        found
    }
}

fn ids(outcome: &Outcome) -> Vec<&str> {
    outcome.stdout.lines().filter_map(|line| line.split(' ').next()).collect()
}

#[test]
fn both_write_the_same_files_and_links() {
    if !require(&[Need::Perf, Need::Gcc]) {
        return;
    }
    let (theirs, ours) = (Home::new(), Home::new());
    let (spin, sdt) = (Workload::spin(), Workload::compile("a b", SDT));
    let link = sdt.file("link");
    std::os::unix::fs::symlink(sdt.program(), &link).unwrap();
    for home in [&theirs, &ours] {
        let all = format!("{},{link}", spin.arg());
        let outcome = if std::ptr::eq(home, &theirs) {
            home.perf(&["buildid-cache", "-a", &all])
        } else {
            home.kymo(&["buildid-cache", "--add", &all])
        };
        assert_eq!(outcome.success().stdout, "");
    }
    // perf leaves an empty file where there are no probes.
    let empty = |name: &String| fs::metadata(theirs.cache().join(name)).is_ok_and(|m| m.len() == 0);
    let expected: Vec<String> = theirs.tree().into_iter().filter(|name| !empty(name)).collect();
    assert_eq!(ours.tree(), expected);
    for name in expected.iter().filter(|name| !name.contains(" -> ")) {
        let read = |home: &Home| fs::read(home.cache().join(name)).unwrap();
        assert_eq!(read(&ours), read(&theirs), "{name}");
    }
    let list = ["buildid-cache", "-l"];
    let expected = theirs.perf(&list).success().stdout;
    assert_eq!(expected.lines().count(), 2, "{expected}");
    for home in [&theirs, &ours] {
        assert_eq!(home.kymo(&list).success().stdout, expected);
        assert_eq!(home.perf(&list).success().stdout, expected);
    }
}

#[test]
fn each_removes_what_the_other_has_added() {
    if !require(&[Need::Perf, Need::Gcc]) {
        return;
    }
    let (home, w) = (Home::new(), Workload::spin());
    let list = ["buildid-cache", "-l"];
    for (add, remove) in
        [("perf", env!("CARGO_BIN_EXE_kymo")), (env!("CARGO_BIN_EXE_kymo"), "perf")]
    {
        for how in ["-r", "-p", "-P"] {
            let _ = home.run(add, &["buildid-cache", "-a", w.arg()]).success();
            assert_eq!(ids(&home.run(remove, &list)).len(), 1, "{add} {how}");
            let args = ["buildid-cache", how, w.arg()];
            let _ = home.run(remove, &args[..if how == "-P" { 2 } else { 3 }]).success();
            assert_eq!(home.run(add, &list).success().stdout, "", "{add} {how}");
        }
    }
    // Nothing is left of it, not even directories; perf leaves those.
    let _ = home.kymo(&["buildid-cache", "-a", w.arg()]).success();
    let _ = home.kymo(&["buildid-cache", "-P"]).success();
    assert_eq!(home.tree(), Vec::<String>::new());
}

#[test]
fn perf_resolves_with_the_cache_that_kymo_made() {
    if !require(&[Need::Root, Need::Perf, Need::PerfEvents, Need::Gcc]) {
        return;
    }
    let (home, w) = (Home::new(), Workload::spin());
    let file = w.file("x.data");
    let record = ["record", "-q", "-N", "-e", "cpu-clock:u", "-o", &file, "--", w.arg(), "200"];
    let _ = home.perf(&record).success();
    let report = ["report", "--stdio", "--no-children", "-s", "sym", "-i", &file];
    let rows = |outcome: Outcome| -> Vec<String> {
        let lines = outcome.success().stdout;
        lines.lines().filter(|l| l.contains("[.]")).map(|l| l.trim().to_owned()).collect()
    };
    let missing = ["buildid-cache", "-M", &file];
    let all = home.perf(&missing).success();
    assert_eq!(home.kymo(&missing).success().stdout, all.stdout);
    assert!(all.stdout.contains(w.arg()), "{}", all.stdout);
    let expected = rows(home.perf(&report));
    assert!(expected.iter().any(|row| row.contains("hot")), "{expected:?}");
    let _ = home.kymo(&["buildid-cache", "-a", w.arg()]).success();
    let now = home.perf(&missing).success();
    assert_eq!(home.kymo(&missing).success().stdout, now.stdout);
    assert_eq!(now.stdout.lines().count() + 1, all.stdout.lines().count());
    fs::remove_file(w.program()).unwrap();
    let of_spin = |rows: &[String]| -> Vec<String> {
        rows.iter().filter(|row| row.contains("hot") || row.contains("warm")).cloned().collect()
    };
    assert_eq!(of_spin(&rows(home.perf(&report))), of_spin(&expected));
    assert_eq!(of_spin(&rows(home.kymo(&report))).len(), of_spin(&expected).len());
    // Elsewhere nothing is known.
    let other = Home::new();
    assert!(!rows(other.kymo(&report)).iter().any(|row| row.contains("hot")));
    let cache = home.cache();
    let named = [&["--buildid-dir", cache.to_str().unwrap()], &report[..]].concat();
    assert!(rows(other.kymo(&named)).iter().any(|row| row.contains("hot")));
}

#[test]
fn what_changed_is_updated_and_purged() {
    if !require(&[Need::Perf, Need::Gcc]) {
        return;
    }
    let (home, w) = (Home::new(), Workload::spin());
    let other = Workload::syscalls();
    let _ = home.kymo(&["buildid-cache", "-a", w.arg()]).success();
    // The copy stays what it was.
    let before = fs::read(w.program()).unwrap();
    fs::copy(other.program(), w.program()).unwrap();
    let elf = home.tree().into_iter().find(|name| name.ends_with("/elf")).unwrap();
    assert_eq!(fs::read(home.cache().join(&elf)).unwrap(), before);
    // It is another build: perf lists none of it, and -v lists it in any case.
    let list = home.kymo(&["buildid-cache", "-l"]).success();
    assert_eq!(list.stdout, home.perf(&["buildid-cache", "-l"]).success().stdout);
    assert!(list.stdout.is_empty() && list.stderr.contains("1 binary"), "{}", list.stderr);
    let _ = home.kymo(&["buildid-cache", "-u", w.arg()]).success();
    let all = home.kymo(&["buildid-cache", "-lv"]).success();
    assert_eq!(ids(&all).len(), 2, "{}", all.stdout);
    assert_eq!(ids(&home.kymo(&["buildid-cache", "-l"])).len(), 1);
    // A build that is there is replaced.
    let kept = home.tree().into_iter().filter(|n| n.ends_with("/elf")).find(|n| *n != elf).unwrap();
    fs::write(home.cache().join(&kept), "damaged").unwrap();
    let again = home.kymo(&["buildid-cache", "-v", "-a", w.arg()]).success();
    assert!(again.stderr.contains("there already"), "{}", again.stderr);
    let _ = home.kymo(&["buildid-cache", "-u", w.arg()]).success();
    assert_eq!(fs::read(home.cache().join(&kept)).unwrap(), fs::read(w.program()).unwrap());
    // All builds go by the path, which need not be there.
    fs::remove_file(w.program()).unwrap();
    let _ = home.kymo(&["buildid-cache", "-p", w.arg()]).success();
    assert_eq!(home.tree(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_added_is_said_and_the_rest_is_added() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let (home, w) = (Home::new(), Workload::spin());
    let text = w.file("text");
    fs::write(&text, "no binary").unwrap();
    let bare = w.file("bare");
    let mut strip = Command::new("objcopy");
    strip.args(["-R", ".note.gnu.build-id", w.arg(), &bare]);
    let _ = run_command(strip).success();
    let files = format!("/nowhere,{text},{bare},{}", w.arg());
    let outcome = home.kymo(&["buildid-cache", "-a", &files]).expect_status(1);
    let lines: Vec<&str> = outcome.stderr.lines().collect();
    let parts = ["cannot add /nowhere: ", "text: ", "bare: it has no build-id"];
    assert_eq!(lines.len(), parts.len(), "{lines:?}");
    for (line, part) in lines.iter().zip(parts) {
        assert!(line.contains(part), "{line}: {part}");
    }
    assert_eq!(ids(&home.kymo(&["buildid-cache", "-l"])).len(), 1);
    let _ = home.kymo(&["buildid-cache", "-l", "-P"]).expect_status(2);
    let _ = home.kymo(&["buildid-cache"]).expect_status(2);
    let refused = home.kymo(&["buildid-cache", "--kcore", "/proc/kcore"]).expect_status(2);
    assert!(refused.stderr.contains("has no --kcore"), "{}", refused.stderr);
}

/// A file is named as a process sees it.
#[test]
fn binaries_of_a_process_have_its_paths() {
    if !require(&[Need::Gcc]) {
        return;
    }
    let (home, w) = (Home::new(), Workload::spin());
    let pid = std::process::id().to_string();
    let _ = home.kymo(&["buildid-cache", "--target-ns", &pid, "-a", w.arg()]).success();
    let real = fs::canonicalize(w.program()).unwrap();
    let listed = home.kymo(&["buildid-cache", "-l"]).success().stdout;
    let name = listed.trim_end().split_once(' ').unwrap().1;
    assert_eq!(Path::new(name), real);
}
