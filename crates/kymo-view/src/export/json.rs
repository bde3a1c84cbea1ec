//! The little of JSON that the writers share.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};

/// A text in quotes.
pub(super) fn text(text: &str) -> impl Display + '_ {
    struct JsonText<'a>(&'a str);
    impl Display for JsonText<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_char('"')?;
            for c in self.0.chars() {
                match c {
                    '"' => f.write_str("\\\"")?,
                    '\\' => f.write_str("\\\\")?,
                    c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                    c => f.write_char(c)?,
                }
            }
            f.write_char('"')
        }
    }
    JsonText(text)
}

/// `"name":[…]`, with a comma behind.
pub(super) fn column<T: Display>(
    out: &mut dyn Write,
    name: &str,
    values: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    write!(out, "{}:[", text(name))?;
    for (number, value) in values.into_iter().enumerate() {
        write!(out, "{}{value}", if number == 0 { "" } else { "," })?;
    }
    write!(out, "],")
}

/// A number, or `null`.
pub(super) fn or_null<T: Display>(value: Option<T>) -> impl Display {
    struct OrNull<T>(Option<T>);
    impl<T: Display> Display for OrNull<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.0 {
                Some(value) => value.fmt(f),
                None => f.write_str("null"),
            }
        }
    }
    OrNull(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_by_an_independent_reader() {
        for sample in ["plain", "a\"b\\c/d", "tab\tline\nnul\0", "größe ∀ 🦀"] {
            let read: String = serde_json::from_str(&text(sample).to_string()).unwrap();
            assert_eq!(read, sample);
        }
    }
}
