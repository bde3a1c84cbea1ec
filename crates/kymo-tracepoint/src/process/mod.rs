//! This process in the shared directory: its control file, the table of its events, and
//! what happens to them at start, `dlopen`, `dlclose`, fork and exit.
//!
//! All of this runs in constructors and destructors, under one lock; nothing here is
//! reached by a site that is hit, but what [`control`] and [`place`] hand out.

pub(crate) mod code_maps;
pub(crate) mod counter_file;
mod counting;
mod directory;
mod life;
mod page;
mod pending_enables;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use kymo_ust::{CONTROL_HEADER, CONTROL_MAGIC, EventFlags, EventRecord, MAX_EVENTS};

use crate::counter::CounterSite;
use crate::guard::RingOf;
use crate::lock::Guarded;
use crate::site::{REFUSED, Registered, Site, SiteRef, UNREGISTERED};
use crate::sys::{Fd, Path};
pub(crate) use page::ControlPage;

/// The mapped part of the control file: header, slots, enable words. Null: untraceable.
static CONTROL: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static STATE: Guarded<State> = Guarded::new(State::new());

/// Directory for sites that are hit, readable without the lock.
static PLACE: AtomicPtr<ProgramDirectory> = AtomicPtr::new(std::ptr::null_mut());
/// The sites of the events, null where there is none any more; the first `EVENTS` are valid.
static SITES: [AtomicPtr<Site>; MAX_EVENTS as usize] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_EVENTS as usize];
static EVENTS: AtomicU32 = AtomicU32::new(0);

/// Location of this program in the shared directory. Never changes; a forked child has another.
pub(crate) struct ProgramDirectory {
    /// `kymo-UID`.
    pub(crate) user: Path,
    /// This program's directory in it.
    pub(crate) directory: Path,
    /// UUID of its traces.
    pub(crate) uuid: [u8; 16],
    /// Most events that a channel can meet.
    pub(crate) capacity: u32,
}

struct State {
    tried: bool,
    /// Keeps the lock that marks this program as alive.
    control: Option<Fd>,
    /// Which file that is: a program that closes all files may have another one there.
    identity: Option<(u64, u64)>,
    table: u64,
    table_bytes: u64,
    refused: u32,
    known: [Known; MAX_EVENTS as usize],
    counters: counter_file::CounterFile,
}

/// An event of the table.
#[derive(Clone, Copy)]
struct Known {
    /// Hash of its record, without number, address and flags.
    hash: u64,
    record_at: u64,
}

impl State {
    const fn new() -> Self {
        let nothing = Known { hash: 0, record_at: 0 };
        Self {
            tried: false,
            control: None,
            identity: None,
            table: 0,
            table_bytes: 0,
            refused: 0,
            known: [nothing; MAX_EVENTS as usize],
            counters: counter_file::CounterFile::new(),
        }
    }

    /// The control file. Opened again by its name if the program has closed it; what it has
    /// under that number now is its own, and not touched.
    fn file(&mut self) -> Option<&Fd> {
        if self.control.as_ref().and_then(Fd::identity) != self.identity {
            std::mem::forget(self.control.take());
        }
        if self.control.is_none() && self.identity.is_some() {
            let path = Path::new().add(place()?.directory.bytes()).add(b"/control");
            let file = Fd::open(path.c(), libc::O_RDWR).ok()?;
            if file.identity() != self.identity {
                return None;
            }
            file.lock();
            self.control = Some(file);
        }
        self.control.as_ref()
    }
}

/// The mapped control file, if there is one.
pub(crate) fn control() -> Option<&'static ControlPage> {
    let base = CONTROL.load(Ordering::Acquire);
    // SAFETY: the mapping stays for the life of the process.
    (!base.is_null()).then(|| unsafe { &*base.cast::<ControlPage>() })
}

/// Records that the file of a ring was truncated by another process. Runs in the handler of SIGBUS.
fn tell_of_cut_ring(ring: RingOf) {
    if let Some(control) = control() {
        control.slot(ring.slot).ring_is_cut(ring.generation);
    }
}

