//! Counters and histograms inside programs, added up over them: a table of the counters, bars of
//! the histograms, and JSON (docs/json.md).

use std::io::{self, Write};

use kymo_programs::HistogramBucket;
use kymo_ust::{
    CountedKey, CountedUnder, CounterKind, CounterRow, CounterTotals, CounterValue,
    HistogramCounts, bucket_range,
};
use serde_json::{Map, Value, json};

use super::histogram::write_bars;
use super::json::{buckets_json, number_json};
use super::quantile;
use super::text::{aligned, grouped, rate};
use crate::units::{grouped_count, shown};

/// Counters of programs for output.
pub struct ProgramCounts<'a> {
    /// The sums.
    pub totals: &'a CounterTotals,
    /// Nanoseconds in which it was counted; none: since the programs started.
    pub elapsed_ns: Option<u64>,
    /// Programs that had any, and how many of them have ended.
    pub programs: (usize, usize),
    /// Whether processes are distinguished by number, and by name.
    pub by: (bool, bool),
    /// Keys of a counter or histogram to show at most, largest first; 0 is all.
    pub top: usize,
    /// Columns of the terminal, if it is one.
    pub columns: Option<usize>,
}

/// The sums of one counter or histogram, the largest first, and those that are left out.
struct CounterGroup<'a> {
    shown: Vec<(&'a CounterRow, &'a CounterValue)>,
    left_out: Vec<&'a CounterValue>,
}

