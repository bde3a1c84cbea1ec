//! Memory that arguments of system calls point to: the part of it that is read, and its text in
//! strace's words.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use kymo_bpf::{MESSAGE_PIECE, MemoryPiece, MemoryRead, NAME_PIECE, ReadSize};

use super::arguments::quoted;
use super::flags::{FAMILY, ValueNames, value_names};

/// Shape of the memory behind an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryShape {
    /// A text that ends in NUL.
    Text,
    /// Bytes; the argument of this place is their number.
    Bytes(usize),
    /// Bytes that the kernel writes, their number being the call's result.
    Returned,
    /// A path that the kernel writes, with its NUL.
    ReturnedPath,
    /// `struct stat`, which the kernel writes.
    Stat,
    /// `struct new_utsname`, which the kernel writes.
    SystemNames,
    /// Two descriptors, which the kernel writes.
    Descriptors,
    /// Address of a socket; the argument of this place is its size.
    Address(usize),
    /// Address of a socket, written by the kernel; the argument of this index points to its size.
    AddressWritten(usize),
    /// Vector of pieces; the argument of this place is their number.
    Vector(usize),
    /// Vector of pieces, written by the kernel; the result of the call is its length in bytes.
    VectorWritten(usize),
    /// `struct msghdr`.
    Message,
    /// `struct msghdr`, written by the kernel.
    MessageWritten,
    /// Texts of an array that ends with NULL.
    Texts,
}

/// Bytes of a text that are read at most.
pub(super) const MAX_TEXT: u32 = 4096;
/// Texts of an array that are shown.
const SHOWN_TEXTS: usize = 32;
/// Bytes of the address of a socket at most.
const MAX_ADDRESS: u32 = 128;
/// `struct stat`.
const STAT: u32 = 144;
/// Each text of `struct new_utsname`.
const SYSTEM_NAME: u32 = 65;
/// First slot of the pieces of a shape; earlier ones hold single values.
const PIECES_SLOT: u8 = 4;

/// Memory of a call's arguments as it was read, with the call's other values.
pub(super) struct ReadMemory<'a> {
    pub(super) pieces: &'a [MemoryPiece],
    pub(super) args: &'a [u64; 6],
    pub(super) result: i64,
    /// Bytes of buffers that are shown.
    pub(super) limit: usize,
}

impl MemoryShape {
    /// Whether programs of 32 bits have the same in their memory.
    pub(super) fn is_same_in_compat(self) -> bool {
        use MemoryShape as S;
        match self {
            S::Text
            | S::Bytes(_)
            | S::Returned
            | S::ReturnedPath
            | S::SystemNames
            | S::Descriptors
            | S::Address(_)
            | S::AddressWritten(_) => true,
            // Numbers of their structures are of other sizes.
            S::Stat
            | S::Vector(_)
            | S::VectorWritten(_)
            | S::Message
            | S::MessageWritten
            | S::Texts => false,
        }
    }

    /// Whether the kernel writes it: it is there when the call has succeeded.
    pub(super) fn is_written(self) -> bool {
        use MemoryShape as S;
        matches!(
            self,
            S::Returned
                | S::ReturnedPath
                | S::Stat
                | S::SystemNames
                | S::Descriptors
                | S::AddressWritten(_)
                | S::VectorWritten(_)
                | S::MessageWritten
        )
    }

    /// Read request for the memory.
    pub(super) fn read(self, argument: usize, limit: usize) -> MemoryRead {
        use MemoryShape as S;
        let short = limit as u32;
        let place = |n: usize| n as u8;
        let (size, limit) = match self {
            S::Text => (ReadSize::Text, MAX_TEXT + 1),
            S::Bytes(n) => (ReadSize::Argument(place(n)), short),
            S::Returned => (ReadSize::Result, short),
            S::ReturnedPath => (ReadSize::Result, MAX_TEXT),
            S::Stat => (ReadSize::Fixed, STAT),
            S::SystemNames => (ReadSize::Fixed, 2 * SYSTEM_NAME),
            S::Descriptors => (ReadSize::Fixed, 8),
            S::Address(n) => (ReadSize::Argument(place(n)), MAX_ADDRESS),
            S::AddressWritten(n) => (ReadSize::Stored(place(n)), MAX_ADDRESS),
            S::Vector(n) | S::VectorWritten(n) => (ReadSize::Vector(place(n)), short),
            S::Message | S::MessageWritten => (ReadSize::Message, short),
            // One more, and NUL, to tell whether that is all.
            S::Texts => (ReadSize::Texts, short + 2),
        };
        MemoryRead { argument: place(argument), at_exit: self.is_written(), size, limit }
    }

