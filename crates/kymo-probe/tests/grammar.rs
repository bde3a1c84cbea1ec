//! Whatever is typed, parsing ends with a value or with an error whose spot is
//! inside of the text; what was parsed prints as something that parses to the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kymo_model::glob::{glob_match, lazy_match};
use kymo_model::probe::ProbeDefinition;
use kymo_probe::grammar::{
    GrammarError, KernelLine, LineRange, NameFilter, ProbeDescription, is_kernel_line,
};

/// Pieces that the grammar gives a meaning to, and some that it does not.
const PIECES: [&str; 44] = [
    "vfs_read",
    "a::b",
    "<T as U>",
    "::f",
    ":",
    ";",
    "@",
    "+",
    "-",
    "%",
    "%return",
    "%next",
    "=",
    "\\",
    "->",
    ".",
    "[",
    "]",
    "0x",
    "12",
    "-1",
    "99999999999999999999",
    " ",
    "  ",
    "\t",
    "$vars",
    "$retval",
    "$stack3",
    "%di",
    "(",
    ")",
    "*",
    "?",
    "[!a-z]",
    "u8",
    "string",
    "b4@0/32",
    "é",
    "main.rs",
    "p:",
    "r:",
    "-:",
    "{closure#0}",
    "&",
];

struct Random(u32);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % n
    }

    fn text(&mut self) -> String {
        let n = 1 + self.below(9);
        (0..n).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }
}

fn check(text: &str, error: &GrammarError) {
    assert_eq!(error.text, text);
    assert!(text.get(error.at..error.at + error.len).is_some(), "{text:?}: {error:?}");
    assert!(error.to_string().contains('^'), "{error}");
}

#[test]
fn any_text_is_parsed_or_refused_at_a_spot() {
    let mut random = Random(7);
    let mut parsed = 0;
    for _ in 0..200_000 {
        let text = random.text();
        match ProbeDescription::parse(&text) {
            Ok(d) => {
                parsed += 1;
                // A pattern and escapes are kept as typed, and `->` is no part of a
                // place; everything else prints back.
                if d.point.lazy.is_none()
                    && !text.contains(['\\', '>', '='])
                    && d.group.is_none()
                    && d.event.is_none()
                {
                    let again = ProbeDescription::parse(&d.point.to_string());
                    assert_eq!(again.map(|a| a.point), Ok(d.point), "{text:?}");
                }
            }
            Err(e) => check(&text, &e),
        }
        if let Err(e) = LineRange::parse(&text) {
            check(&text, &e);
        }
        if let Err(e) = NameFilter::parse(&text) {
            check(&text, &e);
        }
        match KernelLine::parse(&text) {
            // Text and definition say the same.
            Ok(KernelLine::Add(definition)) => {
                let again = ProbeDefinition::parse(&definition.to_string());
                assert_eq!(again, Some(definition), "{text:?}");
            }
            Ok(KernelLine::Remove { .. }) => {}
            Err(e) => check(&text, &e),
        }
        let other = random.text();
        let _ = (is_kernel_line(&text), glob_match(&text, &other), lazy_match(&text, &other));
    }
    assert!(parsed > 1000, "{parsed}");
}
