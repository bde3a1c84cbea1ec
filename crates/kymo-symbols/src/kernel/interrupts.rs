//! Entry points of interrupts and exceptions in the kernel, by the names of its entry code. Code
//! below such a frame in a call chain was interrupted: its address is that of the next instruction,
//! not one after a call.

use crate::Kallsyms;

/// Entries of x86-64 since Linux 5.8; there is an `asm_` before each C function.
const PREFIXES: [&str; 5] =
    ["asm_sysvec_", "asm_exc_", "asm_common_interrupt", "asm_spurious_interrupt", "asm_fred_"];
/// Others of today, by their whole names: of system calls by `int 0x80`, and of arm64.
const NAMES: [&str; 12] = [
    "asm_int80_emulation",
    "el1_irq",
    "el1_fiq",
    "el1_sync",
    "el1_error",
    "el1h_64_irq",
    "el1h_64_fiq",
    "el1h_64_sync",
    "el1h_64_error",
    "el1t_64_irq",
    "el1t_64_sync",
    "el1t_64_error",
];
/// x86-64 before Linux 5.8. Some of these are C functions today.
const OLD: [&str; 24] = [
    "alignment_check",
    "apic_timer_interrupt",
    "async_page_fault",
    "call_function_interrupt",
    "call_function_single_interrupt",
    "common_interrupt",
    "debug",
    "device_not_available",
    "divide_error",
    "double_fault",
    "error_interrupt",
    "general_protection",
    "int3",
    "invalid_op",
    "irq_work_interrupt",
    "nmi",
    "page_fault",
    "reschedule_interrupt",
    "ret_from_intr",
    "simd_coprocessor_error",
    "spurious_interrupt",
    "stack_segment",
    "thermal_interrupt",
    "x86_platform_ipi",
];

fn is_one(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|n| n.as_bytes() == name)
}

/// Spans of entry code, by address.
#[derive(Debug, Default)]
pub(super) struct Interrupts(Vec<(u64, u64)>);

impl Interrupts {
    pub(super) fn of(table: &Kallsyms) -> Interrupts {
        let (mut today, mut old) = (Vec::new(), Vec::new());
        for (start, end, name) in table.own() {
            if PREFIXES.iter().any(|p| name.starts_with(p.as_bytes())) || is_one(&NAMES, name) {
                today.push((start, end));
            } else if is_one(&OLD, name) {
                old.push((start, end));
            }
        }
        Interrupts(if today.is_empty() { old } else { today })
    }

    pub(super) fn cover(&self, addr: u64) -> bool {
        let after = self.0.partition_point(|(start, _)| *start <= addr);
        let before = after.checked_sub(1).and_then(|n| self.0.get(n));
        before.is_some_and(|(_, end)| addr < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(text: &str) -> Vec<u64> {
        let found = Interrupts::of(&Kallsyms::parse(text.as_bytes().to_vec()));
        (0xf0..0x1100).step_by(0x10).filter(|a| found.cover(*a)).collect()
    }

    #[test]
    fn names_of_today_are_no_names_of_yesterday() {
        let today = "0000000000000100 T asm_sysvec_reboot\n0000000000000120 T asm_load_gs_index\n\
                     0000000000000130 T asm_exc_nmi\n0000000000000140 T common_interrupt\n\
                     0000000000001000 T asm_exc_of_a_module [mod]\n";
        assert_eq!(covered(today), [0x100, 0x110, 0x130]);
        let old = "0000000000000100 T page_fault\n0000000000000120 T do_page_fault\n\
                   0000000000000130 T common_interrupt\n0000000000000140 T vfs_read\n";
        assert_eq!(covered(old), [0x100, 0x110, 0x130]);
        assert_eq!(covered(""), [0; 0]);
    }
}
