//! Starts of lines that were written before: a task on a CPU writes many, and their text up
//! to the time is copied, not made anew.

/// Bytes of a start that is kept; longer ones are made each time.
pub(crate) const MAX_START: usize = 64;
/// Starts that are kept, a power of two.
const SLOTS: usize = 256;

/// A start and what it was made of.
#[derive(Clone, Debug)]
pub(crate) struct CachedStart<K, const N: usize = MAX_START> {
    key: Option<K>,
    /// Bytes of `text` that are the start.
    pub(crate) len: usize,
    /// Text of constant size, so that no call copies it.
    pub(crate) text: [u8; N],
}

/// Starts by what they were made of. Of starts with one place the last one is kept.
#[derive(Debug)]
pub(crate) struct StartCache<K, const N: usize = MAX_START> {
    slots: Vec<CachedStart<K, N>>,
}

impl<K: Clone, const N: usize> Default for StartCache<K, N> {
    fn default() -> Self {
        let empty = CachedStart { key: None, len: 0, text: [0; N] };
        StartCache { slots: vec![empty; SLOTS] }
    }
}

impl<K, const N: usize> StartCache<K, N> {
    /// The start at a place, if it was made of the same.
    #[inline]
    pub(crate) fn get(
        &self,
        place: usize,
        is_same: impl FnOnce(&K) -> bool,
    ) -> Option<&CachedStart<K, N>> {
        self.slots.get(place % SLOTS).filter(|slot| slot.key.as_ref().is_some_and(is_same))
    }

    /// Keeps a start, unless it is too long.
    pub(crate) fn put(&mut self, place: usize, key: K, text: &[u8]) {
        if let Some(slot) = self.slots.get_mut(place % SLOTS)
            && let Some(room) = slot.text.get_mut(..text.len())
        {
            room.copy_from_slice(text);
            (slot.key, slot.len) = (Some(key), text.len());
        }
    }

    /// Forgets the starts that were made of something that changed.
    pub(crate) fn forget(&mut self, is_stale: impl Fn(&K) -> bool) {
        for slot in self.slots.iter_mut().filter(|s| s.key.as_ref().is_some_and(&is_stale)) {
            slot.key = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_found_by_what_they_were_made_of() {
        let mut cache: StartCache<i32> = StartCache::default();
        cache.put(3, 7, b"one");
        cache.put(4, 8, &[b'x'; MAX_START + 1]);
        let text = |cache: &StartCache<i32>, place: usize, key: i32| {
            cache.get(place, |k| *k == key).map(|s| s.text[..s.len].to_vec())
        };
        assert_eq!(text(&cache, 3, 7).as_deref(), Some(&b"one"[..]));
        assert_eq!(text(&cache, 3 + SLOTS, 7).as_deref(), Some(&b"one"[..]));
        assert_eq!((text(&cache, 3, 6), text(&cache, 4, 8)), (None, None));
        cache.forget(|k| *k == 7);
        assert_eq!(text(&cache, 3, 7), None);
    }
}
