//! The file of this program's counters: made when the first are entered, mapped for good. A
//! forked child maps one of its own over it, so that sites keep their places and its counts are
//! its own.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};

use kymo_ring::AREA_SHIFT;
use kymo_ust::{
    COUNTER_ANCESTORS, COUNTER_AREA, COUNTER_RECORD, COUNTERS_HEADER, COUNTERS_MAGIC, CounterKind,
    CounterRecord, CountersHeader, MAX_COUNTERS,
};

use super::{State, counting, place};
use crate::channel::cpu_count;
use crate::counter::{CounterInfo, CounterSite, WORDS};
use crate::guard;
use crate::site::REFUSED;
use crate::sys::{self, Fd, Path};

const _: () = assert!(COUNTER_AREA == 1 << AREA_SHIFT);

/// The mapped file. Null: there is none.
static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// CPUs that have areas.
static CPUS: AtomicU32 = AtomicU32::new(0);

/// State of the counter file, under the lock of the process.
pub(super) struct CounterFile {
    tried: bool,
    identity: Option<(u64, u64)>,
    counters: u32,
    refused: u32,
    low: u32,
    high: u32,
    tables: u32,
    records: Vec<CounterRecord>,
}

impl CounterFile {
    pub(super) const fn new() -> Self {
        Self {
            tried: false,
            identity: None,
            counters: 0,
            refused: 0,
            low: 0,
            high: COUNTER_AREA,
            tables: CountersHeader::TABLES,
            records: Vec::new(),
        }
    }

    fn header(&self, ancestors: [u32; COUNTER_ANCESTORS], start_time: u64) -> CountersHeader {
        CountersHeader {
            pid: sys::pid(),
            start_time,
            cpus: CPUS.load(Ordering::Relaxed),
            counters: self.counters,
            refused: self.refused,
            low: self.low,
            high: self.high,
            records: COUNTERS_HEADER as u32,
            areas: CountersHeader::AREAS,
            ancestors,
            ended: false,
        }
    }
}

fn path() -> Result<Path, i32> {
    let place = place().ok_or(libc::ENOENT)?;
    Ok(Path::new().add(place.directory.bytes()).add(b"/counters"))
}

/// Opens the file by its name, if it is still the one that is mapped.
fn open(identity: Option<(u64, u64)>) -> Result<Fd, i32> {
    let file = Fd::open(path()?.c(), libc::O_RDWR)?;
    if identity.is_none() || file.identity() != identity {
        return Err(libc::ESTALE);
    }
    Ok(file)
}

/// Enters the counters of a library. Those that find no place count nothing.
pub(super) fn enter(state: &mut State, sites: &[&CounterSite], refused: u32) {
    state.counters.refused += refused;
    if !state.counters.tried {
        state.counters.tried = true;
        CPUS.store(cpu_count(), Ordering::Relaxed);
        // Without, the sites stay without a place.
        if create(&mut state.counters).is_ok() {
            WORDS.set(CPUS.load(Ordering::Relaxed));
        }
    }
    let file = open(state.counters.identity);
    for site in sites {
        let of_site = file.as_ref().map_err(|e| *e);
        match of_site.and_then(|file| enter_one(&mut state.counters, file, site)) {
            Ok(()) => {}
            Err(_) => {
                state.counters.refused += 1;
                site.id.store(REFUSED, Ordering::Relaxed);
            }
        }
    }
    if let Ok(file) = file {
        write_counts(&state.counters, &file);
    }
}

/// Marks the counters of a library that is being unloaded.
pub(super) fn leave(state: &mut State, sites: &[&CounterSite]) {
    let file = open(state.counters.identity);
    for site in sites {
        let id = site.id.load(Ordering::Relaxed);
        site.forget();
        let Some(record) = state.counters.records.get_mut(id as usize) else { continue };
        record.gone = true;
        write_record(&file, record, id);
    }
}

/// That it fails costs a line in a listing.
fn write_record(file: &Result<Fd, i32>, record: &CounterRecord, id: u32) {
    if let Ok(file) = file {
        let _ = file.write_at(&record.encode(), record_at(id));
    }
}

fn record_at(id: u32) -> u64 {
    COUNTERS_HEADER as u64 + u64::from(id) * COUNTER_RECORD as u64
}

fn write_counts(counters: &CounterFile, file: &Fd) {
    let counts = counters.header([0; COUNTER_ANCESTORS], 0).encode_counts();
    let _ = file.write_at(&counts, CountersHeader::COUNTS_AT);
}

/// Makes the file and maps it, over the one before if there is one.
fn create(counters: &mut CounterFile) -> Result<(), i32> {
    let path = path()?;
    let file = Fd::open(path.c(), libc::O_CREAT | libc::O_EXCL | libc::O_RDWR)?;
    let made = fill(counters, &file);
    if made.is_err() {
        sys::unlink(path.c());
    }
    made
}

fn fill(counters: &mut CounterFile, file: &Fd) -> Result<(), i32> {
    let header = counters.header(counting::ancestors(), super::directory::start_time());
    let size = header.area_at(header.area_count());
    file.set_size(size)?;
    file.allocate(0, COUNTERS_HEADER as u64)?;
    for (id, record) in counters.records.iter().enumerate() {
        make_record(file, record, id as u32)?;
    }
    allocate_low(file, 0, counters.low)?;
    file.write_at(&header.encode(), 0)?;
    let base = file.map(size as usize, BASE.load(Ordering::Relaxed))?;
    guard::watch(base, size as usize, None);
    BASE.store(base, Ordering::Release);
    counters.identity = file.identity();
    file.write_at(&COUNTERS_MAGIC, 0)
}

