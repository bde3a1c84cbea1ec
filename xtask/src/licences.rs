//! Under which terms the packages are that kymo is built from, and where they come
//! from: the part of `deny.toml` that every run of tidy checks by itself, with
//! nothing installed. Advisories need `cargo deny check`.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

/// Findings on the packages in the lock file.
pub(crate) fn findings(root: &Path) -> anyhow::Result<Vec<String>> {
    let path = root.join("deny.toml");
    let deny = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let allowed = allowed(&deny)?;
    let output = crate::cargo::command(&["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: no packages")?;
    Ok(packages.iter().filter_map(|p| package(p, &allowed)).collect())
}

/// The names in `allow = [ … ]`, one a line.
fn allowed(deny: &str) -> anyhow::Result<Vec<&str>> {
    let list = deny.split_once("\nallow = [").context("deny.toml: no allow list")?.1;
    let list = list.split_once(']').context("deny.toml: the allow list does not end")?.0;
    Ok(list.lines().filter_map(|l| l.trim().strip_prefix('"')?.strip_suffix("\",")).collect())
}

fn package(package: &Value, allowed: &[&str]) -> Option<String> {
    let name = package["name"].as_str().unwrap_or("?");
    // The workspace's own packages have no source.
    let origin = package["source"].as_str()?;
    if !origin.starts_with("registry+https://github.com/rust-lang/crates.io-index") {
        return Some(format!("{name}: comes from {origin}, not from crates.io"));
    }
    let Some(licence) = package["license"].as_str() else {
        return Some(format!("{name}: names no licence"));
    };
    match permits(licence, allowed) {
        Some(true) => None,
        Some(false) => Some(format!("{name}: {licence} is not in deny.toml's allow list")),
        None => Some(format!("{name}: {licence:?} is no licence expression")),
    }
}

/// Whether one of the ways to meet an SPDX licence expression is allowed; old
/// manifests write `/` for `OR`.
fn permits(expression: &str, allowed: &[&str]) -> Option<bool> {
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    let verdict = any(&mut rest, allowed)?;
    rest.is_empty().then_some(verdict)
}

fn any(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut verdict = all(rest, allowed)?;
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        verdict |= all(rest, allowed)?;
    }
    Some(verdict)
}

fn all(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    let mut verdict = one(rest, allowed)?;
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        verdict &= one(rest, allowed)?;
    }
    Some(verdict)
}

fn one(rest: &mut &[&str], allowed: &[&str]) -> Option<bool> {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let verdict = any(rest, allowed)?;
            let [")", tail @ ..] = *rest else { return None };
            *rest = tail;
            Some(verdict)
        }
        [name, "WITH", exception, tail @ ..] => {
            *rest = tail;
            Some(allowed.contains(&format!("{name} WITH {exception}").as_str()))
        }
        [")" | "OR" | "AND" | "WITH", ..] | [] => None,
        [name, tail @ ..] => {
            *rest = tail;
            Some(allowed.contains(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::permits;

    #[test]
    fn licence_expressions_are_weighed() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
        let check = |text: &str, expected| assert_eq!(permits(text, &allowed), expected, "{text}");
        check("MIT", Some(true));
        check("GPL-2.0-only", Some(false));
        check("MIT OR GPL-2.0-only", Some(true));
        check("GPL-2.0-only/MIT", Some(true));
        check("MIT AND GPL-2.0-only", Some(false));
        check("(MIT OR GPL-2.0-only) AND Unicode-3.0", Some(true));
        check("GPL-2.0-only AND MIT OR Apache-2.0", Some(true));
        check("Apache-2.0 WITH LLVM-exception", Some(true));
        check("MIT WITH Classpath-exception-2.0", Some(false));
        check("(MIT", None);
        check("MIT Apache-2.0", None);
        check("", None);
    }
}
