//! Flag `--view` of commands that have a recording: `kymo view` takes the place of the process.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;

use super::view;

/// The command line of `kymo view`.
#[derive(Parser)]
struct ViewLine {
    #[command(flatten)]
    args: view::Args,
}

/// Whether a file is a page by its name.
pub(crate) fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "html" || extension == "htm")
}

/// Writes the page of a recording, as `kymo view -o` does. The page has its own warnings, which are
/// not printed beside those of the command.
pub(crate) fn write_page(recording: &Path, page: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let arguments = [OsStr::new("view"), OsStr::new("-i"), recording.as_os_str(), OsStr::new("-o")];
    let mut view = Command::new(program);
    let output = view.args(arguments).arg(page).stdin(Stdio::inherit()).output();
    let Output { status, stderr, .. } = output.context("cannot start kymo view")?;
    let text = String::from_utf8_lossy(&stderr);
    for line in text.lines().filter(|line| !status.success() || line.starts_with("[ kymo view:")) {
        writeln!(crate::streams::stderr(), "{line}").context("standard error")?;
    }
    ensure!(status.success(), "kymo view: {status}");
    Ok(())
}

/// Continues as `kymo view`, with a time that is selected and a thread whose path is shown.
pub(crate) fn become_view(
    recording: &Path,
    times: Option<(u64, u64)>,
    tid: Option<u32>,
) -> anyhow::Result<Infallible> {
    become_view_since(None, recording, times, tid)
}

/// Continues as `kymo view` with the differential flame graph since another recording.
pub(crate) fn become_view_since(
    base: Option<&Path>,
    recording: &Path,
    times: Option<(u64, u64)>,
    tid: Option<u32>,
) -> anyhow::Result<Infallible> {
    let mut arguments: Vec<OsString> = ["view", "-i"].map(Into::into).into();
    arguments.push(recording.into());
    if let Some(base) = base {
        arguments.extend(["--diff".into(), base.into()]);
    }
    if let Some((from, to)) = times {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        arguments.push(format!("--select={},{}", seconds(from), seconds(to)).into());
    }
    if let Some(tid) = tid {
        arguments.push(format!("--path-of={tid}").into());
    }
    if view::door::is_prepared() {
        // Rights to start programs were given up.
        let ViewLine { args } = ViewLine::try_parse_from(arguments)?;
        view::run(args)?;
        bail!("the page is no longer served");
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    Err(Command::new(program).args(arguments).exec()).context("cannot start kymo view")
}
