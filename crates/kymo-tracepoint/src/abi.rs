//! The ABI: what programs in C call, and how libraries enter their sites. The linker
//! gathers the sites of a program or library in a section; a constructor enters them, a
//! destructor takes them out.
//!
//! Functions have the version in their names, so that a header and a library that do not
//! belong together are not linked; sizes in [`Module`] tell layouts apart within a version.

mod check;

use std::ffi::{c_int, c_void};

use crate::callbacks::calls::{self, Calls, Probe};
use crate::callbacks::grace_period;
use crate::counter::{CounterInfo, CounterKey as _, CounterRef, CounterSite, KeyWords};
use crate::process;
use crate::record::{SMALL, Scratch};
use crate::site::{EnumEntry, EventInfo, Site, SiteField, SiteRef};
use crate::sys;

/// Keeps the section from being empty, so that its limits exist.
#[used]
#[unsafe(link_section = "kymo_events")]
static NONE: SiteRef = SiteRef::none();

#[used]
#[unsafe(link_section = "kymo_counters")]
static NO_COUNTER: CounterRef = CounterRef::none();

/// Makes the section of the sites begin with a page of the file. Else its first page may be
/// mapped a second time, as the end of what is read-only after relocation: the kernel, which
/// looks for the page of an SDT semaphore by its place in the file, then counts in the wrong one.
#[repr(align(4096))]
struct PageStart;

#[used]
#[unsafe(link_section = ".probes")]
static PAGE_START: PageStart = PageStart;

unsafe extern "C" {
    #[link_name = "__start_kymo_events"]
    static START: SiteRef;
    #[link_name = "__stop_kymo_events"]
    static STOP: SiteRef;
    #[link_name = "__start_kymo_counters"]
    static COUNTERS_START: CounterRef;
    #[link_name = "__stop_kymo_counters"]
    static COUNTERS_STOP: CounterRef;
}

#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = enter;
#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;

extern "C" fn enter() {
    enter_all(own());
    let (sound, refused) = check::sound_counters(own_counters());
    process::register_counters(&sound, refused);
}

extern "C" fn leave() {
    process::unregister(&check::sound(own()).0);
    process::unregister_counters(&check::sound_counters(own_counters()).0);
}

fn enter_all(entries: &[SiteRef]) {
    let (sound, refused) = check::sound(entries);
    process::register(&sound, refused);
}

/// The section of what this is linked with, which may be a program in C.
fn own() -> &'static [SiteRef] {
    // SAFETY: the linker's limits of the section, where the macros and the header put sites.
    unsafe { section(&raw const START, &raw const STOP) }
}

fn own_counters() -> &'static [CounterRef] {
    // SAFETY: as above.
    unsafe { section(&raw const COUNTERS_START, &raw const COUNTERS_STOP) }
}

/// # Safety
/// Limits of an array that stays.
unsafe fn section<'a, T>(start: *const T, stop: *const T) -> &'a [T] {
    let count = stop.addr().saturating_sub(start.addr()) / size_of::<T>();
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// Description of a C program or library by itself: the addresses of its sites, and the layout of
/// what its header declares.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Module {
    /// Bytes of this structure.
    size: u32,
    layout: Layout,
    start: *const SiteRef,
    stop: *const SiteRef,
}

/// Sizes of the structures that a header and this library share.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    entry: u16,
    site: u16,
    event: u16,
    field: u16,
    enumerator: u16,
    scratch: u16,
    /// Bytes before the payload in a scratch, and most bytes of the payload.
    headroom: u16,
    small: u16,
    calls: u32,
}

const LAYOUT: Layout = Layout {
    entry: size_of::<SiteRef>() as u16,
    site: size_of::<Site>() as u16,
    event: size_of::<EventInfo>() as u16,
    field: size_of::<SiteField>() as u16,
    enumerator: size_of::<EnumEntry>() as u16,
    scratch: size_of::<Scratch>() as u16,
    headroom: kymo_ring::HEADROOM as u16,
    small: SMALL as u16,
    calls: size_of::<Calls>() as u32,
};

