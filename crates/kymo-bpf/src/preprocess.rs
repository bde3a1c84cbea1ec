//! The preprocessor of C, for headers: includes, conditions and macros are those that a compiler
//! for this machine sees, so that types and numbers are what programs were built with.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use crate::facts::HeaderFile;

/// Headers within one another.
const MAX_DEPTH: u32 = 64;
/// The most headers, and the most bytes of all of them.
const MAX_FILES: usize = 1024;
const MAX_BYTES: usize = 16 << 20;
/// The most tokens that macros become, over all headers.
const MAX_EXPANDED: usize = 4_000_000;
/// The deepest nesting of a condition's parentheses.
const MAX_NESTING: u32 = 64;

/// Finds a header by its name and the path of the file that includes it.
pub(crate) type FindHeader<'f> =
    &'f dyn Fn(&str, Option<&str>) -> Result<Option<HeaderFile>, String>;

/// Macros that a compiler defines by itself.
const PREDEFINED: &str = "\
__STDC__ 1|__STDC_VERSION__ 201710L|__STDC_HOSTED__ 1|__GNUC__ 12|__GNUC_MINOR__ 2|\
__GNUC_PATCHLEVEL__ 0|__linux 1|__linux__ 1|__gnu_linux__ 1|linux 1|__unix 1|__unix__ 1|unix 1|\
__ELF__ 1|__LP64__ 1|_LP64 1|__CHAR_BIT__ 8|__SCHAR_MAX__ 127|__SHRT_MAX__ 32767|\
__INT_MAX__ 2147483647|__LONG_MAX__ 9223372036854775807L|__LONG_LONG_MAX__ 9223372036854775807LL|\
__SIZEOF_SHORT__ 2|__SIZEOF_INT__ 4|__SIZEOF_LONG__ 8|__SIZEOF_LONG_LONG__ 8|\
__SIZEOF_POINTER__ 8|__SIZEOF_SIZE_T__ 8|__SIZEOF_PTRDIFF_T__ 8|__SIZEOF_WCHAR_T__ 4|\
__SIZEOF_INT128__ 16|__ORDER_LITTLE_ENDIAN__ 1234|__ORDER_BIG_ENDIAN__ 4321|\
__BYTE_ORDER__ 1234|__FLOAT_WORD_ORDER__ 1234|__SIZE_TYPE__ unsigned long|__PTRDIFF_TYPE__ long|\
__WCHAR_TYPE__ int|__WINT_TYPE__ unsigned int|__INT8_TYPE__ signed char|__INT16_TYPE__ short|\
__INT32_TYPE__ int|__INT64_TYPE__ long|__UINT8_TYPE__ unsigned char|\
__UINT16_TYPE__ unsigned short|__UINT32_TYPE__ unsigned int|__UINT64_TYPE__ unsigned long|\
__INTPTR_TYPE__ long|__UINTPTR_TYPE__ unsigned long|__INTMAX_TYPE__ long|\
__UINTMAX_TYPE__ unsigned long|__USER_LABEL_PREFIX__ |__REGISTER_PREFIX__ |\
_DEFAULT_SOURCE 1|BPFTRACE_HAVE_BTF ";
const OF_X86_64: &str = "__x86_64 1|__x86_64__ 1|__amd64 1|__amd64__ 1|__SSE__ 1|__SSE2__ 1";
const OF_AARCH64: &str = "__aarch64__ 1|__AARCH64EL__ 1|__AARCH64_CMODEL_SMALL__ 1|__CHAR_UNSIGNED__ 1|__ARM_64BIT_STATE 1";
/// Headers that compilers bring along: what they declare is known here.
const OF_COMPILERS: [&str; 8] = [
    "stddef.h",
    "stdarg.h",
    "stdbool.h",
    "float.h",
    "limits.h",
    "stdalign.h",
    "iso646.h",
    "stdnoreturn.h",
];

/// A token, and the macros that it came out of, which do not replace it again.
#[derive(Clone, Debug)]
struct PlainToken {
    text: Rc<str>,
    hidden: Option<Rc<HiddenName>>,
}

#[derive(Debug)]
struct HiddenName {
    name: Rc<str>,
    outer: Option<Rc<HiddenName>>,
}

#[derive(Clone, Debug)]
struct HeaderMacro {
    /// `None` for one without parentheses.
    parameters: Option<Vec<Rc<str>>>,
    is_variadic: bool,
    body: Rc<[PlainToken]>,
}

