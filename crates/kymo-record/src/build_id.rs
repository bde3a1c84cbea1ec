//! Build-ids: of a file from its ELF notes, of the kernel and its modules from
//! `/sys`. Everything read is untrusted and bounded.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use kymo_model::{BuildId, Cursor, Endian, Truncated};

const NT_GNU_BUILD_ID: u32 = 3;
const PT_NOTE: u32 = 4;
/// No sane note segment is larger.
const MOST_NOTES: u64 = 1 << 16;

/// The build-id of an ELF file, if it has one.
pub(crate) fn of_file(path: &Path) -> Option<BuildId> {
    // A device or pipe by that name must not make us wait.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    if head[..4] != *b"\x7fELF" {
        return None;
    }
    let endian = if head[5] == 2 { Endian::Big } else { Endian::Little };
    for (at, len) in note_segments(&file, &head, endian)? {
        let mut notes = vec![0; len.min(MOST_NOTES) as usize];
        if file.read_exact_at(&mut notes, at).is_ok()
            && let Some(id) = in_notes(&notes, endian)
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

/// The build-id among ELF notes.
fn in_notes(notes: &[u8], endian: Endian) -> Option<BuildId> {
    let mut c = Cursor::new(notes, endian);
    loop {
        let (name, desc, kind) = (c.u32().ok()?, c.u32().ok()?, c.u32().ok()?);
        let name = c.bytes((name as usize).checked_next_multiple_of(4)?).ok()?;
        let value = c.bytes(desc as usize).ok()?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !value.is_empty() {
            return Some(BuildId::new(value));
        }
        let padding = (desc as usize).next_multiple_of(4) - desc as usize;
        c.skip(padding.min(c.remaining())).ok()?;
    }
}

/// The running kernel's.
pub(crate) fn of_kernel() -> Option<BuildId> {
    in_notes(&std::fs::read("/sys/kernel/notes").ok()?, Endian::NATIVE)
}

/// A loaded module's.
pub(crate) fn of_module(name: &str) -> Option<BuildId> {
    let notes = std::fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id")).ok()?;
    in_notes(&notes, Endian::NATIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_walked_and_lies_end_the_walk() {
        let mut notes = Vec::new();
        for (kind, value) in [(1u32, &[1, 2, 3][..]), (NT_GNU_BUILD_ID, &[0xaa; 20])] {
            notes.extend(4u32.to_le_bytes());
            notes.extend((value.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(value);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(in_notes(&notes, Endian::Little), Some(BuildId::new(&[0xaa; 20])));
        for cut in 0..notes.len() - 1 {
            assert_eq!(in_notes(&notes[..cut], Endian::Little), None);
        }
        assert_eq!(in_notes(&[0xff; 64], Endian::Little), None);
    }

    #[test]
    fn a_device_is_not_read() {
        assert_eq!(of_file(Path::new("/dev/zero")), None);
    }
}
