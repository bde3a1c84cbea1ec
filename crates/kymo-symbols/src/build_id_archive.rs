//! Archives of binaries by build-id, as `perf archive` makes them: a tar packed by bzip2 of a
//! part of a build-id cache, to be unpacked into the cache of another machine.
//!
//! Binaries that are not in the cache are taken from where they are: recordings of kymo copy
//! none. What an archive holds may come from anywhere: only what a cache can hold is unpacked.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

use bzip2::Compression;
use bzip2::read::MultiBzDecoder;
use bzip2::write::BzEncoder;
use kymo_debuginfo::LazyElf;
use kymo_kernel::mapped::MappedFile;
use kymo_kernel::system::SystemRoot;
use kymo_kernel::vdso;
use kymo_model::BuildId;

use crate::Kallsyms;
use crate::build_id_cache::{BuildIdCache, name_of_target, relative_target, replace};
use crate::bundle::tar::{self, MemberKind};
use crate::compressed_modules;
use crate::files::{Binary, Finder, KERNEL, running_build_id, same};

/// The archive of binaries within one that has the recording, too.
pub const INNER: &str = "perf.symbols.tar.bz2";

/// Members of an archive that is believed.
const MOST_MEMBERS: usize = 1 << 20;

/// Writes an archive.
pub struct ArchiveWriter<W: Write> {
    tar: tar::Writer<BzEncoder<W>>,
}

/// Contents of a file of an archive.
enum FileContents {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

/// A binary and its files, by their names in the cache.
type BinaryContents = (PathBuf, Vec<(String, FileContents)>);

impl<W: Write> ArchiveWriter<W> {
    /// An archive without contents.
    pub fn new(out: W) -> ArchiveWriter<W> {
        ArchiveWriter { tar: tar::Writer::new(BzEncoder::new(out, Compression::best())) }
    }

    /// Adds what there is of a binary. `false`: there is nothing, neither in the cache nor
    /// where the binary was.
    ///
    /// # Errors
    /// If something cannot be read or written.
    pub fn add_binary(
        &mut self,
        cache: &BuildIdCache,
        finder: &Finder,
        name: &Path,
        id: BuildId,
    ) -> io::Result<bool> {
        let (name, files) = match cached(cache, id)? {
            Some(cached) => cached,
            None => (name.to_owned(), found(finder, name, id)),
        };
        let root = cache.directory().path();
        let Some(link) = cache.directory().link(id).filter(|_| !files.is_empty()) else {
            return Ok(false);
        };
        let link = link.strip_prefix(root).unwrap_or(&link);
        let target = relative_target(&name, id);
        self.tar.link(&link.to_string_lossy(), &target.to_string_lossy())?;
        let directory = target.strip_prefix("../..").unwrap_or(&target);
        for (file, contents) in files {
            let member = directory.join(file).to_string_lossy().into_owned();
            match contents {
                FileContents::Path(path) => self.add_file(&member, &path)?,
                FileContents::Bytes(bytes) => self.tar.file(&member, &bytes)?,
            }
        }
        Ok(true)
    }

    /// Adds a file.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn add_file(&mut self, name: &str, path: &Path) -> io::Result<()> {
        let fail = |e: Error| Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = MappedFile::of(&compressed_modules::open(path).map_err(fail)?).map_err(fail)?;
        self.tar.file(name, file.bytes())
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.tar.finish()?.finish()
    }
}

/// Files of a build in the cache.
fn cached(cache: &BuildIdCache, id: BuildId) -> io::Result<Option<BinaryContents>> {
    let Some((name, paths)) = cache.files_of(id)? else { return Ok(None) };
    let file = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some((name, FileContents::Path(path)))
    };
    Ok(Some((name, paths.into_iter().filter_map(file).collect())))
}

/// Files of a build on this machine outside of the cache.
fn found(finder: &Finder, name: &Path, id: BuildId) -> Vec<(String, FileContents)> {
    let of_id = |found: Option<BuildId>| found.is_some_and(|found| same(Some(found), Some(id)));
    let mut files = Vec::new();
    if name == Path::new(KERNEL) {
        let text = SystemRoot::machine().kallsyms_text().ok().filter(|_| of_id(running_build_id()));
        let bytes = text.map(String::into_bytes);
        // Symbols without addresses resolve nothing.
        let bytes = bytes.filter(|bytes| !Kallsyms::parse(bytes.clone()).hidden());
        files.extend(bytes.map(|bytes| ("kallsyms".to_owned(), FileContents::Bytes(bytes))));
    } else if name == Path::new("[vdso]") {
        let own = vdso::own()
            .filter(|bytes| LazyElf::parse(bytes.as_slice()).is_ok_and(|elf| of_id(elf.build_id)));
        files.extend(own.map(|bytes| ("vdso".to_owned(), FileContents::Bytes(bytes))));
    } else if name.is_absolute() {
        let binary = Binary { path: name, build_id: Some(id), pid: None };
        let own = finder.binary(&binary);
        let debug = finder.dwarf(&binary).filter(|debug| Some(debug) != own.as_ref());
        files.extend(own.map(|path| ("elf".to_owned(), FileContents::Path(path))));
        files.extend(debug.map(|path| ("debug".to_owned(), FileContents::Path(path))));
    }
    files
}

