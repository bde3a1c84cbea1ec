//! Addresses of a recording replaced by made-up ones, so that it can be passed on without telling
//! where the kernel and programs were in memory. Mappings and samples are moved alike: readers find
//! the same functions.
//!
//! Contents that may hold addresses in places that nothing describes are left out: registers and
//! copies of stacks of a sample, samples of tracepoints, with physical addresses or parts of
//! hardware traces as a whole, as perf does it; changes of the kernel's code; what is known of BPF
//! programs; and tables of the kernel's symbols.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use kymo_files::perfdata::rewrite::append;
use kymo_files::perfdata::write::features::event_desc;
use kymo_files::perfdata::write::{EventMeta, FeatureSections};
use kymo_files::perfdata::{Entry, Feature, Features, TracingData};
use kymo_model::{
    Attr, BranchType, CALLCHAIN_CONTEXT_MIN, ChainContext, Cursor, Endian, EventType, Misc, Mmap,
    NoteKind, ReadValues, RecordHeader, RecordKind, SampleLayout, SampleType, Sideband, Truncated,
    counted,
};
use kymo_view::Ledger;

const PAGE: u64 = 4096;
/// Start of what 32-bit programs and programs at fixed addresses map.
const LOW: u64 = 0x20_0000;
/// Start of all else that programs map: addresses of 64-bit programs stay recognizable.
const HIGH: u64 = 0x5555_5555_4000;
const USER_END: u64 = 1 << 47;
const KERNEL: u64 = 0xffff_8000_1000_0000;
const KERNEL_32: u64 = 0x8000_0000;
/// Modules and BPF programs lie after the kernel's image, data included.
const KERNEL_IMAGE: u64 = 1 << 30;
const KERNEL_IMAGE_32: u64 = 1 << 28;
/// Stands for kernel code that no mapping holds, and 0 for that of programs.
const UNKNOWN_KERNEL: u64 = 0xffff_8000_0000_0000;
const UNKNOWN_KERNEL_32: u64 = 0x7fff_f000;
/// Contents of samples that are left out of them.
const REMOVED: SampleType =
    SampleType::REGS_USER.union(SampleType::STACK_USER).union(SampleType::REGS_INTR);
/// Contents with which samples are left out.
const DROPPED: SampleType = SampleType::RAW.union(SampleType::PHYS_ADDR).union(SampleType::AUX);

/// Mapped memory and its new addresses.
#[derive(Clone, Debug)]
struct Moved {
    end: u64,
    to: u64,
    /// Memory without a file, with the code of a just-in-time compiler.
    is_anonymous: bool,
}

/// An address space as recorded, and where its parts are in the new one.
#[derive(Clone, Debug)]
struct Space {
    ranges: BTreeMap<u64, Moved>,
    /// First free addresses below and above 4 GiB, or of a 32-bit and a 64-bit kernel.
    free: [u64; 2],
}

impl Space {
    const PROCESS: Space = Space { ranges: BTreeMap::new(), free: [LOW, HIGH] };
    const KERNEL: Space = Space { ranges: BTreeMap::new(), free: [KERNEL_32, KERNEL] };

    /// New address of a recorded one, and whether code of a just-in-time compiler is there.
    fn find(&self, address: u64) -> Option<(u64, bool)> {
        let (start, moved) = self.ranges.range(..=address).next_back()?;
        (address < moved.end).then(|| (moved.to.wrapping_add(address - start), moved.is_anonymous))
    }

