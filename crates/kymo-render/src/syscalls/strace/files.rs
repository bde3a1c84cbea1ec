//! Files: their status, their systems, vectors of buffers, sets of descriptors.

use std::io::Write as _;

use super::printer::{CallPrinter, i32_in, u16_in, u32_in, u64_in};
use super::words::{
    EPOLL, FS_MAGIC, LOCK_TYPE, MOUNT_FLAGS, OPEN, OPEN_MODE, POLL, RESOLVE, STATX_ATTRIBUTES,
    STATX_MASK, WHENCE,
};
use crate::syscalls::memory::FILE_TYPES;

type P<'a> = CallPrinter<'a>;

/// Type and permissions of a file: `S_IFREG|0644`.
pub(super) fn mode_text(p: &mut P<'_>, mode: u32) {
    let kind = mode & libc::S_IFMT;
    if let Some((_, name)) = FILE_TYPES.iter().find(|(value, _)| *value == u64::from(kind)) {
        p.text(name);
        p.text("|");
    } else if kind != 0 {
        let _ = write!(p.out, "{kind:#o}|");
    }
    let bits =
        [(libc::S_ISUID, "S_ISUID|"), (libc::S_ISGID, "S_ISGID|"), (libc::S_ISVTX, "S_ISVTX|")];
    for (bit, name) in bits {
        p.text(if mode & bit != 0 { name } else { "" });
    }
    p.permissions(u64::from(mode & 0o777));
}

/// A device by its parts.
pub(super) fn device(p: &mut P<'_>, device: u64) {
    let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
    let minor = device & 0xff | device >> 12 & 0xffff_ff00;
    p.text("makedev(");
    p.hex(major);
    p.text(", ");
    p.hex(minor);
    p.text(")");
}

/// `struct stat` of 64-bit x86.
pub(super) fn stat(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 144) else { return p.address(address) };
    let mode = u32_in(&bytes, 24);
    p.text("{");
    if p.style.whole {
        p.text("st_dev=");
        device(p, u64_in(&bytes, 0));
        let _ = write!(p.out, ", st_ino={}, ", u64_in(&bytes, 8));
    }
    p.text("st_mode=");
    mode_text(p, mode);
    if p.style.whole {
        let _ = write!(
            p.out,
            ", st_nlink={}, st_uid={}, st_gid={}, st_blksize={}, st_blocks={}",
            u64_in(&bytes, 16),
            u32_in(&bytes, 28).cast_signed(),
            u32_in(&bytes, 32).cast_signed(),
            u64_in(&bytes, 56),
            u64_in(&bytes, 64)
        );
    }
    match mode & libc::S_IFMT {
        libc::S_IFCHR | libc::S_IFBLK => {
            p.text(", st_rdev=");
            device(p, u64_in(&bytes, 40));
        }
        _ => drop(write!(p.out, ", st_size={}", u64_in(&bytes, 48).cast_signed())),
    }
    if !p.style.whole {
        return p.text(", ...}");
    }
    for (name, at) in [("atime", 72), ("mtime", 88), ("ctime", 104)] {
        let (seconds, nanos) = (u64_in(&bytes, at).cast_signed(), u64_in(&bytes, at + 8));
        let _ = write!(p.out, ", st_{name}={seconds}");
        date(p, seconds, nanos);
        let _ = write!(p.out, ", st_{name}_nsec={nanos}");
    }
    p.text("}");
}

/// The date of a time that is not zero, as a comment.
fn date(p: &mut P<'_>, seconds: i64, nanos: u64) {
    let Some(local_time) = p.style.local_time.filter(|_| (seconds, nanos) != (0, 0)) else {
        return;
    };
    p.text(" /* ");
    p.text(&local_time("%Y-%m-%dT%H:%M:%S", seconds));
    if nanos != 0 {
        let _ = write!(p.out, ".{nanos:09}");
    }
    p.text(&local_time("%z", seconds));
    p.text(" */");
}

