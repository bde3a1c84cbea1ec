//! Expressions: operators, conditions, casts, comparison.

use std::rc::Rc;

use super::builder::MemoryPlace;
use super::folding::{
    compare_operation, compute_operation, cut, fold, fold_compare, mirrored, negated,
};
use super::records::value_of_ctype;
use super::types::{AddressSpace, I64, Type, U64};
use super::{Lowered, Lowering, MacroBinding, MacroScope, Value, ValueHome};
use crate::ast::{BinaryOperator, Expression, ExpressionKind, TypeName};
use crate::code::{CodeLabel, CompareOperation, ComputeOperation, Instruction, Operand, Register};
use crate::facts::CType;
use crate::object::AttachTarget;
use crate::object::ErrorKind;

impl Value {
    pub(crate) fn constant(value: i64) -> Value {
        Value { ty: I64, home: ValueHome::Constant(value) }
    }

    pub(crate) fn none() -> Value {
        Value { ty: Type::Nothing, home: ValueHome::None }
    }

    pub(crate) fn register(ty: Type, register: Register) -> Value {
        Value { ty, home: ValueHome::Register(register) }
    }

    pub(crate) fn memory(ty: Type, place: MemoryPlace) -> Value {
        Value { ty, home: ValueHome::Memory(place) }
    }

    pub(crate) fn literal(text: &str) -> Value {
        let size = text.len() as u32 + 1;
        Value { ty: Type::Text(size), home: ValueHome::Literal(text.to_owned()) }
    }

    pub(crate) fn boolean(value: bool) -> Value {
        Value { ty: Type::Boolean, home: ValueHome::Constant(i64::from(value)) }
    }

    fn as_constant(&self) -> Option<i64> {
        match self.home {
            ValueHome::Constant(value) => Some(value),
            _ => None,
        }
    }
}

impl MacroScope {
    /// The type that a parameter of the macro was given.
    fn bound_type(&self, name: &str, scopes: &[MacroScope]) -> Option<TypeName> {
        let Some(MacroBinding::Expression(expression, scope)) = self.bindings.get(name) else {
            return None;
        };
        match &*expression.kind {
            ExpressionKind::Type(TypeName::Of(inner)) => match &*inner.kind {
                ExpressionKind::Name(name) => scopes[*scope].bound_type(name, scopes),
                _ => Some(TypeName::Of(Rc::clone(inner))),
            },
            ExpressionKind::Type(of) => Some(of.clone()),
            _ => None,
        }
    }
}

