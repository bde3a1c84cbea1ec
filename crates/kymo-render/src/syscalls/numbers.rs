//! System calls by their numbers on this machine. The tracepoints give only
//! numbers, and tracefs nowhere says which name goes with which.

use syscalls::Sysno;

/// Calls whose description in tracefs goes by another name.
const DESCRIBED_AS: &[(&str, &str)] = &[
    ("fstat", "newfstat"),
    ("lstat", "newlstat"),
    ("sendfile", "sendfile64"),
    ("stat", "newstat"),
    ("umount2", "umount"),
    ("uname", "newuname"),
];

/// Name of the system call `number`.
pub fn syscall_name(number: i64) -> Option<&'static str> {
    Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
}

/// Number of the system call `name` on this architecture.
pub fn syscall_number(name: &str) -> Option<i64> {
    name.parse::<Sysno>().ok().map(|call| i64::from(call.id()))
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
        for call in Sysno::iter() {
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
}
