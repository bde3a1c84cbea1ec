//! `jit-PID.dump`: what a just-in-time compiler made, with its code and, if it
//! likes, call frame information. The layout is that of the kernel's
//! `tools/perf/Documentation/jitdump-specification.txt`.
//!
//! Where code was put over older code, the younger is taken for all of the
//! recording: times in the file need not be of the recording's clock.

use std::collections::BTreeMap;
use std::path::Path;

use kymo_debuginfo::{Binding, RawSymbol, SymbolTable, SymbolType};
use kymo_model::{Cursor, Endian, counted};
use kymo_unwind::{Arch, CfiSections, CfiTable, Section};

/// Larger files are not read.
const LIMIT: u64 = 1 << 30;
const MAGIC: u32 = 0x4a69_5444;
/// Kinds of records.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const DEBUG_INFO: u32 = 2;
const CODE_CLOSE: u32 = 3;
const UNWINDING_INFO: u32 = 4;

/// A function that was made.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) size: u64,
    pub(crate) name: &'a [u8],
    /// The code; empty where it was not written whole.
    pub(crate) code: &'a [u8],
    pub(crate) unwinding: Unwinding<'a>,
    /// Source lines, by address as the code was loaded.
    pub(crate) lines: Vec<Line<'a>>,
    /// Address at which it was loaded; it may have moved.
    pub(crate) loaded: u64,
    /// Its number in the file.
    pub(crate) index: u64,
}

/// Unwinding information of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unwinding<'a> {
    /// `.eh_frame`, to be taken as lying behind the code at the next multiple of 8, counted from
    /// the code's start: as perf's `inject -j` puts it, and compilers expect.
    pub(crate) eh_frame: &'a [u8],
    /// `.eh_frame_hdr`, which lies directly behind it.
    pub(crate) eh_frame_hdr: &'a [u8],
    /// Bytes behind the code where the process has it in memory, too; 0 where it has not.
    pub(crate) mapped: u64,
}

/// From an address on, a line of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) addr: u64,
    pub(crate) line: u32,
    pub(crate) file: &'a [u8],
}

/// The functions by their first address.
#[derive(Debug, Default)]
pub(crate) struct JitDump<'a> {
    pub(crate) arch: Option<Arch>,
    pub(crate) functions: BTreeMap<u64, Function<'a>>,
    /// Unreadable part of the file.
    pub(crate) damage: Option<String>,
    /// Places of functions: start, end and name.
    placed: Vec<(u64, u64, &'a [u8])>,
}

/// Code that was put somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement<'f, 'a> {
    /// When, by the clock of the compiler.
    pub(crate) time: u64,
    /// Start address.
    pub(crate) start: u64,
    /// It is there for the first time, and was not moved.
    pub(crate) is_new: bool,
    pub(crate) function: &'f Function<'a>,
}

/// Callback for each placement, in the order of the file.
pub(crate) type EachPlacement<'s, 'a> = dyn FnMut(Placement<'_, 'a>) + 's;

/// Bytes of a load record before the name.
const HEAD: usize = 40;

/// The process that a file of this name is of.
pub(crate) fn process_of(path: &str) -> Option<u32> {
    let name = Path::new(path).file_name()?.to_str()?;
    name.strip_prefix("jit-")?.strip_suffix(".dump")?.parse().ok()
}

/// The bytes of the file.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    kymo_kernel::regular_file::read(path, LIMIT).ok()
}

