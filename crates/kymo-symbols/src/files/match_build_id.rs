//! Whether a file is the one that is looked for, and whether it holds what is
//! wanted of it. Only headers, notes and what a checksum needs are read.

use std::os::unix::fs::FileExt;
use std::path::Path;

use kymo_debuginfo::{DebugLink, LazyElf};
use kymo_model::BuildId;

use crate::compressed_modules;
use crate::pages::Pages;

/// Larger files are not read.
const LIMIT: u64 = 16 << 30;

/// Part of a file that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilePart {
    /// That it is the right one.
    Any,
    /// Code: debug files have none.
    Code,
    /// `.symtab`.
    Symbols,
    /// `.debug_info`.
    Dwarf,
}

/// Result of checking a file.
#[derive(Debug)]
pub(crate) enum Verdict {
    Fits,
    /// There is no such file.
    Absent,
    /// It is the right file, without the part that is wanted.
    Lacks,
    /// It has another build-id.
    Other {
        found: Option<BuildId>,
        wanted: BuildId,
    },
    /// It is not the one that the debug link means.
    Checksum {
        found: u32,
        wanted: u32,
    },
    /// It is no ELF file.
    Unusable {
        why: String,
    },
}

/// Opens a regular file; anything else (a device, a FIFO) is not touched.
pub(crate) fn open(path: &Path) -> Option<Pages> {
    pages(path).ok().flatten()
}

/// `None` of a file that is too large, or none that could be read.
fn pages(path: &Path) -> std::io::Result<Option<Pages>> {
    let file = compressed_modules::open(path)?;
    let len = file.metadata()?.len();
    Ok((len <= LIMIT).then(|| Pages::new(file, len)))
}

/// Facts about a binary and its debug file.
#[derive(Debug)]
pub(crate) struct BinaryFacts {
    pub(crate) build_id: Option<BuildId>,
    pub(crate) debuglink: Option<DebugLink>,
    code: bool,
    symbols: bool,
    dwarf: bool,
    /// Names of functions are packed inside.
    pub(crate) mini: bool,
}

impl BinaryFacts {
    pub(crate) fn of(path: &Path) -> Option<BinaryFacts> {
        let pages = open(path)?;
        let elf = LazyElf::parse(&pages).ok()?;
        Some(BinaryFacts {
            build_id: elf.build_id,
            debuglink: elf.debuglink.clone(),
            code: elf.has_code(),
            symbols: elf.has_symtab(),
            dwarf: elf.has_dwarf(),
            mini: elf.has_mini(),
        })
    }

    pub(crate) fn has(&self, part: FilePart) -> bool {
        match part {
            FilePart::Any => true,
            FilePart::Code => self.code,
            FilePart::Symbols => self.symbols,
            FilePart::Dwarf => self.dwarf,
        }
    }
}

/// The build-id of an ELF file.
pub(crate) fn build_id_of(path: &Path) -> Option<BuildId> {
    BinaryFacts::of(path)?.build_id
}

/// Looks at a file. Build-ids decide where both sides have one; the checksum of
/// a debug link decides otherwise, as it does for gdb.
pub(crate) fn judge(
    path: &Path,
    wanted: Option<BuildId>,
    link: Option<&DebugLink>,
    part: FilePart,
) -> Verdict {
    let pages = match pages(path) {
        Ok(Some(pages)) => pages,
        Err(e) if compressed_modules::is_damage(&e) => {
            return Verdict::Unusable { why: e.to_string() };
        }
        _ => return Verdict::Absent,
    };
    let elf = match LazyElf::parse(&pages) {
        Ok(elf) => elf,
        Err(e) => return Verdict::Unusable { why: e.to_string() },
    };
    let linked = link.filter(|l| path.file_name().is_some_and(|n| n.as_encoded_bytes() == l.name));
    match (wanted, elf.build_id, linked) {
        (Some(wanted), Some(found), _) if !same(Some(found), Some(wanted)) => {
            return Verdict::Other { found: Some(found), wanted };
        }
        (Some(_), Some(_), _) => {}
        (_, _, Some(link)) => match checksum(path) {
            Some(found) if found == link.crc => {}
            Some(found) => return Verdict::Checksum { found, wanted: link.crc },
            None => return Verdict::Absent,
        },
        (Some(wanted), None, None) if !same(None, Some(wanted)) => {
            return Verdict::Other { found: None, wanted };
        }
        _ => {}
    }
    let holds = match part {
        FilePart::Any => true,
        FilePart::Code => elf.has_code(),
        FilePart::Symbols => elf.has_symtab(),
        FilePart::Dwarf => elf.has_dwarf(),
    };
    if holds { Verdict::Fits } else { Verdict::Lacks }
}

/// Whether a stated build-id is the recorded one.
pub(crate) fn same(stated: Option<BuildId>, wanted: Option<BuildId>) -> bool {
    match (wanted, stated) {
        // The kernel records at most 20 bytes, zero-padded where shorter.
        (Some(w), Some(have)) => {
            let (w, have) = (w.as_bytes(), have.as_bytes());
            w == have || w.strip_prefix(have).is_some_and(|rest| rest.iter().all(|b| *b == 0))
        }
        (Some(w), None) => w.as_bytes().iter().all(|b| *b == 0),
        (None, _) => true,
    }
}

/// CRC-32 of a whole file.
fn checksum(path: &Path) -> Option<u32> {
    let file = compressed_modules::open(path).ok()?;
    let mut piece = vec![0; 256 << 10];
    let (mut sum, mut at) = (flate2::Crc::new(), 0);
    loop {
        match file.read_at(&mut piece, at).ok()? {
            0 => return Some(sum.sum()),
            n => {
                sum.update(piece.get(..n)?);
                at += n as u64;
            }
        }
    }
}
