//! Links: connections of programs to events. Dropping a link detaches.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use kymo_model::{Attr, AttrFlags, EventType};

use super::{BpfCommand, BpfError, BpfProgram, bpf_fd};
use crate::perf_event::{OpenError, OpenFlags, PerfEvent};
use crate::pmu::Pmus;

/// A program attached to an event.
#[derive(Debug)]
pub struct BpfLink {
    // The link before the event it hangs on.
    _link: Option<OwnedFd>,
    _event: Option<PerfEvent>,
}

/// Attach types of `BPF_LINK_CREATE`.
const TRACE_ITERATOR: u32 = 28;
const PERF_EVENT: u32 = 41;
const KPROBE_MULTI: u32 = 42;
const UPROBE_MULTI: u32 = 48;

/// `BPF_F_KPROBE_MULTI_RETURN`, `BPF_F_UPROBE_MULTI_RETURN`.
const MULTI_RETURN: u32 = 1;

/// `PERF_EVENT_IOC_SET_BPF`.
const IOC_SET_BPF: u64 = 0x4004_2408;

#[repr(C)]
#[derive(Default)]
struct LinkAttribute {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// `BPF_LINK_CREATE` of an iterator.
#[repr(C)]
#[derive(Default)]
struct IteratorLinkAttribute {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    info: u64,
    info_len: u32,
    padding: u32,
}

/// `bpf_iter_link_info.task`.
#[repr(C)]
#[derive(Default)]
struct TaskIteratorInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct KprobeMultiAttribute {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    count: u32,
    symbols: u64,
    addresses: u64,
    cookies: u64,
}

#[repr(C)]
#[derive(Default)]
struct UprobeMultiAttribute {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    semaphores: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct RawTracepointAttribute {
    name: u64,
    prog_fd: u32,
    pad: u32,
    cookie: u64,
}

#[repr(C)]
#[derive(Default)]
struct IteratorAttribute {
    link_fd: u32,
    flags: u32,
}

impl BpfLink {
    /// Attaches to the tracepoint of a perf event, which stays disabled: programs run without
    /// it, and an enabled one would take each event that they let pass.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn to_tracepoint(program: &BpfProgram, event: PerfEvent) -> Result<BpfLink, BpfError> {
        let link = link_to_event(program, &event)?;
        Ok(BpfLink { _link: link, _event: Some(event) })
    }

    /// Attaches to a perf event (probe, sampling). Kernels before 5.15 have no
    /// link for it: there the program is set on the event, which holds it as well.
    pub fn to_perf_event(program: &BpfProgram, event: PerfEvent) -> Result<BpfLink, BpfError> {
        let link = link_to_event(program, &event)?;
        event.enable().map_err(|e| BpfError::new("enable event", e))?;
        Ok(BpfLink { _link: link, _event: Some(event) })
    }

    /// Attaches to a raw tracepoint, by name; `None` for a tracing program, which was loaded
    /// for its function or tracepoint.
    pub fn to_raw_tracepoint(
        program: &BpfProgram,
        name: Option<&str>,
    ) -> Result<BpfLink, BpfError> {
        let action = || format!("attach to {}", name.unwrap_or("function"));
        let text = CString::new(name.unwrap_or_default())
            .map_err(|e| BpfError::new(action(), e.into()))?;
        let mut attribute = RawTracepointAttribute {
            name: if name.is_some() { text.as_ptr() as u64 } else { 0 },
            prog_fd: fd_of(program),
            ..RawTracepointAttribute::default()
        };
        // SAFETY: the attribute is of `BPF_RAW_TRACEPOINT_OPEN`; the name is NUL-terminated and
        // outlives the call.
        let link = unsafe { bpf_fd(BpfCommand::RawTracepointOpen, &mut attribute) }
            .map_err(|e| BpfError::new(action(), e))?;
        Ok(BpfLink { _link: Some(link), _event: None })
    }

    /// Attaches to many functions of the kernel in one call, by their addresses (since 5.18).
    pub fn to_kprobes(
        program: &BpfProgram,
        addresses: &[u64],
        at_return: bool,
    ) -> Result<BpfLink, BpfError> {
        let mut attribute = KprobeMultiAttribute {
            prog_fd: fd_of(program),
            attach_type: KPROBE_MULTI,
            multi_flags: if at_return { MULTI_RETURN } else { 0 },
            count: addresses.len() as u32,
            addresses: addresses.as_ptr() as u64,
            ..KprobeMultiAttribute::default()
        };
        // SAFETY: the attribute is of `BPF_LINK_CREATE`; the kernel reads `count` addresses.
        let link = unsafe { bpf_fd(BpfCommand::LinkCreate, &mut attribute) }
            .map_err(|e| BpfError::new("attach to kernel functions", e))?;
        Ok(BpfLink { _link: Some(link), _event: None })
    }

