//! `cargo xtask book`: the book of `docs/` as HTML, with a page for each command, into `target/book`. mdBook is installed into
//! `target/tools` where it is not on the search path.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;

const MDBOOK_VERSION: &str = "0.5.4";

pub(crate) fn run() -> anyhow::Result<()> {
    let source = source()?;
    let mut build = Command::new(mdbook()?);
    build.arg("build").arg(&source).arg("--dest-dir").arg(crate::target().join("book"));
    let output = build.output().context("cannot run mdbook")?;
    let messages = String::from_utf8_lossy(&output.stderr);
    // A missing page or a broken table of contents is a warning with status 0.
    if !output.status.success() || messages.contains("WARN") || messages.contains("ERROR") {
        bail!("mdbook build {}: {}\n{messages}", source.display(), output.status);
    }
    println!("book: {}", crate::target().join("book/introduction.html").display());
    Ok(())
}

/// The pages of `docs/`, and one for each command, which the program makes of its flags.
fn source() -> anyhow::Result<PathBuf> {
    let source = crate::target().join("book-source");
    match std::fs::remove_dir_all(&source) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(e).with_context(|| source.display().to_string());
        }
        _ => {}
    }
    let mut copy = Command::new("cp");
    copy.arg("-R").arg(crate::root().join("docs")).arg(&source);
    cargo::run_command(copy)?;
    let kymo = cargo::build(&["build", "--package", "kymo", "--bin", "kymo"])?;
    let commands = source.join("commands");
    let mut pages = Command::new(kymo);
    pages.args(["manual", "--markdown"]).arg(&commands);
    cargo::run_command(pages)?;
    let mut names = std::fs::read_dir(&commands)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<Vec<String>>>()?;
    names.sort();
    let contents = source.join("SUMMARY.md");
    let mut text = std::fs::read_to_string(&contents).context("docs/SUMMARY.md")?;
    text.push_str("\n# Commands\n\n");
    for name in names {
        let title = name.trim_end_matches(".md").replace('-', " ");
        text.push_str(&format!("- [{title}](commands/{name})\n"));
    }
    std::fs::write(&contents, text).context("the book's table of contents")?;
    Ok(source)
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
