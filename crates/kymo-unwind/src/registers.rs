//! The registers of a frame, as far as they are known.

use crate::Arch;

const MOST: usize = 33;

/// Values by DWARF's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    arch: Arch,
    values: [u64; MOST],
    known: u64,
}

impl Registers {
    /// None is known.
    pub fn new(arch: Arch) -> Registers {
        Registers { arch, values: [0; MOST], known: 0 }
    }

    /// The registers of a sample; `None` when it has none of a 64-bit program.
    pub fn sampled(arch: Arch, sample: &kymo_model::SampledRegisters<'_>) -> Option<Registers> {
        const ABI_64: u64 = 2;
        if sample.abi != ABI_64 {
            return None;
        }
        let mut registers = Registers::new(arch);
        for n in 0..arch.count() {
            if let Some(value) = arch.sampled(n).and_then(|n| sample.get(n)) {
                registers.set(n, value);
            }
        }
        Some(registers)
    }

    /// The machine.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The value of a register.
    pub fn get(&self, register: u16) -> Option<u64> {
        match self.known >> u32::from(register).min(63) & 1 {
            1 => self.values.get(usize::from(register)).copied(),
            _ => None,
        }
    }

    /// Enters a value; registers that do not exist are passed over.
    pub fn set(&mut self, register: u16, value: u64) {
        if register < self.arch.count()
            && let Some(slot) = self.values.get_mut(usize::from(register))
        {
            *slot = value;
            self.known |= 1 << register;
        }
    }

    /// The value is not known any more.
    pub fn forget(&mut self, register: u16) {
        self.known &= !(1 << u32::from(register).min(63));
    }

    /// The instruction pointer.
    pub fn ip(&self) -> Option<u64> {
        self.get(self.arch.ip())
    }

    /// The stack pointer.
    pub fn sp(&self) -> Option<u64> {
        self.get(self.arch.sp())
    }

    /// The frame pointer.
    pub fn fp(&self) -> Option<u64> {
        self.get(self.arch.fp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_not_known() {
        let mut r = Registers::new(Arch::X86_64);
        r.set(7, 5);
        r.set(16, 6);
        r.set(17, 7);
        r.set(u16::MAX, 7);
        assert_eq!((r.sp(), r.ip(), r.fp(), r.get(17)), (Some(5), Some(6), None, None));
        r.forget(7);
        r.forget(u16::MAX);
        assert_eq!((r.sp(), r.ip(), r.get(u16::MAX)), (None, Some(6), None));
    }
}
