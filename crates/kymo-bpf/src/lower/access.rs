//! Members, elements, pointers, and the arguments of probes.

use kymo_format::{Field, FieldKind};

use super::builder::{MemoryPlace, helper};
use super::records::{MemberPlace, value_of_ctype};
use super::types::{AddressSpace, I64, Type, U64, words};
use super::{Lowered, Lowering, Value, ValueHome};
use crate::ast::{BinaryOperator, Expression, ExpressionKind};
use crate::code::{
    AddressBase, CompareOperation, ComputeOperation, Instruction, Operand, Register,
};
use crate::facts::{ArgumentPlace, CType, FunctionArgument};
use crate::lexer::error_at;
use crate::object::{AttachTarget, ErrorKind};

/// Registers of `struct pt_regs` by name and offset.
const X86_REGISTERS: &[(&str, i32)] = &[
    ("r15", 0),
    ("r14", 8),
    ("r13", 16),
    ("r12", 24),
    ("bp", 32),
    ("bx", 40),
    ("r11", 48),
    ("r10", 56),
    ("r9", 64),
    ("r8", 72),
    ("ax", 80),
    ("cx", 88),
    ("dx", 96),
    ("si", 104),
    ("di", 112),
    ("orig_ax", 120),
    ("ip", 128),
    ("cs", 136),
    ("flags", 144),
    ("sp", 152),
    ("ss", 160),
];

/// An index that leads out of the addresses of processes, of elements of up to 64 KiB.
const NO_ELEMENT: u64 = 1 << 47;