impl<'a> JitDump<'a> {
    /// Reads up to the end, or to the first record that is not whole: the
    /// compiler may still be writing. A record that is whole and makes no sense
    /// costs only itself.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<JitDump<'a>> {
        JitDump::parse_with(bytes, &mut |_| {})
    }

    /// Parses the file and reports each placement of code with its time.
    pub(crate) fn parse_with(
        bytes: &'a [u8],
        each: &mut EachPlacement<'_, 'a>,
    ) -> Option<JitDump<'a>> {
        let magic = *bytes.first_chunk()?;
        let endian = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (MAGIC, _) => Endian::Little,
            (_, MAGIC) => Endian::Big,
            _ => return None,
        };
        let mut c = Cursor::new(bytes, endian);
        c.skip(8).ok()?;
        let (size, machine) = (c.u32().ok()?, c.u32().ok()?);
        let arch = match machine {
            62 => Some(Arch::X86_64),
            183 => Some(Arch::Aarch64),
            _ => None,
        };
        let mut dump = JitDump { arch, ..JitDump::default() };
        let mut rest = bytes.get(usize::try_from(size).ok()?.max(16)..)?;
        // Of the function that comes next.
        let mut about_unwinding = Unwinding::default();
        let mut lines = Vec::new();
        let (mut malformed, mut is_closed) = (0u64, false);
        while let Some((kind, time, record, behind)) = split(rest, endian) {
            let known = match kind {
                CODE_LOAD => {
                    let about = (std::mem::take(&mut about_unwinding), std::mem::take(&mut lines));
                    dump.load((time, record), endian, about, each)
                }
                DEBUG_INFO => debug_info(record, endian).map(|found| lines = found),
                CODE_MOVE => dump.move_code((time, record), endian, each),
                UNWINDING_INFO => unwinding(record, endian).map(|found| {
                    // CPython 3.13 leaves the machine out of the header.
                    if machine == 0 && dump.arch.is_none() {
                        dump.arch = arch_of(found.eh_frame, endian);
                    }
                    about_unwinding = found;
                }),
                CODE_CLOSE => {
                    is_closed = true;
                    break;
                }
                _ => Some(()),
            };
            malformed += u64::from(known.is_none());
            rest = behind;
        }
        let mut damage = Vec::new();
        if malformed > 0 {
            let records = counted(malformed, "malformed record was", "malformed records were");
            damage.push(format!("{records} skipped"));
        }
        // Files are made larger beforehand: what is zero was not written yet.
        if !is_closed && rest.iter().any(|byte| *byte != 0) {
            damage.push(format!("its last {} bytes are not a whole record", rest.len()));
        }
        dump.damage = (!damage.is_empty()).then(|| damage.join("; "));
        Some(dump)
    }

    fn load(
        &mut self,
        (time, record): (u64, &'a [u8]),
        endian: Endian,
        (unwinding, lines): (Unwinding<'a>, Vec<Line<'a>>),
        each: &mut EachPlacement<'_, 'a>,
    ) -> Option<()> {
        let mut c = Cursor::new(record, endian);
        c.skip(16).ok()?;
        let (start, size) = (c.u64().ok()?, c.u64().ok()?);
        let index = c.u64().ok()?;
        let name = c.cstr();
        let behind = record.get(HEAD.checked_add(name.len())?.checked_add(1)?..);
        let code = behind.and_then(|b| b.get(..usize::try_from(size).ok()?)).unwrap_or_default();
        let function = Function { size, name, code, unwinding, lines, loaded: start, index };
        each(Placement { time, start, is_new: true, function: &function });
        self.put(start, function);
        Some(())
    }

    fn move_code(
        &mut self,
        (time, record): (u64, &[u8]),
        endian: Endian,
        each: &mut EachPlacement<'_, 'a>,
    ) -> Option<()> {
        let mut c = Cursor::new(record, endian);
        c.skip(16).ok()?;
        let (old, new) = (c.u64().ok()?, c.u64().ok()?);
        if let Some(function) = self.functions.remove(&old) {
            each(Placement { time, start: new, is_new: false, function: &function });
            self.put(new, function);
        }
        Some(())
    }

    /// Puts a function over whatever was there.
    fn put(&mut self, start: u64, function: Function<'a>) {
        let end = start.saturating_add(function.size);
        self.placed.push((start, end, function.name));
        let before = self.functions.range(..end).rev();
        let covered = before
            .take_while(|(at, f)| **at >= start || at.saturating_add(f.size) > start)
            .map(|(at, _)| *at);
        let covered: Vec<u64> = covered.collect();
        for at in covered {
            self.functions.remove(&at);
        }
        self.functions.insert(start, function);
    }

    /// Number of places of functions at which others were put later: samples in the earlier ones
    /// have the names of the later ones.
    pub(crate) fn reused(&self) -> u64 {
        let is_reused = |(start, end, name): &&(u64, u64, &[u8])| {
            let last = self.functions.range(..end).next_back();
            last.is_some_and(|(at, f)| at.saturating_add(f.size) > *start && f.name != *name)
        };
        self.placed.iter().filter(is_reused).count() as u64
    }

    /// The functions as symbols.
    pub(crate) fn symbols(&self) -> SymbolTable {
        let symbol = |(start, f): (&u64, &Function<'a>)| RawSymbol {
            start: *start,
            size: f.size,
            limit: u64::MAX,
            name: f.name,
            binding: Binding::Global,
            kind: SymbolType::Typed,
        };
        SymbolTable::build(self.functions.iter().map(symbol).collect())
    }

    /// Unwind tables: first address, first address after the function, table.
    pub(crate) fn tables(&self) -> Vec<(u64, u64, CfiTable)> {
        let Some(arch) = self.arch else { return Vec::new() };
        let table = |(start, f): (&u64, &Function<'a>)| {
            let end = start.checked_add(f.size)?;
            let address = start.checked_add(f.size.checked_next_multiple_of(8)?)?;
            let eh_frame = Section { address, bytes: f.unwinding.eh_frame.into() };
            let is_there = !f.unwinding.eh_frame.is_empty();
            let sections = CfiSections { eh_frame, text: *start, ..CfiSections::default() };
            is_there.then(|| (*start, end, CfiTable::new(arch, sections)))
        };
        self.functions.iter().filter_map(table).collect()
    }
}

