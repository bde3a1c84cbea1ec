//! A report as a tree: a level for each sort key, whose rows are the sums of those below.

use std::cmp::Reverse;
use std::io;

use kymo_analysis::chain_tree::{Chains, Viewer};
use kymo_analysis::histogram::{EntryNumbers, HistEntry, Histogram};
use kymo_analysis::report_config::{EventLayout, ReportColumn, ReportWhole};
use kymo_model::format_width;
use rustc_hash::FxHashMap;

use super::columns::{CellSource, column, separated, write_cell};
use super::text::ReportWriter;
use crate::percent;

/// Blanks that a level is indented by, as in perf.
const STEP: usize = 3;

/// A row of a level.
struct Row<'h> {
    name: String,
    /// Numbers of what is below, and what else a cell asks for of the first entry.
    sum: HistEntry,
    /// The entry itself, of the last level.
    entry: Option<&'h HistEntry>,
    below: Vec<usize>,
}

/// The rows of all levels; those of the first one are below the row 0.
fn rows<'h>(
    source: CellSource<'_>,
    keys: &[ReportColumn],
    shown: &'h Histogram,
    sorted_by: usize,
) -> Vec<Row<'h>> {
    let mut rows: Vec<Row<'h>> = Vec::new();
    let mut known: FxHashMap<(usize, String), usize> = FxHashMap::default();
    for entry in &shown.entries {
        // Numbers of what is below come to it; its chains are no sum.
        let sum = || {
            let mut sum = entry.clone();
            sum.set_numbers(EntryNumbers::default());
            sum.members.iter_mut().for_each(|numbers| *numbers = EntryNumbers::default());
            sum.chains = Chains::default();
            sum
        };
        if rows.is_empty() {
            rows.push(Row { name: String::new(), sum: sum(), entry: None, below: Vec::new() });
        }
        let mut at = 0;
        for (level, key) in keys.iter().enumerate() {
            let mut name = String::new();
            write_cell(*key, &mut name, source, entry, &[]);
            let next = rows.len();
            let place = *known.entry((at, name.clone())).or_insert(next);
            if place == next {
                let is_last = level + 1 == keys.len();
                let entry = Some(entry).filter(|_| is_last);
                rows.push(Row { name, sum: sum(), entry, below: Vec::new() });
                if let Some(parent) = rows.get_mut(at) {
                    parent.below.push(place);
                }
            }
            if let Some(row) = rows.get_mut(place) {
                let sum = &mut row.sum;
                let mut numbers = sum.numbers();
                numbers.add(&entry.numbers());
                sum.set_numbers(EntryNumbers { total: numbers.own, ..numbers });
                sum.members.iter_mut().zip(&entry.members).for_each(|(all, one)| all.add(one));
            }
            at = place;
        }
    }
    let weight = |row: &Row<'_>| {
        let first = std::iter::once(row.sum.deciding_weight(sorted_by));
        Reverse(first.chain(row.sum.further_weights(sorted_by)).collect::<Vec<u64>>())
    };
    let weights: Vec<Reverse<Vec<u64>>> = rows.iter().map(weight).collect();
    let weight = |n: &usize| weights.get(*n);
    rows.iter_mut().for_each(|row| row.below.sort_by_key(weight));
    rows
}

impl ReportWriter<'_> {
    /// Writes the tree of an event.
    pub(super) fn write_hierarchy(
        &mut self,
        (source, all): (CellSource<'_>, &[ReportWhole]),
        layout: &EventLayout,
        histogram: &Histogram,
        viewer: &mut Viewer<'_>,
    ) -> io::Result<()> {
        let is_key = |column: &&ReportColumn| matches!(column, ReportColumn::Key(_));
        let keys: Vec<ReportColumn> = layout.columns.iter().filter(is_key).copied().collect();
        let numbers: Vec<ReportColumn> =
            layout.columns.iter().filter(|column| !is_key(column)).copied().collect();
        let levels = keys.len() + usize::from(self.config.symbol_level);
        let deepest = levels.saturating_sub(1) * STEP;
        let separator = self.config.separator.clone();
        if !self.quiet {
            let title = |column_of: &ReportColumn| column(*column_of, source).title;
            let heads: Vec<String> = numbers.iter().map(title).collect();
            let names: Vec<String> = keys.iter().map(|k| title(k).trim().to_owned()).collect();
            let (heads, names) = match &separator {
                Some(separator) => (heads.join(separator), names.join(" / ")),
                None => (heads.join("  "), names.join(" / ")),
            };
            let between = separator.as_deref().unwrap_or("  ");
            let indent = if separator.is_some() { 0 } else { deepest };
            writeln!(self.out, "# {:indent$}{heads}{between}{names}", "")?;
            let dots = |n: usize| ".".repeat(n);
            let (left, right) = (indent + heads.chars().count(), names.chars().count());
            writeln!(self.out, "# {}{between}{}\n#", dots(left), dots(right))?;
        }
        let rows = rows(source, &keys, histogram, layout.histogram.sorted_by);
        let mut stack: Vec<(usize, usize)> = Vec::new();
        let push = |stack: &mut Vec<(usize, usize)>, row: &Row<'_>, level: usize| {
            stack.extend(row.below.iter().rev().map(|n| (*n, level)));
        };
        rows.first().iter().for_each(|row| push(&mut stack, row, 0));
        let limit = self.config.percent_limit;
        let whole = all.first().map_or(0, |first| first.weight);
        let is_shown = |row: &Row<'_>| percent(row.sum.own, whole) >= limit;
        while let Some((number, level)) = stack.pop() {
            let Some(row) = rows.get(number).filter(|row| is_shown(row)) else { continue };
            let mut line = " ".repeat(level * STEP);
            for (n, of) in numbers.iter().enumerate() {
                let mut cell = String::new();
                write_cell(*of, &mut cell, source, &row.sum, all);
                let width = format_width(column(*of, source).title.chars().count());
                match &separator {
                    Some(_) => line.push_str(&separated(*of, &cell, source.events)),
                    None => line.push_str(&format!("  {cell:>width$}")),
                }
                if let Some(separator) = separator.as_ref().filter(|_| n + 1 < numbers.len()) {
                    line.push_str(separator);
                }
            }
            match &separator {
                Some(separator) => {
                    line.push_str(separator);
                    line.push_str(&row.name.replace(separator.as_str(), "."));
                }
                None => line.push_str(&format!("{:1$}{2}", "", 2 + deepest, row.name)),
            }
            writeln!(self.out, "{line}")?;
            if let Some(entry) = row.entry.filter(|_| row.sum.own > 0) {
                self.chains(whole, layout, entry, row.sum.own, viewer)?;
            }
            let has_more = |n: &usize| rows.get(*n).is_some_and(is_shown);
            if !row.below.is_empty() && !row.below.iter().any(has_more) {
                let indent = (level + 1) * STEP + 12 + deepest;
                writeln!(self.out, "{:indent$}no entry >= {limit:.2}%", "")?;
            }
            push(&mut stack, row, level + 1);
        }
        Ok(())
    }
}
