//! Records that we, not the kernel, make: what existed before the recording
//! began, and the marks between passes over the rings.

use kymo_model::{Attr, BuildId, Misc, RecordHeader, RecordKind, SampleLayout, SampleType};

/// A record with `body`, padded to eight bytes; `None` if it is too large for one.
pub fn record(kind: RecordKind, misc: u16, body: &[u8]) -> Option<Vec<u8>> {
    let len = (RecordHeader::SIZE + body.len()).next_multiple_of(8);
    let size = u16::try_from(len).ok()?;
    let mut b = Vec::with_capacity(len);
    b.extend(RecordHeader { kind, misc: Misc(misc), size }.to_bytes());
    b.extend_from_slice(body);
    b.resize(len, 0);
    Some(b)
}

fn mark(kind: RecordKind) -> [u8; 8] {
    RecordHeader { kind, misc: Misc(0), size: 8 }.to_bytes()
}

/// FINISHED_ROUND: no later record is older than those before the last mark.
pub fn finished_round() -> [u8; 8] {
    mark(RecordKind::FINISHED_ROUND)
}

/// FINISHED_INIT: the state from before the recording is complete.
pub fn finished_init() -> [u8; 8] {
    mark(RecordKind::FINISHED_INIT)
}

/// A mapping to tell of.
#[derive(Clone, Debug, Default)]
pub struct MapFacts<'a> {
    /// Process; `u32::MAX` for the kernel.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub pgoff: u64,
    /// Device and inode.
    pub inode: (u32, u32, u64),
    /// Build-id, in place of device and inode.
    pub build_id: Option<BuildId>,
    /// `PROT_*`.
    pub prot: u32,
    /// `MAP_*`.
    pub flags: u32,
    /// File name.
    pub name: &'a [u8],
}

/// Makes records with the trailer that `sample_id_all` promises.
#[derive(Clone, Debug)]
pub struct Synth {
    attr: Attr,
    id: u64,
    time: u64,
    buffer: Vec<u8>,
}

impl Synth {
    /// For the event that the records are to belong to: its attribute and one of its ids.
    pub fn new(attr: &Attr, id: u64) -> Synth {
        Synth { attr: attr.clone(), id, time: 0, buffer: Vec::new() }
    }

    /// Sets the time of the records that follow; it is 0 before: before everything.
    pub fn set_time(&mut self, time: u64) {
        self.time = time;
    }

    fn start(&mut self) -> &mut Vec<u8> {
        self.buffer.clear();
        self.buffer.resize(RecordHeader::SIZE, 0);
        &mut self.buffer
    }

    fn name(&mut self, name: &[u8]) {
        self.buffer.extend_from_slice(&name[..name.len().min(4095)]);
        self.buffer.resize((self.buffer.len() + 1).next_multiple_of(8), 0);
    }

    /// Appends the trailer and fills in the header.
    fn end(&mut self, kind: RecordKind, misc: u16, pid: u32, tid: u32) -> &[u8] {
        for field in SampleLayout::trailing_fields(&self.attr) {
            let value = match field {
                SampleType::TID => {
                    self.buffer.extend(pid.to_ne_bytes());
                    self.buffer.extend(tid.to_ne_bytes());
                    continue;
                }
                SampleType::ID | SampleType::STREAM_ID | SampleType::IDENTIFIER => self.id,
                SampleType::TIME => self.time,
                _ => 0,
            };
            self.buffer.extend(value.to_ne_bytes());
        }
        let size = self.buffer.len() as u16;
        self.buffer[..8].copy_from_slice(&RecordHeader { kind, misc: Misc(misc), size }.to_bytes());
        &self.buffer
    }

    /// COMM: a thread and its name.
    pub fn comm(&mut self, pid: u32, tid: u32, comm: &[u8]) -> &[u8] {
        let b = self.start();
        b.extend(pid.to_ne_bytes());
        b.extend(tid.to_ne_bytes());
        self.name(comm);
        self.end(RecordKind::COMM, 0, pid, tid)
    }

    /// FORK: a thread and where it came from.
    pub fn fork(&mut self, pid: u32, tid: u32, ppid: u32, ptid: u32) -> &[u8] {
        let b = self.start();
        [pid, ppid, tid, ptid].iter().for_each(|v| b.extend(v.to_ne_bytes()));
        b.extend(0u64.to_ne_bytes());
        self.end(RecordKind::FORK, Misc::FORK_EXEC, pid, tid)
    }

