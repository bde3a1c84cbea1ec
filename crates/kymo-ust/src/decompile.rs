//! A filter as text again, to be shown. What [`crate::filter_compile`] makes of the text is the
//! same filter.

use crate::filter::{Filter, instruction, op};

/// A text and how tightly it holds together.
struct Part {
    text: String,
    tightness: u8,
    /// The two sides of a match of a text with a pattern.
    matches: Option<(String, String)>,
}

const OR: u8 = 1;
const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const BITS: u8 = 5;
const VALUE: u8 = 6;

impl Part {
    fn new(text: impl Into<String>, tightness: u8) -> Part {
        Part { text: text.into(), tightness, matches: None }
    }

    /// In parentheses where it would fall apart beside such an operator.
    fn within(self, tightness: u8) -> String {
        if self.tightness >= tightness { self.text } else { format!("({})", self.text) }
    }
}

/// A filter as text; nothing if it is not one that the compiler makes.
pub fn decompile(filter: &[u8]) -> Option<String> {
    let filter = Filter::parse(filter).ok()?;
    let (part, end) = expression(&filter, 0, filter.code.len())?;
    (filter.code.get(end) == Some(&op::END)).then_some(part.text)
}

/// The expression whose code lies before `end`, and where it ends.
fn expression(filter: &Filter<'_>, start: usize, end: usize) -> Option<(Part, usize)> {
    let mut stack: Vec<Part> = Vec::new();
    let mut at = start;
    while at < end {
        let (opcode, operands, next) = instruction(filter.code, at)?;
        let number = || Some(u64::from_le_bytes(operands.try_into().ok()?));
        let part = match opcode {
            op::END => break,
            op::INT => Part::new((number()? as i64).to_string(), VALUE),
            op::UINT => Part::new(number()?.to_string(), VALUE),
            op::FLOAT => Part::new(format!("{:?}", f64::from_bits(number()?)), VALUE),
            op::TEXT => Part::new(quoted(filter.text(operands)?), VALUE),
            op::FIELD => Part::new(String::from_utf8_lossy(filter.text(operands)?), VALUE),
            op::NOT => match stack.pop()? {
                // How `!=` with a pattern is compiled.
                Part { matches: Some((left, right)), .. } => {
                    Part::new(format!("{left} != {right}"), COMPARISON)
                }
                part => Part::new(format!("!{}", part.within(VALUE)), NOT),
            },
            op::IF | op::IF_NOT => {
                let (sign, tightness) = if opcode == op::IF { (" || ", OR) } else { (" && ", AND) };
                let far = usize::from(u16::from_le_bytes(operands.try_into().ok()?));
                let left = stack.pop()?.within(tightness);
                let (right, behind) = expression(filter, next, next + far)?;
                stack.push(Part::new(left + sign + &right.within(tightness), tightness));
                at = behind;
                continue;
            }
            _ => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                let (sign, tightness) = sign_of(opcode, &right)?;
                let (left, right) = (left.within(BITS), right.within(VALUE));
                let text = format!("{left} {sign} {right}");
                let matches = (opcode == op::GLOB && sign == "==").then_some((left, right));
                Part { text, tightness, matches }
            }
        };
        stack.push(part);
        at = next;
    }
    let part = stack.pop()?;
    stack.is_empty().then_some((part, at))
}

fn sign_of(opcode: u8, right: &Part) -> Option<(&'static str, u8)> {
    let pattern = right.text.starts_with('"') && right.text.contains(['*', '?']);
    Some(match opcode {
        op::EQ => ("==", COMPARISON),
        op::NE => ("!=", COMPARISON),
        op::LT => ("<", COMPARISON),
        op::LE => ("<=", COMPARISON),
        op::GT => (">", COMPARISON),
        op::GE => (">=", COMPARISON),
        op::GLOB if pattern => ("==", COMPARISON),
        op::GLOB => ("~", COMPARISON),
        op::AND => ("&", BITS),
        _ => return None,
    })
}

fn quoted(text: &[u8]) -> String {
    let escaped = String::from_utf8_lossy(text).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::compile;

    #[test]
    fn a_filter_as_text_is_the_same_filter() {
        for (text, expected) in [
            ("id>5", "id > 5"),
            ("a && b && c", "a && b && c"),
            ("a || b && c", "a || b && c"),
            ("(a || b) && !c", "(a || b) && !c"),
            ("!(a == 1)", "!(a == 1)"),
            ("path == \"/x*\" && path != \"*y\"", "path == \"/x*\" && path != \"*y\""),
            ("name ~ field || name ~ \"x\"", "name ~ field || name ~ \"x\""),
            ("flags & 4 & mask == 0x10", "flags & 4 & mask == 16"),
            ("x == -2.5 || y < 18446744073709551615", "x == -2.5 || y < 18446744073709551615"),
            ("s == \"a\\\"b\\\\c\"", "s == \"a\\\"b\\\\c\""),
            ("(a == 1) == (b == 2)", "(a == 1) == (b == 2)"),
            ("a && (b || c && (d || !e))", "a && (b || c && (d || !e))"),
        ] {
            let code = compile(text).unwrap();
            let shown = decompile(&code).unwrap();
            assert_eq!(shown, expected);
            assert_eq!(compile(&shown).unwrap(), code, "{text}");
        }
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let code = compile("a == 1 && (b == \"x\" || !c)").unwrap();
        for at in 0..code.len() {
            for value in [0, 1, 5, 23, 32, 0x7f, 0xff] {
                let mut lie = code.clone();
                lie[at] = value;
                let _ = decompile(&lie);
            }
        }
    }
}
