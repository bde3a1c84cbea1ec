//! Documents: closed code blocks, links that lead somewhere, sizes, and a table of contents that
//! lists every page of the book.

use std::collections::BTreeSet;

use super::Checkout;
use crate::pictures::CHART;

/// Largest README.md, in bytes and lines: a page that a newcomer reads whole.
const README_BYTES: usize = 10 * 1024;
const README_LINES: usize = 230;
/// Largest page of the book outside its reference part, in bytes.
const PAGE_BYTES: usize = 12 * 1024;
/// Parts of the book that are looked up rather than read.
const REFERENCE: &[&str] = &["docs/formats/", "docs/perf.md", "docs/json.md", "docs/trust.md"];
/// Table of contents of the book.
const CONTENTS: &str = "docs/SUMMARY.md";

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let names: BTreeSet<&str> = checkout.names.iter().map(String::as_str).collect();
    let documents = checkout.texts.iter().filter(|file| is_document(&file.name));
    let mut found = Vec::new();
    for file in documents {
        found.extend(open_block(&file.name, &file.text));
        found.extend(dead_links(&file.name, &file.text, &names));
        found.extend(too_large(&file.name, &file.text));
    }
    let contents = checkout.texts.iter().find(|file| file.name == CONTENTS);
    found.extend(unlisted(contents.map_or("", |file| &file.text), &names));
    found.extend(outdated_chart(checkout));
    found
}

/// The README, the book and the pages beside the code; not notes of fixtures.
fn is_document(name: &str) -> bool {
    name.ends_with(".md") && !super::is_fixture(name)
}

/// A code block that is never closed swallows the headings after it.
fn open_block(name: &str, text: &str) -> Option<String> {
    let mut open = None;
    for (number, line) in text.lines().enumerate() {
        let Some(info) = line.strip_prefix("```") else { continue };
        match open {
            None => open = Some(number + 1),
            // A closing fence has no text; another opening one means that the last was not closed.
            Some(_) if info.is_empty() => open = None,
            Some(_) => break,
        }
    }
    open.map(|line| format!("{name}:{line}: this code block is not closed"))
}

fn dead_links(name: &str, text: &str, names: &BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for target in links(line) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let resolved = resolve(name, path);
            let directory = format!("{resolved}/");
            if !names.contains(resolved.as_str())
                && !names.iter().any(|known| known.starts_with(&directory))
            {
                found.push(format!("{name}:{number}: no file at the link {target}"));
            }
        }
    }
    found
}

/// Lines outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        if line.starts_with("```") {
            inside = !inside;
            return None;
        }
        (!inside).then_some((number + 1, line))
    })
}

/// Targets of `[text](target)`, outside code spans.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').step_by(2);
    spans.flat_map(|span| span.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// The path that a link of a document means, relative to the workspace.
fn resolve(name: &str, path: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn too_large(name: &str, text: &str) -> Option<String> {
    let (bytes, lines) = (text.len(), text.lines().count());
    if name == "README.md" && (bytes > README_BYTES || lines > README_LINES) {
        return Some(format!(
            "{name}: {bytes} bytes and {lines} lines; limits are {README_BYTES} and {README_LINES}"
        ));
    }
    let read_whole =
        name.starts_with("docs/") && !REFERENCE.iter().any(|part| name.starts_with(part));
    (read_whole && bytes > PAGE_BYTES)
        .then(|| format!("{name}: {bytes} bytes; a page has at most {PAGE_BYTES}"))
}

/// The chart of speed shows the numbers of BENCHMARKS.md.
fn outdated_chart(checkout: &Checkout) -> Option<String> {
    let text_of = |name: &str| {
        checkout.texts.iter().find(|file| file.name == name).map(|file| file.text.as_str())
    };
    let expected = crate::pictures::speed_chart(text_of("BENCHMARKS.md")?);
    let is_current = expected.is_some() && expected.as_deref() == text_of(CHART);
    (!is_current).then(|| format!("{CHART}: not of BENCHMARKS.md: run `cargo xtask pictures`"))
}

fn unlisted(contents: &str, names: &BTreeSet<&str>) -> Vec<String> {
    let listed: BTreeSet<String> =
        contents.lines().flat_map(links).map(|target| resolve(CONTENTS, target)).collect();
    let pages = names.iter().filter(|name| name.starts_with("docs/") && name.ends_with(".md"));
    pages
        .filter(|name| **name != CONTENTS && !listed.contains(**name))
        .map(|name| format!("{name}: not listed in {CONTENTS}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{dead_links, open_block, resolve, too_large, unlisted};

    #[test]
    fn a_block_that_is_not_closed_is_found() {
        assert_eq!(open_block("a.md", "```console\n$ true\n```\n"), None);
        assert!(open_block("a.md", "```console\n$ true\n### Next\n").is_some());
        assert!(open_block("a.md", "```sh\ntrue\n```sh\ntrue\n```\n").is_some());
    }

    #[test]
    fn links_lead_to_files_and_directories() {
        let names = BTreeSet::from(["docs/a.md", "docs/sub/b.md", "README.md"]);
        let found = |text| dead_links("docs/sub/b.md", text, &names);
        assert!(
            found("[a](../a.md#top) [root](../../README.md) [dir](../sub) [web](https://x.y)")
                .is_empty()
        );
        assert!(found("[here](#above) `[code](nowhere.md)`").is_empty());
        assert!(found("```\n[block](nowhere.md)\n```\n").is_empty());
        assert_eq!(
            found("text\n[gone](../c.md)\n"),
            ["docs/sub/b.md:2: no file at the link ../c.md"]
        );
    }

    #[test]
    fn paths_are_relative_to_the_document() {
        assert_eq!(resolve("docs/sub/b.md", "../a.md"), "docs/a.md");
        assert_eq!(resolve("README.md", "docs/a.md"), "docs/a.md");
    }

    #[test]
    fn sizes_and_the_table_of_contents_are_checked() {
        assert!(too_large("README.md", &"x\n".repeat(231)).is_some());
        assert!(too_large("docs/start/a.md", &"x".repeat(13_000)).is_some());
        assert!(too_large("docs/perf.md", &"x".repeat(13_000)).is_none());
        let names = BTreeSet::from(["docs/SUMMARY.md", "docs/a.md", "docs/b.md"]);
        assert_eq!(unlisted("- [A](a.md)\n", &names), ["docs/b.md: not listed in docs/SUMMARY.md"]);
    }
}
