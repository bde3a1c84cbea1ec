//! Lines as the kernel's own `trace` file lays them out: who, where, when, and
//! the text of an event with its name.
//!
//! Most events print by their print format. Some have printers of their own in
//! the kernel, whose text is not what their format says: functions, stacks,
//! marks, system calls, probes.

use std::io::Write as _;

use kymo_model::Endian;

use crate::context::RenderContext;
use crate::field::{load, until_nul};
use crate::format::EventFormat;

/// Addresses from here on are the kernel's.
const KERNEL_HALF: u64 = 1 << 63;

/// What stands before an event's text.
#[derive(Clone, Copy, Debug)]
pub struct EntryHead<'a> {
    /// The task's name.
    pub comm: &'a [u8],
    /// Its thread id.
    pub tid: i32,
    /// Its process id, in a column of its own: `Some(0)` is not known.
    pub tgid: Option<u32>,
    /// The CPU.
    pub cpu: u32,
    /// The flag letters, if they are shown.
    pub flags: Option<&'a [u8]>,
    /// The time.
    pub time: u64,
    /// Whether the time counts nanoseconds; counters are shown as they are.
    pub nanoseconds: bool,
}

impl EntryHead<'_> {
    /// Appends `            bash-1234    [001] d..2. 13608.025024: `.
    pub fn write(&self, out: &mut Vec<u8>) {
        let _ = write!(out, "{:>1$}", "", 16usize.saturating_sub(self.comm.len()));
        out.extend_from_slice(self.comm);
        out.push(b'-');
        padded(out, i64::from(self.tid), 7);
        out.push(b' ');
        match self.tgid {
            None => {}
            Some(0) => out.extend_from_slice(b"(-------) "),
            Some(tgid) => drop(write!(out, "({tgid:>7}) ")),
        }
        let _ = write!(out, "[{:03}] ", self.cpu);
        out.extend_from_slice(self.flags.unwrap_or_default());
        if self.nanoseconds {
            // Rounded to microseconds, not cut.
            let micros = self.time.saturating_add(500) / 1000;
            let _ = write!(out, " {:5}.{:06}: ", micros / 1_000_000, micros % 1_000_000);
        } else {
            let _ = write!(out, " {:12}: ", self.time);
        }
    }
}

/// A number, filled up with blanks on the right.
fn padded(out: &mut Vec<u8>, n: i64, width: usize) {
    let start = out.len();
    let _ = write!(out, "{n}");
    while out.len() < start + width {
        out.push(b' ');
    }
}

/// The letters for a payload's `common_flags` and `common_preempt_count`:
/// interrupts off, need to reschedule, in an interrupt, preemption depth and,
/// since Linux 5.17, depth of disabled migration.
pub fn flag_letters(flags: u8, preempt: u8) -> [u8; 5] {
    let has = |bit: u8| flags & bit != 0;
    let irqs = match (has(0x01), has(0x80)) {
        (true, true) => b'D',
        (true, false) => b'd',
        (false, true) => b'b',
        (false, false) => b'.',
    };
    // Lazy rescheduling is of Linux 6.13; its bit said before that the machine
    // cannot tell, which none of today says.
    let resched = match (has(0x04), has(0x02), has(0x20)) {
        (true, true, true) => b'B',
        (true, false, true) => b'N',
        (false, true, true) => b'L',
        (true, true, false) => b'b',
        (true, false, false) => b'n',
        (false, false, true) => b'p',
        (false, true, false) => b'l',
        (false, false, false) => b'.',
    };
    let context = match (has(0x40), has(0x08), has(0x10)) {
        (true, true, _) => b'Z',
        (true, false, _) => b'z',
        (false, true, true) => b'H',
        (false, true, false) => b'h',
        (false, false, true) => b's',
        (false, false, false) => b'.',
    };
    let depth = |n: u8| match n {
        0 => b'.',
        n => *b"0123456789abcdef".get(usize::from(n & 15)).unwrap_or(&b'?'),
    };
    [irqs, resched, context, depth(preempt & 15), depth(preempt >> 4)]
}

/// How some texts changed over the kernels' versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryStyle {
    /// Arguments of system calls above 9 have `0x` before them (Linux 6.18).
    pub syscall_0x: bool,
}

impl EntryStyle {
    /// The style of a kernel, by the text of `/proc/sys/kernel/osrelease`.
    pub fn of_release(release: &str) -> EntryStyle {
        let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        EntryStyle { syscall_0x: version >= (6, 18) }
    }
}

