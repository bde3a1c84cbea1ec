//! Names as their programmers wrote them: Rust without the hash, C++ without
//! parameters and return types, which is how perf prints them.

mod balance;

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
    // The hash distinguishes a Rust name of the old scheme from a C++ one.
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
    let (symbol, mut tail) = symbol?;
    if !tail.is_empty() && !tail.starts_with(b".") {
        // The name was read, its types were not: they are not shown anyway.
        if name.starts_with("_ZT") || name.starts_with("_ZG") || !balance::is_signature(tail) {
            return None;
        }
        tail = &[];
    }
    if let Some((kind, function)) = function_of_copy(name) {
        let (symbol, tail) =
            cpp_demangle::BorrowedSymbol::with_tail_and_options(&function, &parse).ok()?;
        if !tail.is_empty() {
            return None;
        }
        let options = cpp_demangle::DemangleOptions::new().no_return_type().recursion_limit(96);
        let function = symbol.demangle_with_options(&options).ok()?;
        return Some(format!("{kind} {}", as_binutils(function)));
    }
    let options =
        cpp_demangle::DemangleOptions::new().no_params().no_return_type().recursion_limit(96);
    let mut readable = as_binutils(symbol.demangle_with_options(&options).ok()?);
    // Of a function without its parameters nothing is said of its `this` either.
    if name.starts_with("_ZZ") || name.starts_with("_ZN") {
        for qualifier in [" &&", " &", " const"] {
            if let Some(stem) = readable.strip_suffix(qualifier) {
                readable.truncate(stem.len());
            }
        }
    }
    if let Some(table) = table(name, &readable) {
        readable = table;
    }
    if !tail.is_empty() {
        readable.push_str(" [clone ");
        readable.push_str(&String::from_utf8_lossy(tail));
        readable.push(']');
    }
    Some(readable)
}

/// Kind of a thunk or clone, and the mangled name of its function.
fn function_of_copy(name: &str) -> Option<(&'static str, Vec<u8>)> {
    let (kind, numbers, rest) = match name.strip_prefix("_Z")?.split_at_checked(3)? {
        ("GTt", rest) => ("transaction clone for", 0, rest),
        ("GTn", rest) => ("non-transaction clone for", 0, rest),
        _ => match name.strip_prefix("_ZT")?.split_at_checked(1)? {
            ("h", rest) => ("non-virtual thunk to", 1, rest),
            ("v", rest) => ("virtual thunk to", 2, rest),
            _ => return None,
        },
    };
    let function = rest.splitn(numbers + 1, '_').nth(numbers)?;
    Some((kind, format!("_Z{function}").into_bytes()))
}

/// A virtual table as binutils writes it.
fn table(name: &str, readable: &str) -> Option<String> {
    let within = |prefix| readable.strip_prefix(prefix)?.strip_suffix(")}");
    match name.get(..4)? {
        "_ZTV" => Some(format!("vtable for {}", within("{vtable(")?)),
        "_ZTT" => Some(format!("VTT for {}", within("{vtt(")?)),
        "_ZTC" => {
            let (whole, part) =
                readable.strip_prefix("construction vtable for ")?.split_once("-in-")?;
            Some(format!("construction vtable for {part}-in-{whole}"))
        }
        _ => None,
    }
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
    if name.contains("std::nullptr_t") {
        name = name.replace("std::nullptr_t", "decltype(nullptr)");
    }
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
    let name = name.replace("(bool)0", "false").replace("(bool)1", "true");
    function_types(name)
}

