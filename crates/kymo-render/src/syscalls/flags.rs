//! Names of the numbers that arguments take, as in the system's headers.

/// Bits or values with their names.
pub(super) type ValueNames = &'static [(u64, &'static str)];

macro_rules! value_names {
    ($($name:ident)*) => { &[$((libc::$name as u64, stringify!($name))),*] };
}
pub(super) use value_names;

/// The two lowest bits of open(2)'s flags, which are one value.
pub(super) const OPEN_MODE: ValueNames = value_names![O_RDONLY O_WRONLY O_RDWR];
/// The others. O_SYNC holds O_DSYNC and O_TMPFILE holds O_DIRECTORY: larger ones first.
pub(super) const OPEN: ValueNames = value_names![
    O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC O_DIRECT
    O_TMPFILE O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH
];
const FD: ValueNames = value_names![O_CLOEXEC O_NONBLOCK O_DIRECT];
const EPOLL: ValueNames = value_names![EPOLL_CLOEXEC];
const EVENT_FD: ValueNames = value_names![EFD_SEMAPHORE EFD_CLOEXEC EFD_NONBLOCK];
const SIGNAL_FD: ValueNames = value_names![SFD_CLOEXEC SFD_NONBLOCK];
const TIMER_FD: ValueNames = value_names![TFD_CLOEXEC TFD_NONBLOCK];
const INOTIFY: ValueNames = value_names![IN_CLOEXEC IN_NONBLOCK];
const LOCK: ValueNames = value_names![LOCK_SH LOCK_EX LOCK_UN LOCK_NB];
const INTERVAL_TIMER: ValueNames = value_names![ITIMER_REAL ITIMER_VIRTUAL ITIMER_PROF];
/// Options of sockets by their level.
const SOCKET_OPTION: ValueNames = value_names![
    SO_DEBUG SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_SNDBUF SO_RCVBUF
    SO_KEEPALIVE SO_OOBINLINE SO_NO_CHECK SO_PRIORITY SO_LINGER SO_REUSEPORT SO_PASSCRED
    SO_PEERCRED SO_RCVLOWAT SO_SNDLOWAT SO_RCVTIMEO SO_SNDTIMEO SO_BINDTODEVICE SO_ATTACH_FILTER
    SO_DETACH_FILTER SO_PEERNAME SO_TIMESTAMP SO_ACCEPTCONN SO_PEERSEC SO_SNDBUFFORCE
    SO_RCVBUFFORCE SO_PASSSEC SO_TIMESTAMPNS SO_MARK SO_TIMESTAMPING SO_PROTOCOL SO_DOMAIN
    SO_RXQ_OVFL SO_PEEK_OFF SO_BUSY_POLL SO_INCOMING_CPU SO_ATTACH_BPF SO_ZEROCOPY SO_COOKIE
];
const TCP_OPTION: ValueNames = value_names![
    TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_LINGER2
    TCP_DEFER_ACCEPT TCP_WINDOW_CLAMP TCP_INFO TCP_QUICKACK TCP_CONGESTION TCP_USER_TIMEOUT
    TCP_FASTOPEN TCP_NOTSENT_LOWAT TCP_FASTOPEN_CONNECT TCP_ULP
];
const IP_OPTION: ValueNames = value_names![
    IP_TOS IP_TTL IP_HDRINCL IP_OPTIONS IP_RECVOPTS IP_RETOPTS IP_PKTINFO IP_MTU_DISCOVER
    IP_RECVERR IP_RECVTTL IP_RECVTOS IP_MTU IP_FREEBIND IP_TRANSPARENT IP_MULTICAST_IF
    IP_MULTICAST_TTL IP_MULTICAST_LOOP IP_ADD_MEMBERSHIP IP_DROP_MEMBERSHIP IP_BIND_ADDRESS_NO_PORT
];
const IPV6_OPTION: ValueNames = value_names![
    IPV6_UNICAST_HOPS IPV6_MULTICAST_IF IPV6_MULTICAST_HOPS IPV6_MULTICAST_LOOP IPV6_MTU
    IPV6_RECVERR IPV6_V6ONLY IPV6_RECVPKTINFO IPV6_PKTINFO IPV6_RECVHOPLIMIT IPV6_TCLASS
    IPV6_RECVTCLASS
];
const PROT: ValueNames = value_names![PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP];
const MAP: ValueNames = value_names![
    MAP_SHARED_VALIDATE MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_DENYWRITE
    MAP_EXECUTABLE MAP_LOCKED MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB
    MAP_SYNC MAP_FIXED_NOREPLACE
];
pub(super) const CLONE: ValueNames = value_names![
    CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT
    CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID
    CLONE_DETACHED CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC
    CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET CLONE_IO
];
const AT: ValueNames = value_names![
    AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH
    AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC AT_RECURSIVE
];
/// In faccessat2(2) the bit of AT_REMOVEDIR says something else.
const AT_ACCESS: ValueNames = value_names![AT_SYMLINK_NOFOLLOW AT_EACCESS AT_EMPTY_PATH];
const ACCESS: ValueNames = value_names![R_OK W_OK X_OK];
const WHENCE: ValueNames = value_names![SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE];
const FCNTL: ValueNames = value_names![
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_OFD_GETLK
    F_OFD_SETLK F_OFD_SETLKW F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
];
const SIG_HOW: ValueNames = value_names![SIG_BLOCK SIG_UNBLOCK SIG_SETMASK];
const CLOCKS: ValueNames = value_names![
    CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID
    CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME
    CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
];
pub(super) const FAMILY: ValueNames = value_names![
    AF_UNSPEC AF_UNIX AF_INET AF_AX25 AF_INET6 AF_NETLINK AF_PACKET AF_BLUETOOTH AF_ALG AF_VSOCK
];
const SOCKET: ValueNames = value_names![SOCK_CLOEXEC SOCK_NONBLOCK];
const SOCKET_KIND: ValueNames =
    value_names![SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET];