    /// Attaches to many probe points of a binary in one call (since 6.6).
    pub fn to_uprobes(
        program: &BpfProgram,
        path: &str,
        offsets: &[u64],
        at_return: bool,
        pid: Option<u32>,
    ) -> Result<BpfLink, BpfError> {
        let failed = |e| BpfError::new(format!("attach to {path}"), e);
        let text = CString::new(path).map_err(|e| failed(e.into()))?;
        let mut attribute = UprobeMultiAttribute {
            prog_fd: fd_of(program),
            attach_type: UPROBE_MULTI,
            path: text.as_ptr() as u64,
            offsets: offsets.as_ptr() as u64,
            count: offsets.len() as u32,
            multi_flags: if at_return { MULTI_RETURN } else { 0 },
            pid: pid.unwrap_or(0),
            ..UprobeMultiAttribute::default()
        };
        // SAFETY: the attribute is of `BPF_LINK_CREATE`; the path is NUL-terminated, the kernel
        // reads `count` offsets; both outlive the call.
        let link = unsafe { bpf_fd(BpfCommand::LinkCreate, &mut attribute) }.map_err(failed)?;
        Ok(BpfLink { _link: Some(link), _event: None })
    }
}

/// Runs an iterator program over all objects of its kind, or over those of one process (Linux
/// 6.1, iterators of tasks); what it writes is in the file.
pub fn open_iterator(
    program: &BpfProgram,
    process: Option<u32>,
) -> Result<(BpfLink, File), BpfError> {
    let failed = |e| BpfError::new("start iterator", e);
    let info = TaskIteratorInfo { pid: process.unwrap_or(0), ..TaskIteratorInfo::default() };
    let mut attribute = IteratorLinkAttribute {
        prog_fd: fd_of(program),
        attach_type: TRACE_ITERATOR,
        ..IteratorLinkAttribute::default()
    };
    if process.is_some() {
        attribute.info = std::ptr::from_ref(&info) as u64;
        attribute.info_len = size_of_val(&info) as u32;
    }
    // SAFETY: the attribute is of `BPF_LINK_CREATE`; the info outlives the call.
    let link = unsafe { bpf_fd(BpfCommand::LinkCreate, &mut attribute) }.map_err(failed)?;
    let mut attribute = IteratorAttribute { link_fd: link.as_raw_fd() as u32, flags: 0 };
    // SAFETY: the attribute is of `BPF_ITER_CREATE`; no address in it.
    let output = unsafe { bpf_fd(BpfCommand::IteratorCreate, &mut attribute) }.map_err(failed)?;
    Ok((BpfLink { _link: Some(link), _event: None }, File::from(output)))
}

/// Place of a kprobe or uprobe.
#[derive(Clone, Copy, Debug)]
pub enum ProbeEventPlace<'a> {
    /// A function of the kernel, and bytes from its begin.
    Function(&'a str, u64),
    /// An address in the kernel.
    Address(u64),
    /// A binary, and an offset in the file; and the offset of a reference counter, or 0.
    File(&'a str, u64, u32),
}

/// Opens perf events of the PMUs `kprobe` and `uprobe`.
#[derive(Debug)]
pub struct ProbeEvent {
    kind: u32,
    return_bit: u64,
    is_user: bool,
}

impl ProbeEvent {
    /// Finds the PMU; `None` where this kernel has no such probes.
    pub fn of_pmu(name: &str) -> Option<ProbeEvent> {
        let pmus = Pmus::open();
        let pmu = pmus.get(name)?;
        let return_bit = pmu.format("retprobe").map_or(1, |format| format.put(0, 1));
        Some(ProbeEvent { kind: pmu.kind, return_bit, is_user: name == "uprobe" })
    }

    /// Opens an event at a place, for all processes or one.
    pub fn open(
        &self,
        place: ProbeEventPlace<'_>,
        at_return: bool,
        pid: Option<u32>,
    ) -> Result<PerfEvent, OpenError> {
        let text = match place {
            ProbeEventPlace::Function(text, _) | ProbeEventPlace::File(text, ..) => text,
            ProbeEventPlace::Address(_) => "",
        };
        // A name with NUL in it names nothing.
        let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
        let (offset, semaphore) = match place {
            ProbeEventPlace::Function(_, offset) => (offset, 0),
            ProbeEventPlace::Address(address) => (address, 0),
            ProbeEventPlace::File(_, offset, semaphore) => (offset, semaphore),
        };
        let attr = Attr {
            kind: EventType(self.kind),
            config: u64::from(semaphore) << 32 | if at_return { self.return_bit } else { 0 },
            sample_period: 1,
            wakeup: 1,
            flags: AttrFlags::DISABLED,
            config1: match place {
                ProbeEventPlace::Address(_) => 0,
                _ => text.as_ptr() as u64,
            },
            config2: offset,
            ..Attr::default()
        };
        let (pid, cpu) = match pid {
            Some(pid) if self.is_user => (pid as i32, -1),
            _ => (-1, 0),
        };
        PerfEvent::open(&attr, pid, cpu, None, OpenFlags::NONE)
    }
}

fn fd_of(program: &BpfProgram) -> u32 {
    program.as_fd().as_raw_fd() as u32
}

/// The link, or none where the program is set on the event.
fn link_to_event(program: &BpfProgram, event: &PerfEvent) -> Result<Option<OwnedFd>, BpfError> {
    let mut attribute = LinkAttribute {
        prog_fd: fd_of(program),
        target_fd: event.as_raw_fd() as u32,
        attach_type: PERF_EVENT,
        ..LinkAttribute::default()
    };
    // SAFETY: the attribute is of `BPF_LINK_CREATE` and holds no address.
    match unsafe { bpf_fd(BpfCommand::LinkCreate, &mut attribute) } {
        Ok(link) => Ok(Some(link)),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            set_program(event, program).map_err(|e| BpfError::new("attach program", e))?;
            Ok(None)
        }
        Err(e) => Err(BpfError::new("attach program", e)),
    }
}

fn set_program(event: &PerfEvent, program: &BpfProgram) -> io::Result<()> {
    let program: BorrowedFd<'_> = program.as_fd();
    // SAFETY: the request takes a descriptor's number, no memory.
    let done = unsafe {
        libc::ioctl(event.as_raw_fd(), IOC_SET_BPF as _, program.as_raw_fd() as libc::c_ulong)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
