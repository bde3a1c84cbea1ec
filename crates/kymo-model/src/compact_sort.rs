//! Sorting where the size of the code counts and not its speed.

use std::cmp::Ordering;

/// Stable sorting that is compiled once for all element types. [`slice::sort_by`] and its
/// relatives are compiled anew for each type and order: five to six kilobytes at each call.
/// Here each comparison is an indirect call: for tables that somebody reads, not for events.
pub trait CompactSort<T> {
    /// As [`slice::sort_by`].
    fn compact_sort_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// As [`slice::sort_by_key`].
    fn compact_sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);

    /// As [`slice::sort_by_cached_key`].
    fn compact_sort_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> CompactSort<T> for [T] {
    fn compact_sort_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let order = sorted_indexes(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        permute(order, &mut |a, b| self.swap(a, b));
    }

    fn compact_sort_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.compact_sort_by(|a, b| key(a).cmp(&key(b)));
    }

    fn compact_sort_by_cached_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        let keys: Vec<K> = self.iter().map(key).collect();
        let order = sorted_indexes(self.len(), &mut |a, b| keys[a].cmp(&keys[b]));
        permute(order, &mut |a, b| self.swap(a, b));
    }
}

fn sorted_indexes(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

/// Puts the element of index `order[i]` at `i`, for all `i`, cycle by cycle.
fn permute(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for begin in 0..order.len() {
        let mut at = begin;
        while order[at] != begin {
            let from = std::mem::replace(&mut order[at], at);
            swap(at, from);
            at = from;
        }
        order[at] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_standard_library() {
        // A linear congruential sequence; few different keys, so that stability shows.
        let mut state = 12345_u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 60
        };
        for len in [0, 1, 2, 3, 17, 1000] {
            let list: Vec<(u64, usize)> = (0..len).map(|i| (next(), i)).collect();
            let (mut ours, mut theirs) = (list.clone(), list.clone());
            ours.compact_sort_by_key(|e| e.0);
            theirs.sort_by_key(|e| e.0);
            assert_eq!(ours, theirs);
            ours.compact_sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            theirs.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
            assert_eq!(ours, theirs);
            ours.compact_sort_by_cached_key(|e| e.0 % 3);
            theirs.sort_by_cached_key(|e| e.0 % 3);
            assert_eq!(ours, theirs);
        }
    }
}
