//! Critical paths as text: the answer, what the time went to and by whom, the longest parts,
//! where to look next.

use std::io::{self, Write};

use kymo_analysis::critical_path::{PathCulprit, PathKind, PathSegment, SpanStats};
use kymo_analysis::offcpu::OffCpuCause;
use kymo_model::{counted, format_width};

use super::PathView;
use crate::screen_lines::{fit_task, most_of_it};
use crate::units::{Millis, Seconds, TimeUnits, shown};
use crate::{Ledger, percent};

/// Rows of the table.
const ROWS: usize = 12;
/// Lines of warnings on a screen.
const SCREEN_TRUST: usize = 6;
/// Rows of the table on a screen.
const SCREEN_ROWS: usize = 7;
/// Indent of the stacks of parts.
const STACK_INDENT: usize = 19;
/// Columns of the numbers of a row with the gaps before them.
const NUMBERS_WIDTH: usize = 38;
/// Most columns of the name of a task.
const MOST_TASK_WIDTH: usize = 26;
/// Frames of a stack that are shown in a line.
const FRAMES: usize = 5;

/// Functions through which every system call goes.
const SYSCALL_ENTRY: [&str; 4] =
    ["do_syscall_64", "x64_sys_call", "entry_SYSCALL_64_after_hwframe", "syscall"];

