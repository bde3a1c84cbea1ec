//! The text of a filter as an expression.

use std::fmt;

use globset::{Glob, GlobMatcher};

/// Longer filters are no filters.
const MOST_BYTES: usize = 16 << 10;
/// Parentheses within each other.
const MOST_DEPTH: usize = 64;

/// A filter that cannot be read or does not fit: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterExprError {
    /// The filter.
    pub text: String,
    /// Byte at which it is wrong.
    pub at: usize,
    /// Reason.
    pub why: String,
}

impl fmt::Display for FilterExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.at).map_or(0, |t| t.chars().count());
        write!(f, "{}\n  {}\n  ", self.why, self.text)?;
        (0..before).try_for_each(|_| f.write_str(" "))?;
        f.write_str("^")
    }
}

impl std::error::Error for FilterExprError {}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The value has bits in common with the other.
    AnyBit,
    /// The text matches a glob.
    Matches,
    /// It does not.
    MatchesNot,
}

/// The value that a field is compared with.
#[derive(Clone, Debug)]
pub(super) enum Operand {
    Number(i128),
    /// With a decimal point.
    Real(f64),
    Text(Vec<u8>),
    Pattern(GlobMatcher),
}

/// A node of the expression.
#[derive(Clone, Debug)]
pub(super) enum Node {
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Not(Box<Node>),
    Compare { field: String, at: usize, comparison: Comparison, operand: Operand },
}

/// A filter that was read.
#[derive(Clone, Debug)]
pub struct FilterExpr {
    pub(super) text: String,
    pub(super) root: Node,
}

impl FilterExpr {
    /// Reads a filter.
    ///
    /// # Errors
    /// States the error and its position.
    pub fn parse(text: &str) -> Result<FilterExpr, FilterExprError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        if text.len() > MOST_BYTES {
            return Err(parser.fail(0, format!("the filter is longer than {MOST_BYTES} bytes")));
        }
        let root = parser.or()?;
        parser.blanks();
        if parser.at < text.len() {
            return Err(parser.fail(parser.at, "expected `&&`, `||` or the end".into()));
        }
        Ok(FilterExpr { text: text.to_owned(), root })
    }

    /// The filter as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn fail(&self, at: usize, why: String) -> FilterExprError {
        FilterExprError { text: self.text.to_owned(), at, why }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn or(&mut self) -> Result<Node, FilterExprError> {
        let mut left = self.and()?;
        while self.take("||") {
            left = Node::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Node, FilterExprError> {
        let mut left = self.unary()?;
        while self.take("&&") {
            left = Node::And(Box::new(left), Box::new(self.unary()?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, FilterExprError> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.fail(self.at, format!("nested deeper than {MOST_DEPTH}")));
        }
        let node = if self.take("!") {
            Node::Not(Box::new(self.unary()?))
        } else if self.take("(") {
            let inner = self.or()?;
            if !self.take(")") {
                return Err(self.fail(self.at, "expected `)`".into()));
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, FilterExprError> {
        self.blanks();
        let at = self.at;
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let length = self.rest().find(|c| !is_name(c)).unwrap_or(self.rest().len());
        let field = self.rest().get(..length).unwrap_or("").to_owned();
        if field.is_empty() {
            return Err(self.fail(at, "expected the name of a field".into()));
        }
        self.at += length;
        self.blanks();
        let operator_at = self.at;
        const OPERATORS: [(&str, Comparison); 9] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("!~", Comparison::MatchesNot),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
            ("&", Comparison::AnyBit),
            ("~", Comparison::Matches),
        ];
        let logical = self.rest().starts_with("&&");
        let found = OPERATORS.iter().find(|(text, _)| self.rest().starts_with(text) && !logical);
        let Some((token, comparison)) = found else {
            let why = "expected one of == != < <= > >= & ~ !~".to_owned();
            return Err(self.fail(operator_at, why));
        };
        self.at += token.len();
        let operand = self.operand(*comparison)?;
        Ok(Node::Compare { field, at, comparison: *comparison, operand })
    }

    fn operand(&mut self, comparison: Comparison) -> Result<Operand, FilterExprError> {
        self.blanks();
        let at = self.at;
        let pattern = matches!(comparison, Comparison::Matches | Comparison::MatchesNot);
        let quote = self.rest().chars().next().filter(|c| matches!(c, '"' | '\''));
        let text = match quote {
            Some(quote) => self.quoted(quote)?,
            None => {
                let end = |c: char| c.is_whitespace() || matches!(c, ')' | '&' | '|');
                let length = self.rest().find(end).unwrap_or(self.rest().len());
                let word = self.rest().get(..length).unwrap_or("").to_owned();
                self.at += length;
                word
            }
        };
        if text.is_empty() && quote.is_none() {
            return Err(self.fail(at, "expected a number or a text".into()));
        }
        if pattern {
            let glob = Glob::new(&text).map_err(|e| self.fail(at, e.to_string()))?;
            return Ok(Operand::Pattern(glob.compile_matcher()));
        }
        if quote.is_none()
            && let Some(number) = number(&text)
        {
            return Ok(Operand::Number(number));
        }
        if quote.is_none()
            && let Some(real) = real(&text)
        {
            if comparison == Comparison::AnyBit {
                return Err(self.fail(at, "expected a whole number: `&` compares bits".into()));
            }
            return Ok(Operand::Real(real));
        }
        if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
            return Err(self.fail(at, "expected a number: text is compared by == != ~".into()));
        }
        Ok(Operand::Text(text.into_bytes()))
    }

    fn quoted(&mut self, quote: char) -> Result<String, FilterExprError> {
        let begin = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.at += at + c.len_utf8();
                    return Ok(text);
                }
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                c => text.push(c),
            }
        }
        Err(self.fail(begin, "the quote is not closed".into()))
    }
}

