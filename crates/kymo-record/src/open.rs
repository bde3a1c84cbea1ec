//! Opening the planned events on every CPU and task, and one ring per CPU that
//! they share.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use kymo_files::perfdata::write::EventMeta;
use kymo_files::perfdata::write::update::IdPlace;
use kymo_kernel::events::explain_refusal;
use kymo_kernel::perf_event::{OpenFlags, PerfEvent};
use kymo_kernel::ring::{MapError, Mode, Ring};
use kymo_model::{AttrFlags, Note, NoteKind, ReadFormat};

use crate::attrs::Planned;
use crate::error::RecordError;

/// Ring sizes tried in turn when none was asked for: 2 MiB where we may,
/// perf's 512 KiB otherwise, and less where not even that may be locked.
const DEFAULT_PAGES: [usize; 6] = [512, 128, 64, 32, 16, 8];
const PERF_PAGES: usize = 128;
/// Of a ring that overwrites.
const BACKWARD: AttrFlags = AttrFlags::WRITE_BACKWARD;

/// One opened event.
struct Instance {
    event: PerfEvent,
    planned: usize,
    leads: bool,
}

/// A ring and the event it belongs to.
pub(crate) struct Buffer {
    pub(crate) ring: Ring,
    owner: usize,
}

/// Everything that is open.
pub(crate) struct Opened {
    instances: Vec<Instance>,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) events: Vec<EventMeta>,
    /// Where each instance was opened.
    pub(crate) index: Vec<IdPlace>,
}

/// On whom and where.
pub(crate) struct Places {
    /// Threads; -1 for all.
    pub(crate) tids: Vec<i32>,
    /// Cgroup directories in place of threads: one for all events, or one for each.
    pub(crate) cgroups: Vec<File>,
    /// CPUs.
    pub(crate) cpus: Vec<u32>,
}

impl Opened {
    /// Opens all; threads that are gone meanwhile are left out.
    pub(crate) fn open(
        plan: &mut [Planned],
        places: &Places,
        pages: Option<usize>,
        notes: &mut Vec<Note>,
    ) -> Result<Opened, RecordError> {
        let mut opened = Opened {
            instances: Vec::new(),
            buffers: Vec::new(),
            events: Vec::new(),
            index: Vec::new(),
        };
        let mut ids: Vec<Vec<u64>> = vec![Vec::new(); plan.len()];
        let mut gone = None;
        let mut pages_now = pages;
        for (ring, &cpu) in places.cpus.iter().enumerate() {
            // Per kind of ring: its owner's index.
            let mut owners: [Option<usize>; 2] = [None, None];
            // Each event has one cgroup, but may have many threads.
            let whom = if places.cgroups.is_empty() { &places.tids[..] } else { &[-1] };
            for &tid in whom {
                let mut leaders: Vec<Option<usize>> = vec![None; plan.len()];
                for i in 0..plan.len() {
                    let Some(p) = plan.get(i) else { break };
                    if p.spec.cpus.as_ref().is_some_and(|c| !c.contains(&cpu)) {
                        continue;
                    }
                    // The tracking event sees the whole CPU, not only a cgroup.
                    let cgroup = places.cgroups.get(i).or(places.cgroups.first());
                    let (pid, flags) = match cgroup.filter(|_| !p.sideband_only) {
                        Some(dir) => (dir.as_raw_fd(), OpenFlags::PID_CGROUP),
                        None => (tid, OpenFlags::NONE),
                    };
                    let leader = p.leader.and_then(|l| leaders.get(l).copied().flatten());
                    let group =
                        leader.and_then(|l| opened.instances.get(l)).map(|l| l.event.as_fd());
                    let opened_now = PerfEvent::open(&p.attr, pid, cpu as i32, group, flags);
                    let event = match opened_now {
                        Ok(event) => event,
                        Err(e) if e.is_gone() && places.tids.len() > 1 => {
                            gone = Some(e);
                            continue;
                        }
                        Err(source) => {
                            return Err(RecordError::Open { event: p.spec.name.clone(), source });
                        }
                    };
                    if let Some(filter) = &p.spec.filter {
                        event.set_filter(filter).map_err(|source| RecordError::Filter {
                            event: p.spec.name.clone(),
                            filter: filter.clone(),
                            why: explain_refusal(&p.spec, filter, plan.iter().map(|p| &p.spec)),
                            source,
                        })?;
                    }
                    let id = event.id();
                    let id = id.map_err(|source| RecordError::System {
                        what: "cannot get an event's id",
                        source,
                    })?;
                    if let Some(ids) = ids.get_mut(i) {
                        ids.push(id);
                    }
                    opened.index.push(IdPlace { id, ring: ring as u64, cpu, tid });
                    let index = opened.instances.len();
                    if let Some(slot) = leaders.get_mut(i) {
                        *slot = Some(index);
                    }
                    let backward = p.attr.flags.contains(BACKWARD);
                    let owner = &mut owners[usize::from(backward)];
                    match owner.and_then(|o| opened.instances.get(o)) {
                        Some(o) => event.set_output(&o.event).map_err(|source| {
                            RecordError::System { what: "cannot share a ring", source }
                        })?,
                        None => {
                            let mode = if backward { Mode::Overwrite } else { Mode::Keep };
                            let ring = map(event.as_fd(), &mut pages_now, mode, notes)?;
                            *owner = Some(index);
                            opened.buffers.push(Buffer { ring, owner: index });
                        }
                    }
                    let leads = p.leader.is_none();
                    opened.instances.push(Instance { event, planned: i, leads });
                }
            }
        }
        if opened.instances.is_empty() {
            return Err(match (gone, plan.first()) {
                (Some(source), Some(p)) => RecordError::Open { event: p.spec.name.clone(), source },
                _ => RecordError::Nothing,
            });
        }
        for (p, ids) in plan.iter().zip(ids) {
            opened.events.push(EventMeta {
                name: p.spec.name.clone(),
                attr: p.attr.clone(),
                ids,
                unit: p.spec.unit.clone(),
                scale: p.spec.scale,
                cpus: p.spec.cpus.clone(),
            });
        }
        Ok(opened)
    }

