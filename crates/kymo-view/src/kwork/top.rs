//! `kymo kwork top`: what the CPUs spend their time on.

use std::io::{self, Write};
use std::str::FromStr;

use kymo_analysis::kwork::{CpuShare, CpuUsage, TaskShare};
use serde_json::{Value, json};

use super::counts_json;
use crate::Ledger;
use crate::units::shown;

/// Columns that rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopColumn {
    /// Share of the CPUs.
    Rate,
    /// Run time.
    Runtime,
    /// Thread id, the smallest first.
    Tid,
    /// Time in which interrupts and softirqs held it up.
    Held,
}

impl FromStr for TopColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<TopColumn, String> {
        Ok(match text {
            "rate" => TopColumn::Rate,
            "runtime" => TopColumn::Runtime,
            "tid" => TopColumn::Tid,
            "held" => TopColumn::Held,
            _ => {
                return Err(format!(
                    "there is no key {text:?}; there are rate, runtime, tid and held"
                ));
            }
        })
    }
}

/// The CPUs and tasks as they are shown.
pub struct TopView<'a> {
    /// What was counted.
    pub usage: &'a CpuUsage,
    /// What rows are sorted by.
    pub sort: Vec<TopColumn>,
    /// Only tasks with this name.
    pub name: Option<String>,
    /// Rows at most.
    pub lines: Option<usize>,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

impl TopView<'_> {
    fn total(&self) -> CpuShare {
        self.usage.cpus.iter().fold(CpuShare::default(), |sum, cpu| CpuShare {
            total: sum.total + cpu.total,
            idle: sum.idle + cpu.idle,
            irq: sum.irq + cpu.irq,
            softirq: sum.softirq + cpu.softirq,
        })
    }

    fn rows(&self) -> Vec<&TaskShare> {
        let named =
            |row: &&TaskShare| self.name.as_ref().is_none_or(|name| row.comm == name.as_bytes());
        let mut rows: Vec<&TaskShare> =
            self.usage.tasks.iter().filter(|row| row.runtime > 0).filter(named).collect();
        rows.sort_by(|a, b| {
            let by = |column: &TopColumn| match column {
                TopColumn::Rate => b.usage.total_cmp(&a.usage),
                TopColumn::Runtime => b.runtime.cmp(&a.runtime),
                TopColumn::Tid => (a.tid, a.cpu).cmp(&(b.tid, b.cpu)),
                TopColumn::Held => b.held_up.cmp(&a.held_up),
            };
            let order = self.sort.iter().map(by).find(|o| o.is_ne());
            order.unwrap_or_else(|| (a.tid, a.cpu).cmp(&(b.tid, b.cpu)))
        });
        rows
    }

    fn write_tables(&self, out: &mut dyn Write) -> io::Result<()> {
        let total = self.total();
        let millis = |nanos: u64| format!("{:.3}", nanos as f64 / 1e6);
        let cpus = self.usage.cpus.iter().filter(|cpu| cpu.total > 0).count();
        writeln!(
            out,
            "\n The CPUs were busy for {:.1}% of their time; interrupts and softirqs took {:.1}%.",
            percent(total.total.saturating_sub(total.idle), total.total),
            percent(total.irq + total.softirq, total.total),
        )?;
        writeln!(out, "\nTotal  : {:>10} ms, {cpus} cpus", millis(total.total))?;
        writeln!(
            out,
            "%Cpu(s): {:>6.2}% id, {:>6.2}% hi, {:>6.2}% si",
            percent(total.idle, total.total),
            percent(total.irq, total.total),
            percent(total.softirq, total.total),
        )?;
        for (number, cpu) in self.usage.cpus.iter().enumerate().filter(|(_, cpu)| cpu.total > 0) {
            let busy = percent(cpu.total.saturating_sub(cpu.idle), cpu.total);
            let bars = "|".repeat((busy * 0.3).round() as usize);
            writeln!(out, "%Cpu{number:<4}[{bars:<30} {busy:>6.2}%]")?;
        }
        writeln!(
            out,
            "\n {:>7}  {:>6}  {:>16}  {:>16}  COMMAND",
            "PID", "%CPU", "RUNTIME", "HELD UP"
        )?;
        writeln!(out, "  {}", "-".repeat(70))?;
        let rows = self.rows();
        let most = self.lines.unwrap_or(usize::MAX);
        for row in rows.iter().take(most) {
            writeln!(
                out,
                " {:>7}  {:>6.2}  {:>13} ms  {:>13} ms  {}",
                row.tid,
                row.usage,
                millis(row.runtime),
                millis(row.held_up),
                shown(&row.comm),
            )?;
        }
        if rows.len() > most {
            writeln!(out, "  ... and {} more", rows.len() - most)?;
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

    /// Writes all of it as one object.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let share = |cpu: &CpuShare| {
            json!({
                "total_ns": cpu.total,
                "idle_ns": cpu.idle,
                "irq_ns": cpu.irq,
                "softirq_ns": cpu.softirq,
            })
        };
        let task = |row: &&TaskShare| {
            json!({
                "comm": String::from_utf8_lossy(&row.comm),
                "tid": row.tid,
                "cpu": (row.tid == 0).then_some(row.cpu),
                "runtime_ns": row.runtime,
                "held_up_ns": row.held_up,
                "usage_percent": row.usage,
            })
        };
        let cpus = self.usage.cpus.iter().enumerate().filter(|(_, cpu)| cpu.total > 0);
        let cpus = cpus.map(|(number, cpu)| {
            let mut value = share(cpu);
            if let Some(members) = value.as_object_mut() {
                members.insert("cpu".to_owned(), number.into());
            }
            value
        });
        let most = self.lines.unwrap_or(usize::MAX);
        let page = json!({
            "total": share(&self.total()),
            "cpus": cpus.collect::<Vec<Value>>(),
            "tasks": self.rows().iter().take(most).map(task).collect::<Vec<Value>>(),
            "halves": counts_json(&self.usage.read.machine.counts),
            "first_ns": self.usage.read.span.map(|s| s.0),
            "last_ns": self.usage.read.span.map(|s| s.1),
        });
        writeln!(out, "{page:#}")
    }
}
