//! Events, tasks, CPUs and cgroups that the options of a recording name, and what to say
//! of a clock or a frequency that the kernel does not give.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_kernel::events::{Catalog, CounterSource, EventSpec};
use kymo_kernel::perf_event::{OpenFlags, PerfEvent};
use kymo_kernel::process::GatedChild;
use kymo_kernel::{cpus, process, target};
use kymo_model::{AttrFlags, EventType, Note, NoteKind, hw, sampled_tracepoints};

use crate::error::RecordError;
use crate::open::{Cgroup, CounterScope, PlannedEvent};
use crate::options::{RecordClock, RecordOptions, Target};
use crate::scan::Scan;

/// Explains a refusal that is about the clock: only software events may
/// be timed by clocks that cannot be read in an NMI.
pub(crate) fn explain_clock(
    e: RecordError,
    options: &RecordOptions,
    plan: &[PlannedEvent],
) -> RecordError {
    let RecordError::Open { event, .. } = &e else { return e };
    let Some(planned) = plan.iter().find(|p| p.spec.name == *event) else { return e };
    let takes = |clock: RecordClock| {
        let mut attr = planned.attr.clone();
        attr.flags.set(AttrFlags::USE_CLOCKID, clock.id().is_some());
        attr.clockid = clock.id().unwrap_or(0);
        PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE).is_ok()
    };
    if takes(options.clock) {
        return e;
    }
    let others: Vec<&str> =
        RecordClock::ALL.into_iter().filter(|c| takes(*c)).map(RecordClock::name).collect();
    if others.is_empty() {
        e
    } else {
        RecordError::RecordClock {
            event: event.clone(),
            clock: options.clock.name(),
            others: others.join(", "),
        }
    }
}

/// Notes a command whose events end as it is executed.
pub(crate) fn note_set_id(command: &[OsString], notes: &mut Vec<Note>) {
    if let Some(path) = command.first().and_then(|name| process::set_id_program(name)) {
        notes.push(set_id_note(&path));
    }
}

/// Programs that the command executed and whose events ended then.
pub(crate) fn set_id_children(command: &[OsString], scan: &Scan) -> Vec<PathBuf> {
    let own = command.first().and_then(|name| process::set_id_program(name));
    let programs = scan.hidden_programs().into_iter();
    let paths = programs.filter_map(|name| process::set_id_program(OsStr::from_bytes(name)));
    paths.filter(|path| Some(path) != own.as_ref()).collect()
}

/// Note about such a program.
pub(crate) fn set_id_note(program: &Path) -> Note {
    let fact = format!(
        "{} runs as another user (set-user-ID): the kernel ends the events of ordinary users as it \
         is executed",
        program.display()
    );
    let advice = "run kymo as root, or a copy of the program without that bit".to_owned();
    Note::doubt(NoteKind::Program, fact, Some(advice))
}

