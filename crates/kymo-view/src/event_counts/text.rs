//! Counts and measures as text: the answer, then a table or a histogram for each key.

use std::io::{self, Write};

use kymo_bpf::CountMeasure;
use kymo_model::format_width;
use kymo_programs::ProgramValue;

use super::histogram::write_bars;
use super::{EventCounts, events_of, key_text, quantile};
use crate::units::{Grouped, grouped_count};

/// A row of a table: cells of numbers, then keys.
pub(super) struct CountRow<'a> {
    pub numbers: Vec<String>,
    pub keys: &'a [ProgramValue],
}

impl EventCounts<'_> {
    /// Writes what was counted.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.measure {
            CountMeasure::Latency(text) => self.write_latency(out, text),
            CountMeasure::Histogram(field) | CountMeasure::LinearHistogram(field, ..) => {
                self.write_histograms(out, field)
            }
            _ => self.write_values(out),
        }
    }

    fn seconds(&self) -> f64 {
        (self.elapsed_ns as f64 / 1e9).max(1e-9)
    }

    /// Counts, sums and the like.
    fn write_values(&self, out: &mut dyn Write) -> io::Result<()> {
        let map = self.result();
        let total = self.total();
        self.write_answer(out, total)?;
        if self.keys.is_empty() || map.entries.is_empty() {
            return Ok(());
        }
        let titles: Vec<&str> = match self.measure {
            CountMeasure::Events => vec!["count", "share", "per second"],
            CountMeasure::Sum(_) => vec!["sum", "share", "per second"],
            CountMeasure::Average(_) => vec!["average"],
            CountMeasure::Minimum(_) => vec!["smallest"],
            CountMeasure::Maximum(_) => vec!["largest"],
            _ => vec!["count", "average", "sum"],
        };
        let mut rows: Vec<CountRow<'_>> = map
            .entries
            .iter()
            .map(|(keys, value)| CountRow { numbers: self.cells(value, total), keys })
            .collect();
        let others = [ProgramValue::Text(format!("({} others)", map.left_out.len()).into())];
        let rest: i128 = map.left_out.iter().filter_map(ProgramValue::number).sum();
        if !map.left_out.is_empty() {
            let numbers = match total {
                Some(_) => self.cells(&number_value(rest), total),
                None => vec![String::new(); titles.len()],
            };
            rows.push(CountRow { numbers, keys: &others });
        }
        self.write_table(out, &titles, &rows)
    }

    /// The sum over all keys, where adding them up means something.
    fn total(&self) -> Option<i128> {
        let map = self.result();
        let values = map.entries.iter().map(|(_, value)| value).chain(&map.left_out);
        match self.measure {
            CountMeasure::Events | CountMeasure::Sum(_) => {
                Some(values.filter_map(ProgramValue::number).sum())
            }
            _ => None,
        }
    }

    fn write_answer(&self, out: &mut dyn Write, total: Option<i128>) -> io::Result<()> {
        let map = self.result();
        let within = format!("in {:.3} s", self.seconds());
        let Some((keys, first)) = map.entries.first() else {
            return writeln!(out, "No event {within}.");
        };
        let entries = map.entries.len() + map.left_out.len();
        let entries = match entries {
            1 => "1 entry".to_owned(),
            n => format!("{} entries", grouped(n as i128)),
        };
        let most = || keys.iter().map(key_text).collect::<Vec<String>>().join(", ");
        let by = match self.keys {
            [] => String::new(),
            _ if keys.iter().any(|key| matches!(key, ProgramValue::Stack(_))) => {
                format!("; {entries} by {}", self.keys.join(", "))
            }
            keys => {
                let by = keys.join(", ");
                format!("; {entries} by {by}, first {}", most())
            }
        };
        match (self.measure, total) {
            (CountMeasure::Events, Some(total)) => writeln!(
                out,
                "{} {} {within}, {} a second{by}.",
                grouped(total),
                if total == 1 { "event" } else { "events" },
                rate(total as f64 / self.seconds())
            ),
            (CountMeasure::Sum(field), Some(total)) => writeln!(
                out,
                "Sum of {field} {within}: {}, {} a second{by}.",
                grouped(total),
                rate(total as f64 / self.seconds())
            ),
            (measure, _) => {
                let (word, field) = match measure {
                    CountMeasure::Average(field) => ("Average", field.as_str()),
                    CountMeasure::Minimum(field) => ("Smallest", field.as_str()),
                    CountMeasure::Maximum(field) => ("Largest", field.as_str()),
                    CountMeasure::Statistics(field) => ("Count, average and sum", field.as_str()),
                    _ => ("Value", ""),
                };
                match self.keys {
                    [] => {
                        let cells = self.cells(first, None).join(", ");
                        writeln!(out, "{word} of {field} {within}: {cells}.")
                    }
                    _ => writeln!(out, "{word} of {field} {within}{by}."),
                }
            }
        }
    }

    fn cells(&self, value: &ProgramValue, total: Option<i128>) -> Vec<String> {
        match (value, total) {
            (ProgramValue::Statistics(count, average, sum), _) => vec![
                grouped((*count).into()),
                grouped(average.number().unwrap_or(0)),
                grouped(sum.number().unwrap_or(0)),
            ],
            (value, Some(total)) => {
                let n = value.number().unwrap_or(0);
                let share = 100.0 * n as f64 / (total as f64).max(1.0);
                vec![grouped(n), format!("{share:.1} %"), rate(n as f64 / self.seconds())]
            }
            (value, None) => vec![grouped(value.number().unwrap_or(0))],
        }
    }

    /// Rows under their titles, numbers first. Stacks stand below their row.
    pub(super) fn write_table(
        &self,
        out: &mut dyn Write,
        titles: &[&str],
        rows: &[CountRow<'_>],
    ) -> io::Result<()> {
        let numbers = titles.len();
        let mut titles = titles.to_vec();
        let is_stack =
            |n: usize| rows.iter().any(|r| matches!(r.keys.get(n), Some(ProgramValue::Stack(_))));
        let plain: Vec<usize> = (0..self.keys.len()).filter(|n| !is_stack(*n)).collect();
        titles.extend(plain.iter().filter_map(|n| self.keys.get(*n)).map(String::as_str));
        let cells: Vec<Vec<String>> = rows
            .iter()
            .map(|row| {
                let keys = plain.iter().filter_map(|n| row.keys.get(*n)).map(key_text);
                row.numbers.iter().cloned().chain(keys).collect()
            })
            .collect();
        let lines = aligned(&titles, &cells, numbers, self.columns);
        let mut lines = lines.iter();
        writeln!(out, "\n{}", lines.next().map_or("", String::as_str))?;
        for (row, line) in rows.iter().zip(lines) {
            writeln!(out, "{line}")?;
            for key in row.keys {
                let ProgramValue::Stack(frames) = key else { continue };
                for frame in frames {
                    let frame = crate::units::shown(frame.as_bytes());
                    writeln!(out, "{}", cut(&format!("        {frame}"), self.columns))?;
                }
            }
        }
        Ok(())
    }

    fn write_histograms(&self, out: &mut dyn Write, field: &str) -> io::Result<()> {
        let map = self.result();
        let buckets = |value: &ProgramValue| match value {
            ProgramValue::Histogram(buckets) => buckets.clone(),
            _ => Vec::new(),
        };
        let all = map.entries.iter().map(|(_, value)| value).chain(&map.left_out);
        let events: u64 = all.map(|value| events_of(&buckets(value))).sum();
        let within = format!("in {:.3} s", self.seconds());
        if events == 0 {
            return writeln!(out, "No event {within}.");
        }
        writeln!(out, "{} of {field} {within}.", grouped_count(events, "value", "values"))?;
        for (keys, value) in &map.entries {
            let buckets = buckets(value);
            let names = self
                .keys
                .iter()
                .zip(keys)
                .filter(|(_, key)| !matches!(key, ProgramValue::Stack(_)));
            let names: Vec<String> =
                names.map(|(name, key)| format!("{name} {}", key_text(key))).collect();
            let median = quantile(&buckets, 0.5).unwrap_or(0);
            match self.keys {
                [] => writeln!(out)?,
                _ => writeln!(
                    out,
                    "\n  {}: {}, half of them at most {median}",
                    names.join(", "),
                    grouped_count(events_of(&buckets), "value", "values")
                )?,
            }
            for frame in keys.iter().flat_map(|key| match key {
                ProgramValue::Stack(frames) => frames.as_slice(),
                _ => &[],
            }) {
                writeln!(out, "        {}", crate::units::shown(frame.as_bytes()))?;
            }
            write_bars(out, &buckets, |value| value)?;
        }
        if !map.left_out.is_empty() {
            writeln!(out, "\n  ... and {} more (--top)", map.left_out.len())?;
        }
        Ok(())
    }
}

