//! Output of `kymo boot report`: the answer, the critical path, and hosts.

use std::io::{self, Write};

use kymo_analysis::boot::{
    ActivityId, BootDevice, BootDifference, BootHost, BootPart, BootReport, DeviceLoad, UnitTime,
};
use kymo_analysis::critical_path::PathKind;
use kymo_analysis::percent;

use crate::Ledger;
use crate::units::{Grouped, Seconds, Span, TimeUnits, shown};

/// Shortest share of the path that its timeline shows, in percent.
const LEAST_SHARE: f64 = 1.0;

/// A boot as it is shown.
pub struct BootView<'a> {
    /// Report.
    pub report: &'a BootReport,
    /// Units of systemd, those that took longest first.
    pub units: &'a [UnitTime],
    /// Maximum number of rows per table.
    pub entries: usize,
    /// A screen has the path by activity and the hosts.
    pub is_screen: bool,
    /// Units of times.
    pub times: TimeUnits,
    /// The recording as arguments of a command, `-i FILE`.
    pub recording: String,
}

impl BootView<'_> {
    /// Activity of a part of the path in words.
    fn doing(&self, kind: PathKind, device: Option<BootDevice>) -> String {
        shown(self.report.doing(kind, device).as_bytes())
    }

    fn name(&self, id: ActivityId) -> String {
        match self.report.activity(id) {
            Some(a) => format!("{} {}", a.kind.name(), shown(a.name.as_bytes())),
            None => String::new(),
        }
    }

    /// Writes the answer, the path, hosts, units, and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        self.write_answer(out)?;
        self.write_rows(out)?;
        if self.is_screen {
            self.write_hosts(out)?;
            writeln!(out, "\n  ... the path by time, longest calls and units: | less shows all")?;
        } else {
            self.write_timeline(out)?;
            self.write_hosts(out)?;
            self.write_longest(out)?;
            self.write_units(out)?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }

    fn write_answer(&self, out: &mut dyn Write) -> io::Result<()> {
        let r = self.report;
        let (Some((from, to)), Some(path)) = (r.span, r.table.paths.first()) else { return Ok(()) };
        let end = match &r.ends_with {
            Some(file) => format!("the start of {}", shown(file.as_bytes())),
            None => "the end of the path".to_owned(),
        };
        let whose = r
            .table
            .task(path.task)
            .map_or(String::new(), |t| format!(" of {}:{}", shown(&t.comm), t.tid));
        writeln!(
            out,
            "\n {} from the first event to {end}, on the critical path{whose}.",
            Span(to - from)
        )?;
        if let Some(row) = r.rows.first() {
            writeln!(
                out,
                " Most of it: {}, {} ({:.1} %): {}.",
                self.name(row.activity),
                Span(row.total),
                percent(row.total, r.total()),
                self.doing(row.kind, row.device)
            )?;
        }
        for line in self.parallelism() {
            writeln!(out, " {line}")?;
        }
        let nano = TimeUnits { nanos: true };
        if let Some(part) = r.parts.iter().max_by_key(|p| p.to - p.from) {
            let (from, to) = (Seconds(part.from, nano), Seconds(part.to, nano));
            writeln!(
                out,
                " Events of the longest part: kymo script {} --time {from},{to}",
                self.recording
            )?;
        }
        Ok(())
    }

    /// Lines about what prevents devices from working in parallel.
    fn parallelism(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let scsi = |h: &&(BootHost, DeviceLoad)| matches!(h.0, BootHost::Scsi(_));
        let hosts: Vec<_> = self.report.hosts.iter().filter(scsi).collect();
        if self.report.hosts_are_serial() {
            lines.push(format!(
                "{} SCSI hosts are scanned one after the other (scsi_mod.scan=async scans them at \
                 the same time).",
                hosts.len()
            ));
        } else if hosts.len() > 1 {
            lines.push(format!("{} SCSI hosts are scanned at the same time.", hosts.len()));
        }
        for (host, load) in hosts {
            let devices = load.devices.len();
            if load.most == 1 && devices > 1 && load.commands > devices as u64 {
                lines.push(format!(
                    "{host}: its {devices} devices share a queue of one: never more than one \
                     command at a time, {} busy.",
                    Span(load.busy)
                ));
            }
        }
        lines
    }

    fn write_rows(&self, out: &mut dyn Write) -> io::Result<()> {
        let r = self.report;
        if r.rows.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  Critical path by activity")?;
        writeln!(out, "    {:>10} {:>7} {:>6}  what", "time", "share", "parts")?;
        for row in r.rows.iter().take(self.entries) {
            writeln!(
                out,
                "    {:>10} {:>6.1}% {:>6}  {}: {}",
                Span(row.total),
                percent(row.total, r.total()),
                row.count,
                self.name(row.activity),
                self.doing(row.kind, row.device)
            )?;
        }
        if r.rows.len() > self.entries {
            writeln!(out, "    ... and {} more (--entries)", r.rows.len() - self.entries)?;
        }
        Ok(())
    }

    fn write_timeline(&self, out: &mut dyn Write) -> io::Result<()> {
        let r = self.report;
        let Some((first, _)) = r.span else { return Ok(()) };
        let total = r.total();
        let is_long = |p: &&BootPart| percent(p.to - p.from, total) >= LEAST_SHARE;
        let long: Vec<&BootPart> = r.parts.iter().filter(is_long).collect();
        if long.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  The same by time, parts of {LEAST_SHARE} % and more:")?;
        for part in long.iter().take(self.entries) {
            writeln!(
                out,
                "    {:>10} {:>10}  {}: {}",
                format!("+{}", Span(part.from - first)),
                Span(part.to - part.from),
                self.name(part.activity),
                self.doing(part.kind, part.device)
            )?;
        }
        if long.len() > self.entries {
            writeln!(out, "    ... and {} more (--entries)", long.len() - self.entries)?;
        }
        Ok(())
    }

    fn write_hosts(&self, out: &mut dyn Write) -> io::Result<()> {
        let r = self.report;
        let first = r.span.map_or(0, |s| s.0);
        if r.hosts.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  Hosts and disks:")?;
        writeln!(
            out,
            "    {:<14} {:>7} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>5}",
            "host", "devices", "commands", "from", "to", "busy", "together", "at a time", "most"
        )?;
        for (host, load) in r.hosts.iter().take(self.entries) {
            let (from, to) = load.span.unwrap_or((first, first));
            writeln!(
                out,
                "    {:<14} {:>7} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9.1} {:>5}",
                host,
                load.devices.len(),
                Grouped(load.commands),
                format!("+{}", Span(from.saturating_sub(first))),
                format!("+{}", Span(to.saturating_sub(first))),
                Span(load.busy),
                Span(load.total),
                load.at_a_time(),
                load.most
            )?;
        }
        Ok(())
    }

    fn write_longest(&self, out: &mut dyn Write) -> io::Result<()> {
        let r = self.report;
        let first = r.span.map_or(0, |s| s.0);
        if r.longest.is_empty() {
            return Ok(());
        }
        let [initcalls, modules, _] = r.seen;
        writeln!(
            out,
            "\n  The longest of {initcalls} initcalls and {modules} modules, of probes and asynchronous \
             functions, on the path or not:"
        )?;
        for (id, from, nanos) in r.longest.iter().take(self.entries.min(10)) {
            writeln!(
                out,
                "    {:>10} {:>10}  {}",
                format!("+{}", Span(from.saturating_sub(first))),
                Span(*nanos),
                self.name(*id)
            )?;
        }
        Ok(())
    }

    fn write_units(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.units.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n  Units of systemd that took longest to start:")?;
        for unit in self.units.iter().take(self.entries) {
            writeln!(
                out,
                "    {:>17} {:>10}  {}",
                Seconds(unit.from_us.saturating_mul(1000), self.times),
                Span(unit.to_us.saturating_sub(unit.from_us).saturating_mul(1000)),
                shown(unit.name.as_bytes())
            )?;
        }
        Ok(())
    }
}

