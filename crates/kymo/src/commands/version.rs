//! `kymo version`: the version of this program.

use std::io::Write as _;
use std::process::ExitCode;

use super::features;
use crate::called_name::CalledName;

/// Flags of `kymo version`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// List optional features under perf's names
    #[arg(long)]
    build_options: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut text = format!("{}\n", CalledName::get().version_line());
    if args.build_options {
        text.extend(features::all().map(features::Feature::line));
    }
    crate::streams::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