    fn has_pieces(self) -> bool {
        use MemoryShape as S;
        let with = [S::Message, S::MessageWritten, S::Texts];
        with.contains(&self) || matches!(self, S::Vector(_) | S::VectorWritten(_))
    }
}

/// The slots of what a call points to: that of the shape at `place` among its shapes.
pub(super) fn slot_of(shapes: impl Iterator<Item = MemoryShape>, place: usize) -> u8 {
    let mut simple = 0;
    for (n, shape) in shapes.enumerate() {
        if n == place {
            return if shape.has_pieces() { PIECES_SLOT } else { simple };
        }
        simple += u8::from(!shape.has_pieces());
    }
    u8::MAX
}

impl ReadMemory<'_> {
    /// Text of what a shape's slot has; `None` if it was not read to its end.
    pub(super) fn text(&self, shape: MemoryShape, slot: u8) -> Option<Vec<u8>> {
        use MemoryShape as S;
        let mut out = Vec::new();
        let simple = || self.piece(slot, 0);
        match shape {
            S::Text => {
                let (text, whole) = self.path(slot)?;
                quoted(&mut out, text, whole);
            }
            S::Bytes(n) => {
                let size = self.args.get(n).copied().unwrap_or_default();
                let bytes = if size == 0 { &[][..] } else { simple()? };
                quoted(&mut out, bytes, bytes.len() as u64 == size);
            }
            S::Returned => {
                let size = usize::try_from(self.result).ok()?;
                let bytes = if size == 0 { &[][..] } else { simple()? };
                quoted(&mut out, bytes, bytes.len() == size);
            }
            S::ReturnedPath => {
                let (path, whole) = self.path(slot)?;
                quoted(&mut out, path, whole);
            }
            S::Stat => stat_text(&mut out, simple()?)?,
            S::SystemNames => {
                let names = simple()?.chunks_exact(SYSTEM_NAME as usize);
                for (name, label) in names.zip(["{sysname=", ", nodename="]) {
                    out.extend_from_slice(label.as_bytes());
                    quoted(&mut out, name.split(|b| *b == 0).next().unwrap_or_default(), true);
                }
                out.extend_from_slice(b", ...}");
            }
            S::Descriptors => {
                let bytes = simple()?;
                let _ = write!(out, "[{}, {}]", number(bytes, 0)?, number(bytes, 4)?);
            }
            S::Address(_) | S::AddressWritten(_) => address_text(&mut out, simple()?)?,
            S::Vector(n) | S::VectorWritten(n) => {
                let count = self.args.get(n).copied().unwrap_or_default();
                self.vector(&mut out, count, shape.is_written())?;
            }
            S::Message | S::MessageWritten => self.message(&mut out, shape.is_written())?,
            S::Texts => self.texts(&mut out)?,
        }
        Some(out)
    }

    /// A text that ends in NUL, and whether that is all.
    pub(super) fn path(&self, slot: u8) -> Option<(&[u8], bool)> {
        let text = self.piece(slot, 0)?;
        let text = text.strip_suffix(b"\0").unwrap_or(text);
        Some((text, text.len() < MAX_TEXT as usize))
    }

    fn piece(&self, slot: u8, piece: u8) -> Option<&[u8]> {
        // What could not be read at the beginning was tried again at the end, with all else.
        let those = self.pieces.iter().filter(|p| (p.slot, p.piece) == (slot, piece));
        those.filter_map(|p| p.bytes.as_deref()).next()
    }

    fn vector(&self, out: &mut Vec<u8>, count: u64, is_written: bool) -> Option<()> {
        let mut left = if is_written { u64::try_from(self.result).ok()? } else { u64::MAX };
        if count == 0 {
            out.extend_from_slice(b"[]");
            return Some(());
        }
        out.push(b'[');
        let vector = self.piece(PIECES_SLOT, 0)?;
        for (n, entry) in vector.chunks_exact(16).enumerate() {
            out.extend_from_slice(if n > 0 { b", " } else { b"" });
            let size = long(entry, 8)?;
            let shown = size.min(left);
            left -= shown;
            out.extend_from_slice(b"{iov_base=");
            let read = match shown {
                0 => &[][..],
                _ => self.piece(PIECES_SLOT, 1 + n as u8)?,
            };
            let read = read.get(..read.len().min(shown as usize)).unwrap_or(read);
            quoted(out, read, read.len() as u64 == shown);
            let _ = write!(out, ", iov_len={size}}}");
        }
        let more = count > (vector.len() / 16) as u64;
        out.extend_from_slice(if more { b", ...]" } else { b"]" });
        Some(())
    }

    fn message(&self, out: &mut Vec<u8>, is_written: bool) -> Option<()> {
        let message = self.piece(PIECES_SLOT, MESSAGE_PIECE)?;
        out.extend_from_slice(b"{msg_name=");
        let name_size = number(message, 8)?;
        match (long(message, 0)?, name_size) {
            (0, _) => out.extend_from_slice(b"NULL"),
            (address, 0) => drop(write!(out, "{address:#x}")),
            _ => address_text(out, self.piece(PIECES_SLOT, NAME_PIECE)?)?,
        }
        let _ = write!(out, ", msg_namelen={name_size}, msg_iov=");
        let count = long(message, 24)?;
        self.vector(out, count, is_written)?;
        let _ = write!(
            out,
            ", msg_iovlen={count}, msg_controllen={}, msg_flags={}{:x}}}",
            long(message, 40)?,
            if number(message, 48)? == 0 { "" } else { "0x" },
            number(message, 48)?
        );
        Some(())
    }

    fn texts(&self, out: &mut Vec<u8>) -> Option<()> {
        let those = self.pieces.iter().filter(|p| p.slot == PIECES_SLOT);
        // Without any it is not known whether there are none.
        let count = usize::from(those.map(|p| p.piece + 1).max()?);
        out.push(b'[');
        for n in 0..count.min(SHOWN_TEXTS) {
            out.extend_from_slice(if n > 0 { b", " } else { b"" });
            let text = self.piece(PIECES_SLOT, n as u8)?;
            let text = text.strip_suffix(b"\0").unwrap_or(text);
            let shown = text.get(..self.limit).unwrap_or(text);
            quoted(out, shown, shown.len() == text.len());
        }
        out.extend_from_slice(if count > SHOWN_TEXTS { b", ...]" } else { b"]" });
        Some(())
    }
}

