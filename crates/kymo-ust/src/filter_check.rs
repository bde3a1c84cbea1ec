//! Whether a filter fits an event: the fields it names are there, and texts are compared with
//! texts, numbers with numbers. A filter that does not fit rejects every event, so the check comes
//! before setting it.

use crate::field::FieldTag;
use crate::filter::{Fields, Filter, instruction, op};

/// Why a filter does not fit an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterMismatch {
    /// The field that the event lacks, or whose values are compared with what they never are;
    /// empty where constants are.
    pub field: String,
    /// Reason of the mismatch.
    pub reason: MismatchReason,
}

/// Reason why a field in a filter does not match an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MismatchReason {
    /// The event does not have it.
    Missing,
    /// It is a list, which filters do not look into.
    NotComparable,
    /// It is a text, and stands where a number is needed.
    TextForNumber,
    /// It is a number, and stands where a text is needed.
    NumberForText,
    /// It is not an integer, and only integers have bits.
    NoBits,
}

impl std::fmt::Display for FilterMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name: String = self.field.chars().flat_map(char::escape_default).collect();
        match self.reason {
            MismatchReason::Missing => write!(f, "it has no field {name}"),
            MismatchReason::NotComparable => write!(f, "its field {name} is a list"),
            _ if name.is_empty() => f.write_str("a text is compared with a number"),
            MismatchReason::TextForNumber => {
                write!(f, "its field {name} is a text, not a number")
            }
            MismatchReason::NumberForText => {
                write!(f, "its field {name} is a number, not a text")
            }
            MismatchReason::NoBits => write!(f, "its field {name} is not an integer"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Integer,
    Float,
    Text,
}

/// A value as the filter's stack has it, and the field it is of.
type CheckedValue<'a> = (ValueKind, Option<&'a [u8]>);

impl<'a> Filter<'a> {
    /// The first thing in which the filter does not fit an event with these fields.
    pub fn mismatch(&self, fields: &impl Fields) -> Option<FilterMismatch> {
        // A jump keeps the value that an operand leaves, which the code behind it leaves
        // otherwise: the depth is the same on both ways, and code can be walked through once.
        let mut stack: Vec<CheckedValue<'a>> = Vec::new();
        let mut at = 0;
        while let Some((opcode, operands, next)) = instruction(self.code, at) {
            at = next;
            let pushed = match opcode {
                op::END => return None,
                op::INT | op::UINT | op::INT_AT => (ValueKind::Integer, None),
                op::FLOAT => (ValueKind::Float, None),
                op::TEXT => (ValueKind::Text, None),
                op::FIELD => match self.field_kind(operands, fields) {
                    Ok(value) => value,
                    Err(mismatch) => return Some(mismatch),
                },
                op::IF | op::IF_NOT => {
                    stack.pop();
                    continue;
                }
                op::NOT => {
                    stack.pop();
                    (ValueKind::Integer, None)
                }
                _ => {
                    let (Some(b), Some(a)) = (stack.pop(), stack.pop()) else { return None };
                    if let Some(mismatch) = operands_mismatch(opcode, a, b) {
                        return Some(mismatch);
                    }
                    (ValueKind::Integer, None)
                }
            };
            stack.push(pushed);
        }
        None
    }

    fn field_kind(
        &self,
        operands: &[u8],
        fields: &impl Fields,
    ) -> Result<CheckedValue<'a>, FilterMismatch> {
        let name = self.text(operands).unwrap_or_default();
        let mismatch = |reason| Err(mismatch_of(Some(name), reason));
        let mut same = (0..fields.count()).filter(|i| fields.name(*i) == name).peekable();
        if same.peek().is_none() {
            return mismatch(MismatchReason::Missing);
        }
        let Some(index) = same.find(|i| fields.shape(*i).is_comparable()) else {
            return mismatch(MismatchReason::NotComparable);
        };
        let kind = match fields.shape(index).kind {
            FieldTag::Int | FieldTag::Enum | FieldTag::Symbol | FieldTag::Bool => {
                ValueKind::Integer
            }
            FieldTag::Float => ValueKind::Float,
            FieldTag::String | FieldTag::Array | FieldTag::Sequence => ValueKind::Text,
        };
        Ok((kind, Some(name)))
    }
}

