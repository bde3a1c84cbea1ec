//! Sandbox of commands that read recordings: their rights are inspected from outside while they
//! wait for a recording that comes through a pipe.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
/// Capability numbers of `capabilities(7)`.
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
        &["view"],
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

/// A page is served, and a browser opened, by who may do neither any more.
#[test]
fn pages_are_served_without_rights() {
    let sched = fixture("sched.data");
    let profile = fixture("fp.data");
    let cases = [
        vec!["view", "-i", &sched],
        vec!["why", "-i", &sched, "--tid", "16569", "--view"],
        vec!["profile", "-i", &profile, "--view"],
    ];
    for args in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        // Keeps what a browser would open.
        let script = "#!/bin/sh\ncp \"$1\" OPENED.part && mv OPENED.part OPENED\n";
        let script = script.replace("OPENED", &path("opened").display().to_string());
        std::fs::write(path("xdg-open"), script).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path("xdg-open"), permissions).unwrap();
        let programs = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(KYMO);
        command.args(&args).env("PATH", programs).env("DISPLAY", ":0");
        command.env("XDG_RUNTIME_DIR", directory.path());
        let started = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut server = Waiting(started.unwrap());
        let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            line.split(' ').find(|word| word.starts_with("http://")).map(str::to_owned)
        });
        let address = address.unwrap_or_else(|| panic!("{args:?}: no address"));
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.0.id())).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{args:?}: {status}");
        let (host, token) = address["http://".len()..].split_once('/').unwrap();
        let mut stream = std::net::TcpStream::connect(host).unwrap();
        let request = format!("GET /{token} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{args:?}");
        let began = Instant::now();
        while !path("opened").exists() {
            assert!(began.elapsed() < Duration::from_secs(30), "{args:?}: no browser");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(std::fs::read_to_string(path("opened")).unwrap().contains(&address), "{args:?}");
    }
}

/// Results about binaries are cached also by a command that may write nothing else.
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
