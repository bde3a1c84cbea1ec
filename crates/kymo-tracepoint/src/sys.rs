//! The few system calls, with errors as errno. All may be made in signal handlers.

use std::ffi::CStr;

use libc::{c_int, c_void};

/// A path without allocation.
pub(crate) struct Path {
    bytes: [u8; 512],
    len: usize,
}

impl Path {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }

    /// Appends; too long paths are cut, and then lead nowhere.
    #[must_use]
    pub(crate) fn add(mut self, part: &[u8]) -> Self {
        let room = self.bytes.len() - 1 - self.len;
        let part = &part[..part.len().min(room)];
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        self
    }

    #[must_use]
    pub(crate) fn number(self, mut number: u64) -> Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return self.add(&digits[at..]);
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = errno };
}

fn checked(result: c_int) -> Result<c_int, c_int> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// A file descriptor that is closed at the end.
pub(crate) struct Fd(pub(crate) c_int);

impl Drop for Fd {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { libc::close(self.0) };
    }
}

impl Fd {
    pub(crate) fn open(path: &CStr, flags: c_int) -> Result<Self, c_int> {
        let flags = flags | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a path that ends in NUL.
        checked(unsafe { libc::open(path.as_ptr(), flags, 0o600) }).map(Self)
    }

    /// Reads until the buffer is full or the file ends.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, c_int> {
        let mut done = 0;
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            // SAFETY: a buffer of that length.
            let got = unsafe { libc::read(self.0, rest.as_mut_ptr().cast(), rest.len()) };
            match got {
                0 => break,
                n if n > 0 => done += n as usize,
                _ if errno() == libc::EINTR => {}
                _ => return Err(errno()),
            }
        }
        Ok(done)
    }

    /// Reads what there is now, at most as much as fits; 0 at the end.
    pub(crate) fn read_once(&self, buffer: &mut [u8]) -> Result<usize, c_int> {
        loop {
            // SAFETY: a buffer of that length.
            let got = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
            match got {
                n if n >= 0 => return Ok(n as usize),
                _ if errno() == libc::EINTR => {}
                _ => return Err(errno()),
            }
        }
    }

    /// Reads as many bytes as the buffer has, or fails.
    pub(crate) fn read_at(&self, mut buffer: &mut [u8], mut at: u64) -> Result<(), c_int> {
        while !buffer.is_empty() {
            // SAFETY: a buffer of that length.
            let got = unsafe {
                libc::pread(self.0, buffer.as_mut_ptr().cast(), buffer.len(), at as libc::off_t)
            };
            match got {
                0 => return Err(libc::ENODATA),
                n if n > 0 => {
                    buffer = &mut buffer[n as usize..];
                    at += n as u64;
                }
                _ if errno() == libc::EINTR => {}
                _ => return Err(errno()),
            }
        }
        Ok(())
    }

    /// Which file it is: device and number.
    pub(crate) fn identity(&self) -> Option<(u64, u64)> {
        // SAFETY: the structure is plain numbers.
        let stat = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(self.0, &raw mut stat) == 0).then_some(stat)
        };
        stat.map(|s| (s.st_dev, s.st_ino))
    }

    pub(crate) fn write_at(&self, mut bytes: &[u8], mut at: u64) -> Result<(), c_int> {
        while !bytes.is_empty() {
            // SAFETY: bytes of that length.
            let put = unsafe {
                libc::pwrite(self.0, bytes.as_ptr().cast(), bytes.len(), at as libc::off_t)
            };
            match put {
                n if n > 0 => {
                    bytes = &bytes[n as usize..];
                    at += n as u64;
                }
                _ if errno() == libc::EINTR => {}
                _ => return Err(errno()),
            }
        }
        Ok(())
    }

    pub(crate) fn set_size(&self, size: u64) -> Result<(), c_int> {
        // SAFETY: no memory involved.
        checked(unsafe { libc::ftruncate(self.0, size as libc::off_t) }).map(drop)
    }

    /// Makes sure that the file system has the memory.
    pub(crate) fn allocate(&self, at: u64, size: u64) -> Result<(), c_int> {
        loop {
            // SAFETY: no memory involved.
            let result =
                unsafe { libc::fallocate(self.0, 0, at as libc::off_t, size as libc::off_t) };
            match checked(result) {
                Err(libc::EINTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Whether there is anything but holes from `at` on.
    pub(crate) fn has_data(&self, at: u64) -> bool {
        // SAFETY: no memory involved.
        unsafe { libc::lseek(self.0, at as libc::off_t, libc::SEEK_DATA) >= 0 }
    }

    /// Maps all of it for reading and writing, over `place` if that is not null. Others may cut
    /// the file: [`crate::guard`] has to know of the mapping.
    pub(crate) fn map(&self, size: usize, place: *mut u8) -> Result<*mut u8, c_int> {
        let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
        map(place, size, libc::MAP_SHARED | fixed, self.0)
    }

    pub(crate) fn lock(&self) -> bool {
        // SAFETY: no memory involved.
        unsafe { libc::flock(self.0, libc::LOCK_EX | libc::LOCK_NB) == 0 }
    }
}

fn map(place: *mut u8, size: usize, flags: c_int, fd: c_int) -> Result<*mut u8, c_int> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, or one over a mapping of ours of that size.
    let at = unsafe { libc::mmap(place.cast::<c_void>(), size, protection, flags, fd, 0) };
    if at == libc::MAP_FAILED { Err(errno()) } else { Ok(at.cast()) }
}

/// Fresh memory, zeroed.
pub(crate) fn anonymous(size: usize) -> Result<*mut u8, c_int> {
    map(std::ptr::null_mut(), size, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// Puts fresh memory in the place of pages; whether it did.
///
/// # Safety
/// The pages are the library's own, and their users can continue with zeros.
pub(crate) unsafe fn replace_by_zeros(at: *mut u8, size: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    map(at, size, flags, -1).is_ok()
}

/// Has the kernel map all pages in one call.
pub(crate) fn populate(at: *mut u8, size: usize) {
    // SAFETY: only maps pages that are ours.
    unsafe { libc::madvise(at.cast(), size, libc::MADV_POPULATE_WRITE) };
}

/// Makes sure that there is memory for all of a mapped range. EINVAL: the kernel cannot say.
pub(crate) fn populate_all(at: *mut u8, size: usize) -> Result<(), c_int> {
    let begin = at.map_addr(|at| at & !4095);
    let size = (at.addr() + size).next_multiple_of(4096) - begin.addr();
    loop {
        // SAFETY: only maps pages that are ours.
        let result = unsafe { libc::madvise(begin.cast(), size, libc::MADV_POPULATE_WRITE) };
        match checked(result) {
            Err(libc::EINTR) => {}
            result => return result.map(drop),
        }
    }
}

/// # Safety
/// The memory is not in use any more.
pub(crate) unsafe fn unmap(at: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(at.cast(), size) };
}

pub(crate) fn mkdir(path: &CStr) -> Result<(), c_int> {
    // SAFETY: a path that ends in NUL.
    checked(unsafe { libc::mkdir(path.as_ptr(), 0o700) }).map(drop)
}

pub(crate) fn unlink(path: &CStr) {
    // SAFETY: a path that ends in NUL.
    unsafe { libc::unlink(path.as_ptr()) };
}

pub(crate) fn rename(from: &CStr, to: &CStr) -> Result<(), c_int> {
    // SAFETY: paths that end in NUL.
    checked(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }).map(drop)
}

pub(crate) fn rmdir(path: &CStr) -> bool {
    // SAFETY: a path that ends in NUL.
    unsafe { libc::rmdir(path.as_ptr()) == 0 }
}

pub(crate) fn uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

pub(crate) fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() as u32 }
}

