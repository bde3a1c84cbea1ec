//! `cargo xtask perf-tests`: the shell tests of Debian's newest perf with that perf and with kymo
//! in its place ([`kymo_testkit::PerfTests`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use globset::Glob;
use kymo_testkit::{PerfProgram, PerfTestOutcome, PerfTests, TracingState};

use crate::cargo;

pub(crate) const USAGE: &str = "\
\x20 perf-tests [--filter GLOB] [--program KYMO]
                      the newest perf's shell tests with perf and with kymo in its place (as root);
                      GLOB is of names without .sh. Results of perf and the outputs of kymo are
                      kept in target/perf-tests
";

/// Time for one test.
const LIMIT: Duration = Duration::from_secs(180);
/// Tests of features that kymo leaves out: a daemon of recordings, loading shared objects, decoding
/// Intel PT, an embedded Python or Perl.
const EXCUSED: [&str; 9] = [
    "daemon.sh",
    "script_dlfilter.sh",
    "test_intel_pt.sh",
    "python-use.sh",
    "script_python.sh",
    "script_perl.sh",
    "script.sh",
    "test_task_analyzer.sh",
    "jitdump-python.sh",
];

pub(crate) fn main(args: &[&str]) -> anyhow::Result<()> {
    let (mut filter, mut program) = ("*", None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value\n\n{USAGE}"));
        match *arg {
            "--filter" => filter = *value()?,
            "--program" => program = Some(PathBuf::from(value()?)),
            other => bail!("perf-tests has no option {other}\n\n{USAGE}"),
        }
    }
    let filter = Glob::new(filter).context("--filter")?.compile_matcher();
    let kymo = program.map_or_else(cargo::build_release, Ok)?;
    let kymo = kymo.canonicalize().with_context(|| kymo.display().to_string())?;
    let tests = PerfTests::new(&kymo)?.context("no perf of `cargo xtask peers` here")?;
    let kept = crate::target().join("perf-tests");
    std::fs::create_dir_all(&kept).with_context(|| kept.display().to_string())?;
    let state = TracingState::take();
    let mut known = Known::open(&kept.join("perf"))?;
    let mut rows = Vec::new();
    for name in tests.names()? {
        if !filter.is_match(name.trim_end_matches(".sh")) {
            continue;
        }
        if !known.passes(&tests, &name)? {
            continue;
        }
        let start = Instant::now();
        let outcome = tests.run(&name, PerfProgram::Kymo, LIMIT)?;
        let log = kept.join(&name).with_extension("log");
        std::fs::write(&log, &outcome.text).with_context(|| log.display().to_string())?;
        let row = Row { name, outcome, seconds: start.elapsed().as_secs() };
        println!("{}", row.line());
        rows.push(row);
    }
    print!("{}", summary(&rows));
    if let Some(what) = state.left_behind() {
        bail!("tracefs is not as it was: {what}");
    }
    Ok(())
}

/// Statuses of perf, kept in a file with a line for each test.
struct Known {
    path: PathBuf,
    statuses: BTreeMap<String, String>,
}

impl Known {
    fn open(path: &Path) -> anyhow::Result<Known> {
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| path.display().to_string())?,
        };
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let statuses = lines.map(|(name, status)| (name.to_owned(), status.to_owned())).collect();
        Ok(Known { path: path.to_owned(), statuses })
    }

    /// Whether perf passes a test, which is run if this is not known.
    fn passes(&mut self, tests: &PerfTests, name: &str) -> anyhow::Result<bool> {
        if !self.statuses.contains_key(name) {
            let outcome = tests.run(name, PerfProgram::Newest, LIMIT)?;
            self.statuses.insert(name.to_owned(), word(&outcome).to_owned());
            let lines = self.statuses.iter().map(|(name, status)| format!("{name} {status}\n"));
            std::fs::write(&self.path, lines.collect::<String>())
                .with_context(|| self.path.display().to_string())?;
        }
        Ok(self.statuses.get(name).is_some_and(|status| status == "passed"))
    }
}

/// A test that perf passes, run with kymo.
struct Row {
    name: String,
    outcome: PerfTestOutcome,
    seconds: u64,
}

impl Row {
    fn passed(&self) -> bool {
        self.outcome.status == Some(0)
    }

    fn excused(&self) -> bool {
        EXCUSED.contains(&self.name.as_str())
    }

    fn line(&self) -> String {
        let excuse = if self.excused() && !self.passed() { " (not a goal)" } else { "" };
        let word = word(&self.outcome);
        let mut line = format!("{:<45} {word:<8} {:>4} s{excuse}", self.name, self.seconds);
        if !self.passed() {
            let lines: Vec<&str> =
                self.outcome.text.lines().filter(|l| !l.trim().is_empty()).collect();
            for last in &lines[lines.len().saturating_sub(3)..] {
                let last: String = last.chars().filter(|c| !c.is_control()).take(160).collect();
                // Writing into a string does not fail.
                let _ = write!(line, "\n    {last}");
            }
        }
        line
    }
}

fn word(outcome: &PerfTestOutcome) -> &'static str {
    match outcome.status {
        Some(0) => "passed",
        Some(2) => "skipped",
        Some(124 | 137) | None => "time-out",
        Some(_) => "failed",
    }
}

fn summary(rows: &[Row]) -> String {
    let passed = rows.iter().filter(|row| row.passed()).count();
    let excused = rows.iter().filter(|row| row.excused() && !row.passed()).count();
    format!(
        "kymo passes {passed} of the {} tests that perf passes; {excused} of the others are not \
         goals\n",
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_or_out_of_time_has_not_passed() {
        let row = |name: &str, status| Row {
            name: name.to_owned(),
            outcome: PerfTestOutcome { status, text: "reason\n".to_owned() },
            seconds: 1,
        };
        let rows = [
            row("stat.sh", Some(0)),
            row("top.sh", Some(2)),
            row("diff.sh", Some(124)),
            row("daemon.sh", Some(1)),
        ];
        assert!(summary(&rows).starts_with("kymo passes 1 of the 4 tests"), "{}", summary(&rows));
        assert!(summary(&rows).contains("; 1 of the others are not goals"), "{}", summary(&rows));
        assert!(rows[1].line().contains("skipped") && rows[1].line().ends_with("\n    reason"));
        assert!(rows[2].line().contains("time-out"));
        assert!(rows[3].line().contains("(not a goal)"));
    }
}
