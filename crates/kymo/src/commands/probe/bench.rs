//! `kymo probe bench`: flags, the table with its bars, and JSON lines. The measuring is
//! `kymo-probe`'s.

use std::process::ExitCode;

use anyhow::bail;
use kymo_kernel::process::{Signal, Signals, die_by};
use kymo_kernel::system::SystemRoot;
use kymo_probe::bench::{BenchOptions, BenchRow, BenchStop, HitCost, measure};

use crate::commands::tracing;

/// Flags of `kymo probe bench`.
#[derive(clap::Args)]
#[command(after_long_help = "\
User-space probes are measured with a test program that alternately calls a function with the probe
and one without, kernel probes with system calls with the probe on and off. A row shows the median
of the differences; the spread is the range from the 10th to the 90th percentile. Events are written
to a ring buffer, as in normal use. kymo removes everything it added, also after Ctrl-C; after
SIGKILL, the next start of kymo does. debug.kprobes-optimization is changed during the measurement
and restored.")]
pub(super) struct BenchArgs {
    /// Only rows matching these globs ('uprobe*', '*ret*')
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// Pairs of measurements for each row
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pairs: u32,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])?;
    let tracefs = tracing::open()?;
    let options = BenchOptions { pairs: args.pairs, rows: &args.rows };
    let result = measure(&tracefs, &signals, options);
    drop(signals);
    let rows = match result {
        Ok(rows) => rows,
        Err(BenchStop::Signal(signal)) => die_by(signal),
        Err(BenchStop::Missing(why)) => bail!(why),
    };
    if rows.is_empty() {
        bail!("no such benchmark: {}; without a name all are measured", args.rows.join(", "));
    }
    if args.json {
        json(&rows)
    } else {
        table(&rows, args.pairs)
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns of the longest bar.
const BAR: f64 = 32.0;
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

fn table(rows: &[BenchRow], pairs: u32) {
    let release = SystemRoot::machine().kernel_release().unwrap_or_default();
    outln!(
        "One hit of a probe on Linux {}: median of {pairs} pairs, with the probe minus without\n",
        release.trim()
    );
    let width = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0);
    let width = kymo_model::format_width(width);
    let most = rows.iter().filter_map(median).fold(0.0, f64::max);
    outln!("{:width$}  {:>10}  spread", "", "ns a hit");
    for row in rows {
        match &row.cost {
            HitCost::Missing(why) => {
                outln!("{:width$}  not available: {why}", row.name);
            }
            HitCost::Measured { median, low, high } => {
                let spread = format!("{} … {}", number(*low), number(*high));
                outln!(
                    "{:width$}  {:>10}  {spread:<19}  {}",
                    row.name,
                    number(*median),
                    bar(*median, most)
                );
            }
        }
    }
}

fn json(rows: &[BenchRow]) {
    for row in rows {
        let name = serde_json::Value::from(row.name.as_str());
        match &row.cost {
            HitCost::Missing(why) => {
                let why = serde_json::Value::from(why.as_str());
                outln!("{{\"probe\":{name},\"missing\":{why}}}");
            }
            HitCost::Measured { median, low, high } => outln!(
                "{{\"probe\":{name},\"ns\":{median:.2},\"low\":{low:.2},\"high\":{high:.2}}}"
            ),
        }
    }
}

fn median(row: &BenchRow) -> Option<f64> {
    if let HitCost::Measured { median, .. } = row.cost { Some(median) } else { None }
}

/// Tenths only where they mean something.
fn number(ns: f64) -> String {
    if ns.abs() < 10.0 { format!("{ns:.1}") } else { format!("{ns:.0}") }
}

fn bar(value: f64, most: f64) -> String {
    if value <= 0.0 || most <= 0.0 {
        return String::new();
    }
    let eighths = (value / most * BAR * 8.0).round().max(1.0) as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS.get(eighths % 8).unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_proportion() {
        assert_eq!(bar(100.0, 100.0), "█".repeat(32));
        assert_eq!(bar(50.0, 100.0), "█".repeat(16));
        assert_eq!(bar(0.1, 100.0), "▏");
        assert_eq!(bar(-3.0, 100.0), "");
        assert_eq!((number(1.26), number(1260.4)), ("1.3".to_owned(), "1260".to_owned()));
    }
}
