//! Types of the arguments of system calls, and their text.

use std::io::Write as _;

use kymo_format::EventFormat;
use kymo_model::UntrustedText;
use rustc_hash::FxHashMap;

use super::errno::SIGNALS;
use super::flags::{self, CLONE, NamedNumber, OPEN, OPEN_MODE, ValueNames};
use super::memory::MemoryShape;
use super::numbers;

/// A call as tracefs describes it.
#[derive(Debug)]
pub(super) struct SyscallDescription {
    pub(super) name: String,
    pub(super) args: Vec<SyscallArgument>,
    /// Whether the result is an address.
    pub(super) returns_pointer: bool,
    /// Whether the result is a new descriptor.
    pub(super) returns_fd: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SyscallArgument {
    pub(super) name: String,
    pub(super) kind: ArgumentKind,
    /// Its type as tracefs states it.
    pub(super) type_text: String,
}

/// Format of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum ArgumentKind {
    /// A descriptor, and what it stands for.
    Fd,
    /// A descriptor of a directory.
    DirFd,
    /// An address in the task's memory, and what is there.
    Memory(MemoryShape),
    /// Numbers with names.
    Named(NamedNumber),
    /// A signal.
    Signal,
    /// Permissions.
    Octal,
    /// Permissions that count only if open(2) makes a file.
    CreateMode,
    /// An address.
    Pointer,
    /// A signed number.
    Signed,
    /// A signed number of 32 bits.
    Int,
    /// An unsigned number.
    Unsigned,
    /// An offset or the like.
    Hex,
}

impl ArgumentKind {
    /// Format of the argument given the value of the argument before it.
    pub(super) fn after(self, before: Option<u64>) -> ArgumentKind {
        match self {
            ArgumentKind::Named(meaning) => ArgumentKind::Named(meaning.after(before)),
            other => other,
        }
    }
}

impl SyscallDescription {
    /// Describes the call `number`; `format` gives the format of an event of the system
    /// `syscalls`. The arguments of calls that have none are numbers.
    pub(super) fn load(
        number: i64,
        format: impl FnOnce(&str) -> Option<EventFormat>,
    ) -> SyscallDescription {
        let is_compat = numbers::is_compat(number);
        let has_32_bit_layouts = is_compat || numbers::is_x32(number);
        let name = numbers::syscall_name(number);
        let unnamed = || format!("syscall_{}", numbers::plain_number(number));
        let name = name.map_or_else(unnamed, str::to_owned);
        // Calls that take other arguments than those of this name do.
        let is_unlike = is_compat && UNLIKE_COMPAT_CALLS.contains(&name.as_str());
        let format = (!is_unlike)
            .then(|| format(&format!("sys_enter_{}", numbers::tracepoint_suffix(&name))))
            .flatten();
        let args = match &format {
            None => (1..=6)
                .map(|i| SyscallArgument {
                    name: format!("arg{i}"),
                    kind: ArgumentKind::Hex,
                    type_text: String::new(),
                })
                .collect(),
            Some(format) => {
                let fields: Vec<(&str, &str)> = format
                    .own_fields()
                    // The number, and in newer kernels what arguments point to
                    // (`__filename_val`), are no arguments.
                    .filter(|f| !f.name.starts_with("__"))
                    .map(|f| (f.name.as_str(), f.type_text.as_str()))
                    .take(6)
                    .collect();
                let kind = |i| match argument_kind(&name, &fields, i) {
                    // Structures of 32-bit programs have another layout.
                    ArgumentKind::Memory(shape)
                        if has_32_bit_layouts && !shape.is_same_in_compat() =>
                    {
                        ArgumentKind::Pointer
                    }
                    kind => kind,
                };
                let arg = |(i, (arg, ty)): (usize, &(&str, &str))| SyscallArgument {
                    name: (*arg).to_owned(),
                    kind: kind(i),
                    type_text: (*ty).to_owned(),
                };
                fields.iter().enumerate().map(arg).collect()
            }
        };
        let pointers = ["mmap", "brk", "mremap", "shmat"];
        let makers = [
            "open",
            "openat",
            "openat2",
            "creat",
            "dup",
            "dup2",
            "dup3",
            "socket",
            "accept",
            "accept4",
            "epoll_create",
            "epoll_create1",
            "eventfd",
            "eventfd2",
            "memfd_create",
            "signalfd4",
            "timerfd_create",
            "inotify_init1",
            "pidfd_open",
            "perf_event_open",
        ];
        let returns_pointer = pointers.contains(&name.as_str());
        let returns_fd = makers.contains(&name.as_str());
        SyscallDescription { name, args, returns_pointer, returns_fd }
    }

