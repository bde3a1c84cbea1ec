//! This process in the shared folder: its control file, the table of its events, and
//! what happens to them at start, `dlopen`, `dlclose`, fork and exit.
//!
//! All of this runs in constructors and destructors, under one lock; nothing here is
//! reached by a site that is hit, but what [`control`] and [`place`] hand out.

use std::cell::UnsafeCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use kymo_ust::{
    CONTROL_HEADER, CONTROL_MAGIC, Control, EventFlags, EventRecord, MAX_EVENTS, MAX_ORDER,
    OrderView, SLOT_PATH, SLOTS, Slot, SlotState, slot_at,
};

use crate::channel;
use crate::site::{Registered, Site, SiteRef};
use crate::sys::{self, Fd, Path};

/// The mapped part of the control file: header, slots, enable words. Null: untraceable.
static CONTROL: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static LOCK: AtomicU32 = AtomicU32::new(0);
static STATE: Guarded = Guarded(UnsafeCell::new(State::new()));

struct Guarded(UnsafeCell<State>);

// SAFETY: touched under LOCK alone.
unsafe impl Sync for Guarded {}

/// What a site that is hit may ask for, without the lock.
static PLACE: AtomicPtr<Place> = AtomicPtr::new(std::ptr::null_mut());
/// The sites of the events, null where there is none any more; the first `EVENTS` are valid.
static SITES: [AtomicPtr<Site>; MAX_EVENTS as usize] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_EVENTS as usize];
static EVENTS: AtomicU32 = AtomicU32::new(0);

/// Where this program is in the shared folder. Never changes; a forked child has another.
pub(crate) struct Place {
    /// `kymo-UID`.
    pub(crate) user: Path,
    /// This program's folder in it.
    pub(crate) folder: Path,
    /// Of its traces.
    pub(crate) uuid: [u8; 16],
    /// Most events that a channel can meet.
    pub(crate) capacity: u32,
}

struct State {
    tried: bool,
    /// Keeps the lock that says that this program lives.
    control: Option<Fd>,
    /// Which file that is: a program that closes all files may have another one there.
    identity: Option<(u64, u64)>,
    table: u64,
    table_bytes: u64,
    refused: u32,
    known: [Known; MAX_EVENTS as usize],
}

/// An event of the table.
#[derive(Clone, Copy)]
struct Known {
    /// Of its record, but for number, address and flags.
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
        }
    }

    /// The control file. Opened again by its name if the program has closed it; what it has
    /// under that number now is its own, and not touched.
    fn file(&mut self) -> Option<&Fd> {
        if self.control.as_ref().and_then(Fd::identity) != self.identity {
            std::mem::forget(self.control.take());
        }
        if self.control.is_none() && self.identity.is_some() {
            let path = Path::new().add(place()?.folder.bytes()).add(b"/control");
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

/// Holds the lock for as long as it lives.
struct Locked;

impl Locked {
    fn new() -> Self {
        while LOCK.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            sys::wait_a_little();
        }
        Self
    }

    #[expect(clippy::mut_from_ref, reason = "the lock makes it the only one")]
    fn state(&self) -> &mut State {
        // SAFETY: the lock is held, and callers ask once.
        unsafe { &mut *STATE.0.get() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCK.store(0, Ordering::Release);
    }
}

/// The mapped control file, if there is one.
pub(crate) fn control() -> Option<&'static ControlPage> {
    let base = CONTROL.load(Ordering::Acquire);
    // SAFETY: the mapping stays for the life of the process.
    (!base.is_null()).then(|| unsafe { &*base.cast::<ControlPage>() })
}

/// The header and the slots, as they are mapped.
#[repr(C, align(8))]
pub(crate) struct ControlPage {
    bytes: [AtomicU8; CONTROL_HEADER],
}

impl ControlPage {
    pub(crate) fn slot(&self, slot: usize) -> SlotPage<'_> {
        SlotPage(&self.bytes[slot_at(slot)..slot_at(slot) + 256])
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (to, byte) in self.bytes[at..].iter().zip(bytes) {
            to.store(*byte, Ordering::Relaxed);
        }
    }
}

/// A slot, as it is mapped.
#[derive(Clone, Copy)]
pub(crate) struct SlotPage<'a>(&'a [AtomicU8]);

