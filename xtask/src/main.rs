//! Build, test and bench tasks: `cargo xtask <task>`. One file per task.
#![deny(unsafe_code)]

mod arm64;
mod bench;
mod bloat;
mod book;
mod bpftrace_cases;
mod c_library;
mod cargo;
mod chance;
mod crates;
mod ctf_suites;
mod fuzz;
mod hostile;
mod licences;
mod man;
mod package;
mod peers;
mod perf_tests;
mod pictures;
mod python;
mod release;
mod semver;
mod setup;
mod steps;
mod test;
mod tidy;
mod torture;
mod verdicts;
mod vm;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

  setup [--dry-run]   install the Debian packages that tests and benches need
  test                setup, then everything that CI checks
  test --quick        formatting, tidy, clippy, unit tests, the corpus: no root, no peers
  test --arm64        read the corpus with the AArch64 program under emulation
  peers [--renew]     unpack the tools of Debian's testing release into target/peers; tests
                      compare with them if they exist
  tidy                check the project's own rules (file heads, crate arrows, words, …)
  tidy --lower        lower the limits of words in names.txt to the current counts
  perf-options [PROGRAM]
                      compare the options with perf's; renews docs/perf.md
  release [PROGRAM]   build the release program, check it, and write its packages (tar, Debian
                      package, RPM, OCI image, bill of materials, checksums) to target/packages
  release --arm64     build the same packages for AArch64, and read the corpus with that program
                      under emulation
  bloat [PROGRAM]     print the size of each crate in the release program
  c-library [DIR]     write header, libraries and pkg-config files for tracepoints in C programs
                      to target/c; --check also builds and runs the example
  man                 write manual pages and completions to target/man
  book                build the book of docs/ as HTML in target/book
  pictures [PROGRAM]  draw the README's pictures: the speed chart and a terminal session
  crates              pack the crates as for crates.io, and check the packages
  python [--dev]      the wheel of python/, into target/wheels, tested in its own environment;
                      --portable: for manylinux2014 and musllinux, x86-64 and AArch64
  semver REV [CRATE]… find breaking changes of the published libraries since a revision
  bench [--quick]     measure whole commands against their peers; writes BENCHMARKS.md
        [--only PART] only one part (script, report, dwarf, inlines, addresses, analyses, record,
                      trace, probe, programs, top, view, ctf, start-up)
        [--against REV [--quick]]
                      compare with the program of another revision
  bench diff          measure false alarms and power of kymo diff on alternating recordings
  bench probes        measure the cost of a probe hit
  bench ust           compare events of programs with LTTng-UST; writes docs/bench-ust.md
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = |()| ExitCode::SUCCESS;
    let result = match args.as_slice() {
        ["setup"] => setup::run(setup::Mode::Install).map(done),
        ["setup", "--dry-run"] => setup::run(setup::Mode::Say).map(done),
        ["test"] => test::run().map(done),
        ["test", "--quick"] => test::quick().map(done),
        ["test", "--arm64"] => arm64::corpus().map(done),
        ["peers"] => peers::run(false).map(done),
        ["peers", "--renew"] => peers::run(true).map(done),
        ["tidy"] => tidy::run().map(done),
        ["tidy", "--lower"] => tidy::lower().map(done),
        ["c-library"] => c_library::run(None).map(done),
        ["c-library", "--check"] => c_library::try_as_documented().map(done),
        ["c-library", to] => c_library::run(Some(to)).map(done),
        ["man"] => man::run().map(done),
        ["book"] => book::run().map(done),
        ["python"] => python::report(python::run(python::Profile::Release)).map(done),
        ["python", "--portable"] => python::report(python::portable()).map(done),
        ["python", "--dev"] => python::report(python::run(python::Profile::Dev)).map(done),
        ["semver", revision, names @ ..] => semver::run(revision, names).map(done),
        ["crates"] => crates::run().map(done),
        ["pictures"] => pictures::run(None).map(done),
        ["pictures", program] => pictures::run(Some(program)).map(done),
        ["perf-options"] => tidy::perf_options::renew(None).map(done),
        ["perf-options", program] => tidy::perf_options::renew(Some(program)).map(done),
        ["release"] => release::run(None).map(done),
        ["release", "--arm64"] => release::for_arm64().map(done),
        ["release", program] => release::run(Some(program)).map(done),
        ["bloat"] => bloat::run(None).map(done),
        ["bloat", program] => bloat::run(Some(program)).map(done),
        ["vm", rest @ ..] => vm::main(rest),
        ["bpftrace-cases", rest @ ..] => bpftrace_cases::main(rest).map(done),
        ["perf-tests", rest @ ..] => perf_tests::main(rest).map(done),
        ["ctf-suites", rest @ ..] => ctf_suites::main(rest).map(done),
        ["torture", rest @ ..] => torture::main(rest).map(done),
        ["hostile", rest @ ..] => hostile::main(rest).map(done),
        ["fuzz", rest @ ..] => fuzz::main(rest).map(done),
        ["bench"] => bench::run(bench::Effort::Full, None).map(done),
        ["bench", "diff"] => bench::diff::run(bench::Effort::Full).map(done),
        ["bench", "diff", "--quick"] => bench::diff::run(bench::Effort::Quick).map(done),
        ["bench", "probes"] => bench::probes::run().map(done),
        ["bench", "ust"] => bench::ust::run().map(done),
        ["bench", "--against", revision] => {
            bench::against::run(bench::Effort::Full, revision).map(done)
        }
        ["bench", "--against", revision, "--quick"] => {
            bench::against::run(bench::Effort::Quick, revision).map(done)
        }
        ["bench", "--quick"] => bench::run(bench::Effort::Quick, None).map(done),
        ["bench", "--only", part] => bench::run(bench::Effort::Full, Some(part)).map(done),
        ["bench", "--only", part, "--quick"] => {
            bench::run(bench::Effort::Quick, Some(part)).map(done)
        }
        ["verdicts", rest @ ..] => verdicts::run(rest),
        [] | ["help" | "-h" | "--help"] => {
            print!("{USAGE}{}", more_usage());
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("xtask: no such task: {}\n\n{USAGE}{}", other.join(" "), more_usage());
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|e| {
        eprintln!("xtask: {e:#}");
        ExitCode::FAILURE
    })
}

/// The tasks that say themselves how they are called.
fn more_usage() -> String {
    [
        fuzz::USAGE,
        hostile::USAGE,
        torture::USAGE,
        bpftrace_cases::USAGE,
        perf_tests::USAGE,
        ctf_suites::USAGE,
        verdicts::USAGE,
        vm::USAGE,
    ]
    .concat()
}

/// The directory of the workspace.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Build directory of cargo, by default `target`.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
