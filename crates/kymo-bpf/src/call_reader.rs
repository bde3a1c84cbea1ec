//! Programs that read what the arguments of system calls point to, while the call begins and
//! while it ends: texts that are read later may be another call's.
//!
//! They are made by hand rather than compiled: one program for all calls, whose map has the reads
//! by the call's number ([`MemoryRead`]). A record goes into a ring for each beginning and each end
//! of which something was read. What is not in memory when a call begins (a constant that was not
//! used yet) is read when it ends, since the kernel has fetched it by then.

use crate::object::BpfInstruction;

/// Read of a call's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRead {
    /// Argument that is the address.
    pub argument: u8,
    /// Whether the data is available at the end of the call only.
    pub at_exit: bool,
    /// Size of the memory.
    pub size: ReadSize,
    /// Bytes that are read at most (of each piece).
    pub limit: u32,
}

/// Size of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadSize {
    /// Up to a NUL, which counts for the limit.
    Text,
    /// The limit.
    Fixed,
    /// As many bytes as the argument of this place says.
    Argument(u8),
    /// As many bytes as the call returned.
    Result,
    /// As many bytes as a 32-bit number says, at which this argument points.
    Stored(u8),
    /// Pieces of a vector (`struct iovec`), whose number is this argument.
    Vector(u8),
    /// Name and pieces of a message (`struct msghdr`).
    Message,
    /// Texts, at which an array of addresses points that ends with NULL.
    Texts,
}

impl ReadSize {
    fn code(self) -> (u8, u8) {
        match self {
            ReadSize::Text => (1, 0),
            ReadSize::Fixed => (2, 0),
            ReadSize::Argument(n) => (3, n),
            ReadSize::Result => (4, 0),
            ReadSize::Stored(n) => (5, n),
            ReadSize::Vector(n) => (6, n),
            ReadSize::Message => (7, 0),
            ReadSize::Texts => (8, 0),
        }
    }

    fn has_pieces(self) -> bool {
        matches!(self, ReadSize::Vector(_) | ReadSize::Message | ReadSize::Texts)
    }
}

/// Calls of one ABI that can be described, by number. Those of the ABI of 32-bit programs have
/// their numbers after them.
pub const CALL_NUMBERS: u32 = 512;
/// Bytes of a call's description.
pub const CALL_READS_SIZE: u32 = 48;
/// Bytes that a program needs to put a record together, on each CPU.
pub const CALL_SCRATCH: u32 = 32 << 10;
/// Bytes of a record before its pieces: time, thread, number, 1 at the beginning and 2 at the
/// end, result, arguments.
pub const CALL_HEADER: usize = 72;
/// Pieces of a vector that are read.
const MAX_PIECES: u32 = 8;
/// Texts of an array that are read.
const MAX_TEXTS: u32 = 33;
/// Bytes of one piece at most.
const MAX_PIECE: u32 = 8 << 10;
/// Piece that is the message itself. Of a vector the first is itself.
pub const MESSAGE_PIECE: u8 = 62;
/// Its name.
pub const NAME_PIECE: u8 = 63;
/// Slot of what has pieces.
const PIECES_SLOT: u8 = 4;
/// A position behind which no piece begins.
const LAST_BEGIN: i32 = 20 << 10;

/// A call's description as the programs take it; what has no place is left out.
pub fn call_reads_bytes(reads: &[MemoryRead]) -> [u8; CALL_READS_SIZE as usize] {
    let mut bytes = [0u8; CALL_READS_SIZE as usize];
    let mut slots = 0..usize::from(PIECES_SLOT);
    for read in reads {
        let slot =
            if read.size.has_pieces() { Some(usize::from(PIECES_SLOT)) } else { slots.next() };
        let (kind, other) = read.size.code();
        let limit = read.limit.min(MAX_PIECE).to_le_bytes();
        let when = 1 + u8::from(read.at_exit);
        let place = slot.and_then(|slot| bytes.get_mut(slot * 8..slot * 8 + 8));
        let Some(place) = place else { continue };
        place.copy_from_slice(&[
            when,
            kind,
            read.argument & 7,
            other & 7,
            limit[0],
            limit[1],
            limit[2],
            limit[3],
        ]);
        if let Some(flags) = bytes.get_mut(40) {
            *flags |= when;
        }
    }
    bytes
}