pub(super) const FILE_TYPES: ValueNames =
    value_names![S_IFREG S_IFDIR S_IFLNK S_IFCHR S_IFBLK S_IFIFO S_IFSOCK];

/// `struct stat` of 64-bit x86.
fn stat_text(out: &mut Vec<u8>, stat: &[u8]) -> Option<()> {
    let mode = number(stat, 24)? as u32;
    let kind = FILE_TYPES.iter().find(|(value, _)| *value == u64::from(mode & libc::S_IFMT));
    out.extend_from_slice(b"{st_mode=");
    match kind {
        Some((_, name)) => drop(write!(out, "{name}|")),
        None => drop(write!(out, "{:#o}|", mode & libc::S_IFMT)),
    }
    let bits =
        [(libc::S_ISUID, "S_ISUID|"), (libc::S_ISGID, "S_ISGID|"), (libc::S_ISVTX, "S_ISVTX|")];
    for (bit, name) in bits {
        out.extend_from_slice(if mode & bit != 0 { name.as_bytes() } else { b"" });
    }
    let _ = write!(out, "0{:o}", mode & 0o777);
    match mode & libc::S_IFMT {
        libc::S_IFCHR | libc::S_IFBLK => {
            let device = long(stat, 40)?;
            // As glibc packs them.
            let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
            let minor = device & 0xff | device >> 12 & 0xffff_ff00;
            let _ = write!(out, ", st_rdev=makedev({major:#x}, {minor:#x})");
        }
        _ => drop(write!(out, ", st_size={}", long(stat, 48)?)),
    }
    out.extend_from_slice(b", ...}");
    Some(())
}

