//! `cargo xtask tidy`: rules of the project that no lint knows, one file per rule. Also a test, so
//! that a run of the tests alone includes it.

mod arrows;
mod code;
mod commands;
mod cycles;
mod dead;
mod dependencies;
mod documents;
mod door;
mod headers;
mod names;
pub(crate) mod perf_options;
mod provenance;
mod streams;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

pub(crate) fn run() -> anyhow::Result<()> {
    let mut findings = findings(&crate::root())?;
    findings.extend(crate::licences::findings(&crate::root())?);
    if findings.is_empty() {
        println!("tidy: nothing to say");
        return Ok(());
    }
    findings.iter().for_each(|f| println!("tidy: {f}"));
    bail!("tidy: {} findings", findings.len())
}

/// A file of the checkout that is text.
pub(super) struct TextFile {
    /// Relative to the workspace, with `/` between its parts.
    pub(super) name: String,
    pub(super) text: String,
    /// Code and prose of a Rust source, separated.
    pub(super) split: code::SplitSource,
}

impl TextFile {
    pub(super) fn new(name: &str, text: String) -> TextFile {
        let split = if name.ends_with(".rs") { code::split(&text) } else { Default::default() };
        TextFile { name: name.to_owned(), text, split }
    }
}

/// Everything that a checkout holds, read once for all rules.
pub(super) struct Checkout {
    pub(super) root: PathBuf,
    /// Recordings and other bytes, which have no lines to look at, and text files.
    pub(super) names: Vec<String>,
    pub(super) texts: Vec<TextFile>,
}

impl Checkout {
    pub(super) fn read(root: &Path) -> anyhow::Result<Checkout> {
        let mut paths = Vec::new();
        walk(root, &mut paths)?;
        paths.sort();
        let (mut names, mut texts) = (Vec::new(), Vec::new());
        for path in &paths {
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            let bytes = std::fs::read(path).with_context(|| name.clone())?;
            if let Ok(text) = String::from_utf8(bytes) {
                texts.push(TextFile::new(&name, text));
            }
            names.push(name);
        }
        Ok(Checkout { root: root.to_owned(), names, texts })
    }

    /// The Rust sources.
    pub(super) fn sources(&self) -> impl Iterator<Item = &TextFile> {
        self.texts.iter().filter(|file| file.name.ends_with(".rs"))
    }
}

/// Whether a file is an input of tests rather than a text of the project.
pub(super) fn is_fixture(name: &str) -> bool {
    name.split('/').any(|part| part == "fixtures")
}

/// One rule: what it finds in a checkout, a sentence each.
type Rule = fn(&Checkout) -> Vec<String>;

/// Every rule. A new one is a file beside this one, entered here.
const RULES: &[Rule] = &[
    headers::findings,
    arrows::findings,
    provenance::findings,
    dependencies::findings,
    dead::findings,
    cycles::findings,
    commands::findings,
    names::findings,
    documents::findings,
    door::findings,
    perf_options::findings,
    streams::findings,
];

/// Lowers the limits of names that are on their way out to what is left of them.
pub(crate) fn lower() -> anyhow::Result<()> {
    let root = crate::root();
    names::lower(&Checkout::read(&root)?)
}

fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let checkout = Checkout::read(root)?;
    Ok(RULES.iter().flat_map(|rule| rule(&checkout)).collect())
}

/// Every file that a checkout holds.
fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let skip = ["target", ".git", "corpus", "artifacts"];
            if !skip.iter().any(|s| name == *s) {
                walk(&path, files)?;
            }
        } else if kind.is_file()
            // In a worktree `.git` is a file that points to the repository.
            && name != ".git"
            && !name.to_string_lossy().starts_with("perf.data")
        {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_project_is_tidy() {
        let found = super::findings(&crate::root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
