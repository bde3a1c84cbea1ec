//! Keys of counters: a hash table in shared memory that grows up to a limit and never shrinks. Who
//! hits a key first enters it, without a lock; what finds no place is counted without a key.
//!
//! May run in a signal handler: nothing here allocates, and `errno` stays as it was.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kymo_ust::{CountedKey as Tag, CounterKind, KEY_BYTES, KEY_ENTRY};

use super::CounterSite;
// tidy: cycle with process: a key that is hit first needs memory of the file, which the process has.
use crate::process::counter_file;
use crate::sys;

const WORDS: usize = KEY_BYTES / 8;

/// A key, as words that the table has.
#[derive(Clone, Copy, Debug)]
pub struct KeyWords<'a> {
    /// Kind, and length of a text.
    tag: u64,
    first: u64,
    /// A text of more than a word; else empty.
    text: &'a [u8],
}

impl<'a> KeyWords<'a> {
    #[inline(always)]
    fn number(tag: u8, number: u64) -> Self {
        Self { tag: u64::from(tag) | 8 << 8, first: number, text: &[] }
    }

    /// A text; of a longer one, its begin.
    #[inline(always)]
    pub fn text(text: &'a [u8]) -> Self {
        let (tag, text) = match text.get(..KEY_BYTES) {
            Some(begin) if text.len() > KEY_BYTES => (Tag::CUT, begin),
            _ => (Tag::TEXT, text),
        };
        let tag = u64::from(tag) | (text.len() as u64) << 8;
        match text.first_chunk::<8>() {
            Some(first) => {
                let text = if text.len() == 8 { &[] } else { text };
                Self { tag, first: u64::from_le_bytes(*first), text }
            }
            None => Self { tag, first: short(text), text: &[] },
        }
    }

    /// The words after the first; bytes after the text are 0.
    #[inline(always)]
    fn rest(&self) -> impl Iterator<Item = u64> {
        let whole = self.text.chunks_exact(8);
        let end = whole.remainder();
        let last = self.text.last_chunk::<8>().filter(|_| !end.is_empty());
        let last = last.map(|last| u64::from_le_bytes(*last) >> (64 - 8 * end.len()));
        let words = whole.skip(1).filter_map(|chunk| chunk.first_chunk::<8>());
        words.map(|chunk| u64::from_le_bytes(*chunk)).chain(last)
    }

    /// Never 0. `LONG`: it may be of more than a word.
    #[inline(always)]
    fn hash<const LONG: bool>(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut hash = self.tag ^ self.first;
        if LONG {
            for word in self.rest() {
                hash = hash.wrapping_mul(ODD).rotate_left(29) ^ word;
            }
        }
        hash = hash.wrapping_mul(ODD);
        (hash ^ hash >> 32) | 1 << 63
    }
}

/// A text of fewer than eight bytes as a number.
#[inline(always)]
fn short(text: &[u8]) -> u64 {
    let (len, byte) = (text.len(), |i: usize| u64::from(text[i]));
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|chunk| u64::from(u32::from_le_bytes(*chunk)));
        return first | last << (8 * (len - 4));
    }
    match len {
        0 => 0,
        // The byte in the middle is the first or the last of fewer than three.
        _ => byte(0) | byte(len / 2) << (8 * (len / 2)) | byte(len - 1) << (8 * (len - 1)),
    }
}

/// Types that a counter can count by: texts, integers, `bool` and `char`.
pub trait CounterKey {
    /// The key.
    fn key(&self) -> KeyWords<'_>;
}

impl<T: CounterKey + ?Sized> CounterKey for &T {
    #[inline(always)]
    fn key(&self) -> KeyWords<'_> {
        (**self).key()
    }
}

impl CounterKey for str {
    #[inline(always)]
    fn key(&self) -> KeyWords<'_> {
        KeyWords::text(self.as_bytes())
    }
}

impl CounterKey for String {
    #[inline(always)]
    fn key(&self) -> KeyWords<'_> {
        KeyWords::text(self.as_bytes())
    }
}

impl CounterKey for bool {
    #[inline(always)]
    fn key(&self) -> KeyWords<'_> {
        KeyWords::text(if *self { b"true" } else { b"false" })
    }
}

impl CounterKey for char {
    #[inline(always)]
    fn key(&self) -> KeyWords<'_> {
        let mut bytes = [0; 4];
        let text = KeyWords::text(self.encode_utf8(&mut bytes).as_bytes());
        KeyWords { tag: text.tag, first: text.first, text: &[] }
    }
}

macro_rules! integer_keys {
    ($tag:expr, $as:ty: $($type:ty),*) => {$(
        impl CounterKey for $type {
            #[inline(always)]
            fn key(&self) -> KeyWords<'_> {
                KeyWords::number($tag, (*self as $as) as u64)
            }
        }
    )*};
}
integer_keys!(Tag::UNSIGNED, u64: u8, u16, u32, u64, usize);
integer_keys!(Tag::SIGNED, i64: i8, i16, i32, i64, isize);

/// Head of a table.
#[repr(C, align(64))]
pub(crate) struct KeyTable {
    /// Keys that have a value.
    used: AtomicU32,
}

/// An entry of a table.
#[repr(C, align(64))]
struct KeyEntry {
    /// 0: free. The thread that sets it fills the entry.
    hash: AtomicU64,
    state: AtomicU32,
    /// Number of the value; while the entry is filled, of the thread that does it.
    index: AtomicU32,
    tag: AtomicU64,
    words: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<KeyEntry>() == KEY_ENTRY && size_of::<KeyTable>() == KEY_ENTRY);

/// States of an entry: being filled, with a value, without one.
const READY: u32 = Tag::READY;
const FAILED: u32 = 3;

