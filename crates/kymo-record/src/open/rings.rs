//! Rings of a recording: one on each CPU that all its events share, and one more for
//! events whose ring overwrites, and for those of the whole machine beside those of tasks.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use kymo_files::perfdata::write::EventMeta;
use kymo_files::perfdata::write::update::IdPlace;
use kymo_kernel::descriptors::{self, PollFlags, readable_fd};
use kymo_kernel::perf_event::PerfEvent;
use kymo_kernel::perf_ring::{MapError, PerfRing, RingMode};
use kymo_model::{AttrFlags, Note, NoteKind, ReadFormat};

use super::{EventInstance, EventSet, PlannedEvent};
use crate::error::RecordError;

/// Ring sizes tried in turn when none was asked for: 2 MiB where we may,
/// perf's 512 KiB otherwise, and less where not even that may be locked.
const DEFAULT_PAGES: [usize; 6] = [512, 128, 64, 32, 16, 8];
const PERF_PAGES: usize = 128;

/// Options of mapping rings.
#[derive(Debug)]
pub(crate) struct RingOptions<'a> {
    /// Data pages; none for what may be locked.
    pub(crate) pages: Option<usize>,
    /// CPUs in the order of the recording.
    pub(crate) cpus: &'a [u32],
}

/// A ring and the event it belongs to: its index in the set, and that of its instance.
#[derive(Debug)]
pub(crate) struct EventRing {
    pub(crate) ring: PerfRing,
    /// Whether the events are system-wide, beside those of tasks.
    pub(crate) is_apart: bool,
    owner: (usize, usize),
}

/// Opened events and the rings they write to.
#[derive(Debug)]
pub(crate) struct RingSet {
    pub(crate) set: EventSet,
    pub(crate) rings: Vec<EventRing>,
    pub(crate) events: Vec<EventMeta>,
    /// CPU and thread for which each instance was opened.
    pub(crate) index: Vec<IdPlace>,
}

impl RingSet {
    /// Maps the rings of `set`.
    pub(crate) fn map(
        set: EventSet,
        options: &RingOptions<'_>,
        notes: &mut Vec<Note>,
    ) -> Result<RingSet, RecordError> {
        if set.is_empty() {
            return Err(RecordError::Nothing);
        }
        let mut rings = Vec::new();
        let mut owners: BTreeMap<(Option<u32>, bool, bool), usize> = BTreeMap::new();
        for (n, event) in set.events.iter().enumerate() {
            let overwrites = event.planned.overwrites();
            // However many come of the whole machine, those of tasks are not lost for it.
            let is_apart = event.planned.spec.terms.system_wide;
            for (m, instance) in event.instances.iter().enumerate() {
                let Some(event) = instance.event() else { continue };
                let key = (instance.place.cpu, overwrites, is_apart);
                if let Some(owner) = owners.get(&key).and_then(|&ring| owner(&set, &rings, ring)) {
                    event.set_output(owner).map_err(|source| RecordError::System {
                        what: "cannot share a ring",
                        source,
                    })?;
                    continue;
                }
                let mode = if overwrites { RingMode::Overwrite } else { RingMode::Keep };
                let ring = map(event.as_fd(), options.pages, mode, notes)?;
                owners.insert(key, rings.len());
                rings.push(EventRing { ring, is_apart, owner: (n, m) });
            }
        }
        let events = set.events.iter().map(|e| metadata(&e.planned, &e.instances)).collect();
        let index = index(&set, options.cpus);
        Ok(RingSet { set, rings, events, index })
    }

    /// Number of records of each event that the kernel lost, in the order of the events, where it
    /// counts that (Linux 6.0). The LOST records in the rings miss the last losses.
    pub(crate) fn lost_by_event(&self) -> Option<Vec<u64>> {
        let mut lost = vec![0u64; self.set.events.len()];
        for (n, instance) in self.set.open_instances() {
            let planned = &self.set.events.get(n)?.planned;
            let format = planned.attr.read_format;
            if !format.contains(ReadFormat::LOST) || planned.overwrites() {
                return None;
            }
            // A group's read has all; the others are read themselves.
            let read = instance.event()?.read(format).ok()?;
            let sum = lost.get_mut(n)?;
            *sum = sum.saturating_add(read.values.first()?.2?);
        }
        Some(lost)
    }

    /// Number of lost records of all events together.
    pub(crate) fn lost(&self) -> Option<u64> {
        Some(self.lost_by_event()?.into_iter().fold(0, u64::saturating_add))
    }

