//! Instructions as text, in the way the verifier writes them.

use std::fmt::Write;

use crate::object::{BpfInstruction, CompiledProbe, CompiledProgram};

/// Text of a program's instructions, with its source lines where they begin.
pub fn disassemble(program: &CompiledProgram, probe: &CompiledProbe, source: &str) -> String {
    let mut out = String::new();
    let mut lines = probe.lines.iter().peekable();
    let mut shown = 0;
    let mut at = 0;
    while let Some(instruction) = probe.instructions.get(at) {
        while let Some((_, position)) = lines.next_if(|(first, _)| *first as usize <= at) {
            let line = source.lines().nth(position.line.wrapping_sub(1) as usize);
            if let Some(line) = line.filter(|_| position.line != shown) {
                shown = position.line;
                let _ = writeln!(out, "; {}", line.trim());
            }
        }
        let wide = instruction.code == 0x18;
        let map = probe.relocations.iter().find(|r| r.instruction as usize == at);
        let text = match map.and_then(|r| program.maps.get(r.map as usize)) {
            Some(map) => format!("r{} = map {}", instruction.dst, map.name),
            None if wide => {
                let high = probe.instructions.get(at + 1).map_or(0, |i| i.imm);
                let value = u64::from(instruction.imm as u32) | u64::from(high as u32) << 32;
                match instruction.src {
                    4 => format!(
                        "r{} = function {}",
                        instruction.dst,
                        at as i64 + 1 + i64::from(instruction.imm)
                    ),
                    _ => format!("r{} = {value:#x} ll", instruction.dst),
                }
            }
            None => instruction_text(*instruction, at),
        };
        let _ = writeln!(out, "{at:5}: {text}");
        at += if wide { 2 } else { 1 };
    }
    out
}

fn operator(code: u8) -> &'static str {
    match code & 0xf0 {
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        0x30 => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        0x90 => "%=",
        0xa0 => "^=",
        0xb0 => "=",
        0xc0 => "s>>=",
        _ => "?=",
    }
}

fn comparison(code: u8) -> &'static str {
    match code & 0xf0 {
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0x60 => "s>",
        0x70 => "s>=",
        0xa0 => "<",
        0xb0 => "<=",
        0xc0 => "s<",
        0xd0 => "s<=",
        _ => "?",
    }
}

fn size_name(code: u8) -> &'static str {
    match code & 0x18 {
        0x10 => "u8",
        0x08 => "u16",
        0x00 => "u32",
        _ => "u64",
    }
}

fn instruction_text(i: BpfInstruction, at: usize) -> String {
    let (dst, src, off, imm) = (i.dst, i.src, i.off, i.imm);
    let from_register = i.code & 0x08 != 0;
    let target = at as i64 + 1 + i64::from(off);
    match i.code & 7 {
        0x07 | 0x04 => {
            let letter = if i.code & 7 == 7 { 'r' } else { 'w' };
            match i.code & 0xf0 {
                0x80 => format!("{letter}{dst} = -{letter}{dst}"),
                0xd0 => format!("r{dst} = bswap{imm} r{dst}"),
                _ if from_register => {
                    format!("{letter}{dst} {} {letter}{src}", operator(i.code))
                }
                _ => format!("{letter}{dst} {} {imm}", operator(i.code)),
            }
        }
        0x05 | 0x06 => match i.code {
            0x05 => format!("goto {target}"),
            0xe5 => format!("may_goto {target}"),
            0x85 => format!("call {}", helper_name(imm)),
            0x95 => "exit".into(),
            _ if from_register => {
                format!("if r{dst} {} r{src} goto {target}", comparison(i.code))
            }
            _ => format!("if r{dst} {} {imm} goto {target}", comparison(i.code)),
        },
        0x01 => format!("r{dst} = *({} *)(r{src} {off:+})", size_name(i.code)),
        0x02 => format!("*({} *)(r{dst} {off:+}) = {imm}", size_name(i.code)),
        0x03 if i.code & 0xe0 == 0xc0 => match imm {
            0xe1 => format!("r{src} = xchg(r{dst} {off:+}, r{src})"),
            _ => format!("lock *(u64 *)(r{dst} {off:+}) += r{src}"),
        },
        0x03 => format!("*({} *)(r{dst} {off:+}) = r{src}", size_name(i.code)),
        _ => format!("code {:#04x}", i.code),
    }
}

/// Name of a helper, or its number.
fn helper_name(number: i32) -> String {
    let name = match number {
        1 => "map_lookup_elem",
        2 => "map_update_elem",
        3 => "map_delete_elem",
        5 => "ktime_get_ns",
        7 => "get_prandom_u32",
        8 => "get_smp_processor_id",
        14 => "get_current_pid_tgid",
        120 => "get_ns_current_pid_tgid",
        15 => "get_current_uid_gid",
        16 => "get_current_comm",
        27 => "get_stackid",
        35 => "get_current_task",
        42 => "get_numa_node_id",
        45 => "probe_read_str",
        46 => "get_socket_cookie",
        58 => "override_return",
        80 => "get_current_cgroup_id",
        109 => "send_signal",
        111 => "skb_output",
        112 => "probe_read_user",
        113 => "probe_read_kernel",
        114 => "probe_read_user_str",
        115 => "probe_read_kernel_str",
        117 => "send_signal_thread",
        118 => "jiffies64",
        125 => "ktime_get_boot_ns",
        130 => "ringbuf_output",
        147 => "d_path",
        153 => "this_cpu_ptr",
        164 => "for_each_map_elem",
        173 => "get_func_ip",
        195 => "map_lookup_percpu_elem",
        208 => "ktime_get_tai_ns",
        _ => return format!("helper {number}"),
    };
    name.to_owned()
}
