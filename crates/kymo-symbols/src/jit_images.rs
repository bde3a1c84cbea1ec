//! Functions of a jitdump file as ELF files, one for each, and where and when they were mapped:
//! for programs that do not read such files.

use std::path::Path;

use kymo_unwind::Arch;

use crate::jitdump::{self, Function, JitDump, Unwinding};

/// A function that a just-in-time compiler put somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitImage {
    /// When, by the clock of the compiler.
    pub time: u64,
    /// Its first address.
    pub start: u64,
    /// Bytes of it and of unwinding information that are mapped.
    pub size: u64,
    /// Its number in the file, which it keeps where it is moved.
    pub index: u64,
    /// The ELF file; `None` where it was moved, and has one already.
    pub elf: Option<Vec<u8>>,
}

/// Place of the code in the ELF file, and its address there.
pub const TEXT_OFFSET: u64 = 0x80;
/// Bits of the file's flags: times are counts of the processor.
const PROCESSOR_TIMES: u8 = 1;
/// Place of the flags, of a file with the least significant byte first or last.
const FLAGS: [usize; 2] = [32, 39];

/// The process that a file is the jitdump file of, by its name.
pub fn process_of_jitdump(path: &str) -> Option<u32> {
    jitdump::process_of(path)
}

/// Gives each function of a file, in its order; those whose code was not written are left out.
/// Returns what could not be read of it, if anything. `None`: it cannot be read at all, or has
/// times of no clock.
pub fn for_each_jit_image(path: &Path, each: &mut dyn FnMut(JitImage)) -> Option<Option<String>> {
    images(&jitdump::read(path)?, each)
}

fn images(bytes: &[u8], each: &mut dyn FnMut(JitImage)) -> Option<Option<String>> {
    if FLAGS.iter().any(|at| bytes.get(*at).is_none_or(|flags| flags & PROCESSOR_TIMES != 0)) {
        return None;
    }
    let machine: [u8; 2] = match bytes.get(12..16)? {
        [low, high, 0, 0] | [0, 0, high, low] => [*low, *high],
        _ => return None,
    };
    let machine = match machine {
        [0, 0] => machine_of(JitDump::parse(bytes)?.arch),
        known => known,
    };
    let dump = JitDump::parse_with(bytes, &mut |placed| {
        let function = placed.function;
        if function.code.is_empty() {
            return;
        }
        each(JitImage {
            time: placed.time,
            start: placed.start,
            size: mapped_size(function),
            index: function.index,
            elf: placed.is_new.then(|| elf(machine, function)),
        });
    });
    dump.map(|dump| dump.damage)
}

/// Number of a machine in ELF files; this one's if it is not known.
fn machine_of(arch: Option<Arch>) -> [u8; 2] {
    match arch.or(Arch::of_machine(std::env::consts::ARCH)) {
        Some(Arch::X86_64) => [62, 0],
        Some(Arch::Aarch64) => [183, 0],
        None => [0, 0],
    }
}

/// Size of a function in memory, up to the end of its unwinding information if that is there, too.
fn mapped_size(function: &Function<'_>) -> u64 {
    let size = function.size;
    let unwinding = function.unwinding;
    if unwinding.mapped == 0 || unwinding.eh_frame_hdr.is_empty() {
        return size;
    }
    let behind = size.checked_next_multiple_of(8).and_then(|end| end.checked_add(unwinding.mapped));
    behind.unwrap_or(size)
}

/// A section of the file.
struct ElfSection<'a> {
    name: &'static str,
    kind: u32,
    flags: u64,
    /// Number of the section that this one belongs to, and what its kind says.
    link: (u32, u32),
    align: u64,
    entry_size: u64,
    bytes: &'a [u8],
}

