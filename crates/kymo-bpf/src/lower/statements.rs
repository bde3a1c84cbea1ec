//! Statements: assignment, conditions, loops.

use super::builder::{MemoryPlace, helper};
use super::records::value_of_ctype;
use super::types::{I64, Type, U64};
use super::{CONTEXT_AT, LoopLabels, Lowered, Lowering, SCRATCH_AT, Value, ValueHome};
use crate::ast::{BlockTree, Expression, ExpressionKind, Statement, StatementKind, TypeName};
use crate::code::{AddressBase, CompareOperation, ComputeOperation, Instruction, Operand};
use crate::object::{AttachTarget, ErrorKind};

/// From this Linux on the kernel ends loops that take too long.
pub(super) const LOOPS_BOUNDED: (u32, u32) = (6, 9);
/// Rounds of a loop that the verifier may walk through one by one.
const MOST_WALKED: i64 = 1000;
/// Most rounds that the verifier walks of nested loops.
const MOST_WALKED_NESTED: i64 = 30;
/// The most rounds of `unroll`.
const MAX_UNROLL: i64 = 100;

impl Lowering<'_> {
    pub(crate) fn block(&mut self, block: &BlockTree) -> Lowered<()> {
        let outer = self.enter_block();
        let lowered = self.block_in_scope(block);
        self.scope = outer;
        lowered
    }

    fn block_in_scope(&mut self, block: &BlockTree) -> Lowered<()> {
        let behind = block.statements.iter().skip(1).map(|statement| statement.position);
        let behind = behind.chain(block.value.iter().map(|value| value.position));
        for (statement, position) in block.statements.iter().zip(behind) {
            if ends_here(statement) {
                let what = "Unreachable statement.";
                self.warnings.push(crate::lexer::error_at(position, what));
            }
        }
        for (n, statement) in block.statements.iter().enumerate() {
            self.print_takes = is_emptied_behind(&block.statements, n);
            self.statement(statement)?;
        }
        self.print_takes = false;
        if let Some(value) = &block.value {
            let mark = self.mark();
            self.emit(Instruction::Position(value.position));
            self.value(value)?;
            self.release(mark);
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Lowered<()> {
        let mark = self.mark();
        self.statement_in_place(statement)?;
        self.release(mark);
        Ok(())
    }

    /// Lowers a statement; the memory it used stays in use, as what follows in the same
    /// expression may refer to it.
    pub(crate) fn statement_in_place(&mut self, statement: &Statement) -> Lowered<()> {
        use StatementKind as Kind;
        let outer = std::mem::replace(&mut self.position, statement.position);
        self.emit(Instruction::Position(statement.position));
        match &statement.kind {
            Kind::Expression(value) => {
                self.value(value)?;
            }
            Kind::Assign(target, value) => self.assign(target, value)?,
            Kind::Let(name, type_name, value) => {
                self.let_statement(name, type_name.as_ref(), value.as_ref())?;
            }
            Kind::If(condition, then, other) => {
                let (no, end) = (self.label(), self.label());
                let mark = self.mark();
                self.jump_if(condition, false, no)?;
                self.release(mark);
                self.block(then)?;
                self.jump(end);
                self.place_label(no);
                self.block(other)?;
                self.place_label(end);
            }
            Kind::While(condition, body) => self.while_loop(condition, body)?,
            Kind::ForRange(name, from, to, body) => self.range_loop(name, from, to, body)?,
            Kind::ForMap(name, map, body) => self.map_loop(name, map, body)?,
            Kind::Unroll(count, body) => {
                let count = self.constant_of(count, "count of unroll")?;
                if count < 1 {
                    return self.error("unroll minimum value is 1");
                }
                if count > MAX_UNROLL {
                    return self.error(format!("unroll maximum value is {MAX_UNROLL}"));
                }
                for _ in 0..count {
                    self.block(body)?;
                }
            }
            Kind::Return(Some(value)) if matches!(self.point.target, AttachTarget::Test(_)) => {
                self.leave_test(value)?;
            }
            Kind::Return(value) => {
                if let Some(value) = value {
                    self.value(value)?;
                }
                self.leave();
            }
            Kind::Break => match self.program.loops.last() {
                Some(labels) => self.jump(labels.end),
                None => return self.error("break outside of a loop"),
            },
            Kind::Continue => match self.program.loops.last() {
                Some(labels) => self.jump(labels.next),
                None => return self.error("continue outside of a loop"),
            },
            Kind::Block(block) => self.block(block)?,
        }
        self.position = outer;
        Ok(())
    }

    fn assign(&mut self, target: &Expression, value: &Expression) -> Lowered<()> {
        match &*target.kind {
            ExpressionKind::Map(name, key) => self.assign_map(name, key, value),
            ExpressionKind::Variable(name) => {
                let value = self.value(value)?;
                self.assign_variable(name, value)
            }
            _ => self.error("only maps and variables can be assigned to"),
        }
    }

    fn let_statement(
        &mut self,
        name: &str,
        type_name: Option<&TypeName>,
        value: Option<&Expression>,
    ) -> Lowered<()> {
        // Before the name means the new variable.
        let value = match value {
            Some(value) => {
                let value = self.value(value)?;
                Some(self.settle(value)?)
            }
            None => None,
        };
        if !self.is_old() {
            if self.variable_name(name).is_some() {
                let what = "was already declared. Variable shadowing is not allowed.";
                return self.error(format!("Variable ${name} {what}"));
            }
            self.bind_variable(name);
        }
        if let Some(TypeName::Named(word)) = type_name
            && word == "string"
        {
            let empty = Value { ty: Type::Text(self.max_text()), home: ValueHome::None };
            self.declare_variable(name, &empty)?;
        } else if let Some(type_name) = type_name {
            let ctype = self.c_type(type_name)?;
            let space = self.default_space();
            let declared = Value { ty: value_of_ctype(&ctype, space), home: ValueHome::None };
            self.declare_variable(name, &declared)?;
        }
        match value {
            Some(value) => self.assign_variable(name, value),
            None => {
                let unset = Value { ty: Type::Unknown, home: ValueHome::None };
                self.declare_variable(name, &unset)?;
                self.zero_variable(name);
                Ok(())
            }
        }
    }

    /// Ends a loop that the verifier could not see the end of, where the kernel can; what ends so
    /// is counted.
    pub(super) fn bound_loop(&mut self, end: u32) {
        if self.options.kernel < LOOPS_BOUNDED {
            return;
        }
        let (cut, goes_on) = (self.label(), self.label());
        self.emit(Instruction::MayGoto(cut));
        self.jump(goes_on);
        self.place_label(cut);
        self.count_error(ErrorKind::LoopCut);
        self.jump(end);
        self.place_label(goes_on);
    }

    /// Makes a register's number unknown to the verifier, which then checks a loop that counts by
    /// it in one round instead of walking through all of them.
    pub(super) fn unknown(&mut self, register: crate::code::Register) {
        let missing = self.label();
        let zeros = self.zeros(8, missing);
        let zero = self.load(zeros, 8);
        self.compute(ComputeOperation::Add, register, Operand::Register(zero));
        self.place_label(missing);
    }

    /// Rounds of a loop that the verifier may walk through: of loops in each other it walks the
    /// product.
    fn most_walked(&self, body: &BlockTree) -> i64 {
        if !self.program.loops.is_empty() || has_loop(body) {
            MOST_WALKED_NESTED
        } else {
            MOST_WALKED
        }
    }

    /// Makes what a loop of many rounds counts by unknown to the verifier: variables that its body
    /// sets, if its condition has a large number.
    fn begin_long_loop(&mut self, condition: &Expression, body: &BlockTree) -> Lowered<()> {
        if self.options.kernel < LOOPS_BOUNDED
            || !has_large_number(condition, self.most_walked(body))
        {
            return Ok(());
        }
        let mut names = Vec::new();
        set_in_block(body, &mut names);
        names.sort();
        names.dedup();
        for name in names {
            let Ok(value) = self.read_variable(&name) else { continue };
            if !value.ty.is_integer() || value.ty == Type::Unknown {
                continue;
            }
            let operand = self.operand(&value)?;
            let register = self.copy_of(operand);
            self.unknown(register);
            self.assign_variable(&name, Value::register(value.ty, register))?;
        }
        Ok(())
    }

    fn while_loop(&mut self, condition: &Expression, body: &BlockTree) -> Lowered<()> {
        let labels = LoopLabels { next: self.label(), end: self.label() };
        self.begin_long_loop(condition, body)?;
        self.place_label(labels.next);
        self.bound_loop(labels.end);
        let mark = self.mark();
        self.jump_if(condition, false, labels.end)?;
        self.release(mark);
        self.program.loops.push(labels);
        self.block(body)?;
        self.program.loops.pop();
        self.jump(labels.next);
        self.place_label(labels.end);
        Ok(())
    }

    fn range_loop(
        &mut self,
        name: &str,
        from: &Expression,
        to: &Expression,
        body: &BlockTree,
    ) -> Lowered<()> {
        let first = self.scalar(from)?;
        let last = self.scalar(to)?;
        let signed = first.ty.is_signed() && last.ty.is_signed();
        let ty = if signed { I64 } else { U64 };
        let first = self.operand(&first)?;
        let counter = self.copy_of(first);
        let limit = match self.operand(&last)? {
            immediate @ Operand::Immediate(_) => immediate,
            register @ Operand::Register(_) => Operand::Register(self.copy_of(register)),
        };
        let is_long = match (first, limit) {
            (Operand::Immediate(first), Operand::Immediate(limit)) => {
                i64::from(limit) - i64::from(first) > self.most_walked(body)
            }
            _ => false,
        };
        if is_long && self.options.kernel >= LOOPS_BOUNDED {
            self.unknown(counter);
        }
        let labels = LoopLabels { next: self.label(), end: self.label() };
        let again = self.label();
        self.place_label(again);
        self.bound_loop(labels.end);
        let done = if signed {
            CompareOperation::SignedGreaterEqual
        } else {
            CompareOperation::GreaterEqual
        };
        self.branch(done, counter, limit, labels.end);
        let outer = self.enter_loop(name)?;
        self.assign_variable(name, Value::register(ty, counter))?;
        self.program.loops.push(labels);
        self.block(body)?;
        self.program.loops.pop();
        self.scope = outer;
        self.place_label(labels.next);
        self.compute(ComputeOperation::Add, counter, Operand::Immediate(1));
        self.jump(again);
        self.place_label(labels.end);
        Ok(())
    }

    /// `for ($kv : @map)`: the body becomes a function that the kernel calls for each entry.
    fn map_loop(&mut self, name: &str, map: &str, body: &BlockTree) -> Lowered<()> {
        let number = self.map_of(map, Some(true))?;
        let (key, value) = {
            let map = self.user_map(number);
            (map.key.clone(), map.value.clone())
        };
        let function = self.begin_callback();
        let (entry_key, entry_value) = (self.register(), self.register());
        // After the parameters that every callback takes.
        let code = &mut self.program.functions[self.program.current].code;
        code.insert(0, Instruction::Parameter(entry_key, 1));
        code.insert(1, Instruction::Parameter(entry_value, 2));
        let number_value = match &value {
            Type::Aggregate(_) => {
                let place = MemoryPlace { base: AddressBase::Register(entry_key), offset: 0 };
                let size = self.types.storage(&key);
                let copy = self.room(size);
                self.copy_memory(place, copy, size);
                Some(self.read_aggregate(number, copy)?)
            }
            _ => None,
        };
        let value = match &number_value {
            Some(number) => number.ty.clone(),
            None => value,
        };
        let pair = Type::Tuple(vec![key.clone(), value.clone()], Vec::new());
        let (key_size, value_size) = (self.types.storage(&key), self.types.storage(&value));
        let place = self.room(key_size + value_size);
        let from = |register| MemoryPlace { base: AddressBase::Register(register), offset: 0 };
        self.copy_memory(from(entry_key), place, key_size);
        match number_value {
            Some(number) => self.store_value(&number, place.at(key_size), &value)?,
            None => self.copy_memory(from(entry_value), place.at(key_size), value_size),
        }
        let outer_scope = self.enter_loop(name)?;
        self.assign_variable(name, Value::memory(pair, place))?;
        let labels = LoopLabels { next: self.label(), end: self.label() };
        let outer = std::mem::replace(&mut self.program.loops, vec![labels]);
        let outer_leaves = std::mem::take(&mut self.program.leaves);
        let body = self.block(body);
        self.program.loops = outer;
        self.scope = outer_scope;
        body?;
        let leaves = std::mem::replace(&mut self.program.leaves, outer_leaves);
        self.place_label(labels.next);
        self.emit(Instruction::Exit(Operand::Immediate(0)));
        self.place_label(labels.end);
        self.emit(Instruction::Exit(Operand::Immediate(1)));
        self.end_callback();
        let map = self.map_reference(number);
        let callback = self.register();
        self.emit(Instruction::LoadFunction(callback, function as u32));
        let context = self.main_frame_address();
        let (callback, zero) = (Operand::Register(callback), Operand::Immediate(0));
        let result = self.call(helper::FOR_EACH, vec![map, callback, context, zero]);
        self.count_if_negative(result, ErrorKind::HelperFailed("for_each_map_elem"));
        if leaves {
            self.program.leaves = true;
            self.leave_if_left();
        }
        Ok(())
    }

    /// Begins a callback; its number among the functions.
    pub(crate) fn begin_callback(&mut self) -> usize {
        let outer = self.program.current;
        self.callers.push(outer);
        self.begin_function();
        let frame = self.register();
        self.emit(Instruction::Parameter(frame, 3));
        self.emit(Instruction::Position(self.position));
        let at = |offset| MemoryPlace { base: AddressBase::Register(frame), offset };
        let context = self.load(at(CONTEXT_AT), 8);
        let scratch = self.load(at(SCRATCH_AT), 8);
        self.program.main_frame.push(Some(frame));
        self.program.context.push(context);
        self.program.scratch_base.push(scratch);
        self.program.current
    }

    pub(crate) fn end_callback(&mut self) {
        self.program.current = self.callers.pop().unwrap_or(0);
    }

    /// The main function's frame pointer, for callbacks.
    pub(crate) fn main_frame_address(&mut self) -> Operand {
        match self.program.main_frame[self.program.current] {
            Some(register) => Operand::Register(register),
            None => {
                let register = self.register();
                self.emit(Instruction::FrameAddress(register, 0));
                Operand::Register(register)
            }
        }
    }
}

/// Whether an expression holds a number that the verifier should not count up to.
fn has_large_number(expression: &Expression, most: i64) -> bool {
    match &*expression.kind {
        ExpressionKind::Integer(n) => *n > most as u64,
        ExpressionKind::Binary(_, left, right) => {
            has_large_number(left, most) || has_large_number(right, most)
        }
        ExpressionKind::Not(inner) | ExpressionKind::Cast(_, inner) => {
            has_large_number(inner, most)
        }
        _ => false,
    }
}

/// Whether what follows a statement is never run.
fn ends_here(statement: &Statement) -> bool {
    use StatementKind as Kind;
    match &statement.kind {
        Kind::Return(_) | Kind::Break | Kind::Continue => true,
        Kind::Expression(value) => {
            matches!(&*value.kind, ExpressionKind::Call(name, _) if name == "exit")
        }
        _ => false,
    }
}

/// Whether a block has a loop.
fn has_loop(block: &BlockTree) -> bool {
    block.statements.iter().any(|statement| match &statement.kind {
        StatementKind::While(..) | StatementKind::ForRange(..) => true,
        StatementKind::If(_, then, other) => has_loop(then) || has_loop(other),
        StatementKind::Unroll(_, body) | StatementKind::Block(body) => has_loop(body),
        _ => false,
    })
}

/// Names of the variables that a block sets.
fn set_in_block(block: &BlockTree, names: &mut Vec<String>) {
    let mut add = |target: &Expression| {
        if let ExpressionKind::Variable(name) = &*target.kind {
            names.push(name.clone());
        }
    };
    let mut inner: Vec<&BlockTree> = Vec::new();
    for statement in &block.statements {
        match &statement.kind {
            StatementKind::Assign(target, _) => add(target),
            StatementKind::Expression(value) => {
                if let ExpressionKind::Step(target, ..) = &*value.kind {
                    add(target);
                }
            }
            StatementKind::If(_, then, other) => inner.extend([then, other]),
            StatementKind::While(_, body)
            | StatementKind::Unroll(_, body)
            | StatementKind::ForRange(.., body)
            | StatementKind::Block(body) => inner.push(body),
            _ => {}
        }
    }
    inner.into_iter().for_each(|block| set_in_block(block, names));
}

/// Whether the n-th statement prints a map that `clear()` or `zero()` empties behind it, whatever
/// the event: then what is printed is exactly what leaves the map. Only the first of several
/// prints takes it.
fn is_emptied_behind(statements: &[Statement], n: usize) -> bool {
    let Some(("print", printed)) = statements.get(n).and_then(call_of_map) else { return false };
    for before in statements[..n].iter().rev() {
        match call_of_map(before) {
            Some(("print", map)) if map == printed => return false,
            Some(("clear" | "zero", map)) if map == printed => break,
            _ => {}
        }
    }
    for behind in &statements[n + 1..] {
        match &behind.kind {
            StatementKind::Expression(_) if is_exit(behind) => return false,
            StatementKind::Expression(_) | StatementKind::Assign(..) | StatementKind::Let(..) => {}
            _ => return false,
        }
        if matches!(call_of_map(behind), Some(("clear" | "zero", map)) if map == printed) {
            return true;
        }
    }
    false
}

/// A statement that is a call whose first argument is a whole map: names of function and map.
fn call_of_map(statement: &Statement) -> Option<(&str, &str)> {
    let StatementKind::Expression(value) = &statement.kind else { return None };
    let ExpressionKind::Call(function, arguments) = &*value.kind else { return None };
    match &*arguments.first()?.kind {
        ExpressionKind::Map(map, key) if key.is_empty() => Some((function, map)),
        _ => None,
    }
}

/// Whether a statement may end the program: a call that ends it, or one that is no function of
/// the language and may hold anything.
fn is_exit(statement: &Statement) -> bool {
    const HARMLESS: [&str; 12] = [
        "print", "printf", "clear", "zero", "time", "system", "cat", "join", "delete", "errorf",
        "warnf", "debugf",
    ];
    let StatementKind::Expression(value) = &statement.kind else { return true };
    match &*value.kind {
        ExpressionKind::Call(function, _) => !HARMLESS.contains(&function.as_str()),
        ExpressionKind::Step(..) => false,
        _ => true,
    }
}
