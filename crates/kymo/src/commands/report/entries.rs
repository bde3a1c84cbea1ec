//! What events are counted into: an entry for each combination of their keys.

use kymo_view::Ledger;
use rustc_hash::FxHashMap;

/// Entries that are kept apart at most; what comes later is counted together.
const MOST_ENTRIES: usize = 1 << 20;
/// Distinct stacks, over all entries.
pub(super) const MOST_STACKS: usize = 1 << 20;
/// Between the cells of an entry's name.
pub(super) const SEPARATOR: u8 = 0x1f;
/// What stands where an event has no such field.
pub(super) const NOT_THERE: &[u8] = b"N/A";

/// Events that agree in all keys.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) events: u64,
    /// Distinct stacks, innermost function first, by number of the function.
    pub(super) stacks: FxHashMap<Box<[u32]>, u64>,
}

/// Entries that grow.
#[derive(Default)]
pub(super) struct Entries {
    of: FxHashMap<Box<[u8]>, Entry>,
    events: u64,
    overflow: u64,
    /// Stands for none: every key is there when it is counted.
    spare: Entry,
}

impl Entries {
    /// Counts an event; its entry.
    pub(super) fn count(&mut self, key: &[u8]) -> &mut Entry {
        self.events += 1;
        let mut key = key;
        if !self.of.contains_key(key) {
            // Only the first event of an entry needs memory for its name.
            if self.of.len() >= MOST_ENTRIES {
                self.overflow += 1;
                key = b"[others]";
            }
            if !self.of.contains_key(key) {
                self.of.insert(key.into(), Entry::default());
            }
        }
        let entry = self.of.get_mut(key).unwrap_or(&mut self.spare);
        entry.events += 1;
        entry
    }

    /// Those that were counted, most first.
    pub(super) fn done(self, frames: Vec<String>, dropped: u64) -> Found {
        let mut entries: Vec<_> = self.of.into_iter().collect();
        entries.sort_by(|a, b| b.1.events.cmp(&a.1.events).then_with(|| a.0.cmp(&b.0)));
        Found { entries, events: self.events, frames, overflow: self.overflow, dropped }
    }
}

/// All that was counted.
pub(super) struct Found {
    /// Cells, separated by [`SEPARATOR`], and what was counted for them;
    /// most first.
    pub(super) entries: Vec<(Box<[u8]>, Entry)>,
    pub(super) events: u64,
    pub(super) frames: Vec<String>,
    overflow: u64,
    dropped: u64,
}

impl Found {
    pub(super) fn note(&self, ledger: &mut Ledger) {
        if self.overflow > 0 {
            let fact = format!(
                "{} events of more than {MOST_ENTRIES} entries are counted as one, `[others]`",
                self.overflow
            );
            ledger.note("entries", fact, Some("sort by fewer keys".to_owned()));
        }
        if self.dropped > 0 {
            let fact = format!("{} stacks beyond {MOST_STACKS} distinct ones", self.dropped);
            ledger.note("stacks", format!("{fact} are not shown"), None);
        }
    }
}
