//! Arguments of each call: when each is read, and what writes it.

use super::printer::CallPrinter;
use super::words as w;
use super::{commands, files, signals, sockets, times};

type P<'a> = CallPrinter<'a>;
/// Writes an argument.
type Writer = fn(&mut CallPrinter<'_>, u64);

/// When an argument is written.
#[derive(Clone, Copy)]
pub(super) enum Argument {
    /// At the beginning of the call, unless one before it cannot.
    In(Writer),
    /// At its end; an address if the call has failed.
    Out(Writer),
    /// At its end, failed or not.
    End(Writer),
    /// At the end of the call, failed or not, with the comma before it.
    Tail(Writer),
}

use Argument::{End, In, Out, Tail};

/// The arguments of a call.
#[derive(Clone, Copy)]
pub(super) enum CallShape {
    /// As its table says.
    Known(&'static [Argument]),
    /// Numbers, this many of them.
    Numbers(usize),
}

impl std::fmt::Debug for CallShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} arguments", self.arguments().count())
    }
}

impl CallShape {
    pub(super) fn arguments(self) -> impl Iterator<Item = Argument> {
        const NUMBERS: [Argument; 6] = [In(hex); 6];
        let arguments: &'static [Argument] = match self {
            CallShape::Known(arguments) => arguments,
            CallShape::Numbers(count) => NUMBERS.get(..count).unwrap_or(&NUMBERS),
        };
        arguments.iter().copied()
    }
}

fn int(p: &mut P<'_>, v: u64) {
    p.signed((v as i32).into());
}
fn uint(p: &mut P<'_>, v: u64) {
    p.unsigned(v & 0xffff_ffff);
}
fn long(p: &mut P<'_>, v: u64) {
    p.signed(v.cast_signed());
}
fn ulong(p: &mut P<'_>, v: u64) {
    p.unsigned(v);
}
fn hex(p: &mut P<'_>, v: u64) {
    p.hex(v);
}
fn hex32(p: &mut P<'_>, v: u64) {
    p.hex(v & 0xffff_ffff);
}
fn addr(p: &mut P<'_>, v: u64) {
    p.address(v);
}
fn fd(p: &mut P<'_>, v: u64) {
    p.descriptor(v as i32);
}
fn dirfd(p: &mut P<'_>, v: u64) {
    if v as i32 != libc::AT_FDCWD {
        return p.descriptor(v as i32);
    }
    p.text("AT_FDCWD");
    if p.style.paths
        && let Some(path) = p.task.directory()
    {
        p.out.push(b'<');
        p.out.extend_from_slice(&path);
        p.out.push(b'>');
    }
}
/// A user or group; -1 stays so.
fn id(p: &mut P<'_>, v: u64) {
    match v as u32 {
        u32::MAX => p.text("-1"),
        id => p.unsigned(id.into()),
    }
}
fn path(p: &mut P<'_>, v: u64) {
    p.path(v);
}
fn text(p: &mut P<'_>, v: u64) {
    p.nul_quoted(v);
}
fn mode(p: &mut P<'_>, v: u64) {
    p.permissions(v & 0xffff);
}
fn file_mode(p: &mut P<'_>, v: u64) {
    files::mode_text(p, v as u32 & 0xffff);
}
fn device(p: &mut P<'_>, v: u64) {
    // Devices of system calls are packed in 32 bits.
    files::device(p, v & 0xffff_ffff);
}

macro_rules! flags {
    ($($name:ident: $words:ident $unknown:literal;)*) => { $(fn $name(p: &mut P<'_>, v: u64) {
        p.bits(w::$words, v & 0xffff_ffff, $unknown);
    })* };
}
macro_rules! values {
    ($($name:ident: $words:ident $unknown:literal;)*) => { $(fn $name(p: &mut P<'_>, v: u64) {
        p.word(w::$words, v & 0xffff_ffff, $unknown);
    })* };
}
flags! {
    prot_bits: PROT "PROT_???"; at: AT "AT_???"; at_access: AT_ACCESS "AT_???";
    statx_mask: STATX_MASK "STATX_???"; msg: MSG "MSG_???"; wait: WAIT "W???";
    random: RANDOM "GRND_???"; rename: RENAME "RENAME_???"; mremap: MREMAP "MREMAP_???";
    msync: MSYNC "MS_???"; mount: MOUNT "MS_???"; umount: UMOUNT "MNT_???";
    eventfd: EVENTFD "EFD_???"; signalfd: SIGNALFD "SFD_???"; timerfd: TIMERFD "TFD_???";
    inotify: INOTIFY "IN_???"; inotify_init: INOTIFY_INIT "IN_???"; flock: FLOCK "LOCK_???";
    splice: SPLICE "SPLICE_F_???"; falloc: FALLOC "FALLOC_FL_???"; rwf: RWF "RWF_???";
    sync_range: SYNC_RANGE "SYNC_FILE_RANGE_???"; close_range: CLOSE_RANGE "CLOSE_RANGE_???";
    mlockall: MLOCKALL "MCL_???"; mlock2: MLOCK "MLOCK_???"; seals: SEALS "F_SEAL_???";
    memfd: MEMFD "MFD_???"; sock_flags: SOCK "SOCK_???"; unshare: UNSHARE "CLONE_???";
    timer_flags: TIMER "TIMER_???"; xattr_flags: XATTR "XATTR_???"; pidfd: PIDFD "PIDFD_???";
    fd_flags: FD_FLAGS "FD_???"; pipe_flags: OPEN "O_???"; epoll_flags: EPOLL_CREATE "EPOLL_???";
    unshare_flags: CLONE "CLONE_???";
}
values! {
    whence: WHENCE "SEEK_???"; advice: MADV "MADV_???"; fadvice: ADVICE "POSIX_FADV_???";
    epoll_op: EPOLL_OP "EPOLL_CTL_???"; how: SIG_HOW "SIG_???"; itimer: ITIMER "ITIMER_???";
    shut: SHUT "SHUT_???"; rusage_who: RUSAGE "RUSAGE_???"; prio: PRIO "PRIO_???";
    id_type: ID_TYPE "P_???"; fcntl_name: FCNTL "F_???"; family: FAMILY "AF_???";
    level: LEVEL "SOL_??"; prctl_name: PRCTL "PR_???"; arch: ARCH_PRCTL "ARCH_???";
    barrier: MEMBARRIER "MEMBARRIER_CMD_???"; lease: LOCK_TYPE "F_???";
    capability: CAPABILITIES "CAP_???"; dumpable: DUMPABLE "SUID_DUMP_???";
    vma_option: VMA "PR_SET_VMA_???";
}