impl ProgramCounts<'_> {
    /// Writes what was counted.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let within = match self.elapsed_ns {
            Some(ns) => format!("in {:.3} s", ns as f64 / 1e9),
            None => "since it started".to_owned(),
        };
        let (counters, histograms) = (self.groups(CounterKind::Counter), self.histograms());
        let programs = match self.programs {
            (0, _) => return writeln!(out, "No program with such counters {}.", self.when()),
            (1, 0) => "1 program".to_owned(),
            (1, _) => "1 program, which has ended,".to_owned(),
            (n, 0) => format!("{} programs", grouped(n as i128)),
            (n, ended) => {
                format!(
                    "{} programs, {} of them ended,",
                    grouped(n as i128),
                    grouped(ended as i128)
                )
            }
        };
        let within =
            if self.programs.0 > 1 { within.replace("it started", "they started") } else { within };
        let number = |n: usize, word: &str| match n {
            1 => format!("1 {word}"),
            n => format!("{n} {word}s"),
        };
        let what = match (counters.len(), histograms.len()) {
            (0, 0) => return writeln!(out, "Nothing was counted by {programs} {within}."),
            (n, 0) => number(n, "counter"),
            (0, n) => number(n, "histogram"),
            (n, m) => format!("{} and {}", number(n, "counter"), number(m, "histogram")),
        };
        writeln!(out, "{what} of {programs} {within}.")?;
        self.write_counters(out, &counters)?;
        histograms.iter().try_for_each(|group| self.write_histograms(out, group))
    }

    fn when(&self) -> &'static str {
        if self.elapsed_ns.is_some() { "came" } else { "is there" }
    }

    fn histograms(&self) -> Vec<CounterGroup<'_>> {
        self.groups(CounterKind::Histogram)
    }

    /// Sums of a kind by counter. Of what is counted between two moments, those that have grown.
    fn groups(&self, kind: CounterKind) -> Vec<CounterGroup<'_>> {
        let is_shown = |value: &CounterValue| value.count() != 0;
        let is_all = self.elapsed_ns.is_none() && kind == CounterKind::Counter;
        let mut groups: Vec<CounterGroup<'_>> = Vec::new();
        let rows = self.totals.iter().filter(|(row, _)| row.kind == kind);
        for (row, value) in rows.filter(|(_, value)| is_all || is_shown(value)) {
            match groups
                .last_mut()
                .filter(|g| g.shown.first().is_some_and(|f| f.0.name == row.name))
            {
                Some(group) => group.shown.push((row, value)),
                None => {
                    groups.push(CounterGroup { shown: vec![(row, value)], left_out: Vec::new() })
                }
            }
        }
        for group in &mut groups {
            group.shown.sort_by_key(|(_, value)| std::cmp::Reverse(value.count()));
            if self.top != 0 && group.shown.len() > self.top {
                let rest = group.shown.split_off(self.top);
                group.left_out = rest.into_iter().map(|(_, value)| value).collect();
            }
        }
        groups
    }

    fn write_counters(&self, out: &mut dyn Write, groups: &[CounterGroup<'_>]) -> io::Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        let seconds = self.elapsed_ns.map(|ns| (ns as f64 / 1e9).max(1e-9));
        let numbers = |n: u128| {
            let mut cells = vec![grouped(i128::try_from(n).unwrap_or(i128::MAX))];
            cells.extend(seconds.map(|seconds| rate(n as f64 / seconds)));
            cells
        };
        let has_keys = groups.iter().any(|g| g.shown.iter().any(|(row, _)| !is_alone(row)));
        let has_others = groups.iter().any(|group| !group.left_out.is_empty());
        let has_keys = has_keys || has_others;
        let mut titles = vec!["count"];
        titles.extend(seconds.map(|_| "per second"));
        let number_titles = titles.len();
        titles.push("counter");
        titles.extend(has_keys.then_some("key"));
        titles.extend(self.by.0.then_some("pid"));
        titles.extend(self.by.1.then_some("comm"));
        let mut rows = Vec::new();
        for group in groups {
            for (row, value) in &group.shown {
                let mut cells = numbers(value.count().into());
                cells.push(shown(row.name.as_bytes()));
                cells.extend(has_keys.then(|| key_text(&row.under)));
                cells.extend(row.pid.map(|pid| pid.to_string()));
                cells.extend(row.comm.as_ref().map(|comm| shown(comm.as_bytes())));
                rows.push(cells);
            }
            if let (Some((row, _)), false) = (group.shown.first(), group.left_out.is_empty()) {
                let rest = group.left_out.iter().map(|value| u128::from(value.count())).sum();
                let mut cells = numbers(rest);
                let others = match group.left_out.len() {
                    1 => "(1 other)".to_owned(),
                    n => format!("({} others)", grouped(n as i128)),
                };
                cells.extend([shown(row.name.as_bytes()), others]);
                rows.push(cells);
            }
        }
        writeln!(out)?;
        let lines = aligned(&titles, &rows, number_titles, self.columns);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    fn write_histograms(&self, out: &mut dyn Write, group: &CounterGroup<'_>) -> io::Result<()> {
        for (row, value) in &group.shown {
            let CounterValue::Histogram(counts) = value else { continue };
            let mut name = shown(row.name.as_bytes());
            if !is_alone(row) {
                name.push_str(&format!(", {}", key_text(&row.under)));
            }
            let comm = row.comm.as_ref().map(|comm| shown(comm.as_bytes()));
            match (comm, row.pid) {
                (Some(comm), Some(pid)) => name.push_str(&format!(" ({comm} {pid})")),
                (Some(comm), None) => name.push_str(&format!(" ({comm})")),
                (None, Some(pid)) => name.push_str(&format!(" (pid {pid})")),
                (None, None) => {}
            }
            let buckets = buckets(counts);
            let span = match counts.extremes {
                Some((least, most)) if least == most => format!(", all {}", grouped(least.into())),
                Some((least, most)) => {
                    format!(" from {} to {}", grouped(least.into()), grouped(most.into()))
                }
                None => String::new(),
            };
            writeln!(
                out,
                "\n  {name}: {}{span}; average {}, half of them at most {}",
                grouped_count(counts.count(), "value", "values"),
                grouped(average(counts)),
                grouped(median(counts, &buckets).into()),
            )?;
            write_bars(out, &buckets, |value| value)?;
        }
        match group.left_out.len() {
            0 => Ok(()),
            n => writeln!(out, "\n  ... and {n} more (--top)"),
        }
    }

    /// Counters as a JSON object, without `ledger`.
    pub fn to_json(&self) -> Value {
        let groups = [CounterKind::Counter, CounterKind::Histogram].map(|kind| self.groups(kind));
        let left_out: usize = groups.iter().flatten().map(|group| group.left_out.len()).sum();
        let rows = groups.iter().flatten().flat_map(|group| &group.shown);
        json!({
            "elapsed_ns": self.elapsed_ns,
            "programs": self.programs.0,
            "ended": self.programs.1,
            "rows": rows.map(|(row, value)| row_json(row, value)).collect::<Vec<Value>>(),
            "left_out": left_out,
        })
    }
}

fn row_json(row: &CounterRow, value: &CounterValue) -> Value {
    let mut members = Map::new();
    let kind = match row.kind {
        CounterKind::Counter => "counter",
        CounterKind::Histogram => "histogram",
    };
    members.insert("name".into(), row.name.clone().into());
    members.insert("kind".into(), kind.into());
    match &row.under {
        CountedUnder::Nothing => {}
        CountedUnder::OtherKeys => _ = members.insert("other_keys".into(), true.into()),
        CountedUnder::Key(key) => {
            let json = match key {
                CountedKey::Unsigned(n) => (*n).into(),
                CountedKey::Signed(n) => (*n).into(),
                CountedKey::Text(text) | CountedKey::Cut(text) => text.clone().into(),
            };
            members.insert("key".into(), json);
            if matches!(key, CountedKey::Cut(_)) {
                members.insert("cut".into(), true.into());
            }
        }
    }
    row.pid.map(|pid| members.insert("pid".into(), pid.into()));
    row.comm.as_ref().map(|comm| members.insert("comm".into(), comm.clone().into()));
    members.insert("count".into(), value.count().into());
    if let CounterValue::Histogram(counts) = value {
        members.insert("sum".into(), number_json(counts.sum));
        if let Some((least, most)) = counts.extremes {
            members.insert("min".into(), least.into());
            members.insert("max".into(), most.into());
        }
        members.insert("buckets".into(), buckets_json(&buckets(counts)));
    }
    Value::Object(members)
}

fn is_alone(row: &CounterRow) -> bool {
    row.under == CountedUnder::Nothing
}

fn key_text(under: &CountedUnder) -> String {
    match under {
        CountedUnder::Nothing => String::new(),
        CountedUnder::Key(key) => shown(key.to_string().as_bytes()),
        CountedUnder::OtherKeys => "(other keys)".to_owned(),
    }
}

/// As bars are drawn of them. No program counts so far that the limit would be met.
fn buckets(counts: &HistogramCounts) -> Vec<HistogramBucket> {
    let bucket = |(n, count): (usize, &u64)| {
        let (from, to) = bucket_range(n);
        let is_single = from.zip(to).is_some_and(|(from, to)| from + 1 == to);
        HistogramBucket { from, to, is_single, count: (*count).min(u64::MAX >> 8) }
    };
    counts.buckets.iter().enumerate().map(bucket).collect()
}

fn average(counts: &HistogramCounts) -> i128 {
    counts.sum / i128::from(counts.count()).max(1)
}

/// At most the end of its bucket, and the largest value.
fn median(counts: &HistogramCounts, buckets: &[HistogramBucket]) -> i64 {
    let median = quantile(buckets, 0.5).unwrap_or(0);
    counts.extremes.map_or(median, |(_, most)| median.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> CounterTotals {
        let mut totals = CounterTotals::default();
        let row = |name: &str, kind, under| CounterRow {
            name: name.into(),
            kind,
            under,
            pid: None,
            comm: None,
        };
        let key = |text: &str| CountedUnder::Key(CountedKey::Text(text.into()));
        let counter = |name, under| row(name, CounterKind::Counter, under);
        totals.add(counter("shop:sales", CountedUnder::Nothing), CounterValue::Count(1200));
        totals.add(counter("shop:idle", CountedUnder::Nothing), CounterValue::Count(0));
        for (under, n) in [(key("card"), 7), (key("ca\nsh"), 900), (key("voucher"), 1)] {
            totals.add(counter("shop:payments", under), CounterValue::Count(n));
        }
        totals.add(counter("shop:payments", CountedUnder::OtherKeys), CounterValue::Count(30));
        let mut histogram = HistogramCounts {
            buckets: [0; kymo_ust::HISTOGRAM_BUCKETS],
            sum: 21,
            extremes: Some((1, 9)),
        };
        (histogram.buckets[2], histogram.buckets[4], histogram.buckets[5]) = (1, 2, 1);
        let value = CounterValue::Histogram(Box::new(histogram));
        totals.add(row("shop:basket", CounterKind::Histogram, key("card")), value);
        totals
    }

    fn counts(totals: &CounterTotals, elapsed_ns: Option<u64>) -> ProgramCounts<'_> {
        let by = (false, false);
        ProgramCounts { totals, elapsed_ns, programs: (2, 1), by, top: 3, columns: None }
    }

    #[test]
    fn tables_name_counters_and_keys() {
        let totals = totals();
        let mut out = Vec::new();
        counts(&totals, None).write_text(&mut out).expect("written");
        let expected = "\
3 counters and 1 histogram of 2 programs, 1 of them ended, since they started.

  count  counter        key
      0  shop:idle
    900  shop:payments  ca?sh
     30  shop:payments  (other keys)
      7  shop:payments  card
      1  shop:payments  (1 other)
  1,200  shop:sales

  shop:basket, card: 4 values from 1 to 9; average 5, half of them at most 7
                        1 |         1 ████████████████████
               ...
                        4 -          8 |         2 ████████████████████████████████████████
                        8 -         16 |         1 ████████████████████
";
        let text = String::from_utf8_lossy(&out);
        let plain = |text: &str| {
            text.split_whitespace().map(str::to_owned).collect::<Vec<String>>().join(" ")
        };
        assert_eq!(plain(&text), plain(expected), "{text}");
        out = Vec::new();
        counts(&totals, Some(2_000_000_000)).write_text(&mut out).expect("written");
        let text = String::from_utf8_lossy(&out);
        assert!(text.contains(" 1,200         600  shop:sales"), "{text}");
        assert!(!text.contains("idle"), "{text}");
    }

    #[test]
    fn json_has_keys_and_buckets() {
        let json = counts(&totals(), None).to_json();
        assert_eq!(json["left_out"], 1);
        assert_eq!(
            json["rows"][1],
            json!({"name": "shop:payments", "kind": "counter", "key": "ca\nsh", "count": 900})
        );
        let histogram = json!({
            "name": "shop:basket", "kind": "histogram", "key": "card", "count": 4, "sum": 21,
            "min": 1, "max": 9,
            "buckets": [{"from": 1, "to": 2, "count": 1}, {"from": 4, "to": 8, "count": 2},
                        {"from": 8, "to": 16, "count": 1}],
        });
        assert_eq!(json["rows"][5], histogram);
    }
}
