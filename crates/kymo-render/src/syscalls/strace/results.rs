//! Text after a result, in parentheses, and results that are not decimal numbers.

use std::io::Write as _;

use super::files;
use super::printer::{CallPrinter, i32_in, u16_in};
use super::words::{DUMPABLE, FD_FLAGS, LOCK_TYPE, PERSONALITY, SCHEDULER, SEALS, Words};
use super::{calls, signals, times};

type P<'a> = CallPrinter<'a>;

/// Format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultForm {
    /// As a signed number.
    Decimal,
    /// As an address or bits.
    Hexadecimal,
    /// As permissions.
    Octal,
    /// As a descriptor.
    Descriptor,
}

/// The form of a call's result.
pub(super) fn form(name: &str, args: &[u64; 6]) -> ResultForm {
    match name {
        "mmap" | "mmap2" | "brk" | "mremap" | "shmat" | "membarrier" => ResultForm::Hexadecimal,
        "umask" => ResultForm::Octal,
        "fcntl" | "fcntl64" => match args[1] as i32 {
            libc::F_GETFL | libc::F_GETFD | libc::F_GET_SEALS => ResultForm::Hexadecimal,
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => ResultForm::Descriptor,
            _ => ResultForm::Decimal,
        },
        _ if calls::returns_descriptor(name) => ResultForm::Descriptor,
        _ => ResultForm::Decimal,
    }
}

/// Sets what stands behind the result of a call that has succeeded.
pub(super) fn aside(name: &str, p: &mut P<'_>, result: i64) {
    let line = std::mem::take(&mut p.out);
    let is_said = say(name, p, result);
    let text = std::mem::replace(&mut p.out, line);
    p.aside = is_said.then_some(text);
}

fn say(name: &str, p: &mut P<'_>, result: i64) -> bool {
    let value = result.cast_unsigned();
    match name {
        "poll" | "ppoll" | "ppoll_time64" => polled(p, name != "poll"),
        "select" | "pselect6" | "_newselect" => selected(p, name == "select"),
        "fcntl" | "fcntl64" => match p.args[1] as i32 {
            libc::F_GETFL => {
                p.text("flags ");
                files::open_flags_text(p, value);
                true
            }
            libc::F_GETFD if value != 0 => {
                p.text("flags ");
                p.bits(FD_FLAGS, value, "FD_???");
                true
            }
            libc::F_GET_SEALS if value != 0 => {
                p.text("seals ");
                p.bits(SEALS, value, "F_SEAL_???");
                true
            }
            libc::F_GETLEASE => known(p, LOCK_TYPE, value),
            _ => false,
        },
        "rt_sigtimedwait" => {
            signals::signal_name(p, result as u32);
            true
        }
        "recvmmsg" => {
            let address = p.args[4];
            if result == 0 {
                p.text("Timeout");
            } else if address != 0 {
                p.text("left ");
                times::timespec(p, address);
            }
            result == 0 || address != 0
        }
        "sched_getscheduler" => known(p, SCHEDULER, value),
        "personality" => known(p, PERSONALITY, value),
        "prctl" if p.args[0] as i32 == libc::PR_GET_DUMPABLE => known(p, DUMPABLE, value),
        "time" => {
            let words = p.task.local_time(result);
            p.text(&words);
            true
        }
        _ => false,
    }
}

fn known(p: &mut P<'_>, words: Words, value: u64) -> bool {
    match words.iter().find(|(number, _)| *number == value) {
        Some((_, name)) => p.text(name),
        None => return false,
    }
    true
}

/// Descriptors with events, and what is left of the time.
fn polled(p: &mut P<'_>, has_time: bool) -> bool {
    if p.returned() == 0 {
        p.text("Timeout");
        return true;
    }
    let count = (p.args[1] & 0xffff_ffff).min(1 << 16) as usize;
    let Some(bytes) = p.bytes(p.args[0], count * 8) else { return false };
    let limit = p.style.string_limit;
    let ready = bytes.chunks_exact(8).filter(|entry| u16_in(entry, 6) != 0);
    p.text("[");
    for (n, entry) in ready.enumerate() {
        p.text(if n > 0 { ", " } else { "" });
        if n >= limit {
            p.text("...");
            break;
        }
        p.text("{fd=");
        p.descriptor(i32_in(entry, 0));
        p.text(", revents=");
        files::poll_events(p, u16_in(entry, 6));
        p.text("}");
    }
    p.text("]");
    if has_time && p.args[2] != 0 {
        p.text(", left ");
        times::timespec(p, p.args[2]);
    }
    true
}

/// The sets that select(2) left, and what is left of the time.
fn selected(p: &mut P<'_>, has_microseconds: bool) -> bool {
    if p.returned() == 0 {
        p.text("Timeout");
        return true;
    }
    let mut is_first = true;
    for (n, name) in [(1, "in "), (2, "out "), (3, "except ")] {
        let address = p.args[n];
        if address == 0 {
            continue;
        }
        let before = p.out.len();
        let _ = write!(p.out, "{}{name}", if is_first { "" } else { ", " });
        let start = p.out.len();
        files::fd_set_text(p, address);
        if p.out.get(start..) == Some(b"[]") {
            p.out.truncate(before);
        } else {
            is_first = false;
        }
    }
    let time = p.args[4];
    if time != 0 {
        p.text(if is_first { "left " } else { ", left " });
        if has_microseconds {
            times::timeval(p, time);
        } else {
            times::timespec(p, time);
        }
    }
    true
}
