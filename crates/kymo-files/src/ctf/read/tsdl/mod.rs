//! The text of the metadata, TSDL, into [`Metadata`].
//!
//! The text is not believed: its depth and the depth of its types are bounded.
//! Recursive types cannot be written, since a name means something only behind
//! its declaration.

mod blocks;
mod class;
mod declare;
mod lex;
mod scope;

use kymo_model::Endian;

use super::super::types::Metadata;
use super::json;
use lex::{Lexer, Token, Wrong};
use scope::Scopes;

/// Types within types, at most.
pub(super) const MAX_DEPTH: u32 = 48;
/// The largest alignment in bits.
pub(super) const MAX_ALIGN: u64 = 1 << 20;

/// The metadata cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct MetadataError {
    /// Line in the text, from 1.
    pub line: usize,
    /// Column in the line, from 1.
    pub column: usize,
    /// Description of the error.
    pub what: String,
}

impl MetadataError {
    fn of(text: &[u8], wrong: Wrong) -> MetadataError {
        let before = text.get(..wrong.at).unwrap_or(text);
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let begin = before.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
        MetadataError { line, column: before.len() - begin + 1, what: wrong.what }
    }
}

/// Parsed part of a text, and the error that ended it.
#[derive(Clone, Debug)]
pub(crate) struct Parsed {
    /// All declarations before the first mistake.
    pub(crate) metadata: Metadata,
    /// The first mistake, at which reading ended.
    pub(crate) error: Option<MetadataError>,
    /// Mistakes that cost only what is declared there. CTF 2.
    pub(crate) skipped: Vec<MetadataError>,
    /// Ignored declarations.
    pub(crate) remarks: Vec<String>,
}

impl Metadata {
    /// Reads the text of a `metadata` file that is not in packets, of either version.
    pub fn parse(text: &str) -> Result<Metadata, MetadataError> {
        let parsed = match text.as_bytes() {
            text @ [json::RECORD_SEPARATOR, ..] => json::parse(text)?,
            text => parse(text)?,
        };
        parsed.error.or(parsed.skipped.into_iter().next()).map_or(Ok(parsed.metadata), Err)
    }
}

/// Reads a text up to its first mistake. An error: not even the byte order is known.
pub(crate) fn parse(text: &[u8]) -> Result<Parsed, MetadataError> {
    let native = byte_order(text).map_err(|w| MetadataError::of(text, w))?;
    let mut parser = Parser::new(text, native);
    let wrong = parser.all().err();
    let wrong = match (wrong, parser.finish()) {
        (Some(wrong), _) | (None, Err(wrong)) => Some(wrong),
        (None, Ok(())) => None,
    };
    Ok(Parsed {
        error: wrong.map(|w| MetadataError::of(text, w)),
        skipped: Vec::new(),
        metadata: parser.out,
        remarks: parser.remarks,
    })
}

/// The byte order that the `trace` block states; types before it use it already.
fn byte_order(text: &[u8]) -> Result<Endian, Wrong> {
    let mut lexer = Lexer::new(text);
    let (mut depth, mut in_trace, mut last) = (0u64, false, String::new());
    loop {
        let (at, token) = lexer.next()?;
        match token {
            Token::End => return Err(Wrong::new(at, "no `trace` block states a byte order")),
            Token::Mark("{") => {
                in_trace |= depth == 0 && last == "trace";
                depth += 1;
            }
            Token::Mark("}") => {
                depth = depth.saturating_sub(1);
                in_trace &= depth > 0;
            }
            Token::Mark("=") if in_trace && depth == 1 && last == "byte_order" => {
                return match lexer.next()? {
                    (_, Token::Word(w)) if w == "le" => Ok(Endian::Little),
                    (_, Token::Word(w)) if w == "be" || w == "network" => Ok(Endian::Big),
                    (at, _) => Err(Wrong::new(at, "the byte order of a trace is `le` or `be`")),
                };
            }
            _ => {}
        }
        last = match token {
            Token::Word(word) => word,
            _ => String::new(),
        };
    }
}

/// Reads declarations.
struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next token, and the comment before it.
    next: (usize, Token),
    comment: Option<String>,
    failed: Option<Wrong>,
    native: Endian,
    scopes: Scopes,
    depth: u32,
    out: Metadata,
    /// Events, with the stream each states.
    events: Vec<blocks::Declared>,
    remarks: Vec<String>,
}

impl<'t> Parser<'t> {
    fn new(text: &'t [u8], native: Endian) -> Parser<'t> {
        let mut parser = Parser {
            lexer: Lexer::new(text),
            next: (0, Token::End),
            comment: None,
            failed: None,
            native,
            scopes: Scopes::default(),
            depth: 0,
            out: Metadata::new(native),
            events: Vec::new(),
            remarks: Vec::new(),
        };
        parser.advance();
        parser
    }

    /// Takes the next token. After a mistake there are no more.
    fn advance(&mut self) -> (usize, Token) {
        let next = match &self.failed {
            Some(wrong) => (wrong.at, Token::End),
            None => self.lexer.next().unwrap_or_else(|wrong| {
                let at = wrong.at;
                self.failed = Some(wrong);
                (at, Token::End)
            }),
        };
        self.comment = matches!(&next.1, Token::Word(w) if w == "event")
            .then(|| self.lexer.comment())
            .flatten();
        std::mem::replace(&mut self.next, next)
    }

    fn at(&self) -> usize {
        self.next.0
    }

    fn wrong<T>(&self, what: impl Into<String>) -> Result<T, Wrong> {
        match &self.failed {
            Some(wrong) if self.next.1 == Token::End => Err(wrong.clone()),
            _ => Err(Wrong::new(self.at(), what)),
        }
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T, Wrong> {
        let found = match &self.next.1 {
            Token::Word(w) => format!("`{w}`"),
            Token::Number(n) => format!("{n}"),
            Token::Text(t) => format!("{t:?}"),
            Token::Mark(m) => format!("`{m}`"),
            Token::End => "the end".to_owned(),
        };
        self.wrong(format!("{wanted} is expected, not {found}"))
    }

    fn is(&self, mark: &str) -> bool {
        matches!(&self.next.1, Token::Mark(m) if *m == mark)
    }

    /// Takes a mark if it is next.
    fn eat(&mut self, mark: &str) -> bool {
        let is = self.is(mark);
        if is {
            self.advance();
        }
        is
    }

    fn expect(&mut self, mark: &str) -> Result<(), Wrong> {
        if self.eat(mark) { Ok(()) } else { self.unexpected(&format!("`{mark}`")) }
    }

    /// The next token, if it is a word.
    fn peek_word(&self) -> Option<&str> {
        match &self.next.1 {
            Token::Word(w) => Some(w),
            _ => None,
        }
    }

    fn word(&mut self, what: &str) -> Result<String, Wrong> {
        match &self.next.1 {
            Token::Word(_) => match self.advance().1 {
                Token::Word(w) => Ok(w),
                _ => self.unexpected(what),
            },
            _ => self.unexpected(what),
        }
    }

    /// Goes one level down, or says that it is too deep.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        if self.depth >= MAX_DEPTH {
            return self.wrong(format!("more than {MAX_DEPTH} types within types"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }
}
