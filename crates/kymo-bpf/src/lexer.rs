//! Text to tokens, with the part of the C preprocessor that programs use: `#define` of
//! constants, `#ifdef`/`#ifndef`/`#else`/`#endif`, `#include`.

use std::collections::HashMap;

use crate::object::{ProgramPosition, SourceMessage};
use crate::preprocess::Preprocessor;

/// The largest program that is read.
const MAX_TEXT: usize = 1 << 20;
/// The most tokens, also after replacement of `#define`d names.
const MAX_TOKENS: usize = 400_000;

/// A token's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// A name or keyword.
    Name(String),
    /// `$name`, without the dollar sign.
    Variable(String),
    /// `$1`, `$2`.
    Parameter(u32),
    /// `$#`.
    ParameterCount,
    /// `@name`, with the sign.
    Map(String),
    /// An integer.
    Integer(u64),
    /// A string, escapes resolved.
    Text(String),
    /// `#pragma pack`: bytes that members are aligned to at most; 0 for no limit.
    Pack(u32),
    /// An operator or a delimiter.
    Mark(&'static str),
    /// The end.
    End,
}

/// A token.
#[derive(Clone, Debug)]
pub(crate) struct LexToken {
    /// Its value.
    pub(crate) kind: TokenKind,
    /// Byte offset of its begin and end in the text.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// Its position.
    pub(crate) position: ProgramPosition,
}

const MARKS: &[&str] = &[
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "%=", "&=", "|=", "^=", "..", "::", "{", "}", "(", ")", "[", "]", ";", ",",
    ":", "?", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", "~", ".", "#", "$", "@",
    "\\", "`", "'",
];

/// Tokens and included headers of a text.
#[derive(Debug, Default)]
pub(crate) struct LexedText {
    pub(crate) tokens: Vec<LexToken>,
    /// Headers that `#include` names.
    pub(crate) includes: Vec<IncludedHeader>,
}

/// A header that a program includes.
#[derive(Clone, Debug)]
pub(crate) struct IncludedHeader {
    pub(crate) name: String,
    pub(crate) position: ProgramPosition,
    /// Offset of the end of its declarations in the preprocessor's output, or why there are none.
    pub(crate) end: Result<usize, String>,
}

/// An error at a position.
pub(crate) fn error_at(position: ProgramPosition, text: impl Into<String>) -> SourceMessage {
    SourceMessage {
        position,
        text: text.into(),
        hint: None,
        needs_kernel: false,
        warnings: Vec::new(),
    }
}

struct TextLexer<'t, 'p, 'f> {
    text: &'t str,
    at: usize,
    line: u32,
    line_begin: usize,
    defines: HashMap<String, Vec<LexToken>>,
    /// State of open `#if` blocks: whether this branch is active, and whether one was.
    conditions: Vec<(bool, bool)>,
    /// Whether it is a preprocessed header of C, of which what is not understood is passed over.
    is_header: bool,
    /// Headers that the program includes are read where it includes them.
    headers: Option<&'p mut Preprocessor<'f>>,
    /// `#pragma pack`, and those that were pushed.
    pack: u32,
    packs: Vec<u32>,
    out: LexedText,
}

/// Splits a text into tokens. The last is always `End`.
pub(crate) fn split_tokens(text: &str) -> Result<LexedText, SourceMessage> {
    split(text, false, None)
}

/// Splits a program; headers are read where it includes them.
pub(crate) fn split_program_tokens(
    text: &str,
    headers: &mut Preprocessor<'_>,
) -> Result<LexedText, SourceMessage> {
    split(text, false, Some(headers))
}

/// Splits the preprocessed text of headers.
pub(crate) fn split_header_tokens(text: &str) -> Result<LexedText, SourceMessage> {
    split(text, true, None)
}