    /// The descriptor of a ring's owner, to wait on.
    pub(crate) fn fd(&self, ring: &EventRing) -> Option<BorrowedFd<'_>> {
        instance(&self.set, ring.owner)?.event().map(AsFd::as_fd)
    }

    /// Waits at most so long until a ring is to be read or one of `others` is ready; returns which
    /// of these are. `hung` are rings whose owner has ended, which are not waited for.
    pub(crate) fn wait(
        &self,
        others: &[BorrowedFd<'_>],
        most: Duration,
        hung: &mut [bool],
    ) -> io::Result<Vec<bool>> {
        let mut fds: Vec<_> = others.iter().map(|fd| readable_fd(*fd)).collect();
        let mut of_ring = Vec::new();
        for (i, ring) in self.rings.iter().enumerate() {
            // An overwritten ring has nothing to be woken for.
            if ring.ring.mode() == RingMode::Keep
                && hung.get(i) == Some(&false)
                && let Some(fd) = self.fd(ring)
            {
                of_ring.push(i);
                fds.push(readable_fd(fd));
            }
        }
        descriptors::wait(&mut fds, most)?;
        let (others, rings) = fds.split_at(others.len());
        for (fd, i) in rings.iter().zip(of_ring) {
            if let Some(hung) = hung.get_mut(i) {
                *hung |= fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
            }
        }
        Ok(others.iter().map(|fd| fd.revents().contains(PollFlags::IN)).collect())
    }

    /// Holds (or resumes) the rings that overwrite.
    pub(crate) fn pause(&self, paused: bool) -> io::Result<()> {
        for ring in self.rings.iter().filter(|r| r.ring.mode() == RingMode::Overwrite) {
            if let Some(fd) = self.fd(ring) {
                PerfRing::pause(fd, paused)?;
            }
        }
        Ok(())
    }
}

impl PlannedEvent {
    fn overwrites(&self) -> bool {
        self.attr.flags.contains(AttrFlags::WRITE_BACKWARD)
    }
}

fn instance(set: &EventSet, at: (usize, usize)) -> Option<&EventInstance> {
    set.events.get(at.0)?.instances.get(at.1)
}

fn owner<'a>(set: &'a EventSet, rings: &[EventRing], ring: usize) -> Option<&'a PerfEvent> {
    instance(set, rings.get(ring)?.owner)?.event()
}

/// An event as the recording describes it.
fn metadata(planned: &PlannedEvent, instances: &[EventInstance]) -> EventMeta {
    EventMeta {
        name: planned.spec.name.clone(),
        attr: planned.attr.clone(),
        ids: instances.iter().filter_map(|i| i.open.as_ref().map(|(_, id)| *id)).collect(),
        unit: planned.spec.unit.clone(),
        scale: planned.spec.scale,
        cpus: planned.spec.cpus.clone(),
    }
}

/// CPU and thread of each instance, ring by ring.
fn index(set: &EventSet, cpus: &[u32]) -> Vec<IdPlace> {
    let place = |instance: &EventInstance| {
        let (_, id) = instance.open.as_ref()?;
        let cpu = instance.place.cpu?;
        let ring = cpus.iter().position(|c| *c == cpu)? as u64;
        Some(IdPlace { id: *id, ring, cpu, tid: instance.place.pid() })
    };
    let mut index: Vec<IdPlace> = set.open_instances().filter_map(|(_, i)| place(i)).collect();
    index.sort_by_key(|p| p.ring);
    index
}

/// Maps a ring; without a size asked for, settles on what may be locked.
fn map(
    event: BorrowedFd<'_>,
    pages: Option<usize>,
    mode: RingMode,
    notes: &mut Vec<Note>,
) -> Result<PerfRing, MapError> {
    if let Some(pages) = pages {
        return PerfRing::map(event, pages, mode);
    }
    let mut last = None;
    for pages in DEFAULT_PAGES {
        match PerfRing::map(event, pages, mode) {
            Ok(ring) => {
                if pages < PERF_PAGES {
                    notes.push(Note::choice(
                        NoteKind::Mlock,
                        format!("rings of {pages} pages only: no more memory may be locked"),
                        Some("raise /proc/sys/kernel/perf_event_mlock_kb or `ulimit -l`".into()),
                    ));
                }
                return Ok(ring);
            }
            Err(e @ (MapError::Locked { .. } | MapError::Os { .. })) => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or(MapError::Size(0)))
}
