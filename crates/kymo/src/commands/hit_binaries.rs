//! The binaries of a perf.data in which samples were taken: what `buildid-list --with-hits` lists
//! and `archive` packs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kymo_analysis::profile::{LoadOptions, Profile};
use kymo_files::perfdata::{BuildIdEntry, PerfData, RecordOrder};
use kymo_model::Sideband;

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

/// Build-ids of a perf.data. Those of a recorder that wrote no table of them (`-B`, or it was
/// killed) are in the records of mappings.
pub(super) fn stated_build_ids(file: &mut PerfData) -> anyhow::Result<Vec<BuildIdEntry>> {
    let mut entries = file.features().build_ids.clone();
    if !entries.is_empty() || file.is_pipe() {
        return Ok(entries);
    }
    let mut seen = BTreeSet::new();
    file.for_each(RecordOrder::File, &mut |record| {
        if let Ok(Some(Sideband::Mmap(mapping))) = Sideband::parse(&record.raw)
            && let Some(build_id) = mapping.build_id
            && seen.insert((build_id.as_bytes().to_vec(), mapping.filename.to_vec()))
        {
            let (misc, pid) = (record.raw.misc.0, mapping.pid.cast_signed());
            entries.push(BuildIdEntry { misc, pid, build_id, filename: mapping.filename.to_vec() });
        }
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}
