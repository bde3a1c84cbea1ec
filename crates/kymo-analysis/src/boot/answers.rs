//! Answers of `kymo boot report` as tables.

use kymo_table::{Answer, AnswerSchema, ColumnSet};

use super::activity::{ActivityId, ActivityKind, BootActivity};
use super::compare::BootDifference;
use super::devices::{BootDevice, BootHost, DeviceLoad};
use super::report::{BootPart, BootReport, BootRow};
use crate::critical_path::PathKind;

/// Time in which a unit of systemd started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitTime {
    /// Its name.
    pub name: String,
    /// Microseconds of the monotonic clock: when it began to start, and when it had.
    pub from_us: u64,
    /// Time at which it had started.
    pub to_us: u64,
}

/// A boot with what was read beside it.
struct Boot<'a> {
    report: &'a BootReport,
    units: &'a [UnitTime],
}

/// Activity, cause and device of a part of the path.
struct PathPart<'a> {
    report: &'a BootReport,
    activity: ActivityId,
    kind: PathKind,
    device: Option<BootDevice>,
}

/// Part of the path with its times.
struct PartRow<'a>(PathPart<'a>, BootPart);

/// Parts of one kind, added up.
struct TotalRow<'a>(PathPart<'a>, BootRow);

/// Two boots.
struct Boots<'a> {
    reports: [&'a BootReport; 2],
    rows: &'a [BootDifference],
}

/// A difference, and the length of the first path.
struct DifferenceRow<'a>(&'a BootDifference, u64);

type HostRow = (BootHost, DeviceLoad);

impl BootReport {
    /// The answer, with the units of systemd that started.
    pub fn answer(&self, units: &[UnitTime]) -> Answer {
        Answer::of("boot", columns(), &Boot { report: self, units }, &())
    }

    /// Activity of a part of the path in words: `waiting for disk 254,0 (vda)`.
    pub fn doing(&self, kind: PathKind, device: Option<BootDevice>) -> String {
        match device.map(|device| (device, self.disks.get(&device))) {
            Some((device, Some(name))) => format!("waiting for {device} ({name})"),
            Some((device, None)) => format!("waiting for {device}"),
            None => kind.text(),
        }
    }
}

/// The answer about two boots: the differences of [`super::compare_boots`].
pub fn compare_answer(reports: [&BootReport; 2], rows: &[BootDifference]) -> Answer {
    Answer::of("boot_compare", compare_columns(), &Boots { reports, rows }, &())
}

const ACTIVITIES: &[&str] = &["initcall", "module", "work", "async", "device", "process", "task"];

impl PathPart<'_> {
    fn activity(&self) -> Option<&BootActivity> {
        self.report.activity(self.activity)
    }
}

fn part_columns<'a>() -> ColumnSet<'a, PathPart<'a>, ()> {
    ColumnSet::new()
        .key("activity", "activity of the task", |p: &PathPart<'a>, (): &()| {
            p.activity().map(|a| a.kind.name())
        })
        .of(ACTIVITIES)
        .key("name", "function, module or program", |p, ()| p.activity().map(|a| a.name.clone()))
        .key("kind", "kind of the time, as in `kymo why --json`", |p, ()| p.kind.code())
        .measure("text", "the kind in words", |p, ()| p.report.doing(p.kind, p.device))
        .key(
            "device",
            "device whose command ended the wait: `scsi 0:0:1:0`, `disk 254,0`",
            |p, ()| p.device.map(|device| device.to_string()),
        )
        .measure("disk", "its name: `sdb`", |p, ()| {
            p.device.and_then(|device| p.report.disks.get(&device).cloned())
        })
}

fn columns<'a>() -> ColumnSet<'a, Boot<'a>, ()> {
    let rows = ColumnSet::new()
        .inline(part_columns(), |row: &TotalRow<'a>, (): &()| &row.0)
        .sum("total_ns", "time on the path", |row, ()| row.1.total)
        .sum("count", "parts", |row, ()| row.1.count);
    let parts = ColumnSet::new()
        .inline(part_columns(), |row: &PartRow<'a>, (): &()| &row.0)
        .measure("from_ns", "start", |row, ()| row.1.from)
        .measure("to_ns", "end", |row, ()| row.1.to);
    ColumnSet::new()
        .measure("from_ns", "start of the critical path", |b: &Boot<'a>, (): &()| {
            b.report.span.map(|span| span.0)
        })
        .measure("to_ns", "its end", |b, ()| b.report.span.map(|span| span.1))
        .measure(
            "ends_with",
            "program whose start ends the path, or systemd unit whose activation does",
            |b, ()| b.report.ends_with.clone(),
        )
        .table("rows", "the path by activity, longest first", rows, |b, (), each| {
            for row in &b.report.rows {
                let (activity, kind, device) = (row.activity, row.kind, row.device);
                each(&TotalRow(PathPart { report: b.report, activity, kind, device }, *row));
            }
        })
        .table("parts", "the path in time order, without gaps", parts, |b, (), each| {
            for part in &b.report.parts {
                let (activity, kind, device) = (part.activity, part.kind, part.device);
                each(&PartRow(PathPart { report: b.report, activity, kind, device }, *part));
            }
        })
        .table("hosts", "hosts and disks with their commands", host_columns(), |b, (), each| {
            b.report.hosts.iter().for_each(each);
        })
        .measure("hosts_are_serial", "whether SCSI hosts were probed one after another", |b, ()| {
            b.report.hosts_are_serial()
        })
        .table(
            "longest",
            "initcalls, modules, device probes and asynchronous functions, on the path or not",
            longest_columns(),
            |b, (), each| {
                for (id, from, nanos) in &b.report.longest {
                    let activity = b.report.activity(*id);
                    let name = activity.map(|a| a.name.clone());
                    each(&LongestRow {
                        kind: activity.map(|a| a.kind),
                        name,
                        from: *from,
                        nanos: *nanos,
                    });
                }
            },
        )
        .table("units", "systemd units, slowest first", unit_columns(), |b, (), each| {
            b.units.iter().for_each(each);
        })
}

