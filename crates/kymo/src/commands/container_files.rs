//! Binaries of containers that were recorded, and maps of their just-in-time compilers: copied
//! into the build-id cache while they can be had, so that the recording is resolved when the
//! container has gone.

use std::path::{Path, PathBuf};

use kymo_kernel::descriptors;
use kymo_record::RecordSummary;
use kymo_symbols::build_id_cache::{BinaryToAdd, BuildIdCache};
use kymo_symbols::{Binary, BuildIdDirectory, Finder, ResolverOptions};

/// Copies those that this machine does not have itself; how many, and whereto.
pub(super) fn keep(summary: &mut RecordSummary) -> Option<(usize, PathBuf)> {
    let files = std::mem::take(&mut summary.container_files);
    let directory = BuildIdDirectory::of_user().filter(|_| !files.is_empty())?;
    let (path, cache) = (directory.path().to_owned(), BuildIdCache::new(directory));
    let finder = Finder::new(&ResolverOptions::default());
    let mut kept = 0;
    for file in &files {
        let Some(build_id) = file.build_id else { continue };
        let name = file.name.to_string_lossy();
        let name = Path::new(name.strip_suffix(" (deleted)").unwrap_or(&name));
        let here = Binary { path: name, build_id: Some(build_id), pid: None };
        if finder.binary(&here).is_some() {
            continue;
        }
        let open = descriptors::own_path(&file.file);
        let binary = BinaryToAdd { name, build_id, file: &open, debug: None, probes: "" };
        // The recording is whole without it; its functions will have no names, which is said then.
        kept += usize::from(cache.add(&binary).unwrap_or(false));
    }
    (kept > 0).then_some((kept, path))
}
