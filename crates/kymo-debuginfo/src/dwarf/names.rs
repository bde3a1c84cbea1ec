//! Paths of Rust and C++ functions: generic arguments left out, tails compared.

use kymo_model::glob::{glob_match, is_glob};

/// A name without what stands in `<…>`; names that begin with `<`, and
/// operators, stay as they are.
pub(crate) fn without_generics(name: &str) -> String {
    if !name.contains('<') || name.starts_with('<') || name.contains("operator") {
        return name.to_owned();
    }
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// The components of a path: split at `::` outside of `<…>` and `(…)`.
fn components(path: &str) -> Vec<&str> {
    let bytes = path.as_bytes();
    let mut depth = 0i32;
    let mut start = 0;
    let mut parts = Vec::new();
    let mut i = 0;
    while let Some(b) = bytes.get(i) {
        match b {
            b'<' | b'(' => depth += 1,
            b'>' | b')' => depth -= 1,
            b':' if depth <= 0 && bytes.get(i + 1) == Some(&b':') => {
                parts.push(&path[start..i]);
                i += 1;
                start = i + 1;
            }
            _ => {}
        }
        i += 1;
    }
    parts.push(&path[start..]);
    // `a::<T>::f`, as Rust writes it, is `a<T>::f` in other spellings.
    parts.retain(|p| !p.is_empty());
    parts
}

/// Whether `path` ends with the components of `pattern`. Generic arguments
/// count only where the pattern has them.
pub(crate) fn path_matches(pattern: &str, path: &str) -> bool {
    if pattern == path {
        return true;
    }
    let (wanted, have) = (components(pattern), components(path));
    let have: Vec<&str> = have.into_iter().filter(|c| !is_turbofish(c)).collect();
    let wanted: Vec<&str> = wanted.into_iter().filter(|c| !is_turbofish(c)).collect();
    if wanted.len() > have.len() {
        return false;
    }
    let tail = &have[have.len() - wanted.len()..];
    wanted.iter().zip(tail).all(|(w, h)| component_matches(w, h))
}

/// `<i32>` alone between two `::`, and not `<T as Trait>` at the beginning.
fn is_turbofish(component: &str) -> bool {
    component.starts_with('<') && component.ends_with('>') && !component.contains(" as ")
}

fn component_matches(wanted: &str, have: &str) -> bool {
    if wanted == have {
        return true;
    }
    if let (Some(w), Some(h)) = (trait_parts(wanted), trait_parts(have)) {
        // `<T as Trait>` may be given without the paths of both.
        return path_matches(w.0, h.0) && path_matches(w.1, h.1);
    }
    if is_glob(wanted) && glob_match(wanted, have) {
        return true;
    }
    !wanted.contains('<') && without_generics(have) == wanted
}

fn trait_parts(component: &str) -> Option<(&str, &str)> {
    let inner = component.strip_prefix('<')?.strip_suffix('>')?;
    let at = inner.find(" as ")?;
    Some((&inner[..at], &inner[at + 4..]))
}

/// The last name of a path, without generic arguments: what the entry of the
/// function itself is called.
pub(crate) fn last_name(pattern: &str) -> String {
    let parts = components(pattern);
    let last = parts.iter().rev().find(|p| !is_turbofish(p)).copied().unwrap_or(pattern);
    without_generics(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_match() {
        for (pattern, path) in [
            ("f", "a::b::f"),
            ("b::f", "a::b::f"),
            ("a::b::f", "a::b::f<i32>"),
            ("a::f<i32>", "a::f<i32>"),
            ("<T as Tr>::f", "<a::T as a::Tr>::f"),
            ("<a::T as a::Tr>::f", "<a::T as a::Tr>::f"),
            ("m::V::f", "m::V<u8>::f"),
            ("m::g::h", "m::g::<u8>::h"),
            ("main::{closure#0}", "rp::main::{closure#0}"),
            ("a::*", "x::a::f"),
        ] {
            assert!(path_matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("b::f", "ab::f"),
            ("f<u8>", "f<i32>"),
            ("a::b::f", "b::f"),
            ("<T as X>::f", "<a::T as a::Tr>::f"),
        ] {
            assert!(!path_matches(pattern, path), "{pattern} {path}");
        }
        assert_eq!(last_name("a::<T as B>::f<i32>"), "f");
        assert_eq!(last_name("a::f::<i32>"), "f");
        assert_eq!(without_generics("operator<"), "operator<");
    }
}
