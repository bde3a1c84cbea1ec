//! What is measured: functions of a program whose first instruction is of each kind
//! that the kernel treats in its own way.

use super::program::Site;

/// Name, and the function.
pub(super) const SITES: [(&str, Site); 13] = [
    ("uprobe on nop", Site::of(&[0x90], &[0xc3])),
    ("uprobe on push %rbp", Site::of(&[0x55], &[0x5d, 0xc3])),
    ("uprobe on endbr64", Site::of(&[0xf3, 0x0f, 0x1e, 0xfa], &[0xc3])),
    // Nothing lies below the stack pointer here, which the call would overwrite.
    ("uprobe on a nop of 5 bytes", Site::of(&[0x0f, 0x1f, 0x44, 0, 0], &[0xc3])),
    (
        "uprobe on a nop of 10 bytes",
        Site::of(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], &[0xc3]),
    ),
    ("uprobe on jmp", Site::of(&[0xeb, 0x00], &[0xc3])),
    ("uprobe on jne", Site::of(&[0x75, 0x00], &[0xc3])),
    ("uprobe on call", Site::of(&[0xe8, 1, 0, 0, 0], &[0xc3, 0xc3])),
    ("uprobe on mov %edi,%eax", STEPPED),
    ("uprobe on sub $8,%rsp", Site::of(&[0x48, 0x83, 0xec, 0x08], &[0x48, 0x83, 0xc4, 0x08, 0xc3])),
    ("uprobe on lea 0(%rip),%rax", Site::of(&[0x48, 0x8d, 0x05, 0, 0, 0, 0], &[0xc3])),
    ("uprobe on ret", Site::of(&[0xc3], &[])),
    ("uretprobe", Site::of(&[0x90], &[0xc3])),
];

/// A marker is a nop in a function that does nothing else.
pub(super) const MARKER: Site = Site::of(&[0x90], &[0xc3]);

/// Begins with an instruction that is single-stepped.
pub(super) const STEPPED: Site = Site::of(&[0x89, 0xf8], &[0xc3]);

/// What a function without a marker is.
pub(super) const EMPTY: Site = Site::of(&[], &[0xc3]);
