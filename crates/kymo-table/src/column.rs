//! Columns: name, type, unit, role, documentation.

use std::borrow::Cow;

/// Type of a column's values.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnType {
    /// 64-bit integer.
    Integer,
    /// Real number.
    Number,
    /// Yes or no.
    Boolean,
    /// Text from outside.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Values of one type.
    List(Box<ColumnType>),
    /// Values by name.
    Map(Box<ColumnType>),
    /// Rows.
    Table(Vec<Column>),
    /// At most one row.
    Record(Vec<Column>),
}

/// Unit of a column's values. A column's name ends in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: a count, a number of something, a word.
    None,
    /// Duration in nanoseconds.
    Duration,
    /// Point in time, in nanoseconds of the recording's clock.
    Time,
    /// Bytes.
    Bytes,
    /// Percent.
    Percent,
}

impl Unit {
    pub(crate) fn of_name(name: &str) -> Unit {
        const TIMES: [&str; 11] = [
            "start",
            "end",
            "first",
            "last",
            "time",
            "from",
            "to",
            "raised",
            "inserted",
            "issued",
            "completed",
        ];
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_time = |stem: &str| TIMES.iter().any(|t| stem.rsplit('_').next() == Some(*t));
        match last.strip_suffix("_ns") {
            Some(stem) if is_time(stem) => Unit::Time,
            Some(_) => Unit::Duration,
            None if last == "bytes" || last.ends_with("_bytes") => Unit::Bytes,
            None if last.ends_with("_percent") => Unit::Percent,
            None => Unit::None,
        }
    }
}

/// Part that a column plays in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Identifies the row.
    Key,
    /// Adds up over rows.
    Sum,
    /// Measured, and does not add up: a maximum, a quantile, a time.
    Measure,
    /// Share of a whole.
    Share,
}

/// Column of a table, or member of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name in JSON, CSV and options; `GROUP.NAME` for a member of a group.
    pub name: Cow<'static, str>,
    /// Type of its values.
    pub of: ColumnType,
    /// Unit, by the name.
    pub unit: Unit,
    /// Part in the table.
    pub role: Role,
    /// Whether values may be null.
    pub nullable: bool,
    /// Whether JSON leaves the member out where it is null.
    pub optional: bool,
    /// Whether only `--columns` shows it.
    pub is_detail: bool,
    /// Documentation.
    pub documentation: &'static str,
    /// Documentation of its group.
    pub group: Option<&'static str>,
}

impl Column {
    /// Whether the column has this name, or is in the group of this name.
    pub fn is_named(&self, name: &str) -> bool {
        match self.name.strip_prefix(name.trim()) {
            Some("") => true,
            Some(rest) => rest.starts_with('.') && !self.is_detail,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_follow_from_names() {
        let units = ["total_ns", "delay.max_start_ns", "read_bytes", "usage_percent", "count"]
            .map(Unit::of_name);
        let expected = [Unit::Duration, Unit::Time, Unit::Bytes, Unit::Percent, Unit::None];
        assert_eq!(units, expected);
        assert_eq!(Unit::of_name("blocked_ns"), Unit::Duration);
    }
}