/// Kind and time of the first record, the rest of it, and what follows.
fn split(bytes: &[u8], endian: Endian) -> Option<(u32, u64, &[u8], &[u8])> {
    let mut c = Cursor::new(bytes, endian);
    let (kind, size, time) = (c.u32().ok()?, c.u32().ok()?, c.u64().ok()?);
    let (record, behind) = bytes.split_at_checked(usize::try_from(size).ok()?)?;
    Some((kind, time, record.get(16..)?, behind))
}

/// The two sections of a record.
fn unwinding(record: &[u8], endian: Endian) -> Option<Unwinding<'_>> {
    let mut c = Cursor::new(record, endian);
    let (size, header, mapped) = (c.u64().ok()?, c.u64().ok()?, c.u64().ok()?);
    let eh_frame = usize::try_from(size.checked_sub(header)?).ok()?;
    let both = record.get(24..)?.get(..usize::try_from(size).ok()?)?;
    let (eh_frame, eh_frame_hdr) = both.split_at_checked(eh_frame)?;
    Some(Unwinding { eh_frame, eh_frame_hdr, mapped })
}

/// The machine that an `.eh_frame` is for, by the number of its return address.
fn arch_of(eh_frame: &[u8], endian: Endian) -> Option<Arch> {
    let mut c = Cursor::new(eh_frame, endian);
    // Length, that it is common to several functions, version, augmentation.
    c.skip(9).ok()?;
    let augmentation = c.cstr().len();
    // Both alignments, of a byte each, since they are small.
    match eh_frame.get(9 + augmentation + 1..)? {
        [0..0x80, 0..0x80, 16, ..] => Some(Arch::X86_64),
        [0..0x80, 0..0x80, 30, ..] => Some(Arch::Aarch64),
        _ => None,
    }
}