/// A piece of a call's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPiece {
    /// Index among the reads without pieces of their own, in the order of their description; 4 is
    /// the read with pieces.
    pub slot: u8,
    /// Index of the piece.
    pub piece: u8,
    /// Bytes of the memory; `None` if it could not be read.
    pub bytes: Option<Vec<u8>>,
}

/// The pieces of a record, behind its header.
pub fn call_pieces(mut bytes: &[u8]) -> Vec<MemoryPiece> {
    let mut found = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<8>() {
        let [piece, slot, _, _, length @ ..] = *header;
        let length = usize::try_from(i32::from_le_bytes(length)).ok();
        let bytes_of_piece = length.map(|length| rest.get(..length).unwrap_or(rest).to_vec());
        bytes = rest.get(length.unwrap_or(0).next_multiple_of(8)..).unwrap_or_default();
        found.push(MemoryPiece { slot, piece, bytes: bytes_of_piece });
    }
    found
}

/// Descriptors of the maps that the programs use.
#[derive(Clone, Copy, Debug)]
pub struct CallReaderMaps {
    /// Array of descriptions by number.
    pub reads: i32,
    /// Per-CPU array of [`CALL_SCRATCH`] bytes.
    pub scratch: i32,
    /// The ring.
    pub ring: i32,
    /// Hash of threads whose memory could not be read when the call began.
    pub retry: i32,
    /// Hash of the threads whose calls are read; all but those of [`CallReaderMaps::without`] if
    /// there is none.
    pub tasks: Option<i32>,
    /// Process whose calls are left out.
    pub without: u32,
    /// Mark by which the kernel identifies a call of the 32-bit ABI.
    pub compat: Option<CompatMark>,
}

/// Bits of a word of the kernel's `struct task_struct` that are set while a task is in a call of
/// the ABI of 32-bit programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompatMark {
    /// Offset of the word, in bytes.
    pub offset: i32,
    /// Its bits.
    pub bits: i32,
}

/// Registers in the kernel's `struct pt_regs`, in bytes: what is copied of it (from where on, how
/// much), the call's arguments in there, its number (and the size of that) and the stack's address.
struct RegisterLayout {
    copied: &'static [(i32, i32)],
    arguments: [i16; 6],
    /// Arguments of calls of the ABI of 32-bit programs.
    compat_arguments: [i16; 6],
    number: (i16, u8),
    stack: i16,
    /// execve(2).
    execve: i32,
}

impl RegisterLayout {
    /// Offset of a register in the frame: the copies follow each other.
    fn place(&self, register: i16) -> i16 {
        let register = i32::from(register);
        let mut to = i32::from(REGISTER_COPY);
        for (begin, size) in self.copied {
            if (*begin..begin + size).contains(&register) {
                return (to + register - begin) as i16;
            }
            to += size;
        }
        unreachable!("register at {register} is not captured")
    }
}

#[cfg(target_arch = "x86_64")]
const REGISTERS: Option<RegisterLayout> = Some(RegisterLayout {
    copied: &[(32, 128)],
    arguments: [112, 104, 96, 56, 72, 64],
    compat_arguments: [40, 88, 96, 104, 112, 32],
    number: (120, D),
    stack: 152,
    execve: 59,
});
/// The first argument is that of `orig_x0`: its register has the result when the call ends. A call
/// that has replaced the program has no number any more, and is not read when it ends.
#[cfg(target_arch = "aarch64")]
const REGISTERS: Option<RegisterLayout> = Some(RegisterLayout {
    copied: &[(8, 40), (248, 40)],
    arguments: [272, 8, 16, 24, 32, 40],
    compat_arguments: [272, 8, 16, 24, 32, 40],
    number: (280, W),
    stack: 248,
    execve: 221,
});
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REGISTERS: Option<RegisterLayout> = None;

/// Event at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSide {
    /// `raw_syscalls:sys_enter`.
    Enter,
    /// `raw_syscalls:sys_exit`.
    Exit,
}