fn access(p: &mut P<'_>, v: u64) {
    match v & 0xffff_ffff {
        0 => p.text("F_OK"),
        mode => p.bits(w::ACCESS, mode, "?_OK"),
    }
}
fn prot(p: &mut P<'_>, v: u64) {
    if v == 0 { p.text("PROT_NONE") } else { prot_bits(p, v) }
}
fn map(p: &mut P<'_>, v: u64) {
    p.word(w::MAP_TYPE, v & 0xf, "MAP_???");
    p.more_bits(w::MAP, v & 0xffff_fff0);
}
fn open_flags(p: &mut P<'_>, v: u64) {
    files::open_flags_text(p, v & 0xffff_ffff);
}
fn statx_flags(p: &mut P<'_>, v: u64) {
    p.word(w::STATX_SYNC, v & 0x6000, "AT_STATX_???");
    p.more_bits(w::AT, v & 0xffff_9fff);
}
/// A clock; those below zero are of one task.
fn clock(p: &mut P<'_>, v: u64) {
    match v as i32 {
        ..0 => int(p, v),
        _ => p.word(w::CLOCK, v & 0xffff_ffff, "CLOCK_???"),
    }
}
fn socket_type(p: &mut P<'_>, v: u64) {
    let (kind, flags) = (v & 0xf, v & 0xffff_fff0);
    match w::SOCK_TYPE.iter().find(|(value, _)| *value == kind) {
        Some((_, name)) => {
            p.text(name);
            p.more_bits(w::SOCK, flags);
        }
        None if kind == 0 && flags == 0 => p.text("0"),
        None => p.bits(w::SOCK, v & 0xffff_ffff, "SOCK_???"),
    }
}
fn protocol(p: &mut P<'_>, v: u64) {
    let v = v & 0xffff_ffff;
    match p.args[0] as i32 {
        libc::AF_INET | libc::AF_INET6 => p.word(w::PROTOCOL, v, "IPPROTO_???"),
        libc::AF_NETLINK => p.word(w::NETLINK_PROTOCOL, v, "NETLINK_???"),
        libc::AF_PACKET if v == 0x300 => p.text("htons(ETH_P_ALL)"),
        _ => p.unsigned(v),
    }
}
fn option_name(p: &mut P<'_>, v: u64) {
    let (words, unknown): (w::Words, &str) = match p.args[1] as i32 {
        libc::SOL_SOCKET => (w::SO, "SO_???"),
        libc::SOL_TCP => (w::TCP_OPTION, "TCP_???"),
        libc::SOL_IP => (w::IP_OPTION, "IP_???"),
        libc::SOL_IPV6 => (w::IPV6_OPTION, "IPV6_???"),
        libc::SOL_NETLINK => (w::NETLINK_OPTION, "NETLINK_???"),
        _ => return hex32(p, v),
    };
    p.word(words, v & 0xffff_ffff, unknown);
}
/// Bytes that the kernel returned.
fn returned(p: &mut P<'_>, v: u64) {
    let size = p.returned();
    p.buffer(v, size);
}
fn returned_or_address(p: &mut P<'_>, v: u64) {
    // A size of zero asks how much there is.
    if p.args.get(3).is_some_and(|size| *size == 0) { p.address(v) } else { returned(p, v) }
}
fn returned_list(p: &mut P<'_>, v: u64) {
    if p.args[2] == 0 { p.address(v) } else { returned(p, v) }
}
fn returned_hex(p: &mut P<'_>, v: u64) {
    let size = p.returned();
    let limit = p.style.string_limit;
    let shown = usize::try_from(size).unwrap_or(limit).min(limit);
    match p.bytes(v, shown) {
        Some(bytes) => {
            super::printer::quote(&mut p.out, &bytes, shown as u64 == size, super::HexTexts::All);
        }
        None => p.address(v),
    }
}
fn returned_path(p: &mut P<'_>, v: u64) {
    p.path(v);
}
/// Bytes whose number is the argument behind.
fn bytes2(p: &mut P<'_>, v: u64) {
    let size = p.args[2];
    p.buffer(v, size);
}
fn bytes3(p: &mut P<'_>, v: u64) {
    let size = p.args[3];
    p.buffer(v, size);
}
fn bytes1(p: &mut P<'_>, v: u64) {
    let size = p.args[1];
    p.buffer(v, size);
}
fn vector(p: &mut P<'_>, v: u64) {
    let count = p.args[2];
    files::vector(p, v, count, None);
}
fn vector_read(p: &mut P<'_>, v: u64) {
    let (count, left) = (p.args[2], p.returned());
    files::vector(p, v, count, Some(left));
}
fn local_vector_read(p: &mut P<'_>, v: u64) {
    vector_read(p, v);
}
fn remote_vector(p: &mut P<'_>, v: u64) {
    let count = p.args[4];
    files::foreign_vector(p, v, count);
}
fn sockaddr2(p: &mut P<'_>, v: u64) {
    let size = p.args[2] & 0xffff_ffff;
    sockets::address(p, v, size);
}
fn sockaddr5(p: &mut P<'_>, v: u64) {
    let size = p.args[5] & 0xffff_ffff;
    sockets::address(p, v, size);
}
fn written_sockaddr2(p: &mut P<'_>, v: u64) {
    sockets::written_address(p, v, 2);
}
fn written_sockaddr5(p: &mut P<'_>, v: u64) {
    // None was written where the size is zero.
    if v != 0 && p.u32_at(p.args[5]) == Some(0) {
        p.address(v)
    } else {
        sockets::written_address(p, v, 5);
    }
}
fn sent_message(p: &mut P<'_>, v: u64) {
    sockets::message(p, v, None);
}
fn offset_moved(p: &mut P<'_>, v: u64) {
    let Some(now) = p.u64_at(v) else { return p.address(v) };
    p.text("[");
    p.signed(p.saved.cast_signed());
    if p.result.is_some_and(|(_, failed)| !failed) && now != p.saved {
        p.text("] => [");
        p.signed(now.cast_signed());
    }
    p.text("]");
}
fn wait_pid_status(p: &mut P<'_>, v: u64) {
    times::wait_status(p, v);
}
fn waited(p: &mut P<'_>, v: u64) {
    signals::info(p, v);
}
/// A set and its size, of pselect6(2).
fn set_and_size(p: &mut P<'_>, v: u64) {
    let Some(bytes) = p.bytes(v, 16) else { return p.address(v) };
    p.text("{sigmask=");
    signals::set(p, super::printer::u64_in(&bytes, 0));
    let size = super::printer::u64_in(&bytes, 8);
    p.text(", sigsetsize=");
    p.unsigned(size);
    p.text("}");
}
/// A set whose size is the argument of another place: one of another size is an address.
fn set_sized(p: &mut P<'_>, v: u64, place: usize) {
    match p.args.get(place) {
        Some(8) => signals::set(p, v),
        _ => p.address(v),
    }
}
fn time_at(p: &mut P<'_>, v: u64) {
    let Some(time) = p.u64_at(v) else { return p.address(v) };
    let words = p.task.local_time(time.cast_signed());
    p.text(&format!("[{time} /* {words} */]"));
}
fn residence(p: &mut P<'_>, v: u64) {
    p.address(v);
}
fn ptracer(p: &mut P<'_>, v: u64) {
    match v as i32 {
        -1 => p.text("PR_SET_PTRACER_ANY"),
        pid => p.signed(pid.into()),
    }
}