pub(super) fn statx(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 256) else { return p.address(address) };
    let mask = u32_in(&bytes, 0);
    let number = |at: usize| u32_in(&bytes, at);
    p.text("{stx_mask=");
    p.bits(STATX_MASK, mask.into(), "STATX_???");
    if p.style.whole {
        let _ = write!(p.out, ", stx_blksize={}", number(4));
    }
    p.text(", stx_attributes=");
    p.bits(STATX_ATTRIBUTES, u64_in(&bytes, 8), "STATX_ATTR_???");
    if p.style.whole {
        let owner = (number(20).cast_signed(), number(24).cast_signed());
        let links = number(16);
        let _ = write!(p.out, ", stx_nlink={links}, stx_uid={}, stx_gid={}", owner.0, owner.1);
    }
    p.text(", stx_mode=");
    mode_text(p, u16_in(&bytes, 28).into());
    if p.style.whole {
        let _ = write!(p.out, ", stx_ino={}", u64_in(&bytes, 32));
    }
    let _ = write!(p.out, ", stx_size={}", u64_in(&bytes, 40));
    if !p.style.whole {
        return p.text(", ...}");
    }
    let _ = write!(p.out, ", stx_blocks={}, stx_attributes_mask=", u64_in(&bytes, 48));
    p.bits(STATX_ATTRIBUTES, u64_in(&bytes, 56), "STATX_ATTR_???");
    // In the order of names, not of the structure: access, birth, change, modification.
    let times =
        [("atime", 64, 0x20), ("btime", 80, 0x800), ("ctime", 96, 0x80), ("mtime", 112, 0x40)];
    for (name, at, bit) in times {
        if mask & bit == 0 {
            continue;
        }
        let (seconds, nanos) = (u64_in(&bytes, at).cast_signed(), number(at + 8));
        let _ = write!(p.out, ", stx_{name}={{tv_sec={seconds}, tv_nsec={nanos}}}");
        date(p, seconds, nanos.into());
    }
    let _ = write!(
        p.out,
        ", stx_rdev_major={}, stx_rdev_minor={}, stx_dev_major={}, stx_dev_minor={}",
        number(128),
        number(132),
        number(136),
        number(140)
    );
    if mask & 0x1000 != 0 {
        p.text(", stx_mnt_id=");
        p.hex(u64_in(&bytes, 144));
    }
    p.text("}");
}

pub(super) fn statfs(p: &mut P<'_>, address: u64) {
    let Some(b) = p.bytes(address, 120) else { return p.address(address) };
    let long = |n: usize| u64_in(&b, 8 * n);
    p.text("{f_type=");
    match FS_MAGIC.iter().find(|(value, _)| *value == long(0)) {
        Some((_, name)) => p.text(name),
        None => p.hex(long(0)),
    }
    let _ = write!(
        p.out,
        ", f_bsize={}, f_blocks={}, f_bfree={}, f_bavail={}, f_files={}, f_ffree={}, \
         f_fsid={{val=[{:#x}, ",
        long(1),
        long(2),
        long(3),
        long(4),
        long(5),
        long(6),
        u32_in(&b, 56),
    );
    p.hex(u32_in(&b, 60).into());
    let _ = write!(p.out, "]}}, f_namelen={}, f_frsize={}, f_flags=", long(8), long(9));
    p.bits(MOUNT_FLAGS, long(10), "ST_???");
    p.text("}");
}

/// Texts of `struct new_utsname`: two, or all.
pub(super) fn system_names(p: &mut P<'_>, address: u64) {
    const NAME: usize = 65;
    const LABELS: [&str; 6] =
        ["{sysname=", ", nodename=", ", release=", ", version=", ", machine=", ", domainname="];
    let Some(bytes) = p.bytes(address, 6 * NAME) else { return p.address(address) };
    let shown = if p.style.whole { LABELS.len() } else { 2 };
    for (name, label) in bytes.chunks_exact(NAME).zip(LABELS).take(shown) {
        p.text(label);
        p.quote(name.split(|b| *b == 0).next().unwrap_or_default(), true);
    }
    p.text(if p.style.whole { "}" } else { ", ...}" });
}

