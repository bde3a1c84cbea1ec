//! Commands of kymo as processes of their own.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::exit;

/// Longest output that is read.
const MOST_OUTPUT: u64 = 64 << 20;
/// Longest standard error that is read.
const MOST_ERRORS: u64 = 1 << 20;
/// Time between two looks at whether a command has ended.
const STEP: Duration = Duration::from_millis(10);

/// Output of a command.
pub(super) struct Said {
    pub(super) output: Vec<u8>,
    /// Notes of its ledger.
    pub(super) ledger: Vec<Value>,
    /// Other lines of standard error.
    pub(super) errors: Vec<String>,
    pub(super) status: Option<i32>,
}

/// Runs a command of kymo, at most for a time.
pub(super) fn run(
    directory: &Path,
    args: &[OsString],
    input: &str,
    most: Duration,
) -> anyhow::Result<Said> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.args(args).current_dir(directory).env("NO_COLOR", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start kymo")?;
    let (to, from, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let began = Instant::now();
    let (status, output, said, is_late) = std::thread::scope(|scope| {
        let _ = scope.spawn(move || {
            // Who does not read its input says why on standard error.
            to.map(|mut to| to.write_all(input.as_bytes()))
        });
        let read = |stream: Option<Box<dyn std::io::Read + Send>>, most: u64| {
            move || -> std::io::Result<Vec<u8>> {
                let mut bytes = Vec::new();
                let Some(mut stream) = stream else { return Ok(bytes) };
                stream.by_ref().take(most).read_to_end(&mut bytes)?;
                // The rest is read, so that the command comes to its end.
                std::io::copy(&mut stream, &mut std::io::sink())?;
                Ok(bytes)
            }
        };
        let output = scope.spawn(read(from.map(|from| Box::new(from) as _), MOST_OUTPUT));
        let said = scope.spawn(read(errors.map(|errors| Box::new(errors) as _), MOST_ERRORS));
        let mut is_late = false;
        let status = loop {
            match child.try_wait() {
                Ok(None) if began.elapsed() < most => std::thread::sleep(STEP),
                Ok(None) => {
                    is_late = true;
                    // It may have ended meanwhile.
                    let _ = child.kill();
                    break child.wait();
                }
                Ok(Some(status)) => break Ok(status),
                Err(e) => break Err(e),
            }
        };
        (status, output.join(), said.join(), is_late)
    });
    let status = status.context("waiting for kymo")?;
    let (Ok(output), Ok(said)) = (output, said) else { bail!("a thread that reads failed") };
    let (output, said) = (output.context("reading")?, said.context("reading")?);
    if is_late {
        bail!("stopped after {} s", most.as_secs());
    }
    if output.len() as u64 >= MOST_OUTPUT {
        bail!("the answer has more than {} MiB: narrow it down", MOST_OUTPUT >> 20);
    }
    let (ledger, errors) = exit::parse_said(&said);
    Ok(Said { output, ledger, errors, status: status.code() })
}

impl Said {
    /// Fails if the command has shown nothing and ended with an error.
    pub(super) fn checked(self) -> anyhow::Result<Said> {
        if self.status != Some(0) && self.output.trim_ascii().is_empty() {
            if self.errors.is_empty() {
                bail!("kymo ended with status {:?}", self.status);
            }
            bail!("{}", self.errors.join("; "));
        }
        Ok(self)
    }
}
