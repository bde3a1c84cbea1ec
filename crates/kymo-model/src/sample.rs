//! `PERF_RECORD_SAMPLE`: the fields an event's `sample_type` asks for, in the
//! order of perf_event_open(2). Variable parts are borrowed, not copied.

use crate::attr::Attr;
use crate::cursor::{Cursor, Endian, Truncated};
use crate::flags::{BranchType, ReadFormat, SampleType};
use crate::record::RawRecord;
use crate::sample_layout::LeadingWalk;

/// Entries of a call chain at or above this are context markers, not addresses.
pub const CALLCHAIN_CONTEXT_MIN: u64 = (-4095i64) as u64;

/// The markers that say which space the following call chain entries are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainContext(pub u64);

#[allow(missing_docs, reason = "the names are the kernel's")]
impl ChainContext {
    pub const HV: ChainContext = ChainContext((-32i64) as u64);
    pub const KERNEL: ChainContext = ChainContext((-128i64) as u64);
    pub const USER: ChainContext = ChainContext((-512i64) as u64);
    pub const USER_DEFERRED: ChainContext = ChainContext((-640i64) as u64);
    pub const GUEST: ChainContext = ChainContext((-2048i64) as u64);
    pub const GUEST_KERNEL: ChainContext = ChainContext((-2176i64) as u64);
    pub const GUEST_USER: ChainContext = ChainContext((-2560i64) as u64);
}

/// A sampled set of registers.
#[derive(Clone, Copy, Debug)]
pub struct SampledRegisters<'a> {
    /// `PERF_SAMPLE_REGS_ABI_*`: 0 none, 1 32-bit, 2 64-bit.
    pub abi: u64,
    /// Which registers, as in the attribute.
    pub mask: u64,
    values: &'a [u8],
    endian: Endian,
}

impl SampledRegisters<'_> {
    /// The value of register number `n` of `perf_regs.h`.
    pub fn get(&self, n: u32) -> Option<u64> {
        if n >= 64 || self.mask & (1 << n) == 0 {
            return None;
        }
        let slot = (self.mask & ((1 << n) - 1)).count_ones() as usize;
        let bytes = self.values.get(slot * 8..)?.first_chunk::<8>()?;
        Some(self.endian.u64(*bytes))
    }
}

/// A copy of the top of the user stack.
#[derive(Clone, Copy, Debug)]
pub struct UserStack<'a> {
    /// All bytes asked for.
    pub bytes: &'a [u8],
    /// Number of bytes that the kernel copied.
    pub dynamic_size: u64,
}

/// `PERF_SAMPLE_READ`, or the answer of read(2) on an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadValues {
    /// Nanoseconds the event was enabled.
    pub time_enabled: u64,
    /// Nanoseconds the event was counting.
    pub time_running: u64,
    /// `(value, id, lost)` of each event of the group, or of the one event.
    pub values: Vec<(u64, Option<u64>, Option<u64>)>,
}

impl ReadValues {
    /// Decodes by `format`.
    pub fn parse(c: &mut Cursor<'_>, format: ReadFormat) -> Result<Self, Truncated> {
        let mut r = ReadValues::default();
        let group = format.contains(ReadFormat::GROUP);
        let count = if group { c.u64()? } else { 1 };
        // Each value takes at least eight bytes: a lying count ends here.
        if count > (c.remaining() / 8) as u64 {
            return Err(Truncated {
                offset: c.position(),
                needed: usize::MAX,
                left: c.remaining(),
            });
        }
        if !group {
            r.values.push((c.u64()?, None, None));
        }
        if format.contains(ReadFormat::TOTAL_TIME_ENABLED) {
            r.time_enabled = c.u64()?;
        }
        if format.contains(ReadFormat::TOTAL_TIME_RUNNING) {
            r.time_running = c.u64()?;
        }
        if group {
            for _ in 0..count {
                r.values.push((c.u64()?, None, None));
                Self::id_and_lost(&mut r, c, format)?;
            }
        } else {
            Self::id_and_lost(&mut r, c, format)?;
        }
        Ok(r)
    }