impl Lowering<'_> {
    /// Lowers an expression.
    pub(crate) fn value(&mut self, expression: &Expression) -> Lowered<Value> {
        use ExpressionKind as Kind;
        let outer = std::mem::replace(&mut self.position, expression.position);
        let value = match &*expression.kind {
            Kind::Integer(n) => Value {
                ty: if i64::try_from(*n).is_ok() { I64 } else { U64 },
                home: ValueHome::Constant(*n as i64),
            },
            Kind::Boolean(b) => Value::boolean(*b),
            Kind::Text(text) => {
                if text.len() >= 4096 {
                    return self.error("string is longer than 4095 bytes");
                }
                Value::literal(text)
            }
            Kind::Name(name) => self.name(name)?,
            Kind::Variable(name) => self.read_variable(name)?,
            Kind::Parameter(n) => self.parameter(*n, expression.position),
            Kind::ParameterCount => Value::constant(self.positional().len() as i64),
            Kind::Map(name, key) => self.read_map(name, key)?,
            Kind::Not(inner) => self.truth(inner, true)?,
            Kind::Negate(inner) => self.negate(inner)?,
            Kind::Complement(inner) => {
                let value = self.scalar(inner)?;
                match value.as_constant() {
                    Some(c) => Value { ty: value.ty, home: ValueHome::Constant(!c) },
                    None => {
                        let operand = self.operand(&value)?;
                        let register =
                            self.computed(ComputeOperation::Xor, operand, Operand::Immediate(-1));
                        Value::register(U64, register)
                    }
                }
            }
            Kind::Dereference(inner) => self.dereference(inner)?,
            Kind::AddressOf(inner) => self.address_of(inner)?,
            Kind::Binary(operator, left, right) => {
                self.binary(*operator, left, right, expression)?
            }
            Kind::Ternary(condition, then, other) => {
                self.ternary(condition, then, other, expression)?
            }
            Kind::Cast(type_name, inner) => self.cast(type_name, inner)?,
            Kind::Field(inner, name) => self.field(inner, name)?,
            Kind::Index(inner, index) => self.index(inner, index)?,
            Kind::Tuple(parts) => self.tuple(parts, &[])?,
            Kind::NamedTuple(names, parts) => self.tuple(parts, names)?,
            Kind::Call(name, arguments) => self.call_named(name, arguments)?,
            Kind::Step(target, step, postfix) => self.step(target, *step, *postfix)?,
            Kind::Type(_) => return self.error("expected a value, found a type"),
            Kind::SizeofType(type_name) => {
                let ctype = self.c_type(type_name)?;
                Value::constant(i64::from(self.types.size(&ctype)))
            }
            Kind::SizeofValue(inner) if self.bound_type(inner).is_some() => {
                let ctype = self.bound_type(inner).unwrap_or(TypeName::Named("void".into()));
                let ctype = self.c_type(&ctype)?;
                Value::constant(i64::from(self.types.size(&ctype)))
            }
            Kind::SizeofValue(inner) => {
                let value = self.value(inner)?;
                let is_constant = matches!(value.home, ValueHome::Constant(_));
                match value.ty {
                    // An enumerator takes what other literals do.
                    Type::Enumeration { .. } if is_constant => Value::constant(8),
                    ty => Value::constant(i64::from(self.size_of(&ty))),
                }
            }
            Kind::OffsetofType(type_name, path) => {
                let ctype = self.c_type(type_name)?;
                self.offset_of(ctype, path)?
            }
            Kind::OffsetofValue(inner, path) => match self.value(inner)?.ty {
                Type::Record(id) => self.offset_of(CType::Record { id }, path)?,
                Type::Pointer { target, .. } => self.offset_of(target, path)?,
                other => return self.error(format!("{} has no members", other.name())),
            },
            Kind::Block(block) => {
                let outer = self.enter_block();
                for statement in &block.statements {
                    self.statement_in_place(statement)?;
                }
                let value = match &block.value {
                    Some(value) => self.value(value)?,
                    None => Value::none(),
                };
                self.scope = outer;
                value
            }
        };
        self.position = outer;
        Ok(value)
    }

    pub(crate) fn size_of(&self, ty: &Type) -> u32 {
        match ty {
            Type::Integer { size, .. } | Type::Enumeration { size, .. } => u32::from(*size),
            Type::Boolean => 1,
            Type::Text(n) | Type::Buffer(n) => *n,
            Type::Record(id) => self.types.size(&CType::Record { id: *id }),
            Type::Number(ctype) => self.types.size(ctype),
            Type::Array { element, count } => self.types.size(element).saturating_mul(*count),
            // As C lays out a structure of these.
            Type::Tuple(fields, _) => {
                let (mut size, mut largest) = (0u32, 1);
                for field in fields.iter() {
                    let (of, align) = (self.size_of(field), self.alignment_of(field));
                    size = size.next_multiple_of(align).saturating_add(of);
                    largest = largest.max(align);
                }
                size.next_multiple_of(largest)
            }
            other => self.types.storage(other),
        }
    }

    fn alignment_of(&self, ty: &Type) -> u32 {
        match ty {
            Type::Text(_) | Type::Buffer(_) => 1,
            Type::Record(id) => self.types.alignment(&CType::Record { id: *id }, 0) as u32,
            Type::Number(ctype) => self.types.alignment(ctype, 0) as u32,
            Type::Array { element, .. } => self.types.alignment(element, 0) as u32,
            Type::Tuple(fields, _) => {
                fields.iter().map(|field| self.alignment_of(field)).max().unwrap_or(1)
            }
            other => self.size_of(other).clamp(1, 8).next_power_of_two(),
        }
    }

    pub(super) fn offset_of(&mut self, ctype: CType, path: &[String]) -> Lowered<Value> {
        let (mut ctype, mut offset) = (ctype, 0);
        for name in path {
            let CType::Record { id } = ctype else {
                return self.error(format!("no member {name:?}: not a structure"));
            };
            let Some(member) = self.types.member(id, name) else {
                return self.no_member(id, name);
            };
            offset += member.offset;
            ctype = member.ctype;
        }
        Ok(Value::constant(i64::from(offset)))
    }

    /// A written type, with `typeof`.
    pub(crate) fn c_type(&mut self, type_name: &TypeName) -> Lowered<CType> {
        self.c_type_in(type_name, self.default_space())
    }

    /// The type that a written one means for a value of an address space.
    fn c_type_in(&mut self, type_name: &TypeName, space: AddressSpace) -> Lowered<CType> {
        match type_name {
            TypeName::Of(expression) => {
                if let Some(bound) = self.bound_type(expression) {
                    return self.c_type_in(&bound, space);
                }
                let value = self.value(expression)?;
                return Ok(c_type_of(&value.ty));
            }
            TypeName::Named(name) => {
                if let Some(bound) = self.bound_type_name(name) {
                    return self.c_type_in(&bound, space);
                }
            }
            // What these are of may be a macro's parameter.
            TypeName::Pointer(target) if self.names_parameter(target) => {
                let target = Box::new(self.c_type_in(target, space)?);
                return Ok(CType::Pointer { target, user: false });
            }
            TypeName::Array(element, count) if self.names_parameter(element) => {
                let element = Box::new(self.c_type_in(element, space)?);
                return Ok(CType::Array { element, count: *count });
            }
            _ => {}
        }
        if let Some(found) = self.type_of_program(type_name, space) {
            return Ok(found);
        }
        self.types.resolve(type_name).map_err(|what| {
            let mut message = crate::lexer::error_at(self.position, what);
            message.hint = Some("declare it in the program, or run on a kernel with BTF".into());
            message
        })
    }

    /// Whether a type is made of one that a macro was given, or of `typeof`.
    fn names_parameter(&self, type_name: &TypeName) -> bool {
        match type_name {
            TypeName::Named(name) => self.bound_type_name(name).is_some(),
            TypeName::Of(_) => true,
            TypeName::Pointer(inner) | TypeName::Array(inner, _) | TypeName::Counted(inner, _) => {
                self.names_parameter(inner)
            }
        }
    }

    /// The type that a macro was given for a parameter.
    fn bound_type_name(&self, name: &str) -> Option<TypeName> {
        self.scopes[self.scope].bound_type(name, &self.scopes)
    }

    /// The type that an argument is: `typeof(struct x)`, or a macro's parameter for one.
    pub(super) fn type_argument(&mut self, argument: &Expression) -> Lowered<Option<CType>> {
        self.bound_type(argument).map(|name| self.c_type(&name)).transpose()
    }

    /// The type that an expression stands for in a macro: `t`, `t[2]`.
    fn bound_type(&self, expression: &Expression) -> Option<TypeName> {
        match &*expression.kind {
            ExpressionKind::Name(name) => self.bound_type_name(name),
            ExpressionKind::Type(of) => Some(of.clone()),
            ExpressionKind::Index(inner, index) => match &*index.kind {
                ExpressionKind::Integer(n) => {
                    let count = u32::try_from(*n).ok()?;
                    Some(TypeName::Array(Box::new(self.bound_type(inner)?), count))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// A type of the probed program. It has priority over the kernel's of that name, except for
    /// values of the kernel.
    fn type_of_program(&mut self, type_name: &TypeName, space: AddressSpace) -> Option<CType> {
        match type_name {
            TypeName::Pointer(target) => {
                let target = Box::new(self.type_of_program(target, space)?);
                Some(CType::Pointer { target, user: true })
            }
            TypeName::Array(element, count) => {
                let element = Box::new(self.type_of_program(element, space)?);
                Some(CType::Array { element, count: *count })
            }
            TypeName::Counted(element, count) => {
                let count = self.types.counted(count)?;
                let element = Box::new(self.type_of_program(element, space)?);
                Some(CType::Array { element, count })
            }
            TypeName::Named(name) if !self.types.is_declared(name) => {
                if space == AddressSpace::Kernel && self.types.find(name).is_some() {
                    return None;
                }
                let is_of_program = matches!(
                    self.point.target,
                    AttachTarget::Uprobe { .. } | AttachTarget::Usdt { .. }
                );
                // Another binary of the same probe may have another type.
                self.program.specific |= is_of_program && name.contains(' ');
                self.facts.program_type(&self.point, name)
            }
            _ => None,
        }
    }

    /// A value that must fit a register.
    pub(crate) fn scalar(&mut self, expression: &Expression) -> Lowered<Value> {
        let value = self.value(expression)?;
        self.as_scalar(value)
    }

    pub(crate) fn as_scalar(&mut self, value: Value) -> Lowered<Value> {
        if !value.ty.is_scalar() {
            return self.error(format!("expected a number, found {}", value.ty.name()));
        }
        Ok(value)
    }

    /// The operand of a scalar value.
    pub(crate) fn operand(&mut self, value: &Value) -> Lowered<Operand> {
        Ok(match &value.home {
            ValueHome::Constant(c) => self.constant(*c),
            ValueHome::Register(r) => Operand::Register(*r),
            ValueHome::Memory(place) => Operand::Register(self.load(*place, 8)),
            ValueHome::None if value.ty == Type::Unknown => Operand::Immediate(0),
            _ => return self.error(format!("expected a number, found {}", value.ty.name())),
        })
    }

    /// The operand of an expression that must be a number.
    pub(crate) fn number(&mut self, expression: &Expression) -> Lowered<Operand> {
        let value = self.scalar(expression)?;
        self.operand(&value)
    }

    /// An expression that must be known now.
    pub(crate) fn constant_of(&mut self, expression: &Expression, what: &str) -> Lowered<i64> {
        match self.value(expression)?.as_constant() {
            Some(value) => Ok(value),
            None => {
                self.position = expression.position;
                self.error(format!("{what} must be a constant"))
            }
        }
    }

    /// A number that must be known now, or a comparison of two.
    pub(crate) fn constant_condition(
        &mut self,
        expression: &Expression,
        what: &str,
    ) -> Lowered<bool> {
        if let ExpressionKind::Binary(op, left, right) = &*expression.kind
            && compare_operation(*op, false).is_some()
        {
            let (left, right) = (self.constant_of(left, what)?, self.constant_of(right, what)?);
            return Ok(fold_compare(*op, left, right));
        }
        Ok(self.constant_of(expression, what)? != 0)
    }

    /// A string that must be known now.
    pub(crate) fn literal_of(&mut self, expression: &Expression, what: &str) -> Lowered<String> {
        match self.value(expression)?.home {
            ValueHome::Literal(text) => Ok(text),
            _ => {
                self.position = expression.position;
                self.error(format!("{what} must be a string literal"))
            }
        }
    }

    fn negate(&mut self, inner: &Expression) -> Lowered<Value> {
        let value = self.scalar(inner)?;
        if let Some(c) = value.as_constant() {
            return Ok(Value::constant(c.wrapping_neg()));
        }
        let operand = self.operand(&value)?;
        let register = self.copy_of(operand);
        self.emit(Instruction::Negate(register));
        Ok(Value::register(I64, register))
    }

    /// 1 or 0: whether an expression is true (or is not).
    fn truth(&mut self, inner: &Expression, negated: bool) -> Lowered<Value> {
        if let Some(known) = self.known_condition(inner)? {
            return Ok(Value::boolean(known != negated));
        }
        let (result, end) = (self.register(), self.label());
        self.emit(Instruction::Move(result, Operand::Immediate(0)));
        self.jump_if(inner, negated, end)?;
        self.emit(Instruction::Move(result, Operand::Immediate(1)));
        self.place_label(end);
        Ok(Value::register(Type::Boolean, result))
    }

    /// Value of a condition that is a constant; emits nothing.
    fn known_condition(&mut self, expression: &Expression) -> Lowered<Option<bool>> {
        use ExpressionKind as Kind;
        Ok(match &*expression.kind {
            Kind::Integer(n) => Some(*n != 0),
            Kind::Boolean(b) => Some(*b),
            Kind::Not(inner) => self.known_condition(inner)?.map(|b| !b),
            Kind::Parameter(_) | Kind::ParameterCount => {
                self.value(expression)?.as_constant().map(|c| c != 0)
            }
            Kind::Call(name, _) if name == "getopt" => {
                self.value(expression)?.as_constant().map(|c| c != 0)
            }
            Kind::Name(name) => match self.tree.macros.get(name).cloned() {
                Some(tree) if tree.body.statements.is_empty() => match &tree.body.value {
                    Some(value) if matches!(&*value.kind, Kind::Call(n, _) if n == "getopt") => {
                        self.known_condition(value)?
                    }
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        })
    }

    /// Jumps if a condition is as wanted.
    pub(crate) fn jump_if(
        &mut self,
        expression: &Expression,
        wanted: bool,
        label: CodeLabel,
    ) -> Lowered<()> {
        use BinaryOperator as Op;
        let outer = std::mem::replace(&mut self.position, expression.position);
        match &*expression.kind {
            ExpressionKind::Not(inner) => self.jump_if(inner, !wanted, label)?,
            ExpressionKind::Binary(op @ (Op::LogicalAnd | Op::LogicalOr), left, right) => {
                if (*op == Op::LogicalOr) == wanted {
                    self.jump_if(left, wanted, label)?;
                    self.jump_if(right, wanted, label)?;
                } else {
                    let over = self.label();
                    self.jump_if(left, !wanted, over)?;
                    self.jump_if(right, wanted, label)?;
                    self.place_label(over);
                }
            }
            ExpressionKind::Binary(op, left, right) if compare_operation(*op, false).is_some() => {
                self.compare_and_jump(*op, left, right, wanted, label)?;
            }
            _ => {
                let value = self.value(expression)?;
                match (&value.home, &value.ty) {
                    (ValueHome::Constant(c), _) => {
                        if (*c != 0) == wanted {
                            self.jump(label);
                        }
                    }
                    (_, Type::Text(_)) => return self.error("a string cannot be a condition"),
                    _ => {
                        let value = self.as_scalar(value)?;
                        let operand = self.operand(&value)?;
                        let register = self.in_register(operand);
                        let compare = if wanted {
                            CompareOperation::NotEqual
                        } else {
                            CompareOperation::Equal
                        };
                        self.branch(compare, register, Operand::Immediate(0), label);
                    }
                }
            }
        }
        self.position = outer;
        Ok(())
    }

    fn compare_and_jump(
        &mut self,
        op: BinaryOperator,
        left: &Expression,
        right: &Expression,
        wanted: bool,
        label: CodeLabel,
    ) -> Lowered<()> {
        let (a, b) = (self.value(left)?, self.value(right)?);
        if let (Some(a), Some(b)) = (a.as_constant(), b.as_constant()) {
            if fold_compare(op, a, b) == wanted {
                self.jump(label);
            }
            return Ok(());
        }
        let scalar = a.ty.is_scalar() && b.ty.is_scalar();
        if !scalar {
            let equal_wanted = match op {
                BinaryOperator::Equal => wanted,
                BinaryOperator::NotEqual => !wanted,
                _ => {
                    return self
                        .error(format!("{} can only be compared by == and !=", a.ty.name()));
                }
            };
            return self.jump_if_equal(a, b, equal_wanted, label);
        }
        let signed = signed_operation(&a, &b);
        let op = if wanted { op } else { negated(op) };
        let (a, b) = (self.operand(&a)?, self.operand(&b)?);
        // A constant on the left goes to the right.
        let (a, b, op) = match (a, b) {
            (Operand::Immediate(_), Operand::Register(_)) => (b, a, mirrored(op)),
            other => (other.0, other.1, op),
        };
        let a = self.in_register(a);
        if let Some(compare) = compare_operation(op, signed) {
            self.branch(compare, a, b, label);
        }
        Ok(())
    }

    fn binary(
        &mut self,
        op: BinaryOperator,
        left: &Expression,
        right: &Expression,
        whole: &Expression,
    ) -> Lowered<Value> {
        let logical = matches!(op, BinaryOperator::LogicalAnd | BinaryOperator::LogicalOr);
        if logical || compare_operation(op, false).is_some() {
            return self.truth(whole, false);
        }
        let a = self.value(left)?;
        if let (BinaryOperator::Add, ValueHome::Literal(text)) = (op, &a.home)
            && let Some(n) = self.value(right)?.as_constant()
        {
            // `str($1 + 2)`: the rest of a parameter.
            let rest = usize::try_from(n).ok().and_then(|n| text.get(n..)).unwrap_or("");
            return Ok(Value::literal(rest));
        }
        let a = self.as_scalar(a)?;
        let b = self.scalar(right)?;
        let compute = compute_operation(op);
        let ty = self.arithmetic_type(op, &a, &b);
        if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
            let divides = matches!(op, BinaryOperator::Divide | BinaryOperator::Modulo);
            // Not of what counts as 0 only as it is not known yet.
            if divides && *right.kind == ExpressionKind::Integer(0) {
                return self.error("division by zero");
            }
            let value = fold(op, x, y, ty.is_signed());
            return Ok(Value { ty, home: ValueHome::Constant(value) });
        }
        // An element's size scales what is added to a pointer.
        let scale = match (&a.ty, op) {
            (Type::Pointer { target, .. }, BinaryOperator::Add | BinaryOperator::Subtract)
                if b.ty.is_integer() =>
            {
                self.types.size(target).max(1)
            }
            _ => 1,
        };
        let signed = signed_operation(&a, &b);
        let (x, mut y) = (self.operand(&a)?, self.operand(&b)?);
        if scale > 1 {
            y = match y {
                Operand::Immediate(n) => self.constant(i64::from(n) * i64::from(scale)),
                register @ Operand::Register(_) => Operand::Register(self.computed(
                    ComputeOperation::Multiply,
                    register,
                    Operand::Immediate(scale as i32),
                )),
            };
        }
        let result = match op {
            BinaryOperator::Divide | BinaryOperator::Modulo => self.divide(compute, x, y, signed),
            BinaryOperator::ShiftRight if a.ty.is_signed() => {
                self.computed(ComputeOperation::ShiftRightSigned, x, y)
            }
            BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight if matches!(y, Operand::Immediate(n) if !(0..64).contains(&n)) => {
                self.copy_of(Operand::Immediate(0))
            }
            _ => self.computed(compute, x, y),
        };
        Ok(Value::register(ty, result))
    }

    fn arithmetic_type(&self, op: BinaryOperator, a: &Value, b: &Value) -> Type {
        use BinaryOperator as Op;
        match (&a.ty, &b.ty) {
            (Type::Pointer { .. }, Type::Pointer { .. }) if op == Op::Subtract => I64,
            (pointer @ Type::Pointer { .. }, _) if matches!(op, Op::Add | Op::Subtract) => {
                pointer.clone()
            }
            (_, pointer @ Type::Pointer { .. }) if op == Op::Add => pointer.clone(),
            _ => {
                let signed = match op {
                    Op::ShiftLeft | Op::ShiftRight => a.ty.is_signed(),
                    _ => signed_operation(a, b),
                };
                if signed { I64 } else { U64 }
            }
        }
    }

    /// A division; by zero it is counted and gives 1, as bpftrace has it.
    fn divide(
        &mut self,
        operation: ComputeOperation,
        a: Operand,
        b: Operand,
        signed: bool,
    ) -> Register {
        if matches!(b, Operand::Immediate(n) if n != 0) {
            return self.divide_by(operation, a, b, signed);
        }
        let (result, zero, done) =
            (self.copy_of(Operand::Immediate(1)), self.label(), self.label());
        if let Operand::Register(divisor) = b {
            self.branch(CompareOperation::Equal, divisor, Operand::Immediate(0), zero);
            let quotient = self.divide_by(operation, a, b, signed);
            self.emit(Instruction::Move(result, Operand::Register(quotient)));
            self.jump(done);
        }
        self.place_label(zero);
        self.count_error(ErrorKind::DivisionByZero);
        self.place_label(done);
        result
    }

    /// BPF divides without sign only (before its version 4).
    pub(crate) fn divide_by(
        &mut self,
        operation: ComputeOperation,
        a: Operand,
        b: Operand,
        signed: bool,
    ) -> Register {
        if !signed {
            return self.computed(operation, a, b);
        }
        let a = self.copy_of(a);
        let (sign, positive, done) =
            (self.copy_of(Operand::Immediate(0)), self.label(), self.label());
        self.branch(CompareOperation::SignedGreaterEqual, a, Operand::Immediate(0), positive);
        self.emit(Instruction::Negate(a));
        self.emit(Instruction::Move(sign, Operand::Immediate(1)));
        self.place_label(positive);
        let divisor = match b {
            Operand::Immediate(n) if n >= 0 => b,
            _ => {
                let b = self.copy_of(b);
                let positive = self.label();
                self.branch(
                    CompareOperation::SignedGreaterEqual,
                    b,
                    Operand::Immediate(0),
                    positive,
                );
                self.emit(Instruction::Negate(b));
                if operation == ComputeOperation::Divide {
                    self.compute(ComputeOperation::Xor, sign, Operand::Immediate(1));
                }
                self.place_label(positive);
                Operand::Register(b)
            }
        };
        self.compute(operation, a, divisor);
        self.branch(CompareOperation::Equal, sign, Operand::Immediate(0), done);
        self.emit(Instruction::Negate(a));
        self.place_label(done);
        a
    }

    fn ternary(
        &mut self,
        condition: &Expression,
        then: &Expression,
        other: &Expression,
        whole: &Expression,
    ) -> Lowered<Value> {
        if let Some(known) = self.known_condition(condition)? {
            return self.value(if known { then } else { other });
        }
        let key = (self.program.key.0, self.program.key.1, self.scope, whole.position);
        let known = self.joined.get(&key).cloned().unwrap_or(Type::Unknown);
        let (no, end) = (self.label(), self.label());
        let result = self.register();
        let room =
            if known.is_scalar() { None } else { Some(self.room(self.types.storage(&known))) };
        self.jump_if(condition, false, no)?;
        for (branch, is_then) in [(then, true), (other, false)] {
            if !is_then {
                self.place_label(no);
            }
            let value = self.value(branch)?;
            let value = self.settle(value)?;
            let ty = value.ty.clone();
            self.join(whole.position, &ty)?;
            match room {
                _ if ty == Type::Nothing => {}
                Some(place) => self.store_value(&value, place, &known)?,
                None if ty.is_scalar() => {
                    let operand = self.operand(&value)?;
                    self.emit(Instruction::Move(result, operand));
                }
                None => {}
            }
            if is_then {
                self.jump(end);
            }
        }
        self.place_label(end);
        Ok(match room {
            Some(place) => Value::memory(known, place),
            None if known == Type::Nothing => Value::none(),
            None => Value::register(known, result),
        })
    }

    fn cast(&mut self, type_name: &TypeName, inner: &Expression) -> Lowered<Value> {
        if let TypeName::Named(name) = type_name
            && name == "string"
        {
            return self.value(inner);
        }
        if let TypeName::Array(element, count) = type_name
            && matches!(&**element, TypeName::Named(n) if n == "string" || n == "buffer")
        {
            let value = self.value(inner)?;
            let value = self.settle(value)?;
            let ty = Type::Text((*count).clamp(1, 4096));
            let place = self.room(self.types.storage(&ty));
            self.store_value(&value, place, &ty)?;
            return Ok(Value::memory(ty, place));
        }
        let value = self.value(inner)?;
        let space = match (&value.ty, &value.home) {
            (Type::Pointer { space, .. }, _) | (_, ValueHome::Remote(_, _, space)) => *space,
            _ => self.default_space(),
        };
        let ctype = self.c_type_in(type_name, space)?;
        let ty = value_of_ctype(&ctype, space);
        match (&ty, &value.home) {
            // A record or array as another one, at the same address.
            (Type::Record(_) | Type::Array { .. }, ValueHome::Remote(address, offset, space)) => {
                return Ok(Value { ty, home: ValueHome::Remote(*address, *offset, *space) });
            }
            (Type::Array { .. }, _) if matches!(value.ty, Type::Text(_)) => {
                return self.text_as_array(value, ty);
            }
            (Type::Array { .. }, _) if value.ty.is_scalar() => {
                return self.integer_as_array(value, ty);
            }
            (Type::Pointer { .. }, ValueHome::Remote(address, offset, _)) => {
                let address = Operand::Register(*address);
                let offset = Operand::Immediate(*offset as i32);
                let register = self.computed(ComputeOperation::Add, address, offset);
                return Ok(Value::register(ty, register));
            }
            _ => {}
        }
        // A text is true if it has a character.
        let value = match (&ty, &value.ty) {
            (Type::Boolean, Type::Text(_)) => match &value.home {
                ValueHome::Literal(text) => Value::boolean(!text.is_empty()),
                _ => {
                    let (place, _) = self.text_memory(value)?;
                    Value::register(U64, self.load(place, 1))
                }
            },
            _ => self.integer_of(value)?,
        };
        let (size, signed) = match &ty {
            Type::Integer { size, signed } | Type::Enumeration { size, signed, .. } => {
                (*size, *signed)
            }
            Type::Boolean => {
                let operand = self.operand(&value)?;
                let register = self.in_register(operand);
                let (result, end) = (self.copy_of(Operand::Immediate(0)), self.label());
                self.branch(CompareOperation::Equal, register, Operand::Immediate(0), end);
                self.emit(Instruction::Move(result, Operand::Immediate(1)));
                self.place_label(end);
                return Ok(Value::register(ty, result));
            }
            _ => (8, false),
        };
        if let Some(c) = value.as_constant() {
            let home = ValueHome::Constant(cut(c, size, signed));
            return Ok(Value { ty, home });
        }
        let operand = self.operand(&value)?;
        if size == 8 {
            let register = self.in_register(operand);
            return Ok(Value::register(ty, register));
        }
        let register = self.copy_of(operand);
        self.extend(register, u32::from(size) * 8, signed);
        Ok(Value::register(ty, register))
    }

    /// Arrays of up to 8 bytes count as the number that their bytes are.
    fn integer_of(&mut self, value: Value) -> Lowered<Value> {
        let Type::Array { .. } = value.ty else { return self.as_scalar(value) };
        let size = self.size_of(&value.ty);
        if ![1, 2, 4, 8].contains(&size) {
            return self.error("only arrays of 1, 2, 4 or 8 bytes can become an integer");
        }
        let value = self.read_remote(value, size)?;
        match value.home {
            ValueHome::Memory(place) => Ok(Value::register(U64, self.load(place, size as u8))),
            _ => self.error("array cannot be read here"),
        }
    }

    fn integer_as_array(&mut self, value: Value, ty: Type) -> Lowered<Value> {
        let operand = self.operand(&value)?;
        let place = self.room(8);
        self.store(place, 8, operand);
        let ty = match ty {
            Type::Array { element, count: 0 } => {
                let count = 8 / self.types.size(&element).clamp(1, 8);
                Type::Array { element, count }
            }
            other if self.size_of(&other) <= 8 => other,
            _ => return self.error("the array is larger than the integer"),
        };
        Ok(Value::memory(ty, place))
    }

    /// The bytes of a text, with its NUL, as elements.
    fn text_as_array(&mut self, value: Value, ty: Type) -> Lowered<Value> {
        let value = self.settle(value)?;
        let size = self.size_of(&value.ty);
        let ty = match ty {
            Type::Array { element, count: 0 } => {
                let of = self.types.size(&element).max(1);
                if !size.is_multiple_of(of) {
                    return self.error(format!(
                        "{size} bytes are not a multiple of the element \
                                               size"
                    ));
                }
                Type::Array { element, count: size / of }
            }
            other if self.size_of(&other) <= size => other,
            _ => return self.error("the array is larger than the string"),
        };
        let of_text = value.ty.clone();
        let place = self.room(self.types.storage(&of_text));
        self.store_value(&value, place, &of_text)?;
        Ok(Value::memory(ty, place))
    }

    /// Cuts a register to its lower bits and extends them.
    pub(crate) fn extend(&mut self, register: Register, bits: u32, signed: bool) {
        if bits >= 64 {
            return;
        }
        let shift = Operand::Immediate(64 - bits as i32);
        if signed {
            self.compute(ComputeOperation::ShiftLeft, register, shift);
            self.compute(ComputeOperation::ShiftRightSigned, register, shift);
        } else if bits < 32 {
            let mask = Operand::Immediate((1i32 << bits) - 1);
            self.compute(ComputeOperation::And, register, mask);
        } else {
            self.compute(ComputeOperation::ShiftLeft, register, shift);
            self.compute(ComputeOperation::ShiftRight, register, shift);
        }
    }

    /// `&$variable`, `&@map`: an address in memory of the program's own.
    fn address_of(&mut self, inner: &Expression) -> Lowered<Value> {
        let (place, ty) = match &*inner.kind {
            ExpressionKind::Variable(name) => self.variable_memory(name)?,
            ExpressionKind::Map(name, key) => {
                let value = self.read_map(name, key)?;
                let ty = value.ty.clone();
                let place = self.room(self.types.storage(&ty));
                self.store_value(&value, place, &ty)?;
                (place, ty)
            }
            _ => return self.error("operand of `&` must be a variable or a map"),
        };
        if ty == Type::Unknown {
            // What it points to is known in the next pass.
            return Ok(Value { ty, home: ValueHome::Constant(0) });
        }
        let address = self.address(place);
        let address = self.copy_of(address);
        let target = c_type_of(&ty);
        Ok(Value::register(Type::Pointer { target, space: AddressSpace::Kernel }, address))
    }

    fn tuple(&mut self, parts: &[Expression], names: &[String]) -> Lowered<Value> {
        let mut values = Vec::new();
        for part in parts {
            let value = self.value(part)?;
            values.push(self.settle(value)?);
        }
        let ty = Type::Tuple(values.iter().map(|v| v.ty.clone()).collect(), names.to_vec());
        let place = self.room(self.types.storage(&ty));
        let mut offset = 0;
        for value in &values {
            self.store_value(value, place.at(offset), &value.ty.clone())?;
            offset += self.types.storage(&value.ty);
        }
        Ok(Value::memory(ty, place))
    }

    /// Returns the memory to which an address without type refers.
    pub(crate) fn default_space(&self) -> AddressSpace {
        use crate::object::AttachTarget as T;
        match self.point.target {
            T::Uprobe { .. } | T::Usdt { .. } => AddressSpace::User,
            T::Fentry { .. } | T::Iter { .. } => AddressSpace::Kernel,
            _ => AddressSpace::Either,
        }
    }

    /// The value of a name that a macro's parameter stands for.
    pub(crate) fn bound(&mut self, name: &str) -> Lowered<Option<Value>> {
        let binding = self.scopes[self.scope].bindings.get(name).cloned();
        let Some(MacroBinding::Expression(expression, scope)) = binding else { return Ok(None) };
        if self.depth > 60 {
            return self.error("macro calls are nested too deeply");
        }
        let inner = std::mem::replace(&mut self.scope, scope);
        self.depth += 1;
        let value = self.value(&expression);
        self.depth -= 1;
        self.scope = inner;
        value.map(Some)
    }
}

/// The type of C that values of a type have in memory.
fn c_type_of(ty: &Type) -> CType {
    match ty {
        Type::Record(id) => CType::Record { id: *id },
        Type::Number(ctype) => ctype.clone(),
        Type::Pointer { target, .. } => {
            CType::Pointer { target: Box::new(target.clone()), user: false }
        }
        Type::Integer { size, signed } => {
            CType::Integer { size: *size, signed: *signed, is_char: false }
        }
        Type::Boolean => CType::Boolean,
        Type::Enumeration { size, signed, id } => {
            CType::Enumeration { size: *size, signed: *signed, id: *id }
        }
        Type::Array { element, count } => {
            CType::Array { element: Box::new(element.clone()), count: *count }
        }
        Type::Text(size) => {
            let element = CType::Integer { size: 1, signed: true, is_char: true };
            CType::Array { element: Box::new(element), count: *size }
        }
        _ => CType::Integer { size: 8, signed: true, is_char: false },
    }
}

/// Whether an operation treats its operands as signed: if one is, unless that is a constant
/// that fits both.
fn signed_operation(a: &Value, b: &Value) -> bool {
    let neutral = |v: &Value| v.as_constant().is_some_and(|c| c >= 0);
    match (neutral(a), neutral(b)) {
        (true, false) => b.ty.is_signed(),
        (false, true) => a.ty.is_signed(),
        _ => a.ty.is_signed() || b.ty.is_signed(),
    }
}
