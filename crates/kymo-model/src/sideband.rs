//! The records between samples: what was mapped, who was born, renamed and
//! died, what was lost. Decoded from a [`RawRecord`] on demand.

use crate::cursor::{Cursor, Endian, Truncated};
use crate::record::{Misc, RawRecord, RecordKind};

/// A build-id of up to 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    bytes: [u8; 20],
    len: u8,
}

impl BuildId {
    /// Takes at most 20 bytes; longer ids are cut as perf and the kernel cut them.
    pub fn new(id: &[u8]) -> Self {
        let len = id.len().min(20);
        let mut bytes = [0; 20];
        bytes[..len].copy_from_slice(&id[..len]);
        BuildId { bytes, len: len as u8 }
    }

    /// Reads the hexadecimal digits of a build-id, at most 40.
    pub fn parse(hex: &str) -> Option<BuildId> {
        let digits = hex.as_bytes();
        if !(1..=20).contains(&digits.len().div_ceil(2)) || !digits.len().is_multiple_of(2) {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let pairs = digits.as_chunks::<2>().0.iter();
        let bytes: Option<Vec<u8>> =
            pairs.map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
        Some(BuildId::new(&bytes?))
    }

    /// The build-id in bare ELF notes: those of a note segment, or `/sys/kernel/notes`.
    pub fn from_notes(notes: &[u8], endian: Endian) -> Option<BuildId> {
        const NT_GNU_BUILD_ID: u32 = 3;
        let mut c = Cursor::new(notes, endian);
        loop {
            let (name_size, id_size, kind) = (c.u32().ok()?, c.u32().ok()?, c.u32().ok()?);
            let (name, id) = (padded(&mut c, name_size)?, padded(&mut c, id_size)?);
            if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !id.is_empty() {
                return Some(BuildId::new(id));
            }
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// A part of an ELF note: it ends at a multiple of four bytes, the last one perhaps with
/// the notes.
fn padded<'a>(c: &mut Cursor<'a>, size: u32) -> Option<&'a [u8]> {
    let bytes = c.bytes(usize::try_from(size).ok()?).ok()?;
    let padding = bytes.len().wrapping_neg() & 3;
    c.skip(padding.min(c.remaining())).ok()?;
    Some(bytes)
}

impl std::fmt::Display for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl std::fmt::Debug for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// MMAP and MMAP2: a file, or other memory, appeared in an address space.
#[derive(Clone, Copy, Debug)]
pub struct Mmap<'a> {
    /// Process; `u32::MAX` (-1) for the kernel.
    pub pid: u32,
    /// Thread that mapped.
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub pgoff: u64,
    /// Device major, minor, inode and generation, where recorded.
    pub inode: Option<(u32, u32, u64, u64)>,
    /// Build-id, where recorded in place of the inode.
    pub build_id: Option<BuildId>,
    /// `PROT_*`, where recorded.
    pub prot: Option<u32>,
    /// `MAP_*`, where recorded.
    pub flags: Option<u32>,
    /// File name.
    pub filename: &'a [u8],
}

impl Mmap<'_> {
    /// Whether this name is of memory without a file: just-in-time compilers have their code
    /// there.
    pub fn names_anonymous(name: &[u8]) -> bool {
        let known: [&[u8]; 4] =
            [b"//anon", b"/anon_hugepage", b"/anon_hugepage (deleted)", b"[heap]"];
        let begins: [&[u8]; 4] = [b"/dev/zero", b"[stack", b"/SYSV", b"[anon:"];
        known.contains(&name) || begins.iter().any(|begin| name.starts_with(begin))
    }

    /// Whether this name is of a file that was removed or replaced after it was mapped.
    pub fn names_removed(name: &[u8]) -> bool {
        name.ends_with(b" (deleted)")
            && !Mmap::names_anonymous(name)
            && !name.starts_with(b"/memfd:")
    }
}

