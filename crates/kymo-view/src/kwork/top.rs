//! `kymo kwork top`: what the CPUs spend their time on.

use std::io::{self, Write};

use kymo_analysis::percent;
use kymo_table::{Answer, TextColumn, TextLayout};

use crate::units::{RoundedMillis, TimeUnits, write_more};
use crate::{Ledger, TableStyle};

/// The CPUs and tasks as they are shown.
pub struct TopView<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Rows at most.
    pub most: usize,
    /// CPUs at most.
    pub most_cpus: usize,
    /// Layout of the table.
    pub style: TableStyle,
}

impl TopView<'_> {
    fn write_tables(&self, out: &mut dyn Write) -> io::Result<()> {
        let facts = self.answer.facts();
        let [total, idle, irq, softirq] = ["total_ns", "idle_ns", "irq_ns", "softirq_ns"]
            .map(|c| facts.number(&format!("total.{c}")));
        let millis = |nanos| format!("{} ms", RoundedMillis(nanos, TimeUnits::default()));
        let cpus = self.answer.table("cpus");
        writeln!(
            out,
            "\n The CPUs were busy for {:.1}% of their time; interrupts and softirqs took {:.1}%.",
            percent(total.saturating_sub(idle), total),
            percent(irq + softirq, total),
        )?;
        writeln!(out, "\nTotal  : {:>13}, {} cpus", millis(total), cpus.rows.len())?;
        writeln!(
            out,
            "%Cpu(s): {:>6.2}% id, {:>6.2}% hi, {:>6.2}% si",
            percent(idle, total),
            percent(irq, total),
            percent(softirq, total),
        )?;
        for cpu in cpus.first(self.most_cpus).rows() {
            let (total, idle) = (cpu.number("total_ns"), cpu.number("idle_ns"));
            let busy = percent(total.saturating_sub(idle), total);
            let bars = "|".repeat((busy * 0.3).round() as usize);
            writeln!(out, "%Cpu{:<4}[{bars:<30} {busy:>6.2}%]", cpu.number("cpu"))?;
        }
        write_more(out, cpus.rows.len(), self.most_cpus)?;
        writeln!(out)?;
        let plain = |nanos| RoundedMillis(nanos, TimeUnits::default()).to_string();
        let layout = match self.style {
            TableStyle::Kymo => TextLayout {
                indent: "  ",
                gap: " ",
                end: "",
                columns: vec![
                    TextColumn::left("Task", 26, |r| {
                        format!("{}:{}", r.text("comm"), r.number("tid"))
                    }),
                    TextColumn::right("% of a CPU", 10, |r| {
                        format!("{:.2}%", r.float("usage_percent"))
                    }),
                    TextColumn::right("Runtime ms", 12, |r| plain(r.number("runtime_ns"))),
                    TextColumn::right("Held up ms", 12, |r| plain(r.number("held_up_ns"))),
                ],
            },
            TableStyle::Perf => TextLayout {
                indent: " ",
                gap: "  ",
                end: "",
                columns: vec![
                    TextColumn::number("PID", 7, "tid"),
                    TextColumn::right("%CPU", 6, |r| format!("{:.2}", r.float("usage_percent"))),
                    TextColumn::right("RUNTIME", 16, |r| millis(r.number("runtime_ns"))),
                    TextColumn::right("HELD UP", 16, |r| millis(r.number("held_up_ns"))),
                    TextColumn::left("COMMAND", 0, |r| r.text("comm")),
                ],
            },
        };
        layout.write_head(out)?;
        match self.style {
            TableStyle::Kymo => layout.write_rule(out)?,
            TableStyle::Perf => writeln!(out, "  {}", "-".repeat(70))?,
        }
        let tasks = self.answer.table("tasks");
        layout.write_rows(out, tasks.first(self.most))?;
        write_more(out, tasks.rows.len(), self.most)
    }

    /// Writes the answer, the table and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        // Without switches the table is empty, and the ledger names the missing events.
        self.write_tables(out)?;
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }
}
