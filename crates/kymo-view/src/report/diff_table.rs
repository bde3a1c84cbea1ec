//! Entries of several recordings beside each other, in the columns of `perf diff`: shares of the
//! first one, and what became of them in the others, without an error of the result.

use std::io::{self, Write};

use kymo_analysis::payload_labels::PayloadLabels;
use kymo_analysis::profile::{EventProfile, Profile};
use kymo_analysis::report_config::{ReportColumn, ReportConfig};
use rustc_hash::FxHashMap;

use super::columns::{CellSource, column, write_cell};
use crate::units::visible;
use crate::{PerfColumn, PerfTable, percent};

/// Computation of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DiffComputation {
    /// Difference of shares.
    Delta,
    /// Absolute difference of shares.
    DeltaAbs,
    /// Ratio of periods.
    Ratio,
    /// Difference of weighed periods: weights of the first recording and of the others.
    WeightedDiff(i64, i64),
}

/// An event of a recording, grouped.
#[derive(Clone, Debug, Default)]
pub struct KeyedEntries {
    /// Name of the event.
    pub event: String,
    columns: Vec<PerfColumn>,
    /// Texts of the keys and sums of periods, in the order of a report.
    entries: Vec<(Vec<String>, u64)>,
    /// Sum that shares are of.
    whole: u64,
}

impl KeyedEntries {
    /// Groups the samples of an event by the keys of a report.
    pub fn new(
        profile: &Profile,
        event: &EventProfile,
        number: usize,
        config: &ReportConfig,
        labels: &PayloadLabels,
    ) -> KeyedEntries {
        let layout = config.layout(number, event, labels);
        let found = config.histogram(profile, &[event], &layout);
        let whole = config.wholes(profile, &[event], &found).first().map_or(0, |w| w.period);
        let source = CellSource {
            profile,
            labels,
            event: number,
            events: 1,
            full_paths: config.full_paths,
            latency: false,
        };
        let keys: Vec<ReportColumn> =
            layout.columns.iter().filter(|c| matches!(c, ReportColumn::Key(_))).copied().collect();
        let cells = |entry: &_| -> Vec<String> {
            let text = |key: &ReportColumn| {
                let mut text = String::new();
                write_cell(*key, &mut text, source, entry, &[]);
                text
            };
            keys.iter().map(text).collect()
        };
        let entries = found.entries.iter().filter(|e| e.period > 0);
        KeyedEntries {
            event: event.desc.name.clone(),
            columns: keys.iter().map(|key| column(*key, source)).collect(),
            entries: entries.map(|e| (cells(e), e.period)).collect(),
            whole,
        }
    }
}

/// Choices of the table.
#[derive(Clone, Debug)]
pub struct DiffTable<'a> {
    /// Computation.
    pub computation: DiffComputation,
    /// Sums of periods, too.
    pub periods: bool,
    /// The formula of each number.
    pub formula: bool,
    /// Only entries of the first recording that are in another one.
    pub matched_only: bool,
    /// Number of the recording that entries are in the order of; the first one: by its shares.
    pub order: usize,
    /// Separator of columns, without padding.
    pub separator: Option<&'a str>,
    /// Rows alone.
    pub quiet: bool,
}

struct Row<'a> {
    cells: &'a [String],
    /// Sums by recording.
    periods: Vec<Option<u64>>,
}

