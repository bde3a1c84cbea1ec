//! Sums of counters over programs: their identity, and the increase between two moments.

use std::collections::BTreeMap;

use crate::counters::{CountedKey, CounterKind, CounterValue};

/// Under what something was counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CountedUnder {
    /// The counter has no keys.
    Nothing,
    /// This key.
    Key(CountedKey),
    /// Keys that found no place.
    OtherKeys,
}

/// Identity of a sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterRow {
    /// PROVIDER:NAME.
    pub name: String,
    /// Counter or histogram.
    pub kind: CounterKind,
    /// Under what it was counted.
    pub under: CountedUnder,
    /// The process, if processes are distinguished.
    pub pid: Option<u32>,
    /// Its name, if names are distinguished.
    pub comm: Option<String>,
}

/// Sums of counters and histograms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterTotals(BTreeMap<CounterRow, CounterValue>);

impl CounterTotals {
    /// Most sums; of more than those the last are left out.
    pub const MOST: usize = 1 << 17;

    /// Adds to a sum, which is there from now on.
    pub fn add(&mut self, row: CounterRow, value: CounterValue) {
        match self.0.get_mut(&row) {
            Some(total) => total.add(&value),
            None => _ = self.0.insert(row, value),
        }
        if self.0.len() > Self::MOST {
            self.0.pop_last();
        }
    }

    /// Adds other sums.
    pub fn add_all(&mut self, other: CounterTotals) {
        other.0.into_iter().for_each(|(row, value)| self.add(row, value));
    }

    /// Increase since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &CounterTotals) -> CounterTotals {
        let grown = self.0.iter().map(|(row, value)| {
            let mut value = value.clone();
            if let Some(earlier) = earlier.0.get(row) {
                value.subtract(earlier);
            }
            (row.clone(), value)
        });
        CounterTotals(grown.collect())
    }

    /// The sums, those of a counter one after the other.
    pub fn iter(&self) -> impl Iterator<Item = (&CounterRow, &CounterValue)> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether sums are missing: there were too many.
    pub fn is_cut(&self) -> bool {
        self.0.len() >= Self::MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_grow_and_what_came_since_is_reported() {
        let row = |under| CounterRow {
            name: "shop:sales".into(),
            kind: CounterKind::Counter,
            under,
            pid: None,
            comm: None,
        };
        let key = |n| row(CountedUnder::Key(CountedKey::Unsigned(n)));
        let mut earlier = CounterTotals::default();
        earlier.add(key(1), CounterValue::Count(5));
        let mut now = earlier.clone();
        now.add_all(earlier.clone());
        now.add(row(CountedUnder::OtherKeys), CounterValue::Count(7));
        let since = now.since(&earlier);
        let since: Vec<_> = since.iter().map(|(row, value)| (&row.under, value.count())).collect();
        let first = CountedUnder::Key(CountedKey::Unsigned(1));
        assert_eq!(since, [(&first, 5), (&CountedUnder::OtherKeys, 7)]);
    }
}
