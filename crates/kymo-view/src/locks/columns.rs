//! Columns of waits for locks: titles, widths and cells as perf has them.

use std::str::FromStr;

use kymo_analysis::locks::LockRow;

use super::ScaledTime;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockColumn {
    /// Number of locks that were taken.
    Acquired,
    /// Number of waits.
    Contended,
    /// Sum of waits.
    WaitTotal,
    /// The longest wait.
    WaitMax,
    /// The shortest wait.
    WaitMin,
    /// Mean of waits.
    AvgWait,
}

use LockColumn as C;

impl FromStr for LockColumn {
    type Err = String;

    fn from_str(text: &str) -> Result<LockColumn, String> {
        Ok(match text {
            "acquired" => C::Acquired,
            "contended" => C::Contended,
            "wait_total" => C::WaitTotal,
            "wait_max" => C::WaitMax,
            "wait_min" => C::WaitMin,
            "avg_wait" => C::AvgWait,
            _ => {
                let all = "acquired, contended, wait_total, wait_max, wait_min and avg_wait";
                return Err(format!("there is no field {text:?}; there are {all}"));
            }
        })
    }
}

impl LockColumn {
    /// Its title.
    pub(super) fn title(self) -> &'static str {
        match self {
            C::Acquired => "acquired",
            C::Contended => "contended",
            C::WaitTotal => "total wait",
            C::WaitMax => "max wait",
            C::WaitMin => "min wait",
            C::AvgWait => "avg wait",
        }
    }

    /// Characters of a cell.
    pub(super) fn width(self) -> usize {
        if matches!(self, C::Acquired | C::Contended) { 10 } else { 12 }
    }

    /// Its number in a row.
    pub(super) fn value(self, row: &LockRow) -> u64 {
        match self {
            C::Acquired => row.acquired,
            C::Contended => row.contended,
            C::WaitTotal => row.waits.total,
            C::WaitMax => row.waits.max.map_or(0, |m| m.0),
            C::WaitMin => row.min.unwrap_or(0),
            C::AvgWait => row.waits.average().unwrap_or(0),
        }
    }

    /// Text of the cell of a row.
    pub(super) fn cell(self, row: &LockRow) -> String {
        let (value, width) = (self.value(row), self.width());
        match self {
            C::Acquired | C::Contended => format!("{value:>width$}"),
            _ => format!("{:>width$}", ScaledTime(value)),
        }
    }
}

/// Rows by a column, the largest first.
pub(super) fn sorted(rows: &[LockRow], key: LockColumn) -> Vec<&LockRow> {
    let mut rows: Vec<&LockRow> = rows.iter().collect();
    rows.sort_by_cached_key(|row| {
        (std::cmp::Reverse(key.value(row)), row.caller.name.clone(), row.address, row.tid)
    });
    rows
}
