//! A binary without its code: its segments, its build-id, the functions at the
//! addresses that are asked for, and what unwinding needs: the tables, and the few
//! instructions around each address that tell whether a function is about to return. It stands
//! for the binary wherever symbols are looked up or stacks unwound, also for perf.

use kymo_debuginfo::ReadRef;
use kymo_unwind::{BEFORE, BEHIND};
use object::read::{Object, ObjectSection, ObjectSegment};
use object::{Architecture, SegmentFlags};

/// A function of the original: first address, end, name.
pub(crate) type Function = (u64, u64, Vec<u8>);

/// The section with pieces of the code: for each place an offset in the original
/// file and the [`PIECE`] bytes around it, by offset.
pub(crate) const CODE: &str = ".kymo.code";
/// Bytes of such a piece, of which [`BEFORE`] lie before the place.
pub(crate) const PIECE: usize = BEFORE + BEHIND;

/// Sections kept whole; they are what unwinding reads.
const KEPT: [&str; 4] = [".note.gnu.build-id", ".eh_frame_hdr", ".eh_frame", ".debug_frame"];
/// Sections of which only the place is kept.
const PLACES: [&str; 5] = [".text", ".got", ".plt", ".plt.sec", ".init"];
/// Larger ones are left out.
const LARGEST: u64 = 1 << 30;

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOTE: u32 = 7;
const NOBITS: u32 = 8;

#[derive(Default)]
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    address: u64,
    bytes: Vec<u8>,
    /// Size of a section whose bytes are left out.
    size: u64,
    /// Offset of the bytes in the original.
    offset: u64,
    link: u32,
    info: u32,
    align: u64,
    each: u64,
}

fn machine(architecture: Architecture) -> Option<u16> {
    match architecture {
        Architecture::X86_64 => Some(62),
        Architecture::Aarch64 => Some(183),
        _ => None,
    }
}

/// Makes one. `None` if the original is none that can be made slim: 64-bit
/// little-endian x86-64 and AArch64 can.
pub(crate) fn slim<'d, R: ReadRef<'d>>(
    original: R,
    functions: &[Function],
    offsets: &[u64],
) -> Option<Vec<u8>> {
    let file = object::File::parse(original).ok()?;
    if !file.is_64() || !file.is_little_endian() {
        return None;
    }
    let machine = machine(file.architecture())?;
    let kind: u16 = if file.kind() == object::ObjectKind::Executable { 2 } else { 3 };
    let mut sections = vec![Section::default()];
    sections.extend(PLACES.iter().filter_map(|name| place(&file, name)));
    sections.extend(KEPT.iter().filter_map(|name| kept(&file, name)));
    sections.push(Section {
        name: CODE.into(),
        kind: PROGBITS,
        bytes: pieces(original, offsets),
        align: 8,
        ..Section::default()
    });
    let (symbols, names) = symbols(functions, &sections);
    let strings = sections.len() as u32 + 1;
    sections.push(Section {
        name: ".symtab".into(),
        kind: SYMTAB,
        bytes: symbols,
        link: strings,
        // All but the first are global.
        info: 1,
        align: 8,
        each: 24,
        ..Section::default()
    });
    let table = |name: &str, bytes| Section {
        name: name.into(),
        kind: STRTAB,
        bytes,
        align: 1,
        ..Section::default()
    };
    sections.push(table(".strtab", names));
    sections.push(table(".shstrtab", Vec::new()));
    let segments: Vec<[u64; 7]> = file.segments().map(|s| segment(&s)).collect();
    Some(write(kind, machine, file.entry(), &segments, sections))
}

fn flags_of<'d, S: ObjectSection<'d>>(section: &S) -> u64 {
    match section.flags() {
        object::SectionFlags::Elf { sh_flags, .. } => sh_flags.0,
        _ => 0,
    }
}

fn place<'d, R: ReadRef<'d>>(file: &object::File<'d, R>, name: &str) -> Option<Section> {
    let s = file.section_by_name(name)?;
    Some(Section {
        name: name.into(),
        kind: NOBITS,
        flags: flags_of(&s),
        address: s.address(),
        size: s.size(),
        offset: s.file_range().map_or(0, |r| r.0),
        align: s.align().max(1),
        ..Section::default()
    })
}

fn kept<'d, R: ReadRef<'d>>(file: &object::File<'d, R>, name: &str) -> Option<Section> {
    let s = file.section_by_name(name)?;
    if s.compressed_data().ok()?.uncompressed_size > LARGEST {
        return None;
    }
    /// Compressed: it is not any more.
    const COMPRESSED: u64 = 1 << 11;
    let bytes = s.uncompressed_data().ok()?.into_owned();
    Some(Section {
        name: name.into(),
        kind: if name.starts_with(".note") { NOTE } else { PROGBITS },
        flags: flags_of(&s) & !COMPRESSED,
        address: s.address(),
        bytes,
        align: s.align().max(1),
        ..Section::default()
    })
}

/// Type, flags, offset, address, sizes in the file and in memory, alignment.
fn segment<'d, S: ObjectSegment<'d>>(s: &S) -> [u64; 7] {
    const LOAD: u64 = 1;
    let (offset, size) = s.file_range();
    let flags = match s.flags() {
        SegmentFlags::Elf { p_flags, .. } => p_flags.0,
        _ => 4,
    };
    [LOAD, u64::from(flags), offset, s.address(), size, s.size(), s.align().max(1)]
}

