//! Reports of DWARF stacks with inlined functions, of a Rust program with full debugging
//! information: beside perf with them, which takes a minute or more for each ten
//! thousand stacks and is run once, and beside perf without them.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use super::Effort;
use super::dwarf::{COPY, program, record};
use super::inputs;
use super::measure::{Cost, cold, cost, cost_within, interleaved};
use super::rows::{Bench, Row, megabytes, peak_row, seconds, time_row};

/// Seconds after which perf is stopped.
const LIMIT: u32 = 600;
const RECORDING: &str = "dwarf-inlines.data";
const REPORT: [&str; 6] = ["report", "--stdio", "-g", "--no-children", "-i", RECORDING];

impl Bench<'_> {
    /// `report` with inlined functions.
    pub(crate) fn inlines(&self) -> anyhow::Result<Vec<Row>> {
        let (samples, run) = match self.effort() {
            Effort::Full => (25_000, 10),
            Effort::Quick => (500, 1),
        };
        let path = self.dir().join(RECORDING);
        let recording = inputs::kept(&path, samples, || record(self.dir(), &path, COPY, run))?;
        let cache = self.dir().join("lines-cache");
        let kymo = |cache: &Path| {
            let mut command = self.kymo_with(&REPORT);
            command.env("KYMO_CACHE", cache);
            command
        };
        let plain = || {
            let mut command = self.perf_with(&REPORT);
            command.arg("--no-inline");
            command
        };
        let (first, second) = (|| kymo(Path::new("off")), || kymo(&cache));
        // Fills the cache.
        cost(second())?;
        let commands: [&dyn Fn() -> Command; 3] = [&plain, &first, &second];
        let warm = interleaved(self.rounds(3), &commands)?;
        let files = [path.as_path(), &program(self.dir())?];
        let cold = cold(self.rounds(3), &files, &[&plain, &first])?;
        let perf = cost_within(LIMIT, &self.perf_with(&REPORT))?;
        let ([plain, first, second], [cold_plain, cold_first]) = (warm.as_slice(), cold.as_slice())
        else {
            bail!("each command has its cost");
        };
        let what = format!("`report` with inlined functions, {} DWARF stacks", recording.samples);
        let mut rows = with_inlines(what, perf.as_ref(), first);
        rows.push(Row {
            what: "the same, second run with what kymo keeps on disk".into(),
            perf: String::new(),
            kymo: seconds(second.time.as_secs_f64()),
            verdict: format!("{:.2} of the first", ratio(second, first)),
        });
        let with = |what: &str| format!("the same, perf without inlined functions{what}");
        rows.push(time_row(with(""), plain, first, "faster"));
        rows.push(peak_row(&with(", peak memory"), plain, first));
        let dropped = ", cold page cache (recording and program dropped by posix_fadvise)";
        rows.push(time_row(with(dropped), cold_plain, cold_first, "faster"));
        Ok(rows)
    }
}

fn ratio(a: &Cost, b: &Cost) -> f64 {
    a.time.as_secs_f64() / b.time.as_secs_f64()
}

fn with_inlines(what: String, perf: Option<&Cost>, kymo: &Cost) -> Vec<Row> {
    const GOAL: &str = "30×, least 10×";
    const MEMORY: &str = "the same, peak memory";
    if let Some(perf) = perf {
        return vec![time_row(what, perf, kymo, GOAL), peak_row(MEMORY, perf, kymo)];
    }
    let times = f64::from(LIMIT) / kymo.time.as_secs_f64();
    vec![
        Row {
            what,
            perf: format!("stopped after {LIMIT} s"),
            kymo: seconds(kymo.time.as_secs_f64()),
            verdict: format!("more than {times:.0}× as fast (goal: {GOAL})"),
        },
        Row {
            what: MEMORY.into(),
            perf: String::new(),
            kymo: megabytes(kymo.peak),
            verdict: String::new(),
        },
    ]
}
