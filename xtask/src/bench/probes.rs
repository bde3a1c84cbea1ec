//! `cargo xtask bench probes`: the section of BENCHMARKS.md about what a hit of a probe
//! costs, as `kymo probe bench` measures it. Which build of kymo it is does not matter:
//! what is measured is a program that kymo writes, and the kernel.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::measure::output;
use super::page::with_section;

/// Heading of the section.
const HEAD: &str = "## What a hit of a probe costs\n";

const PAIRS: &str = "41";

/// Measures and renews the section.
pub(crate) fn run() -> anyhow::Result<()> {
    let kymo = crate::cargo::build(&["build", "--package", "kymo", "--bin", "kymo"])?;
    let section = section(&kymo)?;
    println!("{section}");
    let path = crate::root().join("BENCHMARKS.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, with_section(&page, HEAD, &section))
        .with_context(|| path.display().to_string())
}

/// The section, measured now.
pub(crate) fn section(kymo: &Path) -> anyhow::Result<String> {
    let mut bench = Command::new(kymo);
    bench.args(["probe", "bench", "--pairs", PAIRS]);
    let table = output(bench)?;
    let lines: Vec<&str> = table.trim_end().lines().map(str::trim_end).collect();
    Ok(format!(
        "{HEAD}\nFrom `kymo probe bench`: a program calls two functions, one with the probe and \
         one without, in turn; its own CPU time, the event recorded into a trace ring.\n\n\
         ```text\n{}\n```\n",
        lines.join("\n")
    ))
}
