//! Recorders under test: each way to record events, started on a program whose number of calls is
//! known, and the contents of its result afterwards. Sessions and probes take several commands,
//! which a shell runs one after the other; what they leave when they are ended in between is
//! removed by name.

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
    /// A session with an event of the kernel.
    Session,
    /// A program's tracepoint, into a directory.
    Tracepoint,
    /// A session with a program's tracepoint.
    TracepointSession,
    /// A probe that is added, traced and removed.
    Probe,
    /// A probe for one run.
    TemporaryProbe,
}

/// Parameters of a recorder in a round.
pub(super) struct Round<'a> {
    pub(super) kymo: &'a Path,
    /// Output directory.
    pub(super) directory: &'a Path,
    pub(super) small_ring: bool,
    /// The program and its arguments.
    pub(super) program: &'a [String],
    /// A word that no other copy has: the name of the session and the program, or the probe.
    pub(super) name: &'a str,
}

/// A session from its making to what it held. The program is run under the session's name.
const SESSION: &str = r#"set -e
kymo=$1 name=$2 size=$3 file=$4 program=$5; shift 5
own=${file%/*}/$name
ln -s "$program" "$own"
if [ "$SESSION_KIND" = kernel ]
then "$kymo" session create "$name" -e "$EVENT" --filter "comm == \"$name\"" --mode discard --buffer-size "$size"
else "$kymo" session create "$name" -u 'torture:call' --mode "$SESSION_KIND" --buffer-size "$size"
fi
"$kymo" session start "$name"
"$own" "$@"
"$kymo" session stop "$name"
"$kymo" session snapshot "$name" -o "$file"
"$kymo" session destroy "$name"
"#;

/// A probe from its adding to its removal.
const PROBE: &str = r#"set -e
kymo=$1 name=$2 size=$3 file=$4 program=$5; shift 5
"$kymo" probe -x "$program" --add "torture:$name=step"
"$kymo" trace -e "torture:$name" --buffer-size "$size" -o "$file" -- "$program" "$@"
"$kymo" probe --del "torture:$name"
"#;

/// Contents of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) seen: u64,
    /// As stated.
    pub(super) lost: u64,
}

impl Recorder {
    pub(super) const ALL: [Recorder; 9] = [
        Recorder::Record,
        Recorder::Trace,
        Recorder::Count,
        Recorder::Run,
        Recorder::Session,
        Recorder::Tracepoint,
        Recorder::TracepointSession,
        Recorder::Probe,
        Recorder::TemporaryProbe,
    ];

    /// Whether it writes a recording.
    pub(super) fn writes(self) -> bool {
        !matches!(self, Recorder::Count | Recorder::Run)
    }

    /// Whether its program is the one with a tracepoint and a function to be probed.
    pub(super) fn wants_steps(self) -> bool {
        use Recorder as R;
        matches!(self, R::Tracepoint | R::TracepointSession | R::Probe | R::TemporaryProbe)
    }

    /// Whether a shell runs it, which signals are for as well as for its commands.
    pub(super) fn is_script(self) -> bool {
        matches!(self, Recorder::Session | Recorder::TracepointSession | Recorder::Probe)
    }

    /// The recording's name in a directory.
    pub(super) fn file(self, directory: &Path) -> PathBuf {
        directory.join(match self {
            Recorder::Record => "x.data",
            Recorder::Tracepoint | Recorder::TracepointSession => "x",
            _ => "x.dat",
        })
    }

    /// Text that lines of its events contain.
    fn word(self) -> &'static str {
        match self {
            Recorder::Tracepoint | Recorder::TracepointSession => "torture:call",
            // The event has a name or a number of its own, the task is always called so.
            Recorder::Probe | Recorder::TemporaryProbe => " steps-",
            _ => "sys_enter_getppid",
        }
    }

    /// The command that takes the events of a program.
    pub(super) fn command(self, round: &Round<'_>) -> Command {
        let Round { kymo, program, small_ring, .. } = *round;
        let mut command = Command::new(kymo);
        let file = self.file(round.directory);
        let size = if small_ring { "8K" } else { "8M" };
        match self {
            Recorder::Record => {
                command.args(["record", "-m", if small_ring { "1" } else { "512" }, "-e", EVENT]);
                command.arg("-o").arg(file).arg("--").args(program);
            }
            Recorder::Trace => {
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
            Recorder::Tracepoint => {
                command.args(["trace", "--buffer-size", size, "-u", "torture:call"]);
                command.arg("-o").arg(file).arg("--").args(program);
            }
            Recorder::TemporaryProbe => {
                let probe = format!("{} step", program.first().map_or("", String::as_str));
                command.args(["trace", "--buffer-size", size, "--probe", &probe]);
                command.arg("-o").arg(file).arg("--").args(program);
            }
            Recorder::Session | Recorder::TracepointSession | Recorder::Probe => {
                command = Command::new("sh");
                let text = if self == Recorder::Probe { PROBE } else { SESSION };
                command.args(["-c", text, "sh"]).arg(kymo).args([round.name, size]);
                command.arg(file).args(program).env("EVENT", EVENT);
                command.env(
                    "SESSION_KIND",
                    match self {
                        Recorder::Session => "kernel",
                        _ => "discard",
                    },
                );
            }
        }
        // Several that run concurrently have a directory for rings each: a tracepoint is that of
        // all programs.
        if matches!(self, Recorder::Tracepoint | Recorder::TracepointSession) {
            command.env("KYMO_UST_DIR", round.directory);
        }
        command
    }

    /// Removes by name what outlives its command on purpose.
    pub(super) fn remove(self, kymo: &Path, directory: &Path, name: &str) {
        let probe = format!("torture:{name}");
        let arguments = match self {
            Recorder::Session | Recorder::TracepointSession => ["session", "destroy", name],
            Recorder::Probe => ["probe", "--del", &probe],
            _ => return,
        };
        // It may have been removed, or never made: what is left is looked for afterwards.
        let _ = Command::new(kymo).args(arguments).env("KYMO_UST_DIR", directory).output();
    }

    /// Contents of the result of a run that ended in order.
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
                Held { seen: self.calls(kymo, &file)?, lost }
            }
            Recorder::Trace | Recorder::Probe | Recorder::TemporaryProbe => {
                let lost = err.lines().find_map(lost_in_ring);
                Held { seen: self.calls(kymo, &file)?, lost: lost.unwrap_or(0) }
            }
            // There may be several reasons; where no event was kept there is no recording.
            Recorder::Session | Recorder::Tracepoint | Recorder::TracepointSession => {
                let lost = err.lines().filter_map(lost_in_ring).sum();
                let has_events = file.exists() && !is_empty(&file);
                let seen = if has_events { self.calls(kymo, &file)? } else { 0 };
                Held { seen, lost }
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

    /// Calls that a recording holds.
    pub(super) fn calls(self, kymo: &Path, file: &Path) -> anyhow::Result<u64> {
        Ok(self.lines(&output(kymo, &["script", "-i"], file)?))
    }

    fn lines(self, text: &str) -> u64 {
        text.lines().filter(|line| line.contains(self.word())).count() as u64
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

/// A directory without anything in it.
fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
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

/// Output of kymo for a recording, which it must read, though it may be damaged.
fn output(kymo: &Path, arguments: &[&str], file: &Path) -> anyhow::Result<String> {
    read(kymo, arguments, file).map(|(text, _)| text)
}

/// Output and messages of kymo for a recording.
fn read(kymo: &Path, arguments: &[&str], file: &Path) -> anyhow::Result<(String, String)> {
    let mut command = Command::new(kymo);
    let output = command.args(arguments).arg(file).output().context("cannot run kymo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    // 1: damaged or cut, with what could be read of it.
    if said.contains("panicked") || !matches!(output.status.code(), Some(0 | 1)) {
        bail!("`{} {}`: {}: {said}", arguments.join(" "), file.display(), output.status);
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said.into_owned()))
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
