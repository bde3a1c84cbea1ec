//! The columns of a report and the text of their cells.

use std::borrow::Cow;
use std::fmt::Write as _;

use kymo_analysis::histogram::{HistEntry, Key};
use kymo_analysis::profile::Profile;
use kymo_view::{Column, percent};

use super::trace::Labels;

/// Where texts of cells come from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) labels: &'a Labels,
    /// Number of the event.
    pub(crate) event: usize,
    /// Whole paths of source files.
    pub(crate) full_paths: bool,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Children,
    Own,
    Overhead,
    Samples,
    Period,
    Key(Key),
}

impl Field {
    pub(crate) fn column(self, source: Source<'_>) -> Column {
        if let Field::Key(Key::Label(part)) = self {
            let (title, _, right) = source.labels.heading(source.event, part);
            return Column { title, right, ragged: !right };
        }
        let (title, right, ragged) = match self {
            Field::Children => ("Children", true, false),
            Field::Own => ("    Self", true, false),
            Field::Overhead => ("Overhead", true, false),
            Field::Samples => ("     Samples", true, false),
            Field::Period => ("      Period", true, false),
            Field::Key(Key::Comm) => ("Command", false, false),
            Field::Key(Key::Dso) => ("Shared Object", false, false),
            Field::Key(Key::Symbol) => ("Symbol", false, true),
            Field::Key(Key::Pid) => ("   Tgid:Command", false, false),
            Field::Key(Key::Tid) => ("    Pid:Command", false, false),
            Field::Key(Key::Cpu) => ("CPU", false, false),
            Field::Key(Key::Parent) => ("Parent symbol", false, false),
            Field::Key(Key::Srcline) => ("Source:Line", false, false),
            Field::Key(Key::Srcfile) => ("Source File", false, false),
            Field::Key(Key::Label(_)) => ("", false, false),
        };
        Column { title: title.to_string(), right, ragged }
    }

    pub(crate) fn is_share(self) -> bool {
        matches!(self, Field::Children | Field::Own | Field::Overhead)
    }

    /// Appends the text of the cell.
    pub(crate) fn cell(self, out: &mut String, source: Source<'_>, e: &HistEntry, whole: u64) {
        let profile = source.profile;
        let comm = profile.machine.comm(e.comm);
        // Writing to a String cannot fail.
        let _ = match self {
            Field::Children => write!(out, "{:.2}%", percent(e.total, whole)),
            Field::Own | Field::Overhead => write!(out, "{:.2}%", percent(e.own, whole)),
            Field::Samples => write!(out, "{}", e.samples),
            Field::Period => write!(out, "{}", e.own),
            Field::Key(Key::Comm) => out.write_str(comm),
            Field::Key(Key::Dso) => out.write_str(dso(profile, e)),
            Field::Key(Key::Symbol) => {
                let _ = write!(out, "[{}] ", e.level);
                out.write_str(&symbol(profile, e))
            }
            Field::Key(Key::Pid) => task(out, profile, e.pid, e),
            Field::Key(Key::Tid) => task(out, profile, e.tid, e),
            Field::Key(Key::Cpu) => match e.cpu {
                Some(cpu) => write!(out, "{cpu:03}"),
                None => out.write_str("-001"),
            },
            Field::Key(Key::Label(part)) => out.write_str(source.labels.text(e.label, part)),
            Field::Key(Key::Srcline) => out.write_str(&profile.srcline(e.frame, source.full_paths)),
            Field::Key(Key::Srcfile) => out.write_str(profile.srcfile(e.frame, source.full_paths)),
            Field::Key(Key::Parent) => match e.parent {
                Some(p) => out.write_str(&profile.frame_name(p)),
                None => out.write_str("[other]"),
            },
        };
    }

    /// Characters of the cell; those of a share never matter.
    pub(crate) fn width(self, source: Source<'_>, e: &HistEntry) -> usize {
        let profile = source.profile;
        let chars = |text: &str| text.chars().count();
        match self {
            Field::Children | Field::Own | Field::Overhead => 0,
            Field::Key(Key::Comm) => chars(profile.machine.comm(e.comm)),
            Field::Key(Key::Dso) => chars(dso(profile, e)),
            Field::Key(Key::Symbol) => 4 + chars(&symbol(profile, e)),
            Field::Key(Key::Label(part)) => {
                let (_, least, _) = source.labels.heading(source.event, part);
                least.max(chars(source.labels.text(e.label, part)))
            }
            _ => {
                let mut cell = String::new();
                self.cell(&mut cell, source, e, 0);
                chars(&cell)
            }
        }
    }
}

/// A task under its last name: an entry may be of several.
fn task(out: &mut String, profile: &Profile, id: u32, e: &HistEntry) -> std::fmt::Result {
    let comm = profile.machine.name_of(id).unwrap_or(e.comm);
    write!(out, "{id:>7}:{}", profile.machine.comm(comm))
}

/// Name of the binary.
pub(crate) fn dso<'a>(profile: &'a Profile, e: &HistEntry) -> &'a str {
    profile.machine.symbols.dso_name(profile.frame(e.frame).dso)
}

/// Name of the function, or the address with all its digits.
pub(crate) fn symbol<'a>(profile: &'a Profile, e: &HistEntry) -> Cow<'a, str> {
    match profile.function(e.frame) {
        Some(name) if profile.frame(e.frame).inlined.is_some() => {
            format!("{name} (inlined)").into()
        }
        Some(name) => name.into(),
        None if e.place == 0 => "0000000000000000".into(),
        None => format!("{:#018x}", e.place).into(),
    }
}
