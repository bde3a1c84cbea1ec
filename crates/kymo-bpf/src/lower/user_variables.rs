//! Variables of programs by their debugging information: out of registers and user memory.

use super::builder::{MemoryPlace, helper};
use super::types::{AddressSpace, Type};
use super::{Lowered, Lowering, Value, ValueHome};
use crate::code::{CompareOperation, ComputeOperation, Instruction, Operand, Register};
use crate::facts::{ArgumentPlace, CType};
use crate::lexer::error_at;
use crate::object::{AttachPoint, AttachTarget, ErrorKind};

/// The largest value that is put together out of several registers.
const MOST_PIECES: u32 = 256;
const WORD: CType = CType::Integer { size: 8, signed: false, is_char: false };

impl Lowering<'_> {
    /// `args.name` in a probe of a program.
    pub(super) fn user_variable(&mut self, name: &str) -> Lowered<Value> {
        let point = self.point.clone();
        if matches!(point.target, AttachTarget::Uprobe { at_return: true, .. }) {
            return self
                .error("variables no longer exist after a function has returned; use retval");
        }
        let found = match self.facts.variable(&point, name) {
            Ok(found) => found,
            Err(what) => return self.error(format!("{}: {what}", point.name)),
        };
        self.program.moved = Some(found.address);
        self.load_argument(&found.argument)
    }

    /// Puts a probe where the variables that it reads are in place.
    pub(super) fn move_point(&self, point: &mut AttachPoint) -> Lowered<()> {
        let Some(to) = self.program.moved else { return Ok(()) };
        let AttachTarget::Uprobe { address, offset, .. } = &mut point.target else {
            return Ok(());
        };
        if let Some(position) = self.program.entry_argument {
            let what = "argN is valid at a function's entry, args.NAME after it";
            let mut message = error_at(position, what);
            message.hint = Some("use one of them in a probe".into());
            return Err(message);
        }
        if let Some((_, position)) = self.program.probed.filter(|(probed, _)| *probed != to) {
            return Err(error_at(
                position,
                "uaddr() before args.NAME is not supported: call it after",
            ));
        }
        (*address, *offset) = (Some(to), 0);
        Ok(())
    }

    /// The value of a type at a place that is computed.
    pub(super) fn load_computed(&mut self, place: &ArgumentPlace, ctype: &CType) -> Lowered<Value> {
        let size = self.types.size(ctype).max(1);
        match place {
            ArgumentPlace::Computed { is_address: true, .. } => {
                let address = self.computed_word(place)?;
                self.load_c(ValueHome::Remote(address, 0, AddressSpace::User), ctype, None)
            }
            ArgumentPlace::Computed { .. } if size <= 8 => {
                let room = self.room(8);
                let word = self.computed_word(place)?;
                self.store(room, 8, Operand::Register(word));
                self.load_c(ValueHome::Memory(room), ctype, None)
            }
            ArgumentPlace::Pieces(pieces) if size <= MOST_PIECES => {
                let room = self.room(size);
                self.zero_memory(room, super::types::words(size));
                let mut at = 0u32;
                for (bytes, piece) in pieces {
                    if at.saturating_add(*bytes) > size {
                        break;
                    }
                    self.load_piece(piece, room.at(at), *bytes)?;
                    at += bytes;
                }
                self.load_c(ValueHome::Memory(room), ctype, None)
            }
            _ => self.error(format!("cannot read a value of {size} bytes from registers")),
        }
    }

    fn load_piece(&mut self, piece: &ArgumentPlace, to: MemoryPlace, bytes: u32) -> Lowered<()> {
        match piece {
            ArgumentPlace::Constant(value) if [1, 2, 4, 8].contains(&bytes) => {
                let value = self.constant(*value);
                self.store(to, bytes as u8, value);
            }
            ArgumentPlace::Computed { is_address: true, .. } => {
                let address = self.computed_word(piece)?;
                self.probe_read(to, bytes, Operand::Register(address), AddressSpace::User);
            }
            ArgumentPlace::Computed { .. } if [1, 2, 4, 8].contains(&bytes) => {
                let word = self.computed_word(piece)?;
                self.store(to, bytes as u8, Operand::Register(word));
            }
            _ => return self.error(format!("cannot read a part of {bytes} bytes here")),
        }
        Ok(())
    }

    fn computed_word(&mut self, place: &ArgumentPlace) -> Lowered<Register> {
        let ArgumentPlace::Computed { register, reads, add, .. } = place else {
            return self.error("variable has no location");
        };
        let mut word = self.register_named(register)?;
        for offset in reads {
            let offset = self.constant(*offset);
            let address = self.computed(ComputeOperation::Add, Operand::Register(word), offset);
            let room = self.room(8);
            self.probe_read(room, 8, Operand::Register(address), AddressSpace::User);
            word = self.load(room, 8);
        }
        if *add == 0 {
            return Ok(word);
        }
        let add = self.constant(*add);
        Ok(self.computed(ComputeOperation::Add, Operand::Register(word), add))
    }

    /// A text by the pointer and the length that it holds.
    pub(super) fn load_text(&mut self, home: ValueHome, data: u32, length: u32) -> Lowered<Value> {
        let part = |home: &ValueHome, offset: u32| match home {
            ValueHome::Remote(address, at, space) => {
                ValueHome::Remote(*address, at + offset, *space)
            }
            ValueHome::Memory(place) => ValueHome::Memory(place.at(offset)),
            other => other.clone(),
        };
        let pointer = self.load_c(part(&home, data), &WORD, None)?;
        let pointer = self.operand(&pointer)?;
        let length = self.load_c(part(&home, length), &WORD, None)?;
        let length = self.operand(&length)?;
        let length = self.copy_of(length);
        let size = self.max_text();
        let fits = self.label();
        let most = Operand::Immediate(size as i32 - 1);
        self.branch(CompareOperation::LessEqual, length, most, fits);
        self.count_error(ErrorKind::TextCut);
        self.emit(Instruction::Move(length, most));
        self.place_label(fits);
        let place = self.room(size);
        self.zero_memory(place, super::types::words(size));
        let to = self.address(place);
        let read = self.call(helper::PROBE_READ_USER, vec![to, Operand::Register(length), pointer]);
        self.count_if_negative(read, ErrorKind::ReadFailed);
        Ok(Value::memory(Type::Text(size), place))
    }
}
