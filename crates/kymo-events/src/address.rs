//! Addresses by the space that they are of. A sample has addresses of the running
//! process ([`CodeAddress`] once it is known which instruction is meant); a binary is
//! asked about addresses of its own ([`BinaryAddress`]), which [`crate::state::Mapping`]
//! makes of them. What an ELF file states as virtual address is known to kymo-symbols and
//! kymo-debuginfo alone.

/// Address of an instruction that is executed, in the running process or kernel.
///
/// Recorded callers are return addresses, which lie behind the call and may be of
/// another line or function: the minus one that leads into the call is here and nowhere
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeAddress(u64);

impl CodeAddress {
    /// Address of the interrupted instruction, or one that was unwound to an instruction.
    #[inline]
    pub fn exact(ip: u64) -> CodeAddress {
        CodeAddress(ip)
    }

    /// The call that returns to this address.
    #[inline]
    pub fn of_return(ip: u64) -> CodeAddress {
        CodeAddress(ip.wrapping_sub(1))
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Address that a binary is asked about: the offset in its file; of the kernel and of JIT
/// code, the address where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BinaryAddress(u64);

impl BinaryAddress {
    /// An address that is known to be of a binary.
    #[inline]
    pub fn new(addr: u64) -> BinaryAddress {
        BinaryAddress(addr)
    }

    /// The address that a call here returns to.
    #[inline]
    pub fn return_address(self) -> BinaryAddress {
        BinaryAddress(self.0.saturating_add(1))
    }

    /// The number.
    #[inline]
    pub fn get(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_before_where_it_returns_to() {
        assert_eq!(CodeAddress::of_return(0x1005).get(), 0x1004);
        assert_eq!(BinaryAddress::new(0x1004).return_address().get(), 0x1005);
        assert_eq!(CodeAddress::exact(0x1005).get(), 0x1005);
    }
}
