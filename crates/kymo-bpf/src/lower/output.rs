//! Output: `printf`, `print` and other actions of user space, as records of the ring.

use super::builder::{MemoryPlace, helper};
use super::types::{Type, words};
use super::{Lowered, Lowering, ServiceMap, Value, ValueHome};
use crate::ast::{Expression, ExpressionKind};
use crate::code::{CompareOperation, ComputeOperation, Instruction, Operand, Register};
use crate::facts::CType;
use crate::object::{
    ActionKind, ErrorKind, FormatConversion, FormatPiece, FormatText, RingAction, TypedField,
    ValueType,
};
use crate::watchpoints::WATCH;

/// `BPF_RB_NO_WAKEUP`: the reader polls.
const NO_WAKEUP: i32 = 1;
const SIGSTOP: i32 = 19;
/// The largest record.
const MAX_RECORD: u32 = 24 << 10;
/// Room before a text that ends a record.
const TAIL_GAP: u32 = 256;

/// Place of a text that was read, and its length or an error.
pub(super) type TextRead = (MemoryPlace, Register);

/// A text that is the end of a record where it lies.
struct RecordTail {
    field: usize,
    place: MemoryPlace,
    length: Register,
}

/// Arguments and bytes of each that `join` takes.
const JOIN_COUNT: u32 = 16;
const JOIN_SIZE: u32 = 1024;