impl DiffTable<'_> {
    /// Writes the entries of an event. `files`: names of the recordings, the first one is the
    /// baseline; `all`: its entries and theirs.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(
        &self,
        out: &mut dyn Write,
        files: &[String],
        all: &[KeyedEntries],
    ) -> io::Result<()> {
        let Some(first) = all.first() else { return Ok(()) };
        let rows = self.rows(all);
        let numbered = |title: &str, n: usize| {
            if all.len() > 2 { format!("{title}/{n}") } else { title.to_owned() }
        };
        let mut columns = vec![right(&numbered("Baseline", 0), 8)];
        if self.periods {
            columns.push(right("Base period", 14));
        }
        for n in 1..all.len() {
            columns.push(match self.computation {
                DiffComputation::Delta => right(&numbered("Delta", n), 7),
                DiffComputation::DeltaAbs => right(&numbered("Delta Abs", n), 9),
                DiffComputation::Ratio => right(&numbered("Ratio", n), 14),
                DiffComputation::WeightedDiff(..) => right(&numbered("Weighted diff", n), 14),
            });
            if self.formula {
                columns.push(right(&numbered("Formula", n), 70));
            }
            if self.periods {
                columns.push(right(&numbered("Period", n), 14));
            }
        }
        columns.extend(first.columns.iter().cloned());
        let mut table = PerfTable::new(columns);
        let wholes = self.wholes(all, &rows);
        let texts: Vec<Vec<String>> = rows.iter().map(|row| self.texts(row, &wholes)).collect();
        for row in &texts {
            table.fit(row.iter().map(|cell| cell.chars().count()));
        }
        if !self.quiet {
            writeln!(out, "# Event '{}'\n#", visible(&first.event))?;
            if all.len() > 2 {
                writeln!(out, "# Data files:")?;
                for (n, file) in files.iter().enumerate() {
                    let role = if n == 0 { "(Baseline)" } else { "" };
                    writeln!(out, "#  [{n}] {} {role}", visible(file))?;
                }
                writeln!(out, "#")?;
            }
            table.write_head(out, self.separator)?;
        }
        for row in &texts {
            table.write_row(out, row, self.separator, &|_, _| None)?;
        }
        Ok(())
    }

    /// Sums that shares are of, of the baseline as it is shown and as it is compared.
    fn wholes(&self, all: &[KeyedEntries], rows: &[Row<'_>]) -> Wholes {
        let own: Vec<u64> = all.iter().map(|entries| entries.whole).collect();
        let shown = if self.matched_only {
            rows.iter().filter_map(|r| r.periods.first().copied().flatten()).sum()
        } else {
            own.first().copied().unwrap_or(0)
        };
        Wholes { shown, own }
    }

    fn rows<'a>(&self, all: &'a [KeyedEntries]) -> Vec<Row<'a>> {
        let mut rows: Vec<Row<'a>> = Vec::new();
        let mut known: FxHashMap<&[String], usize> = FxHashMap::default();
        for (n, entries) in all.iter().enumerate() {
            for (cells, period) in &entries.entries {
                let next = rows.len();
                let place = *known.entry(cells.as_slice()).or_insert(next);
                if place == next {
                    rows.push(Row { cells, periods: vec![None; all.len()] });
                }
                let slot = rows.get_mut(place).and_then(|row| row.periods.get_mut(n));
                slot.into_iter().for_each(|slot| *slot = Some(slot.unwrap_or(0) + period));
            }
        }
        if self.matched_only {
            rows.retain(|row| {
                let is_there = |at: Option<&Option<u64>>| at.is_some_and(Option::is_some);
                is_there(row.periods.first()) && row.periods.iter().skip(1).any(Option::is_some)
            });
        }
        let own: Vec<u64> = all.iter().map(|entries| entries.whole).collect();
        let base = |row: &Row<'_>| row.periods.first().copied().flatten().unwrap_or(0);
        let by = self.order;
        rows.sort_by(|a, b| {
            let order = if by == 0 {
                base(b).cmp(&base(a))
            } else {
                let rank = |row: &Row<'_>| self.rank(row, by, &own);
                let (one, two) = (rank(a), rank(b));
                two.is_some().cmp(&one.is_some()).then_with(|| {
                    let (one, two) = (one.unwrap_or(0.0), two.unwrap_or(0.0));
                    two.total_cmp(&one)
                })
            };
            order.then_with(|| base(b).cmp(&base(a)))
        });
        rows
    }

    /// Number that an entry is ordered by; `None` where nothing is computed.
    fn rank(&self, row: &Row<'_>, n: usize, own: &[u64]) -> Option<f64> {
        let value = self.value(row, n, own)?;
        Some(if self.computation == DiffComputation::DeltaAbs { value.abs() } else { value })
    }

    fn value(&self, row: &Row<'_>, n: usize, own: &[u64]) -> Option<f64> {
        let base = row.periods.first().copied().flatten();
        let period = row.periods.get(n).copied().flatten()?;
        let whole = |n: usize| own.get(n).copied().unwrap_or(0);
        match self.computation {
            DiffComputation::Delta | DiffComputation::DeltaAbs => {
                Some(percent(period, whole(n)) - percent(base.unwrap_or(0), whole(0)))
            }
            DiffComputation::Ratio => Some(period as f64 / base.filter(|b| *b > 0)? as f64),
            DiffComputation::WeightedDiff(before, after) => {
                let product = |period: u64, weight: i64| i128::from(period) * i128::from(weight);
                Some((product(period, after) - product(base?, before)) as f64)
            }
        }
    }

    fn texts(&self, row: &Row<'_>, wholes: &Wholes) -> Vec<String> {
        let base = row.periods.first().copied().flatten();
        let sign = if self.separator.is_some() { "" } else { "%" };
        let mut texts = vec![base.map_or_else(String::new, |period| {
            format!("{:.2}{sign}", percent(period, wholes.shown))
        })];
        if self.periods {
            texts.push(base.unwrap_or(0).to_string());
        }
        for n in 1..row.periods.len() {
            let period = row.periods.get(n).copied().flatten();
            let value = self.value(row, n, &wholes.own);
            texts.push(match (period, value, self.computation) {
                (None, ..) => String::new(),
                (_, None, _) => "N/A".to_owned(),
                (_, Some(v), DiffComputation::Delta | DiffComputation::DeltaAbs) => {
                    format!("{v:+.2}%")
                }
                (_, Some(v), DiffComputation::Ratio) => format!("{v:.6}"),
                (_, Some(v), DiffComputation::WeightedDiff(..)) => format!("{v:.0}"),
            });
            if self.formula {
                texts.push(period.map_or_else(String::new, |p| self.formula(base, p, n, wholes)));
            }
            if self.periods {
                texts.push(period.map_or_else(String::new, |p| p.to_string()));
            }
        }
        texts.extend(row.cells.iter().cloned());
        texts
    }

    fn formula(&self, base: Option<u64>, period: u64, n: usize, wholes: &Wholes) -> String {
        let whole = |n: usize| wholes.own.get(n).copied().unwrap_or(0);
        let base = base.unwrap_or(0);
        match self.computation {
            DiffComputation::Delta | DiffComputation::DeltaAbs => {
                format!("({period} * 100 / {}) - ({base} * 100 / {})", whole(n), whole(0))
            }
            DiffComputation::Ratio => format!("{period} / {base}"),
            DiffComputation::WeightedDiff(before, after) => {
                format!("({period} * {after}) - ({base} * {before})")
            }
        }
    }
}

struct Wholes {
    shown: u64,
    own: Vec<u64>,
}

fn right(title: &str, width: usize) -> PerfColumn {
    PerfColumn { title: format!("{title:>width$}"), right: true, ragged: false }
}
