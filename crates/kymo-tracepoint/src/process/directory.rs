//! This program's directory and control file: making them, and removing those of the dead.

use std::sync::atomic::Ordering;

use kymo_ust::{CONTROL_HEADER, Control, CountersHeader, MAX_EVENTS};

use super::page::ControlPage;
use super::{PENDING, PLACE, ProgramDirectory, State, counting};
use crate::channel;
use crate::guard;
use crate::sys::{self, Fd, Path};

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

/// Makes directory and control file for `count` events and room for more.
pub(super) fn create(state: &mut State, count: u32) -> Option<()> {
    if privileged() || environment(c"KYMO_UST") == Some(b"off") {
        return None;
    }
    let base = environment(c"KYMO_UST_DIR").unwrap_or(b"/dev/shm");
    let user = Path::new().add(base).add(b"/kymo-").number(sys::uid().into());
    // It may be there.
    let _ = sys::mkdir(user.c());
    if !sys::is_private_directory(user.c()) {
        return None;
    }
    remove_dead(&user);
    let capacity = (2 * count).clamp(256, MAX_EVENTS).next_multiple_of(8);
    create_control(state, user, capacity, std::ptr::null_mut()).ok()
}

/// Makes directory and control file and maps it, over `place` if that is not null; the magic
/// number is still missing.
pub(super) fn create_control(
    state: &mut State,
    user: Path,
    capacity: u32,
    place: *mut u8,
) -> Result<(), i32> {
    let (pid, start_time) = (sys::pid(), start_time());
    let mut instance = 0;
    let directory = loop {
        let name = Path::new().add(user.bytes()).add(b"/").number(pid.into()).add(b"-");
        let name = name.number(start_time).add(b"-").number(instance);
        match sys::mkdir(name.c()) {
            Ok(()) => break name,
            Err(libc::EEXIST) if instance < 64 => instance += 1,
            Err(errno) => return Err(errno),
        }
    };
    let path = Path::new().add(directory.bytes()).add(b"/control");
    // It has its name when it is locked: who is not locked is dead, and removed.
    let unlocked = Path::new().add(directory.bytes()).add(b"/.control");
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let file = Fd::open(unlocked.c(), flags)?;
    file.lock();
    if let Err(errno) = sys::rename(unlocked.c(), path.c()) {
        sys::unlink(unlocked.c());
        sys::rmdir(directory.c());
        return Err(errno);
    }
    let enable = CONTROL_HEADER as u32;
    let table = enable + 8 * capacity;
    let made = file.set_size(table.into()).and_then(|()| file.allocate(0, table.into()));
    let mapped = (table as usize).next_multiple_of(4096);
    let base = match made.and_then(|()| file.map(mapped, place)) {
        Ok(base) => base,
        Err(errno) => {
            sys::unlink(path.c());
            sys::rmdir(directory.c());
            return Err(errno);
        }
    };
    guard::install(super::tell_of_cut_ring);
    guard::watch(base, mapped, None);
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
    let known = Box::new(ProgramDirectory { user, directory, uuid, capacity });
    PLACE.store(Box::into_raw(known), Ordering::Release);
    state.identity = file.identity();
    state.control = Some(file);
    state.table_bytes = 0;
    PENDING.store(base, Ordering::Relaxed);
    channel::remember_start();
    Ok(())
}

/// Field 22 of /proc/self/stat.
pub(super) fn start_time() -> u64 {
    let mut buffer = [0; 1024];
    let stat = sys::read_file(c"/proc/self/stat", &mut buffer).unwrap_or_default();
    // The second field may hold spaces and parentheses; nothing behind it does.
    let behind = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
    let field = stat[behind..].split(|b| *b == b' ').nth(20).unwrap_or_default();
    std::str::from_utf8(field).ok().and_then(|f| f.parse().ok()).unwrap_or(0)
}

/// Whether a file of this name holds mappings.
fn is_code_maps(name: &[u8]) -> bool {
    name == b"maps" || name.starts_with(b".maps-")
}

/// Directories of one user beyond which counters of the dead are removed, the oldest first.
const CROWD: usize = 64;
/// [`CROWD`] while a tool reads counters.
const CROWD_COUNTED: usize = 2048;
/// Most directories of the dead that one program looks at.
const MOST_REMOVED: usize = 8;