/// Whether the result is a new descriptor.
pub(super) fn returns_descriptor(name: &str) -> bool {
    matches!(
        name,
        "open"
            | "openat"
            | "openat2"
            | "creat"
            | "dup"
            | "dup2"
            | "dup3"
            | "socket"
            | "accept"
            | "accept4"
            | "epoll_create"
            | "epoll_create1"
            | "eventfd"
            | "eventfd2"
            | "signalfd"
            | "memfd_create"
            | "signalfd4"
            | "timerfd_create"
            | "inotify_init"
            | "inotify_init1"
            | "pidfd_open"
            | "perf_event_open"
            | "userfaultfd"
            | "fanotify_init"
            | "open_by_handle_at"
            | "pidfd_getfd"
            | "io_uring_setup"
            | "mq_open"
            | "fsopen"
            | "fsmount"
            | "open_tree"
    )
}

/// A number that the end of the call needs and the kernel may overwrite.
pub(super) fn remember(name: &str, p: &mut P<'_>) -> u64 {
    let size = |p: &mut P<'_>, at: u64| p.u32_at(at).map_or(0, u64::from);
    match name {
        "accept" | "accept4" | "getsockname" | "getpeername" => size(p, p.args[2]),
        "recvfrom" => size(p, p.args[5]),
        "getsockopt" => size(p, p.args[4]),
        "recvmsg" => size(p, p.args[1].wrapping_add(8)),
        "sendfile" => p.u64_at(p.args[2]).unwrap_or(0),
        _ => 0,
    }
}

/// Text of an argument that the kernel overwrites, and whose line has what it was before.
pub(super) fn keep(name: &str, p: &mut P<'_>) -> Vec<u8> {
    if name == "recvmmsg" {
        let address = p.args[4];
        times::timespec(p, address);
    }
    std::mem::take(&mut p.out)
}

fn kept(p: &mut P<'_>, _: u64) {
    let text = std::mem::take(&mut p.kept);
    p.out.extend_from_slice(&text);
}

/// The arguments of a call of this name.
pub(super) fn shape(name: &str, args: &[u64; 6], is_compat: bool) -> CallShape {
    if is_compat {
        return compat_shape(name);
    }
    match known(name, args) {
        Some(arguments) => CallShape::Known(arguments),
        None => CallShape::Numbers(super::counts::argument_count(name)),
    }
}