/// Value of a macro.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MacroValue {
    Integer(i64),
    Text(String),
}

/// Macros of headers, and what they were read with.
#[derive(Debug, Default)]
pub(crate) struct HeaderMacros {
    macros: HashMap<Rc<str>, HeaderMacro>,
}

pub(crate) struct Preprocessor<'f> {
    find: FindHeader<'f>,
    pub(crate) macros: HeaderMacros,
    /// Declarations: all text that is no directive, macros replaced.
    pub(crate) out: String,
    /// Headers that could not be read as they are.
    pub(crate) problems: Vec<String>,
    once: HashSet<String>,
    files: usize,
    bytes: usize,
    expanded: usize,
}

impl<'f> Preprocessor<'f> {
    pub(crate) fn new(arch: &str, find: FindHeader<'f>) -> Preprocessor<'f> {
        let mut macros = HeaderMacros::default();
        let of_machine = if arch == "aarch64" { OF_AARCH64 } else { OF_X86_64 };
        for definition in PREDEFINED.split('|').chain(of_machine.split('|')) {
            macros.define(definition);
        }
        Preprocessor {
            find,
            macros,
            out: String::new(),
            problems: Vec::new(),
            once: HashSet::new(),
            files: 0,
            bytes: 0,
            expanded: 0,
        }
    }

    /// Reads a header that the program includes. Its declarations are added to `out`.
    pub(crate) fn include(&mut self, name: &str) -> Result<(), String> {
        match (self.find)(name, None)? {
            Some(file) => {
                let is_taken = !file.is_kernel;
                self.read(&file, is_taken, 0);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() < 8 && !self.problems.contains(&what) {
            self.problems.push(what);
        }
    }

    fn read(&mut self, file: &HeaderFile, is_taken: bool, depth: u32) {
        self.files += 1;
        self.bytes += file.text.len();
        if depth > MAX_DEPTH || self.files > MAX_FILES || self.bytes > MAX_BYTES {
            return self.problem(format!("{}: headers include too many files", file.path));
        }
        // Of each open `#if`: whether this branch is taken, and whether one was.
        let mut conditions: Vec<(bool, bool)> = Vec::new();
        let mut pending: Vec<PlainToken> = Vec::new();
        for line in logical_lines(&file.text) {
            let is_active = conditions.iter().all(|(taken, _)| *taken);
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                if is_active {
                    pending.extend(split_plain(&line));
                }
                continue;
            };
            self.flush(&mut pending, is_taken);
            let directive = directive.trim();
            let word_end = directive.find(|c: char| !is_word(c)).unwrap_or(directive.len());
            let (word, rest) = directive.split_at(word_end);
            let rest = rest.trim();
            match word {
                "if" | "ifdef" | "ifndef" => {
                    let is = is_active && self.is_true(word, rest, Some(&file.path));
                    conditions.push((is, is));
                }
                "elif" | "elifdef" | "elifndef" => {
                    let outer = conditions.len().saturating_sub(1);
                    let is_open = conditions[..outer].iter().all(|(taken, _)| *taken);
                    let was = conditions.last().is_none_or(|(_, was)| *was);
                    let kind = word.strip_prefix("el").unwrap_or(word);
                    let is = is_open && !was && self.is_true(kind, rest, Some(&file.path));
                    if let Some(last) = conditions.last_mut() {
                        *last = (is, was || is);
                    }
                }
                "else" => {
                    if let Some((taken, was)) = conditions.last_mut() {
                        (*taken, *was) = (!*was, true);
                    }
                }
                "endif" => _ = conditions.pop(),
                _ if !is_active => {}
                "define" => self.macros.define(rest),
                "undef" => _ = self.macros.macros.remove(rest.trim()),
                "include" | "include_next" => {
                    self.include_from(file, rest, word == "include_next", is_taken, depth);
                }
                "pragma" if rest.starts_with("once") => _ = self.once.insert(file.path.clone()),
                "pragma" if rest.starts_with("pack") && is_taken => {
                    self.out.push_str(&format!("\n#pragma {rest}\n"));
                }
                "error" => self.problem(format!("{}: #error {rest}", file.path)),
                _ => {}
            }
        }
        self.flush(&mut pending, is_taken);
    }

    fn include_from(
        &mut self,
        file: &HeaderFile,
        rest: &str,
        is_next: bool,
        is_taken: bool,
        depth: u32,
    ) {
        let replaced;
        let rest = if rest.starts_with(['<', '"']) {
            rest
        } else {
            let tokens = self.expand(split_plain(rest));
            replaced = tokens.iter().map(|t| &*t.text).collect::<String>();
            &replaced
        };
        let end = if rest.starts_with('<') { '>' } else { '"' };
        let Some(name) = rest.get(1..).and_then(|rest| rest.split(end).next()) else { return };
        if is_next && OF_COMPILERS.contains(&name) {
            return;
        }
        // In quotes: looked for beside the file first.
        let beside = format!("./{name}");
        let wanted = if end == '"' && !name.starts_with('/') { &beside } else { name };
        match (self.find)(wanted, Some(&file.path)) {
            Ok(Some(found)) if self.once.contains(&found.path) => {}
            Ok(Some(found)) if is_next && found.path == file.path => {}
            Ok(Some(found)) => {
                let is_taken = is_taken || !found.is_kernel;
                self.read(&found, is_taken, depth + 1);
            }
            _ if OF_COMPILERS.contains(&name) => {}
            _ => self.problem(format!("{} includes {name}, which is not found", file.path)),
        }
    }

    /// Adds declarations, macros replaced.
    fn flush(&mut self, pending: &mut Vec<PlainToken>, is_taken: bool) {
        let tokens = std::mem::take(pending);
        if tokens.is_empty() || !is_taken {
            return;
        }
        for token in self.expand(tokens) {
            self.out.push_str(&token.text);
            self.out.push(' ');
        }
        self.out.push('\n');
    }

    fn expand(&mut self, tokens: Vec<PlainToken>) -> Vec<PlainToken> {
        let mut left = MAX_EXPANDED.saturating_sub(self.expanded);
        let before = left;
        let expanded = self.macros.expand(tokens, &mut left, 0);
        self.expanded += before - left;
        expanded
    }

    /// Whether the branch of an `#if`, `#ifdef` or `#ifndef` is taken.
    pub(crate) fn is_true(&mut self, word: &str, rest: &str, path: Option<&str>) -> bool {
        let name = rest.split(|c: char| !is_word(c)).next().unwrap_or_default();
        match word {
            "ifdef" => return self.macros.macros.contains_key(name),
            "ifndef" => return !self.macros.macros.contains_key(name),
            _ => {}
        }
        let mut tokens: Vec<PlainToken> = Vec::new();
        let mut words = split_plain(rest).into_iter().peekable();
        while let Some(token) = words.next() {
            let next_is_open = |t: &PlainToken| &*t.text == "(";
            if &*token.text == "defined" {
                let open = words.next_if(next_is_open).is_some();
                let name = words.next();
                let is = name.is_some_and(|n| self.macros.macros.contains_key(&n.text));
                if open {
                    words.next();
                }
                tokens.push(plain(if is { "1" } else { "0" }));
            } else if token.text.starts_with("__has_") && words.next_if(next_is_open).is_some() {
                let (mut text, mut open) = (String::new(), 1);
                for word in words.by_ref() {
                    open += i32::from(&*word.text == "(") - i32::from(&*word.text == ")");
                    if open == 0 {
                        break;
                    }
                    text.push_str(&word.text);
                }
                let name = text.trim_matches(['<', '>', '"']);
                let has = token.text.starts_with("__has_include")
                    && matches!((self.find)(name, path), Ok(Some(_)));
                tokens.push(plain(if has { "1" } else { "0" }));
            } else {
                tokens.push(token);
            }
        }
        let tokens = self.expand(tokens);
        evaluate(&tokens, true).is_some_and(|value| value != 0)
    }
}

impl HeaderMacros {
    pub(crate) fn remove(&mut self, name: &str) {
        self.macros.remove(name);
    }

    /// `NAME body`, `NAME(a, b) body`.
    pub(crate) fn define(&mut self, text: &str) {
        let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        if name.is_empty() {
            return;
        }
        let (mut parameters, mut is_variadic, mut body) = (None, false, rest);
        if let Some(list) = rest.strip_prefix('(')
            && let Some((list, behind)) = list.split_once(')')
        {
            let mut names: Vec<Rc<str>> = Vec::new();
            for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                match name.strip_suffix("...") {
                    Some(name) => {
                        is_variadic = true;
                        let name = name.trim();
                        names.push(if name.is_empty() { "__VA_ARGS__" } else { name }.into());
                    }
                    None => names.push(name.into()),
                }
            }
            (parameters, body) = (Some(names), behind);
        }
        let body = split_plain(body).into();
        self.macros.insert(name.into(), HeaderMacro { parameters, is_variadic, body });
    }

    /// Replaces macros, and those in what they become.
    fn expand(&self, tokens: Vec<PlainToken>, left: &mut usize, depth: u32) -> Vec<PlainToken> {
        let mut input = tokens;
        input.reverse();
        let mut out = Vec::new();
        while let Some(token) = input.pop() {
            let found = self.macros.get(&token.text).filter(|_| !token.is_hidden());
            let Some(found) = found.filter(|_| depth < MAX_DEPTH && *left > 0) else {
                out.push(token);
                continue;
            };
            let hidden = Some(Rc::new(HiddenName {
                name: Rc::clone(&token.text),
                outer: token.hidden.clone(),
            }));
            let body = match &found.parameters {
                None => paste(&found.body),
                Some(parameters) => {
                    if input.last().is_none_or(|next| &*next.text != "(") {
                        out.push(token);
                        continue;
                    }
                    let Some(arguments) = take_arguments(&mut input) else {
                        out.push(token);
                        continue;
                    };
                    self.substitute(found, parameters, arguments, left, depth)
                }
            };
            *left = left.saturating_sub(body.len() + 1);
            let hide = |part: PlainToken| PlainToken {
                hidden: merged(part.hidden.as_ref(), hidden.as_ref()),
                ..part
            };
            input.extend(body.into_iter().rev().map(hide));
        }
        out
    }

    /// Body of a macro with arguments in place of its parameters.
    fn substitute(
        &self,
        of: &HeaderMacro,
        parameters: &[Rc<str>],
        mut arguments: Vec<Vec<PlainToken>>,
        left: &mut usize,
        depth: u32,
    ) -> Vec<PlainToken> {
        if of.is_variadic && arguments.len() > parameters.len() {
            let rest = arguments.split_off(parameters.len());
            for part in rest {
                if let Some(last) = arguments.last_mut() {
                    last.push(plain(","));
                    last.extend(part);
                }
            }
        }
        let argument = |token: &PlainToken| {
            let at = parameters.iter().position(|p| *p == token.text)?;
            Some(arguments.get(at).cloned().unwrap_or_default())
        };
        let mut out: Vec<PlainToken> = Vec::new();
        for (n, token) in of.body.iter().enumerate() {
            let before = n.checked_sub(1).and_then(|n| of.body.get(n)).map(|t| &*t.text);
            let after = of.body.get(n + 1).map(|t| &*t.text);
            match argument(token) {
                Some(tokens) if before == Some("#") => {
                    out.pop();
                    let words: Vec<&str> = tokens.iter().map(|t| &*t.text).collect();
                    out.push(plain(&format!("{:?}", words.join(" "))));
                }
                // What is pasted is pasted as it was written.
                Some(tokens) if before == Some("##") || after == Some("##") => {
                    // An empty argument leaves something that pastes to nothing.
                    if tokens.is_empty() { out.push(plain("")) } else { out.extend(tokens) }
                }
                Some(tokens) => out.extend(self.expand(tokens, left, depth + 1)),
                None => out.push(token.clone()),
            }
        }
        paste(&out)
    }

    /// Adds those of other headers.
    pub(crate) fn extend(&mut self, other: HeaderMacros) {
        for (name, found) in other.macros {
            self.macros.entry(name).or_insert(found);
        }
    }

    /// Value of a macro, if it is a number or a text.
    pub(crate) fn value(&self, name: &str) -> Option<MacroValue> {
        self.macros.get(name).filter(|found| found.parameters.is_none())?;
        let mut left = MAX_EXPANDED;
        let tokens = self.expand(vec![plain(name)], &mut left, 0);
        if let [text] = tokens.as_slice()
            && let Some(text) = text.text.strip_prefix('"').and_then(|t| t.strip_suffix('"'))
        {
            return (!text.contains('\\')).then(|| MacroValue::Text(text.to_owned()));
        }
        let value = evaluate(&tokens, false)?;
        let value =
            i64::try_from(value).ok().or_else(|| u64::try_from(value).ok().map(|v| v as i64));
        value.map(MacroValue::Integer)
    }
}

impl PlainToken {
    fn is_hidden(&self) -> bool {
        let mut at = self.hidden.as_ref();
        while let Some(name) = at {
            if name.name == self.text {
                return true;
            }
            at = name.outer.as_ref();
        }
        false
    }
}

/// Names of both lists; of two long ones those of the second, which is the newer.
fn merged(own: Option<&Rc<HiddenName>>, new: Option<&Rc<HiddenName>>) -> Option<Rc<HiddenName>> {
    let (Some(own), Some(new)) = (own, new) else { return own.or(new).cloned() };
    let mut list = Rc::clone(new);
    let (mut at, mut steps) = (Some(own), 0);
    while let Some(name) = at.filter(|_| steps < MAX_DEPTH) {
        list = Rc::new(HiddenName { name: Rc::clone(&name.name), outer: Some(list) });
        (at, steps) = (name.outer.as_ref(), steps + 1);
    }
    Some(list)
}

/// Arguments of a macro, whose `(` is next.
fn take_arguments(input: &mut Vec<PlainToken>) -> Option<Vec<Vec<PlainToken>>> {
    let mut open = 0;
    let close = input.iter().rposition(|token| {
        open += i32::from(&*token.text == "(") - i32::from(&*token.text == ")");
        open == 0
    })?;
    let list = input.split_off(close);
    let mut arguments = vec![Vec::new()];
    let mut open = 0;
    // The parentheses themselves are the first and the last.
    for token in list.into_iter().skip(1).rev().skip(1) {
        match &*token.text {
            "," if open == 0 => arguments.push(Vec::new()),
            text => {
                open += i32::from(text == "(") - i32::from(text == ")");
                if let Some(last) = arguments.last_mut() {
                    last.push(token);
                }
            }
        }
    }
    Some(arguments)
}

/// Joins what `##` stands between.
fn paste(tokens: &[PlainToken]) -> Vec<PlainToken> {
    let mut out: Vec<PlainToken> = Vec::new();
    let mut is_pasted = false;
    for token in tokens {
        if &*token.text == "##" {
            is_pasted = true;
        } else if std::mem::take(&mut is_pasted)
            && let Some(last) = out.last_mut()
        {
            *last = plain(&format!("{}{}", last.text, token.text));
        } else {
            out.push(token.clone());
        }
    }
    out.retain(|token| !token.text.is_empty());
    out
}

fn plain(text: &str) -> PlainToken {
    PlainToken { text: text.into(), hidden: None }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Lines without comments; those that a backslash continues are one.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut chars = text.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        let Some(line) = lines.last_mut() else { break };
        match c {
            '\\' if chars.next_if_eq(&'\n').is_some() => {}
            '\\' if quote.is_some() => {
                line.push(c);
                line.extend(chars.next());
            }
            '\n' => {
                quote = None;
                lines.push(String::new());
            }
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                line.push(c);
            }
            c if quote == Some(c) => {
                quote = None;
                line.push(c);
            }
            '/' if quote.is_none() && chars.peek() == Some(&'/') => {
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            '/' if quote.is_none() && chars.next_if_eq(&'*').is_some() => {
                let mut last = ' ';
                for c in chars.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
                line.push(' ');
            }
            c => line.push(c),
        }
    }
    lines
}