    fn id_and_lost(
        r: &mut ReadValues,
        c: &mut Cursor<'_>,
        format: ReadFormat,
    ) -> Result<(), Truncated> {
        let Some(last) = r.values.last_mut() else { return Ok(()) };
        if format.contains(ReadFormat::ID) {
            last.1 = Some(c.u64()?);
        }
        if format.contains(ReadFormat::LOST) {
            last.2 = Some(c.u64()?);
        }
        Ok(())
    }
}

/// One sample. Fields the event did not ask for are `None` or empty.
#[derive(Clone, Debug, Default)]
pub struct Sample<'a> {
    /// Event id (`IDENTIFIER` or `ID`).
    pub id: Option<u64>,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Process and thread.
    pub tid: Option<(u32, u32)>,
    /// Timestamp.
    pub time: Option<u64>,
    /// Data address.
    pub addr: Option<u64>,
    /// Stream id.
    pub stream_id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
    /// Period.
    pub period: Option<u64>,
    /// Counter values.
    pub read: Option<ReadValues>,
    callchain: &'a [u8],
    chain_endian: Option<Endian>,
    /// Raw bytes; a tracepoint's payload.
    pub raw: Option<&'a [u8]>,
    /// Branch entries, 24 bytes each, undecoded.
    pub branches: &'a [u8],
    /// The branch entries are the calls that lead to the sample's place (`--call-graph lbr`).
    branches_are_calls: bool,
    /// User registers.
    pub regs_user: Option<SampledRegisters<'a>>,
    /// User stack.
    pub stack_user: Option<UserStack<'a>>,
    /// Weight.
    pub weight: Option<u64>,
    /// Source of the data.
    pub data_src: Option<u64>,
    /// Transaction flags.
    pub transaction: Option<u64>,
    /// Registers at the interrupt.
    pub regs_intr: Option<SampledRegisters<'a>>,
    /// Physical data address.
    pub phys_addr: Option<u64>,
    /// Cgroup id.
    pub cgroup: Option<u64>,
    /// Page size of the data address.
    pub data_page_size: Option<u64>,
    /// Page size of the code address.
    pub code_page_size: Option<u64>,
}