/// The program of one side, for a raw tracepoint. `None` where the machine's registers are not
/// known here.
pub fn call_reader(side: CallSide, maps: &CallReaderMaps) -> Option<Vec<BpfInstruction>> {
    REGISTERS.as_ref().map(|registers| Reader::new(side, maps, registers).write())
}

/// The program that adds the child of a followed thread, for the tracepoint
/// `sched:sched_process_fork`; the numbers are where its fields lie.
pub fn follow_fork(tasks: i32, parent: i16, child: i16) -> Vec<BpfInstruction> {
    let mut code = Assembler::default();
    let end = code.label();
    code.load(W, 2, 1, child).store(W, 10, -16, 2);
    code.load(W, 2, 1, parent).store(W, 10, -8, 2);
    code.map(1, tasks).frame(2, -8).call(MAP_LOOKUP);
    code.jump_if(JEQ, 0, 0, end);
    code.store_number(W, -24, 1);
    code.map(1, tasks).frame(2, -16).frame(3, -24).set(4, 0).call(MAP_UPDATE);
    code.place(end);
    code.finish()
}

/// The program that follows a thread which executes a program and gets the number of its process
/// by that, for `sched_process_exec` as raw tracepoint.
pub fn follow_exec(tasks: i32) -> Vec<BpfInstruction> {
    let mut code = Assembler::default();
    let end = code.label();
    // The second argument is its number before.
    code.load(D, 2, 1, 8).store(W, 10, -8, 2);
    code.map(1, tasks).frame(2, -8).call(MAP_LOOKUP);
    code.jump_if(JEQ, 0, 0, end);
    code.call(PID_TGID).store(W, 10, -16, 0);
    code.store_number(W, -24, 1);
    code.map(1, tasks).frame(2, -16).frame(3, -24).set(4, 0).call(MAP_UPDATE);
    code.place(end);
    code.finish()
}

/// The program that forgets a thread, for `sched_process_exit` as raw tracepoint.
pub fn forget_task(tasks: i32) -> Vec<BpfInstruction> {
    let mut code = Assembler::default();
    code.call(PID_TGID).store(W, 10, -8, 0);
    code.map(1, tasks).frame(2, -8).call(MAP_DELETE);
    code.finish()
}

const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const KTIME: i32 = 5;
const PID_TGID: i32 = 14;
const CURRENT_TASK: i32 = 35;
const READ_USER: i32 = 112;
const READ_KERNEL: i32 = 113;
const READ_USER_TEXT: i32 = 114;
const RING_OUTPUT: i32 = 130;
/// `BPF_RB_NO_WAKEUP`
const NO_WAKEUP: i32 = 1;

/// Sizes of loads and stores.
const B: u8 = 0x10;
const W: u8 = 0x00;
const D: u8 = 0x18;
/// Comparisons; those with registers have [`X`], too.
const JEQ: u8 = 0x15;
const JGT: u8 = 0x25;
const JNE: u8 = 0x55;
const JSLE: u8 = 0xd5;
const JSLT: u8 = 0xc5;
const JGE: u8 = 0x35;
const X: u8 = 0x08;

/// Registers that keep their values over calls: the description, the record, its length.
const READS: u8 = 6;
const RECORD: u8 = 7;
const LENGTH: u8 = 8;
const KEPT: u8 = 9;

/// Places in the frame.
const KEY: i16 = -8;
const THREAD: i16 = -16;
const RETRY: i16 = -24;
const SIZE: i16 = -32;
const NUMBER: i16 = -40;
const RETURNED: i16 = -48;
const VECTOR: i16 = -56;
const COUNT: i16 = -64;
const LIMIT: i16 = -72;
const STACK: i16 = -80;
/// 0, or [`CALL_NUMBERS`] for a call of the ABI of 32-bit programs.
const ABI: i16 = -88;
const REGISTER_COPY: i16 = -216;

/// Places in the record.
const RECORD_RESULT: i16 = 16;
const RECORD_ARGUMENTS: i16 = 24;

struct Reader<'m> {
    code: Assembler,
    side: CallSide,
    maps: &'m CallReaderMaps,
    registers: &'m RegisterLayout,
    /// The end, and sending before it.
    end: Label,
    send: Label,
}