/// COMM: a task has a new name.
#[derive(Clone, Copy, Debug)]
pub struct Comm<'a> {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The name.
    pub comm: &'a [u8],
    /// By exec, not by prctl.
    pub exec: bool,
}

/// FORK and EXIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process.
    pub pid: u32,
    /// Parent process.
    pub ppid: u32,
    /// Thread.
    pub tid: u32,
    /// Parent thread.
    pub ptid: u32,
    /// When.
    pub time: u64,
}

/// LOST: records that did not fit the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The event whose ring it was.
    pub id: u64,
    /// Number of lost records.
    pub lost: u64,
}

/// LOST_SAMPLES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostSamples {
    /// Number of lost samples.
    pub lost: u64,
}

/// THROTTLE and UNTHROTTLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// When.
    pub time: u64,
    /// Which event.
    pub id: u64,
    /// Which stream.
    pub stream_id: u64,
}

/// KSYMBOL: kernel code appeared or went.
#[derive(Clone, Copy, Debug)]
pub struct Ksymbol<'a> {
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// `PERF_RECORD_KSYMBOL_TYPE_*`: 1 BPF, 2 out of line.
    pub ksym_type: u16,
    /// Bit 0: unregistered.
    pub flags: u16,
    /// Symbol name.
    pub name: &'a [u8],
}

/// SWITCH and SWITCH_CPU_WIDE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The task goes off the CPU.
    pub out: bool,
    /// It was preempted.
    pub preempt: bool,
    /// The other task, for CPU-wide records.
    pub next_prev: Option<(u32, u32)>,
}

/// TEXT_POKE: kernel code was patched.
#[derive(Clone, Copy, Debug)]
pub struct TextPoke<'a> {
    /// Address of the change.
    pub addr: u64,
    /// Old bytes.
    pub old: &'a [u8],
    /// New bytes.
    pub new: &'a [u8],
}