    /// Memory that its arguments point to, with the arguments' indexes.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (usize, MemoryShape)> {
        let shape = |(n, arg): (usize, &SyscallArgument)| match arg.kind {
            ArgumentKind::Memory(shape) => Some((n, shape)),
            _ => None,
        };
        self.args.iter().enumerate().filter_map(shape)
    }
}

/// Calls of i386 and AArch32 that take other arguments than the 64-bit calls of their names:
/// pointers to all of them, or offsets in two halves.
const UNLIKE_COMPAT_CALLS: &[&str] = &[
    "mmap",
    "select",
    "pread64",
    "pwrite64",
    "truncate64",
    "ftruncate64",
    "readahead",
    "fadvise64",
    "fallocate",
    "sync_file_range",
    "fanotify_mark",
    "clone",
    "stat",
    "fstat",
    "lstat",
    "uname",
    "ipc",
];

/// Descriptions of calls that are known by their numbers, for who has their arguments alone.
pub struct CallDescriptions<F> {
    format: F,
    known: FxHashMap<i64, SyscallDescription>,
}

impl<F: Fn(&str) -> Option<EventFormat>> CallDescriptions<F> {
    /// `format` gives the format of an event of the system `syscalls`.
    pub fn new(format: F) -> CallDescriptions<F> {
        CallDescriptions { format, known: FxHashMap::default() }
    }

    /// The arguments of a call as text; `None` where it has no description.
    pub fn arguments(&mut self, number: i64, values: &[u64; 6]) -> Option<String> {
        let format = &self.format;
        let load = || SyscallDescription::load(number, format);
        let call = self.known.entry(number).or_insert_with(load);
        if call.args.first().is_some_and(|a| a.name == "arg1") {
            return None;
        }
        let mut out = Vec::new();
        for (n, (arg, value)) in call.args.iter().zip(values).enumerate() {
            if !flags::takes_argument(&call.name, values, n) {
                continue;
            }
            out.extend_from_slice(if n > 0 { b", " } else { b"" });
            out.extend_from_slice(arg.name.as_bytes());
            out.push(b'=');
            let kind = arg.kind.after(n.checked_sub(1).and_then(|n| values.get(n)).copied());
            write_argument(&mut out, kind, *value, &ArgumentDetail::None);
        }
        Some(String::from_utf8_lossy(&out).into_owned())
    }
}

