//! The call frame information of one binary: `.eh_frame` through its sorted
//! table or, without one or with a damaged one, through one made here; then
//! `.debug_frame`.

use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice,
    FrameDescriptionEntry, RunTimeEndian, UnwindContext, UnwindOffset, UnwindSection, Vendor,
};

use crate::Arch;
use crate::rule::{Cfa, Row, Rule, RuleError};

/// A section and where it is in the binary's own terms.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its stated address.
    pub address: u64,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// Sections of a binary; those that it does not have are empty.
#[derive(Clone, Debug, Default)]
pub struct CfiSections {
    /// `.eh_frame`.
    pub eh_frame: Section,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Section,
    /// `.debug_frame`, unpacked.
    pub debug_frame: Section,
    /// Start of `.text`.
    pub text: u64,
    /// Start of `.got`.
    pub got: u64,
    /// Byte order of the binary.
    pub big_endian: bool,
}

/// Functions of fewer bytes have no room for a frame worth keeping.
const SMALL_FUNCTION: u64 = 48;
/// About this many functions of a binary are looked at.
const MOST_FUNCTIONS: usize = 2000;

/// Memory that reading rules needs, one per thread.
#[derive(Debug, Default)]
pub struct CfiContext(Box<UnwindContext<usize>>);

/// The binary.
#[derive(Debug)]
pub struct CfiTable {
    arch: Arch,
    sections: CfiSections,
    /// Index of `.eh_frame`, where its own table does not serve.
    eh_index: OnceLock<Index>,
    debug_index: OnceLock<Index>,
}

/// Entries of a section: first address, first address behind, place.
#[derive(Debug, Default)]
struct Index {
    entries: Vec<(u64, u64, usize)>,
    damage: Option<gimli::Error>,
}

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;

impl CfiTable {
    /// Table of these sections.
    pub fn new(arch: Arch, sections: CfiSections) -> CfiTable {
        CfiTable { arch, sections, eh_index: OnceLock::new(), debug_index: OnceLock::new() }
    }

    /// The machine the binary is for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Damage of the sections, if it was met so far.
    pub fn damage(&self) -> Option<gimli::Error> {
        let of = |index: &OnceLock<Index>| index.get().and_then(|i| i.damage);
        of(&self.eh_index).or_else(|| of(&self.debug_index))
    }

    /// Rule to leave the function at an address of the binary.
    pub fn rule(&self, context: &mut CfiContext, address: u64) -> Result<Rule, RuleError> {
        let eh = if self.sections.eh_frame.bytes.is_empty() {
            Err(RuleError::None(address))
        } else {
            self.eh_rule(context, address)
        };
        match eh {
            Err(why) if !self.sections.debug_frame.bytes.is_empty() => {
                self.debug_rule(context, address).map_err(|other| match other {
                    RuleError::None(_) => why,
                    damaged => damaged,
                })
            }
            found => found,
        }
    }

    /// Counts the functions of `.eh_frame` that keep a frame pointer in their middle, and those
    /// that have a frame there; small ones are left out, and of large binaries only every n-th is
    /// inspected.
    pub fn frame_pointers(&self) -> (usize, usize) {
        let bases = self.bases();
        let section = self.eh_frame();
        let index = self.eh_index.get_or_init(|| Index::of(&section, &bases));
        let is_large = |e: &&(u64, u64, usize)| e.1 - e.0 >= SMALL_FUNCTION;
        let every = (index.entries.len() / MOST_FUNCTIONS).max(1);
        let mut context = CfiContext::default();
        let (mut with, mut all) = (0, 0);
        for (start, end, offset) in index.entries.iter().filter(is_large).step_by(every) {
            let fde = section.fde_from_offset(&bases, (*offset).into(), EhFrame::cie_from_offset);
            let middle = start + (end - start) / 2;
            let rule = fde.map_err(RuleError::from);
            let rule = rule.and_then(|f| self.row(&section, &bases, &f, &mut context, middle));
            let Ok(Rule::Row(row)) = rule else { continue };
            // One that calls nothing has no frame, and needs none.
            let has_none =
                |cfa: &Cfa| matches!(cfa, Cfa::Register(r, n) if *r == self.arch.sp() && *n <= 8);
            if has_none(&row.cfa) {
                continue;
            }
            all += 1;
            with += usize::from(matches!(row.cfa, Cfa::Register(r, _) if r == self.arch.fp()));
        }
        (with, all)
    }

