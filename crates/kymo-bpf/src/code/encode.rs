//! Instructions on virtual registers to the kernel's.

use std::collections::HashMap;

use super::allocate::{Allocation, RegisterHome, SPILL_REGISTERS, allocate};
use super::liveness::clean;
use super::{AddressBase, CodeFunction, CodeLabel, Instruction, Operand, Register};
use crate::object::{BpfInstruction, ObjectRelocation, ProgramPosition};

/// The kernel's limit of a frame.
const MAX_FRAME: u32 = 512;
/// The most instructions of one program; jumps have 16 bits.
const MAX_INSTRUCTIONS: usize = 60_000;
/// `r10`.
const FRAME_POINTER: u8 = 10;

/// A program of one or several functions.
#[derive(Debug, Default)]
pub(crate) struct EncodedProgram {
    pub(crate) instructions: Vec<BpfInstruction>,
    pub(crate) relocations: Vec<ObjectRelocation>,
    /// First instruction of each function.
    pub(crate) functions: Vec<u32>,
    pub(crate) lines: Vec<(u32, ProgramPosition)>,
    pub(crate) stack: u32,
    /// Instructions whose immediate counts from the program's first scratch entry.
    pub(crate) slot_stores: Vec<usize>,
    function_loads: Vec<(usize, u32)>,
}

/// Allocates registers and encodes all functions, the main one first.
pub(crate) fn encode_program(functions: &mut [CodeFunction]) -> Result<EncodedProgram, String> {
    let mut program = EncodedProgram::default();
    for function in functions {
        clean(function)?;
        let allocation = allocate(function)?;
        if allocation.frame > MAX_FRAME {
            let bytes = allocation.frame;
            return Err(format!("needs {bytes} bytes of stack; the kernel's limit is {MAX_FRAME}"));
        }
        program.stack = program.stack.max(allocation.frame);
        program.functions.push(program.instructions.len() as u32);
        let encoder = FunctionEncoder {
            program: &mut program,
            allocation,
            labels: HashMap::new(),
            jumps: Vec::new(),
        };
        encoder.run(function)?;
    }
    for (at, function) in std::mem::take(&mut program.function_loads) {
        let target = program.functions.get(function as usize).copied().unwrap_or(0);
        program.instructions[at].imm = target as i32 - at as i32 - 1;
    }
    Ok(program)
}

struct FunctionEncoder<'p> {
    program: &'p mut EncodedProgram,
    allocation: Allocation,
    labels: HashMap<CodeLabel, usize>,
    jumps: Vec<(usize, CodeLabel)>,
}