impl EventFormat {
    /// Appends `name: text` and a line end, as the kernel's `trace` file has it
    /// behind the time. A stack takes several lines.
    pub fn write_entry(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        ctx: &RenderContext<'_>,
        style: EntryStyle,
    ) {
        match self.system.as_str() {
            "ftrace" if self.internal(out, payload, ctx) => return,
            "syscalls" if self.syscall(out, payload, ctx.endian, style) => return,
            _ => {}
        }
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(b": ");
        if !self.probe(out, payload, ctx) {
            self.render(out, payload, ctx);
        }
        out.push(b'\n');
    }

    fn number(&self, field: &str, payload: &[u8], endian: Endian) -> Option<u64> {
        self.field(field)?.int(payload, endian).map(|v| v as u64)
    }

    /// What the tracers and the ring itself write; false for those that print by
    /// their format.
    fn internal(&self, out: &mut Vec<u8>, payload: &[u8], ctx: &RenderContext<'_>) -> bool {
        let number = |field| self.number(field, payload, ctx.endian);
        match self.name.as_str() {
            "function" => {
                let (Some(ip), Some(parent)) = (number("ip"), number("parent_ip")) else {
                    return false;
                };
                symbol(out, ip, ctx);
                out.extend_from_slice(b" <-");
                symbol(out, parent, ctx);
                out.push(b'\n');
            }
            "print" | "bputs" => {
                let Some(ip) = number("ip") else { return false };
                symbol(out, ip, ctx);
                out.extend_from_slice(b": ");
                match self.field(if self.name == "print" { "buf" } else { "str" }) {
                    Some(f) if self.name == "print" => {
                        out.extend_from_slice(until_nul(f.bytes(payload, ctx.endian)));
                    }
                    Some(f) => {
                        let at = f.int(payload, ctx.endian).unwrap_or(0) as u64;
                        let text = ctx.symbols.printk_string(at);
                        out.extend_from_slice(text.unwrap_or("?").as_bytes());
                    }
                    None => return false,
                }
                // Whoever wrote the mark ended the line, or not: then the kernel
                // does not either, and the next line would stand behind it.
                if out.last() != Some(&b'\n') {
                    out.push(b'\n');
                }
            }
            "kernel_stack" => {
                out.extend_from_slice(b"<stack trace>\n");
                for address in self.callers(payload, ctx.endian) {
                    if address == u64::MAX {
                        break;
                    }
                    out.extend_from_slice(b" => ");
                    symbol(out, address, ctx);
                    out.push(b'\n');
                }
            }
            "user_stack" => {
                out.extend_from_slice(b"<user stack trace>\n");
                for address in self.callers(payload, ctx.endian).take_while(|a| *a != 0) {
                    let _ = writeln!(out, " =>  <{address:x}>");
                }
            }
            "raw_data" => {
                let Some(id) = number("id") else { return false };
                let _ = write!(out, "# {id:x} buf:");
                let bytes = self.field("buf").map(|f| f.bytes(payload, ctx.endian));
                for b in bytes.unwrap_or_default() {
                    let _ = write!(out, " {b:02x}");
                }
                out.push(b'\n');
            }
            _ => return false,
        }
        true
    }

