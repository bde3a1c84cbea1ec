//! System calls by their numbers, which differ between architectures. The tracepoints give only
//! numbers, and tracefs nowhere says which name goes with which.

use kymo_model::glob::glob_match;
use kymo_model::near_names;
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

/// Names of system calls by their numbers.
pub type SyscallNames = fn(i64) -> Option<&'static str>;

/// Names on a machine of this architecture, as uname(2) calls it. On one whose numbers are not
/// known here no call has a name.
pub fn syscall_names(architecture: &str) -> SyscallNames {
    fn of<T>(number: i64, new: fn(usize) -> Option<T>) -> Option<T> {
        new(usize::try_from(number).ok()?)
    }
    match architecture {
        "x86_64" => |n| of(n, syscalls::x86_64::Sysno::new).map(|call| call.name()),
        "aarch64" => |n| of(n, syscalls::aarch64::Sysno::new).map(|call| call.name()),
        "riscv64" => |n| of(n, syscalls::riscv64::Sysno::new).map(|call| call.name()),
        _ => |_| None,
    }
}

/// Name of the system call `number` on this machine.
pub fn syscall_name(number: i64) -> Option<&'static str> {
    Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
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
        ] {
            assert_eq!(syscall_names(architecture)(number), name, "{number} on {architecture}");
        }
    }
}
