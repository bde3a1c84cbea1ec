//! Objects that are alive, by address. There are hundreds of thousands, which processors keep in no
//! cache: a table of one array, whose slots are prefetched for many steps before these are applied,
//! so that their cache misses overlap.

use std::hash::{BuildHasher as _, RandomState};

use crate::call_sites::SiteId;

/// An object that is alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LiveObject {
    pub(super) bytes: u64,
    pub(super) site: SiteId,
    pub(super) cpu: u16,
    /// Losses met before, or [`super::slab`]'s mark of those not chosen.
    pub(super) losses: u16,
}

/// Open addressing with linear probing; an address of 0 is a free place.
#[derive(Debug)]
pub(super) struct LiveObjects {
    places: Vec<(u64, LiveObject)>,
    len: usize,
    /// Odd, and not known to who writes recordings: addresses cannot be made to collide.
    factor: u64,
    /// Bits of a product that are no number of a place.
    shift: u32,
}

const FIRST_BITS: u32 = 10;

impl Default for LiveObjects {
    fn default() -> LiveObjects {
        LiveObjects {
            places: vec![(0, LiveObject::default()); 1 << FIRST_BITS],
            len: 0,
            factor: RandomState::new().hash_one(0u8) | 1,
            shift: 64 - FIRST_BITS,
        }
    }
}

impl LiveObjects {
    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn home(&self, ptr: u64) -> usize {
        (ptr.wrapping_mul(self.factor) >> self.shift) as usize
    }

    #[inline]
    fn next(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// Returns the slot of an address, or the free slot where it belongs.
    #[inline]
    fn find(&self, ptr: u64) -> usize {
        let mut place = self.home(ptr);
        while self.places[place].0 != ptr && self.places[place].0 != 0 {
            place = self.next(place);
        }
        place
    }

    /// Reads the place of an address, which is then near; what it gives means nothing.
    #[inline]
    pub(super) fn touch(&self, ptr: u64) -> u64 {
        self.places[self.home(ptr)].0
    }

    /// Whether an object of an address that is not 0 is alive.
    pub(super) fn contains(&self, ptr: u64) -> bool {
        self.places[self.find(ptr)].0 == ptr
    }

    /// Puts an object to an address that is not 0; gives the one that was there.
    #[inline]
    pub(super) fn insert(&mut self, ptr: u64, object: LiveObject) -> Option<LiveObject> {
        debug_assert_ne!(ptr, 0);
        let place = self.find(ptr);
        let before = std::mem::replace(&mut self.places[place], (ptr, object));
        if before.0 == ptr {
            return Some(before.1);
        }
        self.len += 1;
        if self.len * 2 > self.places.len() {
            self.grow();
        }
        None
    }

    #[cold]
    fn grow(&mut self) {
        let free = vec![(0, LiveObject::default()); self.places.len() * 2];
        let before = std::mem::replace(&mut self.places, free);
        self.shift -= 1;
        for (ptr, object) in before.into_iter().filter(|(ptr, _)| *ptr != 0) {
            let place = self.find(ptr);
            self.places[place] = (ptr, object);
        }
    }

    /// Takes the object of an address that is not 0.
    #[inline]
    pub(super) fn remove(&mut self, ptr: u64) -> Option<LiveObject> {
        let mut free = self.find(ptr);
        if self.places[free].0 != ptr {
            return None;
        }
        let object = self.places[free].1;
        self.len -= 1;
        // Those behind move up, unless they would come before their home.
        let mut place = self.next(free);
        while self.places[place].0 != 0 {
            let from_home = place.wrapping_sub(self.home(self.places[place].0));
            let from_free = place.wrapping_sub(free);
            let mask = self.places.len() - 1;
            if from_home & mask >= from_free & mask {
                self.places[free] = self.places[place];
                free = place;
            }
            place = self.next(place);
        }
        self.places[free].0 = 0;
        Some(object)
    }

    /// All objects.
    pub(super) fn objects(&self) -> impl Iterator<Item = &LiveObject> {
        self.places.iter().filter(|(ptr, _)| *ptr != 0).map(|(_, object)| object)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut objects, mut map) = (LiveObjects::default(), HashMap::new());
        let mut random = 1u64;
        for step in 0..200_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few addresses, near each other, as slabs have them; more of them for a while.
            let range = if step < 100_000 { 5_000 } else { 300 };
            let ptr = 0xffff_8880_0000_0000 + (random >> 40) % range * 64;
            assert_eq!(objects.contains(ptr), map.contains_key(&ptr));
            if random >> 63 == 0 {
                let object = LiveObject { bytes: step, ..LiveObject::default() };
                assert_eq!(objects.insert(ptr, object), map.insert(ptr, object));
            } else {
                assert_eq!(objects.remove(ptr), map.remove(&ptr));
            }
            assert_eq!(objects.len(), map.len());
        }
        assert!(!map.is_empty());
        let mut of_map: Vec<u64> = map.values().map(|o| o.bytes).collect();
        let mut held: Vec<u64> = objects.objects().map(|o| o.bytes).collect();
        of_map.sort_unstable();
        held.sort_unstable();
        assert_eq!(held, of_map);
    }
}
