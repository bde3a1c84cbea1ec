//! `cargo xtask bench probes`: the section of BENCHMARKS.md about what a hit of a probe
//! costs, as `kymo probe bench` measures it. Which build of kymo it is does not matter:
//! what is measured is a program that kymo writes, and the kernel.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::measure::output;

/// How the section begins.
const HEAD: &str = "## What a hit of a probe costs\n";

const PAIRS: &str = "41";

/// Measures and renews the section.
pub(crate) fn run() -> anyhow::Result<()> {
    let kymo = crate::cargo::build(&["build", "--package", "kymo", "--bin", "kymo"])?;
    let section = section(&kymo)?;
    println!("{section}");
    let path = crate::root().join("BENCHMARKS.md");
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    std::fs::write(&path, replaced(&page, &section)).with_context(|| path.display().to_string())
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

/// A page with its section put in place of the old one, or before the machine's.
fn replaced(page: &str, section: &str) -> String {
    let (before, rest) = match page.split_once(HEAD) {
        Some((before, old)) => (before, old.find("\n## ").map_or("", |at| &old[at + 1..])),
        None => {
            let at = page.find("## The machine\n").unwrap_or(page.len());
            page.split_at(at)
        }
    };
    let gap = if rest.is_empty() { "" } else { "\n" };
    format!("{before}{section}{gap}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_takes_the_place_of_the_old_one() {
        let section = format!("{HEAD}\nnew\n");
        let page = "# B\n\n## The machine\n\n- x\n";
        let once = replaced(page, &section);
        assert_eq!(once, format!("# B\n\n{section}\n## The machine\n\n- x\n"));
        assert_eq!(replaced(&once, &section), once);
        assert_eq!(replaced("# B\n\n", &section), format!("# B\n\n{section}"));
    }
}
