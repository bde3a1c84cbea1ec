//! Which binary the flags mean, and how to plan in it.

use std::process::ExitCode;

use kymo_symbols::probe::{Facts, OpenError, ProbeFiles, Settings, SourceFolders};
use kymo_view::Ledger;

use super::Args;

/// The files of what is probed. With `offline` a kernel given by `-k` need not be
/// the running one.
pub(super) fn files(args: &Args, offline: bool) -> Result<ProbeFiles, OpenError> {
    if let Some(path) = &args.exec {
        return ProbeFiles::user(path);
    }
    if let Some(module) = &args.module {
        return ProbeFiles::module(module);
    }
    match &args.vmlinux {
        Some(path) if offline => ProbeFiles::vmlinux(path),
        path => ProbeFiles::running_kernel(path.as_deref()),
    }
}

pub(super) fn settings(args: &Args) -> Settings {
    Settings {
        no_inlines: args.no_inlines,
        max_probes: args.max_probes as usize,
        sources: SourceFolders { folder: args.source.clone() },
    }
}

/// Everything there is to know about what is probed.
pub(super) fn facts(files: &ProbeFiles) -> anyhow::Result<Facts<'_>> {
    Ok(Facts::load(files)?)
}

/// Prints the ledger to standard error, where it is in the way of no script.
pub(super) fn close(args: &Args, ledger: &Ledger) -> ExitCode {
    if !args.quiet {
        anstream::eprint!("{}", ledger.to_text(""));
    }
    if args.strict && ledger.has_doubts() {
        ExitCode::from(Ledger::STRICT_STATUS)
    } else {
        ExitCode::SUCCESS
    }
}
