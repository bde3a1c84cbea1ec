//! Output of `kymo count`: the answer, a table or histograms, the slowest of a latency, and JSON
//! (docs/json.md); the same of counters inside programs.

mod histogram;
mod json;
mod latency;
mod programs;
mod text;

use std::collections::HashMap;

use kymo_bpf::CountMeasure;
use kymo_programs::{HistogramBucket, PrintedMap, ProgramValue};
pub use programs::ProgramCounts;

/// A map that the program printed.
#[derive(Clone, Debug, Default)]
pub struct CountedMap {
    /// Its name, with `@`.
    pub name: String,
    /// Keys and values, the largest first.
    pub entries: Vec<(Vec<ProgramValue>, ProgramValue)>,
    /// Values of the entries that are not shown.
    pub left_out: Vec<ProgramValue>,
}

impl CountedMap {
    /// Takes over what is printed.
    pub fn of_printed(map: PrintedMap<'_>) -> CountedMap {
        let parts = |key| match key {
            None => Vec::new(),
            Some(ProgramValue::Tuple(parts)) => parts,
            Some(key) => vec![key],
        };
        let entries = map.entries.into_iter().rev().map(|(key, value)| (parts(key), value));
        CountedMap { name: map.name.to_owned(), entries: entries.collect(), left_out: map.left_out }
    }
    /// Returns the increase since an earlier moment, of values that only grow; the `top` largest.
    #[must_use]
    pub fn since(&self, earlier: &CountedMap, top: usize) -> CountedMap {
        let name =
            |keys: &[ProgramValue]| keys.iter().map(ProgramValue::to_text).collect::<Vec<String>>();
        let before: HashMap<Vec<String>, &ProgramValue> =
            earlier.entries.iter().map(|(keys, value)| (name(keys), value)).collect();
        let mut entries: Vec<(Vec<ProgramValue>, ProgramValue)> = self
            .entries
            .iter()
            .map(|(keys, value)| (keys.clone(), growth(value, before.get(&name(keys)).copied())))
            .filter(|(_, value)| size(value) != 0)
            .collect();
        entries.sort_by_key(|(_, value)| std::cmp::Reverse(size(value)));
        let kept = if top == 0 { entries.len() } else { top.min(entries.len()) };
        let left_out = entries.split_off(kept).into_iter().map(|(_, value)| value).collect();
        CountedMap { name: self.name.clone(), entries, left_out }
    }
}

/// Size of a value, by which entries are ordered.
fn size(value: &ProgramValue) -> i128 {
    match value {
        ProgramValue::Statistics(count, ..) => (*count).into(),
        ProgramValue::Histogram(buckets) => events_of(buckets).into(),
        value => value.number().unwrap_or(0),
    }
}

fn growth(value: &ProgramValue, before: Option<&ProgramValue>) -> ProgramValue {
    use ProgramValue as P;
    match (value, before) {
        (P::Unsigned(now), Some(P::Unsigned(before))) => P::Unsigned(now.wrapping_sub(*before)),
        (P::Signed(now), Some(P::Signed(before))) => P::Signed(now.wrapping_sub(*before)),
        (P::Histogram(now), Some(P::Histogram(before))) => {
            let pairs = now.iter().zip(before);
            let less = |(now, before): (&HistogramBucket, &HistogramBucket)| HistogramBucket {
                count: now.count.saturating_sub(before.count),
                ..*now
            };
            P::Histogram(pairs.map(less).collect())
        }
        (P::Statistics(count, _, sum), Some(P::Statistics(old, _, old_sum))) => {
            let (count, sum) = (count.saturating_sub(*old), growth(sum, Some(old_sum)));
            let average = match &sum {
                P::Signed(sum) => P::Signed(sum / i64::try_from(count).unwrap_or(i64::MAX).max(1)),
                P::Unsigned(sum) => P::Unsigned(sum / count.max(1)),
                _ => P::Empty,
            };
            P::Statistics(count, Box::new(average), Box::new(sum))
        }
        (value, _) => value.clone(),
    }
}

/// Counts of events for output.
pub struct EventCounts<'a> {
    /// Measured value.
    pub measure: &'a CountMeasure,
    /// Names of the keys.
    pub keys: &'a [String],
    /// The maps; the result is `@`.
    pub maps: &'a [CountedMap],
    /// Nanoseconds in which it was counted.
    pub elapsed_ns: u64,
    /// Entries of a latency that are shown at most; 0 is all.
    pub top: usize,
    /// Columns of the terminal, if it is one.
    pub columns: Option<usize>,
}

impl EventCounts<'_> {
    fn map(&self, name: &str) -> &CountedMap {
        static NONE: CountedMap =
            CountedMap { name: String::new(), entries: Vec::new(), left_out: Vec::new() };
        self.maps.iter().find(|map| map.name == name).unwrap_or(&NONE)
    }

    fn result(&self) -> &CountedMap {
        self.map("@")
    }

    /// The only number of a map without keys.
    fn number(&self, name: &str) -> u64 {
        let value = self.map(name).entries.first().and_then(|(_, value)| value.number());
        value.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
    }
}

/// Events of a histogram.
fn events_of(buckets: &[HistogramBucket]) -> u64 {
    buckets.iter().map(|b| b.count).sum()
}

/// A value that a share of the events does not exceed: the end of its bucket.
fn quantile(buckets: &[HistogramBucket], share: f64) -> Option<i64> {
    let events = events_of(buckets);
    let rank = ((events as f64 * share).ceil() as u64).max(1);
    let mut seen = 0u64;
    let bucket = buckets.iter().find(|bucket| {
        seen += bucket.count;
        seen >= rank
    })?;
    bucket.to.map(|to| to.saturating_sub(1)).or(bucket.from)
}

/// A key as one word or line; probes of tracepoints by the name that `-e` takes.
fn key_text(value: &ProgramValue) -> String {
    let text = crate::units::shown(value.to_text().as_bytes());
    text.strip_prefix("tracepoint:").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_what_was_added() {
        let entry =
            |key: &str, n| (vec![ProgramValue::Text(key.into())], ProgramValue::Unsigned(n));
        let map = |entries: &[(&str, u64)]| CountedMap {
            name: "@".into(),
            entries: entries.iter().map(|(key, n)| entry(key, *n)).collect(),
            left_out: Vec::new(),
        };
        let (earlier, now) = (map(&[("a", 5), ("b", 4)]), map(&[("a", 6), ("b", 4), ("c", 3)]));
        assert_eq!(now.since(&earlier, 0).entries, map(&[("c", 3), ("a", 1)]).entries);
        let first = now.since(&earlier, 1);
        assert_eq!((first.entries.len(), first.left_out), (1, vec![ProgramValue::Unsigned(1)]));
    }
}
