//! `kymo sched latency`: a table of delays by task.

use std::io::{self, Write};

use kymo_table::{Answer, TableRow, TextColumn, TextLayout};

use crate::Ledger;
use crate::histogram::{HISTOGRAMS, write_histogram};
use crate::units::{Millis, RoundedMillis, Seconds, TimeUnits, write_more};

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
    /// Units of times.
    pub units: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`, if there is one.
    pub recording: Option<String>,
}

const RULE: &str = "--------------------------------------------------------------------------\
-----------------------------------------------------------------";

/// Part of the rule above the columns of a narrow screen.
const NARROW_RULE: usize = 86;

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
        writeln!(
            out,
            "\n Longest wait for a CPU: {} ms, {}:{} on CPU {} {why}; {}:{} ran there before it.",
            Millis(to - from, TimeUnits::default()),
            longest.text("comm"),
            longest.number("tid"),
            longest.number("cpu"),
            longest.text("ran_before"),
            longest.number("ran_before_tid"),
        )?;
        let Some(recording) = &self.recording else { return Ok(()) };
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(from, nano), Seconds(to, nano));
        writeln!(out, " Its events: kymo script {recording} --time {from},{to}")
    }

    fn write_delays(&self, out: &mut dyn Write) -> io::Result<()> {
        // A screen that is narrower than perf's columns shows them without the times of day.
        let is_narrow = self.columns.is_some_and(|columns| columns <= RULE.len());
        let rule = if is_narrow { &RULE[..NARROW_RULE] } else { RULE };
        let times =
            if is_narrow { "" } else { " Max delay start           | Max delay end          |" };
        writeln!(
            out,
            "\n {rule}\n  Task                  |   Runtime ms  | Switches | Avg delay ms    | \
             Max delay ms    |{times}\n {rule}"
        )?;
        let ms = |row: TableRow<'_>, name: &str| self.rounded(row.number(name));
        let start = |row: TableRow<'_>| row.number("delay.max_start_ns");
        let seconds = |time| Seconds(time, self.units);
        let mut columns = vec![
            TextColumn::left("", 24, name),
            TextColumn::left("", 0, |r| format!("{:>11} ms ", ms(r, "runtime_ns"))),
            TextColumn::left("", 0, |r| format!("{:>9} ", r.number("switches"))),
            TextColumn::left("", 0, |r| format!(" avg:{:>8} ms ", ms(r, "delay.average_ns"))),
            TextColumn::left("", 0, |r| format!(" max:{:>8} ms ", ms(r, "delay.max_ns"))),
        ];
        if !is_narrow {
            columns.push(TextColumn::left("", 0, |r| {
                format!(" max start: {:>12} s ", seconds(start(r)))
            }));
            columns.push(TextColumn::left("", 0, |r| {
                let end = start(r) + r.number("delay.max_ns");
                format!(" max end: {:>12} s", seconds(end))
            }));
        }
        let layout = TextLayout { indent: "", gap: "|", end: "", columns };
        layout.write_rows(out, self.answer.table("tasks").first(self.most))?;
        self.write_total(out)
    }

    fn write_causes(&self, out: &mut dyn Write) -> io::Result<()> {
        let ms = |title, width, name: &'static str| {
            TextColumn::right(title, width, move |r| self.rounded(r.number(name)))
        };
        let layout = TextLayout {
            indent: "",
            gap: " |",
            end: "",
            columns: vec![
                TextColumn::number("Woken", 9, "woken.count"),
                ms("avg ms", 8, "woken.average_ns"),
                ms("p99 ms", 8, "woken.p99_ns"),
                ms("max ms", 8, "woken.max_ns"),
                TextColumn::number("Preempted", 10, "preempted.count"),
                ms("avg ms", 8, "preempted.average_ns"),
                ms("p99 ms", 8, "preempted.p99_ns"),
                ms("max ms", 8, "preempted.max_ns"),
                TextColumn::number("New", 7, "new.count"),
                ms("max ms", 8, "new.max_ns"),
                TextColumn::number("Migrated", 9, "migrations"),
                TextColumn::right("Unknown", 8, |r| {
                    (r.number("unknown") + r.number("uncertain")).to_string()
                }),
            ],
        };
        write!(out, "\n {RULE}\n  Task                  |")?;
        layout.write_head(out)?;
        writeln!(out, " {RULE}")?;
        for row in self.answer.table("tasks").first(self.most).rows() {
            write!(out, "{:<24}|", name(row))?;
            layout.write_row(out, row)?;
        }
        self.write_total(out)
    }

    fn write_total(&self, out: &mut dyn Write) -> io::Result<()> {
        write_more(out, self.answer.table("tasks").rows.len(), self.most)?;
        let facts = self.answer.facts();
        let runtime = self.rounded(facts.number("total.runtime_ns"));
        let switches = facts.number("total.switches");
        writeln!(out, " {}", &RULE[..113])?;
        writeln!(out, "  TOTAL:                |{runtime:>11} ms |{switches:>9} |")?;
        writeln!(out, " {}\n", &RULE[..51])
    }

    /// Milliseconds, rounded as perf does here.
    fn rounded(&self, nanos: u64) -> String {
        RoundedMillis(nanos, self.units).to_string()
    }
}

/// Name and number of a row.
fn name(row: TableRow<'_>) -> String {
    let (comm, mark) = (row.text("comm"), row.mark());
    match row.number("tasks") {
        0 | 1 => format!("  {comm}:{}{mark} ", row.number("tid")),
        n => format!("  {comm}:({n}){mark} "),
    }
}