fn split(
    text: &str,
    is_header: bool,
    headers: Option<&mut Preprocessor<'_>>,
) -> Result<LexedText, SourceMessage> {
    if text.len() > MAX_TEXT && !is_header {
        let what = format!("program has {} bytes; the limit is {MAX_TEXT}", text.len());
        return Err(error_at(ProgramPosition { line: 1, column: 1 }, what));
    }
    let mut lexer = TextLexer {
        text,
        at: 0,
        line: 1,
        line_begin: 0,
        defines: HashMap::new(),
        conditions: Vec::new(),
        is_header,
        headers,
        pack: 0,
        packs: Vec::new(),
        out: LexedText::default(),
    };
    lexer.defines.insert("BPFTRACE_HAVE_BTF".into(), Vec::new());
    if text.starts_with("#!") {
        lexer.skip_line();
    }
    lexer.run()?;
    Ok(lexer.out)
}

impl TextLexer<'_, '_, '_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn position(&self) -> ProgramPosition {
        let line = self.text.get(self.line_begin..self.at).unwrap_or("");
        ProgramPosition { line: self.line, column: line.chars().count() as u32 + 1 }
    }

    fn advance(&mut self) {
        if let Some(c) = self.peek() {
            self.at += c.len_utf8();
            if c == '\n' {
                self.line += 1;
                self.line_begin = self.at;
            }
        }
    }

    fn skip_line(&mut self) -> String {
        let begin = self.at;
        while let Some(c) = self.peek() {
            if c == '\n' && !self.text[begin..self.at].ends_with('\\') {
                break;
            }
            self.advance();
        }
        self.text[begin..self.at].to_owned()
    }

    fn run(&mut self) -> Result<(), SourceMessage> {
        let mut line_start = true;
        while let Some(c) = self.peek() {
            let position = self.position();
            if c == '\n' {
                line_start = true;
                self.advance();
            } else if c.is_whitespace() {
                self.advance();
            } else if self.rest().starts_with("//") {
                self.skip_line();
            } else if self.rest().starts_with("/*") {
                let Some(len) = self.rest()[2..].find("*/") else {
                    return Err(error_at(position, "unterminated comment: `*/` is missing"));
                };
                let end = self.at + 2 + len + 2;
                while self.at < end {
                    self.advance();
                }
            } else if c == '#' && line_start {
                let begin = self.at;
                let line = self.skip_line();
                self.directive(&line, begin, position)?;
            } else if !self.is_active() {
                self.skip_line();
            } else {
                line_start = false;
                let token = self.token(position)?;
                self.push(token, 0)?;
            }
        }
        let (begin, position) = (self.at, self.position());
        self.push(LexToken { kind: TokenKind::End, begin, end: begin, position }, 0)
    }

    /// Appends a token; a name that `#define` gave a meaning is replaced.
    fn push(&mut self, token: LexToken, depth: u32) -> Result<(), SourceMessage> {
        if self.out.tokens.len() >= MAX_TOKENS {
            return Err(error_at(token.position, "program has too many tokens"));
        }
        if let TokenKind::Name(name) = &token.kind
            && depth < 8
            && let Some(body) = self.defines.get(name).cloned()
        {
            for mut part in body {
                (part.begin, part.end, part.position) = (token.begin, token.end, token.position);
                self.push(part, depth + 1)?;
            }
            return Ok(());
        }
        self.out.tokens.push(token);
        Ok(())
    }

    fn directive(
        &mut self,
        line: &str,
        begin: usize,
        position: ProgramPosition,
    ) -> Result<(), SourceMessage> {
        let body = line[1..].trim();
        let (word, rest) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
        let rest = rest.trim();
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
        let is_active = self.is_active();
        match word {
            "if" | "ifdef" | "ifndef" => {
                let is = is_active && self.is_true(word, rest, name);
                self.conditions.push((is, is));
            }
            "elif" => {
                let Some((_, was)) = self.conditions.pop() else {
                    return Err(error_at(position, "#elif without #if"));
                };
                let is = !was && self.is_active() && self.is_true("if", rest, name);
                self.conditions.push((is, was || is));
            }
            "else" => match self.conditions.last_mut() {
                Some((taken, was)) => (*taken, *was) = (!*was, true),
                None => return Err(error_at(position, "#else without #if")),
            },
            "endif" => {
                if self.conditions.pop().is_none() {
                    return Err(error_at(position, "#endif without #if"));
                }
            }
            _ if !is_active => {}
            "define" => {
                let value = rest[name.len()..].to_owned();
                if value.starts_with('(') {
                    let what = "#define with arguments is not supported; use `macro`";
                    return Err(error_at(position, what));
                }
                let inner = split_tokens(&value).map_err(|e| error_at(position, e.text));
                let mut tokens = inner?.tokens;
                tokens.pop();
                self.defines.insert(name.to_owned(), tokens);
                if let Some(headers) = &mut self.headers {
                    headers.macros.define(rest);
                }
            }
            "undef" => {
                self.defines.remove(name);
                if let Some(headers) = &mut self.headers {
                    headers.macros.remove(name);
                }
            }
            // Types of the kernel come from its BTF; numbers that BTF lacks, from headers.
            "include" => {
                let name = header_name(rest);
                let read = self
                    .headers
                    .as_mut()
                    .map_or(Ok(0), |headers| headers.include(&name).map(|()| headers.out.len()));
                self.out.includes.push(IncludedHeader { name, position, end: read });
            }
            "pragma" if name == "pack" => {
                self.pack(rest);
                let kind = TokenKind::Pack(self.pack);
                self.push(LexToken { kind, begin, end: self.at, position }, 0)?;
            }
            "pragma" | "error" | "warning" => {}
            _ if self.is_header => {}
            _ => {
                let at = begin;
                let what = format!("unknown directive {:?} at byte {at}", format!("#{word}"));
                return Err(error_at(position, what));
            }
        }
        Ok(())
    }

    fn is_active(&self) -> bool {
        self.conditions.iter().all(|(taken, _)| *taken)
    }

    fn is_true(&mut self, word: &str, rest: &str, name: &str) -> bool {
        let is_own = self.defines.contains_key(name);
        match (word, &mut self.headers) {
            ("ifdef", _) if is_own => true,
            ("ifndef", _) if is_own => false,
            (_, Some(headers)) => headers.is_true(word, rest, None),
            ("ifdef", None) => false,
            ("ifndef", None) => true,
            _ => rest != "0",
        }
    }

    /// `pack(1)`, `pack(push, 1)`, `pack(pop)`, `pack()`
    fn pack(&mut self, rest: &str) {
        let list = rest.trim_start_matches("pack").trim().trim_matches(['(', ')']);
        let mut value = None;
        for word in list.split(',').map(str::trim) {
            match word {
                "push" => self.packs.push(self.pack),
                "pop" => value = Some(self.packs.pop().unwrap_or(0)),
                "" => value = Some(0),
                word => value = word.parse().ok().or(value),
            }
        }
        self.pack = value.unwrap_or(self.pack);
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let begin = self.at;
        while self.peek().is_some_and(&keep) {
            self.advance();
        }
        self.text[begin..self.at].to_owned()
    }

    fn token(&mut self, position: ProgramPosition) -> Result<LexToken, SourceMessage> {
        let begin = self.at;
        let name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let first = self.peek().unwrap_or(' ');
        let second = self.rest().chars().nth(1).unwrap_or(' ');
        let kind = if first == '"' {
            TokenKind::Text(self.text_literal(position)?)
        } else if first.is_ascii_digit() {
            let word = self.take_while(name_char);
            // Paths hold words such as `3rdparty`; where an integer is due, they are refused.
            integer_value(&word).map_or(TokenKind::Name(word), TokenKind::Integer)
        } else if first.is_ascii_alphabetic() || first == '_' {
            TokenKind::Name(self.take_while(name_char))
        } else if first == '@' {
            self.advance();
            TokenKind::Map(format!("@{}", self.take_while(name_char)))
        } else if first == '$' && second == '#' {
            self.advance();
            self.advance();
            TokenKind::ParameterCount
        } else if first == '$' && name_char(second) {
            self.advance();
            let word = self.take_while(name_char);
            if word.starts_with(|c: char| c.is_ascii_digit()) {
                let number = word.parse().ok().filter(|n| (1..=1000).contains(n));
                TokenKind::Parameter(
                    number
                        .ok_or_else(|| error_at(position, format!("no such parameter: ${word}")))?,
                )
            } else {
                TokenKind::Variable(word)
            }
        } else if let Some(mark) = MARKS.iter().find(|m| self.rest().starts_with(**m)) {
            for _ in 0..mark.len() {
                self.advance();
            }
            TokenKind::Mark(mark)
        } else {
            if self.is_header {
                self.advance();
                return Ok(LexToken { kind: TokenKind::Mark("'"), begin, end: self.at, position });
            }
            return Err(error_at(position, format!("unexpected character {first:?}")));
        };
        Ok(LexToken { kind, begin, end: self.at, position })
    }

    fn text_literal(&mut self, position: ProgramPosition) -> Result<String, SourceMessage> {
        self.advance();
        let mut out = String::new();
        loop {
            let c = self.peek().ok_or_else(|| error_at(position, "string has no end"))?;
            self.advance();
            match c {
                '"' => return Ok(out),
                '\\' => {
                    let escaped = self.peek().unwrap_or('\\');
                    self.advance();
                    match escaped {
                        'n' => out.push('\n'),
                        't' => out.push('\t'),
                        'r' => out.push('\r'),
                        'x' => {
                            let digits = self.digits(2, 16);
                            let value = u8::from_str_radix(&digits, 16).unwrap_or(b'x');
                            out.push(char::from(value));
                        }
                        '0'..='7' => {
                            let digits = format!("{escaped}{}", self.digits(2, 8));
                            let value = u32::from_str_radix(&digits, 8).unwrap_or(0) & 0xff;
                            out.push(char::from_u32(value).unwrap_or('\0'));
                        }
                        '"' | '\\' | '\'' => out.push(escaped),
                        'a' => out.push('\x07'),
                        'b' => out.push('\x08'),
                        'f' => out.push('\x0c'),
                        'v' => out.push('\x0b'),
                        'e' => out.push('\x1b'),
                        '\n' => {}
                        _ => {
                            let what = format!("unknown escape sequence \\{escaped}");
                            return Err(error_at(position, what));
                        }
                    }
                }
                _ => out.push(c),
            }
        }
    }

    fn digits(&mut self, most: usize, base: u32) -> String {
        let mut out = String::new();
        while out.len() < most
            && let Some(c) = self.peek().filter(|c| c.is_digit(base))
        {
            out.push(c);
            self.advance();
        }
        out
    }
}

