//! `kymo probe bench`: what one hit of each kind of probe costs on this machine.
//!
//! `program.rs` writes the program that is measured, `rows.rs` says which kinds of
//! instructions, `user.rs` and `kernel.rs` measure them.

mod kernel;
mod program;
mod rows;
mod user;

use kymo_kernel::ftrace::Instance;
use kymo_kernel::probe_events::ProbeFile;
use kymo_kernel::process::{Signal, Signals};
use kymo_kernel::tracefs::Tracefs;
use kymo_model::glob::glob_match;

/// Cost of a hit, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum HitCost {
    /// Nanoseconds for each hit: median, lowest and highest tenth.
    Measured {
        /// Half of the measurements are below.
        median: f64,
        /// A tenth of them is below.
        low: f64,
        /// A tenth of them is above.
        high: f64,
    },
    /// It cannot be measured here, because…
    Missing(String),
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// Kind of probe.
    pub name: String,
    /// Its cost.
    pub cost: HitCost,
}

/// Options of a bench.
#[derive(Clone, Copy, Debug)]
pub struct BenchOptions<'a> {
    /// Pairs of measurements for each row.
    pub pairs: u32,
    /// Globs of the rows that are measured; all, if there is none.
    pub rows: &'a [String],
}

/// Instruction under a probe, as far as its cost differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbedInstruction {
    /// One that the kernel emulates.
    Emulated,
    /// One that the kernel executes by a single step.
    SingleStepped,
    /// The return of a function.
    Return,
}

/// State of a bench.
struct Bench<'a> {
    tracefs: &'a Tracefs,
    /// Instance that records the events.
    instance: Instance,
    signals: &'a Signals,
    options: BenchOptions<'a>,
    rows: Vec<BenchRow>,
}

/// Reason why a bench, or a row of it, has no result.
#[derive(Debug)]
pub enum BenchStop {
    /// Asked to end.
    Signal(Signal),
    /// It cannot be measured here.
    Missing(String),
}

impl<E: std::error::Error + 'static> From<E> for BenchStop {
    fn from(e: E) -> BenchStop {
        let mut text = e.to_string();
        let mut cause = e.source();
        while let Some(e) = cause {
            text.push_str(&format!(": {e}"));
            cause = e.source();
        }
        BenchStop::Missing(text)
    }
}

/// Measures all rows that are wanted. Signals end it between measurements; whatever was
/// added to the kernel is removed.
pub fn measure(
    tracefs: &Tracefs,
    signals: &Signals,
    options: BenchOptions<'_>,
) -> Result<Vec<BenchRow>, BenchStop> {
    if !cfg!(target_arch = "x86_64") {
        let why = "the measured program is available only for x86-64";
        return Err(BenchStop::Missing(why.to_owned()));
    }
    let mut bench = Bench::new(tracefs, signals, options)?;
    let result = kernel::rows(&mut bench).and_then(|()| user::rows(&mut bench));
    let Bench { instance, rows, .. } = bench;
    instance.remove()?;
    result.map(|()| rows)
}

/// Nanoseconds that a hit costs here, now. `None` if it cannot be measured.
pub fn hit_cost(tracefs: &Tracefs, file: ProbeFile, instruction: ProbedInstruction) -> Option<f64> {
    const FEW: u32 = 5;
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let signals = Signals::listen(&[]).ok()?;
    let bench = Bench::new(tracefs, &signals, BenchOptions { pairs: FEW, rows: &[] }).ok()?;
    let each = match file {
        ProbeFile::Kernel => kernel::entry(&bench, instruction == ProbedInstruction::Return),
        ProbeFile::User => user::one(&bench, instruction),
    };
    match summary(each.ok()?) {
        HitCost::Measured { median, .. } => Some(median),
        HitCost::Missing(_) => None,
    }
}

impl<'a> Bench<'a> {
    fn new(
        tracefs: &'a Tracefs,
        signals: &'a Signals,
        options: BenchOptions<'a>,
    ) -> Result<Bench<'a>, BenchStop> {
        let instance = Instance::create(tracefs, "probe-bench")?;
        instance.set_buffer_size_kb(256)?;
        instance.set_tracing(true)?;
        Ok(Bench { tracefs, instance, signals, options, rows: Vec::new() })
    }

    /// Measures a row, if it is wanted. What cannot be measured is a row, too.
    fn row(
        &mut self,
        name: &str,
        measure: impl FnOnce(&Bench<'_>) -> Result<Vec<f64>, BenchStop>,
    ) -> Result<(), BenchStop> {
        if !self.wants(name) {
            return Ok(());
        }
        let cost = match measure(self) {
            Ok(each) => summary(each),
            Err(BenchStop::Missing(why)) => HitCost::Missing(why),
            Err(stop) => return Err(stop),
        };
        self.rows.push(BenchRow { name: name.to_owned(), cost });
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        let globs = self.options.rows;
        globs.is_empty() || globs.iter().any(|glob| glob_match(glob, name))
    }

    /// Ends the measuring if that was asked for.
    fn check(&self) -> Result<(), BenchStop> {
        match self.signals.next()? {
            Some(signal) => Err(BenchStop::Signal(signal)),
            None => Ok(()),
        }
    }

    /// The group of the events.
    fn group(&self) -> String {
        format!("kymo_bench_{}", std::process::id())
    }
}

fn summary(mut each: Vec<f64>) -> HitCost {
    each.sort_by(f64::total_cmp);
    let last = each.len().saturating_sub(1);
    let at = |share: f64| each.get((last as f64 * share).round() as usize).copied();
    match (at(0.5), at(0.1), at(0.9)) {
        (Some(median), Some(low), Some(high)) => HitCost::Measured { median, low, high },
        _ => HitCost::Missing("nothing was measured".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_with_the_tenths_around_it() {
        let each = (0..=20).rev().map(f64::from).collect();
        assert_eq!(summary(each), HitCost::Measured { median: 10.0, low: 2.0, high: 18.0 });
        assert!(matches!(summary(Vec::new()), HitCost::Missing(_)));
    }
}
