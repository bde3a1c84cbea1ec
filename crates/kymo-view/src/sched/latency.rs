//! `kymo sched latency`: a table of delays by task.

use std::io::{self, Write};

use kymo_model::by_number;
use kymo_table::{Answer, TableRow, TextColumn, TextLayout};

use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::table_style::WIDE;
use crate::units::{Grouped, Millis, RoundedMillis, Seconds, TimeUnits, write_more};
use crate::{Ledger, TableStyle};

/// The table as it is shown.
pub struct LatencyView<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Delays by their causes instead of all together.
    pub causes: bool,
    /// Rows at most.
    pub most: usize,
    /// Columns of the screen, if there is one.
    pub columns: Option<usize>,
    /// With histograms of the delays.
    pub histogram: bool,
    /// Layout of the table of delays.
    pub style: TableStyle,
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`, if there is one.
    pub recording: Option<String>,
}

impl LatencyView<'_> {
    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        if let Some(longest) = self.answer.table("longest").rows().next() {
            self.write_longest(out, longest)?;
        }
        if self.causes {
            self.write_causes(out)?
        } else {
            self.write_delays(out)?
        }
        if self.histogram {
            self.write_histograms(out)?;
        }
        if self.answer.table("tasks").any("uncertain") {
            writeln!(out, "  * events were lost in some of its waits, which are left out\n")?;
        }
        if !ledger.is_empty() {
            write!(out, "{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    /// Delays by their cause, and those of the first rows.
    fn write_histograms(&self, out: &mut dyn Write) -> io::Result<()> {
        let facts = self.answer.facts();
        write_histogram(out, "waits after a wake-up", facts, "total.woken.")?;
        write_histogram(out, "waits after a preemption", facts, "total.preempted.")?;
        write_histogram(out, "waits of new tasks", facts, "total.new.")?;
        for row in self.answer.table("tasks").rows().take(HISTOGRAMS) {
            write_histogram(out, &format!("waits of {}", row.text("comm")), row, "delay.")?;
        }
        writeln!(out)
    }

    fn write_longest(&self, out: &mut dyn Write, longest: TableRow<'_>) -> io::Result<()> {
        let (from, to) = (longest.number("start_ns"), longest.number("end_ns"));
        let why = match &*longest.text("cause") {
            "preempted" => "after it was preempted".to_owned(),
            "new" => "when it was new".to_owned(),
            _ if longest.has("waker") && longest.has("waker_tid") => {
                format!("woken by {}:{}", longest.text("waker"), longest.number("waker_tid"))
            }
            _ => "woken".to_owned(),
        };
        let before = if longest.has("ran_before") {
            let (comm, tid) = (longest.text("ran_before"), longest.number("ran_before_tid"));
            format!("{comm}:{tid} ran there before it")
        } else {
            "the CPU quota of its cgroup may be the cause".to_owned()
        };
        writeln!(
            out,
            "\n Longest wait for a CPU: {} ms, {}:{} on CPU {} {why}; {before}.",
            Millis(to - from, TimeUnits::default()),
            longest.text("comm"),
            longest.number("tid"),
            longest.number("cpu"),
        )?;
        let Some(recording) = &self.recording else { return Ok(()) };
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(from, nano), Seconds(to, nano));
        writeln!(out, " Its events: kymo script {recording} --time {from},{to}")
    }

    fn write_delays(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.style == TableStyle::Perf {
            return super::perf_latency::write_delays(self, out);
        }
        let mut columns = vec![
            task_column(),
            self.millis("Runtime ms", 12, "runtime_ns"),
            TextColumn::number("Switches", 9, "switches"),
            self.millis("Avg delay ms", 13, "delay.average_ns"),
            self.millis("Max delay ms", 13, "delay.max_ns"),
        ];
        // A narrow screen has no room for the times of day.
        if !self.is_narrow() {
            let start = |r: TableRow<'_>| r.number("delay.max_start_ns");
            columns.push(TextColumn::right("Max start s", 16, move |r| {
                Seconds(start(r), self.units).to_string()
            }));
            columns.push(TextColumn::right("Max end s", 16, move |r| {
                Seconds(start(r) + r.number("delay.max_ns"), self.units).to_string()
            }));
        }
        let layout = TextLayout { indent: "  ", gap: " ", end: "", columns };
        self.write_table(out, &layout)
    }

    fn write_causes(&self, out: &mut dyn Write) -> io::Result<()> {
        let is_wide = !self.is_narrow();
        let mut columns = vec![task_column(), TextColumn::number("Woken", 7, "woken.count")];
        columns.push(self.millis("avg ms", 8, "woken.average_ns"));
        if is_wide {
            columns.push(self.millis("p99 ms", 8, "woken.p99_ns"));
        }
        columns.push(self.millis("max ms", 8, "woken.max_ns"));
        columns.push(TextColumn::number("Preempted", 9, "preempted.count"));
        columns.push(self.millis("avg ms", 8, "preempted.average_ns"));
        if is_wide {
            columns.push(self.millis("p99 ms", 8, "preempted.p99_ns"));
        }
        columns.push(self.millis("max ms", 8, "preempted.max_ns"));
        columns.push(TextColumn::number("New", 5, "new.count"));
        columns.push(self.millis("max ms", 8, "new.max_ns"));
        if is_wide {
            columns.push(TextColumn::number("Migrated", 8, "migrations"));
            columns.push(TextColumn::right("Unknown", 7, |r| {
                (r.number("unknown") + r.number("uncertain")).to_string()
            }));
        }
        let layout = TextLayout { indent: "  ", gap: " ", end: "", columns };
        self.write_table(out, &layout)
    }

    fn write_table(&self, out: &mut dyn Write, layout: &TextLayout<'_>) -> io::Result<()> {
        let tasks = self.answer.table("tasks");
        writeln!(out)?;
        layout.write_ruled_head(out)?;
        layout.write_rows(out, tasks.first(self.most))?;
        write_more(out, tasks.rows.len(), self.most)?;
        let facts = self.answer.facts();
        writeln!(
            out,
            "  {} {} ran for {} ms in {} switches.\n",
            Grouped(tasks.total("tasks")),
            by_number(tasks.total("tasks"), "task", "tasks"),
            self.rounded(facts.number("total.runtime_ns")),
            Grouped(facts.number("total.switches")),
        )
    }

    fn is_narrow(&self) -> bool {
        self.columns.is_some_and(|columns| columns < WIDE)
    }

    fn millis(&self, title: &'static str, width: usize, name: &'static str) -> TextColumn<'_> {
        TextColumn::right(title, width, move |row| self.rounded(row.number(name)))
    }

    /// Milliseconds, rounded as perf does here.
    pub(super) fn rounded(&self, nanos: u64) -> String {
        RoundedMillis(nanos, self.units).to_string()
    }
}

fn task_column() -> TextColumn<'static> {
    TextColumn::left("Task", 26, |row| {
        let (comm, mark) = (row.text("comm"), row.mark());
        match row.number("tasks") {
            0 | 1 => format!("{comm}:{}{mark}", row.number("tid")),
            n => format!("{comm}:({n}){mark}"),
        }
    })
}
