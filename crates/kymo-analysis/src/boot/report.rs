//! The report: the critical path with each part named.

use std::cmp::Reverse;
use std::ops::ControlFlow;

use kymo_events::{EventSource, ReadOptions, SourceError};
use rustc_hash::FxHashMap;

use super::BOOT_EVENTS;
use super::activity::{ActivityId, ActivityKind, ActivityMap, BootActivity};
use super::devices::{BootDevice, BootHost, DeviceLoad, DeviceWatch};
use crate::critical_path::{PathConfig, PathKind, PathTable, PathTarget, find_paths};
use crate::losses::select_events;

/// Parents, and parents of parents.
const MOST_PARENTS: usize = 32;

/// Selection of the path.
#[derive(Clone, Debug, Default)]
pub struct BootConfig {
    /// The task whose path is wanted; else the one that starts the program of `until`, or the
    /// first process.
    pub task: Option<PathTarget>,
    /// The path ends when a program with this name starts; else when the first process does.
    pub until: Option<String>,
    /// The path ends then, if no program's start ends it.
    pub end: Option<u64>,
    /// Main processes of systemd's units.
    pub units: Vec<(u32, String)>,
}

/// A part of the critical path that did one thing.
#[derive(Clone, Copy, Debug)]
pub struct BootPart {
    /// Begin.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Activity of its task.
    pub activity: ActivityId,
    /// Kind of the segment.
    pub kind: PathKind,
    /// Device whose command ended it.
    pub device: Option<BootDevice>,
}

/// Time of the path by what it went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootRow {
    /// Activity of the tasks.
    pub activity: ActivityId,
    /// Kind of the segments.
    pub kind: PathKind,
    /// Device whose commands were waited for.
    pub device: Option<BootDevice>,
    /// Nanoseconds.
    pub total: u64,
    /// Number of parts.
    pub count: u64,
    /// Begin of the first.
    pub first: u64,
}

/// A boot.
#[derive(Debug)]
pub struct BootReport {
    /// The critical path, and what was read for it.
    pub table: PathTable,
    /// Begin and end of what is explained.
    pub span: Option<(u64, u64)>,
    /// Program whose start is the end, if it is one.
    pub ends_with: Option<String>,
    /// The activities.
    pub activities: Vec<BootActivity>,
    /// Parts of the path by time; neighbors that do the same are one.
    pub parts: Vec<BootPart>,
    /// Parts summed by device, activity and kind, the largest first.
    pub rows: Vec<BootRow>,
    /// Names of disks.
    pub disks: FxHashMap<BootDevice, String>,
    /// Load by host.
    pub hosts: Vec<(BootHost, DeviceLoad)>,
    /// The longest initcalls, modules, probes and asynchronous functions, on the path or not: begin
    /// and nanoseconds.
    pub longest: Vec<(ActivityId, u64, u64)>,
    /// Number of initcalls, modules, program starts.
    pub seen: [u64; 3],
    /// Intervals that there was no room for.
    pub crowded: u64,
}

impl BootReport {
    /// An activity.
    pub fn activity(&self, id: ActivityId) -> Option<&BootActivity> {
        self.activities.get(id.0 as usize)
    }

    /// Nanoseconds of the path.
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|r| r.total).sum()
    }

    /// Whether SCSI hosts that have commands worked one after the other.
    pub fn hosts_are_serial(&self) -> bool {
        let scsi = self.hosts.iter().filter(|(host, _)| matches!(host, BootHost::Scsi(_)));
        are_serial(scsi.filter_map(|(_, load)| load.span).collect())
    }
}

/// Whether spans overlap by less than a tenth of the shorter of each two neighbors.
fn are_serial(mut spans: Vec<(u64, u64)>) -> bool {
    spans.sort_unstable();
    let apart = |pair: &[(u64, u64)]| {
        let overlap = pair[0].1.min(pair[1].1).saturating_sub(pair[1].0);
        let shorter = (pair[0].1 - pair[0].0).min(pair[1].1 - pair[1].0);
        overlap == 0 || overlap * 10 < shorter
    };
    spans.len() > 1 && spans.windows(2).all(apart)
}

