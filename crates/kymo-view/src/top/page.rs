//! Rows of a live profile with their names: the heaviest first, those that a filter leaves.

use std::cmp::Reverse;

use kymo_analysis::live_profile::{
    FunctionId, LiveFunction, LiveKey, LiveProfile, LiveQuery, LiveRow, LiveRows, RowKey,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::percent;
use crate::units::{Span, shown};

/// Selection and layout of the rows.
#[derive(Clone, Debug)]
pub struct TopShape {
    /// Rows by what was called from them, too, and not only by what they are themselves.
    pub children: bool,
    /// Rows whose cells hold this, in any case.
    pub filter: String,
    /// Percentages are of the samples that are shown, not of all.
    pub relative: bool,
    /// Hide rows below this percentage.
    pub least: f64,
    /// Only rows of more samples than this; of rows by their callees this means nothing.
    pub least_samples: u64,
    /// Those with most time off the CPU first.
    pub by_off_cpu: bool,
    /// Rows that are left out at the top.
    pub skip: usize,
    /// Most rows.
    pub most: usize,
}

impl Default for TopShape {
    fn default() -> TopShape {
        TopShape {
            relative: false,
            children: false,
            filter: String::new(),
            least: 0.0,
            least_samples: 0,
            by_off_cpu: false,
            skip: 0,
            most: usize::MAX,
        }
    }
}

/// A row with its names.
#[derive(Clone, Debug)]
pub struct TopLine {
    /// Key of the row.
    pub key: RowKey,
    /// Names, one for each key.
    pub cells: Vec<String>,
    /// Share with the processor there, in percent.
    pub own: f64,
    /// Share there or in what was called from there.
    pub total: f64,
    /// Samples with the processor there.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// Nanoseconds off the CPU there or in what was called from there.
    pub off_cpu: u64,
}

impl TopLine {
    /// The time off the CPU.
    pub(super) fn off_cpu_text(&self) -> String {
        match self.off_cpu {
            0 => "-".to_owned(),
            time => Span(time).to_string(),
        }
    }
}

/// Rows to show, and sums over all samples that count.
#[derive(Clone, Debug, Default)]
pub struct TopPage {
    /// Headings of the cells.
    pub titles: Vec<&'static str>,
    /// The rows.
    pub lines: Vec<TopLine>,
    /// Rows that the filter leaves, those beyond the shown ones too if `counted`.
    pub found: usize,
    /// Sums; its rows are taken out.
    pub sums: LiveRows,
    /// Whether times off the CPU were looked for.
    pub has_off_cpu: bool,
}

/// Heading of a key's column.
fn title(key: LiveKey) -> &'static str {
    match key {
        LiveKey::Comm => "Command",
        LiveKey::Pid => "Pid:Command",
        LiveKey::Tgid => "Process",
        LiveKey::Cpu => "CPU",
        LiveKey::Dso => "Shared Object",
        LiveKey::Symbol => "Symbol",
        LiveKey::Srcline => "Source:Line",
    }
}

/// Rows of a live profile with names.
pub fn build_page(profile: &LiveProfile, query: &LiveQuery, shape: &TopShape) -> TopPage {
    let mut sums = profile.rows(query);
    let mut rows = std::mem::take(&mut sums.rows);
    let whole = if shape.relative { sums.period } else { sums.all_period };
    let weight = |r: &LiveRow| if shape.children { r.total } else { r.own };
    let off_cpu = off_cpu_times(profile, query);
    let time = |r: &LiveRow| off_cpu.get(&r.key).copied().unwrap_or(0);
    // Filters of code are about where the processor was.
    if query.dsos.is_none() && query.symbols.is_none() {
        let known: FxHashSet<RowKey> = rows.iter().map(|r| r.key).collect();
        let others = off_cpu.keys().filter(|key| !known.contains(key));
        rows.extend(others.map(|key| LiveRow { key: *key, samples: 0, own: 0, total: 0 }));
    }
    rows.retain(|r| {
        let samples = shape.children || r.samples > shape.least_samples;
        let is_heavy = weight(r) > 0 && samples && percent(weight(r), whole) >= shape.least;
        is_heavy || time(r) > 0
    });
    let first = |r: &LiveRow| if shape.by_off_cpu { time(r) } else { 0 };
    rows.sort_by_key(|r| {
        (Reverse(first(r)), Reverse(weight(r)), Reverse(r.own), Reverse(time(r)), r.key)
    });
    let filter = shape.filter.to_lowercase();
    let has_off_cpu = profile.off_cpu().is_some();
    let mut page = TopPage { sums, has_off_cpu, ..TopPage::default() };
    page.titles = query.keys.iter().map(|k| title(*k)).collect();
    let last = shape.skip.saturating_add(shape.most);
    for row in rows {
        if filter.is_empty() && !(shape.skip..last).contains(&page.found) {
            page.found += 1;
            continue;
        }
        let cells = cells_of(profile, &query.keys, &row.key);
        let fits = |cell: &String| cell.to_lowercase().contains(&filter);
        if !filter.is_empty() && !cells.iter().any(fits) {
            continue;
        }
        if (shape.skip..last).contains(&page.found) {
            page.lines.push(TopLine {
                key: row.key,
                cells,
                own: percent(row.own, whole),
                total: percent(row.total, whole),
                samples: row.samples,
                period: row.own,
                off_cpu: time(&row),
            });
        }
        page.found += 1;
    }
    page
}

