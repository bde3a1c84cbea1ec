//! Mapped files may be cut short by others while they are read. Touching what is
//! gone raises SIGBUS; for registered mappings the page is replaced by zeros and
//! the mapping is marked, so that the reader sees damage instead of dying.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Mappings that can be guarded at a time; more are mapped without a guard.
const SLOTS: usize = 512;

struct Slot {
    /// First address; 0 is an empty slot, 1 one that is being filled.
    start: AtomicUsize,
    end: AtomicUsize,
    cut: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), cut: AtomicBool::new(false) }
}; SLOTS];

const FILLING: usize = 1;

/// Previous handler of SIGBUS.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// A guarded mapping.
#[derive(Debug)]
pub(crate) struct Guard(Option<usize>);

impl Guard {
    /// Guards the memory of a mapping.
    pub(crate) fn new(start: usize, len: usize) -> Guard {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let free = |slot: &Slot| {
            let (from, to) = (0, FILLING);
            slot.start.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let number = TABLE.iter().position(free);
        if let Some(slot) = number.and_then(|n| TABLE.get(n)) {
            slot.cut.store(false, Ordering::Relaxed);
            slot.end.store(start.saturating_add(len), Ordering::Relaxed);
            slot.start.store(start, Ordering::Release);
        }
        Guard(number)
    }

    /// Whether something of it was gone when it was touched.
    pub(crate) fn was_cut(&self) -> bool {
        let slot = self.0.and_then(|n| TABLE.get(n));
        slot.is_some_and(|slot| slot.cut.load(Ordering::Relaxed))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(slot) = self.0.and_then(|n| TABLE.get(n)) {
            slot.start.store(0, Ordering::Release);
        }
    }
}

fn install() {
    // SAFETY: both structures are plain data for which zeros are a valid value;
    // the handler has the signature that SA_SIGINFO asks for, and calls nothing
    // but system calls and atomic operations. The old action is kept forever.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
            return;
        }
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
        // If that fails all is as it was before.
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn handler(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands over a valid structure.
    let address = unsafe { (*info).si_addr() } as usize;
    let holds = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        start > FILLING && (start..slot.end.load(Ordering::Relaxed)).contains(&address)
    };
    if let Some(slot) = TABLE.iter().find(holds) {
        const PAGE: usize = 4096;
        let page = (address / PAGE * PAGE) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in a read-only mapping that a `Guard` stands for, which is not
        // unmapped while a thread reads from it, as the one that faulted does. Nothing but this
        // page is replaced.
        let mapped = unsafe { libc::mmap(page, PAGE, libc::PROT_READ, flags, -1, 0) };
        if mapped == page {
            slot.cut.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: the instruction runs again and meets the action of before.
    let before = BEFORE.load(Ordering::Acquire);
    if !before.is_null() {
        // SAFETY: it points to the action that was read at installation.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}
