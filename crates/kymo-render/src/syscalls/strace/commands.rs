//! Arguments whose form another argument decides: ioctl(2), prctl(2), futex(2), clone(2) and others.

use std::io::Write as _;

use super::printer::{CallPrinter, i32_in, u16_in, u32_in, u64_in};
use super::words::{
    CAPABILITIES, CLONE, CONTROL_FLAGS, FUTEX, FUTEX_FLAGS, INPUT_FLAGS, IOCTL, LOCAL_FLAGS,
    OUTPUT_FLAGS, SCHEDULER, SIGEV, SPEED,
};
use super::{signals, words};
use crate::syscalls::flags::ValueNames;

type P<'a> = CallPrinter<'a>;

/// Commands of futex(2) that have a name of their own where the futex is private.
const PRIVATE: u64 = 128;

pub(super) fn futex_op(p: &mut P<'_>, value: u64) {
    let (op, flags) = (value & 0x7f, value & 0xffff_ff80);
    match FUTEX.iter().find(|(number, _)| *number == op) {
        Some((_, name)) => p.text(name),
        None => drop(write!(p.out, "{op:#x} /* FUTEX_??? */")),
    }
    p.text(if flags & PRIVATE != 0 { "_PRIVATE" } else { "" });
    p.more_bits(FUTEX_FLAGS, flags & !PRIVATE);
}

pub(super) fn futex_bits(p: &mut P<'_>, value: u64) {
    match value & 0xffff_ffff {
        0xffff_ffff => p.text("FUTEX_BITSET_MATCH_ANY"),
        value => p.hex(value),
    }
}

/// The operation of FUTEX_WAKE_OP: include/uapi/linux/futex.h.
pub(super) fn futex_wake_op(p: &mut P<'_>, value: u64) {
    const OPS: [&str; 5] =
        ["FUTEX_OP_SET", "FUTEX_OP_ADD", "FUTEX_OP_OR", "FUTEX_OP_ANDN", "FUTEX_OP_XOR"];
    const COMPARISONS: [&str; 6] = [
        "FUTEX_OP_CMP_EQ",
        "FUTEX_OP_CMP_NE",
        "FUTEX_OP_CMP_LT",
        "FUTEX_OP_CMP_LE",
        "FUTEX_OP_CMP_GT",
        "FUTEX_OP_CMP_GE",
    ];
    let value = value as u32;
    let (op, comparison) = (value >> 28 & 7, value >> 24 & 0xf);
    p.text(if value >> 31 != 0 { "FUTEX_OP_OPARG_SHIFT<<28|" } else { "" });
    match OPS.get(op as usize) {
        Some(name) => p.text(name),
        None => drop(write!(p.out, "{op:#x} /* FUTEX_OP_??? */")),
    }
    let _ = write!(p.out, "<<28|{:#x}<<12|", value >> 12 & 0xfff);
    match COMPARISONS.get(comparison as usize) {
        Some(name) => p.text(name),
        None => drop(write!(p.out, "{comparison:#x} /* FUTEX_OP_CMP_??? */")),
    }
    let _ = write!(p.out, "<<24|{:#x}", value & 0xfff);
}

/// Flags of clone(2), with the signal in the lowest byte.
pub(super) fn clone_flags(p: &mut P<'_>, value: u64) {
    p.text("flags=");
    let (flags, signal) = (value & 0xffff_ff00, value & 0xff);
    let (rest, is_empty) = p.named_bits(CLONE, flags, true);
    if rest != 0 {
        let _ = write!(p.out, "{}{rest:#x}", if is_empty { "" } else { "|" });
    }
    let is_empty = is_empty && rest == 0;
    if signal != 0 {
        p.text(if is_empty { "" } else { "|" });
        signals::signal_name(p, signal as u32);
    } else if is_empty {
        p.text("0");
    }
}

pub(super) fn child_stack(p: &mut P<'_>, value: u64) {
    p.text("child_stack=");
    p.address(value);
}

