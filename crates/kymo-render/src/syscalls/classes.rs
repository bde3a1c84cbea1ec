//! Classes of system calls as strace names them (`%file`, `%network`): the subject of a call, by
//! its arguments and effects. A call may be in several.

use super::numbers::syscall_number;

/// A class by its name, and the calls that are in it on any architecture.
struct CallClass {
    name: &'static str,
    /// Another name of it.
    alias: &'static str,
    calls: &'static [&'static str],
}

const CLASSES: [CallClass; 17] = [
    // A path is an argument, or the result.
    CallClass {
        name: "file",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "open", "openat", "openat2", "creat", "open_tree", "open_tree_attr",
            "name_to_handle_at", "stat", "lstat", "newfstatat", "fstatat64", "stat64", "lstat64",
            "statx", "statfs", "statfs64", "access", "faccessat", "faccessat2", "readlink",
            "readlinkat", "getcwd", "chdir", "chroot", "pivot_root", "chmod", "fchmodat",
            "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "futimesat",
            "utimensat", "truncate", "truncate64", "file_getattr", "file_setattr", "link",
            "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "rename", "renameat",
            "renameat2", "mkdir", "mkdirat", "mknod", "mknodat", "rmdir", "getxattr", "lgetxattr",
            "getxattrat", "setxattr", "lsetxattr", "setxattrat", "listxattr", "llistxattr",
            "listxattrat", "removexattr", "lremovexattr", "removexattrat", "execve", "execveat",
            "uselib", "mount", "umount", "umount2", "move_mount", "mount_setattr", "fsconfig",
            "fspick", "swapon", "swapoff", "quotactl", "acct", "inotify_add_watch",
            "fanotify_mark",
        ],
    },
    // Processes start, become another program, end, are waited for or signalled.
    CallClass {
        name: "process",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "fork", "vfork", "clone", "clone3", "execve", "execveat", "exit", "exit_group",
            "wait4", "waitpid", "waitid", "kill", "tkill", "tgkill", "rt_sigqueueinfo",
            "rt_tgsigqueueinfo", "pidfd_send_signal",
        ],
    },
    CallClass {
        name: "network",
        alias: "net",
        #[rustfmt::skip]
        calls: &[
            "socket", "socketpair", "bind", "listen", "connect", "accept", "accept4", "shutdown",
            "getsockname", "getpeername", "getsockopt", "setsockopt", "recv", "recvfrom",
            "recvmsg", "recvmmsg", "send", "sendto", "sendmsg", "sendmmsg", "sendfile",
            "sendfile64", "getpmsg", "putpmsg", "socketcall",
        ],
    },
    CallClass {
        name: "signal",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "rt_sigaction", "rt_sigprocmask", "rt_sigpending", "rt_sigsuspend",
            "rt_sigtimedwait", "rt_sigreturn", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
            "sigaltstack", "signalfd", "signalfd4", "kill", "tkill", "tgkill", "pause",
            "pidfd_send_signal", "io_uring_enter",
        ],
    },
    // Those of System V.
    CallClass {
        name: "ipc",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "shmget", "shmat", "shmdt", "shmctl", "semget", "semop", "semtimedop", "semctl",
            "msgget", "msgsnd", "msgrcv", "msgctl", "ipc",
        ],
    },
    // A descriptor is an argument, or the result.
    CallClass {
        name: "desc",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "open", "openat", "openat2", "creat", "open_by_handle_at", "open_tree",
            "open_tree_attr", "close", "dup", "dup2", "dup3", "fcntl", "fcntl64",
            "ioctl", "flock", "pipe", "pipe2", "read", "readv", "pread64", "preadv", "preadv2",
            "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "sendfile64",
            "splice", "tee", "vmsplice", "copy_file_range", "lseek", "_llseek", "readahead",
            "fadvise64", "fadvise64_64", "fallocate", "ftruncate", "ftruncate64", "fsync",
            "fdatasync", "syncfs", "sync_file_range", "cachestat", "getdents", "getdents64",
            "fstat", "fstat64", "newfstatat", "fstatat64", "statx", "fstatfs", "fstatfs64",
            "faccessat", "faccessat2", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown",
            "fchownat", "futimesat", "utimensat", "file_getattr", "file_setattr", "linkat",
            "symlinkat", "unlinkat", "renameat", "renameat2", "mkdirat", "mknodat", "readlinkat",
            "name_to_handle_at", "fgetxattr", "fsetxattr", "flistxattr", "fremovexattr",
            "getxattrat", "setxattrat", "listxattrat", "removexattrat", "execveat", "mmap",
            "mmap2", "select", "pselect6", "poll", "ppoll", "epoll_create", "epoll_create1",
            "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2",
            "signalfd", "signalfd4", "timerfd_create", "timerfd_settime", "timerfd_gettime",
            "inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
            "fanotify_init", "fanotify_mark", "mq_open", "mq_timedsend", "mq_timedreceive",
            "mq_notify", "mq_getsetattr", "memfd_create", "memfd_secret", "userfaultfd",
            "perf_event_open", "bpf", "io_uring_setup", "io_uring_enter", "io_uring_register",
            "pidfd_open", "pidfd_getfd", "pidfd_send_signal", "process_madvise",
            "process_mrelease", "setns", "fsopen", "fsconfig", "fsmount", "fspick", "move_mount",
            "mount_setattr", "quotactl_fd", "finit_module", "kexec_file_load",
            "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
        ],
    },
    // Mappings and their pages change, or are asked for.
    CallClass {
        name: "memory",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "brk", "mmap", "mmap2", "munmap", "mremap", "mprotect", "pkey_mprotect", "mseal",
            "madvise", "msync", "mincore", "mlock", "mlock2", "mlockall",
            "munlock", "munlockall", "remap_file_pages", "map_shadow_stack", "shmat", "shmdt",
            "mbind", "get_mempolicy", "set_mempolicy", "set_mempolicy_home_node",
            "migrate_pages", "move_pages", "io_setup", "io_destroy",
            "io_uring_register",
        ],
    },
    // Users, groups and capabilities.
    CallClass {
        name: "creds",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "getuid", "geteuid", "getresuid", "setuid", "setreuid", "setresuid", "setfsuid",
            "getgid", "getegid", "getresgid", "setgid", "setregid", "setresgid", "setfsgid",
            "getgroups", "setgroups", "capget", "capset", "prctl",
        ],
    },
    CallClass {
        name: "clock",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "time", "stime", "gettimeofday", "settimeofday", "clock_gettime", "clock_settime",
            "clock_getres", "clock_adjtime", "adjtimex",
        ],
    },
    // No arguments, and no failure.
    CallClass {
        name: "pure",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "getpid", "getppid", "gettid", "getpgrp", "getuid", "geteuid", "getgid", "getegid",
        ],
    },
    CallClass { name: "stat", alias: "", calls: &["stat", "stat64"] },
    CallClass { name: "lstat", alias: "", calls: &["lstat", "lstat64"] },
    CallClass {
        name: "fstat",
        alias: "",
        calls: &["fstat", "fstat64", "newfstatat", "fstatat64", "statx"],
    },
    // All that ask for the status of a file.
    CallClass {
        name: "%stat",
        alias: "",
        #[rustfmt::skip]
        calls: &[
            "stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "newfstatat", "fstatat64",
            "statx",
        ],
    },
    CallClass { name: "statfs", alias: "", calls: &["statfs", "statfs64"] },
    CallClass { name: "fstatfs", alias: "", calls: &["fstatfs", "fstatfs64"] },
    CallClass {
        name: "%statfs",
        alias: "",
        calls: &["statfs", "statfs64", "fstatfs", "fstatfs64", "ustat"],
    },
];

/// Names of the classes, as they are typed.
pub fn syscall_classes() -> impl Iterator<Item = String> {
    CLASSES.iter().map(|class| format!("%{}", class.name))
}

/// Numbers of the calls of a class on this architecture; its name stands without the `%`.
pub fn syscall_class(name: &str) -> Option<Vec<i64>> {
    let mut classes = CLASSES.iter().filter(|_| !name.is_empty());
    let class = classes.find(|class| class.name == name || class.alias == name)?;
    Some(class.calls.iter().filter_map(|call| syscall_number(call)).collect())
}
