//! Signals, sets of them, and what was to be done about one.

use std::io::Write as _;

use super::printer::{CallPrinter, i32_in, u32_in, u64_in};
use super::words::{
    BUS_CODE, CHILD_CODE, FPE_CODE, ILL_CODE, SA, SEGV_CODE, SI_CODE, SYS_CODE, TRAP_CODE, Words,
};
use crate::syscalls::errno::SIGNALS;

type P<'a> = CallPrinter<'a>;

/// The first signal without a name of its own.
const FIRST_REAL_TIME: u32 = 32;
/// Signals that there are.
const LAST: u32 = 64;

/// Name of a signal; a number that is none stays one.
pub(super) fn signal_text(signal: u32) -> String {
    match SIGNALS.iter().find(|(number, _)| *number == u64::from(signal)) {
        Some((_, name)) => (*name).to_owned(),
        None if signal == FIRST_REAL_TIME => "SIGRTMIN".to_owned(),
        None if (FIRST_REAL_TIME..=LAST).contains(&signal) => {
            format!("SIGRT_{}", signal - FIRST_REAL_TIME)
        }
        None => signal.cast_signed().to_string(),
    }
}

pub(super) fn signal_name(p: &mut P<'_>, signal: u32) {
    p.text(&signal_text(signal));
}

/// A signal in a register.
pub(super) fn signal(p: &mut P<'_>, value: u64) {
    signal_name(p, value as u32);
}

/// Names in a set; of one that is full those that are not in it.
pub(super) fn set_text(set: u64) -> String {
    let is_full = set.count_ones() >= 64 * 2 / 3;
    let shown = if is_full { !set } else { set };
    let names = (0..LAST).filter(|bit| shown >> bit & 1 == 1).map(|bit| signal_text(bit + 1));
    let names: Vec<String> = names.map(|n| n.trim_start_matches("SIG").to_owned()).collect();
    format!("{}[{}]", if is_full { "~" } else { "" }, names.join(" "))
}

pub(super) fn set(p: &mut P<'_>, address: u64) {
    match p.u64_at(address) {
        Some(bits) => p.text(&set_text(bits)),
        None => p.address(address),
    }
}

/// `struct kernel_sigaction` of 64-bit x86.
pub(super) fn action(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 32) else { return p.address(address) };
    let flags = u64_in(&bytes, 8);
    p.text("{sa_handler=");
    match u64_in(&bytes, 0) {
        0 => p.text("SIG_DFL"),
        1 => p.text("SIG_IGN"),
        handler => p.address(handler),
    }
    let _ = write!(p.out, ", sa_mask={}, sa_flags=", set_text(u64_in(&bytes, 24)));
    p.bits(SA, flags & 0xffff_ffff, "SA_???");
    if flags & 0x0400_0000 != 0 {
        p.text(", sa_restorer=");
        p.address(u64_in(&bytes, 16));
    }
    p.text("}");
}

/// The mask that rt_sigreturn(2) puts back: of `struct ucontext` on the stack.
pub(super) fn returned_mask(p: &mut P<'_>, stack: u64) {
    const MASK: u64 = 296;
    if let Some(mask) = p.u64_at(stack.wrapping_add(MASK)) {
        let _ = write!(p.out, "{{mask={}}}", set_text(mask));
    }
}

