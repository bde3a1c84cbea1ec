//! Candidate paths of files: the directories that distributions, debuggers and perf agree on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use kymo_debuginfo::DebugLink;
use kymo_kernel::system::SystemRoot;
use kymo_model::BuildId;

use super::{Binary, Module, kernel};
use crate::build_id_directory::BuildIdDirectory;
use crate::compressed_modules::plain_name;
use crate::debug_directories;

/// Directories that all candidates are below.
#[derive(Debug)]
pub(super) struct SearchRoots {
    symfs: Option<PathBuf>,
    build_ids: Option<BuildIdDirectory>,
}

/// A path where a binary may be.
pub(super) struct CandidateFile {
    pub(super) path: PathBuf,
    /// The recorded path means this place; elsewhere only a build-id confirms it.
    pub(super) certain: bool,
}

const GLOBAL: &str = "/usr/lib/debug";

impl Default for SearchRoots {
    fn default() -> SearchRoots {
        SearchRoots::new(None)
    }
}

impl SearchRoots {
    pub(super) fn new(symfs: Option<PathBuf>) -> SearchRoots {
        SearchRoots { symfs, build_ids: BuildIdDirectory::of_user() }
    }

    /// Whether the user named a root to look under.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.symfs.is_some()
    }

    /// A path of the recorded machine.
    pub(super) fn under(&self, path: &Path) -> PathBuf {
        match &self.symfs {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_path_buf(),
        }
    }

    /// perf keeps copies of recorded files in its build-id cache.
    pub(super) fn cached(&self, id: BuildId, name: &str) -> Option<PathBuf> {
        self.build_ids.as_ref()?.file(id, name)
    }

    fn global(&self, id: BuildId) -> Option<PathBuf> {
        let (head, tail) = split(id)?;
        let name = format!(".build-id/{head}/{tail}.debug");
        Some(self.under(&Path::new(GLOBAL).join(name)))
    }

    /// Candidates for the binary itself.
    pub(super) fn binary(&self, binary: &Binary<'_>) -> Vec<CandidateFile> {
        if binary.path == Path::new("[vdso]") {
            let cached = binary.build_id.and_then(|id| self.cached(id, "vdso"));
            return cached.map(|path| CandidateFile { path, certain: false }).into_iter().collect();
        }
        let mut places = vec![CandidateFile { path: self.under(binary.path), certain: true }];
        let mut may_be = |path: PathBuf| places.push(CandidateFile { path, certain: false });
        let text = binary.path.to_string_lossy();
        let kept = text.strip_suffix(" (deleted)");
        if let Some(kept) = kept {
            may_be(self.under(Path::new(kept)));
            // While a process lives its mapping leads to the file that has no name any more.
            if let (Some(pid), None) = (binary.pid, &self.symfs)
                && let Some(path) = SystemRoot::machine().file_mapped_as(pid, binary.path)
            {
                may_be(path);
            }
        }
        // While a process lives, its root shows the contents of its container.
        if let (Some(pid), None, Some(inside)) =
            (binary.pid, &self.symfs, text.strip_prefix('/').filter(|_| kept.is_none()))
        {
            may_be(SystemRoot::machine().root_of(pid).join(inside));
        }
        if let Some(path) = binary.build_id.and_then(|id| self.cached(id, "elf")) {
            may_be(path);
        }
        places
    }

    /// Candidates for a separate debug file of the binary at `own`.
    pub(super) fn debug(
        &self,
        own: &Path,
        id: Option<BuildId>,
        link: Option<&DebugLink>,
    ) -> Vec<PathBuf> {
        let root = self.symfs.as_deref().unwrap_or(Path::new("/"));
        let mut places = debug_directories::candidates(own, root, id, link);
        if let Some(id) = id {
            places.extend(self.global(id));
            places.extend(self.cached(id, "debug"));
            places.extend(self.cached(id, "elf"));
        }
        let Some(directory) = own.parent() else { return places };
        // Debug directories repeat the path on the recorded machine.
        let inside = directory.strip_prefix(root).unwrap_or(directory);
        let global = self.under(Path::new(GLOBAL)).join(inside.strip_prefix("/").unwrap_or(inside));
        let name = link
            .and_then(|link| std::str::from_utf8(&link.name).ok())
            .filter(|name| !name.is_empty() && !name.contains('/'));
        if let Some(name) = name {
            places.push(directory.join(name));
            places.push(directory.join(".debug").join(name));
            places.push(global.join(name));
        }
        if let (Some(_), Some(name)) = (id, own.file_name()) {
            let plain = name.to_str().map_or(name, |name| OsStr::new(plain_name(name)));
            let mut named = plain.to_os_string();
            named.push(".debug");
            places.push(global.join(named));
            // Debug files of modules have the modules' names, and may be packed, too.
            if plain.as_encoded_bytes().ends_with(b".ko") {
                places.extend([global.join(plain), global.join(name)]);
            }
        }
        places
    }

    /// Candidates for a file that several debug files share.
    pub(super) fn supplement(&self, of: &Path, name: &Path, id: BuildId) -> Vec<PathBuf> {
        let mut places = vec![if name.is_absolute() {
            self.under(name)
        } else {
            of.parent().unwrap_or(Path::new("/")).join(name)
        }];
        // A debug file reached through a link has its relative names elsewhere.
        if let Ok(real) = std::fs::canonicalize(of)
            && let Some(directory) = real.parent()
        {
            places.push(directory.join(name));
        }
        places.extend(self.global(id));
        places.extend(self.cached(id, "debug"));
        if let Some(name) = name.file_name() {
            places.push(self.under(&Path::new(GLOBAL).join(".dwz").join(name)));
        }
        places
    }

    /// Candidates for a kernel's image.
    pub(super) fn vmlinux(&self, release: Option<&str>, id: BuildId) -> Vec<PathBuf> {
        let mut places: Vec<PathBuf> = Vec::new();
        places.extend(self.cached(id, "vmlinux"));
        places.extend(self.cached(id, "elf"));
        places.extend(self.global(id));
        let named = release.map(kernel::vmlinux_places).unwrap_or_default();
        places.extend(named.iter().map(|p| self.under(p)));
        places
    }

    /// Candidates for a kernel module.
    pub(super) fn module(&self, module: &Module<'_>) -> Vec<PathBuf> {
        let mut places: Vec<PathBuf> = module.path.map(|p| self.under(p)).into_iter().collect();
        if let Some(id) = module.build_id {
            places.extend(self.global(id));
            places.extend(self.cached(id, "debug"));
            places.extend(self.cached(id, "elf"));
        }
        let roots = module.release.map(kernel::module_roots);
        let below = |root: &PathBuf| kernel::module_below(&self.under(root), module.name);
        places.extend(roots.iter().flatten().filter_map(below));
        places
    }
}

/// A build-id's directory and the rest.
fn split(id: BuildId) -> Option<(String, String)> {
    let hex = id.to_string();
    let (head, tail) = hex.split_at_checked(2)?;
    (!tail.is_empty()).then(|| (head.to_owned(), tail.to_owned()))
}
