//! `--filter`: globs with `!`, `&`, `|` and parentheses.

use super::error::GrammarError;
use kymo_model::glob::glob_match;

/// A parsed filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFilter(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Glob(String),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
}

/// Deeper nesting is refused: it would be no filter that a person typed.
const DEPTH: usize = 64;

impl NameFilter {
    /// Parses `text`. `&` binds stronger than `|`, `!` strongest.
    pub fn parse(text: &str) -> Result<NameFilter, GrammarError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let node = parser.or()?;
        parser.blanks();
        match parser.peek() {
            None => Ok(NameFilter(node)),
            Some(_) => Err(GrammarError::new(text, parser.at, 1, "not expected here in a filter")),
        }
    }

    /// Whether a name passes.
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

impl Node {
    fn matches(&self, name: &str) -> bool {
        match self {
            Node::Glob(g) => glob_match(g, name),
            Node::Not(n) => !n.matches(name),
            Node::And(a, b) => a.matches(name) && b.matches(name),
            Node::Or(a, b) => a.matches(name) || b.matches(name),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.blanks();
        let hit = self.peek() == Some(byte);
        self.at += usize::from(hit);
        hit
    }

    fn or(&mut self) -> Result<Node, GrammarError> {
        let mut left = self.and()?;
        while self.eat(b'|') {
            left = Node::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Node, GrammarError> {
        let mut left = self.unary()?;
        while self.eat(b'&') {
            left = Node::And(Box::new(left), Box::new(self.unary()?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Node, GrammarError> {
        if self.depth >= DEPTH {
            return Err(GrammarError::new(
                self.text,
                self.at,
                1,
                "the filter is nested too deeply",
            ));
        }
        self.depth += 1;
        let node = if self.eat(b'!') {
            Node::Not(Box::new(self.unary()?))
        } else if self.eat(b'(') {
            let opened = self.at - 1;
            let inner = self.or()?;
            if !self.eat(b')') {
                return Err(GrammarError::new(self.text, opened, 1, "unclosed parenthesis"));
            }
            inner
        } else {
            self.glob()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn glob(&mut self) -> Result<Node, GrammarError> {
        self.blanks();
        let start = self.at;
        let mut class = false;
        while let Some(b) = self.peek() {
            match b {
                b'\\' => self.at += 1,
                b'[' => class = true,
                b']' => class = false,
                b'!' if class => {}
                b'!' | b'&' | b'|' | b'(' | b')' => break,
                b if b.is_ascii_whitespace() => break,
                _ => {}
            }
            self.at = (self.at + 1).min(self.text.len());
        }
        match self.text.get(start..self.at) {
            Some(glob) if !glob.is_empty() => Ok(Node::Glob(glob.to_owned())),
            _ => {
                Err(GrammarError::new(self.text, start, 0, "a filter needs a name or a glob here"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::NameFilter;

    #[test]
    fn rules_fold() {
        let check = |filter: &str, name: &str| NameFilter::parse(filter).unwrap().matches(name);
        assert!(check("foo* | bar*", "bark"));
        assert!(check("!foo* & *bar", "fizzbar"));
        assert!(!check("!foo* & *bar", "foobar"));
        assert!(check("!(a* | b*)", "c") && !check("!(a* | b*)", "bc"));
        assert!(check("[!a-z]x", "Ax"));
        for wrong in ["", "a |", "(a", "a)", "a b", &"!".repeat(5000)] {
            assert!(NameFilter::parse(wrong).is_err(), "{wrong}");
        }
    }
}
