//! `kymo probe bench`: what one hit of each kind of probe costs on this machine.
//!
//! `program.rs` writes the program that is measured, `rows.rs` says which kinds of
//! instructions, `user.rs` and `kernel.rs` measure them, `print.rs` draws.

mod kernel;
mod print;
mod program;
mod rows;
mod user;

use std::process::ExitCode;

use anyhow::bail;
use kymo_debuginfo::probe::glob_match;
use kymo_kernel::ftrace::Instance;
use kymo_kernel::probe_events::ProbeFile;
use kymo_kernel::process::{Signal, Signals, die_by};
use kymo_kernel::tracefs::Tracefs;

use crate::commands::tracing;

/// Flags of `kymo probe bench`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Measured is a program of its own that calls two functions, one with the probe and one
without, in turn; for the kernel's probes, system calls with the probe on and off. A
row is the median of the differences, the spread what lies between the lowest and the
highest tenth. The probe's event is written into a trace ring, as when it is used.
Everything that is added is removed again, also after Ctrl-C; what a SIGKILL leaves,
the next start of kymo removes. debug.kprobes-optimization is changed meanwhile and
put back.")]
pub(super) struct BenchArgs {
    /// Only these rows, by glob ('uprobe*', '*ret*')
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// Pairs of measurements for each row
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pairs: u32,
    /// One JSON object a row
    #[arg(long)]
    json: bool,
}

/// What came of a row.
#[derive(Clone, Debug, PartialEq)]
enum Cost {
    /// Nanoseconds for each hit: median, lowest and highest tenth.
    Measured { median: f64, low: f64, high: f64 },
    /// There is none, because…
    Missing(String),
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    name: String,
    cost: Cost,
}

/// What measuring needs.
struct Bench<'a> {
    tracefs: &'a Tracefs,
    /// Where events are recorded.
    instance: Instance,
    signals: Signals,
    pairs: u32,
    wanted: &'a [String],
    rows: Vec<Row>,
}

/// Why there is no row.
#[derive(Debug)]
enum Stop {
    /// Asked to end.
    Signal(Signal),
    /// It cannot be measured here.
    Missing(String),
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Stop {
    fn from(e: E) -> Stop {
        Stop::Missing(format!("{:#}", anyhow::Error::from(e)))
    }
}

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the program that is measured is written for x86-64 only");
    }
    let signals = Signals::listen(&[Signal::Int, Signal::Term, Signal::Hup])?;
    let tracefs = tracing::open()?;
    let mut bench = Bench::new(&tracefs, signals, args.pairs, &args.rows)?;
    let result = kernel::rows(&mut bench).and_then(|()| user::rows(&mut bench));
    let Bench { instance, signals, rows, .. } = bench;
    instance.remove()?;
    drop(signals);
    match result {
        Err(Stop::Signal(signal)) => die_by(signal),
        Err(Stop::Missing(why)) => bail!(why),
        Ok(()) if rows.is_empty() => bail!("no row is called so; without a name all are measured"),
        Ok(()) => {}
    }
    match args.json {
        true => print::json(&rows),
        false => print::table(&rows, args.pairs),
    }
    Ok(ExitCode::SUCCESS)
}

/// Nanoseconds that a hit costs here, now: of the kernel's probes, and of programs' on
/// an instruction that is emulated or single-stepped. `None` if it cannot be told.
pub(super) fn cost_now(tracefs: &Tracefs, file: ProbeFile, ret: bool, dear: bool) -> Option<f64> {
    const FEW: u32 = 5;
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let signals = Signals::listen(&[]).ok()?;
    let bench = Bench::new(tracefs, signals, FEW, &[]).ok()?;
    let each = match file {
        ProbeFile::Kernel => kernel::entry(&bench, ret),
        ProbeFile::User => user::one(&bench, ret, dear),
    };
    match summary(each.ok()?) {
        Cost::Measured { median, .. } => Some(median),
        Cost::Missing(_) => None,
    }
}

impl<'a> Bench<'a> {
    fn new(
        tracefs: &'a Tracefs,
        signals: Signals,
        pairs: u32,
        wanted: &'a [String],
    ) -> anyhow::Result<Bench<'a>> {
        let instance = Instance::create(tracefs, "probe-bench")?;
        instance.set_buffer_size_kb(256)?;
        instance.set_tracing(true)?;
        Ok(Bench { tracefs, instance, signals, pairs, wanted, rows: Vec::new() })
    }

    /// Measures a row, if it is wanted. What cannot be measured is a row, too.
    fn row(
        &mut self,
        name: &str,
        measure: impl FnOnce(&Bench<'_>) -> Result<Vec<f64>, Stop>,
    ) -> Result<(), Stop> {
        if !self.wants(name) {
            return Ok(());
        }
        let cost = match measure(self) {
            Ok(each) => summary(each),
            Err(Stop::Missing(why)) => Cost::Missing(why),
            Err(stop) => return Err(stop),
        };
        self.rows.push(Row { name: name.to_owned(), cost });
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|w| glob_match(w, name))
    }

    /// Ends the measuring if that was asked for.
    fn check(&self) -> Result<(), Stop> {
        match self.signals.next()? {
            Some(signal) => Err(Stop::Signal(signal)),
            None => Ok(()),
        }
    }

    /// The group of the events.
    fn group(&self) -> String {
        format!("kymo_bench_{}", std::process::id())
    }
}

fn summary(mut each: Vec<f64>) -> Cost {
    each.sort_by(f64::total_cmp);
    let last = each.len().saturating_sub(1);
    let at = |share: f64| each.get((last as f64 * share).round() as usize).copied();
    match (at(0.5), at(0.1), at(0.9)) {
        (Some(median), Some(low), Some(high)) => Cost::Measured { median, low, high },
        _ => Cost::Missing("nothing was measured".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_with_the_tenths_around_it() {
        let each = (0..=20).rev().map(f64::from).collect();
        assert_eq!(summary(each), Cost::Measured { median: 10.0, low: 2.0, high: 18.0 });
        assert!(matches!(summary(Vec::new()), Cost::Missing(_)));
    }
}
