//! Writes the archive that the kernel unpacks as its first file system: cpio in
//! the form "newc". The layout is that of the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`. Not compressed:
//! under emulation unpacking costs more than copying.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const DEVICE: u32 = 0o020_600;
const LINK: u32 = 0o120_777;
const FILE: u32 = 0o100_000;

/// An archive under construction. Paths are absolute; directories come by themselves.
pub(crate) struct Archive<W: Write> {
    to: W,
    entries: u32,
    directories: BTreeSet<String>,
    names: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// Begins with what the kernel needs before the init mounts anything.
    pub(crate) fn new(to: W) -> io::Result<Archive<W>> {
        let mut archive =
            Archive { to, entries: 0, directories: BTreeSet::new(), names: BTreeSet::new() };
        archive.directories_of("/dev/console")?;
        archive.entry("dev/console", DEVICE, (5, 1), b"")?;
        Ok(archive)
    }

    /// A file; a second one of the same name is left out.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        if !self.names.insert(path.to_owned()) {
            return Ok(());
        }
        self.directories_of(path)?;
        self.entry(path.trim_start_matches('/'), FILE | (mode & 0o7777), (0, 0), content)
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        if !self.names.insert(path.to_owned()) {
            return Ok(());
        }
        self.directories_of(path)?;
        self.entry(path.trim_start_matches('/'), LINK, (0, 0), target.as_bytes())
    }

    /// Writes the end.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), b"")?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn directories_of(&mut self, path: &str) -> io::Result<()> {
        for (at, _) in path.match_indices('/').filter(|(at, _)| *at > 0) {
            let directory = path.get(1..at).unwrap_or_default();
            if self.directories.insert(directory.to_owned()) {
                self.entry(directory, DIRECTORY, (0, 0), b"")?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        name: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let too_long = |_| io::Error::other(format!("{name} is too long for the archive"));
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.entries += 1;
        // inode, mode, user, group, links, time, size, device, its own device, name, sum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        let mut head = String::from("070701");
        fields.iter().for_each(|field| head.push_str(&format!("{field:08X}")));
        self.to.write_all(head.as_bytes())?;
        self.to.write_all(name.as_bytes())?;
        // The name's end, and up to a multiple of four.
        self.pad(head.len() + name.len() + 1, 1)?;
        self.to.write_all(content)?;
        self.pad(content.len(), 0)
    }

    fn pad(&mut self, length: usize, more: usize) -> io::Result<()> {
        let zeros = more + length.next_multiple_of(4) - length;
        self.to.write_all(&[0; 4][..zeros])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn layout_is_the_documented_one() {
        let mut archive = Archive::new(Vec::new()).unwrap();
        archive.file("/a/b", 0o644, b"12345").unwrap();
        archive.link("/a/c", "b").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let at = bytes.windows(4).position(|w| w == b"a/b\0").unwrap();
        let head = std::str::from_utf8(&bytes[at - 110..at]).unwrap();
        let fields: Vec<u32> = (0..13)
            .map(|i| u32::from_str_radix(&head[6 + 8 * i..14 + 8 * i], 16).unwrap())
            .collect();
        assert_eq!(&head[..6], "070701");
        assert_eq!((fields[1], fields[6], fields[11]), (0o100_644, 5, 4));
        // 110 + 4 bytes of head and name, two of padding.
        assert_eq!(&bytes[at + 4..at + 14], b"\0\x0012345\0\0\0");
    }

    /// Debian's cpio is the oracle where it is installed.
    #[test]
    fn cpio_lists_it() {
        let mut archive = Archive::new(Vec::new()).unwrap();
        archive.file("/usr/bin/x", 0o755, b"#!").unwrap();
        archive.file("/usr/bin/x", 0o755, b"again").unwrap();
        archive.link("/bin", "usr/bin").unwrap();
        let bytes = archive.finish().unwrap();
        let run = Command::new("cpio")
            .args(["-it", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut cpio) = run else { return };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        let listed = cpio.wait_with_output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert_eq!(listed, "dev\ndev/console\nusr\nusr/bin\nusr/bin/x\nbin\n");
    }
}
