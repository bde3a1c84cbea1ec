//! Parts of other users' files that are mapped and never touched: only the kernel is
//! given their addresses, as the source of a write, or as a word that a thread sleeps on. Of a
//! file that shrinks meanwhile the kernel says `EFAULT`, where touching it would be a SIGBUS.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Such a part.
#[derive(Debug)]
pub struct OpaqueMapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: an address that is never dereferenced; the kernel accepts it from any thread.
unsafe impl Send for OpaqueMapping {}

/// Part of a single write.
#[derive(Clone, Debug)]
pub enum WritePiece<'a> {
    /// Bytes of this process.
    Own(&'a [u8]),
    /// Bytes of the part.
    Mapped(Range<usize>),
}

impl OpaqueMapping {
    pub(crate) fn of(file: &File, offset: u64, len: u64) -> io::Result<OpaqueMapping> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (len, offset) =
            (usize::try_from(len).map_err(invalid)?, i64::try_from(offset).map_err(invalid)?);
        // SAFETY: a new mapping, for which the kernel finds a place; it is not read here.
        let base = unsafe {
            let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), len, read, shared, file.as_raw_fd(), offset)
        };
        match NonNull::new(base) {
            Some(base) if base.as_ptr() != libc::MAP_FAILED => Ok(OpaqueMapping { base, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes pieces one behind the other to a place in a file.
    ///
    /// # Errors
    /// If the kernel refuses, or a piece lies outside of the part: some of it may be written.
    pub fn write_to(
        &self,
        to: &File,
        pieces: &[WritePiece<'_>],
        mut offset: u64,
    ) -> io::Result<()> {
        let mut vectors = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let (base, len) = match piece {
                WritePiece::Own(bytes) => (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len()),
                WritePiece::Mapped(range) => {
                    if range.start > range.end || range.end > self.len {
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                    (self.base.as_ptr().wrapping_byte_add(range.start), range.len())
                }
            };
            if len > 0 {
                vectors.push(libc::iovec { iov_base: base, iov_len: len });
            }
        }
        let mut rest = &mut vectors[..];
        while !rest.is_empty() {
            let count = rest.len().min(libc::UIO_MAXIOV as usize) as libc::c_int;
            let at = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
            // SAFETY: as many vectors as there are, of this process's bytes, borrowed until now, and of addresses
            // that the kernel checks.
            let put = unsafe { libc::pwritev(to.as_raw_fd(), rest.as_ptr(), count, at) };
            match usize::try_from(put) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(put) => {
                    offset += put as u64;
                    rest = beyond(rest, put);
                }
                Err(_) => match io::Error::last_os_error() {
                    e if e.kind() == io::ErrorKind::Interrupted => {}
                    e => return Err(e),
                },
            }
        }
        Ok(())
    }
}

/// Rest of the vectors behind the bytes that were written.
fn beyond(vectors: &mut [libc::iovec], mut put: usize) -> &mut [libc::iovec] {
    let whole = vectors.iter().take_while(|v| {
        let is_whole = put >= v.iov_len;
        put -= if is_whole { v.iov_len } else { 0 };
        is_whole
    });
    let whole = whole.count();
    let rest = &mut vectors[whole..];
    if let Some(first) = rest.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(put);
        first.iov_len -= put;
    }
    rest
}

impl Drop for OpaqueMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and there is no reference to what is in it.
        unsafe { libc::munmap(self.base.as_ptr(), self.len) };
    }
}

/// A word of a part that says 1 for as long as nothing has happened.
#[derive(Debug)]
pub struct FutexWaiter {
    page: OpaqueMapping,
    at: usize,
}

