//! The hash table of the counting loops: open addressing with linear probing, slots
//! small enough that finding one that is not in the cache costs one access to memory.

/// Slot of an [`OpenTable`].
pub trait TableSlot: Copy {
    /// Slot without an entry.
    const EMPTY: Self;
    /// Slots for each entry at least: 2 for tables that are asked much more often than
    /// they grow.
    const SLOTS_PER_ENTRY: (usize, usize) = (4, 3);

    /// Whether the slot has no entry.
    fn is_empty(&self) -> bool;

    /// Hash of the entry; low bits choose the slot.
    fn hash(&self) -> u32;
}

/// Table of entries. The keys are whatever the slots and the caller's comparison say.
#[derive(Clone, Debug)]
pub struct OpenTable<S> {
    /// A power of two of them.
    slots: Vec<S>,
    entries: usize,
}

impl<S: TableSlot> OpenTable<S> {
    /// Empty table with this power of two of slots.
    pub fn with_slots(log2: u32) -> OpenTable<S> {
        OpenTable { slots: vec![S::EMPTY; 1 << log2], entries: 0 }
    }

    /// Count of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The entry with this hash that `same` accepts.
    #[inline]
    pub fn find(&self, hash: u32, same: impl Fn(&S) -> bool) -> Option<&S> {
        self.slots.get(self.position(hash, same)).filter(|s| !s.is_empty())
    }

    /// Position of an entry, or of the empty slot where it belongs.
    #[inline]
    fn position(&self, hash: u32, same: impl Fn(&S) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while let Some(slot) = self.slots.get(at) {
            if slot.is_empty() || same(slot) {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    /// Adds an entry that [`find`](OpenTable::find) does not know.
    pub fn insert(&mut self, entry: S) {
        let (slots, per) = S::SLOTS_PER_ENTRY;
        if self.slots.len() * per < slots * (self.entries + 1) {
            let larger = vec![S::EMPTY; self.slots.len() * 2];
            for slot in std::mem::replace(&mut self.slots, larger) {
                if !slot.is_empty() {
                    self.put(slot);
                }
            }
        }
        self.put(entry);
        self.entries += 1;
    }

    fn put(&mut self, entry: S) {
        let at = self.position(entry.hash(), |_| false);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = entry;
        }
    }
}

/// Hash of an address in a space of addresses, as [`OpenTable`] takes it.
#[inline]
pub fn hash_address(address: u64, space: u32) -> u32 {
    let mixed = (address ^ u64::from(space).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct NumberSlot(u64, u32);

    impl TableSlot for NumberSlot {
        const EMPTY: NumberSlot = NumberSlot(0, 0);

        fn is_empty(&self) -> bool {
            self.1 == 0
        }

        fn hash(&self) -> u32 {
            hash_address(self.0, 7)
        }
    }

    #[test]
    fn entries_are_found_however_much_the_table_grows() {
        let mut table = OpenTable::with_slots(2);
        let find = |table: &OpenTable<NumberSlot>, n: u64| {
            table.find(hash_address(n, 7), |s| s.0 == n).copied()
        };
        for n in 0..5000u32 {
            // Every fourth hash is one that others have: their addresses differ in one bit
            // that the table does not look at while it is small.
            let key = u64::from(n) << (n % 4 * 8);
            if find(&table, key).is_none() {
                table.insert(NumberSlot(key, n + 1));
            }
            assert!(find(&table, key).is_some_and(|s| s.0 == key));
        }
        for n in 0..5000u32 {
            let key = u64::from(n) << (n % 4 * 8);
            assert!(find(&table, key).is_some(), "{n}");
        }
        assert_eq!(find(&table, u64::MAX), None);
        assert!(table.slots.len() * 3 >= table.len() * 4);
    }
}
