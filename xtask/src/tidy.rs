//! `cargo xtask tidy`: rules of the project that no lint knows. Also a test, so
//! that whoever runs only the tests hears of it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The crates from the words at the bottom to the program at the top. A crate may
/// depend only on crates before it. New crates are entered here.
const ORDER: &[&str] = &[
    "kymo-model",
    "kymo-format",
    "kymo-files",
    "kymo-debuginfo",
    "kymo-unwind",
    "kymo-kernel",
    "kymo-debuginfod",
    "kymo-symbols",
    "kymo-ring",
    "kymo-ust",
    "kymo-tracepoint-macros",
    "kymo-tracepoint",
    "kymo-record",
    "kymo-analysis",
    "kymo-view",
    "kymo",
];

/// Crates beside the order: they depend on none of the others, and only tests and
/// tasks depend on them.
const SIDE: &[&str] = &["kymo-testkit", "kymo-guest"];

/// Arrows that would fit the order and are still wrong: capture and analysis meet
/// in `kymo-model` or in a file, and decoders know nothing of each other's formats.
const FORBIDDEN: &[(&str, &str)] = &[
    ("kymo-analysis", "kymo-record"),
    ("kymo-debuginfo", "kymo-files"),
    ("kymo-debuginfo", "kymo-format"),
    ("kymo-kernel", "kymo-files"),
    ("kymo-view", "kymo-kernel"),
];

/// Longer files have taken in a second subject.
const MAX_LINES: usize = 1000;

/// Texts that belong to one machine only. Split, so that this file passes.
const MACHINE: &[&str] = &[concat!("/wor", "k/"), concat!("/roo", "t/"), concat!("/tmp", "/t-")];

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

fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    walk(root, &mut files)?;
    files.sort();
    let mut found = Vec::new();
    for path in &files {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let bytes = std::fs::read(path).with_context(|| name.clone())?;
        let in_fixtures = name.split('/').any(|part| part == "fixtures");
        if in_fixtures {
            found.extend(provenance(path, &name));
        }
        // Recordings and other bytes have no lines to look at.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if !in_fixtures {
            found.extend(machine_paths(&name, &text));
        }
        if name.ends_with(".rs") {
            found.extend(source_file(&name, &text));
        }
        if let Some(package) = package_of(&name) {
            found.extend(arrows(package, &text));
        }
    }
    Ok(found)
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

/// A field called `source` is a cause, which whoever prints the error prints as well.
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

/// `crates/<package>/Cargo.toml` → package.
fn package_of(name: &str) -> Option<&str> {
    name.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")
}

fn arrows(package: &str, manifest: &str) -> Vec<String> {
    let place = |name: &str| ORDER.iter().position(|o| *o == name);
    let side = |name: &str| SIDE.contains(&name);
    let mut found = Vec::new();
    if !side(package) && place(package).is_none() {
        found.push(format!("{package}: not in the order of crates in xtask/src/tidy.rs"));
    }
    for (section, dependency) in dependencies(manifest) {
        if side(&dependency) {
            if section != "dev-dependencies" {
                found.push(format!("{package}: {dependency} is for tests, not for [{section}]"));
            }
            continue;
        }
        if side(package) {
            found.push(format!("{package} depends on {dependency}; every crate's tests use it"));
        } else if place(&dependency) >= place(package) && section != "dev-dependencies" {
            found.push(format!("{package} depends on {dependency}, which is above it"));
        } else if FORBIDDEN.contains(&(package, dependency.as_str())) {
            found.push(format!("{package} depends on {dependency}; they never see each other"));
        }
    }
    found
}

/// Dependencies on crates of the workspace, each with its section.
fn dependencies(manifest: &str) -> Vec<(String, String)> {
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if section.ends_with("dependencies") && line.starts_with("kymo") {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            found.push((section.clone(), name.to_owned()));
        }
    }
    found
}

/// A fixture is named, with the command that made it, in a README.md of its folder
/// or of one above it inside `fixtures/`.
fn provenance(path: &Path, name: &str) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    if file == "README.md" {
        return None;
    }
    let mut dir = path.parent()?;
    loop {
        let readme = std::fs::read_to_string(dir.join("README.md")).unwrap_or_default();
        if readme.contains(file) {
            return None;
        }
        if dir.file_name().is_some_and(|n| n == "fixtures") {
            return Some(format!("{name}: no README.md says where it comes from"));
        }
        dir = dir.parent()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_tidy() {
        let found = findings(&crate::root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn arrows_that_point_upwards_are_found() {
        let check = |package: &str, manifest: &str, expected: &[&str]| {
            assert_eq!(arrows(package, manifest), expected, "{package}");
        };
        check("kymo-files", "[dependencies]\nkymo-model.workspace = true\n", &[]);
        check(
            "kymo-files",
            "[dependencies]\nkymo-record = { path = \"../kymo-record\" }\n",
            &["kymo-files depends on kymo-record, which is above it"],
        );
        check("kymo-files", "[dev-dependencies]\nkymo-testkit.workspace = true\n", &[]);
        check(
            "kymo-files",
            "[dependencies]\nkymo-testkit.workspace = true\n",
            &["kymo-files: kymo-testkit is for tests, not for [dependencies]"],
        );
        check(
            "kymo-analysis",
            "[dependencies]\nkymo-record.workspace = true\n",
            &["kymo-analysis depends on kymo-record; they never see each other"],
        );
        check("kymo-new", "", &["kymo-new: not in the order of crates in xtask/src/tidy.rs"]);
    }

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