impl KeyEntry {
    #[inline(always)]
    fn is<const LONG: bool>(&self, key: &KeyWords<'_>) -> bool {
        let [first, rest @ ..] = &self.words;
        self.tag.load(Ordering::Relaxed) == key.tag
            && first.load(Ordering::Relaxed) == key.first
            && (!LONG
                || std::iter::zip(rest, key.rest())
                    .all(|(there, word)| there.load(Ordering::Relaxed) == word))
    }
}

/// Address of the value of a key; none if it has no slot.
#[inline(always)]
pub(crate) fn value_of(
    site: &CounterSite,
    kind: CounterKind,
    key: &KeyWords<'_>,
) -> Option<*mut u8> {
    match key.text {
        [] => find_short(site, kind, key.tag, key.first),
        _ => find_long(site, kind, key),
    }
}

#[inline(never)]
fn find_short(site: &CounterSite, kind: CounterKind, tag: u64, first: u64) -> Option<*mut u8> {
    find::<false>(site, kind, &KeyWords { tag, first, text: &[] })
}

#[inline(never)]
fn find_long(site: &CounterSite, kind: CounterKind, key: &KeyWords<'_>) -> Option<*mut u8> {
    find::<true>(site, kind, key)
}

#[inline(always)]
fn find<const LONG: bool>(
    site: &CounterSite,
    kind: CounterKind,
    key: &KeyWords<'_>,
) -> Option<*mut u8> {
    let hash = key.hash::<LONG>();
    let table = site.table.load(Ordering::Relaxed);
    let entries = entries(table, kind);
    let mask = entries.len() - 1;
    let mut at = (hash >> 20) as usize & mask;
    for _ in 0..=mask {
        let entry = &entries[at];
        match entry.hash.load(Ordering::Acquire) {
            found if found == hash => {
                let is_ready = entry.state.load(Ordering::Acquire) == READY;
                if is_ready && entry.is::<LONG>(key) {
                    return place(site, kind, entry.index.load(Ordering::Relaxed));
                }
                if !is_ready && wait(entry, key) {
                    return match entry.state.load(Ordering::Acquire) {
                        READY => place(site, kind, entry.index.load(Ordering::Relaxed)),
                        _ => None,
                    };
                }
            }
            0 => return insert(site, kind, key, hash, at),
            _ => {}
        }
        at = (at + 1) & mask;
    }
    None
}

#[inline(always)]
fn entries<'a>(table: *mut u8, kind: CounterKind) -> &'a [KeyEntry] {
    // SAFETY: the table of a site that is entered, which has its entries behind its head.
    unsafe {
        let first = table.add(KEY_ENTRY).cast::<KeyEntry>();
        std::slice::from_raw_parts(first, kind.table_entries() as usize)
    }
}

#[inline(always)]
fn place(site: &CounterSite, kind: CounterKind, index: u32) -> Option<*mut u8> {
    let values = site.key_values.load(Ordering::Relaxed);
    let at = index as usize * kind.value_bytes() as usize;
    // SAFETY: within the values with keys of the site.
    (index < kind.keys()).then(|| unsafe { values.add(at) })
}

/// Waits until an entry is filled. Says whether it is this key's; if so, and it has no state of
/// the end now, the key has no place.
#[cold]
fn wait(entry: &KeyEntry, key: &KeyWords<'_>) -> bool {
    /// Waits of 20 us and what the kernel adds.
    const PATIENCE: u32 = 20_000;
    let errno = sys::errno();
    for _ in 0..PATIENCE {
        if entry.state.load(Ordering::Acquire) >= READY {
            break;
        }
        // A signal handler that interrupts it.
        if entry.index.load(Ordering::Relaxed) == sys::tid() {
            sys::set_errno(errno);
            return true;
        }
        sys::wait_a_little();
    }
    // The thread that fills it was killed, in a process that shares the memory.
    let _ = entry.state.compare_exchange(0, FAILED, Ordering::AcqRel, Ordering::Relaxed);
    sys::set_errno(errno);
    entry.is::<true>(key)
}

/// Enters a key from the entry `at` on, which was free.
#[cold]
#[inline(never)]
fn insert(
    site: &CounterSite,
    kind: CounterKind,
    key: &KeyWords<'_>,
    hash: u64,
    at: usize,
) -> Option<*mut u8> {
    let table = site.table.load(Ordering::Relaxed);
    // SAFETY: the table of a site that is entered.
    let head = unsafe { &*table.cast::<KeyTable>() };
    if head.used.load(Ordering::Relaxed) >= kind.keys() {
        return None;
    }
    let entry = &entries(table, kind)[at];
    if entry.hash.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Another thread was faster, with this key or another one.
        return value_of(site, kind, key);
    }
    let errno = sys::errno();
    entry.index.store(sys::tid(), Ordering::Relaxed);
    entry.tag.store(key.tag, Ordering::Relaxed);
    for (to, word) in entry.words.iter().zip(std::iter::once(key.first).chain(key.rest())) {
        to.store(word, Ordering::Relaxed);
    }
    let next = |used: u32| (used < kind.keys()).then(|| used + 1);
    let index = head.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok();
    let value = index.and_then(|index| place(site, kind, index));
    let value = value.filter(|v| counter_file::make_room(*v, kind.value_bytes() as usize).is_ok());
    if let Some(index) = index {
        entry.index.store(index, Ordering::Relaxed);
    }
    let state = if value.is_some() { READY } else { FAILED };
    let ended = entry.state.compare_exchange(0, state, Ordering::Release, Ordering::Relaxed);
    sys::set_errno(errno);
    value.filter(|_| ended.is_ok())
}
