//! `cargo xtask book`: the book of `docs/` as HTML, with a page for each command, into
//! `target/book`. mdBook is installed into `target/tools` if it is missing.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::cargo;
use crate::vm::architecture::Architecture;
use crate::vm::suite;

const MDBOOK_VERSION: &str = "0.5.4";

pub(crate) fn run() -> anyhow::Result<()> {
    let source = source()?;
    let mut build =
        Command::new(cargo::tool("mdbook", MDBOOK_VERSION, &["--no-default-features"])?);
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
    // As the tests have it: nothing is compiled anew for other features.
    let kymo = suite::dev_program(Architecture::Amd64)?;
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
