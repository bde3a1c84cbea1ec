//! The arguments of a description: `[NAME=]VALUE[:TYPE][@user]`.

use super::description::{ArgDescription, ArgValue, FieldStep};
use super::error::GrammarError;
use super::symbol::is_symbol;

type Result<T> = std::result::Result<T, GrammarError>;

/// Parses one argument, which begins at byte `at` of `text`.
pub(super) fn parse_arg(text: &str, at: usize, word: &str) -> Result<ArgDescription> {
    let span = (at, word.len());
    let (name, at, rest) = split_name(text, at, word)?;
    let (rest, user) = match rest.strip_suffix("@user") {
        Some(stem) if !stem.is_empty() => (stem, true),
        _ => (rest, false),
    };
    let (value, cast) = split_cast(rest);
    if let Some(cast) = cast {
        check_cast(text, at + value.len() + 1, cast)?;
    }
    let value = parse_value(text, at, value)?;
    Ok(ArgDescription { name, value, cast: cast.map(str::to_owned), user, span })
}

fn split_name<'w>(
    text: &str,
    at: usize,
    word: &'w str,
) -> Result<(Option<String>, usize, &'w str)> {
    let Some((name, rest)) = word.split_once('=') else { return Ok((None, at, word)) };
    if !is_symbol(name) {
        return Err(GrammarError::new(
            text,
            at,
            name.len(),
            "the name of an argument consists of letters, digits and _",
        ));
    }
    if rest.is_empty() {
        return Err(GrammarError::new(text, at + word.len(), 0, "the value is missing after ="));
    }
    Ok((Some(name.to_owned()), at + name.len() + 1, rest))
}

/// Splits off `:TYPE`; `::` is part of a name.
fn split_cast(text: &str) -> (&str, Option<&str>) {
    let bytes = text.as_bytes();
    let mut i = 0;
    while let Some(b) = bytes.get(i) {
        match b {
            b':' if bytes.get(i + 1) == Some(&b':') => i += 1,
            b':' => return (&text[..i], Some(&text[i + 1..])),
            _ => {}
        }
        i += 1;
    }
    (text, None)
}

/// Types of the kernel and perf's short forms, without an array suffix.
const KINDS: [&str; 24] = [
    "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "x8", "x16", "x32", "x64", "u", "s", "x",
    "char", "string", "ustring", "symbol", "symstr", "d8", "d16", "d32", "d64",
];

fn check_cast(text: &str, at: usize, cast: &str) -> Result<()> {
    let fail = |what: &str| Err(GrammarError::new(text, at, cast.len(), what));
    let (kind, array) = match cast.split_once('[') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (cast, None),
    };
    if let Some(count) = array {
        let number = count.strip_suffix(']').and_then(|n| n.parse::<u32>().ok());
        if !number.is_some_and(|n| (1..=64).contains(&n)) {
            return fail("the length of an array must be a number from 1 to 64 in brackets");
        }
    }
    if KINDS.contains(&kind) || is_bits(kind) {
        return Ok(());
    }
    // `:[N]` asks for an array of the type that the debugging information gives.
    if kind.is_empty() && array.is_some() {
        return Ok(());
    }
    Err(GrammarError::new(text, at, cast.len(), format!("no such type: {cast:?}"))
        .hint("u8…u64, s8…s64, x8…x64, u, s, x, char, string, ustring, symbol, bWIDTH@OFFSET/SIZE, TYPE[N]"))
}

/// `bWIDTH@OFFSET/SIZE`.
fn is_bits(kind: &str) -> bool {
    let parts = || {
        let (width, rest) = kind.strip_prefix('b')?.split_once('@')?;
        let (offset, size) = rest.split_once('/')?;
        Some((width.parse::<u32>().ok()?, offset.parse::<u32>().ok()?, size.parse::<u32>().ok()?))
    };
    parts().is_some_and(|(w, o, s)| w > 0 && matches!(s, 8 | 16 | 32 | 64) && w + o <= s)
}

fn parse_value(text: &str, at: usize, value: &str) -> Result<ArgValue> {
    match value.as_bytes().first() {
        None => Err(GrammarError::new(text, at, 0, "the value is missing")),
        Some(b'$') if value == "$vars" => Ok(ArgValue::Vars),
        Some(b'$') if value == "$params" => Ok(ArgValue::Params),
        Some(b'$' | b'%' | b'@' | b'+' | b'-' | b'\\') => {
            check_raw(text, at, value)?;
            Ok(ArgValue::Raw(value.to_owned()))
        }
        Some(b'&') => variable(text, at + 1, &value[1..], true),
        // `*var->field` is `var->field[0]`.
        Some(b'*') => {
            let stars = value.len() - value.trim_start_matches('*').len();
            let mut of = variable(text, at + stars, &value[stars..], false)?;
            if let ArgValue::Variable { steps, .. } = &mut of {
                steps.extend(std::iter::repeat_n(FieldStep::Index(0), stars));
            }
            Ok(of)
        }
        Some(_) => variable(text, at, value, false),
    }
}