/// An ELF file with the code of a function at [`TEXT_OFFSET`], its call frame information at the
/// next multiple of 8 with the sorted table behind it, and its name as the only symbol.
fn elf(machine: [u8; 2], function: &Function<'_>) -> Vec<u8> {
    let Function { name, code, unwinding, .. } = function;
    let Unwinding { eh_frame, eh_frame_hdr, .. } = unwinding;
    const PROGBITS: u32 = 1;
    const SYMTAB: u32 = 2;
    const STRTAB: u32 = 3;
    const ALLOCATED: u64 = 2;
    const EXECUTABLE: u64 = 4;
    const SECTION_NAMES: &[u8] =
        b"\0.text\0.eh_frame\0.eh_frame_hdr\0.symtab\0.strtab\0.shstrtab\0";
    let names = [b"\0", *name, b"\0"].concat();
    let mut symbols = vec![0; 24];
    symbols.extend(1u32.to_le_bytes());
    // A global function of the first section.
    symbols.extend([0x12, 0, 1, 0]);
    symbols.extend(TEXT_OFFSET.to_le_bytes());
    symbols.extend((code.len() as u64).to_le_bytes());
    let section = |name, kind, flags, bytes| ElfSection {
        name,
        kind,
        flags,
        link: (0, 0),
        align: 8,
        entry_size: 0,
        bytes,
    };
    let sections = [
        section(".text", PROGBITS, ALLOCATED | EXECUTABLE, code),
        section(".eh_frame", PROGBITS, ALLOCATED, eh_frame),
        // Directly behind it: it states distances.
        ElfSection { align: 1, ..section(".eh_frame_hdr", PROGBITS, ALLOCATED, eh_frame_hdr) },
        ElfSection { link: (5, 1), entry_size: 24, ..section(".symtab", SYMTAB, 0, &symbols) },
        section(".strtab", STRTAB, 0, &names),
        section(".shstrtab", STRTAB, 0, SECTION_NAMES),
    ];
    let mut out = vec![0; TEXT_OFFSET as usize];
    let mut headers = vec![0; 64];
    let mut name_at = 1u32;
    for s in &sections {
        out.resize(out.len().next_multiple_of(s.align as usize), 0);
        let at = out.len() as u64;
        out.extend_from_slice(s.bytes);
        // Readers find unwinding information by its name, and believe that it is there.
        let is_absent = s.bytes.is_empty() && s.kind == PROGBITS;
        headers.extend(if is_absent { 0 } else { name_at }.to_le_bytes());
        headers.extend(if is_absent { 0 } else { s.kind }.to_le_bytes());
        let address = if s.flags & ALLOCATED != 0 && !is_absent { at } else { 0 };
        let words = [if is_absent { 0 } else { s.flags }, address, at, s.bytes.len() as u64];
        headers.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        headers.extend(s.link.0.to_le_bytes());
        headers.extend(s.link.1.to_le_bytes());
        headers.extend(s.align.to_le_bytes());
        headers.extend(s.entry_size.to_le_bytes());
        name_at += s.name.len() as u32 + 1;
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let section_headers = out.len() as u64;
    out.extend(headers);
    let code_end = (TEXT_OFFSET + code.len() as u64).next_multiple_of(8);
    let loaded = code_end + (eh_frame.len() + eh_frame_hdr.len()) as u64 - TEXT_OFFSET;
    // A shared object of 64 bits, with one program header behind this one.
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(16, 0);
    head.extend([3, 0, machine[0], machine[1], 1, 0, 0, 0]);
    let words = [TEXT_OFFSET, 64, section_headers];
    head.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    head.extend([0; 4]);
    head.extend([64u16, 56, 1, 64, 7, 6].iter().flat_map(|half| half.to_le_bytes()));
    // Loaded to be read and executed.
    head.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let words = [TEXT_OFFSET, TEXT_OFFSET, TEXT_OFFSET, loaded, loaded, 8];
    head.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    if let Some(place) = out.get_mut(..head.len()) {
        place.copy_from_slice(&head);
    }
    out
}

#[cfg(test)]
mod tests {
    use kymo_debuginfo::Elf;

    use super::*;

    #[test]
    fn each_placement_has_an_elf_file_with_its_code() {
        let record = |kind: u32, time: u64, words: &[u64], rest: &[u8]| -> Vec<u8> {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let size = 16 + words.len() as u32 + rest.len() as u32;
            let head = [kind.to_le_bytes(), size.to_le_bytes()].concat();
            [&head[..], &time.to_le_bytes(), &words, rest].concat()
        };
        let head = [0x4a69_5444u32, 1, 40, 62, 0, 7, 0, 0, 0, 0];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(record(0, 100, &[7, 0x1000, 0x1000, 3, 4], b"made\0abc"));
        bytes.extend(record(1, 200, &[7, 0, 0x1000, 0x2000, 3, 4], b""));
        bytes.extend(record(0, 300, &[7, 0x3000, 0x3000, 3, 5], b"cut\0"));
        let mut found = Vec::new();
        images(&bytes, &mut |image| found.push(image)).unwrap();
        let told: Vec<_> = found.iter().map(|i| (i.time, i.start, i.size, i.index)).collect();
        assert_eq!(told, [(100, 0x1000, 3, 4), (200, 0x2000, 3, 4)]);
        assert!(found[1].elf.is_none(), "it has moved");
        let image = found[0].elf.as_ref().unwrap();
        assert_eq!(&image[0x80..0x83], b"abc");
        let file = Elf::parse(image).unwrap();
        let symbol = file.symbols.lookup(0x81).map(|(.., name)| name.to_vec());
        assert_eq!(symbol.as_deref(), Some(&b"made"[..]));
        assert_eq!(file.loads.len(), 1);
        assert!(!kymo_debuginfo::LazyElf::parse(image.as_slice()).unwrap().has(".eh_frame_hdr"));
        // Times of the processor are of no use.
        bytes[32] = 1;
        assert_eq!(images(&bytes, &mut |_| panic!("no times")), None);
        for cut in 0..bytes.len() {
            let _ = images(&bytes[..cut], &mut |_| {});
        }
    }
}