    /// New address of memory from `start` on, which takes the place of what was there. `None` if
    /// the new address space is full.
    fn place(&mut self, start: u64, len: u64, is_anonymous: bool) -> Option<u64> {
        let end = start.saturating_add(len);
        if let Some(known) = self.ranges.get_mut(&start).filter(|known| known.end == end) {
            known.is_anonymous = is_anonymous;
            return Some(known.to);
        }
        let is_wide = usize::from(start > u64::from(u32::MAX));
        let free = self.free[is_wide];
        if end <= start {
            return Some(free);
        }
        let before = self.ranges.range(..start).next_back();
        let is_next =
            before.is_some_and(|(at, b)| b.end == start && b.to.wrapping_add(b.end - at) == free);
        self.clear(start, end);
        let to = if is_next {
            free
        } else {
            // Distances to what lies before and after are not kept, nor is the first page used.
            free.checked_next_multiple_of(PAGE)?.checked_add(PAGE + start % PAGE)?
        };
        self.free[is_wide] = to.checked_add(len)?;
        self.ranges.insert(start, Moved { end, to, is_anonymous });
        Some(to)
    }

    /// Forgets what lies between two addresses.
    fn clear(&mut self, start: u64, end: u64) {
        if let Some((_, before)) = self.ranges.range_mut(..start).next_back()
            && before.end > start
        {
            let (last, from) = (before.end, before.end.min(end));
            before.end = start;
            // The part after the new one.
            let old = before.clone();
            if last > end {
                let Some((at, _)) = self.ranges.range(..start).next_back() else { return };
                let to = old.to.wrapping_add(from - at);
                self.ranges.insert(end, Moved { end: last, to, ..old });
            }
        }
        while let Some((at, within)) = self.ranges.range(start..end).next() {
            let (at, within) = (*at, within.clone());
            self.ranges.remove(&at);
            if within.end > end {
                let to = within.to.wrapping_add(end - at);
                self.ranges.insert(end, Moved { to, ..within });
            }
        }
    }
}

/// The address spaces of a recording, and what was left out.
pub(super) struct AddressRemapping {
    kernel: Space,
    guest_kernel: Space,
    processes: HashMap<u32, Arc<Space>>,
    is_wide_kernel: bool,
    dropped: u64,
    without_stacks: u64,
    without_names: u64,
    unmapped: u64,
    malformed: u64,
    unplaced: u64,
}

impl AddressRemapping {
    pub(super) fn new() -> AddressRemapping {
        AddressRemapping {
            kernel: Space::KERNEL,
            guest_kernel: Space::KERNEL,
            processes: HashMap::new(),
            is_wide_kernel: true,
            dropped: 0,
            without_stacks: 0,
            without_names: 0,
            unmapped: 0,
            malformed: 0,
            unplaced: 0,
        }
    }

    /// Samples of this event as they will be, and its own addresses.
    pub(super) fn change_event(attr: &mut Attr, features: &Features) {
        attr.sample_type.remove(REMOVED);
        (attr.sample_regs_user, attr.sample_regs_intr, attr.sample_stack_user) = (0, 0, 0);
        let pmu = features.pmu_mappings.iter().find(|(kind, _)| *kind == attr.kind.0);
        if attr.kind == EventType::BREAKPOINT {
            attr.config1 = 0;
        } else if pmu.is_some_and(|(_, name)| matches!(&**name, "kprobe" | "uprobe")) {
            (attr.config1, attr.config2) = (0, 0);
        }
    }

    pub(super) fn change_sections(sections: &mut FeatureSections, events: &[EventMeta]) {
        // BPF programs are described with their code and its addresses.
        sections.remove(&Feature::BPF_PROG_INFO);
        if let Some(description) = sections.get_mut(&Feature::EVENT_DESC) {
            *description = event_desc(events);
        }
        if let Some(tracing) = sections.remove(&Feature::TRACING_DATA)
            && let Some(tracing) = TracingData::without_addresses(&tracing)
        {
            sections.insert(Feature::TRACING_DATA, tracing);
        }
    }

