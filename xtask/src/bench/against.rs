//! `cargo xtask bench --against REV`: the program of another revision beside this one, in
//! turns on the same inputs; the section of BENCHMARKS.md about it. Nothing is to become
//! slower: what is past three percent is marked.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use kymo_testkit::Lttng;

use super::inputs::Inputs;
use super::measure::{Cost, cost, interleaved, output};
use super::page::{aligned, with_section};
use super::rows::{megabytes, seconds};
use super::{Effort, ctf, dwarf};

/// Start of the section's heading; the revision follows.
pub(crate) const HEAD: &str = "## Against ";

/// Ratio up to which differences count as noise.
const TOLERANCE: f64 = 1.03;

/// A command that both programs run.
struct Comparison {
    what: String,
    args: Vec<String>,
    rounds: usize,
    /// Whether `KYMO_CACHE` is off: results stored by an earlier run do not count.
    cold: bool,
}

/// Builds, measures, prints, and unless it is quick writes the section.
pub(crate) fn run(effort: Effort, revision: &str) -> anyhow::Result<()> {
    let old = build(revision)?;
    let new = crate::cargo::build_release()?;
    let inputs = Inputs::prepare(effort)?;
    let mut rows = vec![["what", revision, "now", "ratio"].map(str::to_owned)];
    for comparison in comparisons(effort, &inputs, &new)? {
        let command = |program: &Path| {
            let mut command = Command::new(program);
            command.args(&comparison.args).current_dir(&inputs.dir);
            if comparison.cold {
                command.env("KYMO_CACHE", "off");
            }
            command
        };
        let (before, now) = (|| command(&old), || command(&new));
        // Reads program and input from the disk once before the measured runs.
        cost(before())?;
        cost(now())?;
        let rounds = if effort == Effort::Full { comparison.rounds } else { 1 };
        let costs = interleaved(rounds, &[&before, &now])?;
        let [before, now] = costs.as_slice() else { bail!("two commands give two costs") };
        rows.extend(lines(&comparison.what, before, now));
        println!(
            "{}",
            rows[rows.len() - 2..].iter().map(|r| r.join("  ")).collect::<Vec<_>>().join("\n")
        );
    }
    let section = format!(
        "{HEAD}{revision}\n\nBoth programs in turns on the same inputs (`cargo xtask bench \
         --against {revision}`); medians of wall clock, largest resident set. A ratio below 1 \
         is a gain.\n\n{}",
        aligned(&rows)
    );
    println!("\n{section}");
    if effort == Effort::Full {
        let path = crate::root().join("BENCHMARKS.md");
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        std::fs::write(&path, with_section(&page, HEAD, &section))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The release program of a revision, built in a work tree of its own and kept under
/// `target/against`.
fn build(revision: &str) -> anyhow::Result<PathBuf> {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.args(args).current_dir(crate::root());
        output(git)
    };
    let commit = git(&["rev-parse", "--verify", &format!("{revision}^{{commit}}")])?;
    let commit = commit.trim();
    let directory = crate::target().join("against").join(commit);
    let kept = directory.join("kymo");
    if kept.is_file() {
        return Ok(kept);
    }
    std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let source = directory.join("source");
    let path = source.to_str().context("the target directory's name is not UTF-8")?;
    if !source.join("Cargo.toml").is_file() {
        // Of an earlier run that was stopped.
        git(&["worktree", "prune"])?;
        git(&["worktree", "add", "--force", "--detach", path, commit])?;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--bin", "kymo"])
        .arg("--target-dir")
        .arg(directory.join("target"))
        .current_dir(&source);
    let messages = crate::cargo::messages_of(cargo)?;
    let mut programs = messages.iter().filter_map(|message| message["executable"].as_str());
    let built = programs.next_back().context("cargo named no program")?;
    std::fs::copy(built, &kept).with_context(|| kept.display().to_string())?;
    git(&["worktree", "remove", "--force", path])?;
    std::fs::remove_dir_all(directory.join("target")).context("the other target directory")?;
    Ok(kept)
}

/// Everything that is compared; makes the inputs that are missing.
fn comparisons(effort: Effort, inputs: &Inputs, kymo: &Path) -> anyhow::Result<Vec<Comparison>> {
    let full = effort == Effort::Full;
    let dir = &inputs.dir;
    dwarf::recording(dir, effort)?;
    let round_trips = if full { "250000" } else { "25000" };
    let trace = dir.join("against.dat");
    if !trace.is_file() {
        let mut record = Command::new(kymo);
        record.args(["trace", "-m", "64M", "-e", "raw_syscalls:*", "-o"]).arg(&trace).args([
            "--",
            "perf",
            "bench",
            "sched",
            "pipe",
            "-l",
            round_trips,
        ]);
        output(record)?;
    }
    let programs = dir.join("against-ctf");
    if !programs.is_dir() {
        let lttng = Lttng::start();
        let program = lttng.program();
        ctf::record(&lttng, &program, &programs, if full { 5_000_000 } else { 200_000 });
    }
    let pipe = if full { "100000" } else { "10000" };
    let of = |what: &str, rounds: usize, args: &str| Comparison {
        what: what.to_owned(),
        args: args.split(' ').map(str::to_owned).collect(),
        rounds,
        cold: true,
    };
    let load = format!("taskset -c 0 perf bench sched pipe -l {pipe}");
    Ok(vec![
        of("`script` of perf.data", 7, "script -i syscalls.data"),
        of("`script --json` of perf.data", 3, "script --json -i syscalls.data"),
        of("`script` of trace.dat", 7, "script -i against.dat"),
        of("`script --json` of trace.dat", 3, "script --json -i against.dat"),
        of("`script` of CTF", 7, "script against-ctf"),
        of("`report` of perf.data, tracepoints", 7, "report --stdio -i syscalls.data"),
        of("`report` of trace.dat", 7, "report --stdio -i against.dat"),
        of("`report` of CTF", 7, "report --stdio -i against-ctf"),
        of("`report -g`, frame pointers", 5, "report --stdio -g -i stacks.data"),
        of(
            "`report -g --no-inline`, DWARF stacks",
            5,
            "report --stdio --no-inline -g --no-children -i dwarf.data",
        ),
        of("`report -g`, inlined functions", 5, "report --stdio -g --no-children -i dwarf.data"),
        of(
            "`record -e 'raw_syscalls:*'`",
            7,
            &format!("record -q -e raw_syscalls:* -o against-record.data -- {load}"),
        ),
        of(
            "`trace -o -e 'raw_syscalls:*'`",
            7,
            &format!("trace -f -e raw_syscalls:* -o against-trace.dat -- {load}"),
        ),
        of("`stat true`", 25, "stat true"),
        of("start-up (`--version`)", 25, "--version"),
    ])
}

fn lines(what: &str, before: &Cost, now: &Cost) -> [[String; 4]; 2] {
    let ratio = |a: f64, b: f64| {
        let ratio = if a > 0.0 { b / a } else { 1.0 };
        let mark = if ratio > TOLERANCE { " **more**" } else { "" };
        format!("{ratio:.2}{mark}")
    };
    let (old, new) = (before.time.as_secs_f64(), now.time.as_secs_f64());
    [
        [what.to_owned(), seconds(old), seconds(new), ratio(old, new)],
        [
            "the same, peak memory".to_owned(),
            megabytes(before.peak),
            megabytes(now.peak),
            ratio(before.peak as f64, now.peak as f64),
        ],
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Cost, lines};

    #[test]
    fn what_became_slower_is_marked() {
        let cost = |ms, peak| Cost { time: Duration::from_millis(ms), peak };
        let [time, memory] = lines("x", &cost(1000, 10_000_000), &cost(1050, 9_000_000));
        assert_eq!(time, ["x", "1.00 s", "1.05 s", "1.05 **more**"]);
        assert_eq!(memory, ["the same, peak memory", "10.0 MB", "9.0 MB", "0.90"]);
    }
}