impl FunctionEncoder<'_> {
    fn run(mut self, function: &CodeFunction) -> Result<(), String> {
        for instruction in &function.code {
            self.encode(instruction);
            if self.program.instructions.len() > MAX_INSTRUCTIONS {
                return Err(format!("needs more than {MAX_INSTRUCTIONS} instructions"));
            }
        }
        for (at, label) in &self.jumps {
            let target = self.labels.get(label).copied().unwrap_or(*at + 1);
            let distance = target as i64 - *at as i64 - 1;
            let off = i16::try_from(distance).map_err(|_| {
                "needs a jump that is too \
                                                           long"
                    .to_owned()
            })?;
            self.program.instructions[*at].off = off;
        }
        Ok(())
    }

    fn push(&mut self, code: u8, dst: u8, src: u8, off: i32, imm: i32) {
        let off = off as i16;
        self.program.instructions.push(BpfInstruction { code, dst, src, off, imm });
    }

    fn home(&self, register: Register) -> RegisterHome {
        self.allocation.homes[register as usize]
    }

    /// The machine's register that holds a value; a spilled one is loaded.
    fn read(&mut self, register: Register, spare: usize) -> u8 {
        match self.home(register) {
            RegisterHome::Machine(machine) => machine,
            RegisterHome::Frame(offset) => {
                let machine = SPILL_REGISTERS[spare];
                self.push(0x79, machine, FRAME_POINTER, offset, 0);
                machine
            }
            RegisterHome::Nowhere => SPILL_REGISTERS[spare],
        }
    }

    /// The machine's register that a result is to be made in.
    fn write(&self, register: Register) -> u8 {
        match self.home(register) {
            RegisterHome::Machine(machine) => machine,
            _ => SPILL_REGISTERS[0],
        }
    }

    fn written(&mut self, register: Register) {
        if let RegisterHome::Frame(offset) = self.home(register) {
            self.push(0x7b, FRAME_POINTER, SPILL_REGISTERS[0], offset, 0);
        }
    }

    fn base(&mut self, base: AddressBase, spare: usize) -> u8 {
        match base {
            AddressBase::Frame => FRAME_POINTER,
            AddressBase::Register(r) => self.read(r, spare),
        }
    }

    fn load_wide(&mut self, dst: u8, src: u8, value: u64) {
        self.push(0x18, dst, src, 0, value as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    /// `dst = operand`
    fn set(&mut self, dst: u8, operand: Operand) {
        match operand {
            Operand::Immediate(imm) => self.push(0xb7, dst, 0, 0, imm),
            Operand::Register(r) => match self.home(r) {
                RegisterHome::Machine(src) if src == dst => {}
                RegisterHome::Machine(src) => self.push(0xbf, dst, src, 0, 0),
                RegisterHome::Frame(offset) => self.push(0x79, dst, FRAME_POINTER, offset, 0),
                RegisterHome::Nowhere => {}
            },
        }
    }

    fn compute(&mut self, class: u8, operation: u8, register: Register, operand: Operand) {
        let dst = self.read(register, 0);
        match operand {
            Operand::Immediate(imm) => self.push(class | operation, dst, 0, 0, imm),
            Operand::Register(r) => {
                let src = self.read(r, 1);
                self.push(class | operation | 0x08, dst, src, 0, 0);
            }
        }
        self.written(register);
    }

    fn jump(&mut self, code: u8, dst: u8, src: u8, imm: i32, label: CodeLabel) {
        self.jumps.push((self.program.instructions.len(), label));
        self.push(code, dst, src, 0, imm);
    }

    fn encode(&mut self, instruction: &Instruction) {
        use Instruction as I;
        match instruction {
            I::Position(position) => self.position(*position),
            I::Label(label) => {
                self.labels.insert(*label, self.program.instructions.len());
            }
            I::Parameter(to, n) => {
                let dst = self.write(*to);
                self.push(0xbf, dst, n + 1, 0, 0);
                self.written(*to);
            }
            I::Move(to, operand) => {
                if let (RegisterHome::Frame(offset), Operand::Immediate(imm)) =
                    (self.home(*to), operand)
                {
                    self.push(0x7a, FRAME_POINTER, 0, offset, *imm);
                    return;
                }
                let dst = self.write(*to);
                self.set(dst, *operand);
                self.written(*to);
            }
            I::LoadImmediate(to, value) => {
                let dst = self.write(*to);
                self.load_wide(dst, 0, *value);
                self.written(*to);
            }
            I::LoadMap(to, map) => {
                let dst = self.write(*to);
                let instruction = self.program.instructions.len() as u32;
                self.program.relocations.push(ObjectRelocation { instruction, map: *map });
                self.load_wide(dst, 1, 0);
                self.written(*to);
            }
            I::LoadFunction(to, function) => {
                let dst = self.write(*to);
                self.program.function_loads.push((self.program.instructions.len(), *function));
                self.load_wide(dst, 4, 0);
                self.written(*to);
            }
            I::FrameAddress(to, offset) => {
                let dst = self.write(*to);
                self.push(0xbf, dst, FRAME_POINTER, 0, 0);
                self.push(0x07, dst, 0, 0, *offset);
                self.written(*to);
            }
            I::Compute(operation, to, operand) => {
                self.compute(0x07, *operation as u8, *to, *operand)
            }
            I::Negate(to) => {
                let dst = self.read(*to, 0);
                self.push(0x87, dst, 0, 0, 0);
                self.written(*to);
            }
            I::SwapBytes(to, bits) => {
                let dst = self.read(*to, 0);
                self.push(0xdc, dst, 0, 0, *bits);
                self.written(*to);
            }
            I::Load(to, base, offset, size) => {
                let src = self.base(*base, 0);
                let dst = self.write(*to);
                self.push(0x61 | size_bits(*size), dst, src, *offset, 0);
                self.written(*to);
            }
            I::Store(base, offset, size, value) => {
                let dst = self.base(*base, 0);
                match value {
                    Operand::Immediate(imm) => {
                        self.push(0x62 | size_bits(*size), dst, 0, *offset, *imm);
                    }
                    Operand::Register(r) => {
                        let src = self.read(*r, 1);
                        self.push(0x63 | size_bits(*size), dst, src, *offset, 0);
                    }
                }
            }
            I::StoreSlot(base, offset, slot) => {
                let dst = self.base(*base, 0);
                self.program.slot_stores.push(self.program.instructions.len());
                self.push(0x62, dst, 0, *offset, *slot);
            }
            I::AtomicAdd(base, offset, value) => {
                let dst = self.base(*base, 0);
                let src = self.read(*value, 1);
                self.push(0xdb, dst, src, *offset, 0);
            }
            I::Exchange(base, offset, register) => {
                let src = self.read(*register, 0);
                let dst = self.base(*base, 1);
                self.push(0xdb, dst, src, *offset, 0xe1);
                self.written(*register);
            }
            I::Call(helper, arguments, result) => self.call(*helper, arguments, *result),
            I::Jump(label) => self.jump(0x05, 0, 0, 0, *label),
            I::MayGoto(label) => self.jump(0xe5, 0, 0, 0, *label),
            I::Branch(compare, left, right, label) => {
                let dst = self.read(*left, 0);
                match right {
                    Operand::Immediate(imm) => {
                        self.jump(0x05 | *compare as u8, dst, 0, *imm, *label);
                    }
                    Operand::Register(r) => {
                        let src = self.read(*r, 1);
                        self.jump(0x0d | *compare as u8, dst, src, 0, *label);
                    }
                }
            }
            I::Exit(value) => {
                self.set(0, *value);
                self.push(0x95, 0, 0, 0, 0);
            }
        }
    }

    fn position(&mut self, position: ProgramPosition) {
        let at = self.program.instructions.len() as u32;
        let lines = &mut self.program.lines;
        match lines.last_mut() {
            Some((last, old)) if *last == at => *old = position,
            // Not merged with an equal one before: each function begins with its own.
            _ => lines.push((at, position)),
        }
    }

    fn call(&mut self, helper: i32, arguments: &[Operand], result: Option<Register>) {
        // Registers first, in an order in which none is overwritten before it is read.
        let mut moves: Vec<(u8, u8)> = Vec::new();
        for (n, argument) in arguments.iter().enumerate() {
            if let Operand::Register(r) = argument
                && let RegisterHome::Machine(src) = self.home(*r)
                && src != n as u8 + 1
            {
                moves.push((n as u8 + 1, src));
            }
        }
        while !moves.is_empty() {
            let ready = moves.iter().position(|(to, _)| !moves.iter().any(|(_, from)| from == to));
            match ready {
                Some(at) => {
                    let (to, from) = moves.remove(at);
                    self.push(0xbf, to, from, 0, 0);
                }
                None => {
                    // All are parts of cycles; r0 is in none, as no argument goes there.
                    let from = moves[0].1;
                    self.push(0xbf, 0, from, 0, 0);
                    for (_, src) in &mut moves {
                        if *src == from {
                            *src = 0;
                        }
                    }
                }
            }
        }
        for (n, argument) in arguments.iter().enumerate() {
            let in_register = matches!(argument, Operand::Register(r)
                if matches!(self.home(*r), RegisterHome::Machine(_)));
            if !in_register {
                self.set(n as u8 + 1, *argument);
            }
        }
        self.push(0x85, 0, 0, 0, helper);
        if let Some(result) = result {
            match self.home(result) {
                RegisterHome::Machine(0) | RegisterHome::Nowhere => {}
                RegisterHome::Machine(dst) => self.push(0xbf, dst, 0, 0, 0),
                RegisterHome::Frame(offset) => self.push(0x7b, FRAME_POINTER, 0, offset, 0),
            }
        }
    }
}

/// Bits of a load's or store's code for a size in bytes.
fn size_bits(size: u8) -> u8 {
    match size {
        1 => 0x10,
        2 => 0x08,
        4 => 0x00,
        _ => 0x18,
    }
}
