//! perf's build-id cache: binaries are copied into it and removed from it, so that recordings
//! are resolved after the binaries have changed. Where what lies is
//! [`BuildIdDirectory`]'s; the files are looked up there by [`Finder`](crate::Finder).
//!
//! Files are copied, where perf makes hard links: a link would change with the binary.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Seek as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use kymo_kernel::output_file::{self, Existing, PRIVATE};
use kymo_model::BuildId;

use crate::build_id_directory::BuildIdDirectory;
use crate::compressed_modules;
use crate::files::{KERNEL, build_id_of, running_build_id, same};

/// A build-id cache.
#[derive(Clone, Debug)]
pub struct BuildIdCache {
    directory: BuildIdDirectory,
}

/// A binary in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedBinary {
    /// Its build-id.
    pub build_id: BuildId,
    /// Its path, or the name of what is no file (`[kernel.kallsyms]`).
    pub name: PathBuf,
}

/// Binary to be added to the cache.
#[derive(Clone, Copy, Debug)]
pub struct BinaryToAdd<'a> {
    /// Its path as recordings have it: absolute, without symbolic links.
    pub name: &'a Path,
    /// Its build-id.
    pub build_id: BuildId,
    /// The file itself.
    pub file: &'a Path,
    /// Its debug file.
    pub debug: Option<&'a Path>,
    /// Its USDT probes in the form of perf's file `probes`; empty if it has none.
    pub probes: &'a str,
}

impl CachedBinary {
    /// Whether the binary is still what was cached: then perf lists it.
    pub fn is_current(&self) -> bool {
        let now = match self.name.is_absolute() {
            true => build_id_of(&self.name),
            false if self.name == Path::new(KERNEL) => running_build_id(),
            false => None,
        };
        now.is_some_and(|now| same(Some(now), Some(self.build_id)))
    }
}

impl BuildIdCache {
    /// The cache in a directory, which need not be there yet.
    pub fn new(directory: BuildIdDirectory) -> BuildIdCache {
        BuildIdCache { directory }
    }

    /// Binaries in the cache, by build-id. Dangling links are left out.
    ///
    /// # Errors
    /// If the directory exists and cannot be read.
    pub fn binaries(&self) -> io::Result<Vec<CachedBinary>> {
        let linked = self.linked()?;
        Ok(linked.into_iter().filter(|binary| self.holds(binary.build_id)).collect())
    }

    /// Whether there is something of this build.
    pub fn holds(&self, id: BuildId) -> bool {
        self.directory.link(id).is_some_and(|link| link.is_dir())
    }