/// Times off the CPU by row.
fn off_cpu_times(profile: &LiveProfile, query: &LiveQuery) -> FxHashMap<RowKey, u64> {
    let Some(event) = profile.off_cpu() else { return FxHashMap::default() };
    let rows = profile.rows(&LiveQuery { event, ..query.clone() }).rows;
    rows.into_iter().map(|r| (r.key, r.total)).collect()
}

/// Names of a row, one for each key.
pub fn cells_of(profile: &LiveProfile, keys: &[LiveKey], row: &RowKey) -> Vec<String> {
    let machine = profile.machine();
    let comm = || row.comm.map_or_else(String::new, |c| shown(machine.comm(c).as_bytes()));
    keys.iter()
        .map(|key| match key {
            LiveKey::Comm => comm(),
            LiveKey::Pid => format!("{:>7}:{}", row.tid.unwrap_or(0), comm()),
            LiveKey::Tgid => {
                let pid = row.pid.unwrap_or(0);
                let name = machine.name_of(pid).map(|c| shown(machine.comm(c).as_bytes()));
                format!("{pid:>7}:{}", name.unwrap_or_default())
            }
            LiveKey::Cpu => row.cpu.map_or_else(|| "?".to_owned(), |cpu| format!("{cpu:03}")),
            LiveKey::Dso => {
                let dso = row.dso.and_then(|d| d.checked_sub(1)).map(kymo_symbols::DsoId);
                shown(machine.symbols.dso_name(dso).as_bytes())
            }
            LiveKey::Symbol => symbol(profile, row.function.unwrap_or(FunctionId::PENDING)),
            LiveKey::Srcline => match row.line {
                Some(line) => line_name(profile, line),
                None => symbol(profile, row.lineless.unwrap_or(FunctionId::PENDING)),
            },
        })
        .collect()
}

/// A line of source as `file:line`, with the last part of the path.
pub fn line_name(profile: &LiveProfile, line: u32) -> String {
    let Some(line) = profile.line(line) else { return "?".to_owned() };
    let file = line.file.rsplit_once('/').map_or(&*line.file, |(_, name)| name);
    format!("{}:{}", shown(file.as_bytes()), line.line)
}

/// A function with the mark of who runs it, as perf shows it.
fn symbol(profile: &LiveProfile, id: FunctionId) -> String {
    let Some(function) = profile.function(id) else { return "[.] (not named yet)".to_owned() };
    // The kernel's half of addresses, also where nothing is mapped.
    let mark = if function.kernel || function.ip >> 63 == 1 { 'k' } else { '.' };
    format!("[{mark}] {}", name(function))
}

/// Name of a function alone, or the address without one.
pub fn function_name(profile: &LiveProfile, id: FunctionId) -> String {
    profile.function(id).map_or_else(|| "(not named yet)".to_owned(), name)
}

fn name(function: &LiveFunction) -> String {
    match &function.name {
        Some(name) => shown(name.as_bytes()),
        None => format!("{:#018x}", function.start),
    }
}
