//! From the options to what is opened, for whom and where; and what to say when
//! the kernel gives less or refuses.

use std::fs::File;

use kymo_kernel::events::{Catalog, EventSpec};
use kymo_kernel::perf_event::{OpenError, OpenFlags, PerfEvent};
use kymo_kernel::process::GatedChild;
use kymo_kernel::{cpus, target};
use kymo_model::{AttrFlags, Note, NoteKind};

use crate::attrs::Planned;
use crate::error::RecordError;
use crate::open::Places;
use crate::options::{Clock, Options, Target};

/// Whether leaving the kernel out would be allowed, and still be what was asked for.
pub(crate) fn user_only_helps(e: &OpenError, specs: &[EventSpec]) -> bool {
    let asked = specs
        .iter()
        .all(|s| s.may_be_user_only() || s.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
    asked && e.is_denied() && e.wants_kernel && e.pid != -1 && e.paranoid.is_some_and(|p| p > 1)
}

/// What to know of a recording without the kernel's side.
pub(crate) fn user_only(e: &OpenError) -> Note {
    let level = e.paranoid.unwrap_or_default();
    Note::doubt(
        NoteKind::UserOnly,
        format!("only user space is recorded: kernel.perf_event_paranoid is {level}"),
        Some(kymo_kernel::perf_event::FOR_THE_KERNELS_SIDE.into()),
    )
}

/// Says it if it is the clock that the kernel refuses: only software events may
/// be timed by clocks that cannot be read in an NMI.
pub(crate) fn blame_clock(e: RecordError, options: &Options, plan: &[Planned]) -> RecordError {
    let RecordError::Open { event, .. } = &e else { return e };
    let Some(planned) = plan.iter().find(|p| p.spec.name == *event) else { return e };
    let takes = |clock: Clock| {
        let mut attr = planned.attr.clone();
        attr.flags.set(AttrFlags::USE_CLOCKID, clock.id().is_some());
        attr.clockid = clock.id().unwrap_or(0);
        PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE).is_ok()
    };
    if takes(options.clock) {
        return e;
    }
    let others: Vec<&str> = Clock::ALL.into_iter().filter(|c| takes(*c)).map(Clock::name).collect();
    match others.is_empty() {
        true => e,
        false => RecordError::Clock {
            event: event.clone(),
            clock: options.clock.name(),
            others: others.join(", "),
        },
    }
}

/// The events asked for, or the default.
pub(crate) fn chosen(
    options: &Options,
    notes: &mut Vec<Note>,
) -> Result<Vec<EventSpec>, RecordError> {
    let mut specs = options.events.clone();
    if specs.is_empty() {
        let catalog = Catalog::open();
        specs = catalog.parse("cycles")?;
        let works = specs.first().is_some_and(|s| {
            let mut attr = s.attr.clone();
            (attr.sample_period, attr.flags) = (1_000_000, attr.flags | AttrFlags::EXCLUDE_KERNEL);
            match PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE) {
                Ok(_) => true,
                Err(e) => !e.is_unsupported(),
            }
        });
        if !works {
            specs = catalog.parse("cpu-clock")?;
            notes.push(Note::choice(
                NoteKind::DefaultEvent,
                "cycles are not supported on this machine: recording cpu-clock",
                None,
            ));
        }
    }
    if options.exclude_self {
        if !specs.iter().any(EventSpec::is_tracepoint) {
            let why = "--exclude-perf is a filter for tracepoints, and none is recorded";
            return Err(RecordError::Usage(why.into()));
        }
        let own = format!("common_pid != {}", std::process::id());
        for s in specs.iter_mut().filter(|s| s.is_tracepoint()) {
            s.filter = Some(match s.filter.take() {
                Some(f) => format!("({f}) && ({own})"),
                None => own.clone(),
            });
        }
    }
    match specs.iter().find(|s| s.filter.is_some() && !s.is_tracepoint()) {
        Some(s) => Err(RecordError::FilterTarget(s.name.clone())),
        None => Ok(specs),
    }
}

/// The threads to open the events for; none for all.
pub(crate) fn tids(options: &Options, child: Option<&GatedChild>) -> Result<Vec<u32>, RecordError> {
    Ok(match &options.target {
        Target::Command => child.map(|c| vec![c.pid()]).unwrap_or_default(),
        Target::System | Target::Cgroups(_) => Vec::new(),
        Target::Processes(pids) if options.skip_gone => target::threads_of_living(pids)?,
        Target::Processes(pids) => target::threads_of_all(pids)?,
        Target::Threads(tids) => {
            tids.iter().try_for_each(|&t| target::check_thread(t))?;
            tids.clone()
        }
    })
}

/// On whom and where.
pub(crate) fn places(
    options: &Options,
    tids: &[u32],
    events: usize,
) -> Result<Places, RecordError> {
    let online = cpus::online();
    let cpus = match options.cpus.is_empty() {
        true => online,
        false => match options.cpus.iter().find(|c| !online.contains(c)) {
            Some(&c) => return Err(RecordError::Cpu(c)),
            None => options.cpus.clone(),
        },
    };
    let mut cgroups = Vec::new();
    if let Target::Cgroups(names) = &options.target {
        if names.len() != 1 && names.len() != events {
            let why = format!(
                "-G names {} cgroups for {events} events: name one, or one for each",
                names.len()
            );
            return Err(RecordError::Usage(why));
        }
        for name in names {
            let path = target::cgroup_dir(name)?;
            let open = File::open(&path);
            cgroups.push(open.map_err(|source| RecordError::Create { path, source })?);
        }
    }
    let tids = match tids.is_empty() {
        true => vec![-1],
        false => tids.iter().map(|&t| t as i32).collect(),
    };
    Ok(Places { tids, cgroups, cpus })
}

/// Notes a frequency that the kernel does not allow.
pub(crate) fn clamp_note(options: &Options, plan: &[Planned], notes: &mut Vec<Note>) {
    let Some(asked) = options.freq.filter(|f| *f != u64::MAX) else { return };
    let sampled = plan.iter().find(|p| p.attr.flags.contains(AttrFlags::FREQ));
    if let Some(got) = sampled.map(|p| p.attr.sample_period).filter(|g| *g < asked) {
        notes.push(Note::doubt(
            NoteKind::Frequency,
            format!("sampling at {got} Hz, not {asked}: the kernel allows no more"),
            Some("raise /proc/sys/kernel/perf_event_max_sample_rate".into()),
        ));
    }
}
