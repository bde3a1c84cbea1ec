//! `--cache`: definitions that are kept by the build-id of what they are in, to be
//! added, listed and removed without debugging information.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_debuginfo::probe::{RawLine, glob_match};
use kymo_kernel::probe_events::ProbeLine;
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;
use kymo_symbols::cache::Cache;
use kymo_symbols::probe::{KeptProbe, KeptProbes, ProbeFiles};

use super::Args;

fn cache() -> anyhow::Result<Cache> {
    Cache::of_user().context("there is no cache: KYMO_CACHE is off, or HOME is not set")
}

/// Which binary the flags mean, without its debugging information.
fn binary(args: &Args, files: Option<&ProbeFiles>) -> anyhow::Result<(BuildId, String)> {
    let known = files.and_then(|f| Some((f.build_id?, f.path.display().to_string())));
    if let Some(known) = known {
        return Ok(known);
    }
    if args.exec.is_some() || args.module.is_some() {
        bail!("--cache keeps probes by build-id, and the binary has none");
    }
    let id = SystemRoot::machine().kernel_build_id();
    Ok((id.context("the running kernel states no build-id")?, "[kernel.kallsyms]".to_owned()))
}

/// The kept probes of what the flags mean.
pub(super) fn of(args: &Args, files: Option<&ProbeFiles>) -> anyhow::Result<KeptProbes> {
    let (key, path) = binary(args, files)?;
    let cache = cache()?;
    Ok(match KeptProbes::load(&cache, key, &path) {
        Ok(kept) => kept,
        Err(e) => {
            if !args.quiet {
                sayln!("kymo probe: kept probes are not used: {e}");
            }
            // What is wrong is replaced when something is kept.
            KeptProbes::empty(&cache, key, &path)
        }
    })
}

/// The lines of a kept probe, for the file where it is today.
pub(super) fn lines(kept: &KeptProbes, description: &str, path: &str) -> Option<Vec<RawLine>> {
    let probe = kept.find(description)?;
    let line = |line: &String| {
        let mut words = line.splitn(3, ' ');
        let (kind, place) = (words.next()?, words.next()?);
        let rest = words.next().map(|r| format!(" {r}")).unwrap_or_default();
        let place = match place.rsplit_once(':') {
            Some((old, offset)) if old.starts_with('/') => format!("{path}:{offset}"),
            _ => place.to_owned(),
        };
        RawLine::parse(&format!("{kind} {place}{rest}")).ok()
    };
    probe.lines.iter().map(line).collect()
}

/// Keeps what was added.
pub(super) fn keep(
    kept: &mut KeptProbes,
    added: &[(String, Vec<ProbeLine>)],
) -> anyhow::Result<()> {
    for (description, lines) in added {
        let lines = lines.iter().map(|l| l.text.clone()).collect();
        kept.keep(KeptProbe { description: description.clone(), lines });
    }
    if !added.is_empty() {
        kept.store().context("the probes were added, but not kept")?;
    }
    Ok(())
}

/// `--cache --list`: of each binary the descriptions.
pub(super) fn list(args: &Args, glob: Option<&str>) -> anyhow::Result<ExitCode> {
    let (all, problems) = KeptProbes::all(&cache()?)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for kept in &all {
        let shown: Vec<&KeptProbe> = kept.probes.iter().filter(|p| passes(p, glob)).collect();
        if shown.is_empty() {
            continue;
        }
        writeln!(out, "{} ({}):", kept.path, kept.key)?;
        for probe in shown {
            writeln!(out, "{}", probe.description)?;
            for line in probe.lines.iter().filter(|_| args.verbose) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    out.flush()?;
    for problem in problems.iter().filter(|_| !args.quiet) {
        sayln!("kymo probe: {problem}");
    }
    Ok(ExitCode::SUCCESS)
}

fn passes(probe: &KeptProbe, glob: Option<&str>) -> bool {
    let Some(glob) = glob else { return true };
    let event = probe.event().unwrap_or_default();
    glob_match(glob, &event)
        || event.split_once(':').is_some_and(|(_, name)| glob_match(glob, name))
        || glob_match(glob, &probe.description)
}

/// `--cache --del`.
pub(super) fn delete(args: &Args) -> anyhow::Result<()> {
    let (all, _) = KeptProbes::all(&cache()?)?;
    let mut any = vec![false; args.del.len()];
    for mut kept in all {
        let before = kept.probes.len();
        for (glob, any) in args.del.iter().zip(&mut any) {
            for probe in kept.probes.iter().filter(|p| passes(p, Some(glob))) {
                *any = true;
                if !args.quiet {
                    let what = if args.dry_run { "Would remove" } else { "Removed" };
                    anstream::println!("{what} kept probe: {} ({})", probe.description, kept.path);
                }
            }
        }
        kept.probes.retain(|p| !args.del.iter().any(|glob| passes(p, Some(glob))));
        if kept.probes.len() < before && !args.dry_run {
            kept.store()?;
        }
    }
    match args.del.iter().zip(any).find(|(_, any)| !any) {
        Some((glob, _)) => {
            bail!("{glob} matches no kept probe; kymo probe --cache --list shows them")
        }
        None => Ok(()),
    }
}