impl PathView<'_> {
    /// Writes the answer, the tables and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let culprits = self.table.culprits();
        match culprits.first() {
            Some(first) => {
                self.write_answer(out, first)?;
                self.write_table(out, &culprits)?;
                self.write_worst(out)?;
                self.write_next(out, first)?;
            }
            None => self.write_nothing(out)?,
        }
        if !ledger.is_empty() {
            let text = match self.columns {
                Some(_) => ledger.to_screen(SCREEN_TRUST, "| less shows all"),
                None => ledger.to_text(""),
            };
            if !text.is_empty() {
                write!(out, "\n{text}")?;
            }
        }
        Ok(())
    }

    fn write_nothing(&self, out: &mut dyn Write) -> io::Result<()> {
        let nothing = match &self.table.spans {
            Some(spans) if spans.spans.count == 0 => "No span ended in the recording.",
            Some(spans) => return self.write_durations(out, spans),
            None => "The recording has no such task, or not at that time.",
        };
        writeln!(out, "\n {nothing}\n")
    }

    /// Writes the durations of spans whose tasks are unknown to the scheduler's events.
    fn write_durations(&self, out: &mut dyn Write, spans: &SpanStats) -> io::Result<()> {
        let (micro, nano) = (TimeUnits::default(), TimeUnits { nanos: true });
        let (slowest, begin) = spans.spans.max.unwrap_or_default();
        let quantile = |share| spans.spans.quantile(share).unwrap_or(0);
        writeln!(
            out,
            "\n {} took {} ms (slowest {} ms, p99 {} ms, p50 {} ms). The cause is unknown: \
             scheduler events do not cover their tasks.\n",
            counted(spans.spans.count, "span", "spans"),
            Millis(spans.spans.total, micro),
            Millis(slowest, micro),
            Millis(quantile(0.99), micro),
            Millis(quantile(0.5), micro),
        )?;
        if self.recording.is_empty() {
            return Ok(());
        }
        let (file, begin, end) =
            (&self.recording, Seconds(begin, nano), Seconds(begin + slowest, nano));
        writeln!(out, " Where to look next")?;
        writeln!(out, "  the slowest span:  kymo script {file} --time {begin},{end}\n")
    }

    fn write_answer(&self, out: &mut dyn Write, first: &PathCulprit) -> io::Result<()> {
        let total = self.table.total();
        let micro = TimeUnits::default();
        let subject = match (&self.table.spans, self.table.paths.as_slice()) {
            (Some(spans), paths) => format!(
                "The slowest {} of {} spans took {} ms (slowest {} ms, p50 {} ms)",
                paths.len(),
                spans.spans.count,
                Millis(total, micro),
                Millis(spans.spans.max.map_or(0, |m| m.0), micro),
                Millis(spans.spans.quantile(0.5).unwrap_or(0), micro),
            ),
            (None, paths) => {
                let who = paths.first().map_or_else(String::new, |p| self.who(p.task));
                format!("{who} took {} ms", Millis(total, micro))
            }
        };
        writeln!(
            out,
            "\n {subject}; {}, {} ms ({:.1}%), {}.\n",
            most_of_it(first.total, total),
            Millis(first.total, micro),
            percent(first.total, total),
            self.blame(first),
        )?;
        if let [_, ..] = self.table.alternatives.as_slice() {
            let other =
                self.table.alternatives.iter().map(|t| format!("{}:{}", shown(&t.comm), t.tid));
            let other: Vec<String> = other.collect();
            writeln!(out, " Other tasks fit as well (--tid): {}\n", other.join(", "))?;
        }
        Ok(())
    }

    /// Words for the largest part.
    fn blame(&self, first: &PathCulprit) -> String {
        let is_own = self.table.paths.iter().all(|p| p.task == first.task) && !first.is_several;
        let who = if is_own { "the task itself".to_owned() } else { self.culprit(first) };
        let longest = self.table.segment(first.longest);
        if longest.is_some_and(PathSegment::is_uncertain) {
            return "is uncertain: switches are missing".to_owned();
        }
        match first.kind {
            // Where the task left the CPU is not where it was all that time.
            PathKind::Running => format!("{who} was running"),
            PathKind::Waiting(OffCpuCause::Throttled) => {
                "went to waiting for the CPU quota of its cgroup".to_owned()
            }
            PathKind::Waiting(_) if first.ran_instead => {
                format!("went to waiting for a CPU while {who} ran")
            }
            PathKind::Waiting(_) => "went to waiting for a CPU".to_owned(),
            PathKind::Blocked(..) => {
                format!("{who} was {}", in_words(&first.kind.text()))
            }
            PathKind::Unknown => "is unknown: switches are missing".to_owned(),
        }
    }

    fn write_table(&self, out: &mut dyn Write, rows: &[PathCulprit]) -> io::Result<()> {
        let total = self.table.total();
        let most = if self.columns.is_some() { SCREEN_ROWS } else { ROWS };
        let shown = rows.get(..rows.len().min(most)).unwrap_or_default();
        let longest = shown.iter().map(|r| row_kind(r).len()).max();
        let width = format_width(longest.unwrap_or(0).max(26));
        let task = self.task_width(width);
        writeln!(
            out,
            "  {:<task$.task$} {:<width$} {:>10} {:>6} {:>7} {:>10}",
            "Task", "Time on the path", "Total ms", "Share", "Count", "Max ms"
        )?;
        writeln!(out, "  {}", "-".repeat(task + width + NUMBERS_WIDTH))?;
        for row in shown {
            self.write_row(out, row, (total, width))?;
        }
        let rest: u64 = rows.iter().skip(most).map(|r| r.total).sum();
        if rest > 0 {
            let count: u64 = rows.iter().skip(most).map(|r| r.count).sum();
            writeln!(
                out,
                "  {:<task$.task$} {:<width$} {:>10} {:>5.1}% {count:>7}",
                format!("({} more)", rows.len() - most),
                "",
                Millis(rest, self.units),
                percent(rest, total),
            )?;
        }
        writeln!(out)
    }

    /// Columns of task names: those that a screen has left, at least some.
    fn task_width(&self, kind: usize) -> usize {
        let left = |columns: usize| columns.saturating_sub(2 + kind + NUMBERS_WIDTH);
        self.columns.map_or(MOST_TASK_WIDTH, |columns| left(columns).clamp(16, MOST_TASK_WIDTH))
    }

    fn write_row(
        &self,
        out: &mut dyn Write,
        row: &PathCulprit,
        (total, width): (u64, usize),
    ) -> io::Result<()> {
        let max = self.table.segment(row.longest).map_or(0, PathSegment::nanos);
        let task = self.task_width(width);
        writeln!(
            out,
            "  {:<task$.task$} {:<width$} {:>10} {:>5.1}% {:>7} {:>10}",
            fit_task(&self.culprit(row), task),
            row_kind(row),
            Millis(row.total, self.units),
            percent(row.total, total),
            row.count,
            Millis(max, self.units),
        )
    }

    fn write_worst(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, " The longest parts")?;
        for place in self.table.worst(self.worst) {
            let Some(segment) = self.table.segment(place) else { continue };
            let at = Seconds(segment.from, self.units);
            let cpu = segment.cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
            let away = match segment.depth {
                0 => String::new(),
                1 => ", 1 wake-up away".to_owned(),
                n => format!(", {n} wake-ups away"),
            };
            let instead = segment.instead.map(|i| format!(", {} ran there", self.who(i)));
            writeln!(
                out,
                "  {:>12} ms  at {at}  {}: {}{cpu}{}{away}{}",
                Millis(segment.nanos(), self.units),
                self.who(segment.task),
                segment.kind.text(),
                instead.unwrap_or_default(),
                if segment.is_uncertain() { " (uncertain)" } else { "" },
            )?;
            let mut stack = self.stack_line(segment);
            if let Some(columns) = self.columns {
                stack = clip(&stack, columns.saturating_sub(STACK_INDENT));
            }
            if !stack.is_empty() {
                writeln!(out, "{:STACK_INDENT$}{stack}", "")?;
            }
            if let Some(script) = self.script(segment) {
                writeln!(out, "                   {script}")?;
            }
        }
        writeln!(out)
    }

    /// The end of a segment in a line: the innermost function, and those of the program.
    fn stack_line(&self, segment: &PathSegment) -> String {
        let Some(stack) = segment.stack else { return String::new() };
        let stacks = &self.table.stacks;
        let part = |kernel: bool, most: usize| {
            let frames = stacks.frames(stack).filter(move |f| stacks.is_kernel(*f) == kernel);
            let names = frames.map(|f| stacks.frame_name(f)).enumerate();
            let says = names.filter(|(_, name)| !SYSCALL_ENTRY.contains(name));
            says.take(most).collect::<Vec<_>>()
        };
        let user = part(false, FRAMES - 1);
        let kernel = part(true, FRAMES - user.len().min(FRAMES - 2));
        let line = self.table.line(segment);
        let user = user.into_iter().map(|(at, name)| match line.filter(|l| l.frame == at) {
            Some(line) => {
                let file = line.file.rsplit('/').next().unwrap_or(&line.file);
                format!("{} ({}:{})", shown(name.as_bytes()), shown(file.as_bytes()), line.line)
            }
            None => shown(name.as_bytes()),
        });
        let all = kernel.into_iter().map(|(_, name)| shown(name.as_bytes())).chain(user);
        let how = if segment.kind == PathKind::Running { "until " } else { "in " };
        format!("{how}{}", all.collect::<Vec<_>>().join(" < "))
    }

    fn write_next(&self, out: &mut dyn Write, first: &PathCulprit) -> io::Result<()> {
        // What was not kept cannot be looked at again.
        let Some(path) = self.table.paths.first().filter(|_| !self.recording.is_empty()) else {
            return Ok(());
        };
        let (file, nano) = (&self.recording, TimeUnits { nanos: true });
        let span = |from, to| format!("{},{}", Seconds(from, nano), Seconds(to, nano));
        writeln!(out, " Where to look next")?;
        if self.table.spans.is_some() {
            let times = span(path.from, path.to);
            let tid = self.table.task(path.task).map_or(0, |t| t.tid);
            writeln!(out, "  the slowest span:  kymo why {file} --tid {tid} --time {times}")?;
        }
        if let (Some(task), Some(longest)) =
            (self.table.task(first.task), self.table.segment(first.longest))
        {
            let (times, tid) = (span(longest.from, longest.to), task.tid);
            let tool = match first.kind {
                PathKind::Running => "its functions:",
                PathKind::Waiting(_) => "running tasks:",
                _ => "its waits:",
            };
            let command = match first.kind {
                PathKind::Waiting(_) => {
                    format!("kymo sched timehist {file} --time {times}")
                }
                PathKind::Running => format!("kymo profile -- COMMAND, or kymo record -g -t {tid}"),
                _ => format!("kymo offcpu report {file} --tid {tid}"),
            };
            writeln!(out, "  {tool:<18} {command}")?;
        }
        writeln!(out, "  all parts:         the same command with --json")
    }
}

/// A kind of time after "was".
fn in_words(kind: &str) -> String {
    match kind.split_once(": ") {
        Some(("blocked", cause)) => format!("blocked on {cause}"),
        Some((state, cause)) => format!("{state}, {cause}"),
        None if kind.starts_with("idle kernel thread") => format!("an {kind}"),
        None => kind.to_owned(),
    }
}

/// The text, cut to a number of columns.
fn clip(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Activity of a culprit, in words.
fn row_kind(row: &PathCulprit) -> String {
    match row.kind {
        PathKind::Waiting(_) if row.ran_instead => "ran while it waited for a CPU".to_owned(),
        PathKind::Waiting(cause) if cause.is_runnable() => "waiting for a CPU".to_owned(),
        kind => kind.text(),
    }
}
