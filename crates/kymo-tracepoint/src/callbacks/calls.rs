//! Callbacks of programs in C: a function and a pointer for it. The header calls them, since only
//! it knows what they take; here are the lists.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::grace_period::{self, Announced, Change};
use crate::site::{ONE_CALLBACK, Site};
use crate::sys;

/// Most callbacks of one site.
const MAX_CALLS: usize = 1024;

/// A function that takes the pointer and what the tracepoint takes.
pub(crate) type Probe = unsafe extern "C" fn();

/// A callback.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Call {
    probe: Option<Probe>,
    data: *mut c_void,
}

impl Call {
    fn new(probe: Probe, data: *mut c_void) -> Self {
        Self { probe: Some(probe), data }
    }

    fn is(&self, other: &Self) -> bool {
        self.code() == other.code() && self.data == other.data
    }

    fn code(&self) -> usize {
        self.probe.map_or(0, |probe| probe as usize)
    }
}

/// Callbacks of a site for a caller in C, and what to release afterwards.
#[repr(C)]
pub struct Calls {
    calls: *const Call,
    count: usize,
    phase: usize,
}

struct List {
    calls: Vec<Call>,
}

/// Begins to call the callbacks of a site.
///
/// # Safety
/// The site's callbacks are lists of this kind.
pub(crate) unsafe fn begin(site: &Site) -> Calls {
    let phase = Announced::new().keep();
    // SAFETY: null or a list that is not dropped while a caller is announced.
    let list = unsafe { site.callbacks.load(Ordering::SeqCst).cast::<List>().as_ref() };
    let calls = list.map_or(&[][..], |list| &list.calls);
    Calls { calls: calls.as_ptr(), count: calls.len(), phase }
}

/// Ends what [`begin`] began.
pub(crate) fn end(calls: &Calls) {
    drop(Announced::again(calls.phase));
}

/// Adds a callback.
///
/// # Safety
/// The site's callbacks are lists of this kind; its library takes itself out before it is unloaded.
pub(crate) unsafe fn add(site: &Site, probe: Probe, data: *mut c_void) -> Result<(), c_int> {
    let call = Call::new(probe, data);
    let mut change = grace_period::change();
    // SAFETY: the caller's promise.
    let mut calls = unsafe { calls_of(site) };
    if calls.iter().any(|known| known.is(&call)) {
        return Err(libc::EEXIST);
    }
    if calls.len() >= MAX_CALLS {
        return Err(libc::ENOSPC);
    }
    calls.push(call);
    change.sites().insert(std::ptr::from_ref(site).expose_provenance());
    // SAFETY: the caller's promise.
    unsafe { replace(site, &mut change, calls) };
    Ok(())
}

/// Takes a callback off. A call that has begun by then continues to its end.
///
/// # Safety
/// As [`add`].
pub(crate) unsafe fn remove(site: &Site, probe: Probe, data: *mut c_void) -> Result<(), c_int> {
    let call = Call::new(probe, data);
    let mut change = grace_period::change();
    // SAFETY: the caller's promise.
    let mut calls = unsafe { calls_of(site) };
    let at = calls.iter().position(|known| known.is(&call)).ok_or(libc::ENOENT)?;
    calls.remove(at);
    // SAFETY: the caller's promise.
    unsafe { replace(site, &mut change, calls) };
    Ok(())
}

/// A library is being unloaded: its functions are called no more, and its sites have no list.
/// Waits for calls that have begun, if this is not one of them.
pub(crate) fn forget_library(base: usize) {
    let mut change = grace_period::change();
    let mut changed = false;
    for at in change.sites().clone() {
        let its_own = sys::library_of(at) == Some(base);
        // SAFETY: the site of a library that is there, since libraries take theirs out of this set
        // before they are unloaded; its callbacks are lists of this kind.
        let (site, calls) = unsafe {
            let site = &*std::ptr::with_exposed_provenance::<Site>(at);
            (site, calls_of(site))
        };
        let stays = |call: &Call| !its_own && sys::library_of(call.code()) != Some(base);
        let rest: Vec<Call> = calls.iter().copied().filter(stays).collect();
        if rest.len() != calls.len() {
            // SAFETY: as above.
            unsafe { replace(site, &mut change, rest) };
            changed = true;
        }
        if its_own {
            change.sites().remove(&at);
        }
    }
    drop(change);
    if changed {
        grace_period::synchronize();
    }
}

/// # Safety
/// The site's callbacks are lists of this kind, and the lock on changes is held.
unsafe fn calls_of(site: &Site) -> Vec<Call> {
    // SAFETY: null or a list of this kind, which is replaced under the lock alone.
    let list = unsafe { site.callbacks.load(Ordering::SeqCst).cast::<List>().as_ref() };
    list.map_or_else(Vec::new, |list| list.calls.clone())
}

/// # Safety
/// The site's callbacks are lists of this kind.
unsafe fn replace(site: &Site, change: &mut Change, calls: Vec<Call>) {
    unsafe fn drop_list(list: *mut c_void) {
        // SAFETY: made by `Box::into_raw` below.
        drop(unsafe { Box::from_raw(list.cast::<List>()) });
    }
    let count = calls.len() as u32;
    let new = if calls.is_empty() {
        std::ptr::null_mut()
    } else {
        Box::into_raw(Box::new(List { calls })).cast()
    };
    let old = site.callbacks.swap(new, Ordering::SeqCst);
    // The lower half is the tracers', who count it up and down meanwhile.
    let with_count = |word: u32| Some((word % ONE_CALLBACK) | (count * ONE_CALLBACK));
    let _ = site.listeners.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_count);
    // SAFETY: made by a call of this function.
    unsafe { change.retire(old, drop_list) };
}
