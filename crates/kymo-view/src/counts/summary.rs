//! Text around the lines of a result: its title, the table of runs, times.

use std::time::Duration;

/// A result besides its rows.
#[derive(Clone, Copy, Debug)]
pub struct ResultSummary<'a> {
    /// Target as named after "Performance counter stats for".
    pub title: &'a str,
    /// Time of the run.
    pub elapsed: Duration,
    /// Resource usage of the command, where it was counted.
    pub command: Option<CommandTimes>,
    /// Times of several runs.
    pub runs: Option<RunTimes<'a>>,
}

/// Processor time of a command.
#[derive(Clone, Copy, Debug)]
pub struct CommandTimes {
    /// In user space.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// Times of several runs, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct RunTimes<'a> {
    /// Number of runs.
    pub runs: u32,
    /// Mean.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Standard error in percent of the mean.
    pub percent: f64,
    /// The time of each run, where a table of them is to be printed.
    pub table: &'a [f64],
}

impl ResultSummary<'_> {
    /// Puts the summary around the lines of the rows.
    pub(super) fn around(&self, body: &str, is_empty: bool) -> String {
        let runs = self.runs.map_or_else(String::new, |r| format!(" ({} runs)", r.runs));
        let title = self.title;
        let mut text = format!("\n Performance counter stats for {title}{runs}:\n\n{body}\n");
        if is_empty {
            text.truncate(text.len() - 1);
        }
        if let Some(runs) = &self.runs {
            text.push_str(&runs.table());
        }
        text.push_str(&self.footer());
        text
    }

    /// The times below the counts.
    fn footer(&self) -> String {
        if let Some(RunTimes { mean, error, percent, .. }) = self.runs {
            let digits = digits(error);
            return format!(
                " {mean:17.digits$} +- {error:.digits$} seconds time elapsed  \
                 ( +-{percent:6.2}% )\n\n"
            );
        }
        let mut text = format!(" {:17.9} seconds time elapsed\n\n", self.elapsed.as_secs_f64());
        if let Some(command) = self.command {
            text.push_str(&format!(
                " {:17.9} seconds user\n {:17.9} seconds sys\n\n\n",
                command.user.as_secs_f64(),
                command.system.as_secs_f64()
            ));
        }
        text
    }
}

impl RunTimes<'_> {
    /// The time of each run with its distance from the mean; nothing without a table.
    fn table(&self) -> String {
        if self.table.is_empty() {
            return String::new();
        }
        let digits = digits(self.error);
        let mut text = String::from("          # Table of individual measurements:\n");
        for run in self.table {
            let distance = run - self.mean;
            let length = ((100.0 * distance / run) as i64 / 5).unsigned_abs() as usize;
            let bar = "#".repeat(1 + length);
            text.push_str(&format!(" {run:17.digits$} ({distance:+.digits$}) {bar}\n"));
        }
        text + "\n          # Final result:\n"
    }
}

/// Number of decimals that shows two digits of the error.
fn digits(error: f64) -> usize {
    let digits = if error > 0.0 && error < 1.0 { (-error.log10()).ceil() as usize + 2 } else { 2 };
    digits.min(12)
}
