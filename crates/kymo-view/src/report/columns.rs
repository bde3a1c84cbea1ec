//! The columns of a report and the text of their cells.

use std::borrow::Cow;
use std::fmt::Write as _;

use kymo_analysis::histogram::{EntryNumbers, HistEntry, Key};
use kymo_analysis::payload_labels::PayloadLabels;
use kymo_analysis::profile::Profile;
use kymo_analysis::report_config::{ReportColumn, ReportWhole};
use kymo_model::format_width;

use crate::units::visible;
use crate::{PerfColumn, percent};

/// Sources of the texts of cells.
#[derive(Clone, Copy)]
pub(super) struct CellSource<'a> {
    pub(super) profile: &'a Profile,
    pub(super) labels: &'a PayloadLabels,
    /// Number of the event.
    pub(super) event: usize,
    /// Number of events that are shown beside each other.
    pub(super) events: usize,
    /// Whole paths of source files.
    pub(super) full_paths: bool,
    /// Shares with callees are of latencies.
    pub(super) latency: bool,
}

/// Heading and alignment of a column.
pub(super) fn column(of: ReportColumn, source: CellSource<'_>) -> PerfColumn {
    if let ReportColumn::Key(Key::Label(part)) = of {
        let (title, _, right) = source.labels.heading(source.event, part);
        // Texts of tracepoints are long, and stand last.
        let ragged = !right && source.labels.sample_word(source.event, part).is_none();
        return PerfColumn { title, right, ragged };
    }
    let (title, right, ragged) = match of {
        // As perf calls it.
        ReportColumn::Children if source.latency => (" Latency", true, false),
        ReportColumn::Children => ("Children", true, false),
        ReportColumn::Own => ("    Self", true, false),
        ReportColumn::Overhead => ("Overhead", true, false),
        ReportColumn::Kernel => ("     sys", true, false),
        ReportColumn::User => ("     usr", true, false),
        ReportColumn::Latency => (" Latency", true, false),
        ReportColumn::Samples => ("     Samples", true, false),
        ReportColumn::Period => ("      Period", true, false),
        ReportColumn::Key(Key::Comm) => ("Command", false, false),
        ReportColumn::Key(Key::Dso) => ("Shared Object", false, false),
        ReportColumn::Key(Key::Symbol) => ("Symbol", false, true),
        ReportColumn::Key(Key::Pid) => ("   Tgid:Command", false, false),
        ReportColumn::Key(Key::Tid) => ("    Pid:Command", false, false),
        ReportColumn::Key(Key::Cpu) => ("CPU", false, false),
        ReportColumn::Key(Key::Parallelism) => ("Parallelism", true, false),
        ReportColumn::Key(Key::Parent) => ("Parent symbol", false, false),
        ReportColumn::Key(Key::Srcline) => ("Source:Line", false, false),
        ReportColumn::Key(Key::Srcfile) => ("Source File", false, false),
        ReportColumn::Key(Key::Label(_)) => ("", false, false),
    };
    let title = match number_width(of) {
        Some(width) if source.events > 1 => {
            format!("{:>1$}", title.trim_start(), format_width(width * source.events))
        }
        _ => title.to_string(),
    };
    PerfColumn { title, right, ragged }
}

/// Characters that a number takes beside those of other events, as in perf.
fn number_width(of: ReportColumn) -> Option<usize> {
    match of {
        ReportColumn::Samples | ReportColumn::Period => Some(12),
        share => share.is_share().then_some(8),
    }
}

/// Appends the text of the cell.
pub(super) fn write_cell(
    of: ReportColumn,
    out: &mut String,
    source: CellSource<'_>,
    e: &HistEntry,
    wholes: &[ReportWhole],
) {
    if let Some(width) = number_width(of) {
        for (n, whole) in wholes.iter().enumerate() {
            let number = number(of, &e.numbers_of(n), *whole);
            let width = if n == 0 { 0 } else { width };
            // Writing to a String cannot fail.
            let _ = write!(out, "{number:>width$}");
        }
        return;
    }
    let mut cell = String::new();
    write_name(of, &mut cell, source, e);
    out.push_str(&visible(&cell));
}