/// This program's directory, if it can be traced.
pub(crate) fn place() -> Option<&'static ProgramDirectory> {
    // SAFETY: null, or leaked by `create_control`.
    unsafe { PLACE.load(Ordering::Acquire).as_ref() }
}

fn events() -> u32 {
    EVENTS.load(Ordering::Acquire)
}

/// The events that there are, with their sites.
pub(crate) fn sites() -> impl Iterator<Item = (u32, &'static Site)> {
    (0..events()).filter_map(|id| {
        // SAFETY: registered sites live until their library is unloaded, which takes them out first.
        let site = unsafe { SITES[id as usize].load(Ordering::Acquire).as_ref()? };
        Some((id, site))
    })
}

/// Enters the sites of a library. Called again with the same it does nothing.
/// `refused` are those whose description cannot be believed.
pub(crate) fn register(entries: &[SiteRef], refused: u32) {
    let known = |site: &Site| site.id.load(Ordering::Relaxed) != UNREGISTERED;
    if entries.iter().filter_map(SiteRef::site).all(known) {
        return;
    }
    let mut state = STATE.lock();
    let state = &mut *state;
    let sites = Declared::of(entries);
    if !begin(state, sites.len() as u32) {
        return;
    }
    state.refused += refused;
    let mut fresh = Vec::new();
    for Declared { site, differs } in sites {
        if differs {
            state.refused += 1;
            site.id.store(REFUSED, Ordering::Relaxed);
        } else if !known(site) {
            enter(state, site);
            fresh.push(site);
        }
    }
    let first = CONTROL.load(Ordering::Relaxed).is_null();
    write_counts(state);
    if first {
        pending_enables::apply_pending();
        publish();
    } else {
        pending_enables::apply_active(&fresh);
        if page().any_active() {
            code_maps::leave();
        }
    }
    for site in fresh {
        listen(site);
    }
}

/// Makes the directory, the first time. Says whether there is one.
fn begin(state: &mut State, events: u32) -> bool {
    if !state.tried {
        state.tried = true;
        life::at_fork_and_exit();
        if directory::create(state, events).is_none() {
            return false;
        }
    }
    place().is_some()
}

/// Enters the counters of a library. Called again with the same it does nothing. `refused` are
/// those whose description cannot be believed.
pub(crate) fn register_counters(sites: &[&CounterSite], refused: u32) {
    let is_fresh = |site: &&CounterSite| site.id.load(Ordering::Relaxed) == UNREGISTERED;
    if !sites.iter().any(is_fresh) {
        return;
    }
    let mut state = STATE.lock();
    if !begin(&mut state, 0) {
        return;
    }
    let sites: Vec<&CounterSite> = sites.iter().copied().filter(is_fresh).collect();
    counter_file::enter(&mut state, &sites, refused);
    if CONTROL.load(Ordering::Relaxed).is_null() {
        // It has no events.
        write_counts(&state);
        publish();
    }
}

/// Takes the counters of a library out that is being unloaded.
pub(crate) fn unregister_counters(sites: &[&CounterSite]) {
    if is_ending() || sites.is_empty() {
        return;
    }
    counter_file::leave(&mut STATE.lock(), sites);
}

/// A site, which several source files of a library may have declared.
struct Declared<'a> {
    site: &'a Site,
    /// They say different things of its fields: it must stay off, for its description is that of
    /// one of them.
    differs: bool,
}

impl<'a> Declared<'a> {
    /// Each site once.
    fn of(entries: &'a [SiteRef]) -> Vec<Self> {
        let mut places = HashMap::new();
        let mut all: Vec<Self> = Vec::new();
        for entry in entries {
            let Some(site) = entry.site() else { continue };
            let at = *places.entry(std::ptr::from_ref(site)).or_insert(all.len());
            if at == all.len() {
                all.push(Self { site, differs: false });
            }
            all[at].differs |= entry.event().is_some_and(|event| !event.is_like(site.event()));
        }
        all
    }
}

