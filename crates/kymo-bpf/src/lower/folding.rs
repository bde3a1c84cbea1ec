//! Folding of operators and constants while a program is lowered.

use crate::ast::{BinaryOperator, Expression, ExpressionKind};
use crate::code::{CompareOperation, ComputeOperation};

pub(super) fn cut(value: i64, size: u8, signed: bool) -> i64 {
    match (size, signed) {
        (1, false) => i64::from(value as u8),
        (1, true) => i64::from(value as i8),
        (2, false) => i64::from(value as u16),
        (2, true) => i64::from(value as i16),
        (4, false) => i64::from(value as u32),
        (4, true) => i64::from(value as i32),
        _ => value,
    }
}

pub(super) fn compare_operation(op: BinaryOperator, signed: bool) -> Option<CompareOperation> {
    use BinaryOperator as Op;
    use CompareOperation as C;
    Some(match (op, signed) {
        (Op::Equal, _) => C::Equal,
        (Op::NotEqual, _) => C::NotEqual,
        (Op::Less, false) => C::Less,
        (Op::Less, true) => C::SignedLess,
        (Op::LessEqual, false) => C::LessEqual,
        (Op::LessEqual, true) => C::SignedLessEqual,
        (Op::Greater, false) => C::Greater,
        (Op::Greater, true) => C::SignedGreater,
        (Op::GreaterEqual, false) => C::GreaterEqual,
        (Op::GreaterEqual, true) => C::SignedGreaterEqual,
        _ => return None,
    })
}

pub(super) fn negated(op: BinaryOperator) -> BinaryOperator {
    use BinaryOperator as Op;
    match op {
        Op::Equal => Op::NotEqual,
        Op::NotEqual => Op::Equal,
        Op::Less => Op::GreaterEqual,
        Op::LessEqual => Op::Greater,
        Op::Greater => Op::LessEqual,
        Op::GreaterEqual => Op::Less,
        other => other,
    }
}

pub(super) fn mirrored(op: BinaryOperator) -> BinaryOperator {
    use BinaryOperator as Op;
    match op {
        Op::Less => Op::Greater,
        Op::LessEqual => Op::GreaterEqual,
        Op::Greater => Op::Less,
        Op::GreaterEqual => Op::LessEqual,
        other => other,
    }
}

pub(super) fn compute_operation(op: BinaryOperator) -> ComputeOperation {
    use BinaryOperator as Op;
    use ComputeOperation as C;
    match op {
        Op::Subtract => C::Subtract,
        Op::Multiply => C::Multiply,
        Op::Divide => C::Divide,
        Op::Modulo => C::Modulo,
        Op::And => C::And,
        Op::Or => C::Or,
        Op::Xor => C::Xor,
        Op::ShiftLeft => C::ShiftLeft,
        Op::ShiftRight => C::ShiftRight,
        _ => C::Add,
    }
}

pub(super) fn fold_compare(op: BinaryOperator, a: i64, b: i64) -> bool {
    use BinaryOperator as Op;
    match op {
        Op::Equal => a == b,
        Op::NotEqual => a != b,
        Op::Less => a < b,
        Op::LessEqual => a <= b,
        Op::Greater => a > b,
        _ => a >= b,
    }
}

/// Value of an expression of constants, as declarations of C have them: `known` has names and sizes.
pub(crate) fn fold_constant(
    expression: &Expression,
    known: &dyn Fn(&ExpressionKind) -> Option<i64>,
) -> Option<i64> {
    use ExpressionKind as Kind;
    let value = |e: &Expression| fold_constant(e, known);
    Some(match &*expression.kind {
        Kind::Integer(n) => *n as i64,
        Kind::Negate(inner) => value(inner)?.wrapping_neg(),
        Kind::Complement(inner) => !value(inner)?,
        Kind::Not(inner) => i64::from(value(inner)? == 0),
        Kind::Cast(_, inner) => value(inner)?,
        Kind::Ternary(condition, then, other) => {
            value(if value(condition)? != 0 { then } else { other })?
        }
        Kind::Binary(op, left, right) => {
            let (left, right) = (value(left)?, value(right)?);
            match op {
                BinaryOperator::LogicalAnd => i64::from(left != 0 && right != 0),
                BinaryOperator::LogicalOr => i64::from(left != 0 || right != 0),
                BinaryOperator::Divide | BinaryOperator::Modulo if right == 0 => return None,
                op if compare_operation(*op, true).is_some() => {
                    i64::from(fold_compare(*op, left, right))
                }
                op => fold(*op, left, right, true),
            }
        }
        other => return known(other),
    })
}

pub(super) fn fold(op: BinaryOperator, a: i64, b: i64, signed: bool) -> i64 {
    use BinaryOperator as Op;
    match op {
        Op::Add => a.wrapping_add(b),
        Op::Subtract => a.wrapping_sub(b),
        Op::Multiply => a.wrapping_mul(b),
        Op::Divide | Op::Modulo if b == 0 => 1,
        Op::Divide if signed => a.wrapping_div(b),
        Op::Modulo if signed => a.wrapping_rem(b),
        Op::Divide => (a as u64 / b as u64) as i64,
        Op::Modulo => (a as u64 % b as u64) as i64,
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::ShiftLeft => u32::try_from(b).ok().and_then(|n| a.checked_shl(n)).unwrap_or(0),
        Op::ShiftRight if signed => a >> b.clamp(0, 63),
        Op::ShiftRight => {
            u32::try_from(b).ok().and_then(|n| (a as u64).checked_shr(n)).unwrap_or(0) as i64
        }
        _ => 0,
    }
}
