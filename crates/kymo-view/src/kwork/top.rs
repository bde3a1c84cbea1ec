//! `kymo kwork top`: what the CPUs spend their time on.

use std::io::{self, Write};

use kymo_analysis::percent;
use kymo_table::{Answer, Layout, TextColumn};

use crate::Ledger;
use crate::units::{RoundedMillis, TimeUnits};

/// The CPUs and tasks as they are shown.
pub struct TopView<'a> {
    /// The answer.
    pub answer: &'a Answer,
    /// Rows at most.
    pub most: usize,
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
        for cpu in cpus.rows() {
            let (total, idle) = (cpu.number("total_ns"), cpu.number("idle_ns"));
            let busy = percent(total.saturating_sub(idle), total);
            let bars = "|".repeat((busy * 0.3).round() as usize);
            writeln!(out, "%Cpu{:<4}[{bars:<30} {busy:>6.2}%]", cpu.number("cpu"))?;
        }
        let layout = Layout {
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
        };
        writeln!(out)?;
        layout.write_head(out)?;
        writeln!(out, "  {}", "-".repeat(70))?;
        let tasks = self.answer.table("tasks");
        layout.write_rows(out, tasks.first(self.most))?;
        if tasks.rows.len() > self.most {
            writeln!(out, "  ... and {} more", tasks.rows.len() - self.most)?;
        }
        Ok(())
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
