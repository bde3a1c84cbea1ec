//! `kymo kwork timehist`: a line for each piece of work that ends.

use std::io::{self, Write};

use kymo_analysis::kwork::KworkLine;
use serde_json::json;

use super::cut_name;
use crate::units::{Seconds, TimeUnits};

/// Writes lines.
pub struct KworkLineWriter<'o> {
    /// Where to.
    pub out: &'o mut dyn Write,
    /// JSON instead of text.
    pub json: bool,
    /// Units of times.
    pub units: TimeUnits,
    /// Functions of a stack at most.
    pub max_stack: usize,
}

/// Writes the heading.
///
/// # Errors
/// If writing fails.
pub fn write_kwork_head(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        " {:<17}  {:<17}  {:<6}  {:<30}  {:<10}  {:<10}",
        "Runtime start", "Runtime end", "Cpu", "Kwork name", "Runtime", "Delaytime"
    )?;
    writeln!(
        out,
        " {:<17}  {:<17}  {:<6}  {:<30}  {:<10}  {:<10}",
        "", "", "", "(TYPE)NAME:NUM", "(msec)", "(msec)"
    )?;
    let rule = |n| "-".repeat(n);
    writeln!(
        out,
        " {}  {}  {}  {}  {}  {}",
        rule(17),
        rule(17),
        rule(6),
        rule(30),
        rule(10),
        rule(10)
    )
}

impl KworkLineWriter<'_> {
    /// Writes a piece of work.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&mut self, line: &KworkLine<'_>) -> io::Result<()> {
        let interval = line.interval;
        let start = &interval.start;
        let delay = start.raised.map(|raised| start.time - raised);
        let runtime = interval.end - start.time;
        let is_uncertain = interval.touches_loss || start.delay_touches_loss;
        let stack = start.stack.get(..self.max_stack).unwrap_or(&start.stack);
        if self.json {
            let value = json!({
                "type": "kwork",
                "kind": line.kind.name(),
                "name": line.name,
                "id": line.id,
                "start_ns": start.time,
                "end_ns": interval.end,
                "cpu": start.cpu,
                "end_cpu": line.cpu,
                "runtime_ns": runtime,
                "raised_ns": start.raised,
                "delay_ns": delay,
                "comm": String::from_utf8_lossy(line.task.comm()),
                "tid": line.task.tid,
                "pid": line.task.pid,
                "uncertain": is_uncertain,
                "stack": stack,
            });
            return writeln!(self.out, "{value}");
        }
        let digits = if self.units.nanos { 6 } else { 3 };
        let millis = |nanos: u64| format!("{:.digits$}", nanos as f64 / 1e6);
        write!(
            self.out,
            " {:>17}  {:>17}  [{:04}]  {:<30}  {:>10}  {:>10} ",
            Seconds(start.time, self.units),
            Seconds(interval.end, self.units),
            start.cpu,
            cut_name(line.name),
            millis(runtime),
            delay.map(millis).unwrap_or_default(),
        )?;
        if !stack.is_empty() {
            write!(self.out, " {}", stack.join(" <- "))?;
        }
        writeln!(self.out, "{}", if is_uncertain { " !lost" } else { "" })
    }
}