    fn endian(&self) -> RunTimeEndian {
        if self.sections.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little }
    }

    /// Vendor whose call frame instructions extend DWARF's: on AArch64 one marks where the return
    /// address is signed.
    fn vendor(&self) -> Vendor {
        match self.arch {
            Arch::X86_64 => Vendor::Default,
            Arch::Aarch64 => Vendor::AArch64,
        }
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.sections.eh_frame.bytes, self.endian());
        section.set_address_size(8);
        section.set_vendor(self.vendor());
        section
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default()
            .set_eh_frame(self.sections.eh_frame.address)
            .set_eh_frame_hdr(self.sections.eh_frame_hdr.address)
            .set_text(self.sections.text)
            .set_got(self.sections.got)
    }

    fn eh_rule(&self, context: &mut CfiContext, address: u64) -> Result<Rule, RuleError> {
        let bases = self.bases();
        let section = self.eh_frame();
        match self.sorted(&section, &bases, address) {
            Some(Ok(fde)) => self.row(&section, &bases, &fde, context, address),
            // The sorted table covers all or nothing of the section.
            Some(Err(gimli::Error::NoUnwindInfoForAddress)) => Err(RuleError::None(address)),
            _ => self.searched(&self.eh_index, &section, &bases, context, address),
        }
    }

    /// By the binary's own sorted table; `None` without one.
    fn sorted<'a>(
        &'a self,
        section: &EhFrame<Slice<'a>>,
        bases: &BaseAddresses,
        address: u64,
    ) -> Option<gimli::Result<FrameDescriptionEntry<Slice<'a>>>> {
        let bytes = &self.sections.eh_frame_hdr.bytes;
        if !holds_its_table(bytes, self.sections.big_endian) {
            return None;
        }
        let header = EhFrameHdr::new(bytes, self.endian()).parse(bases, 8).ok()?;
        let entry = header.table()?.lookup(address, bases).ok()?;
        // A damaged table may point in front of the section.
        let offset = entry.pointer().checked_sub(self.sections.eh_frame.address)?;
        let offset = EhFrameOffset(usize::try_from(offset).ok()?);
        let fde = section.fde_from_offset(bases, offset, EhFrame::cie_from_offset);
        Some(fde.and_then(|fde| {
            if fde.contains(address) { Ok(fde) } else { Err(gimli::Error::NoUnwindInfoForAddress) }
        }))
    }

    fn debug_rule(&self, context: &mut CfiContext, address: u64) -> Result<Rule, RuleError> {
        let mut section = DebugFrame::new(&self.sections.debug_frame.bytes, self.endian());
        section.set_address_size(8);
        section.set_vendor(self.vendor());
        self.searched(&self.debug_index, &section, &BaseAddresses::default(), context, address)
    }

    /// By a table made of all entries of the section.
    fn searched<'a, S: UnwindSection<Slice<'a>>>(
        &self,
        index: &OnceLock<Index>,
        section: &S,
        bases: &BaseAddresses,
        context: &mut CfiContext,
        address: u64,
    ) -> Result<Rule, RuleError>
    where
        S::Offset: UnwindOffset<usize>,
    {
        let index = index.get_or_init(|| Index::of(section, bases));
        let after = index.entries.partition_point(|e| e.0 <= address);
        let entry = after.checked_sub(1).and_then(|at| index.entries.get(at));
        match entry.filter(|e| address < e.1) {
            Some((_, _, offset)) => {
                let offset = S::Offset::from(*offset);
                let fde = section.fde_from_offset(bases, offset, S::cie_from_offset)?;
                self.row(section, bases, &fde, context, address)
            }
            None => Err(index.damage.map_or(RuleError::None(address), RuleError::Damaged)),
        }
    }

    fn row<'a, S: UnwindSection<Slice<'a>>>(
        &self,
        section: &S,
        bases: &BaseAddresses,
        fde: &FrameDescriptionEntry<Slice<'a>>,
        context: &mut CfiContext,
        address: u64,
    ) -> Result<Rule, RuleError> {
        let row = fde.unwind_info_for_address(section, bases, &mut context.0, address)?;
        let column = fde.cie().return_address_register().0;
        let signal = fde.is_signal_trampoline();
        Row::of(row, section, self.arch.count(), column, signal).map(Rule::Row)
    }
}

/// Whether a sorted table has the number of entries in its header. Numbers that have no fixed size,
/// which no linker writes there, are not read.
fn holds_its_table(header: &[u8], big_endian: bool) -> bool {
    // Version, how the three that follow are written: place of the section, number of
    // entries, the entries' pairs.
    let Some((&[_, place, number, entry], rest)) = header.split_first_chunk() else { return false };
    let size = |encoding: u8| match encoding & 15 {
        0 | 4 | 12 => Some(8usize),
        2 | 10 => Some(2),
        3 | 11 => Some(4),
        _ => None,
    };
    let read = || -> Option<bool> {
        let (number_at, entry) = (size(place)?, size(entry)?);
        let table_at = number_at.checked_add(size(number)?)?;
        let mut entries = [0; 8];
        let stored = rest.get(number_at..table_at)?;
        let entries = if big_endian {
            entries.get_mut(8 - stored.len()..)?.copy_from_slice(stored);
            u64::from_be_bytes(entries)
        } else {
            entries.get_mut(..stored.len())?.copy_from_slice(stored);
            u64::from_le_bytes(entries)
        };
        let held = rest.get(table_at..)?.len() / (2 * entry);
        Some(entries <= held as u64)
    };
    read() == Some(true)
}

impl Index {
    /// Goes through a section up to its end or its first damage.
    fn of<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> Index {
        let mut index = Index::default();
        let mut entries = section.entries(bases);
        loop {
            match entries.next() {
                Ok(Some(CieOrFde::Fde(fde))) => {
                    let offset = fde.offset();
                    // One of an unknown kind does not spoil the others.
                    if let Ok(fde) = fde.parse(S::cie_from_offset) {
                        // Those of code that the linker dropped begin at 0.
                        if fde.len() > 0 && fde.initial_address() != 0 {
                            let (start, end) = (fde.initial_address(), fde.end_address());
                            index.entries.push((start, end, offset));
                        }
                    }
                }
                Ok(Some(CieOrFde::Cie(_))) => {}
                Ok(None) => break,
                Err(damage) => {
                    index.damage = Some(damage);
                    break;
                }
            }
        }
        index.entries.sort_unstable();
        index
    }
}