pub(super) fn lock(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 32) else { return p.address(address) };
    p.text("{l_type=");
    p.word(LOCK_TYPE, u16_in(&bytes, 0).into(), "F_???");
    p.text(", l_whence=");
    p.word(WHENCE, u16_in(&bytes, 2).into(), "SEEK_???");
    let number = |at: usize| u64_in(&bytes, at).cast_signed();
    let _ = write!(p.out, ", l_start={}, l_len={}", number(8), number(16));
    if p.result.is_some() {
        let _ = write!(p.out, ", l_pid={}", i32_in(&bytes, 24));
    }
    p.text("}");
}

pub(super) fn open_flags_text(p: &mut P<'_>, flags: u64) {
    p.word(OPEN_MODE, flags & 3, "O_???");
    p.more_bits(OPEN, flags & 0xffff_fffc);
}

/// `struct open_how`.
pub(super) fn open_how(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 24) else { return p.address(address) };
    let flags = u64_in(&bytes, 0);
    p.text("{flags=");
    open_flags_text(p, flags);
    if flags & (libc::O_CREAT | 0x40_0000) as u64 != 0 || u64_in(&bytes, 8) != 0 {
        p.text(", mode=");
        p.permissions(u64_in(&bytes, 8));
    }
    p.text(", resolve=");
    p.bits(RESOLVE, u64_in(&bytes, 16), "RESOLVE_???");
    p.text("}");
}

/// Elements of a vector that are shown: at most the number of bytes of a text.
fn shown(p: &P<'_>, count: u64) -> (usize, bool) {
    let limit = p.style.list_limit();
    let shown = usize::try_from(count).unwrap_or(limit).min(limit);
    (shown, (shown as u64) < count)
}

/// Buffers of a vector; with `left`, as many bytes as there were moved.
pub(super) fn vector(p: &mut P<'_>, address: u64, count: u64, left: Option<u64>) {
    vector_with(p, address, count, left, true);
}

/// Buffers of a vector as addresses instead of contents, of another process.
pub(super) fn foreign_vector(p: &mut P<'_>, address: u64, count: u64) {
    vector_with(p, address, count, None, false);
}

fn vector_with(p: &mut P<'_>, address: u64, count: u64, mut left: Option<u64>, is_own: bool) {
    if count == 0 && address != 0 {
        return p.text("[]");
    }
    let (number, is_more) = shown(p, count);
    let Some(entries) = p.bytes(address, number * 16) else { return p.address(address) };
    p.text("[");
    for (n, entry) in entries.chunks_exact(16).enumerate() {
        let size = u64_in(entry, 8);
        let moved = left.map_or(size, |left| left.min(size));
        left = left.map(|left| left - moved);
        p.text(if n > 0 { ", {iov_base=" } else { "{iov_base=" });
        if is_own {
            p.buffer(u64_in(entry, 0), moved);
        } else {
            p.address(u64_in(entry, 0));
        }
        let _ = write!(p.out, ", iov_len={size}}}");
    }
    p.text(if is_more { ", ...]" } else { "]" });
}

pub(super) fn poll_events(p: &mut P<'_>, events: u16) {
    p.bits(POLL, events.into(), "POLL???");
}

/// Descriptors that are polled.
pub(super) fn polled(p: &mut P<'_>, address: u64) {
    let count = p.args[1] & 0xffff_ffff;
    if address == 0 {
        return p.text("NULL");
    }
    let (number, is_more) = shown(p, count);
    let Some(bytes) = p.bytes(address, number * 8) else { return p.address(address) };
    p.text("[");
    for (n, entry) in bytes.chunks_exact(8).enumerate() {
        p.text(if n > 0 { ", {fd=" } else { "{fd=" });
        let fd = i32_in(entry, 0);
        p.descriptor(fd);
        if fd >= 0 {
            p.text(", events=");
            poll_events(p, u16_in(entry, 4));
        }
        p.text("}");
    }
    p.text(if is_more { ", ...]" } else { "]" });
}

