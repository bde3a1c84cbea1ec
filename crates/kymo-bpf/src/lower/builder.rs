//! Emitting instructions: registers, working memory, copies, helper calls, error counters.

use super::types::{AddressSpace, words};
use super::{Lowering, MapSlot};
use crate::code::{
    AddressBase, CodeLabel, CompareOperation, ComputeOperation, Instruction, Operand, Register,
};
use crate::object::{ErrorKind, ErrorSite, ProgramPosition};

/// Memory at a base: the frame, the scratch area or what a register points to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryPlace {
    pub(crate) base: AddressBase,
    pub(crate) offset: i32,
}

impl MemoryPlace {
    pub(crate) fn at(self, offset: u32) -> MemoryPlace {
        MemoryPlace { base: self.base, offset: self.offset + offset as i32 }
    }
}

/// Objects up to this size live in the frame while there is room.
const MAX_IN_FRAME: u32 = 64;
/// Bytes of a frame that objects may take; the rest is for spilled registers.
const FRAME_ROOM: u32 = 320;
/// Copies beyond this many bytes are done by a helper.
const MAX_INLINE_COPY: u32 = 128;
/// Bytes of scratch memory of one program.
pub(crate) const MAX_SCRATCH: u32 = 32 << 10;

/// Numbers of BPF's helpers.
pub(crate) mod helper {
    pub(crate) const MAP_LOOKUP: i32 = 1;
    pub(crate) const MAP_UPDATE: i32 = 2;
    pub(crate) const MAP_DELETE: i32 = 3;
    pub(crate) const PROBE_READ: i32 = 4;
    pub(crate) const KTIME: i32 = 5;
    pub(crate) const RANDOM: i32 = 7;
    pub(crate) const CPU: i32 = 8;
    pub(crate) const PID_TGID: i32 = 14;
    pub(crate) const UID_GID: i32 = 15;
    pub(crate) const COMM: i32 = 16;
    pub(crate) const STACK_ID: i32 = 27;
    pub(crate) const STACK: i32 = 67;
    pub(crate) const TASK: i32 = 35;
    pub(crate) const WRITE_USER: i32 = 36;
    pub(crate) const NUMA_NODE: i32 = 42;
    pub(crate) const PROBE_READ_STR: i32 = 45;
    pub(crate) const SOCKET_COOKIE: i32 = 46;
    pub(crate) const OVERRIDE: i32 = 58;
    pub(crate) const CGROUP: i32 = 80;
    pub(crate) const SEND_SIGNAL: i32 = 109;
    pub(crate) const PACKET_OUTPUT: i32 = 111;
    pub(crate) const PROBE_READ_USER: i32 = 112;
    pub(crate) const PROBE_READ_KERNEL: i32 = 113;
    pub(crate) const PROBE_READ_USER_STR: i32 = 114;
    pub(crate) const PROBE_READ_KERNEL_STR: i32 = 115;
    pub(crate) const SEND_SIGNAL_THREAD: i32 = 117;
    pub(crate) const JIFFIES: i32 = 118;
    pub(crate) const KTIME_BOOT: i32 = 125;
    pub(crate) const RING_OUTPUT: i32 = 130;
    pub(crate) const PATH: i32 = 147;
    pub(crate) const FOR_EACH: i32 = 164;
    pub(crate) const FUNCTION_ADDRESS: i32 = 173;
    pub(crate) const TRACE_PRINT: i32 = 177;
    pub(crate) const NAMESPACE_PID_TGID: i32 = 120;
    pub(crate) const LOOKUP_PER_CPU: i32 = 195;
    pub(crate) const KTIME_TAI: i32 = 208;
}