/// Removes a few directories of dead programs that left no events and no counts behind.
fn remove_dead(user: &Path) {
    let Ok(text) = std::str::from_utf8(user.bytes()) else { return };
    let Ok(entries) = std::fs::read_dir(text) else { return };
    let is_program =
        |name: &std::ffi::OsString| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
    let mut names: Vec<_> = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(is_program)
        .take(MAX_EVENTS as usize)
        .collect();
    if names.is_empty() {
        return;
    }
    let is_counted = counting::is_counted_in(user);
    // What is left of programs that ended in order is for those who count.
    let kept = if is_counted { Counts::Kept } else { Counts::KeptOfKilled };
    for name in names.iter().take(MOST_REMOVED) {
        remove_if_dead(user, name, kept);
    }
    let crowd = if is_counted { CROWD_COUNTED } else { CROWD };
    if names.len() > crowd {
        // PID-START-INSTANCE.
        names.sort_by_key(|name| {
            let start = name.to_str().and_then(|name| name.split('-').nth(1)?.parse::<u64>().ok());
            start.unwrap_or(0)
        });
        let oldest = names.iter().take(names.len() - crowd);
        let removed = oldest.filter(|name| remove_if_dead(user, name, Counts::Removed));
        let _ = removed.take(MOST_REMOVED).count();
    }
}

fn remove_if_dead(user: &Path, name: &std::ffi::OsStr, counts: Counts) -> bool {
    let directory = Path::new().add(user.bytes()).add(b"/").add(name.as_encoded_bytes());
    let path = Path::new().add(directory.bytes()).add(b"/control");
    let Ok(file) = Fd::open(path.c(), libc::O_RDWR | libc::O_NONBLOCK) else { return false };
    file.lock() && remove(&directory, counts)
}

/// Whether a directory stays for the sake of its counters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// If anything was counted.
    Kept,
    /// If anything was counted and the program did not end in order.
    KeptOfKilled,
    Removed,
}

/// Whether a directory stays for the sake of its counters: they were hit.
fn is_kept(directory: &Path, counts: Counts) -> bool {
    let path = Path::new().add(directory.bytes()).add(b"/counters");
    let Ok(file) = Fd::open(path.c(), libc::O_RDONLY | libc::O_NONBLOCK) else { return false };
    let mut ended = [0];
    let is_left = file.read_at(&mut ended, CountersHeader::ENDED_AT).is_ok() && ended == [1];
    match counts {
        Counts::Removed => false,
        Counts::KeptOfKilled if is_left => false,
        // Untouched memory is a hole.
        Counts::Kept | Counts::KeptOfKilled => file.has_data(CountersHeader::AREAS),
    }
}

/// The names in a directory; none if it cannot be read.
fn names(directory: &Path) -> Option<impl Iterator<Item = std::ffi::OsString>> {
    let entries = std::fs::read_dir(std::str::from_utf8(directory.bytes()).ok()?).ok()?;
    Some(entries.flatten().map(|entry| entry.file_name()))
}

/// Whether there is a ring in a directory.
pub(super) fn has_rings(directory: &Path) -> bool {
    let mut names = names(directory).into_iter().flatten();
    names.any(|name| name.as_encoded_bytes().starts_with(b"ring-"))
}

/// Removes a directory if there is no ring in it, nor counts that are to be kept.
pub(super) fn remove(directory: &Path, counts: Counts) -> bool {
    let Ok(text) = std::str::from_utf8(directory.bytes()) else { return false };
    let Some(names) = names(directory) else { return false };
    if has_rings(directory) || is_kept(directory, counts) {
        return false;
    }
    // Channel configurations of a tool that is gone.
    let _ = std::fs::remove_dir_all(format!("{text}/pending"));
    // Also one left by a process that was killed while writing it.
    for name in names.filter(|name| is_code_maps(name.as_encoded_bytes())) {
        let path = Path::new().add(directory.bytes()).add(b"/").add(name.as_encoded_bytes());
        sys::unlink(path.c());
    }
    for file in [&b"/counters"[..], b"/control"] {
        sys::unlink(Path::new().add(directory.bytes()).add(file).c());
    }
    sys::rmdir(directory.c())
}