fn argument_kind(call: &str, fields: &[(&str, &str)], i: usize) -> ArgumentKind {
    let Some(&(name, ty)) = fields.get(i) else { return ArgumentKind::Hex };
    if let Some(meaning) = flags::named_number(call, name) {
        return ArgumentKind::Named(meaning);
    }
    let count = |n: &str| matches!(n, "count" | "len" | "size" | "length");
    if ty.contains('*') {
        let behind = fields.get(i + 1).is_some_and(|(n, _)| count(n));
        if let Some(shape) = shape(call, name, i) {
            return ArgumentKind::Memory(shape);
        }
        return match (ty, name) {
            (_, "buf" | "buff") if behind && matches!(call, "write" | "pwrite64" | "sendto") => {
                ArgumentKind::Memory(MemoryShape::Bytes(i + 1))
            }
            (_, "buf" | "ubuf" | "buff" | "optval") => ArgumentKind::Pointer,
            ("char *" | "const char *", _) => ArgumentKind::Memory(MemoryShape::Text),
            _ => ArgumentKind::Pointer,
        };
    }
    match (name, ty) {
        ("dfd" | "olddfd" | "newdfd" | "dirfd", _) => ArgumentKind::DirFd,
        (
            "fd" | "fildes" | "oldfd" | "epfd" | "in_fd" | "out_fd" | "fd_in" | "fd_out" | "ufd"
            | "fdin" | "fdout",
            _,
        ) => ArgumentKind::Fd,
        // What is there is closed, and what will be there is the result.
        ("newfd", _) => ArgumentKind::Int,
        ("sig", _) => ArgumentKind::Signal,
        ("mode", "umode_t") if matches!(call, "open" | "openat") => ArgumentKind::CreateMode,
        ("mode", _) | ("mask", "int") => ArgumentKind::Octal,
        ("addr" | "start" | "brk" | "old_addr" | "new_addr" | "newsp" | "tls", _) => {
            ArgumentKind::Pointer
        }
        ("off" | "cmd" | "arg", _) if call != "lseek" => ArgumentKind::Hex,
        ("len" | "old_len" | "new_len" | "size", _) => ArgumentKind::Unsigned,
        (_, "unsigned long" | "unsigned long long") => ArgumentKind::Hex,
        (_, "int" | "pid_t" | "clockid_t" | "key_t") => ArgumentKind::Int,
        (_, "long" | "off_t" | "loff_t") => ArgumentKind::Signed,
        _ => ArgumentKind::Unsigned,
    }
}

/// Shape of the memory behind an argument, for more than a text and for memory that the kernel
/// writes.
fn shape(call: &str, name: &str, i: usize) -> Option<MemoryShape> {
    use MemoryShape as S;
    Some(match (call, name) {
        ("read" | "pread64" | "readlink" | "readlinkat" | "syslog", "buf")
        | ("getrandom", "buf" | "ubuf")
        | ("recvfrom", "ubuf")
        | ("listxattr" | "llistxattr" | "flistxattr", "list")
        | ("mq_timedreceive", "u_msg_ptr") => S::Returned,
        ("getcwd", "buf") => S::ReturnedPath,
        ("uname", "name") => S::SystemNames,
        ("mq_timedsend", "u_msg_ptr") | ("sethostname" | "setdomainname", "name") => {
            S::Bytes(i + 1)
        }
        ("stat" | "lstat" | "fstat" | "newfstatat", "statbuf") if cfg!(target_arch = "x86_64") => {
            S::Stat
        }
        ("pipe" | "pipe2", "fildes") | ("socketpair", "usockvec") => S::Descriptors,
        ("connect", "uservaddr") | ("bind", "umyaddr") | ("sendto", "addr") => S::Address(i + 1),
        ("accept" | "accept4", "upeer_sockaddr")
        | ("getsockname" | "getpeername", "usockaddr")
        | ("recvfrom", "addr") => S::AddressWritten(i + 1),
        ("writev" | "pwritev" | "pwritev2", "vec") => S::Vector(i + 1),
        ("readv" | "preadv" | "preadv2", "vec") => S::VectorWritten(i + 1),
        ("sendmsg", "msg") => S::Message,
        ("recvmsg", "msg") => S::MessageWritten,
        ("execve" | "execveat", "argv") => S::Texts,
        _ => return None,
    })
}

/// File behind a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFile {
    pub(super) path: String,
    /// When it was found, on the monotonic clock; `None`: calls before tell.
    pub(super) found_at: Option<u64>,
}

/// Facts about an argument beside its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ArgumentDetail {
    /// Nothing was looked for.
    #[default]
    None,
    /// Bytes from the task's memory, and whether that is all.
    Memory { bytes: Vec<u8>, whole: bool },
    /// The text of what is there.
    Written(Vec<u8>),
    /// File behind a descriptor.
    File(FoundFile),
}

