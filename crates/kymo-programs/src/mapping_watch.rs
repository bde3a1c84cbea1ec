//! Mappings of a command and of what it starts, as the kernel records them: they are known also of
//! processes that end before anything of them is printed.

use std::convert::Infallible;
use std::os::fd::AsFd as _;

use kymo_kernel::cpus;
use kymo_kernel::perf_event::{OpenFlags, PerfEvent};
use kymo_kernel::perf_ring::{PerfRing, RingMode};
use kymo_kernel::proc_maps::ProcMapping;
use kymo_model::{
    Attr, AttrFlags, Endian, EventType, RawRecord, RecordHeader, RecordKind, SampleType, Sideband,
    sw,
};
use rustc_hash::FxHashMap;

/// Pages of the ring of each CPU.
const PAGES: usize = 64;
/// Those of rings of several threads.
const FEW_PAGES: usize = 8;
/// Mappings of a process that are kept.
const MOST: usize = 1 << 16;
/// `PROT_EXEC`.
pub(crate) const EXECUTABLE: u32 = 4;

/// Rings of records on mappings.
pub(crate) struct MappingWatch {
    // A ring before its event.
    rings: Vec<(PerfRing, PerfEvent)>,
    attr: Attr,
}

impl MappingWatch {
    /// Watches a process that has not executed its program yet; `None` where the kernel refuses.
    pub(crate) fn open(pid: u32) -> Option<MappingWatch> {
        MappingWatch::with(&[pid], PAGES)
    }

    /// Watches threads of a process, and what they start; `None` where the kernel refuses.
    pub(crate) fn of_threads(threads: &[u32]) -> Option<MappingWatch> {
        MappingWatch::with(threads, if threads.len() > 1 { FEW_PAGES } else { PAGES })
    }

    fn with(threads: &[u32], pages: usize) -> Option<MappingWatch> {
        let attr = Attr {
            kind: EventType::SOFTWARE,
            config: sw::DUMMY,
            sample_type: SampleType::TIME,
            sample_period: 1,
            flags: AttrFlags::INHERIT
                | AttrFlags::MMAP
                | AttrFlags::MMAP2
                | AttrFlags::COMM
                | AttrFlags::COMM_EXEC
                | AttrFlags::TASK
                | AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let mut rings = Vec::new();
        for cpu in cpus::online() {
            for thread in threads {
                let (thread, cpu) = (*thread as i32, cpu as i32);
                let event = PerfEvent::open(&attr, thread, cpu, None, OpenFlags::NONE).ok()?;
                let ring = PerfRing::map(event.as_fd(), pages, RingMode::Keep).ok()?;
                rings.push((ring, event));
            }
        }
        Some(MappingWatch { rings, attr })
    }

    /// Hands on the records that wait, by their times.
    pub(crate) fn read(&mut self, take: &mut dyn FnMut(&RawRecord<'_>)) {
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        for (ring, _) in &mut self.rings {
            let attr = &self.attr;
            let done = ring.read(|first, second| {
                split(&[first, second].concat(), attr, &mut records);
                Ok::<_, Infallible>(())
            });
            done.unwrap_or_else(|never| match never {});
        }
        records.sort_by_key(|record| record.0);
        for (_, bytes) in &records {
            if let Some(record) = raw(bytes) {
                take(&record);
            }
        }
    }
}

/// Records of a ring, each with its time.
fn split(mut bytes: &[u8], attr: &Attr, records: &mut Vec<(u64, Vec<u8>)>) {
    while let Ok(header) = RecordHeader::parse(bytes, Endian::NATIVE) {
        let size = usize::from(header.size);
        let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size >= 8) else {
            return;
        };
        let time = raw(record).and_then(|record| record.sample_id(attr).ok()?.time);
        records.push((time.unwrap_or(0), record.to_vec()));
        bytes = rest;
    }
}

fn raw(bytes: &[u8]) -> Option<RawRecord<'_>> {
    let header = RecordHeader::parse(bytes, Endian::NATIVE).ok()?;
    let body = bytes.get(8..)?;
    Some(RawRecord { kind: header.kind, misc: header.misc, body, endian: Endian::NATIVE })
}

/// Applies a record to the mappings of processes.
pub(crate) fn apply(record: &RawRecord<'_>, mappings: &mut FxHashMap<u32, Vec<ProcMapping>>) {
    if record.kind == RecordKind::LOST {
        // What is not known any more is read from /proc.
        return mappings.clear();
    }
    match Sideband::parse(record) {
        Ok(Some(Sideband::Mmap(new))) if new.prot.is_some_and(|p| p & EXECUTABLE != 0) => {
            let own = mappings.entry(new.pid).or_default();
            let end = new.start.saturating_add(new.len);
            own.retain(|old| old.end <= new.start || old.start >= end);
            if own.len() >= MOST {
                return;
            }
            let mapping = ProcMapping {
                start: new.start,
                end,
                prot: new.prot.unwrap_or(0),
                flags: new.flags.unwrap_or(0),
                offset: new.pgoff,
                path: new.filename.to_vec(),
                ..ProcMapping::default()
            };
            let at = own.partition_point(|old| old.start < new.start);
            own.insert(at, mapping);
        }
        // A new program has none of the old one's.
        Ok(Some(Sideband::Comm(comm))) if comm.exec => _ = mappings.insert(comm.pid, Vec::new()),
        Ok(Some(Sideband::Fork(task))) if task.pid != task.ppid => {
            if let Some(parent) = mappings.get(&task.ppid).cloned() {
                mappings.insert(task.pid, parent);
            }
        }
        _ => {}
    }
}
