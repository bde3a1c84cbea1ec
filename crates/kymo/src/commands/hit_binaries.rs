//! The binaries of a perf.data in which samples were taken: what `buildid-list --with-hits` lists
//! and `archive` packs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kymo_analysis::profile::{LoadOptions, Profile};
use kymo_files::perfdata::PerfData;

use crate::args::symbols::SymbolArgs;

/// Binaries in which samples were taken, or which call chains lead through.
pub(super) fn hit_binaries(file: &mut PerfData, path: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let symbols = SymbolArgs::default().options(path);
    let options = LoadOptions { symbols, merge_threads: true, ..LoadOptions::default() };
    let profile = Profile::read(file, options).context("cannot read the samples")?;
    let frames = profile.events.iter().flat_map(|event| event.stacks());
    let mut binaries = BTreeSet::new();
    for (stack, chain) in frames {
        for frame in chain.iter().chain([stack.leaf]) {
            let dso = profile.frame(frame).dso.and_then(|id| profile.machine.symbols.get(id));
            binaries.extend(dso.map(|dso| dso.path.clone()));
        }
    }
    Ok(binaries)
}
