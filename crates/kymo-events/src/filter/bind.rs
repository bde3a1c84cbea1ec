//! A filter bound to an event class: its fields are known by number, its comparisons fit
//! their types.

use super::parse::{Comparison, FilterExpr, FilterExprError, Node, Operand};
use crate::event::RecordedEvent;
use crate::field_type::FieldType;
use crate::schema::{FieldId, RecordedClass};
use crate::value::FieldValue;

/// What a comparison looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Field(FieldId),
    Comm,
    Pid,
    Tid,
    Cpu,
    Name,
}

#[derive(Clone, Debug)]
enum BoundNode<'f> {
    And(Box<BoundNode<'f>>, Box<BoundNode<'f>>),
    Or(Box<BoundNode<'f>>, Box<BoundNode<'f>>),
    Not(Box<BoundNode<'f>>),
    Compare(Subject, Comparison, &'f Operand),
}

/// A filter for the events of one class.
#[derive(Clone, Debug)]
pub struct BoundFilter<'f>(BoundNode<'f>);

impl FilterExpr {
    /// Binds the filter to a class. `None`: the class lacks a field of it, or has it as
    /// another type than it is compared with.
    pub fn bind(&self, class: &RecordedClass) -> Option<BoundFilter<'_>> {
        bind(&self.root, class, &self.text).ok().map(BoundFilter)
    }

    /// Checks that there is a class among those of the recording that the filter fits.
    ///
    /// # Errors
    /// Names the field that no class has, with those there are, or the comparison that fits
    /// none of the classes which have it.
    pub fn check<'c>(
        &self,
        classes: impl Iterator<Item = &'c RecordedClass> + Clone,
    ) -> Result<(), FilterExprError> {
        let mut farthest: Option<FilterExprError> = None;
        for class in classes.clone() {
            match bind(&self.root, class, &self.text) {
                Ok(_) => return Ok(()),
                // The class that fits best tells most.
                Err(e) if farthest.as_ref().is_none_or(|f| e.at > f.at) => farthest = Some(e),
                Err(_) => {}
            }
        }
        // Without classes there is nothing that it could not fit.
        farthest.map_or(Ok(()), Err)
    }
}

fn bind<'f>(
    node: &'f Node,
    class: &RecordedClass,
    text: &str,
) -> Result<BoundNode<'f>, FilterExprError> {
    let both = |a: &'f Node, b: &'f Node| -> Result<_, FilterExprError> {
        Ok((Box::new(bind(a, class, text)?), Box::new(bind(b, class, text)?)))
    };
    Ok(match node {
        Node::And(a, b) => both(a, b).map(|(a, b)| BoundNode::And(a, b))?,
        Node::Or(a, b) => both(a, b).map(|(a, b)| BoundNode::Or(a, b))?,
        Node::Not(inner) => BoundNode::Not(Box::new(bind(inner, class, text)?)),
        Node::Compare { field, at, comparison, operand } => {
            let fail = |why: String| FilterExprError { text: text.to_owned(), at: *at, why };
            let (subject, is_text) = subject(field, class).ok_or_else(|| {
                let names: Vec<&str> = class.own_fields().map(|f| f.name.as_str()).collect();
                fail(format!(
                    "no event has a field `{field}`; {} has {}",
                    class.full_name,
                    names.join(", ")
                ))
            })?;
            match (operand, is_text) {
                (Operand::Number(_), Some(true)) => {
                    return Err(fail(format!("`{field}` is text: compare it with \"…\"")));
                }
                (Operand::Text(_), Some(false)) => {
                    return Err(fail(format!("`{field}` is a number: compare it with one")));
                }
                _ => BoundNode::Compare(subject, *comparison, operand),
            }
        }
    })
}