impl Lowering<'_> {
    pub(crate) fn call_output(
        &mut self,
        name: &str,
        arguments: &[Expression],
    ) -> Lowered<Option<Value>> {
        match name {
            "printf" | "system" | "cat" | "errorf" | "warnf" | "debugf" => {
                let Some(format) = arguments.first() else {
                    return self.error(format!("{name}() takes a format"));
                };
                let text = self.literal_of(format, &format!("format of {name}()"))?;
                let format = self.parse_format(&text, arguments.len() - 1)?;
                if name == "system" {
                    self.need_unsafe(name);
                }
                let mut values = Vec::new();
                let mut tail = None;
                let text_at = self.only_text(&arguments[1..]).filter(|_| name != "debugf");
                for (n, argument) in arguments[1..].iter().enumerate() {
                    let value = if text_at == Some(n) {
                        let (value, read) = self.tail_text(argument)?;
                        tail = read.map(|(place, length)| RecordTail { field: n, place, length });
                        value
                    } else {
                        self.value(argument)?
                    };
                    values.push(self.settle(value)?);
                }
                self.check_format(&format, &values)?;
                if name == "debugf" {
                    self.debug_print(&format, values)?;
                    return Ok(Some(Value::none()));
                }
                let kind = match name {
                    "printf" => ActionKind::Printf(format),
                    "system" => ActionKind::System(format),
                    "cat" => ActionKind::Cat(format),
                    "errorf" => ActionKind::PrintDiagnostic { severity: "ERROR", format },
                    _ => ActionKind::PrintDiagnostic { severity: "WARNING", format },
                };
                self.send_with(kind, &values, tail)?;
            }
            "print" => self.print(arguments)?,
            "clear" | "zero" => {
                self.takes(name, arguments, 1, 1)?;
                let ExpressionKind::Map(map, key) = &*arguments[0].kind else {
                    return self.error(format!("{name}() takes a map"));
                };
                if !key.is_empty() {
                    return self.error(format!("{name}() takes a map without key"));
                }
                let map = self.map_of(map, None)? as usize;
                let kind = match name {
                    "clear" => ActionKind::ClearMap { map },
                    _ => ActionKind::ZeroMap { map },
                };
                self.send(kind, &[])?;
            }
            "time" => {
                self.takes(name, arguments, 0, 1)?;
                let format = match arguments.first() {
                    Some(format) => self.literal_of(format, "format of time()")?,
                    None => "%H:%M:%S\n".into(),
                };
                self.send(ActionKind::Time { format }, &[])?;
            }
            "exit" => {
                self.takes(name, arguments, 0, 1)?;
                let mut values = Vec::new();
                let mut status = Operand::Immediate(0);
                if let Some(code) = arguments.first() {
                    let code = self.scalar(code)?;
                    status = self.operand(&code)?;
                    values.push(code);
                }
                self.set_exit_flag(status);
                self.send(ActionKind::Exit, &values)?;
                // What follows is not run.
                self.leave();
            }
            "assert" => {
                self.takes(name, arguments, 1, 2)?;
                let end = self.label();
                self.jump_if(&arguments[0], true, end)?;
                let text = match arguments.get(1) {
                    Some(text) => {
                        format!("assert failed: {}", self.literal_of(text, "message of assert()")?)
                    }
                    None => "assert failed".into(),
                };
                let pieces = vec![FormatPiece::Literal(text)];
                let format = FormatText { pieces };
                self.send(ActionKind::PrintDiagnostic { severity: "ERROR", format }, &[])?;
                self.set_exit_flag(Operand::Immediate(1));
                self.send(ActionKind::Exit, &[Value::constant(1)])?;
                self.leave();
                self.place_label(end);
            }
            "fail" => {
                let text = self.failure(arguments)?;
                return self.error(text);
            }
            "join" => {
                self.takes(name, arguments, 1, 2)?;
                self.join_call(arguments)?;
            }
            "unwatch" => {
                self.takes(name, arguments, 1, 1)?;
                let address = self.scalar(&arguments[0])?;
                self.send(ActionKind::Unwatch, &[address])?;
            }
            WATCH => self.watch(arguments)?,
            _ => return Ok(None),
        }
        Ok(Some(Value::none()))
    }

    /// Text of `fail()`, whose arguments are known now.
    fn failure(&mut self, arguments: &[Expression]) -> Lowered<String> {
        let Some((format, values)) = arguments.split_first() else { return Ok("fail()".into()) };
        let format = self.literal_of(format, "format of fail()")?;
        let pieces = self.parse_format(&format, values.len())?.pieces;
        let (mut text, mut values) = (String::new(), values.iter());
        for piece in &pieces {
            let value = match piece {
                FormatPiece::Literal(literal) => {
                    text.push_str(literal);
                    continue;
                }
                FormatPiece::Conversion(_) => values.next(),
            };
            let Some(value) = value else { continue };
            match self.value(value)?.home {
                ValueHome::Literal(literal) => text.push_str(&literal),
                ValueHome::Constant(number) => text.push_str(&number.to_string()),
                _ => return self.error("arguments of fail() must be literals"),
            }
        }
        Ok(text)
    }

    /// Sends the address that a watchpoint is for, and stops the process until it is watched.
    fn watch(&mut self, arguments: &[Expression]) -> Lowered<()> {
        let [point, address, is_asynchronous] = arguments else { return Ok(()) };
        let point = self.literal_of(point, "name")?;
        let address = self.scalar(address)?;
        let pid = self.builtin("pid")?.unwrap_or_else(Value::none);
        let sent = self.send_with(ActionKind::Watch { point }, &[address, pid], None)?;
        if self.constant_of(is_asynchronous, "kind")? == 0 {
            // It would not continue if the record did not fit.
            let end = self.label();
            self.branch(CompareOperation::SignedLess, sent, Operand::Immediate(0), end);
            let stopped = self.call(helper::SEND_SIGNAL, vec![Operand::Immediate(SIGSTOP)]);
            self.count_if_negative(stopped, ErrorKind::HelperFailed("send_signal"));
            self.place_label(end);
        }
        Ok(())
    }

    fn print(&mut self, arguments: &[Expression]) -> Lowered<()> {
        self.takes("print", arguments, 1, 3)?;
        let mut limits = [0u32; 2];
        for (limit, argument) in limits.iter_mut().zip(&arguments[1..]) {
            let value = self.constant_of(argument, "argument of print()")?;
            *limit = match u32::try_from(value) {
                Ok(value) => value,
                Err(_) => return self.error("limits of print() must be non-negative numbers"),
            };
        }
        let [top, div] = limits;
        if let ExpressionKind::Map(map, key) = &*arguments[0].kind {
            if key.is_empty() {
                let number = self.map_of(map, None)?;
                let takes = self.print_takes && !self.options.in_user_space;
                if takes && !std::mem::replace(&mut self.user_map(number).is_taken, true) {
                    self.changed = true;
                }
                let map = number as usize;
                return self.send(ActionKind::PrintMap { map, top, div, takes }, &[]);
            }
            let number = self.map_of(map, Some(true))?;
            if let Type::Aggregate(_) = self.user_map(number).value {
                let place = self.key_place(number, key)?;
                let ty = self.user_map(number).key.clone();
                let value = if ty.is_scalar() {
                    let register = self.load(place, 8);
                    Value::register(ty, register)
                } else {
                    Value::memory(ty, place)
                };
                let kind = ActionKind::PrintMapEntry { map: number as usize, div };
                return self.send(kind, &[value]);
            }
        }
        if arguments.len() > 1 {
            return self.error("only maps can be printed with limits");
        }
        let value = self.value(&arguments[0])?;
        let value = self.settle(value)?;
        match value.ty {
            Type::Nothing => self.error("an expression without a value cannot be printed"),
            _ => self.send(ActionKind::PrintValue, &[value]),
        }
    }

    /// The only argument that is `str(…)`: it can be the end of the record.
    fn only_text(&self, arguments: &[Expression]) -> Option<usize> {
        let is_text = |e: &Expression| matches!(&*e.kind, ExpressionKind::Call(n, _) if n == "str");
        let mut texts = arguments.iter().enumerate().filter(|(_, e)| is_text(e)).map(|(n, _)| n);
        let first = texts.next()?;
        (texts.next().is_none() && !self.tree.macros.contains_key("str")).then_some(first)
    }

    /// Reads a text to where a record can end with it: with room before it for the rest of
    /// the record, not padded. Gives its place and length, if it came out like that.
    fn tail_text(&mut self, argument: &Expression) -> Lowered<(Value, Option<TextRead>)> {
        let gap = self.room(TAIL_GAP);
        self.text_read = None;
        self.text_unpadded = true;
        let value = self.value(argument);
        self.text_unpadded = false;
        let value = value?;
        let read = self.text_read.take().filter(|(place, _)| {
            matches!(value.home, ValueHome::Memory(at) if at == *place)
                && *place == gap.at(TAIL_GAP)
        });
        Ok((value, read))
    }

    fn send(&mut self, kind: ActionKind, values: &[Value]) -> Lowered<()> {
        self.send_with(kind, values, None).map(|_| ())
    }

    /// Sends a record: the action's number, then the values; a text that is its end last. Gives
    /// what the ring says.
    fn send_with(
        &mut self,
        kind: ActionKind,
        values: &[Value],
        tail: Option<RecordTail>,
    ) -> Lowered<Register> {
        let sizes: Vec<u32> = values.iter().map(|v| self.types.storage(&v.ty)).collect();
        let last = tail.as_ref().map(|t| t.field);
        let head: u32 = 8 + sizes
            .iter()
            .enumerate()
            .filter(|(n, _)| Some(*n) != last)
            .map(|(_, s)| s)
            .sum::<u32>();
        let tail = tail.filter(|_| head <= TAIL_GAP);
        let last = tail.as_ref().map(|t| t.field);
        let mut fields = Vec::new();
        let mut size = 8;
        for (n, (value, bytes)) in values.iter().zip(&sizes).enumerate() {
            let value_type = self.types.value_type(&value.ty);
            let offset = if Some(n) == last { head } else { size };
            size += if Some(n) == last { 0 } else { *bytes };
            let name = String::new();
            fields.push(TypedField { name, offset, size: *bytes, bits: None, value_type });
        }
        size += last.map_or(0, |n| sizes[n]);
        if size > MAX_RECORD {
            return self.error(format!("record of {size} bytes; the limit is {MAX_RECORD}"));
        }
        let offsets: Vec<u32> = fields.iter().map(|f| f.offset).collect();
        let action = RingAction { kind, size, fields, position: self.position };
        let number = self.action_number(action);
        let place = match &tail {
            Some(tail) => MemoryPlace { offset: tail.place.offset - head as i32, ..tail.place },
            None => self.room(size),
        };
        self.store(place, 8, Operand::Immediate(number as i32));
        for (n, (value, offset)) in values.iter().zip(offsets).enumerate() {
            if Some(n) != last {
                self.store_value(value, place.at(offset), &value.ty.clone())?;
            }
        }
        match tail {
            Some(tail) => {
                let bytes = self.tail_size(&tail, head, size - head);
                Ok(self.output(place, Operand::Register(bytes)))
            }
            None => Ok(self.output(place, Operand::Immediate(size as i32))),
        }
    }

    /// Bytes of a record that ends with a text. Of a failed read the memory is zero.
    fn tail_size(&mut self, tail: &RecordTail, head: u32, most: u32) -> Register {
        let bytes = self.copy_of(Operand::Register(tail.length));
        let (read, fits) = (self.label(), self.label());
        self.branch(CompareOperation::SignedGreaterEqual, bytes, Operand::Immediate(0), read);
        self.emit(Instruction::Move(bytes, Operand::Immediate(1)));
        self.place_label(read);
        let most = Operand::Immediate(most as i32);
        self.branch(CompareOperation::LessEqual, bytes, most, fits);
        self.emit(Instruction::Move(bytes, most));
        self.place_label(fits);
        self.compute(ComputeOperation::Add, bytes, Operand::Immediate(head as i32));
        bytes
    }

    pub(super) fn action_number(&mut self, action: RingAction) -> usize {
        match self.actions.iter().position(|a| *a == action) {
            Some(at) => at,
            None => {
                self.actions.push(action);
                self.actions.len() - 1
            }
        }
    }

    fn output(&mut self, place: MemoryPlace, size: Operand) -> Register {
        let ring = self.service_map(ServiceMap::Ring);
        let map = self.map_reference(ring);
        let data = self.address(place);
        let flags = Operand::Immediate(NO_WAKEUP);
        let result = self.call(helper::RING_OUTPUT, vec![map, data, size, flags]);
        self.count_if_negative(result, ErrorKind::RingFull);
        result
    }

    /// `join(argv)`: the texts that an array of pointers names.
    fn join_call(&mut self, arguments: &[Expression]) -> Lowered<()> {
        let separator = match arguments.get(1) {
            Some(text) => self.literal_of(text, "separator of join()")?,
            None => " ".into(),
        };
        let value = self.value(&arguments[0])?;
        let space = match &value.ty {
            Type::Pointer { space, .. } => *space,
            _ => self.default_space(),
        };
        let value = self.as_scalar(value)?;
        let operand = self.operand(&value)?;
        let list = self.copy_of(operand);
        let size = JOIN_COUNT * JOIN_SIZE;
        let value_type = ValueType::Array {
            element: Box::new(ValueType::Text { size: JOIN_SIZE }),
            element_size: JOIN_SIZE,
            count: JOIN_COUNT,
        };
        let field = TypedField { name: String::new(), offset: 8, size, bits: None, value_type };
        let action = RingAction {
            kind: ActionKind::Join { separator },
            size: size + 8,
            fields: vec![field],
            position: self.position,
        };
        let number = self.action_number(action);
        let place = self.room(size + 8);
        let pointer = self.room(8);
        self.store(place, 8, Operand::Immediate(number as i32));
        let (end, sent) = (self.label(), self.label());
        for n in 0..JOIN_COUNT {
            let text = place.at(8 + n * JOIN_SIZE);
            // An empty text ends the list.
            self.store(text, 1, Operand::Immediate(0));
            let from = self.computed(
                ComputeOperation::Add,
                Operand::Register(list),
                Operand::Immediate(n as i32 * 8),
            );
            self.probe_read(pointer, 8, Operand::Register(from), space);
            let address = self.load(pointer, 8);
            self.branch(CompareOperation::Equal, address, Operand::Immediate(0), end);
            let size = Operand::Immediate(JOIN_SIZE as i32);
            let address = Operand::Register(address);
            let read = self.probe_read_text(text, size, address, space);
            let mark = self.mark();
            self.mark_cut(text, JOIN_SIZE, read, (address, space), "");
            self.release(mark);
        }
        self.place_label(end);
        self.output(place, Operand::Immediate(size as i32 + 8));
        self.place_label(sent);
        Ok(())
    }

    /// Reads a format and checks the number of its conversions.
    fn parse_format(&mut self, text: &str, arguments: usize) -> Lowered<FormatText> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut wanted = 0;
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                literal.push(c);
                continue;
            }
            if rest.next_if_eq(&'%').is_some() {
                literal.push('%');
                continue;
            }
            let mut conversion = FormatConversion {
                left: false,
                zero: false,
                alternate: false,
                plus: false,
                space: false,
                width: None,
                width_from_field: false,
                precision: None,
                precision_from_field: false,
                length: String::new(),
                letter: ' ',
            };
            while let Some(flag) = rest.next_if(|c| "-0#+ ".contains(*c)) {
                match flag {
                    '-' => conversion.left = true,
                    '0' => conversion.zero = true,
                    '#' => conversion.alternate = true,
                    '+' => conversion.plus = true,
                    _ => conversion.space = true,
                }
            }
            conversion.width = format_number(&mut rest, &mut conversion.width_from_field, None);
            wanted += usize::from(conversion.width_from_field);
            if rest.next_if_eq(&'.').is_some() {
                let from_field = &mut conversion.precision_from_field;
                conversion.precision = format_number(&mut rest, from_field, Some(0));
                wanted += usize::from(conversion.precision_from_field);
            }
            while let Some(length) = rest.next_if(|c| "hlLqjzt".contains(*c)) {
                conversion.length.push(length);
            }
            let Some(letter) = rest.next() else {
                return self.error("format ends with an incomplete conversion");
            };
            match letter {
                'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' | 'p' | 's' | 'b' => {
                    conversion.letter = letter;
                }
                'r' => {
                    conversion.letter = 'r';
                    if let Some(form) = rest.next_if(|c| "xh".contains(*c)) {
                        conversion.length = form.to_string();
                    }
                }
                // `%gr`: flags of an allocation.
                'g' if rest.next_if_eq(&'r').is_some() => conversion.letter = 'g',
                other => return self.error(format!("unknown conversion %{other}")),
            }
            wanted += 1;
            if !literal.is_empty() {
                pieces.push(FormatPiece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(FormatPiece::Conversion(conversion));
        }
        if !literal.is_empty() {
            pieces.push(FormatPiece::Literal(literal));
        }
        if wanted != arguments {
            return self.error(format!("format needs {wanted} arguments, got {arguments}"));
        }
        Ok(FormatText { pieces })
    }

    /// Refuses arguments that their conversion cannot show.
    fn check_format(&mut self, format: &FormatText, values: &[Value]) -> Lowered<()> {
        let mut values = values.iter();
        for piece in &format.pieces {
            let FormatPiece::Conversion(conversion) = piece else { continue };
            let stars = usize::from(conversion.width_from_field)
                + usize::from(conversion.precision_from_field);
            let Some(value) = values.by_ref().nth(stars) else { return Ok(()) };
            let number = value.ty.is_scalar() && !matches!(value.ty, Type::Nothing);
            let fits = match conversion.letter {
                _ if value.ty == Type::Unknown => true,
                's' => !matches!(value.ty, Type::Nothing | Type::Arguments | Type::Record(_)),
                'r' => {
                    matches!(
                        value.ty,
                        Type::Buffer(_)
                            | Type::Text(_)
                            | Type::Array { element: CType::Integer { .. }, .. }
                    ) || number
                }
                _ => number,
            };
            if !fits {
                let (letter, has) = (conversion.letter, value.ty.name());
                return self.error(format!("%{letter} cannot show {has}"));
            }
        }
        debug_assert!(words(8) == 8);
        Ok(())
    }
}

/// A width or precision; `*` takes it from a field.
fn format_number(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    from_field: &mut bool,
    absent: Option<u32>,
) -> Option<u32> {
    if rest.next_if_eq(&'*').is_some() {
        *from_field = true;
        return None;
    }
    let mut value = absent;
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        let digit = digit.to_digit(10).unwrap_or(0);
        value = Some((value.unwrap_or(0) * 10 + digit).min(4096));
    }
    value
}