impl<'a> Sample<'a> {
    /// The words of the call chain as they stand in the record.
    pub fn callchain_bytes(&self) -> &'a [u8] {
        self.callchain
    }

    /// The call chain, innermost first, context markers included.
    #[inline]
    pub fn callchain(&self) -> impl ExactSizeIterator<Item = u64> + Clone + use<'a> {
        let endian = self.chain_endian.unwrap_or(Endian::NATIVE);
        self.callchain.as_chunks::<8>().0.iter().map(move |b| endian.u64(*b))
    }

    /// Addresses of the calls that lead to the sample's place, innermost first, where the branch
    /// entries are that.
    pub fn branch_callers(&self) -> Option<impl Iterator<Item = u64> + use<'a>> {
        let endian = self.chain_endian.unwrap_or(Endian::NATIVE);
        let froms = self.branches.chunks_exact(24);
        let from = move |entry: &[u8]| entry.first_chunk::<8>().map(|word| endian.u64(*word));
        self.branches_are_calls.then(|| froms.filter_map(from).filter(|from| *from != 0))
    }

    /// Whether the event records call chains.
    pub fn has_callchain(&self) -> bool {
        self.chain_endian.is_some()
    }

    /// Decodes a `PERF_RECORD_SAMPLE`.
    pub fn parse(record: &RawRecord<'a>, attr: &Attr) -> Result<Sample<'a>, Truncated> {
        let mut c = record.cursor();
        let has = attr.sample_type;
        let endian = record.endian;
        let words = record.body.as_chunks::<8>().0;
        let mut read = 0;
        let leading = LeadingWalk::new(has, || {
            let word = words.get(read).map_or(0, |word| endian.u64(*word));
            read += 1;
            word
        });
        // One check for all of them.
        c.skip(read * 8)?;
        let halves = |word: u64| match endian {
            Endian::Little => (word as u32, (word >> 32) as u32),
            Endian::Big => ((word >> 32) as u32, word as u32),
        };
        let mut s = Sample {
            id: leading.identifier.or(leading.id),
            ip: leading.ip,
            tid: leading.tid.map(halves),
            time: leading.time,
            addr: leading.addr,
            stream_id: leading.stream_id,
            cpu: leading.cpu.map(|word| halves(word).0),
            period: leading.period,
            ..Sample::default()
        };
        if has.contains(SampleType::READ) {
            s.read = Some(ReadValues::parse(&mut c, attr.read_format)?);
        }
        if has.contains(SampleType::CALLCHAIN) {
            let count = c.u64()?;
            s.callchain = counted(&mut c, count, 8)?;
            s.chain_endian = Some(record.endian);
        }
        if has.contains(SampleType::RAW) {
            let size = c.u32()? as usize;
            s.raw = Some(c.bytes(size)?);
        }
        if has.contains(SampleType::BRANCH_STACK) {
            let count = c.u64()?;
            if attr.branch_sample_type.contains(BranchType::HW_INDEX) {
                c.skip(8)?;
            }
            s.branches = counted(&mut c, count, 24)?;
            if attr.branch_sample_type.contains(BranchType::COUNTERS) {
                counted(&mut c, count, 8)?;
            }
            if is_call_stack(attr) && !s.branches.is_empty() {
                s.branches_are_calls = true;
                s.callchain = without_user_callers(s.callchain, c.endian());
            }
        }
        if has.contains(SampleType::REGS_USER) {
            s.regs_user = registers(&mut c, attr.sample_regs_user)?;
        }
        if has.contains(SampleType::STACK_USER) {
            let size = c.u64()?;
            if size > 0 {
                let bytes = counted(&mut c, size, 1)?;
                s.stack_user = Some(UserStack { bytes, dynamic_size: c.u64()?.min(size) });
            }
        }
        if has.intersects(SampleType::WEIGHT | SampleType::WEIGHT_STRUCT) {
            s.weight = Some(c.u64()?);
        }
        if has.contains(SampleType::DATA_SRC) {
            s.data_src = Some(c.u64()?);
        }
        if has.contains(SampleType::TRANSACTION) {
            s.transaction = Some(c.u64()?);
        }
        if has.contains(SampleType::REGS_INTR) {
            s.regs_intr = registers(&mut c, attr.sample_regs_intr)?;
        }
        if has.contains(SampleType::PHYS_ADDR) {
            s.phys_addr = Some(c.u64()?);
        }
        if has.contains(SampleType::CGROUP) {
            s.cgroup = Some(c.u64()?);
        }
        if has.contains(SampleType::DATA_PAGE_SIZE) {
            s.data_page_size = Some(c.u64()?);
        }
        if has.contains(SampleType::CODE_PAGE_SIZE) {
            s.code_page_size = Some(c.u64()?);
        }
        Ok(s)
    }
}

/// Whether samples hold the calls of user code in their branch entries: `--call-graph lbr`.
pub fn is_call_stack(attr: &Attr) -> bool {
    attr.branch_sample_type.contains(BranchType::CALL_STACK)
        && attr.sample_type.contains(SampleType::CALLCHAIN | SampleType::BRANCH_STACK)
}

/// The words of a call chain up to the first address of user code: the callers of that are in the
/// branch entries.
pub fn without_user_callers(chain: &[u8], endian: Endian) -> &[u8] {
    let words = chain.as_chunks::<8>().0;
    let user = words.iter().position(|word| endian.u64(*word) == ChainContext::USER.0);
    let end = user.map_or(words.len(), |at| (at + 2).min(words.len()));
    chain.get(..end * 8).unwrap_or(chain)
}

fn counted<'a>(c: &mut Cursor<'a>, count: u64, each: usize) -> Result<&'a [u8], Truncated> {
    let size = usize::try_from(count).ok().and_then(|n| n.checked_mul(each));
    c.bytes(size.unwrap_or(usize::MAX))
}

