//! Whether a tool counts at the moment: then this program records its ancestors, and leaves its
//! counters behind when it ends. A tool that counts holds a file in `counting/` locked.

use kymo_ust::COUNTER_ANCESTORS;

use super::place;
use crate::sys::{self, Fd, Path};

/// Most files of tools that are checked.
const MOST: usize = 16;

/// Processes that this one descends from, the nearest first, if anybody counts; else none.
pub(super) fn ancestors() -> [u32; COUNTER_ANCESTORS] {
    let mut ancestors = [0; COUNTER_ANCESTORS];
    if !is_counted() {
        return ancestors;
    }
    let mut pid = sys::pid();
    for ancestor in &mut ancestors {
        match parent(pid) {
            Some(parent) if parent > 1 => {
                *ancestor = parent;
                pid = parent;
            }
            _ => break,
        }
    }
    ancestors
}

/// Whether a tool counts.
pub(super) fn is_counted() -> bool {
    place().is_some_and(|place| is_counted_in(&place.user))
}

/// Whether a tool counts the programs of a user. Removes what tools that are dead have left.
pub(super) fn is_counted_in(user: &Path) -> bool {
    let directory = Path::new().add(user.bytes()).add(b"/counting");
    let Ok(text) = std::str::from_utf8(directory.bytes()) else { return false };
    let Ok(entries) = std::fs::read_dir(text) else { return false };
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut is_counted = false;
    // A name that begins with a dot is a file that is not locked yet.
    for name in names.filter(|n| !n.as_encoded_bytes().starts_with(b".")).take(MOST) {
        let path = Path::new().add(directory.bytes()).add(b"/").add(name.as_encoded_bytes());
        let Ok(file) = Fd::open(path.c(), libc::O_RDONLY | libc::O_NONBLOCK) else { continue };
        if file.lock() { sys::unlink(path.c()) } else { is_counted = true }
    }
    is_counted
}

/// Parent of a process.
pub(super) fn parent(pid: u32) -> Option<u32> {
    let mut buffer = [0; 1024];
    let path = Path::new().add(b"/proc/").number(pid.into()).add(b"/stat");
    let stat = sys::read_file(path.c(), &mut buffer).ok()?;
    let behind = stat.iter().rposition(|b| *b == b')').map_or(0, |at| at + 1);
    let parent = stat[behind..].split(|b| *b == b' ').nth(2)?;
    std::str::from_utf8(parent).ok()?.parse().ok()
}