/// Result of unpacking an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnpackedArchive {
    /// Binaries that the cache has now.
    pub binaries: usize,
    /// Members that no cache can hold.
    pub refused: Vec<String>,
}

/// Unpacks an archive into a cache. Files that are not for the cache, the recording of an
/// archive that has it, are given to `other` by their names, which have no slash.
///
/// # Errors
/// If the archive is damaged, or something cannot be written.
pub fn unpack(
    archive: impl Read,
    cache: &BuildIdCache,
    other: &mut dyn FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> io::Result<UnpackedArchive> {
    unpack_tar(&mut MultiBzDecoder::new(archive), cache, other)
}

/// Unpacks the tar of an archive, as [`unpack`].
///
/// # Errors
/// As [`unpack`].
pub fn unpack_tar(
    tar: &mut dyn Read,
    cache: &BuildIdCache,
    other: &mut dyn FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> io::Result<UnpackedArchive> {
    let mut unpacking = Unpacking { cache, links: BTreeSet::new(), refused: Vec::new() };
    unpacking.visit(tar, Some(other))?;
    let mut unpacked = UnpackedArchive { refused: unpacking.refused, ..Default::default() };
    // Last: what is linked is complete.
    for (name, id) in unpacking.links {
        let id = BuildId::parse(&id).filter(|id| cache.directory().files_of(&name, *id).is_dir());
        if let Some(id) = id {
            cache.link(&name, id)?;
            unpacked.binaries += 1;
        }
    }
    Ok(unpacked)
}

struct Unpacking<'a> {
    cache: &'a BuildIdCache,
    /// Names and build-ids.
    links: BTreeSet<(PathBuf, String)>,
    refused: Vec<String>,
}

type OtherFiles<'a> = &'a mut dyn FnMut(&str, &mut dyn Read) -> io::Result<()>;

impl Unpacking<'_> {
    fn visit(&mut self, tar: &mut dyn Read, mut other: Option<OtherFiles<'_>>) -> io::Result<()> {
        tar::visit_members(&mut *tar, |name, kind, bytes| {
            if self.links.len() + self.refused.len() > MOST_MEMBERS {
                return Err(Error::new(ErrorKind::InvalidData, "it has too many members"));
            }
            match (kind, &mut other) {
                (MemberKind::File, Some(_)) if name == INNER => {
                    self.visit(&mut MultiBzDecoder::new(bytes), None)
                }
                (MemberKind::File, Some(other)) if is_file_name(name) => other(name, bytes),
                _ => self.member(name, kind, bytes),
            }
        })?;
        // The checksum stands behind the end of the tar.
        io::copy(tar, &mut io::sink()).map(drop)
    }

    fn member(&mut self, name: &str, kind: &MemberKind, bytes: &mut dyn Read) -> io::Result<()> {
        let taken = match kind {
            MemberKind::File => match self.place(name) {
                Some(place) => {
                    put(&place, bytes)?;
                    true
                }
                None => false,
            },
            MemberKind::HardLink(target) => match (self.place(name), self.place(target)) {
                (Some(place), Some(first)) => {
                    put(&place, &mut fs::File::open(first)?)?;
                    true
                }
                _ => false,
            },
            MemberKind::Link(target) => match linked(name, target) {
                Some(link) => {
                    self.links.insert(link);
                    true
                }
                None => false,
            },
            MemberKind::Other => true,
        };
        if !taken {
            self.refused.push(name.to_owned());
        }
        Ok(())
    }

    /// Path in the cache of a binary's file. `None` for an invalid name.
    fn place(&self, name: &str) -> Option<PathBuf> {
        let parts: Vec<&str> = Path::new(name)
            .components()
            .map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect::<Option<_>>()?;
        let [first, .., _] = parts.as_slice() else { return None };
        let (_, directories) = parts.split_last()?;
        let has_id = directories.iter().skip(1).any(|part| BuildId::parse(part).is_some());
        if *first == ".build-id" || !has_id {
            return None;
        }
        Some(self.cache.directory().path().join(parts.iter().collect::<PathBuf>()))
    }
}

/// Puts a file into the cache.
fn put(place: &Path, bytes: &mut dyn Read) -> io::Result<()> {
    if let Some(directory) = place.parent() {
        fs::create_dir_all(directory)?;
    }
    replace(place, |file| io::copy(bytes, file).map(drop))
}

