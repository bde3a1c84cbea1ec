//! The kernel's syntax → a typed definition: what `kprobe_events` and `uprobe_events`
//! list, and what a person writes in the same words. Total: what only the kernel
//! understands stays text in its place.

use super::{
    Dereference, FetchArg, FetchBase, FetchExpr, FetchType, ProbeDefinition, ProbeKind, ProbeTarget,
};

impl ProbeDefinition {
    /// Reads `KIND[:[GROUP/][EVENT]] TARGET [ARG…]`; none for what is no definition of a
    /// probe (removals, events of other kinds).
    pub fn parse(line: &str) -> Option<ProbeDefinition> {
        let line = line.trim_ascii();
        let (head, rest) = line.split_once(|c: char| c.is_ascii_whitespace())?;
        let (letters, name) = match head.split_once(':') {
            Some((letters, name)) => (letters, Some(name)),
            None => (head, None),
        };
        let kind = match (letters.get(..1)?, letters.get(1..)?) {
            ("p", "") => ProbeKind::Probe,
            ("r", "") => ProbeKind::RETURN,
            ("r", most) => ProbeKind::Return { max_active: Some(most.parse().ok()?) },
            _ => return None,
        };
        let (target, args) = split_target(rest.trim_ascii());
        if target.is_empty() {
            return None;
        }
        let target = ProbeTarget::parse(target);
        let (group, event) = match name.map(|n| n.split_once(['/', '.']).ok_or(n)) {
            Some(Ok((group, event))) => (Some(group), event),
            Some(Err(event)) => (None, event),
            None => (None, ""),
        };
        Some(ProbeDefinition {
            kind,
            group: group.unwrap_or(target.default_group()).to_owned(),
            event: (!event.is_empty()).then(|| event.to_owned()),
            target,
            args: args.split_ascii_whitespace().map(FetchArg::parse).collect(),
        })
    }
}

/// Splits the target off. The kernel lists a path as it is, also one with blanks: it
/// ends at an offset in hexadecimal digits.
fn split_target(text: &str) -> (&str, &str) {
    let end = text
        .starts_with('/')
        .then(|| {
            text.match_indices(":0x").find_map(|(at, _)| {
                let digits = text.get(at + 3..)?;
                let len = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
                let rest = digits.get(len..)?;
                // A reference counter stands behind it in parentheses.
                let rest = match rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
                    Some((_, rest)) => rest,
                    None => rest,
                };
                let ends = rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_whitespace());
                (len > 0 && ends).then_some(text.len() - rest.len())
            })
        })
        .flatten();
    let end =
        end.unwrap_or_else(|| text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len()));
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// A number as C writes it, without a sign.
fn number(text: &str) -> Option<u64> {
    if text.starts_with(['+', '-']) {
        return None;
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

/// A number behind its sign.
fn signed(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => 0i64.checked_sub_unsigned(number(digits)?),
        None => i64::try_from(number(text.strip_prefix('+').unwrap_or(text))?).ok(),
    }
}

impl ProbeTarget {
    /// Reads a target; what is not understood stays text.
    pub fn parse(text: &str) -> ProbeTarget {
        let found = if text.starts_with('/') {
            ProbeTarget::parse_file(text)
        } else if text.starts_with("0x") {
            number(text).map(ProbeTarget::Address)
        } else {
            ProbeTarget::parse_symbol(text)
        };
        found.unwrap_or_else(|| ProbeTarget::Verbatim(text.to_owned()))
    }

    fn parse_file(text: &str) -> Option<ProbeTarget> {
        let (path, rest) = text.rsplit_once(':')?;
        let (offset, ref_ctr_offset) = match rest.split_once('(') {
            Some((offset, counter)) => (offset, Some(number(counter.strip_suffix(')')?)?)),
            None => (rest, None),
        };
        Some(ProbeTarget::File { path: path.to_owned(), offset: number(offset)?, ref_ctr_offset })
    }

    fn parse_symbol(text: &str) -> Option<ProbeTarget> {
        let (module, rest) = match text.split_once(':') {
            Some((module, rest)) => (Some(module.to_owned()), rest),
            None => (None, text),
        };
        let (symbol, offset) = match rest.split_once('+') {
            Some((symbol, offset)) => (symbol, Some(number(offset)?)),
            None => (rest, None),
        };
        // A sign or a suffix that only newer kernels know is not part of a name.
        let plain = !symbol.is_empty() && !symbol.contains(['%', '-', ':', '+']);
        plain.then(|| ProbeTarget::Symbol { module, symbol: symbol.to_owned(), offset })
    }
}

impl FetchArg {
    /// Reads `[NAME=]FETCH[:TYPE]`.
    pub fn parse(text: &str) -> FetchArg {
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if is_name(name) => (Some(name.to_owned()), rest),
            _ => (None, text),
        };
        // The kernel takes the first colon, too; an immediate string may hold some.
        let (expr, fetch_type) = match rest.split_once(':') {
            Some((expr, kind)) if !rest.starts_with("\\\"") => (expr, Some(FetchType::parse(kind))),
            _ => (rest, None),
        };
        FetchArg { name, expr: FetchExpr::parse(expr), fetch_type }
    }
}

