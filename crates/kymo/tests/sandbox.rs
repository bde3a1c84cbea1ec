//! What commands that read recordings may not do: their rights are looked at from outside while
//! they wait for a recording that comes through a pipe.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
/// Of `capabilities(7)`.
const DAC_OVERRIDE: u64 = 1 << 1;
const DAC_READ_SEARCH: u64 = 1 << 2;
const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;

fn fixture(name: &str) -> String {
    format!("{}/tests/fixtures/perf-data/x86_64/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A command that waits; it ends with this.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether it can get no new rights, and its permitted capabilities, once it reads its input.
fn rights(args: &[&str], fifo: &Path) -> (bool, u64) {
    let mut command = Command::new(KYMO);
    command.args(args).arg("-i").arg(fifo).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Waiting(command.spawn().unwrap());
    // Opening it returns when the command has opened the other end.
    let began = Instant::now();
    let _writer = loop {
        let flags = std::os::unix::fs::OpenOptionsExt::custom_flags;
        let mut options = std::fs::File::options();
        match flags(options.write(true), 0o4000).open(fifo) {
            Ok(file) => break file,
            Err(e) => assert!(began.elapsed() < Duration::from_secs(30), "{args:?}: {e}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
    let value = |name: &str| -> &str {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim()
    };
    (value("NoNewPrivs:") == "1", u64::from_str_radix(value("CapPrm:"), 16).unwrap())
}

#[test]
fn readers_have_given_up_rights() {
    if !require(&[Need::Root]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let answers = [
        "sched latency",
        "offcpu report",
        "why",
        "lock contention",
        "kmem stat",
        "syscalls report",
    ];
    let answers = answers.map(|words| words.split(' ').collect::<Vec<_>>());
    let others = [
        &["report"][..],
        &["script"],
        &["annotate"],
        &["evlist"],
        &["profile"],
        &["trace"],
        &["inject"],
    ];
    for args in others.into_iter().chain(answers.iter().map(Vec::as_slice)) {
        let (is_fixed, capabilities) = rights(args, &fifo);
        assert!(is_fixed, "{args:?}");
        let gone = SYS_ADMIN | NET_ADMIN | DAC_OVERRIDE;
        assert_eq!(capabilities & gone, 0, "{args:?}: {capabilities:x}");
        assert_eq!(capabilities & DAC_READ_SEARCH, DAC_READ_SEARCH, "{args:?}");
        let (is_fixed, capabilities) = rights(&[args, &["--no-sandbox"]].concat(), &fifo);
        assert!(!is_fixed && capabilities & DAC_OVERRIDE != 0, "{args:?}: {capabilities:x}");
    }
}

#[test]
fn outputs_that_are_asked_for_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let recording = fixture("fp.data");
    let folded = run(KYMO, ["convert", "-f", "folded", &recording]).success().stdout;
    let written = |file: &str, more: &[&str]| {
        let args = ["convert", "-f", "folded", &recording, "-o", file];
        let _ = run(KYMO, [&args[..], more].concat()).success();
        assert_eq!(std::fs::read_to_string(file).unwrap(), folded, "{file}");
    };
    let ledger = other.path().join("ledger.json");
    written(&path("a"), &["--ledger", ledger.to_str().unwrap()]);
    assert!(std::fs::read_to_string(ledger).unwrap().starts_with('{'));
    written(&path("a"), &["--force"]);
    std::os::unix::fs::symlink(other.path().join("b"), path("link")).unwrap();
    written(&path("link"), &["--force"]);
    for device in ["/dev/null", "-"] {
        let _ = run(KYMO, ["convert", "-f", "folded", &recording, "-o", device]).success();
    }
    let page = path("page.html");
    let _ = run(KYMO, ["view", "-i", &recording, "-o", &page]).success();
    let page = std::fs::read(page).unwrap();
    assert!(page.windows(5).any(|bytes| bytes == b"<html"));
}

/// What was found out about binaries is kept also by a command without other rights to write.
#[test]
fn the_cache_is_filled() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("deep/cache");
    let symfs = format!("{}/tests/fixtures/elf/x86_64/symfs", env!("CARGO_MANIFEST_DIR"));
    let mut report = Command::new(KYMO);
    report.args(["report", "--stdio", "--symfs", &symfs, "-i", &fixture("dwarf.data")]);
    report.env("KYMO_CACHE", &cache).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(report.status().unwrap().success());
    assert!(std::fs::read_dir(&cache).unwrap().count() > 0, "nothing in {}", cache.display());
}
