//! Maps in memory of our own. A map that the kernel has once for each CPU is here once.

use rustc_hash::FxHashMap;

use crate::object::{BpfMapType, MapDefinition};

/// Errors as helpers give them.
pub(super) const ENOENT: i64 = -2;
pub(super) const E2BIG: i64 = -7;
pub(super) const ENOMEM: i64 = -12;
pub(super) const EEXIST: i64 = -17;
pub(super) const EINVAL: i64 = -22;

/// Bytes of the values of one map. The kernel allocates all memory at creation and refuses to make
/// a map that does not fit; here a map that has grown so far is full.
const MAX_BYTES: usize = 1 << 30;

/// A map of a program that runs in user space.
#[derive(Debug)]
pub(super) struct InterpretedMap {
    kind: MapKind,
    key_size: usize,
    pub(super) value_size: usize,
    /// Bytes from one value to the next.
    stride: usize,
    max_entries: usize,
    is_per_cpu: bool,
    /// Keys and values by slot.
    pub(super) keys: Vec<u8>,
    pub(super) values: Vec<u8>,
}

#[derive(Debug)]
enum MapKind {
    Array,
    Hash(HashSlots),
    /// Frames to the number of their slot.
    Stacks(FxHashMap<Box<[u64]>, u32>),
}

/// Slots of a hash.
#[derive(Debug, Default)]
struct HashSlots {
    index: FxHashMap<Box<[u8]>, u32>,
    free: Vec<u32>,
    is_live: Vec<bool>,
    /// State of an LRU map: slots used since the hand passed, and the hand.
    lru: Option<(Vec<bool>, usize)>,
}

impl InterpretedMap {
    pub(super) fn new(definition: &MapDefinition) -> InterpretedMap {
        use BpfMapType as T;
        let lru = matches!(definition.map_type, T::LruHash | T::LruPerCpuHash);
        let kind = match definition.map_type {
            T::Array | T::PerCpuArray | T::RingBuffer | T::PerfEventArray => MapKind::Array,
            T::StackTrace => MapKind::Stacks(FxHashMap::default()),
            _ => MapKind::Hash(HashSlots {
                lru: lru.then(|| (Vec::new(), 0)),
                ..HashSlots::default()
            }),
        };
        let stride = (definition.value_size as usize).next_multiple_of(8);
        let is_array = matches!(kind, MapKind::Array)
            && !matches!(definition.map_type, T::RingBuffer | T::PerfEventArray);
        let entries = if is_array { definition.max_entries as usize } else { 0 };
        InterpretedMap {
            kind,
            key_size: definition.key_size as usize,
            value_size: definition.value_size as usize,
            stride,
            max_entries: definition.max_entries as usize,
            is_per_cpu: definition.is_per_cpu(),
            keys: Vec::new(),
            values: vec![0; entries.saturating_mul(stride).min(MAX_BYTES)],
        }
    }

    pub(super) fn key_size(&self) -> usize {
        self.key_size
    }

    /// Offset of a slot's value.
    pub(super) fn value_at(&self, slot: u32) -> usize {
        slot as usize * self.stride
    }

    /// Offset of a slot's key.
    pub(super) fn key_at(&self, slot: u32) -> usize {
        slot as usize * self.key_size
    }

    /// Slot of an entry.
    pub(super) fn slot(&self, key: &[u8]) -> Option<u32> {
        match &self.kind {
            MapKind::Array | MapKind::Stacks(_) => self.slot_of_index(key),
            MapKind::Hash(slots) => slots.index.get(key).copied(),
        }
    }

    /// Slot of an entry that a program uses.
    pub(super) fn find(&mut self, key: &[u8]) -> Option<u32> {
        let slot = self.slot(key)?;
        if let MapKind::Hash(HashSlots { lru: Some((used, _)), .. }) = &mut self.kind
            && let Some(used) = used.get_mut(slot as usize)
        {
            *used = true;
        }
        Some(slot)
    }

    fn slot_of_index(&self, key: &[u8]) -> Option<u32> {
        let slot = u32::from_ne_bytes(*key.first_chunk()?);
        let end = (slot as usize).checked_add(1)?.checked_mul(self.stride.max(1))?;
        (end <= self.values.len()).then_some(slot)
    }