fn number(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let magnitude = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok().filter(|_| !hex.starts_with(['+', '-'])),
        None => digits.parse().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit())),
    };
    magnitude.map(|n| sign * n).filter(|n| n.unsigned_abs() <= u128::from(u64::MAX))
}

/// Digits with one point among them.
fn real(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, part) = digits.split_once('.')?;
    let all_digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    (all_digits(whole) && all_digits(part)).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_pointed_at() {
        let check = |text: &str, at: usize, why: &str| {
            let error = FilterExpr::parse(text).unwrap_err();
            assert_eq!((error.at, error.why.contains(why)), (at, true), "{text}: {error}");
        };
        check("", 0, "name of a field");
        check("a", 1, "expected one of");
        check("a = 1", 2, "expected one of");
        check("a ==", 4, "number or a text");
        check("a == 1 b", 7, "`&&`, `||` or the end");
        check("(a == 1", 7, "`)`");
        check("a < \"x\"", 4, "expected a number");
        check("a == \"x", 5, "not closed");
        check("a ~ \"[\"", 4, "unclosed");
        check("a & 1.5", 4, "whole number");
        check("a < 1.", 4, "expected a number");
        check(&"!".repeat(100), 64, "nested deeper");
        check(&"a".repeat(20_000), 0, "longer than");
        let shown = FilterExpr::parse("pid == 1 && ").unwrap_err().to_string();
        assert_eq!(shown, "expected the name of a field\n  pid == 1 && \n              ^");
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_fit_64_bits() {
        let n = |text: &str| number(text);
        assert_eq!((n("12"), n("-3"), n("0x1F")), (Some(12), Some(-3), Some(31)));
        assert_eq!(n("18446744073709551615"), Some(i128::from(u64::MAX)));
        for text in ["18446744073709551616", "", "-", "1x", "+1", "0x", "0x+1", "--1"] {
            assert_eq!(n(text), None, "{text}");
        }
        for text in [
            "a==1&&b!=2||!(c>=0x10)",
            "a & 4",
            "comm ~ \"sh*\"",
            "e == RED",
            "x.y != -1",
            "f >= -1.50",
        ] {
            assert!(FilterExpr::parse(text).is_ok(), "{text}");
        }
    }
}
