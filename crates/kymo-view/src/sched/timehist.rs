//! `kymo sched timehist`: a line for each run of a task, with the wait before it.

use std::collections::VecDeque;
use std::io::{self, Write};

use kymo_analysis::tasks::{
    OtherLine, SchedSelection, SchedStep, SchedTask, SwitchIn, SwitchLine, SwitchOut,
    SwitchOutState, TaskId, TaskMachine, Transition, WaitCause, WakeupKind,
};
use kymo_events::RecordedEvent;
use kymo_model::format_width;
use rustc_hash::FxHashMap;

use crate::units::{Millis, Seconds, TimeUnits, shown};

/// Functions of the scheduler itself, which every stack of a switch begins with, and of the event,
/// which those of ftrace begin with.
const SCHEDULER: [&str; 5] = [
    "__schedule",
    "schedule",
    "preempt_schedule",
    "__traceiter_sched_switch",
    "trace_event_raw_event_sched_switch",
];

/// Lines that wait at most: a CPU with nothing to do may keep those of others for long.
const MOST_WAITING: usize = 4096;

/// Columns and kinds of lines that are shown.
#[derive(Clone, Debug, Default)]
pub struct TimehistColumns {
    /// Lines for wake-ups, too.
    pub wakeups: bool,
    /// Lines for migrations, too.
    pub migrations: bool,
    /// The task that comes next.
    pub next: bool,
    /// The state in which a task leaves.
    pub state: bool,
    /// Priorities of tasks.
    pub show_prio: bool,
    /// Only tasks of these priorities, if there are some.
    pub prios: Vec<u32>,
    /// Times that tasks waited on a run queue before they got another one.
    pub pre_migrations: bool,
    /// A column for each of these CPUs.
    pub cpu_visual: Option<usize>,
    /// Functions of a stack at most; none for no stacks.
    pub stack: usize,
    /// Stacks are events of their own, behind those they belong to ([`TimehistWriter::stack_event`]).
    pub stacks_follow: bool,
    /// Idle times only.
    pub idle_only: bool,
    /// JSON lines.
    pub json: bool,
    /// Units of times.
    pub units: TimeUnits,
}

/// A line that may get a stack.
struct WaitingLine {
    /// Without its end.
    text: Vec<u8>,
    cpu: u32,
    tid: u32,
    waits: bool,
}

/// Writes lines as transitions come.
pub struct TimehistWriter<'a> {
    sink: &'a mut dyn Write,
    /// Lines that are not written yet.
    out: Vec<u8>,
    waiting: VecDeque<WaitingLine>,
    /// The task whose stack the line in `out` waits for.
    stack_of: Option<u32>,
    columns: TimehistColumns,
    selection: &'a SchedSelection,
    /// Width of names, which grows as in perf.
    comm_width: usize,
    has_waking: bool,
    /// Priorities that tasks got their CPUs with, where that is asked for.
    prios: FxHashMap<u32, i64>,
    /// Time at which tasks got another run queue since they ran.
    migrated: FxHashMap<u32, u64>,
}

