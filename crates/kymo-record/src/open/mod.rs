//! Opening perf events, for recordings and for counts alike: every planned event on its
//! CPUs, tasks or cgroup, in groups, with its filter, and with what is tried when the
//! kernel refuses (`fallback.rs`). `rings.rs` maps the rings that recordings read.

mod fallback;
mod rings;
mod scope;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use kymo_kernel::events::{CounterSource, EventSpec, explain_refusal};
use kymo_kernel::perf_event::{OpenError, OpenFlags, PerfEvent};
use kymo_model::{Attr, AttrFlags, Note};

use crate::error::RecordError;
pub(crate) use fallback::{OpenPolicy, UserOnly};
use fallback::{Relaxation, alone_note, may_drop_kernel, reads_of_children, relax, user_only_note};
pub(crate) use rings::{EventRing, RingOptions, RingSet};
pub use scope::Cgroup;
pub(crate) use scope::{CounterPlace, CounterScope};

/// An event to be opened.
#[derive(Clone, Debug)]
pub(crate) struct PlannedEvent {
    pub(crate) spec: EventSpec,
    pub(crate) attr: Attr,
    /// Index of the group's leader, for its other members.
    pub(crate) leader: Option<usize>,
    /// Only here to tell what was mapped and which tasks began.
    pub(crate) sideband_only: bool,
    /// The cgroup in which it counts, in place of tasks.
    pub(crate) cgroup: Option<Arc<Cgroup>>,
}

/// An event at one place.
#[derive(Debug)]
pub(crate) struct EventInstance {
    pub(crate) place: CounterPlace,
    /// The open event and its id; none where the task had ended before.
    pub(crate) open: Option<(PerfEvent, u64)>,
    /// It is switched by itself, not by its group's leader.
    leads: bool,
}

impl EventInstance {
    pub(crate) fn event(&self) -> Option<&PerfEvent> {
        self.open.as_ref().map(|(event, _)| event)
    }
}

/// An event at all its places.
#[derive(Debug)]
pub(crate) struct OpenedEvent {
    /// As it was opened, which may be less than was planned.
    pub(crate) planned: PlannedEvent,
    /// Whether the machine has it.
    pub(crate) supported: bool,
    /// The kernel's side was left out for want of permission: `perf_event_paranoid`.
    pub(crate) user_only: Option<i32>,
    pub(crate) instances: Vec<EventInstance>,
}

impl OpenedEvent {
    fn new(planned: PlannedEvent) -> OpenedEvent {
        OpenedEvent { planned, supported: true, user_only: None, instances: Vec::new() }
    }

    /// The instance at a place, which is `hint` where both events have the same places.
    fn at(&self, place: CounterPlace, hint: usize) -> Option<&EventInstance> {
        let is_there = |i: &&EventInstance| i.place == place;
        self.instances
            .get(hint)
            .filter(is_there)
            .or_else(|| self.instances.iter().find(is_there))
            .filter(|i| i.open.is_some())
    }
}

/// All events of a recording or count. Dropping it closes them.
#[derive(Debug, Default)]
pub(crate) struct EventSet {
    pub(crate) events: Vec<OpenedEvent>,
}

impl EventSet {
    /// Opens everything, disabled. Tasks that are gone meanwhile are left out.
    pub(crate) fn open(
        mut plan: Vec<PlannedEvent>,
        scope: &CounterScope,
        policy: OpenPolicy,
        notes: &mut Vec<Note>,
    ) -> Result<EventSet, RecordError> {
        let opener = Opener { scope, policy };
        let opened = match opener.open_all(plan.clone()) {
            Err(RecordError::Open { source, .. })
                if policy.user_only == UserOnly::AllEvents && may_drop_kernel(&source, &plan) =>
            {
                notes.push(user_only_note(&source));
                plan.iter_mut().for_each(PlannedEvent::restrict_to_user);
                opener.open_all(plan.clone())
            }
            other => other,
        }?;
        let is_alone = |(event, planned): (&OpenedEvent, &PlannedEvent)| {
            reads_of_children(&planned.attr) && !reads_of_children(&event.planned.attr)
        };
        if opened.events.iter().zip(&plan).any(is_alone) {
            notes.push(alone_note());
        }
        Ok(opened)
    }

    /// Whether nothing is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open_instances().next().is_none()
    }

    /// All that is open, with the index of its event.
    pub(crate) fn open_instances(&self) -> impl Iterator<Item = (usize, &EventInstance)> {
        self.events
            .iter()
            .enumerate()
            .flat_map(|(i, e)| e.instances.iter().map(move |instance| (i, instance)))
            .filter(|(_, instance)| instance.open.is_some())
    }

    /// Starts (or stops) the events that `chosen` takes; groups by their leaders.
    pub(crate) fn switch(
        &self,
        on: bool,
        chosen: impl Fn(&PlannedEvent) -> bool,
    ) -> io::Result<()> {
        let switch = if on { PerfEvent::enable_group } else { PerfEvent::disable_group };
        self.events
            .iter()
            .filter(|e| chosen(&e.planned))
            .flat_map(|e| &e.instances)
            .filter(|i| i.leads)
            .filter_map(EventInstance::event)
            .try_for_each(switch)
    }
}

