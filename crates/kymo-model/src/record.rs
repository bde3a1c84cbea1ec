//! Raw records of the perf ring and of perf.data: a header, the body as bytes,
//! and the sample-id trailer that follows every non-sample record when
//! `sample_id_all` is set. Nothing is decoded until asked.

use crate::attr::Attr;
use crate::cursor::{Cursor, Endian, Truncated};
use crate::sample_layout::TrailingFields;

/// The `type` of a record; unknown kinds survive as their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKind(pub u32);

macro_rules! kinds {
    ($($name:ident = $value:literal),* $(,)?) => {
        #[allow(missing_docs, reason = "the names are the kernel's and perf's")]
        impl RecordKind {
            $(pub const $name: RecordKind = RecordKind($value);)*

            /// The spec's name without its `PERF_RECORD_` prefix.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    MMAP = 1, LOST = 2, COMM = 3, EXIT = 4, THROTTLE = 5, UNTHROTTLE = 6, FORK = 7, READ = 8,
    SAMPLE = 9, MMAP2 = 10, AUX = 11, ITRACE_START = 12, LOST_SAMPLES = 13, SWITCH = 14,
    SWITCH_CPU_WIDE = 15, NAMESPACES = 16, KSYMBOL = 17, BPF_EVENT = 18, CGROUP = 19,
    TEXT_POKE = 20, AUX_OUTPUT_HW_ID = 21, CALLCHAIN_DEFERRED = 22,
    HEADER_ATTR = 64, HEADER_EVENT_TYPE = 65, HEADER_TRACING_DATA = 66, HEADER_BUILD_ID = 67,
    FINISHED_ROUND = 68, ID_INDEX = 69, AUXTRACE_INFO = 70, AUXTRACE = 71, AUXTRACE_ERROR = 72,
    THREAD_MAP = 73, CPU_MAP = 74, STAT_CONFIG = 75, STAT = 76, STAT_ROUND = 77,
    EVENT_UPDATE = 78, TIME_CONV = 79, HEADER_FEATURE = 80, COMPRESSED = 81, FINISHED_INIT = 82,
    COMPRESSED2 = 83, BPF_METADATA = 84, SCHEDSTAT_CPU = 85, SCHEDSTAT_DOMAIN = 86,
}

impl RecordKind {
    /// First kind that perf, not the kernel, writes (`PERF_RECORD_USER_TYPE_START`).
    pub const USER_START: u32 = 64;

    /// Whether perf, not the kernel, made the record; such have no sample-id trailer.
    pub fn is_user(self) -> bool {
        self.0 >= Self::USER_START
    }
}

/// The `misc` word of a record header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Misc(pub u16);

impl Misc {
    /// Mask of the processor mode.
    pub const CPUMODE_MASK: u16 = 7;
    /// Mode: the kernel.
    pub const KERNEL: u16 = 1;
    /// Mode: user space.
    pub const USER: u16 = 2;
    /// Mode: the hypervisor.
    pub const HYPERVISOR: u16 = 3;
    /// Mode: a guest's kernel.
    pub const GUEST_KERNEL: u16 = 4;
    /// Mode: a guest's user space.
    pub const GUEST_USER: u16 = 5;
    /// On MMAP records: the mapping is data, not code.
    pub const MMAP_DATA: u16 = 1 << 13;
    /// On COMM records: the name changed by exec.
    pub const COMM_EXEC: u16 = 1 << 13;
    /// On FORK records: made up by perf from /proc.
    pub const FORK_EXEC: u16 = 1 << 13;
    /// On SWITCH records: the task goes off the CPU.
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// On SWITCH records: it was preempted.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// On MMAP2 records: the record has a build-id in place of device and inode.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// On LOST_SAMPLES records: a BPF filter of the user's left these samples out.
    pub const LOST_SAMPLES_BPF: u16 = 1 << 15;

    /// The processor mode: one of the mode constants, or 0.
    #[inline]
    pub fn cpumode(self) -> u16 {
        self.0 & Self::CPUMODE_MASK
    }
}

/// `struct perf_event_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The kind.
    pub kind: RecordKind,
    /// Mode and kind-specific bits.
    pub misc: Misc,
    /// Size of header and body.
    pub size: u16,
}

impl RecordHeader {
    /// Size of the header itself.
    pub const SIZE: usize = 8;

    /// Reads a header. The size is as stated: the caller checks it.
    #[inline]
    pub fn parse(bytes: &[u8], endian: Endian) -> Result<Self, Truncated> {
        let mut c = Cursor::new(bytes, endian);
        Ok(RecordHeader { kind: RecordKind(c.u32()?), misc: Misc(c.u16()?), size: c.u16()? })
    }

    /// The header in this machine's byte order.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut b = [0; 8];
        b[..4].copy_from_slice(&self.kind.0.to_ne_bytes());
        b[4..6].copy_from_slice(&self.misc.0.to_ne_bytes());
        b[6..].copy_from_slice(&self.size.to_ne_bytes());
        b
    }
}

