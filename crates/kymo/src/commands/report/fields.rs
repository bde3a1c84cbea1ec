//! The columns of a report and the text of their cells.

use kymo_analysis::histogram::{HistEntry, Key};
use kymo_analysis::profile::Profile;
use kymo_view::{Column, percent};

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
    pub(crate) fn column(self) -> Column {
        let (title, right, ragged) = match self {
            Field::Children => ("Children", true, false),
            Field::Own => ("    Self", true, false),
            Field::Overhead => ("Overhead", true, false),
            Field::Samples => ("     Samples", true, false),
            Field::Period => ("      Period", true, false),
            Field::Key(Key::Comm) => ("Command", false, false),
            Field::Key(Key::Dso) => ("Shared Object", false, false),
            Field::Key(Key::Symbol) => ("Symbol", false, true),
            Field::Key(Key::Pid) => ("    Pid:Command", false, false),
            Field::Key(Key::Tid) => ("    Tid:Command", false, false),
            Field::Key(Key::Cpu) => ("CPU", false, false),
            Field::Key(Key::Parent) => ("Parent symbol", false, false),
        };
        Column { title: title.to_string(), right, ragged }
    }

    pub(crate) fn is_share(self) -> bool {
        matches!(self, Field::Children | Field::Own | Field::Overhead)
    }

    pub(crate) fn cell(self, profile: &Profile, e: &HistEntry, whole: u64) -> String {
        let comm = profile.machine.comm(e.comm);
        match self {
            Field::Children => format!("{:.2}%", percent(e.total, whole)),
            Field::Own | Field::Overhead => format!("{:.2}%", percent(e.own, whole)),
            Field::Samples => e.samples.to_string(),
            Field::Period => e.own.to_string(),
            Field::Key(Key::Comm) => comm.to_string(),
            Field::Key(Key::Dso) => dso(profile, e).to_string(),
            Field::Key(Key::Symbol) => format!("[{}] {}", e.level, symbol(profile, e)),
            Field::Key(Key::Pid) => format!("{:>7}:{comm}", e.pid),
            Field::Key(Key::Tid) => format!("{:>7}:{comm}", e.tid),
            Field::Key(Key::Cpu) => e.cpu.map_or("-001".to_string(), |c| format!("{c:03}")),
            Field::Key(Key::Parent) => {
                e.parent.map_or_else(|| "[other]".to_string(), |p| profile.frame_name(p))
            }
        }
    }
}

/// Name of the binary.
pub(crate) fn dso<'a>(profile: &'a Profile, e: &HistEntry) -> &'a str {
    profile.machine.symbols.dso_name(profile.frame(e.frame).dso)
}

/// Name of the symbol, or the address with all its digits.
pub(crate) fn symbol(profile: &Profile, e: &HistEntry) -> String {
    let frame = profile.frame(e.frame);
    match frame.symbol {
        Some(s) => profile.machine.symbols.name(s).to_string(),
        None if frame.addr == 0 => "0".repeat(16),
        None => format!("{:#018x}", frame.addr),
    }
}