    /// Puts a binary in. `false`: it was there.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub fn add(&self, binary: &BinaryToAdd<'_>) -> io::Result<bool> {
        if self.directory.link(binary.build_id).is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "its build-id is too short"));
        }
        if self.holds(binary.build_id) {
            return Ok(false);
        }
        let files = self.directory.files_of(binary.name, binary.build_id);
        fs::create_dir_all(&files)?;
        copy(binary.file, &files.join("elf"))?;
        if let Some(debug) = binary.debug {
            copy(debug, &files.join("debug"))?;
        }
        if !binary.probes.is_empty() {
            replace(&files.join("probes"), |file| file.write_all(binary.probes.as_bytes()))?;
        }
        self.link(binary.name, binary.build_id)?;
        Ok(true)
    }

    /// Removes what is of this build. `false`: there was nothing.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, id: BuildId) -> io::Result<bool> {
        let Some(link) = self.directory.link(id) else { return Ok(false) };
        let Some(name) = name_at(&link, id) else { return Ok(false) };
        fs::remove_file(&link)?;
        self.drop_empty(link.parent());
        self.remove_files(&name, id)?;
        Ok(true)
    }

    /// Removes all builds of a binary, and says which they were.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn purge(&self, name: &Path) -> io::Result<Vec<BuildId>> {
        let mut ids: Vec<BuildId> = names_in(&self.directory.builds_of(name))?
            .iter()
            .filter_map(|name| BuildId::parse(name))
            .collect();
        ids.sort_by_key(BuildId::to_string);
        for id in &ids {
            let link = self.directory.link(*id);
            // The link may belong to a copy of the binary at another path.
            let linked = link.and_then(|link| name_at(&link, *id));
            if linked.is_some_and(|linked| linked == name) {
                self.remove(*id)?;
            } else {
                self.remove_files(name, *id)?;
            }
        }
        Ok(ids)
    }

    /// Removes everything that has a link, and returns it.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub fn purge_all(&self) -> io::Result<Vec<CachedBinary>> {
        let linked = self.linked()?;
        for binary in &linked {
            self.remove(binary.build_id)?;
        }
        Ok(linked)
    }

    /// All links, by build-id.
    fn linked(&self) -> io::Result<Vec<CachedBinary>> {
        let links = self.directory.links();
        let mut found = Vec::new();
        for head in names_in(&links)? {
            for tail in names_in(&links.join(&head))? {
                let link = links.join(&head).join(&tail);
                let Some(build_id) = BuildId::parse(&format!("{head}{tail}")) else { continue };
                if let Some(name) = name_at(&link, build_id) {
                    found.push(CachedBinary { build_id, name });
                }
            }
        }
        found.sort_by_key(|binary| binary.build_id.to_string());
        Ok(found)
    }

    /// Makes the link by build-id, by which all of a binary is found. It replaces another.
    pub(crate) fn link(&self, name: &Path, id: BuildId) -> io::Result<()> {
        let Some(link) = self.directory.link(id) else { return Ok(()) };
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent)?;
        }
        let unfinished = unfinished(&link);
        symlink(relative_target(name, id), &unfinished)?;
        fs::rename(&unfinished, &link).inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }

    /// The name of the binary of this build, and the files that the cache has of it.
    ///
    /// # Errors
    /// If its directory cannot be read.
    pub(crate) fn files_of(&self, id: BuildId) -> io::Result<Option<(PathBuf, Vec<PathBuf>)>> {
        let Some(link) = self.directory.link(id).filter(|link| link.is_dir()) else {
            return Ok(None);
        };
        let Some(name) = name_at(&link, id) else { return Ok(None) };
        let files = self.directory.files_of(&name, id);
        let mut names = names_in(&files)?;
        names.sort();
        let files = names.iter().map(|name| files.join(name)).filter(|file| file.is_file());
        Ok(Some((name, files.collect())))
    }

    /// The directory that it is in.
    pub fn directory(&self) -> &BuildIdDirectory {
        &self.directory
    }

    fn remove_files(&self, name: &Path, id: BuildId) -> io::Result<()> {
        let files = self.directory.files_of(name, id);
        match fs::remove_dir_all(&files) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            done => done?,
        }
        self.drop_empty(files.parent());
        Ok(())
    }

    /// Removes a directory and those above it, up to the cache's, as far as they are empty.
    fn drop_empty(&self, mut directory: Option<&Path>) {
        while let Some(path) = directory.filter(|path| *path != self.directory.path()) {
            if fs::remove_dir(path).is_err() {
                return;
            }
            directory = path.parent();
        }
    }
}

/// Target of a link by build-id: `../../PATH/BUILDID`.
pub(crate) fn relative_target(name: &Path, id: BuildId) -> PathBuf {
    let name = name.strip_prefix("/").unwrap_or(name);
    Path::new("../..").join(name).join(id.to_string())
}

/// The name of the binary that a link by build-id belongs to. `None` of what no link of a
/// cache is.
fn name_at(link: &Path, id: BuildId) -> Option<PathBuf> {
    name_of_target(&fs::read_link(link).ok()?, id)
}

/// The name of the binary that a link by build-id with this target belongs to.
pub(crate) fn name_of_target(target: &Path, id: BuildId) -> Option<PathBuf> {
    let inside = target.strip_prefix("../..").ok()?;
    let name = inside.parent()?;
    let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    let of_id = inside.file_name()?.to_str()? == id.to_string();
    let first = name.components().next().filter(|_| plain && of_id)?;
    // What is no file has a name in brackets.
    let special = first.as_os_str().as_encoded_bytes().starts_with(b"[");
    Some(if special { name.to_owned() } else { Path::new("/").join(name) })
}

/// Names of the entries of a directory, none if no such directory.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Copies a file; of a packed module what it is unpacked.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = compressed_modules::open(from)?;
    let mode = file.metadata()?.permissions().mode();
    // The position of an unpacked module is shared with earlier readers.
    file.rewind()?;
    replace(to, |copy| {
        io::copy(&mut file, copy)?;
        // Nothing of a set-user-id bit, which would be this user's.
        copy.set_permissions(Permissions::from_mode(mode & 0o755 | 0o600))
    })
}

