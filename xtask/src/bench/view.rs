//! A page of events of the scheduler, system calls and samples: how long it takes to write, in how
//! much memory, and how large it is.

use anyhow::Context as _;

use super::Effort;
use super::inputs::statistics;
use super::measure::{interleaved, output};
use super::rows::{Bench, Row, megabytes, seconds};

impl Bench<'_> {
    /// `kymo view -o`; no peer writes such a page.
    pub(crate) fn view(&self) -> anyhow::Result<Vec<Row>> {
        let path = self.dir().join("view.data");
        let page = self.dir().join("view.html");
        let measured = self.page_of_events(&path, &page);
        for file in [path, page] {
            if let Err(e) = std::fs::remove_file(&file)
                && measured.is_ok()
            {
                return Err(e).with_context(|| file.display().to_string());
            }
        }
        measured
    }

    fn page_of_events(
        &self,
        path: &std::path::Path,
        page: &std::path::Path,
    ) -> anyhow::Result<Vec<Row>> {
        // A round trip makes some 11 events.
        let trips = if self.effort() == Effort::Full { "900000" } else { "9000" };
        let events = "sched:sched_switch,sched:sched_waking,raw_syscalls:*,cpu-clock";
        let mut record = self.kymo_with(&["record", "-q", "-m", "4096", "-e", events, "-g", "-o"]);
        // One CPU switches at each message, and the trace is of known tasks alone.
        record.arg(path).args(["--", "taskset", "-c", "0", "perf", "bench", "sched", "pipe", "-l"]);
        record.arg(trips);
        output(record)?;
        let counted = statistics(path)?;
        let kymo = || {
            let mut view = self.kymo_with(&["view", "--force", "-i", "view.data", "-o"]);
            view.arg("view.html");
            view
        };
        let costs = interleaved(self.rounds(3), &[&kymo])?;
        let cost = costs.first().context("no round")?;
        let size = std::fs::metadata(page).with_context(|| page.display().to_string())?.len();
        let recorded = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
        Ok(vec![Row {
            what: format!(
                "`view -o page.html`, {} events ({} recorded): time, peak memory, size",
                counted.samples,
                megabytes(recorded)
            ),
            kymo: format!(
                "{}, {}, {}",
                seconds(cost.time.as_secs_f64()),
                megabytes(cost.peak),
                megabytes(size)
            ),
            verdict: "goal of 10 M events: 3 s, 300 MB, 80 MB".to_owned(),
            ..Row::default()
        }])
    }
}