/// Binary and build-id of a link by build-id.
fn linked(name: &str, target: &str) -> Option<(PathBuf, String)> {
    let (head, tail) = name.strip_prefix(".build-id/")?.split_once('/')?;
    let hex = format!("{head}{tail}");
    let id = BuildId::parse(&hex).filter(|id| head.len() == 2 && id.to_string() == hex)?;
    Some((name_of_target(Path::new(target), id)?, hex))
}

/// Whether this is the name of a file, and of nothing elsewhere; of a hidden file no recording
/// has one.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BuildIdDirectory;

    fn cache(root: &Path) -> BuildIdCache {
        BuildIdCache::new(BuildIdDirectory::at(root.join("cache")))
    }

    /// An archive with these members.
    fn archive(make: impl FnOnce(&mut tar::Writer<BzEncoder<Vec<u8>>>)) -> Vec<u8> {
        let mut tar = tar::Writer::new(BzEncoder::new(Vec::new(), Compression::fast()));
        make(&mut tar);
        tar.finish().unwrap().finish().unwrap()
    }

    fn none(name: &str, _: &mut dyn Read) -> io::Result<()> {
        panic!("{name} is for the cache")
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let root = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let id = crate::files::build_id_of(&program);
        let Some(id) = id else { return };
        let mut writer = ArchiveWriter::new(Vec::new());
        let (from, finder) = (cache(&root.path().join("nothing")), Finder::default());
        assert!(writer.add_binary(&from, &finder, &program, id).unwrap());
        let other = BuildId::new(&[1; 20]);
        assert!(!writer.add_binary(&from, &finder, Path::new("/nowhere"), other).unwrap());
        let bytes = writer.finish().unwrap();
        let to = cache(root.path());
        let unpacked = unpack(bytes.as_slice(), &to, &mut none).unwrap();
        assert_eq!(unpacked, UnpackedArchive { binaries: 1, refused: Vec::new() });
        let (name, files) = to.files_of(id).unwrap().unwrap();
        assert_eq!(name, program);
        assert_eq!(fs::read(&files[0]).unwrap(), fs::read(&program).unwrap());
    }

    #[test]
    fn nothing_is_written_outside_of_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let to = cache(root.path());
        let hex = "ab".repeat(20);
        let names = [
            format!("../out/{hex}/elf"),
            format!("/out/{hex}/elf"),
            format!("bin/../../{hex}/elf"),
            format!(".build-id/ab/{}/elf", &hex[2..]),
            "bin/ls/elf".to_owned(),
            "perf.data/".to_owned(),
        ];
        let hidden = ".bashrc";
        let links = [
            (format!(".build-id/ab/{}", &hex[2..]), format!("../../../out/{hex}")),
            (format!(".build-id/ab/{}", &hex[2..]), format!("/out/{hex}")),
            (format!(".build-id/../{hex}"), format!("../../out/{hex}")),
            ("bin".to_owned(), "/".to_owned()),
        ];
        let bytes = archive(|tar| {
            names.iter().for_each(|name| tar.file(name, b"x").unwrap());
            links.iter().for_each(|(name, target)| tar.link(name, target).unwrap());
            tar.file(hidden, b"x").unwrap();
        });
        let unpacked = unpack(bytes.as_slice(), &to, &mut none).unwrap();
        assert_eq!(unpacked.binaries, 0);
        assert_eq!(unpacked.refused.len(), names.len() + links.len() + 1);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_recording_comes_beside_the_binaries() {
        let root = tempfile::tempdir().unwrap();
        let (to, hex) = (cache(root.path()), "ab".repeat(20));
        let inner = archive(|tar| {
            let link = format!(".build-id/ab/{}", &hex[2..]);
            tar.link(&link, &format!("../../bin/ls/{hex}")).unwrap();
            tar.file(&format!("bin/ls/{hex}/elf"), b"code").unwrap();
            tar.file(INNER, b"not within itself").unwrap();
        });
        let outer = archive(|tar| {
            tar.file("perf.data", b"samples").unwrap();
            tar.file(INNER, &inner).unwrap();
        });
        let mut others = Vec::new();
        let mut other = |name: &str, bytes: &mut dyn Read| {
            let mut text = String::new();
            bytes.read_to_string(&mut text)?;
            others.push((name.to_owned(), text));
            Ok(())
        };
        let unpacked = unpack(outer.as_slice(), &to, &mut other).unwrap();
        assert_eq!(others, [("perf.data".to_owned(), "samples".to_owned())]);
        assert_eq!((unpacked.binaries, unpacked.refused.len()), (1, 1));
        let id = BuildId::parse(&hex).unwrap();
        assert_eq!(to.files_of(id).unwrap().unwrap().0, Path::new("/bin/ls"));
        // Damage is an error, at any place.
        for cut in [0, 3, outer.len() / 2, outer.len() - 1] {
            let mut leave = |_: &str, _: &mut dyn Read| Ok(());
            assert!(unpack(&outer[..cut], &to, &mut leave).is_err(), "{cut}");
        }
    }
}
