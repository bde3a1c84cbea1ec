//! `cargo xtask bench diff`: the rate of false alarms of `kymo diff` and what it finds, on real
//! recordings made in turns. Prints a table for docs/concepts/comparison.md. The directory that
//! `KYMO_BENCH_RECORDINGS` names keeps the recordings for the next time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::Effort;
use crate::chance::Chance;

/// Six functions of one loop; the argument is the percentage of `parse`. Calls are of different
/// length, the same in each run: a loop with the period of the sampling would be sampled in step.
const PROGRAM: &str = r#"
#include <stdlib.h>
volatile unsigned long sink;
static unsigned long state = 1;
static long varied(void) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    return 64 + (long)(state >> 57);
}
#define FUNCTION(name, part) __attribute__((noinline)) void name(long percent) { \
    unsigned long x = sink; \
    for (long i = part * percent * varied() / 128; i > 0; i--) x = x * 6364136223846793005UL + 1; \
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
    /// Pairs of recordings of a kind.
    pairs: usize,
    /// Pairs in a comparison.
    runs: usize,
    /// Comparisons.
    trials: usize,
    /// Rounds of the program.
    rounds: usize,
    /// Rounds of the program of which one function is slower: it has 8,400 samples and a few more
    /// on each side.
    long_rounds: usize,
}

/// A way to record a run.
struct Way {
    name: &'static str,
    rate: &'static str,
    percent: &'static str,
    rounds: usize,
    /// Two other programs keep the CPUs busy meanwhile.
    is_loaded: bool,
}

/// Times the work of the other runs that a stalled one has.
const STALL: usize = 12;
/// Runs of each side that are too few for a function with 3 % of the time.
const FEW: usize = 6;

