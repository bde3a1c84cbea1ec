//! Numbers of registers: DWARF's, which are used throughout, and those of the
//! kernel's `perf_regs.h`, in which samples state them.

/// The machine a program was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// DWARF's order of x86-64's registers, in the kernel's numbers; the last one is
/// the instruction pointer, which is also the column of the return address.
const X86_64: [u32; 17] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8];

impl Arch {
    /// By the name that uname(2) gives it.
    pub fn of_machine(name: &str) -> Option<Arch> {
        match name {
            "x86_64" => Some(Arch::X86_64),
            "aarch64" => Some(Arch::Aarch64),
            _ => None,
        }
    }

    /// Number of registers in use; the last one is the instruction pointer.
    pub(crate) const fn count(self) -> u16 {
        match self {
            Arch::X86_64 => 17,
            Arch::Aarch64 => 33,
        }
    }

    /// The instruction pointer. 64-bit Arm has no number for it in DWARF.
    pub(crate) const fn ip(self) -> u16 {
        self.count() - 1
    }

    /// The stack pointer.
    pub(crate) const fn sp(self) -> u16 {
        match self {
            Arch::X86_64 => 7,
            Arch::Aarch64 => 31,
        }
    }

    /// The frame pointer.
    pub(crate) const fn fp(self) -> u16 {
        match self {
            Arch::X86_64 => 6,
            Arch::Aarch64 => 29,
        }
    }

    /// The kernel's number of a register.
    pub(crate) fn sampled(self, register: u16) -> Option<u32> {
        match self {
            Arch::X86_64 => X86_64.get(usize::from(register)).copied(),
            Arch::Aarch64 => (register < self.count()).then_some(u32::from(register)),
        }
    }

    /// An address in a register or in memory without what is signed into it.
    pub(crate) const fn strip(self, address: u64) -> u64 {
        match self {
            Arch::X86_64 => address,
            Arch::Aarch64 => address & 0xffff_ffff_ffff,
        }
    }
}
