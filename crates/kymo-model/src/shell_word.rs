//! Words of commands that are shown to be typed.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

/// A word as a shell takes it.
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    shell_word_of(word.as_ref().as_encoded_bytes())
}

/// Quotes bytes, such as those of a path: bytes that a terminal cannot show are escaped, as bash,
/// zsh and busybox read it.
fn shell_word_of(word: &[u8]) -> String {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(b);
    if !word.is_empty() && word.iter().all(is_plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    match std::str::from_utf8(word) {
        Ok(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        _ => {
            let escaped = word.iter().map(|b| match b {
                b'\'' | b'\\' => format!("\\{}", char::from(*b)),
                b' '..=b'~' => char::from(*b).to_string(),
                _ => format!("\\x{b:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

/// Arguments that name recordings to a command: one by `-i`, several one after the other; none
/// where there is no path.
pub fn recording_arguments<'p>(paths: impl ExactSizeIterator<Item = &'p Path>) -> String {
    let before = if paths.len() == 1 { "-i " } else { "" };
    let words = paths.map(|path| {
        let bytes = path.as_os_str().as_encoded_bytes();
        // A name that looks like a flag is a path all the same; `-` is the standard input.
        let bytes: Cow<'_, [u8]> = match bytes {
            [b'-', _, ..] => [b"./", bytes].concat().into(),
            _ => bytes.into(),
        };
        shell_word_of(&bytes)
    });
    let words: Vec<String> = words.collect();
    format!("{before}{}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_words_back() {
        let names: [&[u8]; 8] = [
            b"plain",
            b"a b",
            b"it's",
            b"$(x)`y`\\",
            b"",
            b"*?[",
            b"new\nline\x1b[31m",
            b"caf\xe9'\\",
        ];
        let words = names.map(shell_word_of);
        // The last two need a shell with $''.
        let script = format!("printf '%s\\0' {}", words.join(" "));
        let Ok(out) = Command::new("bash").args(["-c", &script]).output() else { return };
        let read: Vec<&[u8]> = out.stdout.split(|b| *b == 0).collect();
        assert_eq!(read, [&names[..], &[b""]].concat());
        assert!(words.iter().all(|word| !word.chars().any(char::is_control)), "{words:?}");
    }

    #[test]
    fn recordings_are_named_as_commands_take_them() {
        let named = |paths: &[&str]| recording_arguments(paths.iter().map(Path::new));
        assert_eq!(named(&["perf.data"]), "-i perf.data");
        assert_eq!(named(&["-x"]), "-i ./-x");
        assert_eq!(named(&["a b", "ust"]), "'a b' ust");
        assert_eq!(named(&[]), "");
    }
}