pub(super) fn parent_tid(p: &mut P<'_>, value: u64) {
    p.text("parent_tid=");
    written_pid(p, value);
}

pub(super) fn tls(p: &mut P<'_>, value: u64) {
    p.text("tls=");
    p.address(value);
}

pub(super) fn child_tid(p: &mut P<'_>, value: u64) {
    p.text("child_tidptr=");
    p.address(value);
}

fn written_pid(p: &mut P<'_>, address: u64) {
    match p.u32_at(address).filter(|_| p.result.is_some() && !p.failed()) {
        Some(pid) => drop(write!(p.out, "[{pid}]")),
        None => p.address(address),
    }
}

/// `struct clone_args` of clone3(2), as it is before the call.
pub(super) fn clone_args(p: &mut P<'_>, address: u64) {
    let size = p.args[1].min(88) as usize;
    let bytes = match size {
        64.. => p.bytes(address, size),
        _ => None,
    };
    let Some(bytes) = bytes else { return p.address(address) };
    let long = |n: usize| u64_in(&bytes, 8 * n);
    let flags = long(0);
    let has = |bits: i32| flags & u64::from(bits.cast_unsigned()) != 0;
    p.text("{flags=");
    p.bits(CLONE, flags, "CLONE_???");
    let pointer = |p: &mut P<'_>, is_shown: bool, name: &str, value: u64| {
        if is_shown {
            let _ = write!(p.out, ", {name}=");
            p.address(value);
        }
    };
    pointer(p, has(libc::CLONE_PIDFD), "pidfd", long(1));
    let child = has(libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID);
    pointer(p, child, "child_tid", long(2));
    pointer(p, has(libc::CLONE_PARENT_SETTID), "parent_tid", long(3));
    p.text(", exit_signal=");
    match long(4) {
        0 => p.text("0"),
        signal => signals::signal_name(p, signal as u32),
    }
    pointer(p, true, "stack", long(5));
    p.text(", stack_size=");
    p.hex(long(6));
    pointer(p, has(libc::CLONE_SETTLS), "tls", long(7));
    if size >= 80 && (long(8) != 0 || long(9) != 0) {
        pointer(p, true, "set_tid", long(8));
        let _ = write!(p.out, ", set_tid_size={}", long(9));
    }
    if size >= 88 && flags & 0x2_0000_0000 != 0 {
        let _ = write!(p.out, ", cgroup={}", long(10));
    }
    p.text("}");
}

/// Its size, behind what the kernel wrote where the structure points to.
pub(super) fn clone_size(p: &mut P<'_>, size: u64) {
    let flags = p.u64_at(p.args[0]).unwrap_or(0);
    let wants = |bits: i32| flags & u64::from(bits.cast_unsigned()) != 0;
    if p.returned() != 0 && wants(libc::CLONE_PIDFD | libc::CLONE_PARENT_SETTID) {
        p.text(" => {");
        let mut is_first = true;
        for (bit, at, name) in
            [(libc::CLONE_PIDFD, 8, "pidfd"), (libc::CLONE_PARENT_SETTID, 24, "parent_tid")]
        {
            if !wants(bit) {
                continue;
            }
            let _ = write!(p.out, "{}{name}=", if is_first { "" } else { ", " });
            is_first = false;
            let pointer = p.u64_at(p.args[0].wrapping_add(at)).unwrap_or(0);
            written_pid(p, pointer);
        }
        p.text("}");
    }
    p.text(", ");
    p.unsigned(size);
}

