//! Text to tokens, with the part of the C preprocessor that programs use: `#define` of
//! constants, `#ifdef`/`#ifndef`/`#else`/`#endif`, `#include`.

use std::collections::{HashMap, HashSet};

use crate::object::{ProgramPosition, SourceMessage};

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

/// What the lexer makes of a text.
#[derive(Debug, Default)]
pub(crate) struct LexedText {
    pub(crate) tokens: Vec<LexToken>,
    /// Headers that `#include` names.
    pub(crate) includes: Vec<(String, ProgramPosition)>,
}

/// An error at a position.
pub(crate) fn error_at(position: ProgramPosition, text: impl Into<String>) -> SourceMessage {
    SourceMessage { position, text: text.into(), hint: None, needs_kernel: false }
}

struct TextLexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    line_begin: usize,
    defines: HashMap<String, Vec<LexToken>>,
    /// Names with a meaning that is not known here: macros with arguments.
    others: HashSet<String>,
    /// Of `#if` that are open: whether its branch is taken.
    conditions: Vec<bool>,
    /// Whether it is a header of C, of which what is not understood is passed over as long as it
    /// cannot change types.
    is_header: bool,
    out: LexedText,
}

/// Splits a text into tokens. The last is always `End`.
pub(crate) fn split_tokens(text: &str) -> Result<LexedText, SourceMessage> {
    split(text, false)
}

/// Splits a header of C, with what it includes in place.
pub(crate) fn split_header_tokens(text: &str) -> Result<LexedText, SourceMessage> {
    split(text, true)
}

/// Macros that compilers have for every header, as far as headers ask for them.
const OF_COMPILERS: [&str; 6] =
    ["__linux__", "__LP64__", "_LP64", "__GNUC__", "__STDC__", "__BYTE_ORDER__"];
/// Macros that they have not, for C in user space.
const OF_OTHERS: [&str; 5] =
    ["__cplusplus", "__KERNEL__", "__ASSEMBLY__", "__ASSEMBLER__", "__BPF_TRACING__"];

fn split(text: &str, is_header: bool) -> Result<LexedText, SourceMessage> {
    if text.len() > MAX_TEXT {
        let what = format!("program has {} bytes, at most {MAX_TEXT} are read", text.len());
        return Err(error_at(ProgramPosition { line: 1, column: 1 }, what));
    }
    let mut lexer = TextLexer {
        text,
        at: 0,
        line: 1,
        line_begin: 0,
        defines: HashMap::new(),
        others: HashSet::new(),
        conditions: Vec::new(),
        is_header,
        out: LexedText::default(),
    };
    lexer.defines.insert("BPFTRACE_HAVE_BTF".into(), Vec::new());
    if is_header {
        lexer.others.extend(OF_COMPILERS.map(str::to_owned));
    }
    if text.starts_with("#!") {
        lexer.skip_line();
    }
    lexer.run()?;
    Ok(lexer.out)
}

impl TextLexer<'_> {
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
                    return Err(error_at(position, "comment has no end: `*/` is missing"));
                };
                let end = self.at + 2 + len + 2;
                while self.at < end {
                    self.advance();
                }
            } else if c == '#' && line_start {
                let begin = self.at;
                let line = self.skip_line();
                self.directive(&line, begin, position)?;
            } else if self.conditions.contains(&false) {
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
        match word {
            "ifdef" => {
                let is = self.is_defined(name, position)?;
                self.conditions.push(is);
            }
            "ifndef" => {
                let is = self.is_defined(name, position)?;
                self.conditions.push(!is);
            }
            "if" if self.is_header => {
                let is = self.condition(rest, position)?;
                self.conditions.push(is);
            }
            "if" => self.conditions.push(rest != "0"),
            "elif" if self.is_header => {
                return Err(error_at(position, "#elif is not understood"));
            }
            "else" => match self.conditions.last_mut() {
                Some(taken) => *taken = !*taken,
                None => return Err(error_at(position, "#else without #if")),
            },
            "endif" => {
                if self.conditions.pop().is_none() {
                    return Err(error_at(position, "#endif without #if"));
                }
            }
            _ if self.conditions.contains(&false) => {}
            "define" => {
                let value = rest[name.len()..].to_owned();
                if value.starts_with('(') && self.is_header {
                    self.others.insert(name.to_owned());
                    return Ok(());
                }
                if value.starts_with('(') {
                    let what = "#define with arguments is not supported; use `macro`";
                    return Err(error_at(position, what));
                }
                let value = if self.is_header { without_comments(&value) } else { value };
                let inner = split_tokens(&value).map_err(|e| error_at(position, e.text));
                let inner = match inner {
                    Err(_) if self.is_header => {
                        self.others.insert(name.to_owned());
                        return Ok(());
                    }
                    inner => inner?,
                };
                let mut tokens = inner.tokens;
                tokens.pop();
                self.defines.insert(name.to_owned(), tokens);
            }
            "undef" => {
                self.defines.remove(name);
                self.others.remove(name);
            }
            // Types of the kernel come from its BTF; numbers that BTF lacks, from headers.
            "include" => {
                self.out.includes.push((header_name(rest), position));
            }
            "pragma" if name == "pack" => {
                let what =
                    "#pragma pack is not supported; structures can be __attribute__((packed))";
                return Err(error_at(position, what));
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

    fn is_defined(&self, name: &str, position: ProgramPosition) -> Result<bool, SourceMessage> {
        let is = self.defines.contains_key(name) || self.others.contains(name);
        // A name that is the compiler's or the C library's, and not that of the header's own guard.
        let is_foreign = self.is_header && name.starts_with('_') && !OF_OTHERS.contains(&name);
        if is || !is_foreign || self.defines_itself(name) {
            return Ok(is);
        }
        Err(error_at(position, format!("whether {name} is defined is not known here")))
    }

    /// Whether the text has a `#define` of the name.
    fn defines_itself(&self, name: &str) -> bool {
        self.text.lines().any(|line| {
            let rest = line.trim_start().strip_prefix('#').map(str::trim_start);
            let rest = rest.and_then(|rest| rest.strip_prefix("define")).map(str::trim_start);
            rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| {
                !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            })
        })
    }

    /// `#if` with a number, or with `defined`.
    fn condition(&self, text: &str, position: ProgramPosition) -> Result<bool, SourceMessage> {
        let text = without_comments(text);
        let (text, is_not) = match text.trim().strip_prefix('!') {
            Some(rest) => (rest.trim().to_owned(), true),
            None => (text.trim().to_owned(), false),
        };
        let named = text.strip_prefix("defined").map(|name| name.trim().trim_matches(['(', ')']));
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let is = match (text.as_str(), named.map(str::trim)) {
            ("0", _) => false,
            ("1", _) => true,
            (_, Some(name)) if is_name(name) => self.is_defined(name, position)?,
            _ => return Err(error_at(position, format!("#if {text} is not understood"))),
        };
        Ok(is != is_not)
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
    match text.starts_with('"') && !name.starts_with(['/', '.']) {
        true => format!("./{name}"),
        false => name.to_owned(),
    }
}

/// A line without comments.
fn without_comments(line: &str) -> String {
    let line = line.split("//").next().unwrap_or_default();
    let mut rest = line;
    let mut out = String::new();
    while let Some((before, behind)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = behind.split_once("*/").map_or("", |(_, behind)| behind);
    }
    out + rest
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
