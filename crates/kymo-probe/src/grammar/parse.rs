//! Parsing of descriptions: `[[GROUP:]EVENT=]POINT [ARG…]`. The grammar is that
//! of perf probe, with paths of Rust and C++ (`a::b::f`, `<T as Tr>::f`), plain
//! addresses and `%next` besides.

use super::arguments::{number, parse_arg};
use super::description::{PointDescription, ProbeDescription, UsdtName};
use super::error::GrammarError;
use super::symbol::is_symbol;

type Result<T> = std::result::Result<T, GrammarError>;

/// The kernel takes no more arguments than these.
const MOST_ARGS: usize = 128;

impl ProbeDescription {
    /// Parses `text`.
    pub fn parse(text: &str) -> Result<ProbeDescription> {
        let (at, head) = head(text)?;
        let mut d = ProbeDescription { text: text.to_owned(), ..ProbeDescription::default() };
        parse_head(text, at, head, &mut d)?;
        let rest = at + head.len();
        for word in text.get(rest..).unwrap_or_default().split_ascii_whitespace() {
            let at = word.as_ptr() as usize - text.as_ptr() as usize;
            if d.args.len() == MOST_ARGS {
                let what = format!("more than {MOST_ARGS} arguments");
                return Err(GrammarError::new(text, at, text.len() - at, what));
            }
            d.args.push(parse_arg(text, at, word)?);
        }
        if d.point.ret
            && let Some(arg) = d.args.iter().find(|a| !matches!(a.value, super::ArgValue::Raw(_)))
        {
            return Err(GrammarError::new(
                text,
                arg.span.0,
                arg.span.1,
                "variables no longer exist after a function has returned",
            )
            .hint("use $retval, or a register"));
        }
        Ok(d)
    }

    /// Parses a description that may have no arguments (`--vars`).
    pub fn parse_point(text: &str) -> Result<ProbeDescription> {
        let d = ProbeDescription::parse(text)?;
        match d.args.first() {
            None => Ok(d),
            Some(arg) => Err(GrammarError::new(
                text,
                arg.span.0,
                text.len() - arg.span.0,
                "only a probe point is expected here, without arguments",
            )),
        }
    }
}

/// The first word; blanks inside of balanced `<…>` belong to it.
fn head(text: &str) -> Result<(usize, &str)> {
    let start = text.len() - text.trim_ascii_start().len();
    let body = &text[start..];
    let plain = body.find(|c: char| c.is_ascii_whitespace()).unwrap_or(body.len());
    let mut depth = 0i32;
    let mut end = None;
    for (i, c) in body.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            c if c.is_ascii_whitespace() && depth <= 0 => {
                end = Some(i);
                break;
            }
            _ => {}
        }
    }
    let end = if end.is_none() && depth != 0 { plain } else { end.unwrap_or(body.len()) };
    match &body[..end] {
        "" => Err(GrammarError::new(text, start, 0, "nothing to probe")
            .hint("a function, FILE:LINE, or an address")),
        word => Ok((start, word)),
    }
}

fn parse_head(text: &str, at: usize, word: &str, d: &mut ProbeDescription) -> Result<()> {
    if let Some(usdt) = usdt_of(word) {
        d.point.usdt = Some(parse_usdt(text, at + word.len() - usdt.len(), usdt)?);
        return Ok(());
    }
    let (mut at, mut word) = (at, word);
    if let Some((i, '=')) = special(word, ";=@+%") {
        let (group, event) = parse_event_name(text, at, &word[..i])?;
        d.group = group;
        d.event = Some(event);
        at += i + 1;
        word = &word[i + 1..];
        if word.is_empty() {
            return Err(GrammarError::new(text, at, 0, "the probe point is missing after ="));
        }
        if let Some(usdt) = usdt_of(word) {
            d.point.usdt = Some(parse_usdt(text, at + word.len() - usdt.len(), usdt)?);
            return Ok(());
        }
    }
    d.point = parse_point(text, at, word)?;
    Ok(())
}

