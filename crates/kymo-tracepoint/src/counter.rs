//! Counters and histograms: what the compiler leaves of one, and what a hit does. The values lie
//! in shared memory ([`crate::process::counter_file`]), a copy for each CPU, and a hit adds to that
//! of the CPU it happens on. Laid out for C as well (`include/kymo_counter.h`).

mod key;

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use kymo_ring::CpuWords;
use kymo_ust::{CounterKind, HISTOGRAM_EXTREMES, bucket_of, to_ordered};

use crate::site::{StaticText, UNREGISTERED};
use key::value_of;
pub use key::{CounterKey, KeyWords};

/// The values of this program.
pub(crate) static WORDS: CpuWords = CpuWords::new();

/// A counter or histogram, as it was declared.
#[repr(C)]
pub struct CounterInfo {
    /// Provider.
    pub(crate) provider: StaticText,
    /// Its name.
    pub(crate) name: StaticText,
    /// Description.
    pub(crate) doc: StaticText,
    /// Source file of the declaration.
    pub(crate) file: StaticText,
    /// Line in the source file.
    pub(crate) line: u32,
    /// A [`CounterKind`].
    pub(crate) kind: u8,
    /// 1: it is hit with keys.
    pub(crate) keyed: u8,
}

// SAFETY: constants.
unsafe impl Sync for CounterInfo {}

impl CounterInfo {
    /// A counter or histogram with the names passed by macros.
    pub const fn new(names: [&'static str; 4], line: u32, is_histogram: bool, keyed: bool) -> Self {
        let [provider, name, doc, file] = names;
        let kind = if is_histogram { CounterKind::Histogram } else { CounterKind::Counter };
        Self {
            provider: StaticText::new(provider),
            name: StaticText::new(name),
            doc: StaticText::new(doc),
            file: StaticText::new(file),
            line,
            kind: kind as u8,
            keyed: keyed as u8,
        }
    }

    pub(crate) fn kind(&self) -> Option<CounterKind> {
        CounterKind::from_number(self.kind)
    }
}

/// A place in a program that counts.
#[repr(C)]
pub struct CounterSite {
    /// The value without a key in the area of CPU 0. Null: there is none.
    pub(crate) value: AtomicPtr<u8>,
    /// The values with keys there.
    pub(crate) key_values: AtomicPtr<u8>,
    /// The table of keys.
    pub(crate) table: AtomicPtr<u8>,
    pub(crate) info: *const CounterInfo,
    pub(crate) id: AtomicU32,
}

// SAFETY: atomics, and a pointer to a constant.
unsafe impl Sync for CounterSite {}

impl CounterSite {
    /// A site of a counter.
    pub const fn new(info: &'static CounterInfo) -> Self {
        Self {
            value: AtomicPtr::new(std::ptr::null_mut()),
            key_values: AtomicPtr::new(std::ptr::null_mut()),
            table: AtomicPtr::new(std::ptr::null_mut()),
            info,
            id: AtomicU32::new(UNREGISTERED),
        }
    }

    pub(crate) fn info(&self) -> &CounterInfo {
        // SAFETY: a constant, by `new` or the C header.
        unsafe { &*self.info }
    }

    /// Adds to a counter.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        let value = self.value.load(Ordering::Acquire);
        if !value.is_null() {
            // SAFETY: a word that `counter_file` has made room for in each area.
            unsafe { WORDS.add(value, n) };
        }
    }

    /// Adds to a counter under a key.
    #[inline]
    pub fn add_keyed(&self, n: u64, key: &KeyWords<'_>) {
        let value = self.value.load(Ordering::Acquire);
        if value.is_null() {
            return;
        }
        let value = value_of(self, CounterKind::Counter, key).unwrap_or(value);
        // SAFETY: as above, and by `value_of`.
        unsafe { WORDS.add(value, n) };
    }

    /// Puts a value into a histogram.
    #[inline(always)]
    pub fn record(&self, sample: i64) {
        let value = self.value.load(Ordering::Acquire);
        if !value.is_null() {
            // SAFETY: room for a histogram, which `counter_file` has made in each area.
            unsafe { record_at(value, sample) };
        }
    }

    /// Puts a value into a histogram under a key.
    #[inline]
    pub fn record_keyed(&self, sample: i64, key: &KeyWords<'_>) {
        let value = self.value.load(Ordering::Acquire);
        if value.is_null() {
            return;
        }
        let value = value_of(self, CounterKind::Histogram, key).unwrap_or(value);
        // SAFETY: as above, and by `value_of`.
        unsafe { record_at(value, sample) };
    }

    /// Counts nothing any more.
    pub(crate) fn forget(&self) {
        self.value.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.id.store(UNREGISTERED, Ordering::Relaxed);
    }
}

/// # Safety
/// `histogram` is the place of one in the area of CPU 0; there is room in each area.
#[inline(always)]
unsafe fn record_at(histogram: *mut u8, sample: i64) {
    let ordered = to_ordered(sample);
    // SAFETY: the caller's promise; places within a histogram, which is aligned to 16.
    unsafe {
        let bucket = histogram.add(16 * bucket_of(sample));
        let extremes = histogram.add(HISTOGRAM_EXTREMES);
        WORDS.add_pair(bucket, [1, sample as u64], extremes, [!ordered, ordered]);
    }
}

/// A value of a histogram: any integer. What is larger than an `i64` counts as the
/// largest one.
pub trait SampleValue {
    /// The value.
    fn sample(self) -> i64;
}

macro_rules! sample_values {
    ($($type:ty),*) => {$(
        impl SampleValue for $type {
            #[inline(always)]
            fn sample(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
sample_values!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// Amount that a hit adds to a counter.
#[inline(always)]
pub fn step(n: impl SampleValue) -> u64 {
    u64::try_from(n.sample()).unwrap_or(0)
}

/// An entry of the section where the linker gathers the counters of a library.
#[repr(C, align(16))]
pub struct CounterRef {
    site: *const CounterSite,
    reserved: *const u8,
}

// SAFETY: sites are shared.
unsafe impl Sync for CounterRef {}

impl CounterRef {
    /// To a site.
    pub const fn new(site: &'static CounterSite) -> Self {
        Self { site, reserved: std::ptr::null() }
    }

    /// To none: keeps the section from being empty.
    pub(crate) const fn none() -> Self {
        Self { site: std::ptr::null(), reserved: std::ptr::null() }
    }

    pub(crate) fn raw(&self) -> *const CounterSite {
        self.site
    }
}