/// Appends the name that a cell shows, as the recording has it.
fn write_name(of: ReportColumn, out: &mut String, source: CellSource<'_>, e: &HistEntry) {
    let profile = source.profile;
    let comm = profile.machine.comm(e.comm);
    // Writing to a String cannot fail.
    let _ = match of {
        ReportColumn::Key(Key::Comm) => out.write_str(comm),
        ReportColumn::Key(Key::Dso) => out.write_str(dso(profile, e)),
        ReportColumn::Key(Key::Symbol) => {
            let _ = write!(out, "[{}] ", e.level);
            out.write_str(&symbol(profile, e))
        }
        ReportColumn::Key(Key::Pid) => task(out, profile, e.pid, e),
        ReportColumn::Key(Key::Tid) => task(out, profile, e.tid, e),
        ReportColumn::Key(Key::Cpu) => match e.cpu {
            Some(cpu) => write!(out, "{cpu:03}"),
            None => out.write_str("-001"),
        },
        ReportColumn::Key(Key::Parallelism) => write!(out, "{}", e.parallelism),
        ReportColumn::Key(Key::Label(part)) => out.write_str(source.labels.text(e.label, part)),
        ReportColumn::Key(Key::Srcline) => {
            out.write_str(&profile.srcline(e.frame, source.full_paths))
        }
        ReportColumn::Key(Key::Srcfile) => {
            out.write_str(profile.srcfile(e.frame, source.full_paths))
        }
        ReportColumn::Key(Key::Parent) => match e.parent {
            Some(p) => out.write_str(&profile.frame_name(p)),
            None => out.write_str("[other]"),
        },
        _ => Ok(()),
    };
}

/// The text of a number of one event.
fn number(of: ReportColumn, e: &EntryNumbers, whole: ReportWhole) -> String {
    let (part, whole) = match of {
        ReportColumn::Samples => return e.samples.to_string(),
        ReportColumn::Period => return e.period.to_string(),
        ReportColumn::Children => (e.total, whole.weight),
        ReportColumn::Own | ReportColumn::Latency => (e.own, whole.weight),
        ReportColumn::Kernel => (e.by_mode.0, whole.period),
        ReportColumn::User => (e.by_mode.1, whole.period),
        ReportColumn::Overhead | ReportColumn::Key(_) => (e.period, whole.period),
    };
    format!("{:.2}%", percent(part, whole))
}

/// The cell as it stands between separators.
pub(super) fn separated(of: ReportColumn, cell: &str, events: usize) -> String {
    match number_width(of) {
        Some(width) if events > 1 => {
            let numbers = cell.split_whitespace().collect::<Vec<_>>().join(" ");
            format!(" {numbers:<0$}", format_width(width * events - 1))
        }
        Some(_) if of.is_share() => format!(" {cell:<7}"),
        Some(_) => cell.to_owned(),
        None if of == ReportColumn::Key(Key::Cpu) => cell.to_owned(),
        // A name is no formula of a spreadsheet.
        None if cell.starts_with(['=', '+', '-', '@']) => format!("'{cell}"),
        None => cell.to_owned(),
    }
}

/// Characters of the cell; those of a share never matter.
pub(super) fn cell_width(of: ReportColumn, source: CellSource<'_>, e: &HistEntry) -> usize {
    let profile = source.profile;
    let chars = |text: &str| visible(text).chars().count();
    match of {
        share if share.is_share() => 0,
        ReportColumn::Key(Key::Comm) => chars(profile.machine.comm(e.comm)),
        ReportColumn::Key(Key::Dso) => chars(dso(profile, e)),
        ReportColumn::Key(Key::Symbol) => 4 + chars(&symbol(profile, e)),
        ReportColumn::Key(Key::Label(part)) => {
            let (_, least, _) = source.labels.heading(source.event, part);
            least.max(chars(source.labels.text(e.label, part)))
        }
        _ => {
            let mut cell = String::new();
            write_cell(of, &mut cell, source, e, &vec![ReportWhole::default(); source.events]);
            chars(&cell)
        }
    }
}

/// A task under its last name: an entry may be of several.
fn task(out: &mut String, profile: &Profile, id: u32, e: &HistEntry) -> std::fmt::Result {
    let comm = profile.machine.name_of(id).unwrap_or(e.comm);
    write!(out, "{id:>7}:{}", profile.machine.comm(comm))
}

/// Name of the binary.
pub(super) fn dso<'a>(profile: &'a Profile, e: &HistEntry) -> &'a str {
    profile.machine.symbols.dso_name(profile.frame(e.frame).dso)
}

/// Name of the function, or the address with all its digits.
pub(super) fn symbol<'a>(profile: &'a Profile, e: &HistEntry) -> Cow<'a, str> {
    match profile.function(e.frame) {
        Some(name) if profile.frame(e.frame).inlined.is_some() => {
            format!("{name} (inlined)").into()
        }
        Some(name) => name.into(),
        None if e.place == 0 => "0000000000000000".into(),
        None => format!("{:#018x}", e.place).into(),
    }
}