impl<'m> Reader<'m> {
    fn new(side: CallSide, maps: &'m CallReaderMaps, registers: &'m RegisterLayout) -> Reader<'m> {
        let mut code = Assembler::default();
        let (end, send) = (code.label(), code.label());
        Reader { code, side, maps, registers, end, send }
    }

    fn write(mut self) -> Vec<BpfInstruction> {
        self.begin();
        self.header();
        for slot in 0..PIECES_SLOT {
            self.slot(slot);
        }
        self.pieces();
        self.finish()
    }

    /// Is it a call of interest? Then its registers are copied and its description found.
    fn begin(&mut self) {
        let (end, maps, registers) = (self.end, self.maps, self.registers);
        let code = &mut self.code;
        code.copy(READS, 1);
        code.call(PID_TGID).store(D, 10, THREAD, 0);
        match maps.tasks {
            Some(tasks) => {
                code.store(W, 10, KEY, 0).map(1, tasks).frame(2, KEY).call(MAP_LOOKUP);
                code.jump_if(JEQ, 0, 0, end);
            }
            None => {
                code.shift_right(0, 32).jump_if(JEQ, 0, maps.without as i32, end);
            }
        }
        code.load(D, 3, READS, 0);
        code.load(D, 1, READS, 8).store(D, 10, RETURNED, 1);
        code.copy(KEPT, 3);
        for (begin, size) in registers.copied {
            code.frame(1, registers.place(*begin as i16)).copy(3, KEPT).add(3, *begin);
            code.set(2, *size).call(READ_KERNEL).jump_if(JNE, 0, 0, end);
        }
        let (number, width) = registers.number;
        code.load(width, 1, 10, registers.place(number));
        code.jump_if(JGT, 1, CALL_NUMBERS as i32 - 1, end);
        code.store(D, 10, NUMBER, 1).store_number(D, ABI, 0);
        if let Some(mark) = maps.compat {
            let native = code.label();
            code.store_number(D, COUNT, 0).call(CURRENT_TASK).copy(3, 0).add(3, mark.offset);
            code.frame(1, COUNT).set(2, 4).call(READ_KERNEL).jump_if(JNE, 0, 0, native);
            code.load(W, 1, 10, COUNT).and(1, mark.bits).jump_if(JEQ, 1, 0, native);
            code.store_number(D, ABI, CALL_NUMBERS as i32);
            code.load(D, 1, 10, NUMBER).add(1, CALL_NUMBERS as i32).store(D, 10, NUMBER, 1);
            code.place(native);
        }
        code.load(D, 1, 10, NUMBER).store(W, 10, KEY, 1);
        code.load(D, 1, 10, registers.place(registers.stack)).store(D, 10, STACK, 1);
        code.map(1, maps.reads).frame(2, KEY).call(MAP_LOOKUP).jump_if(JEQ, 0, 0, end);
        code.copy(READS, 0);
        code.load(B, KEPT, READS, 40);
        code.store_number(D, RETRY, 0);
        if self.side == CallSide::Enter {
            // That a call is of another ABI is worth a record by itself.
            let is_read = code.label();
            code.load(D, 1, 10, ABI).jump_if(JNE, 1, 0, is_read);
            code.and(KEPT, 1).jump_if(JEQ, KEPT, 0, end);
            code.place(is_read);
            return;
        }
        let goes_on = code.label();
        code.jump_if(JEQ, KEPT, 0, end);
        code.load(W, 1, 10, THREAD).store(W, 10, KEY, 1);
        code.map(1, maps.retry).frame(2, KEY).call(MAP_LOOKUP);
        let none = code.label();
        code.jump_if(JEQ, 0, 0, none);
        code.map(1, maps.retry).frame(2, KEY).call(MAP_DELETE);
        code.store_number(D, RETRY, 1).jump(goes_on);
        code.place(none);
        code.and(KEPT, 2).jump_if(JEQ, KEPT, 0, end);
        code.place(goes_on);
    }

    fn header(&mut self) {
        let (end, maps, registers) = (self.end, self.maps, self.registers);
        let code = &mut self.code;
        code.store_number(W, KEY, 0);
        code.map(1, maps.scratch).frame(2, KEY).call(MAP_LOOKUP).jump_if(JEQ, 0, 0, end);
        code.copy(RECORD, 0);
        code.call(KTIME).store(D, RECORD, 0, 0);
        code.load(W, 1, 10, THREAD).store(W, RECORD, 8, 1);
        let side = 1 + i32::from(self.side == CallSide::Exit);
        code.load(D, 1, 10, NUMBER).or(1, side << 16).store(W, RECORD, 12, 1);
        code.load(D, 1, 10, RETURNED).store(D, RECORD, RECORD_RESULT, 1);
        let (compat, done) = (code.label(), code.label());
        code.load(D, 1, 10, ABI).jump_if(JNE, 1, 0, compat);
        for (n, at) in (0i16..).zip(registers.arguments) {
            code.load(D, 1, 10, registers.place(at));
            code.store(D, RECORD, RECORD_ARGUMENTS + 8 * n, 1);
        }
        code.jump(done);
        code.place(compat);
        for (n, at) in (0i16..).zip(registers.compat_arguments) {
            code.load(D, 1, 10, registers.place(at));
            code.store(D, RECORD, RECORD_ARGUMENTS + 8 * n, 1);
        }
        code.place(done);
        code.set(LENGTH, CALL_HEADER as i32);
    }

    /// Goes to `skip` if what a slot says is not read now.
    fn check_side(&mut self, at: i16, skip: Label) {
        let code = &mut self.code;
        code.load(B, 1, READS, at);
        if self.side == CallSide::Enter {
            code.jump_if(JNE, 1, 1, skip);
            return;
        }
        let reads = code.label();
        let retried = code.label();
        code.jump_if(JEQ, 1, 0, skip).jump_if(JEQ, 1, 1, retried);
        // The kernel wrote nothing where it failed.
        code.load(D, 2, 10, RETURNED).jump_if(JSLT, 2, 0, skip).jump(reads);
        code.place(retried);
        code.load(D, 2, 10, RETRY).jump_if(JEQ, 2, 0, skip);
        code.place(reads);
    }

    /// An argument, whose number stands in the description.
    fn argument(&mut self, to: u8, at: i16) {
        let code = &mut self.code;
        code.load(B, to, READS, at).and(to, 7).jump_if(JGT, to, 5, self.send);
        code.shift_left(to, 3).add_register(to, RECORD).load(D, to, to, RECORD_ARGUMENTS);
    }

    fn slot(&mut self, slot: u8) {
        let at = i16::from(slot) * 8;
        let next = self.code.label();
        self.check_side(at, next);
        self.argument(KEPT, at + 2);
        self.code.jump_if(JEQ, KEPT, 0, next);
        let (text, read) = (self.code.label(), self.code.label());
        let (by_argument, by_result, stored) =
            (self.code.label(), self.code.label(), self.code.label());
        let least = self.code.label();
        self.code.load(W, 1, READS, at + 4).store(D, 10, SIZE, 1);
        self.code.load(B, 1, READS, at + 1);
        self.code.jump_if(JEQ, 1, 1, text).jump_if(JEQ, 1, 3, by_argument);
        self.code.jump_if(JEQ, 1, 4, by_result).jump_if(JEQ, 1, 5, stored).jump(read);
        self.code.place(by_argument);
        self.argument(1, at + 3);
        self.code.jump(least);
        self.code.place(by_result);
        self.code.load(D, 1, 10, RETURNED).jump_if(JSLE, 1, 0, next).jump(least);
        self.code.place(stored);
        self.argument(3, at + 3);
        self.code.store_number(D, COUNT, 0);
        self.code.frame(1, COUNT).set(2, 4).call(READ_USER).jump_if(JNE, 0, 0, next);
        self.code.load(D, 1, 10, COUNT);
        self.code.place(least);
        self.code.load(D, 2, 10, SIZE);
        self.code.jump_if_register(JGT | X, 1, 2, read).store(D, 10, SIZE, 1);
        self.code.place(read);
        self.piece(u32::from(slot) << 8, false, true);
        self.code.jump(next);
        self.code.place(text);
        self.piece(u32::from(slot) << 8, true, true);
        self.code.place(next);
    }

    /// Reads a piece from the address in [`KEPT`], of the size in the frame, and appends it.
    /// Nothing could be read: it is there without bytes.
    fn piece(&mut self, tag: u32, is_text: bool, retries: bool) {
        let (send, maps) = (self.send, self.maps);
        let is_enter = self.side == CallSide::Enter;
        let code = &mut self.code;
        let (failed, done, bounded) = (code.label(), code.label(), code.label());
        code.load(D, 2, 10, SIZE);
        code.jump_if(JGT, 2, MAX_PIECE as i32, bounded);
        let ready = code.label();
        code.jump(ready);
        code.place(bounded);
        code.set(2, MAX_PIECE as i32);
        code.place(ready);
        code.store(D, 10, SIZE, 2);
        code.copy(1, RECORD).add_register(1, LENGTH).add(1, 8).copy(3, KEPT);
        code.call(if is_text { READ_USER_TEXT } else { READ_USER });
        code.copy(1, RECORD).add_register(1, LENGTH);
        code.set(2, tag as i32).store(W, 1, 0, 2);
        if is_text {
            code.jump_if(JSLT, 0, 0, failed);
            code.copy(2, 0);
        } else {
            code.jump_if(JNE, 0, 0, failed);
            code.load(D, 2, 10, SIZE);
        }
        code.store(W, 1, 4, 2);
        // The verifier needs the bound once more.
        code.and(2, (MAX_PIECE * 2 - 1) as i32).add(2, 15).and(2, !7).add_register(LENGTH, 2);
        code.jump(done);
        code.place(failed);
        code.set(2, -1).store(W, 1, 4, 2).add(LENGTH, 8);
        if is_enter && retries {
            code.load(W, 1, 10, THREAD).store(W, 10, KEY, 1).store_number(D, COUNT, 1);
            code.map(1, maps.retry).frame(2, KEY).frame(3, COUNT).set(4, 0).call(MAP_UPDATE);
        }
        code.place(done);
        code.jump_if(JGT, LENGTH, LAST_BEGIN, send);
    }

    /// Emits the reads of an argument with several pieces.
    fn pieces(&mut self) {
        let at = i16::from(PIECES_SLOT) * 8;
        let tag = u32::from(PIECES_SLOT) << 8;
        let send = self.send;
        self.check_side(at, send);
        self.argument(KEPT, at + 2);
        let (vector, message, texts) = (self.code.label(), self.code.label(), self.code.label());
        let code = &mut self.code;
        code.load(W, 1, READS, at + 4).store(D, 10, LIMIT, 1);
        code.load(B, 1, READS, at + 1).jump_if(JEQ, 1, 8, texts);
        code.jump_if(JEQ, KEPT, 0, send).jump_if(JEQ, 1, 7, message);
        self.argument(1, at + 3);
        self.code.store(D, 10, COUNT, 1).jump(vector);
        self.code.place(message);
        self.message(tag);
        self.code.place(vector);
        self.vector(tag);
        self.code.jump(send);
        self.code.place(texts);
        self.texts(tag);
    }

    /// The message and its name; its vector comes next, in [`KEPT`] and the frame.
    fn message(&mut self, tag: u32) {
        let no_name = self.code.label();
        self.code.set(1, 56).store(D, 10, SIZE, 1).store(D, 10, VECTOR, LENGTH);
        let (send, retries) = (self.send, self.side == CallSide::Enter);
        self.piece(tag | u32::from(MESSAGE_PIECE), false, retries);
        self.read_piece(1, 0);
        self.code.shift_right(1, 32).jump_if(JNE, 1, 56, send);
        self.read_piece(KEPT, 8);
        self.read_piece(1, 16);
        self.code.store(D, 10, NUMBER, 1);
        self.read_piece(1, 24);
        self.code.store(D, 10, COUNT, 1);
        self.read_piece(1, 32);
        self.code.store(D, 10, STACK, 1);
        self.code.jump_if(JEQ, KEPT, 0, no_name);
        self.code.load(D, 1, 10, NUMBER).shift_left(1, 32).shift_right(1, 32);
        let short = self.code.label();
        self.code.jump_if(JSLE, 1, 128, short).set(1, 128);
        self.code.place(short);
        self.code.store(D, 10, SIZE, 1);
        self.piece(tag | u32::from(NAME_PIECE), false, false);
        self.code.place(no_name);
        self.code.load(D, KEPT, 10, COUNT).load(D, 1, 10, STACK).store(D, 10, COUNT, 1);
        self.code.jump_if(JEQ, KEPT, 0, send);
    }

    /// A number of the piece whose position is in the frame, behind its own header.
    fn read_piece(&mut self, to: u8, at: i16) {
        self.code.load(D, to, 10, VECTOR).add_register(to, RECORD).load(D, to, to, at);
    }

    fn vector(&mut self, tag: u32) {
        let (send, retries) = (self.send, self.side == CallSide::Enter);
        let code = &mut self.code;
        let few = code.label();
        code.load(D, 1, 10, COUNT).jump_if(JEQ, 1, 0, send);
        code.jump_if(JGT, 1, MAX_PIECES as i32, few);
        let counted = code.label();
        code.jump(counted);
        code.place(few);
        code.set(1, MAX_PIECES as i32);
        code.place(counted);
        code.store(D, 10, COUNT, 1).shift_left(1, 4).store(D, 10, SIZE, 1);
        code.store(D, 10, VECTOR, LENGTH);
        self.piece(tag, false, retries);
        // Where it could not be read its room still has what was there.
        self.read_piece(1, 0);
        self.code.shift_right(1, 32).jump_if(JGT, 1, MAX_PIECES as i32 * 16, send);
        for piece in 0..MAX_PIECES {
            let at = 8 + 16 * piece as i16;
            let code = &mut self.code;
            code.load(D, 1, 10, COUNT).jump_if(JEQ, 1, 0, send).add(1, -1).store(D, 10, COUNT, 1);
            self.read_piece(KEPT, at);
            self.read_piece(1, at + 8);
            self.code.load(D, 2, 10, LIMIT);
            let least = self.code.label();
            self.code.jump_if_register(JGE | X, 2, 1, least).copy(1, 2);
            self.code.place(least);
            self.code.store(D, 10, SIZE, 1);
            self.piece(tag | (1 + piece), false, retries);
        }
    }

    /// Texts of an array. After execve(2) they lie on the new program's stack.
    fn texts(&mut self, tag: u32) {
        let send = self.send;
        if self.side == CallSide::Exit {
            let (old, failed) = (self.code.label(), self.registers.execve);
            self.code.load(D, 1, 10, NUMBER).jump_if(JNE, 1, failed, old);
            self.code.load(D, 1, 10, RETURNED).jump_if(JNE, 1, 0, old);
            self.code.load(D, KEPT, 10, STACK).add(KEPT, 8);
            self.code.place(old);
        }
        self.code.jump_if(JEQ, KEPT, 0, send).store(D, 10, VECTOR, KEPT);
        for text in 0..MAX_TEXTS {
            let code = &mut self.code;
            let there = code.label();
            code.load(D, 3, 10, VECTOR).add(3, 8 * text as i32).store_number(D, COUNT, 0);
            code.frame(1, COUNT).set(2, 8).call(READ_USER).jump_if(JEQ, 0, 0, there);
            // Its address cannot be read: a piece that says so.
            code.set(KEPT, 0).store_number(D, SIZE, 8);
            self.piece(tag | text, true, self.side == CallSide::Enter);
            self.code.jump(send);
            self.code.place(there);
            self.code.load(D, KEPT, 10, COUNT).jump_if(JEQ, KEPT, 0, send);
            self.code.load(D, 1, 10, LIMIT).store(D, 10, SIZE, 1);
            self.piece(tag | text, true, self.side == CallSide::Enter);
        }
    }

    fn finish(mut self) -> Vec<BpfInstruction> {
        let (end, maps) = (self.end, self.maps);
        let code = &mut self.code;
        code.place(self.send);
        let has_pieces = code.label();
        code.jump_if(JNE, LENGTH, CALL_HEADER as i32, has_pieces);
        match self.side {
            CallSide::Enter => code.load(D, 1, 10, ABI).jump_if(JEQ, 1, 0, end),
            CallSide::Exit => code.jump(end),
        };
        code.place(has_pieces);
        code.map(1, maps.ring).copy(2, RECORD).copy(3, LENGTH).set(4, NO_WAKEUP);
        // Where it has no room the texts are shown as addresses, which are counted.
        code.call(RING_OUTPUT);
        code.place(end);
        self.code.finish()
    }
}

