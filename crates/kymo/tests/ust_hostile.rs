//! A shared directory of a hostile user, and a kymo that runs as root: it ends by itself, reports
//! the defect, reads and writes nothing that is not the program's, and shows nothing that a
//! terminal would obey.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kymo_testkit::{Need, require};
use kymo_tracepoint::{emit, tracepoint};

tracepoint! {
    /// A step of the work.
    pub hostile: step(number: u64, name: &str) {
        fields { number: u64 = number, name: str = name }
        print "step {number} is {name}"
    }
}

const ROLE: &str = "KYMO_TEST_HOSTILE";
/// Unprivileged user.
const USER: u32 = 65534;
const SECRET: &str = "the secret of root";

/// The program whose files are mutated: reports that a reader listens, waits for the end of its
/// input, and is killed when it has reported its end.
#[test]
fn role() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    while !step::enabled() {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("\nheard");
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
    (0..5000).for_each(|i| emit!(step(i, "honest")));
    println!("\ndone");
    std::thread::sleep(Duration::from_secs(100));
}

fn kymo(base: &Path, args: &[&str]) -> Command {
    // Absurd sizes are not to be believed.
    let mut command = Command::new("timeout");
    command.args(["-s", "ABRT", "20", "prlimit", "--as=3221225472", env!("CARGO_BIN_EXE_kymo")]);
    command.args(args).env("KYMO_UST_DIR", base).env("KYMO_UST", "off").stdin(Stdio::null());
    command
}