/// Appends an argument.
pub(super) fn write_argument(
    out: &mut Vec<u8>,
    kind: ArgumentKind,
    value: u64,
    detail: &ArgumentDetail,
) {
    let _ = match (kind, detail) {
        (ArgumentKind::Memory(_), ArgumentDetail::Memory { bytes, whole }) => {
            quoted(out, bytes, *whole);
            Ok(())
        }
        (ArgumentKind::Memory(_), ArgumentDetail::Written(text)) => {
            out.extend_from_slice(text);
            Ok(())
        }
        (ArgumentKind::DirFd, _) if value as i32 == libc::AT_FDCWD => write!(out, "AT_FDCWD"),
        (ArgumentKind::Fd | ArgumentKind::DirFd, ArgumentDetail::File(FoundFile { path, .. })) => {
            let _ = write!(out, "{}<", value as i32);
            UntrustedText::new(path).write_escaped(out);
            out.push(b'>');
            Ok(())
        }
        (ArgumentKind::Fd | ArgumentKind::DirFd | ArgumentKind::Int, _) => {
            write!(out, "{}", value as i32)
        }
        (ArgumentKind::Signal, _) => named(out, SIGNALS, value),
        (ArgumentKind::Octal | ArgumentKind::CreateMode, _) => {
            write!(out, "{}{:o}", zero(value), value & 0xffff_ffff)
        }
        (ArgumentKind::Named(meaning), _) => named_number(out, meaning, value),
        (ArgumentKind::Signed, _) => write!(out, "{}", value as i64),
        (ArgumentKind::Unsigned, _) => write!(out, "{value}"),
        (ArgumentKind::Pointer | ArgumentKind::Memory(_), _) if value == 0 => write!(out, "NULL"),
        (ArgumentKind::Hex, _) if value < 10 => write!(out, "{value}"),
        (ArgumentKind::Pointer | ArgumentKind::Memory(_) | ArgumentKind::Hex, _) => {
            write!(out, "{value:#x}")
        }
    };
}

/// Octal numbers begin with a zero, also the number zero, once.
fn zero(value: u64) -> &'static str {
    if value & 0xffff_ffff == 0 { "" } else { "0" }
}

fn named(out: &mut Vec<u8>, names: ValueNames, value: u64) -> std::io::Result<()> {
    match names.iter().find(|(v, _)| *v == value) {
        Some((_, name)) => write!(out, "{name}"),
        None if value < 10 => write!(out, "{value}"),
        None => write!(out, "{value:#x}"),
    }
}

fn bits(
    out: &mut Vec<u8>,
    names: ValueNames,
    mut value: u64,
    mut first: bool,
) -> std::io::Result<()> {
    for (bit, name) in names.iter().filter(|(bit, _)| *bit != 0) {
        if value & bit == *bit {
            value &= !bit;
            let bar = if std::mem::take(&mut first) { "" } else { "|" };
            write!(out, "{bar}{name}")?;
        }
    }
    match (value, first) {
        (0, _) => Ok(()),
        (v, true) => write!(out, "{v:#x}"),
        (v, false) => write!(out, "|{v:#x}"),
    }
}

fn named_number(out: &mut Vec<u8>, meaning: NamedNumber, value: u64) -> std::io::Result<()> {
    // An `int` argument has what was in the register's upper half.
    let value = value & 0xffff_ffff;
    match meaning {
        NamedNumber::Bits(_, none) if value == 0 => write!(out, "{none}"),
        NamedNumber::Bits(names, _) => bits(out, names, value, true),
        NamedNumber::Value(names) => named(out, names, value),
        NamedNumber::SocketOption => named(out, &[], value),
        NamedNumber::Both(values, names, mask) => {
            named(out, values, value & mask)?;
            bits(out, names, value & !mask, false)
        }
        NamedNumber::Open => {
            named(out, OPEN_MODE, value & 3)?;
            bits(out, OPEN, value & !3, false)
        }
        NamedNumber::Clone => {
            bits(out, CLONE, value & !0xff, true)?;
            match (value & 0xff, value & !0xff) {
                (0, 0) => write!(out, "0"),
                (0, _) => Ok(()),
                (signal, rest) => {
                    write!(out, "{}", if rest == 0 { "" } else { "|" })?;
                    named(out, SIGNALS, signal)
                }
            }
        }
    }
}

