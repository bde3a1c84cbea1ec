//! `--probe` of the commands that trace, record and count: probes that are there for
//! one run.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kymo_kernel::probe_guard::{GuardError, ProbeGuard, ProbeNamesLock};
use kymo_kernel::process::{Signal, Signals};
use kymo_probe::naming::TakenName;
use kymo_probe::{
    PlanOptions, ProbedTarget, ResolveOptions, event_names, explain_refusal, plan_probes,
};
use kymo_symbols::debug_files::SourceDirectories;
use kymo_view::Ledger;

use crate::commands::tracing;

/// The most places that one description may give, as for `kymo probe`.
const MAX_PROBES: usize = 128;

/// Flags for them.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct ProbeArgs {
    /// Add this probe for the run, and record its events
    ///
    /// Same syntax as for `kymo probe`; for a program, its path first: '/usr/bin/x main argc'.
    #[arg(long = "probe", value_name = "[BINARY ]PROBE")]
    probes: Vec<String>,
}

/// Probes of a run. Dropping it removes them; close what uses them first.
pub(crate) struct TemporaryProbes {
    guard: ProbeGuard,
    /// Last, so that no signal ends the program while probes are removed.
    _signals: Signals,
}

impl TemporaryProbes {
    /// Events, as `-e` takes them.
    pub(crate) fn events(&self) -> Vec<String> {
        self.guard.events()
    }

    /// Removes the probes and reports a failure.
    pub(crate) fn remove(self) -> anyhow::Result<()> {
        self.guard.remove().context("a probe of this run is still there")
    }
}

impl ProbeArgs {
    /// Whether any is wanted.
    pub(crate) fn given(&self) -> bool {
        !self.probes.is_empty()
    }

    /// Adds them. `exec` is the program of those that name none.
    pub(crate) fn add(&self, exec: Option<&Path>) -> anyhow::Result<Option<TemporaryProbes>> {
        if self.probes.is_empty() {
            return Ok(None);
        }
        let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])?;
        let tracefs = tracing::open()?;
        let mut ledger = Ledger::default();
        let lock = ProbeNamesLock::take()?;
        let mut names = event_names(&tracefs, TakenName::Number)?;
        let mut definitions = Vec::new();
        for (exec, descriptions) in self.by_binary(exec) {
            let target = ProbedTarget { exec, ..ProbedTarget::default() };
            let resolve = ResolveOptions {
                no_inlines: false,
                max_probes: MAX_PROBES,
                sources: SourceDirectories::default(),
            };
            let plan =
                PlanOptions { target: &target, resolve, force: false, costs: false, cached: None };
            let planned = plan_probes(&descriptions, &plan, &tracefs, &mut names)?;
            planned.notes.iter().cloned().for_each(|note| ledger.push(note));
            definitions.extend(planned.added().cloned());
        }
        say!("{}", ledger.to_text(""));
        let guard = ProbeGuard::add(&tracefs, definitions).map_err(|e| match e {
            GuardError::Probe(e) => anyhow::Error::from(explain_refusal(e)),
            e => e.into(),
        })?;
        drop(lock);
        Ok(Some(TemporaryProbes { guard, _signals: signals }))
    }

    /// Descriptions, those of one binary together. The binary may be their first word, if that is
    /// a path and no other is named.
    fn by_binary(&self, exec: Option<&Path>) -> Vec<(Option<PathBuf>, Vec<String>)> {
        let mut all: Vec<(Option<PathBuf>, Vec<String>)> = Vec::new();
        for text in &self.probes {
            let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
            let binary = match exec {
                Some(path) => Some(path.to_owned()),
                None if words.len() > 1 && words.first().is_some_and(|w| is_path(w)) => {
                    Some(PathBuf::from(words.remove(0)))
                }
                None => None,
            };
            if words.is_empty() {
                continue;
            }
            let description = words.join(" ");
            match all.iter_mut().find(|(of, _)| *of == binary) {
                Some((_, same)) => same.push(description),
                None => all.push((binary, vec![description])),
            }
        }
        all
    }
}

/// Whether the first word of a description is a binary. Sources of the kernel are named with
/// slashes, too (`fs/open.c:12`), and so are groups of events (`group/event=function`).
fn is_path(word: &str) -> bool {
    ["/", "./", "../"].iter().any(|start| word.starts_with(start))
}
