//! Instructions on virtual registers, and what becomes of them: registers, encoding, text.

mod allocate;
mod btf;
mod disassemble;
mod encode;
mod liveness;

pub(crate) use btf::BtfWriter;
pub use disassemble::disassemble;
pub(crate) use encode::{EncodedProgram, encode_program};

use crate::object::ProgramPosition;

/// A virtual register.
pub(crate) type Register = u32;
/// A label: where a jump goes.
pub(crate) type CodeLabel = u32;

/// A register or an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    Immediate(i32),
}

/// Base of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressBase {
    Register(Register),
    /// The frame pointer; offsets are negative.
    Frame,
}

/// Operation of an ALU instruction, by its bits in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ComputeOperation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    Divide = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Modulo = 0x90,
    Xor = 0xa0,
    ShiftRightSigned = 0xc0,
}

/// Comparison of a branch, by its bits in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CompareOperation {
    Equal = 0x10,
    Greater = 0x20,
    GreaterEqual = 0x30,
    NotEqual = 0x50,
    SignedGreater = 0x60,
    SignedGreaterEqual = 0x70,
    Less = 0xa0,
    LessEqual = 0xb0,
    SignedLess = 0xc0,
    SignedLessEqual = 0xd0,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Instruction {
    /// Argument of the function (`r1` is 0).
    Parameter(Register, u8),
    Move(Register, Operand),
    LoadImmediate(Register, u64),
    LoadMap(Register, u32),
    LoadFunction(Register, u32),
    FrameAddress(Register, i32),
    Compute(ComputeOperation, Register, Operand),
    Negate(Register),
    /// Exchanges the bytes of the lower bits (16, 32, 64); upper ones become 0.
    SwapBytes(Register, i32),
    /// Destination, base, offset, bytes.
    Load(Register, AddressBase, i32, u8),
    /// Base, offset, bytes, value.
    Store(AddressBase, i32, u8, Operand),
    /// Base, offset, number: the index of a scratch entry, 32 bits, counted from the program's first
    /// one, which is known when all programs are encoded.
    StoreSlot(AddressBase, i32, i32),
    /// Base, offset, value: 64 bits.
    AtomicAdd(AddressBase, i32, Register),
    /// Base, offset, register that is exchanged: 64 bits.
    Exchange(AddressBase, i32, Register),
    /// Helper, arguments, result.
    Call(i32, Vec<Operand>, Option<Register>),
    Label(CodeLabel),
    Jump(CodeLabel),
    Branch(CompareOperation, Register, Operand, CodeLabel),
    /// Ends a loop that ran too often (kernel 6.9).
    MayGoto(CodeLabel),
    Exit(Operand),
    /// Position of the instructions that follow.
    Position(ProgramPosition),
}

/// A function: the program's own, or a callback.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeFunction {
    pub(crate) code: Vec<Instruction>,
    /// Registers in use, numbered from 0.
    pub(crate) registers: u32,
    /// Bytes of the frame that the code uses itself.
    pub(crate) frame: u32,
}

impl Instruction {
    /// Calls with each register that is read.
    pub(crate) fn for_uses(&self, mut visit: impl FnMut(Register)) {
        use Instruction as I;
        let mut base = |b: &AddressBase| {
            if let AddressBase::Register(r) = b {
                visit(*r);
            }
        };
        match self {
            I::Load(_, b, ..) | I::Store(b, ..) | I::StoreSlot(b, ..) => base(b),
            I::AtomicAdd(b, ..) | I::Exchange(b, ..) => base(b),
            _ => {}
        }
        let mut operand = |o: &Operand| {
            if let Operand::Register(r) = o {
                visit(*r);
            }
        };
        match self {
            I::Move(_, o) | I::Store(.., o) | I::Exit(o) => operand(o),
            I::Compute(_, d, o) | I::Branch(_, d, o, _) => {
                operand(o);
                visit(*d);
            }
            I::Negate(d) | I::SwapBytes(d, _) | I::AtomicAdd(.., d) | I::Exchange(.., d) => {
                visit(*d)
            }
            I::Call(_, arguments, _) => arguments.iter().for_each(operand),
            _ => {}
        }
    }

    /// The register that is written.
    pub(crate) fn defined(&self) -> Option<Register> {
        use Instruction as I;
        match self {
            I::Parameter(d, _) | I::Move(d, _) | I::LoadImmediate(d, _) | I::LoadMap(d, _) => {
                Some(*d)
            }
            I::LoadFunction(d, _) | I::FrameAddress(d, _) | I::Compute(_, d, _) => Some(*d),
            I::Negate(d) | I::SwapBytes(d, _) | I::Load(d, ..) => Some(*d),
            I::Exchange(.., d) => Some(*d),
            I::Call(_, _, result) => *result,
            _ => None,
        }
    }

    /// Whether nothing but the register written depends on it.
    pub(crate) fn is_pure(&self) -> bool {
        self.defined().is_some()
            && !matches!(self, Instruction::Call(..) | Instruction::Exchange(..))
    }

    /// Whether code after it is not run next.
    fn ends_flow(&self) -> bool {
        matches!(self, Instruction::Jump(_) | Instruction::Exit(_))
    }

    fn jump_target(&self) -> Option<CodeLabel> {
        match self {
            Instruction::Jump(l) | Instruction::MayGoto(l) | Instruction::Branch(.., l) => Some(*l),
            _ => None,
        }
    }
}