    /// Appends the record with its new addresses, unless it is left out.
    pub(super) fn append(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let body = start + RecordHeader::SIZE;
        match entry.raw.kind {
            RecordKind::SAMPLE => {
                if self.append_sample(entry, out).is_err() {
                    out.truncate(start);
                    self.malformed += 1;
                }
                return;
            }
            RecordKind::TEXT_POKE => {
                self.dropped += 1;
                return;
            }
            _ => append(entry, out),
        }
        match Sideband::parse(&entry.raw) {
            Ok(Some(Sideband::Mmap(map))) => {
                /// Offsets in the record's body.
                const START: usize = 8;
                const PGOFF: usize = 24;
                let (to, pgoff) = self.map(&map, entry.raw.misc);
                put(out, body + START, to);
                put(out, body + PGOFF, pgoff);
            }
            Ok(Some(Sideband::Ksymbol(symbol))) => {
                let is_gone = symbol.flags & 1 != 0;
                let to = if is_gone {
                    self.kernel.find(symbol.addr).map(|(to, _)| to)
                } else {
                    self.kernel.place(symbol.addr, u64::from(symbol.len), false)
                };
                put(out, body, to.unwrap_or(UNKNOWN_KERNEL));
            }
            Ok(Some(Sideband::Fork(task))) => {
                // As readers take it: tasks that were there before begin without memory.
                if task.pid != task.ppid
                    && entry.raw.misc.0 & Misc::FORK_EXEC == 0
                    && let Some(space) = self.processes.get(&task.ppid).cloned()
                {
                    self.processes.insert(task.pid, space);
                }
            }
            Ok(Some(Sideband::Comm(comm))) if comm.exec => {
                if let Some(space) = self.processes.get_mut(&comm.pid) {
                    // Addresses of the program before are not given a second time.
                    Arc::make_mut(space).ranges.clear();
                }
            }
            _ if entry.raw.kind == RecordKind::CALLCHAIN_DEFERRED => {
                // A cookie and a number, then addresses of a program.
                let id = entry.desc().and_then(|event| entry.raw.sample_id(&event.attr).ok());
                let pid = id.and_then(|id| id.tid).map(|(pid, _)| pid);
                let mut cursor = entry.raw.cursor();
                let chain = cursor.skip(8).and_then(|()| chain(&mut cursor));
                if let Ok(range) = chain {
                    let at = body + range.start..body + range.end;
                    self.move_chain(out, at, (Misc::USER, pid));
                } else {
                    out.truncate(start);
                    self.malformed += 1;
                }
            }
            Ok(_) => {}
            Err(_) => {
                out.truncate(start);
                self.malformed += 1;
            }
        }
    }

    /// New start and offset of a mapping.
    fn map(&mut self, map: &Mmap<'_>, misc: Misc) -> (u64, u64) {
        let mode = misc.cpumode();
        let is_anonymous = Mmap::names_anonymous(map.filename);
        if matches!(mode, Misc::KERNEL | Misc::GUEST_KERNEL) {
            // A hidden kernel, and a module that is being loaded, have no address.
            if map.start == 0 {
                return (0, if map.pgoff >> 31 == 0 { map.pgoff } else { 0 });
            }
            let space = match mode {
                Misc::KERNEL => &mut self.kernel,
                _ => &mut self.guest_kernel,
            };
            let is_wide = map.start > u64::from(u32::MAX);
            let is_image = map.filename.starts_with(b"[kernel");
            let image = if is_wide { KERNEL_IMAGE } else { KERNEL_IMAGE_32 };
            // Of older perf the image goes as far as the next module, or to the end.
            let len = if is_image { map.len.min(image) } else { map.len };
            let Some(to) = space.place(map.start, len, false) else {
                self.unplaced += 1;
                return (0, 0);
            };
            if is_image {
                let free = &mut space.free[usize::from(is_wide)];
                *free = (*free).max(to.saturating_add(image));
                if mode == Misc::KERNEL {
                    self.is_wide_kernel = is_wide;
                }
            }
            // That of the image is the address of a symbol, and those of modules offsets.
            let pgoff = match map.pgoff.checked_sub(map.start) {
                Some(distance) if is_image && distance < image => to + distance,
                _ if is_image || map.pgoff >= map.start => to,
                _ => map.pgoff,
            };
            return (to, pgoff);
        }
        let space = self.processes.entry(map.pid).or_insert_with(|| Arc::new(Space::PROCESS));
        let place = Arc::make_mut(space).place(map.start, map.len, is_anonymous);
        let Some(to) = place.filter(|to| to.saturating_add(map.len) <= USER_END) else {
            self.unplaced += 1;
            return (0, 0);
        };
        // The offset of memory without a file is its address.
        let is_address = is_anonymous || map.pgoff == map.start;
        (to, if is_address { to } else { map.pgoff })
    }

