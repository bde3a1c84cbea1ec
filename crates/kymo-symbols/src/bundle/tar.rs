//! Tar archives by the crate `tar`, with bounds: files and links, with GNU's long names;
//! `docs/formats/bundle.md` describes their contents.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use tar::{Archive, Builder, Entries, Entry, EntryType, Header};

/// Names and targets longer than this are refused.
const LONGEST_NAME: u64 = 8192;
/// Most members of an archive.
const MOST_MEMBERS: usize = 1 << 20;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Offset of its bytes.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Kind of a member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    /// A symbolic link to this target.
    Link(String),
    /// Hard link to an earlier member of this name.
    HardLink(String),
    Other,
}

/// Lists the files of an archive, or explains why it cannot be read.
pub(crate) fn list(file: &mut File) -> Result<Vec<Member>, String> {
    let members = |file: &mut File| {
        let len = file.metadata()?.len();
        file.rewind()?;
        let mut members = Vec::new();
        let mut archive = Archive::new(EndWatch { inner: file, ended: false });
        walk(archive.entries_with_seek()?, |name, kind, entry| {
            let (offset, size) = (entry.raw_file_position(), entry.header().entry_size()?);
            if offset.saturating_add(size) > len || members.len() >= MOST_MEMBERS {
                let why = format!("it is cut short in the member at byte {offset}");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            if *kind == MemberKind::File {
                members.push(Member { name: name.to_owned(), offset, size });
            }
            Ok(())
        })?;
        archive.into_inner().check()?;
        Ok(members)
    };
    members(file).map_err(|e: io::Error| e.to_string())
}

/// Reads an archive from its start to its end and passes each member with its bytes to `visit`,
/// which need not read them.
pub(crate) fn visit_members(
    archive: impl Read,
    mut visit: impl FnMut(&str, &MemberKind, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let mut archive = Archive::new(EndWatch { inner: archive, ended: false });
    walk(archive.entries()?, |name, kind, entry| visit(name, kind, entry))?;
    archive.into_inner().check()
}

/// Visits members without the crate's handling of long names, which reads them whole however long.
fn walk<R: Read>(
    entries: Entries<'_, R>,
    mut visit: impl FnMut(&str, &MemberKind, &mut Entry<'_, R>) -> io::Result<()>,
) -> io::Result<()> {
    let (mut long_name, mut long_target) = (None, None);
    for entry in entries.raw(true) {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if let EntryType::GNULongName | EntryType::GNULongLink = kind {
            let mut bytes = Vec::new();
            let size = entry.header().entry_size()?;
            if size > LONGEST_NAME || entry.read_to_end(&mut bytes)? as u64 != size {
                let why = "a name in the archive is too long or cut short";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let text = Some(text(bytes.into()));
            if kind.is_gnu_longname() {
                long_name = text
            } else {
                long_target = text
            }
            continue;
        }
        let name = long_name.take().unwrap_or_else(|| text(entry.header().path_bytes()));
        let short = || text(entry.header().link_name_bytes().unwrap_or_default());
        let target = long_target.take().unwrap_or_else(short);
        let kind = match kind {
            EntryType::Regular => MemberKind::File,
            EntryType::Link => MemberKind::HardLink(target),
            EntryType::Symlink => MemberKind::Link(target),
            _ => MemberKind::Other,
        };
        visit(name.trim_start_matches("./"), &kind, &mut entry)?;
    }
    Ok(())
}

/// The text before the first zero.
fn text(bytes: Cow<'_, [u8]>) -> String {
    let bytes = bytes.split(|b| *b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// A reader that remembers whether it came to its end: the crate takes that for the end of the
/// archive, which is a block of zeros.
struct EndWatch<R> {
    inner: R,
    ended: bool,
}

impl<R> EndWatch<R> {
    fn check(&self) -> io::Result<()> {
        if self.ended {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut short"))
        } else {
            Ok(())
        }
    }
}

impl<R: Read> Read for EndWatch<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.ended |= got == 0 && !buf.is_empty();
        Ok(got)
    }
}

impl<R: Seek> Seek for EndWatch<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Writes an archive. Headers hold no time: the same contents make the same archive.
pub(crate) struct Writer<W: Write>(Builder<W>);

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Writer<W> {
        Writer(Builder::new(out))
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.add(EntryType::Regular, name, "", bytes)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.add(EntryType::Symlink, name, target, &[])
    }

    /// Adds a member, after those with the name and the target where a header is too short for them.
    fn add(&mut self, kind: EntryType, name: &str, target: &str, bytes: &[u8]) -> io::Result<()> {
        for (kind, long) in [(EntryType::GNULongLink, target), (EntryType::GNULongName, name)] {
            if long.len() > Header::new_gnu().as_old().name.len() {
                let bytes = [long.as_bytes(), b"\0"].concat();
                self.0.append(&header(kind, "././@LongLink", "", &bytes), &bytes[..])?;
            }
        }
        self.0.append(&header(kind, name, target, bytes), bytes)
    }

    /// Ends the archive.
    pub(crate) fn finish(self) -> io::Result<W> {
        let mut out = self.0.into_inner()?;
        out.flush()?;
        Ok(out)
    }
}

fn header(kind: EntryType, name: &str, target: &str, bytes: &[u8]) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes.len() as u64);
    // Not by the crate's functions, which refuse names with `..`, and recordings have such.
    let old = header.as_old_mut();
    old.name.iter_mut().zip(name.as_bytes()).for_each(|(to, byte)| *to = *byte);
    old.linkname.iter_mut().zip(target.as_bytes()).for_each(|(to, byte)| *to = *byte);
    header.set_cksum();
    header
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_bounded_and_damage_is_an_error() {
        let mut w = Writer::new(Vec::new());
        w.file(&"n".repeat(LONGEST_NAME as usize), b"").unwrap();
        let long = w.finish().unwrap();
        assert!(visit_members(&long[..], |_, _, _| Ok(())).is_err());
        let mut w = Writer::new(Vec::new());
        w.file("../a", b"one").unwrap();
        let mut whole = w.finish().unwrap();
        let mut names = Vec::new();
        let mut note = |name: &str, _: &MemberKind, _: &mut dyn Read| {
            names.push(name.to_owned());
            Ok(())
        };
        visit_members(&whole[..], &mut note).unwrap();
        // Without the zeros at the end: between members, too, it is cut.
        assert!(visit_members(&whole[..1024], &mut note).is_err());
        whole[1] = b'/';
        assert!(visit_members(&whole[..], &mut note).is_err(), "a wrong checksum");
        assert_eq!(names, ["../a", "../a"]);
    }

    #[test]
    fn what_is_written_is_listed_and_gnu_tar_agrees() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = format!("{}/x", "deep/".repeat(60));
        let mut w = Writer::new(&mut file);
        w.file("a", b"one").unwrap();
        w.link(".build-id/ab/cd", &format!("../../{long}")).unwrap();
        w.file(&long, &[7; 1000]).unwrap();
        w.file("empty", b"").unwrap();
        w.finish().unwrap();
        let members = list(&mut File::open(file.path()).unwrap()).unwrap();
        let names: Vec<(&str, u64)> = members.iter().map(|m| (&*m.name, m.size)).collect();
        assert_eq!(names, [("a", 3), (&long, 1000), ("empty", 0)]);
        let theirs =
            std::process::Command::new("tar").arg("tvf").arg(file.path()).output().unwrap();
        let theirs = String::from_utf8(theirs.stdout).unwrap();
        let listed: Vec<&str> = theirs.lines().filter_map(|l| l.split(' ').next_back()).collect();
        assert_eq!(listed, ["a", &format!("../../{long}"), &long, "empty"], "{theirs}");
        // Cut anywhere: an error, or fewer members only where the end is missing.
        let whole = std::fs::read(file.path()).unwrap();
        for cut in (0..whole.len() - 1024).step_by(100) {
            std::fs::write(file.path(), &whole[..cut]).unwrap();
            assert!(list(&mut File::open(file.path()).unwrap()).is_err(), "{cut}");
        }
    }
}
