//! Which binary the flags mean, and how to plan in it.

use std::process::ExitCode;

use anyhow::Context as _;
use kymo_debuginfo::probe::Description;
use kymo_model::Note;
use kymo_symbols::probe::{
    Facts, OpenError, Plan, ProbeFiles, Settings, SourceFolders, plan_by_kallsyms,
};
use kymo_view::Ledger;

use super::Args;

/// The files of what is probed. With `offline` a kernel given by `-k` need not be
/// the running one.
pub(super) fn files(args: &Args, offline: bool) -> Result<ProbeFiles, OpenError> {
    if let Some(path) = &args.exec {
        return match args.target_ns {
            Some(pid) => ProbeFiles::user_of(pid, path),
            None => ProbeFiles::user(path),
        };
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

/// What descriptions are planned with.
pub(super) enum Planner<'a> {
    /// A binary.
    Binary(Box<Facts<'a>>),
    /// The running kernel's list of symbols, where its binary is missing. The
    /// error says what is missing for more.
    Symbols(String, OpenError),
}

impl<'a> Planner<'a> {
    /// Plans with `files`, or for the running kernel without them.
    pub(super) fn new(files: &'a Result<ProbeFiles, OpenError>) -> anyhow::Result<Planner<'a>> {
        match files {
            Ok(files) => Ok(Planner::Binary(Box::new(facts(files)?))),
            Err(OpenError::NoVmlinux { release, looked }) => {
                let missing =
                    OpenError::NoVmlinux { release: release.clone(), looked: looked.clone() };
                Planner::by_symbols(missing)
            }
            Err(OpenError::NoModule { name, release }) => {
                let missing = OpenError::NoModule { name: name.clone(), release: release.clone() };
                Planner::by_symbols(missing)
            }
            Err(e) => anyhow::bail!("{e}"),
        }
    }

    fn by_symbols(missing: OpenError) -> anyhow::Result<Planner<'a>> {
        let text =
            std::fs::read_to_string("/proc/kallsyms").context("cannot read /proc/kallsyms")?;
        Ok(Planner::Symbols(text, missing))
    }

    /// After the answers: what makes the next ones faster.
    pub(super) fn learn(&self, args: &Args) -> Vec<Note> {
        match self {
            Planner::Binary(facts) => facts.learn(args.cache),
            Planner::Symbols(..) => Vec::new(),
        }
    }

    /// What the kernel is to be told for a description.
    pub(super) fn plan(&self, args: &Args, d: &Description) -> anyhow::Result<Plan> {
        match self {
            Planner::Binary(facts) => Ok(facts.plan(d, &settings(args))?),
            Planner::Symbols(_, missing) if d.needs_debuginfo() => {
                anyhow::bail!("{} needs debugging information: {missing}", d.point)
            }
            Planner::Symbols(text, _) => {
                Ok(plan_by_kallsyms(d, &settings(args), text, args.module.as_deref())?)
            }
        }
    }
}

/// Everything there is to know about what is probed.
pub(super) fn facts(files: &ProbeFiles) -> anyhow::Result<Facts<'_>> {
    Ok(Facts::load(files)?)
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
