//! Texts of recordings: the kernel's files as recorders copy them.

/// Text without the NULs behind it. What is no UTF-8 in it is replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |e| e + 1);
    let bytes = bytes.get(..end).unwrap_or(bytes);
    // To look for what is to be replaced takes ten times as long, and symbols of a kernel
    // are megabytes.
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_no_text_is_replaced_and_nuls_end_it() {
        let of = |bytes: &[u8]| super::text(bytes);
        assert_eq!((of(b"a\0b\0\0"), of(b"\0"), of(b"")), ("a\0b".into(), "".into(), "".into()));
        assert_eq!(of(b"\xc3\xa4\xff!\0"), "\u{e4}\u{fffd}!");
    }
}