fn host_columns<'a>() -> ColumnSet<'a, HostRow, ()> {
    ColumnSet::new()
        .key(
            "host",
            "`scsi host 0`; a disk whose driver has no events counts as its own host",
            |(host, _): &HostRow, (): &()| host.to_string(),
        )
        .measure("devices", "its devices", |(_, load), ()| {
            load.devices.iter().map(ToString::to_string).collect::<Vec<_>>()
        })
        .sum("commands", "commands", |(_, load), ()| load.commands)
        .measure("from_ns", "start of the first command", |(_, load), ()| load.span.map(|s| s.0))
        .measure("to_ns", "end of the last command", |(_, load), ()| load.span.map(|s| s.1))
        .sum("busy_ns", "time with at least one command in flight", |(_, load), ()| load.busy)
        .sum("total_ns", "total time of all commands", |(_, load), ()| load.total)
        .measure("at_a_time", "average number of commands in flight while busy", |(_, load), ()| {
            load.at_a_time()
        })
        .measure("most", "maximum number in flight", |(_, load), ()| load.most)
}

/// A long activity.
struct LongestRow {
    kind: Option<ActivityKind>,
    name: Option<String>,
    from: u64,
    nanos: u64,
}

fn longest_columns<'a>() -> ColumnSet<'a, LongestRow, ()> {
    ColumnSet::new()
        .key("activity", "its kind", |row: &LongestRow, (): &()| row.kind.map(ActivityKind::name))
        .of(ACTIVITIES)
        .key("name", "function or module", |row, ()| row.name.clone())
        .measure("from_ns", "start", |row, ()| row.from)
        .sum("duration_ns", "duration", |row, ()| row.nanos)
}

fn unit_columns<'a>() -> ColumnSet<'a, UnitTime, ()> {
    ColumnSet::new()
        .key("name", "name", |unit: &UnitTime, (): &()| unit.name.clone())
        .measure("from_us", "start, in microseconds of the monotonic clock", |u, ()| u.from_us)
        .measure("to_us", "completion, in microseconds of the monotonic clock", |u, ()| u.to_us)
}

fn compare_columns<'a>() -> ColumnSet<'a, Boots<'a>, ()> {
    let rows = ColumnSet::new()
        .key("activity", "activity of the task", |row: &DifferenceRow<'a>, (): &()| {
            row.0.activity.kind.name()
        })
        .of(ACTIVITIES)
        .key("name", "function, module or program", |row, ()| row.0.activity.name.clone())
        .key("kind", "kind of the time, in words", |row, ()| row.0.kind.clone())
        .key("device", "device whose commands the path waited for", |row, ()| row.0.device.clone())
        .sum("first_ns", "time in the first boot", |row, ()| row.0.nanos[0])
        .sum("second_ns", "time in the second", |row, ()| row.0.nanos[1])
        .sum("change_ns", "their difference", |row, ()| row.0.change())
        .share("change_percent", "the difference as a share of the first path", |row, ()| {
            row.0.change() as f64 * 100.0 / row.1.max(1) as f64
        });
    ColumnSet::new()
        .sum("first_ns", "length of the first path", |b: &Boots<'a>, (): &()| b.reports[0].total())
        .sum("second_ns", "length of the second", |b, ()| b.reports[1].total())
        .table("rows", "differences, the largest first", rows, |b, (), each| {
            let whole = b.reports[0].total();
            b.rows.iter().for_each(|row| each(&DifferenceRow(row, whole)));
        })
}

/// Definitions of these answers.
pub(crate) fn schemas() -> [AnswerSchema; 2] {
    [
        AnswerSchema::of("boot", "kymo boot report --json", "", columns()),
        AnswerSchema::of(
            "boot_compare",
            "kymo boot report --compare --json",
            "",
            compare_columns(),
        ),
    ]
}