impl<'a> TimehistWriter<'a> {
    /// A writer that has written nothing yet.
    pub fn new(
        sink: &'a mut dyn Write,
        columns: TimehistColumns,
        selection: &'a SchedSelection,
    ) -> TimehistWriter<'a> {
        TimehistWriter {
            sink,
            out: Vec::new(),
            waiting: VecDeque::new(),
            stack_of: None,
            columns,
            selection,
            comm_width: 30,
            has_waking: false,
            prios: FxHashMap::default(),
            migrated: FxHashMap::default(),
        }
    }

    /// Whether a transition is of a task of the priorities that are asked for. As in perf, it is
    /// the one that the task got its CPU with; of one that is not known all is shown.
    pub fn wants_priority(&self, step: &SchedStep<'_, '_>, machine: &TaskMachine) -> bool {
        let prios = &self.columns.prios;
        let wants = |prio: i64| u32::try_from(prio).is_ok_and(|prio| prios.contains(&prio));
        let of = |id: Option<TaskId>| {
            let prio = self.prios.get(&machine.tasks.get(id?)?.tid);
            prio.map(|prio| wants(*prio))
        };
        match *step.transition {
            _ if prios.is_empty() => true,
            Transition::Switch { out, .. } => match of(out.since.map(|_| out.task)) {
                Some(wanted) => wanted,
                None => prio_field(step, "prev_prio").is_none_or(wants),
            },
            Transition::Wakeup { task, by, .. } | Transition::Migrate { task, by, .. } => {
                of(by).unwrap_or(true) || of(Some(task)).unwrap_or(true)
            }
            Transition::Runtime { .. } => true,
        }
    }

    /// Takes the stack of the event before it on its CPU.
    ///
    /// # Errors
    /// If writing fails.
    pub fn stack_event(&mut self, event: &RecordedEvent<'_>) -> io::Result<()> {
        let (cpu, tid) = (event.cpu(), event.task().tid);
        let of = |l: &&mut WaitingLine| l.waits && Some(l.cpu) == cpu && Some(l.tid) == tid;
        let Some(line) = self.waiting.iter_mut().rev().find(of) else { return Ok(()) };
        let addresses = event.stack_entries();
        let name = |address: &u64| match event.kernel_symbol(*address) {
            Some((name, _)) => name,
            None => format!("{address:#x}"),
        };
        let names = callers(addresses.iter().map(name), self.columns.stack);
        line.waits = false;
        if !names.is_empty() && self.columns.json {
            // Into the object.
            line.text.truncate(line.text.len().saturating_sub(1));
            write!(line.text, ",\"stack\":{}}}", serde_json::Value::from(names))?;
        } else if !names.is_empty() {
            write!(line.text, "   {}", names.join(" <- "))?;
        }
        self.write_complete(false)
    }

    /// Writes what can get no stack any more; all of it at the `end`.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_complete(&mut self, end: bool) -> io::Result<()> {
        while let Some(line) = self.waiting.front()
            && (end || !line.waits || self.waiting.len() > MOST_WAITING)
        {
            self.sink.write_all(&line.text)?;
            self.sink.write_all(b"\n")?;
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Hands on the lines of a transition on a CPU.
    fn end_lines(&mut self, cpu: u32) -> io::Result<()> {
        let stack_of = self.stack_of.take();
        if !self.columns.stacks_follow {
            self.sink.write_all(&self.out)?;
        } else if let Some(text) = self.out.strip_suffix(b"\n") {
            let (text, tid) = (text.to_vec(), stack_of.unwrap_or(0));
            self.waiting.push_back(WaitingLine { text, cpu, tid, waits: stack_of.is_some() });
        }
        self.out.clear();
        self.write_complete(false)
    }

    /// Width of a time between, and of a time.
    fn widths(&self) -> (usize, usize) {
        if self.columns.units.nanos { (13, 18) } else { (10, 15) }
    }

    /// Writes the heading.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_head(&mut self) -> io::Result<()> {
        let c = &self.columns;
        let ((width, time), comm) = (self.widths(), self.comm_width);
        let dots = |n: usize| "-".repeat(n);
        let visual = |text: &dyn Fn(usize) -> String| match c.cpu_visual {
            Some(cpus) => format!(" {} ", (0..cpus).map(text).collect::<String>()),
            None => String::new(),
        };
        let state = |text: &str| if c.state { format!("  {text}") } else { String::new() };
        let row = |out: &mut Vec<u8>, head: [&str; 2], v: String, cells: [&str; 4], s: String| {
            let [name, wait, delay, run] = cells;
            writeln!(
                out,
                "{:>time$} {:<6} {v} {name:<comm$} {wait:>width$} {delay:>width$} {run:>width$}{s}",
                head[0], head[1],
            )
        };
        let digit = |n: usize| format!("{:x}", n % 16);
        // Columns that are asked for: before the times, and behind them.
        let name = |text: &str, prio: &str| {
            if c.show_prio { format!("{text:<comm$}  {prio:<8}") } else { text.to_owned() }
        };
        let more = |text: &str, heading: &str| {
            if c.pre_migrations {
                format!("  {text:>0$}{1}", width - 1, state(heading))
            } else {
                state(heading)
            }
        };
        let names = [&*name("task name", "prio"), "wait time", "sch delay", "run time"];
        let units = [&*name("[tid/pid]", ""), "(msec)", "(msec)", "(msec)"];
        let (head, unit) = (more("pre-mig time", "state"), more("(msec)", "     "));
        row(&mut self.out, ["time", "   cpu"], visual(&digit), names, head)?;
        row(&mut self.out, ["", ""], visual(&|_| " ".into()), units, unit)?;
        let (line, short) = (dots(width - 1), dots(time));
        let cells = [&*name(&dots(comm), &dots(8)), &*line, &*line, &*line];
        let last = more(&line, "-----");
        row(&mut self.out, [&short, "------"], visual(&|_| "-".into()), cells, last)?;
        self.sink.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Hands on what was written.
    ///
    /// # Errors
    /// If writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Writes the lines of a transition, if any.
    ///
    /// # Errors
    /// If writing fails.
    pub fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) -> io::Result<()> {
        if !self.selection.wants_cpu(step.cpu) {
            return Ok(());
        }
        self.waiting.iter_mut().filter(|l| l.cpu == step.cpu).for_each(|l| l.waits = false);
        if self.wants_priority(step, machine) {
            self.lines(step, machine)?;
        }
        self.end_lines(step.cpu)
    }

    /// Takes note of what lines to come tell. To be called with each transition, behind `step`.
    pub fn follow(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) {
        let tid = |id: TaskId| machine.tasks.get(id).map_or(0, |task| task.tid);
        match *step.transition {
            Transition::Migrate { task, .. } if self.columns.pre_migrations => {
                self.migrated.insert(tid(task), step.time);
            }
            Transition::Switch { out, next } => {
                if self.columns.pre_migrations {
                    self.migrated.remove(&tid(out.task));
                }
                if self.columns.show_prio || !self.columns.prios.is_empty() {
                    if matches!(out.state, SwitchOutState::Dead(_)) {
                        self.prios.remove(&tid(out.task));
                    }
                    let prio = prio_field(step, "next_prio").filter(|_| tid(next.task) != 0);
                    prio.map(|prio| self.prios.insert(tid(next.task), prio));
                }
            }
            _ => {}
        }
    }

    /// Nanoseconds that a task waited on a run queue before the migration to that of its run.
    fn pre_migration(&self, tid: u32, out: &SwitchOut) -> u64 {
        let migrated = self.migrated.get(&tid).filter(|time| out.since.is_some_and(|t| **time < t));
        migrated
            .zip(out.wait.runnable)
            .map_or(0, |(migrated, since)| migrated.saturating_sub(since))
    }

    /// The priority that a task leaves its CPU with, and the one that it got it with if that is
    /// another one. What an unseen run began with is not known.
    fn prio_text(&self, step: &SchedStep<'_, '_>, tid: u32, seen: bool) -> Option<String> {
        let prio = prio_field(step, "prev_prio")?;
        let before = self.prios.get(&tid).filter(|before| seen && **before != prio);
        Some(before.map_or(prio.to_string(), |before| format!("{before}->{prio}")))
    }

    fn lines(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) -> io::Result<()> {
        match *step.transition {
            Transition::Switch { out, next } => self.switch(step, machine, &out, &next),
            Transition::Wakeup { task, by, kind } => {
                self.has_waking |= kind == WakeupKind::Waking;
                // The same wake-up once more.
                let again = kind == WakeupKind::Wakeup && self.has_waking;
                if !self.columns.wakeups || again {
                    return Ok(());
                }
                let by = by.and_then(|b| machine.tasks.get(b));
                let Some(task) = machine.tasks.get(task) else { return Ok(()) };
                let what = format!("awakened: {}", self.name(task));
                self.other_line(step, "wakeup", (by, task), &what, (None, None))
            }
            Transition::Migrate { task, by, from, to } if self.columns.migrations => {
                let by = by.and_then(|b| machine.tasks.get(b));
                let Some(task) = machine.tasks.get(task) else { return Ok(()) };
                let cpu = |c: Option<u32>| c.map_or("?".to_owned(), |c| c.to_string());
                let (a, b) = (cpu(from), cpu(to));
                let what = format!("migrated: {} cpu {a} => {b}", self.name(task));
                self.other_line(step, "migration", (by, task), &what, (from, to))
            }
            _ => Ok(()),
        }
    }

    fn switch(
        &mut self,
        step: &SchedStep<'_, '_>,
        machine: &TaskMachine,
        out: &SwitchOut,
        next: &SwitchIn,
    ) -> io::Result<()> {
        let tasks = &machine.tasks;
        let (Some(task), Some(next)) = (tasks.get(out.task), tasks.get(next.task)) else {
            return Ok(());
        };
        let hidden = self.columns.idle_only && !task.is_idle();
        if hidden || !self.selection.wants_task(task) {
            return Ok(());
        }
        let Some((from, to)) = self.selection.cut(out.since.unwrap_or(step.time), step.time) else {
            return Ok(());
        };
        let run = out.since.map(|_| to - from);
        let waits = self.columns.stacks_follow && self.columns.stack > 0 && !task.is_idle();
        self.stack_of = waits.then_some(task.tid);
        if self.columns.json {
            return self.switch_json(step, (task, next), out, (to, run));
        }
        let (units, (width, _)) = (self.columns.units, self.widths());
        let text = |n: Option<u64>| n.map_or("-".to_owned(), |n| Millis(n, units).to_string());
        let name = self.name(task);
        self.head(to, step.cpu, if task.is_idle() { 'i' } else { 's' }, &name)?;
        if self.columns.show_prio {
            let prio = self.prio_text(step, task.tid, run.is_some()).unwrap_or_else(|| "-".into());
            write!(self.out, " {prio:<8} ")?;
        }
        // Who is new did not wait before.
        let is_new = out.wait.cause == WaitCause::New;
        let wait = out.wait.off_cpu().or(is_new.then_some(0));
        let (wait, delay) = (text(wait), text(out.wait.wakeup_delay()));
        write!(self.out, "{wait:>width$} {delay:>width$} {:>width$} ", text(run))?;
        if self.columns.pre_migrations {
            let time = text(Some(self.pre_migration(task.tid, out)));
            write!(self.out, "{time:>width$} ")?;
        }
        let comm_width = self.comm_width;
        if self.columns.state {
            write!(self.out, " {:>5} ", out.state.text())?;
        }
        if self.columns.next {
            let next = format!("next: {}[{}]", shown(next.comm()), next.tid);
            write!(self.out, " {next:<comm_width$}")?;
        } else if self.columns.wakeups {
            write!(self.out, "  {:<comm_width$}", "")?;
        }
        if out.touches_loss || out.wait.touches_loss {
            write!(self.out, " !lost")?;
        }
        let stack = if task.is_idle() { Vec::new() } else { self.stack(step) };
        if !stack.is_empty() {
            write!(self.out, "   {}", stack.join(" <- "))?;
        }
        writeln!(self.out)
    }

    /// Names of the callers of the scheduler.
    fn stack(&self, step: &SchedStep<'_, '_>) -> Vec<String> {
        if self.columns.stack == 0 {
            return Vec::new();
        }
        callers(step.event.stack_names().into_iter(), self.columns.stack)
    }

    fn name(&mut self, task: &SchedTask) -> String {
        let name = match (task.is_idle(), task.process()) {
            (true, _) => "<idle>".to_owned(),
            (_, Some(pid)) => format!("{}[{}/{pid}]", shown(task.comm()), task.tid),
            _ => format!("{}[{}]", shown(task.comm()), task.tid),
        };
        self.comm_width = self.comm_width.max(format_width(name.chars().count()));
        name
    }

    /// Begin of a line.
    fn head(&mut self, time: u64, cpu: u32, mark: char, name: &str) -> io::Result<()> {
        let ((_, width), comm) = (self.widths(), self.comm_width);
        write!(self.out, "{:>width$} [{cpu:04}] ", Seconds(time, self.columns.units))?;
        if let Some(cpus) = self.columns.cpu_visual {
            let at = |n: usize| if n == cpu as usize { mark } else { ' ' };
            write!(self.out, " {} ", (0..cpus).map(at).collect::<String>())?;
        }
        write!(self.out, " {name:<comm$} ")
    }

    /// A line that is no run.
    fn other_line(
        &mut self,
        step: &SchedStep<'_, '_>,
        kind: &'static str,
        (by, task): (Option<&SchedTask>, &SchedTask),
        what: &str,
        cpus: (Option<u32>, Option<u32>),
    ) -> io::Result<()> {
        let wanted =
            self.selection.wants_task(task) || by.is_some_and(|t| self.selection.wants_task(t));
        if !wanted || !self.selection.wants_time(step.time) {
            return Ok(());
        }
        if self.columns.json {
            let line = OtherLine { kind, at: (step.time, step.cpu), task, by, cpus };
            return line.write_json(&mut self.out);
        }
        // Who has another name since its last switch is reported by the recording itself.
        let told = step.event.task();
        let renamed = by.filter(|t| told.is_named && told.tid == Some(t.tid) && !t.is_idle());
        let renamed = renamed.map(|t| t.with_info(*told));
        let name = renamed.as_ref().or(by).map_or("?".to_owned(), |t| self.name(t));
        self.head(step.time, step.cpu, if kind == "migration" { 'm' } else { ' ' }, &name)?;
        let (width, _) = self.widths();
        let (prio, pre) = (self.columns.show_prio, self.columns.pre_migrations);
        let gap = (3 + usize::from(pre)) * (width + 1) + if prio { 10 } else { 0 };
        writeln!(self.out, "{:gap$}{what}", "")
    }

    fn switch_json(
        &mut self,
        step: &SchedStep<'_, '_>,
        (task, next): (&SchedTask, &SchedTask),
        out: &SwitchOut,
        (time, run): (u64, Option<u64>),
    ) -> io::Result<()> {
        let line = SwitchLine {
            at: (time, step.cpu),
            task,
            next,
            out,
            run,
            prio: prio_field(step, "prev_prio").filter(|_| self.columns.show_prio),
            pre_migration: self.columns.pre_migrations.then(|| self.pre_migration(task.tid, out)),
            stack: self.stack(step),
        };
        line.write_json(&mut self.out)
    }
}

/// A priority that a switch states.
fn prio_field(step: &SchedStep<'_, '_>, name: &str) -> Option<i64> {
    let field = step.event.class.field(name)?;
    step.event.field(field).number().and_then(|prio| i64::try_from(prio).ok())
}

/// The first of a stack's functions that are not the scheduler's.
fn callers(names: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    names.filter(|n| !SCHEDULER.contains(&&**n)).take(most).collect()
}
