//! What is tortured: each way to take events, started on a program whose number of calls is known,
//! and what its result holds afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// Each call of the program is one of it.
const EVENT: &str = "syscalls:sys_enter_getppid";

/// Records of a process (command, mappings, exit) that a full ring may lose beside samples: what
/// the kernel counts as lost of the event that has them does not tell them apart. A program with
/// two libraries has this many at most.
const OTHER_RECORDS: u64 = 12;

/// A way to take events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorder {
    Record,
    Trace,
    Count,
    Run,
}

/// What a result holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) seen: u64,
    /// As stated.
    pub(super) lost: u64,
}

impl Recorder {
    pub(super) const ALL: [Recorder; 4] =
        [Recorder::Record, Recorder::Trace, Recorder::Count, Recorder::Run];

    /// Whether it writes a recording.
    pub(super) fn writes(self) -> bool {
        matches!(self, Recorder::Record | Recorder::Trace)
    }

    /// The recording's name in a directory.
    pub(super) fn file(self, directory: &Path) -> PathBuf {
        directory.join(if self == Recorder::Trace { "x.dat" } else { "x.data" })
    }

    /// The command that takes the events of `program`, which gets `arguments`.
    pub(super) fn command(
        self,
        kymo: &Path,
        directory: &Path,
        small_ring: bool,
        program: &[String],
    ) -> Command {
        let mut command = Command::new(kymo);
        let file = self.file(directory);
        match self {
            Recorder::Record => {
                command.args(["record", "-m", if small_ring { "1" } else { "512" }, "-e", EVENT]);
                command.arg("-o").arg(file).arg("--").args(program);
            }
            Recorder::Trace => {
                let size = if small_ring { "8K" } else { "8M" };
                command.args(["trace", "--buffer-size", size, "-e", EVENT]);
                command.arg("-o").arg(file).arg("--").args(program);
            }
            Recorder::Count => {
                command.args(["count", "--json", "-e", EVENT, "--"]).args(program);
            }
            Recorder::Run => {
                let text = format!("tracepoint:{EVENT} /pid == cpid/ {{ printf(\"call\\n\"); }}");
                command.args(["run", "-e", &text, "-c", &program.join(" ")]);
            }
        }
        command
    }

    /// What the result says, of a run that ended in order.
    pub(super) fn held(
        self,
        kymo: &Path,
        directory: &Path,
        out: &str,
        err: &str,
    ) -> anyhow::Result<Held> {
        let file = self.file(directory);
        Ok(match self {
            Recorder::Record => {
                let text = output(kymo, &["report", "--json", "-i"], &file)?;
                let page: serde_json::Value = serde_json::from_str(&text).context("report")?;
                let lost = page["lost_samples"].as_u64().context("report: lost_samples")?;
                Held { seen: calls(kymo, &file)?, lost }
            }
            Recorder::Trace => {
                let lost = err
                    .lines()
                    .find_map(|l| l.trim().strip_prefix("lost: ")?.split(' ').next()?.parse().ok());
                Held { seen: calls(kymo, &file)?, lost: lost.unwrap_or(0) }
            }
            Recorder::Count => {
                let page: serde_json::Value = serde_json::from_str(out).context("count")?;
                Held { seen: page["rows"][0]["count"].as_u64().unwrap_or(0), lost: 0 }
            }
            Recorder::Run => {
                let seen = out.lines().filter(|l| *l == "call").count() as u64;
                let lost = err.lines().chain(out.lines()).find_map(lost_in_ring);
                Held { seen, lost: lost.unwrap_or(0) }
            }
        })
    }

    /// Whether what was seen and what was stated as lost make up the truth, with `tasks` tasks
    /// beside the program's first.
    pub(super) fn agrees(self, held: Held, truth: u64, tasks: u64) -> bool {
        let slack = match self {
            Recorder::Record if held.lost > 0 => OTHER_RECORDS * (tasks + 1),
            _ => 0,
        };
        held.seen <= truth && (truth..=truth + slack).contains(&(held.seen + held.lost))
    }
}

/// Number in a line such as `lost: 17 events …` or `Lost 17 events`.
fn lost_in_ring(line: &str) -> Option<u64> {
    let line = line.trim().to_ascii_lowercase();
    line.strip_prefix("lost: ")
        .or_else(|| line.strip_prefix("lost "))?
        .split(' ')
        .next()?
        .parse()
        .ok()
}

/// Calls that a recording holds.
pub(super) fn calls(kymo: &Path, file: &Path) -> anyhow::Result<u64> {
    let text = output(kymo, &["script", "-i"], file)?;
    Ok(text.lines().filter(|line| line.contains("sys_enter_getppid")).count() as u64)
}

/// What kymo prints of a recording, which it must read, though it may be damaged.
fn output(kymo: &Path, arguments: &[&str], file: &Path) -> anyhow::Result<String> {
    let mut command = Command::new(kymo);
    let output = command.args(arguments).arg(file).output().context("cannot run kymo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    // 1: damaged or cut, with what could be read of it.
    if said.contains("panicked") || !matches!(output.status.code(), Some(0 | 1)) {
        bail!("`{} {}`: {}: {said}", arguments.join(" "), file.display(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_and_lost_make_up_the_truth() {
        let held = |seen, lost| Held { seen, lost };
        assert!(Recorder::Trace.agrees(held(90, 10), 100, 0));
        assert!(!Recorder::Trace.agrees(held(90, 11), 100, 0));
        assert!(!Recorder::Trace.agrees(held(90, 9), 100, 0));
        assert!(Recorder::Record.agrees(held(90, 11), 100, 0));
        assert!(!Recorder::Record.agrees(held(90, 9), 100, 0));
        assert!(!Recorder::Record.agrees(held(101, 0), 100, 0));
        assert_eq!(lost_in_ring("  lost: 17 of 90 events lost"), Some(17));
        assert_eq!(lost_in_ring("Lost 5 events"), Some(5));
    }
}
