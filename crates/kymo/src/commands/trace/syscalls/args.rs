//! What the arguments of a call are, and how they are written.

use std::io::Write as _;

use kymo_format::EventFormat;
use kymo_kernel::tracefs::Tracefs;

use super::errno::SIGNALS;
use super::flags::{self, CLONE, Meaning, Names, OPEN, OPEN_MODE};
use super::numbers;

/// A call as tracefs describes it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) args: Vec<Arg>,
    /// Whether the result is an address.
    pub(super) returns_pointer: bool,
    /// Whether the result is a new descriptor.
    pub(super) returns_fd: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Arg {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// How an argument is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A descriptor, and what it stands for.
    Fd,
    /// A folder's descriptor.
    DirFd,
    /// A text in the task's memory.
    Text,
    /// Bytes in the task's memory; the argument of this place is their number.
    Bytes(usize),
    /// Numbers with names.
    Named(Meaning),
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

impl Call {
    /// The call of this number; nobody describes some, whose arguments are numbers.
    pub(super) fn load(tracefs: &Tracefs, number: i64) -> Call {
        let name = numbers::name(number).map_or_else(|| format!("syscall_{number}"), str::to_owned);
        let event = format!("sys_enter_{}", numbers::described_as(&name));
        let text = tracefs.event_format("syscalls", &event);
        let format = text.ok().and_then(|t| EventFormat::parse(&t).ok());
        let args = match &format {
            None => (1..=6).map(|i| Arg { name: format!("arg{i}"), kind: Kind::Hex }).collect(),
            Some(format) => {
                let fields: Vec<(&str, &str)> = format
                    .own_fields()
                    .filter(|f| f.name != "__syscall_nr")
                    .map(|f| (f.name.as_str(), f.type_text.as_str()))
                    .take(6)
                    .collect();
                let arg = |(i, (arg, _)): (usize, &(&str, &str))| Arg {
                    name: (*arg).to_owned(),
                    kind: kind(&name, &fields, i),
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
        Call { name, args, returns_pointer, returns_fd }
    }

    /// Whether some of its arguments must be looked up in the task's memory.
    pub(super) fn reads_memory(&self) -> bool {
        self.args.iter().any(|a| matches!(a.kind, Kind::Text | Kind::Bytes(_)))
    }
}

fn kind(call: &str, fields: &[(&str, &str)], i: usize) -> Kind {
    let Some(&(name, ty)) = fields.get(i) else { return Kind::Hex };
    if let Some(meaning) = flags::meaning(call, name) {
        return Kind::Named(meaning);
    }
    let count = |n: &str| matches!(n, "count" | "len" | "size" | "length");
    if ty.contains('*') {
        let reads = matches!(call, "write" | "pwrite64" | "sendto");
        let behind = fields.get(i + 1).is_some_and(|(n, _)| count(n));
        return match (ty, name) {
            (_, "buf" | "buff") if reads && behind => Kind::Bytes(i + 1),
            (_, "buf" | "ubuf" | "buff" | "optval") => Kind::Pointer,
            ("char *" | "const char *", _) if !outputs(call, name) => Kind::Text,
            _ => Kind::Pointer,
        };
    }
    match (name, ty) {
        ("dfd" | "olddfd" | "newdfd" | "dirfd", _) => Kind::DirFd,
        (
            "fd" | "fildes" | "oldfd" | "epfd" | "in_fd" | "out_fd" | "fd_in" | "fd_out" | "ufd"
            | "fdin" | "fdout",
            _,
        ) => Kind::Fd,
        // What is there is closed, and what will be there is the result.
        ("newfd", _) => Kind::Int,
        ("sig", _) => Kind::Signal,
        ("mode", "umode_t") if matches!(call, "open" | "openat") => Kind::CreateMode,
        ("mode", _) | ("mask", "int") => Kind::Octal,
        ("addr" | "start" | "brk" | "old_addr" | "new_addr" | "newsp" | "tls", _) => Kind::Pointer,
        ("off" | "cmd" | "arg", _) if call != "lseek" => Kind::Hex,
        ("len" | "old_len" | "new_len", _) => Kind::Unsigned,
        (_, "unsigned long" | "unsigned long long") => Kind::Hex,
        (_, "int" | "pid_t" | "clockid_t" | "key_t") => Kind::Int,
        (_, "long" | "off_t" | "loff_t") => Kind::Signed,
        _ => Kind::Unsigned,
    }
}

/// Texts that the kernel writes and does not read.
fn outputs(call: &str, name: &str) -> bool {
    matches!((call, name), ("getcwd" | "readlink" | "readlinkat" | "syslog", "buf"))
        || (call, name) == ("gethostname", "name")
}

/// What was found out about an argument beside its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Side {
    /// Nothing was looked for.
    #[default]
    None,
    /// Bytes from the task's memory.
    Memory {
        bytes: Vec<u8>,
        /// Whether that is all.
        whole: bool,
        /// When they were read, if the call may have ended before.
        late: bool,
    },
    /// What a descriptor stands for.
    File(String),
}

/// Appends an argument.
pub(super) fn write(out: &mut Vec<u8>, kind: Kind, value: u64, side: &Side) {
    let _ = match (kind, side) {
        (Kind::Text | Kind::Bytes(_), Side::Memory { bytes, whole, late }) => {
            if *late {
                out.push(b'~');
            }
            quoted(out, bytes, *whole);
            Ok(())
        }
        (Kind::DirFd, _) if value as i32 == libc::AT_FDCWD => write!(out, "AT_FDCWD"),
        (Kind::Fd | Kind::DirFd, Side::File(path)) => write!(out, "{}<{path}>", value as i32),
        (Kind::Fd | Kind::DirFd | Kind::Int, _) => write!(out, "{}", value as i32),
        (Kind::Signal, _) => named(out, SIGNALS, value),
        (Kind::Octal | Kind::CreateMode, _) => {
            write!(out, "{}{:o}", zero(value), value & 0xffff_ffff)
        }
        (Kind::Named(meaning), _) => meant(out, meaning, value),
        (Kind::Signed, _) => write!(out, "{}", value as i64),
        (Kind::Unsigned, _) => write!(out, "{value}"),
        (Kind::Pointer | Kind::Text | Kind::Bytes(_), _) if value == 0 => write!(out, "NULL"),
        (Kind::Hex, _) if value < 10 => write!(out, "{value}"),
        (Kind::Pointer | Kind::Text | Kind::Bytes(_) | Kind::Hex, _) => write!(out, "{value:#x}"),
    };
}

/// Octal numbers begin with a zero, also the number zero, once.
fn zero(value: u64) -> &'static str {
    if value & 0xffff_ffff == 0 { "" } else { "0" }
}

fn named(out: &mut Vec<u8>, names: Names, value: u64) -> std::io::Result<()> {
    match names.iter().find(|(v, _)| *v == value) {
        Some((_, name)) => write!(out, "{name}"),
        None if value < 10 => write!(out, "{value}"),
        None => write!(out, "{value:#x}"),
    }
}

fn bits(out: &mut Vec<u8>, names: Names, mut value: u64, mut first: bool) -> std::io::Result<()> {
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

fn meant(out: &mut Vec<u8>, meaning: Meaning, value: u64) -> std::io::Result<()> {
    // An `int` argument has what was in the register's upper half.
    let value = value & 0xffff_ffff;
    match meaning {
        Meaning::Bits(_, none) if value == 0 => write!(out, "{none}"),
        Meaning::Bits(names, _) => bits(out, names, value, true),
        Meaning::Value(names) => named(out, names, value),
        Meaning::Both(values, names, mask) => {
            named(out, values, value & mask)?;
            bits(out, names, value & !mask, false)
        }
        Meaning::Open => {
            named(out, OPEN_MODE, value & 3)?;
            bits(out, OPEN, value & !3, false)
        }
        Meaning::Clone => {
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
fn quoted(out: &mut Vec<u8>, bytes: &[u8], whole: bool) {
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
        write(&mut out, kind(call, &[field], 0), value, &Side::None);
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
    }

    #[test]
    fn text_is_quoted_as_c_does() {
        let text = |bytes: &[u8], whole, late| {
            let side = Side::Memory { bytes: bytes.to_vec(), whole, late };
            let mut out = Vec::new();
            write(&mut out, Kind::Text, 1, &side);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(b"/a \"b\"\n\x01\xff", true, false), r#""/a \"b\"\n\x01\xff""#);
        assert_eq!(text(b"long", false, true), "~\"long\"...");
    }
}