fn registers<'a>(c: &mut Cursor<'a>, mask: u64) -> Result<Option<SampledRegisters<'a>>, Truncated> {
    let abi = c.u64()?;
    if abi == 0 {
        return Ok(None);
    }
    let values = c.bytes(mask.count_ones() as usize * 8)?;
    Ok(Some(SampledRegisters { abi, mask, values, endian: c.endian() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Misc, RecordKind};
    use crate::sample_places::SamplePlaces;

    fn record(body: &[u8]) -> RawRecord<'_> {
        RawRecord { kind: RecordKind::SAMPLE, misc: Misc(2), body, endian: Endian::Little }
    }

    #[test]
    fn a_chain_with_a_lying_count_is_an_error() {
        let attr = Attr { sample_type: SampleType::CALLCHAIN, ..Attr::default() };
        let body = [u64::MAX.to_le_bytes(), 1u64.to_le_bytes()].concat();
        assert!(Sample::parse(&record(&body), &attr).is_err());
        let body = [1u64.to_le_bytes(), 42u64.to_le_bytes()].concat();
        let sample = Sample::parse(&record(&body), &attr).unwrap();
        assert_eq!(sample.callchain().collect::<Vec<_>>(), [42]);
    }

    #[test]
    fn the_task_is_found_without_the_rest() {
        let with = |has| Attr { sample_type: has, ..Attr::default() };
        let body: Vec<u8> = [1u64, 2, 4 | 5 << 32].iter().flat_map(|v| v.to_le_bytes()).collect();
        let all = with(SampleType::IDENTIFIER | SampleType::IP | SampleType::TID);
        assert_eq!(SamplePlaces::of(&all).task(&record(&body)), Some((4, 5)));
        assert_eq!(SamplePlaces::of(&all).task(&record(&body[..20])), None);
        assert_eq!(
            SamplePlaces::of(&with(SampleType::TID)).task(&record(&body[16..])),
            Some((4, 5))
        );
        assert_eq!(SamplePlaces::of(&with(SampleType::IP)).task(&record(&body)), None);
    }

    #[test]
    fn cpu_and_payload_are_those_of_the_whole_sample() {
        let has = SampleType::TID | SampleType::CPU | SampleType::CALLCHAIN | SampleType::RAW;
        let attr = Attr { sample_type: has, ..Attr::default() };
        let words = [4 | 5 << 32, 3, 2, 0x10, 0x20, 4 | 0xddcc_bbaa << 32];
        let body: Vec<u8> = words.iter().flat_map(|v: &u64| v.to_le_bytes()).collect();
        let all = Sample::parse(&record(&body), &attr).unwrap();
        assert_eq!((all.cpu, all.raw), (Some(3), Some(&[0xaa, 0xbb, 0xcc, 0xdd][..])));
        assert_eq!(SamplePlaces::of(&attr).cpu(&record(&body)), all.cpu);
        assert_eq!(SamplePlaces::of(&attr).payload(&record(&body)), all.raw);
        assert_eq!(SamplePlaces::of(&attr).payload(&record(&body[..44])), None);
        let lying = [&body[..16], &u64::MAX.to_le_bytes(), &body[24..]].concat();
        assert_eq!(SamplePlaces::of(&attr).payload(&record(&lying)), None);
    }

    #[test]
    fn registers_are_found_by_their_bit() {
        let attr = Attr {
            sample_type: SampleType::REGS_USER,
            sample_regs_user: 0b1010_0001,
            ..Attr::default()
        };
        let body: Vec<u8> = [2u64, 10, 15, 17].iter().flat_map(|v| v.to_le_bytes()).collect();
        let regs = Sample::parse(&record(&body), &attr).unwrap().regs_user.unwrap();
        assert_eq!(
            [0, 1, 5, 7, 64].map(|n| regs.get(n)),
            [Some(10), None, Some(15), Some(17), None]
        );
    }

    #[test]
    fn grouped_reads_list_every_member() {
        let format = ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::ID;
        let bytes: Vec<u8> =
            [2u64, 1000, 5, 50, 6, 60].iter().flat_map(|v| v.to_le_bytes()).collect();
        let r = ReadValues::parse(&mut Cursor::new(&bytes, Endian::Little), format).unwrap();
        assert_eq!(r.time_enabled, 1000);
        assert_eq!(r.values, [(5, Some(50), None), (6, Some(60), None)]);
    }
}
