//! Callbacks: closures that are registered on a tracepoint at run time, as a kernel
//! module would register a probe. Several per tracepoint; calls, registering and
//! unregistering may happen at once.
//!
//! Callers announce themselves before they load the list and take themselves off
//! afterwards; lists that were replaced are dropped when nobody is announced.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::site::{ONE_CALLBACK, Site};

/// The callbacks of a site. `F` is the trait object that its macro names.
struct List<F: ?Sized> {
    entries: Vec<(u64, Arc<F>)>,
}

/// How many threads are calling callbacks, of any site.
static CALLING: AtomicU64 = AtomicU64::new(0);
static CHANGE: Mutex<Changes> = Mutex::new(Changes { next: 1, old: Vec::new() });

struct Changes {
    next: u64,
    old: Vec<Old>,
}

/// A list that somebody may still be reading.
struct Old {
    list: *mut c_void,
    drop: unsafe fn(*mut c_void),
}

// SAFETY: lists hold `Send + Sync` closures alone.
unsafe impl Send for Old {}

/// A registered callback: is unregistered when this is dropped. A call that has begun by
/// then goes on to its end.
pub struct Registration<F: ?Sized + Send + Sync + 'static> {
    site: &'static Site,
    id: u64,
    _callback: PhantomData<Arc<F>>,
}

impl<F: ?Sized + Send + Sync + 'static> Registration<F> {
    /// Registers a callback. `F` must be the same for all callbacks of a site: the macros
    /// see to it.
    ///
    /// # Safety
    /// As said.
    pub unsafe fn new(site: &'static Site, callback: Arc<F>) -> Self {
        let mut changes = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        let id = changes.next;
        changes.next += 1;
        // SAFETY: the caller's promise on F.
        unsafe {
            replace::<F>(site, &mut changes, |entries| entries.push((id, callback)));
        }
        site.listeners.fetch_add(ONE_CALLBACK, Ordering::Relaxed);
        Self { site, id, _callback: PhantomData }
    }

    /// The callback stays for as long as the program runs.
    pub fn forever(self) {
        std::mem::forget(self);
    }
}

impl<F: ?Sized + Send + Sync + 'static> Drop for Registration<F> {
    fn drop(&mut self) {
        let mut changes = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
        self.site.listeners.fetch_sub(ONE_CALLBACK, Ordering::Relaxed);
        // SAFETY: the promise given to `new`.
        unsafe {
            replace::<F>(self.site, &mut changes, |entries| {
                entries.retain(|(id, _)| *id != self.id);
            });
        }
    }
}

/// # Safety
/// The site's callbacks are of type F.
unsafe fn replace<F: ?Sized + Send + Sync + 'static>(
    site: &Site,
    changes: &mut Changes,
    change: impl FnOnce(&mut Vec<(u64, Arc<F>)>),
) {
    unsafe fn drop_list<F: ?Sized>(list: *mut c_void) {
        // SAFETY: made by `Box::into_raw` below, with the same F.
        drop(unsafe { Box::from_raw(list.cast::<List<F>>()) });
    }
    let old = site.callbacks.load(Ordering::SeqCst);
    // SAFETY: null or a list of this type that is dropped only below, under the mutex.
    let mut entries =
        unsafe { old.cast::<List<F>>().as_ref() }.map_or_else(Vec::new, |l| l.entries.clone());
    change(&mut entries);
    let new = Box::into_raw(Box::new(List { entries }));
    site.callbacks.store(new.cast(), Ordering::SeqCst);
    if !old.is_null() {
        changes.old.push(Old { list: old, drop: drop_list::<F> });
    }
    // Whoever announces from here on finds the new list: both are in one total order.
    if CALLING.load(Ordering::SeqCst) == 0 {
        for old in changes.old.drain(..) {
            // SAFETY: nobody was calling after it had been replaced.
            unsafe { (old.drop)(old.list) };
        }
    }
}

struct Announced;

impl Drop for Announced {
    fn drop(&mut self) {
        CALLING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls each callback of a site.
///
/// # Safety
/// The site's callbacks are of type F.
pub unsafe fn call<F: ?Sized + Send + Sync + 'static>(site: &Site, mut with: impl FnMut(&F)) {
    // SAFETY: the caller's promise.
    unsafe { call_each(&site.callbacks, &mut with) };
}

unsafe fn call_each<F: ?Sized>(list: &AtomicPtr<c_void>, with: &mut dyn FnMut(&F)) {
    CALLING.fetch_add(1, Ordering::SeqCst);
    let _announced = Announced;
    // SAFETY: null or a list of this type, which is not dropped while somebody is announced.
    if let Some(list) = unsafe { list.load(Ordering::SeqCst).cast::<List<F>>().as_ref() } {
        for (_, callback) in &list.entries {
            with(callback);
        }
    }
}
