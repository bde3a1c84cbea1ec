//! Which binary the flags mean, and how descriptions are resolved in it.

use std::process::ExitCode;

use anyhow::Context as _;
use kymo_kernel::system::SystemRoot;
use kymo_model::Note;
use kymo_probe::grammar::ProbeDescription;
use kymo_probe::{ProbedBinary, ResolveOptions, ResolvedProbe, resolve_by_kallsyms};
use kymo_symbols::debug_files::{BinaryError, BinaryFiles, SourceDirectories};
use kymo_view::Ledger;

use super::Args;

/// The files of what is probed. With `offline` a kernel given by `-k` need not be
/// the running one.
pub(super) fn files(args: &Args, offline: bool) -> Result<BinaryFiles, BinaryError> {
    if let Some(path) = &args.exec {
        return match args.target_ns {
            Some(pid) => BinaryFiles::user_of(pid, path),
            None => BinaryFiles::user(path),
        };
    }
    if let Some(module) = &args.module {
        return BinaryFiles::module(module);
    }
    match &args.vmlinux {
        Some(path) if offline => BinaryFiles::vmlinux(path),
        path => BinaryFiles::running_kernel(path.as_deref()),
    }
}

pub(super) fn options(args: &Args) -> ResolveOptions {
    ResolveOptions {
        no_inlines: args.no_inlines,
        max_probes: args.max_probes as usize,
        sources: SourceDirectories { directory: args.source.clone() },
    }
}

/// Resolver of descriptions.
pub(super) enum ProbeResolver<'a> {
    /// A binary.
    Binary(Box<ProbedBinary<'a>>),
    /// The running kernel's list of symbols, where its binary is missing. The
    /// error says what is missing for more.
    Symbols(String, BinaryError),
}

impl<'a> ProbeResolver<'a> {
    /// A resolver with `files`, or for the running kernel without them.
    pub(super) fn new(
        files: &'a Result<BinaryFiles, BinaryError>,
    ) -> anyhow::Result<ProbeResolver<'a>> {
        match files {
            Ok(files) => Ok(ProbeResolver::Binary(Box::new(ProbedBinary::load(files)?))),
            Err(BinaryError::NoVmlinux { release, looked }) => {
                let missing =
                    BinaryError::NoVmlinux { release: release.clone(), looked: looked.clone() };
                ProbeResolver::by_symbols(missing)
            }
            Err(BinaryError::NoModule { name, release }) => {
                let missing =
                    BinaryError::NoModule { name: name.clone(), release: release.clone() };
                ProbeResolver::by_symbols(missing)
            }
            Err(e) => anyhow::bail!("{e}"),
        }
    }

    fn by_symbols(missing: BinaryError) -> anyhow::Result<ProbeResolver<'a>> {
        let text = SystemRoot::machine().kallsyms_text().context("cannot read /proc/kallsyms")?;
        Ok(ProbeResolver::Symbols(text, missing))
    }

    /// After the answers: what makes the next ones faster.
    pub(super) fn learn(&self, args: &Args) -> Vec<Note> {
        match self {
            ProbeResolver::Binary(binary) => binary.learn(args.cache),
            ProbeResolver::Symbols(..) => Vec::new(),
        }
    }

    /// Definitions of a description.
    pub(super) fn resolve(
        &self,
        args: &Args,
        d: &ProbeDescription,
    ) -> anyhow::Result<ResolvedProbe> {
        match self {
            ProbeResolver::Binary(binary) => Ok(binary.resolve(d, &options(args))?),
            ProbeResolver::Symbols(_, missing) if d.needs_debuginfo() => {
                anyhow::bail!("{} needs debugging information: {missing}", d.point)
            }
            ProbeResolver::Symbols(text, _) => {
                Ok(resolve_by_kallsyms(d, &options(args), text, args.module.as_deref())?)
            }
        }
    }
}

/// Prints the ledger to standard error, where it is in the way of no script.
pub(super) fn close(args: &Args, ledger: &Ledger) -> ExitCode {
    if !args.quiet {
        say!("{}", ledger.to_text(""));
    }
    if args.strict && ledger.has_doubts() {
        ExitCode::from(Ledger::STRICT_STATUS)
    } else {
        ExitCode::SUCCESS
    }
}
