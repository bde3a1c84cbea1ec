//! The memory-mapped ring of a perf event: one control page, then 2^n pages of records. The kernel
//! writes, we read; spans are handed out where they lie, nothing is copied and no record is parsed.
//!
//! Ordering, per perf_event_open(2): `data_head` is loaded with acquire (pairs with the kernel's
//! release after it wrote the records), `data_tail` is stored with release (pairs with the kernel's
//! acquire before it overwrites them).
//!
//! An overwritable ring (`write_backward`) has no tail: the kernel fills it downwards and laps
//! itself. It can be read only while paused, from the head upwards record by record.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::system_root::system_path;

/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
/// `PERF_EVENT_IOC_PAUSE_OUTPUT`, `_IOW('$', 9, u32)`.
const IOC_PAUSE_OUTPUT: libc::c_ulong = 0x4004_2409;
/// Size of `struct perf_event_header`.
const HEADER: usize = 8;

/// Mode of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingMode {
    /// Records wait until read; new ones are lost when there is no room.
    Keep,
    /// The newest records replace the oldest (`write_backward` events).
    Overwrite,
}

/// Mapping a ring failed.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// More memory than an unprivileged user may lock.
    #[error(
        "cannot map a ring of {pages} pages: locked memory limit exceeded \
         (/proc/sys/kernel/perf_event_mlock_kb = {limit_kb}; use a smaller -m, raise this value \
         or `ulimit -l`, or run with CAP_IPC_LOCK)"
    )]
    Locked {
        /// Data pages asked for.
        pages: usize,
        /// The limit's value, or "unknown".
        limit_kb: String,
    },
    /// Not a power of two.
    #[error("the size of a ring must be a power of two of pages, not {0}")]
    Size(usize),
    /// Anything else.
    #[error("cannot map a ring of {pages} pages")]
    Os {
        /// Data pages asked for.
        pages: usize,
        /// Error of the kernel.
        source: std::io::Error,
    },
}

/// A mapped ring.
#[derive(Debug)]
pub struct PerfRing {
    base: NonNull<u8>,
    mapped: usize,
    page: usize,
    size: usize,
    mode: RingMode,
    /// Overwritable rings: the head at the last reading.
    seen: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `PerfRing` has
// the only pointer to it; `&self` methods only load atomics.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps the ring of `event` with `pages` data pages, a power of two.
    pub fn map(event: BorrowedFd<'_>, pages: usize, mode: RingMode) -> Result<PerfRing, MapError> {
        if !pages.is_power_of_two() {
            return Err(MapError::Size(pages));
        }
        let page = rustix::param::page_size();
        let size = pages.checked_mul(page).ok_or(MapError::Size(pages))?;
        let mapped = size.checked_add(page).ok_or(MapError::Size(pages))?;
        // Without write permission the kernel knows that there is no tail to respect.
        let prot = match mode {
            RingMode::Keep => ProtFlags::READ | ProtFlags::WRITE,
            RingMode::Overwrite => ProtFlags::READ,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice; it is
        // unmapped in `drop` and nowhere else.
        let base = unsafe { mmap(std::ptr::null_mut(), mapped, prot, MapFlags::SHARED, event, 0) };
        let base = match base {
            Ok(p) => p,
            Err(rustix::io::Errno::PERM) => {
                let limit =
                    std::fs::read_to_string(system_path("/proc/sys/kernel/perf_event_mlock_kb"));
                let limit_kb = limit.map_or_else(|_| "unknown".into(), |s| s.trim().to_owned());
                return Err(MapError::Locked { pages, limit_kb });
            }
            Err(e) => return Err(MapError::Os { pages, source: e.into() }),
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(MapError::Size(pages))?;
        Ok(PerfRing { base, mapped, page, size, mode, seen: 0 })
    }

    /// Bytes of records the ring holds.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Mode of the ring.
    pub fn mode(&self) -> RingMode {
        self.mode
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped for as long as `self` lives; both
        // fields are aligned `u64` that the kernel accesses as such too.
        unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    fn head(&self) -> u64 {
        self.control(DATA_HEAD).load(Ordering::Acquire)
    }

    /// Up to two spans that together are the `len` bytes from ring position `at`.
    fn spans(&self, at: u64, len: usize) -> (&[u8], &[u8]) {
        let len = len.min(self.size);
        let start = (at as usize) & (self.size - 1);
        let first = len.min(self.size - start);
        // SAFETY: both spans lie within the data pages, and `bytes` lie between
        // tail and head (or in a paused ring): the kernel does not write there
        // until the tail moves (or the ring is resumed).
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, len - first),
            )
        }
    }

    /// Bytes that wait to be read. Always 0 for overwritable rings.
    pub fn pending(&self) -> usize {
        match self.mode {
            RingMode::Keep => {
                let tail = self.control(DATA_TAIL).load(Ordering::Relaxed);
                (self.head().wrapping_sub(tail) as usize).min(self.size)
            }
            RingMode::Overwrite => 0,
        }
    }

