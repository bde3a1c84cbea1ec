//! Packets of `skboutput()`: out of the perf rings of the CPUs, into pcap files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use kymo_bpf::{ActionKind, CompiledProgram, PACKET_HEADER, RingAction};
use kymo_kernel::bpf::BpfPerfRings;
use kymo_kernel::clock::KernelClock;
use kymo_kernel::regular_file;
use kymo_model::{Note, NoteKind, counted};

use crate::bytes::u64_at;
use crate::error::ProgramError;

/// A pcap file's magic number for times in microseconds; files that others wrote may have the one for
/// nanoseconds, and either byte order.
const MAGIC: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// Longest packet that the file's header announces.
const SNAPSHOT_LENGTH: u32 = 65535;
/// `LINKTYPE_RAW`: packets begin with the header of IPv4 or IPv6.
const LINK_TYPE: u32 = 101;

/// The rings, and the files by path.
pub(crate) struct PacketCapture {
    rings: BpfPerfRings,
    files: BTreeMap<String, PacketFile>,
    /// Offset of the real-time clock from the clock of packets, in ns.
    since_boot: u64,
    /// Samples that name no call of `skboutput()`.
    unknown: u64,
}

struct PacketFile {
    file: File,
    /// Bytes of whole packets in the file.
    length: u64,
    /// Packets that are not written yet, and where each ends in them.
    pending: Vec<u8>,
    ends: Vec<usize>,
    /// After it nothing more is written.
    failure: Option<io::Error>,
    /// Packets that were not written.
    missing: u64,
}

/// Bytes that are collected before they are written.
const MOST_PENDING: usize = 1 << 20;

/// A packet out of a ring.
struct CapturedPacket {
    time: u64,
    action: usize,
    /// Bytes that the program asked for.
    length: u64,
    bytes: Vec<u8>,
}

impl PacketCapture {
    /// Creates the files that the program names.
    pub(crate) fn create(
        program: &CompiledProgram,
        rings: BpfPerfRings,
    ) -> Result<PacketCapture, ProgramError> {
        let mut files = BTreeMap::new();
        for action in &program.actions {
            let ActionKind::WritePacket { path, .. } = &action.kind else { continue };
            if files.contains_key(path) {
                continue;
            }
            let position = action.position;
            let refused = |error| ProgramError::PacketFile { path: path.clone(), position, error };
            files.insert(path.clone(), PacketFile::create(Path::new(path)).map_err(refused)?);
        }
        let real = KernelClock::Realtime.now().unwrap_or(0);
        let since_boot = real.wrapping_sub(KernelClock::Boottime.now().unwrap_or(0));
        Ok(PacketCapture { rings, files, since_boot, unknown: 0 })
    }

    /// Writes the packets that wait, in the order of time; gives the number of bytes read.
    pub(crate) fn read(&mut self, actions: &[RingAction]) -> u64 {
        let mut packets = Vec::new();
        let unknown = &mut self.unknown;
        let read = self.rings.read(|raw| match CapturedPacket::parse(raw) {
            Some(packet) => packets.push(packet),
            None => *unknown += 1,
        });
        packets.sort_by_key(|packet| packet.time);
        for packet in &packets {
            let action = actions.get(packet.action).map(|action| &action.kind);
            let Some(ActionKind::WritePacket { path, offset }) = action else {
                self.unknown += 1;
                continue;
            };
            if let Some(file) = self.files.get_mut(path) {
                let time = packet.time.wrapping_add(self.since_boot);
                file.write(time, packet, *offset as usize);
            }
        }
        if read > 0 {
            self.files.values_mut().for_each(PacketFile::flush);
        }
        read as u64
    }

    /// Notes about packets missing from the files.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let failed = self.files.iter().filter_map(|(path, file)| {
            let error = file.failure.as_ref()?;
            let fact = match file.missing {
                0 => format!("cannot write {path}: {error}"),
                missing => format!("{missing} packets are not in {path}: {error}"),
            };
            Some(Note::doubt(NoteKind::Missing, fact, None))
        });
        let unknown = (self.unknown > 0).then(|| {
            let fact = counted(
                self.unknown,
                "sample of the perf rings is no packet",
                "samples of the perf rings are no packets",
            );
            Note::doubt(NoteKind::Malformed, fact, None)
        });
        failed.chain(unknown).collect()
    }
}

impl CapturedPacket {
    /// A packet of a sample's raw data, which bytes that fill the record may follow.
    fn parse(raw: &[u8]) -> Option<CapturedPacket> {
        let (header, rest) = raw.split_at_checked(PACKET_HEADER)?;
        let taken = usize::try_from(u64_at(header, 24)).ok()?;
        Some(CapturedPacket {
            time: u64_at(header, 8),
            action: usize::try_from(u64_at(header, 0)).ok()?,
            length: u64_at(header, 16),
            bytes: rest.get(..taken)?.to_vec(),
        })
    }
}