impl SlotPage<'_> {
    #[inline(always)]
    pub(crate) fn turn(self) -> u8 {
        self.0[0].load(Ordering::Relaxed)
    }

    fn is_active(self) -> bool {
        self.0[1].load(Ordering::Acquire) == SlotState::Active as u8
    }

    pub(crate) fn path(self) -> [u8; SLOT_PATH] {
        std::array::from_fn(|i| self.0[Slot::PATH_AT + i].load(Ordering::Relaxed))
    }

    /// Says that the ring is ready, or why it is not.
    pub(crate) fn answer(self, turn: u8, result: Result<(), i32>) {
        let errno = result.err().unwrap_or(0).to_le_bytes();
        for (i, byte) in errno.iter().enumerate() {
            self.0[4 + i].store(*byte, Ordering::Relaxed);
        }
        self.0[3].store(if result.is_ok() { 1 } else { 2 }, Ordering::Relaxed);
        self.0[2].store(turn, Ordering::Release);
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: eight of the slot's bytes, aligned to eight; atomics may be seen as wider ones where all
        // accesses to these bytes are.
        unsafe { &*self.0[at..at + 8].as_ptr().cast::<AtomicU64>() }
    }

    pub(crate) fn count_lost(self) {
        self.counter(8).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_rejected(self) {
        let counter = self.counter(16);
        // Roughly, as the specification says: a rejected event must cost little.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    pub(crate) fn count_unfit(self) {
        self.counter(24).fetch_add(1, Ordering::Relaxed);
    }
}

/// Where this program is, if it can be traced.
pub(crate) fn place() -> Option<&'static Place> {
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
pub(crate) fn register(sites: &[SiteRef]) {
    // SAFETY: sites of a library that is being loaded.
    let sites = || sites.iter().filter_map(|s| unsafe { s.0.as_ref() });
    let known = |site: &Site| site.id.load(Ordering::Relaxed) != crate::site::UNREGISTERED;
    if sites().all(known) {
        return;
    }
    let locked = Locked::new();
    let state = locked.state();
    let count = sites().count() as u32;
    if !state.tried {
        state.tried = true;
        if create(state, count).is_none() {
            return;
        }
        at_fork_and_exit();
    }
    if place().is_none() {
        return;
    }
    let fresh: Vec<&Site> = sites().filter(|site| !known(site)).collect();
    let first = CONTROL.load(Ordering::Relaxed).is_null();
    for site in &fresh {
        enter(state, site);
    }
    write_counts(state);
    if first {
        look_for_orders();
        publish();
    } else {
        apply_active_orders(&fresh);
    }
    for site in fresh {
        listen(site);
    }
}