const MSG: ValueNames = value_names![
    MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL
    MSG_CONFIRM MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_WAITFORONE MSG_FASTOPEN MSG_CMSG_CLOEXEC
];
const SHUT: ValueNames = value_names![SHUT_RD SHUT_WR SHUT_RDWR];
const LEVEL: ValueNames = value_names![SOL_SOCKET SOL_IP SOL_TCP SOL_UDP SOL_IPV6 SOL_NETLINK];
const FUTEX: ValueNames = value_names![FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME];
const FUTEX_OP: ValueNames = value_names![
    FUTEX_WAIT FUTEX_WAKE FUTEX_FD FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI
    FUTEX_UNLOCK_PI FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET FUTEX_WAIT_REQUEUE_PI
    FUTEX_CMP_REQUEUE_PI
];
const MADV: ValueNames = value_names![
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE
    MADV_DONTFORK MADV_DOFORK MADV_MERGEABLE MADV_UNMERGEABLE MADV_HUGEPAGE MADV_NOHUGEPAGE
    MADV_DONTDUMP MADV_DODUMP MADV_WIPEONFORK MADV_KEEPONFORK MADV_COLD MADV_PAGEOUT
    MADV_POPULATE_READ MADV_POPULATE_WRITE
];
const WAIT: ValueNames =
    value_names![WNOHANG WUNTRACED WEXITED WCONTINUED WNOWAIT __WNOTHREAD __WALL __WCLONE];
const EPOLL_OP: ValueNames = value_names![EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD];
const RLIMIT: ValueNames = value_names![
    RLIMIT_CPU RLIMIT_FSIZE RLIMIT_DATA RLIMIT_STACK RLIMIT_CORE RLIMIT_RSS RLIMIT_NPROC
    RLIMIT_NOFILE RLIMIT_MEMLOCK RLIMIT_AS RLIMIT_LOCKS RLIMIT_SIGPENDING RLIMIT_MSGQUEUE
    RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_RTTIME
];
const RANDOM: ValueNames = value_names![GRND_NONBLOCK GRND_RANDOM GRND_INSECURE];
const RENAME: ValueNames = value_names![RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT];
const MREMAP: ValueNames = value_names![MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP];
const MSYNC: ValueNames = value_names![MS_ASYNC MS_INVALIDATE MS_SYNC];
const PRCTL: ValueNames = value_names![
    PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_SET_KEEPCAPS PR_SET_NAME
    PR_GET_NAME PR_SET_SECCOMP PR_CAPBSET_READ PR_SET_SECUREBITS PR_SET_TIMERSLACK
    PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS PR_SET_CHILD_SUBREAPER PR_SET_VMA PR_SET_MM
];
const MEMFD: ValueNames = value_names![MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB];
const MOUNT: ValueNames = value_names![
    MS_RDONLY MS_NOSUID MS_NODEV MS_NOEXEC MS_SYNCHRONOUS MS_REMOUNT MS_MANDLOCK MS_DIRSYNC
    MS_NOATIME MS_NODIRATIME MS_BIND MS_MOVE MS_REC MS_SILENT MS_UNBINDABLE MS_PRIVATE MS_SLAVE
    MS_SHARED MS_RELATIME MS_STRICTATIME MS_LAZYTIME
];
const UMOUNT: ValueNames = value_names![MNT_FORCE MNT_DETACH MNT_EXPIRE UMOUNT_NOFOLLOW];
const TIMER: ValueNames = value_names![TIMER_ABSTIME];
const TIOC: ValueNames = value_names![
    TCGETS TCSETS TCSETSW TCSETSF TIOCGWINSZ TIOCSWINSZ TIOCGPGRP TIOCSPGRP TIOCGPTN TIOCSPTLCK
    TIOCSCTTY TIOCNOTTY FIONREAD FIONBIO FIOCLEX FIONCLEX
];
/// x86's arch_prctl(2), which has no constants in libc.
const ARCH: ValueNames = &[
    (0x1001, "ARCH_SET_GS"),
    (0x1002, "ARCH_SET_FS"),
    (0x1003, "ARCH_GET_FS"),
    (0x1004, "ARCH_GET_GS"),
    (0x3001, "ARCH_CET_STATUS"),
    (0x5001, "ARCH_SHSTK_ENABLE"),
];