pub(crate) fn tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Wakes who waits for this word, in whatever process.
pub(crate) fn wake(word: *mut u32) {
    // SAFETY: an address, which the kernel checks. It cannot fail where the word is mapped, so errno
    // stays what the program has it for.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
}

pub(crate) fn wait_a_little() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    // SAFETY: a valid time; being interrupted is fine.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

/// Whether `path` is a directory of this user that no other user can enter.
pub(crate) fn is_private_directory(path: &CStr) -> bool {
    // SAFETY: the structure is plain numbers, and the path ends in NUL.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::lstat(path.as_ptr(), &raw mut stat) == 0).then_some(stat)
    };
    stat.is_some_and(|s| {
        s.st_mode & libc::S_IFMT == libc::S_IFDIR && s.st_uid == uid() && s.st_mode & 0o077 == 0
    })
}

/// A small file's bytes at the start of `buffer`.
pub(crate) fn read_file<'b>(path: &CStr, buffer: &'b mut [u8]) -> Result<&'b [u8], c_int> {
    let len = Fd::open(path, libc::O_RDONLY | libc::O_NONBLOCK)?.read(buffer)?;
    Ok(&buffer[..len])
}

/// Start of the library, or the program, that contains an address.
pub(crate) fn library_of(address: usize) -> Option<usize> {
    // SAFETY: pointers and nothing else, for which zeros are valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let address = std::ptr::without_provenance(address);
    // SAFETY: only looks the address up.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    found.then(|| info.dli_fbase.addr())
}

pub(crate) fn random(bytes: &mut [u8]) {
    // SAFETY: a buffer of that length.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
}