/// `%PROVIDER:NAME`, `%NAME`, `sdt_PROVIDER:NAME`: the part behind the `%`.
fn usdt_of(word: &str) -> Option<&str> {
    if let Some(rest) = word.strip_prefix('%') {
        return Some(rest);
    }
    let colon = word.find(':')?;
    (word.starts_with("sdt_")
        && word.get(colon + 1..).is_some_and(is_symbol)
        && !word.contains('='))
    .then_some(word)
}

fn parse_usdt(text: &str, at: usize, body: &str) -> Result<UsdtName> {
    let stem = body.strip_prefix("sdt_").unwrap_or(body);
    let (provider, name) = match stem.split_once(':') {
        Some((p, n)) => (Some(p), n),
        None => (None, stem),
    };
    let ok =
        |s: &str| !s.is_empty() && s.chars().all(|c| c.is_alphanumeric() || "_-.*?[]".contains(c));
    if !ok(name) || !provider.is_none_or(ok) {
        return Err(GrammarError::new(text, at, body.len(), "not the name of a USDT probe")
            .hint("%PROVIDER:NAME"));
    }
    Ok(UsdtName { provider: provider.map(str::to_owned), name: name.to_owned() })
}

fn parse_event_name(text: &str, at: usize, name: &str) -> Result<(Option<String>, String)> {
    let (group, event_at, event) = match name.split_once([':', '/']) {
        Some((g, e)) => (Some(g), at + g.len() + 1, e),
        None => (None, at, name),
    };
    if let Some(group) = group
        && !is_symbol(group)
    {
        return Err(GrammarError::new(
            text,
            at,
            group.len(),
            format!("invalid group name {group:?}: only letters, digits and _ are allowed"),
        ));
    }
    if !is_symbol(event) {
        return Err(GrammarError::new(
            text,
            event_at,
            event.len(),
            format!("invalid event name {event:?}: only letters, digits and _ are allowed"),
        ));
    }
    if event.len() > 63 {
        return Err(GrammarError::new(
            text,
            event_at,
            event.len(),
            "the kernel allows names of at most 63 characters",
        ));
    }
    Ok((group.map(str::to_owned), event.to_owned()))
}

