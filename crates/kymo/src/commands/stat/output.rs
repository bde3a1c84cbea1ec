//! Printing counts while they come: to standard error, a file or a descriptor.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use kymo_kernel::calendar::local_time;
use kymo_kernel::descriptors::append_to;
use kymo_kernel::output_file::{self, SHARED};
use kymo_record::count::{Count, CountReading, CountResult, CountSink};
use kymo_view::Ledger;
use kymo_view::counts::{
    CommandTimes, CountFormat, CountPrinter, CountStyle, ResultSummary, RunTimes,
};

use crate::exit;

/// Target of the output.
#[derive(Clone, Debug)]
pub(super) enum OutputTarget {
    Stderr,
    File { path: PathBuf, append: bool },
    Descriptor(u32),
}

/// Options of the output.
#[derive(Debug)]
pub(super) struct OutputOptions {
    pub(super) target: OutputTarget,
    /// Target as named after "Performance counter stats for".
    pub(super) title: String,
    pub(super) quiet: bool,
    /// The time of each run is printed.
    pub(super) table: bool,
    pub(super) announce_runs: bool,
    /// Each counter is printed as it is read.
    pub(super) raw_counters: bool,
    pub(super) scripts: RunScripts,
    /// The screen is cleared before each interval.
    pub(super) clears: bool,
}

/// Shell commands that run before and after each run of the command.
#[derive(Clone, Debug, Default)]
pub(super) struct RunScripts {
    pub(super) before: Option<String>,
    pub(super) after: Option<String>,
}

/// Runs a script by a shell, to its end.
fn run_script(script: Option<&str>) -> io::Result<()> {
    let Some(script) = script else { return Ok(()) };
    let status = Command::new("sh").arg("-c").arg(script).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("`{script}` ended with {status}")));
    }
    Ok(())
}

/// Output of one `stat`.
pub(super) struct CountOutput {
    options: OutputOptions,
    printer: CountPrinter,
    is_text: bool,
    out: Box<dyn Write>,
}

impl CountOutput {
    pub(super) fn open(options: OutputOptions, style: CountStyle) -> anyhow::Result<CountOutput> {
        let out = if options.quiet {
            Box::new(io::sink())
        } else {
            open_target(&options.target, style.format == CountFormat::Json)?
        };
        let is_text = matches!(style.format, CountFormat::Text { .. });
        Ok(CountOutput { options, printer: CountPrinter::new(style), is_text, out })
    }

    /// Ends the result and prints the ledger below it.
    pub(super) fn finish(mut self, ledger: &Ledger) -> anyhow::Result<()> {
        self.out.flush().context("cannot write the result")?;
        let mut err = crate::streams::stderr();
        err.write_all(self.notes(ledger).as_bytes())?;
        Ok(err.flush()?)
    }

    /// The ledger, of counts for programs as an object; nothing where lines for programs go to the same stream.
    fn notes(&self, ledger: &Ledger) -> String {
        match self.options.target {
            OutputTarget::Stderr if !self.is_text && !self.options.quiet => String::new(),
            _ if !self.is_text && ledger.is_empty() => String::new(),
            _ if !self.is_text => exit::object(ledger),
            _ => ledger.to_text(""),
        }
    }
}

impl CountSink for CountOutput {
    fn run_begins(&mut self, number: u32) -> io::Result<()> {
        if number > 1 {
            run_script(self.options.scripts.after.as_deref())?;
        }
        run_script(self.options.scripts.before.as_deref())?;
        if self.options.announce_runs {
            sayln!("[ kymo stat: executing run #{number} ... ]");
        }
        Ok(())
    }

    fn switched(&mut self, on: bool) -> io::Result<()> {
        sayln!("Events {}", if on { "enabled" } else { "disabled" });
        Ok(())
    }

    fn counter(&mut self, name: &str, count: Option<Count>) -> io::Result<()> {
        if !self.options.raw_counters {
            return Ok(());
        }
        match count {
            Some(c) => sayln!("{name}: {} {} {}", c.value, c.enabled, c.running),
            None => sayln!("{name}: not supported"),
        }
        Ok(())
    }

    fn interval(&mut self, reading: &CountReading) -> io::Result<()> {
        if self.options.clears {
            self.out.flush()?;
            match self.options.target {
                OutputTarget::Stderr => crate::streams::control_stderr(crate::streams::CLEAR)?,
                _ => self.out.write_all(crate::streams::CLEAR.as_bytes())?,
            }
        }
        let text = self.printer.interval(&reading.rows, reading.elapsed);
        self.out.write_all(text.as_bytes())
    }

    fn result(&mut self, result: &CountResult) -> io::Result<()> {
        run_script(self.options.scripts.after.as_deref())?;
        let runs = result.repeated.as_ref().map(|r| RunTimes {
            runs: r.runs,
            mean: r.elapsed.mean(),
            error: r.elapsed.error(),
            percent: r.elapsed.percent(),
            table: if self.options.table { &r.times } else { &[] },
        });
        let command = result.usage.map(|u| CommandTimes { user: u.user, system: u.system });
        let title = &self.options.title;
        let summary = ResultSummary { title, elapsed: result.elapsed, command, runs };
        let text = self.printer.result(&result.rows, &summary);
        self.out.write_all(text.as_bytes())
    }
}

/// Opens the output; a file begins with the time, unless all its lines are `json`.
fn open_target(target: &OutputTarget, json: bool) -> anyhow::Result<Box<dyn Write>> {
    match target {
        OutputTarget::Stderr => Ok(Box::new(crate::streams::stderr())),
        OutputTarget::File { path, append } => {
            let file = if *append {
                output_file::append(path, SHARED)
            } else {
                output_file::open(path, SHARED)
            };
            let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
            if !json {
                let begin = format!("# started on {}\n\n", local_time());
                file.write_all(begin.as_bytes()).context("cannot write the result")?;
            }
            Ok(Box::new(file))
        }
        OutputTarget::Descriptor(fd) => {
            let file = append_to(*fd)
                .with_context(|| format!("descriptor {fd} of --log-fd is not open for writing"))?;
            Ok(Box::new(file))
        }
    }
}