/// Text in quotes as C writes it; `...` behind it if there is more.
pub(super) fn quoted(out: &mut Vec<u8>, bytes: &[u8], whole: bool) {
    out.push(b'"');
    for b in bytes {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x20..=0x7e => out.push(*b),
            b => drop(write!(out, "\\x{b:02x}")),
        }
    }
    out.extend_from_slice(if whole { b"\"" } else { b"\"..." });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(call: &str, field: (&str, &str), value: u64, expected: &str) {
        let mut out = Vec::new();
        write_argument(&mut out, argument_kind(call, &[field], 0), value, &ArgumentDetail::None);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{call} {field:?}");
    }

    #[test]
    fn arguments_are_written_by_what_they_mean() {
        let flags = (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC) as u64;
        check("openat", ("flags", "int"), flags, "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC");
        check("openat", ("flags", "int"), 0, "O_RDONLY");
        check("openat", ("flags", "int"), 0x4000_0002, "O_RDWR|0x40000000");
        check("openat", ("dfd", "int"), 0xffff_ff9c, "AT_FDCWD");
        check("openat", ("mode", "umode_t"), 0o644, "0644");
        check("chmod", ("mode", "umode_t"), 0, "0");
        check("mmap", ("prot", "unsigned long"), 5, "PROT_READ|PROT_EXEC");
        check("mmap", ("prot", "unsigned long"), 0, "PROT_NONE");
        check("mmap", ("flags", "unsigned long"), 0x22, "MAP_PRIVATE|MAP_ANONYMOUS");
        check("mmap", ("fd", "unsigned long"), u64::from(u32::MAX), "-1");
        check("mmap", ("addr", "unsigned long"), 0, "NULL");
        check("kill", ("sig", "int"), 15, "SIGTERM");
        check("kill", ("pid", "pid_t"), u64::MAX, "-1");
        check("clone", ("clone_flags", "unsigned long"), 17, "SIGCHLD");
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
        check("clone", ("clone_flags", "unsigned long"), thread, "CLONE_VM|CLONE_THREAD");
        check(
            "clone",
            ("clone_flags", "unsigned long"),
            thread | 17,
            "CLONE_VM|CLONE_THREAD|SIGCHLD",
        );
        check("futex", ("op", "int"), 128, "FUTEX_WAIT|FUTEX_PRIVATE_FLAG");
        check("socket", ("type", "int"), 0x80001, "SOCK_STREAM|SOCK_CLOEXEC");
        check("lseek", ("whence", "unsigned int"), 2, "SEEK_END");
        check("lseek", ("offset", "off_t"), u64::MAX, "-1");
        check("read", ("buf", "char *"), 0x7ffe, "0x7ffe");
        check("access", ("mode", "int"), 0, "F_OK");
        check("access", ("mode", "int"), 5, "R_OK|X_OK");
        check("flock", ("cmd", "unsigned int"), 6, "LOCK_EX|LOCK_NB");
        check("setitimer", ("which", "int"), 0, "ITIMER_REAL");
        check("epoll_create1", ("flags", "int"), 0x80000, "EPOLL_CLOEXEC");
        check("eventfd2", ("flags", "int"), 0x80001, "EFD_SEMAPHORE|EFD_CLOEXEC");
        check("getcwd", ("size", "unsigned long"), 1024, "1024");
    }

    #[test]
    fn text_is_quoted_as_c_does() {
        let text = |bytes: &[u8], whole| {
            let detail = ArgumentDetail::Memory { bytes: bytes.to_vec(), whole };
            let mut out = Vec::new();
            write_argument(&mut out, ArgumentKind::Memory(MemoryShape::Text), 1, &detail);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(b"/a \"b\"\n\x01\xff", true), r#""/a \"b\"\n\x01\xff""#);
        assert_eq!(text(b"long", false), "\"long\"...");
    }
}
