//! Binary and options of resolving from the command line, and the end of a verb.

use std::process::ExitCode;

use kymo_probe::{ProbedTarget, ResolveOptions};
use kymo_symbols::debug_files::SourceDirectories;
use kymo_view::Ledger;

use super::Args;
use crate::exit;

pub(super) fn target(args: &Args) -> ProbedTarget {
    ProbedTarget {
        exec: args.exec.clone(),
        target_ns: args.target_ns,
        symfs: args.symfs.clone(),
        module: args.module.clone(),
        vmlinux: args.vmlinux.clone(),
    }
}

pub(super) fn options(args: &Args) -> ResolveOptions {
    ResolveOptions {
        no_inlines: args.no_inlines,
        max_probes: args.max_probes as usize,
        sources: SourceDirectories { directory: args.source.clone() },
    }
}

/// Prints the ledger to standard error, where it is in the way of no script.
pub(super) fn close(args: &Args, ledger: &Ledger) -> ExitCode {
    if !args.quiet {
        say!("{}", ledger.to_text(""));
    }
    exit::of_command(None, ledger, args.strict)
}