/// Format of an argument with named values.
#[derive(Clone, Copy, Debug)]
pub(super) enum NamedNumber {
    /// Bits joined with `|`; the text stands for 0.
    Bits(ValueNames, &'static str),
    /// One value.
    Value(ValueNames),
    /// A value in the low bits (the mask) and bits above.
    Both(ValueNames, ValueNames, u64),
    /// open(2)'s flags.
    Open,
    /// clone(2)'s flags, with a signal in the lowest byte.
    Clone,
    /// Option of a socket, of the level that the argument before states.
    SocketOption,
}

impl NamedNumber {
    /// Format of the argument given the value of the argument before it.
    pub(super) fn after(self, before: Option<u64>) -> NamedNumber {
        let level = before.map(|level| level as i32);
        match (self, level) {
            (NamedNumber::SocketOption, Some(libc::SOL_SOCKET)) => {
                NamedNumber::Value(SOCKET_OPTION)
            }
            (NamedNumber::SocketOption, Some(libc::SOL_TCP)) => NamedNumber::Value(TCP_OPTION),
            (NamedNumber::SocketOption, Some(libc::SOL_IP)) => NamedNumber::Value(IP_OPTION),
            (NamedNumber::SocketOption, Some(libc::SOL_IPV6)) => NamedNumber::Value(IPV6_OPTION),
            (NamedNumber::SocketOption, _) => NamedNumber::Value(&[]),
            (other, _) => other,
        }
    }
}

/// Whether a call of these arguments takes the one of this place: some calls take fewer for some
/// of what they do, and registers have what was there before.
pub(super) fn takes_argument(call: &str, args: &[u64; 6], place: usize) -> bool {
    let command = args.get(1).map_or(0, |command| *command as i32);
    let taken: u8 = match call {
        "futex" => match command & 0x7f {
            libc::FUTEX_WAIT => 0b1111,
            libc::FUTEX_WAKE | libc::FUTEX_FD => 0b111,
            libc::FUTEX_REQUEUE | libc::FUTEX_WAIT_REQUEUE_PI => 0b1_1111,
            libc::FUTEX_LOCK_PI => 0b1011,
            libc::FUTEX_UNLOCK_PI | libc::FUTEX_TRYLOCK_PI => 0b11,
            libc::FUTEX_WAIT_BITSET => 0b10_1111,
            libc::FUTEX_WAKE_BITSET => 0b10_0111,
            _ => 0b11_1111,
        },
        "fcntl" | "fcntl64" => match command {
            libc::F_GETFD
            | libc::F_GETFL
            | libc::F_GETOWN
            | libc::F_GETPIPE_SZ
            | libc::F_GET_SEALS
            | libc::F_GETLEASE => 0b11,
            _ => 0b111,
        },
        "ioctl" => match args.get(1).map_or(0, |command| *command as u32 as libc::Ioctl) {
            libc::FIOCLEX | libc::FIONCLEX | libc::TIOCNOTTY | libc::TIOCEXCL | libc::TIOCNXCL => {
                0b11
            }
            _ => 0b111,
        },
        _ => return true,
    };
    taken >> place & 1 == 1
}

/// Names of the numbers of the argument `name` of a call, if they have any.
pub(super) fn named_number(call: &str, name: &str) -> Option<NamedNumber> {
    use NamedNumber::{Bits, Both, Clone, Open, SocketOption, Value};
    Some(match (call, name) {
        ("open" | "openat" | "open_by_handle_at" | "mq_open", "flags" | "oflag") => Open,
        ("pipe2" | "dup3", "flags") => Bits(FD, "0"),
        ("inotify_init1", "flags") => Bits(INOTIFY, "0"),
        ("epoll_create1", "flags") => Bits(EPOLL, "0"),
        ("eventfd2", "flags") => Bits(EVENT_FD, "0"),
        ("signalfd4", "flags") => Bits(SIGNAL_FD, "0"),
        ("timerfd_create", "flags") => Bits(TIMER_FD, "0"),
        ("flock", "cmd") => Bits(LOCK, "0"),
        ("setitimer" | "getitimer", "which") => Value(INTERVAL_TIMER),
        ("setsockopt" | "getsockopt", "optname") => SocketOption,
        ("mmap" | "mprotect" | "pkey_mprotect", "prot") => Bits(PROT, "PROT_NONE"),
        ("mmap", "flags") => Bits(MAP, "MAP_FILE"),
        ("clone", "clone_flags") => Clone,
        ("unshare", "unshare_flags") => Bits(CLONE, "0"),
        ("setns", "flags" | "nstype") => Bits(CLONE, "0"),
        ("access" | "faccessat" | "faccessat2", "mode") => Bits(ACCESS, "F_OK"),
        ("faccessat2", "flags") => Bits(AT_ACCESS, "0"),
        (
            "newfstatat" | "unlinkat" | "statx" | "linkat" | "fchownat" | "utimensat" | "execveat"
            | "fchmodat2" | "name_to_handle_at",
            "flag" | "flags",
        ) => Bits(AT, "0"),
        ("lseek", "whence") => Value(WHENCE),
        ("fcntl", "cmd") => Value(FCNTL),
        ("ioctl", "cmd") => Value(TIOC),
        ("rt_sigprocmask", "how") => Value(SIG_HOW),
        (
            "clock_gettime" | "clock_settime" | "clock_getres" | "clock_nanosleep" | "timer_create"
            | "timerfd_create",
            "which_clock" | "clockid",
        ) => Value(CLOCKS),
        ("clock_nanosleep" | "timer_settime" | "timerfd_settime", "flags") => Bits(TIMER, "0"),
        ("socket" | "socketpair", "family") => Value(FAMILY),
        ("socket" | "socketpair", "type") => Both(SOCKET_KIND, SOCKET, 0xf),
        ("accept4", "flags") => Bits(SOCKET, "0"),
        ("sendto" | "sendmsg" | "sendmmsg" | "recvfrom" | "recvmsg" | "recvmmsg", "flags") => {
            Bits(MSG, "0")
        }
        ("shutdown", "how") => Value(SHUT),
        ("setsockopt" | "getsockopt", "level") => Value(LEVEL),
        ("futex", "op") => Both(FUTEX_OP, FUTEX, 0x7f),
        ("madvise" | "process_madvise", "behavior") => Value(MADV),
        ("wait4" | "waitid", "options") => Bits(WAIT, "0"),
        ("epoll_ctl", "op") => Value(EPOLL_OP),
        ("prlimit64" | "getrlimit" | "setrlimit", "resource") => Value(RLIMIT),
        ("getrandom", "flags") => Bits(RANDOM, "0"),
        ("renameat2", "flags") => Bits(RENAME, "0"),
        ("mremap", "flags") => Bits(MREMAP, "0"),
        ("msync", "flags") => Bits(MSYNC, "0"),
        ("prctl", "option") => Value(PRCTL),
        ("arch_prctl", "option") => Value(ARCH),
        ("memfd_create", "flags") => Bits(MEMFD, "0"),
        ("mount", "flags") => Bits(MOUNT, "0"),
        ("umount2", "flags") => Bits(UMOUNT, "0"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_bits_stand_before_those_they_hold() {
        for table in [OPEN, MAP, CLONE, AT, PROT, MSG, WAIT] {
            for (i, (bits, name)) in table.iter().enumerate() {
                let later = table.iter().skip(i + 1).find(|(b, _)| b & bits == *bits && b != bits);
                assert_eq!(later, None, "{name}");
            }
        }
    }
}
