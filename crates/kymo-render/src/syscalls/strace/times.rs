//! Times, timers, limits and what tasks used.

use std::io::Write as _;

use super::printer::{CallPrinter, i32_in, u16_in, u32_in, u64_in};
use super::words::RLIMIT;

type P<'a> = CallPrinter<'a>;

/// A pair of numbers under names, or the address where it cannot be read.
fn pair(p: &mut P<'_>, address: u64, second: &str) {
    match p.bytes(address, 16) {
        Some(bytes) => pair_in(p, &bytes, second),
        None => p.address(address),
    }
}

fn pair_in(p: &mut P<'_>, bytes: &[u8], second: &str) {
    let (s, rest) = (u64_in(bytes, 0).cast_signed(), u64_in(bytes, 8).cast_signed());
    let _ = write!(p.out, "{{tv_sec={s}, {second}={rest}}}");
}

pub(super) fn timespec(p: &mut P<'_>, address: u64) {
    pair(p, address, "tv_nsec");
}

pub(super) fn timeval(p: &mut P<'_>, address: u64) {
    pair(p, address, "tv_usec");
}

pub(super) fn timespec_in(p: &mut P<'_>, bytes: &[u8]) {
    pair_in(p, bytes, "tv_nsec");
}

pub(super) fn timeval_in(p: &mut P<'_>, bytes: &[u8]) {
    pair_in(p, bytes, "tv_usec");
}

/// Remaining time of a sleep, which the kernel writes only if a signal came.
pub(super) fn remaining(p: &mut P<'_>, address: u64) {
    const RESTART: i64 = -516;
    match p.result {
        Some((result, true)) if result == i64::from(-libc::EINTR) || result == RESTART => {
            timespec(p, address);
        }
        _ => p.address(address),
    }
}

const UTIME_NOW: u64 = 0x3fff_ffff;
const UTIME_OMIT: u64 = 0x3fff_fffe;

/// Two times of a file, with dates.
pub(super) fn file_times(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 32) else { return p.address(address) };
    p.array(2, |p, n| {
        let time = bytes.get(16 * n..).unwrap_or_default();
        match u64_in(time, 8) {
            UTIME_NOW => p.text("UTIME_NOW"),
            UTIME_OMIT => p.text("UTIME_OMIT"),
            nanos => {
                timespec_in(p, time);
                let seconds = u64_in(time, 0).cast_signed();
                let words = p.task.local_time(seconds);
                let (date, zone) = words.split_at(words.len().saturating_sub(5));
                let _ = match nanos {
                    0 => write!(p.out, " /* {date}{zone} */"),
                    _ => write!(p.out, " /* {date}.{nanos:09}{zone} */"),
                };
            }
        }
    });
}

fn timer(p: &mut P<'_>, address: u64, second: &str) {
    let Some(bytes) = p.bytes(address, 32) else { return p.address(address) };
    p.text("{it_interval=");
    pair_in(p, &bytes, second);
    p.text(", it_value=");
    pair_in(p, bytes.get(16..).unwrap_or_default(), second);
    p.text("}");
}

pub(super) fn itimerval(p: &mut P<'_>, address: u64) {
    timer(p, address, "tv_usec");
}

pub(super) fn itimerspec(p: &mut P<'_>, address: u64) {
    timer(p, address, "tv_nsec");
}

fn limit(p: &mut P<'_>, value: u64) {
    match value {
        u64::MAX => p.text("RLIM64_INFINITY"),
        _ if value > 1024 && value.is_multiple_of(1024) => {
            let _ = write!(p.out, "{}*1024", value / 1024);
        }
        _ => p.unsigned(value),
    }
}

pub(super) fn rlimit(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 16) else { return p.address(address) };
    p.text("{rlim_cur=");
    limit(p, u64_in(&bytes, 0));
    p.text(", rlim_max=");
    limit(p, u64_in(&bytes, 8));
    p.text("}");
}

pub(super) fn rlimit_name(p: &mut P<'_>, value: u64) {
    p.word(RLIMIT, value & 0xffff_ffff, "RLIMIT_???");
}

pub(super) fn rusage(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 144) else { return p.address(address) };
    p.text("{ru_utime=");
    timeval_in(p, &bytes);
    p.text(", ru_stime=");
    timeval_in(p, bytes.get(16..).unwrap_or_default());
    if !p.style.whole {
        return p.text(", ...}");
    }
    let names = [
        "maxrss", "ixrss", "idrss", "isrss", "minflt", "majflt", "nswap", "inblock", "oublock",
        "msgsnd", "msgrcv", "nsignals", "nvcsw", "nivcsw",
    ];
    for (n, name) in names.into_iter().enumerate() {
        let _ = write!(p.out, ", ru_{name}={}", u64_in(&bytes, 32 + 8 * n));
    }
    p.text("}");
}

pub(super) fn sysinfo(p: &mut P<'_>, address: u64) {
    let Some(b) = p.bytes(address, 112) else { return p.address(address) };
    let long = |n: usize| u64_in(&b, 8 * n);
    let _ = write!(
        p.out,
        "{{uptime={}, loads=[{}, {}, {}], totalram={}, freeram={}, sharedram={}, bufferram={}, \
         totalswap={}, freeswap={}, procs={}, totalhigh={}, freehigh={}, mem_unit={}}}",
        long(0).cast_signed(),
        long(1),
        long(2),
        long(3),
        long(4),
        long(5),
        long(6),
        long(7),
        long(8),
        long(9),
        u16_in(&b, 80),
        u64_in(&b, 88),
        u64_in(&b, 96),
        u32_in(&b, 104)
    );
}

pub(super) fn tms(p: &mut P<'_>, address: u64) {
    let Some(b) = p.bytes(address, 32) else { return p.address(address) };
    let _ = write!(
        p.out,
        "{{tms_utime={}, tms_stime={}, tms_cutime={}, tms_cstime={}}}",
        u64_in(&b, 0),
        u64_in(&b, 8),
        u64_in(&b, 16),
        u64_in(&b, 24)
    );
}

/// The status that wait4(2) writes, if a child was there.
pub(super) fn wait_status(p: &mut P<'_>, address: u64) {
    let status = match p.returned() {
        0 => None,
        _ => p.bytes(address, 4).map(|b| i32_in(&b, 0)),
    };
    let Some(status) = status else { return p.address(address) };
    p.text("[{");
    if libc::WIFSTOPPED(status) {
        p.text("WIFSTOPPED(s) && WSTOPSIG(s) == ");
        let signal = libc::WSTOPSIG(status);
        super::signals::signal_name(p, (signal & 0x7f) as u32);
        if signal & 0x80 != 0 {
            p.text(" | 0x80");
        }
    } else if libc::WIFSIGNALED(status) {
        p.text("WIFSIGNALED(s) && WTERMSIG(s) == ");
        super::signals::signal_name(p, libc::WTERMSIG(status) as u32);
        if libc::WCOREDUMP(status) {
            p.text(" && WCOREDUMP(s)");
        }
    } else if libc::WIFEXITED(status) {
        let _ = write!(p.out, "WIFEXITED(s) && WEXITSTATUS(s) == {}", libc::WEXITSTATUS(status));
    } else if libc::WIFCONTINUED(status) {
        p.text("WIFCONTINUED(s)");
    }
    p.text("}]");
}

/// Resource usage of the child of wait4(2), if there was one.
pub(super) fn wait_rusage(p: &mut P<'_>, address: u64) {
    match p.returned() {
        0 => p.address(address),
        _ => rusage(p, address),
    }
}
