//! Tar archives, as far as a bundle needs them: files and links, with GNU's
//! long names; `docs/formats/bundle.md` says what is in them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

const BLOCK: u64 = 512;
/// Names and targets longer than this are not believed.
const LONGEST_NAME: u64 = 8192;
/// Members of an archive that is believed.
const MOST_MEMBERS: usize = 1 << 20;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Where its bytes begin.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

/// The sum over a header with its own field as blanks.
fn sum(header: &[u8; BLOCK as usize]) -> u64 {
    let byte = |(i, b): (usize, &u8)| if (148..156).contains(&i) { 32 } else { u64::from(*b) };
    header.iter().enumerate().map(byte).sum()
}

/// Lists the files of an archive; what is wrong with it otherwise.
pub(crate) fn list(file: &mut File) -> Result<Vec<Member>, String> {
    let len = file.metadata().map_err(|e| e.to_string())?.len();
    let (mut members, mut at, mut long) = (Vec::new(), 0, None);
    let mut header = [0; BLOCK as usize];
    loop {
        file.seek(SeekFrom::Start(at)).map_err(|e| e.to_string())?;
        match file.read_exact(&mut header) {
            Ok(()) => {}
            Err(_) => return Err(format!("it is cut short at byte {at}")),
        }
        if header.iter().all(|b| *b == 0) {
            return Ok(members);
        }
        let [head @ .., _] = &header;
        let field = |from: usize, to: usize| head.get(from..to).unwrap_or_default();
        let size = octal(field(124, 136)).filter(|s| *s <= len);
        let Some(size) = size.filter(|_| octal(field(148, 156)) == Some(sum(&header))) else {
            return Err(format!("it is damaged at byte {at}"));
        };
        let offset = at + BLOCK;
        let next = offset + size.next_multiple_of(BLOCK);
        if offset + size > len || members.len() >= MOST_MEMBERS {
            return Err(format!("it is cut short in the member at byte {at}"));
        }
        match header[156] {
            b'L' if size <= LONGEST_NAME => {
                let mut name = vec![0; size as usize];
                file.read_exact(&mut name).map_err(|e| e.to_string())?;
                long = Some(text(&name));
            }
            b'0' | 0 => {
                let (prefix, name) = (text(field(345, 500)), text(field(0, 100)));
                let short = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
                let name = long.take().unwrap_or(short);
                let name = name.trim_start_matches("./").to_owned();
                members.push(Member { name, offset, size });
            }
            // The next header's long target leaves its long name alone.
            b'K' => {}
            _ => long = None,
        }
        at = next;
    }
}

/// What a member of an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    /// A symbolic link to this target.
    Link(String),
    /// The same file as an earlier member of this name.
    HardLink(String),
    Other,
}

/// Reads an archive from its begin to its end, and gives each member with its bytes to
/// `visit`, which may leave them.
pub(crate) fn visit_members(
    mut archive: impl Read,
    mut visit: impl FnMut(&str, &MemberKind, &mut dyn Read) -> io::Result<()>,
) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the tar archive is damaged");
    let (mut long_name, mut long_target) = (None, None);
    let mut header = [0; BLOCK as usize];
    loop {
        archive.read_exact(&mut header)?;
        if header.iter().all(|b| *b == 0) {
            return Ok(());
        }
        let field = |from: usize, to: usize| header.get(from..to).unwrap_or_default();
        let size = octal(field(124, 136)).filter(|_| octal(field(148, 156)) == Some(sum(&header)));
        let size = size.ok_or_else(damaged)?;
        let mut bytes = archive.by_ref().take(size);
        let kind = header[156];
        if matches!(kind, b'L' | b'K') {
            let mut name = Vec::new();
            if size > LONGEST_NAME || bytes.read_to_end(&mut name)? as u64 != size {
                return Err(damaged());
            }
            let name = Some(text(&name));
            if kind == b'L' { long_name = name } else { long_target = name }
        } else {
            let (prefix, name) = (text(field(345, 500)), text(field(0, 100)));
            // GNU's headers have other fields where those of POSIX have a prefix.
            let posix = field(257, 263) == b"ustar\0" && !prefix.is_empty();
            let short = if posix { format!("{prefix}/{name}") } else { name };
            let name = long_name.take().unwrap_or(short);
            let target = long_target.take().unwrap_or_else(|| text(field(157, 257)));
            let kind = match kind {
                b'0' | 0 => MemberKind::File,
                b'1' => MemberKind::HardLink(target),
                b'2' => MemberKind::Link(target),
                _ => MemberKind::Other,
            };
            visit(name.trim_start_matches("./"), &kind, &mut bytes)?;
        }
        let rest = bytes.limit() + (size.next_multiple_of(BLOCK) - size);
        if io::copy(&mut archive.by_ref().take(rest), &mut io::sink())? != rest {
            return Err(damaged());
        }
    }
}

/// Writes an archive.
pub(crate) struct Writer<W: Write> {
    out: W,
    pub(crate) bytes: u64,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W) -> Writer<W> {
        Writer { out, bytes: 0 }
    }

    fn header(&mut self, kind: u8, name: &str, target: &str, size: u64) -> io::Result<()> {
        let mut header = [0u8; BLOCK as usize];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(field) = header.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        };
        let cut = |s: &str| s.as_bytes().get(..s.len().min(100)).unwrap_or_default().to_vec();
        put(0, &cut(name));
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        // No time: the same contents make the same archive.
        put(136, b"00000000000\0");
        put(156, &[kind]);
        put(157, &cut(target));
        put(257, b"ustar  \0");
        let sum = sum(&header);
        if let Some(field) = header.get_mut(148..156) {
            field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        self.write(&header)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let rest = size.next_multiple_of(BLOCK) - size;
        self.write([0; BLOCK as usize].get(..rest as usize).unwrap_or_default())
    }

    /// A name that does not fit into a header goes before it.
    fn long(&mut self, kind: u8, name: &str) -> io::Result<()> {
        if name.len() <= 100 {
            return Ok(());
        }
        let size = name.len() as u64 + 1;
        self.header(kind, "././@LongLink", "", size)?;
        self.write(name.as_bytes())?;
        self.write(&[0])?;
        self.pad(size)
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.long(b'L', name)?;
        self.header(b'0', name, "", bytes.len() as u64)?;
        self.write(bytes)?;
        self.pad(bytes.len() as u64)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.long(b'K', target)?;
        self.long(b'L', name)?;
        self.header(b'2', name, target, 0)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<(W, u64)> {
        self.write(&[0; 2 * BLOCK as usize])?;
        self.out.flush()?;
        Ok((self.out, self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_listed_and_gnu_tar_agrees() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = format!("{}/x", "deep/".repeat(60));
        let mut w = Writer::new(&mut file);
        w.file("a", b"one").unwrap();
        w.link(".build-id/ab/cd", &format!("../../{long}")).unwrap();
        w.file(&long, &[7; 1000]).unwrap();
        w.file("empty", b"").unwrap();
        let (_, bytes) = w.finish().unwrap();
        let members = list(&mut File::open(file.path()).unwrap()).unwrap();
        let names: Vec<(&str, u64)> = members.iter().map(|m| (&*m.name, m.size)).collect();
        assert_eq!(names, [("a", 3), (&long, 1000), ("empty", 0)]);
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), bytes);
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