/// Command of ioctl(2).
pub(super) fn ioctl_name(p: &mut P<'_>, value: u64) {
    let command = value & 0xffff_ffff;
    match command {
        0x5402 => return p.text("SNDCTL_TMR_START or TCSETS"),
        0x5403 => return p.text("SNDCTL_TMR_STOP or TCSETSW"),
        0x5404 => return p.text("SNDCTL_TMR_CONTINUE or TCSETSF"),
        0x5401 => return p.text("TCGETS"),
        0x8004_5430 => return p.text("TIOCGPTN"),
        0x4004_5431 => return p.text("TIOCSPTLCK"),
        0x5441 => return p.text("TIOCGPTPEER"),
        0x4004_9409 => return p.text("BTRFS_IOC_CLONE or FICLONE"),
        _ => {}
    }
    if let Some((_, name)) = IOCTL.iter().find(|(number, _)| *number == command) {
        return p.text(name);
    }
    let direction = match command >> 30 {
        0 => "_IOC_NONE",
        1 => "_IOC_WRITE",
        2 => "_IOC_READ",
        _ => "_IOC_READ|_IOC_WRITE",
    };
    let _ = write!(p.out, "_IOC({direction}, ");
    p.hex(command >> 8 & 0xff);
    p.text(", ");
    p.hex(command & 0xff);
    p.text(", ");
    p.hex(command >> 16 & 0x3fff);
    p.text(")");
}

/// Whether ioctl(2) reads what its argument points to.
pub(super) fn ioctl_reads(command: u64) -> bool {
    matches!(command & 0xffff_ffff, 0x5402..=0x5404 | 0x5414 | 0x5410 | 0x5421 | 0x4004_5431)
}

/// Whether it writes there.
pub(super) fn ioctl_writes(command: u64) -> bool {
    matches!(command & 0xffff_ffff, 0x5401 | 0x5413 | 0x540f | 0x541b | 0x5411 | 0x8004_5430)
}

/// Whether the argument is a number.
pub(super) fn ioctl_is_number(command: u64) -> bool {
    matches!(command & 0xffff_ffff, 0x540e | 0x5409 | 0x5425 | 0x4004_9409)
}

/// Whether there is no argument.
pub(super) fn ioctl_is_alone(command: u64) -> bool {
    matches!(command & 0xffff_ffff, 0x5450 | 0x5451 | 0x5422 | 0x540c | 0x540d)
}

pub(super) fn ioctl_argument(p: &mut P<'_>, address: u64) {
    match p.args[1] & 0xffff_ffff {
        0x5401..=0x5404 => termios(p, address),
        0x5413 | 0x5414 => {
            let Some(b) = p.bytes(address, 8) else { return p.address(address) };
            let _ = write!(
                p.out,
                "{{ws_row={}, ws_col={}, ws_xpixel={}, ws_ypixel={}}}",
                u16_in(&b, 0),
                u16_in(&b, 2),
                u16_in(&b, 4),
                u16_in(&b, 6)
            );
        }
        _ => number(p, address),
    }
}

pub(super) fn flush_queue(p: &mut P<'_>, value: u64) {
    p.word(words::FLUSH, value, "TC???");
}

fn termios(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 36) else { return p.address(address) };
    let flags = |n: usize| u64::from(u32_in(&bytes, 4 * n));
    p.text("{c_iflag=");
    p.bits(INPUT_FLAGS, flags(0), "I???");
    p.text(", c_oflag=");
    let output = flags(1);
    let delays = [
        (0x100, 8, "NL", 1),
        (0x600, 9, "CR", 3),
        (0x1800, 11, "TAB", 3),
        (0x2000, 13, "BS", 1),
        (0x4000, 14, "VT", 1),
        (0x8000, 15, "FF", 1),
    ];
    let mut rest = output;
    for (n, (mask, shift, name, _)) in delays.into_iter().enumerate() {
        let _ = write!(p.out, "{}{name}{}", if n > 0 { "|" } else { "" }, (output & mask) >> shift);
        rest &= !mask;
    }
    p.more_bits(OUTPUT_FLAGS, rest);
    p.text(", c_cflag=");
    let control = flags(2);
    p.word(SPEED, control & 0x100f, "B???");
    let _ = write!(p.out, "|CS{}", 5 + (control >> 4 & 3));
    p.more_bits(CONTROL_FLAGS, control & !0x103f);
    p.text(", c_lflag=");
    p.bits(LOCAL_FLAGS, flags(3), "L???");
    if !p.style.whole {
        return p.text(", ...}");
    }
    p.text(", c_line=");
    let discipline = bytes.get(16).copied().unwrap_or_default();
    p.word(LINE_DISCIPLINE, discipline.into(), "N_???");
    p.text(", c_cc=[");
    for (n, byte) in bytes.get(17..36).unwrap_or_default().iter().enumerate() {
        p.text(if n > 0 { ", [" } else { "[" });
        match CONTROL_CHARACTERS.get(n) {
            Some(name) => p.text(name),
            None => drop(write!(p.out, "{n}")),
        }
        p.text("]=");
        p.hex((*byte).into());
    }
    p.text("]}");
}

