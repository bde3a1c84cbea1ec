//! `kymo sched map`: which task each CPU runs, a line for each switch.

use std::io::{self, Write};

use kymo_analysis::tasks::{MapLine, SchedSelection, SchedStep, TaskId, TaskMachine, Transition};
use rustc_hash::FxHashMap;

use crate::units::{Seconds, TimeUnits, shown};

/// CPUs that have a column at most.
const MOST_COLUMNS: usize = 4096;

/// Two letters of a task.
type ShortName = [u8; 2];

/// Tasks that alone have letters, by their names.
#[derive(Clone, Debug, Default)]
pub struct MappedTasks {
    /// Names; empty: all tasks.
    pub names: Vec<String>,
    /// A part of a name is enough.
    pub fuzzy: bool,
}

impl MappedTasks {
    fn holds(&self, comm: &[u8]) -> bool {
        let part = |name: &[u8]| comm.windows(name.len().max(1)).any(|part| part == name);
        let fits = |name: &String| comm == name.as_bytes() || self.fuzzy && part(name.as_bytes());
        self.names.is_empty() || self.names.iter().any(fits)
    }
}

/// Writes lines as switches come.
pub struct MapWriter<'a> {
    out: &'a mut dyn Write,
    selection: &'a SchedSelection,
    tasks: &'a MappedTasks,
    /// CPUs in the order of their columns; in compact mode those that were seen.
    columns: Vec<u32>,
    compact: bool,
    json: bool,
    units: TimeUnits,
    names: FxHashMap<TaskId, (ShortName, Vec<u8>)>,
    /// Short name of what each column runs.
    current: Vec<Option<ShortName>>,
    next_name: ShortName,
    /// Whether a CPU was idle already.
    has_idle: bool,
    /// Whether anything was written.
    has_lines: bool,
}

impl<'a> MapWriter<'a> {
    /// `cpus`: number of CPUs; none for columns as CPUs come (`--compact`).
    pub fn new(
        out: &'a mut dyn Write,
        (selection, tasks): (&'a SchedSelection, &'a MappedTasks),
        cpus: Option<usize>,
        (json, units): (bool, TimeUnits),
    ) -> MapWriter<'a> {
        let all = 0..cpus.unwrap_or(0).min(MOST_COLUMNS) as u32;
        let columns: Vec<u32> = all.filter(|c| selection.wants_cpu(*c)).collect();
        MapWriter {
            out,
            selection,
            tasks,
            current: vec![None; columns.len()],
            columns,
            compact: cpus.is_none(),
            json,
            units,
            names: FxHashMap::default(),
            next_name: *b"A0",
            has_idle: false,
            has_lines: false,
        }
    }

    /// Writes the line of a switch.
    ///
    /// # Errors
    /// If writing fails.
    pub fn step(&mut self, step: &SchedStep<'_, '_>, machine: &TaskMachine) -> io::Result<()> {
        if let Transition::Switch { out, next } = step.transition {
            self.switch(step, machine, (out.task, next.task))?;
        }
        for id in machine.ended() {
            self.names.remove(id);
        }
        Ok(())
    }

    /// Whether any switch has a line.
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }

    fn switch(
        &mut self,
        step: &SchedStep<'_, '_>,
        machine: &TaskMachine,
        (out, id): (TaskId, TaskId),
    ) -> io::Result<()> {
        let Some(task) = machine.tasks.get(id) else { return Ok(()) };
        if !self.selection.wants_cpu(step.cpu) {
            return Ok(());
        }
        let has_letters = self.tasks.holds(task.comm());
        let is_shown = has_letters
            || machine.tasks.get(out).is_some_and(|before| self.tasks.holds(before.comm()));
        // A task without a name here has one that is not shown.
        let (short, is_new) = match (task.is_idle(), self.names.get(&id)) {
            (false, _) if !has_letters => (*b"- ", false),
            (true, _) => (*b". ", !std::mem::replace(&mut self.has_idle, true)),
            (_, Some((short, comm))) => (*short, comm != task.comm()),
            (_, None) => (self.take_name(), true),
        };
        if is_new && has_letters && !task.is_idle() {
            self.names.insert(id, (short, task.comm().to_vec()));
        }
        let (column, is_new_cpu) = self.column(step.cpu);
        if let Some(slot) = column.and_then(|c| self.current.get_mut(c)) {
            *slot = Some(short);
        }
        if !is_shown || !self.selection.wants_time(step.time) {
            return Ok(());
        }
        self.has_lines = true;
        let name = String::from_utf8_lossy(&short).into_owned();
        if self.json {
            let name = name.trim_end();
            return MapLine { at: (step.time, step.cpu), name, task }.write_json(self.out);
        }
        let mut line = String::from("  ");
        for (cpu, current) in self.columns.iter().zip(&self.current) {
            line.push(if *cpu == step.cpu { '*' } else { ' ' });
            match current {
                Some(short) => line.push_str(&String::from_utf8_lossy(short)),
                None => line.push_str("  "),
            }
            line.push(' ');
        }
        line.push_str(&format!("  {:>12} secs ", Seconds(step.time, self.units)));
        if is_new {
            let comm = if task.is_idle() { "swapper".into() } else { shown(task.comm()) };
            line.push_str(&format!("{name} => {comm}:{}", task.tid));
        }
        if self.compact && is_new_cpu {
            line.push_str(&format!(" (CPU {})", step.cpu));
        }
        writeln!(self.out, "{line}")
    }

    /// Column of a CPU, and whether it is new.
    fn column(&mut self, cpu: u32) -> (Option<usize>, bool) {
        if let Some(at) = self.columns.iter().position(|c| *c == cpu) {
            return (Some(at), false);
        }
        if self.columns.len() >= MOST_COLUMNS {
            return (None, false);
        }
        self.columns.push(cpu);
        self.current.push(None);
        (Some(self.columns.len() - 1), true)
    }

    /// A0 … Z0, A1 … Z9, and from the start again: there are no more.
    fn take_name(&mut self) -> ShortName {
        let name = self.next_name;
        let [letter, digit] = &mut self.next_name;
        *letter += 1;
        if *letter > b'Z' {
            *letter = b'A';
            *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
        }
        name
    }
}
