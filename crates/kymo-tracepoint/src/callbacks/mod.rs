//! Callbacks: closures that are registered on a tracepoint at run time, as a kernel module would
//! register a probe. Several per tracepoint; calls, registering and unregistering may happen
//! concurrently.

pub(crate) mod calls;
pub(crate) mod grace_period;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::site::{ONE_CALLBACK, Site};
use grace_period::{Announced, Change};

/// The callbacks of a site. `F` is the trait object that its macro names.
struct List<F: ?Sized> {
    entries: Vec<(u64, Arc<F>)>,
}

/// A registered callback: is unregistered when this is dropped. A call that has begun by then
/// continues to its end.
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
        let mut change = grace_period::change();
        let id = change.number();
        // SAFETY: the caller's promise on F.
        unsafe {
            replace::<F>(site, &mut change, |entries| entries.push((id, callback)));
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
        let mut change = grace_period::change();
        self.site.listeners.fetch_sub(ONE_CALLBACK, Ordering::Relaxed);
        // SAFETY: the promise given to `new`.
        unsafe {
            replace::<F>(self.site, &mut change, |entries| {
                entries.retain(|(id, _)| *id != self.id);
            });
        }
    }
}

/// # Safety
/// The site's callbacks are of type F.
unsafe fn replace<F: ?Sized + Send + Sync + 'static>(
    site: &Site,
    change: &mut Change,
    edit: impl FnOnce(&mut Vec<(u64, Arc<F>)>),
) {
    unsafe fn drop_list<F: ?Sized>(list: *mut c_void) {
        // SAFETY: made by `Box::into_raw` below, with the same F.
        drop(unsafe { Box::from_raw(list.cast::<List<F>>()) });
    }
    let old = site.callbacks.load(Ordering::SeqCst);
    // SAFETY: null or a list of this type that is dropped when no thread changes lists.
    let mut entries =
        unsafe { old.cast::<List<F>>().as_ref() }.map_or_else(Vec::new, |l| l.entries.clone());
    edit(&mut entries);
    let new = Box::into_raw(Box::new(List { entries }));
    site.callbacks.store(new.cast(), Ordering::SeqCst);
    // SAFETY: made by a call of this function with the same F, whose closures are `Send + Sync`.
    unsafe { change.retire(old, drop_list::<F>) };
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
    let _announced = Announced::new();
    // SAFETY: null or a list of this type, which is not dropped while a caller is announced.
    if let Some(list) = unsafe { list.load(Ordering::SeqCst).cast::<List<F>>().as_ref() } {
        for (_, callback) in &list.entries {
            with(callback);
        }
    }
}
