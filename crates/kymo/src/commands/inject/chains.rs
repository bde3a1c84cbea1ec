//! Copies of stacks turned into call chains: each sample gets the chain that unwinding gives, and
//! loses the registers and the copy.

use std::ops::Range;
use std::path::Path;

use kymo_events::state::MachineState;
use kymo_events::unwind::Unwinder;
use kymo_files::perfdata::Entry;
use kymo_model::{
    Attr, AttrFlags, BranchType, ChainContext, Cursor, Endian, NoteKind, ReadValues, RecordHeader,
    RecordKind, Sample, SampleLayout, SampleType, Truncated,
};
use kymo_symbols::Resolver;
use kymo_view::Ledger;
use kymo_view::trust::note_unwinding;

use crate::args::symbols::SymbolArgs;

/// Contents that a sample must have to be unwound.
const COPIES: SampleType = SampleType::REGS_USER.union(SampleType::STACK_USER);

/// Turns copies of stacks into call chains.
pub(super) struct ChainConversion {
    machine: MachineState,
    unwinder: Unwinder,
    /// Samples that end before their last field.
    malformed: u64,
}

impl ChainConversion {
    pub(super) fn new(input: &Path) -> ChainConversion {
        let resolver = Resolver::new(SymbolArgs::default().options(input));
        let unwinder = Unwinder::new(resolver.binaries());
        ChainConversion { machine: MachineState::new(resolver), unwinder, malformed: 0 }
    }

    /// Samples of this event as they will be.
    pub(super) fn change_event(attr: &mut Attr) {
        if is_converted(attr) {
            attr.sample_type.remove(COPIES);
            attr.flags.remove(AttrFlags::EXCLUDE_CALLCHAIN_USER);
            (attr.sample_regs_user, attr.sample_stack_user) = (0, 0);
        }
    }

    /// Appends the sample with its call chain; says whether it did. Other records tell of tasks.
    pub(super) fn replace(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> bool {
        if entry.raw.kind != RecordKind::SAMPLE {
            self.machine.apply(&entry.raw);
            return false;
        }
        let Some(attr) = entry.desc().map(|event| &event.attr).filter(|a| is_converted(a)) else {
            return false;
        };
        if self.convert(entry, attr, out).is_err() {
            // Its fields are not those that the event promises any more.
            self.malformed += 1;
        }
        true
    }

    fn convert(
        &mut self,
        entry: &Entry<'_>,
        attr: &Attr,
        out: &mut Vec<u8>,
    ) -> Result<(), Truncated> {
        let body = entry.raw.body;
        let sample = Sample::parse(&entry.raw, attr)?;
        let places = SamplePlaces::find(body, attr)?;
        let (pid, _) = sample.tid.unwrap_or_default();
        let arch = entry.features.arch.as_deref();
        let space = self.machine.space(pid);
        let unwound = self.unwinder.chain(&sample, arch, entry.raw.endian, &space);
        let kernel = sample.callchain().take_while(|ip| *ip != ChainContext::USER.0);
        let mut chain: Vec<u64> = kernel.collect();
        // As perf does it: addresses of callers lie in the call.
        chain.extend_from_slice(unwound);
        let part = |range: Range<usize>| body.get(range).unwrap_or_default();
        let start = out.len();
        let header = RecordHeader { kind: entry.raw.kind, misc: entry.raw.misc, size: 0 };
        out.extend(header.to_bytes());
        out.extend_from_slice(part(0..places.chain.start));
        out.extend((chain.len() as u64).to_ne_bytes());
        chain.iter().for_each(|ip| out.extend(ip.to_ne_bytes()));
        out.extend_from_slice(part(places.chain.end..places.copies.start));
        out.extend_from_slice(part(places.copies.end..body.len()));
        let Ok(size) = u16::try_from(out.len() - start) else {
            // A chain that is longer than the copy of its stack cannot be.
            out.truncate(start);
            return Err(Truncated { needed: chain.len() * 8, offset: 0, left: body.len() });
        };
        out[start + 6..start + 8].copy_from_slice(&size.to_ne_bytes());
        Ok(())
    }

    /// Notes stacks that are not complete.
    pub(super) fn note(&self, ledger: &mut Ledger) {
        note_unwinding(self.unwinder.tally(), &self.machine.symbols, ledger);
        if self.malformed > 0 {
            let fact = format!("{} samples are shorter than their fields", self.malformed);
            ledger.note(NoteKind::Malformed, fact, None);
        }
    }
}

fn is_converted(attr: &Attr) -> bool {
    attr.sample_type.contains(COPIES | SampleType::CALLCHAIN)
}

/// Offsets of parts of a sample in its body.
struct SamplePlaces {
    /// The number of addresses and the addresses.
    chain: Range<usize>,
    /// Registers and the copy of the stack.
    copies: Range<usize>,
}

impl SamplePlaces {
    fn find(body: &[u8], attr: &Attr) -> Result<SamplePlaces, Truncated> {
        let mut c = Cursor::new(body, Endian::NATIVE);
        c.skip(SampleLayout::leading_size(attr.sample_type))?;
        if attr.sample_type.contains(SampleType::READ) {
            ReadValues::parse(&mut c, attr.read_format)?;
        }
        let begin = c.position();
        let n = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
        c.skip(n.saturating_mul(size_of::<u64>()))?;
        let chain = begin..c.position();
        if attr.sample_type.contains(SampleType::RAW) {
            let size = c.u32()? as usize;
            c.skip(size)?;
        }
        if attr.sample_type.contains(SampleType::BRANCH_STACK) {
            let n = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
            if attr.branch_sample_type.contains(BranchType::HW_INDEX) {
                c.u64()?;
            }
            let counters = attr.branch_sample_type.contains(BranchType::COUNTERS);
            c.skip(n.saturating_mul(if counters { 32 } else { 24 }))?;
        }
        let copies = c.position();
        if c.u64()? != 0 {
            c.skip(attr.sample_regs_user.count_ones() as usize * size_of::<u64>())?;
        }
        let size = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
        if size > 0 {
            c.skip(size)?;
            c.u64()?;
        }
        Ok(SamplePlaces { chain, copies: copies..c.position() })
    }
}
