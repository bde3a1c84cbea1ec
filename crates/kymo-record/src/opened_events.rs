//! Common start of recordings and live captures: the chosen events with their rings, the command at
//! its gate, and the target.

use std::io;

use kymo_files::perfdata::write::TracingBlob;
use kymo_kernel::events::EventSpec;
use kymo_kernel::process::{GatedChild, Signal, Signals};
use kymo_model::Note;

use crate::attrs::{self, Kernel};
use crate::error::RecordError;
use crate::facts;
use crate::open::{EventSet, OpenPolicy, RingOptions, RingSet, UserOnly};
use crate::options::{RecordOptions, Target};
use crate::selection::{
    chosen_cpus, chosen_events, chosen_tids, explain_clock, note_sampling, note_set_id,
    put_into_cgroups, scope,
};

/// Events that were opened and have not started.
pub(crate) struct OpenedEvents {
    /// As they were opened, those left out that only tell of tasks.
    pub(crate) specs: Vec<EventSpec>,
    pub(crate) rings: RingSet,
    pub(crate) tracing: Option<TracingBlob>,
    pub(crate) child: Option<GatedChild>,
    pub(crate) tids: Vec<u32>,
    pub(crate) cpus: Vec<u32>,
    pub(crate) signals: Signals,
    pub(crate) notes: Vec<Note>,
}

/// An error of the machine with what was tried.
pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |source| RecordError::System { what, source }
}

impl OpenedEvents {
    pub(crate) fn open(options: &RecordOptions) -> Result<OpenedEvents, RecordError> {
        let mut notes = Vec::new();
        if options.command.is_empty() && options.target == Target::Command {
            return Err(RecordError::Nothing);
        }
        let specs = chosen_events(options, &mut notes)?;
        if options.target == Target::Command {
            note_set_id(&options.command, &mut notes);
        }
        // SIGUSR2 without a meaning here, and a file that may not grow, are no reason to
        // die in the middle of a file: a write then fails, and says so.
        let signals =
            [Signal::Int, Signal::Term, Signal::Hup, Signal::Quit, Signal::Usr2, Signal::FileSize];
        let signals = Signals::listen(&signals).map_err(system("cannot listen for signals"))?;
        let child = if options.command.is_empty() {
            None
        } else {
            Some(GatedChild::spawn(&options.command)?)
        };
        if let Some(child) = child.as_ref().filter(|_| !options.pinned.is_empty()) {
            child.pin(&options.pinned).map_err(system("cannot pin the command to its CPUs"))?;
        }
        if let (Some(place), Some(child)) = (&options.spawned, &child) {
            // It is of one recording alone.
            let _ = place.set(child.pid());
        }
        let tids = chosen_tids(options, child.as_ref())?;
        let cpus = chosen_cpus(options)?;
        let mut plan = attrs::plan(options, &specs, Kernel::probe())?;
        put_into_cgroups(options, &mut plan)?;
        note_sampling(options, &plan, &mut notes)?;
        let policy = OpenPolicy {
            start: attrs::start_flags(options),
            user_only: UserOnly::AllEvents,
            keep_unsupported: false,
        };
        let set = EventSet::open(plan.clone(), &scope(&tids, &cpus), policy, &mut notes)
            .map_err(|e| explain_clock(e, options, &plan))?;
        let rings = RingOptions { pages: options.pages, cpus: &cpus };
        let rings = RingSet::map(set, &rings, &mut notes)?;
        // As they were opened, which may be without the kernel's side.
        let recorded = rings.set.events.iter().filter(|e| !e.planned.sideband_only);
        let specs: Vec<EventSpec> = recorded.map(|e| e.planned.spec.clone()).collect();
        let tracing = facts::tracing(&specs)?;
        Ok(OpenedEvents { specs, rings, tracing, child, tids, cpus, signals, notes })
    }
}
