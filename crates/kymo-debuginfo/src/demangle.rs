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
    if rust && let Ok(d) = rustc_demangle::try_demangle(name) {
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
    let mut readable = symbol.demangle_with_options(&options).ok()?;
    if !tail.is_empty() {
        readable.push_str(" [clone ");
        readable.push_str(&String::from_utf8_lossy(tail));
        readable.push(']');
    }
    Some(readable)
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
        ];
        for (mangled, readable) in cases {
            assert_eq!(demangle(mangled), readable);
        }
    }
}
