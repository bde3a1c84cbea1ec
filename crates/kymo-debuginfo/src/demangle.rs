//! Names as their programmers wrote them: Rust without the hash, C++ without
//! parameters and return types, which is how perf prints them.

use std::borrow::Cow;

/// The readable form of `name`; the name itself when it is not mangled.
/// A symbol version (`@@GLIBC_2.2.5`, `@plt`) is kept at the end.
pub fn demangle(name: &str) -> Cow<'_, str> {
    let (stem, version) = match name.find('@') {
        Some(at) if at > 0 => name.split_at(at),
        _ => (name, ""),
    };
    match demangle_stem(stem) {
        Some(mut readable) => {
            readable.push_str(version);
            Cow::Owned(readable)
        }
        None => Cow::Borrowed(name),
    }
}

fn demangle_stem(name: &str) -> Option<String> {
    // The hash tells a Rust name of the old scheme from a C++ one.
    let rust = name.starts_with("_R") || (name.starts_with("_ZN") && name.contains("17h"));
    // What a compiler pass appended to a name of the new scheme is not shown.
    let plain = if name.starts_with("_R") { name.split('.').next().unwrap_or(name) } else { name };
    if rust && let Ok(d) = rustc_demangle::try_demangle(plain) {
        return Some(format!("{d:#}"));
    }
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    // Depth is bounded: a hostile name must not exhaust the stack.
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(96);
    let symbol = cpp_demangle::BorrowedSymbol::with_tail_and_options(name.as_bytes(), &parse).ok();
    let (symbol, tail) = symbol?;
    if !tail.is_empty() && !tail.starts_with(b".") {
        return None;
    }
    let options =
        cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(96);
    let mut readable = as_binutils(symbol.demangle_with_options(&options).ok()?);
    if !tail.is_empty() {
        readable.push_str(" [clone ");
        readable.push_str(&String::from_utf8_lossy(tail));
        readable.push(']');
    }
    Some(readable)
}

/// Writes literals and empty packs as binutils (and so perf) does: `2u` for
/// `(unsigned int)2`, nothing for a pack of nothing.
fn as_binutils(mut name: String) -> String {
    const LITERALS: [(&str, &str); 6] = [
        ("(int)", ""),
        ("(unsigned int)", "u"),
        ("(long)", "l"),
        ("(unsigned long)", "ul"),
        ("(long long)", "ll"),
        ("(unsigned long long)", "ull"),
    ];
    if name.contains(", >") {
        name = name.replace(", >", ">");
    }
    if !name.contains(')') {
        return name;
    }
    for (cast, suffix) in LITERALS {
        let mut from = 0;
        while let Some(at) = name.get(from..).and_then(|rest| rest.find(cast)) {
            let (start, digits) = (from + at, from + at + cast.len());
            let rest = name.get(digits..).unwrap_or_default();
            let sign = usize::from(rest.starts_with('-'));
            let count = rest.bytes().skip(sign).take_while(u8::is_ascii_digit).count();
            from = digits;
            if count > 0 {
                name.insert_str(digits + sign + count, suffix);
                name.replace_range(start..digits, "");
                from = start;
            }
        }
    }
    name.replace("(bool)0", "false").replace("(bool)1", "true")
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_become_readable() {
        let cases = [
            ("main", "main"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
            ("_ZN3Foo3barEi", "Foo::bar"),
            ("_ZN3Foo3barEi@plt", "Foo::bar@plt"),
            ("fclose@@GLIBC_2.2.5", "fclose@@GLIBC_2.2.5"),
            ("_Znonsense", "_Znonsense"),
            ("@", "@"),
            ("_RNvCskwGfYPst2Cb_3foo16example_function.llvm.12.cold", "foo::example_function"),
            ("_ZN1AIJEE1fEv", "A<>::f"),
            ("_ZN1AILj12EE1fEv", "A<12u>::f"),
            ("_ZN1AILin3EE1fEv", "A<-3>::f"),
            ("_ZN1AILb1EE1fEv", "A<true>::f"),
        ];
        for (mangled, readable) in cases {
            assert_eq!(demangle(mangled), readable);
        }
    }
}