/// A place that is jumped to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Label(usize);

/// Writes instructions, with jumps to places that come later.
#[derive(Default)]
struct Assembler {
    code: Vec<BpfInstruction>,
    labels: Vec<usize>,
    /// Jumps and where they go.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn label(&mut self) -> Label {
        self.labels.push(0);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = here;
        }
    }

    fn add_code(&mut self, code: u8, (dst, src): (u8, u8), off: i16, imm: i32) -> &mut Assembler {
        self.code.push(BpfInstruction { code, dst, src, off, imm });
        self
    }

    fn copy(&mut self, to: u8, from: u8) -> &mut Assembler {
        self.add_code(0xbf, (to, from), 0, 0)
    }

    fn set(&mut self, to: u8, number: i32) -> &mut Assembler {
        self.add_code(0xb7, (to, 0), 0, number)
    }

    fn add(&mut self, to: u8, number: i32) -> &mut Assembler {
        self.add_code(0x07, (to, 0), 0, number)
    }

    fn add_register(&mut self, to: u8, from: u8) -> &mut Assembler {
        self.add_code(0x0f, (to, from), 0, 0)
    }

    fn and(&mut self, to: u8, number: i32) -> &mut Assembler {
        self.add_code(0x57, (to, 0), 0, number)
    }

    fn or(&mut self, to: u8, number: i32) -> &mut Assembler {
        self.add_code(0x47, (to, 0), 0, number)
    }

    fn shift_left(&mut self, to: u8, number: i32) -> &mut Assembler {
        self.add_code(0x67, (to, 0), 0, number)
    }

    fn shift_right(&mut self, to: u8, number: i32) -> &mut Assembler {
        self.add_code(0x77, (to, 0), 0, number)
    }

    fn load(&mut self, size: u8, to: u8, base: u8, off: i16) -> &mut Assembler {
        self.add_code(0x61 | size, (to, base), off, 0)
    }

    fn store(&mut self, size: u8, base: u8, off: i16, from: u8) -> &mut Assembler {
        self.add_code(0x63 | size, (base, from), off, 0)
    }

    /// A number into the frame.
    fn store_number(&mut self, size: u8, off: i16, number: i32) -> &mut Assembler {
        self.add_code(0x62 | size, (10, 0), off, number)
    }

    /// An address in the frame.
    fn frame(&mut self, to: u8, off: i16) -> &mut Assembler {
        self.copy(to, 10).add(to, i32::from(off))
    }

    fn map(&mut self, to: u8, fd: i32) -> &mut Assembler {
        self.add_code(0x18, (to, 1), 0, fd).add_code(0, (0, 0), 0, 0)
    }

    fn call(&mut self, helper: i32) -> &mut Assembler {
        self.add_code(0x85, (0, 0), 0, helper)
    }

    fn jump(&mut self, label: Label) -> &mut Assembler {
        self.jumps.push((self.code.len(), label));
        self.add_code(0x05, (0, 0), 0, 0)
    }

    fn jump_if(&mut self, compare: u8, left: u8, number: i32, label: Label) -> &mut Assembler {
        self.jumps.push((self.code.len(), label));
        self.add_code(compare, (left, 0), 0, number)
    }

    fn jump_if_register(&mut self, code: u8, left: u8, right: u8, to: Label) -> &mut Assembler {
        self.jumps.push((self.code.len(), to));
        self.add_code(code, (left, right), 0, 0)
    }

    /// Ends the program and gives its instructions.
    fn finish(mut self) -> Vec<BpfInstruction> {
        self.set(0, 0).add_code(0x95, (0, 0), 0, 0);
        for (at, label) in &self.jumps {
            let to = self.labels.get(label.0).copied().unwrap_or_default();
            if let Some(jump) = self.code.get_mut(*at) {
                jump.off = (to as i64 - *at as i64 - 1) as i16;
            }
        }
        self.code
    }
}
