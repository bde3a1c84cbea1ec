//! `kymo cache`: what earlier runs found about binaries and keep on disk, and how to
//! be rid of it.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use globset::{Glob, GlobMatcher};
use kymo_model::counted;
use kymo_symbols::cache::{CachedFile, SymbolCache};

/// Flags of `kymo cache`.
#[derive(clap::Args)]
#[command(after_long_help = "\
CONTENTS
The cache holds functions and lines of resolved addresses, an index of each probed binary, and,
until the next boot, the symbols of the kernel. It has one file per binary and kind, named after the
build-id. kymo reads only files with correct checksums that no other user can write to; others are
reported and rebuilt.

ENVIRONMENT
KYMO_CACHE       cache directory, or `off` to disable the cache
XDG_CACHE_HOME   base directory: $XDG_CACHE_HOME/kymo instead of ~/.cache/kymo
The cache is limited to 1 GiB; the least recently used files are removed first.")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show the cached binaries: size, age, kind, build-id and path
    List {
        /// Only binaries with a matching path, name or build-id
        #[arg(value_name = "GLOB")]
        which: Vec<String>,
    },
    /// Remove cached entries
    Clear {
        /// Only binaries with a matching path, name or build-id
        #[arg(value_name = "GLOB")]
        which: Vec<String>,
        /// Only entries not used for this long: 90s, 30m, 12h, 7d, 2w
        #[arg(long, value_name = "AGE", value_parser = age)]
        older_than: Option<Duration>,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(cache) = SymbolCache::of_user() else {
        bail!("there is no cache: KYMO_CACHE disables it, or there is no home directory");
    };
    match args.action {
        Action::List { which } => list(&cache, &chosen(&cache, &which, None)?),
        Action::Clear { which, older_than } => clear(&chosen(&cache, &which, older_than)?),
    }
}

fn age(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err("an age is a number and one of s, m, h, d, w".into()),
    };
    let number: u64 = number.parse().map_err(|_| "an age starts with a number")?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

fn chosen(
    cache: &SymbolCache,
    which: &[String],
    older_than: Option<Duration>,
) -> anyhow::Result<Vec<CachedFile>> {
    let globs: Vec<GlobMatcher> = which
        .iter()
        .map(|g| {
            Ok(Glob::new(g)
                .with_context(|| {
                    format!(
                        "invalid pattern: \
                                                          {g}"
                    )
                })?
                .compile_matcher())
        })
        .collect::<anyhow::Result<_>>()?;
    let mut all = cache.list()?;
    all.retain(|file| {
        let name = file.label.rsplit('/').next().unwrap_or_default();
        let id = file.key.map(|k| k.to_string()).unwrap_or_default();
        let named = |g: &GlobMatcher| [&*file.label, name, &*id].iter().any(|n| g.is_match(n));
        let old = older_than.is_none_or(|least| unused(file) >= least);
        old && (globs.is_empty() || globs.iter().any(named))
    });
    Ok(all)
}

/// Returns the time since a file was last used.
fn unused(file: &CachedFile) -> Duration {
    SystemTime::now().duration_since(file.used).unwrap_or_default()
}

fn list(cache: &SymbolCache, files: &[CachedFile]) -> anyhow::Result<ExitCode> {
    let mut out = crate::streams::stdout().lock();
    if files.is_empty() {
        writeln!(out, "nothing is kept in {}", cache.directory().display())?;
        return Ok(ExitCode::SUCCESS);
    }
    for file in files {
        let id = file.key.map_or_else(|| "?".into(), |k| k.to_string());
        let label = if file.label.is_empty() { "(damaged)" } else { &file.label };
        let (size, age) = (size(file.size), short(unused(file)));
        writeln!(out, "{size:>9}  {age:>4}  {:<8}  {id:<40}  {label}", file.kind)?;
    }
    let total: u64 = files.iter().map(|f| f.size).sum();
    let files = counted(files.len() as u64, "file", "files");
    writeln!(out, "{} in {files} in {}", size(total), cache.directory().display())?;
    Ok(ExitCode::SUCCESS)
}

fn clear(files: &[CachedFile]) -> anyhow::Result<ExitCode> {
    let mut freed = 0;
    for file in files {
        std::fs::remove_file(&file.path)
            .with_context(|| format!("cannot remove {}", file.path.display()))?;
        freed += file.size;
    }
    let files = counted(files.len() as u64, "file", "files");
    writeln!(crate::streams::stdout(), "{files} removed, {}", size(freed))?;
    Ok(ExitCode::SUCCESS)
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// A duration in its largest unit.
fn short(age: Duration) -> String {
    match age.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}
