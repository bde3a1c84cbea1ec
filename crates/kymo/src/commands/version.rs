//! `kymo version`: the version of this program.

use std::io::Write as _;
use std::process::ExitCode;

/// Flags of `kymo version`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What was built in: everything, in every build
    #[arg(long)]
    build_options: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut text = format!("kymo {}\n", env!("CARGO_PKG_VERSION"));
    if args.build_options {
        let parts = ["dwarf", "debuginfod", "zstd", "lzma", "bpf", "disassembly"];
        parts.iter().for_each(|part| text.push_str(&format!("{part:>16}: [ on  ]\n")));
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
