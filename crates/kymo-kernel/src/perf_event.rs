//! One perf event: opening it, switching it, reading it.
//!
//! [`PerfEvent`] owns the descriptor that perf_event_open(2) gave; dropping it ends the counting. A
//! refusal is an [`OpenError`], which keeps the error number and describes the cause and the
//! remedy. The rings that samples arrive in are in `ring`.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use kymo_model::{Attr, AttrFlags, Cursor, Endian, EventType, ReadFormat, ReadValues};

use crate::lockdown;
use crate::process::{has_capability, raise_open_file_limit};
use crate::system_root::system_path;

/// The way out when only user space may be counted.
pub const FOR_THE_KERNELS_SIDE: &str = "run as root or with CAP_PERFMON, or set \
                                        kernel.perf_event_paranoid to 1 or less; events with the \
                                        modifier :u need no more";

/// `PERF_FLAG_*` of perf_event_open(2), by the kernel's names. `FD_CLOEXEC` is
/// always added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u64);

impl OpenFlags {
    /// Nothing special.
    pub const NONE: OpenFlags = OpenFlags(0);
    /// `PERF_FLAG_FD_NO_GROUP`.
    pub const FD_NO_GROUP: OpenFlags = OpenFlags(1);
    /// `PERF_FLAG_FD_OUTPUT`.
    pub const FD_OUTPUT: OpenFlags = OpenFlags(2);
    /// `PERF_FLAG_PID_CGROUP`: `pid` is a descriptor of a cgroup directory.
    pub const PID_CGROUP: OpenFlags = OpenFlags(4);

    const FD_CLOEXEC: u64 = 8;
}

// The requests of perf_event ioctls: _IO('$', n) and relatives.
const IOC_ENABLE: u64 = 0x2400;
const IOC_DISABLE: u64 = 0x2401;
const IOC_REFRESH: u64 = 0x2402;
const IOC_RESET: u64 = 0x2403;
const IOC_SET_OUTPUT: u64 = 0x2405;
const IOC_SET_FILTER: u64 = 0x4008_2406;
const IOC_ID: u64 = 0x8008_2407;
const IOC_FLAG_GROUP: libc::c_ulong = 1;

/// An open perf event.
#[derive(Debug)]
pub struct PerfEvent {
    fd: OwnedFd,
}

impl PerfEvent {
    /// Opens an event for a task (`pid`, 0 for this one, -1 for all) on a CPU
    /// (-1 for all). When descriptors run out, the soft limit is raised to the
    /// hard one before giving up.
    pub fn open(
        attr: &Attr,
        pid: i32,
        cpu: i32,
        group: Option<BorrowedFd<'_>>,
        flags: OpenFlags,
    ) -> Result<PerfEvent, OpenError> {
        let mut bytes = attr.to_bytes();
        let mut raised = false;
        let mut shrunk = false;
        loop {
            match sys_open(&mut bytes, pid, cpu, group, flags) {
                Ok(fd) => return Ok(PerfEvent { fd }),
                Err(libc::EMFILE) if !raised && raise_open_file_limit().unwrap_or(false) => {
                    raised = true;
                }
                Err(libc::EINTR) => {}
                // An older kernel writes the size it knows into the attribute.
                Err(libc::E2BIG) if !shrunk && shrink(&mut bytes) => shrunk = true,
                Err(errno) => return Err(OpenError::new(errno, attr, pid, cpu, flags)),
            }
        }
    }

    /// Starts counting.
    pub fn enable(&self) -> io::Result<()> {
        self.ioctl(IOC_ENABLE, 0)
    }

    /// Stops counting.
    pub fn disable(&self) -> io::Result<()> {
        self.ioctl(IOC_DISABLE, 0)
    }

    /// Starts this event and those of its group.
    pub fn enable_group(&self) -> io::Result<()> {
        self.ioctl(IOC_ENABLE, IOC_FLAG_GROUP)
    }

    /// Stops this event and those of its group.
    pub fn disable_group(&self) -> io::Result<()> {
        self.ioctl(IOC_DISABLE, IOC_FLAG_GROUP)
    }

