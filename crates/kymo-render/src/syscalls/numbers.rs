//! System calls by their numbers, which differ between architectures. The tracepoints give only
//! numbers, and tracefs nowhere says which name goes with which.

use kymo_bpf::CALL_NUMBERS;
use kymo_model::glob::glob_match;
use kymo_model::near_names;
use rustc_hash::FxHashSet;
use syscalls::{Sysno, SysnoSet};

/// Calls whose description in tracefs goes by another name.
const DESCRIBED_AS: &[(&str, &str)] = &[
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("sendfile", "sendfile64"),
    ("stat", "newstat"),
    ("umount2", "umount"),
    ("uname", "newuname"),
];

pub use kymo_analysis::syscalls::COMPAT_CALLS;

/// Number of a call in its own ABI.
pub(super) fn plain_number(number: i64) -> i64 {
    // Invalid ones have a sign.
    if is_compat(number) { i64::from(number as i32) } else { number }
}

/// Whether a number is of the ABI of 32-bit programs.
pub(super) fn is_compat(number: i64) -> bool {
    (COMPAT_CALLS..COMPAT_CALLS << 1).contains(&number)
}

/// Bit that marks calls of x32 programs: 64-bit registers, pointers of 32 bits.
const X32_BIT: i64 = 1 << 30;
/// Calls that x32 programs have numbers of their own for, from 512 on: their arguments point to
/// structures of 32-bit programs.
const X32_CALLS: [&str; 36] = [
    "rt_sigaction",
    "rt_sigreturn",
    "ioctl",
    "readv",
    "writev",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "execve",
    "ptrace",
    "rt_sigpending",
    "rt_sigtimedwait",
    "rt_sigqueueinfo",
    "sigaltstack",
    "timer_create",
    "mq_notify",
    "kexec_load",
    "waitid",
    "set_robust_list",
    "get_robust_list",
    "vmsplice",
    "move_pages",
    "preadv",
    "pwritev",
    "rt_tgsigqueueinfo",
    "recvmmsg",
    "sendmmsg",
    "process_vm_readv",
    "process_vm_writev",
    "setsockopt",
    "getsockopt",
    "io_setup",
    "io_submit",
    "execveat",
    "preadv2",
    "pwritev2",
];

/// Whether a number of an x86-64 machine is of an x32 program.
pub(super) fn is_x32(number: i64) -> bool {
    (X32_BIT..X32_BIT << 1).contains(&number)
}

/// Name of a call of x86-64, whose programs may be those of x32.
fn x86_64_name(number: i64) -> Option<&'static str> {
    let name = |number| Some(syscalls::x86_64::Sysno::new(usize::try_from(number).ok()?)?.name());
    if !is_x32(number) {
        return name(number);
    }
    match usize::try_from(number - X32_BIT).ok()?.checked_sub(512) {
        Some(own) => X32_CALLS.get(own).copied(),
        // The others have the same numbers, unless there is a later one for them.
        None => name(number - X32_BIT).filter(|name| !X32_CALLS.contains(name)),
    }
}

/// Names of system calls by their numbers.
pub type SyscallNames = fn(i64) -> Option<&'static str>;

/// Names on a machine of this architecture, as uname(2) calls it. On one whose numbers are not
/// known here no call has a name.
pub fn syscall_names(architecture: &str) -> SyscallNames {
    fn of<T>(number: i64, new: fn(usize) -> Option<T>) -> Option<T> {
        new(usize::try_from(number).ok()?)
    }
    match architecture {
        "x86_64" => |n| {
            if is_compat(n) {
                of(n - COMPAT_CALLS, syscalls::x86::Sysno::new).map(|call| call.name())
            } else {
                x86_64_name(n)
            }
        },
        "aarch64" => |n| {
            if is_compat(n) {
                of(n - COMPAT_CALLS, syscalls::arm::Sysno::new).map(|call| call.name())
            } else {
                of(n, syscalls::aarch64::Sysno::new).map(|call| call.name())
            }
        },
        "riscv64" => |n| of(n, syscalls::riscv64::Sysno::new).map(|call| call.name()),
        _ => |_| None,
    }
}

/// Name of the system call `number` on this machine.
pub fn syscall_name(number: i64) -> Option<&'static str> {
    if is_compat(number) || is_x32(number) {
        syscall_names(std::env::consts::ARCH)(number)
    } else {
        Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
    }
}

/// Numbers of calls of the same names in the ABI of 32-bit programs, of those that have one.
pub fn compat_numbers(numbers: &[i64]) -> Vec<i64> {
    let names: FxHashSet<&str> = numbers.iter().filter_map(|n| syscall_name(*n)).collect();
    let name_of = syscall_names(std::env::consts::ARCH);
    let compat = (0..i64::from(CALL_NUMBERS)).map(|number| number + COMPAT_CALLS);
    compat.filter(|n| name_of(*n).is_some_and(|name| is_one_of(&names, name))).collect()
}

