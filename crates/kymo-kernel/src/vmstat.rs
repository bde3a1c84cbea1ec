//! `/proc/vmstat`: the memory manager's own counters, as names and values.
//!
//! The file is one read; counters are kept in the order the kernel lists them,
//! so that taking the difference of two snapshots is a walk over two arrays.

use std::io::Read as _;
use std::path::Path;

use crate::system_root::system_path;

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    text: Vec<u8>,
    counters: Vec<(std::ops::Range<u32>, u64)>,
}

/// Most bytes taken from the file; the kernel writes about 5,000.
const LIMIT: u64 = 1 << 20;

impl Snapshot {
    /// Reads `/proc/vmstat`.
    pub fn read() -> std::io::Result<Snapshot> {
        Self::read_from(&system_path("/proc/vmstat"))
    }

    /// Reads a file of the same form.
    pub fn read_from(path: &Path) -> std::io::Result<Snapshot> {
        let mut text = Vec::with_capacity(8192);
        std::fs::File::open(path)?.take(LIMIT).read_to_end(&mut text)?;
        Ok(Self::parse(text))
    }

    /// Takes `name value` lines apart; lines of another form are passed over.
    pub fn parse(text: Vec<u8>) -> Snapshot {
        let mut counters = Vec::with_capacity(256);
        let mut start = 0usize;
        for line in text.split_inclusive(|&b| b == b'\n') {
            let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
            if let (Some(name), Some(value)) = (words.next(), words.next())
                && let Some(value) = decimal(value)
                && std::str::from_utf8(name).is_ok()
            {
                // The first word starts the line unless the line is indented.
                let lead = line.iter().take_while(|b| b.is_ascii_whitespace()).count();
                let at = (start + lead) as u32;
                counters.push((at..at + name.len() as u32, value));
            }
            start += line.len();
        }
        Snapshot { text, counters }
    }

    /// Names and values in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counters.iter().map(|(range, value)| (self.name(range), *value))
    }

    fn name(&self, range: &std::ops::Range<u32>) -> &str {
        self.text
            .get(range.start as usize..range.end as usize)
            .and_then(|b| std::str::from_utf8(b).ok())
            .unwrap_or("")
    }

    /// The value of one counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Changes of the counters since `earlier`. Gauges such as `nr_free_pages` go down as well as
    /// up, hence the sign. Counters that `earlier` lacks are left out.
    pub fn since<'a>(&'a self, earlier: &'a Snapshot) -> impl Iterator<Item = (&'a str, i64)> {
        self.counters.iter().enumerate().filter_map(|(i, (range, now))| {
            let name = self.name(range);
            // The same kernel lists the same counters in the same order.
            let before = match earlier.counters.get(i) {
                Some((r, value)) if earlier.name(r) == name => *value,
                _ => earlier.get(name)?,
            };
            Some((name, now.wrapping_sub(before) as i64))
        })
    }

    /// Change of one counter since `earlier`.
    pub fn delta(&self, earlier: &Snapshot, name: &str) -> Option<i64> {
        Some(self.get(name)?.wrapping_sub(earlier.get(name)?) as i64)
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, d| {
        let d = d.is_ascii_digit().then(|| u64::from(d - b'0'))?;
        n.checked_mul(10)?.checked_add(d)
    })
}

/// The part of memory management a counter belongs to and whether it is a
/// gauge (a level that goes up and down) or counts events since boot.
pub fn is_gauge(name: &str) -> bool {
    name.starts_with("nr_") && !matches!(name, "nr_dirtied" | "nr_written")
        || name.starts_with("workingset_nodes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart_and_odd_ones_passed_over() {
        let s = Snapshot::parse(b"nr_free_pages 12\npgfault 7\nodd\nbad x\n  pgmaj 3".to_vec());
        assert_eq!(
            s.iter().collect::<Vec<_>>(),
            [("nr_free_pages", 12), ("pgfault", 7), ("pgmaj", 3)]
        );
    }

    #[test]
    fn differences_have_a_sign_and_follow_names_not_places() {
        let a = Snapshot::parse(b"nr_free_pages 12\npgfault 7\n".to_vec());
        let b = Snapshot::parse(b"new 1\nnr_free_pages 10\npgfault 17\n".to_vec());
        assert_eq!(b.since(&a).collect::<Vec<_>>(), [("nr_free_pages", -2), ("pgfault", 10)]);
        assert_eq!(b.delta(&a, "pgfault"), Some(10));
        assert_eq!(b.delta(&a, "new"), None);
    }

    #[test]
    fn touching_memory_moves_the_fault_counter() {
        let before = Snapshot::read().unwrap();
        assert!(before.iter().count() > 50);
        let pages = vec![1u8; 8 << 20];
        std::hint::black_box(&pages);
        let moved = Snapshot::read().unwrap().delta(&before, "pgfault").unwrap();
        assert!(moved > 0, "pgfault moved by {moved}");
    }
}