fn address_text(out: &mut Vec<u8>, address: &[u8]) -> Option<()> {
    let Some((family, rest)) = address.split_first_chunk::<2>() else {
        quoted(out, address, true);
        return Some(());
    };
    let family = u16::from_ne_bytes(*family);
    out.extend_from_slice(b"{sa_family=");
    match FAMILY.iter().find(|(value, _)| *value == u64::from(family)) {
        Some((_, name)) => out.extend_from_slice(name.as_bytes()),
        None => drop(write!(out, "{family:#x}")),
    }
    let port = rest.first_chunk::<2>().map_or(0, |port| u16::from_be_bytes(*port));
    let inet4 = rest.get(2..6).and_then(|a| a.first_chunk::<4>());
    let inet6 = rest.get(6..22).and_then(|a| a.first_chunk::<16>());
    match i32::from(family) {
        libc::AF_UNIX if !rest.is_empty() => {
            let (at, path) = match rest.split_first() {
                Some((0, name)) if rest.len() > 1 => (&b"@"[..], name),
                _ => (&b""[..], rest.split(|b| *b == 0).next().unwrap_or_default()),
            };
            out.extend_from_slice(b", sun_path=");
            out.extend_from_slice(at);
            quoted(out, path, true);
        }
        libc::AF_INET if inet4.is_some() => {
            let address = Ipv4Addr::from(*inet4?);
            let _ = write!(out, ", sin_port=htons({port}), sin_addr=inet_addr(\"{address}\")");
        }
        libc::AF_INET6 if inet6.is_some() => {
            let flow = number(rest, 2).map_or(0, |flow| u32::from_be(flow as u32));
            let address = Ipv6Addr::from(*inet6?);
            let scope = number(rest, 22).unwrap_or(0);
            let _ = write!(
                out,
                ", sin6_port=htons({port}), sin6_flowinfo=htonl({flow}), inet_pton(AF_INET6, \
                 \"{address}\", &sin6_addr), sin6_scope_id={scope}"
            );
        }
        libc::AF_NETLINK if rest.len() >= 10 => {
            let _ =
                write!(out, ", nl_pid={}, nl_groups={:08x}", number(rest, 2)?, number(rest, 6)?);
        }
        _ if rest.is_empty() => {}
        _ => {
            out.extend_from_slice(b", sa_data=");
            quoted(out, rest, true);
        }
    }
    out.push(b'}');
    Some(())
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| i32::from_ne_bytes(*b))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u64::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expected: &str) {
        let mut out = Vec::new();
        address_text(&mut out, bytes).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// As strace 6.1 writes them.
    #[test]
    fn addresses_of_sockets_are_written_by_family() {
        check(b"\x01\0/run/x\0junk", r#"{sa_family=AF_UNIX, sun_path="/run/x"}"#);
        check(b"\x01\0\0abc", r#"{sa_family=AF_UNIX, sun_path=@"abc"}"#);
        check(b"\x01\0", "{sa_family=AF_UNIX}");
        check(
            b"\x02\0\0\x50\x7f\0\0\x01\0\0\0\0\0\0\0\0",
            r#"{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}"#,
        );
        check(
            b"\x10\0\0\0\x05\0\0\0\0\0\0\0",
            "{sa_family=AF_NETLINK, nl_pid=5, nl_groups=00000000}",
        );
        check(b"\x02\0\x01", r#"{sa_family=AF_INET, sa_data="\x01"}"#);
    }
}