/// Events that are recorded: those of the options, or the default.
pub(crate) fn chosen_events(
    options: &RecordOptions,
    notes: &mut Vec<Note>,
) -> Result<Vec<EventSpec>, RecordError> {
    let mut specs = options.events.clone();
    if specs.is_empty() {
        let catalog = Catalog::open();
        specs = catalog.parse("cycles")?;
        if !specs.first().is_some_and(is_supported) {
            specs = catalog.parse("cpu-clock")?;
            notes.push(Note::choice(
                NoteKind::DefaultEvent,
                "cycles are not supported on this machine: recording cpu-clock",
                None,
            ));
        }
    }
    if options.replace_cycles {
        replace_cycles(options, &mut specs, notes)?;
    }
    specs.extend(options.more_events.iter().cloned());
    if specs.iter().any(|spec| spec.name == "ftrace:print") {
        let fact = "texts that programs write to trace_marker are in no perf event: ftrace:print \
                    has none of them";
        let advice = "kymo trace -e ftrace:print -o FILE.dat".to_owned();
        notes.push(Note::doubt(NoteKind::NotSupported, fact, Some(advice)));
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

/// Whether the machine counts an event in user space.
fn is_supported(spec: &EventSpec) -> bool {
    let mut attr = spec.attr.clone();
    (attr.sample_period, attr.flags) = (1_000_000, attr.flags | AttrFlags::EXCLUDE_KERNEL);
    match PerfEvent::open(&attr, 0, -1, None, OpenFlags::NONE) {
        Ok(_) => true,
        Err(e) => !e.is_unsupported(),
    }
}

/// Puts a clock in the place of cycles that the machine does not count: the task's, or for whole
/// CPUs theirs.
fn replace_cycles(
    options: &RecordOptions,
    specs: &mut [EventSpec],
    notes: &mut Vec<Note>,
) -> Result<(), RecordError> {
    let clock = match options.target {
        Target::System => "cpu-clock",
        _ => "task-clock",
    };
    let is_cycles = |spec: &&mut EventSpec| {
        spec.attr.kind == EventType::HARDWARE
            && spec.attr.config == hw::CPU_CYCLES
            && spec.source == CounterSource::Perf
    };
    for spec in specs.iter_mut().filter(is_cycles).filter(|spec| !is_supported(spec)) {
        let Some(instead) = Catalog::open().parse(clock)?.pop() else { continue };
        let modifiers = spec.name.split_once(':').map(|(_, modifiers)| modifiers.to_owned());
        notes.push(Note::choice(
            NoteKind::DefaultEvent,
            format!("{} is not supported on this machine: recording {clock}", spec.name),
            None,
        ));
        spec.name = modifiers.map_or(clock.to_owned(), |m| format!("{clock}:{m}"));
        (spec.attr.kind, spec.attr.config) = (instead.attr.kind, instead.attr.config);
        (spec.unit, spec.scale, spec.pmu) = (instead.unit, instead.scale, instead.pmu);
        // A clock has no precision.
        spec.attr.flags.remove(AttrFlags::PRECISE_IP);
        spec.precise_max = false;
    }
    Ok(())
}

/// The threads to open the events for; none for all.
pub(crate) fn chosen_tids(
    options: &RecordOptions,
    child: Option<&GatedChild>,
) -> Result<Vec<u32>, RecordError> {
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

/// CPUs to open the events on.
pub(crate) fn chosen_cpus(options: &RecordOptions) -> Result<Vec<u32>, RecordError> {
    let online = cpus::online();
    if options.cpus.is_empty() {
        return Ok(online);
    }
    match options.cpus.iter().find(|c| !online.contains(c)) {
        Some(&cpu) => Err(RecordError::Cpu(cpu)),
        None => Ok(options.cpus.clone()),
    }
}

/// Places to open the events at: each ring is one CPU's, so tasks are followed by CPU.
pub(crate) fn scope(tids: &[u32], cpus: &[u32]) -> CounterScope {
    if tids.is_empty() {
        CounterScope::Cpus(cpus.to_vec())
    } else {
        CounterScope::TasksOn { tids: tids.to_vec(), cpus: cpus.to_vec() }
    }
}

/// Puts the events into the cgroups of `-G`: all into one, or each into its own.
pub(crate) fn put_into_cgroups(
    options: &RecordOptions,
    plan: &mut [PlannedEvent],
) -> Result<(), RecordError> {
    let Target::Cgroups(names) = &options.target else { return Ok(()) };
    // The tracking event sees whole CPUs.
    let events = plan.iter_mut().filter(|p| !p.sideband_only).collect::<Vec<_>>();
    if names.len() != 1 && names.len() != events.len() {
        let why = format!(
            "-G names {} cgroups for {} events: name one, or one for each",
            names.len(),
            events.len()
        );
        return Err(RecordError::Usage(why));
    }
    let cgroups = names.iter().map(|name| Cgroup::open(name)).collect::<Result<Vec<_>, _>>()?;
    for (n, event) in events.into_iter().enumerate() {
        event.cgroup = cgroups.get(n).or(cgroups.first()).map(Arc::clone);
    }
    Ok(())
}

/// Notes tracepoints of which hits may be missing, and a frequency that the kernel does not
/// allow.
pub(crate) fn note_sampling(
    options: &RecordOptions,
    plan: &[PlannedEvent],
    notes: &mut Vec<Note>,
) -> Result<(), RecordError> {
    let events = plan.iter().filter(|p| !p.sideband_only);
    notes.extend(sampled_tracepoints(events.map(|p| (&*p.spec.name, &p.attr))));
    let Some(wanted) = options.freq.filter(|f| *f != u64::MAX) else { return Ok(()) };
    let sampled = plan.iter().find(|p| p.attr.flags.contains(AttrFlags::FREQ));
    if let Some(got) = sampled.map(|p| p.attr.sample_period).filter(|g| *g < wanted) {
        if options.strict_frequency {
            return Err(RecordError::Usage(format!(
                "the kernel samples at most at {got} Hz, not at {wanted}: raise \
                 /proc/sys/kernel/perf_event_max_sample_rate, or leave out --strict-freq"
            )));
        }
        notes.push(Note::doubt(
            NoteKind::Frequency,
            format!("sampling at {got} Hz, not {wanted}: the kernel allows no more"),
            Some("raise /proc/sys/kernel/perf_event_max_sample_rate".into()),
        ));
    }
    Ok(())
}