    fn append_sample(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> Result<(), Truncated> {
        let Some(attr) = entry.desc().map(|event| &event.attr) else { return Ok(()) };
        if attr.sample_type.intersects(DROPPED) {
            self.dropped += 1;
            return Ok(());
        }
        let raw = entry.raw;
        let parts = SampleParts::find(raw.body, attr)?;
        let start = out.len();
        append(entry, out);
        let body = start + RecordHeader::SIZE;
        let leading = SampleLayout::new(attr).leading;
        let pid = leading.tid.and_then(|at| raw.endian.u32_at(raw.body, at));
        let mode = raw.misc.cpumode();
        let place = (mode, pid);
        if let Some(at) = leading.ip {
            let ip = get(out, body + at);
            let new = self.code_address(ip, place);
            put(out, body + at, new);
            let known = self.find(ip, place);
            self.without_names += u64::from(known.is_some_and(|(_, is_anonymous)| is_anonymous));
        }
        if let Some(at) = leading.addr {
            // Data mostly lies outside of the mappings that are recorded.
            let new = self.find(get(out, body + at), place).map_or(0, |(to, _)| to);
            put(out, body + at, new);
        }
        if let Some(chain) = parts.chain {
            self.move_chain(out, body + chain.start..body + chain.end, place);
        }
        if let Some(branches) = parts.branches {
            for at in branches.step_by(3 * size_of::<u64>()) {
                for at in [at, at + size_of::<u64>()] {
                    let new = self.code_address(get(out, body + at), place);
                    put(out, body + at, new);
                }
            }
        }
        self.without_stacks += u64::from(attr.sample_type.contains(SampleType::STACK_USER));
        for removed in parts.removed.into_iter().rev() {
            out.drain(body + removed.start..body + removed.end);
        }
        // It has not become longer.
        let size = (out.len() - start) as u16;
        out[start + 6..start + 8].copy_from_slice(&size.to_ne_bytes());
        Ok(())
    }

    /// Moves the addresses of a call chain, of which the first are of this mode.
    fn move_chain(&mut self, out: &mut [u8], at: Range<usize>, place: (u16, Option<u32>)) {
        let (mut mode, pid) = place;
        let mut is_cookie = false;
        for at in at.step_by(size_of::<u64>()) {
            let word = get(out, at);
            if std::mem::take(&mut is_cookie) {
                continue;
            }
            if word < CALLCHAIN_CONTEXT_MIN {
                let new = self.code_address(word, (mode, pid));
                put(out, at, new);
                continue;
            }
            match ChainContext(word) {
                ChainContext::KERNEL => mode = Misc::KERNEL,
                ChainContext::HV => mode = Misc::HYPERVISOR,
                ChainContext::GUEST | ChainContext::GUEST_KERNEL => mode = Misc::GUEST_KERNEL,
                ChainContext::GUEST_USER => mode = Misc::GUEST_USER,
                ChainContext::USER_DEFERRED => (mode, is_cookie) = (Misc::USER, true),
                _ => mode = Misc::USER,
            }
        }
    }

    /// New address of code.
    fn code_address(&mut self, address: u64, place: (u16, Option<u32>)) -> u64 {
        if let Some((to, _)) = self.find(address, place) {
            return to;
        }
        // A call at the end of a mapping returns behind it.
        if let Some((to, _)) = address.checked_sub(1).and_then(|call| self.find(call, place)) {
            return to.wrapping_add(1);
        }
        self.unmapped += u64::from(address != 0);
        match (place.0, self.is_wide_kernel) {
            (Misc::KERNEL, true) => UNKNOWN_KERNEL,
            (Misc::KERNEL, false) => UNKNOWN_KERNEL_32,
            _ => 0,
        }
    }

    fn find(&self, address: u64, (mode, pid): (u16, Option<u32>)) -> Option<(u64, bool)> {
        let process = || self.processes.get(&pid?)?.find(address);
        let kernel = || self.kernel.find(address);
        match mode {
            Misc::GUEST_KERNEL | Misc::GUEST_USER => self.guest_kernel.find(address),
            // The mode is that of the sample; branches and data may be of the other.
            Misc::KERNEL => kernel().or_else(process),
            _ => process().or_else(kernel),
        }
    }

    /// Notes what is not in the new recording.
    pub(super) fn note(&self, ledger: &mut Ledger) {
        let mut choice = |count: u64, one: &str, many: &str, fact: &str, advice: Option<&str>| {
            if count > 0 {
                let fact = format!("{} {fact}", counted(count, one, many));
                ledger.tell(NoteKind::Target, fact, advice.map(str::to_owned));
            }
        };
        choice(
            self.dropped,
            "record",
            "records",
            "of tracepoints, physical addresses, hardware traces or changed code left out: they \
             may hold addresses",
            None,
        );
        choice(
            self.without_stacks,
            "sample",
            "samples",
            "without the copy of the stack: it holds addresses",
            Some("`kymo inject --convert-callchain` first: call chains are kept"),
        );
        choice(
            self.without_names,
            "sample",
            "samples",
            "of code without a file: perf maps have no names for the new addresses",
            Some("`kymo inject -j` first, if the compiler writes jitdump files"),
        );
        choice(
            self.unmapped,
            "address",
            "addresses",
            "of code outside of all mappings replaced by one that stands for all of them",
            None,
        );
        if self.malformed > 0 {
            let what = counted(self.malformed, "record is", "records are");
            let fact = format!("{what} shorter than their fields, and left out");
            ledger.note(NoteKind::Malformed, fact, None);
        }
        if self.unplaced > 0 {
            let what = counted(self.unplaced, "mapping does", "mappings do");
            let fact = format!("{what} not fit the new address space: their samples have no names");
            ledger.note(NoteKind::Unusable, fact, None);
        }
    }
}

/// Places of addresses, and of what is left out, in the body of a sample.
#[derive(Default)]
struct SampleParts {
    /// The words of the call chain, without their number.
    chain: Option<Range<usize>>,
    /// The entries: source, target, flags.
    branches: Option<Range<usize>>,
    /// In their order.
    removed: Vec<Range<usize>>,
}

impl SampleParts {
    fn find(body: &[u8], attr: &Attr) -> Result<SampleParts, Truncated> {
        let has = attr.sample_type;
        let mut c = Cursor::new(body, Endian::NATIVE);
        let mut parts = SampleParts::default();
        c.skip(SampleLayout::leading_size(has))?;
        if has.contains(SampleType::READ) {
            ReadValues::parse(&mut c, attr.read_format)?;
        }
        if has.contains(SampleType::CALLCHAIN) {
            parts.chain = Some(chain(&mut c)?);
        }
        if has.contains(SampleType::BRANCH_STACK) {
            let count = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
            if attr.branch_sample_type.contains(BranchType::HW_INDEX) {
                c.u64()?;
            }
            let start = c.position();
            c.skip(count.saturating_mul(24))?;
            parts.branches = Some(start..c.position());
            if attr.branch_sample_type.contains(BranchType::COUNTERS) {
                c.skip(count.saturating_mul(8))?;
            }
        }
        let registers = |c: &mut Cursor<'_>, mask: u64| match c.u64()? {
            0 => Ok(()),
            _ => c.skip(mask.count_ones() as usize * size_of::<u64>()),
        };
        let start = c.position();
        if has.contains(SampleType::REGS_USER) {
            registers(&mut c, attr.sample_regs_user)?;
        }
        if has.contains(SampleType::STACK_USER) {
            let size = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
            if size > 0 {
                c.skip(size)?;
                c.u64()?;
            }
        }
        parts.removed.push(start..c.position());
        let words = [
            SampleType::WEIGHT | SampleType::WEIGHT_STRUCT,
            SampleType::DATA_SRC,
            SampleType::TRANSACTION,
        ];
        for _ in words.iter().filter(|field| has.intersects(**field)) {
            c.u64()?;
        }
        if has.contains(SampleType::REGS_INTR) {
            let start = c.position();
            registers(&mut c, attr.sample_regs_intr)?;
            parts.removed.push(start..c.position());
        }
        Ok(parts)
    }
}

