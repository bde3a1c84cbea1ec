//! A filter bound to an event class: its fields are known by number, its comparisons fit
//! their types.

use super::parse::{Comparison, FilterExpr, FilterExprError, Node, Operand};
use crate::event::RecordedEvent;
use crate::field_type::FieldType;
use crate::schema::{FieldId, RecordedClass};
use crate::value::FieldValue;

/// Operand of a comparison.
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
        let mut best: Option<BindError> = None;
        for class in classes.clone() {
            match bind(&self.root, class, &self.text) {
                Ok(_) => return Ok(()),
                // The class that fits best has the most useful error; a value of another type is
                // more useful than a missing field.
                Err(e) if best.as_ref().is_none_or(|b| e.rank() > b.rank()) => best = Some(e),
                Err(_) => {}
            }
        }
        // Without classes there is nothing that it could not fit.
        let Some(BindError { mut error, missing }) = best else { return Ok(()) };
        if let Some(field) = missing {
            let similar = similar_fields(&field, classes);
            if !similar.is_empty() {
                error.why.push_str(&format!("; there is {}", similar.join(", ")));
            }
        }
        Err(error)
    }
}

/// Why a filter does not fit a class.
struct BindError {
    error: FilterExprError,
    /// The field that the class lacks.
    missing: Option<String>,
}

impl BindError {
    /// Length of the filter that binds before the error.
    fn rank(&self) -> (usize, bool) {
        (self.error.at, self.missing.is_none())
    }
}

/// Names suggested for one that is not there.
const MOST_SIMILAR: usize = 4;

/// Fields whose names differ from another in a letter or two, or contain it.
fn similar_fields<'c>(name: &str, classes: impl Iterator<Item = &'c RecordedClass>) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for class in classes {
        for field in class.own_fields() {
            let distance = edit_distance(name, &field.name);
            let is_near = distance <= 2 && distance < name.len().min(field.name.len());
            let shown = format!("{}.{}", class.full_name, field.name);
            let is_known = found
                .iter()
                .any(|(_, f)| f.rsplit_once('.').is_some_and(|(_, known)| known == field.name));
            if is_near && !is_known {
                found.push((distance, shown));
            }
        }
    }
    found.sort();
    found.truncate(MOST_SIMILAR);
    found.into_iter().map(|(_, shown)| format!("`{shown}`")).collect()
}

/// Letters to insert, remove or replace, of names of moderate length.
fn edit_distance(a: &str, b: &str) -> usize {
    const LONG: usize = 64;
    if a.len() > LONG || b.len() > LONG || a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

fn bind<'f>(node: &'f Node, class: &RecordedClass, text: &str) -> Result<BoundNode<'f>, BindError> {
    let both = |a: &'f Node, b: &'f Node| -> Result<_, BindError> {
        Ok((Box::new(bind(a, class, text)?), Box::new(bind(b, class, text)?)))
    };
    Ok(match node {
        Node::And(a, b) => both(a, b).map(|(a, b)| BoundNode::And(a, b))?,
        Node::Or(a, b) => both(a, b).map(|(a, b)| BoundNode::Or(a, b))?,
        Node::Not(inner) => BoundNode::Not(Box::new(bind(inner, class, text)?)),
        Node::Compare { field, at, comparison, operand } => {
            let fail = |why: String, missing: Option<String>| {
                let error = FilterExprError { text: text.to_owned(), at: *at, why };
                BindError { error, missing }
            };
            let (subject, is_text) = subject(field, class).ok_or_else(|| {
                fail(format!("no event has a field `{field}`"), Some(field.clone()))
            })?;
            match (operand, is_text) {
                (Operand::Number(_) | Operand::Real(_), Some(true)) => {
                    return Err(fail(format!("`{field}` is text: compare it with \"…\""), None));
                }
                (Operand::Text(_) | Operand::Pattern(_), Some(false)) => {
                    return Err(fail(format!("`{field}` is a number: compare it with one"), None));
                }
                _ if *comparison == Comparison::AnyBit && is_float(subject, class) => {
                    return Err(fail(format!("`{field}` is a float, which has no bits"), None));
                }
                _ => BoundNode::Compare(subject, *comparison, operand),
            }
        }
    })
}

/// Field that a name refers to in a class, and whether it is text; `None` where it is both, as an
/// enumeration is.
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

fn is_float(subject: Subject, class: &RecordedClass) -> bool {
    let Subject::Field(id) = subject else { return false };
    class.field_desc(id).is_some_and(|f| f.field_type == FieldType::Float)
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
                (FieldValue::Unread | FieldValue::Absent, _) => false,
                (FieldValue::Float(v), Operand::Number(n)) => by_order(*v, comparison, *n as f64),
                (FieldValue::Float(v), Operand::Real(r)) => by_order(*v, comparison, *r),
                (_, Operand::Number(_) | Operand::Real(_)) => {
                    value.number().is_some_and(|v| by_number(v, comparison, operand))
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
            let value = match subject {
                Subject::Pid => number(event.task().pid.or(event.task().tid)),
                Subject::Tid => number(event.task().tid.or(event.task().pid)),
                _ => number(event.cpu()),
            };
            value.is_some_and(|v| by_number(v, comparison, operand))
        }
    }
}

fn by_number(value: i128, comparison: Comparison, operand: &Operand) -> bool {
    match (comparison, operand) {
        (Comparison::AnyBit, Operand::Number(n)) => value & n != 0,
        (_, Operand::Number(n)) => by_order(value, comparison, *n),
        (_, Operand::Real(r)) => by_order(value as f64, comparison, *r),
        _ => false,
    }
}

/// Whether two values are in an order; bits and patterns are none.
fn by_order<T: PartialOrd>(value: T, comparison: Comparison, other: T) -> bool {
    match comparison {
        Comparison::Equal => value == other,
        Comparison::NotEqual => value != other,
        Comparison::Less => value < other,
        Comparison::LessOrEqual => value <= other,
        Comparison::Greater => value > other,
        Comparison::GreaterOrEqual => value >= other,
        Comparison::AnyBit | Comparison::Matches | Comparison::MatchesNot => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_few_letters_apart() {
        let check =
            |a: &str, b: &str, expected| assert_eq!(edit_distance(a, b), expected, "{a} {b}");
        check("prev_pid", "prev_pid", 0);
        check("prev_pidx", "prev_pid", 1);
        check("perv_pid", "prev_pid", 2);
        check("pid", "prio", 2);
        check("a", "a_long_name", usize::MAX);
    }
}
