//! One pass over written records: how many samples, when, what was lost, which
//! binaries were mapped. Works on any cut of the stream into pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use kymo_model::{
    Attr, BuildId, Endian, LeadingFields, Misc, RawRecord, RecordHeader, RecordKind, Sideband,
};

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;
/// Distinct binaries remembered; more are not given a build-id.
const MOST_BINARIES: usize = 100_000;

/// Counts of the records in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    pub(crate) samples: u64,
    pub(crate) lost: u64,
    pub(crate) lost_samples: u64,
    pub(crate) throttled: u64,
    pub(crate) first_time: u64,
    pub(crate) last_time: u64,
    /// Mapped code by file name, with the build-id where the kernel gave it.
    pub(crate) binaries: BTreeMap<Vec<u8>, Option<BuildId>>,
    /// Names of programs that processes executed of which nothing came afterwards, not even that
    /// they were mapped.
    hidden: BTreeMap<u32, Vec<u8>>,
    time_at: Option<usize>,
    /// A record cut by the end of the last piece.
    partial: Vec<u8>,
}

impl Scan {
    /// For samples of `attr` (all events have the same fields up to the time).
    pub(crate) fn new(attr: &Attr) -> Scan {
        let time_at = LeadingFields::new(attr.sample_type).time;
        let time_at = time_at.map(|at| RecordHeader::SIZE + at);
        Scan { time_at, first_time: u64::MAX, ..Scan::default() }
    }

    /// Takes the next piece of the stream.
    pub(crate) fn piece(&mut self, mut bytes: &[u8]) {
        if !self.partial.is_empty() {
            let mut partial = std::mem::take(&mut self.partial);
            // Complete the header first, then the record.
            for part in [RecordHeader::SIZE, 0] {
                let want = match size_of(&partial) {
                    Some(size) if part == 0 => size,
                    _ => part,
                };
                let missing = want.saturating_sub(partial.len()).min(bytes.len());
                partial.extend_from_slice(&bytes[..missing]);
                bytes = &bytes[missing..];
            }
            match size_of(&partial) {
                Some(size) if size <= partial.len() => self.one(&partial),
                _ => {
                    self.partial = partial;
                    return;
                }
            }
        }
        while let Some(size) = size_of(bytes) {
            if size < RecordHeader::SIZE {
                // Not records: nothing more is known.
                return;
            }
            let Some(record) = bytes.get(..size) else { break };
            self.one(record);
            bytes = &bytes[size..];
        }
        self.partial.extend_from_slice(bytes);
    }

    fn one(&mut self, record: &[u8]) {
        let Ok(h) = RecordHeader::parse(record, Endian::NATIVE) else { return };
        match h.kind {
            RecordKind::SAMPLE => {
                self.samples += 1;
                let time = self.time_at.and_then(|at| Endian::NATIVE.u64_at(record, at));
                if let Some(time) = time {
                    self.first_time = self.first_time.min(time);
                    self.last_time = self.last_time.max(time);
                }
            }
            RecordKind::THROTTLE => self.throttled += 1,
            RecordKind::LOST
            | RecordKind::LOST_SAMPLES
            | RecordKind::MMAP
            | RecordKind::MMAP2
            | RecordKind::COMM => {
                self.sideband(h.kind, h.misc, &record[RecordHeader::SIZE..]);
            }
            _ => {}
        }
    }

    fn sideband(&mut self, kind: RecordKind, misc: Misc, body: &[u8]) {
        let raw = RawRecord { kind, misc, body, endian: Endian::NATIVE };
        match Sideband::parse(&raw) {
            Ok(Some(Sideband::Lost(l))) => self.lost = self.lost.saturating_add(l.lost),
            Ok(Some(Sideband::LostSamples(l))) => {
                self.lost_samples = self.lost_samples.saturating_add(l.lost)
            }
            Ok(Some(Sideband::Comm(c)))
                if misc.0 & Misc::COMM_EXEC != 0 && self.hidden.len() < MOST_BINARIES =>
            {
                self.hidden.insert(c.pid, c.comm.to_vec());
            }
            Ok(Some(Sideband::Mmap(m))) if misc.0 & Misc::MMAP_DATA == 0 => {
                self.hidden.remove(&m.pid);
                if kind != RecordKind::MMAP2 {
                    return;
                }
                let file = m.filename.starts_with(b"/") && !m.filename.starts_with(b"//");
                if (file || m.filename == b"[vdso]") && self.binaries.len() < MOST_BINARIES {
                    let known = self.binaries.entry(m.filename.to_vec()).or_default();
                    *known = known.or(m.build_id);
                }
            }
            _ => {}
        }
    }

    /// Names of programs whose events ended as they were executed.
    pub(crate) fn hidden_programs(&self) -> BTreeSet<&[u8]> {
        self.hidden.values().map(Vec::as_slice).collect()
    }

    /// Takes `len` bytes of `file` from `at`.
    pub(crate) fn file(&mut self, file: &File, mut at: u64, len: u64) -> io::Result<()> {
        let end = at + len;
        let mut buffer = vec![0; CHUNK];
        while at < end {
            let want = (end - at).min(CHUNK as u64) as usize;
            let n = file.read_at(&mut buffer[..want], at)?;
            if n == 0 {
                break;
            }
            self.piece(&buffer[..n]);
            at += n as u64;
        }
        Ok(())
    }
}

fn size_of(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [_, _, _, _, _, _, a, b, ..] => Some(usize::from(u16::from_ne_bytes([*a, *b]))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::SampleType;

    #[test]
    fn pieces_of_any_size_give_the_same() {
        let attr = Attr { sample_type: SampleType::IP | SampleType::TIME, ..Attr::default() };
        let mut stream = Vec::new();
        for time in 5..105u64 {
            stream.extend([9, 0, 0, 0, 0, 0, 24, 0]);
            stream.extend(0u64.to_ne_bytes());
            stream.extend(time.to_ne_bytes());
            stream.extend([2, 0, 0, 0, 0, 0, 24, 0]);
            stream.extend(1u64.to_ne_bytes());
            stream.extend(3u64.to_ne_bytes());
        }
        for size in [1, 7, 8, 9, 31, 4800] {
            let mut scan = Scan::new(&attr);
            stream.chunks(size).for_each(|p| scan.piece(p));
            let got = (scan.samples, scan.lost, scan.first_time, scan.last_time);
            assert_eq!(got, (100, 300, 5, 104), "pieces of {size}");
        }
    }
}
