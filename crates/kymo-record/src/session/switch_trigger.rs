//! Events at which a recording continues in a new file (`--switch-output-event`). They are of the
//! whole machine and in rings of their own: the recording does not have them.

use std::io;
use std::os::fd::BorrowedFd;

use kymo_kernel::cpus;
use kymo_kernel::events::EventSpec;
use kymo_model::{AttrFlags, Note, SampleType};

use crate::error::RecordError;
use crate::open::{
    CounterScope, EventSet, OpenPolicy, PlannedEvent, RingOptions, RingSet, UserOnly,
};

/// Pages of each ring: whether there was an event is all that counts.
const PAGES: usize = 2;

/// Events that are waited for.
#[derive(Debug)]
pub(super) struct SwitchTrigger {
    rings: RingSet,
}

impl SwitchTrigger {
    /// Opens the events, if there are some.
    pub(super) fn open(
        events: &[EventSpec],
        notes: &mut Vec<Note>,
    ) -> Result<Option<SwitchTrigger>, RecordError> {
        if events.is_empty() {
            return Ok(None);
        }
        if let Some(other) = events.iter().find(|spec| !spec.is_tracepoint()) {
            let why = format!("--switch-output-event: {} is not a tracepoint or probe", other.name);
            return Err(RecordError::Usage(why));
        }
        // Files that are begun cause events, too.
        let own = format!("common_pid != {}", std::process::id());
        let plan = events.iter().map(|spec| {
            let mut attr = spec.attr.clone();
            (attr.sample_period, attr.wakeup) = (1, 1);
            attr.sample_type = SampleType::TIME;
            attr.flags |= AttrFlags::DISABLED;
            let mut spec = spec.clone();
            spec.filter = Some(own.clone());
            PlannedEvent { spec, attr, leader: None, sideband_only: false, cgroup: None }
        });
        let online = cpus::online();
        let policy = OpenPolicy {
            start: AttrFlags::DISABLED,
            user_only: UserOnly::AllEvents,
            keep_unsupported: false,
        };
        let scope = CounterScope::Cpus(online.clone());
        let set = EventSet::open(plan.collect(), &scope, policy, notes)?;
        let rings = RingOptions { pages: Some(PAGES), cpus: &online };
        Ok(Some(SwitchTrigger { rings: RingSet::map(set, &rings, notes)? }))
    }

    /// Lets the events come.
    pub(super) fn start(&self) -> io::Result<()> {
        self.rings.set.switch(true, |_| true)
    }

    /// File descriptors to wait for.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.rings.iter().filter_map(|ring| self.rings.fd(ring))
    }

    /// Whether one has happened since this was asked last.
    pub(super) fn take(&mut self) -> io::Result<bool> {
        let mut bytes = 0;
        for ring in &mut self.rings.rings {
            bytes += ring.ring.read(|_, _| Ok::<(), io::Error>(()))?;
        }
        Ok(bytes > 0)
    }
}