impl PacketFile {
    fn create(path: &Path) -> io::Result<PacketFile> {
        let file = regular_file::create_or_empty(path, is_replaceable)?;
        let mut header = MAGIC.to_ne_bytes().to_vec();
        VERSION.iter().for_each(|part| header.extend(part.to_ne_bytes()));
        // Zone and accuracy of times: 0, as everybody has them.
        header.extend([0; 8]);
        header.extend(SNAPSHOT_LENGTH.to_ne_bytes());
        header.extend(LINK_TYPE.to_ne_bytes());
        let mut file = PacketFile::of(file);
        file.file.write_all(&header)?;
        file.length = header.len() as u64;
        Ok(file)
    }

    fn of(file: File) -> PacketFile {
        let (pending, ends) = (Vec::new(), Vec::new());
        PacketFile { file, length: 0, pending, ends, failure: None, missing: 0 }
    }

    /// Writes a packet from `offset` on; one that ends before is left out, as bpftrace does.
    fn write(&mut self, time: u64, packet: &CapturedPacket, offset: usize) {
        let Some(bytes) = packet.bytes.get(offset..).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        let length = packet.length.saturating_sub(offset as u64);
        let numbers = [
            (time / 1_000_000_000) as u32,
            (time % 1_000_000_000 / 1000) as u32,
            bytes.len() as u32,
            u32::try_from(length).unwrap_or(u32::MAX),
        ];
        numbers.iter().for_each(|number| self.pending.extend(number.to_ne_bytes()));
        self.pending.extend_from_slice(bytes);
        self.ends.push(self.pending.len());
        if self.pending.len() > MOST_PENDING {
            self.flush();
        }
    }

    /// Writes what is pending. If that fails, the file ends with the last packet that is whole.
    fn flush(&mut self) {
        let mut written = 0;
        while let (Some(rest), None) = (self.pending.get(written..), &self.failure) {
            if rest.is_empty() {
                break;
            }
            match self.file.write(rest) {
                Ok(0) => self.failure = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.failure = Some(e),
            }
        }
        let whole = self.ends.partition_point(|end| *end <= written);
        self.missing += (self.ends.len() - whole) as u64;
        if let Some(end) = whole.checked_sub(1).and_then(|last| self.ends.get(last)) {
            self.length += *end as u64;
        }
        if written > 0 && self.failure.is_some() {
            // Readers take half a packet for damage; where it stays they say so.
            let _ = self.file.set_len(self.length);
        }
        self.pending.clear();
        self.ends.clear();
    }
}

/// Whether a file with these first bytes may be emptied: one of packets, or an empty one.
fn is_replaceable(begin: &[u8]) -> bool {
    let magics = [MAGIC, MAGIC_NANOSECONDS].map(u32::to_ne_bytes);
    let is_one = |magic: &[u8; 4]| magics.iter().any(|m| m == magic || m.iter().rev().eq(magic));
    begin.is_empty() || begin.first_chunk().is_some_and(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: u64, bytes: &[u8]) -> CapturedPacket {
        CapturedPacket { time: 0, action: 0, length, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_packet_is_what_its_header_says() {
        let mut raw = Vec::new();
        [3u64, 77, 90, 4].iter().for_each(|number| raw.extend(number.to_ne_bytes()));
        raw.extend(b"datapadding");
        let found = CapturedPacket::parse(&raw).unwrap();
        assert_eq!((found.action, found.time, found.length), (3, 77, 90));
        assert_eq!(found.bytes, b"data");
        assert!(CapturedPacket::parse(&raw[..33]).is_none());
        raw[24..32].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(CapturedPacket::parse(&raw).is_none());
    }

    #[test]
    fn packets_are_written_as_pcap() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.pcap");
        let mut file = PacketFile::create(&path).unwrap();
        file.write(12_000_345_678, &packet(20, b"ethernet..ip"), 10);
        file.write(0, &packet(10, b"0123456789"), 10);
        file.flush();
        let bytes = std::fs::read(&path).unwrap();
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        let expected = [MAGIC, u32::from_ne_bytes([2, 0, 4, 0]), 0, 0, 65535, 101, 12, 345, 2, 10];
        let found: Vec<u32> = (0..10).map(|n| word(n * 4)).collect();
        // The version is two numbers of 16 bits.
        assert_eq!(found, expected);
        assert_eq!(&bytes[40..], b"ip");
        assert!(is_replaceable(&bytes) && is_replaceable(b"") && !is_replaceable(b"text, not"));
    }

    #[test]
    fn a_full_disk_is_reported_once_and_counted() {
        let mut file = PacketFile::of(File::options().write(true).open("/dev/full").unwrap());
        file.write(0, &packet(2, b"ip"), 0);
        file.flush();
        file.write(0, &packet(2, b"ip"), 0);
        file.flush();
        assert_eq!(file.missing, 2);
        assert_eq!(file.failure.unwrap().kind(), io::ErrorKind::StorageFull);
    }
}
