//! Synthesized records of what existed before the recording began: the kernel's text
//! and modules, and for each process of the target its names and mappings.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use kymo_files::perfdata::write::synth::{MapFacts, Synth};
use kymo_kernel::proc_maps::{self, KernelText, ProcMapping};
use kymo_kernel::system::SystemRoot;
use kymo_kernel::target;
use kymo_model::{BuildId, Mmap, Note, NoteKind};

use crate::options::Target;
use crate::{build_id, container_files};

/// Processes that existed before.
pub(crate) enum ExistingTasks {
    /// None: the command has not started.
    None,
    /// All processes'.
    All,
    /// These threads' processes'.
    Tids(Vec<u32>),
}

impl ExistingTasks {
    /// Those that events of `target` are of; `tids` are the threads they are opened for.
    pub(crate) fn of(target: &Target, tids: &[u32]) -> ExistingTasks {
        match target {
            Target::Command => ExistingTasks::None,
            Target::System | Target::Cgroups(_) => ExistingTasks::All,
            Target::Processes(_) | Target::Threads(_) => ExistingTasks::Tids(tids.to_vec()),
        }
    }
}

/// Mappings of processes that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToldMappings {
    /// None: addresses are not resolved.
    None,
    /// Those with code.
    Code,
    /// Those with data, too.
    All,
}

/// A mount namespace: device and inode.
type Namespace = (u64, u64);

/// Build-ids of files, by path and, where it is not this process's own, mount namespace.
struct KnownBuildIds {
    own: Option<Namespace>,
    found: BTreeMap<(Option<Namespace>, Vec<u8>), Option<BuildId>>,
}

/// Writer of synthesized records.
pub(crate) struct Synthesizer<'a> {
    pub(crate) synth: Synth,
    /// Takes the records.
    pub(crate) record: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
    /// State build-ids in place of inodes, as the kernel was asked to.
    pub(crate) build_ids: bool,
    /// Selection of mappings.
    pub(crate) mappings: ToldMappings,
    pub(crate) timeout: Duration,
}

impl Synthesizer<'_> {
    /// The kernel and its modules.
    pub(crate) fn kernel(&mut self, notes: &mut Vec<Note>) -> io::Result<()> {
        self.kernel_at(proc_maps::kernel_text(), notes)
    }

    /// Synthesizes the kernel's mapping from its text, which was already searched for.
    pub(crate) fn kernel_at(
        &mut self,
        text: io::Result<Option<KernelText>>,
        notes: &mut Vec<Note>,
    ) -> io::Result<()> {
        match text {
            Ok(Some(text)) => {
                let name = format!("[kernel.kallsyms]{}", text.reference);
                let len = text.end - text.start;
                let record = self.synth.kernel_mmap(text.start, len, text.start, name.as_bytes());
                (self.record)(record)?;
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
            (self.record)(record)?;
        }
        Ok(())
    }

    /// All cgroups.
    pub(crate) fn cgroups(&mut self) -> io::Result<()> {
        target::cgroups()
            .try_for_each(|(id, path)| (self.record)(self.synth.cgroup(id, path.as_bytes())))
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
        let own = SystemRoot::machine().mount_namespace(std::process::id());
        let mut ids = KnownBuildIds { own, found: BTreeMap::new() };
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

    /// Writes one process; returns whether time ran out.
    fn process(&mut self, pid: u32, ids: &mut KnownBuildIds) -> io::Result<bool> {
        let Ok(main) = proc_maps::status(pid) else { return Ok(false) };
        for tid in proc_maps::threads(pid).unwrap_or_default() {
            let Ok(s) = proc_maps::status(tid) else { continue };
            let parent = if tid == pid { (main.ppid, main.ppid) } else { (pid, pid) };
            (self.record)(self.synth.fork(pid, tid, parent.0, parent.1))?;
            (self.record)(self.synth.comm(pid, tid, &s.comm))?;
        }
        if !main.has_memory || self.mappings == ToldMappings::None {
            return Ok(false);
        }
        let Ok(maps) = proc_maps::maps(pid, self.timeout) else { return Ok(false) };
        for m in &maps.mappings {
            if m.executable() || (self.mappings == ToldMappings::All && m.prot & 1 != 0) {
                self.mapping(pid, m, ids)?;
            }
        }
        Ok(maps.cut_short)
    }

    fn mapping(&mut self, pid: u32, m: &ProcMapping, ids: &mut KnownBuildIds) -> io::Result<()> {
        let mut build_id = None;
        if self.build_ids && m.path.starts_with(b"/") {
            use std::os::unix::ffi::OsStrExt;
            let system = SystemRoot::machine();
            let elsewhere = system.mount_namespace(pid).filter(|it| Some(*it) != ids.own);
            let path = Path::new(std::ffi::OsStr::from_bytes(&m.path));
            let mapped = || {
                let file = container_files::open(pid, (m.start, m.end), path).ok();
                file.and_then(|file| build_id::of_open(&file))
            };
            build_id = match Mmap::names_removed(&m.path) {
                // Several files may have had that name.
                true => mapped(),
                false => {
                    let known = ids.found.entry((elsewhere, m.path.clone()));
                    // A file of this machine at a path of another is another one.
                    let of = |elsewhere| match elsewhere {
                        None => build_id::of_file(path),
                        Some(_) => mapped(),
                    };
                    *known.or_insert_with(|| of(elsewhere))
                }
            };
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
        (self.record)(self.synth.mmap2(&facts))
    }
}