impl Lowering<'_> {
    pub(crate) fn no_member<T>(&self, id: u32, name: &str) -> Lowered<T> {
        let layout = self.types.layout(id);
        let record = layout.map_or(String::new(), |l| l.name.clone());
        let close = closest(name, self.types.member_names(id));
        let text = format!("struct {record} has no member {name:?}");
        let mut message = error_at(self.position, text);
        message.hint = close.map(|c| format!("there is {c:?}"));
        Err(message)
    }

    /// `value.name`, `value->name`
    pub(crate) fn field(&mut self, inner: &Expression, name: &str) -> Lowered<Value> {
        if let ExpressionKind::Call(call, arguments) = &*inner.kind
            && let Some(value) = self.call_member(call, arguments, name)?
        {
            return Ok(value);
        }
        if let ExpressionKind::Name(call) = &*inner.kind
            && call == "__builtin_config"
            && let Some(value) = self.call_member("config", &[], name)?
        {
            return Ok(value);
        }
        let value = self.value(inner)?;
        if value.ty == Type::Arguments {
            return self.argument_named(name);
        }
        if let Type::Tuple(..) = &value.ty {
            return self.part(value, name);
        }
        let value = self.pointed(value)?;
        match value.ty {
            Type::Record(id) => {
                let Some(member) = self.types.member(id, name) else {
                    return self.no_member(id, name);
                };
                self.member(value, &member)
            }
            Type::Unknown => Ok(Value { ty: Type::Unknown, home: ValueHome::Constant(0) }),
            other => {
                let mut message = error_at(
                    self.position,
                    format!("{} has no members, hence no {name:?}", other.name()),
                );
                message.hint = Some("cast it to a pointer: `((struct NAME *)value).member`".into());
                Err(message)
            }
        }
    }

    /// `typeinfo(x).full_type`, `config().max_strlen`: what is known now.
    fn call_member(
        &mut self,
        call: &str,
        arguments: &[Expression],
        name: &str,
    ) -> Lowered<Option<Value>> {
        if self.tree.macros.contains_key(call) {
            return Ok(None);
        }
        Ok(match (call, arguments, name) {
            ("typeinfo", [of], "full_type" | "base_type") => {
                let of = self.value(of)?;
                let of = self.settle(of)?.ty.name();
                let base = of.split(['[', '(']).next().unwrap_or_default();
                let base = base.trim_end_matches(|c: char| c.is_ascii_digit());
                let base = base.strip_prefix('u').filter(|b| *b == "int").unwrap_or(base);
                Some(Value::literal(if name == "full_type" { &of } else { base }))
            }
            ("config", [], _) => {
                if !super::finish::is_setting(name) {
                    return self.error(super::finish::unknown_setting(name));
                }
                let usual = super::finish::usual_setting(name);
                let text = self.config.get(name).cloned().unwrap_or_else(|| usual.to_owned());
                if text.is_empty() {
                    return self.error(format!("{name} is not set"));
                }
                Some(match text.parse::<i64>() {
                    Ok(number) => Value::constant(number),
                    Err(_) => Value::literal(&text),
                })
            }
            _ => None,
        })
    }

    /// A part of a tuple, by number or by name.
    fn part(&mut self, value: Value, name: &str) -> Lowered<Value> {
        let Type::Tuple(parts, names) = &value.ty else { return self.error("not a tuple") };
        let index = if names.is_empty() {
            name.parse::<usize>().ok().filter(|i| *i < parts.len())
        } else {
            names.iter().position(|n| n == name)
        };
        let Some(index) = index else {
            let has = if names.is_empty() { String::new() } else { names.join(", ") };
            let mut message = error_at(
                self.position,
                format!("tuple of {} elements has no element {name}", parts.len()),
            );
            message.hint = (!has.is_empty()).then(|| format!("it has {has}"));
            return Err(message);
        };
        let ValueHome::Memory(place) = value.home else { return self.error("not a tuple") };
        let offset: u32 = parts[..index].iter().map(|p| self.types.storage(p)).sum();
        let part = Value::memory(parts[index].clone(), place.at(offset));
        if part.ty.is_scalar() {
            let register = self.load(place.at(offset), 8);
            return Ok(Value::register(part.ty, register));
        }
        Ok(part)
    }

    /// A pointer to a record as that record.
    fn pointed(&mut self, value: Value) -> Lowered<Value> {
        let Type::Pointer { target: CType::Record { id }, space } = value.ty else {
            return Ok(value);
        };
        let operand = self.operand(&value)?;
        let address = self.in_register(operand);
        Ok(Value { ty: Type::Record(id), home: ValueHome::Remote(address, 0, space) })
    }

    pub(super) fn member(&mut self, record: Value, member: &MemberPlace) -> Lowered<Value> {
        let home = match record.home {
            ValueHome::Remote(address, offset, space) => {
                ValueHome::Remote(address, offset + member.offset, space)
            }
            ValueHome::Memory(place) => ValueHome::Memory(place.at(member.offset)),
            other => other,
        };
        self.load_c(home, &member.ctype, member.bits)
    }

    /// The value of a C type somewhere: a number is read, an aggregate stays.
    pub(crate) fn load_c(
        &mut self,
        home: ValueHome,
        ctype: &CType,
        bits: Option<(u32, u32)>,
    ) -> Lowered<Value> {
        let space = match home {
            ValueHome::Remote(_, _, space) => space,
            // Memory of ours holds what a program has in registers.
            _ if matches!(self.point.target, AttachTarget::Uprobe { .. }) => AddressSpace::User,
            _ => AddressSpace::Either,
        };
        if let CType::Text { data, length, .. } = ctype {
            return self.load_text(home, *data, *length);
        }
        let ty = value_of_ctype(ctype, space);
        if !ty.is_scalar() {
            return Ok(Value { ty, home });
        }
        let size = self.types.size(ctype).clamp(1, 8);
        let place = match home {
            ValueHome::Memory(place) => place,
            ValueHome::Remote(address, offset, space) => {
                let place = self.room(8);
                let from =
                    MemoryPlace { base: AddressBase::Register(address), offset: offset as i32 };
                let from = self.address(from);
                self.probe_read(place, size, from, space);
                place
            }
            _ => return self.error("value cannot be read here"),
        };
        let register = self.load(place, size as u8);
        let signed = ty.is_signed();
        match bits {
            Some((first, count)) => {
                if first > 0 {
                    let first = Operand::Immediate(first as i32);
                    self.compute(ComputeOperation::ShiftRight, register, first);
                }
                self.extend(register, count, signed);
            }
            None if signed => self.extend(register, size * 8, true),
            None => {}
        }
        // References to texts are looked through.
        if let Type::Pointer { target: target @ CType::Text { .. }, space } = &ty {
            return self.load_c(ValueHome::Remote(register, 0, *space), target, None);
        }
        Ok(Value::register(ty, register))
    }

    /// `*value`
    pub(crate) fn dereference(&mut self, inner: &Expression) -> Lowered<Value> {
        if let ExpressionKind::AddressOf(of) = &*inner.kind {
            return self.value(of);
        }
        let value = self.value(inner)?;
        match value.ty.clone() {
            Type::Pointer { target, space } => {
                let operand = self.operand(&value)?;
                let address = self.in_register(operand);
                self.load_c(ValueHome::Remote(address, 0, space), &target, None)
            }
            Type::Unknown => Ok(value),
            Type::Integer { .. } => {
                let operand = self.operand(&value)?;
                let address = self.in_register(operand);
                let word = CType::Integer { size: 8, signed: false, is_char: false };
                let space = self.default_space();
                self.load_c(ValueHome::Remote(address, 0, space), &word, None)
            }
            other => self.error(format!("{} cannot be dereferenced", other.name())),
        }
    }

    /// `value[index]`
    pub(crate) fn index(&mut self, inner: &Expression, index: &Expression) -> Lowered<Value> {
        let value = self.value(inner)?;
        if let Type::Record(id) = value.ty
            && let Some((elements, place)) = self.elements_of(id, inner, index)
        {
            return self.index(&elements, &place);
        }
        let (element, count, value) = match value.ty.clone() {
            Type::Array { element, count } => (element, Some(count), value),
            Type::Text(size) => {
                let char_type = CType::Integer { size: 1, signed: true, is_char: true };
                let value = match value.home {
                    ValueHome::Literal(ref text) => {
                        let n = self.constant_of(index, "index of a literal")?;
                        let byte = usize::try_from(n).ok().and_then(|n| text.as_bytes().get(n));
                        return Ok(Value::constant(byte.copied().map_or(0, i64::from)));
                    }
                    _ => value,
                };
                (char_type, Some(size), value)
            }
            Type::Pointer { target, space } => {
                let operand = self.operand(&value)?;
                let address = self.in_register(operand);
                let home = ValueHome::Remote(address, 0, space);
                (target, None, Value { ty: Type::Unknown, home })
            }
            Type::Tuple(..) => {
                let n = self.constant_of(index, "index of a tuple")?;
                return self.part(value, &n.to_string());
            }
            Type::Unknown => return Ok(Value { ty: Type::Unknown, home: ValueHome::Constant(0) }),
            other => return self.error(format!("{} has no elements", other.name())),
        };
        let size = self.types.size(&element).max(1);
        let at = self.scalar(index)?;
        if let ValueHome::Constant(n) = at.home {
            let inside = count.is_none_or(|c| c == 0 || n < i64::from(c));
            if n < 0 || !inside || n.saturating_mul(i64::from(size)) > i64::from(i32::MAX) / 2 {
                let has = count.unwrap_or(0);
                return self
                    .error(format!("the index {n} is out of bounds for array of size {has}"));
            }
            let bytes = n as u32 * size;
            let home = match value.home {
                ValueHome::Remote(address, offset, space) => {
                    ValueHome::Remote(address, offset + bytes, space)
                }
                ValueHome::Memory(place) => ValueHome::Memory(place.at(bytes)),
                other => other,
            };
            return self.load_c(home, &element, None);
        }
        let at = self.operand(&at)?;
        // The last member of a structure may be an array of any length.
        let inside = match count.filter(|count| *count > 0 && i32::try_from(*count).is_ok()) {
            Some(count) => {
                let at = self.in_register(at);
                let (inside, outside) = (self.label(), self.label());
                let count = Operand::Immediate(count as i32);
                self.branch(CompareOperation::GreaterEqual, at, count, outside);
                Some((inside, outside))
            }
            None => None,
        };
        let element = self.element_at(&value, at, &element, count, size)?;
        let Some((end, outside)) = inside else { return Ok(element) };
        // Both ways leave the same: a number, bytes in memory, or an address; 0 cannot be read.
        let (home, register) = match element.home {
            ValueHome::Memory(place) => (ValueHome::Memory(place), None),
            ValueHome::Remote(address, offset, space) => {
                let address = self.copy_of(Operand::Register(address));
                (ValueHome::Remote(address, offset, space), Some(address))
            }
            _ => {
                let operand = self.operand(&element)?;
                let register = self.copy_of(operand);
                (ValueHome::Register(register), Some(register))
            }
        };
        self.jump(end);
        self.place_label(outside);
        self.count_error(ErrorKind::IndexOutOfBounds);
        if let Some(register) = register {
            self.emit(Instruction::Move(register, Operand::Immediate(0)));
        } else if let ValueHome::Memory(place) = home {
            self.zero_memory(place, self.types.storage(&element.ty));
        }
        self.place_label(end);
        Ok(Value { ty: element.ty, home })
    }

    /// An element by an index that is computed.
    fn element_at(
        &mut self,
        value: &Value,
        at: Operand,
        element: &CType,
        count: Option<u32>,
        size: u32,
    ) -> Lowered<Value> {
        let scaled = self.computed(ComputeOperation::Multiply, at, Operand::Immediate(size as i32));
        let (address, space) = match value.home {
            ValueHome::Remote(address, offset, space) => {
                self.compute(ComputeOperation::Add, scaled, Operand::Register(address));
                self.compute(ComputeOperation::Add, scaled, Operand::Immediate(offset as i32));
                (scaled, space)
            }
            // Memory of ours is read by its address too: the verifier need not see bounds.
            ValueHome::Memory(place) => {
                let limit = count.unwrap_or(1).saturating_mul(size);
                return self.index_memory(place, scaled, limit, element);
            }
            _ => return self.error("elements cannot be read here"),
        };
        self.load_c(ValueHome::Remote(address, 0, space), element, None)
    }

    /// Returns the address of the elements of a slice or vector of Rust or a vector of C++, and the
    /// index. An index out of bounds becomes an address that no process has: the read fails, and is
    /// counted.
    fn elements_of(
        &self,
        id: u32,
        inner: &Expression,
        index: &Expression,
    ) -> Option<(Expression, Expression)> {
        let made = |kind: ExpressionKind| Expression {
            kind: Box::new(kind),
            position: inner.position,
            depth: inner.depth.max(index.depth).saturating_add(4),
        };
        let field =
            |of: &Expression, name: &str| made(ExpressionKind::Field(of.clone(), name.to_owned()));
        let has = |name: &str| self.types.member(id, name).is_some();
        let (elements, place, end) = if has("ptr") && has("len") {
            (field(inner, "ptr"), index.clone(), field(inner, "len"))
        } else if has("_M_impl") {
            let parts = field(inner, "_M_impl");
            let begin = field(&parts, "_M_start");
            let sum = ExpressionKind::Binary(BinaryOperator::Add, begin.clone(), index.clone());
            (begin, made(sum), field(&parts, "_M_finish"))
        } else {
            return None;
        };
        let inside = made(ExpressionKind::Binary(BinaryOperator::Less, place, end));
        let outside = made(ExpressionKind::Integer(NO_ELEMENT));
        let place = made(ExpressionKind::Ternary(inside, index.clone(), outside));
        Some((elements, place))
    }

    /// An element of memory of ours. The verifier has to see the bounds.
    fn index_memory(
        &mut self,
        place: MemoryPlace,
        at: Register,
        limit: u32,
        element: &CType,
    ) -> Lowered<Value> {
        let ty = value_of_ctype(element, AddressSpace::Either);
        let size = self.types.size(element).max(1);
        let (result, end) = (self.copy_of(Operand::Immediate(0)), self.label());
        let copy = (!ty.is_scalar()).then(|| self.room(size));
        if let Some(copy) = copy {
            self.zero_memory(copy, words(size));
        }
        let most = Operand::Immediate((limit.saturating_sub(size)) as i32);
        self.branch(CompareOperation::Greater, at, most, end);
        let base = self.address(place);
        let address = self.computed(ComputeOperation::Add, base, Operand::Register(at));
        let from = MemoryPlace { base: AddressBase::Register(address), offset: 0 };
        if let Some(copy) = copy {
            self.copy_memory(from, copy, size);
            self.place_label(end);
            return Ok(Value::memory(ty, copy));
        }
        let value = self.load_c(ValueHome::Memory(from), element, None)?;
        let operand = self.operand(&value)?;
        self.emit(Instruction::Move(result, operand));
        self.place_label(end);
        Ok(Value::register(value.ty, result))
    }

    /// `args.name`
    fn argument_named(&mut self, name: &str) -> Lowered<Value> {
        self.program.specific = true;
        match self.point.target.clone() {
            AttachTarget::Tracepoint { category, event } => {
                self.tracepoint_argument(&category, &event, name)
            }
            AttachTarget::Iter { .. } => self.iterator_member(name),
            AttachTarget::Uprobe { .. } => self.user_variable(name),
            _ => {
                let argument = self.function_argument(|a| a.name == name)?;
                match argument {
                    Some(argument) => self.load_argument(&argument),
                    None => {
                        let point = self.point.name.clone();
                        self.error(format!("{point} has no argument {name:?}"))
                    }
                }
            }
        }
    }

    /// `args` as a value: all arguments of a function by their names.
    pub(super) fn all_arguments(&mut self) -> Lowered<Value> {
        use AttachTarget as T;
        let is_function =
            matches!(self.point.target, T::Fentry { at_exit: false, .. } | T::Uprobe { .. });
        let mut names = if is_function { self.facts.parameters(&self.point) } else { Vec::new() };
        if matches!(self.point.target, T::Uprobe { .. }) {
            self.leave_out_unreadable(&mut names);
        }
        if names.is_empty() {
            let point = self.point.name.clone();
            return self.error(format!("members of args of {point} must be printed individually"));
        }
        self.program.specific = true;
        let made = |kind| Expression { kind: Box::new(kind), position: self.position, depth: 1 };
        let args = made(ExpressionKind::Name("args".into()));
        let members =
            names.iter().map(|name| made(ExpressionKind::Field(args.clone(), name.clone())));
        let tuple = made(ExpressionKind::NamedTuple(names.clone(), members.collect()));
        self.value(&tuple)
    }

    /// Leaves out parameters that cannot be read at the point, with a warning.
    fn leave_out_unreadable(&mut self, names: &mut Vec<String>) {
        let mut reasons = Vec::new();
        names.retain(|name| match self.facts.variable(&self.point, name) {
            Ok(_) => true,
            Err(why) => {
                reasons.push(why);
                false
            }
        });
        for why in reasons {
            let what = format!("left out of args: {why}");
            let warning = crate::lexer::error_at(self.position, what);
            if !self.warnings.iter().any(|known| known.text == warning.text) {
                self.warnings.push(warning);
            }
        }
    }

    fn function_argument(
        &mut self,
        wanted: impl Fn(&FunctionArgument) -> bool,
    ) -> Lowered<Option<FunctionArgument>> {
        match self.facts.function(&self.point) {
            Ok(facts) => Ok(facts.arguments.iter().find(|a| wanted(a)).cloned()),
            Err(what) => {
                let point = self.point.name.clone();
                self.error(format!("unknown arguments of {point}: {what}"))
            }
        }
    }

    pub(super) fn load_argument(&mut self, argument: &FunctionArgument) -> Lowered<Value> {
        let space = self.default_space();
        let ty = value_of_ctype(&argument.ctype, space);
        let register = match &argument.place {
            ArgumentPlace::Constant(c) => return Ok(Value { ty, home: ValueHome::Constant(*c) }),
            ArgumentPlace::Index(n) => self.argument_word(u32::from(*n))?,
            ArgumentPlace::Register(name) => self.register_named(name)?,
            ArgumentPlace::Unreadable(why) => {
                let text = format!("{} of {} {why}", argument.name, self.point.name);
                return self.error(text);
            }
            ArgumentPlace::Computed { .. } | ArgumentPlace::Pieces(_) => {
                return self.load_computed(&argument.place, &argument.ctype);
            }
            ArgumentPlace::Memory { register, offset, index } => {
                let base = self.register_named(register)?;
                let offset = self.constant(*offset);
                let base = self.computed(ComputeOperation::Add, Operand::Register(base), offset);
                if let Some((register, scale)) = index {
                    let index = self.register_named(register)?;
                    let scale = Operand::Immediate((*scale).into());
                    self.compute(ComputeOperation::Multiply, index, scale);
                    self.compute(ComputeOperation::Add, base, Operand::Register(index));
                }
                return self.load_c(
                    ValueHome::Remote(base, 0, AddressSpace::User),
                    &argument.ctype,
                    None,
                );
            }
        };
        if let Type::Integer { size, signed } | Type::Enumeration { size, signed, .. } = &ty {
            let register = self.copy_of(Operand::Register(register));
            self.extend(register, u32::from(*size) * 8, *signed);
            return Ok(Value::register(ty, register));
        }
        if !ty.is_scalar() {
            return self.error(format!("argument {} does not fit into a register", argument.name));
        }
        Ok(Value::register(ty, register))
    }

    /// The n-th argument of a function by the machine's convention.
    /// `arg0` of a marker, with the sign that its note states.
    pub(crate) fn marker_argument(&mut self, n: u32) -> Lowered<Value> {
        self.program.uses_context = true;
        self.program.specific = true;
        let wanted = format!("arg{n}");
        let Some(argument) = self.function_argument(|a| a.name == wanted)? else {
            let point = self.point.name.clone();
            return self.error(format!("{point} has no arg{n}"));
        };
        let value = self.load_argument(&argument)?;
        let ty = if value.ty.is_signed() { I64 } else { U64 };
        Ok(Value { ty, home: value.home })
    }

    pub(crate) fn argument_word(&mut self, n: u32) -> Lowered<Register> {
        self.program.uses_context = true;
        let offset = match &self.point.target {
            AttachTarget::Fentry { .. } | AttachTarget::RawTracepoint { .. } => n as i32 * 8,
            AttachTarget::Kprobe { .. } | AttachTarget::Uprobe { .. } => {
                self.program.entry_argument = Some(self.position);
                const ORDER: [&str; 6] = ["di", "si", "dx", "cx", "r8", "r9"];
                if self.options.arch == "aarch64" {
                    n as i32 * 8
                } else {
                    let name = ORDER.get(n as usize).copied().unwrap_or("");
                    match register_offset(name) {
                        Some(offset) => offset,
                        None => {
                            return self
                                .error(format!("arg{n} is not in a register; use sarg{}", n - 6));
                        }
                    }
                }
            }
            _ => {
                let point = self.point.name.clone();
                return self.error(format!("arg{n} is not available in {point}"));
            }
        };
        let context = self.context();
        Ok(self.load(MemoryPlace { base: AddressBase::Register(context), offset }, 8))
    }

    /// `reg("ip")`
    pub(crate) fn register_named(&mut self, name: &str) -> Lowered<Register> {
        self.refuse("registers of the event");
        self.program.uses_context = true;
        use AttachTarget as T;
        let known = matches!(
            self.point.target,
            T::Kprobe { .. }
                | T::Uprobe { .. }
                | T::Usdt { .. }
                | T::Profile { .. }
                | T::Watchpoint { .. }
                | T::Software { .. }
                | T::Hardware { .. }
        );
        if !known {
            let point = self.point.name.clone();
            return self.error(format!("registers are not available in {point}"));
        }
        let name = name.trim_start_matches('%');
        let offset = if self.options.arch == "aarch64" {
            match name {
                "sp" => Some(248),
                "pc" => Some(256),
                "pstate" => Some(264),
                _ => name
                    .strip_prefix(['r', 'x'])
                    .and_then(|n| n.parse::<i32>().ok())
                    .filter(|n| (0..31).contains(n))
                    .map(|n| n * 8),
            }
        } else {
            // Names that all machines have.
            register_offset(if name == "pc" { "ip" } else { name })
        };
        let Some(offset) = offset else {
            return self.error(format!("no such register: {name:?}"));
        };
        let context = self.context();
        Ok(self.load(MemoryPlace { base: AddressBase::Register(context), offset }, 8))
    }

    /// Whether the probe that is lowered was found by a pattern.
    fn is_of_pattern(&self) -> bool {
        let probe = self.tree.probes.get(self.program.key.0);
        let mut points = probe.into_iter().flat_map(|probe| &probe.points);
        points.any(|(point, _)| point.name.contains(['*', '?', '[']))
    }

    /// `retval`
    pub(crate) fn return_value(&mut self) -> Lowered<Value> {
        match self.point.target.clone() {
            AttachTarget::Kprobe { at_return: true, .. }
            | AttachTarget::Uprobe { at_return: true, .. } => {
                let name = if self.options.arch == "aarch64" { "r0" } else { "ax" };
                let register = self.register_named(name)?;
                // Calls leave the upper half of the register undefined for smaller types. Of
                // thousands of functions the types are not looked up.
                let returns = if self.is_of_pattern() {
                    None
                } else {
                    self.facts.function(&self.point).ok().map(|facts| facts.returns.clone())
                };
                let ty = returns.map(|returns| value_of_ctype(&returns, AddressSpace::Either));
                if let Some(
                    ty @ (Type::Integer { size: size @ 1..8, .. } | Type::Enumeration { size, .. }),
                ) = ty
                {
                    self.program.specific = true;
                    self.extend(register, u32::from(size) * 8, ty.is_signed());
                    return Ok(Value::register(ty, register));
                }
                Ok(Value::register(I64, register))
            }
            AttachTarget::Fentry { at_exit: true, .. } => {
                self.program.specific = true;
                self.program.uses_context = true;
                let facts = self.facts.function(&self.point).or_else(|what| {
                    let point = self.point.name.clone();
                    self.error(format!("unknown types of {point}: {what}"))
                })?;
                let offset = facts.arguments.len() as i32 * 8;
                let context = self.context();
                let place = MemoryPlace { base: AddressBase::Register(context), offset };
                let register = self.load(place, 8);
                let ty = value_of_ctype(&facts.returns, AddressSpace::Kernel);
                if let Type::Integer { size, signed } = ty {
                    self.extend(register, u32::from(size) * 8, signed);
                }
                Ok(Value::register(if ty.is_scalar() { ty } else { U64 }, register))
            }
            _ => {
                let point = self.point.name.clone();
                self.error(format!("retval is not available in {point}"))
            }
        }
    }

    /// A field of a tracepoint's record.
    fn tracepoint_argument(&mut self, category: &str, event: &str, name: &str) -> Lowered<Value> {
        let raw = self.program.needs_raw == Some(true);
        if raw && category == "raw_syscalls" {
            // The raw tracepoint's arguments are (registers, number) and (registers, result).
            let known = matches!((event, name), ("sys_enter", "id") | ("sys_exit", "ret"));
            if known {
                let context = self.context();
                let place = MemoryPlace { base: AddressBase::Register(context), offset: 8 };
                return Ok(Value::register(I64, self.load(place, 8)));
            }
        }
        self.program.uses_context = true;
        let format = match self.facts.tracepoint_format(category, event) {
            Ok(format) => format,
            Err(what) => {
                return self.error(format!("unknown format of {category}:{event}: {what}"));
            }
        };
        // Programs may not read the first eight bytes of a record.
        if name == "common_pid" && format.field(name).is_some() {
            let both = self.asked(helper::PID_TGID, U64);
            return self.low_half(&both);
        }
        let field = match format.field(name) {
            Some(field) if field.offset >= 8 => field,
            Some(_) => {
                let text = format!("the kernel does not let programs read the field {name:?}");
                return self.error(text);
            }
            None => {
                let names = format.own_fields().map(|f| f.name.clone()).collect();
                let text = format!("tracepoint:{category}:{event} has no field {name:?}");
                let mut message = error_at(self.position, text);
                message.hint = closest(name, names).map(|c| format!("there is {c:?}"));
                return Err(message);
            }
        };
        self.tracepoint_field(field, category == "syscalls")
    }

    fn tracepoint_field(&mut self, field: &Field, syscall: bool) -> Lowered<Value> {
        let context = self.context();
        let offset = field.offset as i32;
        let place = MemoryPlace { base: AddressBase::Register(context), offset };
        let space = if syscall { AddressSpace::User } else { AddressSpace::Kernel };
        match &field.kind {
            FieldKind::Int | FieldKind::Bool | FieldKind::Pointer => {
                let size = field.size;
                if ![1, 2, 4, 8].contains(&size) {
                    return self.error(format!("field of {size} bytes cannot be read"));
                }
                let ty = self.tracepoint_type(field, space);
                let register = if field.offset.is_multiple_of(size) {
                    self.load(place, size as u8)
                } else {
                    let copy = self.room(8);
                    let from = self.address(place);
                    self.probe_read(copy, size, from, AddressSpace::Record);
                    self.load(copy, size as u8)
                };
                if ty.is_signed() {
                    self.extend(register, size * 8, true);
                }
                Ok(Value::register(ty, register))
            }
            FieldKind::String => {
                let ty = CType::Integer { size: 1, signed: true, is_char: true };
                let from = self.address(place);
                let base = self.in_register(from);
                let home = ValueHome::Remote(base, 0, AddressSpace::Record);
                Ok(Value { ty: Type::Array { element: ty, count: field.size }, home })
            }
            FieldKind::Array { elem, signed } => {
                let element = CType::Integer { size: *elem, signed: *signed, is_char: false };
                let count = field.size / u32::from((*elem).max(1));
                let from = self.address(place);
                let base = self.in_register(from);
                let home = ValueHome::Remote(base, 0, AddressSpace::Record);
                Ok(Value { ty: Type::Array { element, count }, home })
            }
            FieldKind::DynString { relative }
            | FieldKind::DynArray { relative, .. }
            | FieldKind::DynBitmask { relative } => {
                let word = self.load(place, 4);
                self.compute(ComputeOperation::And, word, Operand::Immediate(0xffff));
                if *relative {
                    self.compute(ComputeOperation::Add, word, Operand::Immediate(offset + 4));
                }
                self.compute(ComputeOperation::Add, word, Operand::Register(context));
                match &field.kind {
                    FieldKind::DynString { .. } => {
                        let size = self.text_limit() + 1;
                        let trailer = self.trailer();
                        let full = super::types::words(size + trailer.len() as u32);
                        let room = self.room(full);
                        self.zero_memory(room, full);
                        let size_operand = Operand::Immediate(size as i32);
                        let (address, space) = (Operand::Register(word), AddressSpace::Record);
                        let read = self.probe_read_text(room, size_operand, address, space);
                        self.mark_cut(room, size, read, (address, space), &trailer);
                        Ok(Value::memory(Type::Text(full), room))
                    }
                    FieldKind::DynArray { elem, signed, .. } => {
                        let element =
                            CType::Integer { size: *elem, signed: *signed, is_char: false };
                        let ty = Type::Pointer { target: element, space: AddressSpace::Record };
                        Ok(Value::register(ty, word))
                    }
                    _ => Ok(Value::register(U64, word)),
                }
            }
            FieldKind::Opaque => {
                let named = field.type_text.trim();
                let from = self.address(place);
                let base = self.in_register(from);
                let home = ValueHome::Remote(base, 0, AddressSpace::Record);
                match self.types.find(named) {
                    Some(CType::Record { id }) => Ok(Value { ty: Type::Record(id), home }),
                    _ => {
                        let element = CType::Integer { size: 1, signed: false, is_char: false };
                        Ok(Value { ty: Type::Array { element, count: field.size }, home })
                    }
                }
            }
        }
    }

    /// The type of a number or pointer in a tracepoint's record.
    fn tracepoint_type(&self, field: &Field, space: AddressSpace) -> Type {
        let text = field.type_text.trim();
        if let Some(target) = text.strip_suffix('*') {
            let target = target.replace("const ", "").replace("const*", "*");
            let target = target.trim();
            if let Some(inner) = target.strip_suffix('*') {
                let ctype = self.types.find(inner.trim()).unwrap_or(CType::Void);
                let target =
                    CType::Pointer { target: Box::new(ctype), user: space == AddressSpace::User };
                return Type::Pointer { target, space };
            }
            let target = self.types.find(target.trim_end_matches("const").trim());
            return Type::Pointer { target: target.unwrap_or(CType::Void), space };
        }
        if field.kind == FieldKind::Bool {
            return Type::Boolean;
        }
        let size = field.size as u8;
        if let Some(name) = text.strip_prefix("enum ")
            && let Some(CType::Enumeration { id, .. }) =
                self.types.find(&format!("enum {}", name.trim()))
        {
            return Type::Enumeration { size, signed: field.signed, id };
        }
        Type::Integer { size, signed: field.signed }
    }

    /// `ctx->task` of iterators: context of pointers, `struct bpf_iter__task`.
    pub(crate) fn iterator_member(&mut self, name: &str) -> Lowered<Value> {
        self.program.uses_context = true;
        let AttachTarget::Iter { object, .. } = self.point.target.clone() else {
            return self.error("not an iterator");
        };
        let record = self.types.find(&format!("struct bpf_iter__{object}"));
        let Some(CType::Record { id }) = record else {
            return self.error(format!("iter:{object} is not in the kernel's BTF"));
        };
        let Some(member) = self.types.member(id, name) else { return self.no_member(id, name) };
        // Pointers of the context are unions of 8 bytes with the pointer inside.
        let context = self.context();
        let place =
            MemoryPlace { base: AddressBase::Register(context), offset: member.offset as i32 };
        let register = self.load(place, 8);
        let ty = value_of_ctype(&member.ctype, AddressSpace::Kernel);
        if matches!(ty, Type::Pointer { .. }) && self.program.current == 0 {
            // The last call of an iterator has no object; the verifier wants that to be seen.
            let end = self.program.end;
            self.branch(CompareOperation::Equal, register, Operand::Immediate(0), end);
        }
        Ok(Value::register(if ty.is_scalar() { ty } else { U64 }, register))
    }
}

fn register_offset(name: &str) -> Option<i32> {
    let name = match name {
        "rax" | "eax" => "ax",
        "rbx" | "ebx" => "bx",
        "rcx" | "ecx" => "cx",
        "rdx" | "edx" => "dx",
        "rsi" | "esi" => "si",
        "rdi" | "edi" => "di",
        "rbp" | "ebp" => "bp",
        "rsp" | "esp" => "sp",
        "rip" | "eip" => "ip",
        other => other.trim_end_matches('d'),
    };
    X86_REGISTERS.iter().find(|(n, _)| *n == name).map(|(_, offset)| *offset)
}

/// The name closest to one that is not there, by common letters at its start.
fn closest(name: &str, names: Vec<String>) -> Option<String> {
    let common = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let inside = |other: &str| other.contains(name) || name.contains(other);
    let score = |other: &str| common(other) * 2 + usize::from(inside(other)) * 8;
    names.into_iter().filter(|n| score(n) >= 4).max_by_key(|n| score(n))
}
