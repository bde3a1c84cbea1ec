//! Whether the rest of a mangled C++ name can be the types of a function.
//!
//! GCC numbers substitutions behind `sr` otherwise than the ABI says, and constraints (`Q`) are
//! new: cpp_demangle reads names of such functions, but not their types. The rest is parsed word by
//! word here: all brackets close, all names have their length. What is not certain is no signature.

/// Nested brackets, at most.
const MAX_DEPTH: usize = 128;

/// A bracket that `E` closes.
#[derive(Clone, Copy, PartialEq)]
enum Bracket {
    /// Names, template arguments, packs, function types.
    Types,
    /// `X`, and calls within.
    Expression,
    /// `L`: a type and its value.
    Literal,
}

/// Whether all of `rest` are words of types and expressions. It does not begin with what would
/// belong to the name before it: template arguments, a tag.
pub(super) fn is_signature(rest: &[u8]) -> bool {
    if let Some(b'I' | b'B' | b'J' | b'X' | b'L' | b'E') = rest.first() {
        return false;
    }
    let mut open: Vec<Bracket> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = rest.get(at) {
        let within = open.last().copied();
        let next = rest.get(at + 1).copied();
        if open.len() > MAX_DEPTH {
            return false;
        }
        let step = match byte {
            // Lengths of names in literals cannot be distinguished from their values.
            b'0'..=b'9' if within == Some(Bracket::Literal) => Some(1),
            b'0'..=b'9' => source_name(rest, at),
            b'N' | b'I' | b'J' | b'F' => {
                open.push(Bracket::Types);
                Some(1)
            }
            b'X' => {
                open.push(Bracket::Expression);
                Some(1)
            }
            b'L' => match next {
                Some(b'a'..=b'z') => {
                    open.push(Bracket::Literal);
                    Some(2)
                }
                // A declaration or an enumerator.
                _ => None,
            },
            b'E' => open.pop().map(|_| 1),
            b'S' => match next {
                Some(b't' | b'a' | b's' | b'b' | b'i' | b'o' | b'd') => Some(2),
                _ => number(rest, at),
            },
            b'T' => number(rest, at),
            b'D' => match next {
                Some(
                    b'd' | b'e' | b'f' | b'h' | b'i' | b's' | b'u' | b'a' | b'c' | b'n' | b'p',
                ) => Some(2),
                // `decltype` and others have brackets of their own.
                _ => None,
            },
            b'P' | b'R' | b'O' | b'K' | b'V' | b'Q' => Some(1),
            b's' if within == Some(Bracket::Expression) && next == Some(b'r') => Some(2),
            // Operators have two letters, some of them brackets.
            b'a'..=b'z' if within == Some(Bracket::Expression) => match next {
                Some(_) if matches!(rest.get(at..at + 2), Some(b"cl" | b"il" | b"tl")) => None,
                Some(b'a'..=b'z' | b'A'..=b'Z') => Some(2),
                _ => None,
            },
            b'a'..=b'z' => Some(1),
            _ => None,
        };
        let Some(step) = step else { return false };
        at += step;
    }
    open.is_empty()
}

/// Length in bytes of the name at `at`, including its number.
fn source_name(rest: &[u8], at: usize) -> Option<usize> {
    let digits = rest.get(at..)?.iter().take_while(|b| b.is_ascii_digit()).count();
    let length: usize = std::str::from_utf8(rest.get(at..at + digits)?).ok()?.parse().ok()?;
    let name = rest.get(at + digits..)?.get(..length)?;
    let is_name = name.iter().all(|b| b.is_ascii_alphanumeric() || b"_$.".contains(b));
    (length > 0 && is_name).then_some(digits + length)
}

/// Length in bytes of a number that ends in `_`, including the letter before it.
fn number(rest: &[u8], at: usize) -> Option<usize> {
    let digits = rest.get(at + 1..)?;
    let count = digits.iter().take_while(|b| b.is_ascii_digit() || b.is_ascii_uppercase()).count();
    (digits.get(count) == Some(&b'_')).then_some(count + 2)
}

#[cfg(test)]
mod tests {
    use super::is_signature;

    #[test]
    fn all_brackets_close_and_names_have_their_length() {
        for good in [
            "vQ26is_default_constructible_vIT1_E",
            "N10if_nonpolyIT1_bXsr15poly_int_traitsIS9_E7is_polyEE4typeERKS1_",
            "PFvvE1AILin3EE",
        ] {
            assert!(is_signature(good.as_bytes()), "{good}");
            assert!(!is_signature(&good.as_bytes()[..good.len() - 1]), "{good}");
        }
        for bad in
            ["GARBAGE", "3fo", "0", "E", "IvE", "B5cxx11v", "Nv", "Dt1xE", "99999999999999999999v"]
        {
            assert!(!is_signature(bad.as_bytes()), "{bad}");
        }
        assert!(!is_signature("N".repeat(100_000).as_bytes()));
    }
}