impl Lowering<'_> {
    pub(crate) fn emit(&mut self, instruction: Instruction) {
        self.program.functions[self.program.current].code.push(instruction);
    }

    /// A fresh register.
    pub(crate) fn register(&mut self) -> Register {
        let function = &mut self.program.functions[self.program.current];
        function.registers += 1;
        function.registers - 1
    }

    pub(crate) fn label(&mut self) -> CodeLabel {
        self.program.labels += 1;
        self.program.labels
    }

    pub(crate) fn place_label(&mut self, label: CodeLabel) {
        self.emit(Instruction::Label(label));
    }

    pub(crate) fn jump(&mut self, label: CodeLabel) {
        self.emit(Instruction::Jump(label));
    }

    pub(crate) fn branch(
        &mut self,
        compare: CompareOperation,
        left: Register,
        right: Operand,
        label: CodeLabel,
    ) {
        self.emit(Instruction::Branch(compare, left, right, label));
    }

    /// An operand as a register.
    pub(crate) fn in_register(&mut self, operand: Operand) -> Register {
        match operand {
            Operand::Register(r) => r,
            Operand::Immediate(_) => self.copy_of(operand),
        }
    }

    /// A register of its own with an operand's value.
    pub(crate) fn copy_of(&mut self, operand: Operand) -> Register {
        let register = self.register();
        self.emit(Instruction::Move(register, operand));
        register
    }

    pub(crate) fn constant(&mut self, value: i64) -> Operand {
        match i32::try_from(value) {
            Ok(small) => Operand::Immediate(small),
            Err(_) => {
                let register = self.register();
                self.emit(Instruction::LoadImmediate(register, value as u64));
                Operand::Register(register)
            }
        }
    }

    pub(crate) fn compute(&mut self, operation: ComputeOperation, to: Register, operand: Operand) {
        self.emit(Instruction::Compute(operation, to, operand));
    }

    /// `from operation operand`, in a register of its own.
    pub(crate) fn computed(
        &mut self,
        operation: ComputeOperation,
        from: Operand,
        operand: Operand,
    ) -> Register {
        let register = self.copy_of(from);
        self.compute(operation, register, operand);
        register
    }

    pub(crate) fn call(&mut self, helper: i32, arguments: Vec<Operand>) -> Register {
        self.refuse_helper(helper);
        let result = self.register();
        self.emit(Instruction::Call(helper, arguments, Some(result)));
        result
    }

    pub(crate) fn map_reference(&mut self, map: u32) -> Operand {
        // In user space nothing is counted while a map is printed.
        if matches!(&self.maps[map as usize], MapSlot::User(map) if map.is_taken) {
            return self.held_map(map);
        }
        let register = self.register();
        self.emit(Instruction::LoadMap(register, map));
        Operand::Register(register)
    }

    /// The map that a holder names now.
    fn held_map(&mut self, map: u32) -> Operand {
        let holder = self.service_map(super::ServiceMap::Holder(map));
        let held = self.lookup_index(holder, Operand::Immediate(0));
        let there = self.label();
        self.branch(CompareOperation::NotEqual, held, Operand::Immediate(0), there);
        // Never: an entry is set before the program is loaded, and only ever replaced.
        self.emit(Instruction::Exit(Operand::Immediate(0)));
        self.place_label(there);
        Operand::Register(held)
    }

    pub(crate) fn address(&mut self, place: MemoryPlace) -> Operand {
        let register = self.register();
        match place.base {
            AddressBase::Frame => self.emit(Instruction::FrameAddress(register, place.offset)),
            AddressBase::Register(base) if place.offset == 0 => return Operand::Register(base),
            AddressBase::Register(base) => {
                self.emit(Instruction::Move(register, Operand::Register(base)));
                self.compute(ComputeOperation::Add, register, Operand::Immediate(place.offset));
            }
        }
        Operand::Register(register)
    }

    pub(crate) fn load(&mut self, place: MemoryPlace, size: u8) -> Register {
        let register = self.register();
        self.emit(Instruction::Load(register, place.base, place.offset, size));
        register
    }

    pub(crate) fn store(&mut self, place: MemoryPlace, size: u8, value: Operand) {
        self.emit(Instruction::Store(place.base, place.offset, size, value));
    }

    /// Room until the end of the statement.
    pub(crate) fn room(&mut self, size: u32) -> MemoryPlace {
        let size = words(size.max(1));
        let program = &mut self.program;
        let used = &mut program.frame_used[program.current];
        if size <= MAX_IN_FRAME && *used + size <= FRAME_ROOM {
            *used += size;
            let offset = -(*used as i32);
            let function = &mut program.functions[program.current];
            function.frame = function.frame.max(*used);
            return MemoryPlace { base: AddressBase::Frame, offset };
        }
        let offset = program.scratch_used;
        program.scratch_used = program.scratch_used.saturating_add(size);
        program.scratch_most = program.scratch_most.max(program.scratch_used);
        let base = program.scratch_base[program.current];
        MemoryPlace { base: AddressBase::Register(base), offset: offset as i32 }
    }

    pub(crate) fn copy_memory(&mut self, from: MemoryPlace, to: MemoryPlace, size: u32) {
        if from == to {
            return;
        }
        if size > MAX_INLINE_COPY {
            let (to, from) = (self.address(to), self.address(from));
            let size = Operand::Immediate(size as i32);
            self.call(helper::PROBE_READ_KERNEL, vec![to, size, from]);
            return;
        }
        let mut at = 0;
        while at < size {
            let step = chunk(size - at).min(alignment(from.at(at))).min(alignment(to.at(at)));
            let value = self.load(from.at(at), step as u8);
            self.store(to.at(at), step as u8, Operand::Register(value));
            at += step;
        }
    }

    pub(crate) fn zero_memory(&mut self, place: MemoryPlace, size: u32) {
        if size > MAX_INLINE_COPY {
            let done = self.label();
            let zeros = self.zeros(size, done);
            self.copy_memory(zeros, place, size);
            self.place_label(done);
            return;
        }
        let mut at = 0;
        while at < size {
            let step = chunk(size - at).min(alignment(place.at(at)));
            self.store(place.at(at), step as u8, Operand::Immediate(0));
            at += step;
        }
    }

    /// Memory that is always zero; jumps to `missing` without it.
    pub(crate) fn zeros(&mut self, size: u32, missing: CodeLabel) -> MemoryPlace {
        self.zero_bytes = self.zero_bytes.max(size);
        let map = self.service_map(super::ServiceMap::Zeros);
        let base = self.lookup_index(map, Operand::Immediate(0));
        self.branch(CompareOperation::Equal, base, Operand::Immediate(0), missing);
        MemoryPlace { base: AddressBase::Register(base), offset: 0 }
    }

    /// Looks up an entry of an array; the result may be 0.
    pub(crate) fn lookup_index(&mut self, map: u32, index: Operand) -> Register {
        self.lookup_stored(map, |lowering, key| lowering.store(key, 4, index))
    }

    /// Looks up the n-th scratch entry of this program; the result may be 0.
    pub(crate) fn lookup_slot(&mut self, map: u32, n: i32) -> Register {
        self.lookup_stored(map, |lowering, key| {
            lowering.emit(Instruction::StoreSlot(key.base, key.offset, n));
        })
    }

    fn lookup_stored(&mut self, map: u32, store: impl FnOnce(&mut Self, MemoryPlace)) -> Register {
        let mark = self.mark();
        let key = self.room(4);
        store(self, key);
        let map = self.map_reference(map);
        let key = self.address(key);
        let found = self.call(helper::MAP_LOOKUP, vec![map, key]);
        self.release(mark);
        found
    }

    /// Room that is in use, for [`Self::release`].
    pub(crate) fn mark(&self) -> (u32, u32) {
        (self.program.frame_used[self.program.current], self.program.scratch_used)
    }

    pub(crate) fn release(&mut self, mark: (u32, u32)) {
        let current = self.program.current;
        self.program.frame_used[current] = mark.0;
        self.program.scratch_used = mark.1;
    }

    /// Number of the error counter of a place in the program.
    fn error_site(&mut self, kind: ErrorKind, position: ProgramPosition) -> u32 {
        let site = ErrorSite { kind, position };
        if let Some(at) = self.error_sites.iter().position(|s| *s == site) {
            return at as u32;
        }
        self.error_sites.push(site);
        self.error_sites.len() as u32 - 1
    }

    /// Counts an error. Not on the usual path: the caller branches around it.
    pub(crate) fn count_error(&mut self, kind: ErrorKind) {
        let site = self.error_site(kind, self.position);
        let map = self.service_map(super::ServiceMap::Errors);
        let done = self.label();
        let counter = self.lookup_index(map, Operand::Immediate(site as i32));
        self.branch(CompareOperation::Equal, counter, Operand::Immediate(0), done);
        let place = MemoryPlace { base: AddressBase::Register(counter), offset: 0 };
        let value = self.load(place, 8);
        self.compute(ComputeOperation::Add, value, Operand::Immediate(1));
        self.store(place, 8, Operand::Register(value));
        self.place_label(done);
    }

    /// Counts an error if a helper's result is negative.
    pub(crate) fn count_if_negative(&mut self, result: Register, kind: ErrorKind) {
        let fine = self.label();
        self.branch(CompareOperation::SignedGreaterEqual, result, Operand::Immediate(0), fine);
        self.count_error(kind);
        self.place_label(fine);
    }

    /// Reads memory at an address; zero where that is not possible.
    pub(crate) fn probe_read(
        &mut self,
        to: MemoryPlace,
        size: u32,
        address: Operand,
        space: AddressSpace,
    ) {
        self.read_from(space);
        let helper = match space {
            AddressSpace::Kernel | AddressSpace::Record => helper::PROBE_READ_KERNEL,
            AddressSpace::User => helper::PROBE_READ_USER,
            AddressSpace::Either => helper::PROBE_READ,
        };
        let to = self.address(to);
        let result = self.call(helper, vec![to, Operand::Immediate(size as i32), address]);
        self.count_if_negative(result, ErrorKind::ReadFailed);
    }

    /// Reads a text; the result is its length with the NUL, or negative.
    pub(crate) fn probe_read_text(
        &mut self,
        to: MemoryPlace,
        size: Operand,
        address: Operand,
        space: AddressSpace,
    ) -> Register {
        self.read_from(space);
        let helper = match space {
            AddressSpace::Kernel | AddressSpace::Record => helper::PROBE_READ_KERNEL_STR,
            AddressSpace::User => helper::PROBE_READ_USER_STR,
            AddressSpace::Either => helper::PROBE_READ_STR,
        };
        let to = self.address(to);
        let result = self.call(helper, vec![to, size, address]);
        self.count_if_negative(result, ErrorKind::ReadFailed);
        result
    }
}

/// The largest power of two up to 8 that fits. Bytes of one access to a place, whose base is
/// aligned to eight: the verifier refuses others in the frame.
fn alignment(place: MemoryPlace) -> u32 {
    1 << place.offset.trailing_zeros().min(3)
}

fn chunk(rest: u32) -> u32 {
    match rest {
        8.. => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}
