//! `--probe` of the commands that trace, record and count: probes that are there for
//! one run.

use std::path::Path;

use anyhow::Context as _;
use clap::{Args as _, FromArgMatches as _};
use kymo_kernel::probe_guard::{GuardError, ProbeGuard};
use kymo_kernel::process::{Signal, Signals};
use kymo_probe::naming::TakenName;
use kymo_view::Ledger;

use super::add::{event_names, plan};
use super::{Args, refused, take_words};
use crate::commands::tracing;

/// Flags for them.
#[derive(clap::Args, Clone, Debug, Default)]
pub(in crate::commands) struct ProbeArgs {
    /// Add this probe for the run, and take its events; same syntax as for `kymo probe`, a
    /// program's with its path before it ('/usr/bin/x main argc')
    #[arg(long = "probe", value_name = "[BINARY ]PROBE")]
    probes: Vec<String>,
}

/// Probes of a run. Dropping it removes them; close what uses them first.
pub(in crate::commands) struct Temporary {
    guard: ProbeGuard,
    /// Last, so that no signal ends the program while probes are removed.
    _signals: Signals,
}

impl Temporary {
    /// The events, as `-e` takes them.
    pub(in crate::commands) fn events(&self) -> Vec<String> {
        self.guard.events()
    }

    /// Removes the probes and tells if that failed.
    pub(in crate::commands) fn remove(self) -> anyhow::Result<()> {
        self.guard.remove().context("a probe of this run is still there")
    }
}

impl ProbeArgs {
    /// Whether any is wanted.
    pub(in crate::commands) fn given(&self) -> bool {
        !self.probes.is_empty()
    }

    /// Adds them. `exec` is the program of those that name none.
    pub(in crate::commands) fn add(
        &self,
        exec: Option<&Path>,
    ) -> anyhow::Result<Option<Temporary>> {
        if self.probes.is_empty() {
            return Ok(None);
        }
        let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])?;
        let tracefs = tracing::open()?;
        let mut ledger = Ledger::default();
        let mut names = event_names(&tracefs, TakenName::Number)?;
        let mut definitions = Vec::new();
        for args in self.by_binary(exec)? {
            let planned = plan(&args, &tracefs, &mut names, &mut ledger)?;
            definitions.extend(planned.added().cloned());
        }
        say!("{}", ledger.to_text(""));
        let guard = ProbeGuard::add(&tracefs, definitions).map_err(|e| match e {
            GuardError::Probe(e) => refused::explain(e),
            e => e.into(),
        })?;
        Ok(Some(Temporary { guard, _signals: signals }))
    }

    /// As `kymo probe` would read them: those of one binary together.
    fn by_binary(&self, exec: Option<&Path>) -> anyhow::Result<Vec<Args>> {
        let mut all: Vec<Args> = Vec::new();
        for text in &self.probes {
            let mut words: Vec<std::ffi::OsString> = vec!["probe".into()];
            if let Some(path) = exec {
                words.extend(["-x".into(), path.into()]);
            }
            words.push("--".into());
            words.extend(text.split_ascii_whitespace().map(Into::into));
            let command = Args::augment_args(clap::Command::new("probe"));
            let mut args = Args::from_arg_matches(&command.try_get_matches_from(words)?)?;
            take_words(&mut args);
            match all.iter_mut().find(|a| a.exec == args.exec) {
                Some(same) => same.add.append(&mut args.add),
                None => all.push(args),
            }
        }
        Ok(all)
    }
}
