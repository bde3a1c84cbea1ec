//! `cargo xtask semver REV`: breaking changes of the published libraries since a revision, found by
//! cargo-semver-checks, which is installed into `target/tools` if it is missing.

use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::{cargo, crates};

const VERSION: &str = "0.51.0";

/// Compares all published libraries, or those that are named.
pub(crate) fn run(revision: &str, names: &[&str]) -> anyhow::Result<()> {
    let mut compared = Vec::new();
    for package in crates::published()?.iter().filter(|package| is_library(package)) {
        let name = crates::name_of(package)?;
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        if is_in(revision, name)? {
            compared.push(name.to_owned());
        } else {
            println!("semver: {name} is new since {revision}");
        }
    }
    if compared.is_empty() {
        bail!("no published library to compare with {revision}");
    }
    let mut check = Command::new(cargo::tool("cargo-semver-checks", VERSION, &[])?);
    check.current_dir(crate::root());
    check.args(["semver-checks", "--baseline-rev", revision]);
    compared.iter().for_each(|name| {
        check.args(["--package", name]);
    });
    cargo::run_command(check)
}

fn is_library(package: &Value) -> bool {
    let targets = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
    targets.iter().any(|target| target["kind"] == serde_json::json!(["lib"]))
}

/// Whether a revision has the package.
fn is_in(revision: &str, name: &str) -> anyhow::Result<bool> {
    let mut git = Command::new("git");
    git.args(["cat-file", "-e", &format!("{revision}:crates/{name}/Cargo.toml")]);
    let output = git.current_dir(crate::root()).output().context("cannot run git")?;
    Ok(output.status.success())
}
