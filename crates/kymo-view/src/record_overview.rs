//! Overview of a perf.data, as text like that of `perf report --stats`, `--tasks` and `--mmaps`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use kymo_analysis::record_overview::{RecordOverview, RecordedMapping, RecordedTask};

use crate::percent;
use crate::units::visible;

/// Writes the numbers of records by kind, and of samples by event.
pub fn write_statistics(out: &mut dyn Write, overview: &RecordOverview) -> io::Result<()> {
    let total = overview.total();
    writeln!(out, "\nAggregated stats:")?;
    writeln!(out, "{:>20} events: {total:>10}", "TOTAL")?;
    for (kind, count) in &overview.kinds {
        let name = kind.name().map_or_else(|| format!("kind {}", kind.0), str::to_owned);
        let share = percent(*count, total);
        writeln!(out, "{name:>20} events: {count:>10}  ({share:>4.1}%)")?;
    }
    for (event, samples) in overview.samples.iter().filter(|(_, samples)| *samples > 0) {
        writeln!(out, "{} stats:", visible(event))?;
        writeln!(out, "{:>20} events: {samples:>10}", "SAMPLE")?;
    }
    Ok(())
}

/// Writes the tasks as a tree of processes with their threads; with their mappings if asked.
pub fn write_tasks(
    out: &mut dyn Write,
    overview: &RecordOverview,
    mappings: bool,
) -> io::Result<()> {
    writeln!(out, "# {:>8} {:>8} {:>8}  comm", "pid", "tid", "ppid")?;
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut roots = Vec::new();
    for (tid, task) in &overview.tasks {
        let above = if task.pid == *tid { task.parent } else { Some(task.pid) };
        match above.filter(|above| above != tid && overview.tasks.contains_key(above)) {
            Some(above) => children.entry(above).or_default().push(*tid),
            None => roots.push(*tid),
        }
    }
    let mut left: BTreeSet<u32> = overview.tasks.keys().copied().collect();
    // A hostile recording may state a circle of parents, which has no root.
    let first_left = |left: &BTreeSet<u32>| left.first().copied();
    let mut roots = roots.into_iter();
    while let Some(root) = roots.next().or_else(|| first_left(&left)) {
        let mut waiting = vec![(root, 0)];
        while let Some((tid, depth)) = waiting.pop() {
            if !left.remove(&tid) {
                continue;
            }
            if let Some(task) = overview.tasks.get(&tid) {
                write_task(out, tid, task, depth)?;
                for mapping in task.mappings.iter().filter(|_| mappings) {
                    write_mapping(out, mapping, depth)?;
                }
            }
            let below = children.get(&tid).into_iter().flatten().rev();
            waiting.extend(below.map(|child| (*child, depth + 1)));
        }
    }
    Ok(())
}

/// Depth beyond which lines are not indented further.
const DEEPEST: usize = 64;

fn write_task(out: &mut dyn Write, tid: u32, task: &RecordedTask, depth: usize) -> io::Result<()> {
    let parent = task.parent.map_or_else(|| "-1".to_owned(), |parent| parent.to_string());
    let (indent, comm) = (" ".repeat(depth.min(DEEPEST)), &task.comm);
    let comm = visible(comm);
    writeln!(out, "{:>10} {tid:>8} {parent:>8} |{indent}{comm}", task.pid)
}

fn write_mapping(out: &mut dyn Write, mapping: &RecordedMapping, depth: usize) -> io::Result<()> {
    let indent = " ".repeat(32 + depth.min(DEEPEST));
    let end = mapping.start.saturating_add(mapping.len);
    let prot = mapping.prot.map_or_else(
        || "----".to_owned(),
        |prot| {
            let letter = |bit: u32, letter: char| if prot & bit != 0 { letter } else { '-' };
            let shared = mapping.flags.is_some_and(|flags| flags & 1 != 0);
            let shared = if shared { 's' } else { 'p' };
            [letter(1, 'r'), letter(2, 'w'), letter(4, 'x'), shared].iter().collect()
        },
    );
    let file = visible(&mapping.file);
    let identity = match (&mapping.build_id, mapping.inode) {
        (Some(id), _) => id.to_string(),
        (None, inode) => inode.unwrap_or(0).to_string(),
    };
    let (start, offset) = (mapping.start, mapping.offset);
    writeln!(out, "{indent}{start:x}-{end:x} {prot} {offset:08x} {identity} {file}")
}
