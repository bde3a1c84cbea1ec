//! Overview of a perf.data: its records by kind, its samples by event, its tasks and their mappings
//! (`report --stats`, `--tasks`, `--mmaps`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use kymo_events::ctf::write_printable;
use kymo_files::perfdata::{Entry, PerfData, PerfDataReadError, PerfDataReadStats, RecordOrder};
use kymo_model::{BuildId, RecordKind, Sideband};

/// A mapping, as it was recorded.
#[derive(Clone, Debug)]
pub struct RecordedMapping {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
    /// `PROT_*`, where recorded.
    pub prot: Option<u32>,
    /// `MAP_*`, where recorded.
    pub flags: Option<u32>,
    /// Inode, where recorded.
    pub inode: Option<u64>,
    /// Build-id, where recorded.
    pub build_id: Option<BuildId>,
    /// Name of the file.
    pub file: String,
}

/// A task, as it was recorded.
#[derive(Clone, Debug, Default)]
pub struct RecordedTask {
    /// Process.
    pub pid: u32,
    /// Process that it was started by, where that was recorded.
    pub parent: Option<u32>,
    /// Its last name.
    pub comm: String,
    /// Mappings of the process, in the order of the recording; at its first thread only.
    pub mappings: Vec<RecordedMapping>,
}

/// Counts of records, and tasks.
#[derive(Debug, Default)]
pub struct RecordOverview {
    /// Number of records by kind.
    pub kinds: BTreeMap<RecordKind, u64>,
    /// Number of samples by event: its name, and how many.
    pub samples: Vec<(String, u64)>,
    /// Tasks by thread.
    pub tasks: BTreeMap<u32, RecordedTask>,
    /// Counts of the records that were read.
    pub read: PerfDataReadStats,
}

impl RecordOverview {
    /// Reads a recording.
    pub fn read(file: &mut PerfData) -> Result<RecordOverview, PerfDataReadError> {
        kymo_events::map(file);
        let mut overview = RecordOverview::default();
        let read = file.for_each(RecordOrder::Time, &mut |entry| {
            overview.add(entry);
            ControlFlow::Continue(())
        })?;
        for (kind, n) in
            [RecordKind::COMPRESSED, RecordKind::COMPRESSED2].into_iter().zip(read.compressed)
        {
            if n > 0 {
                overview.kinds.insert(kind, n);
            }
        }
        overview.read = read;
        // Attributes may come late, in a pipe.
        for (event, count) in file.events().iter().zip(&mut overview.samples) {
            count.0.clone_from(&event.name);
        }
        Ok(overview)
    }

    /// Number of all records.
    pub fn total(&self) -> u64 {
        self.kinds.values().sum()
    }

    fn add(&mut self, entry: &Entry<'_>) {
        *self.kinds.entry(entry.raw.kind).or_default() += 1;
        if entry.raw.kind == RecordKind::SAMPLE {
            if self.samples.len() <= entry.event {
                self.samples.resize(entry.event + 1, Default::default());
            }
            if let Some((_, count)) = self.samples.get_mut(entry.event) {
                *count += 1;
            }
            return;
        }
        match Sideband::parse(&entry.raw) {
            Ok(Some(Sideband::Comm(comm))) => {
                self.task(comm.pid, comm.tid).comm = printable(comm.comm);
            }
            Ok(Some(Sideband::Fork(fork))) => {
                let parent_name = self.tasks.get(&fork.ptid).map(|t| t.comm.clone());
                let task = self.task(fork.pid, fork.tid);
                // A thread is of its process; what perf reads in /proc says 0 of the first ones.
                task.parent = Some(fork.ppid).filter(|ppid| *ppid != fork.pid && *ppid != 0);
                if task.comm.is_empty() {
                    task.comm = parent_name.unwrap_or_default();
                }
            }
            Ok(Some(Sideband::Mmap(map))) if map.pid != u32::MAX => {
                let mapping = RecordedMapping {
                    start: map.start,
                    len: map.len,
                    offset: map.pgoff,
                    prot: map.prot,
                    flags: map.flags,
                    inode: map.inode.map(|(_, _, inode, _)| inode),
                    build_id: map.build_id,
                    file: printable(map.filename),
                };
                self.task(map.pid, map.pid).mappings.push(mapping);
            }
            _ => {}
        }
    }

    fn task(&mut self, pid: u32, tid: u32) -> &mut RecordedTask {
        let task = self.tasks.entry(tid).or_default();
        task.pid = pid;
        task
    }
}

/// A recorded name as it may be shown: it is text of others.
fn printable(name: &[u8]) -> String {
    let mut text = Vec::new();
    write_printable(&mut text, name);
    String::from_utf8_lossy(&text).into_owned()
}