    /// Sets an entry; 0 or an error.
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], flags: u64) -> i64 {
        const NO_EXIST: u64 = 1;
        const EXIST: u64 = 2;
        let found = self.find(key);
        let slot = match (found, flags) {
            (Some(_), NO_EXIST) => return EEXIST,
            (None, EXIST) => return ENOENT,
            (Some(slot), _) => slot,
            (None, _) => match self.insert(key) {
                Ok(slot) => slot,
                Err(error) => return error,
            },
        };
        let begin = self.value_at(slot);
        let size = self.value_size.min(value.len());
        if let (Some(to), Some(from)) =
            (self.values.get_mut(begin..begin + size), value.get(..size))
        {
            to.copy_from_slice(from);
        }
        0
    }

    /// A slot for a new key; its value holds what an entry before it left.
    fn insert(&mut self, key: &[u8]) -> Result<u32, i64> {
        let MapKind::Hash(slots) = &mut self.kind else { return Err(E2BIG) };
        if slots.index.len() >= self.max_entries {
            let Some(victim) = slots.least_used() else { return Err(E2BIG) };
            let begin = victim as usize * self.key_size;
            let old = self.keys.get(begin..begin + self.key_size).unwrap_or_default();
            slots.remove(old);
        }
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                if self.values.len() + self.stride > MAX_BYTES {
                    return Err(E2BIG);
                }
                let slot = u32::try_from(slots.is_live.len()).map_err(|_| E2BIG)?;
                self.values.resize(self.values.len() + self.stride, 0);
                self.keys.resize(self.keys.len() + self.key_size, 0);
                slots.is_live.push(false);
                if let Some((used, _)) = &mut slots.lru {
                    used.push(true);
                }
                slot
            }
        };
        slots.index.insert(key.into(), slot);
        if let Some(is_live) = slots.is_live.get_mut(slot as usize) {
            *is_live = true;
        }
        let begin = slot as usize * self.key_size;
        if let Some(to) = self.keys.get_mut(begin..begin + self.key_size) {
            to.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        }
        Ok(slot)
    }

    /// Removes an entry; 0 or an error.
    pub(super) fn delete(&mut self, key: &[u8]) -> i64 {
        match &mut self.kind {
            MapKind::Hash(slots) => {
                if slots.remove(key) {
                    0
                } else {
                    ENOENT
                }
            }
            MapKind::Array | MapKind::Stacks(_) => EINVAL,
        }
    }

    /// Number of a stack, or an error.
    pub(super) fn stack_id(&mut self, frames: &[u64]) -> i64 {
        let most = self.value_size / 8;
        let frames = frames.get(..most).unwrap_or(frames);
        let MapKind::Stacks(index) = &mut self.kind else { return EINVAL };
        if let Some(id) = index.get(frames) {
            return i64::from(*id);
        }
        let begin = self.values.len();
        if index.len() >= self.max_entries || begin + self.stride > MAX_BYTES {
            return ENOMEM;
        }
        let id = index.len() as u32;
        index.insert(frames.into(), id);
        self.values.resize(begin + self.stride, 0);
        let words = self.values.get_mut(begin..).unwrap_or_default().chunks_exact_mut(8);
        for (word, frame) in words.zip(frames) {
            word.copy_from_slice(&frame.to_ne_bytes());
        }
        i64::from(id)
    }

    /// Slots with entries.
    pub(super) fn slots(&self) -> Vec<u32> {
        match &self.kind {
            MapKind::Hash(slots) => {
                let live = slots.is_live.iter().enumerate().filter(|(_, is_live)| **is_live);
                live.map(|(slot, _)| slot as u32).collect()
            }
            MapKind::Array | MapKind::Stacks(_) => {
                (0..(self.values.len() / self.stride.max(1)) as u32).collect()
            }
        }
    }

    pub(super) fn is_live(&self, slot: u32) -> bool {
        match &self.kind {
            MapKind::Hash(slots) => slots.is_live.get(slot as usize).is_some_and(|live| *live),
            MapKind::Array | MapKind::Stacks(_) => true,
        }
    }

    /// Bytes of a value as user space sees it: those of a CPU are padded.
    pub(super) fn seen_size(&self) -> usize {
        if self.is_per_cpu { self.stride } else { self.value_size }
    }

    /// Key and value of a slot.
    pub(super) fn entry(&self, slot: u32) -> (Vec<u8>, Vec<u8>) {
        let key = match &self.kind {
            MapKind::Hash(_) => {
                let begin = self.key_at(slot);
                self.keys.get(begin..begin + self.key_size).unwrap_or_default().to_vec()
            }
            MapKind::Array | MapKind::Stacks(_) => slot.to_ne_bytes().to_vec(),
        };
        let begin = self.value_at(slot);
        let value = self.values.get(begin..begin + self.seen_size()).unwrap_or_default();
        (key, value.to_vec())
    }
}

impl HashSlots {
    fn remove(&mut self, key: &[u8]) -> bool {
        let Some(slot) = self.index.remove(key) else { return false };
        if let Some(is_live) = self.is_live.get_mut(slot as usize) {
            *is_live = false;
        }
        self.free.push(slot);
        true
    }

    /// The slot that an LRU map gives up: the first that was not used since the hand passed.
    fn least_used(&mut self) -> Option<u32> {
        let (used, hand) = self.lru.as_mut()?;
        let count = used.len();
        for _ in 0..count.saturating_mul(2) {
            let at = *hand % count;
            *hand = at + 1;
            let is_live = self.is_live.get(at).is_some_and(|live| *live);
            match used.get_mut(at) {
                Some(used) if *used && is_live => *used = false,
                Some(_) if is_live => return Some(at as u32),
                _ => {}
            }
        }
        None
    }
}
