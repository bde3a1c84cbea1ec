//! Names of events and groups. The kernel takes letters, digits and `_`; names
//! of Rust and C++ functions have more, so they are made safe.

/// Names longer than this are refused by the kernel.
const LONGEST: usize = 63;

/// Whether the text is a name as C knows it.
pub fn is_symbol(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The name of an event on a function: without the suffixes that compilers and
/// versions add; of a path like `a::<T as B>::f` the last name; other
/// characters become `_`.
pub fn event_name(function: &str, ret: bool) -> String {
    let last = last_component(function);
    let stem = last.strip_prefix('.').unwrap_or(last);
    let stem = match stem.find(['.', '@']) {
        Some(at) if at > 0 => &stem[..at],
        _ => stem,
    };
    let mut name = String::with_capacity(stem.len());
    for c in stem.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
        // Runs of foreign characters give one underscore.
        if !(c == '_' && name.ends_with('_') && !stem.contains("__")) {
            name.push(c);
        }
    }
    let mut name = name.trim_end_matches('_').to_owned();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    let suffix = if ret { "__return" } else { "" };
    name.truncate(LONGEST - suffix.len());
    name + suffix
}

/// What stands behind the last `::` that is outside of `<…>`, without generic
/// arguments. A closure is named with the function that holds it.
fn last_component(path: &str) -> &str {
    let mut depth = 0i32;
    let mut starts = vec![0];
    let mut generics = path.len();
    let bytes = path.as_bytes();
    for (i, b) in bytes.iter().enumerate() {
        match b {
            b'<' => {
                if depth == 0 {
                    generics = i;
                }
                depth += 1;
            }
            b'>' if i > 0 && bytes.get(i - 1) != Some(&b'-') => depth -= 1,
            b':' if depth == 0 && i > 0 && bytes.get(i - 1) == Some(&b':') => {
                starts.push(i + 1);
                generics = path.len();
            }
            _ => {}
        }
    }
    let mut start = starts.pop().unwrap_or(0);
    if path.get(start..).is_some_and(|s| s.starts_with("{closure")) {
        start = starts.pop().unwrap_or(start);
        generics = path.len();
    }
    let end = if generics > start { generics } else { path.len() };
    path.get(start..end).unwrap_or(path)
}

/// perf's group for probes of a binary: `probe_` and the file's name up to the
/// first character that a group cannot have.
pub fn group_of_binary(path: &str) -> String {
    let base = path.rsplit('/').find(|p| !p.is_empty()).unwrap_or(path);
    let end = base.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(base.len());
    let mut group = format!("probe_{}", &base[..end]);
    group.truncate(LONGEST);
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe() {
        for (function, event) in [
            ("vfs_read", "vfs_read"),
            ("__x64_sys_read", "__x64_sys_read"),
            ("foo.isra.0", "foo"),
            ("malloc@@GLIBC_2.2.5", "malloc"),
            (".hidden", "hidden"),
            ("mycrate::module::func", "func"),
            ("<rp::P as rp::Area>::area", "area"),
            ("rp::generic<i32>", "generic"),
            ("rp::main::{closure#0}", "main_closure_0"),
            ("operator==", "operator"),
            ("ns::Foo<int>::bar", "bar"),
        ] {
            assert_eq!(event_name(function, false), event, "{function}");
            assert!(is_symbol(&event_name(function, true)));
        }
        assert_eq!(event_name("vfs_read", true), "vfs_read__return");
        assert_eq!(event_name(&"x".repeat(90), true).len(), 63);
        assert_eq!(group_of_binary("/usr/lib/libc.so.6"), "probe_libc");
        assert_eq!(group_of_binary("./a.out"), "probe_a");
    }
}