    /// The addresses of a recorded stack: the field says 8, the payload has all.
    fn callers<'p>(&self, payload: &'p [u8], endian: Endian) -> impl Iterator<Item = u64> + 'p {
        let at = self.field("caller").map_or(payload.len(), |f| f.offset as usize);
        let bytes = payload.get(at..).unwrap_or_default();
        bytes.chunks_exact(8).filter_map(move |b| Some(endian.u64(*b.first_chunk()?)))
    }

    /// `sys_close(fd: 3)` and `sys_close -> 0x0`.
    fn syscall(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        endian: Endian,
        style: EntryStyle,
    ) -> bool {
        if let Some(name) = self.name.strip_prefix("sys_enter_") {
            let _ = write!(out, "sys_{name}(");
            let args = self.own_fields().filter(|f| f.name != "__syscall_nr");
            for (i, field) in args.enumerate() {
                let comma = if i > 0 { ", " } else { "" };
                let v = load(payload, field.offset, 8, false, endian).unwrap_or(0);
                let _ = match style.syscall_0x {
                    true if v >= 10 => write!(out, "{comma}{}: {v:#x}", field.name),
                    _ => write!(out, "{comma}{}: {v:x}", field.name),
                };
            }
            out.extend_from_slice(b")\n");
            return true;
        }
        let (Some(name), Some(ret)) =
            (self.name.strip_prefix("sys_exit_"), self.number("ret", payload, endian))
        else {
            return false;
        };
        let _ = writeln!(out, "sys_{name} -> {ret:#x}");
        true
    }

    /// Events of probes name the place in words: `(vfs_read+0x0/0x330)`.
    fn probe(&self, out: &mut Vec<u8>, payload: &[u8], ctx: &RenderContext<'_>) -> bool {
        let number = |field| self.number(field, payload, ctx.endian);
        let place = |out: &mut Vec<u8>, ip: u64, offset: bool| match ip >= KERNEL_HALF {
            true if offset => symbol_offset(out, ip, ctx),
            true => symbol(out, ip, ctx),
            false => drop(write!(out, "0x{ip:x}")),
        };
        let start = out.len();
        out.push(b'(');
        if let Some(ip) = number("__probe_ip") {
            place(out, ip, true);
        } else if let (Some(func), Some(ret)) = (number("__probe_func"), number("__probe_ret_ip")) {
            // Of a user's function the return address comes first, too.
            place(out, ret, true);
            out.extend_from_slice(b" <- ");
            place(out, func, false);
        } else {
            out.truncate(start);
            return false;
        }
        out.push(b')');
        let mut rest = Vec::new();
        self.render(&mut rest, payload, ctx);
        let end = memchr::memchr(b')', &rest).map_or(rest.len(), |at| at + 1);
        out.extend_from_slice(rest.get(end..).unwrap_or_default());
        true
    }
}

/// A kernel address by its symbol's name alone.
fn symbol(out: &mut Vec<u8>, address: u64, ctx: &RenderContext<'_>) {
    match ctx.symbols.kernel(address) {
        _ if address == 0 => out.push(b'0'),
        Some(s) => out.extend_from_slice(s.name.as_bytes()),
        None => drop(write!(out, "0x{address:x}")),
    }
}

/// `vfs_read+0x0/0x330 [module]`.
fn symbol_offset(out: &mut Vec<u8>, address: u64, ctx: &RenderContext<'_>) {
    let Some(s) = ctx.symbols.kernel(address) else { return symbol(out, address, ctx) };
    let _ = write!(out, "{}+{:#x}/{:#x}", s.name, s.offset, s.size);
    if let Some(module) = s.module {
        let _ = write!(out, " [{module}]");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_letters() {
        let text = |flags, preempt| String::from_utf8(flag_letters(flags, preempt).into()).unwrap();
        assert_eq!(text(0, 0), ".....");
        assert_eq!(text(0x01, 0x02), "d..2.");
        assert_eq!(text(0x01 | 0x20 | 0x04 | 0x08, 0x10), "dNh.1");
        assert_eq!(text(0x80 | 0x10, 0xff), "b.sff");
        assert_eq!(text(0x81 | 0x02 | 0x40, 0), "Dlz..");
        assert_eq!(text(0x26 | 0x18, 0), ".BH..");
    }

    #[test]
    fn a_head_is_laid_out_as_the_kernel_does() {
        let head = EntryHead {
            comm: b"ls",
            tid: 23255,
            tgid: None,
            cpu: 1,
            flags: Some(b"d..2."),
            time: 13_608_025_023_500,
            nanoseconds: true,
        };
        let text = |head: EntryHead<'_>| {
            let mut out = Vec::new();
            head.write(&mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(head), "              ls-23255   [001] d..2. 13608.025024: ");
        let tgid = EntryHead { tgid: Some(7), flags: None, ..head };
        assert_eq!(text(tgid), "              ls-23255   (      7) [001]  13608.025024: ");
        let counter = EntryHead { nanoseconds: false, time: 42, tgid: Some(0), ..head };
        assert_eq!(text(counter), "              ls-23255   (-------) [001] d..2.           42: ");
    }

    #[test]
    fn the_release_says_how_arguments_look() {
        assert!(EntryStyle::of_release("6.18.44").syscall_0x);
        assert!(EntryStyle::of_release("7.0-rc1").syscall_0x);
        assert!(!EntryStyle::of_release("6.1.0-43-cloud-amd64").syscall_0x);
        assert!(!EntryStyle::of_release("").syscall_0x);
    }
}
