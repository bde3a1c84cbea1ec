//! Columns of waits for locks: titles and widths as perf has them.

use std::str::FromStr;

use kymo_table::{TableRow, TextColumn};

use super::ScaledTime;

/// Column by perf's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockField {
    word: &'static str,
    title: &'static str,
    name: &'static str,
}

/// perf's words for columns.
const FIELDS: [LockField; 6] = [
    LockField { word: "acquired", title: "acquired", name: "acquired" },
    LockField { word: "contended", title: "contended", name: "contended" },
    LockField { word: "wait_total", title: "total wait", name: "total_ns" },
    LockField { word: "wait_max", title: "max wait", name: "max_ns" },
    LockField { word: "wait_min", title: "min wait", name: "min_ns" },
    LockField { word: "avg_wait", title: "avg wait", name: "average_ns" },
];

impl FromStr for LockField {
    type Err = String;

    fn from_str(text: &str) -> Result<LockField, String> {
        FIELDS.into_iter().find(|field| field.word == text).ok_or_else(|| {
            let all: Vec<&str> = FIELDS.iter().map(|field| field.word).collect();
            format!("there is no field {text:?}; there are {}", all.join(", "))
        })
    }
}

impl LockField {
    /// Its title.
    pub(super) fn title(self) -> &'static str {
        self.title
    }

    /// Its number in a row.
    pub(super) fn value(self, row: TableRow<'_>) -> u64 {
        row.number(self.name)
    }

    /// The column of text.
    pub(super) fn text(self) -> TextColumn<'static> {
        if self.name.ends_with("_ns") {
            TextColumn::right(self.title, 12, move |row| ScaledTime(self.value(row)).to_string())
        } else {
            TextColumn::number(self.title, 10, self.name)
        }
    }
}
