//! Names of functions that are the same in two builds: what the compiler appends to them differs
//! from build to build.

use std::borrow::Cow;

/// Suffixes that compilers append, each perhaps followed by a number.
const SUFFIXES: [&str; 9] =
    ["isra", "constprop", "part", "cold", "lto_priv", "llvm", "ipa", "localalias", "artificial"];

/// The name without suffixes of the compiler (`.llvm.123`, `.isra.0`, `.part.1`, `.cold`,
/// `[clone .cold]`) and without Rust's hashes.
pub fn normalize_name(name: &str) -> Cow<'_, str> {
    let mut rest = name;
    loop {
        let shorter = without_clone(rest).or_else(|| without_suffix(rest));
        match shorter.or_else(|| without_hash(rest)) {
            Some(shorter) if !shorter.is_empty() => rest = shorter,
            _ => break,
        }
    }
    without_disambiguators(rest)
}

/// `f [clone .cold]`.
fn without_clone(name: &str) -> Option<&str> {
    let (head, clone) = name.rsplit_once(" [clone ")?;
    clone.ends_with(']').then_some(head)
}

/// `f.isra.0`, `f.cold`, `f.part.0`, `f.llvm.123`.
fn without_suffix(name: &str) -> Option<&str> {
    let (head, last) = name.rsplit_once('.')?;
    if SUFFIXES.contains(&last) {
        return Some(head);
    }
    let is_number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    if !is_number {
        return None;
    }
    let (head, word) = head.rsplit_once('.')?;
    SUFFIXES.contains(&word).then_some(head)
}

/// `f::h0123456789abcdef`.
fn without_hash(name: &str) -> Option<&str> {
    let (head, hash) = name.rsplit_once("::h")?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then_some(head)
}

/// `crate[0123456789abcdef]::f` → `crate::f`.
fn without_disambiguators(name: &str) -> Cow<'_, str> {
    let mut result = String::new();
    let mut rest = name;
    while let Some((head, tail)) = rest.split_once('[') {
        let Some((inside, after)) = tail.split_once(']') else { break };
        let is_hash = (15..=16).contains(&inside.len())
            && inside.bytes().all(|b| b.is_ascii_hexdigit())
            && after.starts_with("::");
        result.push_str(head);
        if !is_hash {
            result.push('[');
            result.push_str(inside);
            result.push(']');
        }
        rest = after;
    }
    if result.is_empty() || result.len() + rest.len() == name.len() {
        return Cow::Borrowed(name);
    }
    result.push_str(rest);
    Cow::Owned(result)
}

/// Name of a binary without what changes between versions: `libfoo.so.1.2` → `libfoo.so`.
pub(crate) fn normalize_binary(name: &str) -> &str {
    name.find(".so.").map_or(name, |at| name.get(..at + 3).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_append_is_dropped() {
        for (name, plain) in [
            ("parse.llvm.1234567", "parse"),
            ("parse.isra.0", "parse"),
            ("parse.constprop.0.isra.1", "parse"),
            ("parse.part.0.cold", "parse"),
            ("a::b(int) [clone .isra.0] [clone .cold]", "a::b(int)"),
            ("core::ptr::drop_in_place::h0123456789abcdef", "core::ptr::drop_in_place"),
            ("grep[0123456789abcdef]::search", "grep::search"),
            ("grep[90abcdef1234567]::search", "grep::search"),
        ] {
            assert_eq!(normalize_name(name), plain, "{name}");
        }
    }

    #[test]
    fn other_names_stay() {
        for name in [
            "[unknown]",
            "a.out",
            "f.1",
            "v8.cold2",
            "slice[usize]::x",
            ".cold",
            "x::hello",
            "",
            "[a[b]",
        ] {
            assert_eq!(normalize_name(name), name);
        }
        assert_eq!(normalize_binary("libc.so.6"), "libc.so");
        assert_eq!(normalize_binary("jq"), "jq");
    }
}
