//! Features that only the kernel has, which are refused where a program is to run in user space;
//! and conditions that the kernel can check before an event is delivered.

use kymo_format::{Field, FieldKind};

use super::Lowering;
use super::builder::helper;
use super::types::AddressSpace;
use crate::ast::{BinaryOperator, Expression, ExpressionKind, ProbeTree};
use crate::lexer::error_at;
use crate::object::{AttachPoint, AttachTarget, ProgramPosition, SourceMessage};

impl Lowering<'_> {
    /// Whether events of a point do not come out of rings.
    pub(super) fn needs_kernel(&self, point: &AttachPoint) -> bool {
        use AttachTarget as T;
        let comes = matches!(
            point.target,
            T::Begin
                | T::End
                | T::Tracepoint { .. }
                | T::Software { .. }
                | T::Hardware { .. }
                | T::Interval { .. }
                | T::Profile { .. }
        );
        self.options.in_user_space && !comes
    }

    /// Notes that the program asks for something that user space does not have.
    pub(super) fn refuse(&mut self, what: &str) {
        if self.options.in_user_space && self.program.refusal.is_none() {
            let text = format!("{what} works only in BPF programs");
            self.program.refusal = Some(with_hint(error_at(self.position, text)));
        }
    }

    /// A read of memory: of records, user space has a copy.
    pub(super) fn read_from(&mut self, space: AddressSpace) {
        if space != AddressSpace::Record {
            self.refuse("memory that a pointer points to");
        }
    }

    pub(super) fn refuse_helper(&mut self, number: i32) {
        let what = match number {
            helper::TASK => "the task's structure",
            helper::NUMA_NODE => "NUMA node of the event",
            helper::SOCKET_COOKIE => "socket_cookie()",
            helper::OVERRIDE => "override()",
            helper::WRITE_USER => "write_user()",
            helper::SEND_SIGNAL => "signal()",
            helper::SEND_SIGNAL_THREAD => "signal_thread()",
            helper::JIFFIES => "jiffies",
            helper::PATH => "path()",
            helper::FUNCTION_ADDRESS => "the function's address",
            _ => return,
        };
        self.refuse(what);
    }

    /// The part of a tracepoint's filter that the kernel's event filters can judge: comparisons
    /// of the record's numbers with constants, as far as all of them have to hold.
    pub(super) fn kernel_condition(&self, probe: &ProbeTree) -> Option<String> {
        let AttachTarget::Tracepoint { category, event } = &self.point.target else { return None };
        let filter = probe.filter.as_ref().filter(|_| self.options.in_user_space)?;
        let format = self.facts.tracepoint_format(category, event).ok()?;
        let mut parts = Vec::new();
        let mut rest = vec![filter];
        while let Some(expression) = rest.pop() {
            match &*expression.kind {
                ExpressionKind::Binary(BinaryOperator::LogicalAnd, left, right) => {
                    rest.extend([right, left]);
                }
                ExpressionKind::Binary(operator, left, right) => {
                    let field = argument(left).and_then(|name| format.field(name));
                    let part = field.zip(comparison(*operator)).zip(constant(right));
                    parts.extend(
                        part.and_then(|((field, sign), value)| compared(field, sign, value)),
                    );
                }
                _ => {}
            }
        }
        // The kernel takes no more than a page.
        let condition = parts.join(" && ");
        (!condition.is_empty() && condition.len() < 2048).then_some(condition)
    }
}

/// The message for a probe whose events do not come out of rings.
pub(super) fn refused_point(point: &AttachPoint, position: ProgramPosition) -> SourceMessage {
    let kind = point.name.split(':').next().unwrap_or_default();
    with_hint(error_at(position, format!("{kind} probes work only in BPF programs")))
}

fn with_hint(mut message: SourceMessage) -> SourceMessage {
    message.needs_kernel = true;
    message.hint = Some(
        "user space supports tracepoints, software and hardware events, profile, intervals, BEGIN \
         and END"
            .into(),
    );
    message
}

/// Name of `args.name`.
fn argument(expression: &Expression) -> Option<&str> {
    let ExpressionKind::Field(inner, name) = &*expression.kind else { return None };
    let is_record = matches!(&*inner.kind, ExpressionKind::Name(args) if args == "args");
    is_record.then_some(name.as_str())
}

fn constant(expression: &Expression) -> Option<i64> {
    match &*expression.kind {
        ExpressionKind::Integer(value) => i64::try_from(*value).ok(),
        ExpressionKind::Negate(inner) => constant(inner).map(i64::wrapping_neg),
        _ => None,
    }
}

fn comparison(operator: BinaryOperator) -> Option<&'static str> {
    use BinaryOperator as B;
    Some(match operator {
        B::Equal => "==",
        B::NotEqual => "!=",
        B::Less => "<",
        B::LessEqual => "<=",
        B::Greater => ">",
        B::GreaterEqual => ">=",
        _ => return None,
    })
}

/// A comparison in the kernel's syntax. It compares as numbers of the field's type, so that
/// the constant has to be one.
fn compared(field: &Field, sign: &str, value: i64) -> Option<String> {
    let bits = match (&field.kind, field.size) {
        (FieldKind::Int, size @ (1 | 2 | 4 | 8)) => size * 8,
        _ => return None,
    };
    let value_bits = bits - u32::from(field.signed);
    let fits = if field.signed {
        bits == 64 || (-(1 << value_bits)..1 << value_bits).contains(&value)
    } else {
        value >= 0 && (value_bits >= 63 || value < 1 << value_bits)
    };
    fits.then(|| format!("{} {sign} {value}", field.name))
}