    /// Starts (or stops) all events; `tracking` chooses those that only tell of tasks.
    pub(crate) fn switch(&self, plan: &[Planned], on: bool, tracking: bool) -> std::io::Result<()> {
        for i in self.instances.iter().filter(|i| i.leads) {
            if plan.get(i.planned).is_some_and(|p| p.sideband_only) != tracking {
                continue;
            }
            if on { i.event.enable()? } else { i.event.disable()? }
        }
        Ok(())
    }

    /// How many records the kernel lost of all events, where it counts that
    /// (Linux 6.0). The LOST records in the rings miss what was lost last.
    pub(crate) fn lost(&self, plan: &[Planned]) -> Option<u64> {
        let mut lost = 0;
        for i in &self.instances {
            let planned = plan.get(i.planned)?;
            let format = planned.attr.read_format;
            if !format.contains(ReadFormat::LOST) || planned.attr.flags.contains(BACKWARD) {
                return None;
            }
            // A group's read tells of all; the others are asked themselves.
            let read = i.event.read(format).ok()?;
            lost += read.values.first()?.2?;
        }
        Some(lost)
    }

    /// The descriptor of a ring's owner, to wait on.
    pub(crate) fn fd(&self, buffer: &Buffer) -> Option<BorrowedFd<'_>> {
        self.instances.get(buffer.owner).map(|i| i.event.as_fd())
    }

    /// Holds (or resumes) the rings that overwrite.
    pub(crate) fn pause(&self, paused: bool) -> std::io::Result<()> {
        for b in self.buffers.iter().filter(|b| b.ring.mode() == Mode::Overwrite) {
            if let Some(fd) = self.fd(b) {
                Ring::pause(fd, paused)?;
            }
        }
        Ok(())
    }
}

/// Maps a ring; without a size asked for, settles on what may be locked.
fn map(
    event: BorrowedFd<'_>,
    pages: &mut Option<usize>,
    mode: Mode,
    notes: &mut Vec<Note>,
) -> Result<Ring, MapError> {
    if let Some(pages) = *pages {
        return Ring::map(event, pages, mode);
    }
    let mut last = None;
    for n in DEFAULT_PAGES {
        match Ring::map(event, n, mode) {
            Ok(ring) => {
                if n < PERF_PAGES {
                    notes.push(Note::choice(
                        NoteKind::Mlock,
                        format!("rings of {n} pages only: no more memory may be locked"),
                        Some("raise /proc/sys/kernel/perf_event_mlock_kb or `ulimit -l`".into()),
                    ));
                }
                // The first ring sets the size of the others, but each may have to be smaller.
                return Ok(ring);
            }
            Err(e @ (MapError::Locked { .. } | MapError::Os { .. })) => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or(MapError::Size(0)))
}