/// The process ends: what its destructors say of its libraries does not matter any more.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Takes the sites of a library out that is being unloaded.
pub(crate) fn unregister(sites: &[SiteRef]) {
    if ENDING.load(Ordering::Relaxed) {
        return;
    }
    let locked = Locked::new();
    let state = locked.state();
    // SAFETY: sites of a library that is still there.
    for site in sites.iter().filter_map(|s| unsafe { s.0.as_ref() }) {
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

fn privileged() -> bool {
    // SAFETY: asks the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn environment(name: &std::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: the environment before main, or under the lock of a loading library; the value is copied
    // before anybody could change it.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| std::ffi::CStr::from_ptr(value).to_bytes())
    }
}

/// Makes folder and control file for `count` events and room for more.
fn create(state: &mut State, count: u32) -> Option<()> {
    if privileged() || environment(c"KYMO_UST") == Some(b"off") {
        return None;
    }
    let base = environment(c"KYMO_UST_DIR").unwrap_or(b"/dev/shm");
    let user = Path::new().add(base).add(b"/kymo-").number(sys::uid().into());
    // It may be there.
    let _ = sys::mkdir(user.c());
    if !sys::is_private_folder(user.c()) {
        return None;
    }
    remove_dead(&user);
    let capacity = (2 * count).clamp(256, MAX_EVENTS).next_multiple_of(8);
    create_control(state, user, capacity, std::ptr::null_mut()).ok()
}

/// Makes folder and control file and maps it, over `place` if that is not null; the magic
/// number is still missing.
fn create_control(state: &mut State, user: Path, capacity: u32, place: *mut u8) -> Result<(), i32> {
    let (pid, start_time) = (sys::pid(), start_time());
    let mut instance = 0;
    let folder = loop {
        let name = Path::new().add(user.bytes()).add(b"/").number(pid.into()).add(b"-");
        let name = name.number(start_time).add(b"-").number(instance);
        match sys::mkdir(name.c()) {
            Ok(()) => break name,
            Err(libc::EEXIST) if instance < 64 => instance += 1,
            Err(errno) => return Err(errno),
        }
    };
    let path = Path::new().add(folder.bytes()).add(b"/control");
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let file = Fd::open(path.c(), flags)?;
    file.lock();
    let enable = CONTROL_HEADER as u32;
    let table = enable + 8 * capacity;
    let made = file.set_size(table.into()).and_then(|()| file.allocate(0, table.into()));
    let mapped = (table as usize).next_multiple_of(4096);
    let base = match made.and_then(|()| file.map(mapped, place)) {
        Ok(base) => base,
        Err(errno) => {
            sys::unlink(path.c());
            sys::rmdir(folder.c());
            return Err(errno);
        }
    };
    let (mut uuid, mut comm, mut exe) = ([0; 16], [0; 16], [0; 256]);
    sys::random(&mut uuid);
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let comm = sys::read_file(c"/proc/self/comm", &mut comm).unwrap_or_default().trim_ascii();
    // SAFETY: a buffer of that length.
    let exe_len = unsafe {
        libc::readlink(c"/proc/self/exe".as_ptr(), exe.as_mut_ptr().cast(), exe.len() - 1)
    };
    let control = Control {
        pid,
        start_time,
        uid: sys::uid(),
        capacity,
        enable,
        table,
        table_bytes: 0,
        events: 0,
        refused: 0,
        uuid,
        page: 4096,
        clock: [0; 48],
        comm: comm.to_vec(),
        exe: exe[..usize::try_from(exe_len).unwrap_or(0)].to_vec(),
    };
    // SAFETY: just mapped, and longer than the header.
    let page = unsafe { &*base.cast::<ControlPage>() };
    page.write(0, &control.encode());
    state.table = table.into();
    let known = Box::new(Place { user, folder, uuid, capacity });
    PLACE.store(Box::into_raw(known), Ordering::Release);
    state.identity = file.identity();
    state.control = Some(file);
    state.table_bytes = 0;
    PENDING.store(base, Ordering::Relaxed);
    channel::remember_start();
    Ok(())
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

/// Field 22 of /proc/self/stat.
fn start_time() -> u64 {
    let mut buffer = [0; 1024];
    let stat = sys::read_file(c"/proc/self/stat", &mut buffer).unwrap_or_default();
    // The second field may hold spaces and parentheses; nothing behind it does.
    let behind = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
    let field = stat[behind..].split(|b| *b == b' ').nth(20).unwrap_or_default();
    std::str::from_utf8(field).ok().and_then(|f| f.parse().ok()).unwrap_or(0)
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

fn full_name(site: &Site) -> Path {
    let event = site.event();
    Path::new().add(event.provider.bytes()).add(b":").add(event.name.bytes())
}

/// Switches on what orders for programs that start later ask for.
fn look_for_orders() {
    let Some(Place { user, .. }) = place() else { return };
    let Ok(wanted) = std::str::from_utf8(user.bytes()) else { return };
    let Ok(entries) = std::fs::read_dir(format!("{wanted}/wanted")) else { return };
    // A name that begins with a dot is an order that is still being written.
    let whole = |name: &std::ffi::OsString| !name.as_encoded_bytes().starts_with(b".");
    let names = entries.flatten().map(|entry| entry.file_name()).filter(whole);
    let mut names: Vec<_> = names.take(64).collect();
    names.sort();
    let mut buffer = vec![0; MAX_ORDER];
    let mut slot = 0;
    for name in names {
        let path = Path::new().add(b"wanted/").add(name.as_encoded_bytes());
        let whole = Path::new().add(user.bytes()).add(b"/").add(path.bytes());
        let Ok(bytes) = sys::read_file(whole.c(), &mut buffer) else { continue };
        let Ok(order) = OrderView::parse(bytes) else { continue };
        if slot == SLOTS || path.bytes().len() >= SLOT_PATH || !is_for_us(order.pid) {
            continue;
        }
        let mut any = false;
        for (id, site) in sites() {
            if order.rule_for(full_name(site).bytes(), site.event().level as u8).is_some() {
                enable(id, slot);
                any = true;
            }
        }
        if any {
            page().write(slot_at(slot) + Slot::PATH_AT, path.bytes());
            page().write(slot_at(slot), &[1, SlotState::Active as u8]);
            slot += 1;
        }
    }
}

/// Whether an order is for all, or for this process or one it descends from.
fn is_for_us(wanted: u32) -> bool {
    let mut pid = sys::pid();
    let mut buffer = [0; 1024];
    for _ in 0..64 {
        if wanted == 0 || pid == wanted {
            return true;
        }
        let path = Path::new().add(b"/proc/").number(pid.into()).add(b"/stat");
        let stat = sys::read_file(path.c(), &mut buffer).unwrap_or_default();
        let behind = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
        let parent = stat[behind..].split(|b| *b == b' ').nth(2).unwrap_or_default();
        match std::str::from_utf8(parent).ok().and_then(|p| p.parse().ok()) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// Switches on what the orders of active slots ask for among the events of a library.
fn apply_active_orders(fresh: &[&Site]) {
    let Some(Place { user, .. }) = place() else { return };
    let mut buffer = vec![0; MAX_ORDER];
    for slot in (0..SLOTS).filter(|slot| page().slot(*slot).is_active()) {
        let path = page().slot(slot).path();
        let whole = Path::new().add(user.bytes()).add(b"/").add(channel::until_nul(&path));
        let Ok(bytes) = sys::read_file(whole.c(), &mut buffer) else { continue };
        let Ok(order) = OrderView::parse(bytes) else { continue };
        for site in fresh {
            let name = full_name(site);
            if let Some(rule) = order.rule_for(name.bytes(), site.event().level as u8) {
                let id = site.id.load(Ordering::Relaxed);
                if id < events() {
                    channel::link_late(slot, id, site, rule);
                    enable(id, slot);
                }
            }
        }
    }
}

/// Removes a few folders of dead programs that left no events behind.
fn remove_dead(user: &Path) {
    let Ok(text) = std::str::from_utf8(user.bytes()) else { return };
    let Ok(entries) = std::fs::read_dir(text) else { return };
    let is_program = |name: &[u8]| name.first().is_some_and(u8::is_ascii_digit);
    let names = entries.flatten().map(|entry| entry.file_name());
    for name in names.filter(|n| is_program(n.as_encoded_bytes())).take(8) {
        let folder = Path::new().add(user.bytes()).add(b"/").add(name.as_encoded_bytes());
        let path = Path::new().add(folder.bytes()).add(b"/control");
        let Ok(file) = Fd::open(path.c(), libc::O_RDWR | libc::O_NONBLOCK) else { continue };
        if file.lock() {
            remove(&folder);
        }
    }
}

/// Removes a folder if there is no ring in it.
fn remove(folder: &Path) {
    let Ok(text) = std::str::from_utf8(folder.bytes()) else { return };
    let Ok(entries) = std::fs::read_dir(text) else { return };
    if entries.flatten().any(|e| e.file_name().as_encoded_bytes().starts_with(b"ring-")) {
        return;
    }
    // Orders of a tool that is gone, if there are any.
    let _ = std::fs::remove_dir_all(format!("{text}/orders"));
    let control = Path::new().add(folder.bytes()).add(b"/control");
    sys::unlink(control.c());
    sys::rmdir(folder.c());
}

fn at_fork_and_exit() {
    // SAFETY: functions that live as long as the library.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child));
        libc::atexit(at_exit);
    }
}

extern "C" fn at_exit() {
    ENDING.store(true, Ordering::Relaxed);
    let _locked = Locked::new();
    // A forked child without handlers has copied the state of its parent.
    let ours = control().is_some_and(|page| {
        let pid: [u8; 4] = std::array::from_fn(|i| page.bytes[12 + i].load(Ordering::Relaxed));
        u32::from_le_bytes(pid) == sys::pid()
    });
    if let Some(place) = place().filter(|_| ours) {
        remove(&place.folder);
    }
}

extern "C" fn before_fork() {
    std::mem::forget(Locked::new());
}

extern "C" fn after_fork() {
    LOCK.store(0, Ordering::Release);
}

/// The child gets a folder of its own, with what its parent's sessions had switched on.
extern "C" fn in_child() {
    crate::record::forget_thread();
    let held = Locked;
    become_child(held.state());
}

fn become_child(state: &mut State) {
    let Some(old) = control() else { return };
    let base = CONTROL.load(Ordering::Relaxed);
    // Its events, those of libraries that were unloaded included, keep their numbers and places.
    let (mut table, at) = (vec![0; state.table_bytes as usize], state.table);
    if state.file().is_none_or(|file| file.read_at(&mut table, at).is_err()) {
        // Goes on with its parent's, whose rings processes can share.
        return;
    }
    // Shares an open file with the parent, whose lock must outlive this.
    drop(state.control.take());
    let Some(parent) = place() else { return };
    let words: Vec<u64> = (0..events()).map(|id| enable_word(id).load(Ordering::Relaxed)).collect();
    let mut slots = [[0; SLOT_PATH + 2]; SLOTS];
    for (i, copy) in slots.iter_mut().enumerate() {
        let slot = old.slot(i);
        copy[0] = slot.turn();
        copy[1] = slot.0[1].load(Ordering::Relaxed);
        copy[2..].copy_from_slice(&slot.path());
    }
    let user = Path::new().add(parent.user.bytes());
    if create_control(state, user, parent.capacity, base).is_err() {
        // Goes on with its parent's, whose rings processes can share.
        return;
    }
    let at = state.table;
    if state.file().is_none_or(|file| file.write_at(&table, at).is_err()) {
        return;
    }
    state.table_bytes = table.len() as u64;
    write_counts(state);
    for (i, copy) in slots.iter().enumerate() {
        page().write(slot_at(i) + Slot::PATH_AT, &copy[2..]);
        page().write(slot_at(i), &copy[..2]);
    }
    channel::forget_all();
    for (id, word) in words.into_iter().enumerate() {
        enable_word(id as u32).store(word, Ordering::Relaxed);
    }
    publish();
}
