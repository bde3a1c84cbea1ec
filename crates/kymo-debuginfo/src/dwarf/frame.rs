//! The canonical frame address at a place: a register plus an offset, from
//! `.debug_frame` or `.eh_frame`.

use gimli::{BaseAddresses, CfaRule, DebugFrame, EhFrame, UnwindContext, UnwindSection, Vendor};
use object::Architecture;

use super::location::{LocationBase, LocationExpr};
use super::unit::Dwarf;
use super::{DwarfError, Result};

impl<'s> Dwarf<'s> {
    /// The frame address at `pc`; `None` where nothing says it, or where it is
    /// not simply a register plus an offset.
    pub(super) fn frame_address(&self, pc: u64) -> Result<Option<LocationExpr>> {
        let sections = self.sections;
        let size = sections.address_size;
        // On AArch64 one more instruction says where the return address is signed.
        let vendor = match sections.architecture {
            Architecture::Aarch64 => Vendor::AArch64,
            _ => Vendor::Default,
        };
        let frames = sections.frames.as_ref().map_err(|e| DwarfError::Frames(e.to_string()))?;
        let mut debug_frame = DebugFrame::new(&frames.debug_frame, sections.endian);
        debug_frame.set_address_size(size);
        debug_frame.set_vendor(vendor);
        if !frames.debug_frame.is_empty()
            && let Some(found) = lookup(&debug_frame, &BaseAddresses::default(), pc)?
        {
            return Ok(Some(found));
        }
        let (addr, bytes) = &frames.eh_frame;
        let mut eh_frame = EhFrame::new(bytes, sections.endian);
        eh_frame.set_address_size(size);
        eh_frame.set_vendor(vendor);
        lookup(&eh_frame, &BaseAddresses::default().set_eh_frame(*addr), pc)
    }
}

fn lookup<R: gimli::Reader, S: UnwindSection<R>>(
    section: &S,
    bases: &BaseAddresses,
    pc: u64,
) -> Result<Option<LocationExpr>> {
    let mut context: UnwindContext<R::Offset> = UnwindContext::new();
    let row = match section.unwind_info_for_address(bases, &mut context, pc, S::cie_from_offset) {
        Ok(row) => row,
        Err(gimli::Error::NoUnwindInfoForAddress) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    Ok(match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Some(LocationExpr {
            base: LocationBase::Register(register.0),
            derefs: Vec::new(),
            add: *offset,
        }),
        CfaRule::Expression(_) => None,
    })
}
