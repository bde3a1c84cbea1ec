//! Files that this process has mapped may be cut short by other processes of its user; touching
//! what is gone raises SIGBUS. In the mappings of this library the page is replaced by one of
//! zeros, so that a program does not die of being traced: it continues, and what it writes there is
//! not read. The slot of a ring reports it, as of one that could not be made.
//!
//! Every other SIGBUS goes to the action that was there before. A program that sets its own later,
//! or has the signal blocked in a thread, meets what it would without this.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use crate::sys;

/// Mappings at a time: nine rings of each slot, control and counter file, and some to spare. One
/// that finds no place is mapped all the same.
const PLACES: usize = 128;

/// A mapping of a file of ours.
struct GuardedMapping {
    /// First address; 0: an empty place, [`FILLING`]: one that is being filled.
    start: AtomicUsize,
    end: AtomicUsize,
    /// [`RingOf`] as a word; 0: no ring.
    ring: AtomicU32,
}

const FILLING: usize = 1;

static GUARDED: [GuardedMapping; PLACES] = [const {
    GuardedMapping { start: AtomicUsize::new(0), end: AtomicUsize::new(0), ring: AtomicU32::new(0) }
}; PLACES];

/// Previous handler of SIGBUS; null: none of ours is installed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
static PAGE: AtomicUsize = AtomicUsize::new(0);
/// A `fn(RingOf)`.
static ON_CUT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Which ring a mapping is.
#[derive(Clone, Copy)]
pub(crate) struct RingOf {
    pub(crate) slot: usize,
    pub(crate) generation: u8,
}

impl RingOf {
    fn to_word(self) -> u32 {
        u32::from_le_bytes([self.generation, self.slot as u8, 1, 0])
    }

    fn of_word(word: u32) -> Option<Self> {
        let [generation, slot, is_ring, _] = word.to_le_bytes();
        (is_ring == 1).then_some(Self { slot: slot.into(), generation })
    }
}

/// Takes care of SIGBUS from now on, and calls a function, in the handler, when the file of a ring
/// was cut. Not in a signal handler.
pub(crate) fn install(on_cut: fn(RingOf)) {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        ON_CUT.store(on_cut as *mut (), Ordering::Relaxed);
        // SAFETY: no memory involved.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page) = usize::try_from(page) else { return };
        PAGE.store(page, Ordering::Relaxed);
        // SAFETY: both structures are plain data for which zeros are a valid value; the handler has
        // the signature that SA_SIGINFO asks for. The old action is kept forever.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
                return;
            }
            BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            // If that fails all is as it was before.
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

/// Guards a mapping, in the place of one that began there before.
pub(crate) fn watch(at: *mut u8, size: usize, ring: Option<RingOf>) {
    forget(at);
    let free = |place: &&GuardedMapping| {
        let claimed =
            place.start.compare_exchange(0, FILLING, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok()
    };
    if let Some(place) = GUARDED.iter().find(free) {
        place.end.store(at.addr().saturating_add(size), Ordering::Relaxed);
        place.ring.store(ring.map_or(0, RingOf::to_word), Ordering::Relaxed);
        // Pairs with the handler, which sees the end and the ring of what it finds.
        place.start.store(at.addr(), Ordering::Release);
    }
}

/// Ends the guard of a mapping that is about to be unmapped.
pub(crate) fn forget(at: *mut u8) {
    for place in &GUARDED {
        let taken =
            place.start.compare_exchange(at.addr(), FILLING, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            place.start.store(0, Ordering::Release);
        }
    }
}

fn guarded(address: usize) -> Option<&'static GuardedMapping> {
    GUARDED.iter().find(|place| {
        let start = place.start.load(Ordering::Acquire);
        start > FILLING && (start..place.end.load(Ordering::Relaxed)).contains(&address)
    })
}

extern "C" fn on_sigbus(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    /// An address beyond the end of the mapped file (`include/uapi/asm-generic/siginfo.h`).
    const BUS_ADRERR: c_int = 2;
    // SAFETY: with SA_SIGINFO the kernel hands over a valid structure.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    let place = if code == BUS_ADRERR { guarded(address.addr()) } else { None };
    let Some(place) = place else {
        return pass_on(signal, code, info, context);
    };
    let errno = sys::errno();
    let page = PAGE.load(Ordering::Relaxed);
    let at = address.map_addr(|at| at & !(page - 1));
    // SAFETY: the page lies in a mapping of this library, and accesses find zeros there, as in a
    // file that was just made; a restartable sequence starts over before it continues.
    if !unsafe { sys::replace_by_zeros(at.cast(), page) } {
        return pass_on(signal, code, info, context);
    }
    if let Some(ring) = RingOf::of_word(place.ring.load(Ordering::Relaxed)) {
        // SAFETY: stored before the handler was installed.
        let on_cut: fn(RingOf) = unsafe { std::mem::transmute(ON_CUT.load(Ordering::Relaxed)) };
        on_cut(ring);
    }
    sys::set_errno(errno);
}

/// Lets the action of before have it.
fn pass_on(signal: c_int, code: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: it points to the action that was read at installation, or is null.
    let Some(before) = (unsafe { before.as_ref() }) else { return };
    match before.sa_sigaction {
        // The kernel has not raised it because of an instruction.
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: zeros are the default action. The instruction runs again and meets it; a signal
            // that was sent is sent once more.
            unsafe {
                (*action.as_mut_ptr()).sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, action.as_ptr(), std::ptr::null_mut());
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: SA_SIGINFO says that this is the function's signature.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO this is the function's signature.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
