//! Names of the registers that samples carry, by the numbers of the kernel's
//! `asm/perf_regs.h`, spelled as perf spells them.

use std::borrow::Cow;

/// An architecture whose registers have names here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterNames {
    /// x86, 32 and 64 bit.
    X86,
    /// AArch64.
    Arm64,
}

const X86: [&str; 24] = [
    "AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS", "DS", "ES", "FS",
    "GS", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
];

impl RegisterNames {
    /// Registers of the machine that this was built for.
    pub const NATIVE: RegisterNames =
        if cfg!(target_arch = "aarch64") { RegisterNames::Arm64 } else { RegisterNames::X86 };

    /// Registers of a recording, by the name that `uname -m` has for its machine.
    pub fn of_machine(machine: Option<&str>) -> RegisterNames {
        match machine {
            Some("aarch64") => RegisterNames::Arm64,
            _ => RegisterNames::X86,
        }
    }

    /// Name of a register.
    pub fn name(self, number: u32) -> Cow<'static, str> {
        match (self, number) {
            (RegisterNames::Arm64, 0..=29) => format!("x{number}").into(),
            (RegisterNames::Arm64, 30) => "lr".into(),
            (RegisterNames::Arm64, 31) => "sp".into(),
            (RegisterNames::Arm64, 32) => "pc".into(),
            (RegisterNames::Arm64, _) => "unknown".into(),
            (RegisterNames::X86, 32..) => format!("XMM{}", (number - 32) / 2).into(),
            (RegisterNames::X86, _) => X86.get(number as usize).map_or("unknown", |n| n).into(),
        }
    }

    /// Mask of the general registers that the kernel samples; on x86 those of the segments DS, ES,
    /// FS and GS cannot be.
    pub const fn general(self) -> u64 {
        match self {
            RegisterNames::X86 => 0x00ff_0fff,
            RegisterNames::Arm64 => (1 << 33) - 1,
        }
    }

    /// Mask of registers that are named, in any case.
    ///
    /// # Errors
    /// Gives the first name that is none.
    pub fn mask<'a>(self, names: &[&'a str]) -> Result<u64, &'a str> {
        let general = (0..64).filter(|n| self.general() & (1 << n) != 0);
        let known: Vec<(u32, Cow<'static, str>)> = general.map(|n| (n, self.name(n))).collect();
        names.iter().try_fold(0, |mask, name| {
            let found = known.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
            found.map(|(number, _)| mask | (1 << number)).ok_or(*name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_masks_fit() {
        let x86 = RegisterNames::X86;
        assert_eq!(x86.mask(&["ax", "IP", "r15"]), Ok(1 | 1 << 8 | 1 << 23));
        assert_eq!(x86.mask(&["AX", "DS"]), Err("DS"));
        assert_eq!(RegisterNames::Arm64.mask(&["x0", "lr", "pc"]), Ok(1 | 1 << 30 | 1 << 32));
    }
}