/// Checks a value in the kernel's syntax.
pub(super) fn check_raw(text: &str, at: usize, value: &str) -> Result<()> {
    let fail = |what: &str, hint: &str| {
        let e = GrammarError::new(text, at, value.len(), what);
        Err(if hint.is_empty() { e } else { e.hint(hint) })
    };
    let Some(rest) = value.get(1..) else { return fail("the value is missing", "") };
    match value.as_bytes().first() {
        Some(b'%') if is_symbol(rest) => Ok(()),
        Some(b'%') => fail("this is not a register", "as in %ax"),
        Some(b'$') => check_dollar(text, at, value),
        Some(b'@') => {
            if rest.is_empty() {
                fail("a symbol or an address is missing after @", "@SYMBOL[+OFFSET]")
            } else {
                Ok(())
            }
        }
        Some(b'\\') => {
            let string = rest.len() >= 2 && rest.starts_with('"') && rest.ends_with('"');
            if string || number(rest).is_some() {
                Ok(())
            } else {
                fail("an immediate value is a number or a string in double quotes", "as in \\1234")
            }
        }
        Some(b'+' | b'-') => check_deref(text, at, value),
        _ => fail(
            "not a value in the kernel's syntax",
            "%REG, $retval, @SYMBOL, +OFFSET(VALUE), \\NUMBER",
        ),
    }
}

fn check_dollar(text: &str, at: usize, value: &str) -> Result<()> {
    let name = value.get(1..).unwrap_or_default();
    let indexed =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|n| n.parse::<u16>().is_ok());
    if matches!(name, "retval" | "stack" | "comm" | "current") || indexed("stack") || indexed("arg")
    {
        return Ok(());
    }
    Err(GrammarError::new(text, at, value.len(), format!("no such special value: {value}"))
        .hint("$vars, $params, $retval, $stack, $stackN, $argN, $comm"))
}

/// `+OFFSET(VALUE)`, `-OFFSET(VALUE)`, with `u` before the offset for memory of
/// the program.
fn check_deref(text: &str, at: usize, value: &str) -> Result<()> {
    let Some(open) = value.find('(') else {
        return Err(GrammarError::new(
            text,
            at,
            value.len(),
            "the value to dereference is missing",
        )
        .hint("+OFFSET(VALUE)"));
    };
    let offset = &value[1..open];
    let offset = offset.strip_prefix('u').unwrap_or(offset);
    if number(offset).is_none() {
        return Err(GrammarError::new(text, at + 1, open - 1, "the offset is not a number"));
    }
    match value.strip_suffix(')') {
        Some(stem) => check_raw(text, at + open + 1, &stem[open + 1..]),
        None => Err(GrammarError::new(text, at + open, 1, "unclosed parenthesis")),
    }
}

/// A number as C writes it; a sign is allowed.
pub(super) fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let value = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16).ok()?
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()?
    } else if digits.starts_with('+') {
        return None;
    } else {
        digits.parse().ok()?
    };
    let value = value as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}

fn variable(text: &str, at: usize, value: &str, address_of: bool) -> Result<ArgValue> {
    let end = step_end(value);
    let name = &value[..end];
    check_name(text, at, name)?;
    let mut steps = Vec::new();
    let mut rest = end;
    while rest < value.len() {
        let (step, len) = step(text, at + rest, &value[rest..])?;
        steps.push(step);
        rest += len;
    }
    Ok(ArgValue::Variable { address_of, name: name.to_owned(), steps })
}

/// Offset of the next step: at `.`, `->` or `[`.
fn step_end(text: &str) -> usize {
    text.find(['.', '-', '[']).unwrap_or(text.len())
}

/// Names of variables: C's, and Rust's tuple fields (`0`, `__0`).
fn check_name(text: &str, at: usize, name: &str) -> Result<()> {
    let ok = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '#')
    };
    let first_digit = name.starts_with(|c: char| c.is_ascii_digit());
    let parts_ok = name.split("::").all(ok);
    if parts_ok && !first_digit {
        return Ok(());
    }
    let (at, len) = if name.is_empty() { (at, 0) } else { (at, name.len()) };
    Err(GrammarError::new(text, at, len, "not the name of a variable"))
}

fn step(text: &str, at: usize, rest: &str) -> Result<(FieldStep, usize)> {
    if let Some(inner) = rest.strip_prefix('[') {
        let close =
            inner.find(']').ok_or_else(|| GrammarError::new(text, at, 1, "unclosed bracket"))?;
        let index = &inner[..close];
        let Some(index) = number(index) else {
            return Err(GrammarError::new(text, at + 1, close, "an index must be a number").hint(
                "an index that is a variable cannot be written as a fetch argument; record the index and the elements instead",
            ));
        };
        return Ok((FieldStep::Index(index), close + 2));
    }
    let (arrow, skip) = if rest.starts_with("->") {
        (true, 2)
    } else if rest.starts_with('.') {
        (false, 1)
    } else {
        return Err(GrammarError::new(text, at, rest.len(), "not expected here")
            .hint("steps are .FIELD, ->FIELD and [INDEX]"));
    };
    let name = &rest[skip..];
    let name = &name[..step_end(name)];
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !plain {
        return Err(GrammarError::new(
            text,
            at + skip,
            name.len(),
            "the name of a field is missing here",
        ));
    }
    let step = if arrow { FieldStep::Arrow(name.into()) } else { FieldStep::Dot(name.into()) };
    Ok((step, skip + name.len()))
}