/// Whether a call of 32-bit programs is one of those named; calls that came later for wider
/// numbers stand for the same.
fn is_one_of(names: &FxHashSet<&str>, compat: &str) -> bool {
    let wide = compat.strip_suffix("64").or_else(|| compat.strip_suffix("_time64"));
    let same = match compat {
        "mmap2" => "mmap",
        "_llseek" => "lseek",
        "_newselect" => "select",
        "ugetrlimit" => "getrlimit",
        "waitpid" => "wait4",
        "fstatat64" => "newfstatat",
        "sigaction" => "rt_sigaction",
        "sigreturn" => "rt_sigreturn",
        "oldstat" => "stat",
        "oldfstat" => "fstat",
        "oldlstat" => "lstat",
        "umount" => "umount2",
        _ => wide.unwrap_or(compat),
    };
    // Sockets come through one call, whose first argument is the operation.
    let is_socket = || {
        let made = ["socket", "connect", "bind", "sendto", "recvfrom", "accept", "sendmsg"];
        compat == "socketcall" && made.iter().any(|name| names.contains(name))
    };
    names.contains(compat) || names.contains(same) || is_socket()
}

/// Number of the system call `name` on this architecture.
pub fn syscall_number(name: &str) -> Option<i64> {
    name.parse::<Sysno>().ok().map(|call| i64::from(call.id()))
}

/// Numbers of the system calls whose names match a pattern with wildcards.
pub fn syscalls_matching(pattern: &str) -> Vec<i64> {
    let all = SysnoSet::all();
    let calls = all.iter().filter(|call| glob_match(pattern, call.name()));
    calls.map(|call| i64::from(call.id())).collect()
}

/// Numbers of all system calls of this architecture.
pub fn all_syscalls() -> Vec<i64> {
    SysnoSet::all().iter().map(|call| i64::from(call.id())).collect()
}

/// Names of system calls that are like one that does not exist.
pub fn near_syscalls(name: &str) -> Vec<String> {
    near_names(name, SysnoSet::all().iter().map(|call| call.name()))
}

/// Name of the call's tracepoint behind `sys_enter_`.
pub(super) fn tracepoint_suffix(name: &str) -> &str {
    DESCRIBED_AS.iter().find(|(n, _)| *n == name).map_or(name, |(_, d)| d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        for call in SysnoSet::all().iter() {
            let number = i64::from(call.id());
            assert_eq!(syscall_name(number), Some(call.name()));
            assert_eq!(syscall_number(call.name()), Some(number));
        }
        assert_eq!(syscall_name(libc::SYS_openat), Some("openat"));
        assert_eq!(syscall_number("futex"), Some(libc::SYS_futex));
        assert_eq!(syscall_name(99_999), None);
        assert_eq!(syscall_name(-1), None);
        assert_eq!(syscall_number("no_such_call"), None);
    }

    #[test]
    fn numbers_are_those_of_an_architecture() {
        // The kernel's arch/x86/entry/syscalls/syscall_64.tbl; asm-generic/unistd.h.
        for (architecture, number, name) in [
            ("x86_64", 0, Some("read")),
            ("x86_64", 257, Some("openat")),
            ("aarch64", 63, Some("read")),
            ("aarch64", 56, Some("openat")),
            ("aarch64", 221, Some("execve")),
            ("riscv64", 56, Some("openat")),
            ("riscv64", 258, Some("riscv_hwprobe")),
            ("aarch64", -1, None),
            ("mips", 3, None),
            // arch/x86/entry/syscalls/syscall_32.tbl; arch/arm/tools/syscall.tbl.
            ("x86_64", COMPAT_CALLS + 3, Some("read")),
            ("x86_64", COMPAT_CALLS + 20, Some("getpid")),
            ("x86_64", COMPAT_CALLS + 45, Some("brk")),
            ("x86_64", COMPAT_CALLS + 295, Some("openat")),
            ("x86_64", COMPAT_CALLS + 0xffff_ffff, None),
            ("aarch64", COMPAT_CALLS + 322, Some("openat")),
            ("aarch64", COMPAT_CALLS + 20, Some("getpid")),
            ("aarch64", COMPAT_CALLS + 192, Some("mmap2")),
            ("aarch64", COMPAT_CALLS + 403, Some("clock_gettime64")),
            // syscall_64.tbl, "x32": the bit, and numbers of its own from 512 on.
            ("x86_64", X32_BIT + 39, Some("getpid")),
            ("x86_64", X32_BIT + 257, Some("openat")),
            ("x86_64", X32_BIT + 512, Some("rt_sigaction")),
            ("x86_64", X32_BIT + 516, Some("writev")),
            ("x86_64", X32_BIT + 545, Some("execveat")),
            ("x86_64", X32_BIT + 547, Some("pwritev2")),
            ("x86_64", X32_BIT + 548, None),
            ("x86_64", X32_BIT + 13, None),
            ("aarch64", X32_BIT + 39, None),
            ("riscv64", COMPAT_CALLS + 3, None),
        ] {
            assert_eq!(syscall_names(architecture)(number), name, "{number} on {architecture}");
        }
    }
}
