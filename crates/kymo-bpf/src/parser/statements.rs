//! Statements and blocks.

use super::{Parsed, ProgramParser};
use crate::ast::{BinaryOperator, BlockTree, Expression, ExpressionKind, Statement, StatementKind};
use crate::lexer::{TokenKind, error_at};

impl ProgramParser<'_> {
    /// `{ … }`
    pub(super) fn block(&mut self) -> Parsed<BlockTree> {
        self.expect("{")?;
        self.nested(Self::block_rest)
    }

    fn block_rest(&mut self) -> Parsed<BlockTree> {
        let mut block = BlockTree::default();
        loop {
            while self.accept(";") {}
            if self.accept("}") {
                return Ok(block);
            }
            let statement = self.statement()?;
            let ended = self.accept(";");
            match statement.kind {
                StatementKind::Expression(value) if !ended && self.accept("}") => {
                    block.value = Some(Box::new(value));
                    return Ok(block);
                }
                StatementKind::Expression(_)
                | StatementKind::Assign(..)
                | StatementKind::Let(..)
                | StatementKind::Return(_)
                | StatementKind::Break
                | StatementKind::Continue
                    if !ended && !self.is_mark("}") =>
                {
                    // A block as a statement needs no semicolon after it.
                    let was_block = matches!(
                        self.tokens.get(self.at.wrapping_sub(1)).map(|t| &t.kind),
                        Some(TokenKind::Mark("}"))
                    );
                    if !was_block {
                        return Err(self.unexpected("`;` or `}`"));
                    }
                    block.statements.push(statement);
                }
                _ => block.statements.push(statement),
            }
        }
    }

    fn statement(&mut self) -> Parsed<Statement> {
        let position = self.position();
        let kind = match self.kind().clone() {
            TokenKind::Name(name) => match name.as_str() {
                "if" => self.nested(Self::if_statement)?,
                "while" => {
                    self.at += 1;
                    let condition = self.expression()?;
                    StatementKind::While(condition, self.block()?)
                }
                "for" => self.for_statement()?,
                "unroll" => {
                    self.at += 1;
                    let count = self.expression()?;
                    StatementKind::Unroll(count, self.block()?)
                }
                "return" => {
                    self.at += 1;
                    let ends = self.is_mark(";") || self.is_mark("}");
                    StatementKind::Return(if ends { None } else { Some(self.expression()?) })
                }
                "break" => {
                    self.at += 1;
                    StatementKind::Break
                }
                "continue" => {
                    self.at += 1;
                    StatementKind::Continue
                }
                "let" => self.let_statement()?,
                "_" if matches!(self.kind_at(1), TokenKind::Mark("=")) => {
                    self.at += 2;
                    StatementKind::Expression(self.expression()?)
                }
                _ => self.expression_statement()?,
            },
            TokenKind::Mark("{") => {
                let block = self.block()?;
                if block.value.is_some() {
                    let kind = ExpressionKind::Block(block.into());
                    StatementKind::Expression(self.node(kind, position)?)
                } else {
                    StatementKind::Block(block)
                }
            }
            _ => self.expression_statement()?,
        };
        Ok(Statement { kind, position })
    }

    fn if_statement(&mut self) -> Parsed<StatementKind> {
        self.at += 1;
        let condition = self.expression()?;
        let then = self.block()?;
        let mut other = BlockTree::default();
        if self.accept_name("else") {
            if self.is_name("if") {
                let position = self.position();
                let kind = self.nested(Self::if_statement)?;
                other.statements.push(Statement { kind, position });
            } else {
                other = self.block()?;
            }
        }
        Ok(StatementKind::If(condition, then, other))
    }

    fn for_statement(&mut self) -> Parsed<StatementKind> {
        self.at += 1;
        let parens = self.accept("(");
        let TokenKind::Variable(variable) = self.next() else {
            self.at -= 1;
            return Err(self.unexpected("the loop's variable (`$name`)"));
        };
        self.expect(":")?;
        if let TokenKind::Map(map) = self.kind().clone()
            && matches!(self.kind_at(1), TokenKind::Mark(")" | "{"))
        {
            self.at += 1;
            if parens {
                self.expect(")")?;
            }
            return Ok(StatementKind::ForMap(variable, map, self.block()?));
        }
        let from = self.nested(Self::unary)?;
        self.expect("..")?;
        let to = self.nested(Self::unary)?;
        if parens {
            self.expect(")")?;
        }
        Ok(StatementKind::ForRange(variable, from, to, self.block()?))
    }

    fn let_statement(&mut self) -> Parsed<StatementKind> {
        self.at += 1;
        let TokenKind::Variable(variable) = self.next() else {
            self.at -= 1;
            return Err(self.unexpected("a variable (`$name`)"));
        };
        let type_name = if self.accept(":") { Some(self.type_name()?) } else { None };
        let value = if self.accept("=") { Some(self.expression()?) } else { None };
        Ok(StatementKind::Let(variable, type_name, value))
    }

    fn expression_statement(&mut self) -> Parsed<StatementKind> {
        let position = self.position();
        let target = self.expression()?;
        let operator = match self.kind() {
            TokenKind::Mark("=") => None,
            TokenKind::Mark(mark) => match compound_operator(mark) {
                Some(operator) => Some(operator),
                None => return Ok(StatementKind::Expression(target)),
            },
            _ => return Ok(StatementKind::Expression(target)),
        };
        if !matches!(*target.kind, ExpressionKind::Variable(_) | ExpressionKind::Map(..)) {
            let what = "only maps (`@name`) and variables (`$name`) can be assigned to";
            return Err(error_at(position, what));
        }
        self.at += 1;
        let value = self.expression()?;
        let value: Expression = match operator {
            None => value,
            Some(op) => self.node(ExpressionKind::Binary(op, target.clone(), value), position)?,
        };
        Ok(StatementKind::Assign(target, value))
    }
}

fn compound_operator(mark: &str) -> Option<BinaryOperator> {
    Some(match mark {
        "+=" => BinaryOperator::Add,
        "-=" => BinaryOperator::Subtract,
        "*=" => BinaryOperator::Multiply,
        "/=" => BinaryOperator::Divide,
        "%=" => BinaryOperator::Modulo,
        "&=" => BinaryOperator::And,
        "|=" => BinaryOperator::Or,
        "^=" => BinaryOperator::Xor,
        "<<=" => BinaryOperator::ShiftLeft,
        ">>=" => BinaryOperator::ShiftRight,
        _ => return None,
    })
}
