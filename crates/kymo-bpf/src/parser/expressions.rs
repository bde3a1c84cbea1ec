//! Expressions, by precedence as in C.

use super::{MAX_DEPTH, Parsed, ProgramParser};
use crate::ast::{
    BinaryOperator, BlockTree, Expression, ExpressionKind, Statement, StatementKind, TypeName,
};
use crate::lexer::{TokenKind, error_at};
use crate::object::ProgramPosition;

/// Words that begin a type.
const TYPE_WORDS: &[&str] = &[
    "struct",
    "union",
    "enum",
    "unsigned",
    "signed",
    "int",
    "long",
    "short",
    "char",
    "void",
    "bool",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "const",
    "buffer",
    "inet",
    "typeof",
    "volatile",
    "u8",
    "u16",
    "u32",
    "u64",
    "s8",
    "s16",
    "s32",
    "s64",
    "size_t",
    "ssize_t",
    "pid_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "usym_t",
    "ksym_t",
    "__u8",
    "__u16",
    "__u32",
    "__u64",
    "__s8",
    "__s16",
    "__s32",
    "__s64",
    "uintptr_t",
    "loff_t",
    "off_t",
    "dev_t",
];

impl ProgramParser<'_> {
    /// Makes a node; its depth is bounded, as all who walk the tree recurse.
    pub(super) fn node(
        &self,
        kind: ExpressionKind,
        position: ProgramPosition,
    ) -> Parsed<Expression> {
        use ExpressionKind as Kind;
        let depth = match &kind {
            Kind::Not(e) | Kind::Negate(e) | Kind::Complement(e) | Kind::Dereference(e) => e.depth,
            Kind::AddressOf(e) | Kind::Cast(_, e) | Kind::Field(e, _) | Kind::Step(e, ..) => {
                e.depth
            }
            Kind::SizeofValue(e) | Kind::OffsetofValue(e, _) => e.depth,
            Kind::Binary(_, a, b) | Kind::Index(a, b) => a.depth.max(b.depth),
            Kind::Ternary(a, b, c) => a.depth.max(b.depth).max(c.depth),
            Kind::Tuple(list)
            | Kind::NamedTuple(_, list)
            | Kind::Call(_, list)
            | Kind::Map(_, list) => list.iter().map(|e| e.depth).max().unwrap_or(0),
            _ => 0,
        } + 1;
        if depth > MAX_DEPTH {
            let what = format!("expression is deeper than {MAX_DEPTH} levels");
            return Err(error_at(position, what));
        }
        Ok(Expression { kind: Box::new(kind), position, depth })
    }

    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.nested(|p| p.ternary(true))
    }

    /// The expression of a filter: `/` ends it, unless an operand follows it that is
    /// followed by something that is no block.
    pub(super) fn expression_before_slash(&mut self) -> Parsed<Expression> {
        self.nested(|p| p.ternary(false))
    }

    fn ternary(&mut self, division: bool) -> Parsed<Expression> {
        let position = self.position();
        let condition = self.binary(0, division)?;
        if !self.accept("?") {
            return Ok(condition);
        }
        if self.accept(":") {
            let other = self.nested(|p| p.ternary(division))?;
            return self.value_or(condition, other, position);
        }
        let then = self.nested(|p| p.ternary(division))?;
        self.expect(":")?;
        let other = self.nested(|p| p.ternary(division))?;
        self.node(ExpressionKind::Ternary(condition, then, other), position)
    }

    /// `value ?: other`, the value computed once.
    fn value_or(
        &self,
        value: Expression,
        other: Expression,
        position: ProgramPosition,
    ) -> Parsed<Expression> {
        // No name that a program can write.
        let name = format!("?{}:{}", position.line, position.column);
        let kept = self.node(ExpressionKind::Variable(name.clone()), position)?;
        let choice = ExpressionKind::Ternary(kept.clone(), kept, other);
        let block = BlockTree {
            statements: vec![Statement {
                kind: StatementKind::Let(name, None, Some(value)),
                position,
            }],
            value: Some(Box::new(self.node(choice, position)?)),
        };
        self.node(ExpressionKind::Block(block.into()), position)
    }

    fn binary(&mut self, least: u8, division: bool) -> Parsed<Expression> {
        let position = self.position();
        let mut left = self.nested(Self::unary)?;
        loop {
            let TokenKind::Mark(mark) = *self.kind() else { return Ok(left) };
            let Some((operator, precedence)) = binary_operator(mark) else { return Ok(left) };
            if precedence < least {
                return Ok(left);
            }
            let ends = |kind: &TokenKind| matches!(kind, TokenKind::Mark("{"));
            if mark == "/" && !division && ends(self.kind_at(1)) {
                return Ok(left);
            }
            self.at += 1;
            let right = self.nested(|p| p.binary(precedence + 1, division))?;
            left = self.node(ExpressionKind::Binary(operator, left, right), position)?;
        }
    }

    pub(super) fn unary(&mut self) -> Parsed<Expression> {
        let position = self.position();
        let TokenKind::Mark(mark) = *self.kind() else { return self.postfix() };
        let make: fn(Expression) -> ExpressionKind = match mark {
            "!" => ExpressionKind::Not,
            "-" => ExpressionKind::Negate,
            "~" => ExpressionKind::Complement,
            "*" => ExpressionKind::Dereference,
            "&" => ExpressionKind::AddressOf,
            "++" => |e| ExpressionKind::Step(e, 1, false),
            "--" => |e| ExpressionKind::Step(e, -1, false),
            "+" => {
                self.at += 1;
                return self.nested(Self::unary);
            }
            "(" if self.begins_cast() => {
                self.at += 1;
                let type_name = self.type_name()?;
                self.expect(")")?;
                let value = self.nested(Self::unary)?;
                return self.node(ExpressionKind::Cast(type_name, value), position);
            }
            _ => return self.postfix(),
        };
        self.at += 1;
        let operand = self.nested(Self::unary)?;
        self.node(make(operand), position)
    }

    fn begins_cast(&self) -> bool {
        let TokenKind::Name(name) = self.kind_at(1) else { return false };
        if self.is_type_word(name) {
            return true;
        }
        // `(name *)`, `(name)$x`: a typedef of the kernel.
        let mut ahead = 2;
        while matches!(self.kind_at(ahead), TokenKind::Mark("*")) {
            ahead += 1;
        }
        let closes = matches!(self.kind_at(ahead), TokenKind::Mark(")"));
        let operand = matches!(
            self.kind_at(ahead + 1),
            TokenKind::Name(_)
                | TokenKind::Variable(_)
                | TokenKind::Map(_)
                | TokenKind::Integer(_)
                | TokenKind::Parameter(_)
                | TokenKind::Mark("(")
        );
        closes && (ahead > 2 || operand)
    }

    fn is_type_word(&self, name: &str) -> bool {
        TYPE_WORDS.contains(&name)
            || self.tree.typedefs.iter().any(|declared| declared.name == name)
    }

    /// A type: `struct x *`, `uint64`, `string[16]`.
    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let mut words: Vec<String> = Vec::new();
        while let TokenKind::Name(name) = self.kind().clone() {
            match name.as_str() {
                "const" | "volatile" => self.at += 1,
                "typeof" if words.is_empty() => {
                    self.at += 1;
                    self.expect("(")?;
                    let of = if self.begins_type() {
                        self.type_name()?
                    } else {
                        TypeName::Of(self.expression()?.into())
                    };
                    self.expect(")")?;
                    return self.type_suffix(of);
                }
                "struct" | "union" | "enum" => {
                    self.at += 1;
                    let tag = self.expect_name("a type's name")?;
                    words = vec![name, tag];
                    break;
                }
                _ if words.is_empty() || TYPE_WORDS.contains(&name.as_str()) => {
                    words.push(name);
                    self.at += 1;
                }
                _ => break,
            }
        }
        if words.is_empty() {
            return Err(self.unexpected("a type"));
        }
        self.type_suffix(TypeName::Named(words.join(" ")))
    }

    fn type_suffix(&mut self, base: TypeName) -> Parsed<TypeName> {
        let mut type_name = base;
        let mut stars = 0;
        loop {
            if self.accept("*") {
                stars += 1;
                if stars > 8 {
                    return Err(error_at(self.position(), "too many `*`"));
                }
                type_name = TypeName::Pointer(Box::new(type_name));
            } else if !self.accept_name("const") {
                break;
            }
        }
        if self.is_mark("[") {
            self.at += 1;
            let count = match self.kind() {
                TokenKind::Integer(n) => u32::try_from(*n).unwrap_or(u32::MAX).min(1 << 20),
                _ => 0,
            };
            self.at += usize::from(!self.is_mark("]"));
            self.expect("]")?;
            type_name = TypeName::Array(Box::new(type_name), count);
        }
        Ok(type_name)
    }

    fn postfix(&mut self) -> Parsed<Expression> {
        let position = self.position();
        let mut value = self.primary()?;
        loop {
            let TokenKind::Mark(mark) = *self.kind() else { return Ok(value) };
            let kind = match mark {
                "." | "->" => {
                    self.at += 1;
                    let field = match self.next() {
                        TokenKind::Name(name) => name,
                        TokenKind::Integer(n) => n.to_string(),
                        _ => {
                            self.at -= 1;
                            return Err(self.unexpected("a member's name"));
                        }
                    };
                    ExpressionKind::Field(value, field)
                }
                "[" => {
                    self.at += 1;
                    let index = self.expression()?;
                    self.expect("]")?;
                    ExpressionKind::Index(value, index)
                }
                "++" | "--" => {
                    self.at += 1;
                    ExpressionKind::Step(value, if mark == "++" { 1 } else { -1 }, true)
                }
                _ => return Ok(value),
            };
            value = self.node(kind, position)?;
        }
    }

    fn list(&mut self, end: &str) -> Parsed<Vec<Expression>> {
        let mut list = Vec::new();
        while !self.accept(end) {
            list.push(self.expression()?);
            if !self.accept(",") && !self.is_mark(end) {
                return Err(self.unexpected(&format!("`,` or `{end}`")));
            }
        }
        Ok(list)
    }

    fn begins_named_part(&self) -> bool {
        matches!((self.kind(), self.kind_at(1)), (TokenKind::Name(_), TokenKind::Mark("=")))
    }

    /// Parts of a tuple that have names, up to its `)`.
    fn named_parts(&mut self) -> Parsed<(Vec<String>, Vec<Expression>)> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        loop {
            let position = self.position();
            let name = self.expect_name("a part's name")?;
            if names.contains(&name) {
                return Err(error_at(position, format!("duplicate part {name}")));
            }
            self.expect("=")?;
            names.push(name);
            values.push(self.expression()?);
            if self.accept(")") {
                return Ok((names, values));
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Parsed<Expression> {
        let position = self.position();
        let kind = match self.kind().clone() {
            TokenKind::Integer(n) => ExpressionKind::Integer(n),
            TokenKind::Text(text) => {
                self.at += 1;
                let mut text = text;
                while let TokenKind::Text(more) = self.kind() {
                    text.push_str(more);
                    self.at += 1;
                }
                return self.node(ExpressionKind::Text(text), position);
            }
            TokenKind::Variable(name) => ExpressionKind::Variable(name),
            TokenKind::Parameter(n) => ExpressionKind::Parameter(n),
            TokenKind::ParameterCount => ExpressionKind::ParameterCount,
            TokenKind::Map(name) => {
                self.at += 1;
                let key = if self.accept("[") { self.list("]")? } else { Vec::new() };
                return self.node(ExpressionKind::Map(name, key), position);
            }
            TokenKind::Name(name) => return self.name_or_call(name, position),
            TokenKind::Mark("{") => {
                let block = self.block()?;
                let block = self.valued(block)?;
                return self.node(ExpressionKind::Block(block.into()), position);
            }
            TokenKind::Mark("(") => {
                self.at += 1;
                if self.begins_named_part() {
                    let (names, values) = self.named_parts()?;
                    return self.node(ExpressionKind::NamedTuple(names, values), position);
                }
                let mut list = vec![self.expression()?];
                if self.accept(")") {
                    return Ok(list.remove(0));
                }
                self.expect(",")?;
                list.extend(self.list(")")?);
                return self.node(ExpressionKind::Tuple(list), position);
            }
            _ => return Err(self.unexpected("an expression")),
        };
        self.at += 1;
        self.node(kind, position)
    }

    fn name_or_call(&mut self, name: String, position: ProgramPosition) -> Parsed<Expression> {
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(error_at(position, format!("not an integer: {name:?}")));
        }
        self.at += 1;
        let kind = match name.as_str() {
            "true" => ExpressionKind::Boolean(true),
            "false" => ExpressionKind::Boolean(false),
            "typeof" if matches!(self.kind(), TokenKind::Mark("(")) => {
                self.at -= 1;
                ExpressionKind::Type(self.type_name()?)
            }
            "sizeof" | "offsetof" => return self.size_or_offset(&name, position),
            // `comptime` only requests what is done anyway: constants are folded.
            "comptime" => return self.expression(),
            "if" => return self.nested(|parser| parser.choice(position)),
            _ if self.accept("(") => ExpressionKind::Call(name, self.list(")")?),
            _ => ExpressionKind::Name(name),
        };
        self.node(kind, position)
    }

    /// `if CONDITION { … } else { … }` for its value.
    fn choice(&mut self, position: ProgramPosition) -> Parsed<Expression> {
        let condition = self.expression()?;
        let then_at = self.position();
        let then = self.block()?;
        let then = self.valued(then)?;
        let then = self.node(ExpressionKind::Block(then.into()), then_at)?;
        if !self.accept_name("else") {
            return Err(self.unexpected("`else` branch of an `if` expression"));
        }
        let other_at = self.position();
        let other = if self.accept_name("if") {
            self.nested(|parser| parser.choice(other_at))?
        } else {
            let other = self.block()?;
            let other = self.valued(other)?;
            self.node(ExpressionKind::Block(other.into()), other_at)?
        };
        self.node(ExpressionKind::Ternary(condition, then, other), position)
    }

    /// A block whose value is asked for: an `if` with an `else` at its end is that value.
    fn valued(&self, mut block: BlockTree) -> Parsed<BlockTree> {
        let ends_by_choice = matches!(
            block.statements.last().map(|last| &last.kind),
            Some(StatementKind::If(_, then, other))
                if has_value(then) && has_value(other)
        );
        if block.value.is_some() || !ends_by_choice {
            return Ok(block);
        }
        if let Some(Statement { kind: StatementKind::If(condition, then, other), position }) =
            block.statements.pop()
        {
            let part = |block: BlockTree| {
                self.node(ExpressionKind::Block(self.valued(block)?.into()), position)
            };
            let choice = ExpressionKind::Ternary(condition, part(then)?, part(other)?);
            block.value = Some(Box::new(self.node(choice, position)?));
        }
        Ok(block)
    }

    /// Whether a type is next, as far as its first words tell: `name *)` is one, too.
    fn begins_type(&self) -> bool {
        let TokenKind::Name(name) = self.kind() else { return false };
        let mut ahead = 1;
        while matches!(self.kind_at(ahead), TokenKind::Mark("*")) {
            ahead += 1;
        }
        self.is_type_word(name)
            || (ahead > 1 && matches!(self.kind_at(ahead), TokenKind::Mark(")" | "[")))
    }

    fn size_or_offset(&mut self, name: &str, position: ProgramPosition) -> Parsed<Expression> {
        self.expect("(")?;
        let begins_type = self.begins_type();
        let type_name = if begins_type { Some(self.type_name()?) } else { None };
        let value = if type_name.is_none() { Some(self.expression()?) } else { None };
        let mut path = Vec::new();
        if name == "offsetof" {
            self.expect(",")?;
            loop {
                path.push(self.expect_name("a member's name")?);
                if !self.accept(".") {
                    break;
                }
            }
        }
        self.expect(")")?;
        let kind = match (type_name, value, name) {
            (Some(t), _, "sizeof") => ExpressionKind::SizeofType(t),
            (Some(t), ..) => ExpressionKind::OffsetofType(t, path),
            (None, Some(v), "sizeof") => ExpressionKind::SizeofValue(v),
            (None, Some(v), _) => ExpressionKind::OffsetofValue(v, path),
            (None, None, _) => return Err(self.unexpected("a type")),
        };
        self.node(kind, position)
    }
}

