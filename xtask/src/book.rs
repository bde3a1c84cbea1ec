//! `cargo xtask book`: the book of `docs/` as HTML, into `target/book`. mdBook is installed into
//! `target/tools` where it is not on the search path.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;

const MDBOOK_VERSION: &str = "0.5.4";

pub(crate) fn run() -> anyhow::Result<()> {
    let mut build = Command::new(mdbook()?);
    build.args(["build", "docs"]).current_dir(crate::root());
    let output = build.output().context("cannot run mdbook")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    // A missing page or a broken table of contents is a warning with status 0.
    if !output.status.success() || messages.contains("WARN") || messages.contains("ERROR") {
        bail!("mdbook build docs: {}\n{messages}", output.status);
    }
    println!("book: {}", crate::target().join("book/introduction.html").display());
    Ok(())
}

/// mdBook of the search path, or the one in `target/tools`, which is installed if missing.
fn mdbook() -> anyhow::Result<PathBuf> {
    if cargo::has("mdbook", &["--version"]) {
        return Ok("mdbook".into());
    }
    let tools = crate::target().join("tools");
    let program = tools.join("bin/mdbook");
    if !program.exists() {
        let mut install = cargo::command(&["install", "--locked", "--no-default-features"]);
        install.arg("--version").arg(MDBOOK_VERSION).arg("--root").arg(&tools).arg("mdbook");
        cargo::run_command(install)?;
    }
    Ok(program)
}