impl FetchExpr {
    /// Reads a fetch expression; what is not understood stays text.
    pub fn parse(text: &str) -> FetchExpr {
        let mut dereferences = Vec::new();
        let mut inner = text;
        while let Some((read, rest)) = split_dereference(inner) {
            dereferences.push(read);
            inner = rest;
        }
        let memory = |offset: i64| Dereference { offset, user: false };
        let base = match inner.split_at_checked(1) {
            Some(("%", _)) => FetchBase::Register(inner.to_owned()),
            Some(("\\", "0xdeade12d")) => FetchBase::Missing,
            Some(("\\", digits)) => match signed(digits) {
                Some(value) => FetchBase::Immediate(value),
                None => FetchBase::Verbatim(inner.to_owned()),
            },
            Some(("@", rest)) => match rest.strip_prefix('+').and_then(number) {
                Some(at) => {
                    dereferences.push(memory(0));
                    FetchBase::FileOffset(at)
                }
                None => match symbol_and_offset(rest) {
                    Some((symbol, offset)) => {
                        dereferences.push(memory(offset));
                        FetchBase::Symbol(symbol.to_owned())
                    }
                    None => FetchBase::Verbatim(inner.to_owned()),
                },
            },
            _ => FetchBase::Verbatim(inner.to_owned()),
        };
        dereferences.reverse();
        FetchExpr { base, dereferences }
    }
}

/// `+OFFSET(VALUE)`, `-uOFFSET(VALUE)`: the outermost read, and its value.
fn split_dereference(text: &str) -> Option<(Dereference, &str)> {
    let negative = match text.split_at_checked(1)?.0 {
        "+" => false,
        "-" => true,
        _ => return None,
    };
    let (head, value) = text.get(1..)?.strip_suffix(')')?.split_once('(')?;
    let (digits, user) = match head.strip_prefix('u') {
        Some(digits) => (digits, true),
        None => (head, false),
    };
    let size = number(digits)?;
    let offset =
        if negative { 0i64.checked_sub_unsigned(size)? } else { i64::try_from(size).ok()? };
    Some((Dereference { offset, user }, value))
}

/// `SYMBOL[+|-OFFSET]`.
fn symbol_and_offset(text: &str) -> Option<(&str, i64)> {
    let starts_name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let at = text.find(['+', '-']).unwrap_or(text.len());
    let (symbol, offset) = text.split_at_checked(at)?;
    let offset = if offset.is_empty() { 0 } else { signed(offset)? };
    starts_name.then_some((symbol, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> ProbeDefinition {
        ProbeDefinition::parse(line).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn definitions_print_as_they_were_read() {
        for line in [
            "p:grp/ev vfs_read+8 a=%di b=+60(%di):u32 $retval",
            "r:grp/ev vfs_read ret=$retval:s32",
            "r16:kprobes/ev vfs_read+0",
            "p vfs_read",
            "p:grp/ vfs_read",
            "p:probe/x 0xffffffff81000010",
            "p:g/e mod:f+4 +u4(-8(%sp)):string[4] @jiffies+4 \\-5:s8 \\0xdeade12d:x8",
            "p:g/e /bin/sh:0x1139(0x4010) arg1=@+0x4018:b4@8/32 +8(@+0x10):x64",
            "p:g/e vfs_read%return \\\"a:b\" @0xffff +0($stack2):ustring %pd",
            "p:g/e sym-4 nonsense",
        ] {
            assert_eq!(parse(line).to_string(), line);
        }
        // Spellings that mean the same.
        for (line, same) in [
            ("  p:g.e   vfs_read+0x10\t%di ", "p:g/e vfs_read+16 %di"),
            ("p:ev /bin/sh:16", "p:uprobes/ev /bin/sh:0x10"),
            ("p:g/e /bin/sh:0x0000000000001000 n=+0x3c(%di)", "p:g/e /bin/sh:0x1000 n=+60(%di)"),
        ] {
            assert_eq!(parse(line).to_string(), same);
            assert_eq!(parse(same), parse(line));
        }
        for wrong in
            ["", "p", "-:g/e", "s:synthetic/lat u64 delta;", "rx:g/e f", "e:g/e a.b", "é x"]
        {
            assert_eq!(ProbeDefinition::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn listed_targets_have_parts() {
        let symbol = |module: Option<&str>, symbol: &str, offset| ProbeTarget::Symbol {
            module: module.map(str::to_owned),
            symbol: symbol.to_owned(),
            offset,
        };
        let target = |text: &str| parse(&format!("p:g/e {text} n=%di:s32")).target;
        assert_eq!(target("_text+3460176"), symbol(None, "_text", Some(3_460_176)));
        assert_eq!(target("vfs_read"), symbol(None, "vfs_read", None));
        assert_eq!(target("m:f+4"), symbol(Some("m"), "f", Some(4)));
        assert_eq!(target("0xffffffff81000000"), ProbeTarget::Address(0xffff_ffff_8100_0000));
        let file = |path: &str, offset, ref_ctr_offset| ProbeTarget::File {
            path: path.to_owned(),
            offset,
            ref_ctr_offset,
        };
        let listed = target("/opt/a:b:0x0000000000001139(0x4010)");
        assert_eq!(listed, file("/opt/a:b", 0x1139, Some(0x4010)));
        assert_eq!(target("/opt/a program:0x10"), file("/opt/a program", 0x10, None));
        assert_eq!(target("/nothing"), ProbeTarget::Verbatim("/nothing".into()));
        assert!(target("/nothing").is_user());
    }
}