/// Reads a boot.
///
/// # Errors
/// If reading fails.
pub fn report_boot(source: &EventSource, config: &BootConfig) -> Result<BootReport, SourceError> {
    let mut activities = ActivityMap::default();
    activities.units.extend(config.units.iter().cloned());
    let mut devices = DeviceWatch::default();
    let mut span: Option<(u64, u64)> = None;
    source.for_each(&select_events(&BOOT_EVENTS), ReadOptions::default(), &mut |event| {
        if let Some(time) = event.time {
            let (first, last) = span.unwrap_or((time, time));
            span = Some((first.min(time), last.max(time)));
        }
        activities.event(event);
        devices.event(event);
        ControlFlow::Continue(())
    })?;
    activities.finish(span.map_or(0, |s| s.1));
    let (target, times, ends_with) = choose(config, &activities, span);
    let table = find_paths(source, &PathConfig { target, times })?;
    let hosts = devices.finish();
    let mut parts = parts_of(&table, &mut activities, &devices);
    let mut span = table.paths.first().map(|p| (p.from, p.to));
    let path = table.paths.first();
    let mut tid = path.and_then(|p| table.task(p.task)).map(|t| t.tid);
    // Before it was born the path is its parent's, unless it alone is wanted.
    for _ in 0..MOST_PARENTS {
        let (Some((from, to)), Some((first, _)), None) = (span, times, &config.task) else { break };
        let birth = activities.forks.iter().rev().find(|(t, c, _)| *t <= from && Some(*c) == tid);
        let Some(parent) = birth.map(|(.., parent)| *parent).filter(|_| from > first) else {
            break;
        };
        let times = Some((first, from));
        let before = find_paths(source, &PathConfig { target: PathTarget::Thread(parent), times })?;
        let Some(path) = before.paths.first().filter(|p| p.to == from) else { break };
        (span, tid) = (Some((path.from, to)), Some(parent));
        parts.splice(0..0, parts_of(&before, &mut activities, &devices));
    }
    let longest = activities.longest(1000);
    Ok(BootReport {
        span,
        rows: rows(&parts),
        parts,
        hosts,
        disks: std::mem::take(&mut devices.names),
        longest,
        ends_with,
        seen: activities.seen,
        crowded: activities.crowded + devices.crowded,
        activities: activities.activities,
        table,
    })
}

/// Returns the target and the time span of the path, and the program that starts at its end.
fn choose(
    config: &BootConfig,
    activities: &ActivityMap,
    span: Option<(u64, u64)>,
) -> (PathTarget, Option<(u64, u64)>, Option<String>) {
    let fits = |(_, tid, file): &&(u64, u32, String)| match &config.until {
        Some(name) => file.rsplit('/').next() == Some(name) || file == name,
        None => *tid == 1,
    };
    let is_wanted = (config.task.is_none() || config.until.is_some()) && config.end.is_none();
    let exec = activities.execs.iter().find(fits).filter(|_| is_wanted);
    let from = span.map_or(0, |(first, _)| first);
    let last = span.map_or(u64::MAX, |(_, last)| last);
    let to = exec.map_or(config.end, |(time, ..)| Some(*time)).map_or(last, |to| to.min(last));
    let task = exec.map_or(1, |(_, tid, _)| *tid);
    let target = config.task.clone().unwrap_or(PathTarget::Thread(task));
    (target, Some((from, to.max(from))), exec.map(|(_, _, file)| file.clone()))
}

fn parts_of(
    table: &PathTable,
    activities: &mut ActivityMap,
    devices: &DeviceWatch,
) -> Vec<BootPart> {
    let mut parts: Vec<BootPart> = Vec::new();
    for segment in table.paths.iter().flat_map(|path| &path.segments) {
        let Some(task) = table.task(segment.task) else { continue };
        let kind = match segment.kind {
            PathKind::Waiting(cause) if cause.is_runnable() => {
                PathKind::Waiting(crate::offcpu::OffCpuCause::Woken)
            }
            kind => kind,
        };
        let device = match kind {
            PathKind::Blocked(..) => devices.waited_for(segment.from, segment.to),
            _ => None,
        };
        let mut pieces = Vec::new();
        activities.pieces(task.tid, segment.from, segment.to, &mut |from, to, activity| {
            pieces.push((from, to, activity));
        });
        for (from, to, activity) in pieces {
            let activity = activity.unwrap_or_else(|| {
                let name = String::from_utf8_lossy(&task.comm);
                // Workers differ only by their number, which has no meaning.
                let name = if name.starts_with("kworker/") { "kworker".into() } else { name };
                activities.id(ActivityKind::Task, &name)
            });
            match parts.last_mut() {
                Some(last)
                    if (last.activity, last.kind, last.device, last.to)
                        == (activity, kind, device, from) =>
                {
                    last.to = to;
                }
                _ => parts.push(BootPart { from, to, activity, kind, device }),
            }
        }
    }
    parts
}

fn rows(parts: &[BootPart]) -> Vec<BootRow> {
    let mut rows: FxHashMap<(ActivityId, PathKind, Option<BootDevice>), BootRow> =
        FxHashMap::default();
    for part in parts {
        let BootPart { activity, kind, device, from, to } = *part;
        let row = rows.entry((activity, kind, device)).or_insert(BootRow {
            activity,
            kind,
            device,
            total: 0,
            count: 0,
            first: from,
        });
        row.total += to - from;
        row.count += 1;
    }
    let mut rows: Vec<BootRow> = rows.into_values().collect();
    rows.sort_by_key(|r| (Reverse(r.total), r.first, r.activity));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_within_the_span_of_one_host_are_not_serial() {
        assert!(are_serial(vec![(1000, 2000), (0, 1000), (1950, 4000)]));
        // A short one while a long one works.
        assert!(!are_serial(vec![(0, 76), (27, 566)]));
        assert!(!are_serial(vec![(0, 1000), (10, 30)]));
        assert!(!are_serial(vec![(0, 1000)]));
    }
}