/// Writes a file that replaces another as a whole.
pub(crate) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    output_file::write_whole(path, PRIVATE, Existing::Replace, write)
}

/// A path beside `path` for what is not finished.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        home: tempfile::TempDir,
        cache: BuildIdCache,
        id: BuildId,
    }

    impl Case {
        fn new() -> Case {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join("program"), "bytes").unwrap();
            let cache = BuildIdCache::new(BuildIdDirectory::at(home.path().join("cache")));
            Case { home, cache, id: BuildId::new(&[0xab; 20]) }
        }

        fn add(&self, name: &str, id: BuildId) -> io::Result<bool> {
            let file = &self.home.path().join("program");
            let name = Path::new(name);
            self.cache.add(&BinaryToAdd { name, build_id: id, file, debug: None, probes: "" })
        }

        fn names(&self) -> Vec<String> {
            let all = self.cache.binaries().unwrap();
            all.iter().map(|binary| binary.name.display().to_string()).collect()
        }

        /// Files and links below the cache.
        fn left(&self) -> Vec<PathBuf> {
            names_in(self.cache.directory.path()).unwrap().into_iter().map(PathBuf::from).collect()
        }
    }

    #[test]
    fn what_is_added_is_found_by_its_build_id_and_removed_without_a_trace() {
        let case = Case::new();
        assert!(case.names().is_empty());
        assert!(case.add("/bin/a b", case.id).unwrap());
        assert!(!case.add("/bin/elsewhere", case.id).unwrap(), "it is there");
        let link = case.cache.directory.link(case.id).unwrap();
        assert_eq!(
            fs::read_link(&link).unwrap(),
            PathBuf::from(format!("../../bin/a b/{}", case.id))
        );
        assert_eq!(fs::read_to_string(link.join("elf")).unwrap(), "bytes");
        assert_eq!(case.names(), ["/bin/a b"]);
        assert!(case.cache.remove(case.id).unwrap());
        assert!(!case.cache.remove(case.id).unwrap());
        assert_eq!(case.left(), Vec::<PathBuf>::new());
    }

    #[test]
    fn all_builds_of_a_path_are_purged_and_no_other() {
        let case = Case::new();
        let ids = [1, 2, 3].map(|n| BuildId::new(&[n; 20]));
        assert!(case.add("/bin/a", ids[0]).unwrap());
        assert!(case.add("/bin/a", ids[1]).unwrap());
        assert!(case.add("/bin/b", ids[2]).unwrap());
        assert_eq!(case.cache.purge(Path::new("/bin/a")).unwrap(), ids[..2]);
        assert_eq!(case.names(), ["/bin/b"]);
        assert_eq!(case.cache.purge(Path::new("/bin/a")).unwrap(), []);
        assert_eq!(case.cache.purge_all().unwrap().len(), 1);
        assert_eq!(case.left(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_replaced_and_one_that_leads_out_is_left_alone() {
        let case = Case::new();
        let link = case.cache.directory.link(case.id).unwrap();
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(relative_target(Path::new("/gone"), case.id), &link).unwrap();
        assert!(case.names().is_empty());
        assert!(case.add("/bin/a", case.id).unwrap());
        assert_eq!(case.names(), ["/bin/a"]);
        fs::remove_file(&link).unwrap();
        let precious = case.home.path().join("precious").join(case.id.to_string());
        fs::create_dir_all(&precious).unwrap();
        for target in [precious.clone(), Path::new("../../../precious").join(case.id.to_string())] {
            symlink(target, &link).unwrap();
            assert!(!case.cache.remove(case.id).unwrap());
            assert_eq!(case.cache.purge_all().unwrap(), []);
            assert!(precious.is_dir());
            fs::remove_file(&link).unwrap();
        }
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing_to_be_found() {
        let case = Case::new();
        fs::remove_file(case.home.path().join("program")).unwrap();
        assert!(case.add("/bin/a", case.id).is_err());
        assert!(case.names().is_empty());
        assert!(!case.cache.holds(case.id));
    }
}
