//! Environment of the tests: a shared directory, programs in it that follow commands, and
//! babeltrace2's output for a snapshot.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

/// Marks the test binary as the program.
pub(crate) const ROLE: &str = "KYMO_TEST_ROLE";

/// A program that runs.
pub(crate) struct Program {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Program {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        let mut program = Program { child, input, output };
        program.hear("ready");
        program
    }

    pub(crate) fn hear(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim_end() != word {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    pub(crate) fn ask(&mut self, line: &str) {
        self.say(line);
        self.hear("done");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends in order.
    pub(crate) fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A shared directory, and another for what is written.
pub(crate) struct Stage {
    pub(crate) shared: PathBuf,
    pub(crate) top: tempfile::TempDir,
    created: RefCell<Vec<String>>,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let top = tempfile::tempdir().unwrap();
        let shared = top.path().join("shm");
        std::fs::create_dir(&shared).unwrap();
        for dir in [top.path(), &shared] {
            std::fs::set_permissions(dir, PermissionsExt::from_mode(0o1777)).unwrap();
        }
        Stage { shared, top, created: RefCell::default() }
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("KYMO_UST_DIR", &self.shared).current_dir(self.top.path());
        command
    }

    pub(crate) fn session(&self, args: &[&str]) -> Output {
        if let ["create", name, ..] = args {
            self.created.borrow_mut().push((*name).to_owned());
        }
        let mut command = self.command(env!("CARGO_BIN_EXE_kymo"));
        command.arg("session").args(args).output().unwrap()
    }

    /// Returns the standard output followed by the standard error.
    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.session(args);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }

    #[track_caller]
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let output = self.session(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }

    pub(crate) fn role(&self) -> Command {
        let mut command = self.command(std::env::current_exe().unwrap());
        command.args(["--exact", "role", "--nocapture"]).env(ROLE, "1");
        command
    }

    pub(crate) fn program(&self) -> Program {
        Program::start(self.role())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// The numbers of a snapshot's steps, as babeltrace2 reads them without complaint.
    #[track_caller]
    pub(crate) fn steps(&self, snapshot: &str) -> Vec<u64> {
        let lines = babeltrace(&self.path(snapshot).join("ust"));
        let of = |l: &String| l.contains("work:step").then(|| number(l));
        lines.iter().filter_map(of).collect()
    }

    /// Files and directories in the user's directory but for the two that hold channel configurations.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for user in names(&self.shared) {
            for name in names(&self.shared.join(&user)) {
                let dir = self.shared.join(&user).join(&name);
                match &*name {
                    "wanted" | "sessions" => left.extend(names(&dir)),
                    _ => left.push(name),
                }
            }
        }
        left
    }

    pub(crate) fn state(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(&["show", name, "--json"])).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Also of a test that failed; most are gone already.
        for name in self.created.take() {
            let _ = self.session(&["destroy", &name]);
        }
    }
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn number(line: &str) -> u64 {
    let (_, behind) = line.split_once("{ number = ").unwrap_or_else(|| panic!("{line}"));
    behind.split([',', ' ']).next().unwrap().parse().unwrap()
}

#[track_caller]
pub(crate) fn babeltrace(directory: &Path) -> Vec<String> {
    let output = Command::new("babeltrace2").arg(directory).output().unwrap();
    assert_eq!(text(&output.stderr), "", "{}", directory.display());
    text(&output.stdout).lines().map(str::to_owned).collect()
}

pub(crate) fn range(from: u64, to: u64) -> Vec<u64> {
    (from..to).collect()
}

/// The number before these words; 0 if they are not there.
pub(crate) fn told(said: &str, words: &str) -> u64 {
    let Some((before, _)) = said.split_once(words) else { return 0 };
    before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

pub(crate) fn pin(pid: u32) {
    let status = Command::new("taskset").args(["-acp", "0", &pid.to_string()]).output().unwrap();
    assert!(status.status.success());
}
