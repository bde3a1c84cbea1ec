//! Heads, lengths and texts of files: `//!` first, one subject, no path of one machine.

use super::{Checkout, is_fixture};

/// Longer files have taken in a second subject.
const MAX_LINES: usize = 1000;

/// Texts that belong to one machine only. Split, so that this file passes.
const MACHINE: &[&str] = &[concat!("/wor", "k/"), concat!("/roo", "t/"), concat!("/tmp", "/t-")];

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let texts = checkout.texts.iter().filter(|file| !is_fixture(&file.name));
    let sources = checkout.sources();
    texts
        .flat_map(|file| machine_paths(&file.name, &file.text))
        .chain(sources.flat_map(|file| source_file(&file.name, &file.text)))
        .collect()
}

fn source_file(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push(format!("{name}: begins without `//!` saying what lives here"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{name}: {lines} lines; past {MAX_LINES} a second subject moved in"));
    }
    found.extend(twice_told(name, text));
    found
}

/// A field called `source` is a cause, which is printed after the error as well.
fn twice_told(name: &str, text: &str) -> Option<String> {
    let cause = concat!("{", "source}");
    let line = text.lines().position(|l| l.contains(cause))?;
    Some(format!("{name}:{}: the message holds the cause; call the field `error`", line + 1))
}

fn machine_paths(name: &str, text: &str) -> Vec<String> {
    let hit = |line: &str| MACHINE.iter().find(|path| line.contains(**path));
    text.lines()
        .enumerate()
        .filter_map(|(i, line)| {
            let path = hit(line)?;
            Some(format!("{name}:{}: names a path of one machine: {path}", i + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{machine_paths, source_file};

    #[test]
    fn heads_lengths_and_paths_are_looked_at() {
        assert_eq!(source_file("a.rs", "//! What.\n").len(), 0);
        assert_eq!(source_file("a.rs", "use std::fs;\n").len(), 1);
        assert_eq!(source_file("a.rs", &format!("//! What.\n{}", "\n".repeat(1000))).len(), 1);
        assert_eq!(
            machine_paths("a.md", concat!("ok\nsee /wor", "k/x\n")),
            [concat!("a.md:2: names a path of one machine: /wor", "k/")]
        );
    }
}
