//! `kymo kallsyms`: where symbols of the running kernel are.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use kymo_kernel::kallsyms::Kallsyms;

/// Flags of `kymo kallsyms`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names of symbols
    #[arg(required = true, value_name = "SYMBOL")]
    symbols: Vec<String>,
    /// No effect (accepted for compatibility)
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let symbols = Kallsyms::running();
    if symbols.hidden() {
        bail!(
            "the kernel hides the addresses of its symbols: run as root, or set \
             kernel.kptr_restrict = 0"
        );
    }
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    for wanted in &args.symbols {
        let found: Vec<_> = symbols.iter().filter(|(_, _, name, _)| name == wanted).collect();
        if found.is_empty() {
            writeln!(out, "{wanted}: not found")?;
        }
        for (start, end, name, module) in found {
            match module {
                // perf's shape: where it lies, and where its file has it.
                Some(module) => writeln!(
                    out,
                    "{name}: [{module}] [{module}] {start:#x}-{end:#x} ({start:#x}-{end:#x})"
                )?,
                None => writeln!(
                    out,
                    "{name}: [kernel] [kernel.kallsyms] {start:#x}-{end:#x} ({start:#x}-{end:#x})"
                )?,
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