/// The code around places.
fn pieces<'d, R: ReadRef<'d>>(original: R, offsets: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for offset in offsets {
        let start = offset.checked_sub(BEFORE as u64);
        let piece = start.and_then(|s| original.read_bytes_at(s, PIECE as u64).ok());
        if let Some(piece) = piece {
            out.extend(offset.to_le_bytes());
            out.extend(piece);
        }
    }
    out
}

/// The symbol table and its names.
fn symbols(functions: &[Function], sections: &[Section]) -> (Vec<u8>, Vec<u8>) {
    const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
    const ABSOLUTE: u16 = 0xfff1;
    let (mut table, mut names) = (vec![0; 24], vec![0]);
    for (start, end, name) in functions {
        let home = sections
            .iter()
            .position(|s| s.kind == NOBITS && start.wrapping_sub(s.address) < s.size)
            .and_then(|n| u16::try_from(n).ok());
        // Names beyond four gigabytes could not be stated; no recording has them.
        let Ok(at) = u32::try_from(names.len()) else { break };
        table.extend(at.to_le_bytes());
        table.extend([GLOBAL_FUNCTION, 0]);
        table.extend(home.unwrap_or(ABSOLUTE).to_le_bytes());
        table.extend(start.to_le_bytes());
        table.extend(end.saturating_sub(*start).to_le_bytes());
        names.extend(name);
        names.push(0);
    }
    (table, names)
}

fn write(
    kind: u16,
    machine: u16,
    entry: u64,
    segments: &[[u64; 7]],
    mut sections: Vec<Section>,
) -> Vec<u8> {
    const HEADER: usize = 64;
    const SEGMENT: usize = 56;
    let mut section_names = vec![0];
    let mut name_of = Vec::new();
    for s in &sections {
        name_of.push(if s.name.is_empty() { 0 } else { section_names.len() as u32 });
        if !s.name.is_empty() {
            section_names.extend(s.name.as_bytes());
            section_names.push(0);
        }
    }
    if let Some(last) = sections.last_mut() {
        last.bytes = section_names;
    }
    let mut out = vec![0; HEADER];
    for [kind, flags, offset, address, size, memory, align] in segments {
        out.extend((*kind as u32).to_le_bytes());
        out.extend((*flags as u32).to_le_bytes());
        for word in [offset, address, address, size, memory, align] {
            out.extend(word.to_le_bytes());
        }
    }
    debug_assert_eq!(out.len(), HEADER + SEGMENT * segments.len());
    let mut headers = Vec::new();
    for (s, name) in sections.iter().zip(&name_of) {
        let (offset, size) = match s.kind {
            NOBITS => (s.offset, s.size),
            _ => {
                out.resize(out.len().next_multiple_of(16), 0);
                let at = out.len() as u64;
                out.extend(&s.bytes);
                (at, s.bytes.len() as u64)
            }
        };
        let offset = if s.kind == 0 { 0 } else { offset };
        headers.extend(name.to_le_bytes());
        headers.extend(s.kind.to_le_bytes());
        for word in [s.flags, s.address, offset, size] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(s.link.to_le_bytes());
        headers.extend(s.info.to_le_bytes());
        headers.extend(s.align.to_le_bytes());
        headers.extend(s.each.to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(16), 0);
    let at = out.len() as u64;
    out.extend(headers);
    let mut header = Vec::with_capacity(HEADER);
    header.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    header.extend(kind.to_le_bytes());
    header.extend(machine.to_le_bytes());
    header.extend(1u32.to_le_bytes());
    header.extend(entry.to_le_bytes());
    header.extend((HEADER as u64).to_le_bytes());
    header.extend(at.to_le_bytes());
    header.extend(0u32.to_le_bytes());
    let (segments, sections) = (segments.len() as u16, sections.len() as u16);
    for half in [HEADER as u16, SEGMENT as u16, segments, 64, sections, sections - 1] {
        header.extend(half.to_le_bytes());
    }
    if let Some(place) = out.get_mut(..HEADER) {
        place.copy_from_slice(&header);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_debuginfo::Elf;

    #[test]
    fn a_slim_file_answers_as_the_whole_one() {
        let bytes = std::fs::read("/bin/bash").unwrap();
        let whole = Elf::parse(&bytes).unwrap();
        let mut table = whole.symbols.clone();
        table.merge(&whole.plt);
        let asked: Vec<Function> =
            table.iter().step_by(7).map(|(s, e, n)| (s, e, n.to_vec())).collect();
        assert!(asked.len() > 50);
        let made = slim(bytes.as_slice(), &asked, &[0x1000]).unwrap();
        let slim = Elf::parse(&made).unwrap();
        assert!(made.len() < bytes.len() / 4, "{}", made.len());
        assert_eq!((slim.build_id, &slim.loads), (whole.build_id, &whole.loads));
        assert!(slim.has_symtab);
        for (start, end, name) in &asked {
            for at in [*start, end - 1] {
                // Another symbol may begin inside of this one.
                let Some(expected) = table.lookup(at).filter(|e| e.0 == *start) else { continue };
                assert_eq!(slim.symbols.lookup(at), Some(expected), "{name:?}");
            }
        }
        let other = object::File::parse(made.as_slice()).unwrap();
        let original = object::File::parse(bytes.as_slice()).unwrap();
        for name in [".eh_frame", ".eh_frame_hdr"] {
            let (a, b) =
                (other.section_by_name(name).unwrap(), original.section_by_name(name).unwrap());
            assert_eq!(
                (a.address(), a.data().unwrap()),
                (b.address(), b.data().unwrap()),
                "{name}"
            );
        }
    }
}
