//! The small ABI: how libraries enter their sites, and what programs in C call. The
//! linker gathers the sites of a program or library in a section; a constructor enters
//! them, a destructor takes them out.

use crate::process;
use crate::record::SMALL;
use crate::site::{Site, SiteRef};

/// Keeps the section from being empty, so that its limits exist.
#[used]
#[unsafe(link_section = "kymo_events")]
static NONE: SiteRef = SiteRef::none();

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
}

#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = enter;
#[used]
#[unsafe(link_section = ".fini_array")]
static LEAVE: extern "C" fn() = leave;

extern "C" fn enter() {
    // SAFETY: the linker's limits of the section.
    unsafe { kymo_register(&raw const START, &raw const STOP) };
}

extern "C" fn leave() {
    // SAFETY: the linker's limits of the section.
    unsafe { kymo_unregister(&raw const START, &raw const STOP) };
}

/// # Safety
/// Limits of an array.
unsafe fn section<'a>(start: *const SiteRef, stop: *const SiteRef) -> &'a [SiteRef] {
    let count = (stop.addr() - start.addr()) / size_of::<SiteRef>();
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// Enters the sites of a program or library. Doing it twice does no harm.
///
/// # Safety
/// `start` and `stop` are the limits of an array of pointers to sites, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_register(start: *const SiteRef, stop: *const SiteRef) {
    // SAFETY: the caller's promise.
    process::register(unsafe { section(start, stop) });
}

/// Takes the sites of a library out that is being unloaded.
///
/// # Safety
/// As [`kymo_register`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_unregister(start: *const SiteRef, stop: *const SiteRef) {
    // SAFETY: the caller's promise.
    process::unregister(unsafe { section(start, stop) });
}

/// Writes an event with the payload of `len` bytes at `payload`.
///
/// # Safety
/// `site` has been entered; `payload` is valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_record(site: *const Site, payload: *const u8, len: usize) {
    // SAFETY: the caller's promise.
    let site = unsafe { &*site };
    if len > SMALL {
        site.record_large(len, &mut |to| {
            // SAFETY: the caller's promise; `to` has room for `len` bytes.
            unsafe { std::ptr::copy_nonoverlapping(payload, to, len) };
        });
        return;
    }
    let mut scratch = crate::record::Scratch::new();
    // SAFETY: the caller's promise; `len` is no more than SMALL.
    unsafe {
        std::ptr::copy_nonoverlapping(payload, scratch.payload(), len);
        site.record(&mut scratch, len);
    }
}