/// Measures it.
pub(crate) fn run(effort: Effort) -> anyhow::Result<()> {
    let kymo = match std::env::var_os("KYMO") {
        Some(program) => PathBuf::from(program),
        None => crate::cargo::build_release()?,
    };
    let sizes = match effort {
        Effort::Full => {
            Sizes { pairs: 100, runs: 20, trials: 1_000, rounds: 400, long_rounds: 1_950 }
        }
        Effort::Quick => Sizes { pairs: 20, runs: 10, trials: 60, rounds: 100, long_rounds: 400 },
    };
    let temporary = tempfile::tempdir().context("a directory for recordings")?;
    let kept = std::env::var_os("KYMO_BENCH_RECORDINGS").map(PathBuf::from);
    let directory = kept.as_deref().unwrap_or(temporary.path());
    let program = compile(directory)?;
    let (rounds, long) = (sizes.rounds, sizes.long_rounds);
    let way =
        |name, rate, percent, rounds, is_loaded| Way { name, rate, percent, rounds, is_loaded };
    let ways = [
        way("a", "997", "100", rounds, false),
        way("b", "997", "100", rounds, false),
        way("rate", "499", "100", rounds, false),
        way("long", "997", "100", long, false),
        way("slow", "997", "105", long, false),
        way("loaded-a", "997", "100", rounds, true),
        way("loaded-b", "997", "100", rounds, true),
    ];
    let record = |way: &Way, pair: usize| -> anyhow::Result<PathBuf> {
        let path = directory.join(format!("{}-{pair}.data", way.name));
        if path.exists() {
            return Ok(path);
        }
        let mut load = Vec::new();
        if way.is_loaded {
            for _ in 0..2 {
                let mut busy = Command::new(&program);
                load.push(Load(busy.args(["1000000", "100"]).spawn().context("the load")?));
            }
        }
        let mut command = Command::new(&kymo);
        command.args(["record", "-q", "-e", "cpu-clock", "-g", "-F", way.rate, "-o"]).arg(&path);
        command.arg("--").arg(&program).args([&way.rounds.to_string(), way.percent]);
        let status = command.status().context("kymo record")?;
        if !status.success() {
            bail!("kymo record: {status}");
        }
        Ok(path)
    };
    let mut recorded: Vec<Vec<PathBuf>> = vec![Vec::new(); ways.len()];
    for pair in 0..sizes.pairs {
        // In turns, each pair in the other direction.
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if pair % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            recorded[kind].push(record(&ways[kind], pair)?);
        }
    }
    let stalled =
        Way { name: "stalled", rounds: rounds * STALL, ..way("", "997", "100", 0, false) };
    let stalled: Vec<PathBuf> =
        (0..sizes.pairs / 10).map(|n| record(&stalled, n)).collect::<Result<_, _>>()?;
    let [a, b, rate, long, slow, loaded_a, loaded_b] = &*recorded else {
        bail!("seven ways of recording")
    };
    // One run in ten of both sides together stalls.
    let stall = |runs: &[PathBuf], from: usize| -> Vec<PathBuf> {
        let mut runs = runs.to_vec();
        for (n, path) in stalled.iter().enumerate().skip(from).step_by(2) {
            runs[n * 10 + from] = path.clone();
        }
        runs
    };
    let (stalled_a, stalled_b) = (stall(a, 0), stall(b, 1));
    println!(
        "{} pairs of recordings of each kind, {} + {} of them in a comparison",
        sizes.pairs, sizes.runs, sizes.runs
    );
    println!(
        "| comparison | trials | any function reported | `parse` reported first | interval of `parse` holds the truth |"
    );
    println!("|---|--:|--:|--:|--:|");
    for (title, before, after, truth) in [
        ("the same program", a, b, 1.0),
        ("the same program on a loaded machine", loaded_a, loaded_b, 1.0),
        ("the same program, one run in twenty does 12 times the work", &stalled_a, &stalled_b, 1.0),
        ("the same program, 997 Hz against 499 Hz", a, rate, 1.0),
        ("`parse` 5 % slower", long, slow, 1.05),
    ] {
        let mut tally = Tally::default();
        for trial in 0..sizes.trials {
            let sides = sides(&sizes, (before, after), sizes.runs, (trial, truth == 1.0));
            tally.add(&compare(&kymo, &sides, &[])?, truth);
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
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    for trial in 0..sizes.trials / 4 {
        let sides = sides(&sizes, (a, b), FEW, (trial, true));
        let value = compare(&kymo, &sides, &["--gate", "self:emit < +5%"])?;
        let outcome = value["gates"][0]["outcome"].as_str().unwrap_or("none").to_owned();
        *outcomes.entry(outcome).or_default() += 1;
    }
    let words = outcomes.iter().map(|(outcome, n)| format!("{outcome} {n}"));
    println!(
        "\nGate `self:emit < +5%` on {FEW} + {FEW} runs (about 50 samples a side in 2.3 % of the time): {}",
        words.collect::<Vec<_>>().join(", ")
    );
    Ok(())
}

/// A program in the background, which ends with this.
struct Load(std::process::Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Draws the pairs of a comparison. Of alike recordings, which one is "before" is a matter of
/// chance.
fn sides(
    sizes: &Sizes,
    (before, after): (&[PathBuf], &[PathBuf]),
    runs: usize,
    (trial, is_alike): (usize, bool),
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut chance = Chance::of_round(37, trial as u64);
    let mut pairs: Vec<usize> = (0..sizes.pairs).collect();
    let mut sides = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let pair = pairs.swap_remove(chance.between(0, pairs.len() as u64 - 1) as usize);
        let (mut one, mut two) = (&before[pair], &after[pair]);
        if is_alike && chance.between(0, 1) == 1 {
            (one, two) = (two, one);
        }
        sides.0.push(one.clone());
        sides.1.push(two.clone());
    }
    sides
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

fn compare(
    kymo: &Path,
    (before, after): &(Vec<PathBuf>, Vec<PathBuf>),
    options: &[&str],
) -> anyhow::Result<Value> {
    let mut command = Command::new(kymo);
    command.args(["diff", "--json"]).args(options);
    command.arg("--before").args(before).arg("--after").args(after);
    let output = command.output().context("kymo diff")?;
    // 4 and 5 are outcomes of gates.
    if !matches!(output.status.code(), Some(0 | 4 | 5)) {
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
        let quantity = &value["measures"][0]["quantity"];
        let rows = value["changes"].as_array().map_or(&[][..], |rows| rows);
        let mut rows = rows.iter().filter(|row| row["quantity"] == *quantity);
        let is_change = |row: &Value| {
            let verdict = row["verdict"].as_str().unwrap_or_default();
            ["more", "less", "new", "vanished"].contains(&verdict)
        };
        let is_own = |row: &&Value| row["part"] == "self";
        let is_parse = |row: &Value| row["function"] == "parse";
        self.trials += 1;
        self.alarms += usize::from(rows.clone().any(is_change));
        let first = rows.clone().find(is_own);
        let named_first = first.is_some_and(|row| is_parse(row) && row["verdict"] == "more");
        self.first += usize::from(named_first);
        let own = rows.find(|row| is_own(row) && is_parse(row));
        let covers = own.is_some_and(|own| {
            let end = |name: &str| own[name].as_f64();
            end("low").is_some_and(|low| low <= truth)
                && end("high").is_some_and(|high| truth <= high)
        });
        self.covered += usize::from(covers);
    }
}
