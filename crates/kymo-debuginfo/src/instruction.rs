//! The instruction that a probe is put on: whether one begins there at all, what
//! a hit costs there, and whether the kernel's way of arming it is safe.
//! x86-64; other machines are not judged.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

/// Instruction boundaries at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// An instruction begins there.
    Instruction {
        /// Its bytes.
        len: usize,
        /// Cost of a hit.
        cost: Cost,
    },
    /// It is inside of an instruction.
    Inside {
        /// Start of that instruction.
        begins: u64,
        /// Start of the next one.
        next: u64,
    },
    /// The bytes before it are no code that can be decoded.
    Unknown,
}

/// Way in which the kernel executes the instruction under a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The kernel does what the instruction does by itself: about a microsecond.
    Emulated,
    /// The instruction is run alone in another place, with a trap behind it: some
    /// fifteen times as much.
    Stepped,
    /// A nop of five bytes, which newer kernels turn into a call: cheap, but the
    /// call writes below the stack pointer, where a function without calls of its
    /// own may keep data.
    Nop5,
    /// A nop of ten bytes, on which newer kernels accept probes that never fire.
    Nop10,
}

/// A function longer than this is not decoded to its end.
const LONGEST: usize = 1 << 20;

/// Decodes `code`, which begins at the address `start` of a function, up to
/// `addr`.
pub fn at(code: &[u8], start: u64, addr: u64) -> At {
    let Some(distance) = addr.checked_sub(start).and_then(|d| usize::try_from(d).ok()) else {
        return At::Unknown;
    };
    if distance >= code.len() || distance > LONGEST {
        return At::Unknown;
    }
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return At::Unknown;
        }
        if instruction.ip() == addr {
            return At::Instruction { len: instruction.len(), cost: cost(&instruction) };
        }
        if instruction.next_ip() > addr {
            return At::Inside { begins: instruction.ip(), next: instruction.next_ip() };
        }
    }
    At::Unknown
}

/// The kernel emulates nops, relative jumps and calls, and pushes of registers.
fn cost(i: &Instruction) -> Cost {
    let relative =
        matches!(i.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
    match i.mnemonic() {
        Mnemonic::Nop if i.len() == 5 => Cost::Nop5,
        Mnemonic::Nop if i.len() == 10 => Cost::Nop10,
        Mnemonic::Nop => Cost::Emulated,
        Mnemonic::Push if matches!(i.code(), Code::Push_r64 | Code::Push_r16) => Cost::Emulated,
        Mnemonic::Call | Mnemonic::Jmp if relative => Cost::Emulated,
        _ if i.is_jcc_short_or_near() => Cost::Emulated,
        _ => Cost::Stepped,
    }
}

/// Whether `code` from `start` on calls anything: a function that does keeps no
/// data below its stack pointer across the call.
pub fn makes_calls(code: &[u8], start: u64) -> bool {
    let code = code.get(..code.len().min(LONGEST)).unwrap_or(code);
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    decoder.into_iter().take_while(|i| !i.is_invalid()).any(|i| i.mnemonic() == Mnemonic::Call)
}

/// Addresses of the return instructions of a function whose `code` begins at `start`; none if it
/// cannot be decoded.
pub fn returns(code: &[u8], start: u64) -> Vec<u64> {
    let code = code.get(..code.len().min(LONGEST)).unwrap_or(code);
    let mut found = Vec::new();
    for i in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        if i.is_invalid() {
            return Vec::new();
        }
        if i.mnemonic() == Mnemonic::Ret {
            found.push(i.ip());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_and_costs() {
        // push rbp; mov rbp, rsp; nop5; lea rax, [rip+0]; jmp +0; nop10; ret
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x48, 0x8d, 0x05, 0, 0, 0, 0,
            0xeb, 0x00, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3,
        ];
        let base = 0x1000;
        let check = |offset: u64, expected: At| {
            assert_eq!(at(&code, base, base + offset), expected, "{offset}")
        };
        check(0, At::Instruction { len: 1, cost: Cost::Emulated });
        check(1, At::Instruction { len: 3, cost: Cost::Stepped });
        check(2, At::Inside { begins: 0x1001, next: 0x1004 });
        check(4, At::Instruction { len: 5, cost: Cost::Nop5 });
        check(9, At::Instruction { len: 7, cost: Cost::Stepped });
        check(16, At::Instruction { len: 2, cost: Cost::Emulated });
        check(18, At::Instruction { len: 10, cost: Cost::Nop10 });
        check(28, At::Instruction { len: 1, cost: Cost::Stepped });
        check(29, At::Unknown);
        assert_eq!(at(&code, base, 0), At::Unknown);
        assert_eq!(returns(&code, base), [base + 28]);
        assert!(!makes_calls(&code, base));
        assert!(makes_calls(&[0x90, 0xe8, 0, 0, 0, 0, 0xc3], base));
    }
}