/// The process ends: what its destructors say of its libraries does not matter any more.
static ENDING: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Takes the sites of a library out that is being unloaded.
pub(crate) fn unregister(entries: &[SiteRef]) {
    if is_ending() {
        return;
    }
    let mut state = STATE.lock();
    for site in entries.iter().filter_map(SiteRef::site) {
        let id = site.id.load(Ordering::Relaxed);
        let Some(known) = state.known.get(id as usize) else { continue };
        SITES[id as usize].store(std::ptr::null_mut(), Ordering::Release);
        let (flags, at) =
            (site.event().flags | EventFlags::GONE, state.table + known.record_at + 9);
        // That it fails costs a line in a listing.
        let _ = state.file().map(|file| file.write_at(&[flags], at));
        site.forget();
    }
}

/// Mapped and not yet published.
static PENDING: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

fn page() -> &'static ControlPage {
    // SAFETY: set by `create_control`, before anything else is called.
    unsafe { &*PENDING.load(Ordering::Relaxed).cast() }
}

/// From now on the tool sees this program.
fn publish() {
    let page = page();
    page.write(1, &CONTROL_MAGIC[1..]);
    page.bytes[0].store(CONTROL_MAGIC[0], Ordering::Release);
    CONTROL.store(PENDING.load(Ordering::Relaxed), Ordering::Release);
}

fn write_counts(state: &State) {
    let page = page();
    page.write(52, &state.refused.to_le_bytes());
    page.write(40, &state.table_bytes.to_le_bytes());
    std::sync::atomic::fence(Ordering::Release);
    page.write(48, &events().to_le_bytes());
}

/// Gives a site a number and a record: those it had, if its library was unloaded before.
fn enter(state: &mut State, site: &Site) {
    let mut record = Vec::new();
    let as_new = |id| Registered { site, id, gone: false };
    EventRecord::encode(&as_new(0), &mut |piece| record.extend_from_slice(piece));
    let mut hasher = DefaultHasher::new();
    (record[8], &record[10..16], &record[24..]).hash(&mut hasher);
    let hash = hasher.finish();
    let (events, capacity) = (events(), place().map_or(0, |place| place.capacity));
    let gone = |id: &u32| SITES[*id as usize].load(Ordering::Relaxed).is_null();
    let again = (0..events).find(|id| gone(id) && state.known[*id as usize].hash == hash);
    let (id, record_at) = match again {
        Some(id) => (id, state.known[id as usize].record_at),
        None if events < capacity => (events, state.table_bytes),
        None => {
            state.refused += 1;
            return;
        }
    };
    record.clear();
    EventRecord::encode(&as_new(id), &mut |piece| record.extend_from_slice(piece));
    let at = state.table + record_at;
    if state.file().is_none_or(|file| file.write_at(&record, at).is_err()) {
        state.refused += 1;
        return;
    }
    state.known[id as usize] = Known { hash, record_at };
    SITES[id as usize].store(std::ptr::from_ref(site).cast_mut(), Ordering::Release);
    if again.is_none() {
        EVENTS.store(events + 1, Ordering::Release);
        state.table_bytes += record.len() as u64;
    }
    site.id.store(id, Ordering::Relaxed);
}

/// The enable word of an event.
fn enable_word(id: u32) -> &'static AtomicU64 {
    let base = PENDING.load(Ordering::Relaxed);
    // SAFETY: within the mapped enable words, since `id` is less than the capacity; aligned to eight.
    unsafe { &*base.add(CONTROL_HEADER + 8 * id as usize).cast::<AtomicU64>() }
}

fn enable(id: u32, slot: usize) {
    enable_word(id).fetch_or(1 << (8 * slot), Ordering::Relaxed);
}

/// From now on the site looks at its enable word.
fn listen(site: &Site) {
    let id = site.id.load(Ordering::Relaxed);
    if id < events() {
        site.enabled.store(std::ptr::from_ref(enable_word(id)).cast_mut(), Ordering::Release);
    }
}