/// A header by how it is included: one in quotes is looked for where the program runs, too, which
/// `./` says.
fn header_name(text: &str) -> String {
    let text = text.trim();
    let name = text.trim_matches(['<', '>', '"']);
    if text.starts_with('"') && !name.starts_with(['/', '.']) {
        format!("./{name}")
    } else {
        name.to_owned()
    }
}

/// `10`, `0x1f`, `017`, `1e6`, `1_000`, `5UL`, `10ms`.
pub(crate) fn integer_value(word: &str) -> Option<u64> {
    let word = word.replace('_', "");
    if let Some(hex) = word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        return u64::from_str_radix(hex.trim_end_matches(['u', 'U', 'l', 'L']), 16).ok();
    }
    let digits = word.len() - word.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = word.split_at(digits);
    let octal = number.len() > 1 && number.starts_with('0') && suffix.is_empty();
    let value =
        if octal { u64::from_str_radix(number, 8).ok()? } else { number.parse::<u64>().ok()? };
    if let Some(power) = suffix.strip_prefix(['e', 'E']) {
        return 10u64.checked_pow(power.parse().ok()?)?.checked_mul(value);
    }
    let unit = match suffix {
        "" | "u" | "U" | "l" | "L" | "ul" | "UL" | "ll" | "LL" | "ull" | "ULL" | "lu" | "LU" => 1,
        "ns" => 1,
        _ => duration_unit(suffix)?,
    };
    value.checked_mul(unit)
}

/// Nanoseconds of a unit of time.
pub(crate) fn duration_unit(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}