/// Tokens of a line without comments.
fn split_plain(text: &str) -> Vec<PlainToken> {
    const MARKS: [&str; 13] =
        ["...", "##", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "->", "++", "--"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let len = if is_word(first) {
            // Numbers hold points and signs of exponents, which do not matter here.
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else if first == '"' || first == '\'' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == first && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |(at, _)| at + 1)
        } else if let Some(mark) = MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            mark.len()
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(len);
        tokens.push(plain(token));
        rest = behind.trim_start();
    }
    tokens
}

/// Value of an expression of integers. In a condition, names that are not defined are 0.
fn evaluate(tokens: &[PlainToken], is_condition: bool) -> Option<i128> {
    let mut evaluator = Evaluator { tokens, at: 0, is_condition, depth: 0 };
    let value = evaluator.ternary()?;
    (evaluator.at == tokens.len()).then_some(value)
}

struct Evaluator<'t> {
    tokens: &'t [PlainToken],
    at: usize,
    is_condition: bool,
    depth: u32,
}

impl Evaluator<'_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", |t| &t.text)
    }

    fn accept(&mut self, text: &str) -> bool {
        let is = self.peek() == text;
        self.at += usize::from(is);
        is
    }

    fn ternary(&mut self) -> Option<i128> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return None;
        }
        let mut value = self.binary(1)?;
        if self.accept("?") {
            let then = self.ternary()?;
            if !self.accept(":") {
                return None;
            }
            let other = self.ternary()?;
            value = if value != 0 { then } else { other };
        }
        self.depth -= 1;
        Some(value)
    }

    fn binary(&mut self, least: u8) -> Option<i128> {
        let mut left = self.unary()?;
        loop {
            let operator = self.peek().to_owned();
            let precedence = match operator.as_str() {
                "||" => 1,
                "&&" => 2,
                "|" => 3,
                "^" => 4,
                "&" => 5,
                "==" | "!=" => 6,
                "<" | ">" | "<=" | ">=" => 7,
                "<<" | ">>" => 8,
                "+" | "-" => 9,
                "*" | "/" | "%" => 10,
                _ => return Some(left),
            };
            if precedence < least {
                return Some(left);
            }
            self.at += 1;
            let right = self.binary(precedence + 1)?;
            let shift = u32::try_from(right).ok().filter(|n| *n < 64);
            left = match operator.as_str() {
                "||" => i128::from(left != 0 || right != 0),
                "&&" => i128::from(left != 0 && right != 0),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "==" => i128::from(left == right),
                "!=" => i128::from(left != right),
                "<" => i128::from(left < right),
                ">" => i128::from(left > right),
                "<=" => i128::from(left <= right),
                ">=" => i128::from(left >= right),
                "<<" => left.checked_mul(1 << shift?)?,
                ">>" => left >> shift?,
                "+" => left.checked_add(right)?,
                "-" => left.checked_sub(right)?,
                "*" => left.checked_mul(right)?,
                "/" => left.checked_div(right)?,
                _ => left.checked_rem(right)?,
            };
        }
    }

    fn unary(&mut self) -> Option<i128> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return None;
        }
        let value = self.operand();
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Option<i128> {
        let token = self.peek().to_owned();
        self.at += 1;
        Some(match token.as_str() {
            "!" => i128::from(self.unary()? == 0),
            "~" => !self.unary()?,
            "-" => self.unary()?.checked_neg()?,
            "+" => self.unary()?,
            "(" => {
                if !self.is_condition && self.passes_cast() {
                    return self.unary();
                }
                let value = self.ternary()?;
                if !self.accept(")") {
                    return None;
                }
                value
            }
            text if text.starts_with('\'') => {
                let inner = text.trim_matches('\'');
                match inner.strip_prefix('\\') {
                    Some("n") => 10,
                    Some("t") => 9,
                    Some("0") => 0,
                    Some(other) => i128::from(u32::from(other.chars().next()?)),
                    None => i128::from(u32::from(inner.chars().next()?)),
                }
            }
            text if text.starts_with(|c: char| c.is_ascii_digit()) => number(text)?,
            text if self.is_condition && text.starts_with(is_word) => {
                // What is called is no macro.
                if self.accept("(") {
                    while !self.accept(")") {
                        self.at += 1;
                        if self.at >= self.tokens.len() {
                            return None;
                        }
                    }
                }
                0
            }
            _ => return None,
        })
    }

    /// Passes over `type)` of a cast to an integer that is as wide as all values here.
    fn passes_cast(&mut self) -> bool {
        const TYPES: [&str; 14] = [
            "unsigned",
            "long",
            "int",
            "signed",
            "size_t",
            "ssize_t",
            "__u64",
            "__s64",
            "u64",
            "uint64_t",
            "int64_t",
            "__kernel_size_t",
            "const",
            "uintptr_t",
        ];
        let mut ahead = self.at;
        while self.tokens.get(ahead).is_some_and(|t| TYPES.contains(&&*t.text)) {
            ahead += 1;
        }
        let is = ahead > self.at && self.tokens.get(ahead).is_some_and(|t| &*t.text == ")");
        if is {
            self.at = ahead + 1;
        }
        is
    }
}

/// `10`, `0x1fUL`, `017`, `0b11`.
fn number(text: &str) -> Option<i128> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(['u', 'l']);
    if let Some(hex) = digits.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(i128::from);
    }
    if let Some(bits) = digits.strip_prefix("0b") {
        return u64::from_str_radix(bits, 2).ok().map(i128::from);
    }
    match digits.strip_prefix('0').filter(|octal| !octal.is_empty()) {
        Some(octal) => u64::from_str_radix(octal, 8).ok().map(i128::from),
        None => digits.parse::<u64>().ok().map(i128::from),
    }
}
