//! Flag `--view` of commands that have a recording: `kymo view` takes the place of the process.

use std::convert::Infallible;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

/// Goes on as `kymo view`, with a time that is selected and a thread whose path is shown.
pub(crate) fn become_view(
    recording: &Path,
    times: Option<(u64, u64)>,
    tid: Option<u32>,
) -> anyhow::Result<Infallible> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.arg("view").arg("-i").arg(recording);
    if let Some((from, to)) = times {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        command.arg(format!("--select={},{}", seconds(from), seconds(to)));
    }
    if let Some(tid) = tid {
        command.arg(format!("--path-of={tid}"));
    }
    Err(command.exec()).context("cannot start kymo view")
}