impl FutexWaiter {
    /// Four bytes of a part, at a multiple of four.
    ///
    /// # Errors
    /// If they do not lie there.
    pub fn new(page: OpaqueMapping, at: usize) -> io::Result<FutexWaiter> {
        let lies_there = at.is_multiple_of(4) && at.checked_add(4).is_some_and(|e| e <= page.len);
        if lies_there {
            Ok(FutexWaiter { page, at })
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    fn address(&self) -> u64 {
        self.page.base.as_ptr().wrapping_byte_add(self.at).addr() as u64
    }
}

/// Wake-up of a sleep from within this process.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Arc<AtomicU32>);

/// As the kernel takes it: `struct futex_waitv`.
#[repr(C)]
struct FutexWaitv {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

const SIZE_U32: u32 = 2;
const PRIVATE: u32 = 128;
/// Limit of the kernel.
const MOST_WAITERS: usize = 128;

impl Alarm {
    /// Ends all sleep, now and later.
    pub fn raise(&self) {
        self.0.store(1, Ordering::Release);
        // SAFETY: a word that this value keeps.
        unsafe {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), wake, i32::MAX);
        }
    }

    /// Whether it was raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Sleeps until it is raised, one of the words changes, or the time is over. Says whether all
    /// words were waited for: kernels before 5.16 cannot, and none does for very many, nor where a
    /// file has shrunk.
    pub fn sleep<'b>(&self, words: impl Iterator<Item = &'b FutexWaiter>, most: Duration) -> bool {
        let own = FutexWaitv {
            value: 0,
            address: self.0.as_ptr().addr() as u64,
            flags: SIZE_U32 | PRIVATE,
            reserved: 0,
        };
        let armed = u64::from(u32::from_ne_bytes([1, 0, 0, 0]));
        let waiter = |b: &FutexWaiter| FutexWaitv {
            value: armed,
            address: b.address(),
            flags: SIZE_U32,
            reserved: 0,
        };
        let mut waiters = vec![own];
        waiters.extend(words.map(waiter));
        let all = waiters.len() <= MOST_WAITERS;
        waiters.truncate(MOST_WAITERS);
        if waiters.len() > 1 {
            match wait(&waiters, most) {
                Ok(()) | Err(libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR) => return all,
                Err(_) => {}
            }
        }
        let deaf = waiters.len() > 1;
        waiters.truncate(1);
        if wait(&waiters, most) == Err(libc::ENOSYS) && !self.is_raised() {
            self.nap(most);
        }
        !deaf
    }

    /// As kernels always could, without waiting for words.
    fn nap(&self, most: Duration) {
        let most = libc::timespec {
            tv_sec: most.as_secs().cast_signed(),
            tv_nsec: most.subsec_nanos().into(),
        };
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: a word that this value keeps, and a valid time.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), wait, 0, &raw const most) };
    }
}

/// Sleeps until one of the words is woken or is another one already.
fn wait(waiters: &[FutexWaitv], most: Duration) -> Result<(), i32> {
    let until = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanoseconds = until.tv_nsec + i64::from(most.subsec_nanos());
    let until = libc::timespec {
        tv_sec: until.tv_sec + most.as_secs().cast_signed() + nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    };
    // SAFETY: as many waiters as are said, a valid time; the kernel checks the words' addresses.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        )
    };
    match woken {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::os::unix::fs::FileExt as _;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn pieces_are_written_and_a_file_that_shrank_is_an_error() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
        let (from, to) = (file(&bytes), file(b""));
        let part = OpaqueMapping::of(&from, 4096, 12_288).unwrap();
        let pieces =
            [WritePiece::Own(b"head"), WritePiece::Mapped(100..9000), WritePiece::Own(b"tail")];
        part.write_to(&to, &pieces, 5).unwrap();
        let mut written = vec![0; 5 + 4 + 8900 + 4];
        to.read_exact_at(&mut written, 0).unwrap();
        let due = [&b"\0\0\0\0\0head"[..], &bytes[4196..13_096], b"tail"].concat();
        assert_eq!(written, due);

        assert!(part.write_to(&to, &[WritePiece::Mapped(0..12_289)], 0).is_err());
        from.set_len(4096).unwrap();
        let gone = part.write_to(&to, &[WritePiece::Mapped(0..4096)], 0).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::EFAULT));
    }

    #[test]
    fn a_sleeper_is_woken_by_a_futex_word_by_its_alarm_and_by_time() {
        let (signalled, armed) = (file(&[0; 4096]), file(&[0; 4096]));
        armed.write_all_at(&[1], 8).unwrap();
        let futex_waiter =
            |f: &File| FutexWaiter::new(OpaqueMapping::of(f, 0, 4096).unwrap(), 8).unwrap();
        let (alarm, two) = (Alarm::default(), [futex_waiter(&armed), futex_waiter(&signalled)]);
        let start = Instant::now();
        // One is signalled before.
        assert!(alarm.sleep(two.iter(), LONG));
        let short = Duration::from_millis(20);
        let slept = Instant::now();
        assert!(alarm.sleep(two[..1].iter(), short));
        assert!(slept.elapsed() >= short);
        std::thread::scope(|scope| {
            let other = alarm.clone();
            scope.spawn(move || other.raise());
            while !alarm.is_raised() {
                alarm.sleep(two[..1].iter(), LONG);
            }
        });
        assert!(alarm.sleep(two[..1].iter(), LONG) && start.elapsed() < LONG);
        // Where there is no word any more the time is slept, or the alarm heard, without it.
        armed.set_len(0).unwrap();
        assert!(!alarm.sleep(two[..1].iter(), LONG) && start.elapsed() < LONG);
        assert!(!Alarm::default().sleep(two[..1].iter(), short));
    }
}