    /// LOST: a number of records that the kernel has not reported itself.
    pub fn lost(&mut self, records: u64) -> &[u8] {
        let id = self.id;
        let b = self.start();
        b.extend(id.to_ne_bytes());
        b.extend(records.to_ne_bytes());
        self.end(RecordKind::LOST, 0, 0, 0)
    }

    /// LOST_SAMPLES: what an event lost in all, without a time.
    pub fn lost_samples(&mut self, samples: u64) -> &[u8] {
        let b = self.start();
        b.extend(samples.to_ne_bytes());
        self.end(RecordKind::LOST_SAMPLES, 0, 0, 0)
    }

    /// CGROUP: a cgroup's id and path.
    pub fn cgroup(&mut self, id: u64, path: &[u8]) -> &[u8] {
        let b = self.start();
        b.extend(id.to_ne_bytes());
        self.name(path);
        self.end(RecordKind::CGROUP, 0, 0, 0)
    }

    /// MMAP2: a mapping of a process.
    pub fn mmap2(&mut self, m: &MapFacts<'_>) -> &[u8] {
        let mut misc = Misc::USER;
        if m.prot & 4 == 0 {
            misc |= Misc::MMAP_DATA;
        }
        let b = self.start();
        b.extend(m.pid.to_ne_bytes());
        b.extend(m.tid.to_ne_bytes());
        [m.start, m.len, m.pgoff].iter().for_each(|v| b.extend(v.to_ne_bytes()));
        match &m.build_id {
            Some(id) => {
                misc |= Misc::MMAP_BUILD_ID;
                b.extend([id.as_bytes().len() as u8, 0, 0, 0]);
                let at = b.len();
                b.extend_from_slice(id.as_bytes());
                b.resize(at + 20, 0);
            }
            None => {
                b.extend(m.inode.0.to_ne_bytes());
                b.extend(m.inode.1.to_ne_bytes());
                b.extend(m.inode.2.to_ne_bytes());
                b.extend(0u64.to_ne_bytes());
            }
        }
        b.extend(m.prot.to_ne_bytes());
        b.extend(m.flags.to_ne_bytes());
        self.name(m.name);
        self.end(RecordKind::MMAP2, misc, m.pid, m.tid)
    }

    /// MMAP: the kernel's text or a module.
    pub fn kernel_mmap(&mut self, start: u64, len: u64, pgoff: u64, name: &[u8]) -> &[u8] {
        let b = self.start();
        b.extend(u32::MAX.to_ne_bytes());
        b.extend(0u32.to_ne_bytes());
        [start, len, pgoff].iter().for_each(|v| b.extend(v.to_ne_bytes()));
        self.name(name);
        self.end(RecordKind::MMAP, Misc::KERNEL, u32::MAX, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kymo_model::{AttrFlags, Endian, RawRecord, Sideband};

    #[test]
    fn what_is_made_is_read_back_with_its_trailer() {
        let attr = Attr {
            sample_type: SampleType::TID | SampleType::TIME | SampleType::IDENTIFIER,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let mut synth = Synth::new(&attr, 77);
        let id = BuildId::new(&[3; 20]);
        let facts = MapFacts {
            pid: 1,
            tid: 2,
            start: 0x1000,
            len: 0x2000,
            build_id: Some(id),
            prot: 5,
            name: b"/bin/true",
            ..Default::default()
        };
        let bytes = synth.mmap2(&facts).to_vec();
        let h = RecordHeader::parse(&bytes, Endian::NATIVE).unwrap();
        assert_eq!((usize::from(h.size), bytes.len() % 8), (bytes.len(), 0));
        let raw =
            RawRecord { kind: h.kind, misc: h.misc, body: &bytes[8..], endian: Endian::NATIVE };
        let Ok(Some(Sideband::Mmap(m))) = Sideband::parse(&raw) else { panic!("not a mapping") };
        assert_eq!(
            (m.pid, m.start, m.build_id, m.filename),
            (1, 0x1000, Some(id), &b"/bin/true"[..])
        );
        let trailer = raw.sample_id(&attr).unwrap();
        assert_eq!((trailer.tid, trailer.time, trailer.id), (Some((1, 2)), Some(0), Some(77)));
    }
}
