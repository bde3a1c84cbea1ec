//! `cargo xtask verdicts`: the first sentence of `kymo profile` about every program of a catalog
//! of known causes (`crates/kymo/tests/verdicts`), quiet or beside two busy loops.

use std::process::ExitCode;

use anyhow::{Context as _, bail};

/// Lines of the help.
pub(crate) const USAGE: &str = "\
\x20 verdicts [--rounds N] [--loaded] [NAME]
                      first sentence of kymo profile about programs with a known cause
";

/// Runs the catalog, or the case of a name.
pub(crate) fn run(args: &[&str]) -> anyhow::Result<ExitCode> {
    let test = ["test", "-p", "kymo", "--test", "profile_waits", "--", "--nocapture", "--exact"];
    let mut test = crate::cargo::command(&test);
    test.arg("verdicts::the_first_sentence_is_right").env("KYMO_VERDICTS", "all");
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "--rounds" => {
                let rounds = args.next().context("--rounds needs a number")?;
                let _: u32 = rounds.parse().with_context(|| format!("--rounds {rounds}"))?;
                test.env("KYMO_VERDICTS_ROUNDS", rounds)
            }
            "--loaded" => test.env("KYMO_VERDICTS_LOADED", "1"),
            option if option.starts_with('-') => bail!("verdicts: unknown option {option}"),
            name => test.env("KYMO_VERDICTS", name),
        };
    }
    let status = test.status().context("cargo test")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
