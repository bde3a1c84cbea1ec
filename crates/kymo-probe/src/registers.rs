//! Registers by their DWARF numbers, in the kernel's names for fetch arguments.

use object::Architecture;

/// x86-64: the psABI's numbering.
const X86_64: [&str; 16] = [
    "%ax", "%dx", "%cx", "%bx", "%si", "%di", "%bp", "%sp", "%r8", "%r9", "%r10", "%r11", "%r12",
    "%r13", "%r14", "%r15",
];

/// The register's name with its `%`; `None` if a probe cannot read it.
pub(crate) fn kernel_name(architecture: Architecture, number: u16) -> Option<String> {
    match architecture {
        Architecture::X86_64 => X86_64.get(usize::from(number)).map(|r| (*r).to_owned()),
        Architecture::Aarch64 if number < 31 => Some(format!("%x{number}")),
        Architecture::Aarch64 if number == 31 => Some("%sp".to_owned()),
        _ => None,
    }
}

/// Manual's name of a register that the kernel does not name.
pub(crate) fn name(architecture: Architecture, number: u16) -> String {
    match (architecture, number) {
        (Architecture::X86_64, 17..=32) => format!("xmm{}", number - 17),
        (Architecture::X86_64, 33..=40) => format!("st{}", number - 33),
        (Architecture::Aarch64, 64..=95) => format!("v{}", number - 64),
        _ => format!("register {number}"),
    }
}
