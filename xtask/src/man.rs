//! `cargo xtask man`: the manual pages and completions that the release program
//! writes of itself, into `target/man`.

use std::process::Command;

use anyhow::Context as _;

use crate::cargo;

pub(crate) fn run() -> anyhow::Result<()> {
    let kymo = cargo::build_release()?;
    let dir = crate::target().join("man");
    let mut pages = Command::new(&kymo);
    pages.args(["manual", "--dir"]).arg(&dir);
    cargo::run_command(pages)?;
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(&kymo)
            .args(["manual", "--completions", shell])
            .output()
            .with_context(|| kymo.display().to_string())?;
        let path = dir.join(format!("kymo.{shell}"));
        std::fs::write(&path, output.stdout).with_context(|| path.display().to_string())?;
    }
    println!("manual pages and completions: {}", dir.display());
    Ok(())
}
