//! `--cache`: the probe cache, whose definitions are added, listed and removed without
//! debugging information.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;
use kymo_model::glob::glob_match;
use kymo_model::probe::ProbeDefinition;
use kymo_probe::grammar::is_kernel_line;
use kymo_probe::{CachedProbe, CachedProbes, ProbedTarget};
use kymo_symbols::cache::SymbolCache;
use kymo_symbols::debug_files::BinaryFiles;

use super::Args;

fn cache() -> anyhow::Result<SymbolCache> {
    SymbolCache::of_user().context("there is no cache: KYMO_CACHE is off, or HOME is not set")
}

/// Returns the binary that the flags select, without its debugging information.
fn binary(args: &Args, files: Option<&BinaryFiles>) -> anyhow::Result<(BuildId, String)> {
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

/// The cached probes of what the flags mean.
pub(super) fn load(args: &Args, target: &ProbedTarget) -> anyhow::Result<CachedProbes> {
    let described = args.add.iter().any(|d| !is_kernel_line(d));
    let files = described.then(|| target.files(false).ok()).flatten();
    let (key, path) = binary(args, files.as_ref())?;
    let cache = cache()?;
    Ok(match CachedProbes::load(&cache, key, &path) {
        Ok(cached) => cached,
        Err(e) => {
            if !args.quiet {
                sayln!("kymo probe: cached probes are not used: {e}");
            }
            // What is wrong is replaced when something is cached.
            CachedProbes::empty(&cache, key, &path)
        }
    })
}

/// Stores what was added: descriptions with their definitions.
pub(super) fn store(
    cached: &mut CachedProbes,
    added: &[(String, Vec<ProbeDefinition>)],
) -> anyhow::Result<()> {
    for (description, definitions) in added {
        let (description, definitions) = (description.clone(), definitions.clone());
        cached.keep(CachedProbe { description, definitions });
    }
    if !added.is_empty() {
        cached.store().context("the probes were added, but not stored in the cache")?;
    }
    Ok(())
}

/// `--cache --list`: of each binary the descriptions.
pub(super) fn list(args: &Args, glob: Option<&str>) -> anyhow::Result<ExitCode> {
    let (all, problems) = CachedProbes::all(&cache()?)?;
    crate::screen::page();
    let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
    for cached in &all {
        let shown: Vec<&CachedProbe> = cached.probes.iter().filter(|p| passes(p, glob)).collect();
        if shown.is_empty() {
            continue;
        }
        writeln!(out, "{} ({}):", cached.path, cached.key)?;
        for probe in shown {
            writeln!(out, "{}", probe.description)?;
            for definition in probe.definitions.iter().filter(|_| args.verbose) {
                writeln!(out, "    {definition}")?;
            }
        }
    }
    out.flush()?;
    for problem in problems.iter().filter(|_| !args.quiet) {
        sayln!("kymo probe: {problem}");
    }
    Ok(ExitCode::SUCCESS)
}

fn passes(probe: &CachedProbe, glob: Option<&str>) -> bool {
    let Some(glob) = glob else { return true };
    let event = probe.event().unwrap_or_default();
    glob_match(glob, &event)
        || event.split_once(':').is_some_and(|(_, name)| glob_match(glob, name))
        || glob_match(glob, &probe.description)
}

/// `--cache --del`.
pub(super) fn delete(args: &Args) -> anyhow::Result<()> {
    let (all, _) = CachedProbes::all(&cache()?)?;
    let mut any = vec![false; args.del.len()];
    for mut cached in all {
        let before = cached.probes.len();
        for (glob, any) in args.del.iter().zip(&mut any) {
            for probe in cached.probes.iter().filter(|p| passes(p, Some(glob))) {
                *any = true;
                if !args.quiet {
                    let what = if args.dry_run { "Would remove" } else { "Removed" };
                    outln!("{what} cached probe: {} ({})", probe.description, cached.path);
                }
            }
        }
        cached.probes.retain(|p| !args.del.iter().any(|glob| passes(p, Some(glob))));
        if cached.probes.len() < before && !args.dry_run {
            cached.store()?;
        }
    }
    match args.del.iter().zip(any).find(|(_, any)| !any) {
        Some((glob, _)) => {
            bail!("{glob} matches no cached probe; kymo probe --cache --list shows them")
        }
        None => Ok(()),
    }
}
