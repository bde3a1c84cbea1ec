//! Synthesized records of what existed before the recording began: the kernel's text
//! and modules, and for each process of the target its names and mappings.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use kymo_files::perfdata::write::PerfDataWriter;
use kymo_files::perfdata::write::synth::{MapFacts, Synth};
use kymo_kernel::proc_maps::{self, ProcMapping};
use kymo_model::{BuildId, Note, NoteKind};

use crate::build_id;

/// Processes that existed before.
pub(crate) enum ExistingTasks {
    /// Nobody's: the command has not begun.
    None,
    /// All processes'.
    All,
    /// These threads' processes'.
    Tids(Vec<u32>),
}

/// Writer of synthesized records.
pub(crate) struct Synthesizer<'a> {
    pub(crate) synth: Synth,
    pub(crate) writer: &'a mut PerfDataWriter,
    /// State build-ids in place of inodes, as the kernel was asked to.
    pub(crate) build_ids: bool,
    /// Data mappings too.
    pub(crate) data: bool,
    pub(crate) timeout: Duration,
}

impl Synthesizer<'_> {
    /// The kernel and its modules.
    pub(crate) fn kernel(&mut self, notes: &mut Vec<Note>) -> io::Result<()> {
        match proc_maps::kernel_text() {
            Ok(Some(text)) => {
                let name = format!("[kernel.kallsyms]{}", text.reference);
                let len = text.end - text.start;
                let record = self.synth.kernel_mmap(text.start, len, text.start, name.as_bytes());
                self.writer.record(record)?;
            }
            _ => notes.push(Note::doubt(
                NoteKind::KernelSymbols,
                "kernel addresses are hidden: kernel functions will have no names",
                Some("run as root, or set kernel.kptr_restrict = 0".into()),
            )),
        }
        for m in proc_maps::modules() {
            let name = format!("[{}]", m.name);
            let record = self.synth.kernel_mmap(m.start, m.size, 0, name.as_bytes());
            self.writer.record(record)?;
        }
        Ok(())
    }

    /// The processes; those that end meanwhile are left out.
    pub(crate) fn tasks(&mut self, whose: &ExistingTasks, notes: &mut Vec<Note>) -> io::Result<()> {
        let pids = match whose {
            ExistingTasks::None => return Ok(()),
            ExistingTasks::All => proc_maps::processes()?,
            ExistingTasks::Tids(tids) => {
                let mut pids: Vec<u32> =
                    tids.iter().filter_map(|&t| Some(proc_maps::status(t).ok()?.tgid)).collect();
                pids.sort_unstable();
                pids.dedup();
                pids
            }
        };
        let mut ids = BTreeMap::new();
        let mut slow = 0;
        for pid in pids {
            slow += u32::from(self.process(pid, &mut ids)?);
        }
        if slow > 0 {
            notes.push(Note::doubt(
                NoteKind::Maps,
                format!("the mappings of {slow} processes could not be read in time"),
                Some("a larger --proc-map-timeout".into()),
            ));
        }
        Ok(())
    }

    /// One process; tells whether time ran out.
    fn process(
        &mut self,
        pid: u32,
        ids: &mut BTreeMap<Vec<u8>, Option<BuildId>>,
    ) -> io::Result<bool> {
        let Ok(main) = proc_maps::status(pid) else { return Ok(false) };
        for tid in proc_maps::threads(pid).unwrap_or_default() {
            let Ok(s) = proc_maps::status(tid) else { continue };
            let parent = if tid == pid { (main.ppid, main.ppid) } else { (pid, pid) };
            self.writer.record(self.synth.fork(pid, tid, parent.0, parent.1))?;
            self.writer.record(self.synth.comm(pid, tid, &s.comm))?;
        }
        if !main.has_memory {
            return Ok(false);
        }
        let Ok(maps) = proc_maps::maps(pid, self.timeout) else { return Ok(false) };
        for m in &maps.mappings {
            if m.executable() || (self.data && m.prot & 1 != 0) {
                self.mapping(pid, m, ids)?;
            }
        }
        Ok(maps.cut_short)
    }

    fn mapping(
        &mut self,
        pid: u32,
        m: &ProcMapping,
        ids: &mut BTreeMap<Vec<u8>, Option<BuildId>>,
    ) -> io::Result<()> {
        let mut build_id = None;
        if self.build_ids && m.path.starts_with(b"/") {
            use std::os::unix::ffi::OsStrExt;
            build_id = *ids.entry(m.path.clone()).or_insert_with_key(|path| {
                build_id::of_file(Path::new(std::ffi::OsStr::from_bytes(path)))
            });
        }
        let name: &[u8] = if m.path.is_empty() { b"//anon" } else { &m.path };
        let facts = MapFacts {
            pid,
            tid: pid,
            start: m.start,
            len: m.end - m.start,
            pgoff: m.offset,
            inode: (m.major, m.minor, m.inode),
            build_id,
            prot: m.prot,
            flags: m.flags,
            name,
        };
        self.writer.record(self.synth.mmap2(&facts))
    }
}
