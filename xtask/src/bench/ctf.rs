//! Speed of reading a CTF trace of LTTng's tracer for programs, compared with babeltrace2.

use std::path::Path;
use std::process::Command;

use anyhow::bail;
use kymo_testkit::{Lttng, LttngSession};

use super::Effort;
use super::measure::{Cost, interleaved};
use super::rows::{Bench, Each, Row, time_row};

impl Bench<'_> {
    /// `script` of twenty million events of two numbers each, with three contexts.
    pub(crate) fn ctf(&self) -> anyhow::Result<Vec<Row>> {
        let events = if self.effort() == Effort::Full { 20_000_000 } else { 2_000_000 };
        let (large, small) = (self.dir().join("ctf-large"), self.dir().join("ctf-small"));
        let lttng = Lttng::start();
        let program = lttng.program();
        record(&lttng, &program, &large, events);
        record(&lttng, &program, &small, events / 10);
        drop(lttng);
        let peer = kymo_testkit::peer("babeltrace2");
        let newest = || self.placed(peer.command(), &["ctf-large"]);
        let newest: &dyn Fn() -> Command = &newest;
        let costs = self.costs(
            3,
            peer.is_newest().then_some(newest),
            &|| self.placed(Command::new("babeltrace2"), &["ctf-large"]),
            &|| self.kymo_with(&["script", "ctf-large"]),
        )?;
        let report = || self.kymo_with(&["report", "ctf-large"]);
        let less = || self.kymo_with(&["script", "ctf-small"]);
        let ours = interleaved(self.rounds(3), &[&report, &less])?;
        let [report, less] = ours.as_slice() else { bail!("two commands give two costs") };
        std::fs::remove_dir_all(&large)?;
        std::fs::remove_dir_all(&small)?;
        Ok(rows(events, &costs, report, less))
    }
}

fn rows(events: u64, costs: &Each<Cost>, report: &Cost, less: &Cost) -> Vec<Row> {
    let seconds = |c: &Cost| c.time.as_secs_f64();
    let rate = |c: &Cost| format!("{:.2} M/s", events as f64 / seconds(c) / 1e6);
    let memory = |c: &Cost| format!("{:.1} MB", c.peak as f64 / 1e6);
    let what = format!("`script` of a CTF trace of LTTng, {events} events (babeltrace2)");
    vec![
        time_row(what, costs, "20×, least 8×"),
        costs.row(
            "the same, events a second; peak memory".into(),
            |c| format!("{}; {}", rate(c), memory(c)),
            format!("{} for a tenth of the trace", memory(less)),
        ),
        Row {
            what: "`report` of it, by event and command".into(),
            kymo: format!("{:.2} s; {}", seconds(report), rate(report)),
            ..Row::default()
        },
    ]
}

/// Records a number of events; the program waits where there is no room.
pub(super) fn record(lttng: &Lttng, program: &Path, output: &Path, events: u64) {
    let session = LttngSession {
        output,
        by_process: false,
        sub_buffer: "4M",
        sub_buffers: 8,
        contexts: &["vpid", "vtid", "procname"],
        waits: true,
    };
    let mut command = Command::new(program);
    command.args([&events.to_string(), "two"]);
    lttng.record(&session, command);
}