impl PlannedEvent {
    /// Leaves the kernel's side out.
    fn restrict_to_user(&mut self) {
        self.attr.flags |= AttrFlags::EXCLUDE_KERNEL;
        if !self.sideband_only {
            self.spec.restrict_to_user();
            self.attr.flags |= self.spec.attr.flags & AttrFlags::EXCLUDE_HV;
        }
    }
}

/// Parameters that all openings of one set share.
struct Opener<'a> {
    scope: &'a CounterScope,
    policy: OpenPolicy,
}

impl Opener<'_> {
    fn open_all(&self, plan: Vec<PlannedEvent>) -> Result<EventSet, RecordError> {
        let specs: Vec<EventSpec> = plan.iter().map(|p| p.spec.clone()).collect();
        let mut set = EventSet::default();
        let mut gone = None;
        for planned in plan {
            let leader = planned.leader.and_then(|l| set.events.get(l));
            let opened = self.open_event(planned, leader, &specs, &mut gone)?;
            set.events.push(opened);
        }
        match gone {
            // Of several tasks some may end meanwhile; without any there is nothing to do.
            Some(error) if set.is_empty() => Err(error),
            _ => Ok(set),
        }
    }

    fn open_event(
        &self,
        planned: PlannedEvent,
        leader: Option<&OpenedEvent>,
        specs: &[EventSpec],
        gone: &mut Option<RecordError>,
    ) -> Result<OpenedEvent, RecordError> {
        let mut opened = OpenedEvent::new(planned);
        if opened.planned.spec.source != CounterSource::Perf {
            return Ok(opened);
        }
        for place in self.scope.places(&opened.planned.spec) {
            let group = leader.and_then(|l| l.at(place, opened.instances.len()));
            let group = group.and_then(EventInstance::event);
            let event = self.open_at(&mut opened, place, group, gone)?;
            let open = match event {
                Some(event) => Some(finish_opening(event, &opened.planned.spec, specs)?),
                None => None,
            };
            opened.instances.push(EventInstance { place, open, leads: group.is_none() });
        }
        if !opened.supported {
            opened.instances.iter_mut().for_each(|i| i.open = None);
        }
        Ok(opened)
    }

    /// Opens an event at one place; gives nothing where it cannot be and that is all right.
    fn open_at(
        &self,
        opened: &mut OpenedEvent,
        place: CounterPlace,
        group: Option<&PerfEvent>,
        gone: &mut Option<RecordError>,
    ) -> Result<Option<PerfEvent>, RecordError> {
        loop {
            let planned = &opened.planned;
            let (pid, flags) = match &planned.cgroup {
                Some(cgroup) => (cgroup.dir.as_raw_fd(), OpenFlags::PID_CGROUP),
                None => (place.pid(), OpenFlags::NONE),
            };
            let mut attr = planned.attr.clone();
            if planned.leader.is_some() && group.is_none() {
                // Its leader is not here to hold it back until the start.
                attr.flags |= self.policy.start;
            }
            let group = group.map(AsFd::as_fd);
            let refusal = match PerfEvent::open(&attr, pid, place.cpu(), group, flags) {
                Ok(event) => return Ok(Some(event)),
                Err(refusal) => refusal,
            };
            match relax(self.policy, opened, place, &refusal) {
                Relaxation::TryAgain => {}
                Relaxation::NotSupported => {
                    opened.supported = false;
                    return Ok(None);
                }
                Relaxation::Gone => {
                    gone.get_or_insert(refused(&opened.planned.spec, refusal));
                    return Ok(None);
                }
                Relaxation::None => return Err(refused(&opened.planned.spec, refusal)),
            }
        }
    }
}

fn refused(spec: &EventSpec, source: OpenError) -> RecordError {
    RecordError::Open { event: spec.name.clone(), source }
}

/// Sets the filter of an open event and asks for its id.
fn finish_opening(
    event: PerfEvent,
    spec: &EventSpec,
    all: &[EventSpec],
) -> Result<(PerfEvent, u64), RecordError> {
    if let Some(filter) = &spec.filter {
        event.set_filter(filter).map_err(|source| RecordError::Filter {
            event: spec.name.clone(),
            filter: filter.clone(),
            why: explain_refusal(spec, filter, all.iter()),
            source,
        })?;
    }
    let id = event.id();
    let id =
        id.map_err(|source| RecordError::System { what: "cannot get an event's id", source })?;
    Ok((event, id))
}