/// # Safety
/// `module` is null or begins with its size.
unsafe fn module(module: *const Module) -> Result<&'static [SiteRef], c_int> {
    // SAFETY: the caller's promise.
    let size = unsafe { module.cast::<u32>().as_ref() }.ok_or(libc::EINVAL)?;
    if (*size as usize) < size_of::<Module>() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: as large as that.
    let module = unsafe { &*module };
    if module.layout != LAYOUT {
        return Err(libc::ENOSYS);
    }
    // SAFETY: the linker's limits of the section of a library that is there.
    Ok(unsafe { section(module.start, module.stop) })
}

fn answer(result: Result<(), c_int>) -> c_int {
    result.err().map_or(0, |errno| -errno)
}

/// Enters the sites of a program or library. Doing it twice does no harm. Zero, or a negative
/// error number: ENOSYS if the header is of another make.
///
/// # Safety
/// `at` begins with its size, and has the addresses of the sites.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_enter(at: *const Module) -> c_int {
    // SAFETY: the caller's promise.
    let entries = unsafe { module(at) };
    answer(entries.map(enter_all))
}

/// Takes the sites of a library out that is being unloaded, and its functions out of the
/// callbacks of others.
///
/// # Safety
/// As [`kymo_abi1_enter`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_leave(at: *const Module) {
    if process::is_ending() {
        return;
    }
    // SAFETY: the caller's promise.
    let Ok(entries) = (unsafe { module(at) }) else { return };
    if let Some(base) = sys::library_of(at.addr()) {
        calls::forget_library(base);
    }
    process::unregister(&check::sound(entries).0);
}

/// Writes an event with the payload of `len` bytes in `scratch`.
///
/// # Safety
/// The site stays; the payload's bytes are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_record(site: *const Site, scratch: *mut Scratch, len: usize) {
    if len <= SMALL {
        // SAFETY: the caller's promise, and `len` is checked.
        unsafe { (*site).record(&mut *scratch, len) };
    }
}

/// Writes an event of any length: `put` makes the payload of `len` bytes of what is `stored`,
/// once for each session that listens.
///
/// # Safety
/// The site stays; `put` writes `len` bytes when it is given `stored`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_record_large(
    site: *const Site,
    len: usize,
    put: unsafe extern "C" fn(*const c_void, *mut u8),
    stored: *const c_void,
) {
    // SAFETY: the caller's promise.
    let site = unsafe { &*site };
    // SAFETY: called with room for `len` bytes.
    site.record_large(len, &mut |to| unsafe { put(stored, to) });
}

/// Adds a callback. Zero or a negative error number: EINVAL, EEXIST, ENOSPC.
///
/// # Safety
/// The site is one that C has declared; `probe` takes `data` and what the site's tracepoint takes,
/// and stays until it is taken off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_register(
    site: *const Site,
    probe: Option<Probe>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let add = |site, probe| unsafe { calls::add(site, probe, data) };
    // SAFETY: the caller's promise.
    let site = unsafe { site.as_ref() };
    answer(site.zip(probe).ok_or(libc::EINVAL).and_then(|(site, probe)| add(site, probe)))
}

/// Takes a callback off. A call that has begun continues to its end. Zero or a negative error
/// number: EINVAL, ENOENT.
///
/// # Safety
/// The site is one that C has declared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_unregister(
    site: *const Site,
    probe: Option<Probe>,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let remove = |site, probe| unsafe { calls::remove(site, probe, data) };
    // SAFETY: the caller's promise.
    let site = unsafe { site.as_ref() };
    answer(site.zip(probe).ok_or(libc::EINVAL).and_then(|(site, probe)| remove(site, probe)))
}

/// Begins to call the callbacks of a site.
///
/// # Safety
/// The site is one that C has declared; there is room for the answer, which is given to
/// [`kymo_abi1_calls_end`] once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_calls_begin(site: *const Site, to: *mut Calls) {
    // SAFETY: the caller's promise.
    unsafe { to.write(calls::begin(&*site)) };
}

/// Ends what [`kymo_abi1_calls_begin`] began.
///
/// # Safety
/// As said there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_calls_end(calls: *const Calls) {
    // SAFETY: the caller's promise.
    calls::end(unsafe { &*calls });
}

