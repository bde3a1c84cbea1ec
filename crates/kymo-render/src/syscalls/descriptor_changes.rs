//! Calls that change what descriptors stand for, noted as soon as their events are read: before
//! it is their turn, but after the kernel has been asked what a descriptor stands for.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Changes of one descriptor that are kept.
const KEPT: usize = 8;
/// Descriptors that are kept.
const MAX_DESCRIPTORS: usize = 1 << 14;

/// Times of changes by table of descriptors and descriptor.
#[derive(Debug, Default)]
pub(super) struct DescriptorChanges {
    by_descriptor: FxHashMap<(i32, i32), Changes>,
    /// Changes up to then may be forgotten.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct Changes {
    times: VecDeque<u64>,
    /// Changes up to then are forgotten.
    forgotten: u64,
}

/// Stands for all descriptors of a table.
const ALL: i32 = -1;

impl DescriptorChanges {
    /// Notes that a descriptor stands for something else from about this time on.
    pub(super) fn note(&mut self, table: i32, fd: i32, time: u64) {
        let key = (table, fd);
        if self.by_descriptor.len() >= MAX_DESCRIPTORS && !self.by_descriptor.contains_key(&key) {
            let forgotten = self.by_descriptor.drain().flat_map(|(_, changes)| changes.times);
            self.forgotten = forgotten.fold(self.forgotten, u64::max);
        }
        let changes = self.by_descriptor.entry(key).or_default();
        if changes.times.len() >= KEPT {
            let oldest = changes.times.pop_front().unwrap_or_default();
            changes.forgotten = changes.forgotten.max(oldest);
        }
        changes.times.push_back(time);
    }

    /// Notes that any descriptor of a table may stand for something else.
    pub(super) fn note_all(&mut self, table: i32, time: u64) {
        self.note(table, ALL, time);
    }

    /// Whether a descriptor may have changed after `start`, and before `end` if that is known.
    pub(super) fn is_changed(&self, table: i32, fd: i32, start: u64, end: Option<u64>) -> bool {
        let is_within = |time: u64| time >= start && end.is_none_or(|end| time <= end);
        start <= self.forgotten
            || [fd, ALL].iter().any(|fd| {
                self.by_descriptor.get(&(table, *fd)).is_some_and(|changes| {
                    start <= changes.forgotten || changes.times.iter().any(|t| is_within(*t))
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_between_the_call_and_the_answer() {
        let mut changes = DescriptorChanges::default();
        changes.note(1, 3, 100);
        assert!(changes.is_changed(1, 3, 90, Some(110)));
        assert!(changes.is_changed(1, 3, 90, None));
        assert!(!changes.is_changed(1, 3, 90, Some(99)));
        assert!(!changes.is_changed(1, 3, 101, None));
        assert!(!changes.is_changed(1, 4, 90, None) && !changes.is_changed(2, 3, 90, None));
        changes.note_all(1, 120);
        assert!(changes.is_changed(1, 4, 90, None) && !changes.is_changed(1, 4, 121, None));
    }

    #[test]
    fn what_is_forgotten_is_in_doubt() {
        let mut changes = DescriptorChanges::default();
        for time in 1..=20 {
            changes.note(1, 3, time * 10);
        }
        assert!(changes.is_changed(1, 3, 11, Some(12)));
        assert!(!changes.is_changed(1, 3, 131, Some(139)));
        assert!(changes.is_changed(1, 3, 131, Some(140)));
        for fd in 0..2 * MAX_DESCRIPTORS as i32 {
            changes.note(2, fd, 1_000 + fd as u64);
        }
        assert!(changes.by_descriptor.len() <= MAX_DESCRIPTORS);
        assert!(changes.is_changed(9, 9, 500, Some(501)));
        assert!(!changes.is_changed(9, 9, 1_000_000, Some(1_000_001)));
    }
}
