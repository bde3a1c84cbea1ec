//! Dependencies that nothing uses: a crate that is named in a manifest and nowhere in the
//! sources behind it, and a version in the workspace's table that no manifest asks for.

use std::collections::HashSet;

use super::{Checkout, code};

/// Dependencies without a mention in code, each with the reason: (package, dependency, why).
const ALLOWED: &[(&str, &str, &str)] = &[];

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let mut found = Vec::new();
    let mut asked_for = HashSet::new();
    for manifest in &checkout.texts {
        let Some(directory) = manifest.name.strip_suffix("Cargo.toml") else { continue };
        let dependencies = dependencies(&manifest.text);
        asked_for.extend(dependencies.iter().cloned());
        if directory.is_empty() {
            continue;
        }
        let sources = checkout.sources().filter(|file| file.name.starts_with(directory));
        let splits = sources.map(|file| &file.split);
        // Examples in documentation use a crate, too.
        let used: HashSet<&str> =
            splits.flat_map(|s| code::words(&s.code).chain(code::words(&s.prose))).collect();
        let package = directory.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        for name in dependencies {
            let unused = !used.contains(name.replace('-', "_").as_str());
            if unused && !ALLOWED.iter().any(|(p, d, _)| (*p, *d) == (package, name.as_str())) {
                found.push(format!("{}: nothing in {directory} uses {name}", manifest.name));
            }
        }
    }
    let workspace = checkout.texts.iter().find(|file| file.name == "Cargo.toml");
    for name in workspace.map(|file| versions(&file.text)).unwrap_or_default() {
        if !asked_for.contains(&name) {
            found.push(format!("Cargo.toml: no crate asks for {name}"));
        }
    }
    found
}

/// The dependencies of a manifest, of all kinds and targets.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = entries(manifest, |section| {
        section.ends_with("dependencies") && section != "workspace.dependencies"
    });
    // A crate that tests itself with other features.
    let own = entries_of_name(manifest);
    found.retain(|name| Some(name) != own.as_ref());
    found.sort();
    found.dedup();
    found
}

/// The dependencies whose versions the workspace states.
fn versions(manifest: &str) -> Vec<String> {
    entries(manifest, |section| section == "workspace.dependencies")
}

/// The keys of the sections that are asked for.
fn entries(manifest: &str, is: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut inside, mut found) = (false, Vec::new());
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            inside = is(section.trim_end_matches(']'));
        } else if inside && !line.starts_with('#') && line.contains('=') {
            found.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    found
}

fn entries_of_name(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::findings;
    use crate::tidy::{Checkout, TextFile};

    #[test]
    fn what_nothing_uses_is_found() {
        let file = |name: &str, text: &str| TextFile::new(name, text.into());
        let checkout = Checkout {
            root: PathBuf::new(),
            names: Vec::new(),
            texts: vec![
                file("Cargo.toml", "[workspace.dependencies]\na-b = \"1\"\nc = \"1\"\nd = \"1\"\n"),
                file(
                    "crates/x/Cargo.toml",
                    "[package]\nname = \"x\"\n[dependencies]\na-b.workspace = true\n\
                     [dev-dependencies]\nc = { workspace = true }\nx = { path = \".\" }\n",
                ),
                file("crates/x/src/lib.rs", "//! X.\nuse a_b::A;\n"),
                file("crates/y/src/lib.rs", "//! Y.\nuse c::C;\n"),
            ],
        };
        assert_eq!(
            findings(&checkout),
            ["crates/x/Cargo.toml: nothing in crates/x/ uses c", "Cargo.toml: no crate asks for d",]
        );
    }
}
