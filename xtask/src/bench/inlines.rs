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
use super::rows::{Bench, Each, Row, megabytes, peak_row, seconds, time_row};

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
        let (first, second) = (|| kymo(Path::new("off")), || kymo(&cache));
        // Fills the cache.
        cost(second())?;
        let perf = kymo_testkit::peer("perf");
        let no_inline = [&REPORT[..], &["--no-inline"]].concat();
        let plain = || self.perf_with(&no_inline);
        let newest_plain = || self.placed(perf.command(), &no_inline);
        let newest_plain: &dyn Fn() -> Command = &newest_plain;
        let newest_plain = perf.is_newest().then_some(newest_plain);
        let warm = self.costs(3, newest_plain, &plain, &first)?;
        let again = interleaved(self.rounds(3), &[&second])?;
        let files = [path.as_path(), &program(self.dir())?];
        let mut commands: Vec<&dyn Fn() -> Command> = vec![&plain, &first];
        commands.extend(newest_plain.filter(|_| warm.newest.is_some()));
        let cold = cold(self.rounds(3), &files, &commands)?;
        let ([installed, kymo, newest @ ..], [again]) = (cold.as_slice(), again.as_slice()) else {
            bail!("each command has its cost");
        };
        let cold = Each { newest: newest.first().copied(), installed: *installed, kymo: *kymo };
        let what = format!("`report` with inlined functions, {} DWARF stacks", recording.samples);
        let within = |command: Command| cost_within(LIMIT, &command);
        let limited = Each {
            newest: if perf.is_newest() {
                Some(within(self.placed(perf.command(), &REPORT))?)
            } else {
                None
            },
            installed: within(self.perf_with(&REPORT))?,
            kymo: Some(warm.kymo),
        };
        let mut rows = with_inlines(what, &limited);
        rows.push(Row {
            what: "the same, second run with what kymo keeps on disk".into(),
            kymo: seconds(again.time.as_secs_f64()),
            verdict: format!("{:.2} of the first", ratio(again, &warm.kymo)),
            ..Row::default()
        });
        let with = |what: &str| format!("the same, perf without inlined functions{what}");
        rows.push(time_row(with(""), &warm, "faster"));
        rows.push(peak_row(&with(", peak memory"), &warm));
        let dropped = ", cold page cache (recording and program dropped by posix_fadvise)";
        rows.push(time_row(with(dropped), &cold, "faster"));
        Ok(rows)
    }
}

fn ratio(a: &Cost, b: &Cost) -> f64 {
    a.time.as_secs_f64() / b.time.as_secs_f64()
}

/// Rows of what each took; nothing: it was stopped.
fn with_inlines(what: String, costs: &Each<Option<Cost>>) -> Vec<Row> {
    let limit = f64::from(LIMIT);
    // Of what was stopped the time is a lower bound.
    let times = costs.map(|c| c.map_or(limit, |c| c.time.as_secs_f64()));
    let shown = costs.map(|c| match c {
        Some(c) => seconds(c.time.as_secs_f64()),
        None => format!("stopped after {LIMIT} s"),
    });
    let verdict = format!("{} as fast (goal: 30×, least 10×)", times.times());
    let peaks = costs.map(|c| c.map_or_else(String::new, |c| megabytes(c.peak)));
    vec![
        shown.row(what, String::clone, verdict),
        peaks.row("the same, peak memory".into(), String::clone, String::new()),
    ]
}
