//! `cargo xtask vm matrix`: what works on the kernels of Debian's releases, as a table. The test
//! `guest_matrix` finds it out; it fails where something does not work although the kernel has
//! what it needs, or where kymo does not say why not.

use std::process::ExitCode;

use super::apt::{Apt, SUITES};
use super::architecture::Architecture;
use super::fetch;
use super::suite::{self, Results, Selection};

/// A kernel's column.
struct Column {
    release: String,
    /// Capability and what was found: `yes`, or why not.
    cells: Vec<(String, String)>,
}

pub(crate) fn main(args: &[&str]) -> anyhow::Result<ExitCode> {
    let is_release = !args.contains(&"--dev");
    let architecture =
        if args.contains(&"--arm64") { Architecture::Arm64 } else { Architecture::Amd64 };
    let named: Vec<&str> = args.iter().copied().filter(|a| !a.starts_with("--")).collect();
    let suites = if named.is_empty() { SUITES.to_vec() } else { named };
    let mut columns = Vec::new();
    let mut failed = 0;
    for name in suites {
        let results = run(name, architecture, is_release)?;
        failed += results.counts.failed;
        columns.push(Column::of(&results));
    }
    print!("{}", table(&columns));
    println!("{failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Releases whose kernel CI tries beside the machine's own: the first that can be fetched. Mirrors
/// drop releases without support.
const OTHER_RELEASES: [&str; 2] = ["bullseye", "trixie"];

/// Capabilities on another kernel than that of the other tests in the guest.
pub(crate) fn other_kernel() -> anyhow::Result<Results> {
    for suite in OTHER_RELEASES {
        match Apt::of_suite(suite).and_then(|apt| fetch::kernel(&apt)) {
            Ok(_) => {
                let results = run(suite, Architecture::Amd64, true)?;
                print!("{}", table(&[Column::of(&results)]));
                return Ok(results);
            }
            Err(e) => println!("vm: the kernel of {suite} is not to be had: {e:#}"),
        }
    }
    let skip = format!("SKIPPED: guest_matrix: no kernel of {}", OTHER_RELEASES.join(" or "));
    Ok(Results { skips: vec![skip], ..Results::default() })
}

/// Capabilities on the kernel of a release.
fn run(suite: &str, architecture: Architecture, is_release: bool) -> anyhow::Result<Results> {
    suite::run(&Selection::matrix(Apt::of_suite(suite)?, architecture, is_release))
}

impl Column {
    fn of(results: &Results) -> Column {
        let cells = results.capabilities.iter().filter_map(|line| line.split_once('\t'));
        let cells = cells.map(|(name, found)| (name.to_owned(), found.to_owned())).collect();
        Column { release: results.release.clone(), cells }
    }

    fn cell(&self, name: &str) -> Option<&str> {
        self.cells.iter().find(|(n, _)| n == name).map(|(_, found)| found.as_str())
    }
}

/// A table in Markdown. Reasons stand below it, each with its number.
fn table(columns: &[Column]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in columns.iter().flat_map(|c| &c.cells) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut reasons: Vec<&str> = Vec::new();
    let releases: Vec<&str> = columns.iter().map(|c| c.release.as_str()).collect();
    let mut text =
        format!("| | {} |\n|---|{}\n", releases.join(" | "), "---|".repeat(columns.len()));
    for name in names {
        text.push_str(&format!("| {name} |"));
        for column in columns {
            let cell = match column.cell(name) {
                Some("yes") => "yes".to_owned(),
                Some(reason) => {
                    let known = reasons.iter().position(|r| *r == reason);
                    let number = known.unwrap_or_else(|| {
                        reasons.push(reason);
                        reasons.len() - 1
                    });
                    format!("no ({})", number + 1)
                }
                None => "not tried".to_owned(),
            };
            text.push_str(&format!(" {cell} |"));
        }
        text.push('\n');
    }
    text.push('\n');
    for (i, reason) in reasons.iter().enumerate() {
        text.push_str(&format!("{}. {reason}\n", i + 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_numbers_below_the_table() {
        let column = |release: &str, found: &[(&str, &str)]| Column {
            release: release.into(),
            cells: found.iter().map(|(n, f)| ((*n).to_owned(), (*f).to_owned())).collect(),
        };
        let columns = [
            column("5.10", &[("probes", "yes"), ("locks", "no lock:contention_begin")]),
            column("6.1", &[("probes", "yes"), ("locks", "yes"), ("new", "yes")]),
        ];
        let expected = "| | 5.10 | 6.1 |\n|---|---|---|\n| probes | yes | yes |\n\
                        | locks | no (1) | yes |\n| new | not tried | yes |\n\n\
                        1. no lock:contention_begin\n";
        assert_eq!(table(&columns), expected);
    }
}
