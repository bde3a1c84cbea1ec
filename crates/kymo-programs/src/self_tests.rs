//! `test:` and `bench:` probes of a program: each is run by itself, and judged or measured.

use std::io;
use std::time::{Duration, Instant};

use kymo_kernel::bpf::{BpfProgram, ProgramInfo, enable_run_time};

use crate::actions::ProgramSinks;
use crate::error::ProgramError;
use crate::output::{BenchmarkResult, ProgramOutput, TestResult};
use crate::running::{ProgramMode, RunningProgram};

/// Time that a benchmark's program runs for, and the longest until then.
const ENOUGH: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(1);

impl RunningProgram {
    /// Runs the `test:` or `bench:` probes and prints their results; whether all succeeded.
    ///
    /// # Errors
    /// If the kernel does not run a program, or the output cannot be written.
    pub fn run_tests(
        &mut self,
        mode: ProgramMode,
        sinks: &mut ProgramSinks<'_>,
    ) -> Result<bool, ProgramError> {
        // What BEGIN put out is not of a test.
        self.take_output()?;
        let tests = std::mem::take(&mut self.tests);
        let form = self.actions.form;
        if mode == ProgramMode::Tests {
            let mut results = Vec::new();
            for (name, index) in &tests {
                results.push(self.test(name, *index)?);
            }
            ProgramOutput { form, sink: sinks.output }.test_results(&results)?;
            return Ok(results.iter().all(|result| result.has_passed));
        }
        let _measured = enable_run_time()?;
        let (mut results, mut all) = (Vec::new(), true);
        for (name, index) in &tests {
            match self.benchmark(name, *index)? {
                Some(result) => results.push(result),
                None => {
                    all = false;
                    writeln!(sinks.diagnostics, "ERROR: Benchmark '{name}' failed.")?;
                }
            }
        }
        ProgramOutput { form, sink: sinks.output }.benchmark_results(&results)?;
        Ok(all)
    }

    /// Handles all records; what they print. Whether the program reported no error.
    fn take_output(&mut self) -> io::Result<(Vec<u8>, bool)> {
        let (mut output, mut diagnostics) = (Vec::new(), Vec::new());
        let mut sinks =
            ProgramSinks { output: &mut output, diagnostics: &mut diagnostics, maps: None };
        self.actions.errors = 0;
        while self.read_ring(&mut sinks)? > 0 && self.actions.exit.is_none() {}
        let is_fine = self.actions.errors == 0 && self.actions.exit.take().unwrap_or(0) == 0;
        output.append(&mut diagnostics);
        Ok((output, is_fine))
    }

    fn test(&mut self, name: &str, index: usize) -> Result<TestResult, ProgramError> {
        let start = Instant::now();
        let program = self.loaded.get(index).map(|(_, program)| program);
        let returned = program.map_or(Ok(0), BpfProgram::run_once)?;
        let duration = start.elapsed();
        let (output, is_fine) = self.take_output()?;
        let has_passed = is_fine && returned == 0;
        Ok(TestResult { name: name.to_owned(), duration, has_passed, output })
    }

    /// Runs a program until it took long enough; `None` if it reports an error.
    fn benchmark(
        &mut self,
        name: &str,
        index: usize,
    ) -> Result<Option<BenchmarkResult>, ProgramError> {
        let start = Instant::now();
        let mut batch = 1;
        loop {
            let Some((_, program)) = self.loaded.get(index) else { return Ok(None) };
            for _ in 0..batch {
                program.run_once()?;
            }
            let info = ProgramInfo::of(program)?;
            if !self.take_output()?.1 {
                return Ok(None);
            }
            let is_enough = u128::from(info.run_time_ns) >= ENOUGH.as_nanos();
            if is_enough || start.elapsed() > LONGEST {
                let runs = info.run_count.max(1);
                let average = info.run_time_ns / runs;
                return Ok(Some(BenchmarkResult { name: name.to_owned(), average, runs }));
            }
            batch = (batch * 2).min(1000);
        }
    }
}