/// Writes function types as `int (char)`, and functions as arguments of
/// templates as `&(f(char))` or, qualified, as `&space::f`.
fn function_types(mut name: String) -> String {
    let mut from = 0;
    while let Some(open) = name.get(from..).and_then(|rest| rest.find('(')).map(|at| from + at) {
        from = open + 1;
        let (before, inside) = name.split_at(open);
        let is_type = before.ends_with(|c: char| c.is_alphanumeric() || "_>*&]".contains(c));
        let word = |w| before.ends_with(w);
        if !is_type || ["operator", "lambda", "decltype", "sizeof"].into_iter().any(word) {
            continue;
        }
        let Some(close) = closing(inside).map(|at| open + at) else { continue };
        let mut behind = name.get(close + 1..).unwrap_or_default();
        for qualifier in [" const", " volatile", " &", "&"] {
            behind = behind.strip_prefix(qualifier).unwrap_or(behind);
        }
        // What is declared inside of a function: `f(int)::local`.
        if behind.starts_with("::") {
            continue;
        }
        let start = argument_start(before);
        let argument = before.get(start..).unwrap_or_default();
        if argument.starts_with('&') && argument.contains("::") && !argument.ends_with('>') {
            name.replace_range(open..=close, "");
            from = open;
            continue;
        } else if argument.starts_with('&') {
            name.insert(close + 1, ')');
            name.insert(start + 1, '(');
        } else if start > 0 {
            name.insert(open, ' ');
        }
        from = open + 2;
    }
    name
}

/// Position of the parenthesis that closes the one at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.bytes().enumerate() {
        match c {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Start of the argument at the end of `text`; 0 when it is not an argument.
fn argument_start(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in text.bytes().enumerate().rev() {
        match c {
            b'>' | b')' => depth += 1,
            b'<' | b'(' | b',' if depth == 0 => {
                let argument = text.get(at + 1..).unwrap_or_default();
                return at + 1 + (argument.len() - argument.trim_start().len());
            }
            b'<' | b'(' => depth -= 1,
            _ => {}
        }
    }
    0
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
            // As c++filt -p of binutils has them.
            ("_ZZN1S3runEvENK3$_0clEi", "S::run()::$_0::operator()"),
            ("_ZNK1S3runEi", "S::run"),
            ("_ZZNK1S3runEvENKUliE_clEi", "S::run() const::{lambda(int)#1}::operator()"),
            ("_ZN1AIFbiEE1fEv", "A<bool (int)>::f"),
            ("_ZThn32_NK1A1fEi", "non-virtual thunk to A::f(int) const"),
            ("_ZTv0_n24_N1A1fEv", "virtual thunk to A::f()"),
            ("_ZN1AISt8functionIFbiPFvvEEEE1fEv", "A<std::function<bool (int, void (*)())> >::f"),
            ("_ZN1AIXadL_Z1giEEE1fEv", "A<&(g(int))>::f"),
            ("_ZTVSt11range_error", "vtable for std::range_error"),
            ("_ZTTN3foo3BarE", "VTT for foo::Bar"),
            ("_ZTC1D0_1B", "construction vtable for B-in-D"),
            ("_ZTIDn", "typeinfo for decltype(nullptr)"),
            (
                "_ZGTtNSt15underflow_errorD1Ev",
                "transaction clone for std::underflow_error::~underflow_error()",
            ),
            ("_ZNKR1S1fEi", "S::f"),
            ("_ZNO1S1fEi", "S::f"),
            // GCC numbers types behind `sr` otherwise than the ABI says.
            (
                "_ZSt14__copy_move_a1ILb1EPbbEN9__gnu_cxx11__enable_ifIXsrSt23__is_random_access_iterIT0_NSt15iterator_traitsIS4_E17iterator_categoryEE7__valueESt15_Deque_iteratorIT1_RSA_PSA_EE6__typeES4_S4_SD_",
                "std::__copy_move_a1<true, bool*, bool>",
            ),
            (
                "_ZN2wi6lshiftINS_13hwi_with_precEmEENS_13binary_traitsIT_S3_XsrNS_10int_traitsIS3_EE14precision_typeEXsrS5_14precision_typeEE11result_typeERKS3_RKT0_",
                "wi::lshift<wi::hwi_with_prec, unsigned long>",
            ),
            ("_ZN1AIcEC1EvQ26is_default_constructible_vIT1_E", "A<char>::A"),
            // What is left may belong to the name.
            ("_Z3fooIXsrS9_1xEEvv", "_Z3fooIXsrS9_1xEEvv"),
            ("_Z3fooGARBAGE", "_Z3fooGARBAGE"),
            ("_ZN4work4callIXadL_ZNS_5twiceEiEEEEii", "work::call<&work::twice>"),
        ];
        for (mangled, readable) in cases {
            assert_eq!(demangle(mangled), readable);
        }
    }
}
