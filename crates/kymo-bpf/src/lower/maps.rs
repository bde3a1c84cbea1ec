//! Maps and variables: keys, look-ups, assignment.

use super::builder::{MemoryPlace, helper};
use super::types::{I64, Type, unify, words};
use super::{Lowered, Lowering, Value, ValueHome, VariableFacts, VariableHome};
use crate::ast::{Expression, ExpressionKind};
use crate::code::{
    AddressBase, CompareOperation, ComputeOperation, Instruction, Operand, Register,
};
use crate::object::ErrorKind;

/// The largest key and the largest value.
const MAX_KEY: u32 = 16 << 10;
const MAX_VALUE: u32 = 16 << 10;

impl Lowering<'_> {
    /// A map by its name as written; notes whether it has a key.
    pub(crate) fn map_of(&mut self, name: &str, has_key: Option<bool>) -> Lowered<u32> {
        let name = self.map_name(name);
        let number = self.map_number(&name);
        let position = self.position;
        let map = self.user_map(number);
        map.used.get_or_insert(position);
        match (map.has_key, has_key) {
            (None, Some(_)) => {
                map.has_key = has_key;
                self.changed = true;
            }
            (Some(true), Some(false)) => {
                return self.error(format!("{name} has keys elsewhere, but not here"));
            }
            (Some(false), Some(true)) => {
                return self.error(format!("{name} has a key here, but not elsewhere"));
            }
            _ => {}
        }
        Ok(number)
    }

    /// Notes a value's type with a map.
    fn note_value(&mut self, number: u32, value: &Value) -> Lowered<()> {
        let map = self.user_map(number);
        let old = map.value.clone();
        let name = map.name.clone();
        // A constant fits unsigned numbers too.
        let neutral = matches!(value.home, ValueHome::Constant(c) if c >= 0);
        if neutral && old.is_integer() && old != Type::Unknown && value.ty.is_integer() {
            return Ok(());
        }
        let Some(both) = unify(&old, &value.ty) else {
            let (has, new) = (old.name(), value.ty.name());
            return self.error(format!("{name} holds {has}, {new} does not fit"));
        };
        if self.types.storage(&both) > MAX_VALUE {
            return self.error(format!("value of {name} is larger than {MAX_VALUE} bytes"));
        }
        if both != old {
            self.user_map(number).value = both;
            self.changed = true;
        }
        Ok(())
    }

    /// Lowers a key and stores it for look-ups. Without key it is the array's index 0.
    pub(crate) fn key_place(&mut self, number: u32, key: &[Expression]) -> Lowered<MemoryPlace> {
        if key.is_empty() {
            let place = self.room(4);
            self.store(place, 4, Operand::Immediate(0));
            return Ok(place);
        }
        let mut values = Vec::new();
        for part in key {
            let value = self.value(part)?;
            let value = self.settle(value)?;
            if value.ty == Type::Nothing {
                return self.error("an expression without a value cannot be a key");
            }
            values.push(value);
        }
        let ty = match values.as_slice() {
            [one] => one.ty.clone(),
            many => Type::Tuple(many.iter().map(|v| v.ty.clone()).collect(), Vec::new()),
        };
        let map = self.user_map(number);
        let (old, name) = (map.key.clone(), map.name.clone());
        let Some(both) = unify(&old, &ty) else {
            let what = format!("key of {name} is {}, {} does not fit", old.name(), ty.name());
            return self.error(what);
        };
        if self.types.storage(&both) > MAX_KEY {
            return self.error(format!("key of {name} is larger than {MAX_KEY} bytes"));
        }
        if both != old {
            self.user_map(number).key = both.clone();
            self.changed = true;
        }
        let place = self.room(self.types.storage(&both));
        match (values.as_slice(), &both) {
            ([one], _) => {
                // A key that lies in memory as it is to be, is used where it is.
                if let ValueHome::Memory(at) = one.home
                    && one.ty == both
                    && !both.is_scalar()
                {
                    return Ok(at);
                }
                self.store_value(one, place, &both)?;
            }
            (many, Type::Tuple(types, _)) => {
                let mut offset = 0;
                for (value, ty) in many.iter().zip(types) {
                    self.store_value(value, place.at(offset), ty)?;
                    offset += self.types.storage(ty);
                }
            }
            _ => {}
        }
        Ok(place)
    }

    pub(crate) fn lookup(&mut self, number: u32, key: MemoryPlace) -> Register {
        let map = self.map_reference(number);
        let key = self.address(key);
        self.call(helper::MAP_LOOKUP, vec![map, key])
    }

    /// Reads an entry; zero where there is none.
    pub(crate) fn read_map(&mut self, name: &str, key: &[Expression]) -> Lowered<Value> {
        let number = self.map_of(name, Some(!key.is_empty()))?;
        let key = self.key_place(number, key)?;
        let ty = self.user_map(number).value.clone();
        if let Type::Aggregate(_) = ty {
            return self.read_aggregate(number, key);
        }
        let found = self.lookup(number, key);
        let end = self.label();
        if ty.is_scalar() {
            let result = self.copy_of(Operand::Immediate(0));
            self.branch(CompareOperation::Equal, found, Operand::Immediate(0), end);
            let place = MemoryPlace { base: AddressBase::Register(found), offset: 0 };
            let value = self.load(place, 8);
            self.emit(Instruction::Move(result, Operand::Register(value)));
            self.place_label(end);
            return Ok(Value::register(ty, result));
        }
        let size = self.types.storage(&ty);
        let place = self.room(size);
        let missing = self.label();
        self.branch(CompareOperation::Equal, found, Operand::Immediate(0), missing);
        let from = MemoryPlace { base: AddressBase::Register(found), offset: 0 };
        self.copy_memory(from, place, size);
        self.jump(end);
        self.place_label(missing);
        self.zero_memory(place, size);
        self.place_label(end);
        Ok(Value::memory(ty, place))
    }

    /// `@map[key] = value`
    pub(crate) fn assign_map(
        &mut self,
        name: &str,
        key: &[Expression],
        value: &Expression,
    ) -> Lowered<()> {
        let number = self.map_of(name, Some(!key.is_empty()))?;
        if let Some((function, arguments)) = self.aggregation(value) {
            self.position = value.position;
            return self.aggregate(number, key, &function, &arguments);
        }
        // `@ = @ + n`: one look-up and an atomic addition, so that no update is lost.
        if let ExpressionKind::Binary(op, left, right) = &*value.kind
            && let ExpressionKind::Map(other, other_key) = &*left.kind
            && other == name
            && other_key.as_slice() == key
            && matches!(op, crate::ast::BinaryOperator::Add | crate::ast::BinaryOperator::Subtract)
            && self.user_map(number).value.is_integer()
        {
            let negative = *op == crate::ast::BinaryOperator::Subtract;
            let amount = self.scalar(right)?;
            let ty = if amount.ty.is_signed() || negative { I64 } else { amount.ty.clone() };
            self.note_value(number, &Value { ty, home: ValueHome::None })?;
            let operand = self.operand(&amount)?;
            let amount = self.copy_of(operand);
            if negative {
                self.emit(Instruction::Negate(amount));
            }
            self.add_to_map(number, key, amount)?;
            return Ok(());
        }
        // `@ = { …; avg($x) }`
        if let ExpressionKind::Block(block) = &*value.kind
            && let Some(last) = &block.value
            && self.aggregation(last).is_some()
        {
            let outer = self.enter_block();
            for statement in &block.statements {
                self.statement_in_place(statement)?;
            }
            self.assign_map(name, key, last)?;
            self.scope = outer;
            return Ok(());
        }
        let value = self.value(value)?;
        let value = self.settle(value)?;
        if value.ty == Type::Nothing {
            return self.error("this expression has no value");
        }
        self.note_value(number, &value)?;
        let ty = self.user_map(number).value.clone();
        if let Type::Aggregate(_) = ty {
            let name = self.user_map(number).name.clone();
            return self.error(format!("{name} is an aggregation; a value cannot be assigned"));
        }
        let key_place = self.key_place(number, key)?;
        let size = self.types.storage(&ty);
        if key.is_empty() {
            let found = self.lookup(number, key_place);
            let end = self.label();
            self.branch(CompareOperation::Equal, found, Operand::Immediate(0), end);
            let place = MemoryPlace { base: AddressBase::Register(found), offset: 0 };
            self.store_value(&value, place, &ty)?;
            self.store(place.at(size), 8, Operand::Immediate(1));
            self.place_label(end);
            return Ok(());
        }
        let place = match value.home {
            ValueHome::Memory(place) if value.ty == ty && !ty.is_scalar() => place,
            _ => {
                let place = self.room(size);
                self.store_value(&value, place, &ty)?;
                place
            }
        };
        self.update(number, key_place, place, 0);
        Ok(())
    }

    /// Stores an entry and counts the failure.
    pub(crate) fn update(&mut self, number: u32, key: MemoryPlace, value: MemoryPlace, flags: i32) {
        let map = self.map_reference(number);
        let (key, value) = (self.address(key), self.address(value));
        let flags = Operand::Immediate(flags);
        let result = self.call(helper::MAP_UPDATE, vec![map, key, value, flags]);
        self.count_if_negative(result, ErrorKind::MapFull { map: number as usize });
    }

    /// Adds to an integer of a map; the result is its value before.
    fn add_to_map(
        &mut self,
        number: u32,
        key: &[Expression],
        amount: Register,
    ) -> Lowered<Register> {
        let key_place = self.key_place(number, key)?;
        let ty = self.user_map(number).value.clone();
        let size = self.types.storage(&ty);
        let before = self.copy_of(Operand::Immediate(0));
        let (end, missing) = (self.label(), self.label());
        let found = self.lookup(number, key_place);
        self.branch(CompareOperation::Equal, found, Operand::Immediate(0), missing);
        let place = MemoryPlace { base: AddressBase::Register(found), offset: 0 };
        let old = self.load(place, 8);
        self.emit(Instruction::Move(before, Operand::Register(old)));
        self.emit(Instruction::AtomicAdd(place.base, 0, amount));
        if key.is_empty() {
            self.store(place.at(size), 8, Operand::Immediate(1));
        }
        self.jump(end);
        self.place_label(missing);
        if !key.is_empty() {
            let value = self.room(8);
            self.store(value, 8, Operand::Register(amount));
            self.update(number, key_place, value, 0);
        }
        self.place_label(end);
        Ok(before)
    }

    /// `++@x`, `$i--`
    pub(crate) fn step(&mut self, target: &Expression, step: i64, postfix: bool) -> Lowered<Value> {
        match &*target.kind {
            ExpressionKind::Map(name, key) => {
                let number = self.map_of(name, Some(!key.is_empty()))?;
                let ty = if step < 0 { I64 } else { Type::Integer { size: 8, signed: true } };
                let old = self.user_map(number).value.clone();
                // A pointer advances by the size of its target.
                let step = match &old {
                    Type::Pointer { target, .. } => i64::from(self.types.size(target)) * step,
                    _ if old.is_integer() => step,
                    _ => return self.error(format!("{} cannot be incremented", old.name())),
                };
                if old == Type::Unknown {
                    self.note_value(number, &Value { ty, home: ValueHome::None })?;
                }
                let amount = self.copy_of(Operand::Immediate(step as i32));
                let before = self.add_to_map(number, key, amount)?;
                if !postfix {
                    self.compute(ComputeOperation::Add, before, Operand::Immediate(step as i32));
                }
                let ty = self.user_map(number).value.clone();
                Ok(Value::register(ty, before))
            }
            ExpressionKind::Variable(name) => {
                let value = self.read_variable(name)?;
                let value = self.as_scalar(value)?;
                let by = match &value.ty {
                    Type::Pointer { target, .. } => i64::from(self.types.size(target)) * step,
                    _ => step,
                };
                let operand = self.operand(&value)?;
                let before = self.copy_of(operand);
                let by = self.constant(by);
                let after = self.computed(ComputeOperation::Add, Operand::Register(before), by);
                let result = if postfix { before } else { after };
                let after = Value::register(value.ty.clone(), after);
                self.assign_variable(name, after)?;
                Ok(Value::register(value.ty, result))
            }
            _ => self.error("`++` and `--` work on maps and variables"),
        }
    }

    /// `delete(@map, key)`; 1 where there was one.
    pub(crate) fn delete(&mut self, name: &str, key: &[Expression]) -> Lowered<Value> {
        if key.is_empty() {
            let number = self.map_of(name, Some(false))?;
            let place = self.key_place(number, &[])?;
            let ty = self.user_map(number).value.clone();
            let found = self.lookup(number, place);
            let end = self.label();
            self.branch(CompareOperation::Equal, found, Operand::Immediate(0), end);
            let size = self.types.storage(&ty) + self.mark_bytes(&ty);
            let place = MemoryPlace { base: AddressBase::Register(found), offset: 0 };
            self.zero_memory(place, size);
            self.place_label(end);
            return Ok(Value::boolean(true));
        }
        let number = self.map_of(name, Some(true))?;
        let key = self.key_place(number, key)?;
        let map = self.map_reference(number);
        let key = self.address(key);
        let result = self.call(helper::MAP_DELETE, vec![map, key]);
        let (deleted, end) = (self.copy_of(Operand::Immediate(1)), self.label());
        self.branch(CompareOperation::Equal, result, Operand::Immediate(0), end);
        self.emit(Instruction::Move(deleted, Operand::Immediate(0)));
        self.place_label(end);
        Ok(Value::register(Type::Boolean, deleted))
    }

    /// `has_key(@map, key)`
    pub(crate) fn has_key(&mut self, name: &str, key: &[Expression]) -> Lowered<Value> {
        let number = self.map_of(name, Some(true))?;
        let key = self.key_place(number, key)?;
        let found = self.lookup(number, key);
        let (result, end) = (self.copy_of(Operand::Immediate(0)), self.label());
        self.branch(CompareOperation::Equal, found, Operand::Immediate(0), end);
        self.emit(Instruction::Move(result, Operand::Immediate(1)));
        self.place_label(end);
        Ok(Value::register(Type::Boolean, result))
    }

    /// Bytes of the mark that a map without key has after its value.
    pub(crate) fn mark_bytes(&self, ty: &Type) -> u32 {
        if matches!(ty, Type::Aggregate(_)) { 0 } else { 8 }
    }

    fn variable_key(&self, own: String) -> (usize, usize, String) {
        (self.program.key.0, self.program.key.1, own)
    }

    /// Makes a variable 0 or empty, as each pass of its declaration does.
    pub(crate) fn zero_variable(&mut self, name: &str) {
        let own = self.assigned_name(name);
        let key = self.variable_key(own);
        match self.program.homes.get(&key.2).copied() {
            Some(VariableHome::Register(register)) => {
                self.emit(Instruction::Move(register, Operand::Immediate(0)));
            }
            Some(home) => {
                let place = self.main_memory(home);
                let ty = self.variables.get(&key).map_or(Type::Unknown, |facts| facts.ty.clone());
                self.zero_memory(place, self.types.storage(&ty).max(8));
            }
            None => {}
        }
    }

    fn main_memory(&self, home: VariableHome) -> MemoryPlace {
        match home {
            VariableHome::Register(_) | VariableHome::Frame(_) => {
                let offset = if let VariableHome::Frame(o) = home { o } else { 0 };
                let base = match self.program.main_frame[self.program.current] {
                    Some(register) => AddressBase::Register(register),
                    None => AddressBase::Frame,
                };
                MemoryPlace { base, offset }
            }
            VariableHome::Scratch(offset) => {
                let base = self.program.scratch_base[self.program.current];
                MemoryPlace { base: AddressBase::Register(base), offset }
            }
        }
    }

    pub(crate) fn read_variable(&mut self, name: &str) -> Lowered<Value> {
        let undeclared = format!("Undefined or undeclared variable: ${name}");
        let Some(own) = self.variable_name(name) else {
            return match self.widen_variable(name) {
                // Known in the next pass.
                true => Ok(Value { ty: Type::Unknown, home: ValueHome::Constant(0) }),
                false => self.error(undeclared),
            };
        };
        let key = self.variable_key(own);
        let Some(facts) = self.variables.get_mut(&key) else { return self.error(undeclared) };
        if facts.function != self.program.current && !facts.captured {
            facts.captured = true;
            self.changed = true;
        }
        let ty = facts.ty.clone();
        Ok(match self.program.homes.get(&key.2).copied() {
            // It turned out larger in this pass; the next one has room for it.
            Some(VariableHome::Register(_)) if !ty.is_scalar() => {
                self.changed = true;
                Value { ty: Type::Unknown, home: ValueHome::Constant(0) }
            }
            Some(VariableHome::Register(register)) => Value::register(ty, register),
            Some(home) => {
                let place = self.main_memory(home);
                if ty.is_scalar() {
                    let register = self.load(place, 8);
                    Value::register(ty, register)
                } else {
                    Value::memory(ty, place)
                }
            }
            None => Value { ty: Type::Unknown, home: ValueHome::Constant(0) },
        })
    }

    /// `$name = value`
    pub(crate) fn assign_variable(&mut self, name: &str, value: Value) -> Lowered<()> {
        let value = self.settle(value)?;
        if value.ty == Type::Nothing {
            return self.error("this expression has no value");
        }
        self.declare_variable(name, &value)?;
        let own = self.assigned_name(name);
        let key = self.variable_key(own);
        let ty = self.variables[&key].ty.clone();
        match self.program.homes.get(&key.2).copied() {
            Some(VariableHome::Register(_)) if !ty.is_scalar() => self.changed = true,
            Some(VariableHome::Register(register)) => {
                let operand = self.operand(&value)?;
                self.emit(Instruction::Move(register, operand));
            }
            Some(home) => {
                let place = self.main_memory(home);
                // A copy first, where the value may be made of the variable itself.
                self.store_value(&value, place, &ty)?;
            }
            // Of the next pass.
            None => self.changed = true,
        }
        Ok(())
    }

    /// Memory of a variable, which is there for as long as the probe runs.
    pub(crate) fn variable_memory(&mut self, name: &str) -> Lowered<(MemoryPlace, Type)> {
        let value = self.read_variable(name)?;
        let Some(own) = self.variable_name(name) else { return self.error("no such variable") };
        let key = self.variable_key(own);
        if let Some(facts) = self.variables.get_mut(&key).filter(|facts| !facts.captured) {
            facts.captured = true;
            self.changed = true;
        }
        match self.program.homes.get(&key.2).copied() {
            Some(VariableHome::Register(_)) | None => {
                // Of the next pass.
                self.changed = true;
                Ok((self.room(8), value.ty))
            }
            Some(home) => Ok((self.main_memory(home), value.ty)),
        }
    }

    /// Notes a variable and its type.
    pub(crate) fn declare_variable(&mut self, name: &str, value: &Value) -> Lowered<()> {
        let own = self.assigned_name(name);
        let key = self.variable_key(own);
        let current = self.program.current;
        let neutral = matches!(value.home, ValueHome::Constant(c) if c >= 0);
        match self.variables.get_mut(&key) {
            None => {
                let facts =
                    VariableFacts { ty: value.ty.clone(), captured: false, function: current };
                self.variables.insert(key, facts);
                self.changed = true;
            }
            Some(facts) => {
                if facts.function != current && !facts.captured {
                    facts.captured = true;
                    self.changed = true;
                }
                let old = facts.ty.clone();
                if neutral && old.is_integer() && old != Type::Unknown && value.ty.is_integer() {
                    return Ok(());
                }
                match unify(&old, &value.ty) {
                    Some(both) => {
                        if both != old {
                            facts.ty = both;
                            self.changed = true;
                        }
                    }
                    None => {
                        let (has, new) = (old.name(), value.ty.name());
                        return self.error(format!("${name} holds {has}, {new} does not fit"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Room that texts are read into.
    pub(crate) fn max_text(&self) -> u32 {
        words(self.setting("max_strlen", 1024).clamp(8, 8192) as u32)
    }
}