/// Titles and rows, as wide as their cells; the first `numbers` columns stand on the right.
pub(super) fn aligned(
    titles: &[&str],
    rows: &[Vec<String>],
    numbers: usize,
    columns: Option<usize>,
) -> Vec<String> {
    let mut widths: Vec<usize> = titles.iter().map(|t| t.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (n, (cell, width)) in row.zip(&widths).enumerate() {
            let width = format_width(*width);
            if n < numbers {
                line.push_str(&format!("  {cell:>width$}"))
            } else {
                line.push_str(&format!("  {cell:<width$}"))
            }
        }
        cut(line.trim_end(), columns)
    };
    let titles = line(&mut titles.iter().copied());
    let rows = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(titles).chain(rows).collect()
}

fn number_value(n: i128) -> ProgramValue {
    match (u64::try_from(n), i64::try_from(n)) {
        (Ok(n), _) => ProgramValue::Unsigned(n),
        (_, Ok(n)) => ProgramValue::Signed(n),
        _ => ProgramValue::Empty,
    }
}

pub(super) fn grouped(n: i128) -> String {
    let magnitude = u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{}{}", if n < 0 { "-" } else { "" }, Grouped(magnitude))
}

pub(super) fn rate(per_second: f64) -> String {
    match per_second.abs() {
        rate if rate < 10.0 => format!("{per_second:.1}"),
        _ => grouped(per_second.round() as i128),
    }
}

