//! Build, test and bench tasks: `cargo xtask <task>`. One file per task.
#![deny(unsafe_code)]

mod bench;
mod cargo;
mod release;
mod setup;
mod steps;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  setup [--dry-run]   install the Debian packages that tests and benches need
  test                setup, then everything CI checks
  tidy                the project's own rules (file heads, crate arrows, …)
  release             build the release program and check what is promised of it
  bench [--quick]     whole commands against perf; writes BENCHMARKS.md
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["setup"] => setup::run(setup::Mode::Install),
        ["setup", "--dry-run"] => setup::run(setup::Mode::Say),
        ["test"] => test::run(),
        ["tidy"] => tidy::run(),
        ["release"] => release::run(),
        ["bench"] => bench::run(bench::Effort::Full),
        ["bench", "--quick"] => bench::run(bench::Effort::Quick),
        [] | ["help" | "-h" | "--help"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("xtask: no such task: {}\n\n{USAGE}", other.join(" "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}