/// Waits until calls that use a callback which has been taken off are over. Zero, or EDEADLK
/// (negative) if this is such a call.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_abi1_synchronize() -> c_int {
    answer(if grace_period::synchronize() { Ok(()) } else { Err(libc::EDEADLK) })
}

/// Declaration of the counters of a program or library in C.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CounterModule {
    /// Bytes of this structure.
    size: u32,
    entry: u16,
    site: u16,
    info: u16,
    start: *const CounterRef,
    stop: *const CounterRef,
}

/// # Safety
/// `module` is null or begins with its size.
unsafe fn counters(module: *const CounterModule) -> Result<&'static [CounterRef], c_int> {
    // SAFETY: the caller's promise.
    let size = unsafe { module.cast::<u32>().as_ref() }.ok_or(libc::EINVAL)?;
    if (*size as usize) < size_of::<CounterModule>() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: as large as that.
    let module = unsafe { &*module };
    let layout = [module.entry, module.site, module.info].map(usize::from);
    if layout != [size_of::<CounterRef>(), size_of::<CounterSite>(), size_of::<CounterInfo>()] {
        return Err(libc::ENOSYS);
    }
    // SAFETY: the linker's limits of the section of a library that is there.
    Ok(unsafe { section(module.start, module.stop) })
}

/// Enters the counters of a program or library. Doing it twice does no harm. Zero, or a negative
/// error number: ENOSYS if the header is of another make.
///
/// # Safety
/// `at` begins with its size, and has the addresses of the counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_enter_counters(at: *const CounterModule) -> c_int {
    // SAFETY: the caller's promise.
    let entries = unsafe { counters(at) };
    answer(entries.map(|entries| {
        let (sound, refused) = check::sound_counters(entries);
        process::register_counters(&sound, refused);
    }))
}

/// Takes the counters of a library out that is being unloaded.
///
/// # Safety
/// As [`kymo_abi1_enter_counters`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_leave_counters(at: *const CounterModule) {
    // SAFETY: the caller's promise.
    if let Ok(entries) = unsafe { counters(at) } {
        process::unregister_counters(&check::sound_counters(entries).0);
    }
}

/// Adds to a counter.
///
/// # Safety
/// The site is one that C has declared as a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_add(site: *const CounterSite, n: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*site).add(n) }
}

/// Adds to a counter under a text.
///
/// # Safety
/// The site is one that C has declared as a counter with keys; there are `len` bytes at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_add_text(
    site: *const CounterSite,
    n: u64,
    key: *const u8,
    len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { (*site).add_keyed(n, &text_key(key, len)) }
}

/// Adds to a counter under a number.
///
/// # Safety
/// The site is one that C has declared as a counter with keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_add_number(site: *const CounterSite, n: u64, key: i64) {
    // SAFETY: the caller's promise.
    unsafe { (*site).add_keyed(n, &key.key()) }
}

/// Puts a value into a histogram.
///
/// # Safety
/// The site is one that C has declared as a histogram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_sample(site: *const CounterSite, value: i64) {
    // SAFETY: the caller's promise.
    unsafe { (*site).record(value) }
}

/// Puts a value into a histogram under a text.
///
/// # Safety
/// The site is one that C has declared as a histogram with keys; there are `len` bytes at `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_sample_text(
    site: *const CounterSite,
    value: i64,
    key: *const u8,
    len: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { (*site).record_keyed(value, &text_key(key, len)) }
}

/// Puts a value into a histogram under a number.
///
/// # Safety
/// The site is one that C has declared as a histogram with keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_abi1_sample_number(site: *const CounterSite, value: i64, key: i64) {
    // SAFETY: the caller's promise.
    unsafe { (*site).record_keyed(value, &key.key()) }
}

/// # Safety
/// There are `len` bytes at `key`, or it is null.
unsafe fn text_key<'a>(key: *const u8, len: usize) -> KeyWords<'a> {
    if key.is_null() {
        return KeyWords::text(b"(null)");
    }
    // SAFETY: the caller's promise.
    KeyWords::text(unsafe { std::slice::from_raw_parts(key, len) })
}