    /// Sets the count to zero; the times go on.
    pub fn reset(&self) -> io::Result<()> {
        self.ioctl(IOC_RESET, 0)
    }

    /// Enables for `overflows` more overflows.
    pub fn refresh(&self, overflows: u32) -> io::Result<()> {
        self.ioctl(IOC_REFRESH, overflows.into())
    }

    /// Sends this event's records to the ring of `other`.
    pub fn set_output(&self, other: &PerfEvent) -> io::Result<()> {
        self.ioctl(IOC_SET_OUTPUT, other.fd.as_raw_fd() as libc::c_ulong)
    }

    /// Sets a tracepoint's filter (or an address filter). A filter the kernel
    /// cannot parse gives `InvalidInput`.
    pub fn set_filter(&self, filter: &str) -> io::Result<()> {
        let text = CString::new(filter)?;
        // SAFETY: the request reads a NUL-terminated string, which outlives the call.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_FILTER as _, text.as_ptr()) })
    }

    /// The id that samples and grouped reads name this event by.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: the request writes one u64 behind the pointer, which outlives the call.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ID as _, &raw mut id) })?;
        Ok(id)
    }

    /// Reads the counts; `format` is the `read_format` the event was opened with.
    /// An event the kernel put in error state (a pinned one that found no
    /// counter) gives no values.
    pub fn read(&self, format: ReadFormat) -> io::Result<ReadValues> {
        let mut small = [0u8; 256];
        let n = match rustix::io::read(&self.fd, &mut small) {
            Ok(n) => n,
            // Too small for this group.
            Err(rustix::io::Errno::NOSPC) => {
                let mut large = vec![0u8; 64 * 1024];
                let n = rustix::io::read(&self.fd, &mut large)?;
                return decode(large.get(..n).unwrap_or_default(), format);
            }
            Err(e) => return Err(e.into()),
        };
        decode(small.get(..n).unwrap_or_default(), format)
    }

    fn ioctl(&self, request: u64, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: these requests take a number, not a pointer.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), request as _, argument) })
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for PerfEvent {
    fn as_raw_fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

fn decode(bytes: &[u8], format: ReadFormat) -> io::Result<ReadValues> {
    if bytes.is_empty() {
        return Ok(ReadValues::default());
    }
    ReadValues::parse(&mut Cursor::new(bytes, Endian::NATIVE), format)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn sys_open(
    bytes: &mut [u8; Attr::SIZE],
    pid: i32,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
    flags: OpenFlags,
) -> Result<OwnedFd, i32> {
    let group = group.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: the attribute states its own size, which is at most the array's, and the kernel
    // writes (on E2BIG) only its size field; the array outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            bytes.as_mut_ptr(),
            pid,
            cpu,
            group,
            flags.0 | OpenFlags::FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    // SAFETY: the kernel just gave this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Takes over the size an older kernel asks for, if nothing is lost by it.
fn shrink(bytes: &mut [u8; Attr::SIZE]) -> bool {
    let [_, _, _, _, a, b, c, d, ..] = *bytes;
    let size = u32::from_ne_bytes([a, b, c, d]) as usize;
    (Attr::SIZE_VER0..Attr::SIZE).contains(&size)
        && bytes.get(size..).is_some_and(|rest| rest.iter().all(|&b| b == 0))
}

/// The kernel refused to open an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// The error number.
    pub errno: i32,
    /// For whom it was to count.
    pub pid: i32,
    /// CPU.
    pub cpu: i32,
    /// The event needs the kernel's side and `exclude_kernel` was not set.
    pub wants_kernel: bool,
    /// `/proc/sys/kernel/perf_event_paranoid`, where it is the likely cause.
    pub paranoid: Option<i32>,
    tracepoint: bool,
    samples: bool,
    cgroup: bool,
}

impl OpenError {
    fn new(errno: i32, attr: &Attr, pid: i32, cpu: i32, flags: OpenFlags) -> Self {
        let denied = matches!(errno, libc::EPERM | libc::EACCES);
        OpenError {
            errno,
            pid,
            cpu,
            wants_kernel: !attr.flags.contains(AttrFlags::EXCLUDE_KERNEL),
            paranoid: if denied { paranoid_level() } else { None },
            tracepoint: attr.kind == EventType::TRACEPOINT,
            samples: attr.sample_period != 0,
            cgroup: flags.0 & OpenFlags::PID_CGROUP.0 != 0,
        }
    }

    /// The machine has no such event; the others can still be counted
    /// (perf's `<not supported>`).
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno,
            libc::ENOENT | libc::ENOSYS | libc::EOPNOTSUPP | libc::ENXIO | libc::EINVAL
        )
    }

    /// The attribute asks for something that this PMU or kernel cannot do.
    pub fn is_invalid(&self) -> bool {
        self.errno == libc::EINVAL
    }

    /// The task ended before the event was open.
    pub fn is_gone(&self) -> bool {
        self.errno == libc::ESRCH
    }

    /// A matter of privileges.
    pub fn is_denied(&self) -> bool {
        matches!(self.errno, libc::EPERM | libc::EACCES)
    }

    /// The way out, where one is known.
    pub fn advice(&self) -> Option<String> {
        Some(match self.errno {
            libc::EPERM | libc::EACCES => self.permission(),
            libc::EMFILE => "each event needs a file descriptor per thread and CPU: raise the \
                             limit (ulimit -Hn), use fewer events, or trace all tasks (-a)"
                .into(),
            libc::ENFILE => "raise fs.file-max, or use fewer events".into(),
            libc::ENOMEM => "use a smaller ring (-m), or raise kernel.perf_event_mlock_kb".into(),
            libc::EBUSY => "another tool or the NMI watchdog uses the counter \
                            (kernel.nmi_watchdog=0)"
                .into(),
            libc::ENODEV if self.cpu >= 0 => {
                format!("CPU {} may be offline: see /sys/devices/system/cpu/online", self.cpu)
            }
            libc::ENOENT | libc::EOPNOTSUPP if self.samples => {
                "this machine cannot sample the event; cpu-clock always can".into()
            }
            _ => return None,
        })
    }

    /// The strictest of the kernel's checks that stands in the way.
    fn permission(&self) -> String {
        const CAP_SYS_ADMIN: u32 = 21;
        if has_capability(CAP_SYS_ADMIN) && lockdown::is_confidential() {
            return "the kernel is in lockdown mode confidentiality".into();
        }
        let level = self.paranoid.unwrap_or(-1);
        let needs = if level > 2 {
            // Mainline knows no such level.
            "above 2, kernels of Debian, Ubuntu and Android refuse all events to unprivileged users"
        } else if self.tracepoint && self.samples && level > -1 {
            "-1 for raw tracepoints"
        } else if self.pid == -1 && !self.cgroup && level > 0 {
            "0 or less for system-wide events"
        } else if self.wants_kernel && level > 1 {
            "1 or less to count in the kernel (the event modifier :u counts only user space)"
        } else if self.pid > 0 {
            return format!("run as root or with CAP_PERFMON: task {} is not yours", self.pid);
        } else {
            return "run as root or with CAP_PERFMON".into();
        };
        format!(
            "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid \
             (it is {level}; {needs})"
        )
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.errno {
            libc::EPERM | libc::EACCES => write!(f, "permission denied"),
            libc::ESRCH => write!(f, "task {} is gone", self.pid),
            libc::EMFILE => write!(f, "too many open files in this process"),
            libc::ENFILE => write!(f, "too many open files in the system"),
            libc::ENODEV => write!(f, "no such device or CPU"),
            libc::ENOENT => write!(f, "this machine has no such event"),
            libc::EOPNOTSUPP => write!(f, "the hardware does not support the event"),
            libc::ENOSYS => write!(f, "this kernel has no perf events"),
            libc::EBUSY => write!(f, "the counter is in use"),
            libc::E2BIG => write!(f, "this kernel is too old for the event's attributes"),
            libc::EINVAL => write!(f, "the kernel rejects these attributes as invalid"),
            other => write!(f, "{}", io::Error::from_raw_os_error(other)),
        }?;
        match self.advice() {
            Some(advice) => write!(f, ": {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for OpenError {}

/// The value of `kernel.perf_event_paranoid`.
pub fn paranoid_level() -> Option<i32> {
    fs::read_to_string(system_path("/proc/sys/kernel/perf_event_paranoid"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Highest sampling frequency that the kernel allows.
pub fn max_sample_rate() -> Option<u64> {
    let text =
        fs::read_to_string(system_path("/proc/sys/kernel/perf_event_max_sample_rate")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::sw;

    fn clock() -> Attr {
        Attr {
            kind: EventType::SOFTWARE,
            config: sw::TASK_CLOCK,
            read_format: ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING,
            flags: AttrFlags::DISABLED,
            ..Attr::default()
        }
    }

    #[test]
    fn counts_only_while_enabled() {
        let attr = clock();
        let event = PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE).unwrap();
        assert_eq!(event.read(attr.read_format).unwrap().values[0].0, 0);
        event.enable().unwrap();
        let spun = (0..100_000u64).map(std::hint::black_box).sum::<u64>();
        assert!(spun > 0);
        event.disable().unwrap();
        let first = event.read(attr.read_format).unwrap();
        assert!(first.values[0].0 > 0 && first.time_enabled == first.time_running);
        assert_eq!(event.read(attr.read_format).unwrap(), first);
        event.reset().unwrap();
        assert_eq!(event.read(attr.read_format).unwrap().values[0].0, 0);
        assert_ne!(event.id().unwrap(), 0);
    }

    #[test]
    fn refusals_are_distinguished() {
        let open = |attr: &Attr, pid, cpu| {
            PerfEvent::open(attr, pid, cpu, None, OpenFlags::NONE).unwrap_err()
        };
        let none = Attr { kind: EventType(0x7fff_0000), ..clock() };
        assert!(open(&none, 0, -1).is_unsupported());
        let gone = open(&clock(), i32::MAX, -1);
        assert!(gone.is_gone() && gone.to_string().contains("2147483647"), "{gone}");
        let text = open(&clock(), -1, 4095).to_string();
        assert!(text.contains("CPU 4095") || text.contains("invalid"), "{text}");
    }

    #[test]
    fn an_older_kernels_size_is_taken_only_if_nothing_is_lost() {
        let mut bytes = clock().to_bytes();
        bytes[4..8].copy_from_slice(&112u32.to_ne_bytes());
        assert!(shrink(&mut bytes));
        bytes[135] = 1;
        assert!(!shrink(&mut bytes));
    }

    #[test]
    fn denial_names_what_stands_in_the_way() {
        let all = OpenError {
            errno: libc::EACCES,
            pid: -1,
            cpu: 0,
            wants_kernel: true,
            paranoid: Some(2),
            tracepoint: false,
            samples: false,
            cgroup: false,
        };
        let check = |e: OpenError, part: &str| assert!(e.to_string().contains(part), "{e}");
        check(all.clone(), "perf_event_paranoid (it is 2; 0 or less for system-wide events)");
        let task = OpenError { pid: 7, ..all };
        check(task.clone(), "(it is 2; 1 or less to count in the kernel");
        // Whose task it is does not depend on the setting.
        let user = OpenError { wants_kernel: false, ..task };
        check(user.clone(), "task 7 is not yours");
        let strict = OpenError { paranoid: Some(3), ..user.clone() };
        check(strict, "perf_event_paranoid (it is 3; above 2, kernels of Debian");
        check(OpenError { paranoid: Some(-1), wants_kernel: true, ..user.clone() }, "not yours");
        let raw = OpenError { tracepoint: true, samples: true, ..user };
        check(raw.clone(), "-1 for raw tracepoints");
        check(OpenError { pid: -1, wants_kernel: true, ..raw }, "-1 for raw tracepoints");
    }
}