/// Places of `c_cc` (include/uapi/asm-generic/termbits.h).
const CONTROL_CHARACTERS: [&str; 17] = [
    "VINTR", "VQUIT", "VERASE", "VKILL", "VEOF", "VTIME", "VMIN", "VSWTC", "VSTART", "VSTOP",
    "VSUSP", "VEOL", "VREPRINT", "VDISCARD", "VWERASE", "VLNEXT", "VEOL2",
];
/// Line disciplines of terminals (include/uapi/linux/tty.h).
const LINE_DISCIPLINE: ValueNames = &[
    (0, "N_TTY"),
    (1, "N_SLIP"),
    (2, "N_MOUSE"),
    (3, "N_PPP"),
    (4, "N_STRIP"),
    (5, "N_AX25"),
    (15, "N_HCI"),
];

/// A number of 32 bits in memory.
pub(super) fn number(p: &mut P<'_>, address: u64) {
    match p.u32_at(address) {
        Some(value) => drop(write!(p.out, "[{}]", value.cast_signed())),
        None => p.address(address),
    }
}

/// An unsigned one.
pub(super) fn unsigned_number(p: &mut P<'_>, address: u64) {
    match p.u32_at(address) {
        Some(value) => drop(write!(p.out, "[{value}]")),
        None => p.address(address),
    }
}

/// An address in memory.
pub(super) fn pointer_at(p: &mut P<'_>, address: u64) {
    match p.u64_at(address) {
        Some(value) => {
            p.text("[");
            p.address(value);
            p.text("]");
        }
        None => p.address(address),
    }
}

/// A size in memory.
pub(super) fn long_at(p: &mut P<'_>, address: u64) {
    match p.u64_at(address) {
        Some(value) => drop(write!(p.out, "[{}]", value.cast_signed())),
        None => p.address(address),
    }
}

/// A signal in memory.
pub(super) fn signal_at(p: &mut P<'_>, address: u64) {
    match p.u32_at(address) {
        Some(signal) => {
            p.text("[");
            signals::signal_name(p, signal);
            p.text("]");
        }
        None => p.address(address),
    }
}

/// Two descriptors that the kernel wrote.
pub(super) fn descriptors(p: &mut P<'_>, address: u64) {
    match p.bytes(address, 8) {
        Some(bytes) => p.array(2, |p, n| p.descriptor(i32_in(&bytes, 4 * n))),
        None => p.address(address),
    }
}

/// Groups: the number that is set or was returned.
pub(super) fn groups(p: &mut P<'_>, address: u64) {
    let count = if p.result.is_some() { p.returned() } else { p.args[0] };
    if address == 0 || p.args[0] as i32 == 0 {
        return if address == 0 { p.text("NULL") } else { p.address(address) };
    }
    let count = usize::try_from(count).unwrap_or(0).min(1 << 16);
    let shown = count.min(p.style.string_limit);
    match p.bytes(address, shown * 4) {
        Some(bytes) => {
            p.text("[");
            for n in 0..shown {
                let _ = write!(p.out, "{}{}", if n > 0 { ", " } else { "" }, u32_in(&bytes, 4 * n));
            }
            p.text(if shown < count { ", ...]" } else { "]" });
        }
        None => p.address(address),
    }
}

