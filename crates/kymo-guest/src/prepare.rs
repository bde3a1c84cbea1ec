//! Preparation of the system before the first command: file systems, modules, the loopback
//! interface, the port to the host.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, SendFlags, SocketType};

/// Type, where, options. Nothing covers `/tmp` or `/run`: programs of the host may lie
/// below them, and the first file system is in memory anyway.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", "ptmxmode=666"),
    ("tmpfs", "/dev/shm", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
];

/// The port appears a moment after its driver.
const PATIENCE: Duration = Duration::from_secs(10);

/// Mounts everything; returns what failed, in words.
pub(crate) fn mounts() -> Vec<String> {
    let one = |kind: &str, place: &str, options: &str| -> io::Result<()> {
        // In sysfs the directories are there and none can be made.
        if !Path::new(place).is_dir() {
            std::fs::create_dir_all(place)?;
        }
        let options = CString::new(options)?;
        rustix::mount::mount(kind, place, kind, MountFlags::empty(), options.as_c_str())?;
        Ok(())
    };
    let mut failed = Vec::new();
    for (kind, place, options) in MOUNTS {
        if let Err(e) = one(kind, place, options) {
            failed.push(format!("{kind} on {place}: {e}"));
        }
    }
    for place in ["/tmp", "/run"] {
        let open = || {
            std::fs::create_dir_all(place)?;
            std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o1777))
        };
        failed.extend(open().err().map(|e| format!("{place}: {e}")));
    }
    if let Err(e) = rustix::system::sethostname(b"guest") {
        failed.push(format!("host name: {e}"));
    }
    failed
}

/// Loads one module file. One that is loaded already is fine.
pub(crate) fn load(path: &str, parameters: &str) -> io::Result<()> {
    let file = File::open(path)?;
    let parameters = CString::new(parameters)?;
    match rustix::system::finit_module(&file, &parameters, 0) {
        Err(e) if e != rustix::io::Errno::EXIST => Err(e.into()),
        _ => Ok(()),
    }
}

/// Loads a module of the list in [`kymo_guest::MODULES`] after those it needs. One without a file
/// is built in.
pub(crate) fn load_by_name(name: &str, parameters: &str) -> io::Result<()> {
    let list = std::fs::read_to_string(kymo_guest::MODULES)?;
    let mut lines = list.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let line = lines.find(|words| words.first() == Some(&name));
    let line = line.ok_or_else(|| io::Error::other("it is not in the guest"))?;
    let [_, before @ .., last] = line.as_slice() else { return Ok(()) };
    for path in before {
        load(path, "")?;
    }
    load(last, parameters)
}

/// Switches the interface `lo` on, with a netlink request: `RTM_NEWLINK` for
/// interface 1 with the flag `IFF_UP`.
pub(crate) fn loopback() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    let mut request = Vec::new();
    // nlmsghdr: length, type, flags, sequence, port.
    request.extend(32_u32.to_ne_bytes());
    request.extend(RTM_NEWLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    // ifinfomsg: family, padding, type, index, flags, mask of flags.
    request.extend([0; 4]);
    request.extend(1_i32.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    request.extend(IFF_UP.to_ne_bytes());
    let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    rustix::net::send(&socket, &request, SendFlags::empty())?;
    Ok(())
}

/// Mounts the disk, which is read-only.
pub(crate) fn disk(place: &str) -> io::Result<()> {
    const DEVICE: &str = "/dev/vda";
    let start = Instant::now();
    while !Path::new(DEVICE).exists() && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::create_dir_all(place)?;
    rustix::mount::mount(DEVICE, place, "ext4", MountFlags::RDONLY, None)?;
    Ok(())
}

/// Opens the port to the host.
pub(crate) fn port() -> io::Result<File> {
    let start = Instant::now();
    loop {
        match File::options().read(true).write(true).open(kymo_guest::PORT) {
            Err(_) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
}

/// Milliseconds since the kernel started.
pub(crate) fn uptime() -> u32 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split(' ').next().and_then(|s| s.parse::<f64>().ok());
    (seconds.unwrap_or_default() * 1000.0) as u32
}