/// Programs of 32 bits: what their memory has is of other sizes, so that paths alone are read.
fn compat_shape(name: &str) -> CallShape {
    let known: &'static [Argument] = match name {
        "open" => &[In(path), In(open_flags)],
        "openat" => &[In(dirfd), In(path), In(open_flags)],
        "close" => &[In(fd)],
        "read" => &[In(fd), Out(returned), In(uint)],
        "write" => &[In(fd), In(bytes2), In(uint)],
        "access" => &[In(path), In(access)],
        "brk" => &[In(addr)],
        "exit_group" | "exit" => &[In(int)],
        "mprotect" => &[In(addr), In(uint), In(prot)],
        "munmap" => &[In(addr), In(uint)],
        "mmap2" => &[In(addr), In(uint), In(prot), In(map), In(fd), In(hex)],
        "getpid" | "getuid32" | "geteuid32" | "getgid32" | "getegid32" | "getppid" => &[],
        "unlink" | "rmdir" | "chdir" => &[In(path)],
        _ => return CallShape::Numbers(super::counts::argument_count(name)),
    };
    CallShape::Known(known)
}

fn creates(flags: u64) -> bool {
    flags & libc::O_CREAT as u64 != 0 || flags & 0x41_0000 == 0x41_0000
}

fn known(name: &str, args: &[u64; 6]) -> Option<&'static [Argument]> {
    let arguments: &'static [Argument] = match name {
        // Files.
        "read" => &[In(fd), Out(returned), In(ulong)],
        "write" => &[In(fd), In(bytes2), In(ulong)],
        "pread64" => &[In(fd), Out(returned), In(ulong), In(long)],
        "pwrite64" => &[In(fd), In(bytes2), In(ulong), In(long)],
        "readv" => &[In(fd), Out(vector_read), In(ulong)],
        "writev" => &[In(fd), In(vector), In(ulong)],
        "preadv2" => &[In(fd), Out(vector_read), In(ulong), In(long), In(|p, _| rwf(p, p.args[5]))],
        "pwritev2" => &[In(fd), In(vector), In(ulong), In(long), In(|p, _| rwf(p, p.args[5]))],
        "preadv" => &[In(fd), Out(vector_read), In(ulong), In(long)],
        "pwritev" => &[In(fd), In(vector), In(ulong), In(long)],
        "open" if creates(args[1]) => &[In(path), In(open_flags), In(mode)],
        "open" => &[In(path), In(open_flags)],
        "openat" if creates(args[2]) => &[In(dirfd), In(path), In(open_flags), In(mode)],
        "openat" => &[In(dirfd), In(path), In(open_flags)],
        "openat2" => &[In(dirfd), In(path), In(files::open_how), In(ulong)],
        "creat" => &[In(path), In(mode)],
        "close" | "fsync" | "fdatasync" | "fchdir" | "syncfs" => &[In(fd)],
        "stat" | "lstat" => &[In(path), Out(files::stat)],
        "fstat" => &[In(fd), Out(files::stat)],
        "newfstatat" => &[In(dirfd), In(path), Out(files::stat), In(at)],
        "statx" => &[In(dirfd), In(path), In(statx_flags), In(statx_mask), Out(files::statx)],
        "statfs" => &[In(path), Out(files::statfs)],
        "fstatfs" => &[In(fd), Out(files::statfs)],
        "access" => &[In(path), In(access)],
        "faccessat" => &[In(dirfd), In(path), In(access)],
        "faccessat2" => &[In(dirfd), In(path), In(access), In(at_access)],
        "lseek" => &[In(fd), In(long), In(whence)],
        "getdents64" | "getdents" => &[In(fd), Out(files::entries), In(uint)],
        "getcwd" => &[Out(returned_path), In(ulong)],
        "chdir" | "rmdir" | "unlink" | "chroot" | "swapoff" | "acct" => &[In(path)],
        "mkdir" | "chmod" => &[In(path), In(mode)],
        "mkdirat" => &[In(dirfd), In(path), In(mode)],
        "fchmodat" => &[In(dirfd), In(path), In(mode)],
        "fchmodat2" => &[In(dirfd), In(path), In(mode), In(at)],
        "fchmod" => &[In(fd), In(mode)],
        "umask" => &[In(mode)],
        "chown" | "lchown" => &[In(path), In(id), In(id)],
        "fchown" => &[In(fd), In(id), In(id)],
        "fchownat" => &[In(dirfd), In(path), In(id), In(id), In(at)],
        "rename" | "link" | "symlink" | "pivot_root" => &[In(path), In(path)],
        "renameat" => &[In(dirfd), In(path), In(dirfd), In(path)],
        "renameat2" => &[In(dirfd), In(path), In(dirfd), In(path), In(rename)],
        "linkat" => &[In(dirfd), In(path), In(dirfd), In(path), In(at)],
        "symlinkat" => &[In(path), In(dirfd), In(path)],
        "unlinkat" => &[In(dirfd), In(path), In(at)],
        "readlink" => &[In(path), Out(returned), In(ulong)],
        "readlinkat" => &[In(dirfd), In(path), Out(returned), In(ulong)],
        "mknod" if args[1] as u32 & 0o170000 == libc::S_IFIFO => &[In(path), In(file_mode)],
        "mknod" => &[In(path), In(file_mode), In(device)],
        "mknodat" if args[2] as u32 & 0o170000 == libc::S_IFIFO => {
            &[In(dirfd), In(path), In(file_mode)]
        }
        "mknodat" => &[In(dirfd), In(path), In(file_mode), In(device)],
        "truncate" => &[In(path), In(long)],
        "ftruncate" => &[In(fd), In(long)],
        "fallocate" => &[In(fd), In(falloc), In(long), In(long)],
        "fadvise64" => &[In(fd), In(long), In(ulong), In(fadvice)],
        "readahead" => &[In(fd), In(long), In(ulong)],
        "sync_file_range" => &[In(fd), In(long), In(long), In(sync_range)],
        "flock" => &[In(fd), In(flock)],
        "utimensat" => &[In(dirfd), In(path), In(files_times), In(at)],
        "sendfile" => &[In(fd), In(fd), End(offset_moved), In(ulong)],
        "copy_file_range" => {
            &[In(fd), In(commands::long_at), In(fd), In(commands::long_at), In(ulong), In(uint)]
        }
        "splice" => {
            &[In(fd), In(commands::long_at), In(fd), In(commands::long_at), In(ulong), In(splice)]
        }
        "tee" => &[In(fd), In(fd), In(ulong), In(splice)],
        "vmsplice" => &[In(fd), In(vector), In(ulong), In(splice)],
        "dup" => &[In(fd)],
        "dup2" => &[In(fd), In(fd)],
        "dup3" => &[In(fd), In(fd), In(pipe_flags)],
        "pipe" => &[Out(commands::descriptors)],
        "pipe2" => &[Out(commands::descriptors), In(pipe_flags)],
        "close_range" => &[In(uint), In(uint), In(close_range)],
        "memfd_create" => &[In(text), In(memfd)],
        "fcntl" => return Some(fcntl(args)),
        "ioctl" => return Some(ioctl(args)),
        "getxattr" | "lgetxattr" => &[In(path), In(text), Out(returned_or_address), In(ulong)],
        "fgetxattr" => &[In(fd), In(text), Out(returned_or_address), In(ulong)],
        "setxattr" | "lsetxattr" => &[In(path), In(text), In(bytes3), In(ulong), In(xattr_flags)],
        "fsetxattr" => &[In(fd), In(text), In(bytes3), In(ulong), In(xattr_flags)],
        "listxattr" | "llistxattr" => &[In(path), Out(returned_list), In(ulong)],
        "flistxattr" => &[In(fd), Out(returned_list), In(ulong)],
        "removexattr" | "lremovexattr" => &[In(path), In(text)],
        "fremovexattr" => &[In(fd), In(text)],
        "mount" => &[In(path), In(path), In(text), In(mount), In(text)],
        "umount2" => &[In(path), In(umount)],
        "inotify_init1" => &[In(inotify_init)],
        "inotify_add_watch" => &[In(fd), In(path), In(inotify)],
        "inotify_rm_watch" => &[In(fd), In(int)],
        // Memory.
        "mmap" => &[In(addr), In(ulong), In(prot), In(map), In(fd), In(hex)],
        "munmap" | "mlock" | "munlock" => &[In(addr), In(ulong)],
        "mlock2" => &[In(addr), In(ulong), In(mlock2)],
        "mlockall" => &[In(mlockall)],
        "mprotect" => &[In(addr), In(ulong), In(prot)],
        "pkey_mprotect" => &[In(addr), In(ulong), In(prot), In(int)],
        "madvise" => &[In(addr), In(ulong), In(advice)],
        "mremap" if args[3] & 6 != 0 => &[In(addr), In(ulong), In(ulong), In(mremap), In(addr)],
        "mremap" => &[In(addr), In(ulong), In(ulong), In(mremap)],
        "msync" => &[In(addr), In(ulong), In(msync)],
        "mincore" => &[In(addr), In(ulong), Out(residence)],
        "brk" | "set_tid_address" => &[In(addr)],
        "membarrier" => &[In(barrier), In(uint)],
        "process_vm_readv" => {
            &[In(int), Out(local_vector_read), In(ulong), In(remote_vector), In(ulong), In(ulong)]
        }
        "process_vm_writev" => {
            &[In(int), In(vector), In(ulong), In(remote_vector), In(ulong), In(ulong)]
        }
        // Processes.
        "execve" => &[In(path), In(files::texts), In(files::environment)],
        "execveat" => &[In(dirfd), In(path), In(files::texts), In(files::environment), In(at)],
        "exit" | "exit_group" | "alarm" | "getpgid" | "getsid" | "epoll_create" => &[In(int)],
        "wait4" => &[In(int), Out(wait_pid_status), In(wait), Out(times::wait_rusage)],
        "waitid" => &[In(id_type), In(int), Out(waited), In(wait), Out(times::rusage)],
        "clone" => return Some(clone(args)),
        "clone3" => &[In(commands::clone_args), Tail(commands::clone_size)],
        "unshare" => &[In(unshare_flags)],
        "setns" => &[In(fd), In(unshare)],
        "set_robust_list" => &[In(addr), In(ulong)],
        "get_robust_list" => &[In(int), Out(commands::pointer_at), Out(commands::long_at)],
        "rseq" => &[In(addr), In(hex32), In(hex32), In(hex32)],
        "arch_prctl" if matches!(args[0], 0x1003 | 0x1004) => {
            &[In(arch), Out(commands::pointer_at)]
        }
        "arch_prctl" => &[In(arch), In(hex)],
        "prctl" => return Some(prctl(args)),
        "futex" => return Some(futex(args)),
        "getrusage" => &[In(rusage_who), Out(times::rusage)],
        "getrlimit" => &[In(times::rlimit_name), Out(times::rlimit)],
        "setrlimit" => &[In(times::rlimit_name), In(times::rlimit)],
        "prlimit64" => &[In(int), In(times::rlimit_name), In(times::rlimit), Out(times::rlimit)],
        "getpriority" => &[In(prio), In(int)],
        "setpriority" => &[In(prio), In(int), In(int)],
        "sched_yield" | "getpid" | "gettid" | "getppid" | "getuid" | "geteuid" | "getgid"
        | "getegid" | "getpgrp" | "setsid" | "pause" | "sync" | "munlockall" | "fork" | "vfork"
        | "vhangup" | "inotify_init" => &[],
        "restart_syscall" => &[],
        "rt_sigreturn" => &[],
        "setuid" | "setgid" | "setfsuid" | "setfsgid" => &[In(id)],
        "setreuid" | "setregid" => &[In(id), In(id)],
        "setresuid" | "setresgid" => &[In(id), In(id), In(id)],
        "getresuid" | "getresgid" => &[
            Out(commands::unsigned_number),
            Out(commands::unsigned_number),
            Out(commands::unsigned_number),
        ],
        "getgroups" => &[In(int), Out(commands::groups)],
        "setgroups" => &[In(int), In(commands::groups)],
        "setpgid" => &[In(int), In(int)],
        "capget" => &[In(commands::capability_header), Out(commands::capabilities)],
        "capset" => &[In(commands::capability_header), In(commands::capabilities)],
        "sched_getaffinity" => &[In(int), In(ulong), Out(commands::cpus)],
        "sched_setaffinity" => &[In(int), In(ulong), In(commands::cpus)],
        "sched_getparam" => &[In(int), Out(commands::number)],
        "sched_setparam" => &[In(int), In(commands::number)],
        "sched_getscheduler" => &[In(int)],
        "sched_setscheduler" => &[In(int), In(commands::scheduler), In(commands::number)],
        "sched_get_priority_max" | "sched_get_priority_min" => &[In(commands::scheduler)],
        "sched_rr_get_interval" => &[In(int), Out(times::timespec)],
        "getcpu" => &[Out(commands::unsigned_number), Out(commands::unsigned_number), In(addr)],
        "personality" => &[In(hex32)],
        "uname" => &[Out(files::system_names)],
        "sysinfo" => &[Out(times::sysinfo)],
        "times" => &[Out(times::tms)],
        "sethostname" | "setdomainname" => &[In(bytes1), In(ulong)],
        "getrandom" => &[Out(returned_hex), In(ulong), In(random)],
        "pidfd_open" => &[In(int), In(pidfd)],
        "pidfd_send_signal" => &[In(fd), In(signals::signal), In(signals::info), In(hex32)],
        "pidfd_getfd" => &[In(fd), In(int), In(hex32)],
        // Signals.
        "kill" => &[In(int), In(signals::signal)],
        "tkill" => &[In(int), In(signals::signal)],
        "tgkill" => &[In(int), In(int), In(signals::signal)],
        "rt_sigqueueinfo" => &[In(int), In(signals::signal), In(signals::info)],
        "rt_sigaction" => {
            &[In(signals::signal), In(signals::action), Out(signals::action), In(ulong)]
        }
        "rt_sigprocmask" => &[In(how), In(|p, v| set_sized(p, v, 3)), Out(signals::set), In(ulong)],
        "rt_sigpending" => &[Out(signals::set), In(ulong)],
        "rt_sigsuspend" => &[In(|p, v| set_sized(p, v, 1)), In(ulong)],
        "rt_sigtimedwait" => {
            &[In(|p, v| set_sized(p, v, 3)), Out(signals::info), In(times::timespec), In(ulong)]
        }
        "sigaltstack" => &[In(signals::alternate_stack), Out(signals::alternate_stack)],
        "signalfd4" => &[In(fd), In(signals::set), In(ulong), In(signalfd)],
        // Times.
        "nanosleep" => &[In(times::timespec), End(times::remaining)],
        "clock_nanosleep" => {
            &[In(clock), In(timer_flags), In(times::timespec), End(times::remaining)]
        }
        "clock_gettime" | "clock_getres" => &[In(clock), Out(times::timespec)],
        "clock_settime" => &[In(clock), In(times::timespec)],
        "gettimeofday" => &[Out(times::timeval), Out(addr)],
        "time" => &[Out(time_at)],
        "getitimer" => &[In(itimer), Out(times::itimerval)],
        "setitimer" => &[In(itimer), In(times::itimerval), Out(times::itimerval)],
        "timer_create" => &[In(clock), In(commands::signal_event), Out(commands::number)],
        "timer_settime" => {
            &[In(int), In(timer_flags), In(times::itimerspec), Out(times::itimerspec)]
        }
        "timer_gettime" => &[In(int), Out(times::itimerspec)],
        "timer_getoverrun" | "timer_delete" => &[In(int)],
        "timerfd_create" => &[In(clock), In(timerfd)],
        "timerfd_settime" => &[In(fd), In(timerfd), In(times::itimerspec), Out(times::itimerspec)],
        "timerfd_gettime" => &[In(fd), Out(times::itimerspec)],
        // Descriptors that are waited for.
        "poll" => &[In(files::polled), In(uint), In(int)],
        "ppoll" => &[
            In(files::polled),
            In(uint),
            In(times::timespec),
            In(|p, v| set_sized(p, v, 4)),
            In(ulong),
        ],
        "select" => {
            &[In(int), In(files::fd_set), In(files::fd_set), In(files::fd_set), In(times::timeval)]
        }
        "pselect6" => &[
            In(int),
            In(files::fd_set),
            In(files::fd_set),
            In(files::fd_set),
            In(times::timespec),
            In(set_and_size),
        ],
        "epoll_create1" => &[In(epoll_flags)],
        "epoll_ctl" => &[In(fd), In(epoll_op), In(fd), In(files::epoll_event)],
        "epoll_wait" => &[In(fd), Out(files::epoll_events), In(int), In(int)],
        "epoll_pwait" => &[
            In(fd),
            Out(files::epoll_events),
            In(int),
            In(int),
            In(|p, v| set_sized(p, v, 5)),
            In(ulong),
        ],
        "epoll_pwait2" => &[
            In(fd),
            Out(files::epoll_events),
            In(int),
            In(times::timespec),
            In(|p, v| set_sized(p, v, 5)),
            In(ulong),
        ],
        "eventfd2" => &[In(uint), In(eventfd)],
        "eventfd" => &[In(uint)],
        // Sockets.
        "socket" => &[In(family), In(socket_type), In(protocol)],
        "socketpair" => &[In(family), In(socket_type), In(protocol), Out(commands::descriptors)],
        "bind" | "connect" => &[In(fd), In(sockaddr2), In(int)],
        "listen" => &[In(fd), In(int)],
        "accept" => &[In(fd), Out(written_sockaddr2), Out(sockets::written_size)],
        "accept4" => &[In(fd), Out(written_sockaddr2), Out(sockets::written_size), In(sock_flags)],
        "getsockname" | "getpeername" => {
            &[In(fd), Out(written_sockaddr2), End(sockets::written_size)]
        }
        "sendto" => &[In(fd), In(bytes2), In(ulong), In(msg), In(sockaddr5), In(uint)],
        "recvfrom" => &[
            In(fd),
            Out(returned),
            In(ulong),
            In(msg),
            Out(written_sockaddr5),
            Out(sockets::written_size),
        ],
        "sendmsg" => &[In(fd), In(sent_message), In(msg)],
        "recvmsg" => &[In(fd), End(sockets::received), In(msg)],
        "sendmmsg" => &[In(fd), Out(sockets::messages), In(uint), In(msg)],
        "recvmmsg" => &[In(fd), Out(sockets::messages), In(uint), In(msg), End(kept)],
        "shutdown" => &[In(fd), In(shut)],
        "setsockopt" => &[In(fd), In(level), In(option_name), In(sockets::option), In(int)],
        "getsockopt" => &[
            In(fd),
            In(level),
            In(option_name),
            Out(sockets::option_read),
            End(sockets::written_size),
        ],
        _ => return None,
    };
    Some(arguments)
}