fn operands_mismatch(
    opcode: u8,
    a: CheckedValue<'_>,
    b: CheckedValue<'_>,
) -> Option<FilterMismatch> {
    let is_text = |value: CheckedValue<'_>| value.0 == ValueKind::Text;
    let first = |wrong: &dyn Fn(CheckedValue<'_>) -> bool, reason| {
        // The field is what the reader knows: constants are as they were typed.
        let both = [a, b];
        let field = both.into_iter().filter(|v| wrong(*v)).find_map(|v| v.1);
        both.into_iter().any(wrong).then(|| mismatch_of(field, reason))
    };
    match opcode {
        op::GLOB => first(&|v| !is_text(v), MismatchReason::NumberForText),
        op::AND => first(&is_text, MismatchReason::TextForNumber)
            .or_else(|| first(&|v| v.0 != ValueKind::Integer, MismatchReason::NoBits)),
        _ if is_text(a) == is_text(b) => None,
        _ => {
            let (text, number) = if is_text(a) { (a, b) } else { (b, a) };
            Some(match (text.1, number.1) {
                (Some(field), _) => mismatch_of(Some(field), MismatchReason::TextForNumber),
                (None, field) => mismatch_of(field, MismatchReason::NumberForText),
            })
        }
    }
}

fn mismatch_of(field: Option<&[u8]>, reason: MismatchReason) -> FilterMismatch {
    FilterMismatch { field: String::from_utf8_lossy(field.unwrap_or_default()).into(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Shape;

    struct Sale;

    const FIELDS: [(&str, FieldTag, u8); 5] = [
        ("id", FieldTag::Int, 8),
        ("customer", FieldTag::String, 1),
        ("euros", FieldTag::Float, 8),
        ("digits", FieldTag::Array, 1),
        ("history", FieldTag::Sequence, 2),
    ];

    impl Fields for Sale {
        fn count(&self) -> usize {
            FIELDS.len()
        }
        fn shape(&self, index: usize) -> Shape {
            let (_, kind, size) = FIELDS[index];
            Shape { kind, size, flags: 0, count: 1 }
        }
        fn name(&self, index: usize) -> &[u8] {
            FIELDS[index].0.as_bytes()
        }
    }

    fn mismatch(filter: &str) -> Option<(String, MismatchReason)> {
        let code = crate::compile(filter).unwrap();
        let found = Filter::parse(&code).unwrap().mismatch(&Sale)?;
        Some((found.field, found.reason))
    }

    #[test]
    fn what_fits() {
        for filter in [
            "id",
            "id > 3 && customer == \"a*\" || !euros",
            "euros < 3 && (id & 4) == 4",
            "customer < \"m\" && digits != \"ab\"",
            "3 < id && \"x\" ~ customer",
            "id == euros",
        ] {
            assert_eq!(mismatch(filter), None, "{filter}");
        }
    }

    #[test]
    fn what_does_not_fit() {
        use MismatchReason::{Missing, NoBits, NotComparable, NumberForText, TextForNumber};
        for (filter, field, reason) in [
            ("nosuch == 1", "nosuch", Missing),
            ("id > 1 && custmer == \"a\"", "custmer", Missing),
            ("id > 1 || history == 3", "history", NotComparable),
            ("customer == 3", "customer", TextForNumber),
            ("3 == customer", "customer", TextForNumber),
            ("customer > id", "customer", TextForNumber),
            ("id == \"x\"", "id", NumberForText),
            ("id == \"x*\"", "id", NumberForText),
            ("id ~ \"x\"", "id", NumberForText),
            ("!(euros & 4)", "euros", NoBits),
            ("customer & 4", "customer", TextForNumber),
            ("id > 3 && 1 == \"x\"", "", NumberForText),
        ] {
            assert_eq!(mismatch(filter), Some((field.to_owned(), reason)), "{filter}");
        }
    }
}