/// Whether a block has a value, or an `if` at its end that has.
fn has_value(block: &BlockTree) -> bool {
    let last = block.statements.last().map(|last| &last.kind);
    block.value.is_some()
        || matches!(last, Some(StatementKind::If(_, then, other)) if has_value(then) && has_value(other))
}

/// An operator and its precedence.
fn binary_operator(mark: &str) -> Option<(BinaryOperator, u8)> {
    use BinaryOperator as Op;
    Some(match mark {
        "||" => (Op::LogicalOr, 1),
        "&&" => (Op::LogicalAnd, 2),
        "|" => (Op::Or, 3),
        "^" => (Op::Xor, 4),
        "&" => (Op::And, 5),
        "==" => (Op::Equal, 6),
        "!=" => (Op::NotEqual, 6),
        "<" => (Op::Less, 7),
        "<=" => (Op::LessEqual, 7),
        ">" => (Op::Greater, 7),
        ">=" => (Op::GreaterEqual, 7),
        "<<" => (Op::ShiftLeft, 8),
        ">>" => (Op::ShiftRight, 8),
        "+" => (Op::Add, 9),
        "-" => (Op::Subtract, 9),
        "*" => (Op::Multiply, 10),
        "/" => (Op::Divide, 10),
        "%" => (Op::Modulo, 10),
        _ => return None,
    })
}