fn files_times(p: &mut P<'_>, v: u64) {
    times::file_times(p, v);
}

fn fcntl(args: &[u64; 6]) -> &'static [Argument] {
    match args[1] as i32 {
        libc::F_GETFD
        | libc::F_GETFL
        | libc::F_GETOWN
        | libc::F_GETPIPE_SZ
        | libc::F_GET_SEALS
        | libc::F_GETLEASE
        | 11 => &[In(fd), In(fcntl_name)],
        libc::F_SETFD => &[In(fd), In(fcntl_name), In(fd_flags)],
        libc::F_SETFL => &[In(fd), In(fcntl_name), In(open_flags)],
        libc::F_SETLK | libc::F_SETLKW | 37 | 38 => &[In(fd), In(fcntl_name), In(files::lock)],
        libc::F_GETLK | 36 => &[In(fd), In(fcntl_name), Out(files::lock)],
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETOWN | libc::F_SETPIPE_SZ => {
            &[In(fd), In(fcntl_name), In(int)]
        }
        libc::F_ADD_SEALS => &[In(fd), In(fcntl_name), In(seals)],
        libc::F_SETLEASE => &[In(fd), In(fcntl_name), In(lease)],
        10 => &[In(fd), In(fcntl_name), In(signals::signal)],
        _ => &[In(fd), In(fcntl_name), In(hex)],
    }
}