    /// Hands all waiting bytes to `sink` as up to two spans (whole records; a
    /// record may lie across both), then frees them. When `sink` fails the
    /// bytes stay. Gives the number of bytes.
    pub fn read<E>(
        &mut self,
        sink: impl FnOnce(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        if self.mode == RingMode::Overwrite {
            return self.read_overwritten(sink);
        }
        let head = self.head();
        // Only we store the tail.
        let tail = self.control(DATA_TAIL).load(Ordering::Relaxed);
        let len = (head.wrapping_sub(tail) as usize).min(self.size);
        if len == 0 {
            return Ok(0);
        }
        let (first, second) = self.spans(tail, len);
        sink(first, second)?;
        self.control(DATA_TAIL).store(head, Ordering::Release);
        Ok(len)
    }

    /// Reads a paused ring: newest record first, in ring order.
    fn read_overwritten<E>(
        &mut self,
        sink: impl FnOnce(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let head = self.head();
        let fresh = self.seen.wrapping_sub(head);
        let len = if fresh <= self.size as u64 { fresh as usize } else { self.whole_records(head) };
        if len > 0 {
            let (first, second) = self.spans(head, len);
            sink(first, second)?;
        }
        self.seen = head;
        Ok(len)
    }

    /// Number of bytes from `head` upwards that are complete records in a lapped ring.
    fn whole_records(&self, head: u64) -> usize {
        let mut len = 0;
        while len + HEADER <= self.size {
            // Records are multiples of eight bytes: a header never wraps.
            let (header, _) = self.spans(head.wrapping_add(len as u64), HEADER);
            let size = match header {
                [.., lo, hi] if header.len() == HEADER => {
                    usize::from(u16::from_ne_bytes([*lo, *hi]))
                }
                _ => 0,
            };
            if size < HEADER || len + size > self.size {
                break;
            }
            len += size;
        }
        len
    }

    /// Stops or resumes the kernel's writing into the ring of `event`.
    pub fn pause(event: BorrowedFd<'_>, paused: bool) -> std::io::Result<()> {
        // SAFETY: the request takes an integer, no memory.
        let done = unsafe {
            libc::ioctl(event.as_raw_fd(), IOC_PAUSE_OUTPUT as _, libc::c_ulong::from(paused))
        };
        if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: `base` and `mapped` are what `mmap` gave, and no span outlives `self`.
        // An error would mean that they are not; there is nothing to do about it here.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A ring over a plain file: what the kernel would do, done by hand.
    fn fake(mode: RingMode) -> (std::fs::File, PerfRing) {
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(std::env::temp_dir())
            .unwrap();
        file.set_len(2 * rustix::param::page_size() as u64).unwrap();
        let ring = PerfRing::map(file.as_fd(), 1, mode).unwrap();
        (file, ring)
    }

    fn put(file: &std::fs::File, at: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        file.write_all_at(bytes, at).unwrap();
    }

    #[test]
    fn a_span_that_wraps_comes_as_two() {
        let (file, mut ring) = fake(RingMode::Keep);
        let page = rustix::param::page_size() as u64;
        put(&file, page + page - 8, b"the-end!");
        put(&file, page, b"thestart");
        put(&file, DATA_TAIL as u64, &(3 * page - 8).to_ne_bytes());
        put(&file, DATA_HEAD as u64, &(3 * page + 8).to_ne_bytes());
        assert_eq!(ring.pending(), 16);
        // A sink that fails leaves everything in place.
        assert_eq!(ring.read(|_, _| Err(7)), Err(7));
        let read = ring.read(|a, b| {
            assert_eq!((a, b), (&b"the-end!"[..], &b"thestart"[..]));
            Ok::<_, ()>(())
        });
        assert_eq!((read, ring.pending()), (Ok(16), 0));
    }

    #[test]
    fn an_overwritten_ring_is_read_in_whole_records() {
        let (file, mut ring) = fake(RingMode::Overwrite);
        let page = rustix::param::page_size() as u64;
        // Lapped: the head is more than a ring below zero; records of 24 bytes.
        let head = (0u64).wrapping_sub(3 * page);
        let mut at = 0;
        while at + 24 <= page {
            put(&file, page + at, &[9, 0, 0, 0, 0, 0, 24, 0]);
            at += 24;
        }
        put(&file, page + at, &[9, 0, 0, 0, 0, 0, 24, 0]);
        put(&file, DATA_HEAD as u64, &head.to_ne_bytes());
        let read = ring.read(|a, _| {
            assert_eq!(a.len() % 24, 0);
            Ok::<_, ()>(())
        });
        assert_eq!(read, Ok((page / 24 * 24) as usize));
        assert_eq!(ring.read(|_, _| Ok::<_, ()>(())), Ok(0));
    }

    #[test]
    fn odd_sizes_are_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(PerfRing::map(file.as_fd(), 3, RingMode::Keep), Err(MapError::Size(3))));
    }
}
