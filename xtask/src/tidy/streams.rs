//! Commands write text through `crates/kymo/src/streams.rs`, which escapes control characters:
//! the standard streams themselves are opened there only.

use super::{Checkout, code};

const STREAMS: &str = "crates/kymo/src/streams.rs";
const PROGRAM: &str = "crates/kymo/src/";

/// Ways to a standard stream without the guard.
const STREAM_CALLS: &[&str] = &[
    "io::stdout(",
    "io::stderr(",
    "anstream::stdout(",
    "anstream::stderr(",
    "anstream::println!",
    "anstream::print!",
];

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let files = checkout.sources().filter(|file| is_program(&file.name));
    files.flat_map(|file| bypasses(&file.name, &file.split.code)).collect()
}

fn is_program(name: &str) -> bool {
    name.starts_with(PROGRAM) && name != STREAMS
}

fn bypasses(name: &str, text: &str) -> Vec<String> {
    let lines = code::without_tests(text).lines().enumerate();
    let hits = lines.filter_map(|(n, line)| {
        let call = STREAM_CALLS.iter().find(|call| line.contains(**call))?;
        Some(format!("{name}:{}: `{call}` is for {STREAMS} to call", n + 1))
    });
    hits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_without_the_guard_are_found() {
        let lines = |text| bypasses("crates/kymo/src/a.rs", text).len();
        assert_eq!(lines("let a = std::io::stdout().lock();\nanstream::println!(\"\");\n"), 2);
        assert_eq!(lines("let a = crate::streams::stdout();\nio::stdin();\n"), 0);
        assert_eq!(lines("fn f() {}\n#[cfg(test)]\nmod tests { fn f() { io::stdout(); } }\n"), 0);
        assert!(is_program("crates/kymo/src/main.rs") && !is_program(STREAMS));
        assert!(!is_program("crates/kymo/tests/cli.rs"));
    }
}