fn ioctl(args: &[u64; 6]) -> &'static [Argument] {
    match args[1] {
        c if commands::ioctl_is_alone(c) => &[In(fd), In(commands::ioctl_name)],
        c if commands::ioctl_reads(c) => {
            &[In(fd), In(commands::ioctl_name), In(commands::ioctl_argument)]
        }
        c if commands::ioctl_writes(c) => {
            &[In(fd), In(commands::ioctl_name), Out(commands::ioctl_argument)]
        }
        0x540b => &[In(fd), In(commands::ioctl_name), In(commands::flush_queue)],
        c if commands::ioctl_is_number(c) => &[In(fd), In(commands::ioctl_name), In(int)],
        _ => &[In(fd), In(commands::ioctl_name), In(hex)],
    }
}

fn futex(args: &[u64; 6]) -> &'static [Argument] {
    match args[1] as i32 & 0x7f {
        libc::FUTEX_WAIT => &[In(addr), In(commands::futex_op), In(uint), In(times::timespec)],
        libc::FUTEX_WAKE | libc::FUTEX_FD => &[In(addr), In(commands::futex_op), In(uint)],
        // The second address stays out.
        libc::FUTEX_WAIT_BITSET => &[
            In(addr),
            In(commands::futex_op),
            In(uint),
            In(times::timespec),
            In(|p, _| commands::futex_bits(p, p.args[5])),
        ],
        libc::FUTEX_WAKE_BITSET => &[
            In(addr),
            In(commands::futex_op),
            In(uint),
            In(|p, _| commands::futex_bits(p, p.args[5])),
        ],
        libc::FUTEX_REQUEUE => &[In(addr), In(commands::futex_op), In(uint), In(uint), In(addr)],
        libc::FUTEX_CMP_REQUEUE | libc::FUTEX_CMP_REQUEUE_PI => {
            &[In(addr), In(commands::futex_op), In(uint), In(uint), In(addr), In(uint)]
        }
        libc::FUTEX_WAKE_OP => &[
            In(addr),
            In(commands::futex_op),
            In(uint),
            In(uint),
            In(addr),
            In(commands::futex_wake_op),
        ],
        libc::FUTEX_LOCK_PI | 13 => &[In(addr), In(commands::futex_op), In(times::timespec)],
        libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI => &[In(addr), In(commands::futex_op)],
        libc::FUTEX_WAIT_REQUEUE_PI => {
            &[In(addr), In(commands::futex_op), In(uint), In(times::timespec), In(addr)]
        }
        _ => &[In(addr), In(commands::futex_op), In(uint), In(addr), In(addr), In(hex32)],
    }
}

