//! `kymo version`: the version of this program.

use std::io::Write as _;
use std::process::ExitCode;

use crate::called_name::CalledName;

/// Flags of `kymo version`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What was built in: everything, in every build
    #[arg(long)]
    build_options: bool,
}

/// What every build can do, under the names by which scripts look for it in perf's list: the
/// library that perf has it of is none of kymo's.
const BUILD_OPTIONS: [(&str, &str); 10] = [
    ("bpf", "HAVE_LIBBPF_SUPPORT"),
    ("debuginfod", "HAVE_DEBUGINFOD_SUPPORT"),
    ("disassembly", ""),
    ("dwarf", "HAVE_LIBDW_SUPPORT"),
    ("dwarf-unwind", "HAVE_DWARF_UNWIND_SUPPORT"),
    ("libtraceevent", "HAVE_LIBTRACEEVENT"),
    ("lzma", "HAVE_LZMA_SUPPORT"),
    ("syscall_table", "HAVE_SYSCALL_TABLE_SUPPORT"),
    ("zlib", "HAVE_ZLIB_SUPPORT"),
    ("zstd", "HAVE_ZSTD_SUPPORT"),
];

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut text = format!("{}\n", CalledName::get().version_line());
    if args.build_options {
        for (part, name) in BUILD_OPTIONS {
            let line = format!("{part:>22}: [ on  ]  # {name}");
            text.push_str(line.trim_end_matches(['#', ' ']));
            text.push('\n');
        }
    }
    crate::streams::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
