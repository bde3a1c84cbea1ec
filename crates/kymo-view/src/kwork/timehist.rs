//! `kymo kwork timehist`: a line for each piece of work that ends.

use std::io::{self, Write};

use kymo_analysis::kwork::{KworkLine, kwork_line_columns};

use super::cut_name;
use crate::units::{RoundedMillis, Seconds, TimeUnits};

/// Writes lines.
pub struct KworkLineWriter<'o> {
    /// Output.
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
        if self.json {
            return kwork_line_columns().write_json_line(self.out, line, &self.max_stack);
        }
        let start = &line.interval.start;
        let stack = line.stack(self.max_stack);
        let millis = |nanos: u64| RoundedMillis(nanos, self.units).to_string();
        write!(
            self.out,
            " {:>17}  {:>17}  [{:04}]  {:<30}  {:>10}  {:>10} ",
            Seconds(start.time, self.units),
            Seconds(line.interval.end, self.units),
            start.cpu,
            cut_name(line.name),
            millis(line.interval.end - start.time),
            line.delay().map(millis).unwrap_or_default(),
        )?;
        if !stack.is_empty() {
            write!(self.out, " {}", stack.join(" <- "))?;
        }
        writeln!(self.out, "{}", if line.is_uncertain() { " !lost" } else { "" })
    }
}
