//! Facts of BPF objects, of ours and of all that are loaded.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{BpfCommand, bpf, bpf_fd};

/// Kinds of objects that have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfObject {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// Links.
    Link,
}

/// Facts of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Id.
    pub id: u32,
    /// Bytes of machine code.
    pub jited_size: u32,
    /// Calls that were left out because the program ran on that CPU already.
    pub recursion_misses: u64,
    /// Nanoseconds it ran, while [`enable_run_time`] was in force.
    pub run_time_ns: u64,
    /// Number of runs in that time.
    pub run_count: u64,
    /// Instructions that the verifier looked at.
    pub verified_instructions: u32,
}

/// Facts of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapInfo {
    /// Id.
    pub id: u32,
}

#[repr(C)]
#[derive(Default)]
struct InfoAttribute {
    fd: u32,
    size: u32,
    info: u64,
}

#[repr(C)]
#[derive(Default)]
struct IdAttribute {
    id: u32,
    next: u32,
    flags: u32,
}

impl ProgramInfo {
    /// Asks for the facts of a program; what this kernel does not tell is 0.
    pub fn of(program: impl AsFd) -> io::Result<ProgramInfo> {
        let info: [u8; 232] = read_info(program.as_fd())?;
        let long = |at| u64::from(word(&info, at)) | u64::from(word(&info, at + 4)) << 32;
        Ok(ProgramInfo {
            id: word(&info, 4),
            run_time_ns: long(192),
            run_count: long(200),
            jited_size: word(&info, 16),
            recursion_misses: long(208),
            verified_instructions: word(&info, 216),
        })
    }
}

impl MapInfo {
    /// Asks for the facts of a map.
    pub fn of(map: impl AsFd) -> io::Result<MapInfo> {
        let info: [u8; 88] = read_info(map.as_fd())?;
        Ok(MapInfo { id: word(&info, 4) })
    }
}

fn word(info: &[u8], at: usize) -> u32 {
    info.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
}

fn read_info<const N: usize>(fd: BorrowedFd<'_>) -> io::Result<[u8; N]> {
    let mut info = [0u8; N];
    let mut attribute =
        InfoAttribute { fd: fd.as_raw_fd() as u32, size: N as u32, info: info.as_mut_ptr() as u64 };
    // SAFETY: the kernel writes at most `size` bytes at `info`, which outlives the call; the
    // addresses in it are zero, so that it writes nowhere else.
    unsafe { bpf(BpfCommand::ObjectInfo, &mut attribute) }?;
    Ok(info)
}

/// Makes the kernel measure the run time of programs until the descriptor is closed; what
/// `kernel.bpf_stats_enabled` does, but ended with this process.
pub fn enable_run_time() -> io::Result<OwnedFd> {
    // The only kind of statistics is 0.
    let mut attribute = 0u32;
    // SAFETY: the attribute holds no address.
    unsafe { bpf_fd(BpfCommand::EnableStats, &mut attribute) }
}

/// Ids of all objects of a kind that exist now.
pub fn object_ids(object: BpfObject) -> io::Result<Vec<u32>> {
    let command = match object {
        BpfObject::Program => BpfCommand::ProgramNextId,
        BpfObject::Map => BpfCommand::MapNextId,
        BpfObject::Link => BpfCommand::LinkNextId,
    };
    let mut ids = Vec::new();
    let mut last = 0;
    loop {
        let mut attribute = IdAttribute { id: last, ..IdAttribute::default() };
        // SAFETY: the attribute holds no address; the kernel writes its second word.
        match unsafe { bpf(command, &mut attribute) } {
            Ok(_) => ids.push(attribute.next),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(e) => return Err(e),
        }
        last = attribute.next;
    }
}

/// BTF of a module, or of the kernel itself by the name `vmlinux`, as programs are loaded for its
/// functions.
///
/// # Errors
/// If there is none, or the kernel shows it not to this user.
pub fn open_kernel_btf(name: &str) -> io::Result<OwnedFd> {
    let mut last = 0;
    loop {
        let mut attribute = IdAttribute { id: last, ..IdAttribute::default() };
        // SAFETY: the attribute holds no address; the kernel writes its second word.
        unsafe { bpf(BpfCommand::BtfNextId, &mut attribute) }?;
        last = attribute.next;
        let mut attribute = IdAttribute { id: last, ..IdAttribute::default() };
        // SAFETY: the attribute holds no address.
        match unsafe { bpf_fd(BpfCommand::BtfFdById, &mut attribute) } {
            Ok(btf) if is_kernel_btf(&btf, name)? => return Ok(btf),
            // It was unloaded meanwhile, or is of others.
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(e),
            _ => {}
        }
    }
}

/// `struct bpf_btf_info`.
#[repr(C)]
#[derive(Default)]
struct BtfInfo {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    kernel_btf: u32,
}

fn is_kernel_btf(btf: &OwnedFd, wanted: &str) -> io::Result<bool> {
    let mut name = [0u8; 64];
    let mut info = BtfInfo {
        name: name.as_mut_ptr() as u64,
        name_len: name.len() as u32,
        ..BtfInfo::default()
    };
    let mut attribute = InfoAttribute {
        fd: btf.as_raw_fd() as u32,
        size: size_of::<BtfInfo>() as u32,
        info: &raw mut info as u64,
    };
    // SAFETY: the kernel writes at most `size` bytes at `info` and `name_len` at `name`, which
    // outlive the call; `btf_size` is 0, so that it writes no BTF.
    unsafe { bpf(BpfCommand::ObjectInfo, &mut attribute) }?;
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    Ok(info.kernel_btf == 1 && name == wanted.as_bytes())
}

/// Opens a program by its id.
pub fn open_program(id: u32) -> io::Result<OwnedFd> {
    let mut attribute = IdAttribute { id, ..IdAttribute::default() };
    // SAFETY: the attribute holds no address.
    unsafe { bpf_fd(BpfCommand::ProgramFdById, &mut attribute) }
}
