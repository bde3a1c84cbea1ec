//! What events are counted into: an entry for each combination of their keys.

use kymo_model::NoteKind;
use kymo_view::Ledger;
use rustc_hash::FxHashMap;

use super::keys::Key;

/// Entries that are kept apart at most; what comes later is counted together.
const MOST_ENTRIES: usize = 1 << 20;
/// Distinct stacks, over all entries.
const MOST_STACKS: usize = 1 << 20;
/// Distinct functions in stacks; what comes later is counted together.
const MOST_FRAMES: usize = 1 << 20;
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
    frames: Vec<String>,
    frame_of: FxHashMap<String, u32>,
    /// Distinct stacks, and those that were not kept.
    stacks: usize,
    dropped: u64,
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

    /// The number of a function in stacks.
    pub(super) fn frame(&mut self, name: String) -> u32 {
        let name = match self.frames.len() < MOST_FRAMES {
            true => name,
            false if self.frame_of.contains_key(&name) => name,
            false => "[others]".to_owned(),
        };
        let next = self.frames.len() as u32;
        let id = *self.frame_of.entry(name.clone()).or_insert(next);
        if id == next {
            self.frames.push(name);
        }
        id
    }

    /// What functions are called, by their numbers.
    pub(super) fn names<'s>(&'s self, chain: &'s [u32]) -> impl Iterator<Item = &'s str> {
        chain.iter().filter_map(|f| self.frames.get(*f as usize)).map(|n| &**n)
    }

    /// Counts an event and its stack, which is drawn below its entry.
    pub(super) fn count_stack(&mut self, key: &[u8], chain: &[u32]) {
        let room = self.stacks < MOST_STACKS;
        let entry = self.count(key);
        if chain.is_empty() {
            return;
        }
        match entry.stacks.get_mut(chain) {
            Some(n) => *n += 1,
            None if !room => self.dropped += 1,
            None => {
                entry.stacks.insert(chain.into(), 1);
                self.stacks += 1;
            }
        }
    }

    /// Those that were counted, most first.
    pub(super) fn done(self) -> Found {
        let mut entries: Vec<_> = self.of.into_iter().collect();
        entries.sort_by(|a, b| b.1.events.cmp(&a.1.events).then_with(|| a.0.cmp(&b.0)));
        let (events, overflow, dropped) = (self.events, self.overflow, self.dropped);
        Found { entries, events, frames: self.frames, overflow, dropped }
    }
}

/// Puts the text of a stack in its place among the cells.
pub(super) fn fill_in(keys: &[Key], key: &mut Vec<u8>, chain: &[u32], entries: &Entries) {
    let Some(at) = keys.iter().position(|k| *k == Key::Stack) else { return };
    let names: Vec<&str> = entries.names(chain).collect();
    let text = if names.is_empty() { "N/A".to_owned() } else { names.join(" < ") };
    let mut cells: Vec<&[u8]> = key.split(|b| *b == SEPARATOR).collect();
    if let Some(cell) = cells.get_mut(at) {
        *cell = text.as_bytes();
    }
    *key = cells.join(&SEPARATOR);
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
            ledger.note(NoteKind::Entries, fact, Some("sort by fewer keys".to_owned()));
        }
        if self.dropped > 0 {
            let fact = format!("{} stacks beyond {MOST_STACKS} distinct ones", self.dropped);
            ledger.note(NoteKind::Stacks, format!("{fact} are not shown"), None);
        }
    }
}
