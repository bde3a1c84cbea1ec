//! `kymo sched latency` in perf's layout.

use std::io::{self, Write};

use kymo_table::{TableRow, TextColumn, TextLayout};

use super::LatencyView;
use crate::units::{Seconds, write_more};

const RULE: &str = "--------------------------------------------------------------------------\
-----------------------------------------------------------------";

/// Part of the rule above the columns of a narrow screen.
const NARROW_RULE: usize = 86;

/// Writes the delays of all causes together.
pub(super) fn write_delays(view: &LatencyView<'_>, out: &mut dyn Write) -> io::Result<()> {
    // A screen that is narrower than perf's columns shows them without the times of day.
    let is_narrow = view.columns.is_some_and(|columns| columns <= RULE.len());
    let rule = if is_narrow { &RULE[..NARROW_RULE] } else { RULE };
    let times =
        if is_narrow { "" } else { " Max delay start           | Max delay end          |" };
    writeln!(
        out,
        "\n {rule}\n  Task                  |   Runtime ms  | Switches | Avg delay ms    | \
         Max delay ms    |{times}\n {rule}"
    )?;
    let ms = |row: TableRow<'_>, name: &str| view.rounded(row.number(name));
    let start = |row: TableRow<'_>| row.number("delay.max_start_ns");
    let seconds = |time| Seconds(time, view.units);
    let mut columns = vec![
        TextColumn::left("", 24, name),
        TextColumn::left("", 0, |r| format!("{:>11} ms ", ms(r, "runtime_ns"))),
        TextColumn::left("", 0, |r| format!("{:>9} ", r.number("switches"))),
        TextColumn::left("", 0, |r| format!(" avg:{:>8} ms ", ms(r, "delay.average_ns"))),
        TextColumn::left("", 0, |r| format!(" max:{:>8} ms ", ms(r, "delay.max_ns"))),
    ];
    if !is_narrow {
        columns
            .push(TextColumn::left("", 0, |r| format!(" max start: {:>12} s ", seconds(start(r)))));
        columns.push(TextColumn::left("", 0, |r| {
            let end = start(r) + r.number("delay.max_ns");
            format!(" max end: {:>12} s", seconds(end))
        }));
    }
    let layout = TextLayout { indent: "", gap: "|", end: "", columns };
    let tasks = view.answer.table("tasks");
    layout.write_rows(out, tasks.first(view.most))?;
    write_more(out, tasks.rows.len(), view.most)?;
    let facts = view.answer.facts();
    let runtime = view.rounded(facts.number("total.runtime_ns"));
    let switches = facts.number("total.switches");
    writeln!(out, " {}", &RULE[..113])?;
    writeln!(out, "  TOTAL:                |{runtime:>11} ms |{switches:>9} |")?;
    writeln!(out, " {}\n", &RULE[..51])
}

/// Name and number of a row.
fn name(row: TableRow<'_>) -> String {
    let (comm, mark) = (row.text("comm"), row.mark());
    match row.number("tasks") {
        0 | 1 => format!("  {comm}:{}{mark} ", row.number("tid")),
        n => format!("  {comm}:({n}){mark} "),
    }
}