/// Lines of the function that comes next; up to the first that is not whole.
fn debug_info(record: &[u8], endian: Endian) -> Option<Vec<Line<'_>>> {
    let mut c = Cursor::new(record, endian);
    c.skip(8).ok()?;
    let count = c.u64().ok()?;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for _ in 0..count {
        let (Ok(addr), Ok(line), Ok(_discriminator)) = (c.u64(), c.u32(), c.u32()) else { break };
        let file = match c.cstr() {
            // The same as before.
            [0xff] => lines.last().map_or(&[][..], |l| l.file),
            name => name,
        };
        lines.push(Line { addr, line, file });
    }
    lines.sort_by_key(|l| l.addr);
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let mut out = [kind.to_le_bytes(), (16 + body.len() as u32).to_le_bytes()].concat();
        out.extend([0; 8]);
        out.extend(body);
        out
    }

    fn load(start: u64, size: u64, name: &[u8]) -> Vec<u8> {
        let words: Vec<u8> = [0, 0, start, size, 1].iter().flat_map(|w| w.to_le_bytes()).collect();
        record(CODE_LOAD, &[&words, name, b"\0", &vec![0x90; size as usize]])
    }

    fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let mut out: Vec<u8> =
            [MAGIC, 1, 40, 62, 0, 7].iter().flat_map(|w| w.to_le_bytes()).collect();
        out.extend([0; 16]);
        out.extend(records.concat());
        out
    }

    #[test]
    fn younger_code_covers_older_and_may_move() {
        let moved: Vec<u8> =
            [0, 0, 0x3000u64, 0x4000, 16, 1].iter().flat_map(|w| w.to_le_bytes()).collect();
        let info: Vec<u8> = [5u64, 2, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        let bytes = dump(&[
            load(0x1000, 16, b"old"),
            load(0x1010, 16, b"kept"),
            load(0x1008, 8, b"young"),
            record(UNWINDING_INFO, &[&info, b"abcxy"]),
            load(0x3000, 16, b"moved"),
            record(CODE_MOVE, &[&moved]),
            record(99, &[b"unknown"]),
        ]);
        let parsed = JitDump::parse(&bytes).unwrap();
        let names = |at| parsed.symbols().lookup(at).map(|(.., n)| n.to_vec());
        assert_eq!(names(0x1000), None);
        assert_eq!(names(0x100f).as_deref(), Some(&b"young"[..]));
        assert_eq!(names(0x1010).as_deref(), Some(&b"kept"[..]));
        assert_eq!((names(0x3000), names(0x4001).as_deref()), (None, Some(&b"moved"[..])));
        let unwinding = parsed.functions[&0x4000].unwinding;
        assert_eq!((unwinding.eh_frame, unwinding.eh_frame_hdr), (&b"abc"[..], &b"xy"[..]));
        assert_eq!(
            (parsed.functions[&0x4000].code, parsed.functions[&0x1008].code),
            (&[0x90; 16][..], &[0x90; 8][..])
        );
        assert_eq!(parsed.tables().len(), 1);
        assert_eq!((process_of("/a/jit-12.dump"), process_of("/a/jit-x.dump")), (Some(12), None));
    }

    /// As CPython 3.13 writes it.
    #[test]
    fn places_that_were_used_twice_are_counted() {
        let moved: Vec<u8> =
            [0, 0, 0x1000u64, 0x3000, 16, 1].iter().flat_map(|w| w.to_le_bytes()).collect();
        let count = |records: &[Vec<u8>]| {
            let bytes = dump(records);
            JitDump::parse(&bytes).unwrap().reused()
        };
        let first = load(0x1000, 16, b"first");
        // At other places, over itself (compiled again), and moved away.
        assert_eq!(count(&[first.clone(), load(0x2000, 16, b"second")]), 0);
        assert_eq!(count(&[first.clone(), load(0x1000, 16, b"first")]), 0);
        assert_eq!(count(&[first.clone(), record(CODE_MOVE, &[&moved])]), 0);
        // Over another, in part, and where another was before it moved.
        assert_eq!(count(&[first.clone(), load(0x1000, 16, b"second")]), 1);
        assert_eq!(count(&[first.clone(), load(0x100f, 16, b"second")]), 1);
        let second = load(0x1008, 4, b"second");
        assert_eq!(count(&[first, record(CODE_MOVE, &[&moved]), second]), 1);
    }

    #[test]
    fn a_header_without_a_machine_is_completed_by_the_unwinding_information() {
        let cie = [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b];
        let info: Vec<u8> = [17u64, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut bytes = dump(&[record(UNWINDING_INFO, &[&info, &cie]), load(0x1000, 16, b"f")]);
        bytes[12] = 0;
        let arch = |bytes: &[u8]| JitDump::parse(bytes).unwrap().arch;
        assert_eq!(arch(&bytes), Some(Arch::X86_64));
        assert_eq!(
            arch_of(&cie.map(|b| if b == 16 { 30 } else { b }), Endian::Little),
            Some(Arch::Aarch64)
        );
        bytes[12] = 99;
        assert_eq!(arch(&bytes), None);
    }

    #[test]
    fn lines_are_of_the_function_that_follows() {
        let entry = |addr: u64, line: u32, file: &[u8]| {
            [&addr.to_le_bytes()[..], &line.to_le_bytes(), &[0; 4], file, b"\0"].concat()
        };
        let head: Vec<u8> = [0x1000u64, 9].iter().flat_map(|w| w.to_le_bytes()).collect();
        let info =
            [entry(0x1004, 7, b"a.js"), entry(0x1000, 3, b"a.js"), entry(0x1008, 9, b"\xff")];
        let bytes = dump(&[
            record(DEBUG_INFO, &[&head, &info.concat()]),
            load(0x1000, 16, b"f"),
            load(0x2000, 16, b"g"),
        ]);
        let parsed = JitDump::parse(&bytes).unwrap();
        let line = |l: &Line<'_>| (l.addr, l.line, l.file.to_vec());
        let lines: Vec<_> = parsed.functions[&0x1000].lines.iter().map(line).collect();
        let of = |addr, line| (addr, line, b"a.js".to_vec());
        assert_eq!(lines, [of(0x1000, 3), of(0x1004, 7), of(0x1008, 9)]);
        assert!(parsed.functions[&0x2000].lines.is_empty());
    }

    /// Such a file once cost all functions behind the record, without a word.
    #[test]
    fn a_record_that_makes_no_sense_costs_only_itself() {
        let unwinding: Vec<u8> = [0u64, 16, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
        let bytes = dump(&[
            record(UNWINDING_INFO, &[&unwinding]),
            load(0x1000, 16, b"f"),
            record(CODE_MOVE, &[&[0; 4]]),
            load(0x2000, 16, b"g"),
        ]);
        let parsed = JitDump::parse(&bytes).unwrap();
        assert_eq!(parsed.functions.keys().copied().collect::<Vec<_>>(), [0x1000, 0x2000]);
        assert_eq!(parsed.damage.as_deref(), Some("2 malformed records were skipped"));
        let cut = JitDump::parse(&bytes[..bytes.len() - 1]).unwrap();
        assert!(cut.damage.is_some_and(|d| d.ends_with("are not a whole record")));
        let whole = dump(&[load(0x1000, 16, b"f")]);
        assert_eq!(JitDump::parse(&[&whole[..], &[0; 64]].concat()).unwrap().damage, None);
    }

    #[test]
    fn any_cut_and_any_size_is_read_as_far_as_it_goes() {
        let bytes = dump(&[load(0x1000, 16, b"f"), load(0x2000, 16, b"g")]);
        for cut in 0..bytes.len() {
            let read = JitDump::parse(&bytes[..cut]).map_or(0, |d| d.functions.len());
            assert!(read < 2);
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            for value in [0, 1, 0xff] {
                broken[at] = value;
                let parsed = JitDump::parse(&broken);
                assert!(parsed.is_none_or(|d| d.functions.len() <= 2 && d.tables().is_empty()));
            }
        }
    }
}
