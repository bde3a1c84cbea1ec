//! `--probe` of the commands that trace, record and count: probes that are there for
//! one run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kymo_kernel::probe_guard::{GuardError, ProbeGuard, ProbeNamesLock};
use kymo_kernel::process::{Signal, Signals};
use kymo_model::shell_word;
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

/// Descriptions, those of one binary together.
type DescriptionsByBinary = Vec<(Option<PathBuf>, Vec<String>)>;

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
        for (exec, descriptions) in self.by_binary(exec)? {
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

    /// Descriptions, those of one binary together. The binary may stand before one, if it is a path
    /// and no other is named.
    fn by_binary(&self, exec: Option<&Path>) -> anyhow::Result<DescriptionsByBinary> {
        let mut all = DescriptionsByBinary::new();
        for text in &self.probes {
            let (binary, description) = match exec {
                Some(path) => (Some(path.to_owned()), text.as_str()),
                None => leading_binary(text)?,
            };
            let words: Vec<&str> = description.split_ascii_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let description = words.join(" ");
            match all.iter_mut().find(|(of, _)| *of == binary) {
                Some((_, same)) => same.push(description),
                None => all.push((binary, vec![description])),
            }
        }
        Ok(all)
    }
}

/// The binary that a description begins with, and the rest. Sources of the kernel are named with
/// slashes, too (`fs/open.c:12`), and so are groups of events (`group/event=function`).
fn leading_binary(text: &str) -> anyhow::Result<(Option<PathBuf>, &str)> {
    let text = text.trim();
    if !["/", "./", "../"].iter().any(|start| text.starts_with(start)) {
        return Ok((None, text));
    }
    // A path may have blanks, too.
    let mut splits = text.match_indices(char::is_whitespace);
    let named = splits.find(|(at, _)| Path::new(&text[..*at]).is_file());
    let first = || text.find(char::is_whitespace);
    if let Some(at) = named.map(|(at, _)| at).or_else(first) {
        let (path, probe) = text.split_at(at);
        return Ok((Some(PathBuf::from(path)), probe));
    }
    // As bpftrace has it; what follows a source file is a line.
    if let Some((path, probe)) = text.rsplit_once(':')
        && !probe.starts_with(|c: char| c.is_ascii_digit())
        && Path::new(path).is_file()
    {
        bail!(
            "write the binary before the probe: --probe {}",
            shell_word(format!("{path} {probe}"))
        );
    }
    Ok((None, text))
}
