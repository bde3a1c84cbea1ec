//! `cargo xtask bench diff`: the rate of false alarms of `kymo diff` and what it finds, on real
//! recordings made in turns. Prints a table for docs/concepts/comparison.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Effort;
use crate::chance::Chance;

/// Six functions of one loop; the argument is the percentage of `parse`.
const PROGRAM: &str = r#"
#include <stdlib.h>
volatile unsigned long sink;
#define FUNCTION(name, part) __attribute__((noinline)) void name(long percent) { \
    unsigned long x = sink; \
    for (long i = 0; i < part * percent; i++) x = x * 6364136223846793005UL + 1; \
    sink = x; }
FUNCTION(parse, 2000L)
FUNCTION(render, 1500L)
FUNCTION(lex, 500L)
FUNCTION(check, 250L)
FUNCTION(emit, 100L)
FUNCTION(log_line, 25L)
int main(int argc, char **argv) {
    long rounds = atol(argv[1]), percent = atol(argv[2]);
    for (long i = 0; i < rounds; i++) {
        parse(percent); render(100); lex(100); check(100); emit(100); log_line(100);
    }
    return 0;
}
"#;

/// Numbers of the measurement.
struct Sizes {
    /// Pairs of recordings.
    pairs: usize,
    /// Pairs in a comparison.
    runs: usize,
    /// Comparisons.
    trials: usize,
    /// Rounds of the program.
    rounds: &'static str,
}

/// Measures it.
pub(crate) fn run(effort: Effort) -> anyhow::Result<()> {
    let kymo = match std::env::var_os("KYMO") {
        Some(program) => PathBuf::from(program),
        None => crate::cargo::build_release()?,
    };
    let sizes = match effort {
        Effort::Full => Sizes { pairs: 100, runs: 20, trials: 1_000, rounds: "400" },
        Effort::Quick => Sizes { pairs: 20, runs: 10, trials: 60, rounds: "100" },
    };
    let directory = tempfile::tempdir().context("a directory for recordings")?;
    let program = compile(directory.path())?;
    let record = |name: String, rate: &str, percent: &str| -> anyhow::Result<PathBuf> {
        let path = directory.path().join(name);
        let mut command = Command::new(&kymo);
        command.args(["record", "-q", "-e", "cpu-clock", "-g", "-F", rate, "-o"]).arg(&path);
        command.arg("--").arg(&program).args([sizes.rounds, percent]);
        let status = command.status().context("kymo record")?;
        if !status.success() {
            bail!("kymo record: {status}");
        }
        Ok(path)
    };
    let kinds =
        [("a", "997", "100"), ("b", "997", "100"), ("slow", "997", "105"), ("rate", "499", "100")];
    let mut recorded: Vec<Vec<PathBuf>> = vec![Vec::new(); kinds.len()];
    for pair in 0..sizes.pairs {
        // In turns, each pair in the other direction.
        let mut order: Vec<usize> = (0..kinds.len()).collect();
        if pair % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            let (name, rate, percent) = kinds[kind];
            recorded[kind].push(record(format!("{name}-{pair}.data"), rate, percent)?);
        }
    }
    let [a, b, slow, other_rate] = &*recorded else { bail!("four kinds of recordings") };
    println!(
        "{} pairs of recordings, {} + {} runs in a comparison",
        sizes.pairs, sizes.runs, sizes.runs
    );
    println!(
        "| comparison | trials | any function reported | `parse` reported first | interval of `parse` holds the truth |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (title, after, truth) in [
        ("the same program", b, 1.0),
        ("the same program, 997 Hz against 499 Hz", other_rate, 1.0),
        ("`parse` 5 % slower", slow, 1.05),
    ] {
        let mut tally = Tally::default();
        for trial in 0..sizes.trials {
            let mut chance = Chance::of_round(37, trial as u64);
            let first = chance.between(0, (sizes.pairs - sizes.runs) as u64) as usize;
            let mut sides = (Vec::new(), Vec::new());
            for pair in first..first + sizes.runs {
                let (mut one, mut two) = (&a[pair], &after[pair]);
                // Of alike recordings, which one is "before" is a matter of chance.
                if truth == 1.0 && chance.between(0, 1) == 1 {
                    (one, two) = (two, one);
                }
                sides.0.push(one.clone());
                sides.1.push(two.clone());
            }
            tally.add(&compare(&kymo, &sides.0, &sides.1)?, truth);
        }
        let share = |n: usize| format!("{:.1} %", n as f64 * 100.0 / tally.trials.max(1) as f64);
        println!(
            "| {title} | {} | {} | {} | {} |",
            tally.trials,
            share(tally.alarms),
            share(tally.first),
            share(tally.covered)
        );
    }
    Ok(())
}

fn compile(directory: &Path) -> anyhow::Result<PathBuf> {
    let (source, program) = (directory.join("program.c"), directory.join("program"));
    std::fs::write(&source, PROGRAM).context("source of the program")?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-g", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source);
    let status = compiler.status().context("gcc")?;
    if !status.success() {
        bail!("gcc: {status}");
    }
    Ok(program)
}

fn compare(kymo: &Path, before: &[PathBuf], after: &[PathBuf]) -> anyhow::Result<Value> {
    let mut command = Command::new(kymo);
    command.args(["diff", "--json", "--before"]).args(before).arg("--after").args(after);
    let output = command.output().context("kymo diff")?;
    if !output.status.success() {
        bail!("kymo diff: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("kymo diff --json")
}

#[derive(Default)]
struct Tally {
    trials: usize,
    alarms: usize,
    first: usize,
    covered: usize,
}

impl Tally {
    fn add(&mut self, value: &Value, truth: f64) {
        let measure = &value["measures"][0];
        let functions = measure["functions"].as_array().map_or(&[][..], |f| f);
        let is_change = |change: &Value| {
            let verdict = change["verdict"].as_str().unwrap_or_default();
            ["more", "less", "new", "vanished"].contains(&verdict)
        };
        let changed = |f: &Value| is_change(&f["self"]) || is_change(&f["total"]);
        self.trials += 1;
        self.alarms += usize::from(functions.iter().any(changed) || is_change(&measure["whole"]));
        let named_first = functions
            .first()
            .is_some_and(|f| f["function"] == "parse" && f["self"]["verdict"] == "more");
        self.first += usize::from(named_first);
        let own = functions.iter().find(|f| f["function"] == "parse").map(|f| &f["self"]);
        let covers = own.is_some_and(|own| {
            let end = |name: &str| own[name].as_f64();
            end("low").is_some_and(|low| low <= truth)
                && end("high").is_some_and(|high| truth <= high)
        });
        self.covered += usize::from(covers);
    }
}