/// clone(2) of 64-bit x86: its flags stand behind the stack, what they do not mention is left out.
fn clone(args: &[u64; 6]) -> &'static [Argument] {
    use commands::{child_tid, parent_tid, tls};
    let has = |bit: i32| args[0] & u64::from(bit.cast_unsigned()) != 0;
    let parent = has(libc::CLONE_PARENT_SETTID | libc::CLONE_PIDFD);
    let child = has(libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID);
    match (parent, has(libc::CLONE_SETTLS), child) {
        (false, false, false) => &[In(stack_and_flags)],
        (true, false, false) => &[In(stack_and_flags), Out(|p, _| parent_tid(p, p.args[2]))],
        (false, false, true) => &[In(stack_and_flags), In(|p, _| child_tid(p, p.args[3]))],
        (true, false, true) => &[
            In(stack_and_flags),
            Out(|p, _| parent_tid(p, p.args[2])),
            In(|p, _| child_tid(p, p.args[3])),
        ],
        (false, true, false) => &[In(stack_and_flags), In(|p, _| tls(p, p.args[4]))],
        (true, true, false) => &[
            In(stack_and_flags),
            Out(|p, _| parent_tid(p, p.args[2])),
            In(|p, _| tls(p, p.args[4])),
        ],
        (false, true, true) => {
            &[In(stack_and_flags), In(|p, _| tls(p, p.args[4])), In(|p, _| child_tid(p, p.args[3]))]
        }
        (true, true, true) => &[
            In(stack_and_flags),
            Out(|p, _| parent_tid(p, p.args[2])),
            In(|p, _| tls(p, p.args[4])),
            In(|p, _| child_tid(p, p.args[3])),
        ],
    }
}

