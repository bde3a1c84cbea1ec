//! Text of `kymo top --tasks`: who runs, who waits for a CPU, who is blocked on what.

use std::cmp::Reverse;
use std::io::{self, Write};

use kymo_analysis::task_activity::{ActivityInterval, ActivityRow, ActivityState};

use crate::percent;
use crate::units::shown;

/// Limits of the table of an interval.
#[derive(Clone, Copy, Debug)]
pub struct ActivityColumns {
    /// CPUs of the machine.
    pub cpus: usize,
    /// Most rows.
    pub most: usize,
    /// Characters of a line; what is longer is cut.
    pub width: usize,
}

/// Sort key of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivitySort {
    /// Time on a CPU.
    #[default]
    Run,
    /// Time in which it waited for a CPU.
    Wait,
    /// Time in which it was blocked.
    Blocked,
    /// Switches.
    Switches,
    /// The longest wait for a CPU.
    Longest,
    /// Name, then thread.
    Name,
}

impl ActivitySort {
    /// The order that a key stands for.
    pub fn of(key: char) -> Option<ActivitySort> {
        Some(match key {
            'r' => ActivitySort::Run,
            'w' => ActivitySort::Wait,
            'b' => ActivitySort::Blocked,
            's' => ActivitySort::Switches,
            'l' => ActivitySort::Longest,
            'n' => ActivitySort::Name,
            _ => return None,
        })
    }

    /// Puts rows into the order.
    pub fn apply(self, rows: &mut [ActivityRow]) {
        let most = |rows: &mut [ActivityRow], of: fn(&ActivityRow) -> u64| {
            rows.sort_by_key(|r| (Reverse(of(r)), r.task.tid));
        };
        match self {
            ActivitySort::Run => most(rows, |r| r.run),
            ActivitySort::Wait => most(rows, |r| r.wait),
            ActivitySort::Blocked => most(rows, |r| r.blocked),
            ActivitySort::Switches => most(rows, |r| r.switches),
            ActivitySort::Longest => most(rows, |r| r.longest_wait),
            ActivitySort::Name => {
                rows.sort_by(|a, b| (a.task.comm(), a.task.tid).cmp(&(b.task.comm(), b.task.tid)));
            }
        }
    }
}

/// Writes an interval: one line about all tasks, then the chosen ones.
///
/// # Errors
/// If it cannot be written.
pub fn write_tasks(
    out: &mut dyn Write,
    interval: &ActivityInterval,
    columns: ActivityColumns,
    is_chosen: &dyn Fn(&ActivityRow) -> bool,
) -> io::Result<()> {
    let length = interval.to.saturating_sub(interval.from);
    let seconds = length as f64 / 1e9;
    let whole = length.saturating_mul(columns.cpus as u64);
    let busy = percent(interval.sum(|r| r.run), whole);
    let waiting = percent(interval.sum(|r| r.wait), length) / 100.0;
    let rate = if seconds > 0.0 { interval.switches as f64 / seconds } else { 0.0 };
    let tasks = interval.rows.len();
    let head = format!(
        "{seconds:.3} s of {} CPUs: {busy:.1}% busy, {waiting:.2} tasks wait for a CPU, \
         {rate:.0} switches/s, {tasks} tasks seen",
        columns.cpus
    );
    write_line(out, &head, columns.width)?;
    let titles =
        "   Run%   Wait%  Block%  Switches  Longest ms     Tid  Command           Now (mostly)";
    write_line(out, titles, columns.width)?;
    for row in interval.rows.iter().filter(|row| is_chosen(row)).take(columns.most) {
        let share = |time: u64| percent(time, length);
        let line = format!(
            "{:6.2}% {:6.2}% {:6.2}%  {:>8}  {:>10.3} {:>7}  {:<16}  {}",
            share(row.run),
            share(row.wait),
            share(row.blocked),
            row.switches,
            row.longest_wait as f64 / 1e6,
            row.task.tid,
            shown(row.task.comm()),
            state(row)
        );
        write_line(out, &line, columns.width)?;
    }
    out.flush()
}

fn write_line(out: &mut dyn Write, line: &str, width: usize) -> io::Result<()> {
    let cut: String = line.chars().take(width).collect();
    writeln!(out, "{cut}")
}

/// State of a task, and the cause of its longest block if that differs.
fn state(row: &ActivityRow) -> String {
    let now = match row.now {
        ActivityState::Unknown => "?".to_owned(),
        ActivityState::Runs(cpu) => format!("runs on CPU {cpu}"),
        ActivityState::Waits(cause) => cause.text().to_owned(),
        ActivityState::Blocked(cause) => cause.text().to_owned(),
        ActivityState::Ended => "has ended".to_owned(),
    };
    match row.cause {
        Some(cause) if row.now != ActivityState::Blocked(cause) => {
            format!("{now} ({})", cause.text())
        }
        _ => now,
    }
}
