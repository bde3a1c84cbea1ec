//! Results of `test:` and `bench:` probes, as bpftrace prints them.

use std::io::{self, Write};

use super::{OutputForm, ProgramOutput, json};
use crate::self_tests::{BenchmarkResult, TestResult};

impl ProgramOutput<'_> {
    /// Results of tests, and how many passed.
    pub(crate) fn test_results(&mut self, results: &[TestResult]) -> io::Result<()> {
        let out = &mut self.sink;
        if matches!(self.form, OutputForm::Json | OutputForm::OldJson) {
            return results.iter().try_for_each(|result| {
                let mut line = Vec::new();
                json::write_test_result(&mut line, result);
                out.write_all(&line)
            });
        }
        let tests = |count: usize| if count == 1 { "test" } else { "tests" };
        writeln!(out, "[==========] Running {} {}.", results.len(), tests(results.len()))?;
        for result in results {
            writeln!(out, "[ RUN      ] {}", result.name)?;
            let verdict = if result.has_passed { "[       OK ]" } else { "[  FAILED  ]" };
            if !result.has_passed {
                let lines = result.output.split(|b| *b == b'\n').filter(|line| !line.is_empty());
                lines.into_iter().try_for_each(|line| {
                    out.write_all(line)?;
                    out.write_all(b"\n")
                })?;
            }
            writeln!(out, "{verdict} {} ({:?})", result.name, result.duration)?;
        }
        let failed: Vec<&TestResult> = results.iter().filter(|result| !result.has_passed).collect();
        let passed = results.len() - failed.len();
        writeln!(out, "[==========] {} {} ran.", results.len(), tests(results.len()))?;
        writeln!(out, "[  PASSED  ] {passed} {}.", tests(passed))?;
        if !failed.is_empty() {
            writeln!(out, "[  FAILED  ] {} {}, listed below:", failed.len(), tests(failed.len()))?;
            failed.iter().try_for_each(|result| writeln!(out, "[  FAILED  ] {}", result.name))?;
        }
        Ok(())
    }

    /// Results of benchmarks: nanoseconds of a run, and runs.
    pub(crate) fn benchmark_results(&mut self, results: &[BenchmarkResult]) -> io::Result<()> {
        let out = &mut self.sink;
        if matches!(self.form, OutputForm::Json | OutputForm::OldJson) {
            return results.iter().try_for_each(|result| {
                let mut line = Vec::new();
                json::write_benchmark_result(&mut line, result);
                out.write_all(&line)
            });
        }
        const TITLE: &str = "Iterations";
        let name = results.iter().map(|result| result.name.len()).fold(40, usize::max) + 1;
        writeln!(out, "{:<name$}{:<15}{TITLE}", "Benchmark", "Time(ns)")?;
        writeln!(out, "{}", "-".repeat(name + 15 + TITLE.len()))?;
        results.iter().try_for_each(|result| {
            writeln!(out, "{:<name$}{:<15}{}", result.name, result.average, result.runs)
        })
    }
}