/// A line no longer than the terminal is wide; what is cut off is marked.
fn cut(line: &str, columns: Option<usize>) -> String {
    match columns {
        Some(columns) if columns > 0 && line.chars().count() > columns => {
            let kept: String = line.chars().take(columns - 1).collect();
            kept + "…"
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_counts::CountedMap;

    #[test]
    fn tables_have_the_answer_first_and_fit_the_terminal() {
        let entry =
            |name: &str, n: u64| (vec![ProgramValue::Text(name.into())], ProgramValue::Unsigned(n));
        let map = CountedMap {
            name: "@".into(),
            entries: vec![entry("a command", 900), entry("x", 90)],
            left_out: vec![ProgramValue::Unsigned(7), ProgramValue::Unsigned(3)],
        };
        let counts = EventCounts {
            measure: &CountMeasure::Events,
            keys: &["comm".to_owned()],
            maps: &[map],
            elapsed_ns: 2_000_000_000,
            top: 2,
            columns: Some(36),
        };
        let mut out = Vec::new();
        counts.write_text(&mut out).expect("written");
        let expected = "1,000 events in 2.000 s, 500 a second; 4 entries by comm, first a command.\n\n  \
                        count   share  per second  comm\n    \
                        900  90.0 %         450  a comm…\n     \
                        90   9.0 %          45  x\n     \
                        10   1.0 %         5.0  (2 oth…\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }
}
