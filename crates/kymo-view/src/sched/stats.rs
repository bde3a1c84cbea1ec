//! `kymo sched stats`: the scheduler's own counters, one reading or two side by side.

use std::io::{self, Write};

use kymo_model::counted;
use kymo_model::schedstat::{
    BalanceKind, CPU_FIELDS, CPU_TIME, CpuSchedStats, DOMAIN_GROUPS, RUN_DELAY, SchedCounter,
    SchedStats, balance_fields,
};
use serde_json::{Map, Value, json};

use crate::Ledger;
use crate::units::Span;

/// Differences of counters as they are shown.
pub struct SchedStatsView<'a> {
    /// Statistics of one recording, or of two that are compared.
    pub measured: &'a [SchedStats],
    /// Whether the meanings of counters are shown instead of their names.
    pub meanings: bool,
}

const WIDTH: usize = 100;
/// Width of a counter's name.
const NAME: usize = 64;

/// One row: a counter in each recording.
struct Row {
    label: String,
    values: Vec<f64>,
    /// Decimal places.
    places: usize,
    /// A share of another counter, in per cent, or jiffies between two events.
    beside: Vec<Option<f64>>,
}

impl SchedStatsView<'_> {
    /// Writes a sentence with the answer, then tables: all CPUs, and, of a single recording,
    /// each CPU.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        for (index, stats) in self.measured.iter().enumerate() {
            let name = match self.measured.len() {
                1 => String::new(),
                _ => format!("{}: ", index + 1),
            };
            writeln!(out, "{name}{}", answer(stats))?;
        }
        writeln!(out)?;
        let jiffies: Vec<String> =
            self.measured.iter().map(|s| format!("{:>12}", s.jiffies)).collect();
        writeln!(out, "{:<NAME$} : {}", "Time elapsed (in jiffies)", jiffies.join(","))?;
        let means: Vec<CpuSchedStats> = self.measured.iter().filter_map(SchedStats::mean).collect();
        if means.len() == self.measured.len() {
            let count: Vec<String> =
                self.measured.iter().map(|s| s.cpus.len().to_string()).collect();
            let title = format!("CPU: all (mean of {})", count.join(" and "));
            self.write_cpu(out, &title, &means.iter().collect::<Vec<_>>())?;
        }
        if let [only] = self.measured {
            for cpu in &only.cpus {
                self.write_cpu(out, &format!("CPU: {}", cpu.cpu), &[cpu])?;
            }
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_cpu(
        &self,
        out: &mut dyn Write,
        title: &str,
        cpus: &[&CpuSchedStats],
    ) -> io::Result<()> {
        rule(out, "")?;
        writeln!(out, "{title}")?;
        rule(out, "")?;
        self.write_head(out, "PCT_CHANGE")?;
        rule(out, "")?;
        for (index, field) in CPU_FIELDS.iter().enumerate() {
            let beside = cpus
                .iter()
                .map(|c| Some(percent(c.counters[index] as f64, c.counters[field.base?] as f64)));
            let row = Row {
                label: self.label(field, ""),
                values: cpus.iter().map(|c| c.counters[index] as f64).collect(),
                places: 0,
                beside: beside.collect(),
            };
            self.write_row(out, &row, "( ", "%)")?;
        }
        let levels = cpus.iter().map(|c| c.domains.len()).min().unwrap_or(0);
        for level in 0..levels {
            self.write_domain(out, title, cpus, level)?;
        }
        Ok(())
    }

    fn write_domain(
        &self,
        out: &mut dyn Write,
        title: &str,
        cpus: &[&CpuSchedStats],
        level: usize,
    ) -> io::Result<()> {
        let domains: Vec<_> = cpus.iter().filter_map(|c| c.domains.get(level)).collect();
        let Some(first) = domains.first() else { return Ok(()) };
        let name = first.name.as_ref().map_or(String::new(), |n| format!(" {n}"));
        let members = if title.starts_with("CPU: all") || first.mask.is_empty() {
            String::new()
        } else {
            format!(" | DOMAIN_CPUS: {}", first.cpu_list())
        };
        rule(out, "")?;
        writeln!(out, "{title} | DOMAIN: {}{name}{members}", first.number)?;
        rule(out, "")?;
        self.write_head(out, "AVG_JIFFIES")?;
        let version = self.version();
        for kind in BalanceKind::in_order(version) {
            rule(out, &format!(" <Category {}> ", kind.name()))?;
            let counters: Vec<&[u32]> = domains.iter().map(|d| d.balance(version, kind)).collect();
            self.write_balance(out, kind, &counters)?;
        }
        for (index, (title, fields)) in DOMAIN_GROUPS.iter().enumerate() {
            rule(out, &format!(" <Category {title}> "))?;
            for (at, field) in fields.iter().enumerate() {
                let values = domains.iter().map(|d| d.group(version, index).get(at).copied());
                let values = values.map(|n| n.unwrap_or(0).into()).collect();
                let label = self.label(field, "");
                let row = Row { label, values, places: 0, beside: vec![None; domains.len()] };
                self.write_row(out, &row, "", "")?;
            }
        }
        Ok(())
    }

    fn write_balance(
        &self,
        out: &mut dyn Write,
        kind: BalanceKind,
        counters: &[&[u32]],
    ) -> io::Result<()> {
        let prefix = format!("{}_", kind.name());
        let fields = balance_fields(self.version());
        for (at, field) in fields.iter().enumerate() {
            let value = |c: &&[u32]| f64::from(c.get(at).copied().unwrap_or(0));
            let values: Vec<f64> = counters.iter().map(value).collect();
            let timed = ["lb_count", "lb_balanced", "lb_failed", "lb_nobusyq", "lb_nobusyg"];
            let between = std::iter::zip(self.measured, &values).map(|(stats, value)| {
                timed.contains(&field.name).then(|| ratio(stats.jiffies as f64, *value))
            });
            let beside = between.collect();
            let row = Row { label: self.label(field, &prefix), values, places: 0, beside };
            self.write_row(out, &row, "$ ", "$")?;
        }
        let derived: Vec<Balance> = counters.iter().map(|c| Balance::of(fields, c)).collect();
        let none = vec![None; derived.len()];
        let success = Row {
            label: if self.meanings {
                "*tasks were moved".into()
            } else {
                format!("*{prefix}lb_success_count")
            },
            values: derived.iter().map(|d| d.success).collect(),
            places: 0,
            beside: none.clone(),
        };
        self.write_row(out, &success, "", "")?;
        let pulled = Row {
            label: if self.meanings {
                "*tasks that were moved each time".into()
            } else {
                format!("*{prefix}lb_avg_pulled")
            },
            values: derived.iter().map(|d| ratio(d.gained, d.success)).collect(),
            places: 2,
            beside: none,
        };
        self.write_row(out, &pulled, "", "")
    }

    fn write_head(&self, out: &mut dyn Write, beside: &str) -> io::Result<()> {
        match self.measured.len() {
            1 => writeln!(out, "{:<NAME$}   {:>12}   {beside}", "DESC", "COUNT"),
            _ => writeln!(
                out,
                "{:<NAME$}   {:>12},{:>12} | {:>10} | {beside}1, {beside}2",
                "DESC", "COUNT1", "COUNT2", "CHANGE"
            ),
        }
    }

    fn write_row(&self, out: &mut dyn Write, row: &Row, open: &str, close: &str) -> io::Result<()> {
        let values: Vec<String> =
            row.values.iter().map(|v| format!("{v:>12.*}", row.places)).collect();
        write!(out, "{:<NAME$} : {}", row.label, values.join(","))?;
        if let [before, after] = row.values[..] {
            write!(out, " | {:>9.2}% |", percent(after - before, before))?;
        }
        let beside: Vec<String> =
            row.beside.iter().flatten().map(|v| format!("{v:>9.2}")).collect();
        if !beside.is_empty() {
            write!(out, "  {open}{} {close}", beside.join(","))?;
        }
        writeln!(out)
    }

    fn label(&self, field: &SchedCounter, prefix: &str) -> String {
        if self.meanings { field.meaning.to_owned() } else { format!("{prefix}{}", field.name) }
    }

    fn version(&self) -> u16 {
        self.measured.first().map_or(0, |s| s.version)
    }

    /// Writes one object.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let measured: Vec<Value> = self.measured.iter().map(measured_json).collect();
        let value = json!({ "measured": measured });
        serde_json::to_writer(&mut *out, &value)?;
        writeln!(out)
    }
}