/// Stops a process, and waits until it stands still.
fn stop(child: &std::process::Child) {
    let id = child.id();
    assert!(Command::new("kill").args(["-STOP", &id.to_string()]).status().unwrap().success());
    let stopped = |task: &Path| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    let begin = Instant::now();
    let tasks = || fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
    while !tasks().all(|task| stopped(&task.path())) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn user_directory(base: &Path) -> PathBuf {
    base.join(format!("kymo-{USER}"))
}

/// The directory of the program whose control file is finished.
fn control_of(user: &Path) -> Option<PathBuf> {
    let mut directories = fs::read_dir(user).ok()?.flatten().map(|e| e.path());
    let is_finished =
        |p: &PathBuf| fs::read(p.join("control")).is_ok_and(|c| c.starts_with(b"KYMOUST\0"));
    directories.find(is_finished)
}

/// A directory that everybody may write to, as /dev/shm is.
fn open_directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// Files left by a program of the unprivileged user: its control file and its ring, and the
/// directory's name.
struct Template {
    name: String,
    control: Vec<u8>,
    ring: Vec<u8>,
}

impl Template {
    fn make() -> Self {
        let base = open_directory();
        let program = base.path().join("program");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={USER}"), "--clear-groups"]).arg(&program);
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, "1");
        command.env("KYMO_UST_DIR", base.path()).stderr(Stdio::null());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        // A tool looks for users when it starts, and for nobody's directory it would look too early.
        while control_of(&user_directory(base.path())).is_none() {
            assert!(program.try_wait().unwrap().is_none(), "the program has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        let out = base.path().join("out");
        let mut tool = Command::new(env!("CARGO_BIN_EXE_kymo"));
        tool.args(["trace", "-u", "hostile:*", "--buffer-size", "256K", "-o"]).arg(out);
        tool.env("KYMO_UST_DIR", base.path()).env("KYMO_UST", "off").stderr(Stdio::null());
        let mut tool = tool.spawn().unwrap();
        let stdout = std::io::BufReader::new(program.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(stdout);
        assert!(lines.any(|line| line.unwrap() == "heard"));
        // From here on it takes nothing.
        stop(&tool);
        drop(program.stdin.take());
        assert!(lines.any(|line| line.unwrap() == "done"));
        // Both die as they stand.
        for child in [&mut tool, &mut program] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let directory = control_of(&user_directory(base.path())).unwrap();
        let ring = fs::read_dir(&directory).unwrap().flatten().map(|e| e.path());
        let ring = ring.into_iter().find(|p| p.to_string_lossy().contains("ring-")).unwrap();
        assert!(ring.ends_with("ring-0-1"), "{ring:?}");
        Self {
            name: directory.file_name().unwrap().to_str().unwrap().to_owned(),
            control: fs::read(directory.join("control")).unwrap(),
            ring: fs::read(ring).unwrap(),
        }
    }

    /// A copy of it, in a place of its own with a file of root's beside it.
    fn place(&self) -> SharedDirectory {
        let base = open_directory();
        let user = user_directory(base.path());
        let directory = user.join(&self.name);
        for dir in [&user, &user.join("wanted"), &directory] {
            fs::create_dir(dir).unwrap();
            owned(dir, 0o700);
        }
        for (name, bytes) in [("control", &self.control), ("ring-0-1", &self.ring)] {
            fs::write(directory.join(name), bytes).unwrap();
            owned(&directory.join(name), 0o600);
        }
        let secret = base.path().join("secret");
        fs::write(&secret, SECRET.repeat(5000)).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let roots = base.path().join("roots");
        fs::create_dir(&roots).unwrap();
        SharedDirectory { base, user, directory, secret, roots }
    }
}

fn owned(path: &Path, mode: u32) {
    chown(path, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

struct SharedDirectory {
    base: tempfile::TempDir,
    user: PathBuf,
    directory: PathBuf,
    secret: PathBuf,
    /// A directory of root's.
    roots: PathBuf,
}

impl SharedDirectory {
    fn control(&self) -> PathBuf {
        self.directory.join("control")
    }

    fn ring(&self) -> PathBuf {
        self.directory.join("ring-0-1")
    }

    fn patch(&self, path: &Path, at: u64, bytes: &[u8]) {
        File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    }

    fn cut(&self, path: &Path, size: u64) {
        File::options().write(true).open(path).unwrap().set_len(size).unwrap();
    }

    /// Puts something else where a file was.
    fn replace(&self, path: &Path, make: impl FnOnce(&Path)) {
        fs::remove_file(path).unwrap();
        make(path);
    }

    /// All commands that look into the directory. `alive`: a process holds the control file's lock.
    fn run(&self, what: &str, alive: bool) {
        // A pipe in its place would make the test wait.
        let is_file = fs::symlink_metadata(self.control()).is_ok_and(|m| m.is_file());
        let held = (alive && is_file).then(|| File::open(self.control()).unwrap());
        if let Some(file) = &held {
            let _ = file.try_lock();
        }
        let out = self.base.path().join("recovered");
        let out = out.to_str().unwrap();
        let commands: [&[&str]; 3] = [
            &["list", "-v", "ust"],
            &["trace", "-u", "hostile:*", "--", "true"],
            &["session", "recover", "-o", out],
        ];
        for args in commands {
            let begin = Instant::now();
            let output = kymo(self.base.path(), args).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            let shown = String::from_utf8_lossy(&text);
            let context = format!("{what}, {args:?}: {} {shown}", output.status);
            assert_eq!(output.status.signal(), None, "{context}");
            // 124: too long; 101: a panic; 134 and more: a signal within.
            let code = output.status.code().unwrap();
            assert!(code < 100, "{context}");
            assert!(begin.elapsed() < Duration::from_secs(15), "{context}");
            assert!(!shown.contains("panicked") && !shown.contains(SECRET), "{context}");
            assert!(!text.contains(&0x1b), "{context}");
        }
        assert_eq!(fs::read_to_string(&self.secret).unwrap(), SECRET.repeat(5000), "{what}");
        assert_eq!(fs::read_dir(&self.roots).unwrap().count(), 0, "{what}");
    }
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    owned(path, 0o600);
}

fn make_device(path: &Path) {
    assert!(Command::new("mknod").arg(path).args(["c", "1", "5"]).status().unwrap().success());
    owned(path, 0o600);
}

const NEEDS: &[Need] = &[Need::Root, Need::Tool("setpriv"), Need::Tool("prlimit")];

#[test]
fn other_things_in_the_place_of_files() {
    if !require(NEEDS) {
        return;
    }
    let template = Template::make();
    // As it was left it is recovered: what follows is not refused for another reason.
    let place = template.place();
    let out = place.base.path().join("out");
    let recover = ["session", "recover", "-o", out.to_str().unwrap()];
    let output = kymo(place.base.path(), &recover).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let script = kymo(place.base.path(), &["script", out.to_str().unwrap()]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&script.stdout).lines().count(), 5000);

    type Change = fn(&SharedDirectory, &Path);
    let changes: [(&str, Change); 9] = [
        ("a link to root's file", |p, f| p.replace(f, |f| symlink(&p.secret, f).unwrap())),
        ("another name of root's file", |p, f| {
            p.replace(f, |f| fs::hard_link(&p.secret, f).unwrap());
        }),
        ("a link to itself", |p, f| p.replace(f, |f| symlink(f, f).unwrap())),
        ("a pipe", |p, f| p.replace(f, make_fifo)),
        ("a device", |p, f| p.replace(f, make_device)),
        ("a directory", |p, f| {
            p.replace(f, |f| {
                fs::create_dir(f).unwrap();
                owned(f, 0o700);
            });
        }),
        ("root's", |_, f| chown(f, Some(0), Some(0)).unwrap()),
        ("writable for all", |_, f| fs::set_permissions(f, Permissions::from_mode(0o666)).unwrap()),
        ("a terabyte of holes", |p, f| p.cut(f, 1 << 40)),
    ];
    for (what, change) in changes {
        for (alive, ring) in [(false, false), (true, false), (false, true), (true, true)] {
            let place = template.place();
            let file = if ring { place.ring() } else { place.control() };
            change(&place, &file);
            place.run(&format!("{} is {what}", file.display()), alive);
        }
    }
}

#[test]
fn other_things_in_the_place_of_directories() {
    if !require(NEEDS) {
        return;
    }
    let template = Template::make();
    let place = template.place();
    fs::remove_dir_all(place.user.join("wanted")).unwrap();
    symlink(&place.roots, place.user.join("wanted")).unwrap();
    place.run("wanted is a link to root's directory", true);

    let place = template.place();
    fs::create_dir(place.directory.join("x")).unwrap();
    symlink(&place.roots, place.directory.join("pending")).unwrap();
    place.run("channel configurations is a link to root's directory", true);

    let place = template.place();
    fs::rename(&place.directory, place.base.path().join("moved")).unwrap();
    symlink(place.base.path().join("moved"), &place.directory).unwrap();
    place.run("the program's directory is a link", false);

    let place = template.place();
    fs::set_permissions(&place.user, Permissions::from_mode(0o777)).unwrap();
    place.run("the user's directory is open to all", true);

    let place = template.place();
    symlink(&place.user, place.base.path().join("kymo-1")).unwrap();
    fs::create_dir(place.base.path().join("kymo-2")).unwrap();
    owned(&place.base.path().join("kymo-2"), 0o700);
    place.run("directories with names of other users", true);

    let place = template.place();
    for i in 0..6000 {
        fs::create_dir(place.user.join(format!("{}-{i}-0", 100_000 + i))).unwrap();
    }
    place.run("many directories", false);
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn absurd_numbers() {
    if !require(NEEDS) {
        return;
    }
    let template = Template::make();
    // Capacity, enable words, table, its bytes, events; page; the clock's ticks in a second; of
    // the first slot events lost, rejected, without the filter's field.
    let control: [(u64, usize); 10] = [
        (28, 4),
        (32, 4),
        (36, 4),
        (40, 8),
        (48, 4),
        (72, 4),
        (88, 8),
        (2056, 8),
        (2064, 8),
        (2072, 8),
    ];
    // Mode, areas, those with a CPU, sub-buffer, sub-buffers, stream, distances; of the first
    // area: pos, count, last, discarded.
    let ring: [(u64, usize); 13] = [
        (12, 4),
        (16, 4),
        (20, 4),
        (24, 4),
        (28, 4),
        (32, 4),
        (40, 8),
        (48, 8),
        (56, 8),
        (4096, 8),
        (4104, 8),
        (4120, 8),
        (4160, 8),
    ];
    for (of_ring, (at, size)) in
        control.map(|c| (false, c)).into_iter().chain(ring.map(|r| (true, r)))
    {
        for value in [0u64, 1 << 31, u64::MAX] {
            let place = template.place();
            let file = if of_ring { place.ring() } else { place.control() };
            place.patch(&file, at, &value.to_le_bytes()[..size]);
            place.run(&format!("{value:#x} at {at} of {}", file.display()), value & 1 == 1);
        }
    }
}

#[test]
fn damage_anywhere() {
    if !require(NEEDS) {
        return;
    }
    let template = Template::make();
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let table = u32::from_le_bytes(template.control[36..40].try_into().unwrap()) as usize;
    for round in 0..30 {
        let place = template.place();
        for _ in 0..=numbers.below(6) {
            let byte = numbers.below(256) as u8;
            let bytes = vec![byte; 1 + numbers.below(9)];
            match round % 3 {
                0 => place.patch(&place.control(), numbers.below(2048 + 256) as u64, &bytes),
                1 => {
                    let end = template.control.len() - table - 8;
                    place.patch(&place.control(), (table + numbers.below(end)) as u64, &bytes);
                }
                _ => {
                    let end = [4608, template.ring.len() - 16][numbers.below(2)];
                    place.patch(&place.ring(), numbers.below(end) as u64, &bytes);
                }
            }
        }
        place.run(&format!("damage {round}"), round % 2 == 0);
    }
    for (file, len) in [(false, template.control.len()), (true, template.ring.len())] {
        for size in [0, 128, 399, 2047, 4100, len - 1] {
            let place = template.place();
            let path = if file { place.ring() } else { place.control() };
            place.cut(&path, size as u64);
            place.run(&format!("{} of {size} bytes", path.display()), size % 2 == 0);
        }
    }
}

#[test]
fn texts_that_a_terminal_would_obey() {
    if !require(NEEDS) {
        return;
    }
    let template = Template::make();
    let place = template.place();
    let evil = b"\x1b]0;owned\x07\x1b[31m\n\r";
    let file = place.control();
    place.patch(&file, 128, evil);
    place.patch(&file, 144, evil);
    let table = u32::from_le_bytes(template.control[36..40].try_into().unwrap());
    for text in ["step {number}", "A step of"] {
        let at = template.control.windows(text.len()).position(|w| w == text.as_bytes()).unwrap();
        assert!(at > table as usize);
        place.patch(&file, at as u64, &evil[..text.len().min(evil.len())]);
    }
    place.run("escapes in names", true);
}

#[test]
fn files_that_shrink_while_they_are_read() {
    if !require(NEEDS) {
        return;
    }
    let template = Template::make();
    for ring in [false, true] {
        let place = template.place();
        let (path, bytes) = if ring {
            (place.ring(), &template.ring)
        } else {
            (place.control(), &template.control)
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // It may have been removed by now.
                    let Ok(file) = File::options().write(true).open(&path) else { break };
                    let _ = file.set_len(4096);
                    std::thread::sleep(Duration::from_micros(300));
                    let _ = file.write_all_at(bytes, 0);
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            place.run("shrinking", ring);
            place.run("shrinking again", !ring);
            stop.store(true, Ordering::Relaxed);
        });
    }
}
