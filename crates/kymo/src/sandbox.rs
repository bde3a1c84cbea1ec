//! Which commands give up rights before they read a recording, and what they keep: recordings are
//! foreign bytes, which root looks at, too.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ArgMatches;
use kymo_kernel::sandbox::Sandbox;
use kymo_symbols::cache::SymbolCache;
use kymo_symbols::debuginfod::ClientConfig;

/// The flag of those who want all rights.
pub(crate) const NO_SANDBOX: &str = "no-sandbox";

/// Commands that read recordings and start nothing. `view` does so with `-o`.
const READERS: [&str; 6] = ["report", "script", "annotate", "convert", "evlist", "buildid-list"];

/// Those of them that look for no code of processes.
const WITHOUT_SYMBOLS: [&str; 2] = ["evlist", "buildid-list"];

/// Gives up what a command does not need. To be called before any thread begins.
pub(crate) fn enter(name: &str, matches: &ArgMatches) -> anyhow::Result<()> {
    let path = |id: &str| matches.try_get_one::<PathBuf>(id).ok().flatten();
    let output = path("output");
    let is_reader = READERS.contains(&name) || name == "view" && output.is_some();
    if !is_reader || matches.get_flag(NO_SANDBOX) {
        return Ok(());
    }
    let mut sandbox = Sandbox::default();
    if !WITHOUT_SYMBOLS.contains(&name) {
        sandbox.keep_roots();
    }
    let files = output.into_iter().chain(path(crate::LEDGER_FILE));
    for file in files.filter(|file| file.as_os_str() != "-") {
        // Where a link leads to another directory, the file is in that one.
        let target = std::fs::canonicalize(file);
        sandbox.allow_writes(existing_parent(file));
        sandbox.allow_writes(existing_parent(target.as_deref().unwrap_or(file)));
        sandbox.allow_files_of_others();
    }
    if let Some(cache) = SymbolCache::of_user() {
        // A directory that is not there cannot be allowed.
        let _ = cache.make_directory();
        sandbox.allow_writes(cache.directory());
    }
    let asks = !matches!(matches.try_get_one::<bool>("no_debuginfod"), Ok(Some(true)));
    if let Some(client) = ClientConfig::from_env().filter(|_| asks) {
        let _ = std::fs::create_dir_all(&client.cache);
        sandbox.allow_writes(client.cache);
        sandbox.allow_network();
    }
    if output.is_none() {
        crate::screen::prepare();
    }
    sandbox.enter().context("cannot give up rights (--no-sandbox keeps them)")
}

/// The directory above a path, or above that, which is there.
fn existing_parent(path: &Path) -> PathBuf {
    let parents = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty());
    let found = parents.into_iter().find(|p| p.is_dir());
    found.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
