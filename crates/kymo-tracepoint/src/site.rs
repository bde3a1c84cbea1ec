//! Tracepoint as compiled: a constant description, and the site, which holds whether anything
//! listens. Laid out for C as well (`include/kymo_tracepoint.h`).

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use kymo_ust::{EventFlags, EventWords, FieldTag, FieldWords, Fields, Shape};

/// Text that lives as long as the program.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct StaticText {
    start: *const u8,
    len: usize,
}

// SAFETY: constant text.
unsafe impl Sync for StaticText {}
// SAFETY: constant text.
unsafe impl Send for StaticText {}

impl StaticText {
    /// From a constant.
    pub const fn new(text: &'static str) -> Self {
        Self { start: text.as_ptr(), len: text.len() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// It is somewhere, or empty.
    pub(crate) fn is_told(&self) -> bool {
        !self.start.is_null() || self.len == 0
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.start.is_null() {
            return &[];
        }
        // SAFETY: made from a constant string by `new`, or by the C header from a literal and its size.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// A name for some values of an enum.
#[repr(C)]
pub struct EnumEntry {
    /// Lowest value.
    pub low: i64,
    /// Highest value.
    pub high: i64,
    /// Their name.
    pub name: StaticText,
}

/// A field of an event.
#[repr(C)]
pub struct SiteField {
    /// Its name.
    pub name: StaticText,
    /// Layout in the payload.
    pub shape: Shape,
    entries: *const EnumEntry,
    entry_count: usize,
}

// SAFETY: constants.
unsafe impl Sync for SiteField {}

impl SiteField {
    /// A field.
    pub const fn new(name: &'static str, shape: Shape, entries: &'static [EnumEntry]) -> Self {
        let (start, entry_count) = (entries.as_ptr(), entries.len());
        Self { name: StaticText::new(name), shape, entries: start, entry_count }
    }

    pub(crate) fn raw_entries(&self) -> (*const EnumEntry, usize) {
        (self.entries, self.entry_count)
    }
}

/// An event, as it was declared.
#[repr(C)]
pub struct EventInfo {
    /// Provider.
    pub provider: StaticText,
    /// Its name.
    pub name: StaticText,
    /// Print format.
    pub format: StaticText,
    /// Documentation.
    pub doc: StaticText,
    /// Source file of the declaration.
    pub file: StaticText,
    /// Line of the declaration.
    pub line: u32,
    /// Log level.
    pub level: Level,
    /// See [`kymo_ust::EventFlags`].
    pub flags: u8,
    fields: *const SiteField,
    field_count: usize,
}

// SAFETY: constants.
unsafe impl Sync for EventInfo {}

/// Importance of an event: syslog's and LTTng's numbers.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the words say it")]
pub enum Level {
    Emergency = 0,
    Alert = 1,
    Critical = 2,
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
    DebugSystem = 7,
    DebugProgram = 8,
    DebugProcess = 9,
    DebugModule = 10,
    DebugUnit = 11,
    DebugFunction = 12,
    DebugLine = 13,
    Debug = 14,
}

/// Declaration of an event, without its fields.
pub struct Declared {
    /// Provider.
    pub provider: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Print format.
    pub format: &'static str,
    /// Documentation.
    pub doc: &'static str,
    /// Source file of the declaration.
    pub file: &'static str,
    /// Line of the declaration.
    pub line: u32,
    /// Log level.
    pub level: Level,
    /// A mark.
    pub mark: bool,
}

impl EventInfo {
    /// An event.
    pub const fn new(declared: &Declared, fields: &'static [SiteField]) -> Self {
        let sdt = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            EventFlags::SDT
        } else {
            0
        };
        Self {
            provider: StaticText::new(declared.provider),
            name: StaticText::new(declared.name),
            format: StaticText::new(declared.format),
            doc: StaticText::new(declared.doc),
            file: StaticText::new(declared.file),
            line: declared.line,
            level: declared.level,
            flags: sdt | if declared.mark { EventFlags::MARK } else { 0 },
            fields: fields.as_ptr(),
            field_count: fields.len(),
        }
    }

    /// # Safety
    /// The memory of a description, whose other parts may be anything.
    pub(crate) unsafe fn raw_fields(event: *const Self) -> (*const SiteField, usize) {
        // SAFETY: the caller's promise; a pointer and a number.
        unsafe { ((&raw const (*event).fields).read(), (&raw const (*event).field_count).read()) }
    }

    /// Whether it is the same event with the same fields.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let texts = |e: &Self| [e.provider, e.name];
        let same = |a: StaticText, b: StaticText| a.bytes() == b.bytes();
        std::iter::zip(texts(self), texts(other)).all(|(a, b)| same(a, b))
            && self.field_count == other.field_count
            && std::iter::zip(self.fields(), other.fields())
                .all(|(a, b)| a.shape == b.shape && same(a.name, b.name))
    }

    /// Whether a field holds an address in the program.
    pub(crate) fn has_addresses(&self) -> bool {
        self.fields().iter().any(|field| field.shape.kind == FieldTag::Symbol)
    }

    fn fields(&self) -> &[SiteField] {
        if self.field_count == 0 {
            return &[];
        }
        // SAFETY: a constant array, by `new` or the C header.
        unsafe { std::slice::from_raw_parts(self.fields, self.field_count) }
    }
}

impl Fields for EventInfo {
    fn count(&self) -> usize {
        self.field_count
    }

    fn shape(&self, index: usize) -> Shape {
        self.fields()[index].shape
    }

    fn name(&self, index: usize) -> &[u8] {
        self.fields()[index].name.bytes()
    }
}

/// Eight bytes that are never set: read by sites that are not registered.
static DISABLED: AtomicU64 = AtomicU64::new(0);

/// The place in a program where an event comes from.
#[repr(C)]
pub struct Site {
    /// The enable word in the control file, a byte for each session.
    pub(crate) enabled: AtomicPtr<AtomicU64>,
    /// Lower half: the SDT semaphore, which tracers count up in the program's memory.
    /// Upper half: number of callbacks.
    pub(crate) listeners: AtomicU32,
    pub(crate) id: AtomicU32,
    pub(crate) event: *const EventInfo,
    pub(crate) callbacks: AtomicPtr<c_void>,
}

// SAFETY: atomics, and a pointer to a constant.
unsafe impl Sync for Site {}

pub(crate) const ONE_CALLBACK: u32 = 1 << 16;
pub(crate) const UNREGISTERED: u32 = u32::MAX;
/// Not the number of an event either: it was refused, and is not checked again.
pub(crate) const REFUSED: u32 = u32::MAX - 1;

impl Site {
    /// A site of an event.
    pub const fn new(event: &'static EventInfo) -> Self {
        Self {
            enabled: AtomicPtr::new((&raw const DISABLED).cast_mut()),
            listeners: AtomicU32::new(0),
            id: AtomicU32::new(UNREGISTERED),
            event,
            callbacks: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Offset of the SDT semaphore in a site.
    pub const SEMAPHORE: usize = std::mem::offset_of!(Site, listeners);

    /// Whether anybody listens: a session, a tracer at the SDT marker, a callback.
    #[inline(always)]
    pub fn is_enabled(&self) -> bool {
        (self.word(Ordering::Relaxed) | u64::from(self.listeners.load(Ordering::Relaxed))) != 0
    }

    /// Listeners other than sessions.
    #[inline(always)]
    pub fn listeners(&self) -> Listeners {
        Listeners(self.listeners.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn word(&self, order: Ordering) -> u64 {
        // SAFETY: points to DISABLED or into the mapped control file, which stays mapped.
        unsafe { (*self.enabled.load(Ordering::Relaxed)).load(order) }
    }

    pub(crate) fn event(&self) -> &EventInfo {
        // SAFETY: a constant, by `new` or the C header.
        unsafe { &*self.event }
    }

    /// Disables the site for good: it cannot be enabled any more.
    pub(crate) fn forget(&self) {
        self.enabled.store((&raw const DISABLED).cast_mut(), Ordering::Relaxed);
        self.id.store(UNREGISTERED, Ordering::Relaxed);
    }
}

/// Listeners to a site other than sessions.
#[derive(Clone, Copy, Debug)]
pub struct Listeners(u32);

impl Listeners {
    /// Anybody.
    #[inline(always)]
    pub fn are_there(self) -> bool {
        self.0 != 0
    }

    /// A tracer, at the SDT marker.
    #[inline(always)]
    pub fn has_tracer(self) -> bool {
        self.0 & (ONE_CALLBACK - 1) != 0
    }

    /// A callback.
    #[inline(always)]
    pub fn has_callback(self) -> bool {
        self.0 >= ONE_CALLBACK
    }
}

/// A site with its number, as it is put into the event table.
pub(crate) struct Registered<'a> {
    pub(crate) site: &'a Site,
    pub(crate) id: u32,
    pub(crate) gone: bool,
}

impl EventWords for Registered<'_> {
    fn id(&self) -> u32 {
        self.id
    }

    fn level(&self) -> u8 {
        self.site.event().level as u8
    }

    fn flags(&self) -> u8 {
        self.site.event().flags | if self.gone { EventFlags::GONE } else { 0 }
    }

    fn line(&self) -> u32 {
        self.site.event().line
    }

    fn address(&self) -> u64 {
        std::ptr::from_ref(self.site) as u64
    }

    fn texts(&self) -> [&[u8]; 5] {
        let event = self.site.event();
        [&event.provider, &event.name, &event.format, &event.doc, &event.file]
            .map(StaticText::bytes)
    }

    fn field_count(&self) -> usize {
        self.site.event().field_count
    }

    fn field(&self, index: usize) -> FieldWords<'_> {
        let field = &self.site.event().fields()[index];
        FieldWords { shape: field.shape, name: field.name.bytes(), entries: field.entry_count }
    }

    fn entry(&self, field: usize, entry: usize) -> (i64, i64, &[u8]) {
        let field = &self.site.event().fields()[field];
        // SAFETY: `entry` is less than `entry_count`, the length of a constant array.
        let entry = unsafe { &*field.entries.add(entry) };
        (entry.low, entry.high, entry.name.bytes())
    }
}

/// An entry of the section where the linker gathers the sites of a library.
#[repr(C, align(16))]
pub struct SiteRef {
    site: *const Site,
    /// Description by this source file; null: the site's own.
    event: *const EventInfo,
}

// SAFETY: sites are shared.
unsafe impl Sync for SiteRef {}

impl SiteRef {
    /// To a site.
    pub const fn new(site: &'static Site) -> Self {
        Self { site, event: std::ptr::null() }
    }

    /// To none: keeps the section from being empty.
    pub(crate) const fn none() -> Self {
        Self { site: std::ptr::null(), event: std::ptr::null() }
    }

    /// An entry as it was.
    pub(crate) fn copy(site: *const Site, event: *const EventInfo) -> Self {
        Self { site, event }
    }

    /// Pointers to the site and to its description here, both unchecked.
    pub(crate) fn raw(&self) -> (*const Site, *const EventInfo) {
        (self.site, self.event)
    }

    pub(crate) fn site(&self) -> Option<&Site> {
        // SAFETY: null, or a site of a library that is there: `new`, or checked by `abi`.
        unsafe { self.site.as_ref() }
    }

    pub(crate) fn event(&self) -> Option<&EventInfo> {
        // SAFETY: null, or a description that `abi` has checked.
        unsafe { self.event.as_ref() }
    }
}