/// The words of a call chain after their number.
fn chain(c: &mut Cursor<'_>) -> Result<Range<usize>, Truncated> {
    let count = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
    let start = c.position();
    c.skip(count.saturating_mul(size_of::<u64>()))?;
    Ok(start..c.position())
}

fn get(bytes: &[u8], at: usize) -> u64 {
    Endian::NATIVE.u64_at(bytes, at).unwrap_or_default()
}

/// Writes a word, where the record has one.
fn put(bytes: &mut [u8], at: usize, word: u64) {
    if let Some(place) = bytes.get_mut(at..at + size_of::<u64>()) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_get_places_of_their_own() {
        let mut space = Space::PROCESS;
        let first = space.place(0x7f00_0000_1000, 0x3000, false).unwrap_or_default();
        assert!(first > HIGH && first.is_multiple_of(PAGE), "{first:x}");
        // What follows stays beside it; what lies elsewhere, in either order, does not.
        let next = space.place(0x7f00_0000_4000, 0x1000, true);
        assert_eq!(next, Some(first + 0x3000));
        let other = space.place(0x7f00_0001_0000, 0x1000, false);
        assert_eq!(other, Some(first + 0x5000));
        assert_eq!(space.place(0x40_0000, 0x1000, false), Some(LOW + PAGE));
        // The same again is where it was.
        assert_eq!(space.place(0x7f00_0000_1000, 0x3000, false), Some(first));
        assert_eq!(space.find(0x7f00_0000_1004), Some((first + 4, false)));
        assert_eq!(space.find(0x7f00_0000_4004), Some((first + 0x3004, true)));
        assert_eq!(space.find(0x7f00_0000_5000), None);
    }

    #[test]
    fn memory_that_is_mapped_over_other_leaves_its_sides() {
        let mut space = Space::PROCESS;
        let old = space.place(0x10_0000, 0x4000, false).unwrap_or_default();
        let new = space.place(0x10_1000, 0x1000, false).unwrap_or_default();
        assert!(new >= old + 0x4000, "{old:x} {new:x}");
        assert_eq!(space.find(0x10_0fff), Some((old + 0xfff, false)));
        assert_eq!(space.find(0x10_1000), Some((new, false)));
        assert_eq!(space.find(0x10_2000), Some((old + 0x2000, false)));
        // Over the end of one and the start of the next.
        let across = space.place(0x10_1800, 0x1000, false).unwrap_or_default();
        assert_eq!(space.find(0x10_17ff), Some((new + 0x7ff, false)));
        assert_eq!(space.find(0x10_1800), Some((across, false)));
        assert_eq!(space.find(0x10_2800), Some((old + 0x2800, false)));
        assert_eq!(space.find(0x10_4000), None);
    }
}