/// Memory for values without keys in all areas.
fn allocate_low(file: &Fd, from: u32, to: u32) -> Result<(), i32> {
    const PAGE: u64 = 4096;
    let (from, to) = (u64::from(from).next_multiple_of(PAGE), u64::from(to).next_multiple_of(PAGE));
    if from >= to {
        return Ok(());
    }
    for area in 0..=u64::from(CPUS.load(Ordering::Relaxed)) {
        let at = CountersHeader::AREAS + area * u64::from(COUNTER_AREA);
        file.allocate(at + from, to - from)?;
    }
    Ok(())
}

/// Writes a record, and makes room for its table of keys.
fn make_record(file: &Fd, record: &CounterRecord, id: u32) -> Result<(), i32> {
    if record.keyed {
        file.allocate(record.table.into(), record.table_bytes() as u64)?;
    }
    file.write_at(&record.encode(), record_at(id))
}

/// Gives a site its places: those it had, or that the counter of this name has elsewhere.
fn enter_one(counters: &mut CounterFile, file: &Fd, site: &CounterSite) -> Result<(), i32> {
    let info = site.info();
    let (kind, keyed) = (info.kind().ok_or(libc::EINVAL)?, info.keyed != 0);
    let there = counters.records.iter().position(|record| {
        (record.kind, record.keyed) == (kind, keyed)
            && record.provider.as_bytes() == info.provider.bytes()
            && record.name.as_bytes() == info.name.bytes()
    });
    let id = match there {
        Some(id) => {
            let record = &mut counters.records[id];
            record.gone = false;
            file.write_at(&record.encode(), record_at(id as u32))?;
            id as u32
        }
        None => add(counters, file, info, kind, keyed)?,
    };
    let record = &counters.records[id as usize];
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: places in the mapped file, whose areas begin there.
    let (values, table) =
        unsafe { (base.add(CountersHeader::AREAS as usize), base.add(record.table as usize)) };
    if keyed {
        site.table.store(table, Ordering::Relaxed);
        // SAFETY: within the first area.
        let key_values = unsafe { values.add(record.key_values as usize) };
        site.key_values.store(key_values, Ordering::Relaxed);
    }
    site.id.store(id, Ordering::Relaxed);
    // SAFETY: within the first area.
    site.value.store(unsafe { values.add(record.value as usize) }, Ordering::Release);
    Ok(())
}

/// Finds a place for a counter.
fn add(
    counters: &mut CounterFile,
    file: &Fd,
    info: &CounterInfo,
    kind: CounterKind,
    keyed: bool,
) -> Result<u32, i32> {
    let names = [info.provider.bytes(), info.name.bytes()];
    if names.iter().any(|name| name.is_empty() || name.len() > CounterRecord::NAME) {
        return Err(libc::ENAMETOOLONG);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = counters.low.next_multiple_of(16.min(kind.value_bytes()));
    let low = value + kind.value_bytes();
    let key_bytes = if keyed { kind.keys() * kind.value_bytes() } else { 0 };
    let high = counters.high.checked_sub(key_bytes).ok_or(libc::ENOSPC)?;
    let record = CounterRecord {
        kind,
        keyed,
        gone: false,
        line: info.line,
        value,
        key_values: high,
        table: counters.tables,
        provider: text(names[0]),
        name: text(names[1]),
        doc: text(info.doc.bytes()),
        file: text(info.file.bytes()),
    };
    let table_bytes = if keyed { record.table_bytes() as u32 } else { 0 };
    let tables = counters.tables + table_bytes;
    if low > high || u64::from(tables) > CountersHeader::AREAS || counters.counters == MAX_COUNTERS
    {
        return Err(libc::ENOSPC);
    }
    allocate_low(file, counters.low, low)?;
    make_record(file, &record, counters.counters)?;
    let id = counters.counters;
    (counters.low, counters.high, counters.tables) = (low, high, tables);
    counters.records.push(record);
    counters.counters += 1;
    fence(Ordering::Release);
    write_counts(counters, file);
    Ok(id)
}

/// A forked child gets a file of its own; if that fails it continues with its parent's.
pub(super) fn become_child(state: &mut State) {
    if state.counters.identity.is_some() {
        let _ = create(&mut state.counters);
    }
}

/// Records that the program ended in order: the tool that counted may remove the file.
pub(super) fn mark_ended(state: &State) {
    if let Ok(file) = open(state.counters.identity) {
        let _ = file.write_at(&[1], CountersHeader::ENDED_AT);
    }
}

/// Makes sure that there is memory for the value of a key in all areas. May be called in a signal
/// handler.
pub(crate) fn make_room(value: *mut u8, bytes: usize) -> Result<(), i32> {
    let area = COUNTER_AREA as usize;
    for n in 0..=WORDS.cpus() as usize {
        // SAFETY: within the mapped areas.
        let at = unsafe { value.add(n * area) };
        match sys::populate_all(at, bytes) {
            Err(libc::EINVAL) => return allocate_by_name(value, bytes),
            result => result?,
        }
    }
    Ok(())
}

/// Populates the counters through the file, for kernels before 5.14.
fn allocate_by_name(value: *mut u8, bytes: usize) -> Result<(), i32> {
    let file = Fd::open(path()?.c(), libc::O_RDWR)?;
    // Without the lock: its header, which is mapped as well, shows that it is ours.
    let mut head = [0; 24];
    file.read_at(&mut head, 0)?;
    let base = BASE.load(Ordering::Acquire);
    // SAFETY: the first bytes of the mapped file.
    let ours = unsafe { std::slice::from_raw_parts(base, head.len()) };
    if head != *ours {
        return Err(libc::ESTALE);
    }
    let at = (value.addr() - base.addr()) as u64;
    for n in 0..=u64::from(WORDS.cpus()) {
        file.allocate(at + n * u64::from(COUNTER_AREA), bytes as u64)?;
    }
    Ok(())
}