fn stack_and_flags(p: &mut P<'_>, flags: u64) {
    let stack = p.args[1];
    commands::child_stack(p, stack);
    p.text(", ");
    commands::clone_flags(p, flags);
}

fn prctl(args: &[u64; 6]) -> &'static [Argument] {
    match args[0] as i32 {
        libc::PR_SET_NAME => &[In(prctl_name), In(task_name)],
        libc::PR_GET_NAME => &[In(prctl_name), Out(text)],
        libc::PR_SET_PDEATHSIG => &[In(prctl_name), In(signals::signal)],
        libc::PR_GET_PDEATHSIG => &[In(prctl_name), Out(commands::signal_at)],
        libc::PR_CAPBSET_READ | libc::PR_CAPBSET_DROP => &[In(prctl_name), In(capability)],
        libc::PR_SET_DUMPABLE => &[In(prctl_name), In(dumpable)],
        libc::PR_GET_DUMPABLE
        | libc::PR_GET_TIMERSLACK
        | libc::PR_GET_SECCOMP
        | libc::PR_GET_KEEPCAPS
        | libc::PR_GET_SECUREBITS => &[In(prctl_name)],
        libc::PR_SET_TIMERSLACK | libc::PR_SET_CHILD_SUBREAPER | libc::PR_SET_KEEPCAPS => {
            &[In(prctl_name), In(ulong)]
        }
        libc::PR_GET_CHILD_SUBREAPER => &[In(prctl_name), Out(commands::number)],
        libc::PR_SET_NO_NEW_PRIVS => &[In(prctl_name), In(ulong), In(hex), In(hex), In(hex)],
        libc::PR_SET_PTRACER => &[In(prctl_name), In(ptracer)],
        0x5356_4d41 => &[In(prctl_name), In(vma_option), In(addr), In(ulong), In(text)],
        _ => &[In(prctl_name), In(hex), In(hex), In(hex), In(hex)],
    }
}

/// A name of at most 15 bytes.
fn task_name(p: &mut P<'_>, v: u64) {
    const SIZE: usize = 15;
    match p.nul_text(v, SIZE) {
        Some((name, is_whole)) => p.quote(&name, is_whole),
        None => p.address(v),
    }
}