/// A record as it lies in the file or ring.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// The kind.
    pub kind: RecordKind,
    /// Mode and kind-specific bits.
    pub misc: Misc,
    /// All behind the header, the sample-id trailer included.
    pub body: &'a [u8],
    /// Byte order of the body.
    pub endian: Endian,
}

impl<'a> RawRecord<'a> {
    /// A cursor at the start of the body.
    #[inline]
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor::new(self.body, self.endian)
    }

    /// The trailer of a non-sample kernel record.
    pub fn sample_id(&self, attr: &Attr) -> Result<SampleId, Truncated> {
        SampleId::parse_trailer(self.body, self.endian, attr)
    }
}

/// Task, CPU and time: the fields that `sample_id_all` adds to every record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Process and thread.
    pub tid: Option<(u32, u32)>,
    /// Timestamp.
    pub time: Option<u64>,
    /// Event id.
    pub id: Option<u64>,
    /// Stream id.
    pub stream_id: Option<u64>,
    /// CPU.
    pub cpu: Option<u32>,
}

impl SampleId {
    /// Size of the trailer that `attr` asks for.
    pub fn size(attr: &Attr) -> usize {
        TrailingFields::new(attr).size
    }

    /// Decodes the trailer at the end of `body`.
    pub fn parse_trailer(body: &[u8], endian: Endian, attr: &Attr) -> Result<Self, Truncated> {
        let at = TrailingFields::new(attr);
        let start = body.len().checked_sub(at.size);
        let start = start.ok_or(Truncated { offset: 0, needed: at.size, left: body.len() })?;
        let trailer = &body[start..];
        let half = |back: usize| endian.u32_at(trailer, at.size - back);
        let word = |back: usize| endian.u64_from_end(trailer, back);
        Ok(SampleId {
            tid: at.tid.and_then(|back| half(back).zip(half(back - 4))),
            time: at.time.and_then(word),
            id: at.id.and_then(word),
            stream_id: at.stream_id.and_then(word),
            cpu: at.cpu.and_then(half),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{AttrFlags, SampleType};

    #[test]
    fn the_trailer_is_read_from_the_end() {
        let attr = Attr {
            sample_type: SampleType::TID | SampleType::TIME | SampleType::CPU,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let mut body = vec![0xee; 12];
        body.extend(7u32.to_le_bytes());
        body.extend(8u32.to_le_bytes());
        body.extend(99u64.to_le_bytes());
        body.extend(3u64.to_le_bytes());
        let id = SampleId::parse_trailer(&body, Endian::Little, &attr).unwrap();
        assert_eq!((id.tid, id.time, id.cpu, id.id), (Some((7, 8)), Some(99), Some(3), None));
        assert!(SampleId::parse_trailer(&body[..20], Endian::Little, &attr).is_err());
    }

    #[test]
    fn kinds_have_the_specs_names() {
        assert_eq!(RecordKind::MMAP2.name(), Some("MMAP2"));
        assert_eq!(RecordKind(4000).name(), None);
    }
}