/// `siginfo_t`, as wait and signals deliver it.
pub(super) fn info_text(p: &mut P<'_>, info: &[u8]) {
    let (signal, errno, code) = (i32_in(info, 0), i32_in(info, 4), i32_in(info, 8));
    if signal == 0 && errno == 0 && code == 0 {
        return p.text("{}");
    }
    p.text("{si_signo=");
    signal_name(p, signal.cast_unsigned());
    p.text(", si_code=");
    let words: Words = match signal {
        libc::SIGCHLD => CHILD_CODE,
        libc::SIGSEGV => SEGV_CODE,
        libc::SIGBUS => BUS_CODE,
        libc::SIGILL => ILL_CODE,
        libc::SIGFPE => FPE_CODE,
        libc::SIGTRAP => TRAP_CODE,
        libc::SIGSYS => SYS_CODE,
        _ => &[],
    };
    let code_bits = u64::from(code.cast_unsigned());
    let own = words.iter().find(|(value, _)| *value == code_bits);
    match own.or_else(|| SI_CODE.iter().find(|(value, _)| *value == code_bits)) {
        Some((_, name)) => p.text(name),
        None => drop(write!(p.out, "{code:#x}")),
    }
    if errno != 0 {
        p.text(", si_errno=");
        match crate::syscalls::errno_name(errno) {
            Some(name) => p.text(name),
            None => p.signed(errno.into()),
        }
    }
    let sender = |p: &mut P<'_>| {
        let _ = write!(p.out, ", si_pid={}, si_uid={}", i32_in(info, 16), u32_in(info, 20));
    };
    match (code, signal) {
        (libc::SI_KERNEL, _) => {}
        (-2, _) => {
            p.text(", si_timerid=");
            p.hex(u32_in(info, 16).into());
            let _ = write!(p.out, ", si_overrun={}", i32_in(info, 20));
            value(p, info);
        }
        (-3 | libc::SI_QUEUE, _) => {
            sender(p);
            value(p, info);
        }
        (code, _) if code <= 0 => {
            sender(p);
            if u64_in(info, 24) != 0 && code != libc::SI_TKILL && code != libc::SI_USER {
                value(p, info);
            }
        }
        (_, libc::SIGCHLD) => {
            sender(p);
            p.text(", si_status=");
            match code {
                libc::CLD_EXITED => p.signed(i32_in(info, 24).into()),
                _ => signal_name(p, u32_in(info, 24)),
            }
            let (user, system) = (u64_in(info, 32), u64_in(info, 40));
            let _ = write!(p.out, ", si_utime={user}, si_stime={system}");
        }
        (_, libc::SIGILL | libc::SIGFPE | libc::SIGSEGV | libc::SIGBUS | libc::SIGTRAP) => {
            p.text(", si_addr=");
            p.address(u64_in(info, 16));
        }
        (_, libc::SIGSYS) => {
            p.text(", si_call_addr=");
            p.address(u64_in(info, 16));
            let name = super::super::syscall_name(i32_in(info, 24).into());
            let _ = match name {
                Some(name) => write!(p.out, ", si_syscall=__NR_{name}"),
                None => write!(p.out, ", si_syscall={}", i32_in(info, 24)),
            };
            p.text(", si_arch=");
            match u32_in(info, 28) {
                0xc000_003e => p.text("AUDIT_ARCH_X86_64"),
                0x4000_0003 => p.text("AUDIT_ARCH_I386"),
                0xc000_00b7 => p.text("AUDIT_ARCH_AARCH64"),
                other => drop(write!(p.out, "{other:#x}")),
            }
        }
        _ => sender(p),
    }
    p.text("}");
}

fn value(p: &mut P<'_>, info: &[u8]) {
    let (number, pointer) = (i32_in(info, 24), u64_in(info, 24));
    let _ = write!(p.out, ", si_int={number}, si_ptr=");
    p.address(pointer);
}

/// `stack_t`.
pub(super) fn alternate_stack(p: &mut P<'_>, address: u64) {
    let Some(bytes) = p.bytes(address, 24) else { return p.address(address) };
    p.text("{ss_sp=");
    p.address(u64_in(&bytes, 0));
    p.text(", ss_flags=");
    p.bits(super::words::STACK, u32_in(&bytes, 8).into(), "SS_???");
    let _ = write!(p.out, ", ss_size={}}}", u64_in(&bytes, 16));
}

/// `siginfo_t` in memory.
pub(super) fn info(p: &mut P<'_>, address: u64) {
    match p.bytes(address, 128) {
        Some(bytes) => info_text(p, &bytes),
        None => p.address(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_name_what_is_in_them_or_what_is_not() {
        assert_eq!(set_text(0), "[]");
        assert_eq!(set_text(1 << 16 | 1 << 1), "[INT CHLD]");
        assert_eq!(set_text(!0), "~[]");
        assert_eq!(set_text(!(1 << 31 | 1 << 32)), "~[RTMIN RT_1]");
    }
}
