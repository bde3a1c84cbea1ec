//! Rows of the bench: functions of a program whose first instruction is of each kind that the
//! kernel handles differently.

use super::program::ProbedFunction;

/// Name, and the function.
pub(super) const FUNCTIONS: [(&str, ProbedFunction); 13] = [
    ("uprobe on nop", ProbedFunction::new(&[0x90], &[0xc3])),
    ("uprobe on push %rbp", ProbedFunction::new(&[0x55], &[0x5d, 0xc3])),
    ("uprobe on endbr64", ProbedFunction::new(&[0xf3, 0x0f, 0x1e, 0xfa], &[0xc3])),
    // Nothing lies below the stack pointer here, which the call would overwrite.
    ("uprobe on a nop of 5 bytes", ProbedFunction::new(&[0x0f, 0x1f, 0x44, 0, 0], &[0xc3])),
    (
        "uprobe on a nop of 10 bytes",
        ProbedFunction::new(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], &[0xc3]),
    ),
    ("uprobe on jmp", ProbedFunction::new(&[0xeb, 0x00], &[0xc3])),
    ("uprobe on jne", ProbedFunction::new(&[0x75, 0x00], &[0xc3])),
    ("uprobe on call", ProbedFunction::new(&[0xe8, 1, 0, 0, 0], &[0xc3, 0xc3])),
    ("uprobe on mov %edi,%eax", STEPPED),
    (
        "uprobe on sub $8,%rsp",
        ProbedFunction::new(&[0x48, 0x83, 0xec, 0x08], &[0x48, 0x83, 0xc4, 0x08, 0xc3]),
    ),
    ("uprobe on lea 0(%rip),%rax", ProbedFunction::new(&[0x48, 0x8d, 0x05, 0, 0, 0, 0], &[0xc3])),
    ("uprobe on ret", ProbedFunction::new(&[0xc3], &[])),
    ("uretprobe", ProbedFunction::new(&[0x90], &[0xc3])),
];

/// A USDT probe: a nop in a function that does nothing else.
pub(super) const USDT: ProbedFunction = ProbedFunction::new(&[0x90], &[0xc3]);

/// Begins with an instruction that is single-stepped.
pub(super) const STEPPED: ProbedFunction = ProbedFunction::new(&[0x89, 0xf8], &[0xc3]);

/// A function without a USDT probe.
pub(super) const EMPTY: ProbedFunction = ProbedFunction::new(&[], &[0xc3]);
