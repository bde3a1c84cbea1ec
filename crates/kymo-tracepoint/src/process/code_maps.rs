//! Executable mappings of this program, saved in its directory for fields that hold addresses: a
//! tool that reads them after the program has ended still resolves their names. Written when a ring
//! is created, when a library is loaded while one is in use, and at the end; never by an event.
//!
//! May run in a signal handler: nothing here allocates except by new mappings.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{place, sites};
use crate::sys::{self, Fd, Path};

/// Bytes read from `/proc/self/maps` by one call.
const BLOCK: usize = 64 << 10;
/// The most that is left: mappings beyond that have no names.
const MOST: usize = 1 << 20;

/// So that two threads do not write one file.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Leaves the mappings in this program's directory if any event has a field that holds an address.
pub(crate) fn leave() {
    if sites().any(|(_, site)| site.event().has_addresses()) {
        // That it fails costs names.
        let _ = write();
    }
}

fn write() -> Result<(), i32> {
    let directory = place().ok_or(libc::ENOENT)?.directory.bytes();
    let maps = Fd::open(c"/proc/self/maps", libc::O_RDONLY)?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let new = Path::new().add(directory).add(b"/.maps-").number(number.into());
    let file = Fd::open(new.c(), libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY)?;
    let memory = sys::anonymous(BLOCK)?;
    // SAFETY: fresh memory of that length, used until it is unmapped below.
    let buffer = unsafe { std::slice::from_raw_parts_mut(memory, BLOCK) };
    let copied = copy(&maps, &file, buffer);
    // SAFETY: nothing points there any more.
    unsafe { sys::unmap(memory, BLOCK) };
    drop(file);
    match copied {
        Ok(()) => sys::rename(new.c(), Path::new().add(directory).add(b"/maps").c()),
        Err(errno) => {
            sys::unlink(new.c());
            Err(errno)
        }
    }
}

/// Copies the lines of mappings with code of a file.
fn copy(maps: &Fd, file: &Fd, buffer: &mut [u8]) -> Result<(), i32> {
    let (mut filled, mut written) = (0, 0);
    loop {
        // The kernel hands out whole lines, a page of them or so at a time.
        let got = maps.read_once(&mut buffer[filled..])?;
        filled += got;
        let mut end = 0;
        while let Some(len) = buffer[end..filled].iter().position(|b| *b == b'\n') {
            let line = &buffer[end..end + len + 1];
            end += line.len();
            if is_code(line) && written + line.len() <= MOST {
                file.write_at(line, written as u64)?;
                written += line.len();
            }
        }
        buffer.copy_within(end..filled, 0);
        filled -= end;
        if got == 0 || filled == buffer.len() {
            return Ok(());
        }
    }
}

/// `START-END r-xp OFFSET DEVICE INODE /PATH`.
fn is_code(line: &[u8]) -> bool {
    let mut words = line.split(|b| *b == b' ').skip(1);
    words.next().is_some_and(|permissions| permissions.get(2) == Some(&b'x'))
        && line.contains(&b'/')
}