/// Two boots beside each other.
pub struct BootComparison<'a> {
    /// The boots.
    pub reports: [&'a BootReport; 2],
    /// Their names.
    pub names: [String; 2],
    /// Differences, the largest first.
    pub rows: &'a [BootDifference],
    /// Rows at most.
    pub entries: usize,
}

impl BootComparison<'_> {
    /// Writes the answer, the differences and the ledger.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write, ledger: &Ledger) -> io::Result<()> {
        let [a, b] = self.reports.map(BootReport::total);
        let change = b.abs_diff(a);
        let word = if b > a { "slower" } else { "faster" };
        writeln!(
            out,
            "\n {}: {}; {}: {}: {} {word} ({:.1} %).",
            self.names[0],
            Span(a),
            self.names[1],
            Span(b),
            Span(change),
            percent(change, a)
        )?;
        writeln!(
            out,
            "\n    {:>10} {:>10} {:>11} {:>8}  what",
            "first", "second", "change", "of whole"
        )?;
        for row in self.rows.iter().take(self.entries) {
            let sign = if row.change() < 0 { "-" } else { "+" };
            let change = row.change().unsigned_abs();
            writeln!(
                out,
                "    {:>10} {:>10} {:>11} {:>8}  {} {}: {}",
                Span(row.nanos[0]),
                Span(row.nanos[1]),
                format!("{sign}{}", Span(change)),
                format!("{sign}{:.1}%", percent(change, a)),
                row.activity.kind.name(),
                shown(row.activity.name.as_bytes()),
                match &row.device {
                    Some(device) => format!("waiting for {device}"),
                    None => row.kind.clone(),
                }
            )?;
        }
        if !ledger.is_empty() {
            write!(out, "\n{}", ledger.to_text(""))?;
        }
        Ok(())
    }
}
