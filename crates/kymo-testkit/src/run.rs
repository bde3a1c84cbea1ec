//! Running the program under test and its peers, with a time limit: a test that
//! hangs should say which command hung.

use std::ffi::OsStr;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The user and group that own nothing.
pub const UNPRIVILEGED_UID: u32 = 65534;

/// No command of a test takes longer unless it hangs, on a machine that is ten times too busy.
const LIMIT: Duration = Duration::from_secs(300);

/// Result of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command as typed, for messages.
    pub command: String,
    /// Exit status; `128 + signal` as a shell says it.
    pub status: i32,
    /// Standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

impl Outcome {
    /// Itself, if the exit status is the expected one.
    ///
    /// # Panics
    /// With the command and its output otherwise.
    #[track_caller]
    #[must_use]
    pub fn expect_status(self, status: i32) -> Outcome {
        assert_eq!(
            self.status, status,
            "exit status of `{}`\n--- stdout\n{}\n--- stderr\n{}",
            self.command, self.stdout, self.stderr
        );
        self
    }

    /// Itself, if the exit status is 0.
    ///
    /// # Panics
    /// With the command and its output otherwise.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Outcome {
        self.expect_status(0)
    }

    /// Itself, if it failed in an orderly way: neither success nor a signal nor a panic.
    ///
    /// # Panics
    /// With the command and its output otherwise.
    #[track_caller]
    #[must_use]
    pub fn failure(self) -> Outcome {
        let orderly = (1..101).contains(&self.status) && !self.stderr.contains("panicked at");
        assert!(
            orderly,
            "`{}` should fail in an orderly way; status {}\n--- stdout\n{}\n--- stderr\n{}",
            self.command, self.status, self.stdout, self.stderr
        );
        self
    }
}

/// Runs a program to its end, with nothing on its standard input.
///
/// # Panics
/// If it cannot be started or does not end within five minutes.
#[track_caller]
pub fn run<I, S>(program: impl AsRef<OsStr>, args: I) -> Outcome
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(args);
    run_command(command)
}

/// Runs a prepared command to its end. Its output goes through files, so that a
/// grandchild that keeps the output open cannot hold the test up. Unless the command
/// names a cache, kymo has none: tests leave nothing in the user's.
///
/// # Panics
/// If it cannot be started or does not end within five minutes.
#[track_caller]
pub fn run_command(mut command: Command) -> Outcome {
    let text = format!("{command:?}").replace('"', "");
    if !command.get_envs().any(|(name, _)| name == "KYMO_CACHE") {
        command.env("KYMO_CACHE", "off");
    }
    let (mut out, mut err) = match (tempfile::tempfile(), tempfile::tempfile()) {
        (Ok(out), Ok(err)) => (out, err),
        (Err(e), _) | (_, Err(e)) => panic!("temporary file: {e}"),
    };
    let spawned = out
        .try_clone()
        .and_then(|o| Ok((o, err.try_clone()?)))
        .and_then(|(o, e)| command.stdin(Stdio::null()).stdout(o).stderr(e).spawn());
    let mut child = spawned.unwrap_or_else(|e| panic!("cannot run `{text}`: {e}"));
    let start = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() > LIMIT => {
                // Reaped below by the drop of the test process; the message matters more.
                let _ = child.kill();
                let _ = child.wait();
                panic!("`{text}` did not end within {LIMIT:?}\n{}", read_all(&mut err));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(e) => panic!("waiting for `{text}`: {e}"),
        }
    };
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Outcome { command: text, status, stdout: read_all(&mut out), stderr: read_all(&mut err) }
}

fn read_all(file: &mut std::fs::File) -> String {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .unwrap_or_else(|e| panic!("reading back output: {e}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs the installed `perf`, which must be there (see [`crate::Need::Perf`]),
/// with the C locale and without a pager.
///
/// # Panics
/// If it cannot be started.
#[track_caller]
pub fn perf<I, S>(args: I) -> Outcome
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new("perf");
    command.arg("--no-pager").args(args).env("LC_ALL", "C");
    run_command(command)
}

/// The lines of `text` that contain `what`.
pub fn lines_with<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    text.lines().filter(|l| l.contains(what)).collect()
}

/// A place where a user without privileges can run a program and write files:
/// a directory of its own with a copy of the program, because the build directory may
/// be one that only its owner can enter.
#[derive(Debug)]
pub struct Unprivileged {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Unprivileged {
    /// Copies `program` to a directory of an unprivileged user.
    ///
    /// # Panics
    /// If that fails, for instance because the caller is not root.
    #[track_caller]
    pub fn new(program: &Path) -> Unprivileged {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("temporary directory: {e}"));
        let copy = dir.path().join("kymo");
        std::fs::copy(program, &copy)
            .and_then(|_| std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)))
            .and_then(|()| {
                std::os::unix::fs::chown(dir.path(), Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID))
            })
            .unwrap_or_else(|e| panic!("{}: {e}", copy.display()));
        Unprivileged { dir, program: copy }
    }

    /// The directory, which is also the working directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the program as an unprivileged user.
    #[track_caller]
    pub fn run<I, S>(&self, args: I) -> Outcome
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(&self.program);
        command.args(args).current_dir(self.dir.path()).uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
        run_command(command)
    }

    /// Runs the program as an unprivileged user after the shell's `ulimit` with `limit`, as in `-n
    /// 16` or `-l 0`.
    #[track_caller]
    pub fn run_limited<'a>(
        &'a self,
        limit: &str,
        args: impl IntoIterator<Item = &'a str>,
    ) -> Outcome {
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(format!("ulimit {limit} && exec \"$0\" \"$@\""))
            .arg(&self.program)
            .args(args)
            .current_dir(self.dir.path())
            .uid(UNPRIVILEGED_UID)
            .gid(UNPRIVILEGED_UID);
        run_command(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_status_come_back() {
        let outcome =
            run("sh", ["-c", "echo out; echo err >&2; exit 3"]).expect_status(3).failure();
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(run("sh", ["-c", "kill -TERM $$"]).status, 128 + 15);
    }

    #[test]
    fn nobody_is_nobody() {
        if !crate::require(&[crate::Need::Root]) {
            return;
        }
        let place = Unprivileged::new(Path::new("/usr/bin/id"));
        assert_eq!(place.run(["-u"]).success().stdout, format!("{UNPRIVILEGED_UID}\n"));
        assert_eq!(
            place.run_limited("-n 30", ["-g"]).success().stdout,
            format!("{UNPRIVILEGED_UID}\n")
        );
    }
}
