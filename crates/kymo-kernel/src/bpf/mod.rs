//! bpf(2): maps, programs, links and the ring buffer, by the raw system call.
//!
//! Everything here is owned by a descriptor: maps and programs live as long as it or
//! what holds on to them, links end with it, so that nothing stays attached when the
//! process ends, however it does.

mod error;
mod info;
mod link;
mod map;
mod perf_rings;
mod program;
mod ring_buffer;

pub use error::BpfError;
pub use info::{
    BpfObject, MapInfo, ProgramInfo, enable_run_time, object_ids, open_kernel_btf, open_program,
};
pub use link::{BpfLink, ProbeEvent, ProbeEventPlace, open_iterator};
pub use map::{BpfMap, MapSpec};
pub use perf_rings::BpfPerfRings;
pub use program::{BpfProgram, ProgramSpec, load_btf};
pub use ring_buffer::BpfRing;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::system::KernelName;

/// Commands of bpf(2).
#[derive(Clone, Copy)]
#[repr(u32)]
enum BpfCommand {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ProgramLoad = 5,
    ProgramTestRun = 10,
    ProgramNextId = 11,
    MapNextId = 12,
    ProgramFdById = 13,
    ObjectInfo = 15,
    RawTracepointOpen = 17,
    BtfLoad = 18,
    BtfFdById = 19,
    BtfNextId = 23,
    MapLookupBatch = 24,
    LinkCreate = 28,
    LinkNextId = 31,
    EnableStats = 32,
    IteratorCreate = 33,
}

/// Calls bpf(2).
///
/// # Safety
/// `attribute` has the layout that the kernel has for `command`, without padding that is
/// not zero, and its addresses stand for memory that the command may read or write.
unsafe fn bpf<A>(command: BpfCommand, attribute: &mut A) -> io::Result<i32> {
    loop {
        // SAFETY: the attribute outlives the call and states its own size; what it points to
        // is the caller's promise.
        let done = unsafe {
            libc::syscall(libc::SYS_bpf, command as u32, &raw mut *attribute, size_of::<A>())
        };
        if done >= 0 {
            return Ok(done as i32);
        }
        let error = io::Error::last_os_error();
        let takes_memory = matches!(
            command,
            BpfCommand::MapCreate | BpfCommand::ProgramLoad | BpfCommand::BtfLoad
        );
        if error.raw_os_error() == Some(libc::EPERM) && takes_memory && raise_locked_memory() {
            continue;
        }
        // The verifier gives up with EAGAIN where a signal came in between.
        if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
            return Err(error);
        }
    }
}

/// Linux before 5.11 counts maps and programs as locked memory, whose limit is small. Whether the
/// limit was raised now: who may do that may have the memory.
fn raise_locked_memory() -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let unlimited = Rlimit { current: None, maximum: None };
    getrlimit(Resource::Memlock).current.is_some()
        && KernelName::running().numbers() < (5, 11, 0)
        && setrlimit(Resource::Memlock, unlimited).is_ok()
}

/// Calls bpf(2) for a command that gives a descriptor.
///
/// # Safety
/// As of [`bpf`].
unsafe fn bpf_fd<A>(command: BpfCommand, attribute: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attribute) }?;
    // SAFETY: the kernel just gave this descriptor to us alone; bpf(2) sets close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Name of an object as the kernel takes it: 15 characters of letters, digits, `_`, `.`.
fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0u8; 16];
    let usable = name.bytes().filter(|b| *b != b'@');
    for (to, from) in out.iter_mut().take(15).zip(usable) {
        *to = if from.is_ascii_alphanumeric() { from } else { b'_' };
    }
    out
}