/// Descriptors in a set below the number of the first argument.
pub(super) fn fd_set_text(p: &mut P<'_>, address: u64) -> bool {
    let count = (p.args[0] as i32).clamp(0, 1024) as usize;
    let size = count.div_ceil(64) * 8;
    let Some(bits) = p.bytes(address, size) else { return false };
    let set: Vec<usize> = (0..count)
        .filter(|fd| bits.get(fd / 8).is_some_and(|byte| byte >> (fd % 8) & 1 == 1))
        .collect();
    p.text("[");
    for (n, fd) in set.iter().enumerate() {
        p.text(if n > 0 { " " } else { "" });
        p.descriptor(*fd as i32);
    }
    p.text("]");
    true
}

pub(super) fn fd_set(p: &mut P<'_>, address: u64) {
    if address == 0 || !fd_set_text(p, address) {
        p.address(address);
    }
}

fn epoll_entry(p: &mut P<'_>, entry: &[u8]) {
    p.text("{events=");
    p.bits(EPOLL, u32_in(entry, 0).into(), "EPOLL???");
    let data = u64_in(entry, 4);
    let _ = write!(p.out, ", data={{u32={}, u64={data}}}}}", data & 0xffff_ffff);
}

/// The event of epoll_ctl(2), which EPOLL_CTL_DEL does not read.
pub(super) fn epoll_event(p: &mut P<'_>, address: u64) {
    if p.args[1] as i32 == libc::EPOLL_CTL_DEL {
        return p.address(address);
    }
    match p.bytes(address, 12) {
        Some(entry) => epoll_entry(p, &entry),
        None => p.address(address),
    }
}

/// The events that epoll_wait(2) returned.
pub(super) fn epoll_events(p: &mut P<'_>, address: u64) {
    let count = p.returned();
    if count == 0 {
        return p.text("[]");
    }
    let (number, is_more) = shown(p, count);
    let Some(bytes) = p.bytes(address, number * 12) else { return p.address(address) };
    p.text("[");
    for (n, entry) in bytes.chunks_exact(12).enumerate() {
        p.text(if n > 0 { ", " } else { "" });
        epoll_entry(p, entry);
    }
    p.text(if is_more { ", ...]" } else { "]" });
}

/// Texts of an array that ends with NULL.
pub(super) fn texts(p: &mut P<'_>, address: u64) {
    if address == 0 {
        return p.text("NULL");
    }
    let limit = p.style.list_limit();
    p.text("[");
    for n in 0.. {
        let Some(text) = p.u64_at(address.wrapping_add(8 * n)) else {
            // The array ends where memory does.
            let _ = write!(p.out, "{}", if n > 0 { ", ..." } else { "..." });
            break;
        };
        if text == 0 {
            break;
        }
        if n as usize >= limit {
            p.text(", ...");
            break;
        }
        p.text(if n > 0 { ", " } else { "" });
        p.nul_quoted(text);
    }
    p.text("]");
}

/// The number of texts in the environment, or the texts.
pub(super) fn environment(p: &mut P<'_>, address: u64) {
    if p.style.whole {
        return texts(p, address);
    }
    p.address(address);
    if address == 0 {
        return;
    }
    let mut count = 0u64;
    while let Some(text) = p.u64_at(address.wrapping_add(8 * count)) {
        if text == 0 || count >= 1 << 20 {
            let words = if count == 1 { "var" } else { "vars" };
            let _ = write!(p.out, " /* {count} {words} */");
            return;
        }
        count += 1;
    }
    p.text(" /* unterminated */");
}

/// The number of entries of a directory that were returned.
pub(super) fn entries(p: &mut P<'_>, address: u64) {
    const LENGTH: usize = 16;
    let size = usize::try_from(p.returned()).unwrap_or(0).min(1 << 20);
    p.address(address);
    let Some(bytes) = p.bytes(address, size) else { return };
    let (mut at, mut count) = (0, 0u64);
    while at + LENGTH + 2 < bytes.len() {
        let length = usize::from(u16_in(&bytes, at + LENGTH));
        if length == 0 {
            break;
        }
        (at, count) = (at + length, count + 1);
    }
    let _ = write!(p.out, " /* {count} {} */", if count == 1 { "entry" } else { "entries" });
}