/// A decoded sideband record.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each variant is named and documented by its payload")]
pub enum Sideband<'a> {
    Mmap(Mmap<'a>),
    Comm(Comm<'a>),
    Fork(Task),
    Exit(Task),
    Lost(Lost),
    LostSamples(LostSamples),
    Throttle(Throttle),
    Unthrottle(Throttle),
    Ksymbol(Ksymbol<'a>),
    Switch(Switch),
    TextPoke(TextPoke<'a>),
}

impl<'a> Sideband<'a> {
    /// Decodes `record`; `None` for samples and kinds not listed here.
    pub fn parse(record: &RawRecord<'a>) -> Result<Option<Sideband<'a>>, Truncated> {
        let mut c = record.cursor();
        Ok(Some(match record.kind {
            RecordKind::MMAP => Sideband::Mmap(Mmap {
                pid: c.u32()?,
                tid: c.u32()?,
                start: c.u64()?,
                len: c.u64()?,
                pgoff: c.u64()?,
                inode: None,
                build_id: None,
                prot: None,
                flags: None,
                filename: c.cstr(),
            }),
            RecordKind::MMAP2 => Sideband::Mmap(mmap2(record)?),
            RecordKind::COMM => Sideband::Comm(Comm {
                pid: c.u32()?,
                tid: c.u32()?,
                comm: c.cstr(),
                exec: record.misc.0 & Misc::COMM_EXEC != 0,
            }),
            RecordKind::FORK => Sideband::Fork(task(record)?),
            RecordKind::EXIT => Sideband::Exit(task(record)?),
            RecordKind::LOST => Sideband::Lost(Lost { id: c.u64()?, lost: c.u64()? }),
            RecordKind::LOST_SAMPLES => Sideband::LostSamples(LostSamples { lost: c.u64()? }),
            RecordKind::THROTTLE => Sideband::Throttle(throttle(record)?),
            RecordKind::UNTHROTTLE => Sideband::Unthrottle(throttle(record)?),
            RecordKind::KSYMBOL => Sideband::Ksymbol(Ksymbol {
                addr: c.u64()?,
                len: c.u32()?,
                ksym_type: c.u16()?,
                flags: c.u16()?,
                name: c.cstr(),
            }),
            RecordKind::SWITCH => Sideband::Switch(switch(record, None)),
            RecordKind::SWITCH_CPU_WIDE => {
                Sideband::Switch(switch(record, Some((c.u32()?, c.u32()?))))
            }
            RecordKind::TEXT_POKE => {
                let addr = c.u64()?;
                let (old, new) = (usize::from(c.u16()?), usize::from(c.u16()?));
                Sideband::TextPoke(TextPoke { addr, old: c.bytes(old)?, new: c.bytes(new)? })
            }
            _ => return Ok(None),
        }))
    }
}

fn mmap2<'a>(record: &RawRecord<'a>) -> Result<Mmap<'a>, Truncated> {
    let mut c = record.cursor();
    let (pid, tid) = (c.u32()?, c.u32()?);
    let (start, len, pgoff) = (c.u64()?, c.u64()?, c.u64()?);
    let (mut inode, mut build_id) = (None, None);
    if record.misc.0 & Misc::MMAP_BUILD_ID != 0 {
        let mut field = c;
        build_id = build_id_of_mapping(field.bytes(24)?, record.endian);
    }
    if build_id.is_some() {
        c.skip(24)?;
    } else {
        inode = Some((c.u32()?, c.u32()?, c.u64()?, c.u64()?));
    }
    let (prot, flags) = (Some(c.u32()?), Some(c.u32()?));
    Ok(Mmap { pid, tid, start, len, pgoff, inode, build_id, prot, flags, filename: c.cstr() })
}

/// The build-id in `field`, where an MMAP2 record that is marked to have one may have an inode.
///
/// The mark is not to be trusted: where one watcher of a mapping asked for build-ids, kernels
/// since 5.12 also mark the records of those who did not (`perf_event_mmap_output()` leaves
/// `misc` as the watcher before made it). The attribute does not decide either: `perf inject
/// --mmap2-buildids` marks records of events that never asked. The bytes do: the size of an id,
/// with its three reserved bytes, lies where the device's major number does.
fn build_id_of_mapping(field: &[u8], endian: Endian) -> Option<BuildId> {
    let size = usize::from(field[0]);
    let id = field.get(4..4 + size).filter(|_| (1..=20).contains(&size))?;
    let padded = [&field[1..4], &field[4 + size..]].concat().iter().all(|b| *b == 0);
    // 16 and 20 bytes are what linkers write, and disks do not have these majors; they have 8
    // (SCSI), but no minor number has more than 20 bits.
    let is_minor = |n: u32| n < 1 << 20;
    let certain = matches!(size, 16 | 20) || !is_minor(endian.u32_at(field, 4)?);
    (padded && certain).then(|| BuildId::new(id))
}

fn task(record: &RawRecord<'_>) -> Result<Task, Truncated> {
    let mut c = record.cursor();
    let (pid, ppid, tid, ptid) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
    Ok(Task { pid, ppid, tid, ptid, time: c.u64()? })
}

fn throttle(record: &RawRecord<'_>) -> Result<Throttle, Truncated> {
    let mut c = record.cursor();
    Ok(Throttle { time: c.u64()?, id: c.u64()?, stream_id: c.u64()? })
}

fn switch(record: &RawRecord<'_>, next_prev: Option<(u32, u32)>) -> Switch {
    Switch {
        out: record.misc.0 & Misc::SWITCH_OUT != 0,
        preempt: record.misc.0 & Misc::SWITCH_OUT_PREEMPT != 0,
        next_prev,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = Vec::new();
        let all = [
            (&b"Xen\0"[..], 3u32, &b"12345"[..]),
            (b"GNU\0", 1, b"abc"),
            (b"GNU\0", 3, b""),
            (b"GNU\0", 3, b"abcde"),
        ];
        for (name, kind, id) in all {
            notes.extend((name.len() as u32).to_le_bytes());
            notes.extend((id.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(name);
            notes.extend(id);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        let found = BuildId::new(b"abcde");
        assert_eq!(BuildId::from_notes(&notes, Endian::Little), Some(found));
        // The padding of the last one may be missing; nothing else may.
        for cut in 0..notes.len() {
            let expected = (cut >= notes.len() - 3).then_some(found);
            assert_eq!(BuildId::from_notes(&notes[..cut], Endian::Little), expected, "{cut}");
        }
        assert_eq!(BuildId::from_notes(&[0xff; 64], Endian::Little), None);
    }

    #[test]
    fn a_build_id_is_read_as_it_is_written() {
        let id = BuildId::new(&[0x0a; 20]);
        assert_eq!(BuildId::parse(&id.to_string()), Some(id));
        assert_eq!(BuildId::parse("AB"), Some(BuildId::new(&[0xab])));
        for bad in ["", "a", "abc", "+1", "zz", &"0".repeat(42)] {
            assert_eq!(BuildId::parse(bad), None, "{bad}");
        }
    }

    type DeviceInode = (u32, u32, u64, u64);

    /// Decodes an MMAP2 record whose 24 bytes of device, inode and generation are `field`.
    fn mapping_with(field: &[u8], misc: u16) -> (Option<DeviceInode>, Option<String>) {
        let mut body = Vec::new();
        body.extend([1u32, 2].iter().flat_map(|v| v.to_le_bytes()));
        body.extend([0x1000u64, 0x2000, 0].iter().flat_map(|v| v.to_le_bytes()));
        body.extend(field);
        body.extend([5u32, 2].iter().flat_map(|v| v.to_le_bytes()));
        body.extend(b"/bin/true\0\0\0\0\0\0\0");
        let (kind, misc) = (RecordKind::MMAP2, Misc(misc));
        let record = RawRecord { kind, misc, body: &body, endian: Endian::Little };
        let Ok(Some(Sideband::Mmap(m))) = Sideband::parse(&record) else {
            panic!("not a mapping");
        };
        assert_eq!((m.start, m.prot, m.filename), (0x1000, Some(5), &b"/bin/true"[..]));
        (m.inode, m.build_id.map(|id| id.to_string()))
    }

    fn build_id_field(id: &[u8]) -> Vec<u8> {
        let mut field = vec![id.len() as u8, 0, 0, 0];
        field.extend(id);
        field.resize(24, 0);
        field
    }

    #[test]
    fn mmap2_carries_an_inode_or_a_build_id() {
        for size in [4, 8, 16, 20] {
            let field = build_id_field(&vec![0xab; size]);
            let expected = (None, Some("ab".repeat(size)));
            assert_eq!(mapping_with(&field, Misc::MMAP_BUILD_ID), expected, "{size}");
        }
        let ab = 0xabab_abab_abab_abab;
        let inode = mapping_with(&build_id_field(&[0xab; 20]), 0);
        assert_eq!(inode, (Some((20, ab as u32, ab, ab)), None));
    }

    #[test]
    fn a_device_and_an_inode_that_are_marked_as_a_build_id_stay_what_they_are() {
        // SCSI, NVMe, virtio, none (btrfs, overlay); with and without a generation.
        for (major, minor) in [(8, 17), (259, 3), (254, 0), (0, 31), (20, 1)] {
            for generation in [0u64, 0x8bad_f00d] {
                let mut field = Vec::new();
                field.extend([major, minor].iter().flat_map(|v: &u32| v.to_le_bytes()));
                field.extend([5_598_323, generation].iter().flat_map(|v| v.to_le_bytes()));
                let (inode, build_id) = mapping_with(&field, Misc::MMAP_BUILD_ID);
                if major == 20 {
                    // No disk has this major: an id may begin like this.
                    assert!(build_id.is_some());
                    continue;
                }
                assert_eq!(inode, Some((major, minor, 5_598_323, generation)));
                assert_eq!(build_id, None);
            }
        }
    }
}