/// What a name stands for in a class, and whether it is text; `None` where it is both,
/// as an enumeration is.
fn subject(name: &str, class: &RecordedClass) -> Option<(Subject, Option<bool>)> {
    // `event.field` binds to that event alone.
    let own = match name.rsplit_once('.') {
        Some((event, field)) if class.is_named(event) => field,
        Some(_) => return None,
        None => name,
    };
    if let Some(id) = class.field(own) {
        let is_text = match class.field_desc(id)?.field_type {
            FieldType::Text => Some(true),
            FieldType::Enumeration | FieldType::Compound => None,
            _ => Some(false),
        };
        return Some((Subject::Field(id), is_text));
    }
    Some(match own {
        "comm" => (Subject::Comm, Some(true)),
        "pid" => (Subject::Pid, Some(false)),
        "tid" => (Subject::Tid, Some(false)),
        "cpu" => (Subject::Cpu, Some(false)),
        "event" => (Subject::Name, Some(true)),
        _ => return None,
    })
}

impl BoundFilter<'_> {
    /// Whether an event of the class matches.
    pub fn matches(&self, event: &RecordedEvent<'_>) -> bool {
        self.0.matches(event)
    }
}

impl BoundNode<'_> {
    fn matches(&self, event: &RecordedEvent<'_>) -> bool {
        match self {
            BoundNode::And(a, b) => a.matches(event) && b.matches(event),
            BoundNode::Or(a, b) => a.matches(event) || b.matches(event),
            BoundNode::Not(inner) => !inner.matches(event),
            BoundNode::Compare(subject, comparison, operand) => {
                compare(*subject, *comparison, operand, event)
            }
        }
    }
}

fn compare(
    subject: Subject,
    comparison: Comparison,
    operand: &Operand,
    event: &RecordedEvent<'_>,
) -> bool {
    let number = |n: Option<u32>| n.map(i128::from);
    match subject {
        Subject::Field(id) => {
            let value = event.field(id);
            match (&value, operand) {
                (FieldValue::Absent, _) => false,
                (_, Operand::Number(n)) => {
                    value.number().is_some_and(|v| by_number(v, comparison, *n))
                }
                (FieldValue::Text(text), _) => by_text(text, comparison, operand),
                (FieldValue::Enumeration { shown, .. }, _) => {
                    // `Card(2)`: the name alone.
                    let name = shown.split(|b| *b == b'(').next().unwrap_or(shown);
                    by_text(name, comparison, operand)
                }
                (FieldValue::Compound(text), _) => by_text(text, comparison, operand),
                _ => false,
            }
        }
        Subject::Comm => by_text(event.task().comm(), comparison, operand),
        Subject::Name => {
            event.class.names().iter().any(|n| by_text(n.as_bytes(), comparison, operand))
        }
        Subject::Pid | Subject::Tid | Subject::Cpu => {
            let Operand::Number(n) = operand else { return false };
            let value = match subject {
                Subject::Pid => number(event.task().pid.or(event.task().tid)),
                Subject::Tid => number(event.task().tid.or(event.task().pid)),
                _ => number(event.cpu()),
            };
            value.is_some_and(|v| by_number(v, comparison, *n))
        }
    }
}

fn by_number(value: i128, comparison: Comparison, other: i128) -> bool {
    match comparison {
        Comparison::Equal => value == other,
        Comparison::NotEqual => value != other,
        Comparison::Less => value < other,
        Comparison::LessOrEqual => value <= other,
        Comparison::Greater => value > other,
        Comparison::GreaterOrEqual => value >= other,
        Comparison::AnyBit => value & other != 0,
        Comparison::Matches | Comparison::MatchesNot => false,
    }
}

fn by_text(value: &[u8], comparison: Comparison, operand: &Operand) -> bool {
    match (comparison, operand) {
        (Comparison::Equal, Operand::Text(text)) => value == text,
        (Comparison::NotEqual, Operand::Text(text)) => value != text,
        (Comparison::Matches, Operand::Pattern(p)) => p.is_match(&*String::from_utf8_lossy(value)),
        (Comparison::MatchesNot, Operand::Pattern(p)) => {
            !p.is_match(&*String::from_utf8_lossy(value))
        }
        _ => false,
    }
}