/// The first of `set` that is not escaped, not in `<…>` or `{…}`, and not half
/// of `::`.
fn special(text: &str, set: &str) -> Option<(usize, char)> {
    let bytes = text.as_bytes();
    let nested = text.matches('<').count() == text.matches('>').count();
    let mut depth = 0i32;
    let mut i = 0;
    while let Some(&b) = bytes.get(i) {
        match b {
            b'\\' => i += 1,
            b'<' | b'{' if nested || b == b'{' => depth += 1,
            b'>' | b'}' if nested || b == b'}' => depth -= 1,
            b':' if bytes.get(i + 1) == Some(&b':') => i += 1,
            b if b.is_ascii() && depth <= 0 && set.contains(b as char) => {
                return Some((i, b as char));
            }
            _ => {}
        }
        i += 1;
    }
    None
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

fn parse_point(text: &str, at: usize, word: &str) -> Result<PointDescription> {
    let mut point = PointDescription::default();
    let first = special(word, ";:+@%");
    let name = &word[..first.map_or(word.len(), |(i, _)| i)];
    // What stands behind `;` is a pattern and says nothing about the place.
    let place = special(word, ";").map_or(word, |(i, _)| &word[..i]);
    let is_file = special(place, "+@").is_none()
        && first.is_some_and(|(_, c)| c == ':' || c == ';')
        && name.contains('.')
        && !name.contains("::")
        && special(place, "%").is_none_or(|(i, _)| place[i..].starts_with("%next"));
    if is_file {
        point.file = Some(unescape(name));
    } else if let Some(hex) = name.strip_prefix("0x") {
        let address = u64::from_str_radix(hex, 16).map_err(|_| {
            GrammarError::new(
                text,
                at,
                name.len(),
                "not an address: hexadecimal digits are needed after 0x",
            )
        })?;
        point.address = Some(address);
        point.function = Some(name.to_owned());
    } else if !name.is_empty() {
        point.function = Some(unescape(name));
    }
    let mut next = first;
    let mut from = 0;
    while let Some((i, c)) = next {
        let start = from + i + 1;
        let tail = &word[start..];
        if c == ';' {
            if tail.is_empty() {
                return Err(GrammarError::new(
                    text,
                    at + start,
                    0,
                    "the pattern is missing after ;",
                ));
            }
            point.lazy = Some(tail.to_owned());
            break;
        }
        next = special(tail, ";:+@%");
        let part = &tail[..next.map_or(tail.len(), |(i, _)| i)];
        suffix(text, at + start, c, part, &mut point)?;
        from = start;
    }
    check_point(text, at, word, &point)?;
    Ok(point)
}

fn suffix(
    text: &str,
    at: usize,
    kind: char,
    part: &str,
    point: &mut PointDescription,
) -> Result<()> {
    let err = |what: &str| GrammarError::new(text, at, part.len(), what);
    match kind {
        ':' if point.next => return Err(err("the line must precede %next")),
        ':' => {
            let line = number(part).and_then(|n| u32::try_from(n).ok());
            point.line = Some(line.ok_or_else(|| err("the line must be a number"))?);
        }
        '+' => {
            let offset = number(part).and_then(|n| u64::try_from(n).ok());
            point.offset = offset.ok_or_else(|| err("the offset must be a number of bytes"))?;
        }
        '@' if part.is_empty() => return Err(err("the source file is missing after @")),
        '@' if point.file.is_some() => return Err(err("the source file is given twice")),
        '@' => point.file = Some(unescape(part)),
        '%' if part == "return" => point.ret = true,
        '%' if part == "next" => point.next = true,
        _ => {
            return Err(GrammarError::new(
                text,
                at - 1,
                part.len() + 1,
                format!("unknown modifier %{part}"),
            )
            .hint("%return or %next"));
        }
    }
    Ok(())
}

fn check_point(text: &str, at: usize, word: &str, p: &PointDescription) -> Result<()> {
    let err = |what: &str| Err(GrammarError::new(text, at, word.len(), what));
    if p.function.is_none() && p.file.is_none() {
        return err("the probe point has no function or file");
    }
    if p.lazy.is_some() && p.line.is_some() {
        return err("a pattern cannot be used with a line number");
    }
    if p.lazy.is_some() && p.offset != 0 {
        return err("a pattern cannot be used with an offset");
    }
    if p.line.is_some() && p.offset != 0 {
        return err("an offset cannot be used with a line number");
    }
    if p.file.is_some() && p.function.is_none() && p.line.is_none() && p.lazy.is_none() {
        return err("a file needs a line number or a pattern");
    }
    if p.ret && (p.offset != 0 || p.line.is_some() || p.lazy.is_some() || p.next) {
        return err("%return cannot be used with an offset, a line or a pattern");
    }
    if p.ret && p.function.is_none() {
        return err("%return needs a function");
    }
    if p.next && (p.offset != 0 || p.lazy.is_some()) {
        return err("%next needs a line: FUNCTION[:LINE]%next or FILE:LINE%next");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{ArgValue, FieldStep};
    use super::*;

    fn point(text: &str) -> PointDescription {
        ProbeDescription::parse(text).unwrap_or_else(|e| panic!("{e}")).point
    }

    #[test]
    fn points_print_as_they_were_written() {
        for text in [
            "vfs_read",
            "vfs_read+8",
            "vfs_read%return",
            "vfs_read:6",
            "vfs_read@fs/read_write.c:6",
            "schedule;cpu=*",
            "kernel/sched.c:100",
            "sched.c;rq=*",
            "main.rs:8%next",
            "f:3%next",
            "mycrate::module::func",
            "<rp::P as rp::Area>::area",
            "rp::generic<i32>",
            "main::{closure#0}",
            "%libc:setjmp",
            "0x1234",
            "vfs_*",
            "a::<T>::f:3",
        ] {
            assert_eq!(point(text).to_string(), text);
        }
        assert_eq!(
            point("sdt_libc:setjmp").usdt,
            Some(UsdtName { provider: Some("libc".into()), name: "setjmp".into() })
        );
        assert_eq!(point("malloc\\@GLIBC_2.2.5").function.as_deref(), Some("malloc@GLIBC_2.2.5"));
        assert_eq!(point("a\\+b.c:4").file.as_deref(), Some("a+b.c"));
        assert_eq!(point("main+0x10").offset, 16);
        assert_eq!(point("f;a:b+c%d").lazy.as_deref(), Some("a:b+c%d"));
        let d = ProbeDescription::parse("  grp:ev=vfs_read  file").unwrap();
        assert_eq!((d.group.as_deref(), d.event.as_deref()), (Some("grp"), Some("ev")));
    }

    #[test]
    fn arguments() {
        let args = |text: &str| {
            ProbeDescription::parse(&format!("f {text}")).unwrap_or_else(|e| panic!("{e}")).args
        };
        let a = args(
            "n=var->field.x[3]:x32 &v %di $retval @sym+8 +u4(-8(%sp)):string \\5 s@user $vars",
        )
        .into_iter()
        .collect::<Vec<_>>();
        assert_eq!(a[0].name.as_deref(), Some("n"));
        assert_eq!(
            a[0].value,
            ArgValue::Variable {
                address_of: false,
                name: "var".into(),
                steps: vec![
                    FieldStep::Arrow("field".into()),
                    FieldStep::Dot("x".into()),
                    FieldStep::Index(3)
                ],
            }
        );
        assert_eq!(a[0].to_string(), "var->field.x[3]:x32");
        assert!(matches!(a[1].value, ArgValue::Variable { address_of: true, .. }));
        assert_eq!(a[5].value, ArgValue::Raw("+u4(-8(%sp))".into()));
        assert!(a[7].user && a[8].value == ArgValue::Vars);
        for cast in ["u8", "x", "string", "b4@8/32", "u16[4]", "[4]", "symbol", "char"] {
            assert_eq!(args(&format!("v:{cast}"))[0].cast.as_deref(), Some(cast));
        }
    }

    #[test]
    fn mistakes_are_shown_at_their_spot() {
        let cases = [
            ("", ""),
            ("vfs_read:x", "x"),
            ("vfs_read:-1", "-1"),
            ("vfs_read+x", "x"),
            ("vfs_read%ret", "%ret"),
            ("a.c", ""),
            ("a.c@b.c:3", ""),
            ("f@", ""),
            ("f;", ""),
            ("f:3;x", "f:3;x"),
            ("f+8:3", "f+8:3"),
            ("f%return:3", "f%return:3"),
            ("1x=f", "1x"),
            ("g-h:e=f", "g-h"),
            ("e=", ""),
            ("0xzz", "0xzz"),
            ("f a[i]", "i"),
            ("f a->", ""),
            ("f a-b", "-b"),
            ("f a[1", "["),
            ("f v:u7", "u7"),
            ("f v:b40@0/32", "b40@0/32"),
            ("f v:u8[65]", "u8[65]"),
            ("f $nope", "$nope"),
            ("f %", "%"),
            ("f +8", "+8"),
            ("f +8(%di", "("),
            ("f +z(%di)", "z"),
            ("f \\x", "\\x"),
            ("f =x", ""),
            ("f x=", ""),
            ("f%return x", "x"),
            ("%", ""),
        ];
        for (text, spot) in cases {
            let Err(e) = ProbeDescription::parse(text) else {
                assert!(text == "a.c" || text == "a.c@b.c:3", "{text:?} should be refused");
                continue;
            };
            assert_eq!(&e.text[e.at..e.at + e.len], spot, "{e}");
        }
        let many = format!("f{}", " %ax".repeat(129));
        assert!(ProbeDescription::parse(&many).is_err());
    }
}
