//! `kymo profile`.

use std::process::ExitCode;

/// Flags of `kymo profile`.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