/// CPUs in a set of the size that the second argument, or the result, has.
pub(super) fn cpus(p: &mut P<'_>, address: u64) {
    let size = if p.result.is_some() { p.returned() } else { p.args[1] };
    let size = usize::try_from(size).unwrap_or(0).min(1024);
    let Some(bits) = p.bytes(address, size) else { return p.address(address) };
    let set =
        (0..size * 8).filter(|cpu| bits.get(cpu / 8).is_some_and(|b| b >> (cpu % 8) & 1 == 1));
    let names: Vec<String> = set.map(|cpu| cpu.to_string()).collect();
    let _ = write!(p.out, "[{}]", names.join(" "));
}

pub(super) fn scheduler(p: &mut P<'_>, value: u64) {
    let (policy, flags) = (value & !0x4000_0000 & 0xffff_ffff, value & 0x4000_0000);
    p.word(SCHEDULER, policy, "SCHED_???");
    p.text(if flags != 0 { "|SCHED_RESET_ON_FORK" } else { "" });
}

/// `struct __user_cap_header_struct`.
pub(super) fn capability_header(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 8) else { return p.address(address) };
    p.text("{version=");
    match u32_in(&bytes, 0) {
        0x1998_0330 => p.text("_LINUX_CAPABILITY_VERSION_1"),
        0x2007_1026 => p.text("_LINUX_CAPABILITY_VERSION_2"),
        0x2008_0522 => p.text("_LINUX_CAPABILITY_VERSION_3"),
        other => drop(write!(p.out, "{other:#x} /* _LINUX_CAPABILITY_VERSION_??? */")),
    }
    let _ = write!(p.out, ", pid={}}}", i32_in(&bytes, 4));
}

/// `struct __user_cap_data_struct`, once or twice.
pub(super) fn capabilities(p: &mut P<'_>, address: u64) {
    let is_wide = p.u32_at(p.args[0]) != Some(0x1998_0330);
    let Some(bytes) = p.bytes(address, if is_wide { 24 } else { 12 }) else {
        return p.address(address);
    };
    for (n, name) in ["effective", "permitted", "inheritable"].into_iter().enumerate() {
        let low = u64::from(u32_in(&bytes, 4 * n));
        let set = low | u64::from(u32_in(&bytes, 12 + 4 * n)) << 32;
        let _ = write!(p.out, "{}{name}=", if n > 0 { ", " } else { "{" });
        let (mut rest, mut is_first) = (set, true);
        for (bit, name) in CAPABILITIES.iter().filter(|(bit, _)| set >> bit & 1 == 1) {
            let bar = if std::mem::take(&mut is_first) { "" } else { "|" };
            let _ = write!(p.out, "{bar}1<<{name}");
            rest &= !(1 << bit);
        }
        match (rest, is_first) {
            (0, true) => p.text("0"),
            (0, false) => {}
            (rest, true) => drop(write!(p.out, "{rest:#x} /* CAP_??? */")),
            (rest, false) => drop(write!(p.out, "|{rest:#x}")),
        }
    }
    p.text("}");
}

/// `struct sigevent`, of a signal or none.
pub(super) fn signal_event(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 64) else { return p.address(address) };
    let (value, signal, notify) = (u64_in(&bytes, 0), u32_in(&bytes, 8), u32_in(&bytes, 12));
    p.text("{");
    if value != 0 {
        let _ = write!(p.out, "sigev_value={{sival_int={}, sival_ptr={value:#x}}}, ", value as i32);
    }
    p.text("sigev_signo=");
    match notify {
        0 | 2 | 4 => signals::signal_name(p, signal),
        _ => p.unsigned(signal.into()),
    }
    p.text(", sigev_notify=");
    p.word(SIGEV, notify.into(), "SIGEV_???");
    if notify == 4 {
        let _ = write!(p.out, ", sigev_notify_thread_id={}", i32_in(&bytes, 16));
    }
    p.text("}");
}
