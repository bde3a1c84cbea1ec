//! The build-id of a file, from its ELF notes. Everything read is untrusted and
//! bounded.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kymo_kernel::regular_file;
use kymo_model::{BuildId, Cursor, Endian, Truncated};

const PT_NOTE: u32 = 4;
/// No sane note segment is larger.
const MOST_NOTES: u64 = 1 << 16;

/// The build-id of an ELF file, if it has one.
pub(crate) fn of_file(path: &Path) -> Option<BuildId> {
    // A device or pipe by that name must not make us wait.
    of_open(&regular_file::open(path).ok()?)
}

/// Returns the build-id of an open file.
pub(crate) fn of_open(file: &File) -> Option<BuildId> {
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if head[..4] != *b"\x7fELF" {
        return None;
    }
    let endian = if head[5] == 2 { Endian::Big } else { Endian::Little };
    for (at, len) in note_segments(file, &head, endian)? {
        let mut notes = vec![0; len.min(MOST_NOTES) as usize];
        if file.read_exact_at(&mut notes, at).is_ok()
            && let Some(id) = BuildId::from_notes(&notes, endian)
        {
            return Some(id);
        }
    }
    None
}

/// Offsets and sizes of the `PT_NOTE` segments.
fn note_segments(file: &File, head: &[u8; 64], endian: Endian) -> Option<Vec<(u64, u64)>> {
    let wide = head[4] == 2;
    let mut c = Cursor::new(head, endian);
    c.skip(if wide { 32 } else { 28 }).ok()?;
    let phoff = if wide { c.u64().ok()? } else { u64::from(c.u32().ok()?) };
    let mut c = Cursor::new(head, endian);
    c.skip(if wide { 54 } else { 42 }).ok()?;
    let (entry, count) = (usize::from(c.u16().ok()?), usize::from(c.u16().ok()?));
    let mut table = vec![0; entry * count.min(256)];
    file.read_exact_at(&mut table, phoff).ok()?;
    let mut found = Vec::new();
    for one in table.chunks_exact(entry.max(1)) {
        if let Ok(Some(segment)) = note_segment(one, endian, wide) {
            found.push(segment);
        }
    }
    Some(found)
}

fn note_segment(e: &[u8], endian: Endian, wide: bool) -> Result<Option<(u64, u64)>, Truncated> {
    let mut c = Cursor::new(e, endian);
    if c.u32()? != PT_NOTE {
        return Ok(None);
    }
    Ok(Some(if wide {
        c.skip(4)?;
        let offset = c.u64()?;
        c.skip(16)?;
        (offset, c.u64()?)
    } else {
        let offset = u64::from(c.u32()?);
        c.skip(8)?;
        (offset, u64::from(c.u32()?))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_not_read() {
        assert_eq!(of_file(Path::new("/dev/zero")), None);
    }
}
