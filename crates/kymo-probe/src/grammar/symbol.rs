//! Names as C has them, which the kernel takes for events, groups and arguments.

/// Whether the text is a name as C knows it.
pub fn is_symbol(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