/// The answer: how long tasks waited for a CPU, against how long they ran.
fn answer(stats: &SchedStats) -> String {
    let sum = |index: usize| stats.cpus.iter().map(|c| c.counters[index]).sum::<u64>();
    let (ran, waited) = (sum(CPU_TIME), sum(RUN_DELAY));
    let slices = sum(CPU_FIELDS.len() - 1);
    let mut text = format!(
        "Tasks ran {} on {} and waited {} for a CPU",
        Span(ran),
        counted(stats.cpus.len() as u64, "CPU", "CPUs"),
        Span(waited)
    );
    if let Some(mean) = waited.checked_div(slices) {
        text += &format!(", {} before each of {slices} time slices", Span(mean));
    }
    let longest = stats.cpus.iter().max_by_key(|c| c.counters[RUN_DELAY]);
    if let Some(cpu) = longest.filter(|c| stats.cpus.len() > 1 && c.counters[RUN_DELAY] > 0) {
        text += &format!("; most on CPU {}: {}", cpu.cpu, Span(cpu.counters[RUN_DELAY]));
    }
    text + "."
}

/// Results derived from counters of load balancing.
struct Balance {
    /// Number of successful balancing attempts.
    success: f64,
    /// Number of moved tasks.
    gained: f64,
}

impl Balance {
    fn of(fields: &[SchedCounter], counters: &[u32]) -> Balance {
        let value = |name: &str| {
            let at = fields.iter().position(|f| f.name == name);
            at.and_then(|at| counters.get(at)).map_or(0.0, |n| f64::from(*n))
        };
        let success = value("lb_count") - value("lb_balanced") - value("lb_failed");
        // A mean of CPUs, each counter rounded, may be below 0 by one.
        Balance { success: success.max(0.0), gained: value("lb_gained") }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

fn percent(part: f64, whole: f64) -> f64 {
    ratio(part, whole) * 100.0
}

fn rule(out: &mut dyn Write, title: &str) -> io::Result<()> {
    writeln!(out, "{title:-^WIDTH$}")
}

fn measured_json(stats: &SchedStats) -> Value {
    let version = stats.version;
    let cpus: Vec<Value> = stats.cpus.iter().map(|cpu| cpu_json(version, cpu)).collect();
    json!({ "version": version, "jiffies": stats.jiffies, "cpus": cpus })
}

fn cpu_json(version: u16, cpu: &CpuSchedStats) -> Value {
    let mut object = Map::new();
    object.insert("cpu".into(), cpu.cpu.into());
    for (field, value) in std::iter::zip(&CPU_FIELDS, cpu.counters) {
        object.insert(field.name.into(), value.into());
    }
    let domain = |domain: &kymo_model::schedstat::DomainSchedStats| {
        let mut object = Map::new();
        object.insert("domain".into(), domain.number.into());
        object.insert("name".into(), domain.name.clone().into());
        object.insert("cpus".into(), domain.cpu_list().into());
        for kind in BalanceKind::in_order(version) {
            let counters = domain.balance(version, kind);
            for (field, value) in std::iter::zip(balance_fields(version), counters) {
                object.insert(format!("{}_{}", kind.name(), field.name), (*value).into());
            }
        }
        for (index, (_, fields)) in DOMAIN_GROUPS.iter().enumerate() {
            for (field, value) in std::iter::zip(fields, domain.group(version, index)) {
                object.insert(field.name.into(), (*value).into());
            }
        }
        Value::Object(object)
    };
    let domains = cpu.domains.iter().map(domain).collect();
    object.insert("domains".into(), Value::Array(domains));
    Value::Object(object)
}
